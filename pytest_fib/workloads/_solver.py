"""Sizes of axes that meet constraints: propagation of bounds, and a bounded search where needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from pytest_fib.workloads._axes import Domain
from pytest_fib.workloads._constraints import Constraint, ConstraintError
from pytest_fib.workloads._intervals import ContradictionError, Domains, Narrow, compile_narrow

Holds = Callable[[Mapping[str, int]], bool]

#: How often at most all constraints narrow the domains: what is left then is searched through.
SOLVER_ROUNDS = 8
#: How many values of an axis are tried with all those of the axes after it, one after the other.
WIDTHS = (1, 4, 16, 64, 256)
#: How many values of the last axis are tried: that takes no more than a look at the constraints.
LAST_WIDTH = 4096
#: How many are tried in all before nothing is held to meet the constraints.
MAX_TRIES = 20_000


class InfeasibleError(ConstraintError):
    """No value of an axis meets the constraints; the message names them."""


@dataclass
class Tries:
    """How many values may still be tried."""

    left: int = MAX_TRIES

    def take(self) -> bool:
        """Whether there was one left."""
        self.left -= 1
        return self.left >= 0


@dataclass(frozen=True)
class AxisSolver:
    """Finds sizes of the axes of a definition that lie in their domains and meet the constraints.

    ``order`` has the var axes in the order in which they are decided, ``listed`` their domains;
    ``const``, the sizes of the const ones.
    """

    order: tuple[str, ...] = ()
    listed: Mapping[str, Domain] = field(default_factory=dict)
    const: Mapping[str, int] = field(default_factory=dict)
    constraints: tuple[Constraint, ...] = ()

    @cached_property
    def _compiled(self) -> list[tuple[Narrow, frozenset[str], Holds]]:
        """Of each constraint: what narrows domains, of which axes, and whether sizes meet it."""
        return [(compile_narrow(c.tree, self.const), c.axes, c.holds) for c in self.constraints]

    @cached_property
    def _possible(self) -> Domains | None:
        """The domain of each axis by the constraints while none is known; None if one is empty."""
        return self.narrowed(dict(self.listed), self.order)

    def domains(
        self, known: Mapping[str, int], at_most: Mapping[str, int] | None = None
    ) -> Domains | None:
        """The domain of each axis if some are known and others limited; None if one is empty."""
        points = {axis: Domain(n, n) for axis, n in known.items()}
        start = self._possible
        if start is None or not all(n in start[axis] for axis, n in known.items()):
            # What is given, maybe by a definition's list, need not be what would be drawn.
            return self.narrowed({**self.listed, **points}, self.order)
        limits = {axis: n for axis, n in (at_most or {}).items() if axis not in known}
        limited = {axis: start[axis].narrowed(0, n) for axis, n in limits.items()}
        if not all(limited.values()):
            return None
        return self.narrowed({**start, **limited, **points}, {*limited, *points})

    def narrowed(self, domains: Domains, changed: Collection[str]) -> Domains | None:
        """Narrow domains in place by what constraints say, given the axes whose domain is new.

        None where nothing is left of an axis.
        """
        try:
            for _ in range(SOLVER_ROUNDS):
                concerned = [each for each in self._compiled if not each[1].isdisjoint(changed)]
                changed = {axis for each in concerned for axis in self._apply(*each, domains)}
                if not changed:
                    break
        except ContradictionError:
            return None
        return domains

    def _apply(
        self, narrow: Narrow, axes: frozenset[str], holds: Holds, domains: Domains
    ) -> list[str]:
        """The axes whose domain a constraint has narrowed. Raises ContradictionError."""
        before = [(axis, domains[axis]) for axis in axes]
        if all(domain.low == domain.high for _, domain in before):
            if not holds({**self.const, **{axis: domain.low for axis, domain in before}}):
                raise ContradictionError
            return []
        with suppress(ArithmeticError):  # numbers far above those of any axis
            narrow(domains)
        return [axis for axis, domain in before if domains[axis] is not domain]

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
        nearest = {axis: domains[axis].nearest(wanted.get(axis, 0)) for axis in self.order}
        if all(constraint.holds({**self.const, **nearest}) for constraint in self.constraints):
            return nearest
        settled = _Search(self, wanted, tries or Tries()).settle(domains)
        return {axis: settled[axis].low for axis in self.order} if settled is not None else None

    def infeasible(self, known: Mapping[str, int]) -> InfeasibleError:
        """The error that no axes meet the constraints, where these are known."""
        conflict, proven = self._conflict(known)
        message = self._why_none(known, conflict, proven=proven)
        place = next((constraint.place for constraint in conflict if constraint.place), ())
        return InfeasibleError(message, *(each.text for each in conflict), place=place)

    def _why_none(
        self, known: Mapping[str, int], conflict: Sequence[Constraint], *, proven: bool
    ) -> str:
        texts = " and ".join(dict.fromkeys(constraint.shown for constraint in conflict))
        axes = [a for a in self.order if any(a in constraint.axes for constraint in conflict)]
        free = [f"{axis!r} ({self.listed[axis]})" for axis in axes if axis not in known]
        given = ", ".join(f"{axis} = {known[axis]}" for axis in axes if axis in known)
        if not free:
            return f"{given} does not meet {texts}"
        several = len(free) > 1
        which = f"{'axes' if several else 'axis'} {' and '.join(free)}"
        where = f"{which}, with {given}" if given else which
        if proven:
            return f"{where}: no value{'s meet' if several else ' meets'} {texts}"
        return (
            f"{where}: none of the values tried meet {texts}; "
            "if some do, narrow the domains under workloads.axes to where they lie"
        )

    def _conflict(self, known: Mapping[str, int]) -> tuple[tuple[Constraint, ...], bool]:
        """Constraints that are not met together, though without any of them the others are.

        And whether that is proven: otherwise, not all values were tried.
        """
        core = self
        for constraint in self.constraints:
            fewer = tuple(each for each in core.constraints if each is not constraint)
            lesser = replace(self, constraints=fewer)
            if lesser.complete(known, tries=Tries(MAX_TRIES // 10)) is None:
                core = lesser
        domains = core.domains(known)
        search = _Search(core, {}, Tries())
        proven = domains is None or (search.settle(domains) is None and not search.cut_off)
        return core.constraints, proven


class _Search:
    """A depth-first search for sizes near to those that are wanted, wider from pass to pass."""

    def __init__(self, solver: AxisSolver, wanted: Mapping[str, int], tries: Tries) -> None:
        self._solver = solver
        self._wanted = wanted
        self._tries = tries
        self.cut_off = False

    def settle(self, domains: Domains) -> Domains | None:
        """Domains of one value for each axis; None where none were found that meet all."""
        settled: Domains | None = domains
        for group in self._groups():
            for width in WIDTHS:
                self.cut_off = False
                settled = self._settle(group, domains, width)
                if settled is not None or not self.cut_off or self._tries.left <= 0:
                    break
            if settled is None:
                return None
            domains = settled
        return domains

    def _groups(self) -> list[list[str]]:
        """The axes of which constraints say something together; each group by itself is decided."""
        order = self._solver.order
        groups = {axis: {axis} for axis in order}
        for constraint in self._solver.constraints:
            merged = set().union(*(groups[axis] for axis in constraint.axes))
            groups |= dict.fromkeys(merged, merged)
        distinct = {id(group): group for group in groups.values()}
        return [[axis for axis in order if axis in group] for group in distinct.values()]

    def _settle(self, axes: Sequence[str], domains: Domains, width: int) -> Domains | None:
        if not axes:
            return domains
        axis, rest = axes[0], axes[1:]
        is_last = all(len(domains[each]) == 1 for each in rest)
        count = min(LAST_WIDTH if is_last else width, max(self._tries.left, 0))
        self.cut_off |= len(domains[axis]) > count
        for n in islice(domains[axis].around(self._wanted.get(axis, 0)), count):
            if not self._tries.take():
                break
            left = self._solver.narrowed({**domains, axis: Domain(n, n)}, (axis,))
            settled = None if left is None else self._settle(rest, left, width)
            if settled is not None:
                return settled
        return None
