"""Times two sides in turn until the confidence intervals are narrow. Runs in the judge.

A *group* is some calls on tensors at one placement in memory; a *block* is one timed run of a
group; a *round* times a block of each group of one side.
"""

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
#: How long measuring may take where the intervals stay wider, in nanoseconds of the device's time.
BUDGETS = {"cpu": 300e6, "cuda": 50e6}
#: How long a block should take, in nanoseconds: long against the events around it, 2 µs on CUDA.
BLOCK_NS = {"cpu": 2e6, "cuda": 100e3}
#: Most calls in a block: more would not be more exact, and on CUDA each needs its own tensors.
MOST_CALLS = {"cpu": 1 << 20, "cuda": 64}
#: Where the sides' times differ by less than this factor, their blocks have as many calls.
ALIKE = 1.5
#: Groups, that is placements in memory: as many as there is time for.
GROUPS, LEAST_GROUPS = 8, 2
#: Rounds in a request, in turn. Of two lengths, so that the judge's clock can tell what a request
#: takes besides its rounds.
TURNS, SHORT_TURNS = (1, 4), (1, 2)
#: How many times its claimed time a request may take before the judge's clock counts instead.
UNSPENT = 8
#: More rounds don't help where no more than this share of the variance between groups is noise.
LITTLE = 0.1
#: Warming up ends when the medians of two successive rounds are this close, or after the most.
WARM, MOST_WARM = 0.01, 8


class TimedSide(Protocol):
    """Calls of one side, the candidate or the reference, that are ready to be timed."""

    def run(self, rounds: int) -> Sequence[float]:
        """Time a block of each group, round after round: nanoseconds of one call in each."""


@dataclass(frozen=True)
class Shape:
    """Calls in a block of one side, and what flushing the cache before it takes, in nanoseconds."""

    calls: int
    flush_ns: float = 0.0


@dataclass(frozen=True)
class Turn:
    """The rounds of one request: nanoseconds by the judge's clock, and by the sandbox's."""

    rounds: int
    wall_ns: float
    claimed_ns: float


@dataclass(frozen=True)
class Measured:
    """Samples of both sides, (rounds, groups), in nanoseconds per call; latencies and speed-up.

    ``turns`` are the requests to the candidate, ``reference_turns`` those to the reference.
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
        estimates = {
            "latency": latency_of(self.candidate),
            "reference_latency": latency_of(self.reference),
            "speedup": speedup_of(self.candidate, self.reference),
            "floor": noise_floor(self.candidate, self.reference, device=self.device),
        }
        for name, value in estimates.items():
            object.__setattr__(self, name, value)

    @property
    def noisy(self) -> bool:
        """Whether an interval is wider than the precision that was asked for."""
        widest = max(self.latency.half_width, self.speedup.half_width)
        return widest > self.precision

    @property
    def compared(self) -> Compared:
        """FASTER, SLOWER, SAME or UNCLEAR: the candidate against the reference."""
        return compared(self.speedup, self.floor)


def calls_per_block(
    durations_ns: Sequence[float], device: str, most: int | None = None
) -> list[int]:
    """How many calls a block of each side has, from rough durations of one call.

    Powers of two, so that two measurements of the same kernel rarely differ in it.
    """
    if max(durations_ns) < ALIKE * min(durations_ns):
        durations_ns = [min(durations_ns)] * len(durations_ns)
    limit = MOST_CALLS[device] if most is None else min(most, MOST_CALLS[device])
    return [min(_calls(duration, device), limit) for duration in durations_ns]


def _calls(duration_ns: float, device: str) -> int:
    return 1 << round(log2(max(BLOCK_NS[device] / max(duration_ns, 1.0), 1.0)))


def placements(blocks_ns: Sequence[float], device: str, most: int) -> int:
    """How many groups there is time for, given how long a block of each side takes."""
    affordable = BUDGETS[device] / (sum(TURNS) * sum(blocks_ns))
    return max(LEAST_GROUPS, min(GROUPS, most, int(affordable)))


def measure(
    sides: tuple[TimedSide, TimedSide],
    shapes: tuple[Shape, Shape],
    *,
    device: str,
    precision: str = "default",
    steady: Callable[[], bool] = lambda: True,
    seed: int | None = None,
) -> Measured:
    """Time two sides, the candidate and the reference, until the intervals are narrow.

    The sides take turns in random order. ``steady`` says whether the device's clock is steady:
    warming up goes on until it is and two rounds agree.
    """
    rounds, budget = _Rounds(sides, shapes, Random(seed)), BUDGETS[device]
    rounds.warm_up(steady, budget / 4)
    turns = TURNS if rounds.longest_ns * sum(TURNS) <= budget else SHORT_TURNS
    while True:
        for number in turns:
            rounds.run(number)
        after_another = rounds.spent_ns + sum(turns) * rounds.longest_ns
        if after_another > budget or rounds.settled(PRECISIONS[precision]):
            return rounds.measured(device, PRECISIONS[precision])


def turn(side: TimedSide, shape: Shape, rounds: int) -> tuple[Samples, Turn]:
    """Time rounds of a side: samples of shape (rounds, groups), and how long they took."""
    start = perf_counter_ns()
    samples = np.array(side.run(rounds)).reshape(rounds, -1)
    wall = perf_counter_ns() - start
    return samples, Turn(rounds, wall, float(samples.sum()) * shape.calls)


class _Rounds:
    def __init__(
        self, sides: tuple[TimedSide, TimedSide], shapes: tuple[Shape, Shape], source: Random
    ) -> None:
        self._sides = sides
        self._shapes = shapes
        self._random = source
        self._rounds: tuple[list[Samples], list[Samples]] = ([], [])
        self._turns: tuple[list[Turn], list[Turn]] = ([], [])
        self.spent_ns = 0.0
        self.longest_ns = 0.0

    def warm_up(self, steady: Callable[[], bool], budget_ns: float) -> None:
        """Run rounds that are dropped."""
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
        """Time ``number`` rounds of each side."""
        spent = 0.0
        for side in self._random.sample((0, 1), 2):
            samples, taken = turn(self._sides[side], self._shapes[side], number)
            claimed = taken.claimed_ns + samples.size * self._shapes[side].flush_ns
            # Else a side that claims to take no time would be timed for ever.
            spent += max(claimed, taken.wall_ns / UNSPENT)
            self._rounds[side].append(samples)
            self._turns[side].append(taken)
        self.spent_ns += spent
        self.longest_ns = max(self.longest_ns, spent / number)

    def _samples(self) -> tuple[Samples, Samples]:
        candidate, reference = (np.concatenate(rounds) for rounds in self._rounds)
        return candidate, reference

    def settled(self, precision: float) -> bool:
        """Whether the intervals are narrow enough, or more rounds would not narrow them.

        The differences between placements stay, however well the time of each is known.
        """
        candidate, reference = self._samples()
        latency = latency_of(candidate, FEWER_RESAMPLES)
        speedup = speedup_of(candidate, reference, FEWER_RESAMPLES)
        return all(
            estimate.half_width <= precision or estimate.noise_share <= LITTLE
            for estimate in (latency, speedup)
        )

    def measured(self, device: str, precision: float) -> Measured:
        """The result of all rounds."""
        samples = self._samples()
        return Measured(device, *samples, precision, self.spent_ns, *map(tuple, self._turns))
