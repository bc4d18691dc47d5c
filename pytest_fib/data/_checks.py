"""The rules between a definition's fields, on raw data of any shape."""

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from ._base import Loc, Raw, Record, Violation, parsed, part, unknown
from ._dtypes import DTYPE_CLASSES, DType
from ._errors import shown
from ._generator_kinds import (
    COMPARE,
    GENERATOR_KINDS,
    GeneratorKind,
    Held,
    Limit,
    Refers,
    Whole,
    flat_rule,
)
from ._text import visible

#: What an axis is called that no file names, as in FlashInfer Trace.
_UNNAMED = re.compile(r"const_\d+_*")


def definition_violations(data: Mapping[str, Any]) -> Iterator[Violation]:
    """Everything wrong between a definition's fields; types are left to the model."""
    yield from _unshowable_names(data)
    yield from _unknown_axes(data)
    yield from _names_used_twice(data)
    yield from _bad_constraints(data)
    yield from _bad_reference(data)
    yield from _bad_workloads(data)
    yield from _bad_rules(data)
    yield from _unknown_keys(data, ("tolerances",), "output", part(data, "outputs"))
    yield from _bad_tolerances(data)


def _mapping(data: Raw, *keys: str) -> Mapping[str, Any]:
    """The mapping at nested keys, or an empty one."""
    for key in keys:
        data = part(data, key)
    return data if isinstance(data, Mapping) else {}


def _items(data: Raw, key: str) -> Sequence[Any]:
    value = part(data, key)
    return value if isinstance(value, (list, tuple)) else ()


def _unshowable_names(data: Mapping[str, Any]) -> Iterator[Violation]:
    for section in ("axes", "inputs", "outputs"):
        for name in _mapping(data, section):
            if isinstance(name, str) and not (name.isprintable() and name == visible(name)):
                yield Violation((section, name), f"{name!r} can't be shown as it is")


def _unknown_axes(data: Mapping[str, Any]) -> Iterator[Violation]:
    axes = part(data, "axes")
    if not isinstance(axes, Mapping):
        return
    for section in ("inputs", "outputs"):
        for name, spec in _mapping(data, section).items():
            for i, axis in enumerate(_items(spec, "shape")):
                if isinstance(axis, str) and axis not in axes:
                    yield Violation((section, name, "shape", i), _no_axis(axis, axes))


def _no_axis(text: str, axes: Mapping[str, Any]) -> str:
    """What to write instead of something that is no axis."""
    tree = parsed(text, "eval")
    used = sorted(set(_names_in(text))) if not isinstance(tree, SyntaxError) else []
    if text.strip().isdigit():
        return f"{text!r} is text; a size has no quotes: {text.strip()}"
    if not used or used == [text.strip()]:
        return unknown_axis(text, axes)
    missing = [unknown_axis(name, axes) for name in used if name not in axes]
    name = f"{used[0]}_{len(axes)}" if f"len_{used[0]}" in axes else f"len_{used[0]}"
    remedy = f"add `{name}: var` to axes and `{name} == {text}` to constraints, and write {name}"
    return "; ".join([f"{text!r} is an expression, not an axis: {remedy} here", *missing])


def with_named_sizes(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The data with a const axis for each size that a shape gives as a number.

    Axes that are no mapping stay as they are, which is said of them: shapes needn't be wrong.
    """
    given = part(data, "axes")
    axes = dict(given) if isinstance(given, Mapping) else {}
    sections = {
        section: {name: _named(spec, axes) for name, spec in data[section].items()}
        for section in ("inputs", "outputs")
        if isinstance(part(data, section), Mapping)
    }
    return {**data, **sections, **({"axes": axes} if isinstance(given, Mapping) else {})}


def _named(spec: Raw, axes: dict[str, Any]) -> Raw:
    """An input or output whose shape has axes only; those that were sizes are added to `axes`."""
    shape = part(spec, "shape")
    if not isinstance(spec, Mapping) or not isinstance(shape, (list, tuple)):
        return spec
    return {**spec, "shape": [_axis_of(entry, axes) for entry in shape]}


def is_unnamed(axis: str) -> bool:
    """Whether an axis is called after its size, since a shape gave that as a number."""
    return _UNNAMED.fullmatch(axis) is not None


def unknown_axis(name: object, axes: Iterable[Any]) -> str:
    return unknown("axis", name, [axis for axis in axes if not is_unnamed(str(axis))])


def _axis_of(entry: Raw, axes: dict[str, Any]) -> Raw:
    if not isinstance(entry, int) or isinstance(entry, bool) or entry < 0:
        return entry
    name = f"const_{entry}"
    while axes.setdefault(name, entry) != entry:
        name += "_"
    return name


def _names_used_twice(data: Mapping[str, Any]) -> Iterator[Violation]:
    for name in _mapping(data, "outputs"):
        if name in _mapping(data, "inputs"):
            yield Violation(("outputs", name), f"{name!r} is an input already")


def _bad_constraints(data: Mapping[str, Any]) -> Iterator[Violation]:
    for i, text in enumerate(_items(data, "constraints")):
        tree = parsed(text, "eval") if isinstance(text, str) else None
        if isinstance(tree, SyntaxError):
            yield Violation(("constraints", i), f"not a Python expression: {text!r}: {tree.msg}")


def _bad_reference(data: Mapping[str, Any]) -> Iterator[Violation]:
    text, inputs = part(data, "reference"), part(data, "inputs")
    if not isinstance(text, str) or not text:
        return
    tree = parsed(text, "exec")
    if isinstance(tree, SyntaxError):
        message = f"not Python: {tree.msg}{_key_in_text(text, tree.lineno or 0)}"
        yield Violation(("reference",), message, tree.lineno or 0)
        return
    functions = [item for item in ast.iter_child_nodes(tree) if isinstance(item, ast.FunctionDef)]
    runs = [function for function in functions if function.name == "run"]
    if not runs:
        yield _without_run(tree)
    elif isinstance(inputs, Mapping):
        yield from _bad_signature(runs[-1], list(inputs))


def _without_run(reference: ast.AST) -> Violation:
    """What the reference has instead of a function ``run``, if anything."""
    for item in ast.iter_child_nodes(reference):
        targets = item.targets if isinstance(item, ast.Assign) else [item]
        names = [getattr(each, "id", getattr(each, "name", None)) for each in targets]
        if "run" in names:
            line = getattr(item, "lineno", 0)
            return Violation(("reference",), "'run' is no plain function: write def run(...)", line)
    return Violation(("reference",), "no function 'run' at its top level")


def _key_in_text(text: str, line: int) -> str:
    """That a line of a reference looks like a key of the file, indented by mistake."""
    lines = text.splitlines()[line - 1 : line]
    key = lines[0].strip() if lines else ""
    is_key = re.fullmatch(r"[a-z_]+:", key) and key not in ("else:", "try:", "finally:")
    return f"; if {key} is a key of the file, indent it as reference is" if is_key else ""


def _bad_signature(run: ast.FunctionDef, inputs: list[str]) -> Iterator[Violation]:
    names = [arg.arg for arg in run.args.posonlyargs + run.args.args]
    required = len(names) - len(run.args.defaults)
    too_many = len(inputs) > len(names) and run.args.vararg is None
    if too_many or len(inputs) < required:
        message = (
            f"run takes ({', '.join(names)}), but the inputs are ({', '.join(map(str, inputs))})"
        )
        yield Violation(("reference",), message, run.lineno)
    elif names != inputs and set(names) == set(inputs):
        order = f"({', '.join(inputs)})"
        message = f"run takes ({', '.join(names)}), but inputs are passed in their order, {order}"
        yield Violation(("reference",), message, run.lineno)
    needed = zip(run.args.kwonlyargs, run.args.kw_defaults, strict=True)
    for arg in (arg.arg for arg, default in needed if default is None):
        message = f"run needs {arg!r} by keyword, but inputs are passed by position"
        yield Violation(("reference",), message, run.lineno)


def _bad_workloads(data: Mapping[str, Any]) -> Iterator[Violation]:
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
            yield Violation(("workloads", "bench", i), f"the same as bench[{bench.index(entry)}]")


def _bad_rules(data: Mapping[str, Any]) -> Iterator[Violation]:
    """What does not fit the definition around a rule; its own form is left to its model."""
    for name, raw in _mapping(data, "workloads", "inputs").items():
        rule = flat_rule(raw.model_dump(exclude_unset=True) if isinstance(raw, Record) else raw)
        spec, kind = _mapping(data, "inputs").get(name), part(rule, "kind")
        model = GENERATOR_KINDS.get(kind) if isinstance(kind, str) else None
        if spec is None:
            continue
        loc = ("workloads", "inputs", name)
        if kind is None and (message := _not_held(part(rule, "value"), part(spec, "dtype"))):
            yield Violation((*loc, "value"), message)
        if model is not None:
            for message in _unfit(kind, model, spec):
                yield Violation((*loc, "kind"), message)
            for parameter, message in _unknown_references(model, rule, spec, data):
                yield Violation((*loc, parameter), message)
            for parameter, message in chain(
                _bad_numbers(model, rule, part(spec, "dtype")), _bad_layout(rule, spec)
            ):
                yield Violation((*loc, parameter), message)


def _unfit(kind: str, model: type[GeneratorKind], spec: Raw) -> Iterator[str]:
    """What of an input a kind of generator can't fill."""
    dtype, shape = part(spec, "dtype"), part(spec, "shape")
    known = _known_dtype(dtype)  # of another, the field itself says what is wrong
    if known is not None and known not in DTYPE_CLASSES[model.dtypes]:
        yield f"{kind} can't make {known.value}"
    if shape is None and not model.scalars:
        yield f"{kind} makes tensors, not scalars"
    elif isinstance(shape, (list, tuple)) and not _has_dims(len(shape), model.dims):
        wanted = model.dims.replace("+", " or more")
        yield f"{kind} makes tensors of {wanted} dimensions, not {len(shape)}"


def _known_dtype(dtype: Raw) -> DType | None:
    return DType(dtype) if isinstance(dtype, str) and dtype in DTYPE_CLASSES["any"] else None


def _not_held(value: Raw, dtype: Raw) -> str | None:
    """Why an input of this dtype can't be the number; None where it can, or it is no number."""
    known = _known_dtype(dtype)
    if known is None or not isinstance(value, (bool, int, float)):
        return None
    if known is DType.BOOL:
        return None if value in (0, 1) else f"bool is true or false, not {shown(value)}"
    if isinstance(value, bool):
        return f"{known.value} is a number, not {shown(value)}"
    if known.is_floating:  # any may be infinite or NaN, and is rounded
        return _outside(value, known) if math.isfinite(value) else None
    if not math.isfinite(value) or value != int(value):
        return f"{known.value} is a whole number, not {shown(value)}"
    return _outside(int(value), known)


def _outside(value: float, dtype: DType) -> str | None:
    least, most = dtype.ends
    if least <= value <= most:
        return None
    return f"{dtype.value} holds {least:.15g} to {most:.15g}, not {shown(value)}"


def _bad_numbers(model: type[GeneratorKind], rule: Raw, dtype: Raw) -> Iterator[tuple[str, str]]:
    """The parameters that are numbers, but none that make values, and a message.

    Of expressions of axes, a workload's plan says the same.
    """
    known, step = _known_dtype(dtype), part(rule, "step")
    given = {name: field.default for name, field in model.model_fields.items()}
    numbers = {n: v for n, v in {**given, **rule}.items() if _is_number(v) and n in given}
    yield from _over_limits(model, numbers)
    is_stepped = step is not None and not (_is_number(step) and step == int(step))
    if is_stepped and _is_number(step) and known and not known.is_floating:
        yield "step", f"{known.value} is a whole number, not {shown(step)}"
    for parameter, mark in model.marked(Whole):
        number = numbers.get(parameter, 0)
        if number != int(number) and not (is_stepped and mark is Whole.UNLESS_STEPPED):
            yield parameter, f"should be a whole number, not {shown(number)}"
    if known is None:
        return
    values = [(p, numbers[p] + h.plus) for p, h in model.marked(Held) if p in numbers]
    for parameter, value in values:
        if message := _outside(value, known):
            yield parameter, message
    listed = ((p, value) for p, _ in model.marked(Held) for value in _items(rule, p))
    problems = ((p, _not_held(value, dtype)) for p, value in listed if _is_number(value))
    yield from ((p, problem) for p, problem in problems if problem)


def _over_limits(
    model: type[GeneratorKind], numbers: Mapping[str, float]
) -> Iterator[tuple[str, str]]:
    for parameter, limit in model.marked(Limit):
        bound = numbers.get(limit.bound) if isinstance(limit.bound, str) else limit.bound
        value = numbers.get(parameter)
        if value is not None and bound is not None and not COMPARE[limit.sign](value, bound):
            yield parameter, _limited(limit, value, bound)


def _is_number(value: Raw) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and math.isfinite(value)


def _limited(limit: Limit, value: float, bound: float) -> str:
    """``5 is below min, 6`` or ``should be at least 1, not 0``."""
    if isinstance(limit.bound, str):
        return f"{shown(value)} is below {limit.bound}, {shown(bound)}"
    words = {">=": "at least", ">": "above", "<=": "at most"}[limit.sign]
    return f"should be {words} {shown(bound)}, not {shown(value)}"


def _bad_layout(rule: Raw, spec: Raw) -> Iterator[tuple[str, str]]:
    """The parameters by which a tensor can't lie in memory, and a message."""
    order, shape, dtype = part(rule, "memory_order"), _items(spec, "shape"), part(spec, "dtype")
    if isinstance(order, list) and sorted(map(str, order)) != sorted(map(str, shape)):
        yield "memory_order", f"should be all axes, each once: {', '.join(map(str, shape))}"
    known = _known_dtype(dtype)
    if part(rule, "packed") in shape and known not in (None, *DTYPE_CLASSES["fp4"]):
        yield "packed", f"two values of float4 share a byte, not of {dtype}"


def _has_dims(dims: int, wanted: str) -> bool:
    least = int(wanted.rstrip("+"))
    return dims == least or (dims > least and wanted.endswith("+"))


def _unknown_references(
    model: type[GeneratorKind], rule: Raw, spec: Raw, data: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """The parameters of a rule that name an axis or an input that isn't there, and a message."""
    named = {
        Refers.AXES: ("axis", _mapping(data, "axes")),
        Refers.INPUT: ("input", _mapping(data, "inputs")),
        Refers.OWN_AXES: ("axis of this input", _items(spec, "shape")),
    }
    for to, (what, names) in named.items():
        for parameter in model.referring(to):
            value = part(rule, parameter)
            mentioned = _names_in(value) if to is Refers.AXES else _listed(value)
            missing = next((name for name in mentioned if name not in names), None)
            if missing is not None:
                yield parameter, unknown(what, missing, names)
    inputs = _mapping(data, "inputs")
    for parameter in model.referring(Refers.INPUT):
        other = part(rule, parameter)
        if other in inputs and not _may_count(inputs[other]):
            yield parameter, f"{other!r} is no 1-D tensor of integers"


def _may_count(spec: Raw) -> bool:
    """Whether an input may hold lengths or offsets; true of one that has no right form."""
    dtype, shape = _known_dtype(part(spec, "dtype")), part(spec, "shape")
    has_shape = shape is None or isinstance(shape, (list, tuple))
    one_dim = not has_shape or len(_items(spec, "shape")) == 1
    return one_dim and (dtype is None or dtype in DTYPE_CLASSES["integer"])


def _listed(value: Raw) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    return [t for t in texts if isinstance(t, str)] if isinstance(texts, (list, tuple)) else []


def _names_in(expression: Raw) -> Iterator[str]:
    """The axes in an expression; nothing for a number, or for text that is no expression."""
    tree = parsed(expression, "eval") if isinstance(expression, str) else None
    for node in ast.walk(tree) if isinstance(tree, ast.AST) else ():
        if isinstance(node, ast.Name) and node.id not in ("min", "max"):
            yield node.id


def _bad_tolerances(data: Mapping[str, Any]) -> Iterator[Violation]:
    tensors = {**_mapping(data, "inputs"), **_mapping(data, "outputs")}
    for output, tolerance in _mapping(data, "tolerances").items():
        source = part(tolerance, "from") or part(tolerance, "from_")
        if isinstance(source, str) and source not in tensors:
            message = unknown("input or output", source, tensors)
            yield Violation(("tolerances", output, "from"), message)
        elif source == output:
            yield Violation(
                ("tolerances", output, "from"), f"{output!r} are the indices themselves"
            )


def _not_var(loc: Loc, names: Iterable[str], axes: Mapping[str, Any]) -> Iterator[Violation]:
    for name in names:
        if name not in axes:
            yield Violation((*loc, name), unknown_axis(name, axes))
        elif _is_const(axes[name]):
            yield Violation((*loc, name), f"{name!r} is a const axis; only var axes can be set")


def _is_const(axis: Raw) -> bool:
    return isinstance(axis, int) or part(axis, "type") == "const"


def _unknown_keys(
    data: Mapping[str, Any], loc: tuple[str, ...], what: str, names: Raw
) -> Iterator[Violation]:
    for name in _mapping(data, *loc) if isinstance(names, Mapping) else ():
        if name not in names:
            yield Violation((*loc, name), unknown(what, name, names))
