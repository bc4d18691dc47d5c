"""What a reference does with the bits of its inputs: it shifts them, or views them otherwise."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import constant
from pytest_fib.workloads._reference_numbers import views_bits

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Call, Reading


class Bits:
    """Notes shifts, and views of floating numbers as integers or of integers as these."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_operation(self, node: ast.BinOp) -> None:
        """Note what is shifted to the right, and integers by which others are shifted."""
        if isinstance(node.op, ast.RShift) and (name := self._expressions.integer(node.left)):
            self._uses.shifted.add(name)
        if isinstance(node.op, ast.RShift | ast.LShift) and constant(node.left) is None:
            by = self._expressions.integer(node.right)
            self._uses.shifts |= {by} if by else set()

    def note_call(self, call: Call) -> None:
        """Note the ends of a floating input whose bits are read: rounded up, they are infinite."""
        is_view = call.name == "view" and call.arguments and views_bits(call.node)
        source = self._expressions.source(call.arguments[0]) if is_view else None
        if source and (dtype := self._reading.inputs[source.input].dtype).is_floating:
            self._uses.limits.setdefault(source.input, set()).update(dtype.ends)

    def note_returned(self, node: ast.Return) -> None:
        """Note which outputs are bits that integers hold."""
        held = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for name, value in zip(self._reading.outputs, held, strict=False):
            noted = self._uses.bits
            noted[name] = (
                noted.get(name, True) and value is not None and self._expressions.are_bits(value)
            )
