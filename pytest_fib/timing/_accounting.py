"""Holds the times that a sandbox claims against the judge's clock. Runs in the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, sqrt
from statistics import mean, median

import numpy as np

#: How much longer than it claims a round may take by the judge's clock, beyond what the reference's
#: does, as a share; calls that are shorter than LONG_NS may hide more.
HIDDEN, HIDDEN_OF_SHORT, LONG_NS = 0.05, 0.10, 20_000.0
#: How exactly it has to be known what is hidden, as a share of what may be.
KNOWN_SHARE = 0.6
#: How many standard deviations the other side's rounds may be off: of rounds of equal sides under
#: load, 0 to 5 % differed by more than that and what may be hidden.
SURE = 3.0
#: The same of a sum of ranks: of equal sides, 1 in 10,000 differs by more.
SURE_OF_RANKS = 3.7
#: Of the blocks' times, the quantile that no latency is below: it is the mean of the middle half.
LOW = 0.25
#: The share of rounds by which it is told what one takes beyond its blocks: the shortest.
SHORTEST = 1 / 3


@dataclass(frozen=True)
class Turn:
    """A round of one side, in nanoseconds.

    ``wall_ns`` is by the judge's clock, ``blocks_ns`` and ``calls_ns`` by the sandbox's.
    ``waited_ns`` is how long the judge and the sandbox could have run and had no core.
    """

    wall_ns: float
    blocks_ns: float
    calls_ns: float
    waited_ns: float = 0.0


@dataclass(frozen=True)
class Accounting:
    """A round of one side, as the judge's clock and the other side's rounds show it.

    - ``calls_ns``, ``blocks_ns``: what the side claims for the calls and the blocks of a round.
    - ``hidden_ns``: how much longer a round takes than its blocks, beyond what that is on the other
      side. ``error_ns`` is the standard deviation of that.
    - ``other_error_ns``: how far off the other side's rounds may be.
    - ``allowed_ns``: the most that may be hidden.
    - ``other_waited_ns``: how long a round of the other side waited for cores, on average. The side
      that is looked at is stopped meanwhile, so it has no part in that.
    """

    calls_ns: float
    blocks_ns: float
    hidden_ns: float
    error_ns: float
    other_error_ns: float
    allowed_ns: float
    other_waited_ns: float = 0.0

    @property
    def is_exact(self) -> bool:
        """Whether the judge's clock says exactly enough what is left out of the claimed times."""
        return self.error_ns <= KNOWN_SHARE * self.allowed_ns

    @property
    def is_clear(self) -> bool:
        """Whether it also says that this is no more than may be."""
        return self.is_exact and self.hidden_ns + self.error_ns <= self.allowed_ns

    @property
    def unaccounted(self) -> float:
        """How much longer calls may take than is claimed, as a share of that."""
        most_ns = self.hidden_ns if self.is_exact else self.hidden_ns + self.error_ns
        return max(0.0, (self.blocks_ns + most_ns) / self.calls_ns - 1)


@dataclass(frozen=True)
class Claims:
    """What the reported latencies say about rounds, in nanoseconds.

    - ``latency_ns``: the latency of the side that is looked at.
    - ``round_ns``, ``other_round_ns``: the latency of each side times the calls of a round.
    - ``other_spread``: how many times ``other_round_ns`` the other side's calls take by the mean
      over placements.
    """

    latency_ns: float
    round_ns: float = inf
    other_round_ns: float = inf
    other_spread: float = 1.0


def hidden_share(latency_ns: float) -> float:
    """What share of its time a call of that latency may leave out."""
    return HIDDEN if latency_ns >= LONG_NS else HIDDEN_OF_SHORT


def account(
    turns: Sequence[Turn],
    other_turns: Sequence[Turn],
    claims: Claims,
    idle_turns: Sequence[Turn] = (),
) -> Accounting:
    """Hold a side's rounds against the judge's clock.

    Asking for a round and getting its answer takes time that is in no block. It is the same for
    both sides, since the same code does it, so the other side says how long an honest one takes.
    A round's calls count with the reported latency, if that is less than their own times: some
    blocks may do the work of others. Noise makes rounds longer than latencies say, by about the
    same share on both sides. So the other side's share is allowed for, without its part that comes
    from placements, and counts as uncertainty as well. The share that may be hidden depends on the
    latency.

    Where the other side's rounds have many kernels, launching these takes longer, which is not to
    excuse a side with few. So rounds of idle blocks, ``idle_turns``, then say how long an honest
    one takes. What the other side's take beyond that may be seen on this side too, where it is more
    than may be hidden: as the same share of the blocks, and no longer.
    """
    calls_ns, blocks_ns = _claimed(turns, claims.round_ns)
    noise = max(1.0, _low(other_turns) / _claimed(other_turns, claims.other_round_ns)[1])
    rest, error = _rest(turns, min(_low(turns), blocks_ns * noise))
    other_rest, _ = _rest(other_turns, _low(other_turns))
    usual_turns = idle_turns or other_turns
    usual, other_error = _rest(usual_turns, _low(usual_turns))
    noise_ns = max(0.0, noise / claims.other_spread - 1) * blocks_ns
    errors = hypot(error, other_error, noise_ns), hypot(SURE * other_error, noise_ns)
    share = min(1.0, blocks_ns / _low(other_turns))
    allowed_ns = max(hidden_share(claims.latency_ns) * blocks_ns, share * (other_rest - usual))
    waited_ns = mean(turn.waited_ns for turn in other_turns)
    return Accounting(calls_ns, blocks_ns, rest - usual, *errors, allowed_ns, waited_ns)


def surely_longer(turns: Sequence[Turn], other_turns: Sequence[Turn], extra_ns: float) -> bool:
    """Whether rounds take longer beyond their blocks than the other side's, by over ``extra_ns``.

    By the sum of their ranks (Mann and Whitney, 1947). Other work makes some rounds of both sides
    so long that no mean is known, but it doesn't choose a side.
    """
    rests, other_rests = (
        np.array([turn.wall_ns - turn.blocks_ns for turn in side]) for side in (turns, other_turns)
    )
    pairs = len(rests) * len(other_rests)
    longer = int((rests[:, None] > other_rests + extra_ns).sum())
    deviation = sqrt(pairs * (len(rests) + len(other_rests) + 1) / 12)
    return longer - pairs / 2 > SURE_OF_RANKS * deviation


def _claimed(turns: Sequence[Turn], round_ns: float) -> tuple[float, float]:
    """The claimed times of a round's calls and of its blocks."""
    calls_ns = min(round_ns, float(np.median([turn.calls_ns for turn in turns])))
    return calls_ns, calls_ns + float(np.median([turn.blocks_ns - turn.calls_ns for turn in turns]))


def _low(turns: Sequence[Turn]) -> float:
    """One of the lowest times that a round's blocks take by the side's account."""
    return float(np.quantile([turn.blocks_ns for turn in turns], LOW))


def _rest(turns: Sequence[Turn], low_ns: float) -> tuple[float, float]:
    """The time of a round outside of its blocks, by the shortest third; and its error.

    Whatever else the machine does only makes rounds longer. A side whose claims are false in some
    rounds and true in others gains nothing: in each, it is held to one of its lowest claims.
    """
    rests = [turn.wall_ns - min(turn.blocks_ns, low_ns) for turn in turns]
    return shortest_ns(rests), (median(rests) - min(rests)) / sqrt(len(rests))


def shortest_ns(rounds_ns: Sequence[float]) -> float:
    """The mean of the shortest third."""
    return mean(sorted(rounds_ns)[: max(2, round(len(rounds_ns) * SHORTEST))])
