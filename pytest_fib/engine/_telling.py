"""A failure in the words of a larger workload: in the smallest that fails, little is told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.data import EvaluationStatus
from pytest_fib.engine._evidence import SAYS_LITTLE
from pytest_fib.workloads import LAYOUTS, complete, grown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_fib.data import Definition, Evaluation, Workload

#: Memory of the larger workload: rows enough for a pattern, and calls that take milliseconds.
TELLING_BYTES = 4 << 20


def told(
    definition: Definition,
    workload: Workload,
    outcome: Evaluation,
    explained: Callable[[Workload], Evaluation | None],
    max_bytes: int,
) -> Evaluation:
    """The outcome of a workload, with the pattern that it has in a larger one where that fails too.

    Unless that says little, and that of the workload itself says more.

    ``explained`` evaluates a workload with ``explain``; None, where it can't. Only wrong numbers
    have a pattern, so other outcomes are returned as they are.
    """
    if outcome.status is not EvaluationStatus.INCORRECT_NUMERICAL:
        return outcome
    best = outcome
    for shown in (*_larger(definition, workload, max_bytes), workload):
        seen = explained(shown)
        if seen is None or seen.status is not outcome.status:
            continue
        found = seen if shown is workload else _retold(outcome, seen, shown)
        found = _with_layout(definition, shown, found, explained)
        if not _says_little(found):
            return found
        best = found if best is outcome else best
    return best


def _says_little(outcome: Evaluation) -> bool:
    extra = (outcome.correctness and outcome.correctness.extra) or {}
    return extra.get("pattern") in SAYS_LITTLE


def _with_layout(
    definition: Definition,
    workload: Workload,
    outcome: Evaluation,
    explained: Callable[[Workload], Evaluation | None],
) -> Evaluation:
    """The outcome, and whether it hangs on how inputs lie in memory."""
    layout = workload.regime.get("layout", LAYOUTS[0])
    correctness = outcome.correctness
    if layout == LAYOUTS[0] or correctness is None:
        return outcome
    regime = {**workload.regime, "layout": LAYOUTS[0]}
    seen = explained(complete(definition, workload.axes, workload.seed, regime))
    if seen is None or seen.status is not EvaluationStatus.PASSED:
        return outcome
    sentence, _, details = outcome.log.partition("\n")
    what, _, element = sentence.partition(";")
    known = f"{what}, where inputs are {layout}; right where they are {LAYOUTS[0]}"
    log = f"{known}{';' if element else ''}{element}\n{details}".strip()
    extra = {**(correctness.extra or {}), "pattern": "layout"}
    correctness = correctness.model_copy(update={"extra": extra})
    return outcome.model_copy(update={"log": log, "correctness": correctness})


def _larger(definition: Definition, workload: Workload, max_bytes: int) -> Iterator[Workload]:
    """Of plain values, in which patterns are the plainest, then of the same kind."""
    most = min(max_bytes, TELLING_BYTES)
    plain: dict[str, str] = {}
    for regime in (plain, workload.regime) if workload.regime else (plain,):
        larger = grown(definition, workload, regime, most)
        if larger != workload:
            yield larger


def _retold(outcome: Evaluation, seen: Evaluation, larger: Workload) -> Evaluation:
    """The outcome with what was seen of a larger workload."""
    sentence, _, _ = seen.log.partition("\n")
    _, _, details = outcome.log.partition("\n")
    log = f"{sentence}\n{details}".strip()
    if outcome.correctness is None or seen.correctness is None:
        return outcome.model_copy(update={"log": log})
    theirs = seen.correctness.extra or {}
    extra = dict(outcome.correctness.extra or {})
    extra.update({key: theirs[key] for key in ("pattern", "place") if key in theirs})
    extra["told_by"] = dict(larger.axes)
    correctness = outcome.correctness.model_copy(update={"extra": extra})
    return outcome.model_copy(update={"log": log, "correctness": correctness})
