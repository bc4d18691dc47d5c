"""Checks random choices: which tokens may be chosen is exact, how often is statistics.

A sampling operation takes ``probs`` [rows, vocabulary] and per-row limits, and chooses one token
per row. The convention of the limits, which is the field's:

- ``top_k``: the k most probable tokens stay. Any k outside 1 .. vocabulary - 1 keeps all.
- ``top_p``: of those, renormalised, the fewest most probable stay whose sum reaches p; at least
  one does. p of 1 or more keeps all, p of 0 or less the most probable alone.
- ``min_p``: tokens stay that are at least min_p times as probable as the most probable one.

Top-k comes first, then top-p of what it leaves. A token without probability never stays. What
stays is chosen in proportion to its probability.

If a limit falls between equally probable tokens, any of them may stay: an implementation may keep
as many as there are or as few as are needed. The same holds if float32 sums can't decide on which
side of ``top_p`` a token lies. Such tokens are *open*: allowed but not required, with a share that
is only known to lie between two numbers. The others that may be chosen are *certain*.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from pytest_fib.data import Diagnosis
from pytest_fib.verdict._hypothesis_tests import (
    LEAST_EXPECTED,
    at_least,
    at_most,
    bins_of,
    either_side,
    g_test,
    holm,
)
from pytest_fib.verdict._verdict import Verdict, detail_lines

#: How far a float32 sum of a whole vocabulary may be from the true one. Added one by one, 2**17
#: numbers are off by about sqrt(2**17) * 2**-25; twice that, and the rounding of ``top_p``.
SUM_ERROR = 2.0**-15
#: More than the relative error of a float32 product.
PRODUCT_ERROR = 2.0**-22
#: Values sorted at a time: with the float64 intermediates, some 0.5 GiB.
SORTED_AT_ONCE = 1 << 24
#: The probability that a perfect sampler fails, over all tests of all rows of all workloads. The
#: chi-squared distribution of a G-test is a limit; this far out it errs by less than 10 times.
ALPHA = 1e-7
#: The most calls of a search that are tested by themselves.
CALLS_OF_A_SEARCH = 1000
#: Bins of the finest G-test, and of the two coarser ones: few bins find a small bias that all
#: tokens share, many bins find one of a few tokens.
FINE, COARSE = 1024, 32
#: How many draws of the least probable tokens are expected, at least, where these are tested.
LEAST_OF_TAIL = 20.0
#: What float32 noise may add to a token's share, or take from it: the steps of its least values.
#: ``torch.multinomial`` chooses tokens of up to half a step nearly never on CUDA, and others too
#: often, by up to 0.79 of a step (docs/measured.md).
NOISE_STEP = 2.0**-24
#: How often each tested row is drawn. If a token with a share of 1e-4 is never chosen, 200,000
#: draws show it: 20 are expected, and none has a chance of exp(-20).
DRAWS = 200_000
#: The pattern of a diagnosis for a wrong sampler.
OUTSIDE, WRONG, REPEATED = "outside the support", "wrong distribution", "repeated draws"
#: The most samples or failed tests that are shown.
SHOWN_COUNTS = 5
#: Bytes of copied rows in one call.
CALL_BYTES = 1 << 30


@dataclass(frozen=True)
class SamplingPlan:
    """How one call draws many samples: its batch has ``copies`` of each row of ``rows``."""

    rows: tuple[int, ...]
    copies: int
    calls: int

    @property
    def batch(self) -> int:
        """Rows of one call."""
        return len(self.rows) * self.copies

    @property
    def draws(self) -> int:
        """Samples of each tested row, over all calls."""
        return self.copies * self.calls

    def expand(self, tensor: torch.Tensor) -> torch.Tensor:
        """An input of the calls, from the workload's, which has a row (or an element) each."""
        rows = torch.tensor(self.rows, device=tensor.device)
        # Copies are neighbours, so a random number that neighbours share is found.
        return tensor.index_select(0, rows.repeat_interleave(self.copies))

    def arrange(self, outputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """The samples of every call, as [tested rows, calls, copies]."""
        stacked = torch.stack(list(outputs)).view(len(outputs), len(self.rows), self.copies)
        return stacked.transpose(0, 1).contiguous()


def plan_sampling(
    batch: int,
    row_bytes: int,
    *,
    rows: int = 2,
    draws: int = DRAWS,
    max_batch: int | None = None,
    max_bytes: int = CALL_BYTES,
) -> SamplingPlan:
    """A plan to draw each of up to ``rows`` rows of a ``batch`` about ``draws`` times.

    No call has more than ``max_batch`` rows or ``max_bytes`` of ``row_bytes`` each; there are at
    least two calls, an even number, so that each can be compared with another.
    """
    tested = _spread(batch, rows)
    room = max(1, min(max_batch or draws, max_bytes // max(row_bytes, 1)) // len(tested))
    copies = min(room, math.ceil(draws / 2))
    return SamplingPlan(tested, copies, 2 * math.ceil(draws / (2 * copies)))


def _spread(batch: int, rows: int) -> tuple[int, ...]:
    """Up to ``rows`` of the batch's rows: the first, the last and some between."""
    count = min(batch, rows)
    return tuple(i * (batch - 1) // max(count - 1, 1) for i in range(count))


@dataclass(frozen=True)
class Support:
    """The tokens that may be chosen in each row; float64 [rows], in the units of ``probs``.

    Tokens of ``lowest`` or more may be chosen, those of ``certain`` or more are certain, and sum to
    ``mass``. The open ones among the rest have a sum between ``least`` and ``most``.
    """

    lowest: torch.Tensor
    certain: torch.Tensor
    mass: torch.Tensor
    least: torch.Tensor
    most: torch.Tensor


class SamplingTest:
    """The tokens that may be chosen in each row of ``probs`` [rows, vocabulary], and how often.

    The limits are tensors of one number per row, numbers for all rows, or None.
    """

    def __init__(
        self,
        probs: torch.Tensor,
        top_k: torch.Tensor | float | None = None,
        top_p: torch.Tensor | float | None = None,
        min_p: torch.Tensor | float | None = None,
    ) -> None:
        self.probs = probs
        limits = {"top_k": top_k, "top_p": top_p, "min_p": min_p}
        self._limits = {n: _per_row(v, probs) for n, v in limits.items() if v is not None}
        step = max(1, SORTED_AT_ONCE // max(probs.shape[1], 1))
        parts = [
            _support(probs[at : at + step], {n: v[at : at + step] for n, v in self._limits.items()})
            for at in range(0, len(probs), step)
        ]
        self.support = Support(*(torch.cat(fact) for fact in zip(*parts, strict=True)))

    @classmethod
    def of(cls, inputs: Mapping[str, torch.Tensor | float]) -> SamplingTest:
        """The test of an operation's inputs, which have the names of the arguments."""
        probs = inputs["probs"]
        if not isinstance(probs, torch.Tensor):
            raise TypeError("probs should be a tensor")
        return cls(probs, *(inputs.get(name) for name in ("top_k", "top_p", "min_p")))

    def select(self, rows: Sequence[int]) -> SamplingTest:
        """The test of these rows alone."""
        chosen = torch.tensor(rows, device=self.probs.device)
        return SamplingTest(self.probs[chosen], **{n: v[chosen] for n, v in self._limits.items()})

    def most_informative_rows(self, count: int) -> tuple[int, ...]:
        """Up to ``count`` rows to draw from: half of them those that show a wrong limit best.

        In those, the least probable token that must stay has the largest share, so that few draws
        show that it is left out. The others are spread over the batch.
        """
        share = self.support.certain / self.support.mass
        share = torch.where(share < 1, share, -1.0)  # there are several; NaN if there is none
        best = share.argsort(descending=True, stable=True).tolist()
        wanted = dict.fromkeys([*best[: count // 2], *_spread(len(best), count), *best])
        return tuple(sorted(list(wanted)[:count]))

    def allowed(self) -> torch.Tensor:
        """Which tokens may be chosen: bool [rows, vocabulary]."""
        lowest = self.support.lowest[:, None]
        return (self.probs.double() >= lowest) | lowest.isnan()

    def violations(self, samples: torch.Tensor, rows: Sequence[int] | None = None) -> list[str]:
        """The first samples [rows, ...] that may not be chosen; ``rows`` names the rows."""
        flat = samples.reshape(len(samples), -1).long().to(self.probs.device)
        is_token = (flat >= 0) & (flat < self.probs.shape[1])
        chance = self.probs.gather(1, torch.where(is_token, flat, 0)).double()
        wrong = ~is_token | (chance < self.support.lowest[:, None])
        lines = []
        for i, j in wrong.nonzero()[:SHOWN_COUNTS].tolist():
            chosen, row = int(flat[i, j]), i if rows is None else rows[i]
            why = f"whose probability is {float(chance[i, j]):.3g}: it should have been left out"
            what = f"token {chosen}, {why}" if is_token[i, j] else f"{chosen}, which is no token"
            lines.append(f"row {row} chose {what}")
        return lines


def _per_row(limit: torch.Tensor | float, probs: torch.Tensor) -> torch.Tensor:
    wide = torch.as_tensor(limit, dtype=torch.float64, device=probs.device)
    return wide.reshape(-1).expand(len(probs))


def _support(probs: torch.Tensor, limits: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The ``Support`` of some rows; NaN for a row without tokens to choose from."""
    values = probs.double().sort(dim=1, descending=True).values
    least, most = _numbers_left(values, limits)
    # Equally probable tokens are certain all together, or none is.
    border = values.gather(1, least[:, None] - 1)
    after = values.gather(1, least[:, None].clamp(max=values.shape[1] - 1))
    cut = (after == border) & (least[:, None] < values.shape[1])
    certain = torch.where(cut, (values > border).sum(1, keepdim=True), least[:, None])[:, 0]
    sums = torch.nn.functional.pad(values.cumsum(1), (1, 0))
    mass = sums.gather(1, certain[:, None])[:, 0]
    bottom = torch.where(certain > 0, _at(values, (certain - 1).clamp(min=0)), math.inf)
    facts = (_at(values, most - 1), bottom, mass, _at(sums, least) - mass, _at(sums, most) - mass)
    empty = ~(values[:, 0] > 0) | ~sums[:, -1].isfinite()
    return tuple(torch.where(empty, math.nan, fact) for fact in facts)


def _numbers_left(
    values: torch.Tensor, limits: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, torch.Tensor]:
    """How many of the descending values [rows, n] stay, at least and at most; int64 [rows]."""
    rank = torch.arange(values.shape[1], device=values.device)
    low, high = values > 0, values > 0
    if (k := limits.get("top_k")) is not None:
        k = torch.where((k > 0) & (k < values.shape[1]), k, values.shape[1])
        low = low & (rank < k[:, None])
        high = high & (values >= _at(values, k.long() - 1)[:, None])
    if (p := limits.get("top_p")) is not None:
        before = values.cumsum(1) - values
        need = p[:, None]
        low = low & (before < (need - SUM_ERROR) * (values * low).sum(1, keepdim=True))
        reach = (before < (need + SUM_ERROR) * (values * high).sum(1, keepdim=True)) & (need > 0)
        high = high & (reach | (need >= 1))
    if (m := limits.get("min_p")) is not None:
        floor = m[:, None] * values[:, :1]
        low = low & (values >= floor * (1 + PRODUCT_ERROR))
        high = high & (values >= floor * (1 - PRODUCT_ERROR))
    least, most = low.sum(1).clamp(min=1), high.sum(1).clamp(min=1)
    with_equals = (values >= _at(values, most - 1)[:, None]).sum(1)
    return least, with_equals.clamp(min=1)


def _at(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return values.gather(1, index[:, None])[:, 0]


@dataclass(frozen=True)
class TestResult:
    """One statistical test of a row: the p-value, and what was observed."""

    row: int
    p_value: float
    seen: str
    pattern: str = WRONG

    def __str__(self) -> str:
        chance = f"p = {self.p_value:.1g}" if self.p_value > 0 else "p < 1e-300"
        return f"row {self.row}: {self.seen} ({chance})"

    @property
    def rank(self) -> tuple[float, bool]:
        """A sort key: least likely first, repeats before frequencies, which they disturb."""
        return self.p_value, self.pattern != REPEATED


def check_support(
    passed: Verdict, name: str, samples: torch.Tensor, distribution: SamplingTest
) -> Verdict:
    """A failure of the output ``name`` if one of its samples [rows, ...] may not be chosen."""
    violations = distribution.violations(samples)
    return _failed(passed, name, OUTSIDE, violations) if violations else passed


def judge_samples(
    passed: Verdict,
    name: str,
    draws: torch.Tensor,
    distribution: SamplingTest,
    *,
    alpha: float = ALPHA,
    workloads: int = 1,
    rows: Sequence[int] | None = None,
) -> Verdict:
    """Compare draws [rows, calls, copies] of an output with the rows of ``distribution``.

    One sample that may not be chosen fails. Otherwise every row is tested for frequencies and for
    independence, and a perfect sampler fails with a probability of at most ``alpha``, shared by
    this many ``workloads`` in equal parts (Bonferroni) and in each by all tests (Holm). ``rows``
    are names of the rows, by default their numbers.

    Returns ``passed`` with the smallest p-value and the number of tests, or a failure.
    """
    number = draws[0].numel()
    times = f"each row was drawn {number} times"
    if violations := distribution.violations(draws, rows):
        impossible = passed.with_facts(draws=number, smallest_p=0.0, tests=0)
        return _failed(impossible, name, OUTSIDE, violations, times)
    draws = draws.to(distribution.probs.device).long()
    names = range(len(draws)) if rows is None else rows
    results = [
        result for i in range(len(draws)) for result in _tests(draws[i], distribution, i, names[i])
    ]
    smallest = min((result.p_value for result in results), default=1.0)
    passed = passed.with_facts(draws=number, smallest_p=smallest, tests=len(results))
    rejected = holm([result.p_value for result in results], alpha / workloads)
    wrong = [result for result, is_rejected in zip(results, rejected, strict=True) if is_rejected]
    if not wrong:
        return passed
    wrong.sort(key=lambda result: result.rank)
    return _failed(passed, name, wrong[0].pattern, list(map(str, wrong)), times)


def ranks(samples: torch.Tensor, distribution: SamplingTest) -> torch.Tensor:
    """The quantiles of samples [rows] in their rows' distributions, by index and by probability.

    Float64 [2, rows] between 0 and 1, evenly distributed for a perfect sampler, whatever the rows.
    A sample stands for a range as wide as its share: this is a random place in it. Open tokens are
    left out, since their share is not known.
    """
    support, probs = distribution.support, distribution.probs.double()
    certain = torch.where(probs >= support.certain[:, None], probs, 0.0)
    token = samples.long().to(probs.device)[:, None]
    own, index = certain.gather(1, token), torch.arange(probs.shape[1], device=probs.device)
    before = torch.where(index < token, certain, 0.0), torch.where(certain > own, certain, 0.0)
    alike = own, torch.where(certain == own, certain, 0.0)
    below, share = (torch.stack([each.sum(1) for each in sums]) for sums in (before, alike))
    places = (below + torch.rand_like(share) * share) / support.mass
    return places[:, own[:, 0] > 0]


def check_ranks(
    passed: Verdict, name: str, samples: torch.Tensor, distribution: SamplingTest
) -> Verdict:
    """A failure if a call's samples [rows] of the output ``name`` aren't evenly distributed.

    Few calls have so many rows that this shows more than a choice that is not random; but no call
    can be told from one that is drawn many times. Of large inputs, some rows count.
    """
    rows, vocabulary = distribution.probs.shape
    most = SORTED_AT_ONCE // max(vocabulary, 1)
    if rows > most:
        some = torch.randperm(rows)[:most].tolist()
        samples, distribution = samples[some], distribution.select(some)
    return judge_ranks(passed, name, ranks(samples, distribution), ALPHA / CALLS_OF_A_SEARCH)


def judge_ranks(passed: Verdict, name: str, places: torch.Tensor, alpha: float = ALPHA) -> Verdict:
    """Whether the ``ranks`` of samples of an output, [2, n], are evenly distributed."""
    for seen, by in zip(places, ("index", "probability"), strict=True):
        bins = min(COARSE, int(len(seen) / LEAST_EXPECTED))
        if bins < 2:
            continue
        counts = torch.histc(seen, bins, 0.0, 1.0)
        p_value = g_test(counts, torch.full_like(counts, len(seen) / bins))
        if p_value < alpha:
            most = int(counts.max())
            line = f"{most} of {len(seen)} draws lie in 1/{bins} of their distributions, by {by}"
            return _failed(passed, name, WRONG, [f"{line} (p = {p_value:.1g})"])
    return passed


def _failed(verdict: Verdict, name: str, pattern: str, lines: list[str], *more: str) -> Verdict:
    """The first line as the sentence, others below it."""
    details = detail_lines(*more, *lines[1:SHOWN_COUNTS])
    return verdict.failed(
        Diagnosis(sentence=f"{name}: {lines[0]}", pattern=pattern, details=details)
    )


@dataclass(frozen=True)
class _Row:
    """The draws [calls, copies] of one row, and the facts of the row.

    ``certain`` are the certain tokens, most probable first, and ``share`` their expected shares of
    the draws that chose one of them. ``open`` are the open tokens.
    """

    draws: torch.Tensor
    counts: torch.Tensor
    probs: torch.Tensor
    certain: torch.Tensor
    share: torch.Tensor
    open: torch.Tensor
    mass: float
    least: float
    most: float

    @property
    def total(self) -> int:
        """Draws of this row."""
        return self.draws.numel()


def _tests(
    draws: torch.Tensor, distribution: SamplingTest, index: int, name: int
) -> Iterator[TestResult]:
    """The results of all tests of one row; none if it has no tokens to choose from."""
    support = [float(fact[index]) for fact in vars(distribution.support).values()]
    if math.isnan(support[0]):
        return
    row = _row(draws, distribution.probs[index].double(), support)
    for test in (_frequencies, _open_tokens, _runs):
        for p_value, seen in test(row):
            yield TestResult(name, p_value, seen)
    for p_value, seen, nearly_all in _repeats(row):
        yield TestResult(name, p_value, seen, REPEATED if nearly_all else WRONG)


def _row(draws: torch.Tensor, probs: torch.Tensor, support: list[float]) -> _Row:
    lowest, bottom, mass, least, most = support
    counts = torch.bincount(draws.flatten(), minlength=len(probs))
    certain = probs.argsort(descending=True)[: int((probs >= bottom).sum())]
    open_ = ((probs >= lowest) & (probs < bottom)).nonzero()[:, 0]
    return _Row(draws, counts, probs, certain, probs[certain] / mass, open_, mass, least, most)


def _count(expected: float) -> str:
    """An expected number of draws beside one that was seen, which is whole."""
    return f"{expected:.4g}" if expected < 1000 else f"{expected:.1f}".removesuffix(".0")


def _frequencies(row: _Row) -> Iterator[tuple[float, str]]:
    """Tests of the certain tokens, given that one was chosen: together, and the top one alone."""
    counts = row.counts[row.certain]
    total = int(counts.sum())
    if not total or len(counts) < 2:
        return
    expected = row.share * total
    top, chance = int(counts[0]), float(row.share[0])
    what = f"its top token {int(row.certain[0])} was chosen {top} times in {total}"
    yield either_side(top, total, chance, NOISE_STEP), f"{what}, expected {_count(chance * total)}"
    missing = torch.where(counts == 0, expected, 0.0)
    rank = int(missing.argmax())
    surely = max(0.0, float(missing[rank]) - NOISE_STEP * total)
    p_value = min(1.0, math.exp(-surely) * len(counts))
    what = f"token {int(row.certain[rank])} was never chosen"
    yield p_value, f"{what}, expected {_count(float(missing[rank]))} times in {total}"
    yield from _tails(row, counts, total)
    in_order = row.certain.argsort()
    for name, order, bins in (
        ("one by one", None, FINE),
        ("by probability", None, COARSE),
        ("by index", in_order, COARSE),
    ):
        seen = (counts, expected) if order is None else (counts[order], expected[order])
        p_value, count = _binned(*seen, max(LEAST_EXPECTED, total / bins), NOISE_STEP * total)
        yield p_value, f"the frequencies of its tokens {name} ({count} bins) are wrong"


def _tails(row: _Row, counts: torch.Tensor, total: int) -> Iterator[tuple[float, str]]:
    """Tests of the least probable tokens that share a half of all draws, a quarter, and so on.

    Bins tell less of them: what is missing in a thousandth of the draws is one bin of the finest.
    """
    shares, seen = row.share.flip(0).cumsum(0), counts.flip(0).cumsum(0)
    share = 0.5
    while share * total >= LEAST_OF_TAIL:
        number = int(torch.searchsorted(shares, share, right=True))
        share /= 2
        if number == 0 or float(shares[number - 1]) * total < LEAST_OF_TAIL:
            return
        times, chance = int(seen[number - 1]), float(shares[number - 1])
        what = f"its {number} least probable tokens were chosen {times} times in {total}"
        p_value = either_side(times, total, chance, number * NOISE_STEP)
        yield p_value, f"{what}, expected {_count(chance * total)}"


def _binned(
    counts: torch.Tensor, expected: torch.Tensor, least: float, slack: float
) -> tuple[float, int]:
    """The G-test's p-value over merged bins, and how many there are.

    What is expected of each token is known to within ``slack``.
    """
    bins = bins_of(expected, least)
    number = int(bins[-1]) + 1
    sums = [torch.bincount(bins, weights=x.double(), minlength=number) for x in (counts, expected)]
    return g_test(sums[0], sums[1], torch.bincount(bins, minlength=number) * slack), number


def _open_tokens(row: _Row) -> Iterator[tuple[float, str]]:
    """Tests of the open tokens: their share is within its limits, and none has too much of it."""
    if not len(row.open):
        return
    seen = row.total - int(row.counts[row.certain].sum())
    low, high = row.least / (row.mass + row.least), row.most / (row.mass + row.most)
    what = f"tokens at the limit were chosen {seen} times in {row.total}"
    yield at_most(seen, row.total, low), f"{what}, expected at least {_count(low * row.total)}"
    yield at_least(seen, row.total, high), f"{what}, expected at most {_count(high * row.total)}"
    token = int(row.open[row.counts[row.open].argmax()])
    chance, times = _most_of(row, float(row.probs[token])), int(row.counts[token])
    p_value = min(1.0, at_least(times, row.total, chance) * len(row.open))
    what = f"token {token}, at the limit, was chosen {times} times in {row.total}"
    yield p_value, f"{what}, expected at most {_count(chance * row.total)}"


def _pairs(draws: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Pairs of independent draws, from neighbouring calls or rows; each draw is in one pair."""
    calls, copies = (n // 2 * 2 for n in draws.shape)
    yield "from one call to the next", draws[0:calls:2].flatten(), draws[1:calls:2].flatten()
    yield "from one row to the next", draws[:, 0:copies:2].flatten(), draws[:, 1:copies:2].flatten()


def _repeats(row: _Row) -> Iterator[tuple[float, str, bool]]:
    """Tests how often a pair has one token: expected is the sum of squared probabilities.

    The last value says whether nearly all pairs do.
    """
    chance = float((row.share**2).sum()) * (row.mass / (row.mass + row.least)) ** 2
    if len(row.open):
        largest = _most_of(row, float(row.probs[row.open].max()))
        chance += largest * row.most / (row.mass + row.most)
    chance = min(1.0, chance)
    for where, first, second in _pairs(row.draws):
        same = int((first == second).sum())
        what = f"{same} of {len(first)} draws repeat {where}"
        p_value = at_least(same, len(first), chance)
        yield p_value, f"{what}, expected {_count(chance * len(first))}", same > 0.95 * len(first)


def _most_of(row: _Row, probability: float) -> float:
    """The largest share that an open token may have: with as few others as possible."""
    return probability / (row.mass + max(row.least, probability))


def _runs(row: _Row) -> Iterator[tuple[float, str]]:
    """Tests pairs of certain tokens, in two halves by index: half of the pairs share one."""
    if len(row.certain) < 2:
        return
    half = torch.zeros(len(row.probs), dtype=torch.int8, device=row.probs.device)
    in_order = row.certain.argsort()
    ordered = row.share[in_order]
    second = ordered.cumsum(0) - ordered / 2 > 0.5
    half[row.certain[in_order]] = torch.where(second, 2, 1).to(torch.int8)
    part = float(ordered[second].sum())
    for where, a, b in _pairs(half[row.draws]):
        both = (a > 0) & (b > 0)
        pairs, same = int(both.sum()), int((both & (a == b)).sum())
        chance = part**2 + (1 - part) ** 2
        what = f"{same} of {pairs} neighbours {where} are in the same half of the vocabulary"
        yield either_side(same, pairs, chance), f"{what}, expected {_count(chance * pairs)}"
