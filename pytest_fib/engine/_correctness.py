"""The first phase of an evaluation: are the outputs of some calls right?

The checks are the same wherever calls are made. A back end makes the calls: in sandboxes
(``_sandbox_calls``), or in this process (``_in_process``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from pytest_fib.engine._context import EvaluationEnded
from pytest_fib.engine._output_checker import Expected, OutputChecker, OutputsOf, copies
from pytest_fib.sandbox import POISONS
from pytest_fib.workloads import with_other_values

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload
    from pytest_fib.engine._context import EvaluationContext
    from pytest_fib.engine._sandbox_calls import SandboxCalls
    from pytest_fib.verdict import Outputs, Verdict

#: Workloads up to this size get a third call, with other values.
THIRD_CALL_BYTES = 8 << 20
#: The circumstances of failures that only such a call has.
THIRD_CALL_ONLY = "right on a first call, wrong on a second of the same shapes with other values"


class CallBackend(Protocol):
    """Calls of the candidate and the reference, on the same values in memory of their own."""

    def make_inputs(self, workload: Workload) -> Mapping[str, Any]:
        """Make the inputs for both, and return the reference's, scalars included.

        Raises DefinitionError.
        """

    def call_candidate(self, poisons: Sequence[int]) -> list[Outputs]:
        """The candidate's outputs of one call for each poison, which fills the outputs before.

        Raises EvaluationEnded if a call fails, or changes its inputs.
        """

    def expected(self, workload: Workload) -> Expected:
        """The right outputs: the reference in float64 or, if that is impossible, as it is."""

    def yardsticks(self, is_near: Callable[[], bool], *, own: bool) -> Iterator[list[Outputs]]:
        """The reference's outputs as honest rounding may change them, the quickest first.

        The first are in its own dtypes; the others in float64, unless ``own``. The last are made
        only if what is wrong ``is_near`` enough to what these explain.
        """

    def reference_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The reference's outputs for other values of some inputs; None if it fails."""

    def own_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The same in the reference's own dtypes."""

    def candidate_outputs(self, values: Mapping[str, Any]) -> Outputs | None:
        """The candidate's, likewise."""

    def clock(self) -> float:
        """The time in seconds, without waiting for other processes on the device."""


def check_same_inputs(
    calls: CallBackend,
    definition: Definition,
    workload: Workload,
    *,
    repeat: int = 1,
    explain_until: float | None = None,
) -> Verdict:
    """Check two calls on the same inputs, with outputs at other places, ``repeat`` times.

    A failure is explained by further calls, none of which begins after ``explain_until``, a time of
    the back end's ``clock``.
    """
    inputs = calls.make_inputs(workload)
    first, second = calls.call_candidate(POISONS)
    checker = output_checker(calls, definition, workload, inputs, explain_until=explain_until)
    verdict = checker.check_twice(first, second)
    if not verdict.passed or repeat == 1:
        return verdict
    return _check_repeats(calls, checker, verdict, copies(first), repeat - 1)


def _check_repeats(
    calls: CallBackend, checker: OutputChecker, verdict: Verdict, first: Outputs, repeats: int
) -> Verdict:
    """Repeat both calls, to find what is wrong once in many calls.

    ``verdict`` is that of the first call. Most calls give its bits, so comparing them is enough;
    the expected values stay the same.
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
                return repeated.qualified(circumstance, is_right=True)
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

    It finds answers from a cache, by pointer, object, shape or coarse content. ``previous`` are the
    right outputs of ``workload``, if they are known.
    """
    other = with_other_values(definition, workload)
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
    """The checker of outputs of calls on these inputs."""
    expected = calls.expected(workload)
    return OutputChecker(
        definition,
        workload,
        inputs,
        expected.outputs,
        partial(calls.yardsticks, own=expected.no_oracle is not None),
        no_oracle=expected.no_oracle,
        reference_outputs=_until(explain_until, calls.clock, calls.reference_outputs),
        own_outputs=_until(explain_until, calls.clock, calls.own_outputs),
        candidate_outputs=_until(explain_until, calls.clock, calls.candidate_outputs),
    )


def _until(
    end: float | None, clock: Callable[[], float], outputs_of: OutputsOf
) -> OutputsOf | None:
    """The function, which returns None after ``end``."""
    if end is None:
        return None
    return lambda values: outputs_of(values) if clock() < end else None


def check_correctness(calls: SandboxCalls, context: EvaluationContext, size: int) -> Verdict:
    """The phase, for a workload of ``size`` bytes.

    Two calls on the same inputs, repeated on request; then, if cheap, one on other inputs.
    """
    request = context.request
    what, explain = (context.definition, request.workload), request.explain and not request.timing
    explain_until = calls.clock() + request.explain_seconds if explain else None
    verdict = check_same_inputs(calls, *what, repeat=request.repeat, explain_until=explain_until)
    if not verdict.passed and calls.scratch:  # the second call finds what the first wrote
        names = ", ".join(map(repr, calls.scratch))
        return verdict.qualified(f"the reference writes to its input {names}")
    if not verdict.passed or not (request.timing or size <= THIRD_CALL_BYTES):
        return verdict
    expected = calls.cached(request.workload)
    previous = expected.outputs if expected else {}
    third = check_third_call(calls, *what, previous, explain_until=explain_until)
    if third.passed:
        return verdict
    calls.start_afresh()
    third = third.qualified(THIRD_CALL_ONLY, is_right=True)
    return later_call_alone(calls, *what, third, explain_until=explain_until)


def later_call_alone(
    calls: CallBackend,
    definition: Definition,
    workload: Workload,
    later: Verdict,
    *,
    explain_until: float | None,
    needs_earlier: Callable[[Workload], bool] = lambda other: False,
) -> Verdict:
    """The verdict of first calls with the values of a ``later`` one that failed, if they fail too.

    Else the failure needs the calls before it, or it does by what ``needs_earlier`` says of the
    workload with these values: then it is that of the ``later`` call. The diagnosis of first calls
    is that of a workload that anyone can test alone.
    """
    other = with_other_values(definition, workload)
    first = check_same_inputs(calls, definition, other, explain_until=explain_until)
    if first.passed or needs_earlier(other):
        return later
    values = other.regime.get("values", "normal")
    note = f"(of the third call, whose values are {values}, of seed {other.seed})"
    return first.noted(note).shown_by(other)
