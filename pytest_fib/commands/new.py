"""``python -m pytest_fib new``: a definition, an implementation and a test to begin with."""

from __future__ import annotations

import ast
import re
from argparse import Namespace
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any

from pytest_fib.commands.schema import schema_text

_TENSOR = re.compile(r"(\w+):(\w+)(?:\[([\w\s,]*)\])?")
_SCALARS = {"float": "float32", "int": "int64", "bool": "bool"}
#: What the axis may be called that nobody named.
_AXES = ("n", "rows", "size")
_INI_FILES = ("pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg")

#: Beside the definitions' folders, so that editors find it from each of them.
_SCHEMA = Path("kernel_defs", "fib.schema.json")

_DEFINITION = """\
# yaml-language-server: $schema=../fib.schema.json
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
{values}"""
_IMPLEMENTATION = """\
from pytest_fib import implements


@implements("{name}")
def run({arguments}):
    raise NotImplementedError("write the kernel")
"""
_TEST = """\
from {module} import run


def test_{name}_of_the_smallest_sizes(kernel_check):
    kernel_check("{name}", run, axes={sizes})
"""


@dataclass(frozen=True)
class _TensorSpec:
    """An input or output; `shape` None is a scalar, which may have a usual value."""

    name: str
    dtype: str
    shape: tuple[str, ...] | None
    value: float | None = None

    @classmethod
    def parse(cls, text: str) -> _TensorSpec:
        """From ``x:float16[n,8]``, or ``eps:float32`` for a scalar. Raises ValueError."""
        match = _TENSOR.fullmatch(text)
        if match is None:
            raise ValueError(f"{text!r} should be like x:float16[n,8] or, a scalar, eps:float32")
        name, dtype, shape = match.groups()
        if not name.isidentifier() or iskeyword(name):
            raise ValueError(f"{name!r} is no name of an argument in Python")
        axes = None if shape is None else tuple(re.findall(r"\w+", shape))
        return cls(name, dtype, axes)

    def __str__(self) -> str:
        shape = "null" if self.shape is None else f"[{', '.join(self.shape)}]"
        return f"  {self.name}: {{shape: {shape}, dtype: {self.dtype}}}"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "new", help="create a kernel: definition, implementation and test"
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--op-type", default="custom", help="the kind of kernel (custom)")
    tensors = {"action": "append", "default": [], "metavar": "NAME:DTYPE[AXES]"}
    parser.add_argument("--input", help="x:float16[n,8], or eps:float32 for a scalar", **tensors)
    parser.add_argument("--output", help="the same", **tensors)
    parser.add_argument(
        "--like",
        metavar="FILE.py::FUNCTION",
        help="take the inputs from a function's signature; --input overrides single ones",
    )
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    _refuse_bad(given)
    inputs = _inputs(given)
    outputs = list(_given(given.output).values()) or [_output(inputs)]
    files = _files(given.name, given.op_type, inputs, outputs)
    nothing_says = _check(files[0][1])
    for path in (path for path, _ in files if path.exists()):
        raise FileExistsError(
            f"{path} exists, so nothing was written: go on with it, remove it, or give another NAME"
        )
    for path, text in files:
        _write(path, text)
    if not _SCHEMA.exists():
        _write(_SCHEMA, schema_text())
    if (ini := next(filter(Path.exists, map(Path, _INI_FILES)), None)) is None:
        _write(Path("pytest.ini"), "[pytest]\npythonpath = .\n")
    elif "pythonpath" not in ini.read_text(encoding="utf-8"):
        print(f"The test imports the kernel, so {ini} needs: pythonpath = .")
    print(f"Write the reference and the kernel, then: pytest --fib-definition={given.name}")
    for sentence in nothing_says:
        print(f"Unless the reference shows it, {sentence}")
    return 0


def _refuse_bad(given: Namespace) -> None:
    """Raise ValueError for names that can't be, and a place where pytest would find nothing."""
    for name in (given.name, given.op_type):
        if not name.isidentifier() or iskeyword(name):
            raise ValueError(f"{name!r} can't be the name of a Python module")
    if (project := _project_above()) is not None:
        raise ValueError(f"pytest of the project {project} would not look in this folder")


def _project_above() -> Path | None:
    """The folder above that has definitions and a pytest of its own, where this one has not."""
    own = any(map(Path.exists, map(Path, ("kernel_defs", *_INI_FILES))))
    has_both = (
        folder
        for folder in Path.cwd().parents
        if (folder / "kernel_defs").is_dir() and any((folder / ini).exists() for ini in _INI_FILES)
    )
    return None if own else next(has_both, None)


def _check(definition: str) -> list[str]:
    """Which inputs can't be made yet. Raises ValueError for what can't be read.

    It lies in no file yet, so nothing has a line.
    """
    from pytest_fib.data import DataError, read_definitions
    from pytest_fib.workloads import why_not_generated

    try:
        loaded = read_definitions("new.yaml", definition)
        return list(filter(None, (why_not_generated(each.definition) for each in loaded)))
    except DataError as error:
        raise ValueError("\n".join(problem.message for problem in error.problems)) from None


def _given(texts: Sequence[str]) -> dict[str, _TensorSpec]:
    """What options describe, by name. Raises ValueError for two of one name."""
    tensors = [_TensorSpec.parse(text) for text in texts]
    by_name = {tensor.name: tensor for tensor in tensors}
    if len(by_name) < len(tensors):
        raise ValueError(f"a name is given twice: {', '.join(texts)}")
    return by_name


def _inputs(given: Namespace) -> list[_TensorSpec]:
    """Those of a function, as far as ``--input`` says nothing else; then all other ones."""
    described = _given(given.input)
    signature = _signature(given.like) if given.like else []
    known = {tensor.name: described.get(tensor.name, tensor) for tensor in signature} | described
    return list(known.values()) or [_TensorSpec("x", "float32", ("n",))]


def _output(inputs: Sequence[_TensorSpec]) -> _TensorSpec:
    """One, where the user named none."""
    names = {tensor.name for tensor in inputs}
    return _TensorSpec(_free(("y", "out", "result"), names), "float32", (_free(_AXES, names),))


def _free(names: Sequence[str], taken: Collection[str]) -> str:
    return next((name for name in names if name not in taken), names[-1])


def _signature(text: str) -> list[_TensorSpec]:
    """The arguments of a function, from its source: tensors along n, and annotated scalars."""
    path, _, name = text.rpartition("::")
    if not path:
        raise ValueError(f"--like={text} names no function: write {text}::FUNCTION")
    try:
        tree = ast.parse(Path(path).read_text(encoding="utf-8"), path)
    except SyntaxError as error:
        raise ValueError(f"{path}:{error.lineno}: not Python: {error.msg}") from None
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    function = next((function for function in functions if function.name == name), None)
    if function is None:
        there_are = ", ".join(function.name for function in functions) or "none"
        raise ValueError(f"no function {name!r} in {path}; there are: {there_are}")
    if function.args.vararg or function.args.kwarg:
        raise ValueError(f"{path}:{function.lineno}: a kernel has no *args: give each --input")
    return list(_arguments(function, f"{path}:{function.lineno}"))


def _arguments(function: ast.FunctionDef, place: str) -> Iterator[_TensorSpec]:
    """A tensor or scalar for each. Raises ValueError for what is neither."""
    signature = function.args
    positional = [*signature.posonlyargs, *signature.args]
    defaults = [None] * (len(positional) - len(signature.defaults)) + [
        *signature.defaults,
        *signature.kw_defaults,
    ]
    arguments = [*positional, *signature.kwonlyargs]
    along = _free(_AXES, [argument.arg for argument in arguments])
    for argument, default in zip(arguments, defaults, strict=True):
        value = _value(default)
        kind = "Tensor" if value is None else type(value).__name__
        kind = ast.unparse(argument.annotation) if argument.annotation else kind
        if kind in _SCALARS:
            number = value if isinstance(value, (bool, int, float)) else None
            yield _TensorSpec(argument.arg, _SCALARS[kind], None, number)
        elif kind.endswith("Tensor"):
            yield _TensorSpec(argument.arg, "float32", (along,))
        else:
            what = f"{kind} can't be an input of a kernel; inputs are tensors, float, int and bool"
            raise ValueError(f"{place}: {argument.arg}: {what}")


def _value(default: ast.expr | None) -> object:
    """The literal that an argument's default is; None where there is no other."""
    try:
        return None if default is None else ast.literal_eval(default)
    except ValueError:
        return None


def _files(
    name: str, op_type: str, inputs: Sequence[_TensorSpec], outputs: Sequence[_TensorSpec]
) -> list[tuple[Path, str]]:
    """The definition, the implementation and the test."""
    shapes = [axis for tensor in (*inputs, *outputs) for axis in tensor.shape or ()]
    axes = list(dict.fromkeys(axis for axis in shapes if not axis.isdigit()))
    arguments = ", ".join(tensor.name for tensor in inputs)
    values = ", ".join(
        f"{tensor.name}: {{value: {str(tensor.value).lower()}}}"
        for tensor in inputs
        if tensor.value is not None
    )
    definition = _DEFINITION.format(
        name=name,
        op_type=op_type,
        axes=", ".join(f"{axis}: var" for axis in axes),
        inputs="\n".join(map(str, inputs)),
        outputs="\n".join(map(str, outputs)),
        arguments=arguments,
        domains=", ".join(f"{axis}: {{min: 1, max: 4096}}" for axis in axes),
        values=f"  inputs: {{{values}}}\n" if values else "",
    )
    module = Path("kernel_impls", op_type, name, "first.py")
    test = _TEST.format(
        module=".".join(module.with_suffix("").parts), name=name, sizes=dict.fromkeys(axes, 1)
    )
    return [
        (Path("kernel_defs", op_type, f"{name}.yaml"), definition),
        (module, _IMPLEMENTATION.format(name=name, arguments=arguments)),
        (Path("tests", f"test_{name}.py"), test.replace("'", '"')),
    ]


def _write(path: Path, text: str) -> None:
    """Write a new file. Raises FileExistsError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    print(f"wrote {path}")
