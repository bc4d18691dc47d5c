"""Compares the outputs of an implementation with the expected ones, and decides."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import filterfalse
from typing import Any, TypeAlias

import torch

from pytest_fib.data import (
    Circumstance,
    Correctness,
    Definition,
    Diagnosis,
    EvaluationStatus,
    Workload,
)
from pytest_fib.verdict._bounds import (
    EXACT,
    PRECISION,
    ROUNDED,
    Bound,
    dtype_bound,
    overridden,
    with_yardsticks,
)
from pytest_fib.verdict._by_index import PointedAt, pointed_at
from pytest_fib.verdict._compare import OutputComparison, measure
from pytest_fib.workloads import plan

#: Tensors by the names of outputs.
Outputs: TypeAlias = "Mapping[str, torch.Tensor]"


@dataclass(frozen=True)
class Verdict:
    """PASSED or INCORRECT_NUMERICAL, the errors of outputs and, for a failure, the diagnosis."""

    status: EvaluationStatus
    correctness: Correctness
    diagnosis: Diagnosis | None = None

    @property
    def passed(self) -> bool:
        return self.status is EvaluationStatus.PASSED

    def failed(self, diagnosis: Diagnosis) -> Verdict:
        """A failure with the same errors."""
        return Verdict(EvaluationStatus.INCORRECT_NUMERICAL, self.correctness, diagnosis)

    def qualified(self, circumstance: str, *, is_right: bool = False) -> Verdict:
        """The same failure, with a circumstance after its sentence."""
        if self.diagnosis is None:
            return self
        return replace(self, diagnosis=qualified(self.diagnosis, circumstance, is_right=is_right))

    def noted(self, note: str) -> Verdict:
        """The same failure, with a note below its details."""
        if self.diagnosis is None:
            return self
        details = (*self.diagnosis.details, *detail_lines(note))
        return replace(self, diagnosis=self.diagnosis.model_copy(update={"details": details}))

    def shown_by(self, workload: Workload) -> Verdict:
        """The same failure, whose diagnosis is that of another workload."""
        if self.diagnosis is None:
            return self
        return replace(self, diagnosis=self.diagnosis.model_copy(update={"shown_by": workload}))

    def with_facts(self, **facts: Any) -> Verdict:
        """The same with more facts in its record."""
        extra = {**(self.correctness.extra or {}), **facts}
        correctness = self.correctness.model_copy(update={"extra": extra})
        return replace(self, correctness=correctness)


def detail_lines(*texts: str) -> tuple[str, ...]:
    """Texts as the details of a diagnosis: indented lines of at most 80 columns."""
    wrapper = textwrap.TextWrapper(80, initial_indent="  ", subsequent_indent="    ")
    return tuple(line for text in texts for line in wrapper.wrap(text.strip()))


def qualified(diagnosis: Diagnosis, circumstance: str, *, is_right: bool = False) -> Diagnosis:
    """A diagnosis with the circumstance that it holds in: ``... (only in float16)``.

    Or in which all ``is_right``.
    """
    return diagnosis.with_parts(*diagnosis.parts, Circumstance(circumstance, is_right))


def compare_outputs(
    definition: Definition,
    outputs: Outputs,
    expected: Outputs,
    yardsticks: Sequence[Outputs] = (),
    *,
    exact: bool = False,
    inputs: Outputs | None = None,
) -> list[OutputComparison]:
    """Compare every output with its expected values, by the bounds of ``_bounds``.

    ``expected`` are the reference's outputs in float64 or, if that is impossible, in their own
    dtypes. ``yardsticks`` are outputs of the reference with the rounding of an honest
    implementation: in its own dtypes, or on nudged inputs. They only widen bounds, so they are
    needed only if outputs are wrong without. With ``exact``, as for inputs of zeros and ones,
    outputs that the definition calls linear must be the expected values, rounded once; so must
    outputs that the reference puts together from bits. ``inputs`` are needed if indices are
    compared by the values that they point at. Outputs that are compared by samples are left to the
    statistics.
    """
    comparisons = []
    of_bits = plan(definition).outputs_of_bits
    for name in filterfalse(definition.is_sampled, definition.outputs):
        got, right, tolerance = outputs[name], expected[name], definition.tolerances.get(name)
        others = [yardstick[name] for yardstick in yardsticks if name in yardstick]
        if tolerance is not None and tolerance.by == "gathered":
            tensors = {**(inputs or {}), **expected}
            by_index = pointed_at(definition, name, got, right, tensors, others=others)
            compared = compare_tensor(name, got, right, by_index.bound, by_index=by_index)
        else:
            own = dtype_bound(got.dtype, oracle=right.dtype != got.dtype)
            bound = overridden(ROUNDED if name in of_bits else own, tolerance)
            if exact and tolerance is not None and tolerance.linear:
                bound = EXACT
            if yardsticks:
                bound = with_yardsticks(bound, got.dtype, inputs or {})
            compared = compare_tensor(name, got, right, bound, others)
        comparisons.append(compared)
    return comparisons


def compare_tensor(
    name: str,
    got: torch.Tensor,
    expected: torch.Tensor,
    bound: Bound,
    yardsticks: Sequence[torch.Tensor] = (),
    *,
    by_index: PointedAt | None = None,
) -> OutputComparison:
    """Compare one tensor by a given bound; float4, which torch can't read, by its bytes."""
    if got.is_floating_point() and got.dtype not in PRECISION:
        got, expected, *yardsticks = (x.view(torch.uint8) for x in (got, expected, *yardsticks))
    comparison = OutputComparison(name, got, expected, bound, yardsticks, by_index)
    measure(comparison)
    return comparison


def verdict_of(comparisons: Sequence[OutputComparison]) -> Verdict:
    """The verdict on the comparisons of all outputs."""
    if not comparisons:
        return Verdict(EvaluationStatus.PASSED, Correctness())
    worst = max(comparisons, key=lambda comparison: comparison.rank)
    verdict = Verdict(EvaluationStatus.PASSED, _correctness(comparisons, worst))
    if worst.passed:
        return verdict
    return verdict.failed(Diagnosis(sentence=worst.describe()))


def _correctness(comparisons: Sequence[OutputComparison], worst: OutputComparison) -> Correctness:
    total = sum(c.total for c in comparisons)
    # Floats, names and counts need no validation.
    return Correctness.model_construct(
        max_relative_error=max(c.max_relative for c in comparisons),
        max_absolute_error=max(c.max_absolute for c in comparisons),
        extra={
            "oracle": "float64" if all(c.oracle for c in comparisons) else "own precision",
            "bound_used": worst.bound_used,
            "check": worst.check,
            "worst": worst.worst_element(),
            "rmse": {c.name: c.rmse for c in comparisons},
            "max_ulp": max(c.max_ulp for c in comparisons),
            "matched_ratio": 1 - sum(c.wrong for c in comparisons) / total if total else 1.0,
            "elements_wrong": {c.name: c.wrong for c in comparisons},
            "elements": {c.name: c.total for c in comparisons},
        },
    )
