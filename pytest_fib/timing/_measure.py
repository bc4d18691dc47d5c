"""How many blocks to run, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: A CPU block lasts at least this long, so that reading the clock is under a thousandth of it.
BLOCK_NS = 500_000
CUDA_CALLS = 20


@dataclass(frozen=True)
class Timing:
    """Durations of one call in nanoseconds, and how they were taken."""

    samples_ns: tuple[float, ...]
    method: str

    @property
    def median_ms(self) -> float:
        """The median duration of one call, in milliseconds."""
        return median(self.samples_ns) / 1e6


def measure(
    block: Callable[[int], tuple[float, ...]], device: str, budget_ns: float = 3e8, most: int = 30
) -> Timing:
    """Run blocks until there are ``most`` of them or they took ``budget_ns``.

    ``block(calls)`` times that many calls. The first block warms up and is not counted.
    """
    warm = block(1)[0]
    calls = CUDA_CALLS if device != "cpu" else _calls_per_block(block, warm)
    samples: list[float] = []
    spent = 0.0
    for _ in range(most):
        durations = block(calls)
        samples += durations
        spent += sum(durations) * (calls / len(durations))
        if spent > budget_ns:
            break
    return Timing(
        tuple(samples), "cpu perf_counter, warm" if device == "cpu" else "events, cold L2"
    )


def _calls_per_block(block: Callable[[int], tuple[float, ...]], duration: float) -> int:
    calls = 1
    while duration * calls < BLOCK_NS:
        calls = min(calls * 10, int(BLOCK_NS / duration) + 1)
        duration = block(calls)[0]
    return calls
