"""What a reference compares its inputs with: numbers, other inputs, or shares of a softmax."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import DEPTH, MOVES, called, constant
from pytest_fib.workloads._reference_reading import AMONG, JOINS, UNIQUE, Call, keyword, terms

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_places import Places
    from pytest_fib.workloads._reference_reading import Reading

#: Functions that compare elements with numbers, or with others.
_COMPARISONS = {"ge", "gt", "le", "lt", "eq", "ne", "greater", "greater_equal", "less"}
_COMPARISONS |= {"less_equal", "not_equal", "threshold", "bucketize", "searchsorted"}
#: Functions that search among elements in order, and their arguments: the one that has these, and
#: the one that is sought, each with its place.
_SEARCHED = {
    "searchsorted": (("sorted_sequence", 0), ("input", 1)),
    "bucketize": (("boundaries", 1), ("input", 0)),
}
#: What shares of a softmax remain, put in order and added up.
_OF_SHARES = {"cumsum", "float", "sort"}


class Comparisons:
    """Notes the limits and edges of inputs, and which of them are compared with each other."""

    def __init__(self, reading: Reading, places: Places) -> None:
        self._reading, self._places = reading, places
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_comparison(self, node: ast.Compare) -> None:
        """Note what is held against what, and the numbers that integers are asked for."""
        self._uses.limited |= self._expressions.floats(node.left)
        self._uses.equated |= self._reading.equated(node)
        self._note_limits(node.left, *node.comparators)
        self._note_number(node)

    def _note_number(self, node: ast.Compare) -> None:
        """Note the number that an integer is asked whether it equals, and padding below 0."""
        name, number = self._expressions.integer(node.left), constant(node.comparators[0])
        if name is None or not isinstance(number, int) or self._puts_negative(node.left):
            return
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            self._uses.equals.setdefault(name, set()).add(number)
            if number < 0:
                self._uses.pads[name] = number
        elif isinstance(node.ops[0], (ast.GtE, ast.Lt)) and number == 0:
            self._uses.pads[name] = -1

    def _puts_negative(self, node: ast.expr) -> bool:
        """Whether a number below 0 is among what is compared since the reference put it there."""
        match self._expressions.calculation(node) or node:
            case ast.Call(func=ast.Attribute(attr="where"), args=[_, *sides]):
                return any((self._reading.number(side) or 0) < 0 for side in sides)
        return False

    def note_call(self, call: Call) -> None:
        """Note what a function compares elements with, or finds among others."""
        if call.name in _COMPARISONS:
            self._note_limits(*call.arguments[:2])
        if call.name in _SEARCHED:
            self._note_searched(call)
        elif call.name == "hardshrink" and call.arguments:
            self._note_shrunk(call)
        elif call.name in UNIQUE and call.arguments:
            parts = self._joined(call.arguments[0])
            self._uses.equated |= set(filter(None, map(self._expressions.integer, parts)))
        elif call.name in AMONG:
            found = [self._expressions.integer(each) for each in call.arguments[:2]]
            self._uses.equated |= {each for each in found if each and None not in found}

    def _note_searched(self, call: Call) -> None:
        """Note among which elements others are searched, and what is sought."""
        given = [
            keyword(call.node, name) or call.arguments[place : place + 1]
            for name, place in _SEARCHED[call.name]
        ]
        if keyword(call.node, "sorter") or not all(given):
            return
        among, of = (each[0] for each in given)
        source = self._expressions.source(among)
        self._uses.searched |= {source.input} if source else set()
        places = self._expressions.along(of)
        if places is not None:
            self._places.note_running(among, places)
        sought = self._expressions.source(of)
        if sought and self._counts:  # infinities have a place as well
            self._uses.asked.setdefault(sought.input, set()).update((-inf, inf))

    @property
    def _counts(self) -> bool:
        """Whether no output has floating numbers, so that what is compared goes into none."""
        return not any(spec.dtype.is_floating for spec in self._reading.outputs.values())

    def _note_shrunk(self, call: Call) -> None:
        """Note the two numbers between which ``hardshrink`` puts 0."""
        given = keyword(call.node, "lambd") or call.arguments[1:]
        limit = self._reading.number(given[0]) if given else 0.5
        for number in () if limit is None else (limit, -limit):
            self._note_limit(call.arguments[0], number)

    def _joined(self, node: ast.expr) -> Sequence[ast.expr]:
        """The tensors that are joined, or the one that there is."""
        held = self._expressions.calculation(node) or node
        parts = held.args[0] if isinstance(held, ast.Call) and held.args else None
        is_joined = called(held) in JOINS and isinstance(parts, ast.List | ast.Tuple)
        return parts.elts if is_joined and isinstance(parts, ast.List | ast.Tuple) else [node]

    def _note_limits(self, *sides: ast.expr) -> None:
        """Note the numbers, and the inputs, that inputs are held against, each by its neighbour."""
        for one, other in pairwise(sides):
            self._note_edge(one, other)
            self.note_compared(one, other)
            for side, beside in ((one, other), (other, one)):
                if (limit := self._reading.number(beside)) is not None:
                    self._note_limit(side, limit)
                self._note_scaled_edge(side, beside)
                if self._is_share(beside):
                    self._uses.shares |= self._expressions.floats(side)

    def _note_limit(self, node: ast.expr, limit: float, depth: int = DEPTH) -> None:
        """Note what an input is that an expression, such as its magnitude, is a number of.

        Or its largest element, or that and a number, as in ``int(x.max()) + 1``.
        """
        if source := self._expressions.source(node):
            self._uses.limits.setdefault(source.input, set()).add(limit)
        elif (largest := _largest_of(node)) is not None:
            self._note_limit(largest, limit, depth)
        elif isinstance(node, ast.BinOp) and (more := self._added_to(node)) is not None:
            self._note_limit(node.left, limit - more, depth)
        elif depth and (inner := self._magnitude_of(node)) is not None and limit > 0:
            self._note_limit(inner, limit, depth - 1)
            self._note_limit(inner, -limit, depth - 1)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._note_limit(node.operand, -limit, depth)
        elif depth and (value := self._expressions.calculation(node)) is not None:
            self._note_limit(value, limit, depth - 1)

    def _added_to(self, node: ast.BinOp) -> float | None:
        """The number that is added to, or subtracted from, what is left of it."""
        number = self._reading.number(node.right)
        if number is None or not isinstance(node.op, ast.Add | ast.Sub):
            return None
        return number if isinstance(node.op, ast.Add) else -number

    def _magnitude_of(self, node: ast.expr) -> ast.expr | None:
        """What an expression is the absolute value of."""
        match node:
            case ast.Call(func=ast.Name(id="abs"), args=[value]):
                return value
            case ast.Call(func=ast.Attribute(ast.Name(id="torch"), attr="abs"), args=[value]):
                return value
            case ast.Call(func=ast.Attribute(value=value, attr="abs"), args=[]):
                return value
        return None

    def _is_share(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression has elements of a softmax, or their running sums."""
        match node:
            case ast.Call(func=ast.Attribute(attr="softmax")):
                return True
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _OF_SHARES | MOVES:
                return any(self._is_share(each, depth) for each in self._reading.operands(node)[:1])
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.BinOp(left=value):
                return self._is_share(value, depth)
        held = self._expressions.calculation(node) if depth else None
        return held is not None and self._is_share(held, depth - 1)

    def note_compared(self, one: ast.expr, other: ast.expr) -> None:
        """Note two floating inputs that are compared, or of which the difference is taken."""
        names = self._compared_input(one), self._compared_input(other)
        if None not in names and names[0] != names[1]:
            for name, beside in (names, names[::-1]):
                self._uses.compared.setdefault(str(name), set()).add(str(beside))

    def _compared_input(self, node: ast.expr, depth: int = DEPTH) -> str | None:
        """The floating input whose elements, in any order, or their magnitudes are compared."""
        if source := self._expressions.source(node):
            return source.input if self._reading.inputs[source.input].dtype.is_floating else None
        match node:
            case ast.Attribute(value=inner, attr="values"):
                pass
            case ast.Subscript(value=inner):
                pass
            case ast.Call(
                func=ast.Attribute(ast.Name(id="torch"), "sort" | "gather" | "index_select"),
                args=[inner, *_],
            ):
                pass
            case ast.Call(func=ast.Attribute(value=inner, attr="sort" | "gather" | "index_select")):
                pass
            case _:
                held = self._magnitude_of(node) or self._expressions.calculation(node)
                return self._compared_input(held, depth - 1) if held is not None and depth else None
        return self._compared_input(inner, depth - 1) if depth else None

    def _note_edge(self, *sides: ast.expr) -> None:
        """Note two integers that are held against each other, or a sum of either and a number.

        As in ``ids < start + 8``, and ``ids - start < 8``.
        """
        signs: dict[str, int] = {}
        sizes: list[tuple[int, int | str]] = []
        for side, sign in zip(sides, (1, -1), strict=True):
            for part_sign, part in terms(self._expressions.calculation(side) or side, sign):
                name, number = self._expressions.integer(part), self._reading.number(part)
                size = int(number) if number is not None else self._expressions.size(part)
                if name is not None and name not in signs:
                    signs[name] = part_sign
                elif size is not None:
                    sizes.append((part_sign, size))
                else:
                    return
        if sorted(signs.values()) == [-1, 1] and len(sizes) < 2:
            (one, sign), (other, _) = signs.items()
            size_sign, size = sizes[0] if sizes else (1, 0)
            way = size_sign * sign if size else 1
            self._uses.edges.setdefault(one, set()).add((other, -way if size else 1, size))
            self._uses.edges.setdefault(other, set()).add((one, way, size))

    def _note_scaled_edge(self, side: ast.expr, edge: ast.expr) -> None:
        """Note the multiple of an integer that another is held against.

        As in ``ids < 8 * block``, and ``ids // block < 8``.
        """
        side, edge = (self._expressions.calculation(node) or node for node in (side, edge))
        match side, edge:
            case ast.BinOp(left=one, op=ast.FloorDiv(), right=other), _:
                number = self._reading.number(edge)
            case _, ast.BinOp(left=left, op=ast.Mult(), right=right):
                number = self._reading.number(left)
                one, other = (side, left) if number is None else (side, right)
                number = self._reading.number(right) if number is None else number
            case _:
                return
        name, beside = self._expressions.integer(one), self._expressions.integer(other)
        is_whole = number is not None and number > 1 and float(number).is_integer()
        if name and beside and name != beside and number is not None and is_whole:
            self._uses.scaled_edges.setdefault(name, set()).add((beside, int(number)))


def _largest_of(node: ast.expr) -> ast.expr | None:
    """What a number is the largest or the least element of, as in ``int(x.max())``."""
    match node:
        case ast.Call(func=ast.Name(id="int" | "float"), args=[value]):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="item"), args=[]):
            return value
        case ast.Call(func=ast.Attribute(ast.Name(id="torch"), "max" | "min"), args=[value]):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="max" | "min"), args=[]):
            return value
    return None
