"""Of what a reference asks whether it is infinite or NaN, and what it puts there instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from math import inf, isnan, nan
from operator import ne
from typing import TYPE_CHECKING

from pytest_fib.workloads._copied_inputs import NOT_FINITE, copied_inputs
from pytest_fib.workloads._reference_expressions import DEPTH, MOVES, TO_FLOATING, called, constant
from pytest_fib.workloads._reference_reading import MASKED
from pytest_fib.workloads._reference_uses import EXTREMES, MENDS, SORTING
from pytest_fib.workloads._special_values import is_lse

if TYPE_CHECKING:
    from pytest_fib.data import TensorSpec
    from pytest_fib.workloads._reference_reading import Call, Reading

#: Functions that add elements up.
_SUMS = {"mean", "norm", "sum", "vector_norm"}
#: Functions that count.
_COUNTS = {"sum", "count_nonzero"}
#: How infinities are written.
_INFINITIES = {"float('-inf')": -inf, "float('inf')": inf}
_INFINITIES |= {f"{module}.inf": inf for module in ("math", "torch", "np", "numpy")}
_INFINITIES |= {f"-{word}": -inf for word, number in [*_INFINITIES.items()] if number == inf}
#: Names of what is looked up.
_TABLE = re.compile(r"(.*_)?(weights?|tables?|embed(?!s(_|$))\w*|bias|cos|sin|lut|codebook)(_.*)?")


class SpecialValues:
    """Notes the infinities and NaN that inputs are asked for, and what is put in their place."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_call(self, call: Call) -> None:
        """Note of what a function asks whether it is infinite or NaN, or for what it mends that."""
        name, arguments = call.name, call.arguments
        if name in NOT_FINITE:
            self.note_asked(call.node)
        elif name in MENDS and arguments:
            self._note_mended(arguments[0])
        elif name in ("all", "any") and arguments and not self._refuses(call.node):
            self._note_whole(name, arguments[0])
        elif name in _COUNTS and arguments and not self._refuses(call.node):
            self._note_counted(arguments[0])
        elif name in MASKED and len(arguments) > 2:
            self._note_replaced(*(arguments[place] for place in MASKED[name]))

    def _note_mended(self, node: ast.expr) -> None:
        """Note that numbers are put for all infinities and NaN of a floating input."""
        for name in self._expressions.floats(node):
            self._uses.asked.setdefault(name, set()).update((-inf, inf, nan))

    def note_asked(self, node: ast.expr) -> None:
        """Note what an expression asks for, unless it is only for the reference to refuse it."""
        names, values = self._asked_by(node)
        if not values or self._refuses(node):
            return
        for name in names:
            self._uses.asked.setdefault(name, set()).update(values)
        # Where the greatest is -inf, all are, be it by a mask of the reference or by an input that
        # has -inf; the others don't get any for it.
        elements = self._elements_asked(node)
        if -inf in values and (of := self._of_extreme(elements, {"max", "amax"})) is not None:
            self._uses.replaced |= self._floats_in(of)
        # Where the least is infinity, all are; unless the reference put them there.
        of = self._of_extreme(elements, {"min", "amin"}) if inf in values else None
        is_given = of is not None and not self._is_masked(of)
        source = self._expressions.source(of) if is_given else None
        if source and self._reading.inputs[source.input].dtype.is_floating:
            self._uses.asked.setdefault(source.input, set()).add(inf)
            self._uses.replaced.add(source.input)

    def _note_replaced(self, mask: ast.expr, *values: ast.expr) -> None:
        """Note the inputs for whose infinities or NaN a number is put.

        What is put for NaN may be an infinity, which others of these then have to be told from.
        """
        if any(_infinity(each) is not None for each in values):
            for name in self._asked_in(mask):
                self._uses.asked.setdefault(name, set()).update((-inf, inf))
            self._uses.made_infinite |= self._asked_in(mask)
        if any(isinstance(self._reading.number(each), float | int) for each in values):
            self._uses.replaced |= self._asked_in(mask)
        if (of_rows := self._elements_of_rows(mask)) is not None:
            self._uses.replaced |= self._asked_in(of_rows)

    def _note_whole(self, name: str, mask: ast.expr, depth: int = DEPTH) -> None:
        """Note what may be infinite as a whole: ``isinf(x).all()``, ``not isfinite(x).any()``."""
        names, values = self._asked_by(mask)
        if names and (name == "any") == (set(values) == set(NOT_FINITE["isfinite"])):
            self._uses.replaced |= names
        elif depth and (held := self._expressions.calculation(mask)) is not None:
            self._note_whole(name, held, depth - 1)

    def _note_counted(self, mask: ast.expr, depth: int = DEPTH) -> None:
        """Note of what it is counted how many are NaN, or aren't: there may be nothing else."""
        names, values = self._asked_by(mask)
        if any(map(isnan, values)):
            self._uses.replaced |= names
        match mask:
            case ast.UnaryOp(op=ast.Invert(), operand=inner):
                of: ast.expr | None = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if (
                attr in TO_FLOATING | MOVES
            ):
                of = inner
            case _:
                of = self._expressions.calculation(mask)
        if of is not None and depth:
            self._note_counted(of, depth - 1)

    def _refuses(self, node: ast.AST) -> bool:
        """Whether it is asked only for the reference to raise an error."""
        parent = self._reading.parents.get(node)
        if isinstance(parent, ast.If) and parent.test is node:
            return any(isinstance(each, ast.Raise) for each in parent.body)
        if isinstance(parent, ast.Assert) or parent is None:
            return parent is not None
        return isinstance(parent, ast.expr) and self._refuses(parent)

    def _of_extreme(
        self, node: ast.expr, names: Collection[str], depth: int = DEPTH
    ) -> ast.expr | None:
        """Of which elements a number is the least, or greatest, by these names; None if of none."""
        match node:
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in names:
                operands = self._reading.operands(node)
                is_along = all(isinstance(constant(each), int | tuple) for each in operands[1:])
                return operands[0] if operands and is_along else None  # or the lesser of two
            case ast.Attribute(value=value, attr="values") | ast.Subscript(value=value):
                return self._of_extreme(value, names, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES:
                return self._of_extreme(value, names, depth)
        held = self._expressions.calculation(node) if depth else None
        return None if held is None else self._of_extreme(held, names, depth - 1)

    def _is_masked(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether something is put in place of some of the elements."""
        if any(called(each) in MASKED for each in ast.walk(node)):
            return True
        held = self._expressions.calculation(node) if depth else None
        return held is not None and self._is_masked(held, depth - 1)

    def _elements_asked(self, node: ast.expr) -> ast.expr:
        """What a call or a comparison asks whether it is infinite or NaN."""
        match node:
            case ast.Compare(left=elements):
                return elements
            case ast.Call(func=ast.Attribute(value=value), args=arguments):
                return arguments[0] if arguments else value
        return node

    def _asked_by(self, node: ast.expr) -> tuple[set[str], Collection[float]]:
        """The inputs that an expression asks whether elements are infinities or NaN; and which.

        As ``torch.isinf(x)``, ``x.isnan()`` and ``x == -math.inf``.
        """
        values: Collection[float] = ()
        match node:
            case ast.Compare(comparators=[right, *_]):
                number = _infinity(right)
                values = () if number is None else (number,)
            case ast.Call(func=ast.Attribute(attr=attr)):
                values = NOT_FINITE.get(attr.removesuffix("_"), ())
        if not values:
            return set(), ()
        elements = self._elements_asked(node)
        source = self._expressions.source(self._unscaled(elements))
        if source:
            return {source.input}, values
        # What is neither NaN nor infinite holds none of several; which of both it is, hangs on all.
        return self._summed(elements, several=any(map(isnan, values))), values

    def _unscaled(self, node: ast.expr, depth: int = DEPTH) -> ast.expr:
        """What is multiplied or divided by a single number, as where gradients are unscaled.

        What was infinite or NaN before is so afterwards; some of it may be left.
        """
        if not depth:
            return node
        match self._expressions.calculation(node) or node:
            case ast.Subscript(value=value):
                return self._unscaled(value, depth - 1)
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right) if (
                not self._expressions.has_tensor(right)
            ):
                return self._unscaled(left, depth - 1)
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if (
                not self._expressions.has_tensor(left)
            ):
                return self._unscaled(right, depth - 1)
        return node

    def _summed(self, node: ast.expr, depth: int = DEPTH, *, several: bool = False) -> set[str]:
        """The one input of whose elements a number is a sum or a norm, or ``several``; and ``lse``.

        These are where it is the largest of one, or of several.
        """
        held = (self._expressions.calculation(node) or node) if depth else node
        calls = {called(each) for each in ast.walk(held)}
        if not calls & (_SUMS | EXTREMES):
            inner = [each for each in ast.iter_child_nodes(held) if isinstance(each, ast.expr)]
            each_of = (self._summed(each, depth - 1, several=several) for each in inner if depth)
            found = {frozenset(names) for names in each_of}
            return {*found.pop()} if len(found) == 1 else set()
        floats = self._floats_in(held)
        if not calls & _SUMS:  # of others, a row of -inf is what a mask made
            return set(filter(is_lse, floats))
        return floats if several or len(floats) == 1 else set()

    def _floats_in(self, node: ast.expr) -> set[str]:
        """The floating inputs that an expression is made of."""
        floats: set[str] = set()
        seen: set[str] = set()
        left = [node]
        while left:
            for each in ast.walk(left.pop()):
                if isinstance(each, ast.Name) and each.id not in seen:
                    seen.add(each.id)
                    floats |= self._expressions.floats(each)
                    held = self._expressions.calculation(each)
                    left += [held] if held is not None else []
        return floats

    def _asked_in(self, node: ast.expr, depth: int = DEPTH) -> set[str]:
        """The inputs that a mask asks so."""
        names, _ = self._asked_by(node)
        if names:
            return names
        match node:
            case ast.UnaryOp(operand=part) | ast.Subscript(value=part):
                return self._asked_in(part, depth)
            case ast.BinOp(left=one, op=ast.BitAnd() | ast.BitOr(), right=other):
                return self._asked_in(one, depth) | self._asked_in(other, depth)
        held = self._expressions.calculation(node) if depth else None
        return set() if held is None else self._asked_in(held, depth - 1)

    def _elements_of_rows(self, node: ast.expr, depth: int = DEPTH) -> ast.expr | None:
        """What a mask asks of all elements of each row, as ``(x == -inf).all(dim=1)`` does."""
        match node:
            case ast.Call(func=ast.Attribute(attr="all")):
                return next(iter(self._reading.operands(node)), None)
            case ast.Subscript(value=value) | ast.UnaryOp(operand=value):
                return self._elements_of_rows(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES:
                return self._elements_of_rows(value, depth)
        held = self._expressions.calculation(node) if depth else None
        return None if held is None else self._elements_of_rows(held, depth - 1)

    def finish(self, run: ast.FunctionDef) -> None:
        """Note what inputs may be that outputs are copies of, and what is in order."""
        for name, values in _copied(run, self._reading.inputs, self._reading.outputs).items():
            self._uses.asked.setdefault(name, set()).update(values)
        if self._uses.calls & SORTING:  # beside NaN, what is in order may be infinite
            for asked in self._uses.asked.values():
                asked.update((-inf, inf) if any(map(isnan, asked)) else ())


def _infinity(node: ast.expr) -> float | None:
    """The infinity that an expression is written as, such as ``-math.inf``."""
    return _INFINITIES.get(ast.unparse(node).replace('"', "'"))


def _copied(
    run: ast.FunctionDef, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> dict[str, Collection[float]]:
    """The infinities and NaN of inputs of which outputs are copies, or rows of which are in these.

    Those that are put in order have no NaN, whose place libraries don't agree on.
    """
    copied, ordered = (names & inputs.keys() for names in copied_inputs(run))
    asked: dict[str, Collection[float]] = {}
    for name in copied:
        spec, others = inputs[name], [*outputs.values()]
        if name in ordered:
            if spec.dtype.is_floating and any(spec.dtype is each.dtype for each in others):
                asked[name] = NOT_FINITE["isinf"]
        elif any(_may_be_in(name, spec, each) for each in others):
            asked[name] = NOT_FINITE["isfinite"]
    return asked


def _may_be_in(name: str, spec: TensorSpec, output: TensorSpec) -> bool:
    """Whether an output may hold rows of an input as they are, or longer or shorter ones.

    Not those of tables and weights, which are finite: they may be picked by a product.
    """
    shape, others = spec.shape or (), output.shape or ()
    if not spec.dtype.is_floating or spec.dtype is not output.dtype or not shape:
        return False
    if shape == others:
        return True
    is_longer = len(shape) == len(others) and sum(map(ne, shape, others)) == 1
    are_rows = is_longer or shape[-1:] == others[-1:]
    return are_rows and len(shape) > 1 and _TABLE.fullmatch(name) is None
