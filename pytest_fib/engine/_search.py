"""Searches for a workload on which an implementation is wrong, and diagnoses the failure.

A larger workload explains a failure: the smallest that fails shows few patterns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from pytest_fib.data import (
    EXPLAIN_SECONDS,
    LAYOUTS,
    Definition,
    DefinitionFault,
    Diagnosis,
    Evaluation,
    EvaluationStatus,
    Outcome,
    SearchRequest,
    SearchResult,
    Workload,
)
from pytest_fib.diagnosis import VAGUE_PATTERNS
from pytest_fib.verdict import detail_lines, qualified
from pytest_fib.workloads import enlarge, make_workload, smallest_axes, workload_bytes

if TYPE_CHECKING:
    from pytest_fib.search import Search

#: Bytes of a workload whose rows are drawn many times: a thousand rows of a thousand tokens.
DRAWN_BYTES = 32 << 20
#: Bytes of the larger workload: enough rows for a pattern, and calls of milliseconds.
DIAGNOSIS_BYTES = 4 << 20
#: The shares of it that are tried in turn, and the seconds that a check may take longer than that
#: of the first: all explanations together have 20. Tensors of eight times the size may take 64
#: times as long.
SHARES, QUICK_SECONDS = (1 / 512, 1 / 64, 1 / 8, 1.0), 0.25
#: Where a larger share of the drawn workloads is passed over, the outcome says so.
MOST_PASSED_OVER = 0.5
#: A workload shows too little if no tensor has more elements.
TINY = 16
#: Patterns that only say how many elements are wrong.
COUNTED = ("one element", "scattered")
#: A factor that all elements of a workload have in common, in a sentence; and the circumstances
#: that the sentence ends with.
FACTOR = re.compile(r"every element is (\S+ x expected)")
CIRCUMSTANCES = re.compile(r"(?: \((?!which is )[^()]*\))*$")
#: Patterns that describe inputs, whatever their size.
ABOUT_INPUTS = ("misread input", "follows an input")


class Check(Protocol):
    """Evaluates a workload; the options are those of an EvaluationRequest."""

    def __call__(
        self,
        workload: Workload,
        *,
        draws: bool = False,
        explain: bool = False,
        explain_seconds: float = EXPLAIN_SECONDS,
    ) -> Outcome: ...


def search_and_diagnose(
    definition: Definition,
    check: Check,
    *,
    failed_before: Sequence[Workload] = (),
    listed: Sequence[Workload] = (),
    examples: int,
    seed: int,
    run_seed: int | None,
    max_bytes: int,
    draws: bool = True,
    clock: Callable[[], float] = monotonic,
    **drawn: Any,
) -> SearchResult:
    """Search for a workload that fails, and for the smallest like it. As in a SearchRequest.

    ``drawn`` are ``search``'s conditions on drawn workloads, ``affordable`` and ``undecided``;
    ``clock`` is as there.

    A larger workload explains a failure, within ``EXPLAIN_SECONDS``. If nothing fails, ``draws``
    has outputs that are chosen at random drawn many times, from one workload: that takes seconds,
    so it comes at the end.
    """
    drawn |= {"examples": examples, "seed": seed, "run_seed": run_seed, "clock": clock}
    result = _search(definition, check, failed_before, listed, max_bytes, **drawn)
    workload, outcome = result.workload, result.outcome
    if draws and result.origin is None and any(map(definition.is_sampled, definition.outputs)):
        # It has enough rows for some to show a token more or less.
        last_seed = seed if run_seed is None else run_seed
        seeded = workload.model_copy(update={"seed": last_seed})
        workload = enlarge(definition, seeded, {}, min(max_bytes, DRAWN_BYTES))
        outcome = check(workload, draws=True)
    elif isinstance(outcome, Evaluation):
        outcome = _diagnosed(definition, check, (workload, outcome), max_bytes, clock)
    if result.undecided is not None:
        left_out, failed = result.undecided
        why = failed.message if isinstance(failed, DefinitionFault) else failed.log
        outcome = _with_left_out(outcome, left_out, why)
    elif len(result.passed_over) > MOST_PASSED_OVER * examples:
        others = len(result.passed_over) - 1
        why = f"the reference would take too much time or memory, here and in {others} more"
        outcome = _with_left_out(outcome, result.passed_over[0], why)
    return SearchResult(
        tried=result.tried, workload=workload, outcome=outcome, origin=result.origin
    )


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
    check: Check,
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
) -> Evaluation:
    """The outcome of a search; wrong numbers are diagnosed with larger workloads."""
    workload, outcome = result
    if not _has_pattern(outcome):
        return outcome
    seconds_of = partial(_seconds_of, check, clock)
    most = _bytes_to_explain(definition, workload, seconds_of, min(max_bytes, DIAGNOSIS_BYTES))
    explain = partial(_explained, check, clock, clock() + EXPLAIN_SECONDS)
    return diagnose_failure(definition, workload, outcome, explain, most)


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
    total = len(request.failed_before) + len(request.listed) + request.examples
    return f"workload {len(checked) + 1} of {max(total, len(checked) + 1)}"


def _failed(outcome: Outcome) -> bool:
    """Whether an outcome ends a search."""
    return not isinstance(outcome, Evaluation) or outcome.status is not EvaluationStatus.PASSED


def _alike(first: Outcome, other: Outcome) -> bool:
    """Whether two failures have the same status and, for wrong numbers, the same outputs."""
    if not isinstance(first, Evaluation) or not isinstance(other, Evaluation):
        return type(first) is type(other)
    reported = _facts(other).get("worst", {}).get("output")
    facts = _facts(first)
    wrong = {name for name, count in facts.get("elements_wrong", {}).items() if count}
    wrong.add(facts.get("worst", {}).get("output"))
    return first.status is other.status and reported in wrong


def _facts(outcome: Evaluation) -> dict[str, Any]:
    return (outcome.correctness.extra if outcome.correctness else None) or {}


def _closeness(outcome: Outcome) -> float:
    """The share of its bound that a passing evaluation used."""
    correctness = outcome.correctness if isinstance(outcome, Evaluation) else None
    return float(((correctness and correctness.extra) or {}).get("bound_used", 0.0))


def diagnose_failure(
    definition: Definition,
    workload: Workload,
    outcome: Evaluation,
    evaluate: Callable[[Workload], Evaluation | None],
    max_bytes: int,
) -> Evaluation:
    """The outcome of a workload, with the diagnosis of a larger one if that fails too.

    The workload's own diagnosis is kept if the larger one's is vague, and its own is not and isn't
    about a few elements only, for which nearly anything may hold. A diagnosis about inputs is
    dropped if it does not explain the larger failure. ``evaluate`` evaluates a workload with
    ``explain``, or returns None if it can't. Only wrong numbers have a pattern, so other outcomes
    are returned as they are.
    """
    if not _has_pattern(outcome):
        return outcome
    first, passes = None, False
    for shown in (*_larger(definition, workload, max_bytes), workload):
        explained = evaluate(shown)
        passes |= explained is not None and explained.status is EvaluationStatus.PASSED
        diagnosis = _diagnosis_of(explained)
        if diagnosis is None or (passes and _says_too_much(definition, shown, diagnosis)):
            continue
        diagnosis = _with_layout(definition, shown, diagnosis, evaluate)
        if shown is not workload:
            diagnosis = _as_shown_by(shown, diagnosis, workload, outcome)
        is_first, first = first is None, first or diagnosis
        if diagnosis.pattern not in VAGUE_PATTERNS and (
            is_first or not (_is_tiny(definition, shown) or _is_refuted(diagnosis, first))
        ):
            return _with_diagnosis(outcome, diagnosis)
    # How many elements of another workload are wrong doesn't go with an element of this one.
    own = outcome.diagnosis
    if first is None or (own and (first.pattern in COUNTED or _is_another(own, first))):
        return outcome
    return _with_diagnosis(outcome, first)


def _is_another(own: Diagnosis, larger: Diagnosis) -> bool:
    """Whether both say little, and the one would not go with the elements of the other."""
    return own.pattern in VAGUE_PATTERNS and own.pattern != larger.pattern


def _is_refuted(diagnosis: Diagnosis, larger: Diagnosis) -> bool:
    """Whether a diagnosis about inputs or all elements should hold for the larger workload too."""
    many = larger.pattern in ("everywhere", "scattered")
    return many and diagnosis.pattern in ("misread input", "one factor", "one offset", "zeros")


def _says_too_much(definition: Definition, shown: Workload, diagnosis: Diagnosis) -> bool:
    """Whether a few elements suggest misread inputs, which larger workloads would show too."""
    return diagnosis.pattern in ABOUT_INPUTS and _is_tiny(definition, shown)


def _is_tiny(definition: Definition, workload: Workload) -> bool:
    """Whether no tensor has more than a few elements."""
    sizes = definition.axis_values(workload.axes)
    tensors = {**definition.inputs, **definition.outputs}
    return max(prod(spec.shape_at(sizes)) for spec in tensors.values()) < TINY


def _larger(definition: Definition, workload: Workload, max_bytes: int) -> Iterator[Workload]:
    """Larger workloads: of plain values, which show patterns best, then of the same regime."""
    most = min(max_bytes, DIAGNOSIS_BYTES)
    plain: dict[str, str] = {}
    for regime in (plain, workload.regime) if workload.regime else (plain,):
        larger = enlarge(definition, workload, regime, most)
        if larger != workload:
            yield larger


def _diagnosis_of(outcome: Evaluation | None) -> Diagnosis | None:
    """The diagnosis of wrong numbers; None for other outcomes."""
    return outcome.diagnosis if outcome is not None and _has_pattern(outcome) else None


def _has_pattern(outcome: Evaluation) -> bool:
    return outcome.status is EvaluationStatus.INCORRECT_NUMERICAL


def _with_layout(
    definition: Definition,
    workload: Workload,
    diagnosis: Diagnosis,
    evaluate: Callable[[Workload], Evaluation | None],
) -> Diagnosis:
    """The diagnosis; it is the layout if the same values are right when contiguous."""
    layout, contiguous = workload.regime.get("layout", LAYOUTS[0]), LAYOUTS[0]
    if layout == contiguous:
        return diagnosis
    regime = {**workload.regime, "layout": contiguous}
    outcome = evaluate(make_workload(definition, workload.axes, workload.seed, regime))
    if outcome is None or outcome.status is not EvaluationStatus.PASSED:
        return diagnosis
    circumstance = f"only where inputs are {layout}, not where they are {contiguous}"
    return qualified(diagnosis, circumstance).model_copy(update={"pattern": "layout"})


def _as_shown_by(
    larger: Workload, diagnosis: Diagnosis, workload: Workload, outcome: Evaluation
) -> Diagnosis:
    """The diagnosis of a larger workload, with the elements of this workload's outcome.

    What only goes with the larger one says where it was seen.
    """
    own = outcome.diagnosis
    details = own.details if own else ()
    if own and own.pattern in VAGUE_PATTERNS and _facts(outcome).get("check") != "elements":
        details = (*detail_lines(own.sentence), *details)  # what its elements don't show
    shown: dict[str, Any] = {"shown_by": diagnosis.shown_by or larger, "details": details}
    if diagnosis.pattern not in (*VAGUE_PATTERNS, "follows an input"):
        shown["vague"] = False  # an element of this workload would not go with it
    if own and own.output == diagnosis.output:
        shown["element"] = own.element
        factors = [FACTOR.search(each.sentence) for each in (diagnosis, own)]
        if (both := [factor[1] for factor in factors if factor])[1:] and both[0] != both[1]:
            at = _sizes_in_words(larger), _sizes_in_words(workload)
            words = f"every element is {both[0]} at {at[0]}, {both[1]} at {at[1]}"
            circumstances = CIRCUMSTANCES.search(diagnosis.sentence)
            shown["sentence"] = f"{own.output}: {words}{circumstances[0] if circumstances else ''}"
    elif own and own.output:
        shown["sentence"] = f"{diagnosis.sentence} ({_sizes_in_words(larger)})"
    return diagnosis.model_copy(update=shown)


def _sizes_in_words(workload: Workload) -> str:
    return ", ".join(f"{axis}={n}" for axis, n in workload.axes.items())


def _with_diagnosis(outcome: Evaluation, diagnosis: Diagnosis) -> Evaluation:
    return outcome.model_copy(update={"diagnosis": diagnosis, "log": diagnosis.text})
