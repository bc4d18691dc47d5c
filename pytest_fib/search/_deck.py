"""Which number is drawn next: dealt from a shuffled deck of the sizes at which kernels break.

Numbers that are drawn again and again, such as the size of one axis, don't depend on luck: of a few
dozen workloads, some have each card (a boundary, the largest size, a prime, ...) of every deck.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Literal, TypeAlias

from pytest_fib.workloads import TILE_SIZES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: A number, or how to draw one between two bounds.
    Card: TypeAlias = int | Callable[[Random, int, int], int]
    #: What a number is: a size, one of a few choices of which 0 is the plainest, or just a number.
    Sort: TypeAlias = Literal["size", "choice", "any"]

#: Below this many sizes none is more of a boundary than another.
FEW = 16
#: Of what kernels are tiled by, from 16 on.
DECK_TILES = TILE_SIZES[1:]
PRIMES = (5, 7, 11, 13, 61, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521)
#: Sizes at which kernels change what they do.
BOUNDARY_SIZES = (1, 2, 3, *(tile + more for tile in DECK_TILES for more in (0, 1)))


class Deck:
    """Numbers that follow from a seed. What is called alike is dealt from one pile of cards.

    ``sizes`` are the cards of what is a size; None stands for all at which kernels break.
    """

    def __init__(self, seed: int, sizes: Sequence[Card] | None = None) -> None:
        self.random = Random(seed)
        self._sizes = BOUNDARIES if sizes is None else sizes
        self._piles: dict[tuple[str, bool], list[Card]] = {}

    def deal(self, name: str, sort: Sort, low: int, high: int) -> int:
        """The next number of this name between two bounds: the first card that lies there."""
        if sort == "any":
            return self.random.randint(low, high)
        pile = self._piles.setdefault((name, high - low < FEW), [])
        for _ in range(2):
            for i, card in enumerate(pile):
                if isinstance(card, int):
                    number = card
                else:
                    number = min(max(card(self.random, low, high), low), high)
                if low <= number <= high:
                    del pile[i]
                    return number
            pile += self._shuffled(sort, low, high)
        return self.random.randint(low, high)

    def _shuffled(self, sort: Sort, low: int, high: int) -> list[Card]:
        cards: list[Card]
        if sort == "choice":
            cards = [*range(low, high + 1), *[low] * ((high - low + 1) // 3)]
        elif high - low < FEW:
            cards = [*range(low, high + 1), *range(max(low, 1), high + 1)]  # hardly ever nothing
        else:
            cards = [*self._sizes]
        self.random.shuffle(cards)
        if sort == "choice":  # the plainest first
            cards.insert(0, cards.pop(cards.index(low)))
        return cards


def _lowest(random: Random, low: int, high: int) -> int:
    """As low as the axes drawn before allow, which often is what equals one of them.

    Where it is next to nothing, a little more shows more.
    """
    return low if low > 1 else low + random.randrange(4)


def _highest(random: Random, low: int, high: int) -> int:
    """As high as the other axes and the budget allow."""
    return high


def _anywhere(random: Random, low: int, high: int) -> int:
    """Log-uniform: small ones are as likely as large ones, and much cheaper."""
    return low + int((high - low + 1) ** random.random()) - 1


def _larger(random: Random, low: int, high: int) -> int:
    """Log-uniform among the larger ones: of small ones there are so few that a list has them."""
    return low + int((high - low + 1) ** random.uniform(0.5, 1)) - 1


def _near_tile(random: Random, low: int, high: int) -> int:
    tile = random.choice(DECK_TILES)
    return _anywhere(random, low, high) // tile * tile + random.choice((-1, 0, 0, 1)) + tile


def _below_tiles(random: Random, low: int, high: int) -> int:
    """One less than the largest tile that fits, so one less than a multiple of the others too."""
    return max(tile for tile in (low + 1, *DECK_TILES) if tile <= high) - 1


def _power(random: Random, low: int, high: int) -> int:
    """A power of two far above any tile, or else the largest that fits."""
    return 1 << random.randint(min(11, high.bit_length() - 1), high.bit_length() - 1)


def _prime(random: Random, low: int, high: int) -> int:
    return random.choice([p for p in PRIMES if low <= p <= high] or [low])


#: Cards that depend on the bounds, and how many of each are in a deck.
CARDS_BY_BOUNDS: dict[Callable[[Random, int, int], int], int] = {
    _lowest: 2,
    _highest: 2,
    _near_tile: 2,
    _below_tiles: 2,
    _power: 2,
    _prime: 1,
    _anywhere: 2,
}
#: Cards of a whole deck.
BOUNDARIES: Sequence[Card] = (
    *BOUNDARY_SIZES,
    *(card for card, n in CARDS_BY_BOUNDS.items() for _ in range(n)),
)
#: Cards that no list of sizes has foreseen.
UNFORESEEN: Sequence[Card] = (_larger,)
