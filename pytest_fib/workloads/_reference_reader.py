"""Reads from the source of a reference what it does with its inputs; nothing is run.

An integer that a tensor is indexed with is below the size of an axis; one whose elements a tensor
is cut at is an offset; what stands under a root or in a logarithm is not negative; what is divided
by is not zero, unless the reference looks for that.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_fib.workloads._folding import folded, with_constants
from pytest_fib.workloads._inlining import inlined_run
from pytest_fib.workloads._reference_arithmetic import Arithmetic
from pytest_fib.workloads._reference_bits import Bits
from pytest_fib.workloads._reference_bounds import Bounds
from pytest_fib.workloads._reference_branches import Branches
from pytest_fib.workloads._reference_comparisons import Comparisons
from pytest_fib.workloads._reference_differences import Differences
from pytest_fib.workloads._reference_expressions import Expressions, parts_of
from pytest_fib.workloads._reference_indices import Indices
from pytest_fib.workloads._reference_lengths import Lengths
from pytest_fib.workloads._reference_names import Names
from pytest_fib.workloads._reference_numbers import calculated_with
from pytest_fib.workloads._reference_places import Places
from pytest_fib.workloads._reference_reading import Reading
from pytest_fib.workloads._reference_signs import Signs
from pytest_fib.workloads._reference_softmaxes import Softmaxes
from pytest_fib.workloads._reference_special_values import SpecialValues
from pytest_fib.workloads._reference_uses import ReferenceUses
from pytest_fib.workloads._scalar_uses import uses_of_scalars

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec

#: Infinities, and the large numbers that are written instead of them.
_FAR = re.compile(r"\binf\b|\bfinfo\b|\d[eE]\+?\d")
#: Whether a tensor or a list has elements at all.
_ASKS_FOR_ANY = re.compile(
    r"\bif ([\w.]+\.numel\(\)|len\(\w+\))( (>|!=) 0)?:"
    r"|\bif ([\w.]+\.numel\(\)|len\(\w+\)|\w*len(gth)?|n) (==|<=|<) [012]:\s*(continue|return)\b"
)

_Specs = tuple[tuple[str, "TensorSpec"], ...]


def uses_of(definition: Definition) -> ReferenceUses:
    """What a definition's reference does with its inputs, as far as its source can be read."""
    inputs, outputs = tuple(definition.inputs.items()), tuple(definition.outputs.items())
    return _read(definition.reference, inputs, outputs, tuple(_sizes_in(definition)))


def _sizes_in(definition: Definition) -> Iterator[tuple[str, str | int]]:
    """Scalars that constraints make equal to the size of an axis, and that; and sizes of axes."""
    yield from definition.const_axes.items()
    for text in definition.constraints:
        names = re.fullmatch(r"\s*(\w+)\s*==\s*(\w+)\s*", text)
        for scalar, axis in (names.groups(), names.groups()[::-1]) if names else ():
            if scalar in definition.inputs and axis in definition.axes:
                yield scalar, axis


@lru_cache(maxsize=64)  # each input asks
def _read(
    reference: str, inputs: _Specs, outputs: _Specs, sizes: tuple[tuple[str, str | int], ...]
) -> ReferenceUses:
    uses = ReferenceUses()
    try:
        module = ast.parse(reference)
    except SyntaxError:
        return uses  # it is seen where the reference is loaded
    uses.has_infinities = _FAR.search(reference) is not None
    uses.asks_for_any = _ASKS_FOR_ANY.search(reference) is not None
    if run := inlined_run(with_constants(module)):
        run = folded(run)
        arguments = [each.arg for each in run.args.args]
        given = dict(inputs), dict(outputs)
        expressions = Expressions(*given, arguments, dict(sizes))
        _Reader(Reading(*given, uses, expressions)).read(run)
        uses.calculated, uses.any_bits, uses.angles, uses.summed = calculated_with(run)
        uses.scalars = uses_of_scalars(run, dict(inputs))
    return uses


class _Reader(ast.NodeVisitor):
    """Goes through ``run`` from top to bottom, and hands each part to those that note its uses."""

    def __init__(self, reading: Reading) -> None:
        self._reading, self._expressions = reading, reading.expressions
        self._lengths, self._bounds = Lengths(reading), Bounds(reading)
        self._indices = Indices(reading, self._lengths, self._bounds)
        self._places = Places(reading)
        self._comparisons = Comparisons(reading, self._places)
        differences = Differences(reading, self._comparisons)
        self._arithmetic = Arithmetic(reading, differences, Signs(reading), self._places)
        self._special_values = SpecialValues(reading)
        self._softmaxes, self._bits = Softmaxes(reading), Bits(reading)
        self._names, self._branches = Names(reading), Branches(reading)

    def read(self, run: ast.FunctionDef) -> None:
        """Note all that a function does with its arguments."""
        self.visit(run)
        self._indices.finish()
        self._branches.finish()
        self._special_values.finish(run)

    def visit(self, node: ast.AST) -> None:
        """Visit a part, after what its own parts are parts of is known."""
        for child in ast.iter_child_nodes(node):
            self._reading.parents[child] = node
        super().visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._expressions.assign(target, node.value)
            for each in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(each, ast.Subscript):
                    self._indices.note_put(each, node.value)

    def visit_For(self, node: ast.For) -> None:
        self._expressions.assign_in_turn(node.target, node.iter)
        for _ in range(2):  # what a turn ends with is what the next one begins with
            self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehend(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehend(node)

    def _comprehend(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        with self._expressions.own_variables():
            for each in node.generators:
                self._expressions.assign_in_turn(each.target, each.iter)
            self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        """A scalar that is only replaced in some cases is what it was in others."""
        with self._expressions.scalars_kept():
            self._branch(node, node.body, node.orelse)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._branch(node, [node.body], [node.orelse])

    def _branch(self, node: ast.If | ast.IfExp, *cases: Sequence[ast.AST]) -> None:
        """Visit what is asked, and then what is done in either case."""
        self.visit(node.test)
        for case in self._branches.each_of(node, *cases):
            for each in case:
                self.visit(each)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        parts = parts_of(node)
        if isinstance(parts[0], ast.Constant) and parts[0].value is ...:
            self._indices.note_picks_at_the_end(node.value, parts[1:])
        for dim, part in enumerate(parts):
            if isinstance(part, ast.Constant) and part.value in (None, ...):
                return  # the dimensions behind are others
            if isinstance(part, ast.Slice):
                self._lengths.note_slice(node.value, dim, part)
            else:
                is_put = isinstance(node.ctx, ast.Store)
                self._indices.note_pick(node.value, dim, part, is_put=is_put)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        call = self._reading.call(node)
        if call is None:
            return
        self._reading.uses.calls.add(call.name)
        self._arithmetic.note_call(call)
        self._bounds.note_call(call)
        self._comparisons.note_call(call)
        self._special_values.note_call(call)
        self._bits.note_call(call)
        self._softmaxes.note_call(call)
        self._lengths.note_call(call)
        self._indices.note_call(call)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        self._bits.note_operation(node)
        self._arithmetic.note_operation(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._arithmetic.note_operands(node.op, node.value)
        if isinstance(node.target, ast.Subscript):
            self._indices.note_put(node.target, node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.generic_visit(node)
        if node.arg == "attn_mask":
            self._arithmetic.note_operands(ast.Add(), node.value)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        self._places.note_comparison(node.left, node.ops[0], node.comparators[0])
        self._special_values.note_asked(node)
        self._comparisons.note_comparison(node)
        self._bounds.note_comparison(node)

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        self._bits.note_returned(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._branches.note_name(node)
        self._names.note_name(node)
