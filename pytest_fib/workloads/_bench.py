"""Which workloads are timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.workloads._axes import domain, fits
from pytest_fib.workloads._complete import complete

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload

#: Sizes of every var axis where a definition names no bench workloads.
LADDER = (1, 8, 64, 512, 4096)


def bench_workloads(definition: Definition) -> dict[str, Workload]:
    """The timed workloads by label (``batch=32``): the definition's own, else a ladder.

    Independent of device and budget, since the labels are part of node ids.
    """
    listed = definition.workloads.bench if definition.workloads else []
    return {
        ",".join(f"{axis}={n}" for axis, n in axes.items()) or "fixed": complete(definition, axes)
        for axes in listed or _ladder(definition)
    }


def _ladder(definition: Definition) -> list[dict[str, int]]:
    steps = [
        {axis: domain(definition, axis).nearest(n) for axis in definition.var_axes} for n in LADDER
    ]
    largest = DEFAULT_LADDER_BYTES
    kept = [axes for axes in steps if fits(definition, axes, largest)]
    return [axes for i, axes in enumerate(kept) if axes not in kept[:i]]


#: The ladder ends before a workload takes this much.
DEFAULT_LADDER_BYTES = 4 << 30
