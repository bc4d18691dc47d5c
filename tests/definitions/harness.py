"""The definitions of this project, workloads of a definition, and their tensors."""

import functools
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from pytest_fib.data import load_definition_file
from pytest_fib.search import search
from pytest_fib.workloads import (
    fill_inputs,
    layouts,
    make_workload,
    plan,
    scalar_inputs,
)

ROOT = Path(__file__).parents[2]


@functools.cache
def shipped():
    """Every definition by its name, and the YAML file that it is in."""
    files = sorted((ROOT / "kernel_defs").glob("*/*.yaml"))
    loaded = [(entry.definition, file) for file in files for entry in load_definition_file(file)]
    assert len(loaded) >= 60
    return {definition.name: (definition, file) for definition, file in loaded}


def names(glob: str) -> list[str]:
    """The names of definitions that match."""
    matching = [name for name in shipped() if fnmatchcase(name, glob)]
    assert matching, f"no definition {glob}"
    return matching


def found(definition, count, max_bytes, listed=(), seed=0, numbers=()):
    """The listed workloads, so many drawn ones, and those at ``numbers``."""
    workloads: list[Any] = []
    search(
        definition,
        workloads.append,
        failed=bool,
        closeness=lambda outcome: 0.0,
        listed=listed,
        examples=count,
        seed=seed,
        max_bytes=max_bytes,
        numbers=numbers,
    )
    assert len(workloads) >= count
    return workloads


def case(name, axes, regime=None, **inputs):
    """The inputs of one workload; ``inputs`` take the place of those that were made."""
    definition, _ = shipped()[name]
    workload = make_workload(definition, plan(definition).completed(axes), regime=regime)
    return {**filled(definition, workload), **inputs}


def reference(name, function="run"):
    """A function of a definition's reference."""
    namespace: dict[str, Any] = {}
    exec(shipped()[name][0].reference, namespace)
    return namespace[function]


def filled(definition, workload):
    """The inputs of a workload: scalars, and tensors that lie in memory as it says."""
    lie = layouts(definition, workload)
    tensors = {name: empty(lie[name]) for name in definition.inputs if name in lie}
    fill_inputs(tensors, definition, workload)
    values = {**tensors, **scalar_inputs(definition, workload)}
    return {name: values[name] for name in definition.inputs}


def empty(layout):
    steps = zip(layout.shape, layout.stride, strict=True)
    extent = 1 + sum((n - 1) * step for n, step in steps) if 0 not in layout.shape else 0
    dtype = getattr(torch, layout.dtype)
    # Made as bytes, since float4 can't be filled.
    memory = torch.zeros((layout.offset + extent) * dtype.itemsize, dtype=torch.uint8).view(dtype)
    return memory.as_strided(layout.shape, layout.stride, layout.offset)
