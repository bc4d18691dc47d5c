"""Which inputs a reference uses in one of two branches alone, as a scalar decides."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_fib.workloads._constraints import COMPARE
from pytest_fib.workloads._reference_numbers import LIKE, SHAPES
from pytest_fib.workloads._reference_uses import LeftOut

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Reading


class Branches:
    """Knows which branches are around, and finds those around all that is done with an input."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._expressions = reading, reading.expressions
        #: The branches around, of those that scalars decide: which of the two; and those around
        #: everything that is calculated of each floating tensor.
        self._decided: dict[int, int] = {}
        self._around: dict[str, dict[int, int]] = {}
        self._tests: dict[int, ast.expr] = {}
        #: How often each variable is assigned.
        self._stores = Counter[str]()

    def each_of(
        self, node: ast.If | ast.IfExp, *cases: Sequence[ast.AST]
    ) -> Iterator[Sequence[ast.AST]]:
        """Give the cases of a branch by turns: what is noted meanwhile is within the case.

        Where the first one ends with a ``return``, what comes after both is within the second.
        """
        names = [each for each in ast.walk(node.test) if isinstance(each, ast.Name)]
        scalars = self._reading.scalars(names)
        is_decided = bool(scalars) and not self._expressions.has_tensor(node.test)
        outer = self._decided
        self._tests[id(node)] = node.test
        for number, case in enumerate(cases):
            self._decided = {**outer, id(node): number} if is_decided else outer
            yield case
        ends = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return)
        self._decided = {**outer, id(node): 1} if is_decided and ends else outer

    def note_name(self, node: ast.Name) -> None:
        """Note the branches around a calculation; none where a variable is something else later."""
        if isinstance(node.ctx, ast.Store):
            self._stores[node.id] += 1
            return
        if self._is_of_shape(node):
            return
        for tensor in self._expressions.floats(node) if not self._is_renamed(node) else ():
            around = self._around.setdefault(tensor, {**self._decided})
            self._around[tensor] = {
                each: case
                for each, case in around.items()
                if self._decided.get(each) == case and self._stores[node.id] < 2
            }

    def _is_of_shape(self, node: ast.AST) -> bool:
        """Whether no more than its shape or dtype is taken, as by ``torch.zeros_like(y)``."""
        match self._reading.parents[node]:
            case ast.Attribute(attr=attr):
                return attr in SHAPES
            case ast.Call(func=ast.Attribute(attr=attr), args=[first, *_]):
                return attr in LIKE and first is node
        return False

    def _is_renamed(self, node: ast.AST) -> bool:
        """Whether elements are only given another name, as by ``y = y.float()``."""
        parent = self._reading.parents[node]
        while isinstance(parent, ast.Attribute | ast.Call) and not isinstance(node, ast.Call):
            node, parent = parent, self._reading.parents[parent]
        is_source = isinstance(node, ast.expr) and self._expressions.source(node) is not None
        return isinstance(parent, ast.Assign) and parent.value is node and is_source

    def finish(self) -> None:
        """Note the floating tensors like an output of which all is done in one of two branches.

        As what is added to is where ``beta`` is 0, or where it is written for the first time.
        """
        inputs, outputs = self._reading.inputs, self._reading.outputs
        shapes = [spec.shape for spec in outputs.values() if spec.dtype.is_floating]
        like = {n: at for n, at in self._around.items() if inputs[n].shape in shapes}
        found = (
            (n, self._asked_of_scalar(self._tests[i], k)) for n in like for i, k in like[n].items()
        )
        self._reading.uses.left_out = {
            name: left_out for name, left_out in found if left_out is not None
        }

    def _asked_of_scalar(self, test: ast.expr, case: int) -> LeftOut | None:
        """What a scalar is asked, if that is no more than how it compares with a number."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._asked_of_scalar(inner, 1 - case)
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                compare, number = COMPARE.get(type(operation)), self._reading.number(right)
            case _:
                left, compare, number = test, COMPARE[ast.NotEq], 0
        scalar = next(iter(self._reading.scalars([left])), None)
        if scalar is None or compare is None or number is None:
            return None
        return LeftOut(scalar, compare, number, bool(case))
