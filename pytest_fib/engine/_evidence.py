"""From the outputs of a call to its verdict and, where that is a failure, to its explanation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import EvaluationStatus
from pytest_fib.engine._bounds import PRECISION
from pytest_fib.engine._explain import explain
from pytest_fib.engine._mistake import Mistake, WrongOutput
from pytest_fib.engine._sampling import SamplingTest
from pytest_fib.engine._verdict import (
    Verdict,
    by_samples,
    compare_outputs,
    decided_by,
    verdict_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_fib.data import Definition, Workload
    from pytest_fib.engine._verdict import Judged, Outputs

#: Patterns that no one understands without an element beside them.
SAYS_LITTLE = ("everywhere", "one element", "scattered")


@dataclass(frozen=True)
class Evidence:
    """What a call was given, and what is right. Tensors are only read.

    ``inputs`` include scalars. ``yardsticks`` makes the outputs that honest rounding may lead to,
    and is asked after a failure only; it is None where ``expected`` is not in float64. ``poisons``
    are the bytes that outputs held before the call, ``previous`` what earlier calls should have
    written.
    """

    definition: Definition
    workload: Workload
    inputs: Mapping[str, Any]
    expected: Outputs
    yardsticks: Callable[[], Sequence[Outputs]] | None = None
    poisons: tuple[int, ...] = ()
    previous: Outputs = field(default_factory=dict)

    def verdict(self, outputs: Outputs) -> Verdict:
        """By the oracle alone and, where that is a failure, by what rounding may do."""
        compared = self._compared(outputs)
        if self.yardsticks is not None and not all(each.comparison.passed for each in compared):
            compared = self._compared(outputs, self.yardsticks())
        verdict = verdict_of(compared)
        if verdict.passed:
            return self._in_support(verdict, outputs)
        return explained(
            verdict,
            compared,
            self.definition,
            axes=self.definition.axis_values(self.workload.axes),
            inputs=self.inputs,
            poisons=self.poisons,
            previous=self.previous,
        )

    def _compared(self, outputs: Outputs, yardsticks: Sequence[Outputs] = ()) -> list[Judged]:
        exact = self.workload.regime.get("values") == "zeros_and_ones"
        return compare_outputs(
            self.definition, outputs, self.expected, yardsticks, exact=exact, inputs=self.inputs
        )

    def _in_support(self, verdict: Verdict, outputs: Outputs) -> Verdict:
        """A sample outside the set of what may be sampled is wrong, whatever its neighbours are."""
        for name in self.definition.outputs:
            if not by_samples(self.definition, name):
                continue
            violations = SamplingTest.of(self.inputs).support_violations(outputs[name])
            if violations:
                first, *more = map(str, violations)
                return failing(verdict, "outside the support", f"{name}: {first}", more)
        return verdict


def failing(verdict: Verdict, pattern: str, summary: str, details: Sequence[str] = ()) -> Verdict:
    """A verdict turned into a failure of a named kind, with its figures."""
    extra = {**(verdict.correctness.extra or {}), "pattern": pattern}
    correctness = verdict.correctness.model_copy(update={"extra": extra})
    indented = tuple(f"  {line}" for line in details)
    return Verdict(EvaluationStatus.INCORRECT_NUMERICAL, correctness, summary, indented)


def explained(
    verdict: Verdict,
    compared: Sequence[Judged],
    definition: Definition | None = None,
    *,
    axes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    poisons: tuple[int, ...] = (),
    previous: Outputs | None = None,
) -> Verdict:
    """A failure with the pattern of what is wrong as its summary, and the worst elements below."""
    wrong = [each for each in compared if not each.comparison.passed]
    found = explain(
        Mistake(
            tuple(_wrong_output(each, definition) for each in wrong),
            axes or {},
            {name: value for name, value in (inputs or {}).items() if _is_readable(value)},
            poisons,
            previous or {},
        )
    )
    worst = max(wrong, key=lambda each: each.rank)
    alone = worst.gathered is None and decided_by(worst.comparison) == "elements"
    lines = found.elements if alone else [verdict.summary, *found.elements]
    sentence = found.sentence
    if found.pattern in SAYS_LITTLE:
        sentence = f"{sentence}; {found.elements[0]}"
    explained_ = failing(verdict, found.pattern, sentence, lines)
    extra = {**(explained_.correctness.extra or {}), "place": found.place}
    correctness = explained_.correctness.model_copy(update={"extra": extra})
    return replace(explained_, correctness=correctness)


def _wrong_output(judged: Judged, definition: Definition | None) -> WrongOutput:
    name = judged.comparison.name
    dims = () if definition is None else definition.outputs[name].shape or ()
    wrong, bound = judged.marked()
    got, expected = judged.got, judged.expected
    if not _is_readable(got):
        got, expected = got.view(torch.uint8), expected.to(got.dtype).view(torch.uint8)
    return WrongOutput(name, tuple(dims), got, expected, wrong, bound)


def _is_readable(value: Any) -> bool:
    """Whether the numbers of an input or output can be looked at one by one: not of float4."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    return value.dtype in PRECISION or value.dtype is torch.float8_e8m0fnu
