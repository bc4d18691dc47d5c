"""What all that read a reference share: its inputs, what expressions hold, and what is noted."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_fib.workloads._reference_expressions import DEPTH, MOVES, Expressions, constant

if TYPE_CHECKING:
    from pytest_fib.data import TensorSpec
    from pytest_fib.workloads._reference_uses import ReferenceUses

#: What keeps a number from being zero or infinite.
LIMITS = {"clamp", "clamp_min", "clip", "maximum", "masked_fill", "nan_to_num"}
#: Functions that keep numbers above others, which are the argument of that place, or of that name.
CLAMPS_BELOW = {"clamp": 1, "clip": 1, "clamp_min": 1}
#: Functions that join tensors.
JOINS = {"cat", "concat"}
#: Functions that tell which elements are equal.
UNIQUE = {"unique", "unique_consecutive"}
#: Functions that tell which elements are among others.
AMONG = {"isin"}
#: Where a mask is among the arguments, and what is put where it is true, or false.
MASKED = {"masked_fill": (1, 2), "where": (0, 1, 2)}
#: Functions that put what is among their arguments, but for the first, into a tensor.
FILLS = {"where", "full", "full_like", "new_full", "masked_fill"}


class Call(NamedTuple):
    """A call of a function or a method, by its name; a method's tensor is the first argument."""

    node: ast.Call
    name: str
    arguments: list[ast.expr]


@dataclass(frozen=True)
class Reading:
    """A reference that is being read: what its expressions hold by now, and what is noted of it."""

    inputs: Mapping[str, TensorSpec]
    outputs: Mapping[str, TensorSpec]
    uses: ReferenceUses
    expressions: Expressions
    #: What each part of the reference that was reached is a part of.
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict)

    def number(self, node: ast.expr | None) -> float | None:
        """The number that an expression is: a literal, or a name or the negative of one.

        Arithmetic with numbers is folded before.
        """
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self.number(operand)
                return None if number is None else -number
            case ast.Name():
                value = self.expressions.calculation(node)
                held = constant(value) if value else None
            case _:
                held = None if node is None else constant(node)
        return held if isinstance(held, (int, float)) else None

    def scalars(self, nodes: Sequence[ast.expr]) -> set[str]:
        """The inputs that are scalars among expressions."""
        sources = [source.input for node in nodes if (source := self.expressions.source(node))]
        return {each for each in sources if self.inputs[each].is_scalar}

    def call(self, node: ast.Call) -> Call | None:
        """Who is called, and with what: a method, or a module's function; None of any other."""
        if not isinstance(node.func, ast.Attribute):
            return None
        tensor, arguments = node.func.value, list(node.args)
        if not self.is_module(tensor) and not isinstance(tensor, ast.Attribute):
            arguments.insert(0, tensor)
        return Call(node, node.func.attr.removesuffix("_"), arguments)

    def operands(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a function, or of a method, whose tensor is the first of them."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        return call.args if of is None or self.is_module(of) else [of, *call.args]

    def is_module(self, node: ast.expr) -> bool:
        """Whether a name is that of a module, such as ``torch``, rather than of a variable."""
        return isinstance(node, ast.Name) and not self.expressions.is_variable(node)

    def moved_from(self, index: ast.expr, depth: int = DEPTH) -> ast.expr:
        """The calculation of which an index holds the numbers, wherever they are."""
        match index:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES:
                return self.moved_from(value, depth)
            case ast.Subscript(value=value):
                return self.moved_from(value, depth)
            case ast.Name() if depth and (held := self.expressions.calculation(index)):
                return self.moved_from(held, depth - 1)
        return index

    def equated(self, node: ast.Compare) -> set[str]:
        """Integer inputs that are asked whether they equal each other, or themselves elsewhere.

        Or which of their own elements is greater.
        """
        sides = [self.expressions.integer(each) for each in (node.left, *node.comparators)]
        alike = all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops)
        alike |= len({*sides}) == 1
        return {name for name in sides if name} if alike and None not in sides else set()


def keyword(call: ast.Call, name: str) -> list[ast.expr]:
    """The argument of a call that has that name; nothing where none has."""
    return [each.value for each in call.keywords if each.arg == name]


def terms(node: ast.expr, sign: int) -> Iterator[tuple[int, ast.expr]]:
    """The terms of a sum or a difference, with their signs."""
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() as op):
            yield from terms(left, sign)
            yield from terms(right, sign if isinstance(op, ast.Add) else -sign)
        case _:
            yield sign, node
