"""On which cores processes run: while something is timed on a device, and otherwise.

The judge and both sandboxes take turns on one core while they time: to wake a process up on another
took 0.01 to 0.25 ms, at random. Where there are cores enough, no process of ours does anything
else on that core: what eight workers do besides made one side wait for milliseconds.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.sandbox._sandbox import Sandbox

#: Of so many cores, one is kept for timing, at most.
CORES_FOR_ONE = 4


class TimingCore:
    """The core on which a device is timed; until ``close``, this process keeps off it otherwise.

    So do processes that it starts from then on. Each device has a core of its own; ``number`` is
    that of this one, of ``devices`` on the machine. Where cores are few, none is kept: the one that
    this process happens to be on is taken.
    """

    def __init__(self, number: int, devices: int) -> None:
        self._before = os.sched_getaffinity(0)
        ordered = sorted(self._before)
        reserved = min(devices, len(ordered) // CORES_FOR_ONE)
        self._core = ordered[len(ordered) - reserved + number % reserved] if reserved else None
        #: What this process is on otherwise.
        self.others = set(ordered[: len(ordered) - reserved])
        if reserved:
            os.sched_setaffinity(0, self.others)

    @contextmanager
    def shared_by(self, *sandboxes: Sandbox) -> Iterator[None]:
        """Have this thread and the main threads of sandboxes take turns on the core."""
        before = os.sched_getaffinity(0)
        core = ctypes.CDLL(None).sched_getcpu() if self._core is None else self._core
        try:
            _pin({core}, sandboxes)
            yield
        finally:
            _pin(before, sandboxes)

    def close(self) -> None:
        """Let this process use all its cores again."""
        with suppress(OSError):  # the machine may have taken some away
            os.sched_setaffinity(0, self._before)


def _pin(cores: set[int], sandboxes: Sequence[Sandbox]) -> None:
    os.sched_setaffinity(0, cores)
    for sandbox in sandboxes:
        sandbox.pin(cores)
