"""The Hypothesis strategy over a definition's workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, reject
from hypothesis import strategies as st

from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._plan import InfeasibleError, plan
from pytest_fib.workloads._regimes import REGIMES, regimes

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn, SearchStrategy

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads._axes import Domain

SEEDS = 1 << 16


def workloads(definition: Definition, max_bytes: int) -> SearchStrategy[Workload]:
    """Axes within the budget, regimes and a seed; tensor contents follow from them."""
    made, choices = plan(definition), regimes(definition)

    @st.composite
    def draw_workload(draw: DrawFn) -> Workload:
        axes: dict[str, int] = {}
        for axis in made.order:
            try:
                axes[axis] = draw(_value(*made.affordable(axis, axes, max_bytes)))
            except InfeasibleError:
                reject()
        assume(made.broken(axes) is None)  # what could not be solved for an axis
        drawn = {what: draw(st.sampled_from(names)) for what, names in choices.items()}
        regime = {what: name for what, name in drawn.items() if name != REGIMES[what][0]}
        return complete(definition, axes, draw(st.integers(0, SEEDS - 1)), regime)

    return draw_workload()


def _value(domain: Domain, affordable: int) -> SearchStrategy[int]:
    if domain.step == 1 and domain.values is None:
        return st.integers(domain[0], domain[affordable - 1])
    return st.integers(0, affordable - 1).map(domain.__getitem__)
