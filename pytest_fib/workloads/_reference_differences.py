"""Of what a reference takes differences: of neighbours, inputs, places, or numbers taken off."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_reading import terms

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_comparisons import Comparisons
    from pytest_fib.workloads._reference_reading import Call, Reading


class Differences:
    """Notes what is subtracted, and from what."""

    def __init__(self, reading: Reading, comparisons: Comparisons) -> None:
        self._reading, self._comparisons = reading, comparisons
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_difference(self, node: ast.BinOp) -> None:
        """Note what is subtracted, and from what."""
        name, less = (self._expressions.integer(each) for each in (node.left, node.right))
        if name and (less is None or not self._reading.inputs[less].is_scalar):
            self._uses.counted.add(name)
        along = self._expressions.along(node.right)
        if name and along:
            self._uses.less_places.setdefault(name, along)
        self._note_taken(node)
        if name := self._neighbours(node.left, node.right):
            self._uses.offsets.add(name)
        self._comparisons.note_compared(node.left, node.right)
        self._note_span(node.left, node.right)

    def note_call(self, call: Call) -> None:
        """Note the integers of which ``x.diff()`` takes the differences."""
        if call.name == "diff" and len(call.arguments) == 1 and not call.node.keywords:
            name = self._expressions.integer(call.arguments[0])
            self._uses.offsets |= {name} if name else set()

    def _note_taken(self, difference: ast.BinOp) -> None:
        """Note single integers that are subtracted from those of a tensor, as from lengths."""
        integers = [
            (sign, name)
            for sign, part in terms(difference, 1)
            if (name := self._expressions.integer(part))
        ]
        inputs = self._reading.inputs
        taken = [name for sign, name in integers if sign < 0 and inputs[name].is_scalar]
        left = [name for sign, name in integers if sign > 0 and not inputs[name].is_scalar]
        if len(taken) == len(left) == 1:
            self._uses.taken.setdefault(taken[0], left[0])

    def _neighbours(self, left: ast.expr, right: ast.expr) -> str | None:
        """The integer input of which ``x[1:] - x[:-1]`` takes the differences."""
        match left, right:
            case ast.Subscript(value=one, slice=after), ast.Subscript(value=other, slice=before):
                slices = (ast.unparse(after), ast.unparse(before))
                name = self._expressions.integer(one)
                return (
                    name
                    if slices == ("1:", ":-1") and name == self._expressions.integer(other)
                    else None
                )
        return None

    def _note_span(self, *sides: ast.expr) -> None:
        for one, other in (sides, sides[::-1]):
            name, axis = self._expressions.integer(one), self._expressions.along(other)
            if name is not None and axis is not None:
                self._uses.spans.setdefault(name, axis)
