"""What a side leaves out of its claims, by the judge's clock."""

import numpy as np
import pytest

from pytest_fib.timing import Accounting, Claims, Turn, account, surely_longer


def test_what_both_sides_take_beside_their_blocks_is_not_hidden():
    turns = [Turn(1500 + extra, 1000, 1000) for extra in (0, 0, 0, 0, 0, 900)]
    accounting = account(turns, [Turn(2500, 2000, 2000)] * 6, Claims(1e3))
    assert (accounting.hidden_ns, accounting.error_ns, accounting.unaccounted) == (0, 0, 0)


def test_what_one_side_leaves_out_is_a_share_of_its_claim():
    accounting = account([Turn(1500, 770, 770)] * 5, [Turn(2500, 2000, 2000)] * 5, Claims(1e3))
    assert accounting.hidden_ns == 230
    assert accounting.unaccounted == pytest.approx(230 / 770)


def test_time_in_blocks_that_is_no_calls_is_unaccounted_for():
    """As where only what the device was busy with is claimed."""
    accounting = account([Turn(1500, 1000, 250)] * 5, [Turn(1500, 1000, 1000)] * 5, Claims(1e3))
    assert accounting.hidden_ns == 0
    assert accounting.unaccounted == 3


def test_only_the_other_side_says_how_long_rounds_wait_for_cores():
    """A candidate could have itself wait."""
    turns = [Turn(1500, 1000, 1000, waited_ns=400)] * 5
    others = [Turn(2500, 2000, 2000, waited_ns=ns) for ns in (10, 20, 90)]
    assert account(turns, others, Claims(1e3)).other_waited_ns == 40


def test_how_far_the_judges_clock_is_off_is_known():
    """Where other work makes rounds longer, each by another time."""
    rng = np.random.default_rng(0)
    known = []
    for _ in range(300):
        rests = 500 + rng.exponential(40, (2, 25))
        sides = [[Turn(1000 + rest, 1000, 1000) for rest in side] for side in rests]
        accounting = account(*sides, Claims(1e3))
        known.append(abs(accounting.hidden_ns) <= accounting.error_ns < 30)
    assert np.mean(known) > 0.85


def test_what_noise_makes_of_rounds_is_known_as_well_as_it_is_small():
    """On a busy machine, most rounds of both sides have blocks that take longer than a latency."""
    turns, others = ([Turn(100 + ns, ns, ns) for _ in range(20)] for ns in (1500, 1400))
    accounting = account(turns, others, Claims(1e3, 1000, 1000))
    assert accounting.hidden_ns == pytest.approx(100)
    assert accounting.other_error_ns == pytest.approx(400)
    assert accounting.unaccounted >= 0.5
    placed = account(turns, others, Claims(1e3, 1000, 1000, other_spread=1.4))
    assert placed.other_error_ns == pytest.approx(0, abs=1e-9)


def busy(rng, extra_ns, count):
    """Rounds of a millisecond, each kept waiting for milliseconds by other work."""
    rests = extra_ns + rng.exponential(8e6, count)
    return [Turn(1e6 + rest, 1e6, 1e6) for rest in rests]


@pytest.mark.parametrize(("count", "seen"), [(12, 0.5), (30, 0.99)])
def test_what_is_surely_left_out_is_seen_where_no_mean_is_known(count, seen):
    rng = np.random.default_rng(0)
    honest = [surely_longer(busy(rng, 0, count), busy(rng, 0, count), 0) for _ in range(2000)]
    assert sum(honest) <= 2
    hiding = [surely_longer(busy(rng, 24e6, count), busy(rng, 0, count), 1e6) for _ in range(200)]
    assert np.mean(hiding) > seen
    most = [surely_longer(busy(rng, 1e6, count), busy(rng, 0, count), 1e6) for _ in range(2000)]
    assert sum(most) <= 2  # no more than it may be


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_claims_that_are_false_now_and_then_are_held_against_every_round(share):
    turns = [Turn(1500, 600 if i < 20 * share else 1000, 1000) for i in range(20)]
    assert account(turns, [Turn(2500, 2000, 2000)] * 20, Claims(1e3)).hidden_ns == 400


@pytest.mark.parametrize(("latency_ns", "allowed_ns"), [(19_000, 100), (20_000, 50)])
def test_short_calls_may_hide_more(latency_ns, allowed_ns):
    turns = [Turn(1500, 1000, 1000)] * 5
    assert account(turns, turns, Claims(latency_ns)).allowed_ns == pytest.approx(allowed_ns)


#: What a round takes beside its blocks and launching, and to launch a kernel, in nanoseconds.
BESIDE_NS, LAUNCH_NS = 500e3, 33.0
#: Groups of a round, and the kernels of an idle block.
GROUPS, IDLE_KERNELS = 8, 64


def rounds(kernels, block_ns, claim=1.0, launch_ns=LAUNCH_NS):
    """Rounds of blocks of so many kernels, of which a share is claimed."""
    wall_ns = BESIDE_NS + GROUPS * (kernels * launch_ns + block_ns)
    claimed_ns = GROUPS * claim * block_ns
    return [Turn(wall_ns, claimed_ns, claimed_ns)] * 5


def beside_many_kernels(turns, latency_ns, launch_ns=LAUNCH_NS):
    """Held against 500 kernels of 2 µs, and idle blocks."""
    reference, idle = rounds(500, 1e6, launch_ns=launch_ns), rounds(64, 80e3, launch_ns=launch_ns)
    return account(turns, reference, Claims(latency_ns), idle)


@pytest.mark.parametrize(
    ("block_ns", "percent"), [(1e6, 1.6), (200e3, 8.2), (100e3, 16.5), (71e3, 23.2)]
)
def test_launching_the_references_kernels_excuses_no_claim(block_ns, percent):
    """Held against the reference's rounds only, a side with one kernel may claim so much less."""
    excused = LAUNCH_NS * (500 - 1) / block_ns
    assert 100 * excused == pytest.approx(percent, abs=0.05)
    turns = rounds(1, block_ns, 1 - excused)
    hidden_ns = GROUPS * excused * block_ns
    alone = account(turns, rounds(500, 1e6), Claims(block_ns))
    assert alone.hidden_ns == pytest.approx(0, abs=1e-3)
    assert alone.unaccounted == pytest.approx(0, abs=1e-6)
    beside_idle = beside_many_kernels(turns, block_ns)
    launching_ns = GROUPS * (IDLE_KERNELS - 1) * LAUNCH_NS  # an idle block has few kernels too
    assert beside_idle.hidden_ns == pytest.approx(hidden_ns - launching_ns)
    assert beside_idle.unaccounted == pytest.approx(beside_idle.hidden_ns / beside_idle.calls_ns)
    assert beside_idle.is_clear == (excused < 0.05)
    assert beside_idle.allowed_ns == pytest.approx(0.05 * beside_idle.blocks_ns)


@pytest.mark.parametrize(
    ("kernels", "block_ns"), [(500, 1e6), (100, 200e3), (250, 300e3), (1, 1e5)]
)
def test_an_honest_side_may_have_many_kernels_too(kernels, block_ns):
    found = beside_many_kernels(rounds(kernels, block_ns), block_ns)
    assert found.is_clear
    launching_ns = GROUPS * LAUNCH_NS * (kernels - IDLE_KERNELS)
    assert found.hidden_ns == pytest.approx(launching_ns)
    assert 0 <= found.unaccounted < 0.025


@pytest.mark.parametrize(("kernels", "block_ns"), [(500, 1e6), (250, 500e3), (1000, 2e6)])
def test_where_launching_takes_long_as_much_as_the_reference_takes_is_allowed(kernels, block_ns):
    """As a share of the blocks, and never more than where the reference's rounds say it all."""
    launch_ns = 200.0
    honest = rounds(kernels, block_ns, launch_ns=launch_ns)
    found = beside_many_kernels(honest, block_ns, launch_ns)
    launching_ns = GROUPS * launch_ns * (500 - IDLE_KERNELS)
    assert found.allowed_ns == pytest.approx(
        max(0.05 * GROUPS * block_ns, min(1, block_ns / 1e6) * launching_ns)
    )
    assert found.allowed_ns <= 0.05 * GROUPS * block_ns + launching_ns
    assert found.hidden_ns <= found.allowed_ns + 1e-3 or kernels > 500
    # The record says that this much is not known.
    assert found.unaccounted == pytest.approx(found.hidden_ns / (GROUPS * block_ns))
    cheat = beside_many_kernels(rounds(1, block_ns, 0.8, launch_ns), block_ns, launch_ns)
    assert not cheat.is_clear


@pytest.mark.parametrize(
    ("hidden_ns", "error_ns", "exact", "clear"),
    [
        (0, 30, True, True),
        (0, 31, False, False),
        (20, 30, True, True),
        (21, 30, True, False),
        (-40, 30, True, True),
        (200, 0, True, False),
    ],
)
def test_it_is_clear_what_is_hidden_once_it_is_no_more_than_may_be(
    hidden_ns, error_ns, exact, clear
):
    accounting = Accounting(1000, 1000, hidden_ns, error_ns, 0, allowed_ns=50)
    assert (accounting.is_exact, accounting.is_clear) == (exact, clear)
