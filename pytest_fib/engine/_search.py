"""Searches for a workload on which an implementation is wrong, and diagnoses the failure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from math import isnan
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from pytest_fib.data import (
    EXPLAIN_SECONDS,
    SMALL_FOR_EACH,
    STATE,
    Definition,
    DefinitionFault,
    Evaluation,
    EvaluationStatus,
    Outcome,
    SearchRequest,
    SearchResult,
    Workload,
)
from pytest_fib.engine._correctness import THIRD_CALL_ONLY
from pytest_fib.engine._larger_workloads import (
    DIAGNOSIS_BYTES,
    diagnose_failure,
    facts_of,
    has_pattern,
)
from pytest_fib.verdict import qualified
from pytest_fib.workloads import enlarge, make_workload, smallest_axes, workload_bytes

if TYPE_CHECKING:
    from pytest_fib.search import Search

#: Bytes of a workload whose rows are drawn many times: a thousand rows of a thousand tokens.
DRAWN_BYTES = 32 << 20
#: The shares of ``DIAGNOSIS_BYTES`` that are tried in turn, and the seconds that a check may take
#: longer than that of the first: all explanations together have 20. Tensors of eight times the size
#: may take 64 times as long.
SHARES, QUICK_SECONDS = (1 / 512, 1 / 64, 1 / 8, 1.0), 0.25
#: What uses so many times its bound is wrong beyond doubt.
FAR_BEYOND = 8.0
#: So small a share of another error, or of 1, may be what rounding leaves of numbers as large.
LEFT_OF_ROUNDING = 2.0**-20
#: The circumstance of failures that earlier calls lead to.
RIGHT_AFRESH = "only after calls on other inputs; right in a new process"
#: Where a larger share of the drawn workloads is passed over, the outcome says so.
MOST_PASSED_OVER = 0.5


class Check(Protocol):
    """Evaluates a workload; the options are those of an EvaluationRequest."""

    def __call__(
        self,
        workload: Workload,
        *,
        draws: bool = False,
        explain: bool = False,
        explain_seconds: float = EXPLAIN_SECONDS,
        afresh: bool = False,
    ) -> Outcome: ...


def search_and_diagnose(
    definition: Definition,
    check: Check,
    *,
    failed_before: Sequence[Workload] = (),
    listed: Sequence[Workload] = (),
    examples: int,
    small_for_each: int = SMALL_FOR_EACH,
    numbers: Sequence[float] = (),
    seed: int,
    run_seed: int | None,
    max_bytes: int,
    draws: bool = True,
    clock: Callable[[], float] = monotonic,
    **drawn: Any,
) -> SearchResult:
    """Search for a workload that fails, and for the smallest like it. As in a SearchRequest.

    ``drawn`` are ``search``'s conditions on drawn workloads, ``affordable``, ``slow`` and
    ``undecided``; ``clock`` is as there.

    A larger workload explains a failure, within ``EXPLAIN_SECONDS``. If nothing fails, ``draws``
    has outputs that are chosen at random drawn many times, from one workload: that takes seconds,
    so it comes at the end.
    """
    drawn |= {"examples": examples, "small": small_for_each * examples}
    drawn |= {"numbers": numbers, "seed": seed, "run_seed": run_seed, "clock": clock}
    wrong = set[str]()

    def noting(workload: Workload) -> Outcome:
        outcome = check(workload)
        wrong.update(_wrong_outputs(outcome) if isinstance(outcome, Evaluation) else ())
        return outcome

    result = _search(definition, noting, failed_before, listed, max_bytes, **drawn)
    workload, outcome = result.workload, result.outcome
    if draws and result.origin is None and any(map(definition.is_sampled, definition.outputs)):
        # It has enough rows for some to show a token more or less.
        last_seed = seed if run_seed is None else run_seed
        seeded = workload.model_copy(update={"seed": last_seed})
        workload = enlarge(definition, seeded, {}, min(max_bytes, DRAWN_BYTES))
        outcome = check(workload, draws=True)
    elif isinstance(outcome, Evaluation):
        outcome = _diagnosed(definition, check, (workload, outcome), max_bytes, clock, wrong=wrong)
    if left_out := _left_out(result, examples):
        outcome = _with_left_out(outcome, *left_out)
    return SearchResult(
        tried=result.tried, workload=workload, outcome=outcome, origin=result.origin
    )


def _left_out(result: Search[Outcome], examples: int) -> tuple[Workload, str] | None:
    """A workload that there was not enough time or memory for, and why; None where all is well."""
    if result.undecided is not None:
        workload, failed = result.undecided
        return workload, failed.message if isinstance(failed, DefinitionFault) else failed.log
    if len(result.passed_over) > MOST_PASSED_OVER * examples:
        why, workloads = "the reference would take too much time or memory", result.passed_over
    elif result.lowered:
        why, workloads = "the implementation would take too long", result.lowered
    else:
        return None
    return workloads[0], f"{why}, here and in {len(workloads) - 1} more"


def _with_left_out(outcome: Outcome, workload: Workload, why: str) -> Outcome:
    """An outcome that says where there was not enough time or memory."""
    if not isinstance(outcome, Evaluation) or outcome.correctness is None:
        return outcome
    left_out = {"axes": dict(workload.axes), "why": why.partition("\n")[0]}
    extra = {**(outcome.correctness.extra or {}), "left_out": left_out}
    correctness = outcome.correctness.model_copy(update={"extra": extra})
    return outcome.model_copy(update={"correctness": correctness})


def _search(
    definition: Definition,
    check: Callable[[Workload], Outcome],
    failed_before: Sequence[Workload],
    listed: Sequence[Workload],
    max_bytes: int,
    **drawn: Any,
) -> Search[Outcome]:
    """A search among workloads that fit."""
    from pytest_fib.search import search

    def is_affordable(workload: Workload) -> bool:
        return workload_bytes(definition, workload.axes) <= max_bytes

    return search(
        definition,
        check,
        failed=_failed,
        closeness=_closeness,
        alike=_alike,
        shown_by=_shown_by,
        failed_before=filter(is_affordable, failed_before),
        listed=filter(is_affordable, listed),
        max_bytes=max_bytes,
        **drawn,
    )


def _diagnosed(
    definition: Definition,
    check: Check,
    result: tuple[Workload, Evaluation],
    max_bytes: int,
    clock: Callable[[], float],
    *,
    wrong: Collection[str],
) -> Evaluation:
    """The outcome of a search; wrong numbers are diagnosed with larger workloads.

    But not what is right in a new process: there, what earlier calls left explains the failure.
    ``wrong`` are the outputs that were wrong in any workload.
    """
    workload, outcome = result
    if _may_need_earlier_calls(outcome):
        again = check(workload, afresh=True)
        # What is wrong at random is right once.
        if _passes(again) and _passes(check(workload, afresh=True)):
            return _with_state(outcome)
        if isinstance(again, Evaluation) and _needs_first_call(again):
            return again  # a larger workload would fail for what the calls before it left
    if not has_pattern(outcome):
        return outcome
    seconds_of = partial(_seconds_of, check, clock)
    most = _bytes_to_explain(definition, workload, seconds_of, min(max_bytes, DIAGNOSIS_BYTES))
    explain = partial(_explained, check, clock, clock() + EXPLAIN_SECONDS)
    return diagnose_failure(definition, workload, outcome, explain, most, wrong=wrong)


def _may_need_earlier_calls(outcome: Evaluation) -> bool:
    """Whether an outcome is what the calls did, and not for want of time or memory."""
    did = (EvaluationStatus.RUNTIME_ERROR, EvaluationStatus.INCORRECT_SHAPE)
    is_unexplained = outcome.diagnosis is not None and not outcome.diagnosis.pattern
    return has_pattern(outcome) or (outcome.status in did and is_unexplained)


def _needs_first_call(outcome: Evaluation) -> bool:
    """Whether calls with other values are wrong because of the first one."""
    diagnosis = outcome.diagnosis
    return diagnosis is not None and diagnosis.sentence.endswith(f"({THIRD_CALL_ONLY})")


def _passes(outcome: Outcome) -> bool:
    return isinstance(outcome, Evaluation) and outcome.status is EvaluationStatus.PASSED


def _with_state(outcome: Evaluation) -> Evaluation:
    assert outcome.diagnosis is not None
    diagnosis = qualified(outcome.diagnosis, RIGHT_AFRESH)
    diagnosis = diagnosis.model_copy(update={"pattern": STATE})
    return outcome.model_copy(update={"diagnosis": diagnosis, "log": diagnosis.text})


def _seconds_of(check: Check, clock: Callable[[], float], workload: Workload) -> float:
    start = clock()
    check(workload)
    return clock() - start


def _bytes_to_explain(
    definition: Definition,
    workload: Workload,
    seconds_of: Callable[[Workload], float],
    most: int,
) -> int:
    """The most bytes of a workload that is evaluated many times, up to ``most``.

    What is computed from its tensors may take far more: all pairs of two of them, for example.
    """

    def seconds(size: int) -> float:
        larger = enlarge(definition, workload, {}, size)
        # A first call may compile, and other work may interfere.
        return min(seconds_of(larger), seconds_of(larger))

    smallest, *others = (int(share * most) for share in SHARES)
    allowed, quick = seconds(smallest) + QUICK_SECONDS, smallest
    for size in others:
        if seconds(size) > allowed:
            break
        quick = size
    return quick


def _explained(
    check: Check, clock: Callable[[], float], until: float, workload: Workload
) -> Evaluation | None:
    """The outcome of a check; None if there is no time left."""
    seconds_left = until - clock()
    if seconds_left <= 0.0:
        return None
    outcome = check(workload, explain=True, explain_seconds=seconds_left)
    return outcome if isinstance(outcome, Evaluation) else None


def unfinished_result(
    request: SearchRequest, checked: Sequence[tuple[Workload, Outcome]], last: Evaluation
) -> SearchResult:
    """The result of a search that could not go on: its last failure, or ``last``."""
    failing = [(workload, outcome) for workload, outcome in checked if _failed(outcome)]
    if failing:
        workload, outcome = failing[-1]
        return SearchResult(
            tried=len(checked), workload=workload, outcome=outcome, origin="unfinished"
        )
    smallest = smallest_axes(request.definition)
    workload = checked[-1][0] if checked else make_workload(request.definition, smallest)
    return SearchResult(tried=len(checked), workload=workload, outcome=last)


def search_step(request: SearchRequest, checked: Sequence[tuple[Workload, Outcome]]) -> str:
    """The activity of a search after these checks, in words."""
    if any(_failed(outcome) for _, outcome in checked):
        return f"{len(checked)} workloads, making a failure smaller"
    total = len(request.failed_before) + len(request.listed)
    total += (1 + request.small_for_each) * request.examples
    return f"workload {len(checked) + 1} of {max(total, len(checked) + 1)}"


def _failed(outcome: Outcome) -> bool:
    """Whether an outcome ends a search."""
    return not _passes(outcome)


def _alike(first: Outcome, other: Outcome) -> bool:
    """Whether two failures have the same status and, for wrong numbers, the same outputs.

    One that other values of the workload show isn't like one of its own, and what is just beyond
    its bound isn't like what is far beyond: nearly as much may be rounding. Neither is what
    rounding leaves, which is far beyond the bound of an exact number.
    """
    if not isinstance(first, Evaluation) or not isinstance(other, Evaluation):
        return type(first) is type(other)
    if _shown_by(other) and not _shown_by(first):
        return False
    if _bound_used(other) < min(_bound_used(first), FAR_BEYOND):
        return False
    first_worst, worst = (facts_of(each).get("worst", {}) for each in (first, other))
    if _is_left_of_rounding(worst, first_worst):
        return False
    wrong = {*_wrong_outputs(first), first_worst.get("output")}
    return first.status is other.status and worst.get("output") in wrong


def _is_left_of_rounding(worst: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """Whether an element is wrong by hardly anything, beside the worst one of another run."""
    if not worst or not first:
        return False
    error, first_error = (abs(each["got"] - each["expected"]) for each in (worst, first))
    return bool(error <= LEFT_OF_ROUNDING * (1.0 if isnan(first_error) else min(1.0, first_error)))


def _wrong_outputs(outcome: Evaluation) -> set[str]:
    """The outputs of which elements are wrong."""
    counts = facts_of(outcome).get("elements_wrong", {}) if has_pattern(outcome) else {}
    return {name for name, count in counts.items() if count}


def _shown_by(outcome: Outcome) -> Workload | None:
    """The other workload that a failure is of, if it is."""
    diagnosis = outcome.diagnosis if isinstance(outcome, Evaluation) else None
    return diagnosis.shown_by if diagnosis else None


def _closeness(outcome: Outcome) -> float:
    """The share of its bound that a passing evaluation used."""
    return _bound_used(outcome) if isinstance(outcome, Evaluation) else 0.0


def _bound_used(outcome: Evaluation) -> float:
    """The largest error over its bound; 0 where nothing was compared."""
    return float(facts_of(outcome).get("bound_used", 0.0))
