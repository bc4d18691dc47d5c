"""Which of two bounds on the bytes that a workload needs is the smaller one.

Generators' rules say which pages, rows and lengths inputs refer to (``workloads.bytes_needed``);
what the reference read is counted while it runs (``timing``). A kernel needs no more than either.
For each definition: the bytes by rules, by what was read, by the smaller of both for each input,
and which of the two can't be left out without changing that by more than a percent.

    python benchmarks/bytes_needed.py
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

import torch
from _common import ROOT, print_table

sys.path.insert(0, str(ROOT))

from pytest_fib.build import load, reference_program
from pytest_fib.data import load_definition_file
from pytest_fib.plugin import options
from pytest_fib.timing import count_operations
from pytest_fib.workloads import bytes_needed, enlarge, make_inputs, make_workload, smallest_axes

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Workload


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes needed, by rules and by what was read.")
    most = options.size("4M")
    parser.add_argument("--max-bytes", type=options.size, default=most, help="default: 4M")
    max_bytes = parser.parse_args().max_bytes
    rows = []
    for path in sorted((ROOT / "kernel_defs").rglob("*.yaml")):
        for loaded in load_definition_file(path):
            definition = loaded.definition
            smallest = make_workload(definition, smallest_axes(definition), seed=3)
            workload = enlarge(definition, smallest, {}, max_bytes)
            rows.append((definition.name, *map(str, figures(definition, workload))))
    print_table(("definition", "rules", "read", "both", "needs"), rows)


def figures(definition: Definition, workload: Workload) -> tuple[int, int, int, str]:
    """Bytes of all inputs by rules, by what was read, and by both; what can't be left out."""
    inputs = make_inputs(definition, workload)
    tensors = {name: value for name, value in inputs.items() if torch.is_tensor(value)}
    by_rules = bytes_needed(definition, workload.axes, tensors)
    run = load(reference_program(definition))
    operations = count_operations(run, list(inputs.values()))
    seen = dict(zip(inputs, operations.read_bytes, strict=True))
    read = {name: tensor.untyped_storage().nbytes() for name, tensor in tensors.items()}
    read |= {name: bytes_read for name, bytes_read in seen.items() if bytes_read is not None}
    rules, counted = sum(by_rules.values()), sum(read[name] for name in tensors)
    both = sum(min(by_rules[name], read[name]) for name in tensors)
    needed = [("rules", counted), ("read", rules)]
    return rules, counted, both, " ".join(what for what, other in needed if other > 1.01 * both)


if __name__ == "__main__":
    main()
