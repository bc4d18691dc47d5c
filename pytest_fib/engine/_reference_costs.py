"""What a definition's reference costs at sizes tried so far, so that none too large is drawn."""

from __future__ import annotations

from pytest_fib.data import (
    OUT_OF_MEMORY,
    Definition,
    DefinitionFault,
    EvaluationStatus,
    Outcome,
    Workload,
)
from pytest_fib.workloads import Costs

#: What a reference may take of the time of an evaluation on a workload that is drawn; and from
#: which share on, also of its memory, it is not to be wondered at that an implementation takes all.
DRAWN_SHARE, LATE_SHARE = 0.1, 0.25
#: Memory of the reference's own, as a multiple of the budget of a workload.
MEMORY_FACTOR = 8
#: From which seconds and bytes beyond the least on something is learnt.
NOTICEABLE_SECONDS, NOTICEABLE_BYTES = 0.5, 16 << 20


class ReferenceCosts:
    """Seconds and bytes of a reference's calls, of whatever implementation was checked by them."""

    def __init__(self, definition: Definition) -> None:
        self._seconds = Costs(definition, NOTICEABLE_SECONDS)
        self._bytes = Costs(definition, NOTICEABLE_BYTES)

    def add(self, workload: Workload, seconds: float, peak_bytes: int | None) -> None:
        """Learn from a call, and from the memory that it took; None, where that isn't known."""
        self._seconds.add(workload.axes, seconds)
        if peak_bytes is not None:
            self._bytes.add(workload.axes, peak_bytes)

    def are_affordable(self, workload: Workload, timeout: float, max_bytes: int) -> bool:
        """Whether the reference is expected to be well within the limits of an evaluation."""
        seconds = self._seconds.expected(workload.axes)
        size = self._bytes.expected(workload.axes)
        return seconds <= DRAWN_SHARE * timeout and size <= MEMORY_FACTOR * max_bytes

    def explain(self, workload: Workload, outcome: Outcome, timeout: float, max_bytes: int) -> bool:
        """Whether a workload failed for being too large, and for no fault."""
        if isinstance(outcome, DefinitionFault):
            return outcome.exhausted
        if outcome.status is EvaluationStatus.TIMEOUT:
            return self._seconds.expected(workload.axes) > LATE_SHARE * timeout
        if outcome.diagnosis is None or outcome.diagnosis.pattern != OUT_OF_MEMORY:
            return False
        most = MEMORY_FACTOR * max_bytes
        return self._bytes.expected(workload.axes) > LATE_SHARE * most
