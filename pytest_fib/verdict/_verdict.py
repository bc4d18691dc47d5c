"""Are these outputs right? Compares what an implementation wrote with what is expected."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_fib.data import Correctness, Definition, Diagnosis, EvaluationStatus
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
from pytest_fib.verdict._compare import Bias, measure
from pytest_fib.workloads import outputs_of_bits

#: Tensors by the names of outputs.
Outputs: TypeAlias = "Mapping[str, torch.Tensor]"


@dataclass
class OutputComparison:
    """One output, what is expected of it, and how far apart they are.

    ``used`` is the largest error of an element over its bound, at the flat index ``at``, where
    yardsticks made the bound ``width`` times as wide; ``rows_used`` is the same of a row, the one
    from ``row_at`` on. Of an output of indices, ``by_index`` has what is compared.
    """

    name: str
    got: torch.Tensor
    expected: torch.Tensor
    bound: Bound
    yardsticks: Sequence[torch.Tensor] = ()
    by_index: PointedAt | None = None
    row: int = 1
    wrong: int = 0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    max_ulp: float = 0.0
    square_sum: float = 0.0
    used: float = 0.0
    at: int = 0
    width: float = 1.0
    rows_used: float = 0.0
    row_at: int = 0
    bias: Bias | None = None

    @property
    def total(self) -> int:
        return self.got.numel()

    @property
    def oracle(self) -> bool:
        """Whether the expected values are exact, or in float64."""
        return self.expected.dtype is torch.float64 or not self.expected.is_floating_point()

    @property
    def matched_ratio(self) -> float:
        """The share of elements within their bound."""
        return 1.0 - self.wrong / self.total if self.total else 1.0

    @property
    def rmse(self) -> float:
        return math.sqrt(self.square_sum / self.total) if self.total else 0.0

    @property
    def bias_used(self) -> float:
        """How much the factor or the offset uses of its bound."""
        return self.bias.used if self.bias else 0.0

    @property
    def elements_used(self) -> float:
        """How much of what it allows them the elements use; more than 1 is wrong."""
        share = 1.0 - self.bound.matched_ratio
        if share > 0 and self.used > 1:
            return (1.0 - self.matched_ratio) / share
        return self.used

    @property
    def bound_used(self) -> float:
        """The same of elements, rows and bias; the largest of them."""
        return max(self.elements_used, self.rows_used, self.bias_used)

    @property
    def passed(self) -> bool:
        return self.bound_used <= 1

    @property
    def rank(self) -> tuple[float, int]:
        """The worst of several outputs has the highest."""
        return (self.bound_used, self.wrong)

    @property
    def check(self) -> str:
        """Which of the bounds is used most: the elements' wherever these are wrong."""
        elements, others = self.elements_used, max(self.rows_used, self.bias_used)
        if elements > 1 or elements >= others:
            return "elements"
        return "rows" if self.rows_used >= self.bias_used else "bias"

    @property
    def shown_by_elements(self) -> bool:
        """Whether its wrong elements show by themselves what is wrong."""
        return self.by_index is None and self.check == "elements"

    def worst_element(self) -> dict[str, Any]:
        """Where the worst element is, both sides, and how far apart they may be."""
        if self.total == 0:
            return {}
        index = unravelled(self.at, self.got.shape)
        expected = number_at(self.expected, self.at)
        element = {
            "output": self.name,
            "index": list(index),
            "got": number_at(self.got, self.at),
            "expected": expected,
            "allowed": self._allowed(float(expected)),
        }
        return element | (self.by_index.facts(self.at) if self.by_index else {})

    def _allowed(self, expected: float) -> float:
        """How far the worst element may be off."""
        bound = self.bound
        if self.by_index is not None or not math.isfinite(expected):
            return 0.0
        reach = bound.atol + bound.rtol * abs(expected)
        if bound.scale:
            start = self.at // self.row * self.row
            row = self.expected.reshape(-1)[start : start + self.row].double().cpu()
            row = row[row.abs() <= torch.finfo(self.got.dtype).max]
            reach += bound.scale * (float(row.square().mean().sqrt()) if len(row) else 0.0)
        return self.width * reach

    def describe(self) -> str:
        """What is wrong, in one line: the bound that is broken, where and by how much."""
        if self.check == "rows":
            return self._describe_row()
        if self.check == "bias" and self.bias is not None:
            return f"{self.name} {self.bias.describe()}"
        element = self.worst_element()
        allowed = None if self.by_index else element["allowed"]
        name = element_name(self.name, self.at, self.got.shape)
        sentence = element_sentence(name, element["got"], element["expected"], allowed)
        return f"{sentence}: {element['reason']}" if self.by_index else sentence

    def _describe_row(self) -> str:
        shape = self.got.shape or (1,)
        *index, start = unravelled(self.row_at, shape)
        end = min(start + self.row, shape[-1])
        line = ":" if shape[-1] == self.row else f"{start}:{end}"
        digits = 3 if self.rows_used >= 1.01 else 6
        error = f"RMS error is {self.rows_used:.{digits}g} times its limit"
        row = ", ".join([*map(str, index), line])
        return f"{self.name}[{row}]: {error}; each element is within its own"


def unravelled(flat: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element by its place in memory."""
    # NumPy's, since the first call of torch's imports for seconds.
    return tuple(int(i) for i in np.unravel_index(flat, tuple(shape)))


def element_name(name: str, flat: int, shape: Sequence[int]) -> str:
    """An element of an output as it is written in Python: ``y[3, 17]``; a scalar is ``y``."""
    index = unravelled(flat, shape)
    return f"{name}[{', '.join(map(str, index))}]" if index else name


def number_at(tensor: torch.Tensor, flat: int) -> float:
    """An element by its place in memory: integers and bools as such."""
    element = tensor[unravelled(flat, tensor.shape)]
    return float(element) if tensor.is_floating_point() else element.item()


def element_sentence(element: str, got: float, expected: float, allowed: float | None) -> str:
    """Both sides of an element and, unless None, how far apart they may be.

    Integers are shown whole, floats in as many digits as tell them apart.
    """
    digits = next(n for n in (6, 9, 17) if n == 17 or f"{got:.{n}g}" != f"{expected:.{n}g}")
    one, other = (f"{x:.{digits}g}" if isinstance(x, float) else str(x) for x in (got, expected))
    sides = f"{element} got {one}, expected {other}"
    return sides if allowed is None or isinstance(got, bool) else f"{sides}, allowed ±{allowed:.2g}"


@dataclass(frozen=True)
class Verdict:
    """PASSED or INCORRECT_NUMERICAL, how far outputs are off and, of a failure, what is wrong."""

    status: EvaluationStatus
    correctness: Correctness
    diagnosis: Diagnosis | None = None

    @property
    def passed(self) -> bool:
        return self.status is EvaluationStatus.PASSED

    def failed(self, diagnosis: Diagnosis) -> Verdict:
        """A failure with the same figures."""
        return Verdict(EvaluationStatus.INCORRECT_NUMERICAL, self.correctness, diagnosis)

    def qualified(self, circumstance: str) -> Verdict:
        """The same failure, with the circumstance that it needs behind its sentence."""
        if self.diagnosis is None:
            return self
        return replace(self, diagnosis=qualified(self.diagnosis, circumstance))

    def with_facts(self, **facts: Any) -> Verdict:
        """The same with more facts in its record."""
        extra = {**(self.correctness.extra or {}), **facts}
        correctness = self.correctness.model_copy(update={"extra": extra})
        return replace(self, correctness=correctness)


def detail_lines(*texts: str) -> tuple[str, ...]:
    """Texts as the details of a diagnosis: indented lines of at most 80 columns."""
    wrapper = textwrap.TextWrapper(80, initial_indent="  ", subsequent_indent="    ")
    return tuple(line for text in texts for line in wrapper.wrap(text.strip()))


def qualified(diagnosis: Diagnosis, circumstance: str) -> Diagnosis:
    """A diagnosis with the circumstance that it holds in: ``... (only in float16)``."""
    return diagnosis.model_copy(update={"sentence": f"{diagnosis.sentence} ({circumstance})"})


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

    ``expected`` are the reference's outputs in float64 or, where that can't be, in their own
    dtypes. ``yardsticks`` are outputs of the reference that are rounded as an implementation's may
    be: in its own dtypes, or on nudged inputs. They only widen bounds, so they are worth making
    only where the outputs are wrong without. With ``exact``, as for inputs of zeros and ones,
    outputs that the definition calls linear must be the expected values, rounded once, as those
    must be that the reference puts together from bits. ``inputs``
    are needed where indices are compared by what they point at. Outputs that are compared by
    samples are left to the statistics.
    """
    comparisons = []
    of_bits = outputs_of_bits(definition)
    for name in definition.outputs:
        if definition.is_sampled(name):
            continue
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
    """Compare one tensor by a given bound; of float4, which torch can't read, the bytes."""
    if got.is_floating_point() and got.dtype not in PRECISION:
        got, expected, *yardsticks = (x.view(torch.uint8) for x in (got, expected, *yardsticks))
    comparison = OutputComparison(name, got, expected, bound, yardsticks, by_index)
    measure(comparison)
    return comparison


def verdict_of(comparisons: Sequence[OutputComparison]) -> Verdict:
    """What the comparisons of all outputs amount to."""
    if not comparisons:
        return Verdict(EvaluationStatus.PASSED, Correctness())
    worst = max(comparisons, key=lambda comparison: comparison.rank)
    verdict = Verdict(EvaluationStatus.PASSED, _correctness(comparisons, worst))
    if worst.passed:
        return verdict
    return verdict.failed(Diagnosis(sentence=worst.describe()))


def _correctness(comparisons: Sequence[OutputComparison], worst: OutputComparison) -> Correctness:
    total = sum(c.total for c in comparisons)
    # These are floats, names and counts: nothing to check or convert.
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
