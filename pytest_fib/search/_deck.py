"""Deals numbers from a shuffled deck of the sizes at which kernels break.

Numbers that are drawn again and again, such as the size of one axis, don't depend on luck: of a
search's workloads, some have each card that is dealt early (the least and the largest size, one of
each octave, one equal to another axis), and most of the others (a tile, a prime, ...).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from itertools import chain, pairwise
from random import Random
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeAlias

from pytest_fib.workloads import TILE_SIZES, TURNS

#: A number, or how to draw one; it is not dealt while it is not between the bounds.
Card: TypeAlias = int | Callable[["Bounds", Random], int]
#: What a number is: a size, or an axis' largest one; one of a few choices of which 0 is the
#: plainest; the higher of two, but once, or only the first time of all decks; or just a number.
Sort: TypeAlias = Literal["size", "largest", "choice", "once", "first", "any"]

#: Below this many sizes none is more of a boundary than another.
FEW_SIZES = 16
#: Larger ones are only dealt as the largest of an axis.
USUAL_SIZE = 65536
#: So many cards of a pile are those that come early, and some others among them.
EARLY = 18
#: Of choices, the plainest has more cards, up to so many of all: what a search has workloads.
CHOICES = 24
#: Of what kernels are tiled by, from 16 on.
DECK_TILES = TILE_SIZES[1:]
#: From the least tile to less than the next, of which no other card is.
SMALL = (TILE_SIZES[0], DECK_TILES[0] - 1)
PRIMES = (5, 7, 11, 13, 61, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521)
#: Sizes at which kernels change what they do.
BOUNDARY_SIZES = (1, 2, 3, *(tile + more for tile in DECK_TILES for more in (0, 1)))


class Bounds(NamedTuple):
    """The limits of a size, both included.

    ``others`` are sizes of other axes that it may equal, by the names of both axes. ``largest`` is
    the largest affordable size, for an axis that has it once in a search. A deck deals ``only``
    what that is true of, such as odd sizes, if there is any. Of choices, the last few are dealt
    ``late``, after all others.
    """

    low: int
    high: int
    others: Mapping[str, int] = MappingProxyType({})
    largest: int | None = None
    only: Callable[[int], bool] | None = None
    late: int = 0

    def less(self, by: int) -> Bounds:
        """The bounds of what is less by a number than what these are the bounds of."""
        others = {pair: n - by for pair, n in self.others.items()}
        largest = None if self.largest is None else self.largest - by
        allowed = self.only
        only = allowed and (lambda number: allowed(number + by))
        return Bounds(self.low - by, self.high - by, others, largest, only, self.late)

    def allow(self, number: int) -> bool:
        """Whether a deck may deal this number."""
        within = self.low <= number <= self.high
        return within and (self.only is None or self.only(number))


class Sizes(Protocol):
    """Which sizes a deck deals."""

    def largest(self, size: int, random: Random) -> int:
        """The size of an axis in the workload in which it may be as large as ``size``."""

    def pile(self, random: Random) -> list[Card]:
        """The cards for all other sizes, in the order in which they are dealt."""


class Deck:
    """Deals numbers that follow from a seed, from one pile of cards for each name.

    A deck that is given another one as ``before`` goes on with that one's piles of choices.
    """

    def __init__(self, seed: int, sizes: Sizes | None = None, before: Deck | None = None) -> None:
        self.random = Random(seed)
        self._sizes = sizes or BoundarySizes()
        self._piles: dict[tuple[str, bool], list[Card]] = {}
        self._known: set[str] = set()
        self._choices: Deck = before._choices if before else self
        first = self.random.randrange(TURNS)
        self._turns: dict[str, int] = before._turns if before else defaultdict(lambda: first)

    def deal(self, name: str, sort: Sort, bounds: Bounds) -> int:
        """The next number of this name between two bounds: the first card that lies there."""
        if sort == "choice":
            return self._choices._next(name, sort, bounds)
        if sort == "any":
            return self._in_turn(name, bounds)
        if sort == "once":
            return bounds.high if self._is_new(name) else bounds.low
        if sort == "first":
            return bounds.high if self._choices._is_new(name) else bounds.low
        if sort == "largest":
            return self._sizes.largest(bounds.largest or bounds.high, self.random)
        usual = max(bounds.low, min(bounds.high, USUAL_SIZE))
        return self._next(name, sort, bounds._replace(high=usual))

    def _is_new(self, name: str) -> bool:
        """Whether this is asked of a name for the first time."""
        is_new = name not in self._known
        self._known.add(name)
        return is_new

    def _in_turn(self, name: str, bounds: Bounds) -> int:
        """Any number; its remainder by TURNS squared is one more than that of the last."""
        self._turns[name] += 1
        number = self.random.randint(bounds.low, bounds.high)
        number += (self._turns[name] - number) % TURNS**2
        return number if number <= bounds.high else max(number - TURNS**2, bounds.low)

    def _next(self, name: str, sort: Sort, bounds: Bounds) -> int:
        low, high = bounds.low, bounds.high
        pile = self._piles.setdefault((name, high - low < FEW_SIZES), [])
        for _ in range(2):
            for i, card in enumerate(pile):
                number = card if isinstance(card, int) else card(bounds, self.random)
                if bounds.allow(number):
                    del pile[i]
                    return number
            pile += self._shuffled(sort, bounds)
        start = self.random.randint(low, high)
        return next(filter(bounds.allow, chain(range(start, high + 1), range(low, start))), start)

    def _shuffled(self, sort: Sort, bounds: Bounds) -> list[Card]:
        low, high = bounds.low, bounds.high
        if sort == "size" and high - low >= FEW_SIZES:
            return self._sizes.pile(self.random)
        every = [*range(low, high + 1)]
        self.random.shuffle(every)
        if sort == "size":
            second_pass = [*range(max(low, 1), high + 1)]  # hardly ever nothing
            self.random.shuffle(second_pass)
            return [*every, *second_pass]
        cards = [*every, *[low] * max(0, min(len(every) // 3, CHOICES - len(every)))]
        self.random.shuffle(cards)
        cards.insert(0, cards.pop(cards.index(low)))  # the plainest first
        return [*sorted(cards, key=lambda card: card > high - bounds.late)]


def _least(bounds: Bounds, random: Random) -> int:
    """As low as may be, while other axes aren't: all at their least are tried anyway."""
    return bounds.low if bounds.largest is None else NOT_NOW


def _small(bounds: Bounds, random: Random) -> int:
    """Between the first two tiles, where kernels may take a way of their own."""
    return random.randint(*SMALL)


def _highest(bounds: Bounds, random: Random) -> int:
    """As high as the other axes and the budget allow; what may be largest has been that once."""
    return bounds.high if bounds.largest is None else NOT_NOW


def _anywhere(bounds: Bounds, random: Random) -> int:
    """Log-uniform: small sizes are as likely as large ones, and much cheaper."""
    return bounds.low + int((bounds.high - bounds.low + 1) ** random.random()) - 1


def _near_tile(bounds: Bounds, random: Random) -> int:
    tile = random.choice(DECK_TILES)
    near = _anywhere(bounds, random) // tile * tile + random.choice((-1, 0, 0, 1)) + tile
    return min(max(near, bounds.low), bounds.high)


def _below_tiles(bounds: Bounds, random: Random) -> int:
    """One less than two of the largest tile that fits twice: of a last tile, nearly all is there.

    What leaves that out shows in sums as well, and at any smaller tile.
    """
    twice = [2 * tile for tile in DECK_TILES if bounds.low < 2 * tile <= bounds.high + 1]
    return max(twice, default=bounds.low + 1) - 1


def _below_larger_tiles(bounds: Bounds, random: Random) -> int:
    """One less than any multiple of the largest tile that fits."""
    tile = max((tile for tile in DECK_TILES if tile <= bounds.high + 1), default=1)
    return max(tile * random.randint(1, (bounds.high + 1) // tile) - 1, bounds.low)


def _beyond_tile(tile: int) -> Card:
    """With a quarter to all of the next tile."""
    return lambda bounds, random: random.randint(tile + tile // 4, 2 * tile - 1)


def _power(bounds: Bounds, random: Random) -> int:
    """A power of two far above any tile, or else the largest that fits."""
    most = bounds.high.bit_length() - 1
    return max(1 << random.randint(min(11, most), most), bounds.low)


def _prime(bounds: Bounds, random: Random) -> int:
    return random.choice([p for p in PRIMES if bounds.low <= p <= bounds.high] or [bounds.low])


#: Of no pile's bounds: a card that stays in it.
NOT_NOW = -1
#: For each octave of larger sizes, above one power of two and up to the next, a card of another
#: sort: one more than the power, the next one, one less, a prime, beside a tile, or anywhere.
OCTAVES = range(10, 16)


def _in_octave(exponent: int, sort: int) -> Card:
    def card(bounds: Bounds, random: Random) -> int:
        above, up_to = 1 << exponent, 2 << exponent
        low, high = max(above + 1, bounds.low), min(up_to, bounds.high)
        if low > high:
            return NOT_NOW
        within = Bounds(low, high)
        sizes = (above + 1, up_to, up_to - 1, _prime(within, random), _near_tile(within, random))
        size = sizes[sort] if sort < len(sizes) else random.randint(low, high)
        return size if low <= size <= high else random.randint(low, high)

    return card


class BoundarySizes:
    """Sizes at which kernels break. A pile has hardly more cards than a search has workloads."""

    def __init__(self) -> None:
        self._equalled: Counter[str] = Counter()

    def largest(self, size: int, random: Random) -> int:
        return size

    def pile(self, random: Random) -> list[Card]:
        """The least, the highest, one equal to another axis and one of each octave come early."""
        sorts = random.sample(range(len(OCTAVES)), len(OCTAVES))
        early: list[Card] = [
            _least,
            _small,
            _highest,
            self._equal,
            self._equal,
            _below_tiles,
            *map(_in_octave, OCTAVES, sorts),
        ]
        late: list[Card] = [1, 2, 3, DECK_TILES[0], DECK_TILES[-1] + 1]
        late += [_near_tile, _below_larger_tiles, _power, _prime, _anywhere]
        for tile, larger in pairwise(DECK_TILES):
            one, *others = random.sample((tile + 1, larger, _beyond_tile(tile)), 3)
            early.append(one)
            late += others
        random.shuffle(late)
        room = max(0, EARLY - len(early))
        early += late[:room]
        random.shuffle(early)
        return early + late[room:]

    def _equal(self, bounds: Bounds, random: Random) -> int:
        """What another axis is, so that a kernel that takes one for the other is seen to be right.

        Each pair of axes in its turn.
        """
        others = bounds.others.items()
        fitting = sorted(pair for pair, n in others if n > 1 and bounds.allow(n))
        if not fitting:
            return NOT_NOW
        random.shuffle(fitting)
        pair = min(fitting, key=self._equalled.__getitem__)
        self._equalled[pair] += 1
        return bounds.others[pair]


class UnforeseenSizes:
    """Sizes that no list has: log-uniform among the larger ones, since of smaller there are few."""

    def largest(self, size: int, random: Random) -> int:
        """Log-uniform, in the upper quarter."""
        return int(size ** random.uniform(0.75, 1))

    def pile(self, random: Random) -> list[Card]:
        """As many as a search has draws of them, each in a part of the range of its own."""
        parts: list[Card] = [*map(_in_upper_part, range(UPPER_PARTS))]
        random.shuffle(parts)
        return parts


#: Into how many parts the larger sizes are split, from the square root of the most.
UPPER_PARTS = 5


def _in_upper_part(part: int) -> Card:
    def card(bounds: Bounds, random: Random) -> int:
        exponent = 0.5 + random.uniform(part, part + 1) / (2 * UPPER_PARTS)
        return bounds.low + int((bounds.high - bounds.low + 1) ** exponent) - 1

    return card
