"""Which axes the integers of a reference index: they are below these axes' sizes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import constant, parts_of
from pytest_fib.workloads._reference_reading import Call, keyword

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_bounds import Bounds
    from pytest_fib.workloads._reference_lengths import Lengths
    from pytest_fib.workloads._reference_reading import Reading

#: Where the dimension and the index are among the arguments of what picks elements; of a method.
_PICKS = dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "scatter"), (0, 1))
_PICKS |= dict.fromkeys(("scatter_add", "scatter_reduce", "index_fill", "index_reduce"), (0, 1))
_PICKS["take_along_dim"] = (1, 0)
#: Those that put elements at places where others may be put as well: who comes last stays. And
#: where these elements are among the arguments.
_PUTS = {"index_copy": 3, "scatter": 3}
#: Functions of numbers and of how many there may be, as an argument of that name.
_CLASSES = {"one_hot": "num_classes", "bincount": "minlength"}
#: Losses of logits, whose second dimension has the classes, and of classes.
_LOSSES_OF_CLASSES = {"cross_entropy", "nll_loss"}
#: Functions of indices and a table.
_TABLES = {"embedding", "embedding_bag"}


class Indices:
    """Notes what is indexed, and where elements are put."""

    def __init__(self, reading: Reading, lengths: Lengths, bounds: Bounds) -> None:
        self._reading, self._lengths, self._bounds = reading, lengths, bounds
        self._uses, self._expressions = reading.uses, reading.expressions
        #: Axes that indices may be along, if nothing says that they are along others.
        self._guessed: dict[str, str | int] = {}
        #: The axes that integers index as they are, in order.
        self._along: dict[str, dict[str | int, None]] = {}
        #: Those that index an axis in parts: the number of places there are; and the first axis
        #: that integers index otherwise, also if something is done with them before.
        self._in_parts: dict[str, str] = {}
        self._whole: dict[str, str | int] = {}

    def note_pick(
        self, tensor: ast.expr, dim: int, index: ast.expr, *, is_put: bool = False
    ) -> None:
        """Note which axis an index is below, of a tensor that elements are picked of, or put to."""
        match self._reading.moved_from(index):
            case ast.BinOp(left=whole, op=ast.FloorDiv(), right=divisor) if (
                size := self._expressions.size(divisor)
            ):
                self._note_parts(tensor, dim, whole, size)
                return
            case ast.BinOp(left=whole, op=ast.RShift(), right=ast.Constant(value=int(bits))):
                self._note_parts(tensor, dim, whole, 2**bits)
                return
        name = self._expressions.integer(index)
        for part in self._concatenated(index) if name is None else ():
            self.note_pick(tensor, dim, part)
        if name is None:
            self._lengths.note_range(tensor, dim, index)
            self._note_behind(tensor, dim, index)
            self._note_joined(index, self._expressions.factors_along(tensor, dim))
            return
        made = self._expressions.size_of_made(tensor, dim)
        axis, more = made or (self._expressions.axis(tensor, dim, name, is_put=is_put), None)
        if axis is not None:
            below = int(axis) if axis.isdecimal() else axis
            is_known = made is not None or self._expressions.has_axes(tensor)
            self._note_picked(name, below, index, is_known=is_known)
        if more and self._expressions.is_as_given(index):  # else it is where sentinels go
            self._uses.spare.setdefault(name, more)

    def _note_picked(self, name: str, axis: str | int, index: ast.expr, *, is_known: bool) -> None:
        (self._uses.picks if is_known else self._guessed).setdefault(name, axis)
        if is_known:
            self._whole.setdefault(name, axis)
        if is_known and self._expressions.is_as_given(index):
            self._along.setdefault(name, {})[axis] = None

    def note_picks_at_the_end(self, tensor: ast.expr, parts: list[ast.expr]) -> None:
        """Note the indices behind an ellipsis, where dimensions are counted from the last one."""
        if not any(isinstance(each, ast.Constant) and each.value is None for each in parts):
            for dim, part in enumerate(parts, -len(parts)):
                self.note_pick(tensor, dim, part)

    def _note_joined(self, index: ast.expr, sizes: Sequence[str | int]) -> None:
        """Note each index of those that are joined to one, as in ``row * columns + column``.

        That one is below the product of ``sizes``.
        """
        if name := self._expressions.integer(index):
            self._uses.picks.setdefault(name, _product(sizes))
            return
        whole = self._reading.moved_from(index)
        sides: list[tuple[ast.expr, ast.expr | None]] = [(whole, None)]
        if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.Add):
            sides = [(whole.left, whole.right), (whole.right, whole.left)]
        for outer, rest in sides:
            match self._reading.moved_from(outer):
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    for first, by in ((left, right), (right, left)):
                        last = self._expressions.factors(by)
                        end = sizes[-len(last) :]
                        if 0 < len(last) < len(sizes) and self._expressions.are_equal(last, end):
                            self._note_joined(first, sizes[: -len(last)])
                            if rest is not None:
                                self._note_joined(rest, last)
                            return

    def _note_behind(self, tensor: ast.expr, dim: int, index: ast.expr) -> None:
        """Note an index that is added to, as the 1 in ``indptr[i + 1]``."""
        match self._expressions.calculation(index) or index:
            case ast.BinOp(left=first, op=ast.Add(), right=right):
                name, more = self._expressions.integer(first), constant(right)
                axis = None if name is None else self._expressions.axis(tensor, dim, name)
                if name is not None and axis is not None and isinstance(more, int) and more > 0:
                    self._uses.behind[name] = axis, more

    def _concatenated(self, index: ast.expr) -> Sequence[ast.expr]:
        """What an index is joined of, as by ``torch.cat``; nothing of others."""
        match self._expressions.value_of(index) or index:
            case ast.Call(
                func=ast.Attribute(attr="cat" | "concat"),
                args=[ast.List(parts) | ast.Tuple(parts), *_],
            ):
                return parts
        return ()

    def _note_parts(self, tensor: ast.expr, dim: int, whole: ast.expr, size: int | str) -> None:
        """Note a number whose quotient is an index: a place in blocks of ``size``."""
        name = self._expressions.integer(whole)
        made = self._expressions.size_of_made(tensor, dim)
        axis = made[0] if made else name and self._expressions.axis(tensor, dim, name)
        if name is not None and axis is not None:
            self._in_parts[name] = f"{axis} * {size}"
            self._uses.picks.setdefault(name, self._in_parts[name])

    def note_put(self, target: ast.Subscript, value: ast.expr) -> None:
        """Note what alone says where several elements are put that need not be the same."""
        parts = parts_of(target)
        said = [
            each
            for each in parts
            if not isinstance(each, ast.Slice) and not isinstance(constant(each), int)
        ]
        if len(said) == 2 and (whole := self._whole_of(*said)) is not None:
            said = [whole]
        if len(said) == 1:
            self._note_placed(said[0], value, at_once=True)

    def _whole_of(self, quotient: ast.expr, rest: ast.expr) -> ast.expr | None:
        """The number that a place in blocks is of, as in ``cache[slots // 16, slots % 16]``."""
        both = [self._expressions.calculation(each) or each for each in (quotient, rest)]
        match both:
            case [
                ast.BinOp(left=whole, op=ast.FloorDiv(), right=size),
                ast.BinOp(left=same, op=ast.Mod(), right=same_size),
            ]:
                pairs = ((whole, same), (size, same_size))
                alike = all(ast.unparse(one) == ast.unparse(other) for one, other in pairs)
                return whole if alike else None
        return None

    def _note_placed(self, index: ast.expr, value: ast.expr, *, at_once: bool = False) -> None:
        name = self._expressions.integer(index)
        if name is None or constant(value) is not None or self._expressions.may_be_one(index):
            return
        self._uses.placed.add(name)
        if at_once and not self._expressions.is_part(index):
            self._uses.placed_at_once.add(name)

    def note_call(self, call: Call) -> None:
        """Note what a function looks up, puts at places, or takes as numbers of classes."""
        name, arguments = call.name, call.arguments
        if name in _CLASSES:
            self._note_classes(call)
        elif name in _LOSSES_OF_CLASSES and len(arguments) > 1:
            self.note_pick(arguments[0], 1, arguments[1])
            self._note_ignored(call)
        elif name in _TABLES and len(arguments) > 1:
            self.note_pick(arguments[1], 0, arguments[0])
        elif name in _PICKS and len(arguments) > 2:
            self._note_picks_by(call)
        elif name == "index_put":
            self._note_index_put(call)

    def _note_picks_by(self, call: Call) -> None:
        """Note what a function picks along a dimension, or where along it it puts elements."""
        name, arguments = call.name, call.arguments
        dim, index = (arguments[1 + place] for place in _PICKS[name])
        if len(arguments) > _PUTS.get(name, len(arguments)):
            self._note_placed(index, arguments[_PUTS[name]])
        if isinstance(number := constant(dim), int):
            self.note_pick(arguments[0], number, index)

    def _note_index_put(self, call: Call) -> None:
        """Note indices as those of an assignment: ``y.index_put((rows, columns), values)``."""
        match call.arguments:
            case [tensor, ast.Tuple(elts=indices) | ast.List(elts=indices), values, *more]:
                adds = any(constant(each) for each in (*more, *keyword(call.node, "accumulate")))
                place = ast.Subscript(tensor, ast.Tuple(indices, ast.Load()), ast.Store())
                for dim, index in enumerate(indices):
                    self.note_pick(tensor, dim, index, is_put=True)
                if not adds:
                    self.note_put(place, values)

    def _note_classes(self, call: Call) -> None:
        """Note numbers below how many there are."""
        arguments = call.arguments
        given = keyword(call.node, _CLASSES[call.name]) or arguments[1:2]
        index = self._expressions.integer(arguments[0]) if arguments else None
        if index and given and (below := self._expressions.size(given[0])):
            self._uses.picks.setdefault(index, below)
        elif given and arguments and (sizes := self._expressions.factors(given[0])):
            self._note_joined(arguments[0], sizes)

    def _note_ignored(self, loss: Call) -> None:
        """Note the class that a loss leaves out."""
        name = self._expressions.integer(loss.arguments[1])
        for number in map(constant, keyword(loss.node, "ignore_index")):
            if name is not None and isinstance(number, int):
                self._uses.equals.setdefault(name, set()).add(number)

    def finish(self) -> None:
        """Note what only all that is indexed tells: several axes, what is beyond, and guesses."""
        self._uses.picks |= self._picks_of_several()
        self._note_beyond()
        self._uses.guessed_picks = {*self._guessed} - {*self._uses.picks}
        self._uses.picks = {**self._guessed, **self._uses.picks}

    def _note_beyond(self) -> None:
        """Note indices that may be beyond their axis, since the reference asks and takes others."""
        for name, axis in self._bounds.asked_for_more.items():
            if self._uses.picks.get(name) == axis and name not in self._along:
                self._uses.beyond.setdefault(name, axis)

    def _picks_of_several(self) -> dict[str, str | int]:
        """Indices along several axes, or parts of them as one column of each pair: below each."""
        picks: dict[str, str | int] = {}
        several_of = {name: [*axes] for name, axes in self._along.items()}
        for name, parts in self._in_parts.items():
            if name in self._whole:
                several_of[name] = [*several_of.get(name, [self._whole[name]]), parts]
        for name, axes in several_of.items():
            several = dict.fromkeys(axes)
            if len(several) > 1 and name not in self._bounds.held | self._uses.capped:
                picks[name] = f"min({', '.join(map(str, several))})"
        return picks


def _product(sizes: Sequence[str | int]) -> str | int:
    numbers = [size for size in sizes if isinstance(size, int)]
    return prod(numbers) if len(numbers) == len(sizes) else " * ".join(map(str, sizes))
