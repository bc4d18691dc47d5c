"""Replaces names of a reference's constants, and arithmetic with numbers, by numbers."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from itertools import chain
from math import isfinite
from typing import Any, TypeAlias

from pytest_fib.workloads._reference_expressions import constant

Number: TypeAlias = "int | float"

#: Results have at most so many bits.
MOST_BITS = 128
_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}


def with_constants(module: ast.Module) -> ast.Module:
    """A module whose functions have numbers for names that it gives one, as in ``N = 1 << 15``.

    And for what is calculated from these.
    """
    module = deepcopy(module)
    functions = [each for each in module.body if isinstance(each, ast.FunctionDef)]
    others = [each for each in module.body if not isinstance(each, ast.FunctionDef)]
    declared = {
        name for each in ast.walk(module) if isinstance(each, ast.Global) for name in each.names
    }
    known = _numbers(others, {})
    for function in functions:
        own = _bound(function).keys() | declared
        _Folder({name: n for name, n in known.items() if name not in own}).visit(function)
    return module


def folded(run: ast.FunctionDef) -> ast.FunctionDef:
    """A function with numbers for its own names that have only one, and for calculations."""
    run = deepcopy(run)
    result = _Folder(_numbers(run.body, _bound(run.args))).visit(run)
    assert isinstance(result, ast.FunctionDef)
    return result


def _bound(*nodes: ast.AST) -> Counter[str]:
    """How often each name gets a value, in any way."""
    bound: Counter[str] = Counter()
    for each in chain.from_iterable(map(ast.walk, nodes)):
        match each:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound[name] += 1
            case ast.alias(name=name, asname=other):
                bound[other or name.partition(".")[0]] += 1
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                bound[name] += 1
    return bound


def _numbers(body: list[ast.stmt], elsewhere: Mapping[str, int]) -> dict[str, Number]:
    """The numbers that statements give names: to those that get a value once."""
    times = _bound(*body)
    numbers: dict[str, Number] = {}
    for name, value in _assigned(body):
        if times[name] == 1 and name not in elsewhere:
            number = _number_of(_Folder(numbers).visit(deepcopy(value)))
            numbers |= {} if number is None else {name: number}
    return numbers


def _assigned(body: list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for each in body:
        if isinstance(each, ast.AnnAssign) and each.value is not None:
            yield from _pairs(each.target, each.value)
        elif isinstance(each, ast.Assign):
            for target in each.targets:
                yield from _pairs(target, each.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
            for one, its_value in zip(targets, values, strict=True):
                yield from _pairs(one, its_value)


def _number_of(node: ast.expr) -> Number | None:
    """The number that a literal is, with its sign; None of anything else."""
    value = constant(node)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value


class _Folder(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, Number]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        number = self._known.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return node if number is None else _literal(number, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        left, right = _number_of(node.left), _number_of(node.right)
        calculate = _ARITHMETIC.get(type(node.op))
        if calculate is None or left is None or right is None:
            return node
        if isinstance(node.op, ast.Pow | ast.LShift) and abs(right) > MOST_BITS:
            return node
        try:
            result = calculate(left, right)
        except (ArithmeticError, TypeError, ValueError):
            return node  # the reference's own error, which its run shows
        return _literal(result, node) if _is_usual(result) else node


def _is_usual(number: object) -> bool:
    if isinstance(number, int):
        return number.bit_length() <= MOST_BITS
    return isinstance(number, float) and isfinite(number)


def _literal(number: Number, of: ast.expr) -> ast.expr:
    """The node that a parser makes of a number, which has no negative ones."""
    literal: ast.expr = ast.Constant(value=abs(number))
    if number < 0:
        literal = ast.UnaryOp(op=ast.USub(), operand=literal)
    return ast.fix_missing_locations(ast.copy_location(literal, of))
