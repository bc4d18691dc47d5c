"""Statistical tests: how likely a count is by chance, and what to conclude from many p-values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

#: The least expected count of a bin in a G-test. With the usual 5, several hundred such bins reject
#: twice as often as they should, 2.5 times at 1e-4; with 10, 1.2 times.
LEAST_EXPECTED = 10.0


def chi_squared_tail(statistic: float, freedom: int) -> float:
    """P(chi-squared with ``freedom`` degrees of freedom >= statistic).

    That is the regularised upper incomplete gamma function Q(freedom/2, statistic/2)
    (Abramowitz & Stegun 26.4.19).
    """
    if freedom <= 0 or statistic <= 0:
        return 1.0
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))


def g_test(
    counts: torch.Tensor, expected: torch.Tensor, slack: torch.Tensor | float = 0.0
) -> float:
    """The p-value of counts in bins that expect ``expected`` each, with the same total.

    The statistic is G = 2 sum (c ln(c / e) - c + e), divided by Williams's correction
    q = 1 + (sum 1/p - 1) / (6 n (k - 1)), against chi-squared with k - 1 degrees of freedom
    (Williams, "Improved likelihood ratio tests for complete contingency tables", 1976).

    Where ``expected`` is only known to within ``slack``, e is what is nearest to the count. No
    term is smaller for any other, so the p-value isn't below the true one.
    """
    bins, total = len(counts), float(expected.sum())
    if bins < 2:
        return 1.0
    counts, expected = counts.double(), expected.double()
    least = (expected - slack).clamp(min=torch.finfo(torch.float64).tiny)
    nearest = counts.clamp(least, expected + slack)
    g = 2 * float((torch.xlogy(counts, counts / nearest) - counts + nearest).sum())
    spread = float((total / expected).sum()) - 1
    return chi_squared_tail(g / (1 + spread / (6 * total * (bins - 1))), bins - 1)


def at_least(count: int, trials: int, chance: float) -> float:
    """A bound on P(X >= count), X binomial: Chernoff's exp(-trials KL(count/trials || chance))."""
    share = count / trials if trials else 0.0
    if share <= chance:
        return 1.0
    return math.exp(-trials * _divergence(share, chance))


def at_most(count: int, trials: int, chance: float) -> float:
    """A bound on P(X <= count), X binomial."""
    return at_least(trials - count, trials, 1 - chance)


def either_side(count: int, trials: int, chance: float, slack: float = 0.0) -> float:
    """A bound on the chance of a count this far from the expected one, on either side.

    ``chance`` is known to within ``slack``: the bound holds for what is nearest to the count.
    """
    above = at_least(count, trials, min(1.0, chance + slack))
    below = at_most(count, trials, max(0.0, chance - slack))
    return min(1.0, 2 * min(above, below))


def _divergence(share: float, chance: float) -> float:
    """KL(share || chance) of two coins, in nats; ``share`` is above ``chance``."""
    if chance <= 0:
        return math.inf
    heads = share * math.log(share / chance)
    return heads + ((1 - share) * math.log((1 - share) / (1 - chance)) if share < 1 else 0.0)


def holm(p_values: Sequence[float], alpha: float) -> list[bool]:
    """The null hypotheses to reject; a true one is among them with a chance of at most ``alpha``.

    Holm, "A simple sequentially rejective multiple test procedure", 1979: the smallest p-value is
    compared with alpha / m, the next with alpha / (m - 1), and so on up to the first above.
    """
    rejected = [False] * len(p_values)
    ascending = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, index in enumerate(ascending):
        if p_values[index] > alpha / (len(p_values) - rank):
            break
        rejected[index] = True
    return rejected


def bins_of(expected: torch.Tensor, least: float) -> torch.Tensor:
    """The bin of each outcome: neighbours share one, until each bin expects ``least`` or more.

    There are at most about ``expected.sum() / least`` bins, and one if the total is less than two
    bins' worth.
    """
    before = expected.cumsum(0) - expected
    # A first, parallel pass leaves few enough for a loop. An outcome that is large enough is a bin
    # of its own, so the number changes at its beginning and at its end.
    alone = (expected >= least).long()
    numbers = (before / least).floor().long() + 2 * alone.cumsum(0) - alone
    _, first = torch.unique_consecutive(numbers, return_inverse=True)
    sizes = torch.zeros(int(first[-1]) + 1, dtype=torch.float64, device=expected.device)
    sizes.index_add_(0, first, expected)
    return torch.tensor(_merged(sizes.tolist(), least), device=expected.device)[first]


def _merged(sizes: list[float], least: float) -> list[int]:
    """The final bin of each small bin, left to right; the rest goes into the last."""
    final, bin_, filled, rest = [], 0, 0.0, sum(sizes)
    for size in sizes:
        final.append(bin_)
        filled += size
        rest -= size
        if filled >= least and rest >= least:
            bin_, filled = bin_ + 1, 0.0
    return final
