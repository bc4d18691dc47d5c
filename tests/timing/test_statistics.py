"""What is concluded from block times whose truth is known, since they are drawn here."""

from collections import Counter
from math import log

import numpy as np
import pytest

from pytest_fib.timing import Estimate, Timings, Turn

TRIALS = 300
TRUE = 1000.0


@pytest.fixture
def draw():
    """Samples of one side: by so much slower, with a spread of groups and one of blocks."""
    source = np.random.default_rng(1)

    def draw(slower=0.0, placement=0.01, noise=0.01, groups=8, rounds=10):
        by_group = source.normal(0, placement, groups)
        return TRUE * np.exp(slower + by_group + source.normal(0, noise, (rounds, groups)))

    return draw


def timings(candidate, reference, device="cuda"):
    """What these samples say."""
    turns = [[Turn(ns, ns, ns) for ns in side.sum(1)] for side in (candidate, reference)]
    return Timings(device, candidate, reference, 0.005, 0.0, *turns)


def latency_of(samples):
    return timings(samples, samples).latency


def speedup_of(candidate, reference):
    return timings(candidate, reference).speedup


def floor_of(candidate, reference, device):
    return timings(candidate, reference, device).floor


@pytest.mark.parametrize(("groups", "rounds"), [(8, 10), (4, 30), (2, 10)])
def test_intervals_hold_the_truth_as_often_as_they_say(draw, groups, rounds):
    latencies = speedups = 0
    for _ in range(TRIALS):
        candidate, reference = (draw(groups=groups, rounds=rounds) for _ in range(2))
        latency, speedup = latency_of(candidate), speedup_of(candidate, reference)
        latencies += latency.low <= TRUE <= latency.high
        speedups += speedup.low <= 1 <= speedup.high
    assert latencies >= 0.9 * TRIALS
    assert speedups >= 0.9 * TRIALS


def test_more_rounds_on_the_same_placements_make_nothing_certain(draw):
    """What many rounds leave of the noise is little; how placements differ, they don't tell."""
    widths = [
        np.median([latency_of(draw(noise=0.001, rounds=rounds)).half_width for _ in range(50)])
        for rounds in (10, 200)
    ]
    assert widths[1] > 0.8 * widths[0]


def test_equal_kernels_are_rarely_called_different(draw):
    found = Counter(timings(draw(), draw()).comparison for _ in range(TRIALS))
    assert found["FASTER"] + found["SLOWER"] <= 0.05 * TRIALS


@pytest.mark.parametrize(("slower", "said"), [(0.02, "SLOWER"), (-0.02, "FASTER")])
def test_two_percent_are_seen_where_placements_differ_by_half_a_percent(draw, slower, said):
    pairs = ((draw(slower, 0.005), draw(0.0, 0.005)) for _ in range(TRIALS))
    found = Counter(timings(*pair).comparison for pair in pairs)
    assert found[said] >= 0.95 * TRIALS


def test_values_are_geometric_means_over_placements():
    candidate = np.tile([100.0, 200.0, 400.0], (8, 1))
    reference = 2 * candidate
    assert latency_of(candidate).value == pytest.approx(200)
    found = speedup_of(candidate, reference)
    assert (found.value, found.low, found.high) == pytest.approx((2, 2, 2))
    assert found.half_width == pytest.approx(0)


def test_a_stray_block_changes_next_to_nothing(draw):
    quiet = draw(noise=0.001, placement=0.001)
    stray = quiet.copy()
    stray[3] *= 50
    assert latency_of(stray).value == pytest.approx(latency_of(quiet).value, rel=2e-3)
    assert speedup_of(stray, quiet).value == pytest.approx(1, rel=2e-3)


def test_the_same_samples_give_the_same_interval(draw):
    samples = draw()
    assert latency_of(samples) == latency_of(samples)


def test_the_floor_is_what_even_and_odd_rounds_differ_by():
    steady = np.full((10, 4), 100.0)
    restless = steady.copy()
    restless[1::2] *= 1.03
    assert floor_of(steady, steady, "cuda") == 0.005
    assert floor_of(steady, steady, "cpu") == 0.03
    assert floor_of(steady, restless, "cuda") == pytest.approx(log(1.03))
    assert floor_of(restless, steady, "cuda") == pytest.approx(log(1.03))
    # One round says nothing of it.
    assert floor_of(restless[:1], steady[:1], "cuda") == 0.005


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (1.02, 1.04, "FASTER"),
        (0.96, 0.98, "SLOWER"),
        (0.995, 1.005, "SAME"),
        (1.001, 1.015, "SAME"),  # beyond no doubt, and of no importance
        (1.005, 1.04, "UNCLEAR"),
        (0.9, 1.1, "UNCLEAR"),
        (0.97, 0.995, "UNCLEAR"),
    ],
)
def test_a_speedup_is_called_by_its_interval_and_the_floor(low, high, said):
    found = timings(np.ones((1, 1)), np.ones((1, 1)))
    vars(found).update(speedup=Estimate((low + high) / 2, low, high), floor=0.01)
    assert found.comparison == said


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
def test_few_samples_give_an_interval_around_the_value(draw, rounds, groups):
    candidate, reference = (draw(groups=groups, rounds=rounds) for _ in range(2))
    for found in (latency_of(candidate), speedup_of(candidate, reference)):
        assert 0 < found.low <= found.value <= found.high < np.inf
        assert found.half_width >= 0
    assert timings(candidate, reference).comparison in {"FASTER", "SLOWER", "SAME", "UNCLEAR"}


def test_two_placements_that_differ_leave_much_open():
    samples = np.tile([100.0, 101.0], (20, 1))
    found = latency_of(samples)
    assert found.low < 98
    assert found.high > 103
