"""How the numbers in a workload are drawn: a Hypothesis backend biased to kernels' boundaries.

Hypothesis' own backend mixes in constants found in whatever local modules happen to be imported,
so two processes with one seed draw different workloads. This one depends on the seed alone.
Shrinking stays Hypothesis' own.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from random import Random
from typing import TYPE_CHECKING, NoReturn

from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hypothesis.internal.conjecture.data import ConjectureData

BACKEND = "pytest-fib"
_random: ContextVar[Random] = ContextVar("pytest_fib_random")

#: Below this many choices none is more of a boundary than another.
FEW = 16
TILES = (16, 32, 64, 128, 256)
PRIMES = (3, 5, 7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draws inside follow from ``seed``."""
    token = _random.set(Random(seed))
    try:
        yield
    finally:
        _random.reset(token)


class BoundaryProvider(PrimitiveProvider):
    """Integers at and beside boundaries. Other types are not drawn in a workload."""

    lifetime = "test_function"

    def __init__(self, conjecturedata: ConjectureData | None, /) -> None:
        super().__init__(conjecturedata)

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with probability ``p``."""
        return _random.get().random() < p

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
        return _integer(_random.get(), min_value, max_value)

    def draw_float(self, *args: object, **kwargs: object) -> NoReturn:
        """Not drawn: floats follow from the seed."""
        raise NotImplementedError

    draw_string = draw_bytes = draw_float


def _integer(random: Random, low: int, high: int) -> int:
    if high - low < FEW:
        return random.randint(low, high)
    (kind,) = random.choices(list(_KINDS), weights=[weight for _, weight in _KINDS.values()])
    drawn = _KINDS[kind][0](random, low, high)
    return min(max(drawn, low), high)


def _anywhere(random: Random, low: int, high: int) -> int:
    """Log-uniform: small ones are as likely as large ones, and much cheaper."""
    return low + int((high - low + 1) ** random.random()) - 1


def _smallest(random: Random, low: int, high: int) -> int:
    return low + random.randrange(4)


def _largest(random: Random, low: int, high: int) -> int:
    return high - random.choice((0, 0, 1))


def _near_power(random: Random, low: int, high: int) -> int:
    exponent = random.randint(max(low, 1).bit_length() - 1, high.bit_length() - 1)
    return (1 << exponent) + random.choice((-1, 0, 1))


def _near_tile(random: Random, low: int, high: int) -> int:
    tile = random.choice(TILES)
    return _anywhere(random, low, high) // tile * tile + random.choice((-1, 0, 1)) + tile


def _prime(random: Random, low: int, high: int) -> int:
    return random.choice([p for p in PRIMES if low <= p <= high] or [low])


_KINDS: dict[str, tuple[Callable[[Random, int, int], int], float]] = {
    "near a power of two": (_near_power, 0.3),
    "near a multiple of a tile": (_near_tile, 0.2),
    "prime": (_prime, 0.1),
    "smallest": (_smallest, 0.1),
    "largest": (_largest, 0.1),
    "anywhere": (_anywhere, 0.2),
}

AVAILABLE_PROVIDERS[BACKEND] = BoundaryProvider
