"""Which inputs a reference needs to be positive, or not zero: roots are of them, or divisors."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import DEPTH, MOVES, TO_FLOATING, called, constant
from pytest_fib.workloads._reference_reading import CLAMPS_BELOW, LIMITS, keyword

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Reading


class Signs:
    """Notes what is under a root or in a logarithm, and what is divided by."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_not_negative(self, node: ast.expr, depth: int = DEPTH) -> None:
        """Note the inputs that a number under a root is a sum of."""
        made_of = self._signed_parts(node)
        if made_of is None:
            self._uses.positive |= self._expressions.floats(node)
        for part in made_of or () if depth else ():
            self.note_not_negative(part, depth - 1)

    def _signed_parts(self, node: ast.expr) -> Iterable[ast.expr] | None:
        """What a number is calculated from whose sign is theirs; None of what is no calculation."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return left, right
            case ast.BinOp(left=ast.Constant(), right=part, op=ast.Sub()):
                self._uses.shares_of_one |= self._expressions.floats(part)
                return (part,)  # 1 less what is between 0 and 1
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return self._signed_factors(node)
            case ast.Name():
                of = self._expressions.calculation(node)
                return None if of is None else (of,)
            case ast.Call(func=ast.Attribute(attr=name)):
                return _added_or_greater(name, self._reading.operands(node))
        return None

    def _signed_factors(self, node: ast.BinOp) -> Iterator[ast.expr]:
        """The factors that decide a product's sign, or what alone decides that of a quotient."""
        match node:
            case ast.BinOp(
                left=left, right=ast.Call(func=ast.Attribute(value=whole)), op=ast.Div()
            ) if ast.unparse(whole) == ast.unparse(left):
                yield left  # as shares of their mean or sum
        is_product = isinstance(node.op, ast.Mult)
        sides = _factors(node) if is_product else iter((node.left, node.right))
        tensors = [side for side in sides if self._expressions.has_tensor(side)]
        texts = [ast.unparse(each) for each in tensors]
        are_given = all(self._expressions.floats(each) for each in tensors)
        for tensor, text in zip(tensors, texts, strict=True):
            is_alone = len(tensors) == 1 or are_given  # else one may be negative as the other is
            if texts.count(text) % 2 if is_product else is_alone:  # else it is a square
                yield tensor

    def note_not_zero(self, node: ast.expr) -> None:
        """Note the inputs that a divisor is, or is a product of."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                self.note_not_zero(left)
                self.note_not_zero(right)
            case ast.BinOp(left=operand, op=ast.Pow()) | ast.UnaryOp(operand=operand):
                self.note_not_zero(operand)
            case ast.Call() if called(node) == "sqrt" and (of := self._reading.operands(node)):
                self.note_not_zero(of[0])
            case _:
                self._uses.divisors |= self._expressions.floats(node)
                if name := self._expressions.integer(node):
                    uses, is_clamped = self._uses, self._is_clamped(node)
                    (uses.clamped_divisors if is_clamped else uses.whole_divisors).add(name)

    def _is_clamped(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether the least of a divisor's elements is limited, wherever that is calculated."""
        match node:
            case ast.Subscript(value=value):
                return self._is_clamped(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                least = keyword(node, "min") or node.args[:1]
                numbers = [constant(each) for each in least if attr in CLAMPS_BELOW]
                is_above = any(isinstance(n, int | float) and n > 0 for n in numbers)
                return is_above or self._is_clamped(value, depth)
        held = self._expressions.value_of(node) if depth else None
        return held is not None and self._is_clamped(held, depth - 1)

    def is_kept_from_zero(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether a divisor is limited, whatever it is calculated from, or an input's."""
        match node:
            case ast.Subscript(value=value):
                return self.is_kept_from_zero(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if (
                attr in MOVES | TO_FLOATING
            ):
                return self.is_kept_from_zero(value, depth)
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=ast.Constant()):
                return self.is_kept_from_zero(left, depth)
            case ast.Name() if depth and (held := self._expressions.calculation(node)):
                return self.is_kept_from_zero(held, depth - 1)
        is_given = self._expressions.floats(node) or not self._expressions.has_tensor(node)
        return called(node) in LIMITS or bool(is_given)


def _added_or_greater(name: str, arguments: Sequence[ast.expr]) -> Sequence[ast.expr] | None:
    """What a call adds up, or of what it takes the greater; None of other calls."""
    if name in ("sum", "mean"):
        return arguments[:1]
    if name in ("index_add", "scatter_add"):
        return arguments[-1:]
    return arguments if name == "maximum" else None


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Mult()):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield node
