"""From a failing workload to the smallest axes and the plainest regime that still fail.

Hypothesis would shrink each number by itself and keep the seed; but a smaller workload has other
contents, so whether it fails may take another seed. Here, smaller axes are tried with several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations, product

from pytest_fib.data import INPUTS, NEAR, ON_REQUEST, Definition, Workload
from pytest_fib.search._deck import BOUNDARY_SIZES
from pytest_fib.workloads import (
    Domain,
    make_workload,
    plan,
    regime_choices,
    without_plainest,
    workload_bytes,
)

#: How many seeds are tried of each size: of many sizes, few; more of few sizes; then, where seeds
#: have turned out to matter, many; and of what is just below or beside the answer, most.
ONE_SEED, FEW_SEEDS, MANY_SEEDS, MOST_SEEDS = 1, 6, 48, 128
#: How many of each plainer regime, where seeds matter: there are dozens.
REGIME_SEEDS = 12
#: Sizes that are tried of all axes at once, from the least: those below this.
JOINT_SIZES = 20
#: Steps down from a size: halving what is between it and the next that passes, or to a multiple of
#: some small number.
STEPS_DOWN = (3, 5, 6, 7, *(1 << exponent for exponent in range(40)))
#: Sizes that are tried of each axis.
TRIED_SIZES = (
    *BOUNDARY_SIZES,
    *((1 << exponent) + near for exponent in range(4, 40) for near in (-1, 0, 1)),
)


def shrunk(
    definition: Definition, failing: Workload, fails: Callable[[Workload], bool]
) -> Workload:
    """The smallest workload like a failing one. ``fails`` may say no to end this early."""
    shrink = _Shrink(definition, failing, fails)
    if shrink.is_least():
        return failing
    shrink.lower_axes(ONE_SEED)
    shrink.lower_axes(ONE_SEED, joint=True)
    shrink.plain_regime(FEW_SEEDS)
    shrink.lower_axes(FEW_SEEDS)
    shrink.random_lengths(MOST_SEEDS)
    if shrink.seeds_matter():
        before = None
        while before != shrink.best:
            before = shrink.best
            shrink.lower_axes(MANY_SEEDS)
            shrink.plain_regime(REGIME_SEEDS)
            shrink.random_lengths(MOST_SEEDS)
            shrink.step_down(MOST_SEEDS)
    shrink.small_seed(FEW_SEEDS)
    return shrink.best


class _Shrink:
    def __init__(
        self, definition: Definition, failing: Workload, fails: Callable[[Workload], bool]
    ) -> None:
        self.best = failing
        self._definition = definition
        self._plan = plan(definition)
        self._regimes = regime_choices(definition)
        self._fails = fails
        self._verdicts: dict[str, set[bool]] = defaultdict(set)

    def is_least(self) -> bool:
        """Whether no workload is smaller or plainer."""
        return not self.best.regime and self.best.axes == self._plan.completed({})

    def seeds_matter(self) -> bool:
        """Whether any workload has been seen to fail with one seed and to pass with another."""
        for seed in range(FEW_SEEDS):
            self._fails_as(self._workload(seed, self.best.regime))
        return any(len(verdicts) > 1 for verdicts in self._verdicts.values())

    def lower_axes(self, seeds: int, *, joint: bool = False) -> None:
        """Take the cheapest of the smaller axes that fail, until none do."""
        while any(self._take_axes(axes, seeds) for axes in self._smaller(seeds == ONE_SEED, joint)):
            pass

    def step_down(self, seeds: int) -> None:
        """Take an axis that is one lower and fails, all else as it is."""
        now = self.best
        lower = (self._completed({axis: self._below(axis)}) for axis in self._plan.independent)
        smaller = [axes for axes in lower if axes not in (None, now.axes)]
        any(
            self._take(self._workload(n, now.regime, axes))
            for axes in smaller
            for n in range(seeds)
        )

    def _below(self, axis: str) -> int:
        """The next smaller size of an axis, or the least."""
        domain, size = self._plan.domain(axis, {}), self.best.axes[axis]
        return domain.nearest(size - 1)

    def _smaller(self, many: bool, joint: bool) -> list[dict[str, int]]:
        """Axes below the best, from the cheapest: those as large as the first may take seconds.

        With ``many``, more of them; with ``joint``, also those where one axis has to be just so
        since another is at its least, or about as large.
        """
        independent, best = self._plan.independent, self.best.axes
        sizes = {axis: _sizes(self._plan.domain(axis, {}), best[axis], many=many) for axis in best}
        candidates = [self._completed({}, most) for most in range(JOINT_SIZES if many else 1)]
        for n in (1, 2):  # one or two as they are, and all others at their least
            for unchanged in combinations(independent, n):
                candidates.append(self._completed({axis: best[axis] for axis in unchanged}, 0))
        for axis in independent:
            candidates += [self._completed({axis: size}) for size in sizes[axis]]
            if joint:
                for size in {*BOUNDARY_SIZES} & {*sizes[axis]}:
                    candidates += [self._completed({axis: size}, most) for most in (0, size + 1)]
        for one, other in combinations(independent, 2):  # one may be needed for the other's sake
            both = product(*({*sizes[axis][:1], *sizes[axis][-1:]} for axis in (one, other)))
            candidates += [self._completed({one: n, other: m}) for n, m in both]
        distinct = {tuple(axes.values()): axes for axes in candidates if axes not in (None, best)}
        return sorted(distinct.values(), key=partial(workload_bytes, self._definition))

    def plain_regime(self, seeds: int) -> None:
        """Take the plainest name of each regime that still fails; first, no number at all."""
        if NEAR in self.best.regime:
            plainer = {part: name for part, name in self.best.regime.items() if part != NEAR}
            any(self._take(self._workload(n, plainer)) for n in (self.best.seed, *range(seeds)))
        for what, names in self._regimes.items():
            now = self.best.regime.get(what, names[0])
            for name in names[: names.index(now)] if now in names else names:
                if self._take_regime(what, name, seeds):
                    break

    def random_lengths(self, seeds: int) -> None:
        """Take lengths at random where any of more seeds fails with them.

        Of values that would not do: normal ones that rarely fail may do so for another reason.
        """
        if "lengths" in self.best.regime:
            self._take_regime("lengths", self._regimes["lengths"][0], seeds)

    def small_seed(self, seeds: int) -> None:
        """Take the least seed that still fails, of a few."""
        for seed in range(min(seeds, self.best.seed)):
            if self._take(self._workload(seed, self.best.regime)):
                break

    def _take_regime(self, what: str, name: str, seeds: int) -> bool:
        plainer = [without_plainest({**self.best.regime, what: name})]
        if what == "values":  # what fails where some inputs hold it may pass where all do
            plainer += [without_plainest({**plainer[0], "inputs": inputs}) for inputs in INPUTS]
        return any(
            self._take(self._workload(seed, regime))
            for regime in plainer
            for seed in (self.best.seed, *range(seeds))
        )

    def _completed(
        self, known: Mapping[str, int], most: int | None = None
    ) -> dict[str, int] | None:
        """Axes up to the best ones, and to ``most`` if possible; None if impossible."""
        best = self.best.axes
        wanted = {axis: n if most is None else min(n, most) for axis, n in best.items()}
        return self._plan.lowered(best, known, wanted)

    def _take_axes(self, axes: Mapping[str, int], seeds: int) -> bool:
        return any(
            self._take(self._workload(seed, regime, axes)) for seed, regime in self._contents(seeds)
        )

    def _contents(self, seeds: int) -> Iterator[tuple[int, Mapping[str, str]]]:
        """Seeds and regimes to try other axes with.

        With more than one seed, all kinds of lengths; with many, of values as well: what is rare in
        the regime now, and so takes larger axes, may be common in another. Not among NaN and
        infinities: what fails without them is reported with numbers.
        """
        now, lengths = self.best.regime, self._regimes.get("lengths", ())
        values = self._regimes.get("values", ()) if seeds == MANY_SEEDS else ()
        values = [name for name in values if name not in ON_REQUEST]
        yield self.best.seed, now
        for seed in range(seeds):
            yield seed, now
            if now:
                yield seed, {}
            if seeds > ONE_SEED and lengths:
                yield seed, {**now, "lengths": lengths[seed % len(lengths)]}
            if seed < len(values):
                yield seed, without_plainest({**now, "values": values[seed]})

    def _workload(
        self, seed: int, regime: Mapping[str, str], axes: Mapping[str, int] | None = None
    ) -> Workload:
        return make_workload(self._definition, axes or self.best.axes, seed, regime)

    def _take(self, workload: Workload) -> bool:
        failed = self._fails_as(workload)
        if failed:
            self.best = workload
        return failed

    def _fails_as(self, workload: Workload) -> bool:
        failed = self._fails(workload)
        self._verdicts[f"{workload.axes} {workload.regime}"].add(failed)
        return failed


def _sizes(domain: Domain, size: int, *, many: bool) -> list[int]:
    """Members of a domain below a size: the smallest and some steps down; with ``many``, more."""
    smallest = [domain[i] for i in range(min(9 if many else 3, len(domain)))]
    power = 1 << max(size - 1, 1).bit_length() - 1  # kernels often change beyond one
    sizes = (
        [*TRIED_SIZES, *(size - step for step in STEPS_DOWN)]
        if many
        else [size // 2, power, power + 1, size - 1, size - 2]
    )
    members = {*smallest, *(domain.nearest(n) for n in sizes if n >= domain[0])}
    return [member for member in sorted(members) if member < size]
