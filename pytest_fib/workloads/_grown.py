"""A larger workload like a given one: in the smallest that fails, little can be told apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.workloads._budget import workload_bytes
from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._plan import plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads._plan import Plan

#: How much larger than the smallest workload there is, at least.
ROOM = 1.125


def grown(
    definition: Definition, workload: Workload, regime: Mapping[str, str], max_bytes: int
) -> Workload:
    """The same seed with axes that fill ``max_bytes``, each by an equal factor.

    Or an eighth more than the definition's smallest workload takes. The axes of ``workload`` where
    those that come out break a constraint.
    """
    made = plan(definition)
    smallest = workload_bytes(definition, made.completed({}))
    free = _free(made)
    share = max(ROOM, max_bytes / max(smallest, 1)) ** (1 / max(len(free), 1))
    axes: dict[str, int] = {}
    budget = float(smallest)
    for axis in made.order:
        budget *= share if axis in free else 1.0
        domain, count = made.affordable(axis, axes, int(budget))
        # Odd where it can be, since what even sizes are right for may be wrong otherwise.
        largest = domain[count - 1]
        axes[axis] = domain[count - 2] if largest % 2 == 0 and min(largest, count) > 2 else largest
    if made.broken(axes) is not None:
        axes = dict(workload.axes)
    return complete(definition, axes, workload.seed, regime)


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
