"""All that is used of Hypothesis beyond its public interface: an alternative backend.

Kernel items draw from the same strategy as everybody's tests, but with this backend, for two
reasons. Hypothesis' own one mixes in constants of whatever modules happen to be imported, so two
processes with one seed would draw different workloads. And it draws at random, where a deck deals:
25 workloads then have each boundary once.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn, TypeVar

from hypothesis import HealthCheck, Phase, Verbosity, given, settings, strategies as st
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, PrimitiveProvider

from pytest_fib.search._deck import Bounds

if TYPE_CHECKING:
    from hypothesis.internal.conjecture.data import ConjectureData
    from hypothesis.strategies import DrawFn, SearchStrategy

    from pytest_fib.search._deck import Deck, Sort

Drawn = TypeVar("Drawn")

BACKEND = "pytest-fib"
#: Sizes are rounded to multiples of powers of two up to this one, half of the time.
LARGEST_TILE = 10


class _Dealing:
    """A deck in use; ``name``, ``sort`` and ``bounds`` say what is dealt next."""

    def __init__(self, deck: Deck) -> None:
        self.deck = deck
        self.name = ""
        self.sort: Sort = "any"
        self.bounds = Bounds(0, 0)


_dealing: ContextVar[_Dealing | None] = ContextVar("pytest_fib_dealing", default=None)


def deal(strategy: SearchStrategy[Drawn], count: int, deck: Deck) -> list[Drawn]:
    """Up to ``count`` examples of a strategy: its plainest, then with numbers from a deck."""
    drawn: list[Drawn] = []
    if count == 0:
        return drawn  # Hypothesis takes no fewer than one

    @settings(
        backend=BACKEND,
        max_examples=count,
        phases=[Phase.generate],
        database=None,  # failures are kept as workloads, which outlive a change of strategy
        deadline=None,
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(strategy)
    def draw(example: Drawn) -> None:
        drawn.append(example)

    token = _dealing.set(_Dealing(deck))
    try:
        draw()
    finally:
        _dealing.reset(token)
    return drawn


def draw_number(draw: DrawFn, name: str, sort: Sort, bounds: Bounds) -> int:
    """A number between two bounds, which shrinks to the lower one. ``name`` is that of its deck."""
    if bounds.low == bounds.high:
        return bounds.low
    dealing = _dealing.get()
    if dealing is not None:
        dealing.name, dealing.sort, dealing.bounds = name, sort, bounds
    elif sort in ("size", "largest"):
        return _draw_size(draw, bounds.low, bounds.high)
    return draw(st.integers(bounds.low, bounds.high))


def _draw_size(draw: DrawFn, low: int, high: int) -> int:
    """Without a deck: log-uniform, and as often as not at or beside a multiple of a tile."""
    spread = draw(st.integers(0, (high - low).bit_length()))
    size = draw(st.integers(low, min(high, low + (1 << spread) - 1)))
    tile = draw(st.integers(-LARGEST_TILE, LARGEST_TILE))
    if tile <= 0:
        return size
    beside = draw(st.sampled_from((0, 1, -1)))
    return min(max((size >> tile << tile) + beside, low), high)


class DeckProvider(PrimitiveProvider):
    """Draws integers from the deck. Workloads are made of nothing else."""

    lifetime = "test_function"

    def __init__(self, conjecturedata: ConjectureData | None, /) -> None:
        super().__init__(conjecturedata)
        dealing = _dealing.get()
        assert dealing is not None
        self._dealing = dealing

    def draw_boolean(self, p: float = 0.5) -> bool:
        """True with probability ``p``."""
        return self._dealing.deck.random.random() < p

    def draw_integer(
        self,
        min_value: int | None = None,
        max_value: int | None = None,
        *,
        weights: dict[int, float] | None = None,
        shrink_towards: int = 0,
    ) -> int:
        """An integer between two bounds, both of which are needed."""
        dealing = self._dealing
        assert (min_value, max_value) == dealing.bounds[:2]
        return dealing.deck.deal(dealing.name, dealing.sort, dealing.bounds)

    def draw_float(self, *args: object, **kwargs: object) -> NoReturn:
        """Not drawn: floats follow from the seed."""
        raise NotImplementedError

    draw_string = draw_bytes = draw_float


AVAILABLE_PROVIDERS[BACKEND] = DeckProvider
