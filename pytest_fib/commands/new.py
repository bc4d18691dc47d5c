"""``python -m pytest_fib new``: a definition and an implementation to begin with."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import Namespace

_TENSOR = re.compile(r"(\w+):(\w+)(?:\[([\w\s,]*)\])?")
_SCALARS = {"float": "float32", "int": "int64", "bool": "bool"}
_INI_FILES = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")

_DEFINITION = """\
name: {name}
op_type: {op_type}
axes: {{{axes}}}
inputs:
{inputs}
outputs:
{outputs}
# What is right. Write it for clarity; it is computed in float64.
reference: |
  import torch

  def run({arguments}):
      raise NotImplementedError("write what {name} computes")

workloads:
  axes: {{{domains}}}
"""
_IMPLEMENTATION = """\
from pytest_fib import implements


@implements("{name}")
def run({arguments}):
    raise NotImplementedError("write the kernel")
"""


@dataclass(frozen=True)
class _Tensor:
    """An input or output; `shape` None is a scalar."""

    name: str
    dtype: str
    shape: tuple[str, ...] | None

    @classmethod
    def parse(cls, text: str) -> _Tensor:
        """From ``x:float16[n,8]``, or ``eps:float32`` for a scalar. Raises ValueError."""
        match = _TENSOR.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} is not an input such as x:float16[n,8] or eps:float32")
        name, dtype, shape = match.groups()
        axes = None if shape is None else tuple(re.findall(r"\w+", shape))
        return cls(name, dtype, axes)

    def __str__(self) -> str:
        shape = "null" if self.shape is None else f"[{', '.join(self.shape)}]"
        return f"  {self.name}: {{shape: {shape}, dtype: {self.dtype}}}"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("new", help="begin a kernel: definition and implementation")
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--op-type", default="custom", help="the kind of kernel (custom)")
    tensors = {"action": "append", "default": [], "metavar": "NAME:DTYPE[AXES]"}
    parser.add_argument("--input", help="x:float16[n,8], or eps:float32 for a scalar", **tensors)
    parser.add_argument("--output", help="the same", **tensors)
    parser.add_argument(
        "--like", metavar="FILE.py::FUNCTION", help="take the inputs from a function's signature"
    )
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    inputs = [_Tensor.parse(text) for text in given.input]
    if given.like:
        inputs = _signature(given.like) + inputs
    inputs = inputs or [_Tensor("x", "float32", ("n",))]
    outputs = [_Tensor.parse(text) for text in given.output] or [_Tensor("y", "float32", ("n",))]
    definition, implementation = _texts(given.name, given.op_type, inputs, outputs)
    place = Path("kernel_defs", given.op_type, f"{given.name}.yaml")
    _write(place, definition)
    _refuse_unreadable(place)
    module = Path("kernel_impls", given.op_type, given.name, "first.py")
    _write(module, implementation)
    if not any(Path(name).exists() for name in _INI_FILES):
        _write(Path("pytest.ini"), "[pytest]\n")
    print(f"Write the reference and the kernel, then: pytest --fib-definition={given.name}")
    return 0


def _signature(text: str) -> list[_Tensor]:
    """The arguments of a function, from its source: tensors along n, and annotated scalars."""
    path, _, name = text.partition("::")
    tree = ast.parse(Path(path).read_text(encoding="utf-8"), path)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    found = next((function for function in functions if function.name == name), None)
    if found is None:
        there_are = ", ".join(function.name for function in functions) or "none"
        raise ValueError(f"no function {name!r} in {path}; there are: {there_are}")
    arguments = found.args.posonlyargs + found.args.args
    kinds = [ast.unparse(arg.annotation) if arg.annotation else "" for arg in arguments]
    return [
        _Tensor(arg.arg, _SCALARS.get(kind, "float32"), None if kind in _SCALARS else ("n",))
        for arg, kind in zip(arguments, kinds, strict=True)
    ]


def _texts(
    name: str, op_type: str, inputs: list[_Tensor], outputs: list[_Tensor]
) -> tuple[str, str]:
    """The definition and the implementation."""
    shapes = [axis for tensor in inputs + outputs for axis in tensor.shape or ()]
    axes = list(dict.fromkeys(axis for axis in shapes if not axis.isdigit()))
    arguments = ", ".join(tensor.name for tensor in inputs)
    definition = _DEFINITION.format(
        name=name,
        op_type=op_type,
        axes=", ".join(f"{axis}: var" for axis in axes),
        inputs="\n".join(map(str, inputs)),
        outputs="\n".join(map(str, outputs)),
        arguments=arguments,
        domains=", ".join(f"{axis}: {{min: 1, max: 4096}}" for axis in axes),
    )
    return definition, _IMPLEMENTATION.format(name=name, arguments=arguments)


def _write(path: Path, text: str) -> None:
    """Write a new file. Raises FileExistsError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {path}")


def _refuse_unreadable(path: Path) -> None:
    """Raise the DataError of a definition that can't be read, and leave nothing of it."""
    from pytest_fib.data import DataError, load_definition_file

    try:
        load_definition_file(path)
    except DataError:
        path.unlink()
        raise
