"""Reads from the source of a reference what it does with its inputs; nothing is run.

An integer that a tensor is indexed with is below the size of an axis; one whose elements a tensor
is cut at is an offset; what stands under a root or in a logarithm is not negative; what is divided
by is not zero, unless the reference looks for that.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from pytest_fib.workloads._inlining import inlined_run
from pytest_fib.workloads._reference_numbers import LIKE, SHAPES, calculated_with

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec

#: Methods and functions that keep every element where it is, and those that keep some of them.
_SAME = {"float", "double", "to", "long", "int", "clone", "contiguous", "type", "cpu"}
_SOME = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as"}
_SOME |= {"item", "tolist", "unbind", "as_tensor", "reversed"}
#: Those that change elements, or which is where, and keep the axes.
_CHANGED = {"masked_fill", "clamp", "clamp_min", "roll", "flip"}
#: Those after which they hold other numbers, as many along every axis.
_ELEMENTWISE = {"abs", "bfloat16", "clip", "cumsum", "exp", "gelu", "half", "log", "log_softmax"}
_ELEMENTWISE |= {"logsigmoid", "nan_to_num", "neg", "normalize", "relu", "round", "rsqrt"}
_ELEMENTWISE |= {"sigmoid", "silu", "softmax", "softplus", "sqrt", "square", "tanh"}
#: Where the dimension and the index are among the arguments of what picks elements; of a method.
_PICKS = dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "scatter"), (0, 1))
_PICKS |= dict.fromkeys(("scatter_add", "scatter_reduce", "index_fill", "index_reduce"), (0, 1))
_PICKS["take_along_dim"] = (1, 0)
#: Of numbers that are not negative.
_ROOTS = {"sqrt", "rsqrt", "log", "log2", "log10"}
#: Of two numbers, the second of which is not zero; and what keeps a number from being that.
_QUOTIENTS = {"div", "divide", "true_divide"}
#: Functions of numbers and of how many there may be, as an argument of that name.
_CLASSES = {"one_hot": "num_classes", "bincount": "minlength"}
#: Methods and functions that put elements elsewhere, and leave each as it is; what has no elements.
_MOVES = {"clone", "contiguous", "to", "long", "int", "type", "cpu", "view", "reshape", "flatten"}
_MOVES |= {"unsqueeze", "squeeze", "expand", "expand_as", "gather", "index_select", "index_copy"}
_MOVES |= {"scatter", "take_along_dim", "repeat_interleave", "flip", "roll", "permute", "transpose"}
_MOVES |= {"masked_select", "stack", "cat", "unbind", "T", "mT"}
#: Functions, and methods with ``new_`` before them, that make tensors of sizes.
_MADE = {"empty", "full", "ones", "zeros"}
#: Those that put elements at places where others may be put as well: who comes last stays.
_PUTS = {"index_copy": 3, "scatter": 3}
#: Methods that make floating numbers of integers.
_FLOATING = {"float", "double", "half", "bfloat16"}
_FLOATING_DTYPES = {f"torch.{each}" for each in ("float32", "float16", "bfloat16", "float64")}
_BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
#: Functions of at least one element; what mends their results of none.
_OF_SOME = {"softmax", "log_softmax", "logsumexp", "mean", "amax", "amin", "max", "min", "argmax"}
_OF_SOME |= {"argmin", "std", "var", "median", "topk", "scaled_dot_product_attention", *_QUOTIENTS}
_MENDS = {"nan_to_num"}
_LIMITS = {"clamp", "clamp_min", "clip", "maximum", "masked_fill", "nan_to_num"}


@dataclass
class ReferenceUses:
    """What is known of inputs, by name: axes that they pick from, or that they cut into sequences.

    Or of which they are lengths. ``spare`` has how many numbers above an axis pick as well, in a
    tensor that the reference makes a little longer; by what is ``placed`` elements are put
    somewhere all at once, so that two in one place are in no order. ``shifted`` are taken apart bit
    by bit; ``positive``, under a root or in a logarithm; ``divisors`` are divided by; ``limited``
    are compared with something, or clamped; ``added`` are terms of sums, or attention's masks;
    ``factors``, of products; ``pads`` are values below 0 that they are compared with; ``numbers``,
    integers that become floating ones; ``limits`` has the numbers that they are compared with; of
    ``offsets`` the differences of neighbours are taken; ``equated`` are compared with inputs;
    ``counted`` are subtracted from; ``calls`` has methods and functions, and ``div`` for ``/``;
    ``computed``, all that is not only moved or equated, and ``seen``, all that is used.
    Numbers are raised to the power of ``exponents``. ``calculated`` are only calculated with, so
    that no place or size depends on them, and ``bitwise`` taken apart by bits; sines or cosines are
    taken of ``angles``, running sums of ``summed``. ``bits`` has outputs, and whether they are bits
    that integers hold, viewed as floating numbers.
    """

    picks: dict[str, str | int] = field(default_factory=dict)
    spare: dict[str, int] = field(default_factory=dict)
    placed: set[str] = field(default_factory=set)
    cuts: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, str] = field(default_factory=dict)
    shifted: set[str] = field(default_factory=set)
    offsets: set[str] = field(default_factory=set)
    equated: set[str] = field(default_factory=set)
    exponents: set[str] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    calls: set[str] = field(default_factory=set)
    positive: set[str] = field(default_factory=set)
    divisors: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    factors: set[str] = field(default_factory=set)
    pads: dict[str, int] = field(default_factory=dict)
    limits: dict[str, set[float]] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    calculated: set[str] = field(default_factory=set)
    bitwise: set[str] = field(default_factory=set)
    angles: set[str] = field(default_factory=set)
    summed: set[str] = field(default_factory=set)
    bits: dict[str, bool] = field(default_factory=dict)

    @classmethod
    def of(cls, definition: Definition) -> ReferenceUses:
        """As far as the source can be read."""
        inputs, outputs = tuple(definition.inputs.items()), tuple(definition.outputs.items())
        return _read(definition.reference, inputs, outputs)

    def takes_nothing(self, lengths: str) -> bool:
        """Whether the reference seems to be defined if one of these lengths is 0."""
        needs_some = self.calls & _OF_SOME or lengths in self.counted
        return lengths in self.seen and (bool(self.calls & _MENDS) or not needs_some)


_Specs = tuple[tuple[str, "TensorSpec"], ...]


@lru_cache(maxsize=64)  # each input asks
def _read(reference: str, inputs: _Specs, outputs: _Specs) -> ReferenceUses:
    uses = ReferenceUses()
    try:
        module = ast.parse(reference)
    except SyntaxError:
        return uses  # it is seen where the reference is loaded
    if run := inlined_run(module):
        arguments = [each.arg for each in run.args.args]
        _Reader(dict(inputs), dict(outputs), uses, arguments).visit(run)
        uses.calculated, uses.bitwise, uses.angles, uses.summed = calculated_with(run)
    return uses


#: The input whose elements an expression holds, and its axes: None where these are others.
_Found = tuple[str, "tuple[str, ...] | None"]
#: The axes of an expression; ``ONE`` where a dimension is put in, and ``OTHER`` where it has
#: another size than any axis.
_Axes = tuple[str, ...]
ONE, OTHER = "1", "?"
_Noted = TypeVar("_Noted")


class _Reader(ast.NodeVisitor):
    """Reads ``run`` from top to bottom. ``_names`` has what variables hold of which input.

    ``_sizes`` has variables that are sizes of axes, ``_places`` those that go through all places
    along one, ``_counters`` those that are single numbers, ``_in_turn`` what loops give one by one;
    ``_shapes`` has the sizes of those that are tensors made of sizes.
    """

    def __init__(
        self,
        inputs: Mapping[str, TensorSpec],
        outputs: Mapping[str, TensorSpec],
        uses: ReferenceUses,
        arguments: list[str],
    ) -> None:
        self._inputs, self._outputs = inputs, outputs
        self._uses = uses
        self._names: dict[str, _Found | None] = {
            argument: (name, tuple(inputs[name].shape or ()))
            for argument, name in zip(arguments, inputs, strict=False)
        }
        self._values: dict[str, ast.expr] = {}
        self._axes_of: dict[str, _Axes | None] = {}
        self._shapes: dict[str, list[ast.expr]] = {}
        self._sizes: dict[str, str] = {}
        self._places: dict[str, str] = {}
        self._counters: set[str] = set()
        self._in_turn: set[str] = set()
        self._parents: dict[ast.AST, ast.AST] = {}

    # What an expression is.

    def _input(self, node: ast.expr | None) -> _Found | None:
        match node:
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Subscript(value=value):
                return self._some(value, self._dropped(node))
            case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
                return self._some(one) or self._some(other)
        return self._of_a_call(node)

    def _of_a_call(self, node: ast.expr | None) -> _Found | None:
        """The same of methods and functions that give elements on."""
        match node:
            case ast.Attribute(value=value, attr="T" | "mT"):
                return self._some(value)
            case ast.Call(func=ast.Attribute(ast.Name(id="torch"), attr), args=[one, *_]):
                return self._some(one) if attr in _SOME | _CHANGED else None
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _SAME | _CHANGED:
                return self._input(value)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _SOME:
                return self._some(value)
            case ast.Call(func=ast.Name(id="int" | "enumerate" | "list"), args=[value, *_]):
                return self._some(value)
        return None

    def _some(self, node: ast.expr, dropped: int | None = None) -> _Found | None:
        """The same without its axes, or without the first few where it is known how many."""
        source = self._input(node)
        if source is None or source[1] is None or dropped is None:
            return None if source is None else (source[0], None)
        return source[0], source[1][dropped:]

    def _dropped(self, node: ast.expr) -> int | None:
        """How many dimensions single numbers between brackets leave out; None if there is more."""
        if not isinstance(node, ast.Subscript):
            return 0
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return len(parts) if all(map(self._is_single, parts)) else None

    def _is_single(self, part: ast.expr) -> bool:
        """Whether it is a number, as a variable is that counts."""
        is_counter = isinstance(part, ast.Name) and part.id in self._counters
        return is_counter or isinstance(_constant(part), int)

    def _index(self, node: ast.expr | None) -> str | None:
        """The integer input that an expression holds elements of."""
        source = self._input(node)
        if source is None or "int" not in self._inputs[source[0]].dtype.value:
            return None
        return source[0]

    def _axis(self, node: ast.expr, dim: int, index: str) -> str | None:
        """The axis of a tensor's dimension: of an input or, if it is none, of all outputs."""
        known, dropped = self._axes(node), self._dropped(node)
        if known is not None:
            own = known[dim] if -len(known) <= dim < len(known) else OTHER
            return None if own in (ONE, OTHER) else own
        if dropped is None or self._input(node) is not None:
            return None
        outputs = [tuple(spec.shape or ())[dropped:] for spec in self._outputs.values()]
        axes = {shape[dim] for shape in outputs if -len(shape) <= dim < len(shape)}
        axis = axes.pop() if len(axes) == 1 else None
        return None if axis in (self._inputs[index].shape or ()) else axis

    def _axes(self, node: ast.expr) -> _Axes | None:
        """The axes of a tensor that is an input, some of it, or calculated from inputs."""
        source = self._input(node)
        if source is not None and source[1] is not None:
            return source[1]
        match node:
            case ast.Name(id=name):
                return self._axes_of.get(name)
            case ast.BinOp() | ast.UnaryOp():
                return self._axes_of_calculation(node)
            case ast.Subscript(value=value, slice=index):
                return self._axes_of_some(value, index)
            case ast.Attribute() | ast.Call():
                return self._axes_of_a_call(node)
        return None

    def _axes_of_calculation(self, node: ast.BinOp | ast.UnaryOp) -> _Axes | None:
        if isinstance(node, ast.UnaryOp):
            return self._axes(node.operand)
        if not isinstance(node.op, ast.MatMult):
            return _broadcast(self._axes_or_none(node.left), self._axes_or_none(node.right))
        one, other = self._axes(node.left), self._axes(node.right)
        return (*one[:-1], other[1]) if one and other and len(other) == 2 else None

    def _axes_of_a_call(self, node: ast.Attribute | ast.Call) -> _Axes | None:
        match node:
            case ast.Attribute(value=value, attr="T"):
                return (self._axes(value) or ())[::-1] or None
            case ast.Call(func=ast.Attribute(ast.Name(id="torch" | "F"), attr), args=[one, *_]):
                return self._axes(one) if attr in _ELEMENTWISE else None
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return self._axes(value) if attr in _ELEMENTWISE | _SAME else None
        return None

    def _axes_or_none(self, node: ast.expr) -> _Axes | None:
        """The same, of a number none."""
        source = self._input(node)
        is_scalar = source is not None and self._inputs[source[0]].is_scalar
        return () if is_scalar or isinstance(_constant(node), int | float) else self._axes(node)

    def _axes_of_some(self, tensor: ast.expr, index: ast.expr) -> _Axes | None:
        """The axes of what an index picks of a tensor; None where it picks by several tensors."""
        left = self._axes(tensor)
        parts = index.elts if isinstance(index, ast.Tuple) else [index]
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

    def _not_negative(self, node: ast.expr, depth: int = 8) -> None:
        """Note the inputs that a number under a root is a sum of."""
        if depth == 0:
            return
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                self._not_negative(left, depth - 1)
                self._not_negative(right, depth - 1)
            case ast.BinOp(left=ast.Constant(), right=right, op=ast.Sub()):
                self._not_negative(right, depth - 1)  # 1 less what is between 0 and 1
            case ast.BinOp(left=left, right=right, op=ast.Mult() | ast.Div()):
                sides = [side for side in (left, right) if self._is_tensor(side)]
                if len(sides) == 1:
                    self._not_negative(sides[0], depth - 1)
            case ast.Name(id=name) if self._names.get(name) is None and name in self._values:
                self._not_negative(self._values[name], depth - 1)
            case _:
                self._uses.positive |= self._floats(node)

    def _not_zero(self, node: ast.expr) -> None:
        """Note the inputs that a divisor is, or is a product of."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                self._not_zero(left)
                self._not_zero(right)
            case ast.BinOp(left=operand, op=ast.Pow()) | ast.UnaryOp(operand=operand):
                self._not_zero(operand)
            case _:
                self._uses.divisors |= self._floats(node)

    def _floats(self, node: ast.expr) -> set[str]:
        """The floating tensor that an expression holds elements of, if it is one."""
        source = self._input(node)
        spec = self._inputs[source[0]] if source else None
        is_tensor = spec is not None and spec.dtype.is_floating and not spec.is_scalar
        return {source[0]} if source and is_tensor else set()

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether any tensor is in an expression."""
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        sources = [self._names.get(name) for name in names]
        tensors = {each[0] for each in sources if each} - {
            name for name, spec in self._inputs.items() if spec.is_scalar
        }
        return bool(tensors) or any(name in self._values for name in names)

    # What is done with it.

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)
            if isinstance(target, ast.Subscript):
                self._place(target, node.value)

    def _place(self, target: ast.Subscript, value: ast.expr) -> None:
        """Note what alone says where several elements are put that need not be the same."""
        parts = target.slice.elts if isinstance(target.slice, ast.Tuple) else [target.slice]
        said = [
            each
            for each in parts
            if not isinstance(each, ast.Slice) and not isinstance(_constant(each), int)
        ]
        if len(said) == 1:
            self._puts(said[0], value)

    def _puts(self, index: ast.expr, value: ast.expr) -> None:
        name = self._index(index)
        if name is not None and _constant(value) is None and not self._is_one(index):
            self._uses.placed.add(name)

    def _is_one(self, node: ast.expr, depth: int = 8) -> bool:
        """Whether an expression may hold one element of an input rather than all."""
        for each in ast.walk(node):
            match each:
                case ast.Name(id=name) if name in self._values:
                    if depth == 0 or name in self._in_turn:
                        return True
                    if self._is_one(self._values[name], depth - 1):
                        return True
                case ast.Call(func=ast.Name(id="int") | ast.Attribute(attr="item")):
                    return True
                case ast.Subscript() if self._dropped(each):
                    return True
        return False

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                value = self._of_earlier(name, value)
                self._axes_of[name] = self._axes(value)
                self._names[name] = self._input(value)
                self._values[name] = value
                self._shapes[name] = _made_shape(value)
                _note(self._sizes, name, self._size(value))
                _note(self._places, name, self._along(value))
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self._assign(one, other)
            case ast.Tuple(elts=targets), ast.Attribute(value=tensor, attr="shape"):
                source = self._input(tensor)
                for one, axis in zip(targets, (source and source[1]) or (), strict=False):
                    if isinstance(one, ast.Name):
                        _note(self._sizes, one.id, axis)

    def _of_earlier(self, name: str, value: ast.expr) -> ast.expr:
        """A value in which what the variable held until now goes by a name of its own."""
        mentions = [each for each in ast.walk(value) if isinstance(each, ast.Name)]
        if name not in {each.id for each in mentions}:
            return value
        earlier = f"{name}'{len(self._names)}"
        _rename(self._names, name, earlier)
        _rename(self._values, name, earlier)
        _rename(self._axes_of, name, earlier)
        _rename(self._shapes, name, earlier)
        _rename(self._sizes, name, earlier)
        _rename(self._places, name, earlier)
        for names in (self._counters, self._in_turn):
            if name in names:
                names.add(earlier)
        copy = deepcopy(value)
        for each in ast.walk(copy):
            if isinstance(each, ast.Name) and each.id == name:
                each.id = earlier
        return copy

    def visit_For(self, node: ast.For) -> None:
        first, last = node.target, node.target
        if isinstance(node.target, ast.Tuple):
            first, last = node.target.elts[0], node.target.elts[-1]
        self._assign(last, node.iter)
        self._in_turn |= {each.id for each in ast.walk(node.target) if isinstance(each, ast.Name)}
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        if isinstance(called, ast.Name) and called.id in ("range", "enumerate"):
            self._counters |= {first.id} if isinstance(first, ast.Name) else set()
        self.generic_visit(node)

    def _along(self, node: ast.expr) -> str | None:
        """The axis along which an expression has all places, one after the other."""
        match node:
            case ast.Name(id=name):
                return self._places.get(name)
            case ast.Subscript(value=value):
                return self._along(value)
            case ast.Call(func=ast.Attribute(attr="arange"), args=[*_, size]) | (
                ast.Call(func=ast.Name(id="range"), args=[*_, size])
            ):
                size_of = self._size(size)
                return size_of if isinstance(size_of, str) else None
        return None

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(parts[0], ast.Constant) and parts[0].value is ...:
            self._picks_at_the_end(node.value, parts[1:])
        for dim, part in enumerate(parts):
            if isinstance(part, ast.Constant) and part.value in (None, ...):
                return  # the dimensions behind are others
            if not isinstance(part, ast.Slice):
                self._picks_from(node.value, dim, part)
                continue
            first, last = self._index(part.lower), self._index(part.upper)
            if last is not None and (first == last or self._ends_at(part)):
                noted = self._uses.cuts if first else self._uses.lengths
                if axis := self._axis(node.value, dim, last):
                    noted.setdefault(last, axis)

    def _ends_at(self, part: ast.Slice) -> bool:
        """Whether the upper end is a length: elements are counted from the first, or back from it.

        As in ``[:n]``, ``[1:n]`` and ``[max(0, n - 16):n]``.
        """
        lower, upper = part.lower, part.upper
        if isinstance(lower, ast.Name) and self._names.get(lower.id) is None:
            lower = self._values.get(lower.id, lower)
        if lower is None or upper is None or isinstance(_constant(lower), int):
            return upper is not None
        parts = [ast.unparse(each) for each in ast.walk(lower) if isinstance(each, ast.expr)]
        return self._index(lower) is None and ast.unparse(upper) in parts

    def _picks_at_the_end(self, tensor: ast.expr, parts: list[ast.expr]) -> None:
        """The same behind an ellipsis, where dimensions are counted from the last one."""
        if not any(isinstance(each, ast.Constant) and each.value is None for each in parts):
            for dim, part in enumerate(parts, -len(parts)):
                self._picks_from(tensor, dim, part)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return
        name, arguments = node.func.attr.removesuffix("_"), list(node.args)
        self._uses.calls.add(name)
        is_function = isinstance(node.func.value, ast.Name) and (
            node.func.value.id not in self._names
        )
        if not is_function and not isinstance(node.func.value, ast.Attribute):
            arguments.insert(0, node.func.value)
        self._compute(name, arguments)
        self._converted(name, arguments)
        if name in _CLASSES:
            self._classes(name, arguments, node.keywords)
        if name == "embedding" and len(arguments) == 2:
            self._picks_from(arguments[1], 0, arguments[0])
        elif name in _PICKS and len(arguments) > 2:
            dim, index = (arguments[1 + place] for place in _PICKS[name])
            if len(arguments) > _PUTS.get(name, len(arguments)):
                self._puts(index, arguments[_PUTS[name]])
            if isinstance(number := _constant(dim), int):
                self._picks_from(arguments[0], number, index)

    def _compute(self, name: str, arguments: list[ast.expr]) -> None:
        """Note which numbers a function is computed of."""
        if name in _ROOTS and arguments:
            self._not_negative(arguments[0])
        elif name in _QUOTIENTS and len(arguments) > 1:
            self._not_zero(arguments[1])
        elif name in _LIMITS and arguments:
            self._uses.limited |= self._floats(arguments[0])

    def _classes(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        """Note numbers below how many there are."""
        given = [each.value for each in keywords if each.arg == _CLASSES[name]] or arguments[1:2]
        index = self._index(arguments[0]) if arguments else None
        if index and given and (below := self._size(given[0])):
            self._uses.picks.setdefault(index, below)

    def _converted(self, name: str, arguments: list[ast.expr]) -> None:
        """Note integers that become floating numbers; numbers are no indices."""
        to_float = name == "to" and any(
            word in ast.unparse(each) for each in arguments[1:] for word in ("float", ".dtype")
        )
        if (name in _FLOATING or to_float) and arguments and (index := self._index(arguments[0])):
            self._uses.numbers.add(index)

    def _size(self, node: ast.expr) -> str | int | None:
        """A number, or the axis whose size an expression is."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Name(id=name):
                return self._sizes.get(name)
            case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=dim) | (
                ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[dim])
            ):
                source, at = self._input(tensor), _constant(dim)
                shape = source[1] if source else None
                if shape and isinstance(at, int) and -len(shape) <= at < len(shape):
                    return shape[at]
        return None

    def _picks_from(self, tensor: ast.expr, dim: int, index: ast.expr) -> None:
        match index:
            case ast.BinOp(left=whole, op=ast.FloorDiv(), right=ast.Constant(value=int(size))):
                return self._picks_parts(tensor, dim, whole, size)
            case ast.BinOp(left=whole, op=ast.RShift(), right=ast.Constant(value=int(bits))):
                return self._picks_parts(tensor, dim, whole, 2**bits)
        name = self._index(index)
        if name is None:
            return None
        axis, more = self._axis(tensor, dim, name), None
        if isinstance(tensor, ast.Name) and self._is_as_given(index):
            axis, more = self._size_of_made(tensor.id, dim) or (axis, None)
        if axis is not None:
            self._uses.picks.setdefault(name, axis)
        if more:
            self._uses.spare.setdefault(name, more)
        return None

    def _picks_parts(self, tensor: ast.expr, dim: int, whole: ast.expr, size: int) -> None:
        """Note a number whose quotient is an index: a place in blocks of ``size``."""
        name = self._index(whole)
        axis = None if name is None else self._axis(tensor, dim, name)
        if name is not None and axis is not None:
            self._uses.picks.setdefault(name, f"{axis} * {size}")

    def _size_of_made(self, name: str, dim: int) -> tuple[str, int | None] | None:
        """The axis that a tensor made here is as long as, and how many numbers it has besides."""
        shape = self._shapes.get(name, [])
        size = shape[dim] if -len(shape) <= dim < len(shape) else None
        more = None
        if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Add):
            number, size = _constant(size.right), size.left
            more = number if isinstance(number, int) and number > 0 else None
            if more is None:
                return None
        axis = None if size is None else self._size(size)
        return (axis, more) if isinstance(axis, str) else None

    def _is_as_given(self, index: ast.expr, depth: int = 8) -> bool:
        """Whether an index is an input's elements, none of which are others than were given."""
        match index:
            case ast.Name(id=name):
                value = self._values.get(name)
                return value is None or (depth > 0 and self._is_as_given(value, depth - 1))
            case ast.Subscript(value=value):
                return self._is_as_given(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                return attr in _SAME | _SOME and self._is_as_given(value, depth)
        return False

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.RShift) and (name := self._index(node.left)):
            self._uses.shifted.add(name)
        if isinstance(node.op, ast.Pow) and isinstance(_constant(node.right), float):
            self._not_negative(node.left)
        if isinstance(node.op, ast.Pow) and not self._is_tensor(node.left):
            self._uses.exponents |= {name} if (name := self._index(node.right)) else set()
        if isinstance(node.op, ast.Sub) and (name := self._index(node.left)):
            self._uses.counted.add(name)
        if isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
            self._uses.calls |= set() if _called(node.right) in _LIMITS else {"div"}
        if isinstance(node.op, ast.Sub) and (name := self._neighbours(node.left, node.right)):
            self._uses.offsets.add(name)
        self._combined(node.op, node.left, node.right)

    def _neighbours(self, left: ast.expr, right: ast.expr) -> str | None:
        """The integer input of which ``x[1:] - x[:-1]`` takes the differences."""
        match left, right:
            case ast.Subscript(value=one, slice=after), ast.Subscript(value=other, slice=before):
                slices = (ast.unparse(after), ast.unparse(before))
                name = self._index(one)
                return name if slices == ("1:", ":-1") and name == self._index(other) else None
        return None

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._combined(node.op, node.value)
        if isinstance(node.target, ast.Subscript):
            self._place(node.target, node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.generic_visit(node)
        if node.arg == "attn_mask":
            self._combined(ast.Add(), node.value)

    def _combined(self, operation: ast.operator, *operands: ast.expr) -> None:
        """Note which inputs are terms of a sum, and which are factors."""
        names = {source[0] for operand in operands if (source := self._input(operand))}
        if isinstance(operation, ast.Add):
            self._uses.added |= names
        elif isinstance(operation, ast.Mult):
            self._uses.factors |= names
        elif isinstance(operation, ast.Div):
            self._not_zero(operands[-1])

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        self._uses.limited |= self._floats(node.left)
        self._reaches(node.left, node.ops[0], node.comparators[0])
        self._uses.equated |= self._equated(node)
        self._note_limits(node)
        name, number = self._index(node.left), _constant(node.comparators[0])
        if name is None or not isinstance(number, int):
            return
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and number < 0:
            self._uses.pads[name] = number
        elif isinstance(node.ops[0], (ast.GtE, ast.Lt)) and number == 0:
            self._uses.pads[name] = -1

    def _note_limits(self, node: ast.Compare) -> None:
        """Note the numbers that inputs are held against, on either side."""
        for one, other in pairwise((node.left, *node.comparators)):
            for side, limit in ((one, _constant(other)), (other, _constant(one))):
                if isinstance(limit, (int, float)) and (source := self._input(side)):
                    self._uses.limits.setdefault(source[0], set()).add(limit)

    def _equated(self, node: ast.Compare) -> set[str]:
        """Integer inputs that are asked whether they equal each other, or themselves elsewhere."""
        sides = [self._index(each) for each in (node.left, *node.comparators)]
        alike = all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops)
        return {name for name in sides if name} if alike and None not in sides else set()

    def _reaches(self, left: ast.expr, operation: ast.cmpop, right: ast.expr) -> None:
        """Note what places along an axis are compared with: how many count, or the last one."""
        axis, other = self._along(left), right
        excludes = isinstance(operation, ast.Lt | ast.GtE)
        if axis is None:
            axis, other = self._along(right), left
            excludes = isinstance(operation, ast.Gt | ast.LtE)
        name = self._index(other)
        if axis is None or name is None or isinstance(operation, ast.Eq | ast.NotEq):
            return
        if axis not in (self._inputs[name].shape or ()):
            noted: dict[str, str] | dict[str, str | int]
            noted = self._uses.lengths if excludes else self._uses.picks
            noted.setdefault(name, axis)

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        held = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for name, value in zip(self._outputs, held, strict=False):
            noted = self._uses.bits
            noted[name] = noted.get(name, True) and value is not None and self._are_bits(value)

    def _are_bits(self, node: ast.expr, depth: int = 8) -> bool:
        """Whether an expression only moves what is a view of integers as floating numbers."""
        match node:
            case ast.Name(id=name) if depth and name in self._values:
                return self._are_bits(self._values[name], depth - 1)
            case ast.Subscript(value=value):
                return self._are_bits(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr="view"), args=[dtype]) if (
                ast.unparse(dtype) in _FLOATING_DTYPES
            ):
                return self._has_bits(value)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _MOVES | _FLOATING:
                return self._are_bits(value, depth)
        return False

    def _has_bits(self, node: ast.expr, depth: int = 8) -> bool:
        """Whether integers are put together bit by bit in an expression."""
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        values = [self._values[name] for name in names if name in self._values]
        return any(isinstance(getattr(each, "op", None), _BITWISE) for each in ast.walk(node)) or (
            depth > 0 and any(self._has_bits(value, depth - 1) for value in values)
        )

    def visit(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._parents[child] = node
        super().visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if name := self._index(node):
            self._uses.seen.add(name)
            if not self._moves(node):
                self._uses.computed.add(name)

    def _moves(self, node: ast.AST) -> bool:
        """Whether elements are only moved from where they are named to where they are kept."""
        parent = self._parents[node]
        match parent:
            case ast.Attribute(attr=attr):
                return attr in SHAPES or self._moves_by(parent)
            case ast.Call(func=ast.Attribute(attr=attr), args=[first, *_]):
                moved = node is not first if attr == "where" else first is node and attr in _MOVES
                return (first is node and attr in LIKE) or (moved and self._moves(parent))
            case ast.Compare():
                return bool(self._equated(parent))
            case ast.Subscript(value=value):
                return value is node and self._moves(parent)
            case ast.Tuple() | ast.List():
                return self._moves(parent)
        return isinstance(parent, ast.Return) or self._is_kept(parent)

    def _moves_by(self, method: ast.Attribute) -> bool:
        call = self._parents[method]
        is_called = isinstance(call, ast.Call) and call.func is method
        if method.attr == "view" and "torch." in ast.unparse(call):
            return False  # the same bits of another dtype
        return method.attr.removesuffix("_") in _MOVES and self._moves(
            call if is_called else method
        )

    def _is_kept(self, node: ast.AST) -> bool:
        """Whether it is put into a tensor, or gets a name under which it is known."""
        match node:
            case ast.Assign(targets=[ast.Subscript(), *_]):
                return True
            case ast.Assign(value=value):
                held = value.elts if isinstance(value, ast.Tuple) else [value]
                return all(self._input(each) is not None for each in held)
        return False


def _axis_of_slice(part: ast.Slice, axis: str) -> str:
    """The axis that is left of one: it, where all is taken."""
    if part.lower is part.upper is part.step is None:
        return axis
    return ONE if part.lower is None and part.upper and _constant(part.upper) == 1 else OTHER


def _broadcast(one: _Axes | None, other: _Axes | None) -> _Axes | None:
    """The axes of what is calculated from two tensors, an element of one with one of the other."""
    if one is None or other is None:
        return None
    n = max(len(one), len(other))
    pairs = zip((ONE,) * (n - len(one)) + one, (ONE,) * (n - len(other)) + other, strict=True)
    return tuple(a if b in (ONE, a) else b if a == ONE else OTHER for a, b in pairs)


def _made_shape(node: ast.expr) -> list[ast.expr]:
    """The sizes of a tensor that is made of sizes; empty for any other expression."""
    if not isinstance(node, ast.Call) or (_called(node) or "").removeprefix("new_") not in _MADE:
        return []
    first = node.args[0] if node.args else None
    return list(first.elts if isinstance(first, ast.Tuple | ast.List) else node.args)


def _called(node: ast.expr) -> str | None:
    """The name of a method, or of a function of a module."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else None


def _rename(noted: dict[str, _Noted], name: str, other: str) -> None:
    if name in noted:
        noted[other] = noted[name]


def _note(noted: dict[str, str], name: str, axis: str | int | None) -> None:
    """Note a variable's new meaning, which replaces the earlier one."""
    noted.pop(name, None)
    if isinstance(axis, str):
        noted[name] = axis


def _constant(node: ast.expr) -> object:
    """The value of a literal; None of anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
