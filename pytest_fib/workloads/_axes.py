"""Domains of the var axes: which values a workload may take."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Definition

#: The largest value of an axis that the definition leaves open. Memory is up before, mostly.
OPEN_MAXIMUM = 1 << 27


@dataclass(frozen=True)
class Domain:
    """``values`` in ascending order, or else the multiples of ``step`` from ``low`` to ``high``."""

    low: int = 1
    high: int = OPEN_MAXIMUM
    step: int = 1
    values: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.values is not None:
            low, high = (self.values[0], self.values[-1]) if self.values else (1, 0)
            object.__setattr__(self, "low", low)
            object.__setattr__(self, "high", high)

    def __len__(self) -> int:
        if self.values is not None:
            return len(self.values)
        return max(0, (self.high - self.low) // self.step + 1)

    def __str__(self) -> str:
        if self.values is not None:
            return f"one of {', '.join(map(str, self.values))}"
        steps = f" in multiples of {self.step}" if self.step > 1 else ""
        return f"{self.low} to {self.high}{steps}"

    def __getitem__(self, index: int) -> int:
        """The index-th value, in ascending order."""
        return self.values[index] if self.values is not None else self.low + index * self.step

    def narrowed(self, low: float, high: float, step: int = 1) -> Domain:
        """The part of this between two more bounds, in multiples of ``step``; may be empty.

        The bounds are whole numbers or infinite.
        """
        if low <= self.low and self.high <= high and self.step % step == 0:
            return self
        if self.values is not None:
            left = (v for v in self.values if low <= v <= high and v % step == 0)
            return Domain(values=tuple(left))
        both = lcm(self.step, step)
        least, most = max(self.low, low), min(self.high, high)
        if least > most:
            return Domain(values=())
        return Domain(-(-int(least) // both) * both, int(most), both)

    def around(self, n: int) -> Iterator[int]:
        """All values: the nearest to ``n``, then alternately the next one below and above."""
        start = self.index_below(n)
        yield self[start]
        for distance in range(1, len(self)):
            for index in (start - distance, start + distance):
                if 0 <= index < len(self):
                    yield self[index]

    def __contains__(self, n: int) -> bool:
        if self.values is not None:
            return n in self.values
        return self.low <= n <= self.high and (n - self.low) % self.step == 0

    def nearest(self, n: int) -> int:
        """The largest value up to ``n``, or the smallest of all."""
        return self[self.index_below(n)]

    def index_below(self, n: int) -> int:
        """The index of the largest value up to ``n``, or of the smallest there is."""
        if self.values is not None:
            return max(bisect_right(self.values, n) - 1, 0)
        return (min(max(n, self.low), self.high) - self.low) // self.step


def is_open(definition: Definition, axis: str) -> bool:
    """Whether an axis has no upper limit."""
    listed = definition.workloads.axes.get(axis) if definition.workloads else None
    return listed is None or (listed.max is None and not listed.values)


def listed_domain(definition: Definition, axis: str) -> Domain:
    """The domain of a var axis by the definition's ``workloads.axes``."""
    listed = definition.workloads.axes.get(axis) if definition.workloads else None
    if listed is None:
        return Domain()
    if listed.values:
        return Domain(values=tuple(sorted(listed.values)))
    step = listed.multiple_of
    low = -(-listed.min // step) * step
    high = OPEN_MAXIMUM if listed.max is None else listed.max
    return Domain(low, max(high, low), step)
