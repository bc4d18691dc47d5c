"""What a failure's diagnosis says that other workloads show as well.

With certain values nearly anything looks like a pattern: of a single row, what is wrong is wrong
everywhere. So workloads that differ in values, or are twice as large, are asked too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from math import isclose
from typing import TYPE_CHECKING

from pytest_fib.data import DTYPE_CLASSES, Part
from pytest_fib.diagnosis import _parts as parts
from pytest_fib.diagnosis._diagnose import OF_THESE_INPUTS, VAGUE_PATTERNS
from pytest_fib.diagnosis._parts import (
    WRONG,
    first_part,
    has_part,
    is_in,
    replaced,
    saying,
    without,
)
from pytest_fib.diagnosis._wrong_output import dimension

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Diagnosis

#: The share of wrong elements that counts as all.
NEARLY = 0.9
#: How far apart two numbers that are the same may be: some are fitted; and how far another factor
#: is from one, as a share of that one's distance from 1.
SAME, OTHER = 1 / 16, 0.1
#: What a place is called that is said as a number of elements alone; and all of an output.
COUNTED, ALL = "counted", "everywhere"
#: Patterns of inputs that the kernel may have read in place of others.
MISREAD = "misread input"
#: Patterns that few elements may have by chance; and how many have to agree on one of the others.
BY_CHANCE = ("copied input", "swapped outputs", "permuted", "factor per row")
VOTES = 3
#: How many times as many elements as usual a count may name, or by how much fewer.
FAR = 3.0


def agreed(own: Diagnosis, others: Sequence[Diagnosis]) -> Diagnosis:
    """The diagnosis, as far as half of the others say the same.

    Otherwise one on which most agree, if it is more than that something is wrong; else how many
    elements are. ``others`` are of other workloads that fail.
    """
    if not others:
        return _of_certain_values(own)
    if 2 * len(_like(own, others)) >= len(others):
        alike = [own, *_like(own, others)]
    else:
        vague = [each for each in (own, *others) if _is_only_wrong(each)]
        alike = _most(own.output, others) or [x for x in vague if x.output == own.output]
    if not alike:
        return only_wrong(own)
    found = _with_agreed_name(_with_whole_end(_at_agreed_place(alike), alike), alike)
    return _with_other_factor(_with_agreed_number(found, alike), alike)


def claims_more(own: Diagnosis) -> bool:
    """Whether a diagnosis says where, what a factor is or what was read, by sizes perhaps."""
    is_more = own.pattern == MISREAD or _one_factor(own) is not None
    return is_more or has_part(parts.Place | parts.Name, own.parts)


def as_at_other_sizes(
    own: Diagnosis, others: Sequence[Diagnosis], definition: Definition
) -> Diagnosis:
    """The diagnosis, without what isn't so in any of the ``others``, of workloads of other sizes.

    These are the name of a number, such as one of the sizes; what was read in place of an input, if
    something else is said there; and where it is, if an element that is wrong there is elsewhere. A
    factor is said with another one that there is.
    """
    alike = [each for each in others if each.pattern == own.pattern]
    if alike and not any(has_part(parts.Name, each.parts) for each in alike):
        own = saying(own, *without(parts.Name, own.parts))
    own = _with_other_factor(own, alike)
    if own.pattern == MISREAD:
        is_otherwise = any(not _is_only_wrong(each) for each in others)
        return only_wrong(own) if is_otherwise and not alike else own
    elements = [
        (index, shape) for each in others for index, shape in _elements(own, each, definition)
    ]
    if elements and not any(has_part(parts.PastLimit, each.parts) for each in others):
        own = saying(own, *without(parts.PastLimit, own.parts))
    axes = definition.outputs[own.output].shape or ()
    dims = [dimension(axis, dim) for dim, axis in enumerate(axes)]
    places = [part for part in own.parts if isinstance(part, parts.Place)]
    denied = [
        place for place in places if not all(_is_at(place, own, dims, *each) for each in elements)
    ]
    return _without_places(own, denied) if denied else own


def _elements(
    own: Diagnosis, other: Diagnosis, definition: Definition
) -> list[tuple[list[int], tuple[int, ...]]]:
    """The indices of the elements that another workload's diagnosis shows, and the shape there."""
    spec = definition.outputs[own.output]
    is_unpacked = spec.dtype in DTYPE_CLASSES["fp4"]  # its elements are twice as many as sizes say
    if other.output != own.output or other.shown_by is None or is_unpacked:
        return []
    shape = spec.shape_at(definition.axis_values(other.shown_by.axes))
    text = " ".join((other.element, *other.details))
    form = re.compile(rf"(?<![\w.]){re.escape(own.output)}\[([\d, ]+)\] got\b")
    return [([*map(int, index.split(", "))], shape) for index in form.findall(text)]


def _is_at(
    place: Part, own: Diagnosis, dims: Sequence[str], index: Sequence[int], shape: Sequence[int]
) -> bool:
    """Whether an element is at a place, of other sizes."""
    if isinstance(place, parts.PlaceAlong):
        # Of two dimensions of one axis, it may be either.
        tile = own.tiles.get(place.axis, 0)
        along = [dim for dim, axis in enumerate(dims) if axis == place.axis]
        return not along or any(place.has(index[dim], shape[dim], tile) for dim in along)
    if isinstance(place, parts.Except):
        return all(_is_at(each, own, dims, index, shape) for each in place.left_out)
    return all(i == size - 1 for i, size in zip(index, shape, strict=True))  # the very last one


def _without_places(own: Diagnosis, denied: Sequence[parts.Place]) -> Diagnosis:
    """The diagnosis with how much in place of where, for these places of its sentence."""
    ends = {place.axis for place in denied if isinstance(place, parts.End)}
    said: list[str | Part] = []
    for part in own.parts:
        if isinstance(part, parts.Place) and part in denied:
            said += part.how_much()
        elif not (isinstance(part, parts.Guess) and part.axis in ends):
            said.append(part)
    return saying(only_wrong(own) if _is_only_wrong(own) else own, *said)


def says_the_same(own: Diagnosis, other: Diagnosis) -> bool:
    """Whether two diagnoses have the same pattern, at the same sort of place."""
    return bool(_like(own, [other])) and _place_of(own) == _place_of(other)


def _like(diagnosis: Diagnosis, others: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Those of others that say the same of the values: of what is only wrong, of the same output.

    A pattern may show in several outputs that are equally wrong.
    """
    if _is_only_wrong(diagnosis):
        return [each for each in others if _is_only_wrong(each) and each.output == diagnosis.output]
    return [each for each in others if each.pattern == diagnosis.pattern]


def _is_only_wrong(diagnosis: Diagnosis) -> bool:
    """Whether a diagnosis says no more than that an output is wrong, and where."""
    return diagnosis.pattern in (*VAGUE_PATTERNS, diagnosis.place, "follows an input")


def _most(output: str, others: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Those on whose pattern of an output's values most of the others agree; else none."""
    own = [each for each in others if each.output == output]
    largest = max((_like(each, own) for each in own), key=len, default=[])
    is_agreed = len(largest) >= VOTES and 2 * len(largest) > len(others)
    may_be = is_agreed and largest[0].pattern not in BY_CHANCE
    return largest if may_be and not _is_only_wrong(largest[0]) else []


def _place_of(diagnosis: Diagnosis) -> str:
    """Where a sentence says that an output is wrong: all that only say how much are alike."""
    if has_part(parts.Everywhere, diagnosis.parts) or wrong_share(diagnosis) >= NEARLY:
        return ALL
    if has_part(parts.HowMany, diagnosis.parts):
        return COUNTED
    return "expected" if has_part(parts.ByExpected, diagnosis.parts) else diagnosis.place


def _at_agreed_place(alike: Sequence[Diagnosis]) -> Diagnosis:
    """The first of some that say the same whose place half of them name, or that names none."""
    places = Counter(map(_place_of, alike))
    if len(places) > 1:
        del places[ALL]  # what is so for one row alone
    usual = max(places, key=lambda place: (places[place], place == COUNTED))
    if 2 * places[_place_of(alike[0])] > len(alike):
        usual = _place_of(alike[0])
    elif 2 * places[usual] < len(alike) and COUNTED in places:
        usual = COUNTED
    found = [each for each in alike if _place_of(each) == usual]
    if not _is_only_wrong(found[0]):
        return found[0]
    if (own := _where_expected(alike[0])) is not None:
        count = sum(own.value in _values_expected(each) for each in alike)
        if 2 * count >= len(alike) and _where_expected(found[0]) is None:
            only = parts.OnlyExpected(own.value)
            return saying(only_wrong(alike[0]), f"{alike[0].output}:", WRONG, only)
    # Without a place, a sentence of another workload would need its element.
    found = [each for each in found if each is alike[0] or _says_where(each)]
    if not found:
        return only_wrong(alike[0])
    return _usual_count(found) if usual == COUNTED else found[0]


def _where_expected(diagnosis: Diagnosis) -> parts.Expected | None:
    """What is expected where elements are wrong, if that is the last that is said."""
    last = diagnosis.parts[-1]
    return last if isinstance(last, parts.Expected) else None


def _values_expected(diagnosis: Diagnosis) -> set[str]:
    return {part.value for part in diagnosis.parts if isinstance(part, parts.Expected)}


def _says_where(diagnosis: Diagnosis) -> bool:
    is_place = diagnosis.pattern == diagnosis.place
    return is_place or has_part(
        parts.HowMany | parts.Everywhere | parts.ByExpected, diagnosis.parts
    )


def _usual_count(alike: Sequence[Diagnosis]) -> Diagnosis:
    """The first, unless it has far more or far fewer wrong elements than the one in the middle."""
    middle = sorted(alike, key=wrong_share)[len(alike) // 2]
    first, usual = wrong_share(alike[0]), wrong_share(middle)
    return alike[0] if first <= FAR * usual and usual <= FAR * first else middle


def wrong_share(diagnosis: Diagnosis) -> float:
    """The share of wrong elements that a sentence names; 0 if it names none."""
    shares = [part.share for part in diagnosis.parts if isinstance(part, parts.HowMany)]
    return shares[0] if shares else 0.0


def _with_agreed_name(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis that names a factor or an offset only if half of those that say the same do."""
    name = first_part(parts.Name, diagnosis.parts)
    if 2 * sum(name in each.parts for each in alike) >= len(alike):
        return diagnosis
    return saying(diagnosis, *without(parts.Name, diagnosis.parts))


def _with_agreed_number(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis with the value or the offset of elements only if half of the others name it.

    What is calculated from inputs is another with others.
    """
    number = first_part(parts.Number, diagnosis.parts)
    if number is None:
        return diagnosis
    numbers = (first_part(parts.Number, each.parts) for each in alike)
    named = [float(each.digits) for each in numbers if each]
    same = [each for each in named if isclose(each, float(number.digits), rel_tol=SAME)]
    if 2 * len(same) >= len(named):
        return diagnosis
    # The name of a scalar may be agreed, of which each has its own.
    is_named = all(first_part(parts.Name, diagnosis.parts) in each.parts for each in alike)
    said = diagnosis.parts if is_named else without(parts.Name, diagnosis.parts)
    closed = (number, ",") if is_in((number, ","), said) else (number,)
    return saying(diagnosis, *replaced(closed, number.otherwise, said))


def _with_whole_end(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis with the most of an end of a dimension that two of those that say the same have.

    Elements may be right by chance, as where an angle is nearly 0. What else it says of the end,
    such as of which tiles it is the rest, goes with its length.
    """
    own = _long_end(diagnosis)
    if own is None or has_part(parts.Partly | parts.Guess | parts.PastLimit, diagnosis.parts):
        return diagnosis
    ends = Counter(end for each in alike if (end := _long_end(each)))
    counts = [
        end.count for end, n in ends.items() if n > 1 and replace(end, count=own.count) == own
    ]
    longest = replace(own, count=max([own.count, *counts]))
    return saying(diagnosis, *replaced((own,), (longest,), diagnosis.parts))


def _long_end(diagnosis: Diagnosis) -> parts.End | None:
    """The first end of a dimension that is more than one index."""
    ends = (part for part in diagnosis.parts if isinstance(part, parts.End))
    return next((end for end in ends if end.count > 1), None)


def _with_other_factor(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis of one factor of all elements, with another one that they have elsewhere."""
    own = _one_factor(diagnosis)
    if own is None or has_part(parts.Name, diagnosis.parts):
        return diagnosis
    factors = [found.digits for each in alike if (found := _one_factor(each))]
    least = OTHER * abs(float(own.digits) - 1) + _half_a_digit(own.digits)
    distances = {n: abs(float(n) - float(own.digits)) for n in factors}
    other = next((n for n in factors if distances[n] > least + _half_a_digit(n)), None)
    if other is None:
        return diagnosis
    return saying(diagnosis, *replaced((own,), (own.beside(other),), diagnosis.parts))


def _one_factor(diagnosis: Diagnosis) -> parts.Factor | None:
    """The factor of all elements, if no others are named."""
    factor = first_part(parts.Factor, diagnosis.parts)
    return factor if factor and not factor.others else None


def _half_a_digit(number: str) -> float:
    """Half of what one more in the last digit of a number is."""
    exponent = Decimal(number).as_tuple().exponent
    return 10.0**exponent / 2 if isinstance(exponent, int) else 0.0


def _of_certain_values(own: Diagnosis) -> Diagnosis:
    """A diagnosis that no other workload shows: what needs certain values, but not where."""
    if own.pattern in OF_THESE_INPUTS and own.pattern not in VAGUE_PATTERNS:
        found = saying(own, *without(parts.Everywhere, own.parts))
        return found.model_copy(update={"vague": True})
    is_count = has_part(parts.HowMany, own.parts) and _is_only_wrong(own)
    says_which = has_part(parts.ByExpected | parts.WhereZero, own.parts)
    return own if is_count or says_which else only_wrong(own)


def only_wrong(own: Diagnosis) -> Diagnosis:
    """That an output is wrong, with an element of it; of bools, which way."""
    found = saying(own, f"{own.output}:", first_part(parts.WrongBool, own.parts) or WRONG)
    return found.model_copy(update={"pattern": "scattered", "vague": True})
