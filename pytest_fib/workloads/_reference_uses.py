"""What a definition's reference does with its inputs, as its source says it; nothing is run.

An integer that a tensor is indexed with is below the size of an axis; one whose elements a tensor
is cut at is an offset; what stands under a root or in a logarithm is not negative; what is divided
by is not zero, unless the reference looks for that.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Definition

#: Methods and functions that keep every element where it is, and those that keep some of them.
_SAME = {"float", "double", "to", "long", "int", "clone", "contiguous", "type", "cpu"}
_SOME = {"view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as", "clamp"}
_SOME |= {"item", "tolist", "masked_fill", "unbind", "clamp_min", "as_tensor", "reversed"}
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
#: Methods that make floating numbers of integers.
_FLOATING = {"float", "double", "half", "bfloat16"}
_LIMITS = {"clamp", "clamp_min", "clip", "maximum", "masked_fill", "nan_to_num"}


@dataclass
class ReferenceUses:
    """What is known of inputs, by name: axes that they pick from, or that they cut into sequences.

    Or of which they are lengths. ``shifted`` are taken apart bit by bit; ``positive``, under a root
    or in a logarithm; ``divisors`` are divided by; ``limited`` are compared with something, or
    clamped; ``added`` are terms of sums, or attention's masks; ``factors``, of products; ``pads``
    are values below 0 that they are compared with; ``numbers``, integers that become floating ones.
    """

    picks: dict[str, str | int] = field(default_factory=dict)
    cuts: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, str] = field(default_factory=dict)
    shifted: set[str] = field(default_factory=set)
    positive: set[str] = field(default_factory=set)
    divisors: set[str] = field(default_factory=set)
    limited: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    factors: set[str] = field(default_factory=set)
    pads: dict[str, int] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, definition: Definition) -> ReferenceUses:
        """As far as the source can be read."""
        uses = cls()
        try:
            module = ast.parse(definition.reference)
        except SyntaxError:
            return uses  # it is seen where the reference is loaded
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name == "run":
                _Reader(definition, uses, [each.arg for each in node.args.args]).visit(node)
        return uses


class _Reader(ast.NodeVisitor):
    """Reads ``run`` from top to bottom. ``_names`` has what variables hold of which input."""

    def __init__(self, definition: Definition, uses: ReferenceUses, arguments: list[str]) -> None:
        self._definition = definition
        self._uses = uses
        self._names: dict[str, tuple[str, bool] | None] = {
            argument: (name, True)
            for argument, name in zip(arguments, definition.inputs, strict=False)
        }
        self._values: dict[str, ast.expr] = {}

    # What an expression is.

    def _input(self, node: ast.expr | None) -> tuple[str, bool] | None:
        """The input whose elements an expression holds, and whether it has the same shape."""
        match node:
            case ast.Name(id=name):
                return self._names.get(name)
            case ast.Subscript(value=value):
                return self._some(value)
            case ast.Call(func=ast.Attribute(attr="where"), args=[_, one, other]):
                return self._some(one) or self._some(other)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _SAME | _SOME:
                return self._input(value) if attr in _SAME else self._some(value)
            case ast.Call(func=ast.Name(id="int" | "enumerate" | "list"), args=[value, *_]):
                return self._some(value)
        return None

    def _some(self, node: ast.expr) -> tuple[str, bool] | None:
        found = self._input(node)
        return None if found is None else (found[0], False)

    def _index(self, node: ast.expr | None) -> str | None:
        """The integer input that an expression holds elements of."""
        found = self._input(node)
        if found is None or "int" not in self._definition.inputs[found[0]].dtype.value:
            return None
        return found[0]

    def _axis(self, node: ast.expr, dim: int, index: str) -> str | None:
        """The axis of a tensor's dimension: of an input or, if it is none, of all outputs."""
        found = self._input(node)
        if found is not None and not found[1]:
            return None
        specs = [self._definition.inputs[found[0]]] if found else self._definition.outputs.values()
        axes = {shape[dim] for spec in specs if -len(shape := spec.shape or ()) <= dim < len(shape)}
        own = self._definition.inputs[index].shape or ()
        axis = axes.pop() if len(axes) == 1 else None
        return None if found is None and axis in own else axis

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
        found = self._input(node)
        spec = self._definition.inputs[found[0]] if found else None
        is_tensor = spec is not None and spec.dtype.is_floating and not spec.is_scalar
        return {found[0]} if found and is_tensor else set()

    def _is_tensor(self, node: ast.expr) -> bool:
        """Whether any tensor is in an expression."""
        names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
        found = [self._names.get(name) for name in names]
        tensors = {each[0] for each in found if each} - {
            name for name, spec in self._definition.inputs.items() if spec.is_scalar
        }
        return bool(tensors) or any(name in self._values for name in names)

    # What is done with it.

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._assign(target, node.value)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Name(id=name), _:
                self._names[name] = self._input(value)
                self._values[name] = value
            case ast.Tuple(elts=targets), ast.Tuple(elts=values) if len(targets) == len(values):
                for one, other in zip(targets, values, strict=True):
                    self._assign(one, other)

    def visit_For(self, node: ast.For) -> None:
        last = node.target.elts[-1] if isinstance(node.target, ast.Tuple) else node.target
        self._assign(last, node.iter)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        for dim, part in enumerate(parts):
            if isinstance(part, ast.Constant) and part.value in (None, ...):
                return  # the dimensions behind are others
            if not isinstance(part, ast.Slice):
                self._picks_from(node.value, dim, part)
                continue
            first, last = self._index(part.lower), self._index(part.upper)
            if last is not None and first in (None, last) and (first or part.lower is None):
                noted = self._uses.cuts if first else self._uses.lengths
                if axis := self._axis(node.value, dim, last):
                    noted.setdefault(last, axis)

    def visit_Call(self, node: ast.Call) -> None:
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute):
            return
        name, arguments = node.func.attr.removesuffix("_"), list(node.args)
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
        if (name in _FLOATING or to_float) and (index := self._index(arguments[0])):
            self._uses.numbers.add(index)

    def _size(self, node: ast.expr) -> str | int | None:
        """A number, or the axis whose size an expression is."""
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.Subscript(value=ast.Attribute(value=tensor, attr="shape"), slice=dim) | (
                ast.Call(func=ast.Attribute(value=tensor, attr="size"), args=[dim])
            ):
                found, at = self._input(tensor), _constant(dim)
                shape = self._definition.inputs[found[0]].shape if found and found[1] else None
                if shape and isinstance(at, int) and -len(shape) <= at < len(shape):
                    return shape[at]
        return None

    def _picks_from(self, tensor: ast.expr, dim: int, index: ast.expr) -> None:
        name = self._index(index)
        if name is not None and (axis := self._axis(tensor, dim, name)):
            self._uses.picks.setdefault(name, axis)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.RShift) and (name := self._index(node.left)):
            self._uses.shifted.add(name)
        if isinstance(node.op, ast.Pow) and isinstance(_constant(node.right), float):
            self._not_negative(node.left)
        self._combined(node.op, node.left, node.right)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        self._combined(node.op, node.value)

    def visit_keyword(self, node: ast.keyword) -> None:
        self.generic_visit(node)
        if node.arg == "attn_mask":
            self._combined(ast.Add(), node.value)

    def _combined(self, operation: ast.operator, *operands: ast.expr) -> None:
        """Note which inputs are terms of a sum, and which are factors."""
        found = {found[0] for operand in operands if (found := self._input(operand))}
        if isinstance(operation, ast.Add):
            self._uses.added |= found
        elif isinstance(operation, ast.Mult):
            self._uses.factors |= found
        elif isinstance(operation, ast.Div):
            self._not_zero(operands[-1])

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        self._uses.limited |= self._floats(node.left)
        name, number = self._index(node.left), _constant(node.comparators[0])
        if name is None or not isinstance(number, int):
            return
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)) and number < 0:
            self._uses.pads[name] = number
        elif isinstance(node.ops[0], (ast.GtE, ast.Lt)) and number == 0:
            self._uses.pads[name] = -1


def _constant(node: ast.expr) -> object:
    """The value of a literal; None of anything else."""
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None
