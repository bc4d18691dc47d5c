"""How totals are split over sequences."""

import pytest
import torch

from pytest_fib.data import LENGTHS, Definition
from pytest_fib.workloads import TILE_SIZES, in_domain, make_workload
from tests.definitions.harness import filled
from tests.workloads.signatures import signature

#: Tiles of attention kernels.
TILES = TILE_SIZES[1:6]
#: Lengths at which such kernels change what they do.
BOUNDARIES = (0, 1, 2, *(tile + near for tile in TILES for near in (-1, 0, 1)))

DATA = signature("op", "len fewer more", "queries[len]:i32 keys[len]:i32", "y[len]:f32")


def definition(least=0, at_least=None):
    """Two splits, of ``fewer`` and ``more``; of the second, each length has a lower bound."""
    queries = {"kind": "indptr", "total": "fewer"}
    keys = {"kind": "indptr", "total": "more", "allow_empty": least == 0, "at_least": at_least}
    return Definition.model_validate(
        {**DATA, "workloads": {"inputs": {"queries": queries, "keys": keys}}}
    )


def split(total, n, lengths, seed=0, least=0):
    """``n`` lengths that sum to a total; ``least`` is 0 or 1."""
    axes = {"len": n + 1, "fewer": 0, "more": total}
    workload = make_workload(definition(least), axes, seed, {"lengths": lengths})
    return filled(definition(least), workload)["keys"].diff()


def split_above(fewer, total, n, lengths, seed=0):
    """Lower bounds that sum to ``fewer``, and lengths that are at least these."""
    bounded = definition(at_least="queries")
    axes = {"len": n + 1, "fewer": fewer, "more": total}
    inputs = filled(bounded, make_workload(bounded, axes, seed, {"lengths": lengths}))
    return inputs["queries"].diff(), inputs["keys"].diff()


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("n", [1, 5, 40])
@pytest.mark.parametrize("spare", [0, 1, 7, 64, 1000])
def test_lengths_sum_to_the_total_and_are_at_least_what_they_must_be(lengths, n, spare):
    for seed in range(5):
        for least in (0, 1):
            found = split(n * least + spare, n, lengths, seed, least)
            assert int(found.sum()) == n * least + spare
            assert (found >= least).all()
        bounds, found = split_above(12, 12 + spare, n, lengths, seed)
        assert int(found.sum()) == 12 + spare
        assert (found >= bounds).all()


def bounded(most, least=0):
    """Lengths that sum to ``total``, each at most so many."""
    rule = {"kind": "lengths", "total": "total", "max": most, "allow_empty": least == 0}
    data = signature("op", "n total seq", "lens[n]:i32 x[n,seq]:f32", "y[total]:f32")
    return Definition.model_validate({**data, "workloads": {"inputs": {"lens": rule}}})


def capped(total, n, most, lengths, seed=0, least=0):
    """``n`` lengths that sum to a total, each at most ``most``."""
    definition = bounded("seq", least)
    axes = {"n": n, "total": total, "seq": most}
    return filled(definition, make_workload(definition, axes, seed, {"lengths": lengths}))["lens"]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(("n", "most"), [(1, 1), (1, 9), (5, 3), (40, 70)])
def test_lengths_with_a_bound_keep_to_it_whatever_the_total(lengths, n, most):
    for seed in range(5):
        for least in (0, 1):
            for total in {n * least, n, n * most // 2 + 1, n * most - 1, n * most}:
                if n * least <= total <= n * most:
                    found = capped(total, n, most, lengths, seed, least)
                    assert int(found.sum()) == total
                    assert ((found >= least) & (found <= most)).all()


def test_lengths_with_a_bound_are_as_different_as_without_it():
    assert capped(11, 4, 8, "equal").tolist() == [3, 3, 3, 2]
    assert capped(8, 4, 8, "one_long").sort().values.tolist() == [0, 0, 0, 8]
    for seed in range(10):
        # What is too much for one fills others.
        assert capped(20, 4, 8, "one_long", seed).sort().values.tolist() == [0, 4, 8, 8]
        empties = capped(100, 9, 30, "empties", seed)
        assert empties[0] == empties[-1] == 0
        assert capped(40, 9, 30, "ones", seed)[-1] == 30


@pytest.mark.parametrize(("most", "largest"), [("seq", 8), (3, 12), ("min(seq, 2 * n)", 8)])
def test_a_total_is_drawn_that_bounded_lengths_can_have(most, largest):
    definition, sizes = bounded(most, least=1), {"n": 4, "seq": 2}
    assert in_domain(definition, {**sizes, "total": largest})
    assert not in_domain(definition, {**sizes, "total": largest + 1})
    assert not in_domain(definition, {**sizes, "total": 3})


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_seed_decides_the_lengths(lengths):
    assert split(500, 9, lengths, 3).equal(split(500, 9, lengths, 3))


@pytest.mark.parametrize(("total", "least", "fewer"), [(3, 1, 1), (5, 0, 6)])
def test_what_can_not_be_split_is_no_workload(total, least, fewer):
    bounded = definition(least, at_least="queries")
    assert not in_domain(bounded, {"len": 5, "fewer": fewer, "more": total})
    assert in_domain(bounded, {"len": 5, "fewer": fewer, "more": 6})


def test_equal_lengths_differ_by_one_at_most():
    assert split(11, 4, "equal").tolist() == [3, 3, 3, 2]


def test_one_long_sequence_is_often_the_first_or_the_last():
    places = [int(split(9, 20, "one_long", seed).argmax()) for seed in range(60)]
    assert places.count(0) > 10
    assert places.count(19) > 10
    assert len({*places}) > 5
    assert split(9, 4, "one_long", least=1).sort().values.tolist() == [1, 1, 1, 6]


def test_of_empties_the_first_and_the_last_are():
    for seed in range(10):
        lengths = split(100, 6, "empties", seed)
        assert lengths[0] == lengths[-1] == 0


def test_ones_leave_the_rest_to_the_last():
    assert split(3, 5, "ones").tolist() == [1, 1, 1, 0, 0]
    assert split(9, 4, "ones").tolist() == [1, 1, 1, 6]


def test_tiles_are_whole_or_have_one_more_but_for_the_last():
    for seed in range(20):
        lengths = split(3000, 4, "tiles", seed)
        assert any((lengths[:-1] % tile <= 1).all() for tile in TILES)
        # The last has what is left, unless that is one for each.
        assert any((split(1024 + 2, 40, "tiles", seed) % tile <= 1).all() for tile in TILES)


def test_boundaries_are_lengths_at_and_beside_tiles():
    lengths = torch.cat([split(5000, 30, "boundaries", seed) for seed in range(10)])
    at_boundaries = torch.isin(lengths, torch.tensor(BOUNDARIES))
    assert at_boundaries.float().mean() > 0.9
    assert {*BOUNDARIES} <= {*lengths.tolist()}
    for seed in range(5):
        assert {*BOUNDARIES} <= {*split(5000, 30, "boundaries", seed).tolist()}
    # One is beyond the largest tile that fits.
    for n, total, length in ((2, 800, 257), (9, 257, 257), (9, 256, 129), (40, 18, 17)):
        assert all(length in split(total, n, "boundaries", seed) for seed in range(5))
    # What a sequence must have counts towards its length.
    for seed in range(5):
        bounds, longer = split_above(300, 5000, 30, "boundaries", seed)
        grown = longer[longer > bounds + 2]
        assert torch.isin(grown, torch.tensor(BOUNDARIES)).float().mean() > 0.8
