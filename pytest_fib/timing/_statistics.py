"""Latency and speed-up from the times of blocks, with confidence intervals.

Samples of one side are an array of nanoseconds per call, shape (rounds, groups): in each round
every group's block is timed once, and a group is one placement of the tensors in memory. Rounds
differ by noise over time. Groups differ because the same kernel takes up to 2 % longer at other
addresses, however often it is timed. So a confidence interval has to cover both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log, sqrt
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Samples: TypeAlias = NDArray[np.float64]
_Average: TypeAlias = Callable[..., Samples]  # np.median or np.mean
Compared: TypeAlias = Literal["FASTER", "SLOWER", "SAME", "UNCLEAR"]

#: Resamples of a bootstrap: for a result, and to see whether there are enough samples.
RESAMPLES, FEWER_RESAMPLES = 400, 60
#: Two-sided 95 % quantiles of Student's t by degrees of freedom, and of the normal distribution.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
NORMAL = 1.960
#: Smaller differences are never reported, as natural logarithms. Clocks vary by that much; on the
#: CPU two processes of the same code do, since their memory lies at other addresses.
LEAST_FLOOR = {"cpu": 0.03, "cuda": 0.005}


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
    """The median over groups of each group's middle over rounds, in the samples' unit."""
    return _estimate(np.log(samples), np.median, resamples)


def speedup_of(candidate: Samples, reference: Samples, resamples: int = RESAMPLES) -> Estimate:
    """The reference's time over the candidate's, paired by round and group.

    The mean over groups of the middle over rounds of the logarithm of the ratio.
    """
    return _estimate(np.log(reference) - np.log(candidate), np.mean, resamples)


def _estimate(logs: Samples, over_groups: _Average, resamples: int) -> Estimate:
    """Bootstraps over groups, each with all of its blocks, and over rounds, likewise.

    On either side the interval is the wider of the two. One covers the effect of placement, the
    other that of time, and both the noise of blocks, so blocks are not resampled one by one
    (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8).
    """
    by_group = _middle(logs)
    value = float(over_groups(by_group, axis=-1))
    source = np.random.default_rng(0)  # the same samples give the same interval
    rounds, groups = logs.shape
    drawn_groups = by_group[source.integers(groups, size=(resamples, groups))]
    drawn_rounds = logs[source.integers(rounds, size=(resamples, rounds))]
    of_groups = _interval(value, over_groups(drawn_groups, axis=-1), groups)
    of_rounds = _interval(value, over_groups(_middle(drawn_rounds), axis=-1), rounds)
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


def compared(speedup: Estimate, floor: float) -> Compared:
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
