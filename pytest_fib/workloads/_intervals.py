"""What a constraint leaves of its axes' domains, by interval arithmetic over its expression.

Ranges of values go up the tree, from axes to the comparison; what the comparison allows goes down
again, and narrows the domains. (The HC4-revise algorithm: Benhamou et al., "Revising Hull and Box
Consistency", ICLP 1999.) No value that may meet the constraint is lost; some that don't may stay.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from math import ceil, floor, inf, isinf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_fib.workloads._axes import Domain

    #: The least and the largest value; both may be.
    Interval = tuple[float, float]
    Combine = Callable[[Interval, Interval], Interval]
    Domains = dict[str, Domain]
    Undo = Callable[[ast.BinOp, Interval, Domains], None]

ANY: Interval = (-inf, inf)
#: Of higher powers nothing is said.
HIGHEST_POWER = 8


class ContradictionError(Exception):
    """No values in the domains meet the constraint."""


def narrow(condition: ast.expr, domains: Domains) -> None:
    """Narrow the domains of axes in place to what a condition leaves. Raises ContradictionError."""
    match condition:
        case ast.Compare(left, [comparison], [right]):
            _narrow_comparison(left, type(comparison), right, domains)
        case ast.BoolOp(ast.And(), parts):
            for part in parts:
                narrow(part, domains)
        case ast.BoolOp(ast.Or(), parts):
            _narrow_alternatives(parts, domains)


def _narrow_comparison(
    left: ast.expr, kind: type[ast.cmpop], right: ast.expr, domains: Domains
) -> None:
    if kind in (ast.Gt, ast.GtE):
        left, kind, right = right, {ast.Gt: ast.Lt, ast.GtE: ast.LtE}[kind], left
    (low, _), (_, high) = of_left, of_right = _range(left, domains), _range(right, domains)
    if kind is ast.Eq:
        _require(left, of_right, domains)
        _require(right, _range(left, domains), domains)
    elif kind in (ast.Lt, ast.LtE):
        least = 1 if kind is ast.Lt and _is_whole(left) and _is_whole(right) else 0
        _require(left, (-inf, high - least), domains)
        _require(right, (low + least, inf), domains)
    elif kind is ast.NotEq and of_left == of_right and of_left[0] == of_left[1]:
        raise ContradictionError


def _narrow_alternatives(conditions: Iterable[ast.expr], domains: Domains) -> None:
    """Where any of some conditions is enough: from the least to the largest value for any."""
    possible = []
    for condition in conditions:
        alternative = dict(domains)
        try:
            narrow(condition, alternative)
        except ContradictionError:
            continue
        possible.append(alternative)
    if not possible:
        raise ContradictionError
    for axis in domains:
        low = min(alternative[axis].low for alternative in possible)
        high = max(alternative[axis].high for alternative in possible)
        domains[axis] = domains[axis].narrowed(low, high)


def _range(node: ast.expr, domains: Domains) -> Interval:
    """Between which values an expression lies."""
    match node:
        case ast.Name(axis) if axis in domains:
            return domains[axis].low, domains[axis].high
        case ast.Constant(int() | float() as value):
            return value, value
        case ast.BinOp(left, operation, right):
            return _RANGES[type(operation)](_range(left, domains), _range(right, domains))
        case ast.UnaryOp(ast.USub(), operand):
            return _minus((0, 0), _range(operand, domains))
        case ast.Call(ast.Name(name), arguments):
            return _range_of_call(name, [_range(each, domains) for each in arguments])
    return ANY


def _range_of_call(name: str, ranges: list[Interval]) -> Interval:
    match name, ranges:
        case "min" | "max", [_, _, *_]:
            pick = min if name == "min" else max
            return pick(low for low, _ in ranges), pick(high for _, high in ranges)
        case "abs", [(low, high)]:
            return max(low, -high, 0), max(-low, high)
    return ANY


def _require(node: ast.expr, wanted: Interval, domains: Domains) -> None:
    """Narrow domains to where an expression lies between two values."""
    low, high = _range(node, domains)
    if wanted[0] <= low and high <= wanted[1]:
        return
    if wanted[0] > high or wanted[1] < low:
        raise ContradictionError
    match node:
        case ast.Name(axis) if axis in domains:
            domain = domains[axis].narrowed(_up(wanted[0]), _down(wanted[1]))
            if len(domain) == 0:
                raise ContradictionError
            domains[axis] = domain
        case ast.BinOp():
            _UNDO[type(node.op)](node, wanted, domains)
        case ast.UnaryOp(ast.USub(), operand):
            _require(operand, _minus((0, 0), wanted), domains)
        case ast.Call():
            _require_of_call(node, wanted, domains)


def _undone_by(left_from: Combine, right_from: Combine) -> Undo:
    """What finds each side of an operation from its result and the other side."""

    def undo(node: ast.BinOp, wanted: Interval, domains: Domains) -> None:
        _require(node.left, left_from(wanted, _range(node.right, domains)), domains)
        _require(node.right, right_from(wanted, _range(node.left, domains)), domains)

    return undo


def _undo_floordiv(node: ast.BinOp, wanted: Interval, domains: Domains) -> None:
    """``x // y`` is the whole number from ``x / y - 1``, and not that, to ``x / y``."""
    divisor = _range(node.right, domains)
    if divisor[0] > 0:
        low, high = _up(wanted[0]), _down(wanted[1])
        least = _times((low, low), divisor)[0]
        _require(node.left, (least, _times((high + 1, high + 1), divisor)[1] - 1), domains)
        if low > 0:
            _require(node.right, (-inf, _range(node.left, domains)[1] / low), domains)


def _undo_mod(node: ast.BinOp, wanted: Interval, domains: Domains) -> None:
    dividend, divisor = _range(node.left, domains), _range(node.right, domains)
    if divisor[0] <= 0:
        return
    if dividend[0] >= 0 and dividend[1] < divisor[0]:  # so it is the remainder
        _require(node.left, wanted, domains)
    elif wanted == (0, 0) and divisor[0] == divisor[1] and isinstance(node.left, ast.Name):
        multiples = domains[node.left.id].narrowed(0, floor(dividend[1]), int(divisor[0]))
        if len(multiples) == 0:
            raise ContradictionError
        domains[node.left.id] = multiples
    else:
        _require(node.right, (wanted[0] + 1, inf), domains)


def _undo_pow(node: ast.BinOp, wanted: Interval, domains: Domains) -> None:
    (low, _), (exponent, most) = _range(node.left, domains), _range(node.right, domains)
    if low >= 0 and exponent == most >= 1:
        roots = (max(bound, 0) ** (1 / exponent) for bound in wanted)
        _require(node.left, (floor(next(roots)), next(roots) + 1), domains)


def _require_of_call(node: ast.Call, wanted: Interval, domains: Domains) -> None:
    name, arguments = ast.unparse(node.func), node.args
    if name == "abs":
        _require(arguments[0], (-wanted[1], wanted[1]), domains)
    if name not in ("min", "max") or len(arguments) < 2:
        return
    least = name == "min"
    every: Interval = (wanted[0], inf) if least else (-inf, wanted[1])
    for argument in arguments:
        _require(argument, every, domains)
    # One of them is the result: where only one can be, that is.
    ranges = [_range(argument, domains) for argument in arguments]
    able = [low <= wanted[1] if least else high >= wanted[0] for low, high in ranges]
    if sum(able) == 1:
        _require(arguments[able.index(True)], wanted, domains)


def _plus(a: Interval, b: Interval) -> Interval:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Interval, b: Interval) -> Interval:
    return a[0] - b[1], a[1] - b[0]


def _times(a: Interval, b: Interval) -> Interval:
    products = [x * y if x and y else 0 for x in a for y in b]  # 0 * inf is 0 here
    return min(products), max(products)


def _divided(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        return ANY
    quotients = [x / y for x in a for y in b if not (isinf(x) and isinf(y))]
    return min(quotients), max(quotients)


def _floor_divided(a: Interval, b: Interval) -> Interval:
    low, high = _divided(a, b)
    return _down(low), _down(high)


def _remainder(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0:
        return ANY
    return a if a[0] >= 0 and a[1] < b[0] else (0, b[1])


def _power(a: Interval, b: Interval) -> Interval:
    if a[0] < 0 or b[0] < 0 or b[1] > HIGHEST_POWER:
        return ANY
    powers = [x**y for x in a for y in b]
    return min(powers), max(powers)


def _up(bound: float) -> float:
    return bound if isinf(bound) else ceil(bound)


def _down(bound: float) -> float:
    return bound if isinf(bound) else floor(bound)


@lru_cache(maxsize=4096)  # a search asks for those of the same few expressions all the time
def _is_whole(node: ast.expr) -> bool:
    """Whether an expression of axes is a whole number, whatever they are."""
    return not any(
        isinstance(part, ast.Div)
        or (isinstance(part, ast.Constant) and isinstance(part.value, float))
        for part in ast.walk(node)
    )


_RANGES: dict[type[ast.operator], Combine] = {
    ast.Add: _plus,
    ast.Sub: _minus,
    ast.Mult: _times,
    ast.Div: _divided,
    ast.FloorDiv: _floor_divided,
    ast.Mod: _remainder,
    ast.Pow: _power,
}
_UNDO: dict[type[ast.operator], Undo] = {
    ast.Add: _undone_by(_minus, _minus),
    ast.Sub: _undone_by(_plus, lambda result, left: _minus(left, result)),
    ast.Mult: _undone_by(_divided, _divided),
    ast.Div: _undone_by(_times, lambda result, left: _divided(left, result)),
    ast.FloorDiv: _undo_floordiv,
    ast.Mod: _undo_mod,
    ast.Pow: _undo_pow,
}
