"""A larger workload like a given one: in the smallest that fails, little can be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.workloads._budget import workload_bytes
from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._plan import plan

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads._plan import Plan


def grown(definition: Definition, workload: Workload, max_bytes: int) -> Workload:
    """The same seed and regime with axes that fill ``max_bytes``, each by an equal factor.

    The workload itself where none of its axes can grow.
    """
    made = plan(definition)
    smallest = workload_bytes(definition, made.completed({}))
    free = _free(made)
    share = max(1.0, max_bytes / max(smallest, 1)) ** (1 / max(len(free), 1))
    axes: dict[str, int] = {}
    budget = float(smallest)
    for axis in made.order:
        budget *= share if axis in free else 1.0
        domain, count = made.affordable(axis, axes, int(budget))
        axes[axis] = domain[count - 1]
    if made.broken(axes) is not None:
        return workload
    return complete(definition, axes, workload.seed, workload.regime)


def _free(made: Plan) -> list[str]:
    """The axes that do not follow from those before them."""
    known: dict[str, int] = {}
    free = []
    for axis in made.order:
        domain = made.domain(axis, known)
        known[axis] = domain[0]
        if len(domain) > 1:
            free.append(axis)
    return free
