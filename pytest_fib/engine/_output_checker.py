"""The right outputs of a workload, and the check of a call's outputs against them.

The check is the same wherever the call was made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from pytest_fib.data import Definition, Diagnosis, Workload
from pytest_fib.diagnosis import VAGUE_PATTERNS, CallContext, diagnose, is_readable, take
from pytest_fib.sandbox import DECIDED_AT_RANDOM, MOVED_AGAIN, POISONS, YARDSTICKS, changed
from pytest_fib.verdict import (
    OutputComparison,
    Outputs,
    SamplingTest,
    Verdict,
    check_ranks,
    check_support,
    compare_outputs,
    compare_tensor,
    detail_lines,
    dtype_bound,
    element_name,
    is_rounded,
    verdict_of,
)
from pytest_fib.workloads import bits, make_inputs, make_workload, once

#: The circumstance of failures that only a second call has.
SECOND_CALL_ONLY = "right on a first call, wrong on a second of the same inputs"
#: A possible reason on CUDA, where that call is launched while its stream is still busy.
STREAM_WAS_BUSY = (
    "the second call was launched while its stream was busy: if the kernel uses another stream, "
    "does that wait for the current one, and the current one for that?"
)
#: How far the seed of other inputs of the same regime is from the workload's.
OTHER_SEED = 1 << 10
#: How many times their bound elements may be off for the largest of few samples to be the reason.
NEAR = 2.0
#: The share of elements that may be decided otherwise by luck, and how many of a small output: a
#: certain one of three choices that nearly tie is missed by six runs in 1 of 11 cases.
FEW = 1e-5
FEW_DECIDED = 3
#: The ratio of float64's roundoff to float32's.
FLOAT64_ROUNDOFF = 2.0**-29
#: A side's outputs for other values of some inputs, or None if it can't compute them.
OutputsOf: TypeAlias = Callable[[Mapping[str, Any]], "Outputs | None"]
#: Bytes of the cache of expected outputs, and the most for one workload.
CACHE_BYTES, LARGEST_BYTES = 256 << 20, 16 << 20
#: A workload as text, and the addresses of its recorded tensors.
Key: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class OutputChecker:
    """Checks the outputs of calls on one workload. Tensors are only read.

    ``inputs`` include scalars. ``yardsticks`` yields the outputs that honest rounding may lead to,
    some at a time: the next only after a failure that those before don't explain, and the last only
    if what it is given says that they nearly do.
    ``no_oracle`` is why ``expected`` is not in float64. ``reference_outputs`` computes the float64
    outputs for other values of some inputs, ``candidate_outputs`` those of the implementation, or
    None if that is impossible; they are called to explain a failure.
    """

    definition: Definition
    workload: Workload
    inputs: Mapping[str, Any]
    expected: Outputs
    yardsticks: Callable[[Callable[[], bool]], Iterator[list[Outputs]]] = lambda is_near: iter(())
    no_oracle: str | None = None
    reference_outputs: OutputsOf | None = None
    own_outputs: OutputsOf | None = None
    candidate_outputs: OutputsOf | None = None

    def check_twice(self, first: Outputs, second: Outputs) -> Verdict:
        """Check two calls on the same inputs, which must be right and have the same bits.

        Other bits are allowed if the definition says ``nondeterministic``, and in outputs that are
        chosen at random, unless the inputs have the seed.
        """
        verdict = self.check(first, POISONS, second_outputs=second)
        if verdict.passed:
            of_second = self.check_again(verdict, first, second, POISONS[1:])
            if _pattern(of_second) != "nondeterministic":
                of_second = of_second.qualified(SECOND_CALL_ONLY, is_right=True)
            return self._with_its_stream(of_second)
        if self.definition.nondeterministic or _pattern(verdict) == "unwritten":
            return verdict
        differences = self._differences(first, second)
        if not differences:
            return verdict
        return self._with_its_stream(_also_nondeterministic(verdict, differences[0]))

    def _with_its_stream(self, verdict: Verdict) -> Verdict:
        """On CUDA, add a possible reason why the second call differs."""
        diagnosis = verdict.diagnosis
        if diagnosis is None or not any(tensor.is_cuda for tensor in self.expected.values()):
            return verdict
        details = (*diagnosis.details, "", *detail_lines(STREAM_WAS_BUSY))
        return verdict.failed(diagnosis.model_copy(update={"details": details}))

    def check_again(
        self, verdict: Verdict, first: Outputs, second: Outputs, poisons: tuple[int, ...]
    ) -> Verdict:
        """Check another call on the same inputs; ``verdict`` is that of the first, which passed."""
        differences = self._differences(first, second)
        if not differences:
            return self._in_support(verdict, second)
        may_differ = self.definition.nondeterministic
        of_second = self.check(second, poisons)
        if not of_second.passed and (may_differ or _pattern(of_second) == "unwritten"):
            return of_second
        return verdict if may_differ else _nondeterministic(of_second, differences)

    def _differences(self, first: Outputs, second: Outputs) -> list[str]:
        """How far outputs differ from those of another call, if their bits do."""
        of = self.definition
        names = [n for n in of.outputs if of.is_seeded or not of.is_sampled(n)]
        differ = changed({name: second[name] for name in names}, first)
        return [_difference(name, first[name], second[name]) for name in differ]

    def check(
        self,
        outputs: Outputs,
        poisons: tuple[int, ...] = (),
        *,
        second_outputs: Outputs | None = None,
        previous: Outputs | None = None,
    ) -> Verdict:
        """Check one call against the oracle and, if that fails, against what rounding may do.

        ``poisons`` filled the outputs before the call, and ``second_outputs`` before the second;
        ``previous`` is what earlier calls should have written.
        """
        compared = self.compare(outputs)
        if not _all_passed(compared):
            compared = self._compare_by_yardsticks(outputs, compared)
        verdict = self.conclude(compared, outputs)
        if _all_passed(compared):
            return verdict
        can_try = self.candidate_outputs is not None and not self.workload.has_recorded_tensors
        context = CallContext(
            self.definition,
            self.definition.axis_values(self.workload.axes),
            self.inputs,
            poisons,
            second_outputs or {},
            previous or {},
            self.reference_outputs,
            self.own_outputs,
            self.candidate_outputs,
            self._other_inputs if can_try else None,
        )
        return verdict.failed(diagnose(compared, context))

    def _other_inputs(self, number: int) -> Mapping[str, Any]:
        """Inputs of the same sizes, on the same device; of size 1 where they repeat.

        Those of number 0 have the same regime, others none.
        """
        own = self.workload
        seed, regime = (number, {}) if number else (OTHER_SEED, own.regime)
        other = make_workload(self.definition, own.axes, own.seed + seed, regime)
        device = next(iter(self.expected.values())).device
        inputs = make_inputs(self.definition, other, str(device))
        return {n: once(x) if isinstance(x, torch.Tensor) else x for n, x in inputs.items()}

    def _compare_by_yardsticks(
        self, outputs: Outputs, compared: list[OutputComparison]
    ) -> list[OutputComparison]:
        """Compare with yardsticks until the outputs pass, or with all of them."""
        yardsticks: list[Outputs] = []

        def is_near() -> bool:
            return _all_near(compared)

        for more in self.yardsticks(is_near):
            yardsticks += more
            if more:
                compared = self.compare(outputs, self._of_float64(yardsticks))
            if _all_passed(compared):
                break
        return compared

    def _of_float64(self, yardsticks: Sequence[Outputs]) -> list[Outputs]:
        """Yardsticks with float64's roundoffs, for outputs that the reference computes in float64.

        The first yardstick is the reference's own. The errors of the others are scaled from the
        roundoffs of float32.
        """
        own, *varied = yardsticks
        wide = {
            name
            for name, output in own.items()
            if output.dtype is torch.float64
            and compare_tensor(name, output, self.expected[name], dtype_bound(output.dtype)).passed
        }

        def scaled(name: str, output: torch.Tensor) -> torch.Tensor:
            right = self.expected[name]
            nearer = torch.lerp(right, output, FLOAT64_ROUNDOFF)
            return torch.where(nearer.isfinite(), nearer, output)

        return [
            own,
            *({n: scaled(n, x) if n in wide else x for n, x in each.items()} for each in varied),
        ]

    def compare(
        self, outputs: Outputs, yardsticks: Sequence[Outputs] = ()
    ) -> list[OutputComparison]:
        """How far outputs are from what is expected."""
        regime = self.workload.regime
        exact = regime.get("values") == "zeros_and_ones" and "inputs" not in regime
        return compare_outputs(
            self.definition, outputs, self.expected, yardsticks, exact=exact, inputs=self.inputs
        )

    def conclude(self, compared: Sequence[OutputComparison], outputs: Outputs) -> Verdict:
        """The verdict, without a diagnosis of wrong numbers."""
        verdict = verdict_of(compared)
        if self.no_oracle is not None:
            verdict = verdict.with_facts(oracle="own precision", no_oracle=self.no_oracle)
        return self._in_support(verdict, outputs) if verdict.passed else verdict

    def _in_support(self, verdict: Verdict, outputs: Outputs) -> Verdict:
        """Refuse samples outside of their support, and such as are not random."""
        for name in self.definition.outputs:
            if not self.definition.is_sampled(name):
                continue
            samples, test = outputs[name], SamplingTest.of(self.inputs)
            verdict = check_support(verdict, name, samples, test)
            if verdict.passed and samples.dim() == 1 and not self.definition.is_seeded:
                verdict = check_ranks(verdict, name, samples, test)
            if not verdict.passed:
                break
        return verdict


def _all_passed(compared: Sequence[OutputComparison]) -> bool:
    return all(each.passed for each in compared)


def _all_near(compared: Sequence[OutputComparison]) -> bool:
    """Whether what is wrong is so by no more than luck may make bounds too narrow.

    Or hardly any of many elements are wrong, or few of an output that is rounded: numbers that
    nearly tie may decide each.
    """
    wrong = [each for each in compared if not each.passed]
    return all(
        each.shown_by_elements and (each.bound_used <= NEAR or each.wrong <= _few_of(each))
        for each in wrong
    )


def _few_of(compared: OutputComparison) -> float:
    """How many elements of an output may be wrong by luck."""
    least = FEW_DECIDED if is_rounded(compared.expected.dtype) else 0
    return max(FEW * compared.total, least)


def _pattern(verdict: Verdict) -> str:
    return verdict.diagnosis.pattern if verdict.diagnosis else ""


def _difference(name: str, first: torch.Tensor, second: torch.Tensor) -> str:
    """How many elements of an output differ between two calls, and the worst of them."""
    differ = (bits(first) != bits(second)).reshape(-1)
    at = differ.nonzero()[:, 0]
    if not is_readable(first):
        first, second = first.view(torch.uint8), second.view(torch.uint8)
    sides = take(first, at), take(second, at)
    differences = (sides[0] - sides[1]).abs().nan_to_num(math.inf, math.inf)
    worst = int(differences.argmax())
    element = element_name(name, int(at[worst]), first.shape)
    one, other = (f"{float(side[worst]):.9g}" for side in sides)
    return (
        f"{name}: two calls on the same inputs gave other bits in {len(at)} of {len(differ)} "
        f"elements; {element} was {one}, then {other}, the largest difference"
    )


def _nondeterministic(second: Verdict, differences: Sequence[str]) -> Verdict:
    """The verdict that the second call differs from the first, and what else is wrong with it."""
    details = detail_lines(*differences[1:])
    if (wrong := second.diagnosis) is not None:
        details += ("",) if details else ()
        details += (*detail_lines(wrong.sentence), *wrong.details)
    diagnosis = Diagnosis(sentence=differences[0], pattern="nondeterministic", details=details)
    return second.failed(diagnosis)


def _also_nondeterministic(verdict: Verdict, difference: str) -> Verdict:
    """A failure whose second call differs: that is the diagnosis, unless there is a clearer one."""
    diagnosis = verdict.diagnosis
    if diagnosis is None or diagnosis.pattern in VAGUE_PATTERNS:
        return _nondeterministic(verdict, [difference])
    details = (*diagnosis.details, "", *detail_lines(difference))
    return verdict.failed(diagnosis.model_copy(update={"details": details}))


@dataclass(frozen=True)
class Expected:
    """The right outputs, and why they are not in float64, or None."""

    outputs: dict[str, torch.Tensor]
    no_oracle: str | None = None

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.outputs.values())


class ExpectedCache:
    """A cache of one definition's expected outputs; the oldest are dropped first.

    Items of one definition follow each other, and their searches draw the same workloads.
    ``tensors`` are as in a request.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, Expected] = {}
        self._bytes = 0

    def get(self, workload: Workload, tensors: Mapping[str, str]) -> Expected | None:
        return self._entries.get(_key(workload, tensors))

    def put(self, workload: Workload, tensors: Mapping[str, str], expected: Expected) -> None:
        """Add a copy in the judge's own memory, which no sandbox can map, unless it is large."""
        if expected.bytes > LARGEST_BYTES:
            return
        copy = Expected(copies(expected.outputs), expected.no_oracle)
        self._entries[_key(workload, tensors)] = copy
        self._bytes += copy.bytes
        while self._bytes > CACHE_BYTES:
            self._bytes -= self._entries.pop(next(iter(self._entries))).bytes


def _key(workload: Workload, tensors: Mapping[str, str]) -> Key:
    # Not the uuid: a recorded one may be anything, and another seed's workload keeps it.
    return repr(workload), tuple(tensors.values())


def copies(tensors: Outputs) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def yardstick_runs(
    outputs: Outputs, is_near: Callable[[], bool], *, own: bool
) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The variations of ``run_widened``; with ``own``, those that are possible without float64.

    More of them where some of the ``outputs`` are rounded; where all are, none that say nothing of
    these. More at last where what is wrong ``is_near`` to what the others explain.
    """
    are_rounded = [is_rounded(output.dtype) for output in outputs.values()]
    for each in YARDSTICKS:
        runs = [how for how in each if "nudge" not in how or not all(are_rounded)]
        chosen = [runs, DECIDED_AT_RANDOM] if any(are_rounded) and "lean" in runs[0] else [runs]
        for more in chosen:
            if not own:
                yield more
            elif more[0].keys() & {"moved", "naive", "lean"}:
                yield [{**how, "own": True} for how in more]
    if is_near():
        yield [{**how, "own": True} for how in MOVED_AGAIN] if own else MOVED_AGAIN


def believed(how: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """The outputs of a variation that show how far honest rounding may go.

    A nudge changes the inputs, and so what is decided by them: rounded outputs are left out. Some
    variations are for rounded outputs alone.
    """
    only_rounded = any(how.get("moved") == each["moved"] for each in DECIDED_AT_RANDOM)
    if not only_rounded and "nudge" not in how:
        return outputs
    return {n: output for n, output in outputs.items() if is_rounded(output.dtype) == only_rounded}
