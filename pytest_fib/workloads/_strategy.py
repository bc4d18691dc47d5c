"""The Hypothesis strategy over a definition's workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import strategies as st

from pytest_fib.workloads._axes import affordable, domain, smallest_axes
from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._regimes import VALUES

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from pytest_fib.data import Definition, Workload

SEEDS = 1 << 16


def workloads(definition: Definition, max_bytes: int) -> SearchStrategy[Workload]:
    """Axes within the budget, a regime and a seed; tensor contents follow from them."""

    @st.composite
    def draw_workload(draw: DrawFn) -> Workload:
        axes = smallest_axes(definition)
        for axis in definition.var_axes:
            axes[axis] = draw(
                _axis(definition, axis, affordable(definition, axis, axes, max_bytes))
            )
        values = draw(st.sampled_from(list(VALUES)))
        regime = {} if values == "normal" else {"values": values}
        return complete(definition, axes, draw(st.integers(0, SEEDS - 1)), regime)

    return draw_workload()


def _axis(definition: Definition, axis: str, affordable: int) -> SearchStrategy[int]:
    values = domain(definition, axis)
    if values.step == 1 and not values.values:
        return st.integers(values[0], values[affordable - 1])
    return st.integers(0, affordable - 1).map(values.__getitem__)
