"""Which inputs a reference only copies: nothing is computed of their elements.

Each variable has the inputs of which it may hold elements. Nothing is run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from math import inf, nan

from pytest_fib.workloads._reference_expressions import MOVES
from pytest_fib.workloads._reference_numbers import LIKE, SHAPES

#: Functions that tell infinities and NaN from other numbers, and which of them.
NOT_FINITE = {"isinf": (-inf, inf), "isneginf": (-inf,), "isposinf": (inf,), "isnan": (nan,)}
NOT_FINITE["isfinite"] = (-inf, inf, nan)
#: What gives elements on as they are, from where several may come; conversions may change them.
_GIVES = MOVES - {"to", "type", "view", "int", "long"}
#: Those of which the last argument is put among the elements.
_PUTS = {"index_copy", "scatter"}
#: What gives the elements in an order, and their places.
_ORDERS = {"sort", "topk"}
#: Blocks are read so often: what a loop ends with, its next turn begins with.
_TURNS = 2


def copied_inputs(run: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """The arguments that are returned, in parts or whole, and are used for nothing else.

    And those of them that are put in order, by ``sort`` or ``topk``.
    """
    reader = _Reader({each.arg: {each.arg} for each in run.args.args})
    for _ in range(_TURNS):
        reader.read(run.body)
    copied = reader.returned - reader.used
    return copied, copied & reader.ordered


class _Reader:
    """Reads statements; ``held`` has the inputs whose elements a variable may hold."""

    def __init__(self, held: dict[str, set[str]]) -> None:
        self._held = held
        self.returned, self.used, self.ordered = set[str](), set[str](), set[str]()

    def read(self, statements: Iterable[ast.stmt]) -> None:
        """Take in what each statement does."""
        for statement in statements:
            match statement:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._assign(target, value)
                case ast.AnnAssign(target=target, value=ast.expr() as value):
                    self._assign(target, value)
                case ast.For(target=target, iter=iterated):
                    self._assign(target, iterated)
                    self.read((*statement.body, *statement.orelse))
                case ast.Return(value=ast.expr() as value):
                    self.returned |= self._elements(value)
                case _:
                    self._use(statement)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for pair in zip(targets, values, strict=True):
                    self._assign(*pair)
            case ast.Tuple(elts=[values, _]), ast.Call(func=ast.Attribute(attr=attr)) if (
                attr in _ORDERS
            ):
                self._assign(values, value)  # the other has their places
            case _:
                elements = self._elements(value)
                while isinstance(target, ast.Subscript):  # what is put among others
                    self._use(target.slice)
                    target = target.value
                for each in ast.walk(target):
                    if isinstance(each, ast.Name):
                        self._held.setdefault(each.id, set()).update(elements)

    def _use(self, node: ast.AST) -> None:
        """Note that something else is done with what an expression or a statement holds."""
        if isinstance(node, ast.expr):
            self.used |= self._elements(node)
        else:
            self._use_parts(node)

    def _elements(self, node: ast.expr) -> set[str]:
        """The inputs whose elements an expression may hold, as they are."""
        match node:
            case ast.Name(id=name):
                return set(self._held.get(name, ()))
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                return set().union(*map(self._elements, parts))
            case ast.Subscript(value=value, slice=index):
                self._use(index)
                return self._elements(value)
            case ast.Attribute(value=value, attr=attr):
                return self._elements_of_attribute(value, attr)
            case ast.Call():
                return self._elements_of_call(node)
        self._use_parts(node)
        return set()

    def _use_parts(self, node: ast.AST) -> None:
        for each in ast.iter_child_nodes(node):
            if isinstance(each, ast.stmt):
                self.read([each])
            elif isinstance(each, ast.expr):
                self.used |= self._elements(each)
            else:
                self._use_parts(each)

    def _elements_of_call(self, node: ast.Call) -> set[str]:
        match node.func:
            case ast.Name(id="len"):
                pass
            case ast.Attribute(value=value, attr=attr):
                keywords = [each.value for each in node.keywords]
                is_module = isinstance(value, ast.Name) and value.id not in self._held
                given = [] if is_module or isinstance(value, ast.Attribute) else [value]
                return self._result(attr.removesuffix("_"), [*given, *node.args], keywords)
            case _:
                self._use_parts(node)
        return set()

    def _elements_of_attribute(self, value: ast.expr, attr: str) -> set[str]:
        elements = self._elements(value)
        if attr in MOVES or attr == "values":
            return elements
        if attr == "indices":
            return set()
        self.used |= set() if attr in SHAPES else elements
        return set()

    def _result(self, name: str, arguments: list[ast.expr], others: list[ast.expr]) -> set[str]:
        """The same of what a function or a method returns."""
        given = [self._elements(each) for each in arguments]
        if name in LIKE or name in NOT_FINITE:
            return set()
        last, kept = len(given) - 1, set[int]()
        if name == "where" and last > 1 and all(given[-2:]):  # else a mask: may be a product
            kept = {last - 1, last}
        elif name in _GIVES:
            kept = {0, last} if name in _PUTS else {0}
        elif name in _ORDERS:
            kept = {0}
            self.ordered |= set().union(*given[:1])
        rest = (elements for place, elements in enumerate(given) if place not in kept)
        self.used |= set().union(*rest, *map(self._elements, others))
        return set().union(*(elements for place, elements in enumerate(given) if place in kept))
