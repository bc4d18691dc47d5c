"""Where the wrong elements are: in whole rows, in a last tile, at every other element."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, lgamma, log, log10, prod

import torch

from pytest_fib.diagnosis._wrong_output import WrongOutput, share
from pytest_fib.workloads import TILE_SIZES

#: Sizes that kernels cut dimensions into, the largest first.
TILES = TILE_SIZES[5:0:-1]
#: log10 of how unlikely a location must be by chance before it is named; the same for a tail that
#: is as long as a tile leaves, or one element, which needs less.
CHANCE, LIKELY_CHANCE = -3.0, -1.0
#: The share of a whole that is as good as all of it.
NEARLY_ALL = 0.9
#: Indices that are listed one by one.
MOST_LISTED = 5
#: Indices of a dimension below which its last one alone says nothing.
LEAST_SIZE = 10
#: Members of a progression below which there is none.
LEAST_MEMBERS = 4


@dataclass(frozen=True)
class Location:
    """Where an output is wrong: its kind, and which one in words that fit after "wrong".

    ``dense`` ones are wrong as a whole.
    """

    name: str
    phrase: str
    dense: bool = True


@dataclass(frozen=True)
class _Indices:
    """Some indices of one dimension.

    ``part`` is their share of the dimension, ``choices`` log10 of how many sets of that kind there
    are. ``likely`` ones are often left out by kernels; ``listed`` ones follow no rule.
    """

    name: str
    phrase: str
    part: float
    choices: float
    likely: bool = False
    listed: bool = False


EVERYWHERE = Location("everywhere", "everywhere")


def localize(output: WrongOutput) -> Location | None:
    """Where the wrong elements are; None where they are scattered."""
    if output.count == 1 < output.total:
        last = int(output.wrong_sample.at[0]) == output.total - 1 and output.total >= 10
        name, phrase = ("last tile", "the very last") if last else ("one element", "one")
        return Location(name, f"in {phrase} element")
    if _is_everywhere(output):
        return EVERYWHERE
    return _padding(output) or _along_dimensions(output) or _tail(output) or _edges(output)


def _is_everywhere(output: WrongOutput) -> bool:
    """All elements, or all but those where zeros or -inf are expected: of empty sequences."""
    if output.count >= NEARLY_ALL * output.total:
        return True
    filled = share(_filled(output.any_sample.expected))
    inside = share(_filled(output.wrong_sample.expected)) > NEARLY_ALL
    return inside and output.count >= NEARLY_ALL * filled * output.total


def _filled(values: torch.Tensor) -> torch.Tensor:
    """Where something is expected that is neither 0 nor -inf."""
    return (values != 0) & (values != -inf)


def _padding(output: WrongOutput) -> Location | None:
    """Where nothing but zeros or -inf is expected, and elsewhere something is."""
    if not output.is_number:
        return None
    expected = output.wrong_sample.expected
    filled = share(_filled(output.any_sample.expected))
    if share(_filled(expected)) > 0.01 or filled < 0.05 or (1 - filled) ** output.count > 0.01:
        return None
    value = "0" if bool((expected == 0).any()) else "-inf"
    return Location("padding region", f"only where {value} is expected")


def _along_dimensions(output: WrongOutput) -> Location | None:
    """Some indices of one dimension or more, and in the others all."""
    found = [indices for dim in range(len(output.shape)) if (indices := _along(output, dim))]
    density = output.count / (prod(indices.part for indices in found) * output.total)
    dense = density >= 0.5
    # Else, where errors of all elements happen to be larger. A list of most is one of whole rows.
    found = [
        each
        for each in found
        if (dense, each.part <= 0.5, not each.listed or density >= NEARLY_ALL).count(True) >= 2
    ]
    if not found:
        return None
    # What is true of nearly a whole dimension may be so by chance, as where an input is small.
    small = [indices for indices in found if indices.part <= NEARLY_ALL] or found
    some = "" if dense else f"in {100 * density:.2g} % of elements "
    phrase = some + " and ".join(indices.phrase for indices in small)
    if min(indices.part for indices in found) > NEARLY_ALL:
        return Location("everywhere", phrase)
    block = len(small) > 1 and any(indices.name != "last tile" for indices in small)
    return Location("block" if block else small[0].name, phrase, dense)


def _along(output: WrongOutput, dim: int) -> _Indices | None:
    """The indices of one dimension at which anything is wrong, if that is hardly by chance."""
    others = [other for other in range(len(output.shape)) if other != dim]
    wrong = output.wrong.amax(dim=others) if others else output.wrong
    members, size = wrong.nonzero()[:, 0].tolist(), output.shape[dim]
    if len(members) in (0, size):
        return None
    indices = _described(members, size, output.axis(dim), _role(output, dim))
    chance = output.count * log10(indices.part) + indices.choices
    return indices if chance <= (LIKELY_CHANCE if indices.likely else CHANCE) else None


def _role(output: WrongOutput, dim: int) -> str:
    if "head" in output.axis(dim) and "dim" not in output.axis(dim):
        return "some heads"
    if dim == len(output.shape) - 1:
        return "whole columns" if dim else "elements"
    return "whole rows" if dim == 0 else "whole slices"


def _described(members: list[int], size: int, axis: str, role: str) -> _Indices:
    """What some indices of a dimension have in common."""
    first, last, count = members[0], members[-1], len(members)
    part, log_size = count / size, log10(size)
    if count == 1 and (role == "some heads" or last != size - 1):
        role = "one head" if role == "some heads" else role
        return _Indices(role, f"at {axis} {first}", part, log_size)
    if last - first + 1 == count:
        return _contiguous(first, count, size, axis, role)
    head = next(at for at, member in enumerate(members) if at != member)  # as there is a gap
    if head and members[head] == size - (count - head):
        ends = f"at the first {head} and the last {count - head} of {size} along {axis}"
        return _Indices("edges", ends, part, log10(count))
    step = members[1] - first
    regular = members == list(range(first, size, step)) and count >= LEAST_MEMBERS
    if regular and first < step:
        phrase = f"at every {ordinal(step)} of {axis}, from {first} on"
        return _Indices("every k-th", phrase, part, 2 * log_size)
    if size - count == 1:
        left_out = (set(range(size)) - set(members)).pop()
        return _Indices(role, f"everywhere but at {axis} {left_out}", part, log_size)
    # log10 of the number of ways to choose so many.
    ways = lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)
    some = f"{count} of {size} along {axis}: " if count > MOST_LISTED else f"{axis} "
    phrase = f"at {some}{', '.join(map(str, members[:MOST_LISTED]))}"
    more = ", ..." if count > MOST_LISTED else ""
    return _Indices(role, phrase + more, part, ways / log(10), listed=True)


def _contiguous(first: int, count: int, size: int, axis: str, role: str) -> _Indices:
    part, log_size = count / size, log10(size)
    if first + count == size and part <= 0.5:
        tile = _tile(size, count)
        phrase = f"at the last {f'{count} ' if count > 1 else ''}of {size} along {axis}{tile}"
        name = role if role == "some heads" else "last tile"
        return _Indices(name, phrase, part, 0.0 if tile else log_size, likely=True)
    if first == 0:
        return _Indices(role, f"at the first {count} of {size} along {axis}", part, log_size)
    tile = f", a tile of {count}" if count in TILES and first % count == 0 else ""
    phrase = f"at {axis} {first}..{first + count - 1}{tile}"
    return _Indices(role, phrase, part, 2 * log_size)


def _tile(size: int, count: int) -> str:
    """What a tail of this length may come from; of few elements, the last may be any."""
    if count == 1:
        return " (off by one?)" if size >= LEAST_SIZE else ""
    rest = next((f" (what tiles of {tile} leave)" for tile in TILES if size % tile == count), "")
    return rest or (f" (a tile of {count})" if count in TILES else "")


def _tail(output: WrongOutput) -> Location | None:
    """The last elements in memory, whatever rows they are in."""
    length = output.total - int(output.wrong_sample.at[0])
    dense = output.count >= NEARLY_ALL * length
    if not dense or output.count * log10(length / output.total) > CHANCE:
        return None
    tile = _tile(output.total, length)
    phrase = f"in the last {length} of {output.total} elements in memory{tile}"
    return Location("last tile", phrase)


def _edges(output: WrongOutput) -> Location | None:
    """The first or the last index of several dimensions, each as a whole, as of an image."""
    covered, phrases = torch.zeros_like(output.wrong), []
    for dim, size in enumerate(output.shape):
        ends = [("first", 0), ("last", size - 1)] if size >= LEAST_MEMBERS else []
        whole = [
            (name, at) for name, at in ends if share(output.wrong.select(dim, at)) >= NEARLY_ALL
        ]
        for _, at in whole:
            covered.select(dim, at).fill_(True)
        if whole:
            phrases.append(f"the {' and '.join(name for name, _ in whole)} of {output.axis(dim)}")
    part = share(covered)
    inside = share(covered[output.wrong]) if output.marked else 0.0
    if len(phrases) < 2 or inside < NEARLY_ALL or output.count * log10(part) > CHANCE:
        return None
    return Location("edges", f"at {', and at '.join(phrases)}")


def ordinal(number: int) -> str:
    """2nd, 3rd, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"
