"""Locates the wrong elements: in whole rows, in a last tile, at every other element."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf, lgamma, log, log10, prod
from typing import TYPE_CHECKING

from pytest_fib.diagnosis import _parts as parts
from pytest_fib.diagnosis._parts import first_part, has_part, joined, replaced, without
from pytest_fib.diagnosis._wrong_output import FEW, WrongOutput, share, take, unraveled, vary
from pytest_fib.workloads import TILE_SIZES, once

if TYPE_CHECKING:
    import torch

    from pytest_fib.data import Part, Sentence

#: The name of a place at the end of an axis.
LAST = "last tile"
#: Usual tile sizes of kernels, the largest first.
TILES = TILE_SIZES[5:0:-1]
#: log10 of how unlikely a location must be by chance to be named. Kernels often leave out the end
#: of a dimension, so that needs less by ``END``.
CHANCE, END = -3.0, 2.0
#: The share that counts as all.
NEARLY_WHOLE = 0.9
#: The share of a range up to half a dimension that is wrong, from which on the range is named: the
#: others may be right by chance, as half of all booleans are.
RANGE = 0.4
#: The most that are wrong outside of a place, as a share of those inside; and how much smaller an
#: end may be with other inputs: some are right by chance.
RIGHT, ALIKE = 0.1, 0.5
#: From which share on those that are right, perhaps by chance, aren't counted.
ALMOST_ALL = 0.99
#: The least size of a dimension for its last index to be a location.
LEAST_SIZE = 10
#: The least power of two that kernels have as a limit, past which they leave out what there is.
LEAST_LIMIT = 1024
#: Indices that are listed one by one.
MOST_LISTED = 5
#: Where only zeros or -inf are expected.
PADDING = "padding region"
#: How many elements that should be 0, or -inf, are right, where all others are wrong.
LEAST_RIGHT = 3
#: A triangle of square matrices, or their diagonal; and how many rows these have at least.
TRIANGLE, LEAST_SQUARE = "triangle", 3
#: The largest number that is named as the only one that is expected.
MOST_NAMED = 1 << 16
#: Indices of a progression, or runs of them; the least number of its members, or of runs.
EVERY_KTH = "every k-th"
#: Indices at both ends of a dimension, and none between.
BOTH_ENDS = "both ends"
LEAST_MEMBERS, LEAST_RUNS = 4, 3


@dataclass(frozen=True)
class Location:
    """Where an output is wrong: the kind of place, and the place as parts that follow "wrong".

    In a ``dense`` place, all elements are wrong. ``if_left_out`` is a guess at why, if it seems
    that it is. ``at`` marks the indices of the dimensions that the phrase names; some of them are
    ``listed``.
    """

    name: str
    phrase: Sentence
    dense: bool = True
    if_left_out: Sentence = ()
    at: Mapping[int, torch.Tensor] = field(default_factory=dict)
    listed: bool = False


@dataclass(frozen=True)
class _Indices:
    """Some indices of one dimension.

    ``part`` is their share of the dimension, ``choices`` log10 of the number of sets of that kind.
    ``listed`` indices follow no rule. ``if_left_out`` as in a Location.
    """

    name: str
    phrase: Sentence
    part: float
    choices: float
    listed: bool = False
    if_left_out: Sentence = ()


def where(output: WrongOutput, *, left_out: bool = False) -> Sentence:
    """Where an output is wrong; with a likely cause if it seems ``left_out``."""
    location = localize(output)
    if location is None:
        return (how_many(output),)
    return location.phrase + location.if_left_out * left_out


def how_many(output: WrongOutput) -> parts.Count:
    """How many elements are wrong, in place of where."""
    return parts.Count(output.count, output.total)


def localize(output: WrongOutput) -> Location | None:
    """The place of the wrong elements; None if they are scattered."""
    if output.count == 1 < output.total:
        last = int(output.wrong_sample.at[0]) == output.total - 1 and output.total >= LEAST_SIZE
        one = Location("one element", (parts.OneElement(),))
        return Location(LAST, (parts.VeryLast(),)) if last else one
    if _is_everywhere(output):
        return _everywhere(output)
    return _padding(output) or _triangle(output) or _along_dimensions(output)


def held(location: Location, output: WrongOutput, other: WrongOutput) -> Location | None:
    """What of a place is so with other inputs too: along which dimensions; None if along none.

    Nearly all that is wrong is at the same indices, and at half of them at least, or at the same
    end.
    """
    if location.name == LAST and not location.at:  # a single element
        return location if bool(other.wrong.flatten()[-1]) else None
    if location.name == TRIANGLE:
        return location if _triangle(other) == location else None
    if location.name == PADDING and _padding(other) is None:
        place = _along_dimensions(output)
        return place and held(place, output, other)
    dims = [dim for dim in location.at if _is_held(dim, location, output, other)]
    return location if len(dims) == len(location.at) else _along_dimensions(output, dims)


def without_lone_indices(
    location: Location, output: WrongOutput, axes: Collection[str]
) -> Location | None:
    """The place without dimensions of which a single index is wrong that no kernel would choose.

    That is neither an end nor a multiple of a tile, along one of these axes, as a row of zeros is;
    or any of a few.
    """
    dims = [dim for dim, at in location.at.items() if not _is_lone(dim, at, output, axes)]
    return location if len(dims) == len(location.at) else _along_dimensions(output, dims)


def without_given_indices(
    location: Location, output: WrongOutput, inputs: Mapping[str, torch.Tensor]
) -> Location | None:
    """The place without dimensions of which just the indices up to an input's largest are wrong.

    Whole numbers, such as tokens below 8, say where then: only part of what is there is wrong.
    """
    if not has_part(parts.Partly, location.phrase):
        return location
    largest = {
        int(once(x).max())
        for x in inputs.values()
        if x.numel() > 1 and not x.is_floating_point() and x.element_size() > 1
    }
    dims = [dim for dim, at in location.at.items() if not _is_up_to_any(at, largest)]
    return location if len(dims) == len(location.at) else _along_dimensions(output, dims)


def _is_up_to_any(at: torch.Tensor, largest: Collection[int]) -> bool:
    """Whether indices begin at 0 and end at one of these, which isn't the last."""
    count = int(at.sum())
    return 0 < count < len(at) and count - 1 in largest and bool(at[:count].all())


def _is_lone(dim: int, at: torch.Tensor, output: WrongOutput, axes: Collection[str]) -> bool:
    members = at.nonzero().flatten().tolist()
    size = len(at)
    is_end = size >= LEAST_SIZE and (0 in members or size - 1 in members)
    is_usual = is_end or (members[0] % TILES[-1] == 0 and members[0] > 0)
    return len(members) == 1 and output.axis(dim) in axes and not is_usual


def _is_held(dim: int, location: Location, output: WrongOutput, other: WrongOutput) -> bool:
    wrong, at = other.wrong.movedim(dim, 0), location.at[dim]
    inside, outside = (share(wrong[which]) for which in (at, ~at))
    reached = share(wrong_along(other, dim)[at])
    is_inside = int(wrong[at].sum()) >= NEARLY_WHOLE * other.marked and outside <= RIGHT * inside
    if is_inside and reached >= ALIKE:
        return True
    sides = [_along(each, dim) for each in (output, other)]
    ends = [_end(side) for side in sides]
    shares = sorted(side.part for side in sides if side)
    return ends[0] is not None and ends[0] == ends[1] and shares[0] >= ALIKE * shares[1]


def _end(indices: _Indices | None) -> type[parts.End] | None:
    """Which end of a dimension some indices are, or begin with, if they do."""
    end = first_part(parts.End, indices.phrase) if indices else None
    begins = indices is not None and indices.name == BOTH_ENDS
    return type(end) if end else parts.First if begins else None


def with_place(sentence: Sentence, location: Location, place: Sentence) -> Sentence:
    """A sentence with another place than the one that it names, and no guess at a cause of that."""
    bare = tuple(part for part in sentence if part not in location.if_left_out)
    return replaced(location.phrase, place, bare)


def counted(
    location: Location, output: WrongOutput, others: Sequence[WrongOutput] = ()
) -> Sentence:
    """At how many indices of a place, in place of at which.

    But not along a dimension of which ``others`` are wrong at nearly all.
    """
    inside = output.wrong
    for dim, at in location.at.items():
        inside = inside.movedim(dim, 0)[at.to(inside.device)].movedim(0, dim)
    if not location.at or share(inside.reshape(-1)) < NEARLY_WHOLE:
        return (how_many(output),)
    along = [
        (parts.Along(int(at.sum()), len(at), output.axis(dim)),)
        for dim, at in location.at.items()
        if all(share(wrong_along(other, dim)) < NEARLY_WHOLE for other in others)
    ]
    return joined(along) or (how_many(output),)


def _is_everywhere(output: WrongOutput) -> bool:
    """Whether all elements are wrong, except expected zeros or -inf, as of empty sequences."""
    if output.count >= NEARLY_WHOLE * output.total:
        return True
    filled, wrong_filled = shares_filled(output)
    return wrong_filled > NEARLY_WHOLE and output.count >= NEARLY_WHOLE * filled * output.total


def _everywhere(output: WrongOutput) -> Location:
    """``everywhere``, unless right elements have a place of their own, as before a threshold.

    Or unless all of it is where neither 0 nor -inf is expected, or a few elsewhere are right: then
    how many are wrong, since the others may show why.
    """
    if output.count >= NEARLY_WHOLE * output.total:  # else inputs say where anything is expected
        along = {dim: _along(output, dim) for dim in range(len(output.shape))}
        named = {dim: each for dim, each in along.items() if each and not each.listed}
        if named or output.count == output.total:
            phrase = _joined([each.phrase for each in named.values()])
            at = {dim: _range_of(output, dim, each) for dim, each in named.items()}
            return Location("everywhere", phrase or (parts.Everywhere(),), at=at)
    return Location("everywhere", (_nearly_everywhere(output),))


def _nearly_everywhere(output: WrongOutput) -> Part:
    """As _everywhere, of an output of which some elements are right."""
    sample = output.any_sample
    filled = (sample.expected != 0) & (sample.expected != -inf)
    right = ~take(output.wrong, sample.at).bool()
    are_these = bool((right == ~filled).all()) and _are_spread(output, sample.at, filled)
    if are_these and int(right.sum()) >= LEAST_RIGHT and int(filled.sum()) >= FEW:
        if not output.is_number:
            return parts.Everywhere()  # that it is: the sentence says what is expected
        if (only := _only_value(output, sample.expected[~right])) is not None:
            return parts.Wherever(only)
        is_zero = bool((sample.expected[right] == 0).any())
        return parts.Wherever("0" if is_zero else "-inf", "isn't")
    if output.count >= ALMOST_ALL * output.total:
        return parts.NearlyEverywhere()
    return how_many(output)


def _are_spread(output: WrongOutput, at: torch.Tensor, which: torch.Tensor) -> bool:
    """Whether some elements are at several indices of each dimension but the last, if it has any.

    As many are expected in one row alone, it may be the row that decides.
    """
    index = unraveled(at[which], output.shape)
    sides = zip(index[:-1], output.shape, strict=False)
    return all(size == 1 or vary(each) for each, size in sides)


def _padding(output: WrongOutput) -> Location | None:
    """Where only zeros or -inf are expected, if more is elsewhere."""
    filled, wrong_filled = shares_filled(output)
    if not output.is_number or wrong_filled > 0:
        return None
    if filled < 0.05 or (1 - filled) ** output.count > 0.01:
        return None
    every = output.any_sample.expected
    if _only_value(output, every[(every != 0) & (every != -inf)]) is not None:
        return None  # of two values, 0 is no less one than the other
    value = "0" if bool((output.wrong_sample.expected == 0).any()) else "-inf"
    place = _along_dimensions(output)
    such = every == float(value)  # where all of these are wrong, that they are says enough
    is_enough = share(take(output.wrong, output.any_sample.at[such]).bool()) >= NEARLY_WHOLE
    left_out = parts.AllBut | parts.Except
    if place is None or is_enough or not place.dense or has_part(left_out, place.phrase):
        return Location(PADDING, (parts.OnlyExpected(value),))
    phrase = (*place.phrase, parts.Expected(value))
    return replace(place, name=PADDING, phrase=phrase, if_left_out=())


def _triangle(output: WrongOutput) -> Location | None:
    """A triangle, or the diagonal, of square matrices: nearly all of it in all of them."""
    *_, rows, columns = (0, 0, *output.shape)
    if rows != columns or rows < LEAST_SQUARE:
        return None
    wrong = output.wrong.reshape(-1, rows, columns)
    below, above = (wrong.new_ones(rows, columns).tril(-1), wrong.new_ones(rows, columns).triu(1))
    diagonal = ~(below | above)
    for words, where in (
        ("on the diagonal", diagonal), ("above the diagonal", above),
        ("below the diagonal", below), ("on the diagonal and above", above | diagonal),
        ("on the diagonal and below", below | diagonal),
    ):  # fmt: skip
        inside = int((wrong & where).sum())
        is_whole = inside >= NEARLY_WHOLE * len(wrong) * int(where.sum())
        if is_whole and not bool((wrong & ~where).any()):
            return Location(TRIANGLE, (words,))
    return None


def _only_value(output: WrongOutput, expected: torch.Tensor) -> str | None:
    """The value that all of these are, in digits; None if they differ, or are few."""
    is_one = len(expected) >= FEW and not vary(expected)
    is_data = is_one and abs(float(expected[0])) > MOST_NAMED  # which an input may hold
    return output.digits(expected[0]) if is_one and not is_data else None


def shares_filled(output: WrongOutput) -> tuple[float, float]:
    """The share of all and of wrong elements for which neither 0 nor -inf is expected."""
    sides = output.any_sample.expected, output.wrong_sample.expected
    every, wrong = (share((values != 0) & (values != -inf)) for values in sides)
    return every, wrong


def _along_dimensions(output: WrongOutput, dims: Sequence[int] | None = None) -> Location | None:
    """Some indices of one or more dimensions, all or these, and all of the others."""
    along = {
        dim: _along(output, dim) for dim in (range(len(output.shape)) if dims is None else dims)
    }
    named = {dim: indices for dim, indices in along.items() if indices}
    dimensions = [*named.values()]
    density = _density(output, dimensions)
    dense = density >= 0.5
    if not dense:
        rows = _rows_with(output)
        dimensions = [each for each in dimensions if _is_unlikely(each, rows)]
    # Else, a place where the errors of all elements are larger by chance. A list of most indices is
    # one of whole rows. Nearly a whole dimension may be wrong by chance, as if an input is small.
    dimensions = [
        each
        for each in dimensions
        if (dense, each.part <= 0.5, not each.listed or density >= NEARLY_WHOLE).count(True) >= 2
        and each.part <= NEARLY_WHOLE
    ]
    if not dimensions:
        return None
    density = _density(output, dimensions)  # in what is named
    dense = density >= 0.5
    listed = any(each.listed for each in dimensions)
    is_said = density < 0.5 or (density < NEARLY_WHOLE and not listed)
    some = (parts.Partly(f"{100 * density:.2g}"),) if is_said else ()
    phrase = some + _joined([each.phrase for each in dimensions])
    if_left_out = dimensions[0].if_left_out if dense and len(dimensions) == 1 else ()
    if not dense:  # what isn't reached is wrong as a whole
        phrase = without(parts.Guess, phrase)
    at = {dim: _range_of(output, dim, each) for dim, each in named.items() if each in dimensions}
    return Location(dimensions[0].name, phrase, dense, if_left_out, at, listed)


def _range_of(output: WrongOutput, dim: int, indices: _Indices) -> torch.Tensor:
    """Marks the indices of a dimension that are named (bool)."""
    wrong = wrong_along(output, dim).clone()
    has_gaps = indices.name in (EVERY_KTH, BOTH_ENDS) or has_part(parts.AllBut, indices.phrase)
    if not (indices.listed or has_gaps):
        members = wrong.nonzero()[:, 0]
        wrong[int(members[0]) : int(members[-1]) + 1] = True  # some are right by chance
    return wrong


def _density(output: WrongOutput, dimensions: Sequence[_Indices]) -> float:
    """The share of elements at some indices of each dimension that are wrong, if all wrong are."""
    return output.count / (prod(indices.part for indices in dimensions) * output.total)


def _joined(phrases: Sequence[Sentence]) -> Sentence:
    """Places of several dimensions as one; what is left out comes last."""
    places = [phrase for phrase in phrases if not has_part(parts.AllBut, phrase)]
    of_all = [part for phrase in phrases for part in phrase]
    left_out = tuple(part for part in of_all if isinstance(part, parts.AllBut))
    return (*joined(places), parts.Except(left_out)) if places and left_out else joined(phrases)


def _along(output: WrongOutput, dim: int) -> _Indices | None:
    """The indices of one dimension at which elements are wrong, if that is unlikely by chance."""
    members, size = wrong_along(output, dim).nonzero()[:, 0].tolist(), output.shape[dim]
    if len(members) in (0, size):
        return None
    indices = _described(members, size, output.axis(dim), _role(output, dim))
    return indices if _is_unlikely(indices, output.count) else None


def wrong_along(output: WrongOutput, dim: int) -> torch.Tensor:
    """Marks the indices of a dimension at which any element is wrong (bool)."""
    others = [other for other in range(len(output.shape)) if other != dim]
    return output.wrong.amax(dim=others) if others else output.wrong


def _is_unlikely(indices: _Indices, count: int) -> bool:
    """Whether so many elements at random are hardly all at such indices."""
    return count * log10(indices.part) + indices.choices <= CHANCE


def _rows_with(output: WrongOutput) -> int:
    """How many rows, or columns if these are fewer, have wrong elements: not each is by itself."""
    dims = range(len(output.shape))
    return min(int(output.wrong.any(dim).sum()) for dim in dims) if len(dims) > 1 else output.count


def _role(output: WrongOutput, dim: int) -> str:
    if "head" in output.axis(dim) and "dim" not in output.axis(dim):
        return "some heads"
    if dim == len(output.shape) - 1:
        return "whole columns" if dim else "elements"
    return "whole rows" if dim == 0 else "whole slices"


def _described(members: list[int], size: int, axis: str, role: str) -> _Indices:
    """The rule that some indices of a dimension follow."""
    first, count = members[0], len(members)
    part, log_size = count / size, log10(size)
    if members == list(range(first, first + count)):
        return _contiguous(first, count, size, axis, role)
    last = members[-1]
    if (runs := _regular_runs(members, size)) is not None:
        length, step = runs
        last_run = first + (last - first) // step * step
        is_whole = first < step and last_run + step >= size
        place = parts.Runs(axis, first, None if is_whole else last, length, step, count, size)
        choices = (2 if length == 1 else 3) + (not is_whole)
        return _Indices(EVERY_KTH, (place,), part, choices * log_size)
    left_out = sorted({*range(size)}.difference(members))
    if len(left_out) == 1:
        return _Indices(role, (parts.AllBut(axis, left_out[0]),), part, log_size)
    if (before := _right_between(left_out, size)) is not None:
        phrase = f"at the first {before} and the last {count - before} of {size} along {axis}"
        return _Indices(BOTH_ENDS, (phrase,), part, 2 * log_size)
    span = last - first + 1
    filled = RANGE if span <= 0.5 * size else NEARLY_WHOLE
    if span <= NEARLY_WHOLE * size and count >= max(filled * span, LEAST_MEMBERS):
        return _contiguous(first, span, size, axis, role)
    # log10 of the number of ways to choose so many.
    ways = (lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)) / log(10)
    listed = ", ".join(map(str, members[:MOST_LISTED]))
    some = (
        parts.ListedAlong(count, size, axis, listed)
        if count > MOST_LISTED
        else parts.At(axis, tuple(members), size)
    )
    return _Indices(role, (some,), part, ways, listed=True)


def _regular_runs(members: list[int], size: int) -> tuple[int, int] | None:
    """The length of several runs of indices, and from where one begins to where the next does.

    None if these aren't the same for all; the end of the dimension may cut off the last run.
    """
    begin = [i for before, i in zip([-2, *members], members, strict=False) if i != before + 1]
    length = members.index(begin[1]) if len(begin) > 1 else len(members)
    if len(begin) < (LEAST_MEMBERS if length == 1 else LEAST_RUNS):
        return None
    step = begin[1] - begin[0]
    regular = [at + i for at in range(begin[0], begin[-1] + 1, step) for i in range(length)]
    return (length, step) if members == [i for i in regular if i < size] else None


def _right_between(right: list[int], size: int) -> int | None:
    """How many come before the right indices, if these are one range, and most of a dimension."""
    first, last = right[0], right[-1]
    is_range = len(right) == last - first + 1 and 2 * len(right) >= size
    return first if is_range and first > 0 and last < size - 1 else None


def _contiguous(first: int, count: int, size: int, axis: str, role: str) -> _Indices:
    part, log_size = count / size, log10(size)
    if role == "some heads" and count == 1:
        return _Indices("one head", (parts.At(axis, (first,), size),), part, log_size)
    if first + count == size and part <= 0.5:
        rest_of = next((tile for tile in TILES if size % tile == count), 0)
        why = _why_last(size, count, axis, rest_of)
        right = size - count
        is_limit = right >= LEAST_LIMIT and right & (right - 1) == 0 and count > 1
        past = (parts.PastLimit(right),) if is_limit else ()
        name = role if role == "some heads" else LAST
        one_last = count == 1 and size >= LEAST_SIZE and not why
        if_left_out = (parts.Guess(axis, off_by_one=True),) if one_last else ()
        choices = 0.0 if why or one_last else log_size
        phrase = (parts.Last(axis, count, size), *why, *past)
        return _Indices(name, phrase, part, choices - END, if_left_out=if_left_out)
    if count == 1:
        return _Indices(role, (parts.At(axis, (first,), size),), part, log_size)
    if first == 0:
        # No kernel ends just anywhere; inputs do.
        is_usual = count % TILE_SIZES[0] == 0 or count >= NEARLY_WHOLE * size
        end, others = parts.First(axis, count, size), parts.Along(count, size, axis)
        return _Indices(role, (end if is_usual else others,), part, log_size)
    indices = parts.At(axis, range(first, first + count), size)
    return _Indices(role, (indices,), part, 2 * log_size)


def _why_last(size: int, count: int, axis: str, rest_of: int) -> Sentence:
    """The likely cause of a tail of this length; in a short dimension, none.

    The last tile is one of several that fill the dimension: of two it may as well be a half.
    """
    if count == 1:
        return (parts.Guess(axis, rest_of, off_by_one=True),) if rest_of else ()
    is_tile = count in TILES and size % count == 0 and size > 2 * count
    guess = parts.Guess(axis, rest_of, tile=0 if rest_of or not is_tile else count)
    return (guess,) if guess.causes else ()
