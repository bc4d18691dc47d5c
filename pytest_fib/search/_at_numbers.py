"""Workloads at the numbers that an implementation has in its source."""

from __future__ import annotations

from functools import partial
from itertools import chain, zip_longest
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from pytest_fib.data import NEAR, Definition, Workload
from pytest_fib.search._deck import DECK_TILES
from pytest_fib.workloads import USUAL_BYTES, Choice, make_workload, plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_fib.search._source_numbers import Number

SEEDS = 1 << 16
#: Up to how many sizes above its least an axis has that is beside the one in question; and of each
#: axis where values are in question.
FEW, FEW_OF_EACH = 4, 40


class _Case(NamedTuple):
    """One axis of a size, or a value that inputs have.

    The other axes are up to ``few`` sizes, or as large as that one where it is None.
    """

    number: Number
    axis: str | None
    few: int | None


def workloads_at(
    definition: Definition, numbers: Sequence[Number], count: int, seed: int, max_bytes: int
) -> list[Workload]:
    """Up to ``count`` workloads with sizes or values at these numbers, and next to them.

    Half of each. First an axis has one more than a number, while all others are as small as may be:
    so many things are in one row, sequence or group. Then the others have as much as that, or a
    few. Numbers that are no tile come first, since of these each search has sizes.
    """
    random = Random(seed)
    made: dict[str, Workload] = {}
    budget = min(max_bytes, USUAL_BYTES)
    values = _values(numbers, random)
    both = zip_longest(_sizes(definition, numbers, random), values)
    for case in filter(None, chain.from_iterable(both)):
        if len(made) == count:
            break
        axes = _axes(definition, case, budget, random)
        if case.axis is None or axes[case.axis] == case.number:
            regime = {NEAR: str(case.number)} if case.axis is None else {}
            workload = make_workload(definition, axes, random.randrange(SEEDS), regime)
            made[workload.uuid] = workload
    return [*made.values()]


def _sizes(definition: Definition, numbers: Sequence[Number], random: Random) -> Iterator[_Case]:
    axes = plan(definition).independent
    for more, few in ((1, 0), (1, None), (1, FEW), (0, 0), (0, FEW)):
        cases = [
            _Case(number + more, axis, few)
            for number in numbers
            for axis in axes
            if isinstance(number, int) and number > 0
        ]
        random.shuffle(cases)
        yield from sorted(cases, key=lambda case: case.number - more in DECK_TILES)


def _values(numbers: Sequence[Number], random: Random) -> Iterator[_Case]:
    for _ in range(2):
        cases = [_Case(number, None, FEW_OF_EACH) for number in numbers]
        random.shuffle(cases)
        yield from cases


def _axes(definition: Definition, case: _Case, budget: int, random: Random) -> Mapping[str, int]:
    planned = plan(definition)
    order = sorted(planned.order, key=lambda axis: axis != case.axis)
    pick = partial(_pick, case, random)
    return planned.choose(dict.fromkeys(order, budget), pick)


def _pick(case: _Case, random: Random, choice: Choice) -> int:
    if choice.axis == case.axis or case.few is None:
        return choice.domain.nearest(min(int(case.number), choice.largest))
    most = min(case.few, choice.affordable - 1)
    return choice.domain[random.randint(min(1, most), most)]
