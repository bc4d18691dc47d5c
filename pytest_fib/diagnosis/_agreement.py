"""What a failure's diagnosis says that other workloads show as well.

With certain values nearly anything looks like a pattern: of a single row, what is wrong is wrong
everywhere. So workloads that differ in values, or are twice as large, are asked too.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from math import ceil, isclose
from typing import TYPE_CHECKING

from pytest_fib.data import DTYPE_CLASSES
from pytest_fib.diagnosis._diagnose import OF_THESE_INPUTS, VAGUE_PATTERNS
from pytest_fib.diagnosis._localize import (
    ALL_BUT,
    VERY_LAST,
    with_guessed_tiles,
    without_guess,
)
from pytest_fib.diagnosis._wrong_output import dimension

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Diagnosis

#: How many elements are wrong, in a sentence; and words for all of them, or nearly.
COUNT = re.compile(r" at (\d+) of (\d+) elements|( in one element)")
EVERYWHERE = re.compile(r" (?:nearly )?everywhere\b(?! but\b)")
NEARLY = 0.9
#: For which expected value elements are wrong, or for all others, in a sentence.
EXPECTED = re.compile(r"\b(?:only where|wherever) \S+ (?:is|isn't) expected")
#: An end of a dimension: which, how much, and of what.
END = re.compile(r"at the (first|last) (\d+) of (\d+ along \w+)")
OF_ITS_END = re.compile(r"\d %|\?\)|, all past ")
#: Places that sizes, or values, may decide: an end of an axis, some indices of one, the last
#: element, and all but one index.
PLACE = re.compile(
    r" at the (?P<end>first|last) (?:(?P<count>\d+) )?of (?P<size>\d+) along (?P<along>\w+)"
    rf"|(?P<last> {VERY_LAST})"
    rf"|(?P<but> {ALL_BUT}at (?:index \d+ along \w+|\w+ \d+))"
    r"|(?P<except>, except at (?:index \d+ along \w+|\w+ \d+))"
    r"|(?P<at> at (?!every|most|least)[A-Za-z]\w* \d+(?:\.\.\d+)?(?:, \d+)*(?: along \w+)?)"
)
#: A limit that all of an end is past.
PAST = re.compile(r", all past \d+")
#: The value that is expected wherever elements are wrong.
WHERE = re.compile(r"\bwhere (\S+) is expected$")
#: Which way bools are wrong.
WAY = re.compile(r"(?:True where False|False where True) is expected")
#: With which scalars that are 0 it is so.
WHERE_ZERO = re.compile(r", where [\w, ]+ (?:is|are) 0\b")
#: What a factor or an offset is, in a sentence.
NAMED = re.compile(r" \(which is [^()]*(?:\([^()]*\)[^()]*)*\)")
#: The number that a sentence says elements hold, or are off by, unless it says that inputs decide;
#: and how far apart two that are the same may be: some are fitted.
_DIGITS = r"[-+]?(?:inf|\d[\d.]*(?:e[-+]?\d+)?)|nan"
NUMBER = re.compile(rf"(?:the same value(?=,)|off by(?= )(?!.*other inputs))(,? (?:{_DIGITS}),?)")
SAME = 1 / 16
#: The factor of all elements, in a sentence that names no other one; and how far others are from
#: it, as a share of its distance from 1.
FACTOR = re.compile(r"every element is (\S+) x expected(?!, | at )")
OTHER = 0.1
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
    forms = (PLACE, NAMED, FACTOR)
    return own.pattern == MISREAD or any(form.search(own.sentence) for form in forms)


def as_at_other_sizes(
    own: Diagnosis,
    others: Sequence[Diagnosis],
    definition: Definition,
    axes: Mapping[str, int],
) -> Diagnosis:
    """The diagnosis, without what isn't so in any of the ``others``, of workloads of other sizes.

    These are the name of a number, such as one of the sizes; what was read in place of an input, if
    something else is said there; and where it is, if an element that is wrong there is elsewhere. A
    factor is said with another one that there is. ``axes`` are the sizes of its own.
    """
    alike = [each for each in others if each.pattern == own.pattern]
    name = NAMED.search(own.sentence)
    if name and alike and not any(NAMED.search(each.sentence) for each in alike):
        own = own.model_copy(update={"sentence": own.sentence.replace(name[0], "")})
    own = _with_other_factor(own, alike)
    if own.pattern == MISREAD:
        is_otherwise = any(not _is_only_wrong(each) for each in others)
        return only_wrong(own) if is_otherwise and not alike else own
    elements = [
        (index, shape) for each in others for index, shape in _elements(own, each, definition)
    ]
    if PAST.search(own.sentence) and elements and not any(PAST.search(o.sentence) for o in others):
        own = own.model_copy(update={"sentence": PAST.sub("", own.sentence)})
    dims = _dims(own, definition)
    denied = [
        place
        for place in PLACE.finditer(own.sentence)
        if not all(_is_at(place, own, dims, *each) for each in elements)
    ]
    if not denied:
        return own
    shape = definition.outputs[own.output].shape_at(definition.axis_values(axes))
    return _without_places(own, denied, dict(zip(dims, shape, strict=True)))


def _dims(own: Diagnosis, definition: Definition) -> list[str]:
    """The names of an output's dimensions, as sentences have them."""
    axes = definition.outputs[own.output].shape or ()
    return [dimension(axis, dim) for dim, axis in enumerate(axes)]


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
    place: re.Match[str],
    own: Diagnosis,
    dims: Sequence[str],
    index: Sequence[int],
    shape: Sequence[int],
) -> bool:
    """Whether an element is at a place, of other sizes."""
    if place["last"]:
        return all(i == size - 1 for i, size in zip(index, shape, strict=True))
    axis = place["along"] or _axis_of(place, dims)
    # Of two dimensions of one axis, it may be either.
    return axis not in dims or any(
        _is_along(place, own, index[dim], shape[dim])
        for dim, each in enumerate(dims)
        if each == axis
    )


def _axis_of(place: re.Match[str], dims: Sequence[str]) -> str | None:
    """The axis of a place that names indices."""
    words = place["at"] or place["but"] or place["except"]
    return next((axis for axis in dims if re.search(rf"\b{re.escape(axis)}\b", words)), None)


def _is_along(place: re.Match[str], own: Diagnosis, i: int, size: int) -> bool:
    """Whether an index of a dimension is at a place along it."""
    if place["end"]:
        count = _most_at_end(place, own, size)
        return i >= size - count if place["end"] == "last" else i < count
    return (i in _indices(place)) == bool(place["at"])


def _indices(place: re.Match[str]) -> Collection[int]:
    """The indices that a place names."""
    words = place["at"] or place["but"] or place["except"]
    numbers = [*map(int, re.findall(r"\b\d+\b", words))]
    return range(numbers[0], numbers[-1] + 1) if ".." in words else numbers


def _most_at_end(place: re.Match[str], own: Diagnosis, size: int) -> int:
    """How many of an axis of another size may be at an end: as large a share, or a tile's rest."""
    count, tile = int(place["count"] or 1), own.tiles.get(place["along"], 0)
    if count == 1:
        return max(1, tile - 1)
    share = ceil(count * size / int(place["size"]))
    return max(count, share, tile - 1, (1 << count.bit_length()) - 1)


def _without_places(
    own: Diagnosis, denied: Sequence[re.Match[str]], sizes: Mapping[str, int]
) -> Diagnosis:
    """The diagnosis with how much in place of where, for these places of its sentence."""
    at = {place.start() for place in denied}

    def words(place: re.Match[str]) -> str:
        if place.start() not in at:
            return place[0]
        if place["end"]:
            return f" at {place['count'] or 1} of {place['size']} along {place['along']}"
        axis = _axis_of(place, [*sizes]) if place["at"] else None
        if axis:
            return f" at {len(_indices(place))} of {sizes[axis]} along {axis}"
        return {"last": " in one element", "but": " nearly everywhere"}.get(
            place.lastgroup or "", ""
        )

    tiles = dict(own.tiles)
    for place in denied:
        tiles.pop(place["along"] or "", None)
    sentence = PLACE.sub(words, own.sentence)
    found = own.model_copy(update={"sentence": sentence})
    found = with_guessed_tiles(found, tiles) if tiles else without_guess(found)
    return (
        found
        if not _is_only_wrong(own)
        else only_wrong(own).model_copy(update={"sentence": found.sentence})
    )


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
    sentence = diagnosis.sentence
    if EVERYWHERE.search(sentence) or wrong_share(diagnosis) >= NEARLY:
        return ALL
    if COUNT.search(sentence):
        return COUNTED
    return "expected" if EXPECTED.search(sentence) else diagnosis.place


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
    own = WHERE.search(alike[0].sentence)
    count = sum(own is not None and own[0] in each.sentence for each in alike)
    if own and 2 * count >= len(alike) and not WHERE.search(found[0].sentence):
        sentence = f"{alike[0].output}: wrong only {own[0]}"
        return only_wrong(alike[0]).model_copy(update={"sentence": sentence})
    # Without a place, a sentence of another workload would need its element.
    found = [each for each in found if each is alike[0] or _says_where(each)]
    if not found:
        return only_wrong(alike[0])
    return _usual_count(found) if usual == COUNTED else found[0]


def _says_where(diagnosis: Diagnosis) -> bool:
    is_place = diagnosis.pattern == diagnosis.place
    return is_place or any(
        form.search(diagnosis.sentence) for form in (COUNT, EVERYWHERE, EXPECTED)
    )


def _usual_count(alike: Sequence[Diagnosis]) -> Diagnosis:
    """The first, unless it has far more or far fewer wrong elements than the one in the middle."""
    middle = sorted(alike, key=wrong_share)[len(alike) // 2]
    first, usual = wrong_share(alike[0]), wrong_share(middle)
    return alike[0] if first <= FAR * usual and usual <= FAR * first else middle


def wrong_share(diagnosis: Diagnosis) -> float:
    """The share of wrong elements that a sentence names; 0 if it names none."""
    counted = COUNT.search(diagnosis.sentence)
    return int(counted[1]) / int(counted[2]) if counted and counted[1] else 0.0


def _with_agreed_name(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis that names a factor or an offset only if half of those that say the same do."""
    name = NAMED.search(diagnosis.sentence)
    if name is None or 2 * sum(name[0] in each.sentence for each in alike) >= len(alike):
        return diagnosis
    return diagnosis.model_copy(update={"sentence": diagnosis.sentence.replace(name[0], "")})


def _with_agreed_number(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis with the value or the offset of elements only if half of the others name it.

    What is calculated from inputs is another with others.
    """
    number = NUMBER.search(diagnosis.sentence)
    named = [each for each in map(_number, alike) if each is not None]
    same = [each for each in named if isclose(each, _number(diagnosis) or 0.0, rel_tol=SAME)]
    if number is None or 2 * len(same) >= len(named):
        return diagnosis
    words = "" if number[1].startswith(",") else " one number"
    sentence = diagnosis.sentence.replace(number[1], words, 1)
    name = NAMED.search(sentence)  # the name of a scalar may be agreed, of which each has its own
    is_named = name is not None and all(name[0] in each.sentence for each in alike)
    return diagnosis.model_copy(
        update={"sentence": sentence if is_named else NAMED.sub("", sentence)}
    )


def _with_whole_end(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis with the most of an end of a dimension that two of those that say the same have.

    Elements may be right by chance, as where an angle is nearly 0. What else it says of the end,
    such as of which tiles it is the rest, goes with its length.
    """
    own = END.search(diagnosis.sentence)
    if own is None or OF_ITS_END.search(diagnosis.sentence):
        return diagnosis
    ends = Counter(found.groups() for each in alike if (found := END.search(each.sentence)))
    longest = max(
        (
            int(size)
            for (end, size, of), n in ends.items()
            if (end, of) == (own[1], own[3]) and n > 1
        ),
        default=0,
    )
    if longest <= int(own[2]):
        return diagnosis
    words = f"at the {own[1]} {longest} of {own[3]}"
    return diagnosis.model_copy(update={"sentence": diagnosis.sentence.replace(own[0], words, 1)})


def _with_other_factor(diagnosis: Diagnosis, alike: Sequence[Diagnosis]) -> Diagnosis:
    """A diagnosis of one factor of all elements, with another one that they have elsewhere."""
    own = FACTOR.search(diagnosis.sentence)
    if own is None or NAMED.search(diagnosis.sentence):
        return diagnosis
    factors = [found[1] for each in alike if (found := FACTOR.search(each.sentence))]
    least = OTHER * abs(float(own[1]) - 1) + _half_a_digit(own[1])
    other = next(
        (n for n in factors if abs(float(n) - float(own[1])) > least + _half_a_digit(n)), None
    )
    if other is None:
        return diagnosis
    sentence = diagnosis.sentence.replace(own[0], f"{own[0]}, {other} x with other inputs")
    return diagnosis.model_copy(update={"sentence": sentence})


def _half_a_digit(number: str) -> float:
    """Half of what one more in the last digit of a number is."""
    exponent = Decimal(number).as_tuple().exponent
    return 10.0**exponent / 2 if isinstance(exponent, int) else 0.0


def _number(diagnosis: Diagnosis) -> float | None:
    number = NUMBER.search(diagnosis.sentence)
    return float(number[1].strip(", ")) if number else None


def _of_certain_values(own: Diagnosis) -> Diagnosis:
    """A diagnosis that no other workload shows: what needs certain values, but not where."""
    if own.pattern in OF_THESE_INPUTS and own.pattern not in VAGUE_PATTERNS:
        return own.model_copy(update={"sentence": EVERYWHERE.sub("", own.sentence), "vague": True})
    is_count = COUNT.search(own.sentence) and _is_only_wrong(own)
    says_which = EXPECTED.search(own.sentence) or WHERE_ZERO.search(own.sentence)
    return own if is_count or says_which else only_wrong(own)


def only_wrong(own: Diagnosis) -> Diagnosis:
    """That an output is wrong, with an element of it; of bools, which way."""
    way = WAY.match(own.sentence.removeprefix(f"{own.output}: "))
    sentence = f"{own.output}: {way[0] if way else 'wrong'}"
    said = {"sentence": sentence, "pattern": "scattered", "vague": True, "tiles": {}}
    return own.model_copy(update=said)
