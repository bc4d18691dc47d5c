"""Times against those of an earlier run: which differences are credible."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import asdict, astuple, dataclass
from math import exp, hypot, inf, log
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_fib.data import Trace, Workload

#: What two processes add to the difference of their times, as a standard part of its interval:
#: other placements in memory, other neighbours.
PROCESSES = 0.01
#: A difference up to this is not worth a mention.
NOTEWORTHY = 0.05

Verdict: TypeAlias = Literal["slower", "faster", "same", "unclear"]


@dataclass(frozen=True)
class Timed:
    """What a comparison needs of a trace. ``low_ms`` to ``high_ms`` is the latency's interval."""

    definition: str
    solution: str
    case: str
    latency_ms: float
    low_ms: float | None
    high_ms: float | None
    method: str
    hardware: str
    timestamp: str
    #: What the reference took beside it.
    reference_ms: float | None = None

    @property
    def half_width(self) -> float | None:
        """Half the width of the interval of the latency's logarithm; None where there is none."""
        if self.low_ms is None or self.high_ms is None:
            return None
        return log(self.high_ms / self.low_ms) / 2


@dataclass(frozen=True)
class Comparison:
    """A time and an earlier one, in ms. ``low`` to ``high`` is the interval of their ratio.

    Without ``before_ms`` there was nothing to compare with; without an interval, the records don't
    say how sure their times are. Either way ``reason`` says why.
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
    def change(self) -> float | None:
        """How much slower it is now: 0.05 is by 5 %; below 0, faster."""
        return None if self.before_ms is None else self.now_ms / self.before_ms - 1

    def slower_than(self, limit: float) -> bool:
        """Whether it is slower by more than ``limit`` (0.05 is 5 %), by the whole interval."""
        return self.low is not None and self.low > 1 + limit

    @property
    def verdict(self) -> Verdict:
        """What the interval supports."""
        if self.low is None or self.high is None:
            return "unclear"
        if self.low > 1:
            return "slower"
        if self.high < 1:
            return "faster"
        small = self.low >= 1 - NOTEWORTHY and self.high <= 1 + NOTEWORTHY
        return "same" if small else "unclear"


def timed(trace: Trace) -> Timed | None:
    """What to compare of a trace; None where it has no time."""
    evaluation = trace.evaluation
    if evaluation is None or evaluation.performance is None:
        return None
    latency, reference = evaluation.latency_ms, evaluation.reference_latency_ms
    if not _is_time(latency):
        return None
    extra: dict[str, Any] = evaluation.performance.model_extra or {}
    low, high = _interval(extra.get("ci_ms"), latency)
    method = extra.get("method")
    return Timed(
        definition=trace.definition,
        solution=trace.solution or "",
        case=_case(trace.workload),
        latency_ms=latency,
        low_ms=low,
        high_ms=high,
        method=method if isinstance(method, str) else "",
        hardware=evaluation.hardware or "",
        timestamp=evaluation.timestamp,
        reference_ms=reference if _is_time(reference) else None,
    )


def _is_time(ms: float | None) -> TypeGuard[float]:
    return ms is not None and 0 < ms < inf


def _interval(given: object, latency: float) -> tuple[float | None, float | None]:
    """The ends of an interval around the latency; anything else is none."""
    if isinstance(given, list) and len(given) == 2 and {*map(type, given)} <= {int, float}:
        low, high = map(float, given)
        if 0 < low <= latency <= high < inf:
            return low, high
    return None, None


def _case(workload: Workload) -> str:
    """What two records of one workload share. Others' uuids of generated inputs are random."""
    if any(given.type == "safetensors" for given in workload.inputs.values()):
        return workload.uuid
    facts = (workload.axes, workload.seed, workload.regime)
    return json.dumps(facts, sort_keys=True, separators=(",", ":"))


class Baseline:
    """Earlier times. ``best`` compares with the fastest of any implementation, not with its own."""

    def __init__(self, name: str, records: Iterable[Timed], *, best: bool = False) -> None:
        self.name = name
        self.best = best
        self._records: dict[tuple[str, ...], list[Timed]] = defaultdict(list)
        for record in records:
            self._records[self._key(record)].append(record)

    @property
    def records(self) -> list[Timed]:
        """All of them."""
        return [record for kept in self._records.values() for record in kept]

    def _key(self, record: Timed) -> tuple[str, ...]:
        key = (record.definition, record.case)
        return key if self.best else (*key, record.solution)

    def versus(self, now: Timed) -> Comparison:
        """A time against the latest that can be compared, or of ``best`` against the least."""
        known = self._records.get(self._key(now), [])
        like = [record for record in known if not _unlike(record, now)]
        if not like:
            reason = _unlike(_latest(known), now) if known else f"not in {self.name}"
            return Comparison(now.latency_ms, reason=reason)
        return _compared(_fastest(like) if self.best else _latest(like), now)

    def to_json(self) -> str:
        """This as text that ``from_json`` takes."""
        return json.dumps([self.name, self.best, [astuple(record) for record in self.records]])

    @classmethod
    def from_json(cls, text: str) -> Baseline:
        """The baseline that was written as ``text``."""
        name, best, records = json.loads(text)
        return cls(name, [Timed(*record) for record in records], best=best)


def _latest(records: Sequence[Timed]) -> Timed:
    return max(reversed(records), key=lambda record: record.timestamp)


def _fastest(records: Sequence[Timed]) -> Timed:
    return min(records, key=lambda record: record.latency_ms)


def _unlike(before: Timed, now: Timed) -> str:
    """Why two times can't be compared; nothing where they can."""
    if before.hardware != now.hardware:
        return f"measured on {before.hardware or 'unknown hardware'}, now on {now.hardware}"
    if not before.method:
        return "the record does not say how it was timed"
    if before.method != now.method:
        return f"timed by {before.method}, now by {now.method}"
    return ""


def _compared(before: Timed, now: Timed) -> Comparison:
    """The ratio's interval: both widths and what processes add, combined as independent errors.

    And all that the reference differs by, which is the same code: the machine isn't what it was.
    """
    widths = (before.half_width, now.half_width)
    known = [width for width in widths if width is not None]
    ratio, sure = now.latency_ms / before.latency_ms, len(known) == len(widths)
    drift = _drift(before, now)
    width = hypot(*known, PROCESSES) + drift
    reason = "the reference takes another time, too" if drift > NOTEWORTHY else ""
    return Comparison(
        now_ms=now.latency_ms,
        before_ms=before.latency_ms,
        low=ratio * exp(-width) if sure else None,
        high=ratio * exp(width) if sure else None,
        reason=reason if sure else "without a confidence interval, a difference can't be decided",
        solution=before.solution,
        timestamp=before.timestamp,
        method=before.method,
    )


def _drift(before: Timed, now: Timed) -> float:
    """What the reference's times differ by, as a logarithm."""
    if before.reference_ms is None or now.reference_ms is None:
        return 0.0
    return abs(log(now.reference_ms / before.reference_ms))


def read_times(path: Path) -> list[Timed]:
    """The times in a file of traces, or in those of a directory: of its ``traces``, or below it.

    Raises DataError where a file isn't one of traces, and OSError where it can't be read.
    """
    from pytest_fib.data import read_traces

    found = path / "traces" if (path / "traces").is_dir() else path
    files = sorted(found.rglob("*.jsonl")) if found.is_dir() else [path]
    records = (timed(trace) for file in files for trace in read_traces(file))
    return [record for record in records if record is not None]


# --- what is shown ------------------------------------------------------------------------------


def shown_change(change: float | None) -> str:
    """``+4.4 %``; from ten times on, ``x12.3``."""
    if change is None:
        return "-"
    return f"{100 * change:+.1f} %" if change < 9 else f"x{1 + change:.1f}"


def shown_uncertainty(found: Comparison) -> str:
    """How far the change may be off, either way, in percent: ``±1.2``."""
    if found.low is None or found.high is None:
        return "?"
    return f"±{min(50 * (found.high - found.low), 999):.3g}"


def tally(comparisons: Iterable[Comparison], name: str) -> list[str]:
    """``8 times compared with base.jsonl: 1 slower, 7 same``, and why others were not compared."""
    known = list(comparisons)
    made = [comparison for comparison in known if comparison.before_ms is not None]
    verdicts = Counter(comparison.verdict for comparison in made)
    counts = [f"{n} {verdict}" for verdict, n in sorted(verdicts.items())]
    said = f": {', '.join(counts)}" if made else ""
    lines = [f"{_times(len(made)) if made else 'no time'} compared with {name}{said}"]
    undecided = [c for c in known if c.reason and c.verdict == "unclear"]
    reasons = Counter((c.before_ms is None, c.reason) for c in undecided)
    for (apart, reason), n in sorted(reasons.items()):
        lines.append(f"{n} {'not compared' if apart else 'unclear'}: {reason}")
    return lines


def _times(n: int) -> str:
    return "1 time" if n == 1 else f"{n} times"


def plain(comparison: Comparison) -> dict[str, Any]:
    """A comparison as builtin types; ``Comparison(**plain)`` is the same."""
    return asdict(comparison)
