"""Times two sides in turn until the confidence intervals are narrow. Runs in the judge.

A *group* is some calls on tensors at one placement in memory; a *block* is one timed run of a
group; a *round* times a block of each group of one side. Samples of one side are an array of
nanoseconds per call, shape (rounds, groups). Rounds differ by noise over time. Groups differ
because the same kernel takes up to 2 % longer at other addresses, however often it is timed. So a
confidence interval has to cover both.

Rounds of both sides are compared pair by pair. A reference that takes many times as long as the
candidate is timed in a few rounds only: more would take long, and hardly change the speed-up.

What a round takes beside its calls is shown by the reference's rounds. Those of a reference with
many kernels don't show it, since launching these takes long. Then *idle* blocks, whose calls hardly
do anything, take turns as well; beside a slow reference, always.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import exp, hypot, inf, log, log2, sqrt
from random import Random
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pytest_fib.timing._accounting import LOW, Accounting, Claims, Turn, account, shortest_ns

Samples: TypeAlias = NDArray[np.float64]
Turns: TypeAlias = Sequence[Turn]
Comparison: TypeAlias = Literal["FASTER", "SLOWER", "SAME", "UNCLEAR"]

#: Resamples of a bootstrap: for a result, and to see whether there are enough samples.
RESAMPLES, FEWER_RESAMPLES = 400, 60
#: Two-sided 95 % quantiles of Student's t by degrees of freedom, and of the normal distribution.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
NORMAL = 1.960
#: Smaller differences are never reported, as natural logarithms. Clocks vary by that much; on the
#: CPU two processes of the same code do, since their memory lies at other addresses.
LEAST_FLOOR = {"cpu": 0.03, "cuda": 0.005}
#: Relative half widths of the confidence intervals at which measuring stops.
PRECISIONS = {"quick": 0.02, "default": 0.005, "strict": 0.0025}
#: How long measuring may take where the intervals stay wider, in nanoseconds of the device's time.
BUDGETS = {"cpu": 300e6, "cuda": 50e6}
#: How long a block should take, in nanoseconds: long against the events around it, 2 µs on CUDA.
BLOCK_NS = {"cpu": 2e6, "cuda": 100e3}
#: Most calls in a block: more would not be more exact, and each needs its own tensors.
MOST_CALLS = {"cpu": 256, "cuda": 64}
#: Where the sides' times differ by less than this factor, their blocks have as many calls.
ALIKE = 1.5
#: Groups, that is placements in memory: as many as there is time for.
GROUPS, LEAST_GROUPS = 8, 2
#: Rounds until the intervals are looked at, or fewer where the budget has no room for them; and how
#: many more until they are looked at again.
ROUNDS, FEWEST_ROUNDS, MORE_ROUNDS = 5, 3, 3
#: A reference is slow if its calls take so many times as long as the candidate's, and so many
#: nanoseconds. Two rounds are enough if the half width is at most this.
SLOW, SLOW_NS, SLOW_ROUNDS, SLOW_PRECISION = 4.0, 1e6, 2, 0.05
#: How many times its claimed time a request may take before the judge's clock counts instead.
UNSPENT = 2
#: More rounds don't help where no more than this share of the variance between groups is noise.
LITTLE = 0.1
#: How many times the budget may be used until it is known what is left out of the claimed times,
#: while other work keeps both sides waiting.
PATIENCE = {"cpu": 3.0, "cuda": 1.5}
#: A round is shorter than another if by more than this share of its blocks.
SHORTER = 0.01
#: Warming up ends when the medians of two successive rounds are this close, or after the most. Such
#: two count already.
WARM, MOST_WARM = 0.01, 8


class BlockTimer(Protocol):
    """Calls of one side, the candidate or the reference, that are ready to be timed."""

    @property
    def calls_per_block(self) -> int:
        """How many calls a block has."""

    @property
    def flush_ns(self) -> float:
        """What flushing the cache before a block takes."""

    def run(self) -> TimedBlocks:
        """Time a block of each group."""


@dataclass(frozen=True)
class TimedBlocks:
    """A block of each group: nanoseconds of one call in each, and of all blocks together.

    Blocks may take longer than their calls, where these are timed by what the device was busy with.
    ``wall_ns`` is how long it took to get them, by the judge's clock, and ``waited_ns`` how long
    the judge and the sandbox waited for cores meanwhile.
    """

    samples_ns: tuple[float, ...]
    blocks_ns: float
    wall_ns: float = 0.0
    waited_ns: float = 0.0


@dataclass
class Rounds:
    """The rounds of one side: samples of shape (groups,) each, and how long they took."""

    samples: list[Samples] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    def stacked(self) -> Samples:
        """The samples, of shape (rounds, groups)."""
        return np.stack(self.samples)

    def last_ns(self) -> float:
        """The median time of a call in the last round."""
        return float(np.median(self.samples[-1]))

    def drop(self, count: int) -> None:
        """Drop the first rounds."""
        del self.samples[:count], self.turns[:count]


@dataclass(frozen=True, eq=False)
class Timings:
    """Samples of both sides, (rounds, groups), in nanoseconds per call, and what they say.

    ``turns`` are the rounds of the candidate, ``other_turns`` those of the reference in turn with
    them. A slow reference has none: its samples are of a few other rounds, of which the last
    ``shared`` were timed beside another implementation. ``idle`` are samples of idle blocks, if
    these took turns, and ``idle_turns`` their rounds.
    """

    device: str
    candidate: Samples
    reference: Samples
    precision: float
    spent_ns: float
    turns: Sequence[Turn]
    other_turns: Sequence[Turn]
    idle: Samples | None = None
    idle_turns: Turns = ()
    shared: int = 0

    @property
    def paired(self) -> bool:
        """Whether each round of the candidate has one of the reference: that is not slow."""
        return bool(self.other_turns)

    @property
    def usual_turns(self) -> Turns:
        """The rounds that show what one takes beside its calls."""
        return self.idle_turns or self.other_turns

    @cached_property
    def latency(self) -> Estimate:
        """Nanoseconds of a call of the candidate."""
        estimate = self._claimed_latency
        return replace(estimate, high=estimate.high * (1 + self.accounting.unaccounted))

    @cached_property
    def _claimed_latency(self) -> Estimate:
        return latency_of(self.candidate)

    @cached_property
    def _claimed_speedup(self) -> Estimate:
        return speedup_of(self.candidate, self.reference, paired=self.paired)

    @cached_property
    def reference_latency(self) -> Estimate:
        """Nanoseconds of a call of the reference."""
        return latency_of(self.reference)

    @property
    def undisturbed_reference_ns(self) -> float:
        """Nanoseconds of a call of the reference in blocks that other work hardly made longer.

        The mean over placements of the lower quartile of each one's blocks.
        """
        return float(np.exp(np.quantile(np.log(self.reference), LOW, axis=0).mean()))

    @cached_property
    def speedup(self) -> Estimate:
        """The reference's time over the candidate's."""
        estimate = self._claimed_speedup
        return replace(estimate, low=estimate.low / (1 + self.accounting.unaccounted))

    @cached_property
    def floor(self) -> float:
        """The noise floor of both."""
        return noise_floor(self.candidate, self.reference, device=self.device)

    @cached_property
    def accounting(self) -> Accounting:
        """The candidate's times, as the latencies have them, by the judge's clock."""
        side = self.candidate, self.turns
        if self.paired:
            return _accounting(side, (self.reference, self.other_turns), self.idle_turns)
        assert self.idle is not None, "idle blocks take the turns of a slow reference"
        return _accounting(side, (self.idle, self.idle_turns))

    @cached_property
    def round_ns(self) -> float:
        """The time of a candidate's round by the judge's clock, from the shortest rounds."""
        return shortest_ns([turn.wall_ns for turn in self.turns])

    @property
    def noisy(self) -> bool:
        """Whether an interval is wider than the precision that was asked for, by noise.

        A speed-up over a slow reference need not be known as precisely.
        """
        most = self.precision if self.paired else self.precision + SLOW_PRECISION
        is_wide = self._claimed_latency.half_width > self.precision
        return is_wide or self._claimed_speedup.half_width > most

    @property
    def comparison(self) -> Comparison:
        """The candidate against the reference."""
        return compare(self.speedup, self.floor)


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
    affordable = BUDGETS[device] / (ROUNDS * sum(blocks_ns))
    return max(LEAST_GROUPS, min(GROUPS, most, int(affordable)))


def is_slow(candidate_ns: float, reference_ns: float, device: str) -> bool:
    """Whether the reference takes long, and many times as long as the candidate.

    By rough durations of one call. Not on the CPU, where other work delays rounds: only rounds of
    the same moments tell how much.
    """
    return device != "cpu" and reference_ns > max(SLOW_NS, SLOW * candidate_ns)


def random_place(size: int, most: int, source: Random) -> int:
    """A random start for ``size`` of the ``most`` calls of a block.

    Each call is about as likely to be among them. For that, starts beyond an end are drawn as well,
    and moved to that end: otherwise the outermost calls would seldom be chosen.
    """
    room = most - size
    beyond = min(room, size - 1)
    return min(max(source.randint(-beyond, room + beyond), 0), room)


def time_both_sides(
    candidate: BlockTimer,
    reference: BlockTimer,
    *,
    device: str,
    precision: str = "default",
    steady: Callable[[], bool] = lambda: True,
    before_round: Callable[[bool], object] = lambda shortest: None,
    idle: BlockTimer | None = None,
    is_slow: bool = False,
    earlier: Samples | None = None,
    seed: int | None = None,
) -> Timings:
    """Time rounds of both sides until the intervals are narrow.

    The sides take turns in random order. ``steady`` says whether the device's clock is steady:
    warming up goes on until it is and two rounds agree, which count. ``before_round`` gives both
    sides values that neither has seen; it is told whether the candidate's last round was its
    shortest so far, by the judge's clock.

    With ``idle`` blocks, of as many groups as the candidate's, these take turns too, until it is
    known what a round takes beside its calls. A reference that ``is_slow`` is timed in a few rounds
    only, and needs them in its place. ``earlier`` are samples of it, of shape (rounds, groups):
    they count as well if its first round agrees.
    """
    budget = BUDGETS[device]
    rounds = _TakingTurns(
        candidate,
        _SlowReference(reference, earlier) if is_slow else reference,
        idle,
        before_round=before_round,
        source=Random(seed),
        device=device,
        precision=PRECISIONS[precision],
    )
    rounds.warm_up(steady, budget / 4)
    rounds.run_until(ROUNDS if rounds.longest_ns * ROUNDS <= budget else FEWEST_ROUNDS)
    while True:
        after_more = rounds.charged_ns + MORE_ROUNDS * rounds.longest_ns
        if rounds.account():
            enough = after_more > budget or rounds.settled()
        else:
            enough = after_more > PATIENCE[device] * budget
        if enough:
            return rounds.timings()
        rounds.run_until(rounds.count + MORE_ROUNDS)


def time_round(side: BlockTimer) -> tuple[Samples, Turn]:
    """Time a round of a side: samples of shape (groups,), and how long it took."""
    timed = side.run()
    samples = np.array(timed.samples_ns)
    calls_ns = float(samples.sum()) * side.calls_per_block
    return samples, Turn(timed.wall_ns, timed.blocks_ns, calls_ns, timed.waited_ns)


class _SlowReference:
    """A reference that is timed only until its time is known well enough.

    That is after two rounds if they agree, or after three; or after one that agrees with
    ``earlier`` ones.
    """

    def __init__(self, reference: BlockTimer, earlier: Samples | None) -> None:
        self._reference = reference
        self._earlier = earlier
        self._rounds = Rounds()
        #: How many of the rounds are earlier ones.
        self.shared = 0

    def run(self) -> float:
        """Time a round, unless the time is known; returns the nanoseconds that it took."""
        if self._is_known():
            return 0.0
        samples, turn = time_round(self._reference)
        self._rounds.samples.append(samples)
        if self._earlier is not None:
            self._add_earlier(self._earlier)
            self._earlier = None
        return turn.wall_ns

    def _add_earlier(self, earlier: Samples) -> None:
        """Let earlier rounds count if they agree with the last."""
        earlier_ns = latency_of(earlier).value
        if abs(self._rounds.last_ns() - earlier_ns) < SLOW_PRECISION * earlier_ns:
            self._rounds.samples += [*earlier]
            self.shared = len(earlier)

    def _is_known(self) -> bool:
        count = len(self._rounds.samples)
        if SLOW_ROUNDS <= count < FEWEST_ROUNDS:
            return latency_of(self.stacked(), FEWER_RESAMPLES).half_width <= SLOW_PRECISION
        return count >= FEWEST_ROUNDS

    def stacked(self) -> Samples:
        """The samples, of shape (rounds, groups)."""
        return self._rounds.stacked()


class _TakingTurns:
    """Rounds of both sides in turn, or of a slow reference beside them; and of idle blocks."""

    def __init__(
        self,
        candidate: BlockTimer,
        reference: BlockTimer | _SlowReference,
        idle: BlockTimer | None,
        *,
        before_round: Callable[[bool], object],
        source: Random,
        device: str,
        precision: float,
    ) -> None:
        self._device = device
        self._precision = precision
        self._slow = reference if isinstance(reference, _SlowReference) else None
        self._before_round = before_round
        self._random = source
        self._candidate, self._reference, self._idle = Rounds(), Rounds(), Rounds()
        self._in_turn: list[tuple[BlockTimer, Rounds]] = [(candidate, self._candidate)]
        if not isinstance(reference, _SlowReference):
            self._in_turn.append((reference, self._reference))
        if idle is not None:
            self._in_turn.append((idle, self._idle))
        #: What the rounds took of the budget, which a slow reference isn't charged to; and in all.
        self.charged_ns = self.spent_ns = 0.0
        self.longest_ns = 0.0
        self._shortest_ns = inf
        self._is_accounted = False

    def warm_up(self, steady: Callable[[], bool], budget_ns: float) -> None:
        """Run rounds until two agree, and drop those before these.

        If the budget ends before, all are dropped; but a first one that takes all of it counts.
        """
        before, agree = [0.0, 0.0], False
        while not agree and self.count < MOST_WARM:
            self.run()
            if self.longest_ns > budget_ns:
                return
            now = [rounds.last_ns() for _, rounds in self._in_turn[:2]]
            changes = [abs(a - b) / b for a, b in zip(before, now, strict=True)]
            agree = max(changes) < WARM and steady()
            if self.charged_ns > budget_ns:
                break
            before = now
        if not agree:
            self._shortest_ns = inf
        dropped = self.count - 2 if agree else self.count
        for _, rounds in self._in_turn:
            rounds.drop(dropped)

    def run_until(self, count: int) -> None:
        while self.count < count:
            self.run()

    def run(self) -> None:
        """Run a round of each side, in random order."""
        self._before_round(self._last_was_shortest())
        charged = 0.0
        flush_ns = self._in_turn[1][0].flush_ns
        for side, rounds in self._in_order():
            samples, turn = time_round(side)
            # Flushing takes both sides as long, so the candidate isn't asked. Claims matter little:
            # else one of no time would be timed for ever, and one of much hardly.
            claimed = turn.calls_ns + samples.size * flush_ns
            charged += min(turn.wall_ns, max(turn.wall_ns / UNSPENT, claimed))
            rounds.samples.append(samples)
            rounds.turns.append(turn)
        self.charged_ns += charged
        self.longest_ns = max(self.longest_ns, charged)
        self.spent_ns += charged + (self._slow.run() if self._slow else 0.0)

    def _in_order(self) -> list[tuple[BlockTimer, Rounds]]:
        """The sides in random order; idle blocks beside both only until enough is known by them.

        Then the candidate is between the two others. These run in one process, and the second of
        two turns in succession takes less: the device need not change contexts.
        """
        candidate, other, *idle = self._in_turn
        if not idle or (self._is_accounted and len(self._idle.turns) >= ROUNDS):
            return self._random.sample((candidate, other), 2)
        first, last = self._random.sample((other, *idle), 2)
        return [first, candidate, last]

    def _last_was_shortest(self) -> bool:
        """Whether the candidate's last round was shorter than those for which that was so."""
        if not self.count:
            return False
        last = self._candidate.turns[-1]
        shorter = last.wall_ns < self._shortest_ns - SHORTER * last.blocks_ns
        if shorter:
            self._shortest_ns = last.wall_ns
        return shorter

    @property
    def count(self) -> int:
        """How many rounds of the candidate were timed, without those that were dropped."""
        return len(self._candidate.turns)

    def account(self) -> bool:
        """Whether the judge's clock says surely enough that no more is left out than may be.

        Of the times as they are in the end: of all rounds, a latency may be less than of most.
        """
        paired = self._slow is None
        side, other = (
            (rounds.stacked(), rounds.turns)
            for rounds in (self._candidate, self._reference if paired else self._idle)
        )
        idle_turns = self._idle.turns if paired else ()
        self._is_accounted = _accounting(side, other, idle_turns).is_clear
        return self._is_accounted

    def settled(self) -> bool:
        """Whether the intervals are narrow enough, or more rounds would not narrow them.

        The differences between placements stay, however well the time of each is known.
        """
        candidate = self._candidate.stacked()
        estimates = [latency_of(candidate, FEWER_RESAMPLES)]
        if self._slow is None:
            estimates.append(speedup_of(candidate, self._reference.stacked(), FEWER_RESAMPLES))
        return all(
            estimate.half_width <= self._precision or estimate.noise_share <= LITTLE
            for estimate in estimates
        )

    def timings(self) -> Timings:
        """The result of all rounds."""
        slow = self._slow
        return Timings(
            self._device,
            self._candidate.stacked(),
            self._reference.stacked() if slow is None else slow.stacked(),
            self._precision,
            self.spent_ns,
            self._candidate.turns,
            self._reference.turns,
            idle=self._idle.stacked() if self._idle.turns else None,
            idle_turns=self._idle.turns,
            shared=0 if slow is None else slow.shared,
        )


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % confidence interval.

    ``noise_share`` is the share of the variance between groups that is noise of their rounds, which
    more rounds would reduce; the rest is the effect of placement.
    """

    value: float
    low: float
    high: float
    noise_share: float = 1.0

    @property
    def half_width(self) -> float:
        """Half the interval, relative to the value."""
        return (self.high - self.low) / 2 / self.value


def latency_of(samples: Samples, resamples: int = RESAMPLES) -> Estimate:
    """The geometric mean over groups of each group's middle over rounds, in the samples' unit."""
    return _estimate(np.log(samples), resamples)


def _accounting(
    side: tuple[Samples, Turns], other: tuple[Samples, Turns], idle_turns: Turns = ()
) -> Accounting:
    """The times of a side, as latencies have them, by the judge's clock.

    Of it and of another side, the samples and the rounds.
    """
    latency_ns = float(np.exp(_middle(np.log(side[0])).mean()))
    claims = Claims(latency_ns, _round_ns(*side), _round_ns(*other), _spread(other[0]))
    return account(side[1], other[1], claims, idle_turns)


def _round_ns(samples: Samples, turns: Sequence[Turn]) -> float:
    """The time of a round's calls, if all take the latency."""
    calls = samples.shape[1] * turns[0].calls_ns / float(samples[0].sum())
    return float(calls * np.exp(_middle(np.log(samples)).mean()))


def _spread(samples: Samples) -> float:
    """The mean over placements of what each takes, over the latency."""
    by_group = _middle(np.log(samples))
    return float(np.exp(by_group - by_group.mean()).mean())


def speedup_of(
    candidate: Samples, reference: Samples, resamples: int = RESAMPLES, *, paired: bool = True
) -> Estimate:
    """The reference's time over the candidate's, paired by round and group.

    The mean over groups of the middle over rounds of the logarithm of the ratio. If they are not
    ``paired``, the ratio of the latencies, whose errors are independent.
    """
    if paired:
        return _estimate(np.log(reference) - np.log(candidate), resamples)
    own, other = latency_of(candidate, resamples), latency_of(reference, resamples)
    value = other.value / own.value
    below = hypot(log(own.high / own.value), log(other.value / other.low))
    above = hypot(log(own.value / own.low), log(other.high / other.value))
    noise_share = max(own.noise_share, other.noise_share)
    return Estimate(value, value * exp(-below), value * exp(above), noise_share)


def _estimate(logs: Samples, resamples: int) -> Estimate:
    """Bootstraps over groups, each with all of its blocks, and over rounds, likewise.

    On either side the interval is the wider of the two. One covers the effect of placement, the
    other that of time, and both the noise of blocks, so blocks are not resampled one by one
    (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8).
    """
    by_group = _middle(logs)
    value = float(by_group.mean())
    source = np.random.default_rng(0)  # the same samples give the same interval
    rounds, groups = logs.shape
    drawn_groups = by_group[source.integers(groups, size=(resamples, groups))]
    drawn_rounds = logs[source.integers(rounds, size=(resamples, rounds))]
    of_groups = _interval(value, drawn_groups.mean(-1), groups)
    of_rounds = _interval(value, _middle(drawn_rounds).mean(-1), rounds)
    low, high = min(of_groups[0], of_rounds[0]), max(of_groups[1], of_rounds[1])
    return Estimate(exp(value), exp(low), exp(high), _noise_share(logs, by_group))


def _noise_share(logs: Samples, by_group: Samples) -> float:
    rounds, groups = logs.shape
    if rounds < 2 or groups < 2:
        return 1.0
    between = float(by_group.var(ddof=1))
    noise = float(logs.var(axis=0, ddof=1).mean()) / rounds
    return min(1.0, noise / between) if between > 0 else 1.0


def _middle(logs: Samples) -> Samples:
    """The mean over rounds of the middle half: (..., rounds, groups) to (..., groups).

    It is robust against outliers, and less noisy than the median of few rounds.
    """
    rounds = logs.shape[-2]
    cut = rounds // 4
    middle: Samples = np.sort(logs, axis=-2)[..., cut : rounds - cut, :].mean(axis=-2)
    return middle


def _interval(value: float, resampled: Samples, number: int) -> tuple[float, float]:
    """Around the value, percentiles of the resamples widened for how few were drawn from.

    A bootstrap over n things has a spread too small by sqrt((n-1)/n), and the quantiles of a normal
    distribution where a t distribution is due (Hesterberg, "What Teachers Should Know About the
    Bootstrap", 2015, section 5.3).
    """
    if number == 1:
        return value, value
    quantile = STUDENT[min(number - 1, len(STUDENT)) - 1]
    widening = quantile / NORMAL * sqrt(number / (number - 1))
    low, high = (float(np.quantile(resampled, q)) - value for q in (0.025, 0.975))
    return value + widening * low, value + widening * high


def noise_floor(*sides: Samples, device: str) -> float:
    """How far a side differs from itself, even rounds from odd ones, as a natural logarithm.

    The largest of the sides, and at least the ``LEAST_FLOOR`` of ``device``.
    """
    return max([LEAST_FLOOR[device], *(_from_itself(samples) for samples in sides)])


def _from_itself(samples: Samples) -> float:
    if len(samples) < 2:
        return 0.0
    halves = [_middle(np.log(samples[start::2])) for start in (0, 1)]
    return abs(float((halves[0] - halves[1]).mean()))


def compare(speedup: Estimate, floor: float) -> Comparison:
    """Whether a speed-up is a difference, given the noise floor.

    FASTER and SLOWER where the whole interval is beyond the floor, SAME where it is within twice
    the floor, else UNCLEAR.
    """
    low, high = log(speedup.low), log(speedup.high)
    if low > floor:
        return "FASTER"
    if high < -floor:
        return "SLOWER"
    return "SAME" if -2 * floor <= low and high <= 2 * floor else "UNCLEAR"
