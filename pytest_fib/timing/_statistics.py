"""What block times say: a latency, a speed-up, and how far to trust them.

Samples of one side are an array of nanoseconds per call, shape (rounds, groups): in each round
every group's block is timed once, and a group is one placement of the tensors in memory. Rounds
differ by noise in time. Groups differ because equal kernels on other addresses take other times,
by up to 2 %, however often each is timed; so a confidence interval has to come from both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, expm1, log, sqrt
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

Samples: TypeAlias = NDArray[np.float64]
_Summary: TypeAlias = Callable[[Samples], Samples]
Compared: TypeAlias = Literal["FASTER", "SLOWER", "SAME", "UNCLEAR"]

#: Resamples of a bootstrap: for a result, and to see whether there are enough samples.
RESAMPLES, FEWER_RESAMPLES = 400, 60
#: Two-sided 95 % quantiles of Student's t by degrees of freedom, and of the normal distribution.
STUDENT = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179)
NORMAL = 1.960
#: No difference below this is called one, as a natural logarithm. Clocks move that much; on the CPU
#: two processes of the same code differ by as much, since what they allocate lies elsewhere.
LEAST_FLOOR = {"cpu": 0.03, "cuda": 0.005}


@dataclass(frozen=True)
class Estimate:
    """A value and its 95 % confidence interval.

    ``noise_share`` is how much of the variance between groups is noise of their rounds, which more
    rounds would lessen; the rest is what placements differ by.
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
    return _estimate(np.log(samples), _median, resamples)


def speedup_of(candidate: Samples, reference: Samples, resamples: int = RESAMPLES) -> Estimate:
    """The reference's time over the candidate's, paired by round and group.

    The mean over groups of the middle over rounds of the logarithm of the ratio.
    """
    return _estimate(np.log(reference) - np.log(candidate), _mean, resamples)


def _estimate(logs: Samples, over_groups: _Summary, resamples: int) -> Estimate:
    """Bootstraps over groups, each with all of its blocks, and over rounds, likewise.

    The interval is the wider of the two on either side: one holds what placement does, the other
    what time does, and both the noise of blocks, which is why blocks are not drawn one by one
    (Davison and Hinkley, "Bootstrap Methods and their Application", 1997, section 3.8).
    """
    by_group = _middle(logs)
    value = float(over_groups(by_group))
    source = np.random.default_rng(0)  # the same samples give the same interval
    rounds, groups = logs.shape
    drawn_groups = by_group[source.integers(groups, size=(resamples, groups))]
    drawn_rounds = logs[source.integers(rounds, size=(resamples, rounds))]
    of_groups = _interval(value, over_groups(drawn_groups), groups)
    of_rounds = _interval(value, over_groups(_middle(drawn_rounds)), rounds)
    low, high = min(of_groups[0], of_rounds[0]), max(of_groups[1], of_rounds[1])
    return Estimate(exp(value), exp(low), exp(high), _noise_share(logs, by_group))


def _noise_share(logs: Samples, by_group: Samples) -> float:
    rounds, groups = logs.shape
    if rounds < 2 or groups < 2:
        return 1.0
    between = float(by_group.var(ddof=1))
    noise = float(logs.var(axis=0, ddof=1).mean()) / rounds
    return min(1.0, noise / between) if between > 0 else 1.0


def _median(by_group: Samples) -> Samples:
    found: Samples = np.median(by_group, axis=-1)
    return found


def _mean(by_group: Samples) -> Samples:
    found: Samples = by_group.mean(axis=-1)
    return found


def _middle(logs: Samples) -> Samples:
    """The mean over rounds of the middle half: (..., rounds, groups) to (..., groups).

    As robust against stray blocks as needed, and closer than the median with few rounds.
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
    """What a side differs from itself by: even rounds against odd ones, as a logarithm.

    The larger of the sides', and never below the ``LEAST_FLOOR`` of ``device``.
    """
    return max([LEAST_FLOOR[device], *(_from_itself(samples) for samples in sides)])


def _from_itself(samples: Samples) -> float:
    if len(samples) < 2:
        return 0.0
    halves = [_middle(np.log(samples[start::2])) for start in (0, 1)]
    return abs(float((halves[0] - halves[1]).mean()))


def compared(speedup: Estimate, floor: float) -> Compared:
    """What can be said of a speed-up whose noise floor is known.

    FASTER and SLOWER where the whole interval is beyond the floor, SAME where it is within twice
    the floor, else UNCLEAR.
    """
    low, high = log(speedup.low), log(speedup.high)
    if low > floor:
        return "FASTER"
    if high < -floor:
        return "SLOWER"
    return "SAME" if -2 * floor <= low and high <= 2 * floor else "UNCLEAR"


def percent(logarithm: float) -> float:
    """A logarithm of a ratio as a difference in percent."""
    return 100 * expm1(logarithm)
