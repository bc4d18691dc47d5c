"""The Hypothesis strategy over a definition's workloads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from pytest_fib.data import kinds
from pytest_fib.search._hypothesis import draw_number
from pytest_fib.workloads import (
    in_domain,
    make_workload,
    plan,
    regime_choices,
    without_plainest,
)

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads import Choice, Plan

SEEDS = 1 << 16


def workloads(definition: Definition, max_bytes: int) -> SearchStrategy[Workload]:
    """Axes within the budget, regimes and a seed; tensor contents follow from them."""
    planned, choices = plan(definition), regime_choices(definition)

    @st.composite
    def draw_workload(draw: DrawFn) -> Workload:
        axes = _draw_axes(draw, planned, max_bytes)
        drawn: dict[str, str] = {}
        for what, names in choices.items():
            # All inputs hold each regime of values before only some do.
            deck = f"inputs of {drawn['values']}" if what == "inputs" else what
            drawn[what] = names[draw_number(draw, deck, "choice", 0, len(names) - 1)]
        if drawn.get("lengths") == "equal":
            axes = _evened(planned, axes)
        seed = draw_number(draw, "seed", "any", 0, SEEDS - 1)
        return make_workload(definition, axes, seed, without_plainest(drawn))

    return draw_workload()


def _draw_axes(draw: DrawFn, planned: Plan, max_bytes: int) -> dict[str, int]:
    """Sizes of all var axes that meet the constraints.

    What is drawn first may take the whole budget, and leave the least for the others. So each of
    the axes that follow from no other is the first in its turn.
    """
    leads = planned.independent
    lead = leads[draw_number(draw, "lead", "size", 0, len(leads) - 1)] if leads else None
    order = sorted(planned.order, key=lambda axis: axis != lead)
    return planned.choose(dict.fromkeys(order, max_bytes), partial(_draw_size, draw))


def _evened(planned: Plan, axes: dict[str, int]) -> dict[str, int]:
    """Axes whose totals can be split equally, where there are any such below them."""
    sizes, evened = planned.definition.axis_values(axes), dict(axes)
    for name, rule in planned.rules.items():
        shape = planned.definition.inputs[name].shape
        if isinstance(rule, kinds.Indptr) and rule.total in axes and shape:
            total, parts = str(rule.total), sizes[shape[0]] - 1
            evened[total] -= axes[total] % parts if axes[total] > parts else 0
    return evened if in_domain(planned.definition, evened) else axes


def _draw_size(draw: DrawFn, choice: Choice) -> int:
    axis, domain = choice.axis, choice.domain
    if domain.step == 1 and domain.values is None:
        return draw_number(draw, axis, "size", domain[0], choice.largest)
    return domain[draw_number(draw, axis, "size", 0, choice.affordable - 1)]
