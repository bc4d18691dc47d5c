"""The rules between a definition's fields, on raw data of any shape."""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ._base import Finding, Loc, Raw, hint, part
from ._rules import rule_findings


def definition_findings(data: Mapping[str, Any]) -> Iterator[Finding]:
    """Everything wrong between a definition's fields; types are left to the model."""
    yield from _unknown_axes(data)
    yield from _names_used_twice(data)
    yield from _bad_constraints(data)
    yield from _bad_reference(data)
    yield from _bad_workloads(data)
    yield from rule_findings(data)
    yield from _unknown_keys(data, ("tolerances",), "output", part(data, "outputs"))
    yield from _bad_tolerances(data)


def _mapping(data: Raw, key: str) -> Mapping[str, Any]:
    value = part(data, key)
    return value if isinstance(value, Mapping) else {}


def _items(data: Raw, key: str) -> Sequence[Any]:
    value = part(data, key)
    return value if isinstance(value, (list, tuple)) else ()


def _unknown(loc: Loc, what: str, name: str, known: Iterable[str]) -> Finding:
    return Finding(loc, f"unknown {what} {name!r}{hint(name, known)}")


def _unknown_axes(data: Mapping[str, Any]) -> Iterator[Finding]:
    axes = part(data, "axes")
    if not isinstance(axes, Mapping):
        return
    for section in ("inputs", "outputs"):
        for name, spec in _mapping(data, section).items():
            for i, axis in enumerate(_items(spec, "shape")):
                if isinstance(axis, str) and axis not in axes:
                    yield _unknown((section, name, "shape", i), "axis", axis, axes)


def _names_used_twice(data: Mapping[str, Any]) -> Iterator[Finding]:
    for name in _mapping(data, "outputs"):
        if name in _mapping(data, "inputs"):
            yield Finding(("outputs", name), f"{name!r} is an input already")


def _bad_constraints(data: Mapping[str, Any]) -> Iterator[Finding]:
    for i, text in enumerate(_items(data, "constraints")):
        if isinstance(text, str):
            try:
                ast.parse(text.strip(), mode="eval")
            except (SyntaxError, ValueError) as error:
                message = error.msg if isinstance(error, SyntaxError) else str(error)
                yield Finding(("constraints", i), f"not a Python expression: {message}")


def _bad_reference(data: Mapping[str, Any]) -> Iterator[Finding]:
    text, inputs = part(data, "reference"), part(data, "inputs")
    if not isinstance(text, str) or not text:
        return
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", 0) or 0
        yield Finding(("reference",), f"not Python: {getattr(error, 'msg', error)}", line)
        return
    runs = [item for item in body if isinstance(item, ast.FunctionDef) and item.name == "run"]
    if not runs:
        yield Finding(("reference",), "no function 'run' at its top level")
    elif isinstance(inputs, Mapping):
        yield from _bad_signature(runs[-1], list(inputs))


def _bad_signature(run: ast.FunctionDef, inputs: list[str]) -> Iterator[Finding]:
    names = [arg.arg for arg in run.args.posonlyargs + run.args.args]
    required = len(names) - len(run.args.defaults)
    too_many = len(inputs) > len(names) and run.args.vararg is None
    if too_many or len(inputs) < required:
        message = (
            f"run takes ({', '.join(names)}), but the inputs are ({', '.join(map(str, inputs))})"
        )
        yield Finding(("reference",), message, run.lineno)
    needed = zip(run.args.kwonlyargs, run.args.kw_defaults, strict=True)
    for arg in (arg.arg for arg, default in needed if default is None):
        message = f"run needs {arg!r} by keyword, but inputs are passed by position"
        yield Finding(("reference",), message, run.lineno)


def _bad_workloads(data: Mapping[str, Any]) -> Iterator[Finding]:
    workloads = part(data, "workloads")
    axes = part(data, "axes")
    if isinstance(axes, Mapping):
        yield from _not_var(("workloads", "axes"), _mapping(workloads, "axes"), axes)
        for section in ("examples", "bench"):
            for i, entry in enumerate(_items(workloads, section)):
                if isinstance(entry, Mapping):
                    yield from _not_var(("workloads", section, i), entry, axes)
    yield from _unknown_keys(data, ("workloads", "inputs"), "input", part(data, "inputs"))
    bench = _items(workloads, "bench")
    for i, entry in enumerate(bench):
        if entry in bench[:i]:
            yield Finding(("workloads", "bench", i), f"the same as bench[{bench.index(entry)}]")


def _bad_tolerances(data: Mapping[str, Any]) -> Iterator[Finding]:
    tensors = {**_mapping(data, "inputs"), **_mapping(data, "outputs")}
    for output, tolerance in _mapping(data, "tolerances").items():
        source = part(tolerance, "from") or part(tolerance, "from_")
        if isinstance(source, str) and source not in tensors:
            what = "input or output"
            yield _unknown(("tolerances", output, "from"), what, source, tensors)
        elif source == output:
            yield Finding(("tolerances", output, "from"), f"{output!r} are the indices themselves")


def _not_var(loc: Loc, names: Iterable[str], axes: Mapping[str, Any]) -> Iterator[Finding]:
    for name in names:
        if name not in axes:
            yield _unknown((*loc, name), "axis", name, axes)
        elif _is_const(axes[name]):
            yield Finding((*loc, name), f"{name!r} is a const axis; only var axes can be set")


def _is_const(axis: Raw) -> bool:
    return isinstance(axis, int) or part(axis, "type") == "const"


def _unknown_keys(
    data: Mapping[str, Any], loc: tuple[str, ...], what: str, known: object
) -> Iterator[Finding]:
    if not isinstance(known, Mapping):
        return
    section: Any = data
    for key in loc:
        section = _mapping(section, key)
    for name in section:
        if name not in known:
            yield _unknown((*loc, name), what, name, known)
