"""Numbers are dealt from decks: a few dozen draws have each boundary, and each choice, once."""

from collections import Counter
from itertools import pairwise

import pytest

from pytest_fib.search import (
    BOUNDARY_SIZES,
    DECK_TILES,
    FEW_SIZES,
    USUAL_SIZE,
    Bounds,
    Deck,
    UnforeseenSizes,
)
from pytest_fib.workloads import TURNS

#: Of 25 workloads of a search a fifth follow from the run's seed; the first is the plainest.
FOLLOWING_FROM_ONE_SEED = 19


def dealt(count, low, high, sort="size", seed=0, name="n", **bounds):
    """Numbers of one name, as a search draws them: the largest once, where there is one."""
    deck = Deck(seed)
    first = ["largest"] * ("largest" in bounds)
    sorts = [*first, *[sort] * (count - len(first))]
    return [deck.deal(name, each, Bounds(low, high, **bounds)) for each in sorts]


@pytest.mark.parametrize("seed", range(5))
def test_forty_sizes_have_every_boundary(seed):
    assert {*BOUNDARY_SIZES, 65_000} <= {*dealt(40, 1, 65_000, seed=seed)}


@pytest.mark.parametrize("high", [1000, 65_000])
def test_thirty_sizes_have_one_of_the_larger_half_of_powers(high):
    for seed in range(5):
        sizes = {*dealt(30, 1, high, seed=seed)}
        assert sizes & {n for n in (512, *(1 << e for e in range(11, 17))) if n <= high}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("low", "high"), [(1, 50_257), (1, 300), (40, 65_536), (1, 16)])
def test_a_search_deals_the_largest_size_and_one_above_each_power_of_two(low, high, seed):
    sizes = dealt(FOLLOWING_FROM_ONE_SEED, low, high, seed=seed, largest=high)
    assert sizes[0] == high
    for power in (1 << e for e in range(4, 17) if low < 1 << e < high):
        assert any(power < n <= 2 * power for n in sizes), power


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize(("low", "high"), [(1, 50_257), (1, 300), (40, 2047), (1, 31)])
def test_a_search_deals_a_size_with_nearly_all_of_a_last_tile(low, high, seed):
    sizes = dealt(FOLLOWING_FROM_ONE_SEED, low, high, seed=seed, largest=high)
    for tile in (tile for tile in DECK_TILES if 2 * tile <= high + 1):
        assert any(n > tile and n % tile == tile - 1 for n in sizes), tile


@pytest.mark.parametrize("seed", range(12))
def test_of_an_axis_that_others_limit_both_ends_are_dealt(seed):
    assert {40, 700} <= {*dealt(FOLLOWING_FROM_ONE_SEED, 40, 700, seed=seed)}


@pytest.mark.parametrize("seed", range(12))
def test_an_axis_equals_each_of_the_others_in_its_turn(seed):
    others = {"m and n": 771, "k and n": 773}
    assert {*others.values()} <= {
        *dealt(FOLLOWING_FROM_ONE_SEED, 1, 4096, seed=seed, others=others)
    }


@pytest.mark.parametrize("seed", range(12))
def test_a_search_deals_a_size_that_equals_one_of_another_axis(seed):
    assert {768, 77} & {
        *dealt(FOLLOWING_FROM_ONE_SEED, 1, 4096, seed=seed, others={"k": 768, "m": 77, "v": 9999})
    }


def test_the_higher_of_two_is_dealt_once_of_each_name():
    deck = Deck(0)
    dealt_of_two = [deck.deal(name, "once", Bounds(0, 1)) for name in "aabab"]
    assert dealt_of_two == [1, 0, 1, 0, 0]


def test_what_is_larger_than_usual_is_dealt_once():
    sizes = dealt(60, 1, 10_000_000, largest=10_000_000)
    assert sizes[0] == 10_000_000
    assert max(sizes[1:]) <= USUAL_SIZE


@pytest.mark.parametrize(("low", "high"), [(1, 1000), (300, 400), (0, 20), (7, 7), (1, 2)])
def test_sizes_are_between_their_bounds(low, high):
    assert {low, high} <= {*dealt(100, low, high)} <= {*range(low, high + 1)}


def test_a_boundary_that_does_not_fit_is_dealt_once_it_does():
    deck = Deck(0)
    first = [deck.deal("n", "size", Bounds(1, 100)) for _ in range(10)]
    later = [deck.deal("n", "size", Bounds(1, 65_000)) for _ in range(40)]
    assert max(first) <= 100
    assert {n for n in BOUNDARY_SIZES if n > 100} <= {*later}


def is_odd(n):
    return n % 2 == 1


def test_cards_that_will_not_do_now_are_dealt_later():
    for seed in range(5):
        deck = Deck(seed)
        only = [deck.deal("n", "size", Bounds(1, 65_000, only=is_odd)) for _ in range(6)]
        assert all(map(is_odd, only))
        others = [deck.deal("n", "size", Bounds(1, 65_000)) for _ in range(34)]
        assert {*BOUNDARY_SIZES, 65_000} <= {*only, *others}


@pytest.mark.parametrize(("low", "high"), [(1, 40), (40, 61), (64, 81), (3, 9), (1, 65_536)])
def test_only_what_will_do_is_dealt(low, high):
    for deck in (Deck(0), Deck(0, UnforeseenSizes())):
        sizes = [deck.deal("n", "size", Bounds(low, high, only=is_odd)) for _ in range(60)]
        assert all(map(is_odd, sizes))
        assert low <= min(sizes) < max(sizes) <= high


def test_a_size_is_dealt_where_none_will_do():
    assert 40 <= dealt(1, 40, 80, only=lambda n: n > 80)[0] <= 80


@pytest.mark.parametrize("low", [0, 1, 7])
def test_few_sizes_are_dealt_equally_often_but_for_zero(low):
    sizes = [*range(low, low + 10)]
    count = Counter(dealt(2 * (2 * len(sizes) - (low == 0)), low, sizes[-1]))
    assert count == {n: 2 if n == 0 else 4 for n in sizes}


@pytest.mark.parametrize("choices", [2, 3, 7, 12])
def test_the_plainest_choice_comes_first_and_each_in_its_turn(choices):
    drawn = dealt(choices + choices // 3, 0, choices - 1, "choice")
    count = Counter(drawn)
    assert drawn[0] == 0
    assert len(count) == choices
    assert count[0] == max(count.values()) == 1 + choices // 3


def test_the_last_choices_are_dealt_late():
    for seed in range(5):
        drawn = dealt(24, 0, 23, "choice", seed=seed, late=5)
        assert {*drawn[-5:]} == {*range(19, 24)}
        assert {*drawn} == {*range(24)}


def test_each_name_has_a_deck_of_its_own():
    deck = Deck(0)
    both = [deck.deal(name, "size", Bounds(1, FEW_SIZES)) for name in ["m", "n"] * FEW_SIZES]
    assert {*both} <= {*range(1, FEW_SIZES + 1)}
    assert both[::2] != both[1::2]


def test_of_any_numbers_the_remainders_come_in_turn():
    remainders = [number % TURNS for number in dealt(50, 0, 65_535, "any")]
    assert all((b - a) % TURNS == 1 for a, b in pairwise(remainders))


def test_a_deck_goes_on_with_the_choices_and_turns_of_the_one_before():
    first = Deck(0)
    names = [first.deal("values", "choice", Bounds(0, 15)) for _ in range(12)]
    last = first.deal("seed", "any", Bounds(0, 65_535))
    other = Deck(7, UnforeseenSizes(), first)
    names += [other.deal("values", "choice", Bounds(0, 15)) for _ in range(9)]
    assert {*names} == {*range(16)}
    assert (other.deal("seed", "any", Bounds(0, 65_535)) - last) % TURNS == 1


def test_numbers_that_are_neither_sizes_nor_choices_are_anywhere():
    drawn = dealt(200, 0, 65_535, "any")
    assert len({*drawn}) > 190
    assert 0.4 < sum(drawn) / len(drawn) / 65_535 < 0.6


@pytest.mark.parametrize(("low", "high"), [(1, 256), (1, 65_000), (300, 400), (0, 20)])
def test_unforeseen_sizes_are_of_the_larger_ones(low, high):
    deck = Deck(0, UnforeseenSizes())
    sizes = [deck.deal("n", "size", Bounds(low, high)) for _ in range(200)]
    middle = low + int((high - low + 1) ** 0.5) - 1
    assert middle <= min(sizes) < max(sizes) <= high
    assert len({*sizes}) > min(100, (high - middle) // 2)


@pytest.mark.parametrize("seed", range(5))
def test_five_unforeseen_sizes_are_spread_over_the_larger_ones(seed):
    deck = Deck(seed, UnforeseenSizes())
    sizes = sorted(deck.deal("n", "size", Bounds(1, 65_536)) for _ in range(5))
    octaves = [n.bit_length() for n in sizes]
    assert all(b > a for a, b in pairwise(octaves))


def test_a_seed_decides_all_draws():
    assert dealt(50, 1, 9999, seed=3) == dealt(50, 1, 9999, seed=3)
    assert dealt(50, 1, 9999, seed=3) != dealt(50, 1, 9999, seed=4)
