"""How totals are split over sequences."""

import pytest
import torch

from pytest_fib.data import LENGTHS
from pytest_fib.workloads._structure_generators import BOUNDARIES, TILES, partition


def split(total, least, regime, seed=0):
    return partition(total, torch.tensor(least), regime, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("regime", LENGTHS)
@pytest.mark.parametrize("least", [[0], [3], [0] * 5, [4, 0, 1], [1] * 40])
@pytest.mark.parametrize("spare", [0, 1, 7, 64, 1000])
def test_lengths_sum_to_the_total_and_are_at_least_what_they_must_be(regime, least, spare):
    for seed in range(5):
        lengths = split(sum(least) + spare, least, regime, seed)
        assert int(lengths.sum()) == sum(least) + spare
        assert (lengths >= torch.tensor(least)).all()


@pytest.mark.parametrize("regime", LENGTHS)
def test_a_seed_decides_the_lengths(regime):
    assert split(500, [0] * 9, regime, 3).equal(split(500, [0] * 9, regime, 3))


@pytest.mark.parametrize(("total", "least"), [(2, [3]), (3, [1, 1, 2]), (1, [])])
def test_what_can_not_be_split_is_refused(total, least):
    with pytest.raises(ValueError, match="can't be split over"):
        split(total, least, "random")


def test_no_sequences_take_nothing():
    assert len(partition(0, torch.zeros(0).long(), "ones", torch.Generator())) == 0


def test_equal_lengths_differ_by_one_at_most():
    assert split(11, [0] * 4, "equal").tolist() == [3, 3, 3, 2]


def test_one_long_sequence_is_often_the_first_or_the_last():
    places = [int(split(9, [0] * 20, "one_long", seed).argmax()) for seed in range(60)]
    assert places.count(0) > 10
    assert places.count(19) > 10
    assert len({*places}) > 5
    assert (split(9, [1] * 4, "one_long").sort().values == torch.tensor([1, 1, 1, 6])).all()


def test_of_empties_the_first_and_the_last_are():
    for seed in range(10):
        lengths = split(100, [0] * 6, "empties", seed)
        assert lengths[0] == lengths[-1] == 0


def test_ones_leave_the_rest_to_the_last():
    assert split(3, [0] * 5, "ones").tolist() == [1, 1, 1, 0, 0]
    assert split(9, [0] * 4, "ones").tolist() == [1, 1, 1, 6]


def test_tiles_are_whole_but_for_the_last():
    for seed in range(20):
        lengths = split(3000, [0] * 4, "tiles", seed)
        assert any((lengths[:-1] % tile == 0).all() for tile in TILES)


def test_boundaries_are_lengths_at_and_beside_tiles():
    lengths = torch.cat([split(5000, [0] * 30, "boundaries", seed) for seed in range(10)])
    at_boundaries = torch.isin(lengths, torch.tensor(BOUNDARIES))
    assert at_boundaries.float().mean() > 0.9
    assert {*BOUNDARIES} <= {*lengths.tolist()}
    # What a sequence must have counts towards its length.
    longer = split(5000, [10] * 30, "boundaries")
    assert torch.isin(longer[longer > 12], torch.tensor(BOUNDARIES)).float().mean() > 0.8
