"""Reads from the source of a reference what it does with its inputs; nothing is run.

An integer that a tensor is indexed with is below the size of an axis; one whose elements a tensor
is cut at is an offset; what stands under a root or in a logarithm is not negative; what is divided
by is not zero, unless the reference looks for that.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import inf, isnan, nan, prod
from operator import ne
from typing import TYPE_CHECKING, Any

from pytest_fib.workloads._constraints import COMPARE
from pytest_fib.workloads._copied_inputs import NOT_FINITE, copied_inputs
from pytest_fib.workloads._folding import folded, with_constants
from pytest_fib.workloads._inlining import inlined_run
from pytest_fib.workloads._reference_expressions import (
    DEPTH,
    MOVES,
    TO_FLOATING,
    Expressions,
    called,
    constant,
    parts_of,
)
from pytest_fib.workloads._reference_numbers import LIKE, SHAPES, calculated_with, views_bits
from pytest_fib.workloads._scalar_uses import ScalarUses, uses_of_scalars
from pytest_fib.workloads._special_values import is_lse

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec

#: Where the dimension and the index are among the arguments of what picks elements; of a method.
_PICKS = dict.fromkeys(("gather", "index_select", "index_add", "index_copy", "scatter"), (0, 1))
_PICKS |= dict.fromkeys(("scatter_add", "scatter_reduce", "index_fill", "index_reduce"), (0, 1))
_PICKS["take_along_dim"] = (1, 0)
#: Those that put elements at places where others may be put as well: who comes last stays. And
#: where these elements are among the arguments.
_PUTS = {"index_copy": 3, "scatter": 3}
#: Of numbers that are not negative.
_ROOTS = {"sqrt", "rsqrt", "log", "log2", "log10"}
#: Of numbers that are added where these are multiplied.
_POWERS = {"exp", "exp2"}
#: Of two numbers, the second of which is not zero.
_QUOTIENTS = {"div", "divide", "true_divide"}
_REMAINDERS = {"floor_divide", "remainder", "fmod"}
_DIVISIONS = {"normalize", "reciprocal", *_QUOTIENTS}
#: What is below it and added is an epsilon.
EPSILON = 1e-3
#: What keeps a number from being zero or infinite.
_LIMITS = {"clamp", "clamp_min", "clip", "maximum", "masked_fill", "nan_to_num"}
#: Functions of numbers and of how many there may be, as an argument of that name.
_CLASSES = {"one_hot": "num_classes", "bincount": "minlength"}
#: Losses of logits, whose second dimension has the classes, and of classes.
_LOSSES_OF_CLASSES = {"cross_entropy", "nll_loss"}
#: Functions of so many of the elements along a dimension.
_TAKES_SOME = {"topk", "kthvalue"}
#: Functions of indices and a table.
_TABLES = {"embedding", "embedding_bag"}
#: Functions of at least one element; what mends their results of none.
_OF_SOME = {"softmax", "log_softmax", "logsumexp", "mean", "amax", "amin", "max", "min", "argmax"}
_OF_SOME |= {"argmin", "std", "var", "median", "topk", "kthvalue"}
_OF_SOME |= {"scaled_dot_product_attention", *_QUOTIENTS}
#: Infinities, and the large numbers that are written instead of them.
_FAR = re.compile(r"\binf\b|\bfinfo\b|\d[eE]\+?\d")
#: Whether a tensor or a list has elements at all.
_ASKS_FOR_ANY = re.compile(
    r"\bif ([\w.]+\.numel\(\)|len\(\w+\))( (>|!=) 0)?:"
    r"|\bif ([\w.]+\.numel\(\)|len\(\w+\)|\w*len(gth)?|n) (==|<=|<) [012]:\s*(continue|return)\b"
)
_SUMS = {"mean", "norm", "sum", "vector_norm"}
#: What shares are left by that are put in order and added up.
_OF_SHARES = {"cumsum", "float", "sort"}
_EXTREMES = {"amax", "amin", "max", "min", "argmax", "argmin", "maximum", "minimum"}
_MENDS, _JOINS = {"nan_to_num"}, {"cat", "concat"}
#: To the nearest whole number.
_ROUNDINGS = {"round"}
#: Functions that put elements in their order.
SORTING = {"sort", "argsort", "msort", "topk", "kthvalue", "unique"}
#: Functions that compare elements with numbers, or with others.
_COMPARISONS = {"ge", "gt", "le", "lt", "eq", "ne", "greater", "greater_equal", "less"}
_COMPARISONS |= {"less_equal", "not_equal", "threshold", "bucketize", "searchsorted"}
#: How infinities are written.
_INFINITIES = {"float('-inf')": -inf, "float('inf')": inf}
_INFINITIES |= {f"{module}.inf": inf for module in ("math", "torch", "np", "numpy")}
_INFINITIES |= {f"-{word}": -inf for word, number in [*_INFINITIES.items()] if number == inf}
#: Names of what is looked up.
_TABLE = re.compile(r"(.*_)?(weights?|tables?|embed(?!s(_|$))\w*|bias|cos|sin|lut|codebook)(_.*)?")
#: Names of steps of an optimiser.
_STEP = re.compile(r"t|(.*_)?steps?")
#: Functions that tell which elements are equal.
_UNIQUE = {"unique", "unique_consecutive"}
#: Functions that count.
_COUNTS = {"sum", "count_nonzero"}
#: Functions that tell which elements are among others.
_AMONG = {"isin"}
#: Where a mask is among the arguments, and what is put where it is true, or false.
_MASKED = {"masked_fill": (1, 2), "where": (0, 1, 2)}
#: Functions that search among elements in order, and where these are among the arguments.
_SEARCHED = {"searchsorted": 0, "bucketize": 1}
#: Functions of logits, some of which count for much more than others.
_WEIGHING = {"softmax", "log_softmax", "logsumexp", "cross_entropy"}
#: Functions of infinities that kernels may give otherwise than the reference.
_NOT_OF_INFINITIES = _WEIGHING | {"exp", "exp2", "mean", "sum"}
#: Functions that put what is among their arguments, but for the first, into a tensor.
_FILLS = {"where", "full", "full_like", "new_full", "masked_fill"}
#: What keeps numbers below others, or above, which are the argument of that place or name.
_CLAMPS = {"clamp": 2, "clip": 2, "clamp_max": 1}
_CLAMPS_BELOW = {"clamp": 1, "clip": 1, "clamp_min": 1}


@dataclass(frozen=True)
class LeftOut:
    """When a reference does not use a tensor: if a scalar compares so with a number."""

    scalar: str
    compare: Callable[[Any, Any], bool]
    number: float
    result: bool

    def applies(self, value: Any) -> bool:
        """Whether the tensor is left out, where the scalar is that."""
        return bool(self.compare(value, self.number)) is self.result


@dataclass
class ReferenceUses:
    """What a reference does with its inputs, by their names."""

    #: Integers that index an axis, or numbers below a constant.
    picks: dict[str, str | int] = field(default_factory=dict)
    #: Integers of which all places along an axis are taken.
    less_places: dict[str, str] = field(default_factory=dict)
    #: Those of which the axis is a guess: that of the outputs.
    guessed_picks: set[str] = field(default_factory=set)
    #: How many numbers above that axis are indices as well, since the reference makes its tensor
    #: longer by so many.
    spare: dict[str, int] = field(default_factory=dict)
    #: By how much more the same axis is indexed as well, as that of offsets.
    behind: dict[str, tuple[str, int]] = field(default_factory=dict)
    #: Indices of places that elements are put at all at once: two in one place are in no order.
    placed: set[str] = field(default_factory=set)
    #: Of these, what does so as a whole, and not row by row.
    placed_at_once: set[str] = field(default_factory=set)
    #: Integers from which on an axis is cut, and by how many elements: a number, or an axis' size.
    begins: dict[str, tuple[str, str | int]] = field(default_factory=dict)
    #: Integers by which others are shifted; those of which only is asked whether they are true.
    shifts: set[str] = field(default_factory=set)
    more_than_true: set[str] = field(default_factory=set)
    #: Integers of which more is taken than their upper or lower 32 bits.
    more_than_halves: set[str] = field(default_factory=set)
    #: Floating tensors that are subtracted from 1 under a root or in a logarithm.
    shares_of_one: set[str] = field(default_factory=set)
    #: Offsets at which an axis is cut into sequences.
    cuts: dict[str, str] = field(default_factory=dict)
    #: Lengths along an axis.
    lengths: dict[str, str] = field(default_factory=dict)
    #: Integers at which something is cut off.
    sliced: set[str] = field(default_factory=set)
    #: Integers that the reference clamps to the size of an axis: they may be beyond it.
    beyond: dict[str, str] = field(default_factory=dict)
    #: Those, and the ones that it clamps to the last place of an axis.
    capped: set[str] = field(default_factory=set)
    #: Of axes: the whole numbers by which it divides their sizes, and which rests then leave none.
    multiples: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    #: Integers whose neighbours are subtracted from each other.
    offsets: set[str] = field(default_factory=set)
    #: Integers that are shifted to the right, so that several numbers are in one.
    shifted: set[str] = field(default_factory=set)
    #: The axes whose places are subtracted from integers, or these from them.
    spans: dict[str, str] = field(default_factory=dict)
    #: Inputs for which a number is put where they are infinite or NaN, or which the reference asks
    #: whether all of a row are, so that a row may be all that.
    replaced: set[str] = field(default_factory=set)
    #: The same for which an infinity is put, as in a minimum of what counts.
    made_infinite: set[str] = field(default_factory=set)
    #: Integers that are compared with inputs, by ``==`` or ``!=``.
    equated: set[str] = field(default_factory=set)
    #: Integers that numbers are raised to the power of, and single ones that are raised to one.
    exponents: set[str] = field(default_factory=set)
    #: Integers that something is subtracted from; and scalars that are subtracted from others.
    counted: set[str] = field(default_factory=set)
    taken: dict[str, str] = field(default_factory=dict)
    #: Integers that become floating numbers.
    numbers: set[str] = field(default_factory=set)
    #: The value below 0 that integers are compared with: padding.
    pads: dict[str, int] = field(default_factory=dict)
    #: The numbers that integers are asked whether they equal.
    equals: dict[str, set[int]] = field(default_factory=dict)
    #: Integers that are used; and those that are not only moved or equated.
    seen: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    #: Of those, the ones of which more is asked than whether they equal a number.
    beyond_equality: set[str] = field(default_factory=set)
    #: Inputs that are only calculated with, so that no place or size depends on them; combined bit
    #: by bit, or sorted; that sines or cosines are taken of; and running sums.
    calculated: set[str] = field(default_factory=set)
    any_bits: set[str] = field(default_factory=set)
    angles: set[str] = field(default_factory=set)
    summed: set[str] = field(default_factory=set)
    #: The axes along which places are compared with running sums of integers.
    running: dict[str, str] = field(default_factory=dict)
    #: Floating tensors under a root or in a logarithm.
    positive: set[str] = field(default_factory=set)
    #: Floating tensors that a number is raised to the power of, and whether that is then negated.
    raised: dict[str, bool] = field(default_factory=dict)
    #: Floating tensors that are divided by.
    divisors: set[str] = field(default_factory=set)
    #: Integers that are divided by; and those of which a least is.
    whole_divisors: set[str] = field(default_factory=set)
    clamped_divisors: set[str] = field(default_factory=set)
    #: Floating tensors that are compared with something, or clamped; and those with a most.
    limited: set[str] = field(default_factory=set)
    clamped: set[str] = field(default_factory=set)
    #: Scalars that something is clamped to, the most that it may be; and the least.
    most: set[str] = field(default_factory=set)
    least: set[str] = field(default_factory=set)
    scalars: ScalarUses = field(default_factory=ScalarUses)
    #: The numbers that inputs are compared with.
    limits: dict[str, set[float]] = field(default_factory=dict)
    #: The infinities and NaN that the reference asks for whether inputs' elements are these; all
    #: of them where it only moves elements, whatever these are.
    asked: dict[str, set[float]] = field(default_factory=dict)
    #: The floating inputs that aren't used where a scalar says so, as ``y`` where ``beta`` is 0.
    left_out: dict[str, LeftOut] = field(default_factory=dict)
    #: The floating inputs of which a softmax is made, or a logarithm of a sum of exponentials.
    weighed: set[str] = field(default_factory=set)
    #: The floating inputs that others are compared with, or subtracted from, either way.
    compared: dict[str, set[str]] = field(default_factory=dict)
    #: The floating tensors by which others are divided, or multiplied, before they are rounded to
    #: whole numbers; and whether they are multiplied.
    steps: dict[str, set[tuple[str, bool]]] = field(default_factory=dict)
    #: Lengths of what is one of several things that count, so that others may be left without it.
    alternatives: set[str] = field(default_factory=set)
    #: Tensors among whose elements others are searched, so that these never fall.
    searched: set[str] = field(default_factory=set)
    #: What integers are compared with: another integer, a sign, and a number or the axis whose size
    #: is added with it.
    edges: dict[str, set[tuple[str, int, int | str]]] = field(default_factory=dict)
    #: The same of multiples: an integer that others are compared with so many times of.
    scaled_edges: dict[str, set[tuple[str, int]]] = field(default_factory=dict)
    #: Terms of sums, and attention's masks.
    added: set[str] = field(default_factory=set)
    #: Factors of products.
    factors: set[str] = field(default_factory=set)
    #: All methods and functions that are called; ``div`` for ``/``.
    calls: set[str] = field(default_factory=set)
    #: Whether it divides by what it calculates; and whether it has infinities, or large numbers
    #: instead, that would go on.
    divides: bool = False
    has_infinities: bool = False
    #: Whether it asks whether something is empty.
    asks_for_any: bool = False
    #: Its softmaxes and the like, as they are written; and those that it puts zeros into, maybe
    #: where there is nothing.
    of_some: set[str] = field(default_factory=set)
    mended: set[str] = field(default_factory=set)
    #: Floating inputs that shares of a softmax, or their running sums, are compared with.
    shares: set[str] = field(default_factory=set)
    #: Whether outputs are bits that integers hold, viewed as floating numbers.
    bits: dict[str, bool] = field(default_factory=dict)

    def are_logits(self, name: str) -> bool:
        """Whether an input has logits, by its name or since a softmax is made of it."""
        return name in self.weighed or "logits" in name.split("_")

    def takes_special_rows(self, name: str) -> bool:
        """Whether all of a row may be infinite or NaN: a number is put there.

        Or an infinity, of which the reference makes no sum, nor an exponential.
        """
        is_infinite = name in self.made_infinite and not self.calls & _NOT_OF_INFINITIES
        return name in self.replaced or is_infinite

    def only_asks(self, name: str) -> bool:
        """Whether no more is asked of integers than whether they equal something."""
        return name in self.computed - self.beyond_equality - self.numbers

    @classmethod
    def of(cls, definition: Definition) -> ReferenceUses:
        """As far as the source can be read."""
        inputs, outputs = tuple(definition.inputs.items()), tuple(definition.outputs.items())
        return _read(definition.reference, inputs, outputs, tuple(_sizes_in(definition)))

    @property
    def mends_nothing(self) -> bool:
        """Whether it puts numbers where a softmax, or the like, is one of nothing."""
        return bool(self.calls & _MENDS or (self.of_some and self.of_some <= self.mended))

    def takes_nothing(self, lengths: str) -> bool:
        """Whether the reference seems to be defined if one of these lengths is 0.

        What it compares with 0 it does something else for then.
        """
        of_some = _OF_SOME
        if not self.has_infinities and lengths not in self.sliced:
            of_some = _OF_SOME - _EXTREMES  # another number is put for what is left out
        needs_some = self.calls & of_some or lengths in self.counted
        is_mended = self.mends_nothing or 0 in self.limits.get(lengths, ())
        is_mended = is_mended or lengths in self.alternatives or self.asks_for_any
        return lengths in self.seen and bool(is_mended or not needs_some)


_Specs = tuple[tuple[str, "TensorSpec"], ...]


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
        reader = _Reader(dict(inputs), dict(outputs), uses, arguments, dict(sizes))
        reader.visit(run)
        uses.picks |= reader.picks_of_several()
        reader.note_beyond()
        uses.guessed_picks = {*reader.guessed} - {*uses.picks}
        uses.picks = {**reader.guessed, **uses.picks}
        uses.left_out = reader.left_out()
        for copied, values in _copied(run, dict(inputs), dict(outputs)).items():
            uses.asked.setdefault(copied, set()).update(values)
        if uses.calls & SORTING:  # beside NaN, what is in order may be infinite
            for asked in uses.asked.values():
                asked.update((-inf, inf) if any(map(isnan, asked)) else ())
        uses.calculated, uses.any_bits, uses.angles, uses.summed = calculated_with(run)
        uses.scalars = uses_of_scalars(run, dict(inputs))
    return uses


def _product(sizes: Sequence[str | int]) -> str | int:
    numbers = [size for size in sizes if isinstance(size, int)]
    return prod(numbers) if len(numbers) == len(sizes) else " * ".join(map(str, sizes))


def _terms(node: ast.expr, sign: int) -> Iterator[tuple[int, ast.expr]]:
    """The terms of a sum or a difference, with their signs."""
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Add() | ast.Sub() as op):
            yield from _terms(left, sign)
            yield from _terms(right, sign if isinstance(op, ast.Add) else -sign)
        case _:
            yield sign, node


def _added_or_greater(name: str, arguments: Sequence[ast.expr]) -> Sequence[ast.expr] | None:
    """What a call adds up, or of what it takes the greater; None of other calls."""
    if name in ("sum", "mean"):
        return arguments[:1]
    if name in ("index_add", "scatter_add"):
        return arguments[-1:]
    return arguments if name == "maximum" else None


def _keyword(keywords: Sequence[ast.keyword], name: str) -> list[ast.expr]:
    """The argument of a call that has that name; nothing where none has."""
    return [each.value for each in keywords if each.arg == name]


def _factors(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.BinOp(left=left, right=right, op=ast.Mult()):
            yield from _factors(left)
            yield from _factors(right)
        case _:
            yield node


def _infinity(node: ast.expr) -> float | None:
    """The infinity that an expression is written as, such as ``-math.inf``."""
    return _INFINITIES.get(ast.unparse(node).replace('"', "'"))


def _largest_of(node: ast.expr) -> ast.expr | None:
    """What a number is the largest or the least element of, as in ``int(x.max())``."""
    match node:
        case ast.Call(func=ast.Name(id="int" | "float"), args=[value]):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="item"), args=[]):
            return value
        case ast.Call(func=ast.Attribute(ast.Name(id="torch"), "max" | "min"), args=[value]):
            return value
        case ast.Call(func=ast.Attribute(value=value, attr="max" | "min"), args=[]):
            return value
    return None


class _Reader(ast.NodeVisitor):
    """Reads ``run`` from top to bottom, and notes what is done with its inputs."""

    def __init__(
        self,
        inputs: Mapping[str, TensorSpec],
        outputs: Mapping[str, TensorSpec],
        uses: ReferenceUses,
        arguments: list[str],
        sizes: Mapping[str | int, str | int],
    ) -> None:
        self._inputs, self._outputs, self._uses = inputs, outputs, uses
        self._sizes = sizes
        self._expressions = Expressions(inputs, outputs, arguments, sizes)
        self._parents: dict[ast.AST, ast.AST] = {}
        #: The branches around, of those that scalars decide: which of the two; and those around
        #: everything that is calculated of each floating tensor.
        self._decided: dict[int, int] = {}
        self._around: dict[str, dict[int, int]] = {}
        self._tests: dict[int, ast.expr] = {}
        #: Axes that indices may be along, if nothing says that they are along others.
        self.guessed: dict[str, str | int] = {}
        #: The axes that integers index as they are, in order.
        self.along: dict[str, dict[str | int, None]] = {}
        #: Those that index an axis in parts: the number of places there are; and the first axis
        #: that integers index otherwise, also if something is done with them before.
        self.in_parts: dict[str, str] = {}
        self.whole: dict[str, str | int] = {}
        #: Integers that are held against the size of an axis: what is beyond counts otherwise.
        self.held: set[str] = set()
        #: The axis below whose size it is asked whether they are.
        self.asked_for_more: dict[str, str] = {}
        #: How often each variable is assigned.
        self._stores = Counter[str]()

    def note_beyond(self) -> None:
        """Note indices that may be beyond their axis, since the reference asks and takes others."""
        for name, axis in self.asked_for_more.items():
            if self._uses.picks.get(name) == axis and name not in self.along:
                self._uses.beyond.setdefault(name, axis)

    def picks_of_several(self) -> dict[str, str | int]:
        """Indices along several axes, or parts of them as one column of each pair: below each."""
        picks: dict[str, str | int] = {}
        several_of = {name: [*axes] for name, axes in self.along.items()}
        for name, parts in self.in_parts.items():
            if name in self.whole:
                several_of[name] = [*several_of.get(name, [self.whole[name]]), parts]
        for name, axes in several_of.items():
            several = dict.fromkeys(axes)
            if len(several) > 1 and name not in self.held | self._uses.capped:
                picks[name] = f"min({', '.join(map(str, several))})"
        return picks

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._expressions.assign(target, node.value)
            for each in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(each, ast.Subscript):
                    self._place(each, node.value)

    def _place(self, target: ast.Subscript, value: ast.expr) -> None:
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
            self._puts(said[0], value, at_once=True)

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

    def _puts(self, index: ast.expr, value: ast.expr, *, at_once: bool = False) -> None:
        name = self._expressions.integer(index)
        if name is None or constant(value) is not None or self._expressions.may_be_one(index):
            return
        self._uses.placed.add(name)
        if at_once and not self._expressions.is_part(index):
            self._uses.placed_at_once.add(name)

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
        """Visit what is done in either case, of those that scalars alone decide."""
        self.visit(node.test)
        names = [each for each in ast.walk(node.test) if isinstance(each, ast.Name)]
        is_decided = bool(self._scalars(names)) and not self._expressions.has_tensor(node.test)
        outer = self._decided
        self._tests[id(node)] = node.test
        for number, case in enumerate(cases):
            self._decided = {**outer, id(node): number} if is_decided else outer
            for each in case:
                self.visit(each)
        ends = isinstance(node, ast.If) and isinstance(node.body[-1], ast.Return)
        self._decided = {**outer, id(node): 1} if is_decided and ends else outer

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)
        parts = parts_of(node)
        if isinstance(parts[0], ast.Constant) and parts[0].value is ...:
            self._picks_at_the_end(node.value, parts[1:])
        for dim, part in enumerate(parts):
            if isinstance(part, ast.Constant) and part.value in (None, ...):
                return  # the dimensions behind are others
            if not isinstance(part, ast.Slice):
                self._picks_from(node.value, dim, part, is_put=isinstance(node.ctx, ast.Store))
                continue
            step = self._expressions.integer(part.step)
            self._uses.whole_divisors |= {step} if step else set()  # it isn't 0 either
            first, last = (
                self._expressions.integer(part.lower),
                self._expressions.integer(part.upper),
            )
            self._uses.sliced |= {each for each in (first, last) if each}
            if first is not None:
                self._note_room(node.value, dim, first, part)
            if last is not None and (first == last or self._ends_at(part)):
                noted = self._uses.cuts if first else self._uses.lengths
                if axis := self._expressions.axis(node.value, dim, last):
                    noted.setdefault(last, axis)

    def _note_room(self, tensor: ast.expr, dim: int, first: str, part: ast.Slice) -> None:
        """Note from where on a tensor is cut by another one's size: ``cache[b, n : n + new]``."""
        upper = self._expressions.calculation(part.upper) or part.upper
        match upper:
            case ast.BinOp(left=begin, op=ast.Add(), right=size) if (
                self._expressions.integer(begin) == first
            ):
                axis, more = (
                    self._expressions.axis(tensor, dim, first),
                    self._expressions.size(size),
                )
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
        self._uses.divides |= name in _DIVISIONS
        tensor = node.func.value
        if not self._is_module(tensor) and not isinstance(tensor, ast.Attribute):
            arguments.insert(0, tensor)
        self._compute(node, name, arguments)
        self._converted(name, arguments)
        self._clamped(name, arguments, node.keywords)
        self._decides(name, arguments, node.keywords)
        self._asks(node, name, arguments)
        self._reads_bits(node, name, arguments)
        self._rounds_or_mends(node, name, arguments)
        self._counts_some(name, arguments, node.keywords)
        self._picks_by(name, arguments)
        if name == "index_put":
            self._puts_by_indices(arguments, node)

    def _counts_some(
        self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]
    ) -> None:
        """Note numbers of which a function says how many there are, or that are so many."""
        if name in _CLASSES:
            self._classes(name, arguments, keywords)
        if name in _LOSSES_OF_CLASSES and len(arguments) > 1:
            self._picks_from(arguments[0], 1, arguments[1])
            self._ignored(arguments[1], keywords)
        if name in _TAKES_SOME:
            self._takes_some(arguments, keywords)

    def _puts_by_indices(self, arguments: list[ast.expr], node: ast.Call) -> None:
        """Note indices as those of an assignment: ``y.index_put((rows, columns), values)``."""
        match arguments:
            case [tensor, ast.Tuple(elts=indices) | ast.List(elts=indices), values, *more]:
                adds = any(
                    constant(each) for each in (*more, *_keyword(node.keywords, "accumulate"))
                )
                place = ast.Subscript(tensor, ast.Tuple(indices, ast.Load()), ast.Store())
                for dim, index in enumerate(indices):
                    self._picks_from(tensor, dim, index, is_put=True)
                if not adds:
                    self._place(place, values)

    def _picks_by(self, name: str, arguments: list[ast.expr]) -> None:
        """Note what a function looks up in a table, or along a dimension."""
        if name in _TABLES and len(arguments) > 1:
            self._picks_from(arguments[1], 0, arguments[0])
        elif name in _PICKS and len(arguments) > 2:
            dim, index = (arguments[1 + place] for place in _PICKS[name])
            if len(arguments) > _PUTS.get(name, len(arguments)):
                self._puts(index, arguments[_PUTS[name]])
            if isinstance(number := constant(dim), int):
                self._picks_from(arguments[0], number, index)

    def _rounded(self, node: ast.expr, depth: int = DEPTH) -> None:
        """Note what is rounded in steps, as by ``torch.round(x / scale[:, None] + zero_point)``."""
        held = self._expressions.calculation(node) if depth else None
        match held or node:
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub()) if depth:
                self._rounded(left, depth - 1)
            case ast.BinOp(left=left, op=ast.Div() | ast.Mult() as op, right=right):
                steps = self._expressions.floats(right)
                for name in self._expressions.floats(left) if steps else ():
                    is_product = isinstance(op, ast.Mult)
                    noted = self._uses.steps.setdefault(name, set())
                    noted |= {(step, is_product) for step in steps}

    def _rounds_or_mends(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> None:
        """Note a softmax or the like, and that it has zeros put into it; and what is rounded."""
        if name in _ROUNDINGS and arguments:
            self._rounded(arguments[0])
        if name in _OF_SOME:
            self._uses.of_some.add(ast.unparse(node))
            if arguments and self._is_joined(arguments[0]):
                self._uses.mended.add(ast.unparse(node))  # there is something else, as a sink
        if name in _MASKED and any(constant(each) == 0 for each in arguments[1:]):
            made = [self._moved_from(each) for each in arguments]
            self._uses.mended |= {ast.unparse(each) for each in made if called(each) in _OF_SOME}

    def _joined(self, node: ast.expr) -> Sequence[ast.expr]:
        """The tensors that are joined, or the one that there is."""
        held = self._expressions.calculation(node) or node
        parts = held.args[0] if isinstance(held, ast.Call) and held.args else None
        is_joined = called(held) in _JOINS and isinstance(parts, ast.List | ast.Tuple)
        return parts.elts if is_joined and isinstance(parts, ast.List | ast.Tuple) else [node]

    def _is_joined(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression joins several tensors, wherever that is calculated."""
        held = self._expressions.calculation(node) if depth else None
        return self._is_joined(held, depth - 1) if held else called(node) in _JOINS

    def _operands(self, call: ast.Call) -> list[ast.expr]:
        """The arguments of a function, or of a method, whose tensor is the first of them."""
        of = call.func.value if isinstance(call.func, ast.Attribute) else None
        return call.args if of is None or self._is_module(of) else [of, *call.args]

    def _is_module(self, node: ast.expr) -> bool:
        """Whether a name is that of a module, such as ``torch``, rather than of a variable."""
        return isinstance(node, ast.Name) and not self._expressions.is_variable(node)

    def _weighed(self, logits: ast.expr) -> None:
        """Note the input of which a softmax is made, also if that is scaled before."""
        held = self._expressions.calculation(logits) or logits
        parts = [held.left, held.right] if isinstance(held, ast.BinOp) else [held]
        sources = [self._expressions.source(each) for each in parts]
        self._uses.weighed |= {each.input for each in sources if each}

    @property
    def _counts(self) -> bool:
        """Whether no output has floating numbers, so that what is compared goes into none."""
        return not any(spec.dtype.is_floating for spec in self._outputs.values())

    def _decides(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        """Note what a function compares elements with, or weighs by others.

        Of ``hardshrink`` it is two numbers.
        """
        if name in _COMPARISONS:
            self._note_limits(*arguments[:2])
        if name in _WEIGHING and arguments:
            self._weighed(arguments[0])
        is_sorted = not any(each.arg == "sorter" for each in keywords)
        if name in _SEARCHED and len(arguments) > _SEARCHED[name] and is_sorted:
            source = self._expressions.source(arguments[_SEARCHED[name]])
            self._uses.searched |= {source.input} if source else set()
            places = self._expressions.along(arguments[1 - _SEARCHED[name]])
            if places is not None:
                self._note_running(arguments[_SEARCHED[name]], places)
            sought = self._expressions.source(arguments[1 - _SEARCHED[name]])
            if sought and self._counts:  # infinities have a place as well
                self._uses.asked.setdefault(sought.input, set()).update((-inf, inf))
        if name != "hardshrink" or not arguments:
            return
        given = _keyword(keywords, "lambd") or arguments[1:]
        limit = self._number(given[0]) if given else 0.5
        for number in () if limit is None else (limit, -limit):
            self._limited_by(arguments[0], number)

    def _refuses(self, node: ast.AST) -> bool:
        """Whether it is asked only for the reference to raise an error."""
        parent = self._parents.get(node)
        if isinstance(parent, ast.If) and parent.test is node:
            return any(isinstance(each, ast.Raise) for each in parent.body)
        if isinstance(parent, ast.Assert) or parent is None:
            return parent is not None
        return isinstance(parent, ast.expr) and self._refuses(parent)

    def _selects(self, node: ast.expr) -> bool:
        """Whether what is computed, or put where, hangs on a comparison, as in ``torch.where``."""
        mask, user = self._mask_of(node)
        match user:
            case ast.Call(args=arguments):
                return called(user) in _FILLS and mask in arguments[:1]
            case ast.Subscript(slice=index):
                return index is mask
            case ast.IfExp(test=test):
                return test is mask
        return False

    def _mask_of(self, node: ast.AST) -> tuple[ast.AST, ast.AST | None]:
        """What a comparison is a part of, as of ``(a < b) & ~c``; and what uses that."""
        user = self._parents.get(node)
        while isinstance(user, ast.BinOp | ast.BoolOp | ast.UnaryOp):
            node, user = user, self._parents.get(user)
        return node, user

    def _replaces(self, node: ast.expr, name: str) -> bool:
        """Whether another number is taken for an integer where a comparison says so."""
        mask, user = self._mask_of(node)
        match user:
            case ast.Call(args=arguments) if called(user) in _MASKED and mask in arguments[:1]:
                others = [each for each in self._operands(user) if each is not mask]
                return name in map(self._expressions.integer, others)
        return False

    def _asks(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> None:
        """Note what a function tells apart: infinities and NaN, or integers that aren't equal."""
        source = self._expressions.source(arguments[0]) if arguments else None
        if name in NOT_FINITE:
            self._note_asked(node)
        elif name in _MENDS and source and self._expressions.floats(arguments[0]):
            self._uses.asked.setdefault(source.input, set()).update((-inf, inf, nan))
        elif name in _UNIQUE and arguments:
            parts = self._joined(arguments[0])
            self._uses.equated |= set(filter(None, map(self._expressions.integer, parts)))
        elif name in _AMONG:
            found = [self._expressions.integer(each) for each in arguments[:2]]
            self._uses.equated |= {each for each in found if each and None not in found}
        elif name in ("all", "any") and arguments and not self._refuses(node):
            self._note_whole(name, arguments[0])
        elif name in _COUNTS and arguments and not self._refuses(node):
            self._note_counted(arguments[0])
        elif name in _MASKED and len(arguments) > 2:
            self._replaced(*(arguments[place] for place in _MASKED[name]))

    def _replaced(self, mask: ast.expr, *values: ast.expr) -> None:
        """Note the inputs for whose infinities or NaN a number is put.

        What is put for NaN may be an infinity, which others of these then have to be told from.
        """
        if any(_infinity(each) is not None for each in values):
            for name in self._asked_in(mask):
                self._uses.asked.setdefault(name, set()).update((-inf, inf))
            self._uses.made_infinite |= self._asked_in(mask)
        if any(isinstance(self._number(each), float | int) for each in values):
            self._uses.replaced |= self._asked_in(mask)
        if (of_rows := self._elements_of_rows(mask)) is not None:
            self._uses.replaced |= self._asked_in(of_rows)

    def _note_asked(self, node: ast.expr) -> None:
        """Note what an expression asks for, unless it is only for the reference to refuse it."""
        names, values = self._asked_by(node)
        if not values or self._refuses(node):
            return
        for name in names:
            self._uses.asked.setdefault(name, set()).update(values)
        # Where the greatest is -inf, all are, be it by a mask of the reference or by an input that
        # has -inf; the others don't get any for it.
        elements = self._elements_asked(node)
        if -inf in values and (of := self._of_extreme(elements, {"max", "amax"})) is not None:
            self._uses.replaced |= self._floats_in(of)
        # Where the least is infinity, all are; unless the reference put them there.
        of = self._of_extreme(elements, {"min", "amin"}) if inf in values else None
        is_given = of is not None and not self._is_masked(of)
        source = self._expressions.source(of) if is_given else None
        if source and self._inputs[source.input].dtype.is_floating:
            self._uses.asked.setdefault(source.input, set()).add(inf)
            self._uses.replaced.add(source.input)

    def _note_whole(self, name: str, mask: ast.expr, depth: int = DEPTH) -> None:
        """Note what may be infinite as a whole: ``isinf(x).all()``, ``not isfinite(x).any()``."""
        names, values = self._asked_by(mask)
        if names and (name == "any") == (set(values) == set(NOT_FINITE["isfinite"])):
            self._uses.replaced |= names
        elif depth and (held := self._expressions.calculation(mask)) is not None:
            self._note_whole(name, held, depth - 1)

    def _note_counted(self, mask: ast.expr, depth: int = DEPTH) -> None:
        """Note of what it is counted how many are NaN, or aren't: there may be nothing else."""
        names, values = self._asked_by(mask)
        if any(map(isnan, values)):
            self._uses.replaced |= names
        match mask:
            case ast.UnaryOp(op=ast.Invert(), operand=inner):
                of: ast.expr | None = inner
            case ast.Call(func=ast.Attribute(value=inner, attr=attr)) if (
                attr in TO_FLOATING | MOVES
            ):
                of = inner
            case _:
                of = self._expressions.calculation(mask)
        if of is not None and depth:
            self._note_counted(of, depth - 1)

    def _of_extreme(
        self, node: ast.expr, names: Collection[str], depth: int = DEPTH
    ) -> ast.expr | None:
        """Of which elements a number is the least, or greatest, by these names; None if of none."""
        match node:
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in names:
                operands = self._operands(node)
                is_along = all(isinstance(constant(each), int | tuple) for each in operands[1:])
                return operands[0] if operands and is_along else None  # or the lesser of two
            case ast.Attribute(value=value, attr="values") | ast.Subscript(value=value):
                return self._of_extreme(value, names, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES:
                return self._of_extreme(value, names, depth)
        held = self._expressions.calculation(node) if depth else None
        return None if held is None else self._of_extreme(held, names, depth - 1)

    def _is_masked(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether something is put in place of some of the elements."""
        if any(called(each) in _MASKED for each in ast.walk(node)):
            return True
        held = self._expressions.calculation(node) if depth else None
        return held is not None and self._is_masked(held, depth - 1)

    def _elements_asked(self, node: ast.expr) -> ast.expr:
        """What a call or a comparison asks whether it is infinite or NaN."""
        match node:
            case ast.Compare(left=elements):
                return elements
            case ast.Call(func=ast.Attribute(value=value), args=arguments):
                return arguments[0] if arguments else value
        return node

    def _asked_by(self, node: ast.expr) -> tuple[set[str], Collection[float]]:
        """The inputs that an expression asks whether elements are infinities or NaN; and which.

        As ``torch.isinf(x)``, ``x.isnan()`` and ``x == -math.inf``.
        """
        values: Collection[float] = ()
        match node:
            case ast.Compare(comparators=[right, *_]):
                number = _infinity(right)
                values = () if number is None else (number,)
            case ast.Call(func=ast.Attribute(attr=attr)):
                values = NOT_FINITE.get(attr.removesuffix("_"), ())
        if not values:
            return set(), ()
        elements = self._elements_asked(node)
        source = self._expressions.source(self._unscaled(elements))
        if source:
            return {source.input}, values
        # What is neither NaN nor infinite holds none of several; which of both it is, hangs on all.
        return self._summed(elements, several=any(map(isnan, values))), values

    def _unscaled(self, node: ast.expr, depth: int = DEPTH) -> ast.expr:
        """What is multiplied or divided by a single number, as where gradients are unscaled.

        What was infinite or NaN before is so afterwards; some of it may be left.
        """
        if not depth:
            return node
        match self._expressions.calculation(node) or node:
            case ast.Subscript(value=value):
                return self._unscaled(value, depth - 1)
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right) if (
                not self._expressions.has_tensor(right)
            ):
                return self._unscaled(left, depth - 1)
            case ast.BinOp(left=left, op=ast.Mult(), right=right) if (
                not self._expressions.has_tensor(left)
            ):
                return self._unscaled(right, depth - 1)
        return node

    def _summed(self, node: ast.expr, depth: int = DEPTH, *, several: bool = False) -> set[str]:
        """The one input of whose elements a number is a sum or a norm, or ``several``; and ``lse``.

        These are where it is the largest of one, or of several.
        """
        held = (self._expressions.calculation(node) or node) if depth else node
        calls = {called(each) for each in ast.walk(held)}
        if not calls & (_SUMS | _EXTREMES):
            inner = [each for each in ast.iter_child_nodes(held) if isinstance(each, ast.expr)]
            each_of = (self._summed(each, depth - 1, several=several) for each in inner if depth)
            found = {frozenset(names) for names in each_of}
            return {*found.pop()} if len(found) == 1 else set()
        floats = self._floats_in(held)
        if not calls & _SUMS:  # of others, a row of -inf is what a mask made
            return set(filter(is_lse, floats))
        return floats if several or len(floats) == 1 else set()

    def _floats_in(self, node: ast.expr) -> set[str]:
        """The floating inputs that an expression is made of."""
        floats: set[str] = set()
        seen: set[str] = set()
        left = [node]
        while left:
            for each in ast.walk(left.pop()):
                if isinstance(each, ast.Name) and each.id not in seen:
                    seen.add(each.id)
                    floats |= self._expressions.floats(each)
                    held = self._expressions.calculation(each)
                    left += [held] if held is not None else []
        return floats

    def _asked_in(self, node: ast.expr, depth: int = DEPTH) -> set[str]:
        """The inputs that a mask asks so."""
        names, _ = self._asked_by(node)
        if names:
            return names
        match node:
            case ast.UnaryOp(operand=part) | ast.Subscript(value=part):
                return self._asked_in(part, depth)
            case ast.BinOp(left=one, op=ast.BitAnd() | ast.BitOr(), right=other):
                return self._asked_in(one, depth) | self._asked_in(other, depth)
        held = self._expressions.calculation(node) if depth else None
        return set() if held is None else self._asked_in(held, depth - 1)

    def _elements_of_rows(self, node: ast.expr, depth: int = DEPTH) -> ast.expr | None:
        """What a mask asks of all elements of each row, as ``(x == -inf).all(dim=1)`` does."""
        match node:
            case ast.Call(func=ast.Attribute(attr="all")):
                return next(iter(self._operands(node)), None)
            case ast.Subscript(value=value) | ast.UnaryOp(operand=value):
                return self._elements_of_rows(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES:
                return self._elements_of_rows(value, depth)
        held = self._expressions.calculation(node) if depth else None
        return None if held is None else self._elements_of_rows(held, depth - 1)

    def _reads_bits(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> None:
        """Note the ends of a floating input whose bits are read: rounded up, they are infinite."""
        is_view = name == "view" and arguments and views_bits(node)
        source = self._expressions.source(arguments[0]) if is_view else None
        if source and (dtype := self._inputs[source.input].dtype).is_floating:
            self._uses.limits.setdefault(source.input, set()).update(dtype.ends)

    def _clamped(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        """Note an integer that is clamped to the size of an axis, and scalars that are limits."""
        most, least = (
            _keyword(keywords, keyword) or arguments[places[name] :]
            if arguments and name in places
            else []
            for keyword, places in (("max", _CLAMPS), ("min", _CLAMPS_BELOW))
        )
        self._uses.least |= self._scalars(least[:1])
        self._uses.most |= self._scalars(most[:1])
        number = self._expressions.integer(arguments[0]) if arguments else None
        axis = self._expressions.size(most[0]) if most else None
        if number is not None and isinstance(axis, str):
            self._uses.beyond.setdefault(number, axis)
        match most[:1]:
            case [ast.BinOp(left=left, op=ast.Sub(), right=ast.Constant(value=1))]:
                axis = self._expressions.size(left)
        self._uses.capped |= {number} if number and isinstance(axis, str) else set()

    def _scalars(self, nodes: Sequence[ast.expr]) -> set[str]:
        """The inputs that are scalars among expressions."""
        sources = [source.input for node in nodes if (source := self._expressions.source(node))]
        return {each for each in sources if self._inputs[each].is_scalar}

    def _compute(self, node: ast.Call, name: str, arguments: list[ast.expr]) -> None:
        """Note which numbers a function is computed of."""
        if name in _ROOTS and arguments:
            self._not_negative(arguments[0])
        elif name in _QUOTIENTS | _REMAINDERS and len(arguments) > 1:
            self._not_zero(arguments[1])
        elif name in _LIMITS and arguments:
            limited = self._expressions.floats(arguments[0])
            self._uses.limited |= limited
            is_most = len(arguments) > _CLAMPS.get(name, len(arguments))
            is_most |= name in _CLAMPS and any(each.arg == "max" for each in node.keywords)
            self._uses.clamped |= limited if is_most else set()
        elif name in _POWERS and arguments:
            is_negated = isinstance(self._parents[node], ast.UnaryOp)
            for raised in self._expressions.floats(arguments[0]):
                self._uses.raised.setdefault(raised, is_negated)

    def _not_negative(self, node: ast.expr, depth: int = DEPTH) -> None:
        """Note the inputs that a number under a root is a sum of."""
        made_of = self._signed_parts(node)
        if made_of is None:
            self._uses.positive |= self._expressions.floats(node)
        for part in made_of or () if depth else ():
            self._not_negative(part, depth - 1)

    def _signed_parts(self, node: ast.expr) -> Iterable[ast.expr] | None:
        """What a number is calculated from whose sign is theirs; None of what is no calculation."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Add()):
                return left, right
            case ast.BinOp(left=ast.Constant(), right=part, op=ast.Sub()):
                self._uses.shares_of_one |= self._expressions.floats(part)
                return (part,)  # 1 less what is between 0 and 1
            case ast.BinOp(op=ast.Mult() | ast.Div()):
                return self._signed_factors(node)
            case ast.Name():
                of = self._expressions.calculation(node)
                return None if of is None else (of,)
            case ast.Call(func=ast.Attribute(attr=name)):
                return _added_or_greater(name, self._operands(node))
        return None

    def _signed_factors(self, node: ast.BinOp) -> Iterator[ast.expr]:
        """The factors that decide a product's sign, or what alone decides that of a quotient."""
        match node:
            case ast.BinOp(
                left=left, right=ast.Call(func=ast.Attribute(value=whole)), op=ast.Div()
            ) if ast.unparse(whole) == ast.unparse(left):
                yield left  # as shares of their mean or sum
        is_product = isinstance(node.op, ast.Mult)
        sides = _factors(node) if is_product else iter((node.left, node.right))
        tensors = [side for side in sides if self._expressions.has_tensor(side)]
        texts = [ast.unparse(each) for each in tensors]
        are_given = all(self._expressions.floats(each) for each in tensors)
        for tensor, text in zip(tensors, texts, strict=True):
            is_alone = len(tensors) == 1 or are_given  # else one may be negative as the other is
            if texts.count(text) % 2 if is_product else is_alone:  # else it is a square
                yield tensor

    def _is_kept_from_zero(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether a divisor is limited, whatever it is calculated from, or an input's."""
        match node:
            case ast.Subscript(value=value):
                return self._is_kept_from_zero(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if (
                attr in MOVES | TO_FLOATING
            ):
                return self._is_kept_from_zero(value, depth)
            case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=ast.Constant()):
                return self._is_kept_from_zero(left, depth)
            case ast.Name() if depth and (held := self._expressions.calculation(node)):
                return self._is_kept_from_zero(held, depth - 1)
        is_given = self._expressions.floats(node) or not self._expressions.has_tensor(node)
        return called(node) in _LIMITS or bool(is_given)

    def _not_zero(self, node: ast.expr) -> None:
        """Note the inputs that a divisor is, or is a product of."""
        match node:
            case ast.BinOp(left=left, right=right, op=ast.Mult()):
                self._not_zero(left)
                self._not_zero(right)
            case ast.BinOp(left=operand, op=ast.Pow()) | ast.UnaryOp(operand=operand):
                self._not_zero(operand)
            case ast.Call() if called(node) == "sqrt" and (of := self._operands(node)):
                self._not_zero(of[0])
            case _:
                self._uses.divisors |= self._expressions.floats(node)
                if name := self._expressions.integer(node):
                    uses, is_clamped = self._uses, self._is_clamped(node)
                    (uses.clamped_divisors if is_clamped else uses.whole_divisors).add(name)

    def _is_clamped(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether the least of a divisor's elements is limited, wherever that is calculated."""
        match node:
            case ast.Subscript(value=value):
                return self._is_clamped(value, depth)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)):
                least = _keyword(node.keywords, "min") or node.args[:1]
                numbers = [constant(each) for each in least if attr in _CLAMPS_BELOW]
                is_above = any(isinstance(n, int | float) and n > 0 for n in numbers)
                return is_above or self._is_clamped(value, depth)
        held = self._expressions.value_of(node) if depth else None
        return held is not None and self._is_clamped(held, depth - 1)

    def _classes(self, name: str, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        """Note numbers below how many there are."""
        given = _keyword(keywords, _CLASSES[name]) or arguments[1:2]
        index = self._expressions.integer(arguments[0]) if arguments else None
        if index and given and (below := self._expressions.size(given[0])):
            self._uses.picks.setdefault(index, below)
        elif given and arguments and (sizes := self._expressions.factors(given[0])):
            self._picks_joined(arguments[0], sizes)

    def _ignored(self, classes: ast.expr, keywords: list[ast.keyword]) -> None:
        """Note the class that a loss leaves out."""
        name = self._expressions.integer(classes)
        for number in map(constant, _keyword(keywords, "ignore_index")):
            if name is not None and isinstance(number, int):
                self._uses.equals.setdefault(name, set()).add(number)

    def _takes_some(self, arguments: list[ast.expr], keywords: list[ast.keyword]) -> None:
        """Note how many of an axis are taken, as by ``x.topk(k, dim=-1)``."""
        arguments = [*_keyword(keywords, "input"), *arguments]
        counts = _keyword(keywords, "k") or arguments[1:2]
        dims = [constant(each) for each in _keyword(keywords, "dim") or arguments[2:3]] or [-1]
        name = self._expressions.integer(counts[0]) if counts else None
        if name is None or not arguments or not isinstance(dims[0], int):
            return
        if axis := self._expressions.axis(arguments[0], dims[0], name):
            self._uses.lengths.setdefault(name, axis)

    def _converted(self, name: str, arguments: list[ast.expr]) -> None:
        """Note integers that become floating numbers; numbers are no indices."""
        to_float = name == "to" and any(
            word in ast.unparse(each) for each in arguments[1:] for word in ("float", ".dtype")
        )
        if (
            (name in TO_FLOATING or to_float)
            and arguments
            and (index := self._expressions.integer(arguments[0]))
        ):
            self._uses.numbers.add(index)

    def _picks_from(
        self, tensor: ast.expr, dim: int, index: ast.expr, *, is_put: bool = False
    ) -> None:
        """Note which axis an index is below, of a tensor that elements are picked of, or put to."""
        match self._moved_from(index):
            case ast.BinOp(left=whole, op=ast.FloorDiv(), right=divisor) if (
                size := self._expressions.size(divisor)
            ):
                self._picks_parts(tensor, dim, whole, size)
                return
            case ast.BinOp(left=whole, op=ast.RShift(), right=ast.Constant(value=int(bits))):
                self._picks_parts(tensor, dim, whole, 2**bits)
                return
        name = self._expressions.integer(index)
        for part in self._concatenated(index) if name is None else ():
            self._picks_from(tensor, dim, part)
        if name is None:
            self._picks_in_range(tensor, dim, index)
            self._picks_behind(tensor, dim, index)
            self._picks_joined(index, self._expressions.factors_along(tensor, dim))
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
        (self._uses.picks if is_known else self.guessed).setdefault(name, axis)
        if is_known:
            self.whole.setdefault(name, axis)
        if is_known and self._expressions.is_as_given(index):
            self.along.setdefault(name, {})[axis] = None

    def _picks_joined(self, index: ast.expr, sizes: Sequence[str | int]) -> None:
        """Note each index of those that are joined to one, as in ``row * columns + column``.

        That one is below the product of ``sizes``.
        """
        if name := self._expressions.integer(index):
            self._uses.picks.setdefault(name, _product(sizes))
            return
        whole = self._moved_from(index)
        sides: list[tuple[ast.expr, ast.expr | None]] = [(whole, None)]
        if isinstance(whole, ast.BinOp) and isinstance(whole.op, ast.Add):
            sides = [(whole.left, whole.right), (whole.right, whole.left)]
        for outer, rest in sides:
            match self._moved_from(outer):
                case ast.BinOp(left=left, op=ast.Mult(), right=right):
                    for first, by in ((left, right), (right, left)):
                        last = self._expressions.factors(by)
                        if 0 < len(last) < len(sizes) and self._are_last(last, sizes):
                            self._picks_joined(first, sizes[: -len(last)])
                            if rest is not None:
                                self._picks_joined(rest, last)
                            return

    def _are_last(self, last: Sequence[str | int], sizes: Sequence[str | int]) -> bool:
        """Whether the last of some sizes are those, by axes or by their numbers."""
        end = sizes[-len(last) :]
        return [self._sizes.get(n, n) for n in last] == [self._sizes.get(n, n) for n in end]

    def _picks_in_range(self, tensor: ast.expr, dim: int, index: ast.expr) -> None:
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

    def _picks_behind(self, tensor: ast.expr, dim: int, index: ast.expr) -> None:
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

    def _moved_from(self, index: ast.expr, depth: int = DEPTH) -> ast.expr:
        """The calculation of which an index holds the numbers, wherever they are."""
        match index:
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in MOVES:
                return self._moved_from(value, depth)
            case ast.Subscript(value=value):
                return self._moved_from(value, depth)
            case ast.Name() if depth and (held := self._expressions.calculation(index)):
                return self._moved_from(held, depth - 1)
        return index

    def _picks_parts(self, tensor: ast.expr, dim: int, whole: ast.expr, size: int | str) -> None:
        """Note a number whose quotient is an index: a place in blocks of ``size``."""
        name = self._expressions.integer(whole)
        made = self._expressions.size_of_made(tensor, dim)
        axis = made[0] if made else name and self._expressions.axis(tensor, dim, name)
        if name is not None and axis is not None:
            self.in_parts[name] = f"{axis} * {size}"
            self._uses.picks.setdefault(name, self.in_parts[name])

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if isinstance(node.op, ast.RShift) and (name := self._expressions.integer(node.left)):
            self._uses.shifted.add(name)
        if isinstance(node.op, ast.RShift | ast.LShift) and constant(node.left) is None:
            by = self._expressions.integer(node.right)
            self._uses.shifts |= {by} if by else set()
        if isinstance(node.op, ast.Pow) and isinstance(constant(node.right), float):
            self._not_negative(node.left)
        if isinstance(node.op, ast.Pow) and not self._expressions.has_tensor(node.left):
            self._uses.exponents |= self._steps(node.left, node.right)
        if isinstance(node.op, ast.Div) and not isinstance(node.right, ast.Constant):
            is_size = self._expressions.size(node.right) is not None
            is_safe = is_size or self._is_kept_from_zero(node.right)
            self._uses.calls |= set() if is_safe else {"div"}
            self._uses.divides |= self._expressions.has_tensor(node.right)
        if isinstance(node.op, ast.Sub):
            self._note_difference(node)
        if isinstance(node.op, ast.FloorDiv | ast.Mod):
            self._note_multiple(node.left, self._number(node.right))
        self._combined(node.op, node.left, node.right)

    def _note_multiple(self, dividend: ast.expr, divisor: float | None) -> None:
        """Note by which whole number the size of an axis is divided, and after which rest.

        Of ``(n - 4) // 32`` those are 32 and 4: of 36 and 68, nothing is left.
        """
        if not isinstance(divisor, int) or divisor <= 2:
            return
        rests = {}
        for each in ast.walk(dividend):
            match each:
                case ast.BinOp(left=of, op=ast.Sub(), right=ast.Constant(int(less))):
                    rests[of] = less % divisor
                case ast.BinOp(left=of, op=ast.Add(), right=ast.Constant(int(more))) if (
                    more % divisor != divisor - 1  # which only rounds up
                ):
                    rests[of] = -more % divisor
        for each in ast.walk(dividend):
            axis = self._expressions.size(each) if isinstance(each, ast.expr) else None
            if isinstance(axis, str):
                multiple = divisor, rests.get(each, 0)
                self._uses.multiples.setdefault(axis, set()).add(multiple)

    def _note_difference(self, node: ast.BinOp) -> None:
        """Note what is subtracted, and from what."""
        name, less = (self._expressions.integer(each) for each in (node.left, node.right))
        if name and (less is None or not self._inputs[less].is_scalar):
            self._uses.counted.add(name)
        along = self._expressions.along(node.right)
        if name and along:
            self._uses.less_places.setdefault(name, along)
        self._note_taken(node)
        if name := self._neighbours(node.left, node.right):
            self._uses.offsets.add(name)
        self._note_compared(node.left, node.right)
        self._note_span(node.left, node.right)

    def _note_taken(self, difference: ast.BinOp) -> None:
        """Note single integers that are subtracted from those of a tensor, as from lengths."""
        terms = [
            (sign, name)
            for sign, part in _terms(difference, 1)
            if (name := self._expressions.integer(part))
        ]
        taken = [name for sign, name in terms if sign < 0 and self._inputs[name].is_scalar]
        left = [name for sign, name in terms if sign > 0 and not self._inputs[name].is_scalar]
        if len(taken) == len(left) == 1:
            self._uses.taken.setdefault(taken[0], left[0])

    def _included(self, node: ast.expr, depth: int = DEPTH) -> set[str]:
        """The lengths of which an expression says that what is within them counts."""
        match node:
            case ast.Compare(left=left, ops=[ast.Lt()], comparators=[length]):
                name = self._expressions.integer(length)
                return {name} if name and self._expressions.along(left) else set()
            case ast.Compare(left=length, ops=[ast.Gt()], comparators=[right]):
                name = self._expressions.integer(length)
                return {name} if name and self._expressions.along(right) else set()
            case ast.Subscript(value=value):
                return self._included(value, depth)
            case ast.BinOp(left=left, right=right, op=ast.BitAnd() | ast.BitOr()):
                return self._included(left, depth) | self._included(right, depth)
        held = self._expressions.calculation(node) if depth else None
        return set() if held is None else self._included(held, depth - 1)

    def _note_span(self, *sides: ast.expr) -> None:
        for one, other in (sides, sides[::-1]):
            name, axis = self._expressions.integer(one), self._expressions.along(other)
            if name is not None and axis is not None:
                self._uses.spans.setdefault(name, axis)

    def _steps(self, base: ast.expr, exponent: ast.expr) -> set[str]:
        """The integers of a power that are steps: of 2 and more they are numbers of bits."""
        number, name = constant(base), self._expressions.integer(exponent)
        if name and isinstance(number, int | float) and number > 1:
            self._uses.shifts |= {name} if isinstance(number, float) else set()
            return set()
        steps = {name} if name else set()
        name = self._expressions.integer(base)
        return steps | ({name} if name and _STEP.fullmatch(name) else set())

    def _neighbours(self, left: ast.expr, right: ast.expr) -> str | None:
        """The integer input of which ``x[1:] - x[:-1]`` takes the differences."""
        match left, right:
            case ast.Subscript(value=one, slice=after), ast.Subscript(value=other, slice=before):
                slices = (ast.unparse(after), ast.unparse(before))
                name = self._expressions.integer(one)
                return (
                    name
                    if slices == ("1:", ":-1") and name == self._expressions.integer(other)
                    else None
                )
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
        """Note which inputs are terms of a sum, which are factors, and lengths of alternatives."""
        names = {
            source.input for operand in operands if (source := self._expressions.source(operand))
        }
        if isinstance(operation, ast.Add) and not any(map(_is_faint, operands)):
            self._uses.added |= names
        elif isinstance(operation, ast.Mult):
            self._uses.factors |= names
        elif isinstance(operation, ast.BitOr):
            self._uses.alternatives |= set().union(*map(self._included, operands))
        elif isinstance(operation, ast.Div | ast.FloorDiv | ast.Mod):
            self._not_zero(operands[-1])

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        self._uses.limited |= self._expressions.floats(node.left)
        self._reaches(node.left, node.ops[0], node.comparators[0])
        self._uses.equated |= self._equated(node)
        self._note_asked(node)
        self._note_limits(node.left, *node.comparators)
        name, number = self._expressions.integer(node.left), constant(node.comparators[0])
        most = self._expressions.size(node.comparators[0])
        self.held |= {name} if name and isinstance(most, str) else set()
        is_asked_for_more = isinstance(node.ops[-1], ast.GtE | ast.Lt) and isinstance(most, str)
        if name is not None and is_asked_for_more and self._replaces(node, name):
            self.asked_for_more[name] = str(most)
        is_above = isinstance(node.ops[0], ast.Gt) and isinstance(most, str)
        if name is not None and is_above and self._selects(node):
            self._uses.beyond.setdefault(name, str(most))
        if name is None or not isinstance(number, int) or self._puts_negative(node.left):
            return
        if isinstance(node.ops[0], (ast.Eq, ast.NotEq)):
            self._uses.equals.setdefault(name, set()).add(number)
            if number < 0:
                self._uses.pads[name] = number
        elif isinstance(node.ops[0], (ast.GtE, ast.Lt)) and number == 0:
            self._uses.pads[name] = -1

    def _puts_negative(self, node: ast.expr) -> bool:
        """Whether a number below 0 is among what is compared since the reference put it there."""
        match self._expressions.calculation(node) or node:
            case ast.Call(func=ast.Attribute(attr="where"), args=[_, *sides]):
                return any((self._number(side) or 0) < 0 for side in sides)
        return False

    def _note_limits(self, *sides: ast.expr) -> None:
        """Note the numbers, and the inputs, that inputs are held against, each by its neighbour."""
        for one, other in pairwise(sides):
            for side, limit in ((one, self._number(other)), (other, self._number(one))):
                if limit is not None:
                    self._limited_by(side, limit)
            self._note_edge(one, other)
            self._note_scaled_edge(one, other)
            self._note_scaled_edge(other, one)
            self._note_compared(one, other)
            for side, beside in ((one, other), (other, one)):
                if self._is_share(beside):
                    self._uses.shares |= self._expressions.floats(side)

    def _is_share(self, node: ast.expr, depth: int = DEPTH) -> bool:
        """Whether an expression has elements of a softmax, or their running sums."""
        match node:
            case ast.Call(func=ast.Attribute(attr="softmax")):
                return True
            case ast.Call(func=ast.Attribute(attr=attr)) if attr in _OF_SHARES | MOVES:
                return any(self._is_share(each, depth) for each in self._operands(node)[:1])
            case ast.Attribute(value=value) | ast.Subscript(value=value) | ast.BinOp(left=value):
                return self._is_share(value, depth)
        held = self._expressions.calculation(node) if depth else None
        return held is not None and self._is_share(held, depth - 1)

    def _note_compared(self, one: ast.expr, other: ast.expr) -> None:
        """Note two floating inputs that are compared, or of which the difference is taken."""
        names = self._compared(one), self._compared(other)
        if None not in names and names[0] != names[1]:
            for name, beside in (names, names[::-1]):
                self._uses.compared.setdefault(str(name), set()).add(str(beside))

    def _note_edge(self, *sides: ast.expr) -> None:
        """Note two integers that are held against each other, or a sum of either and a number.

        As in ``ids < start + 8``, and ``ids - start < 8``.
        """
        signs: dict[str, int] = {}
        sizes: list[tuple[int, int | str]] = []
        for side, sign in zip(sides, (1, -1), strict=True):
            for part_sign, part in _terms(self._expressions.calculation(side) or side, sign):
                name, number = self._expressions.integer(part), self._number(part)
                size = int(number) if number is not None else self._expressions.size(part)
                if name is not None and name not in signs:
                    signs[name] = part_sign
                elif size is not None:
                    sizes.append((part_sign, size))
                else:
                    return
        if sorted(signs.values()) == [-1, 1] and len(sizes) < 2:
            (one, sign), (other, _) = signs.items()
            size_sign, size = sizes[0] if sizes else (1, 0)
            way = size_sign * sign if size else 1
            self._uses.edges.setdefault(one, set()).add((other, -way if size else 1, size))
            self._uses.edges.setdefault(other, set()).add((one, way, size))

    def _note_scaled_edge(self, side: ast.expr, edge: ast.expr) -> None:
        """Note the multiple of an integer that another is held against.

        As in ``ids < 8 * block``, and ``ids // block < 8``.
        """
        side, edge = (self._expressions.calculation(node) or node for node in (side, edge))
        match side, edge:
            case ast.BinOp(left=one, op=ast.FloorDiv(), right=other), _:
                number = self._number(edge)
            case _, ast.BinOp(left=left, op=ast.Mult(), right=right):
                number = self._number(left)
                one, other = (side, left) if number is None else (side, right)
                number = self._number(right) if number is None else number
            case _:
                return
        name, beside = self._expressions.integer(one), self._expressions.integer(other)
        is_whole = number is not None and number > 1 and float(number).is_integer()
        if name and beside and name != beside and number is not None and is_whole:
            self._uses.scaled_edges.setdefault(name, set()).add((beside, int(number)))

    def _number(self, node: ast.expr | None) -> float | None:
        """The number that an expression is: a literal, or a name or the negative of one.

        Arithmetic with numbers is folded before.
        """
        match node:
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                number = self._number(operand)
                return None if number is None else -number
            case ast.Name():
                value = self._expressions.calculation(node)
                held = constant(value) if value else None
            case _:
                held = None if node is None else constant(node)
        return held if isinstance(held, (int, float)) else None

    def _limited_by(self, node: ast.expr, limit: float, depth: int = DEPTH) -> None:
        """Note what an input is that an expression, such as its magnitude, is a number of.

        Or its largest element, or that and a number, as in ``int(x.max()) + 1``.
        """
        if source := self._expressions.source(node):
            self._uses.limits.setdefault(source.input, set()).add(limit)
        elif (largest := _largest_of(node)) is not None:
            self._limited_by(largest, limit, depth)
        elif isinstance(node, ast.BinOp) and (more := self._added_to(node)) is not None:
            self._limited_by(node.left, limit - more, depth)
        elif depth and (inner := self._magnitude_of(node)) is not None and limit > 0:
            self._limited_by(inner, limit, depth - 1)
            self._limited_by(inner, -limit, depth - 1)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            self._limited_by(node.operand, -limit, depth)
        elif depth and (value := self._expressions.calculation(node)) is not None:
            self._limited_by(value, limit, depth - 1)

    def _added_to(self, node: ast.BinOp) -> float | None:
        """The number that is added to, or subtracted from, what is left of it."""
        number = self._number(node.right)
        if number is None or not isinstance(node.op, ast.Add | ast.Sub):
            return None
        return number if isinstance(node.op, ast.Add) else -number

    def _magnitude_of(self, node: ast.expr) -> ast.expr | None:
        """What an expression is the absolute value of."""
        match node:
            case ast.Call(func=ast.Name(id="abs"), args=[value]):
                return value
            case ast.Call(func=ast.Attribute(ast.Name(id="torch"), attr="abs"), args=[value]):
                return value
            case ast.Call(func=ast.Attribute(value=value, attr="abs"), args=[]):
                return value
        return None

    def _compared(self, node: ast.expr, depth: int = DEPTH) -> str | None:
        """The floating input whose elements, in any order, or their magnitudes are compared."""
        if source := self._expressions.source(node):
            return source.input if self._inputs[source.input].dtype.is_floating else None
        match node:
            case ast.Attribute(value=inner, attr="values"):
                pass
            case ast.Subscript(value=inner):
                pass
            case ast.Call(
                func=ast.Attribute(ast.Name(id="torch"), "sort" | "gather" | "index_select"),
                args=[inner, *_],
            ):
                pass
            case ast.Call(func=ast.Attribute(value=inner, attr="sort" | "gather" | "index_select")):
                pass
            case _:
                held = self._magnitude_of(node) or self._expressions.calculation(node)
                return self._compared(held, depth - 1) if held is not None and depth else None
        return self._compared(inner, depth - 1) if depth else None

    def _equated(self, node: ast.Compare) -> set[str]:
        """Integer inputs that are asked whether they equal each other, or themselves elsewhere.

        Or which of their own elements is greater.
        """
        sides = [self._expressions.integer(each) for each in (node.left, *node.comparators)]
        alike = all(isinstance(each, ast.Eq | ast.NotEq) for each in node.ops)
        alike |= len({*sides}) == 1
        return {name for name in sides if name} if alike and None not in sides else set()

    def _reaches(self, left: ast.expr, operation: ast.cmpop, right: ast.expr) -> None:
        """Note what places along an axis are compared with: how many count, or the last one."""
        axis, other = self._along(left), right
        excludes = isinstance(operation, ast.Lt | ast.GtE)
        if axis is None:
            axis, other = self._along(right), left
            excludes = isinstance(operation, ast.Gt | ast.LtE)
        if isinstance(other, ast.UnaryOp) and isinstance(other.op, ast.USub):  # a distance
            other, excludes = other.operand, False
        name = self._expressions.integer(other)
        if axis is not None:
            self._note_running(other, axis)
        is_equality = isinstance(operation, ast.Eq | ast.NotEq)
        if axis is None and is_equality:
            self._equals_block(left, right)
        if axis is None or name is None:
            return
        if is_equality:
            excludes = False  # one of these places, or none
        if is_equality or axis not in (self._inputs[name].shape or ()):
            noted: dict[str, str] | dict[str, str | int]
            noted = self._uses.lengths if excludes else self._uses.picks
            noted.setdefault(name, axis)

    def _equals_block(self, *sides: ast.expr) -> None:
        """Note numbers that are asked whether they are those of blocks of places along an axis."""
        for one, other in (sides, sides[::-1]):
            name, block = self._expressions.integer(one), self._moved_from(other)
            match block:
                case ast.BinOp(left=places, op=ast.FloorDiv(), right=divisor) if name:
                    axis, size = self._expressions.along(places), self._expressions.size(divisor)
                    if axis and size:
                        self._uses.picks.setdefault(name, f"({axis} + {size} - 1) // {size}")

    def _note_running(self, sums: ast.expr, axis: str) -> None:
        """Note integers whose running sums are held against places along an axis."""
        match self._moved_from(sums):
            case ast.Call(func=ast.Attribute(attr="cumsum")) as call:
                for name in filter(None, map(self._expressions.integer, self._operands(call)[:1])):
                    self._uses.running.setdefault(name, axis)

    def _along(self, node: ast.expr) -> str | None:
        """The axis along which an expression has places, or distances from these."""
        node = self._expressions.calculation(node) or node
        match node:
            case ast.BinOp(left=places, op=ast.Add() | ast.Sub()):
                return self._expressions.along(places)
        return self._expressions.along(node)

    def visit_Return(self, node: ast.Return) -> None:
        self.generic_visit(node)
        held = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        for name, value in zip(self._outputs, held, strict=False):
            noted = self._uses.bits
            noted[name] = (
                noted.get(name, True) and value is not None and self._expressions.are_bits(value)
            )

    def visit(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._parents[child] = node
        super().visit(node)

    def left_out(self) -> dict[str, LeftOut]:
        """The floating tensors like an output of which all is done in one of two branches.

        As what is added to is where ``beta`` is 0, or where it is written for the first time.
        """
        shapes = [spec.shape for spec in self._outputs.values() if spec.dtype.is_floating]
        like = {n: at for n, at in self._around.items() if self._inputs[n].shape in shapes}
        found = (
            (n, self._asked_of_scalar(self._tests[i], k)) for n in like for i, k in like[n].items()
        )
        return {name: left_out for name, left_out in found if left_out is not None}

    def _asked_of_scalar(self, test: ast.expr, case: int) -> LeftOut | None:
        """What a scalar is asked, if that is no more than how it compares with a number."""
        match test:
            case ast.UnaryOp(op=ast.Not(), operand=inner):
                return self._asked_of_scalar(inner, 1 - case)
            case ast.Compare(left=left, ops=[operation], comparators=[right]):
                compare, number = COMPARE.get(type(operation)), self._number(right)
            case _:
                left, compare, number = test, COMPARE[ast.NotEq], 0
        scalar = next(iter(self._scalars([left])), None)
        if scalar is None or compare is None or number is None:
            return None
        return LeftOut(scalar, compare, number, bool(case))

    def visit_Name(self, node: ast.Name) -> None:
        self._note_around(node)
        if name := self._expressions.integer(node):
            self._uses.seen.add(name)
            self._uses.more_than_true |= set() if self._is_condition(node) else {name}
            self._uses.more_than_halves |= set() if self._is_halved(node) else {name}
            if not self._moves(node):
                self._uses.computed.add(name)
                self._uses.beyond_equality |= set() if self._is_asked_for(node) else {name}

    def _is_halved(self, node: ast.AST) -> bool:
        """Whether no more than 32 bits of a number are taken."""
        parent = self._parents[node]
        match parent:
            case ast.Call(func=ast.Name(id="int")):
                return self._is_halved(parent)
            case ast.BinOp(left=left, op=ast.RShift(), right=right) if left is node:
                return constant(right) == 32
            case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
                return 2**32 - 1 in (constant(left), constant(right))
        return False

    def _is_condition(self, node: ast.AST) -> bool:
        """Whether it is only asked whether a number is true."""
        parent = self._parents[node]
        match parent:
            case ast.Call(func=ast.Name(id="int" | "bool")):
                return self._is_condition(parent)
            case ast.UnaryOp(op=ast.Not()) | ast.BoolOp():
                return self._is_condition(parent)
            case ast.If(test=test) | ast.IfExp(test=test):
                return test is node
        return False

    def _is_asked_for(self, node: ast.AST) -> bool:
        """Whether elements are only asked whether they equal a number, or are below 0."""
        parent = self._parents[node]
        if isinstance(parent, ast.Subscript) and parent.value is node:
            return self._is_asked_for(parent)
        return (
            isinstance(parent, ast.Compare)
            and parent.left is node
            and all(isinstance(constant(each), int) for each in parent.comparators)
            and (
                all(isinstance(each, ast.Eq | ast.NotEq) for each in parent.ops)
                # Or whether it is padding.
                or (
                    isinstance(parent.ops[-1], ast.GtE | ast.Lt)
                    and constant(parent.comparators[-1]) == 0
                )
            )
        )

    def _note_around(self, node: ast.Name) -> None:
        """Note the branches around a calculation; none where a variable is something else later."""
        if isinstance(node.ctx, ast.Store):
            self._stores[node.id] += 1
            return
        if self._is_of_shape(node):
            return
        for tensor in self._expressions.floats(node) if not self._is_renamed(node) else ():
            around = self._around.setdefault(tensor, {**self._decided})
            self._around[tensor] = {
                each: case
                for each, case in around.items()
                if self._decided.get(each) == case and self._stores[node.id] < 2
            }

    def _is_of_shape(self, node: ast.AST) -> bool:
        """Whether no more than its shape or dtype is taken, as by ``torch.zeros_like(y)``."""
        match self._parents[node]:
            case ast.Attribute(attr=attr):
                return attr in SHAPES
            case ast.Call(func=ast.Attribute(attr=attr), args=[first, *_]):
                return attr in LIKE and first is node
        return False

    def _is_renamed(self, node: ast.AST) -> bool:
        """Whether elements are only given another name, as by ``y = y.float()``."""
        parent = self._parents[node]
        while isinstance(parent, ast.Attribute | ast.Call) and not isinstance(node, ast.Call):
            node, parent = parent, self._parents[parent]
        is_source = isinstance(node, ast.expr) and self._expressions.source(node) is not None
        return isinstance(parent, ast.Assign) and parent.value is node and is_source

    def _moves(self, node: ast.AST) -> bool:
        """Whether elements are only moved from where they are named to where they are kept."""
        parent = self._parents[node]
        match parent:
            case ast.Attribute(attr=attr):
                return attr in SHAPES or self._moves_by(parent)
            case ast.Call(func=ast.Attribute(value=value, attr=attr), args=[first, *_]):
                is_put = attr.removesuffix("_") in _FILLS
                is_moved = first is node and attr in MOVES and self._is_module(value)
                moved = node is not first if is_put else is_moved
                ends = attr in _AMONG or (first is node and attr in LIKE | _UNIQUE)
                return ends or (moved and self._moves(parent))
            case ast.Compare():
                return bool(self._equated(parent))
            case ast.Subscript(value=value):
                return value is node and self._moves(parent)
            case ast.Tuple() | ast.List():
                return self._moves(parent)
        is_measured = isinstance(parent, ast.Call) and ast.unparse(parent.func) == "len"
        return is_measured or isinstance(parent, ast.Return) or self._is_kept(parent)

    def _moves_by(self, method: ast.Attribute) -> bool:
        call = self._parents[method]
        is_called = isinstance(call, ast.Call) and call.func is method
        if method.attr == "view" and views_bits(call):
            return False
        moves = method.attr.removesuffix("_") in MOVES | _MASKED.keys()
        return moves and self._moves(call if is_called else method)

    def _is_kept(self, node: ast.AST) -> bool:
        """Whether it is put into a tensor, or gets a name under which it is known."""
        match node:
            case ast.Assign(targets=[ast.Subscript(), *_]):
                return True
            case ast.Assign(value=value):
                held = value.elts if isinstance(value, ast.Tuple) else [value]
                return all(self._expressions.source(each) is not None for each in held)
        return False


def _copied(
    run: ast.FunctionDef, inputs: Mapping[str, TensorSpec], outputs: Mapping[str, TensorSpec]
) -> dict[str, Collection[float]]:
    """The infinities and NaN of inputs of which outputs are copies, or rows of which are in these.

    Those that are put in order have no NaN, whose place libraries don't agree on.
    """
    copied, ordered = (names & inputs.keys() for names in copied_inputs(run))
    asked: dict[str, Collection[float]] = {}
    for name in copied:
        spec, others = inputs[name], [*outputs.values()]
        if name in ordered:
            if spec.dtype.is_floating and any(spec.dtype is each.dtype for each in others):
                asked[name] = NOT_FINITE["isinf"]
        elif any(_may_be_in(name, spec, each) for each in others):
            asked[name] = NOT_FINITE["isfinite"]
    return asked


def _may_be_in(name: str, spec: TensorSpec, output: TensorSpec) -> bool:
    """Whether an output may hold rows of an input as they are, or longer or shorter ones.

    Not those of tables and weights, which are finite: they may be picked by a product.
    """
    shape, others = spec.shape or (), output.shape or ()
    if not spec.dtype.is_floating or spec.dtype is not output.dtype or not shape:
        return False
    if shape == others:
        return True
    is_longer = len(shape) == len(others) and sum(map(ne, shape, others)) == 1
    are_rows = is_longer or shape[-1:] == others[-1:]
    return are_rows and len(shape) > 1 and _TABLE.fullmatch(name) is None


def _is_faint(node: ast.expr) -> bool:
    """Whether it is an epsilon, which changes only what is near zero."""
    number = constant(node)
    return isinstance(number, float) and 0 < abs(number) < EPSILON
