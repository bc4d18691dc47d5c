"""The Hypothesis strategy over a definition's workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, reject
from hypothesis import strategies as st

from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._plan import InfeasibleError, in_domain, plan
from pytest_fib.workloads._provider import about
from pytest_fib.workloads._regimes import regimes, special

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hypothesis.strategies import DrawFn, SearchStrategy

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads._axes import Domain
    from pytest_fib.workloads._plan import Plan
    from pytest_fib.workloads._provider import Sort

SEEDS = 1 << 16


def workloads(definition: Definition, max_bytes: int) -> SearchStrategy[Workload]:
    """Axes within the budget, regimes and a seed; tensor contents follow from them."""
    made, choices = plan(definition), regimes(definition)

    @st.composite
    def draw_workload(draw: DrawFn) -> Workload:
        axes = _draw_axes(draw, made, max_bytes)
        drawn: dict[str, str] = {}
        for what, names in choices.items():
            # All inputs hold each regime of values before only some do.
            deck = f"inputs of {drawn['values']}" if what == "inputs" else what
            drawn[what] = names[_number(draw, deck, "choice", 0, len(names) - 1)]
        if drawn.get("lengths") == "equal":
            axes = _evened(made, axes)
        seed = _number(draw, "seed", "any", 0, SEEDS - 1)
        return complete(definition, axes, seed, special(drawn))

    return draw_workload()


def _draw_axes(draw: DrawFn, made: Plan, max_bytes: int) -> dict[str, int]:
    """Sizes of all var axes.

    What is drawn first may take the whole budget, and leave the least for the others. So each of
    the axes that follow from no other is the first in its turn. Where the others then can't be
    solved for, the plan's own order is taken.
    """
    leads = made.independent
    lead = leads[_number(draw, "lead", "size", 0, len(leads) - 1)] if leads else None
    order = sorted(made.order, key=lambda axis: axis != lead)
    try:
        axes = _draw_in_order(draw, made, order, max_bytes)
    except InfeasibleError:
        axes = None
    if axes is None or made.broken(axes) is not None:
        try:
            axes = _draw_in_order(draw, made, made.order, max_bytes)
        except InfeasibleError:
            reject()
    assume(made.broken(axes) is None)  # what could not be solved for an axis
    return axes


def _evened(made: Plan, axes: dict[str, int]) -> dict[str, int]:
    """Axes whose totals can be split equally, where there are any such below them."""
    sizes, evened = made.definition.axis_values(axes), dict(axes)
    for name, rule in made.rules.items():
        total, shape = rule.get("total"), made.definition.inputs[name].shape
        if rule.get("kind") == "indptr" and total in axes and shape:
            parts = sizes[shape[0]] - 1
            evened[total] -= axes[total] % parts if axes[total] > parts else 0
    return evened if in_domain(made.definition, evened) else axes


def _draw_in_order(
    draw: DrawFn, made: Plan, order: Iterable[str], max_bytes: int
) -> dict[str, int]:
    axes: dict[str, int] = {}
    for axis in order:
        domain, affordable = made.affordable(axis, axes, max_bytes)
        axes[axis] = _size(draw, axis, domain, affordable)
    return axes


def _size(draw: DrawFn, axis: str, domain: Domain, affordable: int) -> int:
    if domain.step == 1 and domain.values is None:
        return _number(draw, axis, "size", domain[0], domain[affordable - 1])
    return domain[_number(draw, axis, "size", 0, affordable - 1)]


def _number(draw: DrawFn, name: str, sort: Sort, low: int, high: int) -> int:
    if low == high:
        return low
    about(name, sort)
    return draw(st.integers(low, high))
