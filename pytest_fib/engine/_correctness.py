"""The first phase of an evaluation: are the outputs of some calls right?

What is checked is the same wherever calls are made; who calls, and on which tensors, is the back
end's to say: sandboxes here, this process in ``_in_process``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import monotonic
from typing import Any, Protocol, TypeAlias

import torch

from pytest_fib.data import Definition, Diagnosis, Workload
from pytest_fib.diagnosis import VAGUE_PATTERNS, CallContext, diagnose, is_readable, take
from pytest_fib.engine._cheat_checks import (
    check_earlier_outputs,
    check_inputs,
    poison_outputs,
    with_other_values,
)
from pytest_fib.engine._context import CallTensors, EvaluationContext, EvaluationEnded
from pytest_fib.sandbox import (
    POISONS,
    YARDSTICKS,
    Failed,
    Widened,
    changed,
    copy_bits,
)
from pytest_fib.verdict import (
    OutputComparison,
    Outputs,
    SamplingTest,
    Verdict,
    check_support,
    compare_outputs,
    compare_tensor,
    detail_lines,
    dtype_bound,
    element_name,
    is_rounded,
    is_seeded,
    verdict_of,
)
from pytest_fib.workloads import bits, once

#: The statuses of calls whose outputs can't be compared.
MISSHAPEN = ("INCORRECT_SHAPE", "INCORRECT_DTYPE")
#: The circumstances of failures that a first call does not have.
SECOND_CALL_ONLY = "right on a first call, wrong on a second of the same inputs"
#: What may be the reason on CUDA, where that call is launched while its stream is still busy.
STREAM_WAS_BUSY = (
    "the second call's stream was still busy as it was launched: does all work that it starts on "
    "another stream wait for the current one, and the current one for that?"
)
#: Up to this size an implementation is called once more, with other values.
THIRD_CALL_BYTES = 8 << 20
THIRD_CALL_ONLY = "right on a first call, wrong on a second of the same shapes with other values"
#: Of one that may have it or not, since nobody looked.
OTHER_VALUES = "with other values of the same shapes"
#: The roundoff of float64 over that of float32.
FLOAT64_ROUNDOFF = 2.0**-29
#: Memory of the cache of expected outputs, and the most that one workload's may take of it.
CACHE_BYTES, LARGEST_BYTES = 256 << 20, 16 << 20
#: A workload as text, and the addresses of its recorded tensors.
Key: TypeAlias = tuple[str, tuple[str, ...]]
#: What a side computes from other values of some inputs; None where that can't be.
OutputsOf: TypeAlias = Callable[[Mapping[str, Any]], "Outputs | None"]


@dataclass(frozen=True)
class OutputChecker:
    """Checks the outputs of calls on one workload. Tensors are only read.

    ``inputs`` include scalars. ``yardsticks`` makes the outputs that honest rounding may lead to,
    some at a time: the next are asked for only after a failure that those before don't explain.
    ``no_oracle`` is why ``expected`` is not in float64. ``reference_outputs`` computes the float64
    outputs for other values of some inputs, ``candidate_outputs`` those of the implementation, or
    None where that can't be; they are called to explain a failure.
    """

    definition: Definition
    workload: Workload
    inputs: Mapping[str, Any]
    expected: Outputs
    yardsticks: Callable[[], Iterator[list[Outputs]]] = lambda: iter(())
    no_oracle: str | None = None
    reference_outputs: OutputsOf | None = None
    candidate_outputs: OutputsOf | None = None

    def check_twice(self, first: Outputs, second: Outputs) -> Verdict:
        """Check two calls on the same inputs, which must be right and have the same bits.

        Other bits are allowed where the definition says ``nondeterministic``, and in outputs that
        are chosen at random, unless the inputs have what they are drawn with.
        """
        verdict = self.check(first, POISONS, second_outputs=second)
        if verdict.passed:
            of_second = self.check_again(verdict, first, second, POISONS[1:])
            if _pattern(of_second) != "nondeterministic":
                of_second = of_second.qualified(SECOND_CALL_ONLY)
            return self._with_its_stream(of_second)
        if self.definition.nondeterministic or _pattern(verdict) == "unwritten":
            return verdict
        differences = self._differences(first, second)
        if not differences:
            return verdict
        return self._with_its_stream(_also_nondeterministic(verdict, differences[0]))

    def _with_its_stream(self, verdict: Verdict) -> Verdict:
        """With what may make a second call differ on CUDA, where it does."""
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
        """How far outputs are from those of another call, where their bits are not the same."""
        seeded = is_seeded(self.definition)
        names = [n for n in self.definition.outputs if seeded or not self.definition.is_sampled(n)]
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
        """Check one call: by the oracle alone and, if that fails, by what rounding may do.

        ``poisons`` are what outputs held before the call, and before that which wrote
        ``second_outputs``; ``previous`` is what earlier calls should have written.
        """
        compared = self.compare(outputs)
        if not _all_passed(compared):
            compared = self._compare_by_yardsticks(outputs, compared)
        verdict = self.conclude(compared, outputs)
        if _all_passed(compared):
            return verdict
        context = CallContext(
            self.definition,
            self.definition.axis_values(self.workload.axes),
            self.inputs,
            poisons,
            second_outputs or {},
            previous or {},
            self.reference_outputs,
            self.candidate_outputs,
        )
        return verdict.failed(diagnose(compared, context))

    def _compare_by_yardsticks(
        self, outputs: Outputs, compared: list[OutputComparison]
    ) -> list[OutputComparison]:
        """Compare by as many yardsticks as it takes to pass, or by all there are."""
        yardsticks: list[Outputs] = []
        for more in self.yardsticks():
            yardsticks += more
            if more:
                compared = self.compare(outputs, self._of_float64(yardsticks))
            if _all_passed(compared):
                break
        return compared

    def _of_float64(self, yardsticks: Sequence[Outputs]) -> list[Outputs]:
        """Yardsticks with float64's roundoffs, of outputs that the reference computes in float64.

        The first are its own. The others' errors are in proportion to the roundoffs of float32.
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
        """The verdict; wrong numbers are not diagnosed."""
        verdict = verdict_of(compared)
        if self.no_oracle is not None:
            verdict = verdict.with_facts(oracle="own precision", no_oracle=self.no_oracle)
        return self._in_support(verdict, outputs) if verdict.passed else verdict

    def _in_support(self, verdict: Verdict, outputs: Outputs) -> Verdict:
        """A sample that may not be chosen is wrong, whatever its neighbours are."""
        for name in self.definition.outputs:
            if not self.definition.is_sampled(name):
                continue
            verdict = check_support(verdict, name, outputs[name], SamplingTest.of(self.inputs))
            if not verdict.passed:
                break
        return verdict


def _all_passed(compared: Sequence[OutputComparison]) -> bool:
    return all(each.passed for each in compared)


def _pattern(verdict: Verdict) -> str:
    return verdict.diagnosis.pattern if verdict.diagnosis else ""


def _difference(name: str, first: torch.Tensor, second: torch.Tensor) -> str:
    """How many elements of an output two calls gave other bits, and the worst of them."""
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
    """That the second call differs from the first, and what is wrong with it besides."""
    details = detail_lines(*differences[1:])
    if second.diagnosis is not None:
        details += ("", *detail_lines(second.diagnosis.headline), *second.diagnosis.details)
    diagnosis = Diagnosis(sentence=differences[0], pattern="nondeterministic", details=details)
    return second.failed(diagnosis)


def _also_nondeterministic(verdict: Verdict, difference: str) -> Verdict:
    """A failure whose second call differs: that is the reason, unless there is a clearer one."""
    diagnosis = verdict.diagnosis
    if diagnosis is None or diagnosis.pattern in VAGUE_PATTERNS:
        return _nondeterministic(verdict, [difference])
    details = (*diagnosis.details, "", *detail_lines(difference))
    return verdict.failed(diagnosis.model_copy(update={"details": details}))


@dataclass(frozen=True)
class Expected:
    """The right outputs, and why they are not in float64, where they are not."""

    outputs: dict[str, torch.Tensor]
    no_oracle: str | None = None

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.outputs.values())


class ExpectedCache:
    """Expected outputs of one definition, the oldest dropped first.

    Items of one definition follow each other, and their searches draw the same workloads.
    ``tensors`` are as in a request.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, Expected] = {}
        self._bytes = 0

    def get(self, workload: Workload, tensors: Mapping[str, str]) -> Expected | None:
        return self._entries.get(_key(workload, tensors))

    def put(self, workload: Workload, tensors: Mapping[str, str], expected: Expected) -> None:
        """Add a copy, in memory of the judge's own, which no sandbox can map; none if large."""
        if expected.bytes > LARGEST_BYTES:
            return
        copy = Expected(_copies(expected.outputs), expected.no_oracle)
        self._entries[_key(workload, tensors)] = copy
        self._bytes += copy.bytes
        while self._bytes > CACHE_BYTES:
            self._bytes -= self._entries.pop(next(iter(self._entries))).bytes


def _key(workload: Workload, tensors: Mapping[str, str]) -> Key:
    # Not the uuid: a recorded one may be anything, and another seed's workload keeps it.
    return repr(workload), tuple(tensors.values())


class CallBackend(Protocol):
    """Calls of the candidate and the reference, on the same values in memory of their own."""

    def make_inputs(self, workload: Workload) -> Mapping[str, Any]:
        """Make the inputs for both, and return the reference's, scalars included.

        Raises DefinitionError.
        """

    def call_candidate(self, poisons: Sequence[int]) -> list[Outputs]:
        """The candidate's outputs of one call for each poison, which they hold before it.

        Raises EvaluationEnded where a call fails, or changes its inputs.
        """

    def expected(self, workload: Workload) -> Expected:
        """What is right: the reference in float64 or, where that can't be, as it is."""

    def yardsticks(self, *, own: bool) -> Iterator[list[Outputs]]:
        """The reference's outputs as honest rounding may change them, the quickest to make first.

        The first of all are in its own dtypes; the others in float64, unless ``own``.
        """

    def reference_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The reference's outputs for other values of some inputs; None where it fails."""

    def candidate_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The candidate's, likewise."""

    def clock(self) -> float:
        """The time in seconds, without what was spent waiting for others who use the device."""


def check_same_inputs(
    calls: CallBackend,
    definition: Definition,
    workload: Workload,
    *,
    repeat: int = 1,
    explain_until: float | None = None,
) -> Verdict:
    """Check two calls on the same inputs, with outputs at other places, ``repeat`` times.

    A failure is explained by further calls, which are begun before ``explain_until``, if that is
    given: a time of the ``clock`` of calls.
    """
    inputs = calls.make_inputs(workload)
    first, second = calls.call_candidate(POISONS)
    checker = output_checker(calls, definition, workload, inputs, explain_until=explain_until)
    verdict = checker.check_twice(first, second)
    if not verdict.passed or repeat == 1:
        return verdict
    return _check_repeats(calls, checker, verdict, _copies(first), repeat - 1)


def _check_repeats(
    calls: CallBackend, checker: OutputChecker, verdict: Verdict, first: Outputs, repeats: int
) -> Verdict:
    """Call twice, again and again: against what is wrong once in many calls.

    ``verdict`` is that of the first call. Most calls leave its bits, which takes no more than to
    compare them; the expected values are what they were.
    """
    for number in range(1, repeats + 1):
        circumstance = f"right on a first call; this is repeat {number} of {repeats}"
        try:
            outputs = calls.call_candidate(POISONS)
        except EvaluationEnded as ended:
            raise ended.qualified(circumstance) from None
        for each, poison in zip(outputs, POISONS, strict=True):
            repeated = checker.check_again(verdict, first, each, (poison,))
            if not repeated.passed:
                return repeated.qualified(circumstance)
    return verdict


def check_third_call(
    calls: CallBackend,
    definition: Definition,
    workload: Workload,
    previous: Outputs,
    *,
    explain_until: float | None = None,
) -> Verdict:
    """Check a call on other values, where the inputs and outputs of ``workload`` were.

    ``previous`` are the right outputs of that, where they are known.
    """
    other = with_other_values(workload)
    inputs = calls.make_inputs(other)
    (outputs,) = calls.call_candidate(POISONS[1:])
    checker = output_checker(calls, definition, other, inputs, explain_until=explain_until)
    return checker.check(outputs, POISONS[1:], previous=previous)


def output_checker(
    calls: CallBackend,
    definition: Definition,
    workload: Workload,
    inputs: Mapping[str, Any],
    *,
    explain_until: float | None = None,
) -> OutputChecker:
    """What checks outputs of calls on these inputs."""
    expected = calls.expected(workload)
    return OutputChecker(
        definition,
        workload,
        inputs,
        expected.outputs,
        partial(calls.yardsticks, own=expected.no_oracle is not None),
        no_oracle=expected.no_oracle,
        reference_outputs=_until(explain_until, calls.clock, calls.reference_outputs),
        candidate_outputs=_until(explain_until, calls.clock, calls.candidate_outputs),
    )


def _until(
    end: float | None, clock: Callable[[], float], outputs_of: OutputsOf
) -> OutputsOf | None:
    """The function while there is time; after that, one that returns None, as callers expect."""
    if end is None:
        return None
    return lambda values: outputs_of(values) if clock() < end else None


def check_correctness(calls: SandboxCalls, context: EvaluationContext, size: int) -> Verdict:
    """The phase, for a workload of ``size`` bytes.

    Two calls on the same inputs, as often as is asked, and where that is cheap one on others.
    """
    request = context.request
    what, explain = (context.definition, request.workload), request.explain and not request.timing
    explain_until = calls.clock() + request.explain_seconds if explain else None
    verdict = check_same_inputs(calls, *what, repeat=request.repeat, explain_until=explain_until)
    if not verdict.passed and calls.scratch:  # where a second call finds what a first one left
        names = ", ".join(map(repr, calls.scratch))
        return verdict.qualified(f"the reference writes to its input {names}")
    if not verdict.passed or not (request.timing or size <= THIRD_CALL_BYTES):
        return verdict
    expected = calls.cached(request.workload)
    previous = expected.outputs if expected else {}
    third = check_third_call(calls, *what, previous, explain_until=explain_until)
    if third.passed:
        return verdict
    if explain_until is None:
        return third.qualified(OTHER_VALUES)
    return _afresh(calls, *what, third, explain_until)


def _afresh(
    calls: SandboxCalls,
    definition: Definition,
    workload: Workload,
    third: Verdict,
    explain_until: float,
) -> Verdict:
    """The verdict of a third call, or of a first one with its values where that is wrong too.

    Only if that is right does the failure need the calls before it.
    """
    other = with_other_values(workload)
    calls.start_afresh()
    first = check_same_inputs(calls, definition, other, explain_until=explain_until)
    if first.passed:
        return third.qualified(THIRD_CALL_ONLY)
    return first.qualified(f"with seed {other.seed}")


class SandboxCalls:
    """Calls through both sandboxes. With ``cache``, expected outputs are put there."""

    def __init__(
        self,
        context: EvaluationContext,
        candidate_tensors: CallTensors,
        reference_tensors: CallTensors,
        cache: ExpectedCache | None = None,
    ) -> None:
        self._context = context
        self._candidate = candidate_tensors
        self._reference = reference_tensors
        self._cache = cache
        self._experiments_failed = False
        #: The inputs that the reference was seen to write to.
        self.scratch: list[str] = []

    def clock(self) -> float:
        return monotonic() - self._context.lock.waited

    @cached_property
    def _candidate_inputs(self) -> dict[str, torch.Tensor]:
        return self._context.candidate.read(self._candidate.input_tensors)

    @cached_property
    def _reference_inputs(self) -> dict[str, torch.Tensor]:
        return self._context.reference.read(self._reference.input_tensors)

    def check_buffer(self) -> Verdict:
        """Check what a call of the candidate left, by the reference's inputs as they are.

        Raises EvaluationEnded where it changed its inputs.
        """
        context = self._context
        self._check_inputs()
        inputs = {**self._reference_inputs, **context.scalars}
        checker = output_checker(self, context.definition, context.request.workload, inputs)
        return checker.check(context.candidate.read(self._candidate.outputs))

    def make_inputs(self, workload: Workload) -> Mapping[str, Any]:
        pristine = self._context.fill_both(self._candidate, self._reference, workload)
        return {**pristine, **self._context.scalars}

    def call_candidate(self, poisons: Sequence[int]) -> list[Outputs]:
        """Call twice in one request, or once: what it returned before has to be as it was."""
        context, tensors = self._context, self._candidate
        twice = len(poisons) > 1
        outputs: list[Outputs] = [context.candidate.read(tensors.outputs)]
        second = context.candidate.read(tensors.second_outputs)
        stored = {} if twice else _copies(second)
        if twice:
            outputs.append(second)
        for each, poison in zip(outputs, poisons, strict=True):
            poison_outputs(each, poison)
        context.synchronize()
        try:
            context.ask_candidate(tensors.call(twice=True) if twice else tensors.call_later())
        except EvaluationEnded as ended:
            if ended.failed.status in (*MISSHAPEN, "TIMEOUT"):
                # Where it returns these too, the definition is wrong; it may take as long.
                self._call_reference()
            elif ended.failed.exhausted:
                self.expected(context.request.workload)  # it may take as much
            raise
        self._check_inputs()
        calling = context.request.solution.spec.calling or "value"
        context.refuse_if(check_earlier_outputs(second, stored, calling))
        context.synchronize()
        return outputs

    def _check_inputs(self) -> None:
        sides = self._candidate_inputs, self._reference_inputs
        self._context.refuse_if(check_inputs(*sides, self._written_by_reference))

    def _written_by_reference(self) -> list[str]:
        """The inputs that the reference changes, which are put back."""
        inputs = self._reference_inputs
        before = _copies(inputs)
        self._call_reference()
        written = changed(inputs, before)
        for name in written:
            copy_bits(inputs[name], before[name])
        self.scratch = written
        return written

    def expected(self, workload: Workload) -> Expected:
        expected = self.cached(workload)
        if expected is None:
            expected = self._computed()
            if self._cache is not None:
                self._cache.put(workload, self._context.request.tensors, expected)
        return expected

    def cached(self, workload: Workload) -> Expected | None:
        cache = self._cache
        return None if cache is None else cache.get(workload, self._context.request.tensors)

    def _computed(self) -> Expected:
        context = self._context
        context.load_reference()
        reply = context.ask_reference(self._reference.call_widened(Widened()))
        if isinstance(reply, Failed) and reply.no_oracle:
            return Expected(self._call_reference(), reply.summary)
        context.reference_reply(reply)
        return Expected(context.reference.read(self._reference.widened_outputs))

    def _call_reference(self) -> dict[str, torch.Tensor]:
        """The reference's outputs in its own dtypes. Raises DefinitionError."""
        context = self._context
        context.load_reference()
        context.reference_reply(context.ask_reference(self._reference.call()))
        return context.reference.read(self._reference.outputs)

    def yardsticks(self, *, own: bool) -> Iterator[list[Outputs]]:
        tensors = self._reference
        if own:
            tensors = replace(tensors, widened_outputs=tensors.outputs)
        # They are written where the expected outputs are, which are put back.
        written = self._context.reference.read(tensors.widened_outputs)
        expected = _copies(written)
        own_outputs = _copies(self._call_reference())
        _put_back(written, expected)
        yield [own_outputs]
        for runs in yardstick_runs(own=own):
            varied = [(how, self._varied(tensors, Widened(**how))) for how in runs]
            _put_back(written, expected)
            yield [believed(how, outputs) for how, outputs in varied if outputs is not None]

    def _varied(self, tensors: CallTensors, how: Widened) -> dict[str, torch.Tensor] | None:
        """Outputs of a variation of the reference; None where there is none.

        What it decides otherwise may have another shape: it is no yardstick then.
        """
        context = self._context
        reply = context.ask_reference(tensors.call_widened(how))
        if isinstance(reply, Failed) and (reply.no_oracle or reply.status in MISSHAPEN):
            return None
        context.reference_reply(reply)
        return _copies(context.reference.read(tensors.widened_outputs))

    def start_afresh(self) -> None:
        """Have the candidate in a process that has not been called before."""
        self._context.restart_candidate()

    def candidate_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """Inputs, outputs, and what is known of the last call are put back."""
        if self._experiments_failed:
            return None
        context, inputs = self._context, self._candidate_inputs
        outputs = context.candidate.read(self._candidate.outputs)
        whole = {name: bits(once(tensor)) for name, tensor in inputs.items()}
        before, written = _copies(whole), _copies(outputs)
        _put_back(whole, {name: bits(values[name]) for name in whole if name in values})
        scalars = {n: value for n, value in values.items() if n not in inputs}
        call = replace(self._candidate, inputs={**self._candidate.inputs, **scalars})
        context.synchronize()
        self._experiments_failed = not context.try_candidate(call.call())
        got = None if self._experiments_failed else _copies(outputs)
        _put_back(whole, before)
        _put_back(outputs, written)
        return got

    def reference_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """In float64; inputs and expected outputs are put back."""
        context = self._context
        inputs = self._reference_inputs
        targets = {name: bits(once(inputs[name])) for name in inputs if name in values}
        # Copies first: the new values of one input may be those of another.
        new = {name: bits(values[name]).clone() for name in targets}
        scalars = {n: value for n, value in values.items() if n not in inputs}
        widened = context.reference.read(self._reference.widened_outputs)
        before, expected = _copies(targets), _copies(widened)
        context.load_reference()
        _put_back(targets, new)
        context.synchronize()
        call = replace(self._reference, inputs={**self._reference.inputs, **scalars})
        reply = context.ask_reference(call.call_widened(Widened()))
        outputs = None if isinstance(reply, Failed) else _copies(widened)
        _put_back(targets, before)
        _put_back(widened, expected)
        return outputs


def yardstick_runs(*, own: bool) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The variations of ``run_widened`` to make; those that can be, of a reference as it is."""
    for runs in YARDSTICKS:
        if not own:
            yield runs
        elif runs[0].keys() & {"moved", "naive", "lean"}:
            yield [{**how, "own": True} for how in runs]


def believed(how: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """The outputs of a variation of the reference that say something of others' errors.

    Inputs that are moved are other inputs: what is decided of them is none of this.
    """
    if "nudge" not in how:
        return outputs
    return {name: output for name, output in outputs.items() if not is_rounded(output.dtype)}


def _copies(tensors: Outputs) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def _put_back(tensors: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    for name, value in values.items():
        tensors[name].copy_(value)
