"""Learns how long an implementation takes by size, and draws none that it can't do in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from pytest_fib.data import Definition, Evaluation, EvaluationStatus, Outcome, Workload
from pytest_fib.engine._reference_costs import DRAWN_SHARE, Costs

#: Checks that took longer than the least by fewer seconds say nothing: others may have run then.
NOTICEABLE_SECONDS = 0.1
#: What takes so many times as long as is expected hangs: in an interpreter, whose time is far from
#: even, and elsewhere.
HANGING_INTERPRETED, HANGING = 100, 20
#: How many times a workload that timed out is halved to see whether that is for its size.
PROBES = 3
#: The share of the time that what isn't interpreted may be expected to take on a drawn workload.
SHARE = 0.5


def timed_out(outcome: Outcome) -> bool:
    """Whether there was no answer in time."""
    return _has(outcome, EvaluationStatus.TIMEOUT)


def _has(outcome: Outcome, status: EvaluationStatus) -> bool:
    return isinstance(outcome, Evaluation) and outcome.status is status


@dataclass
class CandidateCosts:
    """Seconds of the checks of one implementation, whose calls may take ``timeout`` seconds.

    An interpreter takes milliseconds for each program of a grid, so what a device does in no time
    may take minutes, with nothing wrong; so may a loop in Python over thousands of sequences.
    """

    definition: Definition
    timeout: float
    interpreted: bool
    _late: set[str] = field(default_factory=set)

    @property
    def _hanging(self) -> int:
        return HANGING_INTERPRETED if self.interpreted else HANGING

    @cached_property
    def _seconds(self) -> Costs:
        return Costs(self.definition, NOTICEABLE_SECONDS)

    def note(self, workload: Workload, outcome: Outcome, seconds: float) -> None:
        """Learn from a check; whether one that timed out hangs is judged by those before it."""
        expected = self._seconds.expected(workload.axes)
        if timed_out(outcome) and expected * self._hanging > self.timeout:
            self._late.add(workload.uuid)
        self._seconds.add(workload.axes, seconds)

    def is_slow(self, workload: Workload) -> bool:
        """Whether a check is expected to take longer than one of a drawn workload should."""
        share = DRAWN_SHARE if self.interpreted else SHARE
        return self._seconds.expected(workload.axes) > share * self.timeout

    def explain(self, workload: Workload) -> bool:
        """Whether a workload timed out as those before it made likely."""
        return workload.uuid in self._late

    def is_late_for_its_size(
        self, workload: Workload, check: Callable[[Workload], Outcome]
    ) -> bool:
        """Whether smaller ones end, and take so long that this one hardly hangs.

        ``check`` notes what it learns. The first of the halves that doesn't time out decides, if it
        passes.
        """
        from pytest_fib.search import halved

        smaller = halved(self.definition, workload)
        for _ in range(PROBES):
            if smaller is None:
                return False
            outcome = check(smaller)
            if not timed_out(outcome):
                return _has(outcome, EvaluationStatus.PASSED) and self.is_long(smaller)
            smaller = halved(self.definition, smaller)
        return False

    def is_long(self, workload: Workload) -> bool:
        """Whether this took so long that one of twice its sizes, or a few times, may time out."""
        seconds = self._seconds.expected(workload.axes)
        is_clear = seconds - self._seconds.least > NOTICEABLE_SECONDS
        return is_clear and seconds * self._hanging > self.timeout
