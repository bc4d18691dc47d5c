"""From a failing workload to the smallest axes and the plainest regime that still fail.

Hypothesis would shrink each number by itself and keep the seed; but a smaller workload has other
contents, so whether it fails may take another seed. Here, smaller axes are tried with several.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._plan import InfeasibleError, plan
from pytest_fib.workloads._provider import BOUNDARIES
from pytest_fib.workloads._regimes import regimes, special

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads._axes import Domain

#: How many seeds are tried of each size: more, once they turn out to matter.
SEEDS_TRIED = (1, 6, 24)
#: Steps down from a size: some failures come at the multiples of a number.
STEPS = (*range(1, 9), 16, 32, 64, 128, 256)
#: Sizes that are tried of each axis, and of all at once, from the smallest.
SIZES = (
    *(n for n in range(10) if n not in BOUNDARIES),
    *BOUNDARIES,
    *((1 << exponent) + near for exponent in range(9, 40) for near in (-1, 0, 1)),
)


def shrunk(
    definition: Definition, failing: Workload, fails: Callable[[Workload], bool]
) -> Workload:
    """The smallest workload like a failing one. ``fails`` may say no to end this early."""
    shrink = _Shrink(definition, failing, fails)
    for seeds in SEEDS_TRIED:
        shrink.lower_axes(seeds)
        if shrink.is_least() or not shrink.depends_on_seed():
            break
    shrink.plain_regime(seeds)
    shrink.small_seed(SEEDS_TRIED[1])
    return shrink.best


class _Shrink:
    def __init__(
        self, definition: Definition, failing: Workload, fails: Callable[[Workload], bool]
    ) -> None:
        self.best = failing
        self._definition = definition
        self._plan = plan(definition)
        self._regimes = regimes(definition)
        self._fails = fails

    def lower_axes(self, seeds: int) -> None:
        """Lower all axes, then each, until none can be lowered any more."""
        self._lower_all(seeds)
        before = None
        while before != self.best.axes:
            before = self.best.axes
            for axis in self._plan.independent:
                self._lower(axis, seeds)

    def is_least(self) -> bool:
        """Whether nothing is smaller or plainer."""
        return not self.best.regime and self.best.axes == self._plan.completed({})

    def depends_on_seed(self) -> bool:
        """Whether the best workload passes with some other seed."""
        seeds = range(SEEDS_TRIED[1])
        return not all(self._fails(self._made(seed, self.best.regime)) for seed in seeds)

    def plain_regime(self, seeds: int) -> None:
        """Take the plainest name of each regime that still fails."""
        for what, names in self._regimes.items():
            now = self.best.regime.get(what, names[0])
            for name in names[: names.index(now)] if now in names else names:
                if self._take_regime(what, name, seeds):
                    break

    def small_seed(self, seeds: int) -> None:
        """Take the least seed that still fails, of a few."""
        for seed in range(min(seeds, self.best.seed)):
            if self._take(self._made(seed, self.best.regime)):
                break

    def _take_regime(self, what: str, name: str, seeds: int) -> bool:
        regime = special({**self.best.regime, what: name})
        return any(self._take(self._made(seed, regime)) for seed in (self.best.seed, *range(seeds)))

    def _lower_all(self, seeds: int) -> None:
        """Clip all axes to the least size with which it still fails."""
        for most in SIZES:
            if most >= max(self.best.axes.values(), default=0):
                break
            axes = self._completed({}, most)
            if axes is not None and self._take_axes(axes, seeds):
                break

    def _lower(self, axis: str, seeds: int) -> None:
        """Lower one axis to the first of its sizes that fails, then to the least just below it."""
        domain = self._plan.domain(axis, {})
        passed = None
        for size in _sizes(domain, self.best.axes[axis]):
            if self._take_size(axis, size, seeds):
                break
            passed = size
        while passed is not None and self._halve(axis, domain, passed, seeds) > passed:
            passed = self._halve(axis, domain, passed, seeds)

    def _halve(self, axis: str, domain: Domain, passed: int, seeds: int) -> int:
        """Try the size between one that passed and the best; the largest now known to pass."""
        middle = domain.nearest((passed + self.best.axes[axis]) // 2)
        while passed < middle < self.best.axes[axis]:
            if not self._take_size(axis, middle, seeds):
                return middle
            middle = domain.nearest((passed + middle) // 2)
        return passed

    def _take_size(self, axis: str, size: int, seeds: int) -> bool:
        axes = self._completed({axis: size})
        return axes is not None and self._take_axes(axes, seeds)

    def _completed(self, known: dict[str, int], most: int | None = None) -> dict[str, int] | None:
        """Axes no larger than the best ones, and up to ``most`` where that can be; else None."""
        axes = dict(known)
        try:
            for axis in self._plan.order:
                if axis not in axes:
                    now = self.best.axes[axis]
                    wanted = now if most is None else min(now, most)
                    axes[axis] = self._plan.domain(axis, axes).nearest(wanted)
        except InfeasibleError:
            return None
        smaller = all(axes[axis] <= n for axis, n in self.best.axes.items())
        return axes if smaller and self._plan.broken(axes) is None else None

    def _take_axes(self, axes: Mapping[str, int], seeds: int) -> bool:
        return axes != self.best.axes and any(
            self._take(self._made(seed, regime, axes)) for seed, regime in self._contents(seeds)
        )

    def _contents(self, seeds: int) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Seeds and regimes to try other axes with; where many seeds are, all kinds of lengths."""
        now, lengths = self.best.regime, self._regimes.get("lengths", ())
        yield self.best.seed, now
        for seed in range(seeds):
            yield seed, now
            if now:
                yield seed, {}
            if seeds > 1 and lengths:
                yield seed, {**now, "lengths": lengths[seed % len(lengths)]}

    def _made(
        self, seed: int, regime: Mapping[str, str], axes: Mapping[str, int] | None = None
    ) -> Workload:
        return complete(self._definition, axes or self.best.axes, seed, regime)

    def _take(self, workload: Workload) -> bool:
        failed = self._fails(workload)
        if failed:
            self.best = workload
        return failed


def _sizes(domain: Domain, size: int) -> list[int]:
    """Members of a domain below a size, the smallest ones, boundaries, and some steps down."""
    wanted = [
        *SIZES,
        *(size - step for step in STEPS),
        *(domain[i] for i in range(min(9, len(domain)))),
    ]
    members = sorted({domain.nearest(n) for n in wanted if domain[0] <= n})
    return members[: bisect_left(members, size)]
