"""Workloads at the numbers that an implementation has in its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, combinations, zip_longest
from math import isqrt
from random import Random
from typing import TYPE_CHECKING

from pytest_fib.data import NEAR, Definition, Workload
from pytest_fib.search._deck import DECK_TILES
from pytest_fib.workloads import USUAL_BYTES, Choice, Domain, Plan, make_workload, plan

if TYPE_CHECKING:
    from pytest_fib.search._source_numbers import Number

SEEDS = 1 << 16
#: Up to how many sizes above its least an axis has that is beside the one in question; and of each
#: axis where values are in question.
FEW, FEW_OF_EACH = 4, 40
#: How many workloads are near each number: that itself, and what is next to it, by turns.
NEAR_EACH = 3
#: Of more numbers than that, as of tables, some are tried.
MOST_NUMBERS = 100
#: The largest number that two sizes are to have as their product.
MOST_PRODUCT = 1 << 24


@dataclass(frozen=True)
class _Case:
    """Sizes that some axes are to have, or a value that inputs are to be near.

    Other axes are at most as many sizes above their least as ``steps_of_others`` says.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    steps_of_others: int = 0
    near: Number | None = None
    seed: int = 0


def workloads_at(
    definition: Definition, numbers: Sequence[Number], count: int, seed: int, max_bytes: int
) -> list[Workload]:
    """Up to ``count`` workloads with sizes or values at these numbers, and next to them.

    Half of each, the former by turns: one axis has one more than a number, while all others are as
    small as may be, so that so many things are in one row, sequence or group; two have a quarter
    more, so that what is left out is more than rounding, or one more; two have it as their product;
    one has it, or one more, and the others a few. Numbers that are no tile come first, since of
    these each search has sizes.
    """
    random, planned = Random(seed), plan(definition)
    numbers = sorted(random.sample([*numbers], min(len(numbers), MOST_NUMBERS)))
    made: dict[tuple[object, ...], Workload] = {}
    pick = partial(_pick, random)
    both = zip_longest(_sizes(planned, numbers, random), _values(numbers, random))
    for case in filter(None, chain.from_iterable(both)):
        if len(made) == count:
            break
        order = sorted(planned.order, key=lambda axis: axis not in case.sizes)
        budgets = dict.fromkeys(order, min(max_bytes, USUAL_BYTES))
        axes = planned.choose(budgets, partial(pick, case))
        if all(axes[axis] == size for axis, size in case.sizes.items()):
            regime = {} if case.near is None else {NEAR: str(case.near)}
            of_this = (*sorted(axes.items()), case.near, case.near and case.seed)
            made.setdefault(of_this, make_workload(definition, axes, case.seed, regime))
    return [*made.values()]


def _sizes(planned: Plan, numbers: Sequence[Number], random: Random) -> Iterator[_Case]:
    whole = [number for number in numbers if isinstance(number, int) and number > 0]
    axes = planned.independent
    domains = {axis: planned.domain(axis, {}) for axis in axes}
    pairs = [*combinations(axes, 2)]
    kinds = (
        [({axis: n + 1}, 0) for n in whole for axis in axes],
        [(dict.fromkeys(pair, n + n // 4 + 1), FEW) for n in whole for pair in pairs],
        [(sizes, FEW) for n in whole for sizes in _products(domains, n, random)],
        [({axis: n + 1}, FEW) for n in whole for axis in axes],
        [(dict.fromkeys(pair, n + 1), FEW) for n in whole for pair in pairs],
        [({axis: n}, few) for few in (0, FEW) for n in whole for axis in axes],
    )
    shuffled = [_shuffled(each, random) for each in kinds]
    yield from filter(None, chain.from_iterable(zip_longest(*shuffled)))


def _shuffled(sizes: Sequence[tuple[dict[str, int], int]], random: Random) -> list[_Case]:
    """Cases with these sizes of some axes and few of the others; those at tiles are the last."""
    cases = [_Case(each, few, seed=random.randrange(SEEDS)) for each, few in sizes]
    random.shuffle(cases)
    return sorted(cases, key=_is_at_tiles)


def _is_at_tiles(case: _Case) -> bool:
    return all(size - 1 in DECK_TILES for size in case.sizes.values())


def _products(
    domains: Mapping[str, Domain], number: int, random: Random
) -> Iterator[dict[str, int]]:
    """Two different sizes with that product, of any two axes that may have these."""
    if number > MOST_PRODUCT:
        return
    divisors = [n for n in range(2, isqrt(number) + 1) if number % n == 0 and n * n < number]
    factors = [(n, number // n) for n in divisors] + [(number // n, n) for n in divisors]
    for one, other in combinations(domains, 2):
        fitting = [(n, m) for n, m in factors if n in domains[one] and m in domains[other]]
        if fitting:
            yield dict(zip((one, other), random.choice(fitting), strict=True))


def _values(numbers: Sequence[Number], random: Random) -> Iterator[_Case]:
    """Those near each number have seeds one after the other, and so different turns."""
    first = {number: random.randrange(SEEDS - NEAR_EACH) for number in numbers}
    for turn in range(NEAR_EACH):
        for number in random.sample([*numbers], len(numbers)):
            yield _Case(steps_of_others=FEW_OF_EACH, near=number, seed=first[number] + turn)


def _pick(random: Random, case: _Case, choice: Choice) -> int:
    if choice.axis in case.sizes:
        return choice.domain.nearest(min(case.sizes[choice.axis], choice.largest))
    most = min(case.steps_of_others, choice.affordable - 1)
    return choice.domain[random.randint(min(1, most), most)]
