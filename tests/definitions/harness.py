"""Definitions of this project with their references and implementations, and workloads for them.

All of it runs in this process; Triton's kernels run in its interpreter.
"""

import functools
import importlib.util
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from unittest import mock

import torch

import tests.definitions.validators_attention  # noqa: F401
from pytest_fib.build._interpreter import repair
from pytest_fib.implementations import find_implementations, load_catalogue
from pytest_fib.workloads import (
    bits,
    complete,
    example_workloads,
    fill_inputs,
    layouts,
    plan,
    scalar_inputs,
)
from pytest_fib.workloads.search import search
from tests.definitions.validators import validate

ROOT = Path(__file__).parents[2]
INTERPRETED = mock.patch.dict(os.environ, {"TRITON_INTERPRET": "1"})


def names(glob: str) -> list[str]:
    """The names of definitions that match."""
    found = [name for name in _definitions() if fnmatchcase(name, glob)]
    assert found, f"no definition {glob}: {_catalogue().errors}"
    return found


@functools.cache
def _definitions():
    every = _catalogue().definitions.values()
    return {each.definition.name: each.definition for loaded in every for each in loaded}


@functools.cache
def _catalogue():
    files = sorted((ROOT / "kernel_defs").glob("*/*.yaml"))
    return load_catalogue([files], find_implementations([ROOT / "kernel_impls"]))


@dataclass(frozen=True)
class Case:
    """A workload with its inputs and what the reference makes of them, each by name."""

    definition: Any
    workload: Any
    inputs: dict[str, Any]
    expected: dict[str, torch.Tensor]

    def outputs(self, glob="*"):
        """What each implementation that runs on a CPU makes of the inputs: its name, and that."""
        every = _catalogue().implementations_of(self.definition.name)
        found = [i for i in every if fnmatchcase(i.name, glob)]
        assert [i.problem for i in found if i.problem] == []
        usable = [i for i in found if i.language == "triton" or "cpu" in i.target_hardware]
        assert usable, f"nothing implements {self.definition.name} on a CPU"
        for implementation in usable:
            yield f"{implementation.name} on {self.workload}", self._outputs(implementation)

    def _outputs(self, implementation):
        before = {n: x.clone() for n, x in self.inputs.items() if isinstance(x, torch.Tensor)}
        function = _function(implementation.path, implementation.symbol)
        given = ()
        if implementation.calling == "destination":
            given = tuple(torch.full_like(x, 119) for x in self.expected.values())
        with INTERPRETED:
            result = function(*self.inputs.values(), *given)
        for name, pristine in before.items():
            same = torch.equal(bits(self.inputs[name]), bits(pristine))
            assert same, f"{implementation.name} wrote {name}"
        return _named(self.definition, given or result)

    def agree(self, *scales):
        """Assert that all implementations agree with the reference; a scale for each output."""
        for who, outputs in self.outputs():
            for (name, out), scale in zip(outputs.items(), scales, strict=True):
                agree(out, self.expected[name], scale, f"{name} of {who}")


def drawn(name, count=10, max_bytes=4 << 20):
    """The examples of a definition and drawn workloads, all of them valid."""
    definition = _definitions()[name]
    for workload in found(definition, count, max_bytes, listed=example_workloads(definition)):
        inputs = filled(definition, workload)
        validate(definition, workload.axes, inputs)
        yield _case(definition, workload, inputs)


def found(definition, count, max_bytes, listed=(), seed=0):
    """The listed workloads, and so many drawn ones."""
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
    )
    return workloads


def case(name, axes, seed=0, regime=None, **inputs):
    """One workload by hand; ``inputs`` take the place of those that were made."""
    definition = _definitions()[name]
    workload = complete(definition, plan(definition).completed(axes), seed, regime)
    return _case(definition, workload, {**filled(definition, workload), **inputs})


def reference(name, function="run"):
    """A function of a definition's reference."""
    namespace: dict[str, Any] = {}
    exec(_definitions()[name].reference, namespace)
    return namespace[function]


def _case(definition, workload, inputs):
    result = reference(definition.name)(*inputs.values())
    return Case(definition, workload, inputs, _named(definition, result))


def _named(definition, result):
    """Outputs by name, in the order and of the dtypes that the definition gives."""
    values = result if isinstance(result, tuple) else (result,)
    named = dict(zip(definition.outputs, values, strict=True))
    dtypes = {name: f"torch.{spec.dtype.value}" for name, spec in definition.outputs.items()}
    assert {name: str(x.dtype) for name, x in named.items()} == dtypes
    return named


def filled(definition, workload):
    """The inputs of a workload: scalars, and tensors that lie in memory as it says."""
    found = layouts(definition, workload)
    tensors = {name: empty(found[name]) for name in definition.inputs if name in found}
    fill_inputs(tensors, definition, workload)
    made = {**tensors, **scalar_inputs(definition, workload)}
    return {name: made[name] for name in definition.inputs}


def empty(layout):
    steps = zip(layout.shape, layout.stride, strict=True)
    extent = 1 + sum((n - 1) * step for n, step in steps) if 0 not in layout.shape else 0
    dtype = getattr(torch, layout.dtype)
    # Made as bytes, since float4 can't be filled.
    memory = torch.zeros((layout.offset + extent) * dtype.itemsize, dtype=torch.uint8).view(dtype)
    return memory.as_strided(layout.shape, layout.stride, layout.offset)


@functools.cache
def _function(path, symbol):
    spec = importlib.util.spec_from_file_location(f"implementation_{abs(hash(path))}", path)
    module = importlib.util.module_from_spec(spec)
    with INTERPRETED:
        repair()
        spec.loader.exec_module(module)
    return getattr(module, symbol)


def agree(out, expected, scale, what):
    """Assert that elements are within four unit roundoffs, and what float32 loses on the way.

    ``scale`` is how large the numbers are that float32 rounds before they make an element.
    """
    assert (out.shape, out.dtype) == (expected.shape, expected.dtype), what
    limits = torch.finfo(out.dtype)
    # Subnormal numbers may be flushed to zero, but for those of float16.
    floor = limits.tiny * limits.eps if out.dtype == torch.float16 else limits.tiny
    out, expected = out.double(), expected.double()
    lost = 8 * torch.finfo(torch.float32).eps * scale
    bound = 2 * limits.eps * expected.abs() + lost + floor
    same = (out == expected) | (out.isnan() & expected.isnan())
    wrong = ~same & ~((out - expected).abs() <= bound)
    if wrong.any():
        at = int(wrong.flatten().nonzero()[0])
        sides = f"{out.flatten()[at]}, not {expected.flatten()[at]}"
        raise AssertionError(f"{int(wrong.sum())} of {out.numel()}, as {at}: {sides}; {what}")
