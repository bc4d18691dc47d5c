"""Domains of the var axes: which values a workload may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fib.workloads._budget import workload_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_fib.data import Definition

#: The largest value of an axis that the definition leaves open.
OPEN_MAXIMUM = 65536


@dataclass(frozen=True)
class Domain:
    """``values``, or else the multiples of ``step`` from ``low`` to ``high``."""

    low: int = 1
    high: int = OPEN_MAXIMUM
    step: int = 1
    values: tuple[int, ...] = ()

    def __len__(self) -> int:
        return len(self.values) or (self.high - self.low) // self.step + 1

    def __getitem__(self, index: int) -> int:
        """The index-th value, in ascending order."""
        return self.values[index] if self.values else self.low + index * self.step

    def __contains__(self, n: int) -> bool:
        if self.values:
            return n in self.values
        return self.low <= n <= self.high and (n - self.low) % self.step == 0

    def nearest(self, n: int) -> int:
        """The largest value up to ``n``, or the smallest there is."""
        if self.values:
            return max((v for v in self.values if v <= n), default=self.values[0])
        clipped = min(max(n, self.low), self.high)
        return clipped - (clipped - self.low) % self.step


def domain(definition: Definition, axis: str) -> Domain:
    """The domain of a var axis, from the definition's ``workloads.axes``."""
    listed = definition.workloads.axes.get(axis) if definition.workloads else None
    if listed is None:
        return Domain()
    step = listed.multiple_of
    low = -(-listed.min // step) * step
    high = OPEN_MAXIMUM if listed.max is None else listed.max
    return Domain(low, max(high, low), step, tuple(sorted(listed.values or ())))


def smallest_axes(definition: Definition) -> dict[str, int]:
    """The least value of every var axis."""
    return {axis: domain(definition, axis)[0] for axis in definition.var_axes}


def in_domain(definition: Definition, axes: Mapping[str, int]) -> bool:
    """Whether these are values of the definition's var axes that a workload may take."""
    return set(axes) == set(definition.var_axes) and all(
        n in domain(definition, axis) for axis, n in axes.items()
    )


def fits(definition: Definition, axes: Mapping[str, int], max_bytes: int) -> bool:
    """Whether a workload of these axes stays within the memory budget."""
    return workload_bytes(definition, axes) <= max_bytes


def affordable(definition: Definition, axis: str, others: Mapping[str, int], max_bytes: int) -> int:
    """How many of the axis' values, counted from its smallest, fit beside the other axes.

    Bytes grow with every axis, so a bisection finds it. At least one: a definition whose smallest
    workload is over the budget is refused elsewhere.
    """
    values = domain(definition, axis)
    low, high = 1, len(values)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(definition, {**others, axis: values[middle - 1]}, max_bytes):
            low = middle
        else:
            high = middle - 1
    return low
