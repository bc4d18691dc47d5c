"""Of what a reference makes softmaxes and the like, and whether it mends those of nothing."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import DEPTH, called, constant
from pytest_fib.workloads._reference_reading import JOINS, MASKED
from pytest_fib.workloads._reference_uses import OF_SOME, WEIGHING

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Call, Reading


class Softmaxes:
    """Notes functions of at least one element, and the inputs whose elements they weigh."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_call(self, call: Call) -> None:
        """Note a softmax or the like, and that it has zeros put into it."""
        node, name, arguments = call
        if name in WEIGHING and arguments:
            self._note_weighed(arguments[0])
        if name in OF_SOME:
            self._uses.of_some.add(ast.unparse(node))
            if arguments and self._is_joined(arguments[0]):
                self._uses.mended.add(ast.unparse(node))  # there is something else, as a sink
        if name in MASKED and any(constant(each) == 0 for each in arguments[1:]):
            made = [self._reading.moved_from(each) for each in arguments]
            self._uses.mended |= {ast.unparse(each) for each in made if called(each) in OF_SOME}

    def _note_weighed(self, logits: ast.expr) -> None:
        """Note the input of which a softmax is made, also if that is scaled before."""
        held = self._expressions.calculation(logits) or logits
        parts = [held.left, held.right] if isinstance(held, ast.BinOp) else [held]
        sources = [self._expressions.source(each) for each in parts]
        self._uses.weighed |= {each.input for each in sources if each}

    def _is_joined(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression joins several tensors, wherever that is calculated."""
        held = self._expressions.calculation(node) if depth else None
        return self._is_joined(held, depth - 1) if held else called(node) in JOINS
