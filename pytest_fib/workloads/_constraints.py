"""A definition's constraints: parsed, solved for an axis, and checked on a finished workload.

The text is parsed, never evaluated by Python: what is not in the lists below is refused.
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_fib.data import Definition

#: More than any axis or size there can be.
_HIGHEST = 1 << 62


def _power(base: Any, exponent: Any) -> Any:
    """A power of axes; one that no axis comes near would take all memory there is."""
    if isinstance(exponent, (int, float)) and abs(exponent) <= _HIGHEST.bit_length():
        return base**exponent
    raise OverflowError(f"{exponent} is too high a power")


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
    ast.Pow: _power,
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
        """Whether it is met; ``values`` holds axes and inputs by name. Raises ConstraintError."""
        try:
            return _true(evaluate(self.tree, values))
        except ArithmeticError:  # a division by zero, a power without end
            return False
        except (TypeError, ValueError, LookupError, RuntimeError) as error:
            raise ConstraintError(f"constraint {self.text!r}: {error}") from None

    def equals(self, axis: str) -> bool:
        """Whether it says what the axis is: ``axis == ...``."""
        sides = _sides_of_equality(self.tree)
        return any(isinstance(side, ast.Name) and side.id == axis for side in sides)

    def bounds(self, axis: str, values: Mapping[str, int]) -> Bounds | None:
        """What it leaves of ``axis`` once the other axes have these values.

        None where it can't be solved for the axis; then drawn values are checked against it.
        """
        if self.tensors or not isinstance(self.tree, ast.Compare):
            return None
        left, kind, right = self.tree.left, type(self.tree.ops[0]), self.tree.comparators[0]
        if not _mentions(left, axis):
            left, right, kind = right, left, _MIRRORED.get(kind, kind)
        if _mentions(right, axis):
            return None
        try:
            return _Solver(axis, values).solved(left, kind, evaluate(right, values))
        except ArithmeticError:
            return None

    def foreseen(self, ends: Mapping[str, tuple[int, int]]) -> list[str]:
        """What it says of the other axes once an axis has its least or largest value.

        ``ends`` has both by axis. Without these, an axis drawn earlier might leave it no value.
        """
        if not isinstance(self.tree, ast.Compare) or len(self.axes) < 2 or self.tensors:
            return []
        sides = (self.tree.left, type(self.tree.ops[0]), self.tree.comparators[0])
        mirrored = (sides[2], _MIRRORED.get(sides[1], sides[1]), sides[0])
        return [
            text
            for axis, kind, other in (sides, mirrored)
            if isinstance(axis, ast.Name) and axis.id in ends and not _mentions(other, axis.id)
            for text in _foreseen(kind, ast.unparse(other), *ends[axis.id])
        ]

    def total_of(self) -> tuple[str, str] | None:
        """``(tensor, axis)`` where it reads ``axis == tensor[-1].item()``, else None."""
        sides = _sides_of_equality(self.tree)
        for side, other in (sides, sides[::-1]) if sides else ():
            tensor = _last_element(other)
            if isinstance(side, ast.Name) and tensor is not None:
                return tensor, side.id
        return None


def parse_all(text: str, definition: Definition, said: str = "") -> list[Constraint]:
    """A constraint of a definition, taken apart: ``1 <= n and n < m < k`` are three.

    ``said`` is what messages give instead of the text. Raises ConstraintError.
    """
    whole = parse(text, definition)
    return [
        Constraint(said or text, tree, whole.axes & names, whole.tensors & names)
        for tree in _conjuncts(whole.tree)
        for names in (_names(tree),)
    ]


def parse(text: str, definition: Definition) -> Constraint:
    """A constraint of a definition. Raises ConstraintError."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ConstraintError(f"constraint {text!r}: {message}") from None
    tree = _SizesAsAxes(text, definition).visit(tree)
    names = _names(tree)
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


def _true(value: Any) -> bool:
    """Whether a comparison holds: of tensors, that of every element."""
    return bool(value.all()) if hasattr(value, "all") else bool(value)


def _boolean(node: ast.BoolOp, values: Mapping[str, Any]) -> bool:
    parts = (_true(evaluate(part, values)) for part in node.values)
    return all(parts) if isinstance(node.op, ast.And) else any(parts)


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> Any:
    sides = [evaluate(side, values) for side in (node.left, *node.comparators)]
    pairs = zip(node.ops, pairwise(sides), strict=True)
    results = [_COMPARE[type(op)](*pair) for op, pair in pairs]
    return results[0] if len(results) == 1 else all(map(_true, results))


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
            return repr(ast.unparse(node) or type(node).__name__)
    return None


def _is_known_call(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute):
        return function.attr in _METHODS
    return isinstance(function, ast.Name) and function.id in _FUNCTIONS


class _SizesAsAxes(ast.NodeTransformer):
    """Sizes are axes, so they can be solved like these.

    That is ``x.shape[1]``, ``x.size(1)``, ``len(x)``, ``x.numel()`` and ``x.dim()``.
    """

    def __init__(self, text: str, definition: Definition) -> None:
        self._text = text
        self._inputs = definition.inputs

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        of = node.value
        shape = self._shape(of.value) if isinstance(of, ast.Attribute) else None
        if shape is None or not isinstance(of, ast.Attribute) or of.attr != "shape":
            return node
        return self._axis(shape, node.slice) or node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        function, arguments = node.func, node.args
        if isinstance(function, ast.Attribute):
            return self._method(function, arguments) or node
        shape = self._shape(arguments[0]) if len(arguments) == 1 else None
        if shape is None or not isinstance(function, ast.Name) or function.id != "len":
            return node
        return self._axis(shape, ast.Constant(0)) or node

    def _method(self, function: ast.Attribute, arguments: list[ast.expr]) -> ast.expr | None:
        shape = self._shape(function.value)
        if shape is None:
            return None
        if function.attr == "size" and len(arguments) == 1:
            return self._axis(shape, arguments[0])
        if function.attr == "dim":
            return ast.Constant(len(shape))
        product: ast.expr = ast.Constant(1)
        for axis in shape:
            product = ast.BinOp(product, ast.Mult(), ast.Name(axis, ast.Load()))
        return product if function.attr == "numel" else None

    def _shape(self, node: ast.expr) -> tuple[str, ...] | None:
        spec = self._inputs.get(node.id) if isinstance(node, ast.Name) else None
        return spec.shape if spec else None

    def _axis(self, shape: tuple[str, ...], index: ast.expr) -> ast.expr | None:
        try:
            return ast.Name(shape[ast.literal_eval(index)], ast.Load())
        except IndexError:
            there_are = f"there are {len(shape)} dimensions, {', '.join(shape)}"
            raise ConstraintError(f"constraint {self._text!r}: {there_are}") from None
        except (ValueError, TypeError):
            return None


def _conjuncts(tree: ast.expr) -> list[ast.expr]:
    """What all has to hold: the parts of an ``and``, and the links of a chain of comparisons."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for value in tree.values for part in _conjuncts(value)]
    if isinstance(tree, ast.Compare):
        sides = pairwise((tree.left, *tree.comparators))
        links = zip(tree.ops, sides, strict=True)
        return [ast.Compare(left, [op], [right]) for op, (left, right) in links]
    return [tree]


@lru_cache(maxsize=4096)  # a search asks for those of the same few expressions all the time
def _names(tree: ast.expr) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _foreseen(kind: type[ast.cmpop], other: str, low: int, high: int) -> list[str]:
    """What ``axis kind other`` needs of the other side for any axis from low to high to do."""
    found = []
    if kind in (ast.Eq, ast.LtE, ast.Lt):
        found.append(f"({other}) {'>' if kind is ast.Lt else '>='} {low}")
    if kind in (ast.Eq, ast.GtE, ast.Gt):
        found.append(f"({other}) {'<' if kind is ast.Gt else '<='} {high}")
    return found


def _mentions(node: ast.expr, name: str) -> bool:
    return name in _names(node)


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


@dataclass(frozen=True)
class _Solver:
    """Bounds of an axis from ``left kind right``, by undoing what ``left`` does to it."""

    axis: str
    values: Mapping[str, int]

    def solved(self, left: ast.expr, kind: type[ast.cmpop], right: float) -> Bounds | None:
        if isinstance(left, ast.Name):
            return _between(kind, right)
        if not isinstance(left, ast.BinOp):
            return None
        if isinstance(left.op, ast.Mod):
            return self._multiple(left, kind, right)
        first = _mentions(left.left, self.axis)
        inner, outer = (left.left, left.right) if first else (left.right, left.left)
        if _mentions(outer, self.axis):
            return None
        known = evaluate(outer, self.values)
        if isinstance(left.op, ast.FloorDiv) and first and known > 0:
            return self._floored(inner, _between(kind, right), known)
        undone = _undone(left.op, kind, right, known, first=first)
        return None if undone is None else self.solved(inner, *undone)

    def _floored(self, inner: ast.expr, between: Bounds | None, known: int) -> Bounds | None:
        """Of ``inner // known``: each of its values stands for ``known`` of the inner one."""
        if between is None:
            return None
        low = self.solved(inner, ast.GtE, between.low * known)
        high = self.solved(inner, ast.LtE, between.high * known + known - 1)
        return None if low is None or high is None else Bounds(low.low, high.high)

    def _multiple(self, left: ast.BinOp, kind: type[ast.cmpop], right: float) -> Bounds | None:
        """``axis % step == 0``."""
        plain = isinstance(left.left, ast.Name) and not _mentions(left.right, self.axis)
        if not plain or kind is not ast.Eq or right != 0:
            return None
        step = int(evaluate(left.right, self.values))
        return Bounds(step=step) if step > 0 else None


def _undone(
    op: ast.operator, kind: type[ast.cmpop], right: float, known: float, *, first: bool
) -> tuple[type[ast.cmpop], float] | None:
    """How what is left compares with what, without one operation with a known number.

    ``first``: the known number comes after the operator.
    """
    if isinstance(op, ast.Add):
        return kind, right - known
    if isinstance(op, ast.Sub):
        return (kind, right + known) if first else (_MIRRORED.get(kind, kind), known - right)
    if isinstance(op, ast.Mult) and known > 0:
        return kind, right / known
    if isinstance(op, ast.Div) and first and known > 0:
        return kind, right * known
    return None


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
