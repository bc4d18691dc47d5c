"""The domains that a constraint leaves to its axes, by interval arithmetic on its expression.

Ranges of values go up the tree, from axes to the comparison; what the comparison allows goes down
again, and narrows the domains. (The HC4-revise algorithm: Benhamou et al., "Revising Hull and Box
Consistency", ICLP 1999.) No value that may meet the constraint is lost; some that don't may stay.

A search narrows by the same constraints thousands of times, so each is compiled once.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import ceil, floor, gcd, inf, isinf, isqrt

from pytest_fib.workloads._axes import Domain

#: The least and the largest value; both may be.
Interval = tuple[float, float]
Domains = dict[str, Domain]
#: Narrows the domains in place. Raises ContradictionError where nothing is left of one.
Narrow = Callable[[Domains], None]
Combine = Callable[[Interval, Interval], Interval]

ANY: Interval = (-inf, inf)
#: Of higher powers nothing is said.
HIGHEST_POWER = 8


class ContradictionError(Exception):
    """No values in the domains meet the constraint."""


def compile_narrow(condition: ast.expr, const: Mapping[str, int]) -> Narrow:
    """A function that narrows domains to what a condition leaves; ``const`` has const axes."""
    match condition:
        case ast.Compare(left, [ast.Gt() | ast.GtE() as kind], [right]):
            mirrored = ast.Lt() if isinstance(kind, ast.Gt) else ast.LtE()
            return compile_narrow(ast.Compare(right, [mirrored], [left]), const)
        case ast.Compare(left, [kind], [right]):
            gap = int(isinstance(kind, ast.Lt) and is_whole(condition))
            return _comparison(kind, _term(left, const), _term(right, const), gap)
        case ast.BoolOp(kind, parts):
            narrows = [compile_narrow(part, const) for part in parts]
            return _any_of(narrows) if isinstance(kind, ast.Or) else _all_of(narrows)
    return lambda domains: None


def _comparison(kind: ast.cmpop, left: Term, right: Term, gap: int) -> Narrow:
    """``gap``: by how much the larger side exceeds the other at least, where one has to be."""

    def equal(domains: Domains) -> None:
        left.require(right.range(domains), domains)
        right.require(left.range(domains), domains)

    def ordered(domains: Domains) -> None:
        low, high = left.range(domains)[0], right.range(domains)[1]
        left.require((-inf, high - gap), domains)
        right.require((low + gap, inf), domains)

    def different(domains: Domains) -> None:
        of_left = left.range(domains)
        if of_left == right.range(domains) and of_left[0] == of_left[1]:
            raise ContradictionError

    return {ast.Eq: equal, ast.NotEq: different}.get(type(kind), ordered)


def is_whole(expression: ast.expr) -> bool:
    """Whether all of an expression or a condition is whole numbers, whatever the axes are."""
    return not any(
        isinstance(part, ast.Div)
        or (isinstance(part, ast.Constant) and isinstance(part.value, float))
        for part in ast.walk(expression)
    )


def _all_of(narrows: Sequence[Narrow]) -> Narrow:
    def narrow_to_all(domains: Domains) -> None:
        for narrow in narrows:
            narrow(domains)

    return narrow_to_all


def _any_of(narrows: Sequence[Narrow]) -> Narrow:
    """Where any of some conditions is enough: from the least to the largest value for any."""

    def narrow_to_any(domains: Domains) -> None:
        possible = []
        for narrow in narrows:
            alternative = dict(domains)
            try:
                narrow(alternative)
            except ContradictionError:
                continue
            possible.append(alternative)
        if not possible:
            raise ContradictionError
        for axis in domains:
            low = min(alternative[axis].low for alternative in possible)
            high = max(alternative[axis].high for alternative in possible)
            domains[axis] = domains[axis].narrowed(low, high)

    return narrow_to_any


@dataclass(frozen=True)
class Term:
    """An expression of axes. By default, nothing is known about it.

    - ``range`` says between which values it lies.
    - ``undo`` narrows domains so that it lies between two given values. `require` calls it where
      these exclude some of the range.
    - ``require_multiple`` narrows domains so that it is a multiple of a number.

    The last two raise ContradictionError.
    """

    range: Callable[[Domains], Interval] = lambda domains: ANY
    undo: Callable[[Interval, Domains], None] = lambda wanted, domains: None
    require_multiple: Callable[[int, Domains], None] = lambda step, domains: None

    def require(self, wanted: Interval, domains: Domains) -> None:
        """Narrow domains to where it lies between two values. Raises ContradictionError."""
        low, high = self.range(domains)
        if wanted[0] > high or wanted[1] < low:
            raise ContradictionError
        if wanted[0] > low or wanted[1] < high:
            self.undo(wanted, domains)


def _term(node: ast.expr, const: Mapping[str, int]) -> Term:
    match node:
        case ast.Name(axis):
            return _number(const[axis]) if axis in const else _axis(axis)
        case ast.Constant(int() | float() as value):
            return _number(value)
        case ast.BinOp(left, operation, right):
            return _OPERATIONS[type(operation)](_term(left, const), _term(right, const))
        case ast.UnaryOp(ast.USub(), operand):
            return _difference(_number(0), _term(operand, const))
        case ast.Call(ast.Name("min" | "max" | "abs" as name), operands):
            return _CALLS[name]([_term(operand, const) for operand in operands])
    return Term()


def _number(value: float) -> Term:
    return Term(lambda domains: (value, value))


def _axis(axis: str) -> Term:
    def range_of_axis(domains: Domains) -> Interval:
        domain = domains[axis]
        return domain.low, domain.high

    def narrow(low: float, high: float, domains: Domains, step: int = 1) -> None:
        domains[axis] = domains[axis].narrowed(low, high, step)
        if len(domains[axis]) == 0:
            raise ContradictionError

    return Term(
        range_of_axis,
        lambda wanted, domains: narrow(_up(wanted[0]), _down(wanted[1]), domains),
        lambda step, domains: narrow(-inf, inf, domains, step),
    )


def _invertible(
    combine: Combine, left_from: Combine, right_from: Combine
) -> Callable[[Term, Term], Term]:
    """An operation by what it makes of two ranges, and each side from the result and the other."""

    def operation(left: Term, right: Term) -> Term:
        def undo(wanted: Interval, domains: Domains) -> None:
            left.require(left_from(wanted, right.range(domains)), domains)
            right.require(right_from(wanted, left.range(domains)), domains)

        return Term(_combined(combine, left, right), undo)

    return operation


def _combined(combine: Combine, left: Term, right: Term) -> Callable[[Domains], Interval]:
    return lambda domains: combine(left.range(domains), right.range(domains))


def _product(left: Term, right: Term) -> Term:
    def require_multiple(step: int, domains: Domains) -> None:
        for factor, other in ((left, right), (right, left)):
            low, high = factor.range(domains)
            if low == high and isinstance(low, int):
                other.require_multiple(step // gcd(step, low), domains)
            elif low > 0 and high // step == (low - 1) // step and _is_prime(step):
                other.require_multiple(step, domains)  # as no value of this factor is one

    return replace(_plain_product(left, right), require_multiple=require_multiple)


def _floor_quotient(left: Term, right: Term) -> Term:
    def combine(dividend: Interval, divisor: Interval) -> Interval:
        low, high = _divided(dividend, divisor)
        return _down(low), _down(high)

    def undo(wanted: Interval, domains: Domains) -> None:
        """It is the whole number from the quotient less 1, and not that, to the quotient."""
        divisor = right.range(domains)
        if divisor[0] > 0:
            low, high = _up(wanted[0]), _down(wanted[1])
            least = _times((low, low), divisor)[0]
            left.require((least, _times((high + 1, high + 1), divisor)[1] - 1), domains)
            if low > 0:
                right.require((-inf, left.range(domains)[1] / low), domains)

    return Term(_combined(combine, left, right), undo)


def _remainder(left: Term, right: Term) -> Term:
    def combine(dividend: Interval, divisor: Interval) -> Interval:
        if divisor[0] <= 0:
            return ANY
        return dividend if dividend[0] >= 0 and dividend[1] < divisor[0] else (0, divisor[1])

    def undo(wanted: Interval, domains: Domains) -> None:
        dividend, (low, high) = left.range(domains), right.range(domains)
        if low <= 0:
            return
        if dividend[0] >= 0 and dividend[1] < low:  # so it is the remainder
            left.require(wanted, domains)
        elif wanted == (0, 0) and low == high and isinstance(low, int):
            left.require_multiple(low, domains)
        else:
            right.require((wanted[0] + 1, inf), domains)

    return Term(_combined(combine, left, right), undo)


def _power(base: Term, exponent: Term) -> Term:
    def combine(a: Interval, b: Interval) -> Interval:
        if a[0] < 0 or b[0] < 0 or b[1] > HIGHEST_POWER:
            return ANY
        powers = [x**y for x in a for y in b]
        return min(powers), max(powers)

    def undo(wanted: Interval, domains: Domains) -> None:
        low, high = exponent.range(domains)
        if base.range(domains)[0] >= 0 and low == high >= 1:
            least, most = (max(bound, 0) ** (1 / low) for bound in wanted)
            base.require((floor(least), most + 1), domains)

    return Term(_combined(combine, base, exponent), undo)


def _absolute(operands: Sequence[Term]) -> Term:
    (operand,) = operands

    def range_of_absolute(domains: Domains) -> Interval:
        low, high = operand.range(domains)
        return max(low, -high, 0), max(-low, high)

    return Term(
        range_of_absolute,
        lambda wanted, domains: operand.require((-wanted[1], wanted[1]), domains),
    )


def _extreme(pick: Callable[[Sequence[float]], float], operands: Sequence[Term]) -> Term:
    """The least or the largest of several numbers."""
    if len(operands) < 2:
        return Term()

    def range_of_extreme(domains: Domains) -> Interval:
        lows, highs = zip(*(operand.range(domains) for operand in operands), strict=True)
        return pick(lows), pick(highs)

    def undo(wanted: Interval, domains: Domains) -> None:
        bound: Interval = (wanted[0], inf) if pick is min else (-inf, wanted[1])
        for operand in operands:
            operand.require(bound, domains)
        # One of them is the result: where only one can be, that is.
        ranges = [(operand, *operand.range(domains)) for operand in operands]
        able = [o for o, low, high in ranges if low <= wanted[1] and high >= wanted[0]]
        if len(able) == 1:
            able[0].require(wanted, domains)

    return Term(range_of_extreme, undo)


def _plus(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


@lru_cache
def _is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, isqrt(n) + 1))


def _minus(a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def _times(a: Interval, b: Interval) -> Interval:
    if a[0] >= 0 and b[0] >= 0 and a[1] < inf and b[1] < inf:  # sizes are: four times as fast
        return a[0] * b[0], a[1] * b[1]
    products = [x * y if x and y else 0 for x in a for y in b]  # 0 * inf is 0 here
    return min(products), max(products)


def _divided(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        return ANY
    quotients = [x / y for x in a for y in b if not (isinf(x) and isinf(y))]
    return min(quotients), max(quotients)


def _up(bound: float) -> float:
    return bound if isinf(bound) else ceil(bound)


def _down(bound: float) -> float:
    return bound if isinf(bound) else floor(bound)


_difference = _invertible(_minus, _plus, lambda result, left: _minus(left, result))
_plain_product = _invertible(_times, _divided, _divided)
_OPERATIONS: dict[type[ast.operator], Callable[[Term, Term], Term]] = {
    ast.Add: _invertible(_plus, _minus, _minus),
    ast.Sub: _difference,
    ast.Mult: _product,
    ast.Div: _invertible(_divided, _times, lambda result, left: _divided(left, result)),
    ast.FloorDiv: _floor_quotient,
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_CALLS: dict[str, Callable[[Sequence[Term]], Term]] = {
    "min": partial(_extreme, min),
    "max": partial(_extreme, max),
    "abs": _absolute,
}
