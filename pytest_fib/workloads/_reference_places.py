"""What a reference compares places along an axis with: lengths, indices, or running sums."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import DEPTH

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Reading


class Places:
    """Notes integers that places along an axis are held against."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_comparison(self, left: ast.expr, operation: ast.cmpop, right: ast.expr) -> None:
        """Note what places along an axis are compared with: how many count, or the last one."""
        axis, other = self._along(left), right
        excludes = isinstance(operation, ast.Lt | ast.GtE)
        if axis is None:
            axis, other = self._along(right), left
            excludes = isinstance(operation, ast.Gt | ast.LtE)
        if isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub):  # a distance
            other, excludes = other.operand, False
        name = self._expressions.integer(other)
        if axis is not None:
            self.note_running(other, axis)
        is_equality = isinstance(operation, ast.Eq | ast.NotEq)
        if axis is None and is_equality:
            self._note_block(left, right)
        if axis is None or name is None:
            return
        if is_equality:
            excludes = False  # one of these places, or none
        if is_equality or axis not in (self._reading.inputs[name].shape or ()):
            noted: dict[str, str] | dict[str, str | int]
            noted = self._uses.lengths if excludes else self._uses.picks
            noted.setdefault(name, axis)

    def _note_block(self, *sides: ast.expr) -> None:
        """Note numbers that are asked whether they are those of blocks of places along an axis."""
        for one, other in (sides, sides[::-1]):
            name, block = self._expressions.integer(one), self._reading.moved_from(other)
            match block:
                case ast.BinOp(left=places, op=ast.FloorDiv(), right=divisor) if name:
                    axis, size = self._expressions.along(places), self._expressions.size(divisor)
                    if axis and size:
                        self._uses.picks.setdefault(name, f"({axis} + {size} - 1) // {size}")

    def note_running(self, sums: ast.expr, axis: str) -> None:
        """Note integers whose running sums are held against places along an axis."""
        match self._reading.moved_from(sums):
            case ast.Call(func=ast.Attribute(attr="cumsum")) as call:
                summed = self._reading.operands(call)[:1]
                for name in filter(None, map(self._expressions.integer, summed)):
                    self._uses.running.setdefault(name, axis)

    def _along(self, node: ast.expr) -> str | None:
        """The axis along which an expression has places, or distances from these."""
        node = self._expressions.calculation(node) or node
        match node:
            case ast.BinOp(left=places, op=ast.Add() | ast.Sub()):
                return self._expressions.along(places)
        return self._expressions.along(node)

    def note_alternatives(self, operands: Sequence[ast.expr]) -> None:
        """Note lengths of what is one of several things that count."""
        self._uses.alternatives |= set().union(*map(self._included, operands))

    def _included(self, node: ast.expr, depth: int = DEPTH) -> set[str]:
        """The lengths of which an expression says that what is within them counts."""
        match node:
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[length]):
                name = self._expressions.integer(length)
                return {name} if name and self._expressions.along(left) else set()
            case ast.Compare(left=length, ops=[ast.Gt()], comparators=[right]):
                name = self._expressions.integer(length)
                return {name} if name and self._expressions.along(right) else set()
            case ast.Subscript(value=value):
                return self._included(value, depth)
            case ast.BinOp(left=left, right=right, op=ast.BitAnd() | ast.BitOr()):
                return self._included(left, depth) | self._included(right, depth)
        held = self._expressions.calculation(node) if depth else None
        return set() if held is None else self._included(held, depth - 1)
