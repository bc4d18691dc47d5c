"""From the outputs of a call to its verdict and, where that is a failure, to its explanation."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import EvaluationStatus
from pytest_fib.engine._bounds import PRECISION
from pytest_fib.engine._explain import explain
from pytest_fib.engine._mistake import Mistake, WrongOutput, take
from pytest_fib.engine._sampling import SamplingTest
from pytest_fib.engine._suppositions import suppositions
from pytest_fib.engine._verdict import (
    Verdict,
    compare_outputs,
    decided_by,
    unravelled,
    verdict_of,
)
from pytest_fib.workloads import bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_fib.data import Definition, Workload
    from pytest_fib.engine._verdict import Judged, Outputs

#: What outputs hold before each of the first two calls, two bytes over and over. The first is NaN
#: in the floating dtypes, one that arithmetic does not make; the second is a finite number, so that
#: neither passes where the other would.
POISONS = (0xFFE5, 0x5555)
#: Patterns that no one understands without an element beside them.
SAYS_LITTLE = ("everywhere", "one element", "scattered")
#: What the names of inputs have in them that make random choices repeatable.
RANDOMNESS = ("seed", "uniform", "noise")
AGAIN = "right on a first call, wrong on a second of the same inputs"


@dataclass(frozen=True)
class Evidence:
    """What a call was given, and what is right. Tensors are only read.

    ``inputs`` include scalars. ``yardsticks`` makes the outputs that honest rounding may lead to,
    and is asked after a failure only; None, there are none. ``poisons`` are what outputs held
    before the call, ``previous`` what earlier calls should have written. ``no_oracle`` is why
    ``expected`` is not in float64. ``suppose`` makes the float64 outputs of other values of
    inputs, by their names, or None.
    """

    definition: Definition
    workload: Workload
    inputs: Mapping[str, Any]
    expected: Outputs
    yardsticks: Callable[[], Sequence[Outputs]] | None = None
    poisons: tuple[int, ...] = ()
    previous: Outputs = field(default_factory=dict)
    no_oracle: str | None = None
    suppose: Callable[[Mapping[str, Any]], Outputs | None] | None = None

    def verdict_of_two(self, first: Outputs, call_again: Callable[[], Outputs]) -> Verdict:
        """Of two calls on the same inputs, which must be right and have the same bits.

        ``call_again`` makes the second, unless the first left its outputs unwritten. Other bits are
        allowed where the definition says ``nondeterministic``, and of outputs that are chosen at
        random, unless the inputs have what they are drawn with.
        """
        verdict = replace(self, poisons=POISONS[:1]).verdict(first)
        if _pattern(verdict) == "unwritten":
            return verdict
        second = call_again()
        differences = self._differences(first, second)
        if not differences:
            return self._in_support(verdict, second) if verdict.passed else verdict
        free = self.definition.nondeterministic
        if not verdict.passed:
            return verdict if free else _also(verdict, differences[0])
        again = replace(self, poisons=POISONS[1:]).verdict(second)
        if not again.passed and (free or _pattern(again) == "unwritten"):
            return replace(again, summary=f"{again.summary} ({AGAIN})")
        if free:
            return verdict
        more = [*differences[1:], *(["", again.summary] if again.summary else []), *again.details]
        return failing(again, "nondeterministic", differences[0], more)

    def _differences(self, first: Outputs, second: Outputs) -> list[str]:
        """How far outputs are from those of another call, where their bits are not the same."""
        drawn_with = any(word in name for name in self.definition.inputs for word in RANDOMNESS)
        return [
            _difference(name, first[name], second[name])
            for name in self.definition.outputs
            if (drawn_with or not self.definition.is_sampled(name))
            and not bits(first[name]).equal(bits(second[name]))
        ]

    def verdict(self, outputs: Outputs) -> Verdict:
        """By the oracle alone and, where that is a failure, by what rounding may do."""
        compared = self._compared(outputs)
        if self.yardsticks is not None and not _right(compared):
            compared = self._compared(outputs, self.yardsticks())
        if _right(compared):
            return self._concluded(compared, outputs)
        return explained(
            self._concluded(compared, outputs),
            compared,
            self.definition,
            axes=self.definition.axis_values(self.workload.axes),
            inputs=self.inputs,
            poisons=self.poisons,
            previous=self.previous,
            supposed=self._supposed(),
        )

    def judged(self, outputs: Outputs, yardsticks: Sequence[Outputs] = ()) -> Verdict:
        """With these yardsticks, and without an explanation."""
        return self._concluded(self._compared(outputs, yardsticks), outputs)

    def _concluded(self, compared: Sequence[Judged], outputs: Outputs) -> Verdict:
        verdict = verdict_of(compared)
        if self.no_oracle is not None:
            verdict = noted(verdict, oracle="own precision", no_oracle=self.no_oracle)
        return self._in_support(verdict, outputs) if verdict.passed else verdict

    def _supposed(self) -> Iterator[tuple[str, Outputs]]:
        """Outputs of other inputs, and what these are, as they are asked for."""
        if self.suppose is None:
            return
        for supposition in suppositions(self.definition, self.inputs):
            outputs = self.suppose(supposition.values)
            if outputs is not None:
                axes = {name: spec.shape or () for name, spec in self.definition.outputs.items()}
                back = {name: supposition.back(x, axes[name]) for name, x in outputs.items()}
                yield supposition.words, back

    def _compared(self, outputs: Outputs, yardsticks: Sequence[Outputs] = ()) -> list[Judged]:
        regime = self.workload.regime
        exact = regime.get("values") == "zeros_and_ones" and "inputs" not in regime
        return compare_outputs(
            self.definition, outputs, self.expected, yardsticks, exact=exact, inputs=self.inputs
        )

    def _in_support(self, verdict: Verdict, outputs: Outputs) -> Verdict:
        """A sample outside the set of what may be sampled is wrong, whatever its neighbours are."""
        for name in self.definition.outputs:
            if not self.definition.is_sampled(name):
                continue
            violations = SamplingTest.of(self.inputs).support_violations(outputs[name])
            if violations:
                first, *more = map(str, violations)
                return failing(verdict, "outside the support", f"{name}: {first}", more)
        return verdict


def _right(compared: Sequence[Judged]) -> bool:
    return all(each.comparison.passed for each in compared)


def _difference(name: str, first: torch.Tensor, second: torch.Tensor) -> str:
    """How many elements of an output two calls gave other bits, and the worst of them."""
    differ = (bits(first) != bits(second)).reshape(-1)
    at = differ.nonzero()[:, 0]
    if not _is_readable(first):
        first, second = first.view(torch.uint8), second.view(torch.uint8)
    sides = take(first, at), take(second, at)
    apart = (sides[0] - sides[1]).abs().nan_to_num(math.inf, math.inf)
    worst = int(apart.argmax())
    index = ", ".join(map(str, unravelled(int(at[worst]), first.shape)))
    one, other = (f"{float(side[worst]):.9g}" for side in sides)
    return (
        f"{name}: two calls on the same inputs gave other bits in {len(at)} of {len(differ)} "
        f"elements; {name}[{index}] was {one}, then {other}, the most apart"
    )


def _also(verdict: Verdict, difference: str) -> Verdict:
    """A failure of which the next call's differs: that is why, unless there is a better reason."""
    if _pattern(verdict) not in SAYS_LITTLE:
        return replace(verdict, details=(*verdict.details, "", *_wrapped(difference)))
    return failing(verdict, "nondeterministic", difference, ["", verdict.summary, *verdict.details])


def failing(verdict: Verdict, pattern: str, summary: str, details: Sequence[str] = ()) -> Verdict:
    """A verdict turned into a failure of a named kind, with its figures."""
    lines = tuple(part for line in details for part in _wrapped(line))
    found = Verdict(EvaluationStatus.INCORRECT_NUMERICAL, verdict.correctness, summary, lines)
    return noted(found, pattern=pattern)


def _wrapped(line: str) -> list[str]:
    """A line of details, in 80 columns."""
    return textwrap.wrap(line.strip(), 80, initial_indent="  ", subsequent_indent="    ") or [""]


def noted(verdict: Verdict, **facts: Any) -> Verdict:
    """A verdict with more facts in its record."""
    extra = {**(verdict.correctness.extra or {}), **facts}
    correctness = verdict.correctness.model_copy(update={"extra": extra})
    return replace(verdict, correctness=correctness)


def _pattern(verdict: Verdict) -> str | None:
    pattern: str | None = (verdict.correctness.extra or {}).get("pattern")
    return pattern


def explained(
    verdict: Verdict,
    compared: Sequence[Judged],
    definition: Definition | None = None,
    *,
    axes: Mapping[str, int] | None = None,
    inputs: Mapping[str, Any] | None = None,
    poisons: tuple[int, ...] = (),
    previous: Outputs | None = None,
    supposed: Iterable[tuple[str, Outputs]] = (),
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
            {each.comparison.name: each.expected for each in compared if each.comparison.passed},
            supposed,
        )
    )
    worst = max(wrong, key=lambda each: each.rank)
    alone = worst.gathered is None and decided_by(worst.comparison) == "elements"
    lines = found.elements if alone else [verdict.summary, *found.elements]
    sentence = found.sentence
    if found.pattern in SAYS_LITTLE:
        sentence = f"{sentence}; {found.elements[0]}"
    return noted(failing(verdict, found.pattern, sentence, lines), place=found.place)


def _wrong_output(judged: Judged, definition: Definition | None) -> WrongOutput:
    name = judged.comparison.name
    dims = () if definition is None else definition.outputs[name].shape or ()
    wrong, bound = judged.marked()
    return WrongOutput(name, tuple(dims), judged.got, judged.expected, wrong, bound)


def _is_readable(value: Any) -> bool:
    """Whether the numbers of an input or output can be looked at one by one: not of float4."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point():
        return True
    return value.dtype in PRECISION or value.dtype is torch.float8_e8m0fnu
