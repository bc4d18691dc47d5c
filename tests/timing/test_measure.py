"""How many rounds are run, of what, and when that ends: on sides that claim what they are told."""

from dataclasses import dataclass, replace
from itertools import cycle
from random import Random

import numpy as np
import pytest

from pytest_fib.timing import (
    GROUPS,
    PRECISIONS,
    TimedBlocks,
    Timings,
    Turn,
    calls_per_block,
    is_slow,
    placements,
    random_place,
    time_both_sides,
    time_round,
)

#: The most that timing both sides takes, and what a block is to take, in nanoseconds.
BUDGETS = {"cpu": 300e6, "cuda": 50e6}
BLOCK_NS = {"cpu": 2e6, "cuda": 100e3}
MOST_CALLS = {"cpu": 256, "cuda": 64}
#: Rounds until the intervals are looked at, and where calls are long; the most of warming up.
ROUNDS, FEWEST_ROUNDS, MOST_WARM = 5, 3, 8


@dataclass
class Side:
    """Claims ``ns`` in turn, ``noise`` of it by block; notes that it is asked.

    Groups take longer by ``placed``, as logarithms.
    """

    name: str
    ns: list[float]
    asked: list[str]
    groups: int = 4
    noise: float = 1e-4
    calls_per_block: int = 1
    flush_ns: float = 0.0
    wall: float = 1.0  # by the judge's clock, of what it claims
    waited_ns: float = 0.0

    def __post_init__(self):
        self._next, self.placed = cycle(self.ns), np.zeros(self.groups)
        self._random = np.random.default_rng(list(self.name.encode()))

    def run(self):
        self.asked.append(self.name)
        samples = next(self._next) * np.exp(self._random.normal(self.placed, self.noise))
        blocks_ns = float(samples.sum()) * self.calls_per_block
        return TimedBlocks(tuple(samples), blocks_ns, self.wall * blocks_ns, self.waited_ns)


@pytest.fixture
def pair():
    """Two sides that note in one list what they are asked."""

    def pair(candidate, reference, **facts):
        asked = []
        sides = {"candidate": candidate, "reference": reference}
        return tuple(Side(name, ns, asked, **facts) for name, ns in sides.items())

    return pair


def test_steady_times_end_after_a_few_rounds(pair):
    sides = pair([1000.0], [2000.0], calls_per_block=100)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert found.candidate.shape == found.reference.shape == (ROUNDS, 4)
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
    assert 0.7 * BUDGETS["cpu"] < found.spent_ns < 1.1 * BUDGETS["cpu"]  # some rounds take a tenth
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
    assert len(found.candidate) == ROUNDS


def test_warming_up_goes_on_until_two_rounds_agree_and_only_these_count(pair):
    sides = pair([5000.0, 3000.0, 1000.0, 1001.0, *[1000.0] * 500], [1000.0], calls_per_block=100)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert sides[0].asked.count("candidate") == 2 + ROUNDS
    assert found.candidate.max() < 1002
    assert len(found.turns) == len(found.other_turns) == ROUNDS


def test_warming_up_goes_on_until_the_clock_is_steady(pair):
    sides = pair([1000.0], [1000.0], calls_per_block=100)
    readings = iter([False, False, True])
    time_both_sides(*sides, device="cpu", steady=lambda: next(readings), seed=0)
    # The first round has none before it to agree with, so the clock isn't looked at.
    assert sides[0].asked.count("candidate") == 2 + ROUNDS


@pytest.mark.parametrize("steady", [False, True])
def test_warming_up_ends_at_last(pair, steady):
    times = [1000.0] if not steady else [1000.0, 2000.0]
    sides = pair(times, [1000.0], calls_per_block=100)
    found = time_both_sides(*sides, device="cpu", steady=lambda: steady, seed=0)
    assert sides[0].asked.count("candidate") == MOST_WARM + len(found.candidate)


def test_long_calls_are_timed_in_fewer_rounds_of_which_none_is_dropped(pair):
    long = BUDGETS["cpu"] / 4
    sides = pair([long], [long], groups=2)
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert len(found.candidate) == FEWEST_ROUNDS
    assert sides[0].asked.count("candidate") == FEWEST_ROUNDS
    assert found.spent_ns == pytest.approx(FEWEST_ROUNDS * 4 * long, rel=1e-3)


def test_which_side_goes_first_is_random_and_both_do_as_much(pair):
    sides = pair([1000.0, 1300.0, 700.0], [1000.0], calls_per_block=200)
    time_both_sides(*sides, device="cpu", precision="strict", seed=0)
    asked = sides[0].asked
    assert {"candidate", "reference"} == {*asked[::2]}
    assert all(first != second for first, second in zip(asked[::2], asked[1::2], strict=True))


def test_both_sides_get_new_values_before_every_round(pair):
    sides = pair([1000.0], [1000.0], calls_per_block=100)
    asked = sides[0].asked
    time_both_sides(*sides, device="cpu", before_round=lambda _: asked.append("new"), seed=0)
    assert {*asked[::3]} == {"new"}
    assert asked.count("new") == len(asked) / 3


def test_another_seed_is_another_order(pair):
    orders = set()
    for seed in range(8):
        sides = pair([1000.0, 1300.0, 700.0], [1000.0], calls_per_block=200)
        time_both_sides(*sides, device="cpu", seed=seed)
        orders.add(tuple(sides[0].asked))
    assert len(orders) > 1


def test_flushing_the_cache_counts_towards_the_budget(pair):
    sides = pair([1000.0], [1000.0], groups=2)
    sides[1].flush_ns = 5000.0
    for side in sides:
        side.wall = 7.0
    found = time_both_sides(*sides, device="cuda", seed=0)
    rounds = sides[0].asked.count("candidate")
    assert found.spent_ns == pytest.approx(rounds * 2 * 2 * 6000, rel=1e-3)


def test_the_budget_is_not_used_up_by_claims(pair):
    """A candidate that is timed for a few rounds only would be known less well."""
    sides = pair([1000.0], [1000.0], groups=2)
    sides[0].flush_ns = sides[1].flush_ns = 1e9
    found = time_both_sides(*sides, device="cuda", seed=0)
    rounds = sides[0].asked.count("candidate")
    assert found.spent_ns == pytest.approx(rounds * 2 * 2 * 1000, rel=1e-3)


def test_who_claims_that_no_time_passes_does_not_go_on_for_ever(pair):
    """Times so short that they never add up to the budget, and that never settle."""
    sides = pair([1.0], [1000.0], groups=2, noise=2.0)
    for side in sides:
        side.wall = 1e6
    found = time_both_sides(*sides, device="cpu", seed=0)
    assert found.noisy
    assert found.spent_ns > 0.5 * BUDGETS["cpu"]


def test_a_round_has_the_judges_clock_beside_the_claim(pair):
    side, _ = pair([10.0], [1.0], groups=2, noise=0, calls_per_block=7, waited_ns=30.0)
    side.wall = 3.0
    samples, taken = time_round(side)
    assert samples.tolist() == [10.0, 10.0]
    assert taken == Turn(wall_ns=420.0, blocks_ns=140.0, calls_ns=140.0, waited_ns=30.0)


def test_what_other_work_adds_to_some_blocks_is_not_in_an_undisturbed_time():
    placed = np.tile([1000.0, 1100.0], (12, 1))
    disturbed = placed * np.where(np.arange(12) % 3, 3, 1)[:, None]
    turns = [Turn(9e3, 8e3, 8e3)] * 12
    for reference in (placed, disturbed):
        timings = Timings("cpu", placed, reference, 0.005, 0.0, turns, turns)
        assert timings.undisturbed_reference_ns == pytest.approx(np.sqrt(1000.0 * 1100.0))
    assert timings.reference_latency.value > 2 * timings.undisturbed_reference_ns


@pytest.mark.parametrize("heavy", [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], "each in turn"])
def test_work_of_other_blocks_is_left_out_of_the_latency(heavy):
    """Who does it in some blocks and none in the others claims nothing that is false."""
    rounds = np.eye(4)[np.arange(20) % 4] if heavy == "each in turn" else np.tile(heavy, (20, 1))
    candidate, reference = 4000 * rounds + 10.0, np.full((20, 4), 1010.0)
    turns = [Turn(4540, 4040, 4040)] * 20
    timings = Timings("cpu", candidate, reference, 0.005, 0.0, turns, turns)
    assert timings.latency.value < 300
    assert timings.accounting.hidden_ns == pytest.approx(4040 - 4 * timings.latency.value)


def test_what_noise_does_to_both_sides_is_not_left_out():
    """A block of each round takes thrice as long, of other calls in each."""
    samples = 1000.0 * (1 + 2 * np.eye(8)[np.arange(24) % 8])
    sides = [samples * 4, samples]
    turns = [[Turn(ns + 500, ns, ns) for ns in side.sum(1)] for side in sides]
    timings = Timings("cpu", *sides, 0.005, 0.0, *turns)
    assert timings.latency.value == pytest.approx(4000)
    assert timings.accounting.hidden_ns == pytest.approx(0)


def test_rounds_go_on_until_the_latency_is_accounted_for(pair):
    """Calls of other blocks are disturbed in each round, so that no latency says so."""
    candidate, reference = pair([30e3], [30e3], groups=8)
    undisturbed = candidate.run

    def run():
        number = len(candidate.asked) // 2
        candidate.placed = 0.6 * np.eye(8)[number % 8] * (number < 20)
        return undisturbed()

    candidate.run = run
    found = time_both_sides(candidate, reference, device="cpu", precision="quick", seed=0)
    assert not found.noisy
    assert found.accounting.is_clear


def test_who_checks_rounds_is_told_of_the_shortest(pair):
    sides = pair([1000.0, 900.0, 800.0, 950.0, 700.0], [1000.0], calls_per_block=200)
    told = []
    found = time_both_sides(*sides, device="cpu", before_round=told.append, seed=0)
    walls = [turn.wall_ns for turn in found.turns]
    shortest = [wall < 0.99 * min([np.inf, *walls[:i]]) for i, wall in enumerate(walls)]
    assert told[-len(walls) + 1 :] == shortest[:-1]
    assert 1 < sum(shortest) < len(walls)


def test_rounds_of_warming_up_that_count_are_among_those(pair):
    sides = pair([1000.0, 1000.0, 900.0, *[1000.0] * 500], [1000.0], calls_per_block=200)
    told = []
    found = time_both_sides(*sides, device="cpu", before_round=told.append, seed=0)
    assert len(found.turns) == len(told)
    # of the first round nobody could tell before it was over
    assert told[:5] == [False, True, False, True, False]


def test_intervals_reach_as_far_as_what_is_unaccounted_for(pair):
    sides = pair([1000.0], [2000.0], calls_per_block=100)
    found = time_both_sides(*sides, device="cpu", seed=0)
    longer = [replace(turn, wall_ns=1.1 * turn.blocks_ns) for turn in found.turns]
    more = replace(found, turns=longer)
    assert more.accounting.unaccounted == pytest.approx(0.1, rel=0.01)
    assert more.latency.high == pytest.approx(1.1 * found.latency.high, rel=0.01)
    assert more.speedup.low == pytest.approx(found.speedup.low / 1.1, rel=0.01)
    assert (more.latency.value, more.noisy) == (found.latency.value, found.noisy)


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
    assert calls_per_block([0.0, 1e5], "cpu") == [MOST_CALLS["cpu"], 16]
    assert calls_per_block([1000.0, 1000.0], "cuda", most=5) == [5, 5]


def test_there_are_as_many_placements_as_there_is_time_and_memory_for():
    assert placements([1e3, 1e3], "cuda", most=100) == GROUPS
    assert placements([1e3, 1e3], "cuda", most=3) == 3
    assert placements([1e9, 1e9], "cuda", most=100) == 2
    between = placements([BUDGETS["cpu"] / ROUNDS / 8] * 2, "cpu", most=100)
    assert between == 4


@pytest.mark.parametrize(("size", "most"), [(64, 256), (128, 256), (2, 64), (1, 8), (8, 8)])
def test_no_call_of_a_block_is_seldom_among_fewer(size, most):
    source = Random(0)
    made = np.zeros(most)
    for _ in range(DRAWS := 4000):
        start = random_place(size, most, source)
        assert 0 <= start <= most - size
        made[start : start + size] += 1
    even = size / (most + size - 1)
    assert made.min() > DRAWS * (even - 4 * np.sqrt(even / DRAWS))


#: A call of a slow reference, in nanoseconds.
SLOW_NS = BUDGETS["cuda"] / 4


@pytest.fixture
def time_slow(pair):
    """Time a slow reference, whose rounds take these times in turn; also gives what was asked."""

    def time_slow(*times, earlier=None, **facts):
        candidate, reference = pair([1000.0], list(times), groups=2, calls_per_block=100)
        idle = replace(candidate, name="idle", ns=[1500.0])
        for name, value in facts.items():
            setattr(candidate, name, value)
        sides = {"idle": idle, "is_slow": True, "earlier": earlier, "device": "cuda", "seed": 0}
        found = time_both_sides(candidate, replace(reference, calls_per_block=1), **sides)
        return found, candidate.asked

    return time_slow


def test_a_slow_reference_is_timed_twice_and_the_candidate_as_often_as_others(time_slow):
    found, asked = time_slow(SLOW_NS)
    assert asked.count("reference") == 2
    assert asked.count("idle") == asked.count("candidate") == ROUNDS
    assert not found.paired
    assert found.reference.shape == (2, 2)
    assert found.candidate.shape == found.idle.shape == (ROUNDS, 2)
    assert not found.noisy
    assert found.speedup.value == pytest.approx(SLOW_NS / 1000, rel=1e-2)
    assert found.speedup.low < found.speedup.value < found.speedup.high
    assert found.spent_ns > 3.9 * SLOW_NS


def test_a_slow_reference_whose_rounds_differ_is_timed_once_more(time_slow):
    found, _ = time_slow(SLOW_NS, 1.1 * SLOW_NS)
    assert found.reference.shape == (FEWEST_ROUNDS, 2)
    assert found.noisy


def test_what_a_candidate_hides_is_told_by_idle_blocks(time_slow):
    honest, _ = time_slow(SLOW_NS)
    assert honest.accounting.is_clear
    assert honest.accounting.unaccounted < 0.01
    cheat, _ = time_slow(SLOW_NS, wall=1.5)  # it claims two thirds
    assert not cheat.accounting.is_clear
    assert cheat.accounting.unaccounted == pytest.approx(0.5, abs=0.01)
    assert cheat.latency.high > 1490


@pytest.fixture
def time_many_kernels(pair):
    """Time beside a reference of many kernels, which take 6 % to launch; and what was asked.

    Its calls take five times the candidate's, whose rounds take ``wall`` times what it claims.
    """

    def time_many_kernels(wall, **facts):
        candidate, reference = pair([1000.0], [5000.0], calls_per_block=100, **facts)
        idle = replace(candidate, name="idle", ns=[1500.0])
        candidate.wall, reference.wall = wall, 1.06
        found = time_both_sides(candidate, reference, idle=idle, device="cuda", seed=0)
        return found, candidate.asked

    return time_many_kernels


def test_idle_blocks_take_turns_with_both_sides(time_many_kernels):
    found, asked = time_many_kernels(1.0)
    turns = {tuple(asked[start : start + 3]) for start in range(0, len(asked), 3)}
    assert turns == {("reference", "candidate", "idle"), ("idle", "candidate", "reference")}
    assert found.paired
    assert found.candidate.shape == found.reference.shape == found.idle.shape == (ROUNDS, 4)
    assert len(found.turns) == len(found.other_turns) == len(found.idle_turns) == ROUNDS
    assert found.usual_turns == found.idle_turns
    assert found.speedup.value == pytest.approx(5, rel=1e-3)
    assert found.speedup.half_width < 0.01
    assert found.accounting.unaccounted < 0.01
    assert not found.noisy


def test_idle_blocks_take_no_more_turns_once_it_is_known_what_a_round_takes(time_many_kernels):
    found, _ = time_many_kernels(1.0, noise=0.008)
    assert len(found.turns) == len(found.other_turns) > len(found.idle_turns) >= ROUNDS
    assert found.accounting.is_clear


def test_launching_many_kernels_of_the_reference_excuses_nothing(time_many_kernels):
    """A quarter of the claim is hidden; the reference's rounds take more than that beside calls."""
    found, asked = time_many_kernels(1.25)
    assert asked.count("idle") == asked.count("candidate")
    by_reference = replace(found, idle=None, idle_turns=())
    assert by_reference.accounting.is_clear
    assert by_reference.accounting.unaccounted == 0
    assert not found.accounting.is_clear
    assert found.accounting.unaccounted == pytest.approx(0.25, abs=0.01)
    assert found.latency.high == pytest.approx(1.25 * 1000, rel=0.01)
    assert found.speedup.low < 5 / 1.24


@pytest.mark.parametrize(
    ("candidate_ns", "reference_ns", "slow"),
    [(1e3, SLOW_NS, True), (SLOW_NS / 3, SLOW_NS, False), (1e3, 1e6, False)],
)
def test_a_reference_is_slow_if_many_times_as_long_and_long(candidate_ns, reference_ns, slow):
    assert is_slow(candidate_ns, reference_ns, "cuda") is slow
    assert not is_slow(candidate_ns, reference_ns, "cpu")


@pytest.mark.parametrize(("factor", "counts"), [(1.02, True), (1.2, False)])
def test_earlier_rounds_count_if_a_new_one_agrees(time_slow, factor, counts):
    earlier, _ = time_slow(factor * SLOW_NS)
    found, asked = time_slow(SLOW_NS, earlier=earlier.reference)
    assert asked.count("reference") == (1 if counts else 2)
    assert found.shared == (2 if counts else 0)
    assert len(found.reference) == asked.count("reference") + found.shared
    assert found.reference_latency.value == pytest.approx(SLOW_NS, rel=0.02)
