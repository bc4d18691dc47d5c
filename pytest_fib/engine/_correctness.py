"""The first phase of an evaluation: are the outputs of some calls right?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.engine._call_checks import THIRD_CALL_BYTES, check_same_inputs, check_third_call
from pytest_fib.engine._cheat_checks import with_other_values

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload
    from pytest_fib.engine._context import EvaluationContext
    from pytest_fib.engine._sandbox_calls import SandboxCalls
    from pytest_fib.verdict import Verdict

THIRD_CALL_ONLY = "right on a first call, wrong on a second of the same shapes with other values"
#: For failures that may or may not need the calls before: nobody checked.
OTHER_VALUES = "with other values of the same shapes"


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
    """The verdict of the third call, or of a first call with its values if that is wrong too.

    Only if that is right does the failure need the calls before it.
    """
    other = with_other_values(workload)
    calls.start_afresh()
    first = check_same_inputs(calls, definition, other, explain_until=explain_until)
    if first.passed:
        return third.qualified(THIRD_CALL_ONLY)
    return first.qualified(f"with seed {other.seed}")
