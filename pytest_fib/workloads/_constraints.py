"""A definition's constraints: parsed, and checked on axes and finished workloads.

The text is parsed, never evaluated by Python: what is not in the lists below is refused.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pytest_fib.workloads._intervals import is_whole

if TYPE_CHECKING:
    from pytest_fib.data import Definition
    from pytest_fib.workloads._descriptions import Bound

    #: Computes an expression from the values of axes and inputs, by name.
    Compute = Callable[[Mapping[str, Any]], Any]

#: Of the bits in any size there can be.
_MOST_BITS = 63


def _power(base: Any, exponent: Any) -> Any:
    """A power of axes; one that no axis comes near would take all memory there is."""
    if isinstance(exponent, (int, float)) and abs(exponent) <= _MOST_BITS:
        return base**exponent
    raise OverflowError(f"{exponent} is too high a power")


#: What two numbers are compared by.
COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}


def _of_all_elements(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that takes a tensor as all of its elements, of however many dimensions."""

    def apply(*arguments: Any) -> Any:
        if len(arguments) == 1 and isinstance(arguments[0], bool):
            return arguments[0]  # of a chain of comparisons, which is of all elements
        method = getattr(arguments[0], name, None) if len(arguments) == 1 else None
        return function(*arguments) if method is None else method()

    return apply


_BUILTINS: dict[str, Callable[..., Any]] = {
    "abs": abs, "len": len, "int": int,
    **{each.__name__: _of_all_elements(each.__name__, each) for each in (min, max, sum, all, any)},
}  # fmt: skip
_METHODS = frozenset({"item", "max", "min", "sum", "numel", "size", "dim", "all", "any"})
_SUPPORTED = (
    ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Subscript, ast.expr_context,
    ast.And, ast.Or, *COMPARE, *_BINARY, *_UNARY,
)  # fmt: skip


class ConstraintError(ValueError):
    """A constraint that can't be understood, or that nothing meets; the message holds its text."""

    def __init__(self, message: str, *constraints: str, place: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        #: The texts of the constraints that it is about.
        self.constraints = constraints
        #: Where it is in the definition, if not there.
        self.place = place


def _misunderstood(text: str, why: object) -> ConstraintError:
    return ConstraintError(f"constraint {text!r}: {why}", text)


@dataclass(frozen=True)
class Constraint:
    """One constraint: the var axes in it, and the inputs whose values it speaks of.

    ``place`` is where the rule of an input is that needs it, or that input; empty where the
    definition states it.
    """

    text: str
    tree: ast.expr = field(compare=False, repr=False)
    axes: frozenset[str]
    tensors: frozenset[str]
    place: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The text, and which input it is for where the definition doesn't have it."""
        of_rule = f" (for input {self.place[-1]!r})" if self.place else ""
        return f"{self.text!r}{of_rule}"

    def holds(self, values: Mapping[str, Any]) -> bool:
        """Whether it is met; ``values`` holds axes and inputs by name. Raises ConstraintError."""
        try:
            return _is_true(self._compute(_widened(values, self.tensors)))
        except ArithmeticError:  # a division by zero, a power without end
            return False
        except (TypeError, ValueError, LookupError, RuntimeError) as error:
            raise _misunderstood(self.text, error) from None

    @cached_property
    def _compute(self) -> Compute:
        return _compiled(self.tree)

    def equals(self, axis: str) -> bool:
        """Whether it says what the axis is: ``axis == ...``."""
        sides = _sides_of_equality(self.tree)
        return any(isinstance(side, ast.Name) and side.id == axis for side in sides)

    def total_of(self) -> tuple[str, str] | None:
        """``(tensor, axis)`` where it reads ``axis == tensor[-1].item()``, else None."""
        return self._axis_equal_to(_last_element)

    def sum_of(self) -> tuple[str, str] | None:
        """``(tensor, axis)`` where it reads ``axis == tensor.sum().item()``, else None."""
        return self._axis_equal_to(_sum)

    def most_of(self) -> tuple[str, str] | None:
        """``(tensor, bound)`` where it reads ``tensor.max().item() <= bound``, else None.

        The bound is a whole number made of axes, less what is added to the largest number.
        """
        if (relation := _compared(self.tree)) is None:
            return None
        largest, bound = relation.smaller, relation.larger
        tensor = _largest(largest)
        match largest:
            case ast.BinOp(left=one, op=ast.Add(), right=other) if tensor is None:
                tensor = _largest(one) or _largest(other)
                more = other if _largest(one) else one
                bound = ast.BinOp(bound, ast.Sub(), more)
        if tensor is None or _names(bound) & self.tensors or not is_whole(bound):
            return None
        one_less = " - 1" if relation.strict else ""
        return tensor, f"{ast.unparse(bound)}{one_less}"

    @cached_property
    def relation(self) -> Relation | None:
        """What it says of each element of tensors, if that is a comparison; else None."""
        relation = _compared(_of_each(self.tree)) if self.tensors else None
        if relation is None:
            return None
        largest, least = _largest(relation.smaller), _reduced("min", relation.larger)
        parts = _PartsAsNames(self.tensors)
        return Relation(
            parts.of(relation.smaller if largest is None else ast.Name(largest, ast.Load())),
            parts.of(relation.larger if least is None else ast.Name(least, ast.Load())),
            relation.strict,
            parts.found,
        )

    def orders(self, name: str, rank: int) -> bool:
        """Whether it says that no element of a tensor's rows is less than the one before.

        As in ``all(times[:, :-1] <= times[:, 1:])``.
        """
        if (relation := self.relation) is None or relation.pair is None:
            return False
        sides = [relation.parts[side] for side in relation.pair if side in relation.parts]
        if [of for of, _ in sides] != [name, name]:
            return False
        (*before, but_last), (*same, but_first) = (index for _, index in sides)
        return (
            (but_last, but_first) == (slice(None, -1), slice(1, None))
            and before == same
            and (before == [...] or before == [slice(None)] * (rank - 1))
        )

    def _axis_equal_to(self, tensor_of: Callable[[ast.expr], str | None]) -> tuple[str, str] | None:
        sides = _sides_of_equality(self.tree)
        for side, other in (sides, sides[::-1]) if sides else ():
            tensor = tensor_of(other)
            if isinstance(side, ast.Name) and tensor is not None:
                return tensor, side.id
        return None


@dataclass(frozen=True)
class Relation:
    """That each element of one side is no larger than that of another, or smaller if ``strict``.

    A part of a tensor has a name of its own on its side; ``parts`` has the tensor and the index.
    """

    smaller: ast.expr
    larger: ast.expr
    strict: bool
    parts: Mapping[str, tuple[str, tuple[Any, ...]]] = field(default_factory=dict)

    @property
    def pair(self) -> tuple[str, str] | None:
        """The names of both sides, if these are no more than names."""
        match self.smaller, self.larger:
            case ast.Name(one), ast.Name(other):
                return one, other
        return None

    def with_parts(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The values of axes and inputs by name, and those of parts of these, with their memory."""
        return {**values, **{name: values[of][index] for name, (of, index) in self.parts.items()}}

    def bound_of(self, name: str) -> tuple[bool, ast.expr] | None:
        """The bound that this sets on one name: whether it is a lower one, and its expression.

        None where the name isn't alone on its side but for what is added or subtracted. Where the
        relation is ``strict``, the name may not equal its bound.
        """
        for is_least, side, other in (
            (False, self.smaller, self.larger),
            (True, self.larger, self.smaller),
        ):
            rest = _without(side, name)
            if rest is not None:
                is_alone = isinstance(rest, ast.Constant)
                return is_least, other if is_alone else ast.BinOp(other, ast.Sub(), rest)
        return None

    def compute(self, bound: ast.expr, values: Mapping[str, Any]) -> Any:
        """A bound from the values of axes and inputs."""
        return _compiled(bound)(_widened(values, _names(bound)))


def _compared(tree: ast.expr) -> Relation | None:
    """Both sides of ``<``, ``<=``, ``>`` or ``>=``; None of anything else."""
    match tree:
        case ast.Compare(left, [ast.LtE() | ast.Lt() as sign], [right]):
            smaller, larger = left, right
        case ast.Compare(left, [ast.GtE() | ast.Gt() as sign], [right]):
            smaller, larger = right, left
        case _:
            return None
    return Relation(smaller, larger, isinstance(sign, ast.Lt | ast.Gt))


def _widened(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Values, of which narrow tensors of these names are wide enough to be calculated with."""
    return {name: _wide(value) if name in names else value for name, value in values.items()}


def _wide(value: Any) -> Any:
    """A tensor of integers as int64, and one of 8-bit floats as float32; others as they are."""
    if not hasattr(value, "element_size"):
        return value
    if value.is_floating_point():
        return value.float() if value.element_size() == 1 else value
    return value.long()


def _of_each(tree: ast.expr) -> ast.expr:
    """What is said of each element by ``all(...)``, ``(...).all()`` or as it is."""
    match tree:
        case ast.Call(ast.Attribute(inner, "item"), []):
            return _of_each(inner)
        case ast.Call(ast.Name("all"), [inner]) | ast.Call(ast.Attribute(inner, "all"), []):
            return _of_each(inner)
    return tree


def _without(side: ast.expr, name: str) -> ast.expr | None:
    """What is added to a name on one side of a comparison, 0 if nothing is; None of others."""
    match side:
        case ast.Name(id=found) if found == name:
            return ast.Constant(0)
        case ast.BinOp(one, ast.Add() | ast.Sub() as sign, other):
            rest = _without(one, name)
            if rest is not None:
                return None if name in _names(other) else ast.BinOp(rest, sign, other)
            rest = _without(other, name) if isinstance(sign, ast.Add) else None
            if rest is not None and name not in _names(one):
                return ast.BinOp(one, ast.Add(), rest)
    return None


def bounds_of_elements(
    name: str, definition: Definition
) -> tuple[tuple[Bound, bool] | None, tuple[Bound, bool] | None]:
    """The least and the most of an input's elements that constraints state, made of axes alone.

    With each, whether the comparison is strict.
    """
    least: tuple[Bound, bool] | None = None
    most: tuple[Bound, bool] | None = None
    for each in _all_on(name, definition):
        relation = each.relation if each.tensors == {name} else None
        found = relation.bound_of(name) if relation else None
        if relation is None or found is None or _names(found[1]) & {name, *relation.parts}:
            continue
        is_least, tree = found
        bound = ast.unparse(tree) if _names(tree) else _compiled(tree)({}), relation.strict
        least, most = (bound, most) if is_least else (least, bound)
    return least, most


def order_of_rows(name: str, definition: Definition) -> bool | None:
    """Whether constraints state that an input's rows never fall, or that they rise (True).

    None where they don't say.
    """
    rank = len(definition.inputs[name].shape or ())
    orders = [
        each.relation.strict
        for each in _all_on(name, definition)
        if each.relation and each.orders(name, rank)
    ]
    return any(orders) if orders else None


def _all_on(name: str, definition: Definition) -> list[Constraint]:
    """The constraints that speak of an axis or an input, taken apart."""
    texts = constraints_on(name, definition)
    return [each for text in texts for each in parse_all(text, definition)]


def constraints_on(name: str, definition: Definition) -> list[str]:
    """The constraints of a definition that speak of an axis or an input."""
    pattern = rf"\b{re.escape(name)}\b"
    return [text for text in definition.constraints if re.search(pattern, text)]


def parse_all(text: str, definition: Definition) -> list[Constraint]:
    """A constraint of a definition, taken apart: ``1 <= n and n < m < k`` are three.

    Raises ConstraintError.
    """
    whole = parse(text, definition)
    return [
        Constraint(text, tree, whole.axes & names, whole.tensors & names)
        for tree in _conjuncts(whole.tree)
        for names in (_names(tree),)
    ]


def parse(text: str, definition: Definition) -> Constraint:
    """A constraint of a definition. Raises ConstraintError."""
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError) as error:
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        raise _misunderstood(text, message) from None
    tree = _SizesAsAxes(text, definition).visit(tree)
    names = _names(tree)
    known = {*definition.axes, *definition.inputs, *_BUILTINS}
    if unknown := sorted(names - known):
        raise _misunderstood(text, f"{unknown[0]!r} is neither an axis nor an input")
    if (unsupported := _unsupported(tree)) is not None:
        raise _misunderstood(text, f"{unsupported} is not supported")
    if (why := _misindexed(tree, definition)) is not None:
        raise _misunderstood(text, why)
    axes = frozenset(names & set(definition.var_axes))
    return Constraint(text, tree, axes, frozenset(names & set(definition.inputs)))


def parse_expression(text: str, definition: Definition) -> Callable[[Mapping[str, int]], float]:
    """A number made of axes, to be computed from their values. Raises ConstraintError."""
    parsed = parse(text, definition)
    if parsed.tensors:
        raise ConstraintError(f"{text!r}: {sorted(parsed.tensors)[0]!r} is not an axis")
    compute = _compiled(parsed.tree)
    return lambda values: float(compute(values))


def _compiled(node: ast.expr) -> Compute:
    """What computes a supported expression from the values of its names."""
    return _COMPILE[type(node)](node)


def _applied(function: Callable[..., Any], *arguments: ast.expr) -> Compute:
    computes = [_compiled(argument) for argument in arguments]
    if len(computes) == 2:  # the usual number, without a list
        first, second = computes
        return lambda values: function(first(values), second(values))
    return lambda values: function(*[compute(values) for compute in computes])


def _comparison(node: ast.Compare) -> Compute:
    if len(node.ops) > 1:
        return _boolean(ast.BoolOp(ast.And(), _conjuncts(node)))
    return _applied(COMPARE[type(node.ops[0])], node.left, node.comparators[0])


def _boolean(node: ast.BoolOp) -> Compute:
    decide = all if isinstance(node.op, ast.And) else any
    parts = [_compiled(part) for part in node.values]
    return lambda values: decide(_is_true(part(values)) for part in parts)


def _call(node: ast.Call) -> Compute:
    if isinstance(node.func, ast.Name):
        return _applied(_BUILTINS[node.func.id], *node.args)
    return _applied(operator.call, node.func, *node.args)


_COMPILE: dict[type[ast.expr], Callable[[Any], Compute]] = {
    ast.Constant: lambda node: lambda values: node.value,
    ast.Name: lambda node: operator.itemgetter(node.id),
    ast.BinOp: lambda node: _applied(_BINARY[type(node.op)], node.left, node.right),
    ast.UnaryOp: lambda node: _applied(_UNARY[type(node.op)], node.operand),
    ast.BoolOp: _boolean,
    ast.Compare: _comparison,
    ast.Subscript: lambda node: _applied(operator.getitem, node.value, node.slice),
    ast.Tuple: lambda node: _applied(lambda *parts: parts, *node.elts),
    ast.Slice: lambda node: _applied(
        slice, *(each or ast.Constant(None) for each in (node.lower, node.upper, node.step))
    ),
    ast.Attribute: lambda node: _applied(operator.attrgetter(node.attr), node.value),
    ast.Call: _call,
}


def _is_true(value: Any) -> bool:
    """Whether a comparison holds: of tensors, that of every element."""
    return bool(value.all()) if hasattr(value, "all") else bool(value)


def _unsupported(tree: ast.expr) -> str | None:
    """The first part of an expression that is not on the lists."""
    indices = {node.slice for node in ast.walk(tree) if isinstance(node, ast.Subscript)}
    several = {index for index in indices if isinstance(index, ast.Tuple)}
    of_one = {part for index in indices for part in _parts(index)}
    for node in ast.walk(tree):
        if not (node in several or (node in of_one and _is_slice(node)) or _is_supported(node)):
            return repr(ast.unparse(node) or type(node).__name__)
    return None


def _misindexed(tree: ast.expr, definition: Definition) -> str | None:
    """What is wrong with the first part of a tensor that can't be there, whatever its var axes."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            continue
        spec = definition.inputs.get(node.value.id)
        if spec is None or spec.shape is None:
            continue
        parts = [*map(_plain_part, _parts(node.slice))]
        if len(parts) - (... in parts) > len(spec.shape):
            return f"{ast.unparse(node)!r}: there are {len(spec.shape)} dimensions"
        for axis, index in zip(spec.shape, parts, strict=False):
            size = definition.const_axes.get(axis)
            if index is ...:
                break  # the dimensions behind are others
            if size is not None and isinstance(index, int) and not -size <= index < size:
                return f"{ast.unparse(node)!r}: {axis} has {size} elements"
    return None


def _parts(index: ast.expr) -> list[ast.expr]:
    """What an index has for each dimension."""
    return index.elts if isinstance(index, ast.Tuple) else [index]


def _is_slice(node: ast.AST) -> bool:
    """Whether it takes several elements of a dimension, in their order; or of all that are left."""
    if isinstance(node, ast.Slice):
        return not isinstance(node.step, ast.UnaryOp)
    return isinstance(node, ast.Constant) and node.value is ...


def _is_supported(node: ast.AST) -> bool:
    match node:
        case ast.Call(ast.Attribute(_, name), _, []):
            return name in _METHODS
        case ast.Call(ast.Name(name), _, []):
            return name in _BUILTINS
        case ast.Attribute(_, name):
            return name in _METHODS or name == "shape"
        case ast.Constant(value):
            return isinstance(value, (int, float))
    return isinstance(node, _SUPPORTED)


class _PartsAsNames(ast.NodeTransformer):
    """Parts of tensors get names: their own text, as in ``boxes[:, 0]``."""

    def __init__(self, tensors: Collection[str]) -> None:
        self._tensors = tensors
        #: The tensor and the index of each.
        self.found: dict[str, tuple[str, tuple[Any, ...]]] = {}

    def of(self, tree: ast.expr) -> ast.expr:
        """A copy of an expression, with names for parts."""
        named: ast.expr = self.visit(deepcopy(tree))
        return named

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """The name of a part, if its index has none."""
        if not isinstance(node.value, ast.Name) or node.value.id not in self._tensors:
            return node
        parts = tuple(map(_plain_part, _parts(node.slice)))
        if None in parts:
            return node
        text = ast.unparse(node)
        self.found[text] = (node.value.id, parts)
        return ast.Name(text, ast.Load())


def _plain_part(node: ast.expr) -> Any:
    """The index or slice that is written in numbers; None of others."""
    try:
        if isinstance(node, ast.Slice):
            ends = (node.lower, node.upper, node.step)
            return slice(*(each and ast.literal_eval(each) for each in ends))
        value = ast.literal_eval(node)
    except ValueError:
        return None
    return value if type(value) is int or value is ... else None


class _SizesAsAxes(ast.NodeTransformer):
    """Sizes are axes, so they can be solved like these.

    That is ``x.shape[1]``, ``x.size(1)``, ``len(x)``, ``x.numel()`` and ``x.dim()``.
    """

    def __init__(self, text: str, definition: Definition) -> None:
        self._text = text
        self._inputs = definition.inputs

    def visit(self, node: ast.AST) -> Any:
        """An expression with axes in place of sizes."""
        self.generic_visit(node)
        match node:
            case ast.Subscript(ast.Attribute(ast.Name(tensor), "shape"), index) | ast.Call(
                ast.Attribute(ast.Name(tensor), "size"), [index]
            ):
                return self._axis(tensor, index) or node
            case ast.Call(ast.Name("len"), [ast.Name(tensor)]):
                return self._axis(tensor, ast.Constant(0)) or node
            case ast.Call(ast.Attribute(ast.Name(tensor), "dim")) if self._is_tensor(tensor):
                return ast.Constant(len(self._shape(tensor)))
            case ast.Call(ast.Attribute(ast.Name(tensor), "numel")) if self._is_tensor(tensor):
                product: ast.expr = ast.Constant(1)
                for axis in self._shape(tensor):
                    product = ast.BinOp(product, ast.Mult(), ast.Name(axis, ast.Load()))
                return product
        return node

    def _is_tensor(self, name: str) -> bool:
        return name in self._inputs and not self._inputs[name].is_scalar

    def _shape(self, tensor: str) -> tuple[str, ...]:
        return self._inputs[tensor].shape or ()

    def _axis(self, tensor: str, index: ast.expr) -> ast.expr | None:
        if not self._is_tensor(tensor):
            return None
        shape = self._shape(tensor)
        try:
            return ast.Name(shape[ast.literal_eval(index)], ast.Load())
        except IndexError:
            there_are = f"there are {len(shape)} dimensions, {', '.join(shape)}"
            raise _misunderstood(self._text, there_are) from None
        except (ValueError, TypeError):
            return None


def _conjuncts(tree: ast.expr) -> list[ast.expr]:
    """What all has to hold: the parts of an ``and``, and the links of a chain of comparisons."""
    if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And):
        return [part for value in tree.values for part in _conjuncts(value)]
    if isinstance(tree, ast.Compare):
        sides = pairwise((tree.left, *tree.comparators))
        links = zip(tree.ops, sides, strict=True)
        return [ast.Compare(left, [op], [right]) for op, (left, right) in links]
    return [tree]


def _names(tree: ast.expr) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))


def _sides_of_equality(tree: ast.expr) -> tuple[ast.expr, ...]:
    if isinstance(tree, ast.Compare) and [type(op) for op in tree.ops] == [ast.Eq]:
        return tree.left, tree.comparators[0]
    return ()


def _sum(node: ast.expr) -> str | None:
    """The tensor of ``tensor.sum()``, ``tensor.sum().item()`` or ``sum(tensor)``."""
    return _reduced("sum", node)


def _largest(node: ast.expr) -> str | None:
    """The tensor of ``tensor.max()``, ``tensor.max().item()`` or ``max(tensor)``."""
    return _reduced("max", node)


def _reduced(by: str, node: ast.expr) -> str | None:
    match node:
        case ast.Call(ast.Attribute(value=inner, attr="item"), args=[]):
            return _reduced(by, inner)
        case ast.Call(ast.Attribute(ast.Name(tensor), name), args=[]) | (
            ast.Call(ast.Name(name), args=[ast.Name(tensor)])
        ) if name == by:
            return tensor
    return None


def _last_element(node: ast.expr) -> str | None:
    """The tensor of ``tensor[-1]`` or ``tensor[-1].item()``."""
    match node:
        case ast.Subscript(ast.Name(tensor), index) | ast.Call(
            ast.Attribute(ast.Subscript(ast.Name(tensor), index), "item")
        ) if ast.unparse(index) == "-1":
            return tensor
    return None
