"""Sizes of axes that meet constraints: propagation of bounds, and a bounded search where needed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from pytest_fib.workloads._axes import Domain
from pytest_fib.workloads._intervals import ContradictionError, narrow

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pytest_fib.workloads._constraints import Constraint

    Domains = dict[str, Domain]

#: How often at most all constraints narrow the domains: what is left then is searched through.
ROUNDS = 8
#: How many values of an axis are tried with all those of the axes after it, one after the other.
WIDTHS = (1, 4, 16, 64, 256)
#: How many values of the last axis are tried: that takes no more than a look at the constraints.
LAST = 4096
#: How many are tried in all before nothing is held to meet the constraints.
TRIES = 20_000


@dataclass
class Tries:
    """How many values may still be tried."""

    left: int

    def take(self) -> bool:
        """Whether there was one left."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class Sizes:
    """The axes of a definition with their domains, and the constraints on them.

    ``order`` has the var axes in the order in which they are decided; ``fixed``, the const ones.
    """

    order: tuple[str, ...]
    listed: Mapping[str, Domain]
    fixed: Mapping[str, int]
    constraints: tuple[Constraint, ...]

    @cached_property
    def _possible(self) -> Domains | None:
        """What the constraints leave of each axis while none is known; None for nothing."""
        return self.narrowed(self._listed_and_fixed(), self.order)

    def _listed_and_fixed(self) -> Domains:
        return {**self.listed, **{axis: Domain(n, n) for axis, n in self.fixed.items()}}

    def domains(
        self, known: Mapping[str, int], at_most: Mapping[str, int] | None = None
    ) -> Domains | None:
        """What is left of each axis where some are known and others limited; None for nothing."""
        points = {axis: Domain(n, n) for axis, n in known.items()}
        start = self._possible
        if start is None or not all(n in start[axis] for axis, n in known.items()):
            # What is given, maybe by a definition's list, need not be what would be drawn.
            return self.narrowed({**self._listed_and_fixed(), **points}, self.order)
        limited = {
            axis: start[axis].narrowed(0, n)
            for axis, n in (at_most or {}).items()
            if axis not in known
        }
        if not all(limited.values()):
            return None
        return self.narrowed({**start, **limited, **points}, {*limited, *points})

    def complete(
        self,
        known: Mapping[str, int],
        near: Mapping[str, int] | None = None,
        at_most: Mapping[str, int] | None = None,
        tries: Tries | None = None,
    ) -> dict[str, int] | None:
        """All axes where some are known; None where nothing was found that meets the constraints.

        The others come as close to ``near`` as may be, or else to their least value.
        """
        domains = self.domains(known, at_most)
        if domains is None:
            return None
        wanted = near or {}
        first = {axis: domains[axis].nearest(wanted.get(axis, 0)) for axis in self.order}
        if self._meets(first):
            return first
        settled = _Search(self, wanted, tries or Tries(TRIES)).settle(domains)
        return None if settled is None else {axis: settled[axis].low for axis in self.order}

    def conflict(self, known: Mapping[str, int]) -> tuple[tuple[Constraint, ...], bool]:
        """Constraints that are not met together, though without any of them the others are.

        And whether that is proven: otherwise, not all values were tried.
        """
        core = self
        for constraint in self.constraints:
            fewer = tuple(each for each in core.constraints if each is not constraint)
            lesser = replace(self, constraints=fewer)
            if lesser.complete(known, tries=Tries(TRIES // 10)) is None:
                core = lesser
        domains = core.domains(known)
        search = _Search(core, {}, Tries(TRIES))
        proven = domains is None or (search.settle(domains) is None and not search.cut_off)
        return core.constraints, proven

    def narrowed(self, domains: Domains, changed: Collection[str]) -> Domains | None:
        """Narrow domains in place by what constraints say, given the axes whose domain is new.

        None where nothing is left of an axis.
        """
        try:
            for _ in range(ROUNDS):
                concerned = [each for each in self.constraints if not each.axes.isdisjoint(changed)]
                changed = {axis for each in concerned for axis in self._apply(each, domains)}
                if not changed:
                    break
        except ContradictionError:
            return None
        return domains

    def _apply(self, constraint: Constraint, domains: Domains) -> set[str]:
        """The axes whose domain a constraint has narrowed. Raises ContradictionError."""
        before = [(axis, domains[axis]) for axis in constraint.axes]
        if all(len(domain) == 1 for _, domain in before):
            values = {**self.fixed, **{axis: domain.low for axis, domain in before}}
            if not constraint.holds(values):
                raise ContradictionError
            return set()
        with suppress(ArithmeticError):  # numbers far above those of any axis
            narrow(constraint.tree, domains)
        return {axis for axis, domain in before if domains[axis] is not domain}

    def _meets(self, axes: Mapping[str, int]) -> bool:
        values = {**self.fixed, **axes}
        return all(constraint.holds(values) for constraint in self.constraints)

    def groups(self) -> list[list[str]]:
        """The axes of which constraints say something together; each group by itself is decided."""
        groups = {axis: {axis} for axis in self.order}
        for constraint in self.constraints:
            merged = set().union(*(groups[axis] for axis in constraint.axes))
            groups |= dict.fromkeys(merged, merged)
        distinct = {id(group): group for group in groups.values()}
        return [[axis for axis in self.order if axis in group] for group in distinct.values()]


class _Search:
    """A depth-first search for sizes near to those that are wanted, wider from pass to pass."""

    def __init__(self, sizes: Sizes, wanted: Mapping[str, int], tries: Tries) -> None:
        self._sizes = sizes
        self._wanted = wanted
        self._tries = tries
        self.cut_off = False

    def settle(self, domains: Domains) -> Domains | None:
        """Domains of one value for each axis; None where none were found that meet all."""
        for group in self._sizes.groups():
            settled = self._settle_group(group, domains)
            if settled is None:
                return None
            domains = settled
        return domains

    def _settle_group(self, group: Sequence[str], domains: Domains) -> Domains | None:
        for width in WIDTHS:
            self.cut_off = False
            settled = self._settle(group, domains, width)
            if settled is not None or not self.cut_off or self._tries.left <= 0:
                return settled
        return None

    def _settle(self, axes: Sequence[str], domains: Domains, width: int) -> Domains | None:
        if not axes:
            return domains
        axis, rest = axes[0], axes[1:]
        last = all(len(domains[each]) == 1 for each in rest)
        most = min(LAST if last else width, max(self._tries.left, 0))
        self.cut_off |= len(domains[axis]) > most
        for n in islice(domains[axis].around(self._wanted.get(axis, 0)), most):
            if not self._tries.take():
                break
            left = self._sizes.narrowed({**domains, axis: Domain(n, n)}, (axis,))
            settled = None if left is None else self._settle(rest, left, width)
            if settled is not None:
                return settled
        return None
