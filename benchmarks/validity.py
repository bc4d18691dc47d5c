"""Whether drawn workloads are valid, and references run on them: every definition, many draws.

Inputs are judged by the validators of the tests, which know what kernels of an op_type need and
nothing of how the inputs were made. Ends with 1 where an input is not valid or a reference fails.

    python benchmarks/validity.py
    python benchmarks/validity.py --count 50 --dataset DIR 'gqa_*'
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from _common import ROOT, print_machine, print_table

sys.path.insert(0, str(ROOT))

from pytest_fib.data import load_definition_file
from pytest_fib.plugin import options
from pytest_fib.workloads import example_workloads, why_not_generated
from tests.definitions.harness import filled, found
from tests.definitions.validators import VALIDATORS, validate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_fib.data import Definition, Workload


@dataclass
class Tally:
    """What came of the definitions of one op_type."""

    definitions: int = 0
    workloads: int = 0
    invalid: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="Whether drawn workloads are valid.")
    parser.add_argument("globs", nargs="*", default=["*"], help="names of definitions")
    parser.add_argument("--count", type=int, default=200, help="draws of each (default: 200)")
    parser.add_argument("--seed", type=int, default=0, help="which draws (default: 0)")
    parser.add_argument("--dataset", type=Path, action="append", help="in place of our own")
    most = options.size("8M")
    parser.add_argument("--max-bytes", type=options.size, default=most, help="default: 8M")
    arguments = parser.parse_args()
    tallies: dict[str, Tally] = defaultdict(Tally)
    for definition in definitions(arguments.dataset, arguments.globs):
        tally(tallies[definition.op_type], definition, arguments)
    show(tallies)
    print_machine("torch", "hypothesis")
    if any(each.invalid or each.failed for each in tallies.values()):
        sys.exit(1)


def definitions(datasets: Iterable[Path] | None, globs: list[str]) -> Iterable[Definition]:
    """Those that are shipped, or those of datasets."""
    shipped = sorted((ROOT / "kernel_defs").glob("*/*.yaml"))
    given = [path for each in datasets or () for path in sorted(each.glob("definitions/*/*.json"))]
    for path in given or shipped:
        for loaded in load_definition_file(path):
            if any(fnmatchcase(loaded.definition.name, glob) for glob in globs):
                yield loaded.definition


def tally(into: Tally, definition: Definition, arguments: argparse.Namespace) -> None:
    """Draw, judge and run."""
    start = perf_counter()
    into.definitions += 1
    if reason := why_not_generated(definition):
        into.invalid.append(f"{definition.name}: {reason}")
        return
    listed = example_workloads(definition)
    namespace: dict[str, Any] = {}
    exec(definition.reference, namespace)
    for workload in found(definition, arguments.count, arguments.max_bytes, listed, arguments.seed):
        into.workloads += 1
        try_one(into, definition, workload, namespace["run"])
    into.seconds += perf_counter() - start


def try_one(into: Tally, definition: Definition, workload: Workload, run: Any) -> None:
    """Whether the inputs of one workload are valid, and whether the reference takes them."""
    inputs = filled(definition, workload)
    where = f"{definition.name} at {workload.axes}, seed {workload.seed}"
    try:
        validate(definition, workload.axes, inputs)
    except AssertionError as error:
        into.invalid.append(f"{where}: {error}")
        return
    try:
        run(*inputs.values())
    except Exception as error:  # noqa: BLE001 - whatever foreign code raises is the finding
        into.failed.append(f"{where}: {type(error).__name__}: {error}")


def show(tallies: dict[str, Tally]) -> None:
    """The table, and the first of what went wrong."""
    titles = ("op_type", "definitions", "workloads", "not valid", "reference failed", "s")
    rows = [
        (
            op_type,
            str(each.definitions),
            f"{each.workloads:,}",
            str(len(each.invalid)),
            str(len(each.failed)),
            f"{each.seconds:.1f}",
        )
        for op_type, each in sorted(tallies.items())
    ]
    print_table(titles, rows)
    for each in tallies.values():
        for line in (*each.invalid[:3], *each.failed[:3]):
            print(line)
    unknown = sorted(set(tallies) - set(VALIDATORS))
    if unknown:
        print(f"of {', '.join(unknown)} only shapes and dtypes are judged")


if __name__ == "__main__":
    main()
