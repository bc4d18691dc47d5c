"""What a reference does where it names an integer: whether it only moves it, or asks little of it.

Elements that are only moved, or only asked whether they equal something, may be any numbers.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import MOVES, constant
from pytest_fib.workloads._reference_numbers import LIKE, SHAPES, views_bits
from pytest_fib.workloads._reference_reading import AMONG, FILLS, MASKED, UNIQUE

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Reading


class Names:
    """Notes integers that are used, and of which more is asked than little."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_name(self, node: ast.Name) -> None:
        """Note what is done with an integer where it is named."""
        if name := self._expressions.integer(node):
            self._uses.seen.add(name)
            self._uses.more_than_true |= set() if self._is_condition(node) else {name}
            self._uses.more_than_halves |= set() if self._is_halved(node) else {name}
            if not self._moves(node):
                self._uses.computed.add(name)
                self._uses.beyond_equality |= set() if self._is_asked_for(node) else {name}

    def _is_condition(self, node: ast.AST) -> bool:
        """Whether it is only asked whether a number is true."""
        parent = self._reading.parents[node]
        match parent:
            case ast.Call(func=ast.Name(id="int" | "bool")):
                return self._is_condition(parent)
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                return self._is_condition(parent)
            case ast.If(test=test) | ast.IfExp(test=test):
                return test is node
        return False

    def _is_halved(self, node: ast.AST) -> bool:
        """Whether no more than 32 bits of a number are taken."""
        parent = self._reading.parents[node]
        match parent:
            case ast.Call(func=ast.Name(id="int")):
                return self._is_halved(parent)
            case ast.BinOp(left=left, op=ast.RShift(), right=right) if left is node:
                return constant(right) == 32
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                return 2**32 - 1 in (constant(left), constant(right))
        return False

    def _is_asked_for(self, node: ast.AST) -> bool:
        """Whether elements are only asked whether they equal a number, or are below 0."""
        parent = self._reading.parents[node]
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return self._is_asked_for(parent)
        return (
            isinstance(parent, ast.Compare)
            and parent.left is node
            and all(isinstance(constant(each), int) for each in parent.comparators)
            and (
                all(isinstance(each, ast.Eq | ast.NotEq) for each in parent.ops)
                # Or whether it is padding.
                or (
                    isinstance(parent.ops[-1], ast.GtE | ast.Lt)
                    and constant(parent.comparators[-1]) == 0
                )
            )
        )

    def _moves(self, node: ast.AST) -> bool:
        """Whether elements are only moved from where they are named to where they are kept."""
        parent = self._reading.parents[node]
        match parent:
            case ast.Attribute(attr=attr):
                return attr in SHAPES or self._moves_by(parent)
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[first, *_]):
                is_put = attr.removesuffix("_") in FILLS
                is_moved = first is node and attr in MOVES and self._reading.is_module(value)
                moved = node is not first if is_put else is_moved
                ends = attr in AMONG or (first is node and attr in LIKE | UNIQUE)
                return ends or (moved and self._moves(parent))
            case ast.Compare():
                return bool(self._reading.equated(parent))
            case ast.Subscript(value=value):
                return value is node and self._moves(parent)
            case ast.Tuple() | ast.List():
                return self._moves(parent)
        is_measured = isinstance(parent, ast.Call) and ast.unparse(parent.func) == "len"
        return is_measured or isinstance(parent, ast.Return) or self._is_kept(parent)

    def _moves_by(self, method: ast.Attribute) -> bool:
        call = self._reading.parents[method]
        is_called = isinstance(call, ast.Call) and call.func is method
        if method.attr == "view" and views_bits(call):
            return False
        moves = method.attr.removesuffix("_") in MOVES | MASKED.keys()
        return moves and self._moves(call if is_called else method)

    def _is_kept(self, node: ast.AST) -> bool:
        """Whether it is put into a tensor, or gets a name under which it is known."""
        match node:
            case ast.Assign(targets=[ast.Subscript(), *_]):
                return True
            case ast.Assign(value=value):
                held = value.elts if isinstance(value, ast.Tuple) else [value]
                return all(self._expressions.source(each) is not None for each in held)
        return False
