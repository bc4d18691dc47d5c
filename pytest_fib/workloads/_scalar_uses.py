"""What a reference does with single numbers, such as factors, that may be 0 or above 1.

What is 0 when such a number is 0 is followed from variable to variable. If that is divided by,
taken a logarithm of, or compared, or if a choice is made by it, the result is NaN, infinite, or any
of those that tie. Where the source doesn't show what becomes of a number, it is taken as not 0.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.workloads._reference_expressions import called, constant
from pytest_fib.workloads._reference_numbers import COLLECTING, LIKE, SHAPES

if TYPE_CHECKING:
    from pytest_fib.data import TensorSpec

#: Functions whose results are not 0 where their arguments are, or not only; those that are 1 there.
_NOT_ZERO_AT_ZERO = {"softmax", "log_softmax", "logsumexp", "sigmoid", "logsigmoid", "softplus"}
_NOT_ZERO_AT_ZERO |= {"clamp", "clamp_min", "clip", "maximum", "isfinite", "cross_entropy"}
_NOT_ZERO_AT_ZERO |= {"acos", "scaled_dot_product_attention"}
_ONE_AT_ZERO = {"exp", "exp2", "cos", "cosh", "erfc"}
#: Functions that are not finite at 0, or the same for all multiples of a number but 0.
UNDEFINED_AT_ZERO = {"log", "log2", "log10", "logit", "rsqrt", "reciprocal", "normalize", "atan2"}
UNDEFINED_AT_ZERO |= {"cosine_similarity", "digamma", "lgamma"}
#: Functions of matrices that have to be regular.
_OF_REGULAR = {"solve", "cholesky", "inv", "inverse", "logdet", "slogdet", "det", "lstsq", "pinv"}
_OF_REGULAR |= {"eigh", "solve_triangular", "cholesky_solve"}
#: Functions that choose by values, of which equal ones leave a choice; or that take a size.
_CHOICES = {"topk", "argmax", "argmin", "argsort", "sort", "max", "min", "kthvalue", "multinomial"}
_CHOICES |= {"median", "mode", "unique", "searchsorted", "bucketize", "int", "range", "arange"}
_CHOICES |= {"histc"}
#: Of two or three numbers, the last of which is not zero.
_QUOTIENTS = {"div", "divide", "true_divide", "floor_divide", "remainder", "fmod", "addcdiv"}
_PRODUCTS, _SUMS = {"mul", "multiply"}, {"add", "sub", "subtract", "lerp"}
#: Functions of shares or sines.
_UP_TO_ONE = {"quantile", "nanquantile", "dropout", "bernoulli", "acos", "asin", "atanh", "erfinv"}
#: Functions that take numbers beside tensors, and for which 0 is as good as any other.
_TAKES_ZERO = _PRODUCTS | _SUMS | _CHOICES | _UP_TO_ONE | UNDEFINED_AT_ZERO
_TAKES_ZERO |= {"rsub", "clamp", "clamp_min", "clamp_max", "clip", "where", "masked_fill", "full"}
_TAKES_ZERO |= {"full_like", "new_full", "fill", "leaky_relu", "elu", "addcmul", "addmm", "addr"}
_TAKES_ZERO |= {"baddbmm", "addmv", "maximum", "minimum", "tensor", "as_tensor", "new_tensor"}
_TAKES_ZERO |= {"scaled_dot_product_attention", "index_fill", "exp", "exp2", "sigmoid", "tanh"}
_TAKES_ZERO |= {"relu", "square", "cos", "sin", "gelu", "silu", "isfinite", "index_add", "to"}
_TAKES_ZERO |= {"logaddexp", "item", "sqrt", "pow", "float_power", *COLLECTING, *LIKE}
#: Where something is 0 in some elements, these functions of it may be.
_KEEPS_ZEROS = {"sqrt", "sum", "abs"}
_INFINITY = {"inf", "infinity"}
#: What infinities don't go through; where they do, a product with 0 is NaN.
_FINITE = {"exp", "exp2", "softmax", "sigmoid", "tanh", "nan_to_num", "isfinite", "isinf", "clamp"}
#: Functions of Python that have no module.
_BUILTINS = {"float", "abs", "max", "min", "sum", "bool", "int", "range", "len", "pow"}
_MODULES = {"torch", "math", "float"}
#: What raises an error if a condition is false.
_ASSERTIONS = {"_assert", "_check"}
#: Names of what is added as 0 or -inf.
_MASK = re.compile(r"(.*_)?mask(_.*)?")

_NO_NAMES: frozenset[str] = frozenset()
_Zeros: TypeAlias = tuple[frozenset[str], frozenset[str], frozenset[str]]


@dataclass(frozen=True)
class ScalarUses:
    """What a function does with scalars, as far as its source shows.

    - ``zero``: those that may be 0.
    - ``shares``: those that may not be above 1, as of ``dropout``, or since they are subtracted
      from a number.
    - ``thresholds``: those that tensors are compared with.
    - ``checked``: inputs of which it refuses some values, by an error.
    - ``asked``: scalars and the numbers that it asks whether they equal them.
    """

    zero: frozenset[str] = _NO_NAMES
    shares: frozenset[str] = _NO_NAMES
    thresholds: frozenset[str] = _NO_NAMES
    checked: frozenset[str] = _NO_NAMES
    asked: frozenset[tuple[str, float]] = frozenset()

    def asks(self, name: str, number: float) -> bool:
        """Whether something else is done where a scalar is that number, and no error is raised."""
        return (name, number) in self.asked and name not in self.checked


@dataclass(frozen=True)
class _Held:
    """What an expression is calculated from.

    - ``zero``: the scalars of which each makes all of it 0, if it is 0.
    - ``flat``: those that then make all of its elements equal.
    - ``some``: those that then may leave zeros among its elements, as an epsilon in a divisor.
    - ``infinite``: whether there may be infinities that the reference, or a mask, puts there.
    - ``single``: whether it is calculated from scalars alone.
    """

    scalars: frozenset[str] = _NO_NAMES
    zero: frozenset[str] = _NO_NAMES
    flat: frozenset[str] = _NO_NAMES
    some: frozenset[str] = _NO_NAMES
    infinite: bool = False
    single: bool = True

    def joined(self, other: _Held) -> _Held:
        """What a variable holds that is either."""
        return _Held(
            self.scalars | other.scalars,
            self.zero | other.zero,
            self.flat | other.flat,
            self.some | other.some,
            self.infinite or other.infinite,
            self.single and other.single,
        )


def uses_of_scalars(run: ast.FunctionDef, inputs: Mapping[str, TensorSpec]) -> ScalarUses:
    """What a function does with those of its arguments that are scalars."""
    scalars = {name for name, spec in inputs.items() if spec.is_scalar}
    masks = {
        name for name, spec in inputs.items() if spec.dtype.is_floating and _MASK.fullmatch(name)
    }
    reader = _Reader(scalars, inputs.keys() - scalars, masks - scalars)
    for _ in range(2):  # what a loop ends with is what it goes on with
        for statement in run.body:  # defaults and annotations are none of its uses
            reader.visit(statement)
    zero = (scalars & reader.used) - reader.needed
    return ScalarUses(
        frozenset(zero),
        frozenset(reader.shares),
        frozenset(reader.compared),
        frozenset(reader.checked),
        frozenset(reader.asked),
    )


@dataclass
class _Found:
    """What was found of scalars until now: those that are used, those that are not 0, and others.

    These are as in ``ScalarUses``.
    """

    used: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)
    shares: set[str] = field(default_factory=set)
    compared: set[str] = field(default_factory=set)
    checked: set[str] = field(default_factory=set)
    asked: set[tuple[str, float]] = field(default_factory=set)


class _Reader(ast.NodeVisitor, _Found):
    """Reads statements in their order; ``held`` has what each variable holds."""

    def __init__(self, scalars: set[str], tensors: set[str], infinite: set[str]) -> None:
        _Found.__init__(self)
        own = {each: frozenset({each}) for each in scalars}
        self._held = {name: _Held(one, one, one, one) for name, one in own.items()}
        self._held |= {each: _Held(infinite=each in infinite, single=False) for each in tensors}
        self._scalars = scalars
        #: What the loops around assign.
        self._assigned: set[str] = set()

    # Statements.

    def visit_Name(self, node: ast.Name) -> None:
        self.used |= {node.id} & self._scalars

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._refuse(node)  # what it is called with is not followed

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._refuse(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            match target, node.value:
                case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                    held = [self._of(value) for value in values]  # all before any is assigned
                    for each, value in zip(targets, held, strict=False):
                        self._note(each, value)
                case _:
                    self._note(target, self._of(node.value))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        if node.value is not None:
            self._note(node.target, self._of(node.value))

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._note(node.target, self._of(node.value))

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        before = ast.parse(ast.unparse(node.target), mode="eval").body
        whole = ast.BinOp(left=before, op=node.op, right=node.value)
        self.generic_visit(node)
        self.visit_BinOp(whole)
        self._note(node.target, self._of(whole))

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._note(node.target, self._of(node.iter))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        self._note(node.target, self._of(node.iter))
        self._loop(node)

    def visit_While(self, node: ast.While) -> None:
        self._loop(node)

    def _loop(self, node: ast.For | ast.While) -> None:
        outer = self._assigned
        self._assigned = outer.union(*map(_assigned, node.body))
        self.generic_visit(node)
        self._assigned = outer

    def visit_If(self, node: ast.If) -> None:
        parts = [part for each in (*node.body, *node.orelse) for part in ast.walk(each)]
        if any(isinstance(part, ast.Raise) for part in parts):
            self._check(node.test)
        self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> None:
        self._check(node.test)
        self.generic_visit(node)

    def _check(self, condition: ast.expr) -> None:
        self.checked |= _names(condition) | self._refuse(condition)

    def _refuse(self, node: ast.AST) -> frozenset[str]:
        """Take all scalars in an expression or a function as not 0, and return these."""
        held = (self._held.get(name, _Held()) for name in _names(node))
        scalars = _NO_NAMES.union(*(each.scalars for each in held))
        self.needed |= scalars
        return scalars

    def _note(self, target: ast.expr, held: _Held) -> None:
        """What each variable in a target holds from now on, besides what it held."""
        while isinstance(target, ast.Subscript):
            target = target.value
        for name in _names(target):
            before = self._held.get(name)
            self._held[name] = held if before is None else before.joined(held)

    # Where a scalar may not be 0.

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        left, right = self._of(node.left), self._of(node.right)
        match node.op:
            case ast.Div() | ast.FloorDiv() | ast.Mod():
                self.needed |= right.some
            case ast.Pow() if not _is_positive(node.right):
                self.needed |= left.some
            case ast.Mult():
                self._multiply([node.left, node.right])
                self._carry([node.left, node.right])
            case ast.Sub() if _is_nonzero(node.left) and right.single:
                self.shares |= right.scalars  # a root of it may be taken
            case ast.Add():
                for one, other in ((node.left, node.right), (node.right, node.left)):
                    held = self._of(one)
                    if isinstance(one, ast.UnaryOp) and held.single and _is_nonzero(other):
                        self.shares |= held.scalars

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        number = constant(sides[1])
        is_asked = isinstance(node.ops[0], ast.Eq | ast.NotEq) and isinstance(number, int | float)
        is_asked |= isinstance(node.ops[0], ast.Gt | ast.LtE) and number == 0  # switched off
        if is_asked and isinstance(node.left, ast.Name) and node.left.id in self._scalars:
            assert isinstance(number, int | float)
            self.asked.add((node.left.id, number))
        held = [self._of(each) for each in sides]
        if not all(each.single for each in held):  # else nothing but a branch hangs on it
            self.compared |= _NO_NAMES.union(*(each.zero for each in held))
            self.needed |= self.compared

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        name, arguments = _function(node), _arguments(node)
        held = [self._of(each) for each in arguments]
        if _is_opaque(node) or name in _OF_REGULAR:
            self._refuse(node)
        elif name in _ASSERTIONS:
            self._check(node)
        self.needed |= _NO_NAMES.union(*(self._of(each).some for each in _not_zero(name, node)))
        if name in _CHOICES:
            self.needed |= _NO_NAMES.union(*(each.flat for each in held))
        elif name in _PRODUCTS:
            self._multiply(arguments[-2:])
        elif name in _UP_TO_ONE:
            self.shares |= _NO_NAMES.union(*(each.scalars for each in held if each.single))
        if name not in _TAKES_ZERO | _BUILTINS:
            self.needed |= _NO_NAMES.union(*(each.zero for each in held if each.single))
        self._carry(arguments)
        if isinstance(node.func, ast.Attribute) and (
            node.func.attr.endswith("_") or node.func.attr in COLLECTING
        ):
            self._note(node.func.value, self._of(node))

    def _multiply(self, factors: Sequence[ast.expr]) -> None:
        held = [self._of(each) for each in factors]
        for one, other in (held, held[::-1]) if len(held) > 1 else ():
            self.needed |= one.zero if other.infinite else _NO_NAMES

    def _carry(self, arguments: Sequence[ast.expr]) -> None:
        """Take factors of what a loop carries as not 0: chunked forms divide by their powers."""
        for each in arguments:
            others = (_names(other) for other in arguments if other is not each)
            if self._assigned & set().union(*others):
                self.needed |= self._of(each).zero

    # What expressions hold.

    def _of(self, node: ast.AST) -> _Held:
        match node:
            case ast.Name(id=name):
                return self._held.get(name, _Held(single=name in _MODULES))
            case ast.Constant(value=value):
                return _Held(infinite=str(value).lower().strip("+-") in _INFINITY)
            case ast.Subscript(value=value):
                return self._of(value)
            case ast.Attribute(value=value, attr=attr):
                of = self._of(value)
                return (
                    _Held(single=of.single)
                    if attr in SHAPES
                    else replace(of, infinite=of.infinite or attr == "inf")
                )
        parts = [self._of(each) for each in _parts(node)]
        scalars = _NO_NAMES.union(*(each.scalars for each in parts))
        infinite = any(each.infinite for each in parts)
        infinite &= not isinstance(node, ast.Compare) and _function(node) not in _FINITE
        zero, flat, some = self._zeros(node, parts)
        single = all(each.single for each in parts)
        return _Held(scalars, zero, flat | zero, some, infinite, single)

    def _zeros(self, node: ast.AST, parts: Sequence[_Held]) -> _Zeros:
        """The scalars with which an expression is 0, or alike everywhere, or 0 somewhere."""
        name = _function(node)
        if isinstance(node, ast.Compare) or name in LIKE:
            return _NO_NAMES, _NO_NAMES, _NO_NAMES
        flat = _common(each.flat for each in parts if not each.single)
        if summands := _summands(node):
            each = [self._of(part) for part in summands]
            zero = _common(part.zero for part in each)
            if any(map(_is_nonzero, summands)):
                return zero, flat, self._left_by_one(summands)
            return zero, flat, zero.union(*(part.some for part in each if part.single))
        if name in _NOT_ZERO_AT_ZERO | _ONE_AT_ZERO:
            return _NO_NAMES, flat, _NO_NAMES
        match node:
            case ast.BinOp(op=ast.Div() | ast.FloorDiv() | ast.Mod() | ast.Pow()):
                parts = parts[:1]
        zero = _NO_NAMES.union(*(each.zero for each in parts))
        keeps = isinstance(node, ast.BinOp | ast.UnaryOp) or name in _KEEPS_ZEROS
        return zero, flat, _NO_NAMES.union(*(each.some for each in parts)) if keeps else zero

    def _left_by_one(self, summands: Sequence[ast.expr]) -> frozenset[str]:
        """The scalars with which ``1 - exp(scalar * x)`` is 0."""
        calls = [part for each in summands for part in ast.walk(each)]
        return _NO_NAMES.union(
            *(self._of(part).flat for part in calls if _function(part) in _ONE_AT_ZERO)
        )


def _is_opaque(node: ast.Call) -> bool:
    """Whether a call is of a function that isn't followed, or that makes a size of a number."""
    if called(node) is None:
        return _function(node) not in _BUILTINS
    return ast.unparse(node.func) in ("math.ceil", "math.floor", "math.trunc")


def _common(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    """What is in all sets; nothing where there is none."""
    every = [set(each) for each in sets]
    return frozenset(set.intersection(*every)) if every else _NO_NAMES


def _parts(node: ast.AST) -> list[ast.AST]:
    """What an expression is calculated from."""
    return list(_arguments(node)) if isinstance(node, ast.Call) else [*ast.iter_child_nodes(node)]


def _function(node: ast.AST) -> str:
    """The name of what is called, of a method in place without its underscore; else empty."""
    match node:
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name.removesuffix("_") if name not in _ASSERTIONS else name
    return ""


def _arguments(node: ast.Call) -> list[ast.expr]:
    """What is passed to a call, and what its method is of, if that is no module."""
    function = node.func
    of = [function.value] if isinstance(function, ast.Attribute) else []
    if of and re.match(r"(torch|math|np|nn|F)(\.[a-z_]+)*$", ast.unparse(of[0])):
        of = []
    return [*of, *node.args, *(each.value for each in node.keywords)]


def _not_zero(name: str, node: ast.Call) -> list[ast.expr]:
    """The arguments of a call that have to be other than 0."""
    arguments = _arguments(node)
    if name in UNDEFINED_AT_ZERO:
        return arguments
    if name in _QUOTIENTS:
        return arguments[1:] if name != "addcdiv" else arguments[-1:]
    if name == "softplus":
        return arguments[1:2]
    is_root = name in ("pow", "float_power") and not _is_positive(arguments[-1])
    return arguments[:-1] if is_root else []


def _summands(node: ast.AST) -> list[ast.expr]:
    """The terms of a sum; none of any other expression."""
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub()):
            return [left, right]
        case ast.Call() if _function(node) in _SUMS and not node.keywords:
            return _arguments(node)
    return []


def _assigned(statement: ast.stmt) -> set[str]:
    """The variables that a statement changes, and those within it."""
    targets: list[ast.AST] = []
    for each in ast.walk(statement):
        match each:
            case ast.Name(ctx=ast.Store()):
                targets.append(each)
            case ast.Subscript(ctx=ast.Store(), value=value):
                targets.append(value)
            case ast.AugAssign(target=target):
                targets.append(target)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if (
                attr.endswith("_") or attr in COLLECTING
            ):
                targets.append(value)
    return set().union(*map(_names, targets))


def _names(node: ast.AST) -> set[str]:
    """The variables in an expression."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _is_nonzero(node: ast.expr) -> bool:
    """Whether it is a number other than 0."""
    number = constant(node)
    return isinstance(number, int | float) and number != 0


def _is_positive(node: ast.expr) -> bool:
    """Whether an exponent surely is above 0: 0 to the power of 0, or less, is no 0."""
    number = constant(node)
    return isinstance(number, int | float) and number > 0
