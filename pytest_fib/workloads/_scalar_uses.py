"""Which numbers a reference may be given as 0, as those are that switch something off.

What is 0 when such a number is 0 is followed from variable to variable. If that is divided by,
taken a logarithm of, compared or chosen by, the result is NaN, infinite, or any of equal ones.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from dataclasses import dataclass

from pytest_fib.workloads._reference_expressions import called, constant
from pytest_fib.workloads._reference_numbers import LIKE, SHAPES

#: Functions whose results are not 0 where their arguments are, or not only.
_NOT_ZERO_AT_ZERO = {"exp", "exp2", "softmax", "log_softmax", "logsumexp", "sigmoid", "logsigmoid"}
_NOT_ZERO_AT_ZERO |= {"softplus", "cos", "clamp", "clamp_min", "clip", "maximum", "isfinite"}
_NOT_ZERO_AT_ZERO |= {"cross_entropy", "erfc", "acos", "scaled_dot_product_attention"} | LIKE
#: Functions that are not finite at 0, or the same for all multiples of a number but 0.
_UNDEFINED_AT_ZERO = {"log", "log2", "log10", "logit", "rsqrt", "reciprocal", "normalize", "atan2"}
_UNDEFINED_AT_ZERO |= {"cosine_similarity", "digamma", "lgamma"}
#: Functions that take a number as a size, or choose by values, of which equal ones leave a choice.
_CHOICES = {"int", "range", "arange", "histc"}
_CHOICES |= {"topk", "argmax", "argmin", "argsort", "sort", "max", "min", "kthvalue"}
_CHOICES |= {"multinomial", "median", "mode", "unique", "searchsorted", "bucketize"}
#: Of two numbers, the second of which is not zero.
_QUOTIENTS = {"div", "divide", "true_divide", "floor_divide", "remainder", "fmod"}
_PRODUCTS = {"mul", "multiply"}
_SUMS = {"add", "sub", "subtract", "lerp"}
#: Functions of shares or sines.
_UP_TO_ONE = {"quantile", "nanquantile", "dropout", "bernoulli", "acos", "asin", "atanh", "erfinv"}
#: Of what is 0 in some elements, these may be.
_KEEPS_GUARDS = {"sqrt", "sum", "abs"}
_INFINITY = {"inf", "infinity"}
#: What infinities don't go through; where they do, that a product with 0 is NaN.
_FINITE = {"exp", "exp2", "softmax", "sigmoid", "tanh", "nan_to_num", "isfinite", "isinf", "clamp"}
_BY_NUMBERS = (ast.Div, ast.FloorDiv, ast.Mod)
#: Functions of Python that have no module.
_BUILTINS = {"float", "abs", "max", "min", "round", "sum", "bool", "int", "range", "len", "pow"}


@dataclass(frozen=True)
class ScalarUses:
    """What a function does with scalars, as far as its source shows.

    Those that may be 0; ``shares``, which functions take that allow for nothing above 1;
    ``thresholds``, which tensors are compared with; and those that it raises an error for.
    """

    zero: Set[str] = frozenset()
    shares: Set[str] = frozenset()
    thresholds: Set[str] = frozenset()
    checked: Set[str] = frozenset()


def uses_of_scalars(run: ast.FunctionDef, scalars: set[str]) -> ScalarUses:
    """What a function does with some of its arguments."""
    reader = _Reader(scalars)
    for _ in range(2):  # what a loop ends with is what it goes on with
        reader.visit(run)
    zero = (scalars & reader.used) - reader.needed
    return ScalarUses(zero, reader.shares, reader.compared, reader.checked)


class _Reader(ast.NodeVisitor):
    """``_zero_with`` has the scalars that each variable may be 0 with.

    ``_guards_of``, those without which some of its elements may be 0. Variables that are made of
    scalars alone are ``_single``.
    """

    def __init__(self, scalars: set[str]) -> None:
        self._zero_with = {name: {name} for name in scalars}
        self._guards_of = {name: {name} for name in scalars}
        self._single = {*scalars, "torch", "math", "float"}
        self._infinite: set[str] = set()
        self._in_loop = False
        self.used: set[str] = set()
        self.needed: set[str] = set()
        self.shares: set[str] = set()
        self.compared: set[str] = set()
        self.checked: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        self.used |= {node.id} & self._zero_with.keys()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for statement in node.body:  # defaults and annotations are none of its uses
            self.visit(statement)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._refuse(node)  # what it is called with is not followed

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._note(target, node.value)
            self._goes_on(target, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        whole = ast.BinOp(left=_loaded(node.target), op=node.op, right=node.value)
        self.generic_visit(node)
        self.visit_BinOp(whole)
        self._note(node.target, whole)
        self._goes_on(node.target, whole)

    def visit_For(self, node: ast.For) -> None:
        self._note(node.target, node.iter)
        outer, self._in_loop = self._in_loop, True
        self.generic_visit(node)
        self._in_loop = outer

    def _goes_on(self, target: ast.expr, value: ast.expr) -> None:
        """Take a factor of what a loop goes on with as one that another way may divide by."""
        own = _names(_whole(target))
        products = [each for each in ast.walk(value) if isinstance(each, ast.BinOp)]
        for each in products if self._in_loop else ():
            sides = ((each.left, each.right), (each.right, each.left))
            for factor, other in sides if isinstance(each.op, ast.Mult) else ():
                self.needed |= self._zero(factor) if _names(other) & own else set()

    def visit_If(self, node: ast.If) -> None:
        if any(isinstance(each, ast.Raise) for each in node.body):
            self.checked |= self._refuse(node.test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self.checked |= self._refuse(node.test)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, _BY_NUMBERS):
            self.needed |= self._guards(node.right)
        elif isinstance(node.op, ast.Pow) and not _is_positive(node.right):
            self.needed |= self._guards(node.left)
        elif isinstance(node.op, ast.Mult):
            self._multiply(node.left, node.right)

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        if not all(map(self._is_single, sides)):  # else nothing but a branch hangs on it
            self.compared |= set[str]().union(*map(self._zero, sides))
            self.needed |= self.compared

    def _multiply(self, *factors: ast.AST) -> None:
        for one, other in (factors, factors[::-1]):
            self.needed |= self._zero(one) if self._is_infinite(other) else set()

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name, arguments = _function(node), _arguments(node)
        if called(node) is None and name not in _BUILTINS:
            self._refuse(node)  # it is not followed
        self.needed |= set[str]().union(*map(self._guards, _not_zero(name, node)))
        if name in _CHOICES:
            self.needed |= set[str]().union(*map(self._zero, arguments))
        elif name in _PRODUCTS:
            self._multiply(*arguments[-2:])
        elif name in _UP_TO_ONE:
            self.shares |= set[str]().union(*map(self._zero, arguments))
        if isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_"):
            self._note(node.func.value, node)

    def _refuse(self, node: ast.AST) -> set[str]:
        """Take all scalars in an expression as not 0, and return these."""
        scalars = set[str]().union(*(self._zero_with.get(name, set()) for name in _names(node)))
        self.needed |= scalars
        return scalars

    def _note(self, target: ast.expr, value: ast.expr) -> None:
        """What each variable in a target is made of from now on, besides what it was."""
        zero, guards = self._zero(value), self._guards(value)
        is_infinite, is_single = self._is_infinite(value), self._is_single(value)
        for name in _names(_whole(target)):
            self._zero_with[name] = self._zero_with.get(name, set()) | zero
            self._guards_of[name] = self._guards_of.get(name, set()) | guards
            self._infinite |= {name} if is_infinite else set()
            self._single |= {name} if is_single else set()

    def _is_single(self, node: ast.AST) -> bool:
        """Whether an expression is of scalars alone."""
        return _names(node) <= self._single

    def _guards(self, node: ast.AST) -> set[str]:
        """The scalars that an expression may be 0 with in some elements, as what is added to all.

        As in ``distances**2 + softening**2``.
        """
        if isinstance(node, ast.Name):
            return self._guards_of.get(node.id, set())
        if summands := _summands(node):
            if any(isinstance(each, ast.Constant) and each.value != 0 for each in summands):
                return set()
            added = (self._guards(each) for each in summands if self._is_single(each))
            return self._zero(node).union(*added)
        if (
            isinstance(node, ast.BinOp | ast.Subscript | ast.Attribute)
            or _function(node) in _KEEPS_GUARDS
        ):
            return set[str]().union(*map(self._guards, _decides_zero(node)))
        return self._zero(node)

    def _zero(self, node: ast.AST) -> set[str]:
        """The scalars of which one that is 0 makes an expression 0."""
        if isinstance(node, ast.Name):
            return self._zero_with.get(node.id, set())
        if summands := _summands(node):
            return set.intersection(*map(self._zero, summands))
        return set[str]().union(*map(self._zero, _decides_zero(node)))

    def _is_infinite(self, node: ast.AST) -> bool:
        """Whether an expression may hold infinities that the reference puts there."""
        match node:
            case ast.Name():
                return node.id in self._infinite
            case ast.Constant():
                return isinstance(node.value, str) and node.value.strip("+-") in _INFINITY
            case ast.Attribute(attr="inf"):
                return True
        is_finite = isinstance(node, ast.Compare) or _function(node) in _FINITE
        return not is_finite and any(map(self._is_infinite, ast.iter_child_nodes(node)))


def _function(node: ast.AST) -> str:
    """The name of what is called, of a method in place without its underscore; else empty."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.removesuffix("_")
    return ""


def _arguments(node: ast.Call) -> list[ast.expr]:
    """What is passed to a call, and what its method is of, which may be a module."""
    of = [node.func.value] if isinstance(node.func, ast.Attribute) else []
    return [*of, *node.args, *(each.value for each in node.keywords)]


def _not_zero(name: str, node: ast.Call) -> list[ast.expr]:
    """The arguments of a call that have to be other than 0."""
    if name in _UNDEFINED_AT_ZERO:
        return _arguments(node)
    if name in _QUOTIENTS:
        return node.args[-1:]
    is_root = name == "pow" and node.args and not _is_positive(node.args[-1])
    return _arguments(node)[:-1] if is_root else []


def _summands(node: ast.AST) -> list[ast.expr]:
    """The terms of a sum; none of any other expression."""
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
            return [left, right]
        case ast.Call(args=[_, _, *_] as terms) if _function(node) in _SUMS:
            return terms
        case ast.Call(func=ast.Attribute(value=value), args=[term]) if _function(node) in _SUMS:
            return [value, term]
    return []


def _decides_zero(node: ast.AST) -> list[ast.AST]:
    """The parts of an expression of which each makes it 0, where it is 0."""
    match node:
        case ast.BinOp(left=left, op=ast.Div() | ast.FloorDiv() | ast.Mod() | ast.Pow()):
            return [left]
        case ast.Subscript(value=value):
            return [value]
        case ast.Compare() | ast.Constant():
            return []
        case ast.Attribute(attr=attr) if attr in SHAPES:
            return []
        case ast.Call() if _function(node) in _NOT_ZERO_AT_ZERO:
            return []
    return [*ast.iter_child_nodes(node)]


def _names(node: ast.AST) -> set[str]:
    """The variables in an expression."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _whole(target: ast.expr) -> ast.expr:
    """What a target is in."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def _loaded(target: ast.expr) -> ast.expr:
    """What is read where it is written to."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _is_positive(node: ast.expr) -> bool:
    """Whether an exponent surely is above 0: 0 to the power of 0, or less, is no 0."""
    number = constant(node)
    return isinstance(number, int | float) and number > 0
