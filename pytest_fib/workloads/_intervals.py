"""What a constraint leaves of its axes' domains, by interval arithmetic over its expression.

Ranges of values go up the tree, from axes to the comparison; what the comparison allows goes down
again, and narrows the domains. (The HC4-revise algorithm: Benhamou et al., "Revising Hull and Box
Consistency", ICLP 1999.) No value that may meet the constraint is lost; some that don't may stay.

A search narrows by the same constraints thousands of times, so each is compiled once.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, gcd, inf, isinf, isqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_fib.workloads._axes import Domain

    #: The least and the largest value; both may be.
    Interval = tuple[float, float]
    Domains = dict[str, Domain]
    #: Narrows the domains in place. Raises ContradictionError where nothing is left of one.
    Narrow = Callable[[Domains], None]

ANY: Interval = (-inf, inf)
ZERO: Interval = (0, 0)
#: Of higher powers nothing is said.
HIGHEST_POWER = 8


class ContradictionError(Exception):
    """No values in the domains meet the constraint."""


def compile_narrow(condition: ast.expr, const: Mapping[str, int]) -> Narrow:
    """What narrows domains to what a condition leaves of them, where some axes are const."""
    match condition:
        case ast.Compare(left, [ast.Gt() | ast.GtE() as kind], [right]):
            mirrored = ast.Lt() if isinstance(kind, ast.Gt) else ast.LtE()
            return compile_narrow(ast.Compare(right, [mirrored], [left]), const)
        case ast.Compare(left, [kind], [right]):
            gap = int(isinstance(kind, ast.Lt) and _is_whole(condition))
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


def _is_whole(condition: ast.expr) -> bool:
    """Whether all of a condition is about whole numbers, whatever the axes are."""
    return not any(
        isinstance(part, ast.Div)
        or (isinstance(part, ast.Constant) and isinstance(part.value, float))
        for part in ast.walk(condition)
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


class Term:
    """An expression of axes; itself, one of which nothing is known."""

    def range(self, domains: Domains) -> Interval:
        """Between which values it lies."""
        return ANY

    def require(self, wanted: Interval, domains: Domains) -> None:
        """Narrow domains to where it lies between two values. Raises ContradictionError."""
        low, high = self.range(domains)
        if wanted[0] > high or wanted[1] < low:
            raise ContradictionError
        if wanted[0] > low or high > wanted[1]:
            self.undo(wanted, domains)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        """The same, where that is known to be possible and not so by itself."""

    def require_multiple(self, step: int, domains: Domains) -> None:
        """Narrow domains to where it is a multiple of a number. Raises ContradictionError."""


@dataclass(frozen=True)
class Number(Term):
    value: float

    def range(self, domains: Domains) -> Interval:
        return self.value, self.value


@dataclass(frozen=True)
class Axis(Term):
    name: str

    def range(self, domains: Domains) -> Interval:
        domain = domains[self.name]
        return domain.low, domain.high

    def undo(self, wanted: Interval, domains: Domains) -> None:
        self._replace(domains[self.name].narrowed(_up(wanted[0]), _down(wanted[1])), domains)

    def require_multiple(self, step: int, domains: Domains) -> None:
        self._replace(domains[self.name].narrowed(-inf, inf, step), domains)

    def _replace(self, domain: Domain, domains: Domains) -> None:
        if len(domain) == 0:
            raise ContradictionError
        domains[self.name] = domain


@dataclass(frozen=True)
class Operation(Term):
    left: Term
    right: Term

    def range(self, domains: Domains) -> Interval:
        return self.combined(self.left.range(domains), self.right.range(domains))

    def combined(self, left: Interval, right: Interval) -> Interval:
        return ANY


class Sum(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        return left[0] + right[0], left[1] + right[1]

    def undo(self, wanted: Interval, domains: Domains) -> None:
        self.left.require(_minus(wanted, self.right.range(domains)), domains)
        self.right.require(_minus(wanted, self.left.range(domains)), domains)


class Difference(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        return _minus(left, right)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        low, high = self.right.range(domains)
        self.left.require((wanted[0] + low, wanted[1] + high), domains)
        self.right.require(_minus(self.left.range(domains), wanted), domains)


class Product(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        return _times(left, right)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        self.left.require(_divided(wanted, self.right.range(domains)), domains)
        self.right.require(_divided(wanted, self.left.range(domains)), domains)

    def require_multiple(self, step: int, domains: Domains) -> None:
        for factor, other in ((self.left, self.right), (self.right, self.left)):
            low, high = factor.range(domains)
            if low == high and isinstance(low, int):
                other.require_multiple(step // gcd(step, low), domains)
            elif low > 0 and high // step == (low - 1) // step and _is_prime(step):
                other.require_multiple(step, domains)  # as no value of this factor is one


class Quotient(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        return _divided(left, right)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        self.left.require(_times(wanted, self.right.range(domains)), domains)
        self.right.require(_divided(self.left.range(domains), wanted), domains)


class FloorQuotient(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        low, high = _divided(left, right)
        return _down(low), _down(high)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        """It is the whole number from the quotient less 1, and not that, to the quotient."""
        divisor = self.right.range(domains)
        if divisor[0] > 0:
            low, high = _up(wanted[0]), _down(wanted[1])
            least = _times((low, low), divisor)[0]
            most = _times((high + 1, high + 1), divisor)[1] - 1
            self.left.require((least, most), domains)
            if low > 0:
                self.right.require((-inf, self.left.range(domains)[1] / low), domains)


class Remainder(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        if right[0] <= 0:
            return ANY
        return left if left[0] >= 0 and left[1] < right[0] else (0, right[1])

    def undo(self, wanted: Interval, domains: Domains) -> None:
        dividend, (low, high) = self.left.range(domains), self.right.range(domains)
        if low <= 0:
            return
        if dividend[0] >= 0 and dividend[1] < low:  # so it is the remainder
            self.left.require(wanted, domains)
        elif wanted == ZERO and low == high and isinstance(low, int):
            self.left.require_multiple(low, domains)
        else:
            self.right.require((wanted[0] + 1, inf), domains)


class Power(Operation):
    def combined(self, left: Interval, right: Interval) -> Interval:
        if left[0] < 0 or right[0] < 0 or right[1] > HIGHEST_POWER:
            return ANY
        powers = [x**y for x in left for y in right]
        return min(powers), max(powers)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        exponent, most = self.right.range(domains)
        if self.left.range(domains)[0] >= 0 and exponent == most >= 1:
            low, high = (max(bound, 0) ** (1 / exponent) for bound in wanted)
            self.left.require((floor(low), high + 1), domains)


@dataclass(frozen=True)
class Absolute(Term):
    of: Term

    def range(self, domains: Domains) -> Interval:
        low, high = self.of.range(domains)
        return max(low, -high, 0), max(-low, high)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        self.of.require((-wanted[1], wanted[1]), domains)


@dataclass(frozen=True)
class Extreme(Term):
    """The least or the largest of some terms."""

    of: Sequence[Term]
    pick: Callable[..., float]

    def range(self, domains: Domains) -> Interval:
        lows, highs = zip(*(term.range(domains) for term in self.of), strict=True)
        return self.pick(lows), self.pick(highs)

    def undo(self, wanted: Interval, domains: Domains) -> None:
        least = self.pick is min
        for term in self.of:
            term.require((wanted[0], inf) if least else (-inf, wanted[1]), domains)
        # One of them is the result: where only one can be, that is.
        ranges = [(term, *term.range(domains)) for term in self.of]
        able = [t for t, low, high in ranges if (low <= wanted[1] if least else high >= wanted[0])]
        if len(able) == 1:
            able[0].require(wanted, domains)


_OPERATIONS: dict[type[ast.operator], type[Operation]] = {
    ast.Add: Sum,
    ast.Sub: Difference,
    ast.Mult: Product,
    ast.Div: Quotient,
    ast.FloorDiv: FloorQuotient,
    ast.Mod: Remainder,
    ast.Pow: Power,
}


def _term(node: ast.expr, const: Mapping[str, int]) -> Term:
    match node:
        case ast.Name(axis):
            return Number(const[axis]) if axis in const else Axis(axis)
        case ast.Constant(int() | float() as value):
            return Number(value)
        case ast.BinOp(left, operation, right):
            return _OPERATIONS[type(operation)](_term(left, const), _term(right, const))
        case ast.UnaryOp(ast.USub(), operand):
            return Difference(Number(0), _term(operand, const))
        case ast.Call(ast.Name(function), operands):
            return _term_of_call(function, [_term(operand, const) for operand in operands])
    return Term()


def _term_of_call(function: str, operands: list[Term]) -> Term:
    match function, operands:
        case "abs", [operand]:
            return Absolute(operand)
        case "min" | "max", [_, _, *_]:
            return Extreme(operands, min if function == "min" else max)
    return Term()


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
