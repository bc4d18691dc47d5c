"""What a reference does with its inputs, as far as its source tells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pytest_fib.workloads._scalar_uses import ScalarUses

#: Quotients of two numbers, the second of which is not zero.
QUOTIENTS = {"div", "divide", "true_divide"}
#: Functions of at least one element.
OF_SOME = {"softmax", "log_softmax", "logsumexp", "mean", "amax", "amin", "max", "min", "argmax"}
OF_SOME |= {"argmin", "std", "var", "median", "topk", "kthvalue"}
OF_SOME |= {"scaled_dot_product_attention", *QUOTIENTS}
#: Functions of which the result is the greatest or the least element, or its place.
EXTREMES = {"amax", "amin", "max", "min", "argmax", "argmin", "maximum", "minimum"}
#: What mends results of no elements.
MENDS = {"nan_to_num"}
#: Functions that put elements in their order.
SORTING = {"sort", "argsort", "msort", "topk", "kthvalue", "unique"}
#: Functions of logits, some of which count for much more than others.
WEIGHING = {"softmax", "log_softmax", "logsumexp", "cross_entropy"}
#: Functions of infinities that kernels may give otherwise than the reference.
_NOT_OF_INFINITIES = WEIGHING | {"exp", "exp2", "mean", "sum"}


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

    @property
    def mends_nothing(self) -> bool:
        """Whether it puts numbers where a softmax, or the like, is one of nothing."""
        return bool(self.calls & MENDS or (self.of_some and self.of_some <= self.mended))

    def takes_nothing(self, lengths: str) -> bool:
        """Whether the reference seems to be defined if one of these lengths is 0.

        What it compares with 0 it does something else for then.
        """
        of_some = OF_SOME
        if not self.has_infinities and lengths not in self.sliced:
            of_some = OF_SOME - EXTREMES  # another number is put for what is left out
        needs_some = self.calls & of_some or lengths in self.counted
        is_mended = self.mends_nothing or 0 in self.limits.get(lengths, ())
        is_mended = is_mended or lengths in self.alternatives or self.asks_for_any
        return lengths in self.seen and bool(is_mended or not needs_some)
