"""Times against those of an earlier run: which differences are credible."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from math import exp, hypot, inf, log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from pytest_fib.data import Trace, Workload

#: What two processes add to the difference of their times, as a standard part of its interval:
#: other placements in memory, other neighbours.
PROCESSES = 0.01
#: A difference up to this is not worth a mention.
NOTEWORTHY = 0.05

Change: TypeAlias = Literal["slower", "faster", "same", "unclear"]


@dataclass(frozen=True)
class TimeRecord:
    """What a comparison needs of a trace. ``low_ms`` to ``high_ms`` is the latency's interval."""

    definition: str
    solution: str
    workload_key: str
    latency_ms: float
    low_ms: float | None
    high_ms: float | None
    method: str
    hardware: str
    timestamp: str
    #: What the reference took in the same measurement.
    reference_ms: float | None = None

    @classmethod
    def from_trace(cls, trace: Trace) -> TimeRecord | None:
        """The time in a trace, its text visible; None where it has none."""
        from pytest_fib.data import visible_line

        evaluation = trace.evaluation
        if evaluation is None or evaluation.performance is None:
            return None
        latency, reference = evaluation.latency_ms, evaluation.reference_latency_ms
        if not _is_time(latency):
            return None
        extra: dict[str, Any] = evaluation.performance.model_extra or {}
        low, high = _interval(extra.get("ci_ms"), latency)
        method = extra.get("method")
        return cls(
            definition=trace.definition,
            solution=visible_line(trace.solution or ""),
            workload_key=_workload_key(trace.workload),
            latency_ms=latency,
            low_ms=low,
            high_ms=high,
            method=visible_line(method) if isinstance(method, str) else "",
            hardware=visible_line(evaluation.hardware or ""),
            timestamp=visible_line(evaluation.timestamp),
            reference_ms=reference if _is_time(reference) else None,
        )

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval of the latency's logarithm; None where there is none."""
        if self.low_ms is None or self.high_ms is None:
            return None
        return log(self.high_ms / self.low_ms) / 2


@dataclass(frozen=True)
class TimeComparison:
    """A time and an earlier one, in ms. ``low`` to ``high`` is the interval of their ratio.

    Without ``before_ms`` there was nothing to compare with; without an interval, the records don't
    say how certain their times are. Either way ``reason`` says why.
    """

    now_ms: float
    before_ms: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""
    solution: str = ""
    timestamp: str = ""
    method: str = ""

    @property
    def relative_change(self) -> float | None:
        """How much slower it is now: 0.05 is by 5 %; below 0, faster."""
        return None if self.before_ms is None else self.now_ms / self.before_ms - 1

    def slower_than(self, limit: float) -> bool:
        """Whether it is slower by more than ``limit`` (0.05 is 5 %), by the whole interval."""
        return self.low is not None and self.low > 1 + limit

    @property
    def change(self) -> Change:
        if self.low is None or self.high is None:
            return "unclear"
        if self.low > 1:
            return "slower"
        if self.high < 1:
            return "faster"
        small = self.low >= 1 - NOTEWORTHY and self.high <= 1 + NOTEWORTHY
        return "same" if small else "unclear"


def _is_time(ms: float | None) -> TypeGuard[float]:
    return ms is not None and 0 < ms < inf


def _interval(ends: object, latency: float) -> tuple[float | None, float | None]:
    """The ends of an interval around the latency; anything else is none."""
    if isinstance(ends, list) and len(ends) == 2 and {*map(type, ends)} <= {int, float}:
        low, high = map(float, ends)
        if 0 < low <= latency <= high < inf:
            return low, high
    return None, None


def _workload_key(workload: Workload) -> str:
    """What two records of one workload share. Others' uuids of generated inputs are random."""
    if workload.has_recorded_tensors:
        return workload.uuid
    key = (workload.axes, workload.seed, workload.regime)
    return json.dumps(key, sort_keys=True, separators=(",", ":"))


class Baseline:
    """Earlier times. With ``best``, a time is compared with the fastest of any implementation."""

    def __init__(self, name: str, records: Iterable[TimeRecord], *, best: bool = False) -> None:
        self.name = name
        self.best = best
        self.records = list(records)
        self._by_key: dict[tuple[str, ...], list[TimeRecord]] = defaultdict(list)
        for record in self.records:
            self._by_key[self._key(record)].append(record)

    def _key(self, record: TimeRecord) -> tuple[str, ...]:
        key = (record.definition, record.workload_key)
        return key if self.best else (*key, record.solution)

    def compare(self, now: TimeRecord) -> TimeComparison:
        """A time against the latest that can be compared; with ``best``, against the least."""
        earlier = self._by_key.get(self._key(now), [])
        comparable = [record for record in earlier if not _why_incomparable(record, now)]
        if comparable:
            return _ratio(_fastest(comparable) if self.best else _latest(comparable), now)
        reason = _why_incomparable(_latest(earlier), now) if earlier else f"not in {self.name}"
        return TimeComparison(now.latency_ms, reason=reason)

    def to_json(self) -> str:
        return json.dumps([self.name, self.best, [astuple(record) for record in self.records]])

    @classmethod
    def from_json(cls, text: str) -> Baseline:
        name, best, records = json.loads(text)
        return cls(name, [TimeRecord(*record) for record in records], best=best)


def _latest(records: Sequence[TimeRecord]) -> TimeRecord:
    return max(reversed(records), key=lambda record: record.timestamp)


def _fastest(records: Sequence[TimeRecord]) -> TimeRecord:
    return min(records, key=lambda record: record.latency_ms)


def _why_incomparable(before: TimeRecord, now: TimeRecord) -> str:
    """Why two times can't be compared; nothing where they can."""
    if before.hardware != now.hardware:
        return f"measured on {before.hardware or 'unknown hardware'}, now on {now.hardware}"
    if not before.method:
        return "the record does not say how it was timed"
    if before.method != now.method:
        return f"timed by {before.method}, now by {now.method}"
    return ""


def _ratio(before: TimeRecord, now: TimeRecord) -> TimeComparison:
    """The ratio's interval: both widths and what processes add, combined as independent errors.

    It is widened by all that the reference's times differ by: that code is the same, so the machine
    has changed.
    """
    widths = [width for width in (before.half_width, now.half_width) if width is not None]
    has_interval = len(widths) == 2
    drift = _drift(before, now)
    width = hypot(*widths, PROCESSES) + drift
    ratio = now.latency_ms / before.latency_ms
    reason = "the reference's time has changed, too" if drift > NOTEWORTHY else ""
    return TimeComparison(
        now_ms=now.latency_ms,
        before_ms=before.latency_ms,
        low=ratio * exp(-width) if has_interval else None,
        high=ratio * exp(width) if has_interval else None,
        reason=reason if has_interval else "a time has no confidence interval",
        solution=before.solution,
        timestamp=before.timestamp,
        method=before.method,
    )


def _drift(before: TimeRecord, now: TimeRecord) -> float:
    """What the reference's times differ by, as a logarithm."""
    if before.reference_ms is None or now.reference_ms is None:
        return 0.0
    return abs(log(now.reference_ms / before.reference_ms))


def read_times(path: Path) -> list[TimeRecord]:
    """The times in a file of traces, or in those of a directory: of its ``traces``, or below it.

    Raises DataError where a file isn't one of traces, and OSError where it can't be read.
    """
    from pytest_fib.data import read_traces

    folder = path / "traces" if (path / "traces").is_dir() else path
    files = sorted(folder.rglob("*.jsonl")) if folder.is_dir() else [path]
    records = (TimeRecord.from_trace(trace) for file in files for trace in read_traces(file))
    return [record for record in records if record is not None]


# --- what is shown ------------------------------------------------------------------------------


def shown_change(comparison: TimeComparison) -> str:
    """``+4.4 %``; from ten times on, ``x12.3``."""
    change = comparison.relative_change
    if change is None:
        return "-"
    return f"{100 * change:+.1f} %" if change < 9 else f"x{1 + change:.1f}"


def shown_uncertainty(comparison: TimeComparison) -> str:
    """How far the change may be off, either way, in percent: ``±1.2``."""
    if comparison.low is None or comparison.high is None:
        return "?"
    return f"±{min(50 * (comparison.high - comparison.low), 999):.3g}"


def tally(comparisons: Sequence[TimeComparison], name: str) -> list[str]:
    """``8 times compared with base.jsonl: 1 slower, 7 same``, and why others were not compared."""
    compared = [comparison for comparison in comparisons if comparison.before_ms is not None]
    changes = sorted(Counter(comparison.change for comparison in compared).items())
    counts = f": {', '.join(f'{n} {change}' for change, n in changes)}" if compared else ""
    times = "1 time" if len(compared) == 1 else f"{len(compared) or 'no'} times"
    undecided = [c for c in comparisons if c.reason and c.change == "unclear"]
    reasons = Counter((c.before_ms is None, c.reason) for c in undecided)
    return [f"{times} compared with {name}{counts}"] + [
        f"{n} {'not compared' if absent else 'unclear'}: {reason}"
        for (absent, reason), n in sorted(reasons.items())
    ]
