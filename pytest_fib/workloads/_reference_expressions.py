"""What the expressions of a reference hold: elements of which input, and along which axes.

Nothing is run. What can't be read is None, and counts as anything.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pytest_fib.data import TensorSpec

#: The axes of a tensor. ``ONE`` is a dimension that was put in; ``OTHER`` has another size than any
#: axis.
Axes: TypeAlias = tuple[str, ...]
ONE, OTHER = "1", "?"
#: How many variables are followed back, of those that are calculated from each other.
DEPTH = 8
#: Methods and functions that keep every element where it is, and those that keep some of them.
_SAME = {"float", "double", "to", "long", "int", "clone", "contiguous", "type", "cpu"}
_SOME = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as"}
_SOME |= {"item", "tolist", "unbind", "unfold", "as_tensor", "reversed"}
_SOME |= {"gather", "index_select", "take_along_dim", "unique", "repeat_interleave"}
#: Methods after which an ``arange`` still has its places one after the other.
_SHAPED = {"view", "reshape", "unsqueeze", "expand", "expand_as"}
#: Those that change elements, or which is where, and keep the axes.
_CHANGED = {"masked_fill", "clamp", "clamp_min", "clamp_max", "clip", "roll", "flip"}
#: Those after which they hold other numbers, as many along every axis.
_ELEMENTWISE = {"abs", "bfloat16", "clip", "cumsum", "exp", "gelu", "half", "log", "log_softmax"}
_ELEMENTWISE |= {"logsigmoid", "nan_to_num", "neg", "normalize", "relu", "round", "rsqrt"}
_ELEMENTWISE |= {"sigmoid", "silu", "softmax", "softplus", "sqrt", "square", "tanh"}
#: Those that put elements elsewhere, and leave each as it is.
MOVES = {"clone", "contiguous", "to", "long", "int", "type", "cpu", "view", "reshape", "flatten"}
MOVES |= {"unsqueeze", "squeeze", "expand", "expand_as", "gather", "index_select", "index_copy"}
MOVES |= {"scatter", "take_along_dim", "repeat_interleave", "flip", "roll", "permute", "transpose"}
MOVES |= {"masked_select", "stack", "cat", "unbind", "unfold", "T", "mT"}
#: Functions, and methods with ``new_`` before them, that make tensors of sizes.
_MADE = {"empty", "full", "ones", "zeros"}
#: Methods that make floating numbers of integers.
TO_FLOATING = {"float", "double", "half", "bfloat16"}
_FLOATING_DTYPES = {f"torch.{each}" for each in ("float32", "float16", "bfloat16", "float64")}
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)


class Source(NamedTuple):
    """The input whose elements an expression holds, and its axes: None where these are others."""

    input: str
    axes: Axes | None


@dataclass(frozen=True)
class Variable:
    """What a variable of a reference holds.

    ``value`` is the expression that it was assigned, where there is one. ``size`` is the axis whose
    size it is; ``along``, the axis along which it goes through all places, one after the other.
    ``made_of`` are the sizes of a tensor that is made of sizes.
    """

    value: ast.expr | None = None
    source: Source | None = None
    axes: Axes | None = None
    made_of: tuple[ast.expr, ...] = ()
    size: str | None = None
    along: str | None = None


class Expressions:
    """Says what expressions hold, by what variables were assigned before."""

    def __init__(
        self,
        inputs: Mapping[str, TensorSpec],
        outputs: Mapping[str, TensorSpec],
        arguments: list[str],
        sizes: Mapping[str | int, str | int],
    ) -> None:
        self._inputs, self._outputs, self._equal_sizes = inputs, outputs, sizes
        self._variables = {
            argument: Variable(
                source=Source(name, tuple(inputs[name].shape or ())),
                size=size if isinstance(size := sizes.get(name), str) else None,
            )
            for argument, name in zip(arguments, inputs, strict=False)
        }
        #: Variables that are single numbers, and those that loops give one by one.
        self._counters: set[str] = set()
        self._in_turn: set[str] = set()

    # Variables.

    def assign(self, target: ast.expr, value: ast.expr) -> None:
        """Note what variables hold from now on."""
        match target, value:
            case ast.Name(id=name), _:
                value = self._of_earlier(name, value)
                size = self.size(value)
                self._variables[name] = Variable(
                    value=value,
                    source=self.source(value),
                    axes=self._axes(value),
                    made_of=_made_of(value),
                    size=size if isinstance(size, str) else None,
                    along=self.along(value),
                )
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self.assign(one, other)
            case ast.Tuple(elts=targets), _:
                self._assign_parts(targets, value)

    def _assign_parts(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        """Note what several variables hold: the axes of a shape, or parts of an input.

        Of ``torch.unique`` with more than numbers, the first has these.
        """
        if called(value) == "unique" and isinstance(value, ast.Call):
            first = ast.Call(value.func, value.args, [])
            self.assign(targets[0], ast.fix_missing_locations(ast.copy_location(first, value)))
            return
        parts, sizes = self._parts(value), self._sizes(value)
        held = [Variable(source=parts) for _ in targets] if parts else map(_size_of, sizes)
        for one, variable in zip(targets, held, strict=False):
            if isinstance(one, ast.Name):
                self._variables[one.id] = variable

    def _parts(self, node: ast.expr) -> Source | None:
        """The input whose elements each of several tensors has, as of ``x.unbind(-1)``."""
        match node:
            case ast.Call(func=ast.Attribute(value=of, attr="unbind")):
                return self._some(of)
            case ast.Name():  # its rows, as of the two ends of each edge
                return self._some(node)
        return None

    def _sizes(self, node: ast.expr) -> Axes:
        """The axes of ``x.shape``, or from the first one of ``x.shape[1:3]`` on; else nothing."""
        match node:
            case ast.Subscript(value=whole, slice=ast.Slice(lower=lower, step=None)):
                first = 0 if lower is None else constant(lower)
                return self._sizes(whole)[first:] if isinstance(first, int) else ()
            case ast.Attribute(value=tensor, attr="shape"):
                source = self.source(tensor)
                return (source and source.axes) or ()
        return ()

    def _of_earlier(self, name: str, value: ast.expr) -> ast.expr:
        """A value in which what the variable held until now goes by a name of its own."""
        mentions = [each for each in ast.walk(value) if isinstance(each, ast.Name)]
        if name not in {each.id for each in mentions}:
            return value
        earlier = f"{name}'{len(self._variables)}"
        if name in self._variables:
            self._variables[earlier] = self._variables[name]
        for names in (self._counters, self._in_turn):
            if name in names:
                names.add(earlier)
        copy = deepcopy(value)
        for each in ast.walk(copy):
            if isinstance(each, ast.Name) and each.id == name:
                each.id = earlier
        return copy

    def assign_in_turn(self, target: ast.expr, iterated: ast.expr) -> None:
        """Note what the variables of a loop hold."""
        match iterated, target:
            case ast.Call(func=ast.Name(id="reversed"), args=[forwards]), _:
                iterated = forwards
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner]), ast.Tuple(
                elts=[_, ast.Tuple() as rest]
            ):
                self.assign_in_turn(rest, inner)
            case ast.Call(func=ast.Name(id="zip"), args=parts), ast.Tuple(elts=targets):
                for one, part in zip(targets, parts, strict=False):
                    self.assign_in_turn(one, part)
                return
        first, last = target, target
        if isinstance(target, ast.Tuple):
            first, last = target.elts[0], target.elts[-1]
            self._assign_places(first, iterated)
        self.assign(last, iterated)
        self._drop_first(last)
        self._in_turn |= {each.id for each in ast.walk(target) if isinstance(each, ast.Name)}
        called = iterated.func if isinstance(iterated, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("range", "enumerate"):
            self._counters |= {first.id} if isinstance(first, ast.Name) else set()

    def _assign_places(self, target: ast.expr, iterated: ast.expr) -> None:
        """Note that the first variable of a loop over ``enumerate(x)`` holds its places."""
        match iterated:
            case ast.Call(func=ast.Name(id="enumerate"), args=[inner], keywords=[]):
                match inner:
                    case ast.Call(func=ast.Attribute(value=value, attr="tolist")):
                        inner = value
                length = ast.Call(func=ast.Name(id="len"), args=[inner], keywords=[])
                self.assign(target, ast.Call(func=ast.Name(id="range"), args=[length], keywords=[]))

    def _drop_first(self, node: ast.expr) -> None:
        """Leave out the first axis of what a variable holds, which is one row after another."""
        held = self._variable(node.id) if isinstance(node, ast.Name) else Variable()
        if isinstance(node, ast.Name) and held.source and held.source.axes:
            row = Source(held.source.input, held.source.axes[1:])
            self._variables[node.id] = replace(held, source=row, axes=None)

    @contextmanager
    def own_variables(self) -> Iterator[None]:
        """What is assigned meanwhile is forgotten afterwards, as what a comprehension names."""
        kept = dict(self._variables), set(self._counters), set(self._in_turn)
        yield
        self._variables, self._counters, self._in_turn = kept

    @contextmanager
    def scalars_kept(self) -> Iterator[None]:
        """What is assigned meanwhile to a scalar input's own name it holds no longer afterwards."""
        scalars = {
            name: held
            for name, held in self._variables.items()
            if held.source and self._inputs[held.source.input].is_scalar and held.value is None
        }
        yield
        self._variables |= scalars

    def is_variable(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self._variables

    def calculation(self, node: ast.expr | None) -> ast.expr | None:
        """What a variable was calculated by, if it holds no input's elements."""
        if not isinstance(node, ast.Name):
            return None
        variable = self._variable(node.id)
        return variable.value if variable.source is None else None

    def value_of(self, node: ast.expr) -> ast.expr | None:
        """What a variable was calculated by, also if it holds an input's elements."""
        return self._variable(node.id).value if isinstance(node, ast.Name) else None

    def _variable(self, name: str) -> Variable:
        return self._variables.get(name, Variable())

    # Which input.

    def source(self, node: ast.expr | None) -> Source | None:
        """The input whose elements an expression holds."""
        match node:
            case ast.Name(id=name):
                return self._variable(name).source
            case ast.Subscript(value=value):
                return self._some(value, self._dropped(node))
            case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
                return self._some(one) or self._some(other)
        return None if node is None else self._source_of_call(node)

    def _source_of_call(self, node: ast.expr) -> Source | None:
        """The same of methods and functions that give elements on."""
        if called(node) == "unique" and isinstance(node, ast.Call):
            more = {each.arg for each in node.keywords if constant(each.value) is not False}
            if more - {"sorted"}:
                return None  # several tensors, most of other numbers
        match node:
            case ast.Attribute(value=value, attr="T" | "mT"):
                return self._some(value)
            case ast.Call(func=ast.Attribute(ast.Name(id="torch"), attr), args=[one, *_]):
                return self._some(one) if attr in _SOME | _CHANGED else None
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _SAME | _CHANGED:
                return self.source(value)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _SOME:
                return self._some(value)
        return self._source_in_python(node)

    def _source_in_python(self, node: ast.expr) -> Source | None:
        """The same of single numbers and lists."""
        match node:
            case ast.Call(
                func=ast.Name(id="int" | "float" | "enumerate" | "list"), args=[value, *_]
            ):
                return self._some(value)
            case ast.Call(func=ast.Name(id="min"), args=[one, other]):  # of a length and a size
                return self._some(one) or self._some(other)
            case ast.BinOp(left=ast.List(), op=ast.Add(), right=value) | (
                ast.BinOp(left=value, op=ast.Add(), right=ast.List())
            ):
                return self._some(value)
        return None

    def _some(self, node: ast.expr, dropped: int | None = None) -> Source | None:
        """The same without its axes, or without the first few where it is known how many."""
        source = self.source(node)
        if source is None or source.axes is None or dropped is None:
            return None if source is None else Source(source.input, None)
        return Source(source.input, source.axes[dropped:])

    def _dropped(self, node: ast.expr) -> int | None:
        """How many dimensions single numbers between brackets leave out; None if there is more."""
        if not isinstance(node, ast.Subscript):
            return 0
        parts = parts_of(node)
        return len(parts) if all(map(self._is_single, parts)) else None

    def _is_single(self, part: ast.expr) -> bool:
        """Whether it is a number, as a variable is that counts."""
        is_counter = isinstance(part, ast.Name) and part.id in self._counters
        return is_counter or isinstance(constant(part), int)

    def integer(self, node: ast.expr | None) -> str | None:
        """The integer input that an expression holds elements of."""
        source = self.source(node)
        if source is None or "int" not in self._inputs[source.input].dtype.value:
            return None
        return source.input

    def is_part(self, node: ast.expr) -> bool:
        """Whether an expression holds one of an input's rows, as ``index[b]``."""
        source = self.source(node)
        if source is None or source.axes is None:
            return False
        return len(source.axes) < len(self._inputs[source.input].shape or ())

    def floats(self, node: ast.expr) -> set[str]:
        """The floating tensor that an expression holds elements of, if it is one."""
        source = self.source(node)
        spec = self._inputs[source.input] if source else None
        is_tensor = spec is not None and spec.dtype.is_floating and not spec.is_scalar
        return {source.input} if source and is_tensor else set()

    def has_tensor(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether any tensor is in an expression, or in what its variables are calculated from."""
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        variables = [self._variable(name) for name in names]
        tensors = {each.source.input for each in variables if each.source} - {
            name for name, spec in self._inputs.items() if spec.is_scalar
        }
        values = [each.value for each in variables if each.value is not None]
        return bool(tensors) or any(
            depth == 0 or self.has_tensor(value, depth - 1) for value in values
        )

    def may_be_one(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression may hold one element of an input rather than all."""
        for each in ast.walk(node):
            match each:
                case ast.Name(id=name) if value := self._variable(name).value:
                    if depth == 0 or name in self._in_turn:
                        return True
                    if self.may_be_one(value, depth - 1):
                        return True
                case ast.Call(func=ast.Name(id="int") | ast.Attribute(attr="item")):
                    return True
                case ast.Subscript() if self._dropped(each):
                    return True
        return False

    def is_as_given(self, index: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an index is an input's elements, none of which are others than were given."""
        match index:
            case ast.Name(id=name):
                value = self._variable(name).value
                return value is None or (depth > 0 and self.is_as_given(value, depth - 1))
            case ast.Subscript(value=value):
                return self.is_as_given(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return attr in _SAME | _SOME and self.is_as_given(value, depth)
        return False

    def are_bits(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression only moves what is a view of integers as floating numbers."""
        match node:
            case ast.Name(id=name) if depth and (value := self._variable(name).value):
                return self.are_bits(value, depth - 1)
            case ast.Subscript(value=value):
                return self.are_bits(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr="view"), args=[dtype]) if (
                ast.unparse(dtype) in _FLOATING_DTYPES
            ):
                return self._has_bits(value)
            case ast.Call(func=ast.Attribute(attr="where"), args=[_, *sides]):
                bits = [self.are_bits(each, depth) for each in sides]
                # What is beside them is an input that is cast, which has but one right result.
                others = [each for each, are in zip(sides, bits, strict=True) if not are]
                return any(bits) and all(map(self._is_cast, others))
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return attr in MOVES | TO_FLOATING and self.are_bits(value, depth)
        return False

    def _is_cast(self, node: ast.expr) -> bool:
        """Whether an expression is of an input's elements, whatever their dtype becomes."""
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in TO_FLOATING:
                return self._is_cast(value)
        return self.source(node) is not None

    def _has_bits(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether integers are put together bit by bit in an expression."""
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        values = [value for name in names if (value := self._variable(name).value)]
        return any(isinstance(getattr(each, "op", None), _BITWISE) for each in ast.walk(node)) or (
            depth > 0 and any(self._has_bits(value, depth - 1) for value in values)
        )

    # Which axes.

    def size(self, node: ast.expr) -> str | int | None:
        """A number, or the axis whose size an expression is."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return self._variable(name).size
            case ast.Call(func=ast.Name(id="len"), args=[tensor]):
                source = self.source(tensor)
                return source.axes[0] if source and source.axes else None
            case ast.Call(func=ast.Attribute(value=tensor, attr="numel"), args=[]):
                source = self.source(tensor)
                axes = (source and source.axes) or ()
                return axes[0] if len(axes) == 1 else None
            case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=dim) | (
                ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[dim])
            ):
                shape, at = self._axes(tensor), constant(dim)
                if shape and isinstance(at, int) and -len(shape) <= at < len(shape):
                    return None if shape[at] in (ONE, OTHER) else shape[at]
        return None

    def factors(self, node: ast.expr) -> list[str | int]:
        """The sizes of which an expression is the product, in order; none if it is no such."""
        if (size := self.size(node)) is not None:
            return [size]
        match self.calculation(node) or node:
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                one, other = self.factors(left), self.factors(right)
                return one + other if one and other else []
        return []

    def factors_along(self, tensor: ast.expr, dim: int) -> list[str | int]:
        """The same of a dimension of a tensor that is made here, or that is made flat."""
        tensor = self.value_of(tensor) or tensor
        shape = _made_of(tensor)
        if -len(shape) <= dim < len(shape):
            return self.factors(shape[dim])
        match tensor:
            case ast.Call(func=ast.Attribute(value=whole, attr="view" | "reshape"), args=[end]) if (
                constant(end) == -1
            ):
                axes = self._joined(self._axes(whole), ()) or ()
            case _:
                axes = self._axes(tensor) or ()
        known = axes[dim] if -len(axes) <= dim < len(axes) else OTHER
        if known in (ONE, OTHER):
            return []
        return [int(size) if size.isdecimal() else size for size in known.split(" * ")]

    def size_of_made(self, tensor: ast.expr, dim: int) -> tuple[str, int | None] | None:
        """What a tensor made here is as long as, and how many numbers it has besides.

        That is an axis, or a number.
        """
        match tensor:
            case ast.Name(id=name):
                shape = self._variable(name).made_of
            case _:
                shape = _made_of(tensor)
        size = shape[dim] if -len(shape) <= dim < len(shape) else None
        more = None
        if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Add):
            number, size = constant(size.right), size.left
            more = number if isinstance(number, int) and number > 0 else None
            if more is None:
                return None
        length = None if size is None else self.size(size)
        return (str(length), more) if length else None

    def along(self, node: ast.expr) -> str | None:
        """The axis along which an expression has all places, one after the other.

        Or how many places there are, where that is a number.
        """
        match node:
            case ast.Name(id=name):
                return self._variable(name).along
            case ast.Subscript(value=value, slice=ast.Slice(lower=None, upper=end, step=None)) if (
                end is not None and self._is_arange(value)
            ):
                size_of = self.size(end)
                return None if size_of is None else str(size_of)
            case ast.Subscript(value=value):
                return self.along(value)
            case ast.Call(func=ast.Attribute(attr="arange") | ast.Name(id="range"), args=arguments):
                return self._along_range(arguments)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _SAME | _SHAPED:
                return self.along(value)
        return None

    def _along_range(self, arguments: Sequence[ast.expr]) -> str | None:
        """The same of a range, from its arguments; it may fall from the last place to the first."""
        match arguments:
            case [ast.BinOp(left=size, op=ast.Sub(), right=ast.Constant(value=1)), last, step] if (
                constant(last),
                constant(step),
            ) == (-1, -1):
                may_be_step = False
            case [*first, size]:
                may_be_step = isinstance(self.size(size), int) and bool(first)
            case _:
                return None
        size_of = self.size(size)
        return None if size_of is None or may_be_step else str(size_of)

    def _is_arange(self, node: ast.expr) -> bool:
        """Whether it is an ``arange``, or a variable that was assigned one."""
        node = self.calculation(node) or node
        return called(node) == "arange"

    def axis(self, tensor: ast.expr, dim: int, index: str, *, is_put: bool = False) -> str | None:
        """The axis of a dimension that an input indexes: of an input, or else of all outputs.

        An output's that the input has itself says nothing, unless elements are put there: what
        else is indexed need not be as long.
        """
        known, dropped = self._axes(tensor), self._dropped(tensor)
        known = known if known is not None else self._axes_of_a_side(tensor)
        if known is not None:
            own = known[dim] if -len(known) <= dim < len(known) else OTHER
            return None if own in (ONE, OTHER) else own
        is_joined = called(self.value_of(tensor) or tensor) in ("cat", "concat", "stack")
        if dropped is None or is_joined or self.source(tensor) is not None:
            return None
        outputs = [tuple(spec.shape or ())[dropped:] for spec in self._outputs.values()]
        axes = {shape[dim] for shape in outputs if -len(shape) <= dim < len(shape)}
        axis = axes.pop() if len(axes) == 1 else None
        is_own = axis in (self._inputs[index].shape or ())
        return None if is_own and not is_put else axis

    def _axes_of_a_side(self, tensor: ast.expr) -> Axes | None:
        """The axes of the side of a calculation that are known, where the other's aren't."""
        most = max((len(spec.shape or ()) for spec in self._outputs.values()), default=0)
        match self.value_of(tensor) or tensor:
            case ast.BinOp(left=left, op=op, right=right) if not isinstance(op, ast.MatMult):
                axes = self._axes(left) or self._axes(right) or ()
                return axes if len(axes) >= most else None  # a bias says nothing of rows
        return None

    def has_axes(self, tensor: ast.expr) -> bool:
        """Whether the axes of a tensor are known, which need not be those of any output."""
        return self._axes(tensor) is not None

    def _axes(self, node: ast.expr) -> Axes | None:
        """The axes of a tensor that is an input, some of it, or calculated from inputs."""
        source = self.source(node)
        if source is not None and source.axes is not None:
            return source.axes
        match node:
            case ast.Name(id=name):
                return self._variable(name).axes
            case ast.UnaryOp(operand=operand):
                return self._axes(operand)
            case ast.BinOp() | ast.Compare(comparators=[_]):
                return self._axes_of_calculation(node)
            case ast.Subscript():
                return self._axes_of_some(node)
        return self._axes_of_call(node)

    def _axes_of_calculation(self, node: ast.BinOp | ast.Compare) -> Axes | None:
        if isinstance(node, ast.Compare):
            return _broadcast(self._axes_or_none(node.left), self._axes_or_none(*node.comparators))
        if not isinstance(node.op, ast.MatMult):
            return _broadcast(self._axes_or_none(node.left), self._axes_or_none(node.right))
        one, other = self._axes(node.left), self._axes(node.right)
        if not one or not other or not 2 <= len(other) <= max(len(one), 2):
            return None
        return (*one[:-1], other[-1])

    def _axes_of_call(self, node: ast.expr) -> Axes | None:
        match node:
            case ast.Attribute(value=value, attr="T"):
                return (self._axes(value) or ())[::-1] or None
            case ast.Call(func=ast.Attribute(attr="einsum" | "bincount")):
                return self._axes_of_made(node)
            case ast.Call(func=ast.Attribute(ast.Name(id="torch" | "F"), attr), args=[one, *_]):
                is_like = attr.endswith("_like") or attr in _ELEMENTWISE
                return self._axes(one) if is_like else None
            case ast.Call(func=ast.Attribute(value=value, attr="flatten" | "view" | "reshape")):
                return self._axes_of_reshaped(node, value)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return self._axes(value) if attr in _ELEMENTWISE | _SAME else None
        return None

    def _axes_of_made(self, node: ast.Call) -> Axes | None:
        match node:
            case ast.Call(args=[ast.Constant(str(how)), *parts]):
                return self._axes_of_einsum(how, parts)
            case ast.Call(keywords=[ast.keyword("minlength", n)]):
                size = self.size(n)
                return None if size is None else (str(size),)
        return None

    def _axes_of_einsum(self, how: str, operands: Sequence[ast.expr]) -> Axes | None:
        """The axes of the output of ``torch.einsum``, whose letters are those of its operands."""
        letters, arrow, output = how.replace(" ", "").partition("->")
        parts = letters.split(",")
        if not arrow or "." in how or len(parts) != len(operands):
            return None
        known: dict[str, str] = {}
        for letter, axis in chain.from_iterable(
            zip(part, self._axes(operand) or (), strict=False)
            for part, operand in zip(parts, operands, strict=True)
        ):
            known.setdefault(letter, axis)
        return tuple(known.get(letter, OTHER) for letter in output)

    def _axes_of_reshaped(self, call: ast.Call, whole: ast.expr) -> Axes | None:
        """The axes where ``flatten`` joins some, or ``view(-1, ...)`` all but the last ones."""
        if called(call) == "flatten":
            ends = [constant(end) for end in call.args]
            return None if call.keywords else self._joined(self._axes(whole), ends)
        match call.args:
            case [first, *last] if constant(first) == -1:
                return self._with_first_joined(whole, last)
        return None

    def _with_first_joined(self, whole: ast.expr, last: Sequence[ast.expr]) -> Axes | None:
        """The axes of ``x.view(-1, x.shape[-1])``: all but the last ones, which stay, are one."""
        axes = self._axes(whole) or ()
        if not 0 < len(last) < len(axes):
            return None
        sizes = [size for size in map(self.size, last) if size]
        are_kept = self.are_equal(sizes, axes[-len(last) :])
        return self._joined(axes, [0, len(axes) - len(last) - 1]) if are_kept else None

    def are_equal(self, sizes: Sequence[str | int], others: Sequence[str | int]) -> bool:
        """Whether sizes are the same, by their axes or by the numbers that these are."""
        one, other = (
            [str(self._equal_sizes.get(size, size)) for size in each] for each in (sizes, others)
        )
        return one == other

    def _joined(self, axes: Axes | None, ends: Sequence[object]) -> Axes | None:
        """The axes where those from the first to the last of ``ends`` are one, of their product."""
        defaults: list[object] = [0, -1]
        first, last = [*ends, *defaults[len(ends) :]]
        if axes is None or not (isinstance(first, int) and isinstance(last, int)):
            return None
        first, last = first % max(len(axes), 1), last % max(len(axes), 1)
        some = axes[first : last + 1]
        whole = OTHER if {ONE, OTHER} & {*some} else " * ".join(some)
        return (*axes[:first], whole, *axes[last + 1 :])

    def _axes_or_none(self, node: ast.expr) -> Axes | None:
        """The same, of a number none."""
        source = self.source(node)
        is_scalar = source is not None and self._inputs[source.input].is_scalar
        return () if is_scalar or isinstance(constant(node), int | float) else self._axes(node)

    def _axes_of_some(self, node: ast.Subscript) -> Axes | None:
        """The axes of what an index picks of a tensor; None where it picks by several tensors."""
        left = self._axes(node.value)
        parts = parts_of(node)
        axes: list[str] = []
        for part in parts:
            if isinstance(part, ast.Constant) and part.value is None:
                axes.append(ONE)
                continue
            if not left:
                return None
            if isinstance(part, ast.Slice):
                axes.append(_axis_of_slice(part, left[0]))
            elif not self._is_single(part):
                picked = self._axes(part) if len(parts) == 1 else None
                if picked is None:
                    return None
                axes += picked
            left = left[1:]
        return None if left is None else (*axes, *left)


def _size_of(axis: str) -> Variable:
    return Variable(size=axis)


def parts_of(node: ast.Subscript) -> list[ast.expr]:
    """What is between the brackets, one for each dimension."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def called(node: ast.AST) -> str | None:
    """The name of a method, or of a function of a module."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else None


def constant(node: ast.expr) -> object:
    """The value of a literal; None of anything else."""
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def _axis_of_slice(part: ast.Slice, axis: str) -> str:
    """The axis that is left of one: it, where all is taken."""
    if part.lower is part.upper is part.step is None:
        return axis
    return ONE if part.lower is None and part.upper and constant(part.upper) == 1 else OTHER


def _broadcast(one: Axes | None, other: Axes | None) -> Axes | None:
    """The axes of what is calculated from two tensors, an element of one with one of the other."""
    if one is None or other is None:
        return None
    n = max(len(one), len(other))
    pairs = zip((ONE,) * (n - len(one)) + one, (ONE,) * (n - len(other)) + other, strict=True)
    return tuple(_common(*pair) for pair in pairs)


def _common(one: str, other: str) -> str:
    """The axis of two that broadcast: what isn't known is as long as the other, or of size 1."""
    if one == other or ONE in (one, other):
        return other if one == ONE else one
    return OTHER if OTHER not in (one, other) else other if one == OTHER else one


def _sizes_of(listed: ast.expr) -> tuple[ast.expr, ...]:
    """The sizes of a list, perhaps of lists, that is written out."""
    if not isinstance(listed, ast.List) or not listed.elts:
        return ()
    if any(isinstance(each, ast.Starred) for each in listed.elts):
        return ()
    return (ast.Constant(len(listed.elts)), *_sizes_of(listed.elts[0]))


def _made_of(node: ast.expr) -> tuple[ast.expr, ...]:
    """The sizes of a tensor, or a list, that is made of sizes; none of any other expression."""
    match node:
        case (
            ast.ListComp(
                generators=[ast.comprehension(iter=ast.Call(ast.Name(id="range"), [n]), ifs=[])]
            )
            | ast.BinOp(left=ast.List(elts=[_]), op=ast.Mult(), right=n)
        ):
            return (n,)
        case ast.Call(args=[ast.List() as listed, *_]) if called(node) in ("tensor", "as_tensor"):
            return _sizes_of(listed)
    if not isinstance(node, ast.Call) or (called(node) or "").removeprefix("new_") not in _MADE:
        return ()
    first = node.args[0] if node.args else None
    return tuple(first.elts if isinstance(first, ast.Tuple | ast.List) else node.args)
