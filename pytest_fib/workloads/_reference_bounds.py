"""What a reference keeps numbers within: the sizes of axes, scalars, or other numbers."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import called
from pytest_fib.workloads._reference_reading import (
    CLAMPS_BELOW,
    FILLS,
    LIMITS,
    MASKED,
    Call,
    keyword,
)

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Reading

#: Functions that keep numbers below others, which are the argument of that place, or of that name.
_CLAMPS = {"clamp": 2, "clip": 2, "clamp_max": 1}


class Bounds:
    """Notes what is clamped, and integers that are held against the size of an axis."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions
        #: Integers that are held against the size of an axis: what is beyond counts otherwise.
        self.held: set[str] = set()
        #: The axis below whose size it is asked whether they are.
        self.asked_for_more: dict[str, str] = {}

    def note_call(self, call: Call) -> None:
        """Note what a function keeps within limits, and which these are."""
        if not call.arguments:
            return
        if call.name in LIMITS:
            self._note_limited(call)
        self._note_clamped(call)

    def _note_limited(self, call: Call) -> None:
        """Note floating tensors that have limits, and those of which one is the most."""
        limited = self._expressions.floats(call.arguments[0])
        self._uses.limited |= limited
        is_most = len(call.arguments) > _CLAMPS.get(call.name, len(call.arguments))
        is_most |= call.name in _CLAMPS and bool(keyword(call.node, "max"))
        self._uses.clamped |= limited if is_most else set()

    def _note_clamped(self, call: Call) -> None:
        """Note an integer that is clamped to the size of an axis, and scalars that are limits."""
        most, least = (
            keyword(call.node, limit) or call.arguments[places[call.name] :]
            if call.name in places
            else []
            for limit, places in (("max", _CLAMPS), ("min", CLAMPS_BELOW))
        )
        self._uses.least |= self._reading.scalars(least[:1])
        self._uses.most |= self._reading.scalars(most[:1])
        number = self._expressions.integer(call.arguments[0])
        axis = self._expressions.size(most[0]) if most else None
        if number is not None and isinstance(axis, str):
            self._uses.beyond.setdefault(number, axis)
        match most[:1]:
            case [ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=1))]:
                axis = self._expressions.size(left)
        self._uses.capped |= {number} if number and isinstance(axis, str) else set()

    def note_comparison(self, node: ast.Compare) -> None:
        """Note an integer that is held against the size of an axis, and may be beyond it."""
        name = self._expressions.integer(node.left)
        most = self._expressions.size(node.comparators[0])
        if name is None or not isinstance(most, str):
            return
        self.held.add(name)
        if isinstance(node.ops[-1], ast.GtE | ast.Lt) and self._replaces(node, name):
            self.asked_for_more[name] = most
        if isinstance(node.ops[0], ast.Gt) and self._selects(node):
            self._uses.beyond.setdefault(name, most)

    def _selects(self, node: ast.expr) -> bool:
        """Whether what is computed, or put where, hangs on a comparison, as in ``torch.where``."""
        mask, user = self._mask_of(node)
        match user:
            case ast.Call(args=arguments):
                return called(user) in FILLS and mask in arguments[:1]
            case ast.Subscript(slice=index):
                return index is mask
            case ast.IfExp(test=test):
                return test is mask
        return False

    def _replaces(self, node: ast.expr, name: str) -> bool:
        """Whether another number is taken for an integer where a comparison says so."""
        mask, user = self._mask_of(node)
        match user:
            case ast.Call(args=arguments) if called(user) in MASKED and mask in arguments[:1]:
                others = [each for each in self._reading.operands(user) if each is not mask]
                return name in map(self._expressions.integer, others)
        return False

    def _mask_of(self, node: ast.AST) -> tuple[ast.AST, ast.AST | None]:
        """What a comparison is a part of, as of ``(a < b) & ~c``; and what uses that."""
        user = self._reading.parents.get(node)
        while isinstance(user, ast.BinOp | ast.BoolOp | ast.UnaryOp):
            node, user = user, self._reading.parents.get(user)
        return node, user
