"""How many blocks to run, of what size, and what they say. Runs in the judge."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log2
from random import Random
from time import perf_counter_ns
from typing import TYPE_CHECKING, Protocol

import numpy as np

from pytest_fib.timing._statistics import (
    FEWER_RESAMPLES,
    Compared,
    Estimate,
    Samples,
    compared,
    latency_of,
    noise_floor,
    speedup_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Relative half widths of the confidence intervals at which measuring stops.
PRECISIONS = {"quick": 0.02, "default": 0.005, "strict": 0.0025}
#: Where the intervals stay wider, this much time of the device ends it, in nanoseconds.
BUDGETS = {"cpu": 300e6, "cuda": 50e6}
#: How long a block should be: long against what the events around it take, 2 µs on CUDA.
BLOCK_NS = {"cpu": 2e6, "cuda": 100e3}
#: Calls of one block: more would not be more exact, and each needs tensors of its own on CUDA.
MOST_CALLS = {"cpu": 1 << 20, "cuda": 64}
#: Sides whose times differ by less take the same number of calls, to be treated exactly alike.
ALIKE = 1.5
#: Placements in memory.
GROUPS, LEAST_GROUPS = 8, 2
#: Rounds of a request, by turns: the judge's clock takes what both have in common from the longer.
TURNS, SHORT_TURNS = (1, 4), (1, 2)
#: By how much the judge's clock may exceed what rounds claim before it counts towards the budget.
UNSPENT = 8
#: Rounds end when no more than that of the variance between placements is theirs.
LITTLE = 0.1
#: Warming up ends when the medians of two rounds in a row are this close, or after the most.
WARM, MOST_WARM = 0.01, 8


class Arm(Protocol):
    """One side's prepared calls."""

    def run(self, rounds: int) -> Sequence[float]:
        """Time a block of each group, round after round: nanoseconds of one call in each."""


@dataclass(frozen=True)
class Shape:
    """How one side is timed: calls in a block, and what a block takes besides, in nanoseconds."""

    calls: int
    flush_ns: float = 0.0


@dataclass(frozen=True)
class Turn:
    """Rounds of one request: how long by the judge's clock, and by their own, in nanoseconds."""

    rounds: int
    wall_ns: float
    claimed_ns: float


@dataclass(frozen=True)
class Measured:
    """Both sides' samples, (rounds, groups), in nanoseconds per call; and what they amount to.

    ``turns`` are the candidate's requests, ``reference_turns`` the others.
    """

    device: str
    candidate: Samples
    reference: Samples
    precision: float
    spent_ns: float
    turns: tuple[Turn, ...]
    reference_turns: tuple[Turn, ...]
    latency: Estimate = field(init=False)
    reference_latency: Estimate = field(init=False)
    speedup: Estimate = field(init=False)
    floor: float = field(init=False)

    def __post_init__(self) -> None:
        found = {
            "latency": latency_of(self.candidate),
            "reference_latency": latency_of(self.reference),
            "speedup": speedup_of(self.candidate, self.reference),
            "floor": noise_floor(self.candidate, self.reference, device=self.device),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def noisy(self) -> bool:
        """Whether the intervals are wider than was asked for."""
        widest = max(self.latency.half_width, self.speedup.half_width)
        return widest > self.precision

    @property
    def compared(self) -> Compared:
        """FASTER, SLOWER, SAME or UNCLEAR: the candidate against the reference."""
        return compared(self.speedup, self.floor)


def calls_per_block(
    durations_ns: Sequence[float], device: str, most: int | None = None
) -> list[int]:
    """How many calls make a block of each side, from rough durations of one call.

    Powers of two, so that two measurements of the same kernel rarely differ in it.
    """
    if max(durations_ns) < ALIKE * min(durations_ns):
        durations_ns = [min(durations_ns)] * len(durations_ns)
    limit = MOST_CALLS[device] if most is None else min(most, MOST_CALLS[device])
    return [min(_calls(duration, device), limit) for duration in durations_ns]


def _calls(duration_ns: float, device: str) -> int:
    return 1 << round(log2(max(BLOCK_NS[device] / max(duration_ns, 1.0), 1.0)))


def placements(blocks_ns: Sequence[float], device: str, most: int) -> int:
    """How many groups there is time for, given how long a block of each side is."""
    affordable = BUDGETS[device] / (sum(TURNS) * sum(blocks_ns))
    return max(LEAST_GROUPS, min(GROUPS, most, int(affordable)))


def measure(
    arms: tuple[Arm, Arm],
    shapes: tuple[Shape, Shape],
    *,
    device: str,
    precision: str = "default",
    steady: Callable[[], bool] = lambda: True,
    seed: int | None = None,
) -> Measured:
    """Time two arms, the candidate's first, in turn until the confidence intervals are narrow.

    Each round times every group of both arms once, the arms in random order. ``steady``
    says whether the device's clock is: warming up goes on until it is and two rounds agree.
    """
    rounds, budget = _Rounds(device, arms, shapes, Random(seed)), BUDGETS[device]
    rounds.warm_up(steady, budget / 4)
    turns = TURNS if rounds.longest_ns * sum(TURNS) <= budget else SHORT_TURNS
    while True:
        for number in turns:
            rounds.run(number)
        after_another = rounds.spent_ns + sum(turns) * rounds.longest_ns
        if after_another > budget or rounds.settled(PRECISIONS[precision]):
            return rounds.measured(PRECISIONS[precision])


def turn(arm: Arm, shape: Shape, rounds: int) -> tuple[Samples, Turn]:
    """Ask an arm for so many rounds: samples of shape (rounds, groups), and what they took."""
    start = perf_counter_ns()
    samples = np.array(arm.run(rounds)).reshape(rounds, -1)
    wall = perf_counter_ns() - start
    return samples, Turn(rounds, wall, float(samples.sum()) * shape.calls)


class _Rounds:
    def __init__(
        self, device: str, arms: tuple[Arm, Arm], shapes: tuple[Shape, Shape], source: Random
    ) -> None:
        self._device = device
        self._arms = arms
        self._shapes = shapes
        self._random = source
        self._rounds: tuple[list[Samples], list[Samples]] = ([], [])
        self._turns: tuple[list[Turn], list[Turn]] = ([], [])
        self.spent_ns = 0.0
        self.longest_ns = 0.0

    def warm_up(self, steady: Callable[[], bool], budget_ns: float) -> None:
        """Run rounds that don't count."""
        before = [0.0, 0.0]
        for _ in range(MOST_WARM):
            self.run(1)
            now = [float(np.median(rounds[-1])) for rounds in self._rounds]
            changes = [abs(a - b) / b for a, b in zip(before, now, strict=True)]
            if self.spent_ns > budget_ns or (max(changes) < WARM and steady()):
                break
            before = now
        self._rounds, self._turns = ([], []), ([], [])

    def run(self, number: int) -> None:
        """So many rounds of each arm."""
        spent = 0.0
        for arm in self._random.sample((0, 1), 2):
            samples, taken = turn(self._arms[arm], self._shapes[arm], number)
            claimed = taken.claimed_ns + samples.size * self._shapes[arm].flush_ns
            # Whoever claims that no time passes would have us go on for ever.
            spent += max(claimed, taken.wall_ns / UNSPENT)
            self._rounds[arm].append(samples)
            self._turns[arm].append(taken)
        self.spent_ns += spent
        self.longest_ns = max(self.longest_ns, spent / number)

    def _samples(self) -> tuple[Samples, Samples]:
        candidate, reference = (np.concatenate(rounds) for rounds in self._rounds)
        return candidate, reference

    def settled(self, precision: float) -> bool:
        """Whether the intervals look narrow enough, or more rounds would not make them so.

        What placements differ by stays, however well each one's time is known.
        """
        candidate, reference = self._samples()
        latency = latency_of(candidate, FEWER_RESAMPLES)
        speedup = speedup_of(candidate, reference, FEWER_RESAMPLES)
        return all(
            estimate.half_width <= precision or estimate.noise_share <= LITTLE
            for estimate in (latency, speedup)
        )

    def measured(self, precision: float) -> Measured:
        """What the rounds say."""
        sides = self._samples()
        return Measured(self._device, *sides, precision, self.spent_ns, *map(tuple, self._turns))
