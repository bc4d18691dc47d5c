"""Which outputs a reference computes from others, as its source shows; nothing is run."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_fib.workloads._inlining import inlined_run
from pytest_fib.workloads._reference_expressions import MOVES, TO_FLOATING, constant

if TYPE_CHECKING:
    from pytest_fib.data import Definition


def upstream_outputs(definition: Definition) -> Mapping[str, frozenset[str]]:
    """For each output the others that it is computed from, and that aren't computed from it.

    As ``codes`` of ``x - codes * scale``. What is no variable of the source comes before none.
    """
    return _upstream(definition.reference, tuple(definition.outputs))


@lru_cache(maxsize=64)
def _upstream(reference: str, outputs: tuple[str, ...]) -> Mapping[str, frozenset[str]]:
    run = inlined_run(ast.parse(reference))
    returned = _returned(run, outputs) if run else {}
    sources = _sources(run) if run else {}
    same = _same(run) if run else {}
    held = {name: _held(value, same) for name, value in returned.items()}
    of = {name: _closure(_names(value), sources) for name, value in returned.items()}
    return {
        name: frozenset(
            other
            for other, variable in held.items()
            if variable in sources and variable in of[name] and held[name] not in of[other]
        )
        for name in returned
    }


def _returned(run: ast.FunctionDef, outputs: Sequence[str]) -> dict[str, ast.expr]:
    """What is returned at the end, for each output."""
    match run.body[-1]:
        case ast.Return(value=ast.Tuple(elts=values) | ast.List(elts=values)) if len(values) == len(
            outputs
        ):
            return dict(zip(outputs, values, strict=True))
        case ast.Return(value=ast.Dict(keys=keys, values=values)):
            pairs = zip(keys, values, strict=True)
            named = {constant(key): value for key, value in pairs if key is not None}
            return {name: named[name] for name in outputs if name in named}
    return {}


def _same(run: ast.FunctionDef) -> dict[str, str]:
    """Variables that hold the elements of others, and are assigned once."""
    assigned = [pair for node in ast.walk(run) for pair in _assigned(node)]
    times = Counter(each.id for target, _ in assigned for each in _stored(target))
    pairs = ((target, _held(value, {})) for target, value in assigned)
    return {
        target.id: held
        for target, held in pairs
        if isinstance(target, ast.Name) and held is not None and times[target.id] == 1
    }


def _held(node: ast.expr, same: Mapping[str, str]) -> str | None:
    """The variable whose elements an expression holds, as they are or rounded."""
    match node:
        case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES | TO_FLOATING:
            return _held(value, same)
        case ast.Name(id=name):
            seen = {name}
            while same.get(name, name) not in seen:  # it may hold its own elements, converted
                seen.add(name := same[name])
            return name
    return None


def _sources(run: ast.FunctionDef) -> dict[str, set[str]]:
    """The variables from which each variable gets its elements, wherever that is."""
    sources: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(run):
        for target, value in _assigned(node):
            names = _names(target)
            for name in {each.id for each in _stored(target)}:
                sources[name] |= (names - {name}) | _names(value)
    return dict(sources)


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What a statement or an expression puts where."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=ones)], value=ast.Tuple(elts=others)) if len(
            ones
        ) == len(others):
            yield from zip(ones, others, strict=True)
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.AnnAssign(target=target, value=ast.expr() as value):
            yield target, value
        case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
            yield target, value
        case ast.Call(func=ast.Attribute(value=target, attr=attr), args=values) if attr.endswith(
            "_"
        ) or attr in ("append", "extend"):
            yield from ((target, each) for each in values)


def _stored(target: ast.expr) -> Iterator[ast.Name]:
    """The variables that are assigned, or of which some elements are."""
    match target:
        case ast.Name():
            yield target
        case ast.Tuple(elts=targets) | ast.List(elts=targets):
            for each in targets:
                yield from _stored(each)
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.Attribute(value=value):
            yield from _stored(value)
        case ast.Call(func=ast.Attribute(value=value)):  # of a view
            yield from _stored(value)


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _closure(names: Collection[str], sources: Mapping[str, set[str]]) -> set[str]:
    """Variables, those from which they get their elements, and so on."""
    found: set[str] = set()
    ahead = [*names]
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += sources.get(name, ())
    return found
