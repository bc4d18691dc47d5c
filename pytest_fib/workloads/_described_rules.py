"""Rules whose numbers are those that an input's description says there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_fib.data import DTYPE_CLASSES, InputRule, TensorSpec, kinds
from pytest_fib.workloads._descriptions import more

if TYPE_CHECKING:
    from pytest_fib.workloads._descriptions import Bound, Said

#: How far numbers go from the only end that a description says: floating ones, and whole ones.
WIDTH, WHOLE_WIDTH = 4.0, 8192
#: The share of a range by which numbers stay off an end that is none of them, as bfloat16 has it.
MARGIN = 2.0**-8
#: And the share of the end itself: bfloat16 has none that are closer to it.
SPACING = 2.0**-7
#: What holds flags of which a share is true.
_FLAGS = DTYPE_CLASSES["not packed"] - DTYPE_CLASSES["fp8"]
#: Positive numbers of which nothing else is said.
POSITIVE = kinds.Scales(min=2**-4, max=4.0)


@dataclass(frozen=True)
class Described:
    """An input and what its description says.

    ``sizes`` are those of const axes. ``asks_for_0``: the reference compares it with 0.
    ``is_guess``: its rule would do otherwise too. ``is_free``: the axis that it
    indexes isn't known for sure, or it is clamped to its size; ``is_index``: it indexes one.
    """

    said: Said
    spec: TensorSpec
    sizes: Mapping[str, int] = field(default_factory=dict)
    asks_for_0: bool = False
    is_guess: bool = False
    is_free: bool = False
    is_index: bool = True

    @property
    def is_whole(self) -> bool:
        return self.spec.dtype in DTYPE_CLASSES["integer"]

    def may_be(self, *numbers: Bound) -> bool:
        """Whether the dtype holds these, of which none falls below the one before.

        Of an integer dtype they are whole numbers.
        """
        first, last = self.spec.dtype.ends
        known = [number for number in numbers if not isinstance(number, str)]
        if self.is_whole and any(number != int(number) for number in known):
            return False
        return sorted(known) == known and all(first <= number <= last for number in known)

    def from_to(self, width: int | float) -> tuple[Bound, Bound] | None:
        """Both ends; of one that is said, another so far from it, or as far as its own size.

        None where none is said, or the dtype doesn't hold these numbers.
        """
        least, most = self.said.least, self.said.most
        first, last = self.spec.dtype.ends
        if least is None and isinstance(most, str):
            least = 0
        elif least is None and most is not None and not isinstance(most, str):
            least = max(first, most - max(width, abs(most)))
        elif most is None and least is not None and not isinstance(least, str):
            most = min(last, least + max(width, abs(least)))
        if least is None or most is None:
            return None
        return (least, most) if self.may_be(least, most) else None


def within(rule: InputRule, described: Described) -> InputRule:
    """A rule, with numbers only that the description says there are; others stay as they are."""
    make = _WITHIN.get(type(rule))
    return make(rule, described) if make else rule


def of_description(described: Described) -> InputRule | None:
    """The rule of whole numbers of which nothing is known but the description; None if it is mute.

    From a least number alone, up to a few thousand; to a greatest alone, from 0. What stands for
    none is among them.
    """
    if not described.is_whole:
        return None
    made = _structure(described) or _range(described)
    if made is None and described.said.are_any:
        least, most = described.spec.dtype.ends
        return kinds.Integers(min=int(least), max=int(most))
    return made


def _structure(described: Described) -> InputRule | None:
    """A permutation, sorted numbers, one of a few, or what stands for none beside a range."""
    said, shape = described.said, described.spec.shape
    if said.is_permutation and described.is_whole and shape is not None and len(shape) == 1:
        return kinds.Permutation()
    if distinct := _distinct(described):
        return distinct
    if said.is_sorted and shape and described.spec.dtype in DTYPE_CLASSES["not packed"]:
        ends = described.from_to(WHOLE_WIDTH if described.is_whole else WIDTH)
        return _in_order(described, *(ends or (0, None)))
    if sorted(said.choices) == [0, 1] and shape and described.spec.dtype in _FLAGS:
        return kinds.Boolean()
    if said.choices and described.may_be(*sorted(said.choices)):
        return kinds.OneOf(values=list(said.choices))
    has_range = described.is_whole and said.least == 0 and said.most is not None
    return _range(described) if has_range and said.sentinels and shape else None


def _distinct(described: Described) -> InputRule | None:
    """Indices that are distinct in each row, where rows have all that there are, or are said so.

    Of a range from 0 on that rows fit into for sure: it has as many numbers, or more; or sizes
    bound it, which then are such.
    """
    said, shape = described.said, described.spec.shape
    if not shape or not described.is_whole or said.is_sorted:
        return None
    size = described.sizes.get(shape[-1], shape[-1])
    named = (said.rows_have_all or "").lower().removesuffix("s")
    is_last = said.least == 0 and said.most is not None and more(said.most, 1) == shape[-1]
    are_all = said.rows_have_all is not None and (is_last or (named != "" and named in shape[-1]))
    if len(shape) > 1 and are_all and not said.sentinels:
        return kinds.Indices(below=shape[-1])
    if said.are_distinct is not True or said.least != 0 or said.most is None:
        return None
    below = more(said.most, 1)
    known = described.sizes.get(str(below), below)
    is_enough = isinstance(size, int) and not isinstance(known, str) and size <= known
    is_enough |= size == known or (isinstance(below, str) and below not in described.sizes)
    sentinels = list(said.sentinels) or None
    return kinds.Indices(below=below, sentinels=sentinels) if is_enough else None


def _in_order(described: Described, low: Bound, high: Bound | None) -> InputRule:
    """Numbers that never fall; of which no two are equal, if that is said."""
    if not (described.is_whole or isinstance(low, str) or isinstance(high, str) or high is None):
        low, high = _inside(described.said, low, high)
    unique, pad = described.said.are_distinct is True, _pad(described.said)
    if (low, high) == (0, None):
        return kinds.Sorted(unique=unique, pad=pad)  # no least is said
    return kinds.Sorted(min=low, max=high, unique=unique, pad=pad)


def _pad(said: Said) -> int | None:
    """What rows end in, if anything."""
    return said.sentinels[0] if said.are_trailing and len(said.sentinels) == 1 else None


def _sorted(rule: kinds.Sorted, described: Described) -> InputRule:
    return _structure(described) or rule


def _range(described: Described) -> InputRule | None:
    said, is_scalar = described.said, described.spec.is_scalar
    ends: tuple[Bound, Bound] | None = None
    if said.bits is not None:
        ends = _of_bits(described)
    elif said.least is not None:
        ends = described.from_to(WHOLE_WIDTH)
    elif said.most is not None and (isinstance(said.most, str) or said.most > 0):
        ends = (0, said.most) if described.may_be(0, said.most) else None
    if ends is None:
        return None
    least, most = ends
    if said.has_zero and least == 1:
        least = 0
    if said.sentinels and least == 0 and not is_scalar:
        return kinds.Positions(below=more(most, 1), sentinels=list(said.sentinels))
    beyond = _beyond(said, least, most)
    if beyond and isinstance(least, int) and max(beyond) == least - 1:
        least, beyond = least - 1, None
    stepped = _stepped(least, most, said.step)
    return kinds.Integers(
        min=stepped[0], max=most, ends=is_scalar, step=stepped[1], sentinels=beyond
    )


def _beyond(said: Said, least: Bound, most: Bound) -> list[int] | None:
    """Those of the numbers that stand for nothing that are outside a range of numbers."""
    if isinstance(least, str):
        return None
    sentinels = [*said.sentinels, *([0] if said.has_zero else [])]
    return [n for n in sentinels if n < least or (not isinstance(most, str) and n > most)] or None


def _stepped(least: Bound, most: Bound, step: int) -> tuple[Bound, int]:
    """The least multiple of a step that is in a range, and the step; without one, 1 is the step.

    Of an expression of axes, that itself.
    """
    if isinstance(least, str) or step == 1:
        return least, step
    first = least + -least % step
    return (first, step) if isinstance(most, str) or first <= most else (least, 1)


def _of_bits(described: Described) -> tuple[int, int] | None:
    """The ends of numbers of so many bits, as far as the dtype holds them."""
    said, (first, last) = described.said, described.spec.dtype.ends
    bits = said.bits or 0
    most = 2 ** (bits - said.are_signed) - 1
    least = -most - 1 if said.are_signed or said.any_negative else 0
    return (int(max(first, least)), int(min(last, most))) if bits else None


def _values(rule: kinds.Values, described: Described) -> InputRule:
    """Of a range, or of some beyond its only end, unless the reference asks for others."""
    said = described.said
    if structure := _structure(described):
        return structure
    if said.are_unit and described.spec.shape:
        return kinds.L2Normalized()
    is_negative = isinstance(said.least, int | float) and said.least < 0
    if said.are_shares and described.spec.shape and not is_negative:
        return kinds.Probabilities()
    may_be_0 = said.least == 0 and not said.is_open
    is_half_open = said.most is None and described.asks_for_0 and not may_be_0
    ends = None if is_half_open else described.from_to(WIDTH)
    if ends is None or any(isinstance(end, str) for end in ends) or ends[0] == ends[1]:
        return rule
    if said.least == 0 and said.is_open and said.most is None:
        return POSITIVE
    return _uniform(kinds.Uniform(min=ends[0], max=ends[1], ends=True), described)


def _number(bound: Bound | None) -> float | None:
    """A bound, if it is no expression of axes."""
    return None if isinstance(bound, str) else bound


def _uniform(rule: kinds.Uniform, described: Described) -> InputRule:
    """In the range that is said, without ends that don't belong to it; or one of those listed."""
    said, low, high = described.said, rule.min, rule.max
    if said.choices and described.may_be(*sorted(said.choices)):
        return kinds.OneOf(values=list(said.choices))
    if beyond := _marks(described):
        rule = rule.model_copy(update={"sentinels": beyond})
    if isinstance(low, str) or isinstance(high, str):
        return rule
    least, most = _number(said.least), _number(said.most)
    width = high - low
    if least is not None and (most is not None or low < least):
        low, high = least, max(high, least + width if high <= least else high)
    if most is not None:
        low, high = (low if low < most else most - width), most
    if said.has_zero and 0 not in beyond:
        low = min(0.0, low)
    low, high = _inside(said, low, high)
    is_same = (low, high) == (rule.min, rule.max) and not said.has_zero
    if is_same or not described.may_be(low, high):
        return rule
    return rule.model_copy(update={"min": low, "max": high, "ends": rule.ends or said.has_zero})


def _marks(described: Described) -> list[float]:
    """The numbers that stand for something else beside a range; 0 too, if it is below that."""
    said, least = described.said, _number(described.said.least)
    marks = [n for n in said.marks if said.most is not None and described.may_be(n)]
    is_beside = said.has_zero and least is not None and least > 0
    return [*marks, *([0.0] if is_beside else [])]


def _inside(said: Said, low: float, high: float) -> tuple[float, float]:
    """Both ends of floating numbers, a little further in where an end is none of them."""
    margin = (high - low) * MARGIN
    low += max(margin, abs(low) * SPACING) if said.is_open and low == said.least else 0
    high -= max(margin, abs(high) * SPACING) if said.is_below and high == said.most else 0
    return low, high


def _integers(rule: kinds.Integers, described: Described) -> InputRule:
    """In the range that is said, where that is of numbers; else in both."""
    said = described.said
    if said.is_sorted and described.spec.shape and said.least is None and said.most is None:
        return _in_order(described, rule.min, rule.max)
    if structure := _structure(described):
        return structure
    low, high = _both_ends(rule, described)
    if not described.may_be(low, high):
        return rule
    least, step = _stepped(low, high, said.step)
    changed: dict[str, Any] = {"min": least, "max": high, "step": step if step > 1 else rule.step}
    if said.least is not None and (beyond := _beyond(said, low, high)):
        changed["sentinels"] = beyond
    return rule.model_copy(update=changed)


def _both_ends(rule: kinds.Integers, described: Described) -> tuple[Bound, Bound]:
    """The ends of whole numbers that are within a rule and within what is said."""
    said, low, high = described.said, rule.min, rule.max
    if isinstance(said.most, str) and (low, high) == described.spec.dtype.ends:
        low, high = 0, said.most  # any number, but below an axis as indices are
    is_certain = not described.is_guess  # else what is said counts alone
    if said.least is not None and low not in said.sentinels:
        low = _both("max", low, said.least, described.sizes) if is_certain else said.least
    if said.most is not None:
        high = _both("min", high, said.most, described.sizes) if is_certain else said.most
    elif not isinstance(low, str) and not isinstance(high, str) and low > high:
        high += low - rule.min if not isinstance(rule.min, str) else 0
    if said.has_zero and low == 1:
        low = 0
    return low, high


def _both(which: str, bound: Bound, said: Bound, sizes: Mapping[str, int]) -> Bound:
    """The bound that is said, within another that is an expression of axes."""
    if isinstance(said, str) and (said.endswith(f", {bound})") or said.startswith(f"min({bound},")):
        return said  # what the dtype holds is in it
    one, other = (_known(x, sizes) for x in (bound, said))
    if one == other:
        return bound
    if isinstance(one, str) or isinstance(other, str):
        return f"{which}({bound}, {said})"
    is_within = one < other if which == "min" else one > other
    return bound if isinstance(bound, str) and is_within else said


def _known(bound: Bound, sizes: Mapping[str, int]) -> Bound:
    """The number that a bound is, if that is known: a size, or numbers that are added up."""
    if not isinstance(bound, str):
        return bound
    if re.fullmatch(r"\d+(?: [-+] \d+)*", bound):
        return sum(int(each.replace(" ", "")) for each in re.findall(r"[-+]? ?\d+", bound))
    return sizes.get(bound, bound)


def _labels(rule: kinds.Labels, described: Described) -> InputRule:
    return of_description(described) or rule


def _scales(rule: kinds.Scales, described: Described) -> InputRule:
    """Not negative, or of a range, if that is said."""
    least, most = _number(described.said.least), _number(described.said.most)
    if least is not None and most is not None and described.may_be(least, most):
        kind = kinds.Scales if least > 0 else kinds.Uniform
        return kind(min=least, max=most)
    return rule.model_copy(update={"signed": rule.signed and least != 0})


def _lengths(rule: kinds.SeqLens | kinds.Split | kinds.Indptr, described: Described) -> InputRule:
    """None empty, if each is one or more; and none longer than is said.

    What may be below 0 is a bound that is clipped, no length.
    """
    least, most = described.said.least, described.said.most
    changed: dict[str, Any] = {}
    if isinstance(least, int) and least < 0 and isinstance(rule, kinds.SeqLens):
        return of_description(described) or rule
    if isinstance(least, int) and least > 0:
        changed["allow_empty"] = described.said.has_zero
    if isinstance(rule, kinds.Indptr) and described.said.are_distinct:
        changed["allow_empty"] = False
    if isinstance(rule, kinds.SeqLens) and most is not None:
        changed["max"] = _both("min", rule.max, most, described.sizes)
    return rule.model_copy(update=changed)  # type: ignore[return-value]


def _indices(rule: kinds.Indices, described: Described) -> InputRule:
    """Distinct ones, or not, or in order; and none that isn't said to be there, or is padding."""
    said = described.said
    if known := _all_or_some(rule, described):
        return known
    changed = _unique_rows(rule, described)
    if said.are_distinct is not None and rule.pad is None:
        changed["unique"] = said.are_distinct and (rule.unique or True)
    if (
        said.least in (None, 0, *said.sentinels)
        and said.most is not None
        and described.may_be(0, said.most)
    ):
        below = more(said.most, 1)
        changed["below"] = (
            below if described.is_free else _both("min", rule.below, below, described.sizes)
        )
    if said.padding is not None and rule.pad is None and str(rule.below) == said.padding:
        changed["below"] = more(rule.below, 1)
    is_free = rule.pad is None and rule.sentinels is None
    are_these = rule.pad is None and rule.sentinels in (None, [*said.sentinels])
    if (pad := _pad(said)) is not None and are_these:
        changed |= {"pad": pad, "sentinels": None}
    elif is_free and said.sentinels and not changed.get("unique", rule.unique):
        changed["sentinels"] = list(said.sentinels)
    unique = changed.get("unique", rule.unique)
    in_order = is_free and not said.sentinels if pad is None else are_these
    if said.is_sorted and in_order and unique != "everywhere":
        most = more(changed.get("below", rule.below), -1)
        return kinds.Sorted(min=0, max=most, unique=bool(unique), pad=pad)
    return _from_least(rule.model_copy(update=changed), described)


def _all_or_some(rule: kinds.Indices, described: Described) -> InputRule | None:
    """A permutation of all; or one of those that are listed, if these are some and may be equal."""
    if described.said.is_permutation and [*(described.spec.shape or ())] == [rule.below]:
        return kinds.Permutation()
    choices, below = sorted(described.said.choices), _known(rule.below, described.sizes)
    if not choices or choices[0] < 0 or rule.unique:
        return None
    is_within = isinstance(below, str) or choices[-1] < below
    return kinds.OneOf(values=choices) if is_within and described.may_be(*choices) else None


def _unique_rows(rule: kinds.Indices, described: Described) -> dict[str, Any]:
    """That indices are distinct in each row, where all rows of a matrix are permutations."""
    *outer, last = described.spec.shape or ("",)
    are_all = bool(outer) and last == rule.below and not described.said.sentinels
    return {"unique": True} if are_all and described.said.rows_have_all is not None else {}


def _from_least(rule: kinds.Indices, described: Described) -> InputRule:
    """Indices from the least on that is said, if that isn't 0 and they may be equal."""
    least, most = described.said.least, described.said.most
    if not isinstance(least, int) or least <= 0 or not rule.are_independent:
        return rule
    last = more(rule.below, -1)
    last = last if most is None else _both("min", last, most, described.sizes)
    return kinds.Integers(min=least, max=last)


def _positions(rule: kinds.Positions, described: Described) -> InputRule:
    """In the range or of those that are said, unless an axis that it indexes bounds it for sure."""
    said = described.said
    if said.is_sorted and described.spec.shape and not described.is_index:
        return _structure(described) or rule
    if isinstance(rule.below, str):
        return _positions_of_axes(rule, rule.below, described)
    if said.choices:
        return _structure(described) or rule
    is_range = said.least is not None and said.most is not None
    return (of_description(described) if is_range else None) or rule


def _positions_of_axes(rule: kinds.Positions, below: str, described: Described) -> InputRule:
    """The same where sizes bound them: one more or less than these may be left for padding."""
    said, most = described.said, described.said.most
    if said.padding == below and not described.is_index:
        return rule.model_copy(update={"below": more(below, 1)})
    if isinstance(most, str) and below == more(most, 2) and said.padding is None:
        return rule.model_copy(update={"below": more(most, 1)})
    if described.is_index and (isinstance(most, str) or not described.is_guess):
        return rule
    if said.choices:
        return _structure(described) or rule
    is_range = said.least is not None and most is not None and more(most, 1) != below
    return (of_description(described) if is_range else None) or rule


def _boolean(rule: kinds.Boolean, described: Described) -> InputRule:
    """More than true and false, if that is said."""
    made = of_description(described) if rule.total is None else None
    if made is None and described.is_whole and rule.total is None and described.said.sentinels:
        made = kinds.OneOf(values=[*described.said.sentinels, 0, 1])
    is_more = isinstance(made, kinds.OneOf) or (
        isinstance(made, kinds.Integers) and (made.min, made.max) != (0, 1)
    )
    return made if made is not None and is_more else rule


_WITHIN: Mapping[type, Callable[[Any, Described], InputRule]] = {
    kinds.Values: _values,
    kinds.Sorted: _sorted,
    kinds.Uniform: _uniform,
    kinds.Integers: _integers,
    kinds.Boolean: _boolean,
    kinds.Labels: _labels,
    kinds.Scales: _scales,
    kinds.SeqLens: _lengths,
    kinds.Lengths: _lengths,
    kinds.Starts: _lengths,
    kinds.Ends: _lengths,
    kinds.Indptr: _lengths,
    kinds.Indices: _indices,
    kinds.Positions: _positions,
}
