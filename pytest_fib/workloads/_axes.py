"""Domains of the var axes: which values a workload may take."""

from __future__ import annotations

from dataclasses import dataclass
from math import lcm
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Definition

#: The largest value of an axis that the definition leaves open.
OPEN_MAXIMUM = 65536


@dataclass(frozen=True)
class Domain:
    """``values``, or else the multiples of ``step`` from ``low`` to ``high``."""

    low: int = 1
    high: int = OPEN_MAXIMUM
    step: int = 1
    values: tuple[int, ...] | None = None

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

    def narrowed(self, low: int, high: int, step: int) -> Domain:
        """What is left of this between two more bounds, in multiples of ``step``; maybe nothing."""
        if self.values is not None:
            return Domain(
                values=tuple(v for v in self.values if low <= v <= high and v % step == 0)
            )
        both = lcm(self.step, step)
        return Domain(-(-max(self.low, low) // both) * both, min(self.high, high), both)

    def __contains__(self, n: int) -> bool:
        if self.values is not None:
            return n in self.values
        return self.low <= n <= self.high and (n - self.low) % self.step == 0

    def nearest(self, n: int) -> int:
        """The largest value up to ``n``, or the smallest there is."""
        if self.values is not None:
            return max((v for v in self.values if v <= n), default=self.values[0])
        clipped = min(max(n, self.low), self.high)
        return clipped - (clipped - self.low) % self.step


def listed_domain(definition: Definition, axis: str) -> Domain:
    """The domain of a var axis as the definition's ``workloads.axes`` gives it."""
    listed = definition.workloads.axes.get(axis) if definition.workloads else None
    if listed is None:
        return Domain()
    if listed.values:
        return Domain(values=tuple(sorted(listed.values)))
    step = listed.multiple_of
    low = -(-listed.min // step) * step
    high = OPEN_MAXIMUM if listed.max is None else listed.max
    return Domain(low, max(high, low), step)
