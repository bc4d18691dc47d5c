"""How long collecting takes, by the number of definitions.

Writes N definitions with five implementation modules each into a temporary project, then runs
``pytest --collect-only -q`` there: once as after a fresh clone, and again with nothing changed.
Every run also checks that collecting imported no torch. Targets for 1,000 definitions: under 6 s
the first time, under 3 s when nothing changed, and seconds that grow in proportion to N.

    python benchmarks/collect.py
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from textwrap import dedent

from _common import Run, print_machine, print_table, timed

IMPLEMENTATIONS = 5
DEFINITION = """\
name: {name}
op_type: {op_type}
description: Root mean square normalisation over a hidden size of {hidden}, in float32.
tags: ["status:verified", "model:none"]
axes:
  batch: {{type: var, description: "Rows, each normalised by itself."}}
  hidden_size: {hidden}
inputs:
  x:      {{shape: [batch, hidden_size], dtype: float16}}
  weight: {{shape: [hidden_size], dtype: float16}}
  eps:    {{shape: null, dtype: float32, description: Keeps the root above zero.}}
outputs:
  out: {{shape: [batch, hidden_size], dtype: float16}}
reference: |
  import torch

  def run(x, weight, eps):
      wide = x.to(torch.float32)
      mean_square = wide.pow(2).mean(dim=-1, keepdim=True)
      normalised = wide * torch.rsqrt(mean_square + eps)
      return (normalised * weight.to(torch.float32)).to(x.dtype)

workloads:
  axes:   {{batch: {{min: 1, max: 16384}}}}
  inputs: {{eps: {{value: 1.0e-6}}}}
  examples: [{{batch: 1}}]
  bench: [{{batch: 1}}, {{batch: 32}}, {{batch: 1024}}]
"""
IMPLEMENTATION = '''\
"""Root mean square normalisation with one program for each row."""

import torch
import triton
import triton.language as tl

from pytest_fib import implements


@triton.jit
def _rmsnorm(x, weight, out, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    values = tl.load(x + row * n + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(values * values, axis=0) / n + eps)
    gain = tl.load(weight + columns, mask=mask, other=0.0).to(tl.float32)
    result = values * scale * gain
    tl.store(out + row * n + columns, result.to(out.dtype.element_ty), mask=mask)


@implements("{name}", language="triton", target_hardware=["cuda"], description="Variant {i}.")
def run(x, weight, eps):
    out = torch.empty_like(x)
    batch, n = x.shape
    _rmsnorm[(batch,)](x, weight, out, n, eps, BLOCK=triton.next_power_of_2(n), num_warps={i})
    return out
'''
#: A pytest plugin that fails the run where collecting imported what only running needs.
WITNESS = """
import sys

import pytest


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session):
    heavy = {"torch", "triton", "hypothesis"} & sys.modules.keys()
    assert not heavy, f"collecting imported {heavy}"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="How long collecting takes.")
    parser.add_argument("sizes", nargs="*", type=int, default=[100, 300, 1000])
    parser.add_argument("--repeat", type=int, default=3, help="runs of each kind (default: 3)")
    parser.add_argument("--bench", action="store_true", help="collect the bench items too")
    arguments = parser.parse_args()
    options = ["--fib-bench"] if arguments.bench else []
    sizes = [measured(size, arguments.repeat, options) for size in sorted(arguments.sizes)]
    rows = [row(size, before) for before, size in zip([None, *sizes], sizes, strict=False)]
    titles = ("definitions", "items", "first, s", "again, s", "ms for each further one")
    print_table(titles, rows)
    print_machine("pydantic", "pyyaml")


@dataclass(frozen=True)
class Size:
    """Medians of the seconds that collecting so many definitions took."""

    definitions: int
    items: int
    first: float
    again: float


def measured(definitions: int, repeat: int, options: list[str]) -> Size:
    """Collect a project of that size. Every first run gets a project of its own."""
    first, again = [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            write_project(Path(folder), definitions)
            first.append(collect(Path(folder), options))
            again.append(collect(Path(folder), options))
    items = sum("::" in line for line in again[0].output.splitlines())
    return Size(definitions, items, *(median(run.wall for run in runs) for runs in (first, again)))


def row(size: Size, before: Size | None) -> tuple[str, ...]:
    """The figures of one size. The last stays the same where the cost grows linearly."""
    further = "-"
    if before is not None:
        grown = (size.again - before.again) / (size.definitions - before.definitions)
        further = f"{1e3 * grown:.2f}"
    times = (f"{size.first:.2f}", f"{size.again:.2f}")
    return (f"{size.definitions:,}", f"{size.items:,}", *times, further)


def collect(project: Path, options: list[str]) -> Run:
    """One ``pytest --collect-only -q`` in the project."""
    switches = ["-p", "witness", "--collect-only", "-q", *options]
    return timed(["-m", "pytest", *switches], project, {"PYTHONPATH": str(project / "plugins")})


def write_project(project: Path, size: int) -> None:
    """``size`` definitions in twenty op types, each with its implementations."""
    (project / "pytest.ini").write_text("[pytest]\ntestpaths = kernel_defs\n", encoding="utf-8")
    _write(project / "plugins" / "witness.py", dedent(WITNESS))
    for number in range(size):
        op_type, hidden = f"op_{number % 20}", 64 + number
        name = f"{op_type}_d{hidden}"
        text = DEFINITION.format(name=name, op_type=op_type, hidden=hidden)
        _write(project / "kernel_defs" / op_type / f"{name}.yaml", text)
        for i in range(1, IMPLEMENTATIONS + 1):
            path = project / "kernel_impls" / op_type / name / f"triton_v{i}.py"
            _write(path, IMPLEMENTATION.format(name=name, i=i))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
