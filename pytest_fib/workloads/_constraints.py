"""A definition's constraints: parsed, solved for an axis, and checked on a finished workload.

The text is parsed, never evaluated by Python: what is not in the lists below is refused.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_fib.data import Definition

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": min, "max": max, "abs": abs, "len": len, "int": int, "sum": sum, "all": all, "any": any,
}  # fmt: skip
_METHODS = frozenset({"item", "max", "min", "sum", "numel", "size", "dim", "all", "any"})
_SUPPORTED = (
    ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.expr_context,
    ast.And, ast.Or, *_COMPARE, *_BINARY, *_UNARY,
)  # fmt: skip
_HIGHEST = 1 << 62


class ConstraintError(ValueError):
    """A constraint that can't be understood, or that nothing meets; the message holds its text."""


@dataclass(frozen=True)
class Bounds:
    """What a constraint leaves of an axis: ``low`` to ``high`` in multiples of ``step``."""

    low: int = 0
    high: int = _HIGHEST
    step: int = 1


@dataclass(frozen=True)
class Constraint:
    """One constraint: the var axes in it, and the inputs whose values it speaks of."""

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    axes: frozenset[str]
    tensors: frozenset[str]

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is met; ``values`` holds axes and inputs by name."""
        return bool(evaluate(self.tree, values))

    def equals(self, axis: str) -> bool:
        """Whether it says what the axis is: ``axis == ...``."""
        sides = _sides_of_equality(self.tree)
        return any(isinstance(side, ast.Name) and side.id == axis for side in sides)

    def bounds(self, axis: str, values: Mapping[str, int]) -> Bounds | None:
        """What it leaves of ``axis`` once the other axes have these values.

        None where it can't be solved for the axis; then drawn values are checked against it.
        """
        if self.tensors or not isinstance(self.tree, ast.Compare) or len(self.tree.ops) != 1:
            return None
        left, kind, right = self.tree.left, type(self.tree.ops[0]), self.tree.comparators[0]
        if not _mentions(left, axis):
            left, right, kind = right, left, _MIRRORED.get(kind, kind)
        if _mentions(right, axis):
            return None
        return _solved(left, kind, evaluate(right, values), axis, values)

    def total_of(self) -> tuple[str, str] | None:
        """``(tensor, axis)`` where it reads ``axis == tensor[-1].item()``, else None."""
        sides = _sides_of_equality(self.tree)
        for side, other in (sides, sides[::-1]) if sides else ():
            tensor = _last_element(other)
            if isinstance(side, ast.Name) and tensor is not None:
                return tensor, side.id
        return None


def parse(text: str, definition: Definition) -> Constraint:
    """A constraint of a definition. Raises ConstraintError."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise ConstraintError(f"constraint {text!r}: {error.msg}") from None
    tree = _ShapesAsAxes(definition).visit(tree)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    known = {*definition.axes, *definition.inputs, *_FUNCTIONS}
    if unknown := sorted(names - known):
        raise ConstraintError(
            f"constraint {text!r}: {unknown[0]!r} is neither an axis nor an input"
        )
    if (unsupported := _unsupported(tree)) is not None:
        raise ConstraintError(f"constraint {text!r}: {unsupported} is not supported")
    axes = frozenset(names & set(definition.var_axes))
    return Constraint(text, tree, axes, frozenset(names & set(definition.inputs)))


def parse_expression(text: str, definition: Definition) -> Callable[[Mapping[str, int]], float]:
    """A number made of axes, to be computed from their values. Raises ConstraintError."""
    parsed = parse(text, definition)
    if parsed.tensors:
        raise ConstraintError(f"{text!r}: {sorted(parsed.tensors)[0]!r} is not an axis")
    return lambda values: float(evaluate(parsed.tree, values))


def evaluate(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """The value of a supported expression."""
    return _EVALUATE[type(node)](node, values)


def _binary(node: ast.BinOp, values: Mapping[str, Any]) -> Any:
    return _BINARY[type(node.op)](evaluate(node.left, values), evaluate(node.right, values))


def _boolean(node: ast.BoolOp, values: Mapping[str, Any]) -> bool:
    parts = (bool(evaluate(part, values)) for part in node.values)
    return all(parts) if isinstance(node.op, ast.And) else any(parts)


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> Any:
    sides = [evaluate(side, values) for side in (node.left, *node.comparators)]
    pairs = zip(node.ops, pairwise(sides), strict=True)
    results = [_COMPARE[type(op)](*pair) for op, pair in pairs]
    return results[0] if len(results) == 1 else all(bool(result) for result in results)


def _called(node: ast.Call, values: Mapping[str, Any]) -> Any:
    arguments = [evaluate(argument, values) for argument in node.args]
    if isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*arguments)
    return evaluate(node.func, values)(*arguments)


_EVALUATE: dict[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
    ast.Constant: lambda node, values: node.value,
    ast.Name: lambda node, values: values[node.id],
    ast.BinOp: _binary,
    ast.UnaryOp: lambda node, values: _UNARY[type(node.op)](evaluate(node.operand, values)),
    ast.BoolOp: _boolean,
    ast.Compare: _compared,
    ast.Subscript: lambda n, values: evaluate(n.value, values)[evaluate(n.slice, values)],
    ast.Attribute: lambda node, values: getattr(evaluate(node.value, values), node.attr),
    ast.Call: _called,
}


def _unsupported(tree: ast.expr) -> str | None:
    """The first part of an expression that is not on the lists."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            known = node.keywords == [] and _is_known_call(node.func)
        elif isinstance(node, ast.Attribute):
            known = node.attr in _METHODS | {"shape"}
        elif isinstance(node, ast.Constant):
            known = isinstance(node.value, (int, float))
        else:
            known = isinstance(node, _SUPPORTED)
        if not known:
            return repr(ast.unparse(node))
    return None


def _is_known_call(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in _METHODS
    return isinstance(function, ast.Name) and function.id in _FUNCTIONS


class _ShapesAsAxes(ast.NodeTransformer):
    """``weights.shape[1]`` is the axis of that dimension, so it can be solved like one."""

    def __init__(self, definition: Definition) -> None:
        self._inputs = definition.inputs

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        of = node.value
        if not (isinstance(of, ast.Attribute) and of.attr == "shape"):
            return node
        spec = self._inputs.get(of.value.id) if isinstance(of.value, ast.Name) else None
        if spec is None or spec.shape is None:
            return node
        try:
            return ast.Name(spec.shape[ast.literal_eval(node.slice)], ast.Load())
        except (ValueError, IndexError, TypeError):
            return node


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(part, ast.Name) and part.id == name for part in ast.walk(node))


def _sides_of_equality(tree: ast.expr) -> tuple[ast.expr, ...]:
    if isinstance(tree, ast.Compare) and [type(op) for op in tree.ops] == [ast.Eq]:
        return tree.left, tree.comparators[0]
    return ()


def _last_element(node: ast.expr) -> str | None:
    """The tensor of ``tensor[-1]`` or ``tensor[-1].item()``."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value if node.func.attr == "item" else node
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
        return None
    return node.value.id if ast.unparse(node.slice) == "-1" else None


def _solved(
    left: ast.expr, kind: type[ast.cmpop], right: float, axis: str, values: Mapping[str, int]
) -> Bounds | None:
    """Bounds of ``axis`` from ``left kind right``, by undoing what ``left`` does to it."""
    while not isinstance(left, ast.Name):
        if not isinstance(left, ast.BinOp):
            return None
        if isinstance(left.op, ast.Mod):
            return _multiple(left, kind, right, axis, values)
        undone = _undone(left, right, axis, values)
        if undone is None:
            return None
        left, right = undone
    return _between(kind, right)


def _undone(
    node: ast.BinOp, right: float, axis: str, values: Mapping[str, int]
) -> tuple[ast.expr, float] | None:
    inner, outer = node.left, node.right
    if not _mentions(inner, axis):
        inner, outer = outer, inner
    if _mentions(outer, axis):
        return None
    known = evaluate(outer, values)
    if isinstance(node.op, ast.Add):
        return inner, right - known
    if isinstance(node.op, ast.Sub) and inner is node.left:
        return inner, right + known
    if isinstance(node.op, ast.Mult) and known > 0:
        return inner, right / known
    return None


def _multiple(
    node: ast.BinOp, kind: type[ast.cmpop], right: float, axis: str, values: Mapping[str, int]
) -> Bounds | None:
    """``axis % step == 0``."""
    plain = isinstance(node.left, ast.Name) and not _mentions(node.right, axis)
    if not plain or kind is not ast.Eq or right != 0:
        return None
    return Bounds(step=int(evaluate(node.right, values)))


def _between(kind: type[ast.cmpop], right: float) -> Bounds | None:
    if kind is ast.Eq:
        return Bounds(ceil(right), floor(right))  # empty where it is no whole number
    if kind is ast.GtE:
        return Bounds(low=ceil(right))
    if kind is ast.Gt:
        return Bounds(low=floor(right) + 1)
    if kind is ast.LtE:
        return Bounds(high=floor(right))
    return Bounds(high=ceil(right) - 1) if kind is ast.Lt else None
