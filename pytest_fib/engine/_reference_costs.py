"""Learns what a definition's reference costs by size, so that no too large size is drawn."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations_with_replacement
from math import exp, hypot, inf, log
from statistics import fmean

import torch

from pytest_fib.data import (
    OUT_OF_MEMORY,
    Definition,
    DefinitionFault,
    EvaluationStatus,
    Outcome,
    Workload,
)
from pytest_fib.sandbox import memory_to_take
from pytest_fib.workloads import plan, workload_bytes

#: The share of an evaluation's time that a reference may take on a drawn workload. If it takes more
#: than that, or more of the memory, an implementation may need all of it without being at fault.
DRAWN_SHARE, LATE_SHARE = 0.1, 0.25
#: The reference's own memory, as a multiple of a workload's budget.
MEMORY_FACTOR = 8
#: What an implementation's own memory may be, as a multiple of a workload's: an axis of size 1 that
#: is padded to a tile of 64, in a few tensors.
PADDED = 256
#: Costs above the least by fewer seconds and bytes say nothing.
NOTICEABLE_SECONDS, NOTICEABLE_BYTES = 0.5, 16 << 20
#: The least number of costs for a fit: a single slow call may have waited for other work.
LEAST_KNOWN = 3
#: How many calls are remembered until a search asks: more than there are between two questions.
NOTED_CALLS = 4096


@dataclass
class ReferenceCosts:
    """Seconds and bytes of a reference's calls, for all implementations.

    ``calls`` are noted by who makes them: the workload's axes, the seconds, and the bytes or None
    if these are not known. What follows from them is computed when a search asks.
    """

    definition: Definition
    calls: deque[tuple[Mapping[str, int], float, int | None]] = field(
        default_factory=partial(deque, maxlen=NOTED_CALLS)
    )

    @cached_property
    def _seconds(self) -> Costs:
        return Costs(self.definition, NOTICEABLE_SECONDS)

    @cached_property
    def _bytes(self) -> Costs:
        return Costs(self.definition, NOTICEABLE_BYTES)

    def _learn(self) -> None:
        while self.calls:
            axes, seconds, peak_bytes = self.calls.popleft()
            self._seconds.add(axes, seconds)
            if peak_bytes is not None:
                self._bytes.add(axes, peak_bytes)

    def are_affordable(self, workload: Workload, timeout: float, max_bytes: int) -> bool:
        """Whether the reference is expected to be well within the limits of an evaluation."""
        self._learn()
        seconds = self._seconds.expected(workload.axes)
        size = self._bytes.expected(workload.axes)
        return seconds <= DRAWN_SHARE * timeout and size <= MEMORY_FACTOR * max_bytes

    def explain(
        self, workload: Workload, outcome: Outcome, timeout: float, max_bytes: int, memory: int
    ) -> bool:
        """Whether a workload failed only because it is too large.

        ``memory`` is what an implementation may take on this machine, in bytes.
        """
        self._learn()
        if isinstance(outcome, DefinitionFault):
            return outcome.exhausted
        if outcome.status is EvaluationStatus.TIMEOUT:
            return self._seconds.expected(workload.axes) > LATE_SHARE * timeout
        if outcome.diagnosis is None or outcome.diagnosis.pattern != OUT_OF_MEMORY:
            return False
        if PADDED * workload_bytes(self.definition, workload.axes) > memory:
            return True
        most = MEMORY_FACTOR * max_bytes
        return self._bytes.expected(workload.axes) > LATE_SHARE * most


def memory_of(device: str) -> int:
    """What an implementation may take on a device of this machine, in bytes."""
    return memory_to_take() if device == "cpu" else int(torch.cuda.mem_get_info()[1])


class Costs:
    """Costs of one definition's workloads by their axes.

    A workload costs as much as the cheapest, and more in proportion to some quantity: its bytes, an
    axis, the sum of axes, the product of two (scores of queries and keys), or of an axis and its
    bytes. The quantity that fits the costs so far predicts others; costs below ``noticeable`` only
    say that they are. A cost does not shrink as axes grow.
    """

    def __init__(self, definition: Definition, noticeable: float) -> None:
        self._definition = definition
        self._axes = plan(definition).independent
        self._noticeable = noticeable
        self._known: dict[tuple[int, ...], float] = {}
        self._quantities: dict[tuple[int, ...], list[float]] = {}

    def add(self, axes: Mapping[str, int], cost: float) -> None:
        """Note the cost of a workload of these axes, which is at most that of any larger one."""
        sizes = self._sizes(axes)
        for known, before in self._known.items():
            if _is_within(known, sizes):
                self._known[known] = min(cost, before)
        no_smaller = (c for known, c in self._known.items() if _is_within(sizes, known))
        self._known[sizes] = min(cost, *no_smaller, inf)
        self._quantities[sizes] = self._quantities_of(axes)

    @property
    def least(self) -> float:
        """The cost of the cheapest workload, 0 where none is known."""
        return min(self._known.values(), default=0.0)

    def expected(self, axes: Mapping[str, int]) -> float:
        """The expected cost of a workload of these axes, 0 where no cost says anything.

        At least that of any smaller one, and at most that of any larger one.
        """
        sizes, least = self._sizes(axes), self.least
        shares = {known: cost - least for known, cost in self._known.items()}
        clear = {known: share for known, share in shares.items() if share > self._noticeable}
        share = max(_within(sizes, clear), default=0.0)
        if len(clear) >= LEAST_KNOWN:
            best, rate = self._fit(clear)
            share = max(share, exp(rate) * self._quantities_of(axes)[best])
        if not share:
            return 0.0
        larger = (cost for known, cost in self._known.items() if _is_within(sizes, known))
        return min(least + share, *larger, inf)

    def _fit(self, clear: Mapping[tuple[int, ...], float]) -> tuple[int, float]:
        """The quantity that fits the costs best, by its index, and the log of the cost of one.

        It is none by which workloads that cost little would cost much: that of a batch, where all
        that took long was of one sequence, fits best otherwise.
        """
        little = [self._quantities[known] for known in self._known if known not in clear]
        fits = []
        for i, column in enumerate(zip(*map(self._quantities.get, clear), strict=True)):
            rates = [log(cost / of) for cost, of in zip(clear.values(), column, strict=True)]
            rate = fmean(rates)
            beyond = (rate + log(of[i] / self._noticeable) for of in little)
            errors = [*(each - rate for each in rates), *(max(0.0, each) for each in beyond)]
            fits.append((hypot(*errors), i, rate))
        _, best, rate = min(fits)
        return best, rate

    def _sizes(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(axes[axis] for axis in self._axes)

    def _quantities_of(self, axes: Mapping[str, int]) -> list[float]:
        """The quantities that costs may be in proportion to, the likeliest first; none is 0."""
        size, sizes = 1 + workload_bytes(self._definition, axes), self._sizes(axes)
        products = [(1 + n) * (1 + m) for n, m in combinations_with_replacement(sizes, 2)]
        alone = [1 + sum(sizes), *(1 + n for n in sizes)]
        return [size, *alone, *products, *(size * (1 + n) for n in sizes)]


def _within(sizes: tuple[int, ...], costs: Mapping[tuple[int, ...], float]) -> Iterator[float]:
    """The costs of workloads that are no larger."""
    return (cost for known, cost in costs.items() if _is_within(known, sizes))


def _is_within(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether no axis is larger."""
    return all(n <= most for n, most in zip(one, other, strict=True))
