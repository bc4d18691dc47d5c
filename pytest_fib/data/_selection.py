"""Few implementations that serve captured calls nearly as fast as the fastest at each shape.

Which set that is follows from times and counts alone, so all who read the same files choose alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import TypeAlias

#: The sizes of a definition's var axes, in order.
Shape: TypeAlias = tuple[int, ...]
#: Times of the solutions at one shape, by their names.
Times: TypeAlias = Mapping[str, float]
#: Steps of the search after which a set that may not be the smallest is good enough: about 1 s.
STEPS = 10_000_000
#: How much more time than with the fastest at each shape is worth fewer implementations.
WITHIN = 0.01
#: Sums of the same numbers in another order may differ by this share.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Served:
    """What one solution of a selection serves: how many calls, and how long they take in all."""

    calls: int
    milliseconds: float


@dataclass(frozen=True)
class Selection:
    """The smallest set of solutions that serve a definition's captured calls nearly optimally.

    ``served`` has them, that with the most calls first. ``total_ms`` is what all calls take if each
    shape is served by the fastest of them, ``best_ms`` by the fastest of all, and ``reference_ms``
    by the reference; None where a time of that is not known. ``unmeasured`` calls were at shapes
    where no solution has passed and been timed; they count in nothing else.
    """

    definition: str
    hardware: str
    served: Mapping[str, Served]
    best_ms: float
    reference_ms: float | None
    unmeasured: int

    @property
    def solutions(self) -> tuple[str, ...]:
        return tuple(self.served)

    @property
    def calls(self) -> int:
        return sum(served.calls for served in self.served.values())

    @property
    def total_ms(self) -> float:
        """What these calls take."""
        return fsum(served.milliseconds for served in self.served.values())

    @property
    def saving(self) -> float | None:
        """The share of the reference's time that they save."""
        return 1 - self.total_ms / self.reference_ms if self.reference_ms else None


def _served_by(
    names: Sequence[str], calls: Sequence[int], times: Sequence[Times]
) -> dict[str, Served]:
    """What each of these solutions serves where the fastest of them is called at each shape."""
    calls_at: dict[str, list[tuple[int, float]]] = {name: [] for name in names}
    for number, at_shape in zip(calls, times, strict=True):
        fastest = min((name for name in names if name in at_shape), key=lambda n: (at_shape[n], n))
        calls_at[fastest].append((number, number * at_shape[fastest]))
    served = {
        name: Served(sum(n for n, _ in of), fsum(ms for _, ms in of))
        for name, of in calls_at.items()
    }
    return dict(sorted(served.items(), key=lambda item: (-item[1].calls, item[0])))


def smallest_set(costs: Sequence[Times], within: float) -> tuple[str, ...]:
    """The smallest set of solutions that costs at most ``1 + within`` times the least possible.

    ``costs`` has, for each shape, what each solution that may be called there costs. Of sets of one
    size the cheapest is chosen, then the first by name. What one more solution gains never grows as
    others are added, so bounds leave little to try; where that little is too much, a set that was
    made by adding what gains most is the answer.
    """
    least = fsum(min(at_shape.values()) for at_shape in costs)
    limit = least * (1 + within + _ROUNDING)
    names = sorted({name for at_shape in costs for name in at_shape})
    # A shape that no solution of a set serves is over the limit by itself.
    missing = 2 * limit + 1
    rows = {name: [at_shape.get(name, missing) for at_shape in costs] for name in names}
    start = [missing] * len(costs)
    greedy = _greedy(rows, start, limit)
    search = _SubsetSearch(rows, STEPS // (len(names) * len(costs)) + 100)
    for size in range(1, len(greedy) + 1):
        if names_chosen := search.cheapest(size, start, limit):
            return names_chosen
    return tuple(sorted(greedy))


def _greedy(rows: Mapping[str, Sequence[float]], start: Sequence[float], limit: float) -> list[str]:
    chosen: list[str] = []
    cheapest = start
    while fsum(cheapest) > limit:
        _, name = min((-_gain(cheapest, rows[name]), name) for name in rows if name not in chosen)
        chosen.append(name)
        cheapest = list(map(min, cheapest, rows[name]))
    return chosen


def _gain(cheapest: Sequence[float], row: Sequence[float]) -> float:
    return fsum(before - now for before, now in zip(cheapest, row, strict=True) if now < before)


class _SubsetSearch:
    """Depth-first, the most gaining first, cut off where even the largest gains don't suffice."""

    def __init__(self, rows: Mapping[str, Sequence[float]], steps: int) -> None:
        self._rows, self._steps = rows, steps
        self._limit = 0.0
        self._best: tuple[float, tuple[str, ...]] | None = None

    def cheapest(self, size: int, start: Sequence[float], limit: float) -> tuple[str, ...]:
        """The cheapest set of this size within a limit; empty where there is none."""
        self._best, self._limit = None, limit
        self._extend((), size, start, list(self._rows))
        return self._best[1] if self._best else ()

    def _extend(
        self,
        chosen: tuple[str, ...],
        size: int,
        cheapest: Sequence[float],
        names: Sequence[str],
    ) -> None:
        if size == 0:
            self._offer(fsum(cheapest), chosen)
            return
        total = fsum(cheapest)
        gains = sorted((-_gain(cheapest, self._rows[name]), name) for name in names)
        for i in range(len(gains) - size + 1):
            self._steps -= 1
            at_least = total + fsum(gain for gain, _ in gains[i : i + size])
            if at_least > self._limit * (1 + _ROUNDING) or self._steps < 0:
                return
            name, rest = gains[i][1], [name for _, name in gains[i + 1 :]]
            now = list(map(min, cheapest, self._rows[name]))
            self._extend((*chosen, name), size - 1, now, rest)

    def _offer(self, total: float, names: tuple[str, ...]) -> None:
        offer = (total, tuple(sorted(names)))
        if total <= self._limit and (self._best is None or offer < self._best):
            self._best, self._limit = offer, total


def selection_of(
    definition: str,
    hardware: str,
    calls: Mapping[Shape, int],
    times: Mapping[Shape, Times],
    references: Mapping[Shape, float],
) -> Selection | None:
    """The selection for so many calls at each shape; None if none of the shapes was measured.

    ``times`` are milliseconds of the solutions that may serve a shape, ``references`` those of the
    reference.
    """
    shapes = sorted(shape for shape, number in calls.items() if number and times.get(shape))
    if not shapes:
        return None
    numbers = [calls[shape] for shape in shapes]
    at_shapes = [times[shape] for shape in shapes]
    costs = [
        {name: number * ms for name, ms in at_shape.items()}
        for number, at_shape in zip(numbers, at_shapes, strict=True)
    ]
    known = all(shape in references for shape in shapes)
    return Selection(
        definition=definition,
        hardware=hardware,
        served=_served_by(smallest_set(costs, WITHIN), numbers, at_shapes),
        best_ms=fsum(min(at_shape.values()) for at_shape in costs),
        reference_ms=fsum(calls[s] * references[s] for s in shapes) if known else None,
        unmeasured=sum(calls.values()) - sum(numbers),
    )
