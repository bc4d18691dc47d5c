"""Records what the device does and when, with CUPTI, which is an optional dependency."""

from __future__ import annotations

import importlib.util
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

_synchronize = torch.cuda.synchronize
_BUFFER = 8 << 20
#: Flush what is not complete as well.
_FORCED = 1


@dataclass(frozen=True)
class Activity:
    """A kernel by its name, or a copy or memset, which have none. Times are in nanoseconds."""

    name: str
    start: int
    end: int


@cache
def available() -> bool:
    """Whether cupti-python is installed, and its library is there."""
    if importlib.util.find_spec("cupti") is None:
        return False
    try:
        _recorder()
    except (ImportError, RuntimeError):
        return False
    return True


@contextmanager
def recording() -> Iterator[list[Activity]]:
    """Record the device's activities; the list is complete afterwards."""
    recorder = _recorder()
    _synchronize()
    recorder.enable()
    try:
        yield recorder.records
        _synchronize()
    finally:
        recorder.disable()


class _Recorder:
    def __init__(self) -> None:
        from cupti import cupti

        self._cupti = cupti
        kinds = cupti.ActivityKind
        self._kinds = (kinds.CONCURRENT_KERNEL, kinds.MEMCPY, kinds.MEMSET)
        self.records: list[Activity] = []
        cupti.activity_register_callbacks(_requested, self._completed)

    def _completed(self, activities: Sequence[Any]) -> None:
        for activity in activities:
            name = getattr(activity, "name", None) or ""
            self.records.append(Activity(name, activity.start, activity.end))

    def enable(self) -> None:
        self._cupti.activity_flush_all(_FORCED)
        self.records = []
        for kind in self._kinds:
            self._cupti.activity_enable(kind)

    def disable(self) -> None:
        self._cupti.activity_flush_all(_FORCED)
        for kind in self._kinds:
            self._cupti.activity_disable(kind)


def _requested() -> tuple[int, int]:
    return _BUFFER, 0


@cache
def _recorder() -> _Recorder:
    return _Recorder()


def busy_ns(records: Sequence[Activity]) -> float:
    """The time in which at least one activity ran, in nanoseconds."""
    busy, until = 0, 0
    for record in sorted(records, key=lambda r: r.start):
        start = max(record.start, until)
        busy += max(record.end - start, 0)
        until = max(until, record.end)
    return float(busy)


def missing(plain: Sequence[Activity], captured: Sequence[Activity]) -> str:
    """The activities that a captured run lacks, in words; empty if none.

    In a graph, copies and memsets may be kernels of the driver, so only their number counts.
    """
    lacking = Counter(r.name for r in plain if r.name) - Counter(r.name for r in captured)
    if lacking:
        return ", ".join(f"{count} of {name[:60]}" for name, count in lacking.most_common(2))
    fewer = len(plain) - len(captured)
    return f"{fewer} of {len(plain)} kernels, copies and memsets" if fewer > 0 else ""
