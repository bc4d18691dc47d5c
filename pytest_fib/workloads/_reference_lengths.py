"""Which integers of a reference are lengths along axes, or offsets that it cuts these at."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from pytest_fib.workloads._reference_expressions import constant
from pytest_fib.workloads._reference_reading import Call, keyword

if TYPE_CHECKING:
    from pytest_fib.workloads._reference_reading import Reading

#: Functions of so many of the elements along a dimension.
_TAKES_SOME = {"topk", "kthvalue"}


class Lengths:
    """Notes where slices and ranges begin and end, and how many elements are taken."""

    def __init__(self, reading: Reading) -> None:
        self._uses, self._expressions = reading.uses, reading.expressions

    def note_slice(self, tensor: ast.expr, dim: int, part: ast.Slice) -> None:
        """Note the integers that a dimension of a tensor is cut at, and by which steps."""
        step = self._expressions.integer(part.step)
        self._uses.whole_divisors |= {step} if step else set()  # it isn't 0 either
        first, last = (self._expressions.integer(end) for end in (part.lower, part.upper))
        self._uses.sliced |= {each for each in (first, last) if each}
        if first is not None:
            self._note_room(tensor, dim, first, part)
        if last is not None and (first == last or self._ends_at(part)):
            noted = self._uses.cuts if first else self._uses.lengths
            if axis := self._expressions.axis(tensor, dim, last):
                noted.setdefault(last, axis)

    def _note_room(self, tensor: ast.expr, dim: int, first: str, part: ast.Slice) -> None:
        """Note from where on a tensor is cut by another one's size: ``cache[b, n : n + new]``."""
        upper = self._expressions.calculation(part.upper) or part.upper
        match upper:
            case ast.BinOp(left=begin, op=ast.Add(), right=size) if (
                self._expressions.integer(begin) == first
            ):
                axis = self._expressions.axis(tensor, dim, first)
                more = self._expressions.size(size)
                if axis is not None and more is not None:
                    self._uses.begins.setdefault(first, (axis, more))

    def _ends_at(self, part: ast.Slice) -> bool:
        """Whether the upper end is a length: elements are counted from the first, or back from it.

        As in ``[:n]``, ``[1:n]`` and ``[max(0, n - 16):n]``.
        """
        lower, upper = part.lower, part.upper
        lower = self._expressions.calculation(lower) or lower
        if lower is None or upper is None or isinstance(constant(lower), int):
            return upper is not None
        parts = [ast.unparse(each) for each in ast.walk(lower) if isinstance(each, ast.expr)]
        return self._expressions.integer(lower) is None and ast.unparse(upper) in parts

    def note_range(self, tensor: ast.expr, dim: int, index: ast.expr) -> None:
        """Note where a range ends whose numbers are indices: lengths, or the offsets of a part."""
        match self._expressions.calculation(index):
            case ast.Call(func=ast.Name(id="range"), args=[*first, end]) if len(first) < 2:
                begin = self._expressions.integer(first[0]) if first else None
                name = self._expressions.integer(end)
                axis = None if name is None else self._expressions.axis(tensor, dim, name)
                is_length = not first or constant(first[0]) == 0
                if name is not None and axis is not None and (is_length or begin == name):
                    noted = self._uses.lengths if is_length else self._uses.cuts
                    noted.setdefault(name, axis)

    def note_call(self, call: Call) -> None:
        """Note how many of an axis are taken, as by ``x.topk(k, dim=-1)``."""
        if call.name not in _TAKES_SOME:
            return
        arguments = [*keyword(call.node, "input"), *call.arguments]
        counts = keyword(call.node, "k") or arguments[1:2]
        dims = [constant(each) for each in keyword(call.node, "dim") or arguments[2:3]] or [-1]
        name = self._expressions.integer(counts[0]) if counts else None
        if name is None or not arguments or not isinstance(dims[0], int):
            return
        if axis := self._expressions.axis(arguments[0], dims[0], name):
            self._uses.lengths.setdefault(name, axis)
