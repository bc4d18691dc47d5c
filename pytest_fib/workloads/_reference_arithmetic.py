"""What a reference calculates of its inputs: sums, products, quotients, powers and rounding."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import DEPTH, TO_FLOATING, constant
from pytest_fib.workloads._reference_uses import QUOTIENTS

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_differences import Differences
    from pytest_fib.workloads._reference_places import Places
    from pytest_fib.workloads._reference_reading import Call, Reading
    from pytest_fib.workloads._reference_signs import Signs

#: Functions of numbers that are not negative.
_ROOTS = {"sqrt", "rsqrt", "log", "log2", "log10"}
#: Those of numbers that are added where these are multiplied.
_POWERS = {"exp", "exp2"}
#: Those of two numbers, the second of which is not zero; and all that divide.
_REMAINDERS = {"floor_divide", "remainder", "fmod"}
_DIVISIONS = {"normalize", "reciprocal", *QUOTIENTS}
#: What is below this and added is an epsilon.
_EPSILON = 1e-3
#: Functions that round to the nearest whole number.
_ROUNDINGS = {"round"}
#: Names of steps of an optimiser.
_STEP = re.compile(r"t|(.*_)?steps?")


class Arithmetic:
    """Notes what inputs are as operands, and hands on those of differences, roots and quotients."""

    def __init__(
        self, reading: Reading, differences: Differences, signs: Signs, places: Places
    ) -> None:
        self._reading, self._differences = reading, differences
        self._signs, self._places = signs, places
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_operation(self, node: ast.BinOp) -> None:
        """Note what is calculated of two operands, and what inputs are among these."""
        match node.op:
            case ast.Pow():
                self._note_power(node)
            case ast.Div() if not isinstance(node.right, ast.Constant):
                self._note_quotient(node.right)
            case ast.Sub():
                self._differences.note_difference(node)
            case ast.FloorDiv() | ast.Mod():
                self._note_multiple(node.left, self._reading.number(node.right))
        self.note_operands(node.op, node.left, node.right)

    def note_operands(self, operation: ast.operator, *operands: ast.expr) -> None:
        """Note which inputs are terms of a sum, which are factors, and lengths of alternatives."""
        names = {
            source.input for operand in operands if (source := self._expressions.source(operand))
        }
        if isinstance(operation, ast.Add) and not any(map(_is_faint, operands)):
            self._uses.added |= names
        elif isinstance(operation, ast.Mult):
            self._uses.factors |= names
        elif isinstance(operation, ast.BitOr):
            self._places.note_alternatives(operands)
        elif isinstance(operation, ast.Div | ast.FloorDiv | ast.Mod):
            self._signs.note_not_zero(operands[-1])

    def _note_power(self, node: ast.BinOp) -> None:
        """Note what is raised to a power, and which integers it is raised to."""
        if isinstance(constant(node.right), float):
            self._signs.note_not_negative(node.left)
        if not self._expressions.has_tensor(node.left):
            self._uses.exponents |= self._exponents(node.left, node.right)

    def _exponents(self, base: ast.expr, exponent: ast.expr) -> set[str]:
        """The integers of a power that are steps: of 2 and more they are numbers of bits."""
        number, name = constant(base), self._expressions.integer(exponent)
        if name and isinstance(number, int | float) and number > 1:
            self._uses.shifts |= {name} if isinstance(number, float) else set()
            return set()
        steps = {name} if name else set()
        name = self._expressions.integer(base)
        return steps | ({name} if name and _STEP.fullmatch(name) else set())

    def _note_quotient(self, divisor: ast.expr) -> None:
        """Note whether it is divided by what is calculated, and by what may be zero."""
        is_size = self._expressions.size(divisor) is not None
        is_safe = is_size or self._signs.is_kept_from_zero(divisor)
        self._uses.calls |= set() if is_safe else {"div"}
        self._uses.divides |= self._expressions.has_tensor(divisor)

    def _note_multiple(self, dividend: ast.expr, divisor: float | None) -> None:
        """Note by which whole number the size of an axis is divided, and after which rest.

        Of ``(n - 4) // 32`` those are 32 and 4: of 36 and 68, nothing is left.
        """
        if not isinstance(divisor, int) or divisor <= 2:
            return
        rests = {}
        for each in ast.walk(dividend):
            match each:
                case ast.BinOp(left=of, op=ast.Sub(), right=ast.Constant(int(less))):
                    rests[of] = less % divisor
                case ast.BinOp(left=of, op=ast.Add(), right=ast.Constant(int(more))) if (
                    more % divisor != divisor - 1  # which only rounds up
                ):
                    rests[of] = -more % divisor
        for each in ast.walk(dividend):
            axis = self._expressions.size(each) if isinstance(each, ast.expr) else None
            if isinstance(axis, str):
                multiple = divisor, rests.get(each, 0)
                self._uses.multiples.setdefault(axis, set()).add(multiple)

    def note_call(self, call: Call) -> None:
        """Note what a function calculates, and which numbers it is computed of."""
        name, arguments = call.name, call.arguments
        self._uses.divides |= name in _DIVISIONS
        if name in _ROOTS and arguments:
            self._signs.note_not_negative(arguments[0])
        elif name in QUOTIENTS | _REMAINDERS and len(arguments) > 1:
            self._signs.note_not_zero(arguments[1])
        elif name in _POWERS and arguments:
            self._note_raised(call)
        elif name in _ROUNDINGS and arguments:
            self._note_rounded(arguments[0])
        self._differences.note_call(call)
        self._note_converted(call)

    def _note_raised(self, call: Call) -> None:
        """Note floating tensors that are exponents, and whether the power is negated."""
        is_negated = isinstance(self._reading.parents[call.node], ast.UnaryOp)
        for raised in self._expressions.floats(call.arguments[0]):
            self._uses.raised.setdefault(raised, is_negated)

    def _note_rounded(self, node: ast.expr, depth: int = DEPTH) -> None:
        """Note what is rounded in steps, as by ``torch.round(x / scale[:, None] + zero_point)``."""
        held = self._expressions.calculation(node) if depth else None
        match held or node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub()) if depth:
                self._note_rounded(left, depth - 1)
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as op, right=right):
                steps = self._expressions.floats(right)
                for name in self._expressions.floats(left) if steps else ():
                    is_product = isinstance(op, ast.Mult)
                    noted = self._uses.steps.setdefault(name, set())
                    noted |= {(step, is_product) for step in steps}

    def _note_converted(self, call: Call) -> None:
        """Note integers that become floating numbers; numbers are no indices."""
        arguments = call.arguments
        to_float = call.name == "to" and any(
            word in ast.unparse(each) for each in arguments[1:] for word in ("float", ".dtype")
        )
        if (
            (call.name in TO_FLOATING or to_float)
            and arguments
            and (index := self._expressions.integer(arguments[0]))
        ):
            self._uses.numbers.add(index)


def _is_faint(node: ast.expr) -> bool:
    """Whether it is an epsilon, which changes only what is near zero."""
    number = constant(node)
    return isinstance(number, float) and 0 < abs(number) < _EPSILON
