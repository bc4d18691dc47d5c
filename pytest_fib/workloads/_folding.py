"""Replaces names of a reference's constants, and arithmetic with numbers, by numbers."""

from __future__ import annotations

import ast
import operator
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

Number: TypeAlias = "int | float"

#: Results of powers and shifts have at most so many bits.
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


def folded(run: ast.FunctionDef, module: ast.Module) -> ast.FunctionDef:
    """``run`` with a number for each name that has only that value, as in ``MOST = 1 << 15``.

    And for what is calculated from numbers alone.
    """
    run = deepcopy(run)
    stored = Counter(
        each.id
        for each in ast.walk(run)
        if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)
    )
    stored.update(each.arg for each in ast.walk(run) if isinstance(each, ast.arg))
    known = {name: number for name, number in _numbers(module.body, {}).items() if not stored[name]}
    own = _numbers(run.body, known)
    known |= {name: number for name, number in own.items() if stored[name] == 1}
    result = _Folder(known).visit(run)
    assert isinstance(result, ast.FunctionDef)
    return result


def _numbers(body: list[ast.stmt], known: Mapping[str, Number]) -> dict[str, Number]:
    """The numbers that statements give names; none of what gets another value later."""
    numbers: dict[str, Number] = {}
    seen: set[str] = set()
    for name, value in _assigned(body):
        number = number_of(_Folder({**known, **numbers}).visit(deepcopy(value)))
        if name in seen or number is None:
            numbers.pop(name, None)
        else:
            numbers[name] = number
        seen.add(name)
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


def number_of(node: ast.AST) -> Number | None:
    """The number that a literal is, with its sign; None of anything else."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            number = number_of(operand)
            return None if number is None else -number
        case ast.Constant(value=int(value) | float(value)) if not isinstance(value, bool):
            return value
    return None


class _Folder(ast.NodeTransformer):
    def __init__(self, known: Mapping[str, Number]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.AST:
        number = self._known.get(node.id)
        return node if number is None else _literal(number, node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        left, right = number_of(node.left), number_of(node.right)
        calculate = _ARITHMETIC.get(type(node.op))
        if calculate is None or left is None or right is None:
            return node
        if isinstance(node.op, ast.Pow | ast.LShift) and abs(right) > MOST_BITS:
            return node
        try:
            result = calculate(left, right)
        except (ArithmeticError, TypeError, ValueError):
            return node  # the reference's own error, which its run shows
        return _literal(result, node) if isinstance(result, int | float) else node


def _literal(number: Number, of: ast.expr) -> ast.expr:
    """The node that a parser makes of a number, which has no negative ones."""
    literal: ast.expr = ast.Constant(value=abs(number))
    if number < 0:
        literal = ast.UnaryOp(op=ast.USub(), operand=literal)
    return ast.fix_missing_locations(ast.copy_location(literal, of))
