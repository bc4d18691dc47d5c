"""Which workloads are timed, and which are always tested."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.workloads._budget import workload_bytes
from pytest_fib.workloads._complete import complete
from pytest_fib.workloads._plan import InfeasibleError, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_fib.data import Definition, Workload
    from pytest_fib.workloads._plan import Plan

#: Sizes of every var axis where a definition names no bench workloads.
LADDER = (1, 8, 64, 512, 4096, 32768)
#: No workload of the ladder takes more.
LADDER_BYTES = 4 << 30


def bench_workloads(definition: Definition) -> dict[str, Workload]:
    """The timed workloads by label (``batch=32``): the definition's own, else a ladder.

    Independent of device and budget, since the labels are part of node ids.
    """
    made = plan(definition)
    if made.problem is not None:
        return {}
    listed = definition.workloads.bench if definition.workloads else []
    return {
        ",".join(f"{axis}={n}" for axis, n in axes.items()) or "fixed": complete(
            definition, made.completed(axes)
        )
        for axes in listed or _ladder(made)
    }


def example_workloads(definition: Definition) -> list[Workload]:
    """The workloads that the definition wants tested always."""
    listed = definition.workloads.examples if definition.workloads else []
    return [complete(definition, plan(definition).completed(axes)) for axes in listed]


def _ladder(made: Plan) -> list[dict[str, int]]:
    """All axes as large as a rung, or as near as their domains and memory allow."""
    rungs: list[dict[str, int]] = []
    for i in range(len(LADDER)):
        axes: dict[str, int] = {}
        try:
            for axis in made.order:
                axes[axis] = _affordable(made, axis, axes, LADDER[: i + 1])
        except InfeasibleError:
            continue
        fits = workload_bytes(made.definition, axes) <= LADDER_BYTES
        if fits and axes not in rungs and made.broken(axes) is None:
            rungs.append(axes)
    return rungs


def _affordable(made: Plan, axis: str, axes: dict[str, int], sizes: Sequence[int]) -> int:
    """The largest of these sizes, as near as the axis may come to it, that is affordable."""
    domain = made.domain(axis, axes)
    near = [domain.nearest(n) for n in sizes]
    fits = (n for n in reversed(near) if made.affords({**axes, axis: n}, LADDER_BYTES))
    return next(fits, near[0])
