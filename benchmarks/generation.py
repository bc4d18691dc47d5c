"""What it costs to make workloads, beyond filling their tensors.

A workload is made from its axes, seed and regime: scalars, layouts, the order of inputs, their
parameters, and a check of every constraint. ``beyond fills`` is all of that but the generators'
own work, in a workload of up to ``--max-bytes`` whose rows lie one after another. ``a draw`` is
what choosing axes, seed and regime takes Hypothesis and the constraints. Targets: 1 ms beyond the
fills, and 0.5 s for 100 workloads of gqa_paged decode, drawn and made, with no draw rejected.

    python benchmarks/generation.py
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pkgutil import resolve_name
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any
from unittest import mock

from _common import ROOT, print_machine, print_table

sys.path.insert(0, str(ROOT))

from pytest_fib.data import load_definition_file
from pytest_fib.plugin import options
from pytest_fib.workloads import fill_inputs, layouts, make_workload
from tests.definitions.harness import empty, found

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_fib.data import Definition, Workload

DECODE = "gqa_paged_decode_*"


@dataclass
class Cost:
    """Seconds for each workload of the definitions of an op_type."""

    draw: list[float] = field(default_factory=list)
    total: list[float] = field(default_factory=list)
    beyond: list[float] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description="What it costs to make workloads.")
    parser.add_argument("globs", nargs="*", default=["*"], help="names of definitions")
    parser.add_argument("--count", type=int, default=100, help="workloads of each (default: 100)")
    most = options.size("1M")
    parser.add_argument("--max-bytes", type=options.size, default=most, help="default: 1M")
    arguments = parser.parse_args()
    costs: dict[str, Cost] = defaultdict(Cost)
    decodes = []
    for definition in definitions(arguments.globs):
        start = perf_counter()
        measure(costs[definition.op_type], definition, arguments.count, arguments.max_bytes)
        if fnmatchcase(definition.name, DECODE):
            decodes.append((definition.name, perf_counter() - start))
    titles = ("ms, median", "a draw", "making it", "beyond fills", "the slowest tenth")
    print_table(titles, [row(op_type, cost) for op_type, cost in sorted(costs.items())])
    for name, seconds in decodes:
        print(f"{arguments.count} workloads of {name}, drawn and made: {seconds:.2f} s")
    print_machine("torch", "hypothesis")


def definitions(globs: list[str]) -> Iterator[Definition]:
    """Those that are shipped."""
    for path in sorted((ROOT / "kernel_defs").glob("*/*.yaml")):
        for loaded in load_definition_file(path):
            if any(fnmatchcase(loaded.definition.name, glob) for glob in globs):
                yield loaded.definition


def measure(cost: Cost, definition: Definition, count: int, max_bytes: int) -> None:
    """Draw workloads and make them, at the same time telling the generators' own work apart."""
    start = perf_counter()
    workloads = found(definition, count, max_bytes)
    cost.draw += [(perf_counter() - start) / len(workloads)] * len(workloads)
    workloads = [contiguous(workload) for workload in workloads]
    with fills_timed() as spent:
        for workload in workloads:
            spent.clear()
            seconds = making(definition, workload)
            cost.total.append(seconds)
            cost.beyond.append(seconds - sum(spent))


def contiguous(workload: Workload) -> Workload:
    """The same in memory without gaps: a copy into these would be a fill of its own."""
    regime = {what: name for what, name in workload.regime.items() if what != "layout"}
    return workload.model_copy(update={"regime": regime})


def making(definition: Definition, workload: Workload) -> float:
    """Seconds from a workload's axes, seed and regime to its inputs, without allocating them."""
    tensors = {
        name: empty(layout)
        for name, layout in layouts(definition, workload).items()
        if name in definition.inputs
    }
    start = perf_counter()
    made = make_workload(definition, workload.axes, workload.seed, workload.regime)
    layouts(definition, made)
    fill_inputs(tensors, definition, made)
    return perf_counter() - start


@contextmanager
def fills_timed() -> Iterator[list[float]]:
    """The seconds that each call of a generator takes."""
    spent: list[float] = []

    def timed(fill: Callable[..., None]) -> Callable[..., None]:
        def timed_fill(*arguments: Any) -> None:
            start = perf_counter()
            fill(*arguments)
            spent.append(perf_counter() - start)

        return timed_fill

    fills = resolve_name("pytest_fib.workloads._structure_generators:FILLS")
    with mock.patch.dict(fills, {kind: timed(fill) for kind, fill in fills.items()}):
        yield spent


def row(op_type: str, cost: Cost) -> tuple[str, ...]:
    """Medians, and what one in ten exceeds."""
    slowest = sorted(cost.beyond)[-len(cost.beyond) // 10]
    figures = (median(cost.draw), median(cost.total), median(cost.beyond), slowest)
    return op_type, *(f"{1e3 * seconds:.2f}" for seconds in figures)


if __name__ == "__main__":
    main()
