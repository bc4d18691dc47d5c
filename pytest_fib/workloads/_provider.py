"""How the numbers in a workload are drawn: a Hypothesis backend biased to kernels' boundaries.

Hypothesis' own backend mixes in constants found in whatever local modules happen to be imported,
so two processes with one seed draw different workloads. This one depends on the seed alone. And
its draws don't depend on luck alone: each number that is drawn again and again, such as the size of
one axis, is dealt from a shuffled deck, so that a few dozen workloads have every card once.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.internal.conjecture.data import ConjectureData

    #: A number, or how to draw one between two bounds.
    Card: TypeAlias = int | Callable[[Random, int, int], int]
    #: What a number is: a size, one of a few choices of which 0 is the plainest, or just a number.
    Sort: TypeAlias = Literal["size", "choice", "any"]

BACKEND = "pytest-fib"

#: Below this many sizes none is more of a boundary than another.
FEW = 16
TILES = (16, 32, 64, 128, 256, 512, 1024)
PRIMES = (5, 7, 11, 13, 61, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521)
#: Sizes at which kernels change what they do.
BOUNDARIES = (1, 2, 3, *(tile + more for tile in TILES for more in (0, 1)))


class Source:
    """Numbers that follow from a seed. ``name`` and ``sort`` say what is drawn next."""

    def __init__(self, seed: int) -> None:
        self.name = ""
        self.sort: Sort = "any"
        self.random = Random(seed)
        self._decks: dict[tuple[str, bool], list[Card]] = {}

    def integer(self, low: int, high: int) -> int:
        """A number between two bounds, dealt from the deck of its name."""
        if self.sort == "any":
            return self.random.randint(low, high)
        deck = self._decks.setdefault((self.name, high - low < FEW), [])
        for _ in range(2):
            for i, card in enumerate(deck):
                if isinstance(card, int):
                    number = card
                else:
                    number = min(max(card(self.random, low, high), low), high)
                if low <= number <= high:
                    del deck[i]
                    return number
            deck += self._shuffled(low, high)
        return self.random.randint(low, high)

    def _shuffled(self, low: int, high: int) -> list[Card]:
        cards: list[Card]
        if self.sort == "choice":
            cards = [*range(low, high + 1), *[low] * ((high - low + 1) // 3)]
        elif high - low < FEW:
            cards = [*range(low, high + 1), *range(max(low, 1), high + 1)]  # hardly ever nothing
        else:
            cards = [*BOUNDARIES, *(card for card, n in RELATIVE.items() for _ in range(n))]
        self.random.shuffle(cards)
        if self.sort == "choice":  # the plainest first
            cards.insert(0, cards.pop(cards.index(low)))
        return cards


_source: ContextVar[Source] = ContextVar("pytest_fib_source")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws inside follow from ``seed``."""
    token = _source.set(Source(seed))
    try:
        yield
    finally:
        _source.reset(token)


def about(name: str, sort: Sort) -> None:
    """Say what is drawn next."""
    source = _source.get()
    source.name, source.sort = name, sort


class BoundaryProvider(PrimitiveProvider):
    """Integers at and beside boundaries. Other types are not drawn in a workload."""

    lifetime = "test_function"

    def __init__(self, conjecturedata: ConjectureData | None, /) -> None:
        super().__init__(conjecturedata)

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with probability ``p``."""
        return _source.get().random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """An integer between two bounds, both of which are needed."""
        assert min_value is not None
        assert max_value is not None
        return _source.get().integer(min_value, max_value)

    def draw_float(self, *args: object, **kwargs: object) -> NoReturn:
        """Not drawn: floats follow from the seed."""
        raise NotImplementedError

    draw_string = draw_bytes = draw_float


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


def _near_tile(random: Random, low: int, high: int) -> int:
    tile = random.choice(TILES)
    return _anywhere(random, low, high) // tile * tile + random.choice((-1, 0, 0, 1)) + tile


def _below_tiles(random: Random, low: int, high: int) -> int:
    """One less than the largest tile that fits, so one less than a multiple of the others too."""
    return max(tile for tile in (low + 1, *TILES) if tile <= high) - 1


def _power(random: Random, low: int, high: int) -> int:
    """A power of two far above any tile, or else the largest that fits."""
    return 1 << random.randint(min(11, high.bit_length() - 1), high.bit_length() - 1)


def _prime(random: Random, low: int, high: int) -> int:
    return random.choice([p for p in PRIMES if low <= p <= high] or [low])


#: Cards that depend on the bounds, and how many of each are in a deck.
RELATIVE: dict[Callable[[Random, int, int], int], int] = {
    _lowest: 2,
    _highest: 2,
    _near_tile: 2,
    _below_tiles: 2,
    _power: 2,
    _prime: 1,
    _anywhere: 2,
}

AVAILABLE_PROVIDERS[BACKEND] = BoundaryProvider
