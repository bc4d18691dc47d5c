"""What may be chosen is exact; a sampler that is wrong is found, one that is right is not."""

import math

import pytest
import torch

from pytest_fib.verdict import (
    SamplingTest,
    hypothesis_tests as stats,
    judge_ranks,
    judge_samples,
    plan_sampling,
    ranks,
    verdict_of,
)

VOCABULARY = 128_256
COPIES, CALLS = 50_000, 4


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def rows(*probs, dtype=torch.float32):
    return torch.tensor(probs, dtype=dtype)


def judged(draws, distribution, **more):
    """The verdict on the draws of an output that is right by all else."""
    return judge_samples(verdict_of([]), "samples", draws, distribution, **more)


def allowed(probs, **limits):
    return [row.nonzero()[:, 0].tolist() for row in SamplingTest(probs, **limits).allowed()]


# ---- the support ----


def test_without_limits_every_token_with_a_probability_may_be_chosen():
    assert allowed(rows([0.5, 0.0, 0.3, 0.2])) == [[0, 2, 3]]


@pytest.mark.parametrize(
    ("k", "tokens"), [(1, [1]), (2, [1, 3]), (3, [0, 1, 3]), (4, [0, 1, 2, 3]), (0, [0, 1, 2, 3])]
)
def test_top_k_keeps_the_k_most_probable(k, tokens):
    assert allowed(rows([0.2, 0.4, 0.1, 0.3]), top_k=k) == [tokens]


def test_tokens_as_probable_as_the_last_of_top_k_are_all_allowed():
    assert allowed(rows([0.2, 0.3, 0.2, 0.2, 0.1]), top_k=2) == [[0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("p", "tokens"),
    [
        (0.0, [1]),
        (0.3, [1]),
        (0.45, [1, 3]),
        (0.65, [1, 3]),
        (0.75, [0, 1, 3]),
        (1.0, [0, 1, 2, 3]),
    ],
)
def test_top_p_keeps_the_fewest_that_reach_p(p, tokens):
    assert allowed(rows([0.2, 0.4, 0.1, 0.3]), top_p=p) == [tokens]


def test_a_token_that_rounding_may_add_to_top_p_is_allowed():
    assert allowed(rows([0.2, 0.4, 0.1, 0.3]), top_p=0.7) == [[0, 1, 3]]
    assert allowed(rows([0.2, 0.4, 0.1, 0.3]), top_p=0.7 + 1e-4) == [[0, 1, 3]]
    assert allowed(rows([0.2, 0.4, 0.1, 0.3]), top_p=0.7 - 1e-4) == [[1, 3]]


def test_tokens_as_probable_as_the_last_of_top_p_are_all_allowed():
    assert allowed(rows([0.1, 0.3, 0.2, 0.2, 0.2]), top_p=0.4) == [[1, 2, 3, 4]]


def test_top_p_is_of_what_top_k_leaves_renormalised():
    probs = rows([0.4, 0.3, 0.2, 0.1])
    # Of the two, 4/7 and 3/7 remain: the first alone reaches 0.55, but not 0.6.
    assert allowed(probs, top_k=2, top_p=0.55) == [[0]]
    assert allowed(probs, top_k=2, top_p=0.6) == [[0, 1]]
    assert allowed(probs, top_p=0.55) == [[0, 1]]


@pytest.mark.parametrize(("m", "tokens"), [(0.0, [0, 1, 2]), (0.5, [0, 1]), (0.6, [0]), (1.0, [0])])
def test_min_p_keeps_tokens_by_the_most_probable_one(m, tokens):
    assert allowed(rows([0.5, 0.25, 0.125, 0.0]), min_p=m) == [tokens]


def test_each_row_has_its_own_limits():
    probs = rows([0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
    assert allowed(probs, top_k=torch.tensor([1, 2], dtype=torch.int32)) == [[0], [1, 2]]


def test_a_row_with_nothing_to_choose_from_allows_all():
    assert allowed(rows([0.0, 0.0], [math.nan, 1.0], [0.0, 1.0])) == [[0, 1], [0, 1], [1]]


def test_the_support_is_that_of_a_plain_reference():
    probs = (torch.randn(64, 300, generator=seeded(1)) * 3).softmax(-1)
    top_k = torch.randint(1, 300, (64,), generator=seeded(2))
    top_p = torch.rand(64, generator=seeded(3))
    allowed = SamplingTest(probs, top_k, top_p).allowed()
    for i in range(64):
        values, order = probs[i].double().sort(descending=True)
        left = values[: top_k[i]] / values[: top_k[i]].sum()
        left = left[left.cumsum(0) - left < top_p[i]]
        assert allowed[i].sum() == len(left)
        assert allowed[i][order[: len(left)]].all()


def test_limits_that_cut_between_equals_leave_them_open():
    support = SamplingTest(rows([0.4, 0.2, 0.2, 0.1, 0.1]), top_k=2).support
    facts = [round(float(fact), 6) for fact in vars(support).values()]
    assert facts == [0.2, 0.4, 0.4, 0.2, 0.4]


def test_samples_outside_the_support_are_named():
    test = SamplingTest(rows([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]), top_k=2)
    assert test.violations(torch.tensor([0, 1])) == []
    assert test.violations(torch.tensor([[0, 2], [3, -1]], dtype=torch.int32)) == [
        "row 0 chose token 2, whose probability is 0.2: it should have been left out",
        "row 1 chose 3, which is no token",
        "row 1 chose -1, which is no token",
    ]


def test_inputs_are_known_by_their_names():
    probs = rows([0.5, 0.3, 0.2])
    test = SamplingTest.of({"probs": probs, "top_p": torch.tensor([0.4]), "other": 3})
    assert test.allowed().tolist() == [[True, False, False]]


# ---- statistics ----


@pytest.mark.parametrize(
    ("statistic", "freedom", "tail"),
    # Abramowitz & Stegun, table 26.8: the usual critical values.
    [(3.841459, 1, 0.05), (18.307038, 10, 0.05), (29.588298, 10, 0.001), (124.342113, 100, 0.05)],
)
def test_chi_squared_tails_are_those_of_the_tables(statistic, freedom, tail):
    assert stats.chi_squared_tail(statistic, freedom) == pytest.approx(tail, rel=1e-5)
    assert stats.chi_squared_tail(2 * 30.0, 2) == pytest.approx(math.exp(-30), rel=1e-10)


def test_the_g_test_of_mendels_peas():
    # Against 9:3:3:1; textbooks have G = 0.475 and three degrees of freedom.
    counts = torch.tensor([315, 108, 101, 32])
    expected = torch.tensor([9, 3, 3, 1]) * 556 / 16
    g = 2 * sum(
        c * math.log(c / e) for c, e in zip(counts.tolist(), expected.tolist(), strict=True)
    )
    assert g == pytest.approx(0.4754, abs=1e-4)
    assert stats.g_test(counts, expected) == pytest.approx(stats.chi_squared_tail(g, 3), rel=1e-3)


def test_a_g_test_of_what_is_only_nearly_known():
    expected = torch.tensor([100.0, 200.0, 300.0])
    exact = stats.g_test(torch.tensor([70, 200, 330]), expected)
    nearly = stats.g_test(torch.tensor([70, 200, 330]), expected, torch.tensor([10.0, 0.0, 10.0]))
    assert exact < 0.01 < nearly < 0.1
    assert stats.g_test(torch.tensor([70, 200, 330]), expected, 30.0) == 1
    assert stats.g_test(torch.tensor([0, 240, 360]), expected, 100.0) == 1
    assert stats.g_test(torch.tensor([0, 240, 360]), expected, 50.0) < 1e-9


def test_a_chance_that_is_only_nearly_known():
    assert stats.either_side(60, 100, 0.4, 0.1) == stats.either_side(60, 100, 0.5) < 1
    assert stats.either_side(20, 100, 0.4, 0.1) == stats.either_side(20, 100, 0.3) < 1
    assert stats.either_side(45, 100, 0.4, 0.1) == 1
    assert stats.either_side(0, 100, 0.05, 0.1) == stats.either_side(100, 100, 0.95, 0.1) == 1


def test_bounds_on_binomial_tails_are_above_them():
    exact = sum(math.comb(40, c) * 0.3**c * 0.7 ** (40 - c) for c in range(24, 41))
    assert exact < stats.at_least(24, 40, 0.3) < 12 * exact
    assert (
        stats.at_least(12, 40, 0.3)
        == stats.at_most(12, 40, 0.3)
        == stats.either_side(12, 40, 0.3)
        == 1
    )
    assert stats.at_most(0, 100, 0.1) == pytest.approx(0.9**100)
    assert stats.at_least(3, 3, 0.0) == 0
    assert stats.either_side(0, 0, 0.5) == 1


def test_holm_rejects_in_order_until_one_stands():
    assert stats.holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert stats.holm([0.01, 0.02, 0.02], 0.05) == [True, True, True]
    assert stats.holm([0.02, 0.001], 0.002) == [False, True]
    assert stats.holm([], 0.05) == []


@pytest.mark.parametrize("descending", [True, False])
def test_bins_are_neighbours_and_expect_enough(descending):
    expected = torch.randn(5000, generator=seeded(1)).mul(3).softmax(0).double() * 20_000
    expected = expected.sort(descending=True).values if descending else expected
    bins = stats.bins_of(expected, stats.LEAST_EXPECTED)
    sums = torch.bincount(bins, weights=expected)
    assert (bins.diff() >= 0).all()
    assert bins.diff().max() == 1
    assert sums.min() >= stats.LEAST_EXPECTED
    assert len(sums) > 200


def test_too_little_is_one_bin():
    assert stats.bins_of(torch.full((5,), 3.0, dtype=torch.float64), 10.0).tolist() == [0] * 5


# ---- samplers ----


def distribution(probs, top_k, top_p, renormalise=True):
    values, order = probs.sort(descending=True)
    values = values.double()
    values[top_k:] = 0
    values = values / values.sum() if renormalise else values
    values = torch.where(values.cumsum(0) - values < top_p, values, 0.0)
    return torch.zeros(len(probs), dtype=torch.float64).scatter_(0, order, values)


def drawn(weights, generator, uniform=None):
    """Draws [calls, copies] by inverting the distribution function."""
    uniform = (
        torch.rand(CALLS, COPIES, generator=generator, dtype=torch.float64)
        if uniform is None
        else uniform
    )
    sums = weights.cumsum(0)
    return torch.searchsorted(sums, uniform * sums[-1], right=True).clamp(max=len(weights) - 1)


def never_its_top_token(probs, k, p, generator):
    weights = distribution(probs, k, p)
    weights[weights.argmax()] = 0
    return drawn(weights, generator)


def ignores_top_p(probs, k, p, generator):
    return drawn(distribution(probs, k, 1.0), generator)


def renormalises_wrongly(probs, k, p, generator):
    """What the limits took away goes to the last token that is left."""
    weights = torch.where(distribution(probs, k, p) > 0, probs.double(), 0.0)
    weights[weights.nonzero()[-1]] += 1 - weights.sum()
    return drawn(weights, generator)


def every_allowed_token_alike(probs, k, p, generator):
    return drawn((distribution(probs, k, p) > 0).double(), generator)


def a_tenth_too_warm(probs, k, p, generator):
    return drawn(distribution(probs, k, p) ** 0.9, generator)


def one_seed_for_all_calls(probs, k, p, generator):
    return drawn(distribution(probs, k, p), generator)[:1].expand(CALLS, COPIES)


def one_seed_for_all_rows(probs, k, p, generator):
    return drawn(distribution(probs, k, p), generator)[:, :1].expand(CALLS, COPIES)


def one_seed_for_two_rows(probs, k, p, generator):
    return drawn(distribution(probs, k, p), generator)[:, ::2].repeat_interleave(2, dim=1)


def a_sequence_too_even(probs, k, p, generator):
    steps = torch.arange(CALLS * COPIES, dtype=torch.float64).view(CALLS, COPIES)
    return drawn(distribution(probs, k, p), generator, steps * 0.6180339887498949 % 1)


@pytest.mark.parametrize("limits", [(1000, 0.95), (50, 0.9), (VOCABULARY, 0.8)])
@pytest.mark.parametrize(
    "sampler",
    [
        never_its_top_token,
        ignores_top_p,
        renormalises_wrongly,
        every_allowed_token_alike,
        a_tenth_too_warm,
        one_seed_for_all_calls,
        one_seed_for_all_rows,
        one_seed_for_two_rows,
        a_sequence_too_even,
    ],
)
def test_a_wrong_sampler_is_found_within_200_000_draws(sampler, limits):
    probs = (torch.randn(VOCABULARY, generator=seeded(11)) * 3).softmax(0)
    verdict = judged(
        sampler(probs, *limits, seeded(5))[None],
        SamplingTest(probs[None], *limits),
        workloads=1000,
    )
    assert not verdict.passed
    assert verdict.diagnosis.sentence.startswith("samples: row 0")


@pytest.mark.parametrize("limits", [(VOCABULARY, 0.8), (VOCABULARY, 1.0)])
def test_a_sampler_that_leaves_out_what_is_rare_is_found(limits):
    """All that it gets wrong are 3 draws in 10,000, so that its largest errors are as rare."""
    probs = torch.randn(VOCABULARY, generator=seeded(11)).softmax(0)
    weights = distribution(probs, *limits)
    ascending, order = weights.sort()
    rare = order[(ascending > 0) & (ascending.cumsum(0) <= 3e-4)]
    assert len(rare) > 1
    weights[rare] = 0
    verdict = judged(drawn(weights, seeded(5))[None], SamplingTest(probs[None], *limits))
    assert not verdict.passed
    assert "least probable tokens were chosen" in verdict.diagnosis.sentence


def with_float32_noise(weights):
    """The shares of tokens chosen by the largest weight over exponential noise, as on CUDA.

    Measured there, the noise takes two values of 1 and 1.15 steps of 2**-24, 1.475 and 1.012
    steps of probability each, and then one in each step. The race of all others ends at a time E,
    exponentially distributed, and a token is chosen if its noise is below E times its weight.
    """
    steps = weights / weights.sum() * 2.0**24
    others = (-2.16 / steps).exp() / -(-1 / steps).expm1()
    chosen = 1.475 * (-1 / steps).exp() + 1.012 * (-1.1455 / steps).exp() + others
    return torch.where(steps > 0, chosen, 0.0)


@pytest.mark.parametrize("spread", [1, 2, 3, 4])
def test_noise_in_float32_is_fine_enough(spread):
    """Such samplers never choose the least probable tokens, as ``torch.multinomial`` doesn't."""
    probs = (torch.randn(VOCABULARY, generator=seeded(12)) * spread).softmax(0)
    weights = with_float32_noise(probs.double())
    moved = (weights / 2**24 - probs).abs().sum()
    assert moved > 5e-4
    verdict = judged(drawn(weights, seeded(6))[None], SamplingTest(probs[None]), alpha=1e-3)
    assert verdict.passed, verdict.diagnosis


def test_rare_tokens_may_not_be_chosen_more_often_than_noise_explains():
    probs = (torch.randn(VOCABULARY, generator=seeded(12)) * 3).softmax(0)
    weights = probs.double()
    weights[probs < 2.0**-21] *= 4
    verdict = judged(drawn(weights, seeded(6))[None], SamplingTest(probs[None]))
    assert not verdict.passed
    assert "least probable tokens were chosen" in verdict.diagnosis.sentence


@pytest.mark.parametrize("limits", [(1000, 0.95), (50, 0.9), (VOCABULARY, 0.8), (VOCABULARY, 1.0)])
def test_a_right_sampler_passes_at_a_large_vocabulary(limits):
    probs = (torch.randn(VOCABULARY, generator=seeded(12)) * 3).softmax(0)
    draws = drawn(distribution(probs, *limits), seeded(6))[None]
    verdict = judged(draws, SamplingTest(probs[None], *limits), alpha=1e-3)
    assert verdict.passed, verdict.diagnosis
    assert verdict.correctness.extra["tests"] >= 8


def test_right_samplers_fail_no_more_often_than_alpha():
    probs = (torch.randn(1, 500, generator=seeded(1)) * 2).softmax(-1)
    test, generator = SamplingTest(probs), seeded(9)
    failed = sum(
        not judged(
            torch.multinomial(probs[0], 4000, replacement=True, generator=generator).view(1, 4, -1),
            test,
            alpha=0.05,
        ).passed
        for _ in range(200)
    )
    assert failed <= 0.05 * 200 + 10


@pytest.mark.parametrize("chosen", [2, 3, 5])
def test_of_equals_at_the_limit_as_many_may_stay_as_are_needed_or_more(chosen):
    probs = rows([0.3, 0.2] + [0.1] * 5)
    weights = probs[0].clone()
    weights[2 + chosen :] = 0
    draws = torch.multinomial(weights, 40_000, replacement=True, generator=seeded(3))
    test = SamplingTest(probs, top_k=4)
    assert judged(draws.view(1, 4, -1), test).passed


@pytest.mark.parametrize(
    "weights", [[3, 2, 1, 0, 0, 0, 0], [3, 2, 0, 0, 0, 0, 0], [3, 2] + [2] * 5]
)
def test_of_equals_at_the_limit_fewer_than_are_needed_are_wrong(weights):
    probs = rows([0.3, 0.2] + [0.1] * 5)
    draws = torch.multinomial(torch.tensor(weights).float(), 40_000, True, generator=seeded(3))
    verdict = judged(draws.view(1, 4, -1), SamplingTest(probs, top_k=4))
    assert not verdict.passed
    assert "at the limit" in verdict.diagnosis.sentence


def test_one_row_that_may_choose_one_token_passes():
    draws = torch.ones(1, 4, 100, dtype=torch.int32)
    assert judged(draws, SamplingTest(rows([0.1, 0.9]), top_k=1)).passed


def test_a_verdict_is_the_same_each_time():
    probs = torch.rand(2, 100, generator=seeded(1)).softmax(-1)
    draws = torch.randint(0, 100, (2, 4, 5000), generator=seeded(2))
    first, second = (judged(draws, SamplingTest(probs)) for _ in range(2))
    assert first == second
    assert not first.passed
    assert len(first.diagnosis.details) > 1


# ---- the plan ----


def test_a_plan_repeats_rows_within_its_limits():
    plan = plan_sampling(16, 4 * VOCABULARY, rows=2, draws=200_000, max_batch=1024)
    assert (plan.rows, plan.copies, plan.batch) == ((0, 15), 512, 1024)
    assert plan.calls % 2 == 0
    assert 200_000 <= plan.draws < 202_000


def test_a_plan_has_two_calls_at_least():
    plan = plan_sampling(1, 4, draws=1000)
    assert (plan.rows, plan.copies, plan.calls) == ((0,), 500, 2)


def test_a_plan_gives_each_row_its_draws():
    plan = plan_sampling(5, 8, rows=3, draws=8, max_batch=6)
    inputs = plan.expand(torch.arange(5) * 10)
    assert inputs.tolist() == [0, 0, 20, 20, 40, 40]
    draws = plan.arrange([inputs + call for call in range(plan.calls)])
    assert draws.shape == (3, plan.calls, plan.copies)
    assert draws[1].tolist() == [[20 + call] * 2 for call in range(plan.calls)]


def test_draws_of_selected_rows_are_judged_by_these():
    probs = (torch.randn(6, 50, generator=seeded(1)) * 2).softmax(-1)
    plan = plan_sampling(6, 200, rows=2, draws=20_000)
    calls = [
        torch.multinomial(plan.expand(probs), 1, generator=seeded(call))[:, 0]
        for call in range(plan.calls)
    ]
    test = SamplingTest(probs)
    assert judged(plan.arrange(calls), test.select(plan.rows)).passed
    assert not judged(plan.arrange(calls), test.select((1, 2))).passed


def test_rows_in_which_most_hangs_on_the_limit_are_drawn_from():
    probs = torch.full((40, 100), 0.01)
    top_k = torch.full((40,), 100)
    top_k[17], top_k[23] = 2, 3
    top_k[0] = 1  # where a token can't be missing
    probs = probs + torch.linspace(0, 1e-3, 100)
    assert SamplingTest(probs, top_k).most_informative_rows(4) == (0, 13, 17, 23)
    assert SamplingTest(probs[:2], top_k[:2]).most_informative_rows(4) == (0, 1)


# ---- each draw from a row of its own ----


def drawn_once(choose, count=256):
    """The verdict on one draw each of many rows."""
    probs = torch.rand(count, 50, generator=seeded(0)).pow(4)
    test = SamplingTest(probs / probs.sum(1, keepdim=True), top_p=0.9)
    kept = torch.where(test.allowed(), test.probs, 0.0)
    return judge_ranks(verdict_of([]), "samples", ranks(choose(kept), test))


def test_right_draws_from_many_rows_pass():
    assert drawn_once(lambda kept: torch.multinomial(kept, 1, generator=seeded(1))[:, 0]).passed


@pytest.mark.parametrize(
    ("choose", "by"),
    [
        (lambda kept: kept.argmax(1), "probability"),
        (lambda kept: kept.gt(0).int().argmax(1), "index"),
        (lambda kept: (kept.cumsum(1) < 0.5 * kept.sum(1, keepdim=True)).sum(1), "index"),
    ],
    ids=["the most probable", "the first", "the median"],
)
def test_draws_from_many_rows_that_are_not_random_fail(choose, by):
    verdict = drawn_once(choose)
    assert verdict.diagnosis.pattern == "wrong distribution"
    assert f"of their distributions, by {by}" in verdict.diagnosis.sentence


def test_a_few_draws_say_nothing():
    assert drawn_once(lambda kept: kept.argmax(1), count=12).passed
