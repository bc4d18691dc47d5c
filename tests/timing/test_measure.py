"""How many rounds are run, of what, and when that ends: on sides that claim what they are told."""

from dataclasses import dataclass
from itertools import cycle

import numpy as np
import pytest

from pytest_fib.timing import (
    GROUPS,
    PRECISIONS,
    Turn,
    calls_per_block,
    placements,
    time_both_sides,
    time_rounds,
)

#: The most that timing both sides takes, and what a block is to take, in nanoseconds.
BUDGETS = {"cpu": 300e6, "cuda": 50e6}
BLOCK_NS = {"cpu": 2e6, "cuda": 100e3}
MOST_CALLS = {"cpu": 1 << 20, "cuda": 64}
#: Rounds in a request, in turn, and where calls are long; and the most of warming up.
TURNS, SHORT_TURNS, MOST_WARM = (1, 4), (1, 2), 8
CLOCK = "pytest_fib.timing._measure.perf_counter_ns"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The judge's clock stands, unless a test has it go."""
    monkeypatch.setattr(CLOCK, lambda: 0)


@dataclass
class Side:
    """Claims ``ns`` in turn, ``noise`` of it by block; notes what it is asked.

    Groups take longer by ``placed``, as logarithms.
    """

    name: str
    ns: list[float]
    asked: list[tuple[str, int]]
    groups: int = 4
    noise: float = 1e-4
    calls_per_block: int = 1
    flush_ns: float = 0.0

    def __post_init__(self):
        self._next, self.placed = cycle(self.ns), np.zeros(self.groups)
        self._random = np.random.default_rng(list(self.name.encode()))

    def run(self, rounds):
        self.asked.append((self.name, rounds))
        blocks = np.repeat([next(self._next) for _ in range(rounds)], self.groups)
        placed = np.tile(self.placed, rounds)
        return list(blocks * np.exp(self._random.normal(placed, self.noise, len(blocks))))


@pytest.fixture
def pair():
    """Two sides that note in one list what they are asked."""

    def pair(candidate, reference, **facts):
        asked = []
        sides = {"candidate": candidate, "reference": reference}
        return tuple(Side(name, ns, asked, **facts) for name, ns in sides.items())

    return pair


def rounds_of(asked, name="candidate"):
    return [rounds for side, rounds in asked if side == name]


def test_steady_times_end_after_one_turn(pair):
    sides = pair([1000.0], [2000.0], calls_per_block=100)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert rounds_of(sides[0].asked)[-2:] == list(TURNS)
    assert len(found.candidate) == len(found.reference) == sum(TURNS)
    assert found.candidate.shape == (sum(TURNS), 4)
    assert not found.noisy
    assert found.speedup.value == pytest.approx(2, rel=1e-3)
    assert found.latency.value == pytest.approx(1000, rel=1e-3)
    assert found.reference_latency.value == pytest.approx(2000, rel=1e-3)
    assert found.comparison == "FASTER"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_does_not_settle_ends_with_the_budget_and_is_noisy(pair, precision):
    sides = pair([1000.0], [1000.0], groups=2, noise=0.5, calls_per_block=1000)
    found = time_both_sides(*sides, device="cpu", precision=precision, seed=0)
    assert found.noisy
    assert 0.7 * BUDGETS["cpu"] < found.spent_ns < 1.1 * BUDGETS["cpu"]  # a turn takes a tenth
    assert max(found.latency.half_width, found.speedup.half_width) > PRECISIONS[precision]


def test_a_looser_precision_is_reached_sooner(pair):
    counts = {}
    for precision in ("quick", "strict"):
        sides = pair([1000.0], [1000.0], groups=8, noise=0.008)
        found = time_both_sides(*sides, device="cpu", precision=precision, seed=0)
        assert not found.noisy
        counts[precision] = len(found.candidate)
    assert counts["quick"] < counts["strict"]


def test_what_placements_differ_by_is_not_waited_for(pair):
    """More rounds would only tell more exactly how far they differ."""
    sides = pair([1000.0], [1000.0], groups=8)
    for side, seed in zip(sides, (1, 2), strict=True):
        side.placed = np.random.default_rng(seed).normal(0, 0.03, 8)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert found.noisy
    assert len(found.candidate) == sum(TURNS)


def test_warming_up_goes_on_until_two_rounds_agree_and_counts_for_nothing(pair):
    sides = pair([5000.0, 3000.0, 1000.0, 1001.0, *[1000.0] * 500], [1000.0], calls_per_block=100)
    found = time_both_sides(*sides, device="cpu", seed=0)
    asked = rounds_of(sides[0].asked)
    assert asked == [1, 1, 1, 1, *TURNS]
    assert found.candidate.max() < 1002
    assert len(found.turns) == len(TURNS)


def test_warming_up_goes_on_until_the_clock_is_steady(pair):
    sides = pair([1000.0], [1000.0], calls_per_block=100)
    readings = iter([False, False, True])
    time_both_sides(*sides, device="cpu", steady=lambda: next(readings), seed=0)
    # The first round has none before it to agree with, so the clock isn't looked at.
    assert rounds_of(sides[0].asked) == [1, 1, 1, 1, *TURNS]


@pytest.mark.parametrize("steady", [False, True])
def test_warming_up_ends_at_last(pair, steady):
    times = [1000.0] if not steady else [1000.0, 2000.0]
    sides = pair(times, [1000.0], calls_per_block=100)
    time_both_sides(*sides, device="cpu", steady=lambda: steady, seed=0)
    assert rounds_of(sides[0].asked)[: MOST_WARM + 1] == [*[1] * MOST_WARM, TURNS[0]]


def test_long_calls_are_warmed_up_once_and_timed_in_short_turns(pair):
    long = BUDGETS["cpu"] / 4
    sides = pair([long], [long], groups=2)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert rounds_of(sides[0].asked) == [1, *SHORT_TURNS]
    assert found.spent_ns == pytest.approx(sum((1, *SHORT_TURNS)) * 4 * long, rel=1e-3)


def test_which_side_goes_first_is_random_and_both_do_as_much(pair):
    sides = pair([1000.0, 1300.0, 700.0], [1000.0], calls_per_block=200)
    time_both_sides(*sides, device="cpu", precision="strict", seed=0)
    asked = sides[0].asked
    firsts = [name for name, _ in asked[::2]]
    assert {"candidate", "reference"} == set(firsts)
    assert all({a[0], b[0]} == set(firsts) for a, b in zip(asked[::2], asked[1::2], strict=True))
    assert rounds_of(asked) == rounds_of(asked, "reference")


def test_another_seed_is_another_order(pair):
    orders = set()
    for seed in range(8):
        sides = pair([1000.0, 1300.0, 700.0], [1000.0], calls_per_block=200)
        time_both_sides(*sides, device="cpu", seed=seed)
        orders.add(tuple(name for name, _ in sides[0].asked))
    assert len(orders) > 1


def test_flushing_the_cache_counts_towards_the_budget(pair):
    sides = pair([1000.0], [1000.0], groups=2)
    sides[1].flush_ns = 5000.0
    found = time_both_sides(*sides, device="cuda", seed=0)
    rounds = sum(rounds_of(sides[0].asked))
    assert found.spent_ns == pytest.approx(rounds * 2 * (1000 + 6000), rel=1e-3)


def test_who_claims_that_no_time_passes_does_not_go_on_for_ever(pair, monkeypatch):
    """Times so short that they never add up to the budget, and that never settle."""
    now = iter(range(0, 1 << 62, 10**7))  # each look at the judge's clock is 10 ms later
    monkeypatch.setattr(CLOCK, lambda: next(now))
    sides = pair([1.0], [1000.0], groups=2, noise=2.0)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert found.noisy
    assert found.spent_ns > 0.5 * BUDGETS["cpu"]


def test_turns_have_the_judges_clock_beside_the_claim(pair, monkeypatch):
    now = iter([5_000, 9_000])
    monkeypatch.setattr(CLOCK, lambda: next(now))
    side, _ = pair([10.0, 20.0], [1.0], groups=1, noise=0, calls_per_block=7)
    samples, taken = time_rounds(side, 2)
    assert samples.tolist() == [[10.0], [20.0]]
    assert taken == Turn(rounds=2, wall_ns=4_000, claimed_ns=7 * 30.0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_block_is_a_power_of_two_calls_that_takes_about_what_it_should(device):
    for duration in np.geomspace(BLOCK_NS[device] / MOST_CALLS[device], BLOCK_NS[device], 23):
        [calls, same] = calls_per_block([duration, duration], device)
        assert calls == same
        assert calls & (calls - 1) == 0
        assert BLOCK_NS[device] / 1.5 <= calls * duration <= BLOCK_NS[device] * 1.5


def test_a_call_longer_than_a_block_is_one():
    assert calls_per_block([1e9, 1e8], "cuda") == [1, 1]


def test_sides_that_take_about_as_long_take_as_many_calls():
    durations = [2900.0, 2000.0]
    alone = [calls_per_block([duration] * 2, "cuda")[0] for duration in durations]
    assert alone[0] != alone[1]
    assert calls_per_block(durations, "cuda") == [alone[1]] * 2
    # And sides that don't, don't.
    [short, long] = calls_per_block([2000.0, 20_000.0], "cuda")
    assert short > long


def test_calls_of_a_block_are_limited():
    assert calls_per_block([0.5, 0.5], "cuda") == [MOST_CALLS["cuda"]] * 2
    assert calls_per_block([0.0, 1e4], "cpu") == [MOST_CALLS["cpu"], 256]
    assert calls_per_block([1000.0, 1000.0], "cuda", most=5) == [5, 5]


def test_there_are_as_many_placements_as_there_is_time_and_memory_for():
    assert placements([1e3, 1e3], "cuda", most=100) == GROUPS
    assert placements([1e3, 1e3], "cuda", most=3) == 3
    assert placements([1e9, 1e9], "cuda", most=100) == 2
    between = placements([BUDGETS["cpu"] / sum(TURNS) / 8] * 2, "cpu", most=100)
    assert between == 4
