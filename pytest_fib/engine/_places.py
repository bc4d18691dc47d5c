"""Where the wrong elements are: in whole rows, in a last tile, at every other element."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, lgamma, log, log10, prod
from typing import TYPE_CHECKING

from pytest_fib.engine._mistake import share, strides

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from pytest_fib.engine._mistake import Seen

#: Sizes that kernels cut dimensions into.
TILES = (256, 128, 64, 32, 16)
#: log10 of how unlikely a place must be by chance before it is named; the same for a tail that is
#: as long as a tile leaves, or one element, which needs less.
CHANCE, LIKELY_CHANCE = -3.0, -1.0
#: The share of a whole that is as good as all of it.
MOST = 0.9
#: Members of a progression below which there is none.
LEAST_MEMBERS = 4
#: Wrong elements whose distances are compared.
COMPARED = 1 << 16


@dataclass(frozen=True)
class Place:
    """A kind of place, and which it is: fits after "wrong". ``dense`` ones are wrong as a whole."""

    name: str
    phrase: str
    dense: bool = True


@dataclass(frozen=True)
class _Set:
    """Some indices of a dimension: which kind of set, how many of that kind there are (log10).

    ``part`` is its share of the dimension; ``listed``, that it has no rule.
    """

    kind: str
    phrase: str
    kinds: float
    chance: float = CHANCE
    part: float = 0.0
    listed: bool = False

    def tells(self, density: float) -> bool:
        """Whether this is the place, and not where errors of all elements happen to be larger."""
        return density >= 0.5 or (self.part <= 0.5 and not self.listed)


EVERYWHERE = Place("everywhere", "everywhere")


def place_of(seen: Seen) -> Place | None:
    """The place of the wrong elements; None where they are scattered."""
    if seen.count == 1 < seen.total:
        return _corner(seen) or Place("one element", "in one element")
    for find in (_everywhere, _padding, _triangle, _box, _tail, _progression, _scattered_rows):
        if found := find(seen):
            return found
    return _everywhere_loosely(seen)


def _corner(seen: Seen) -> Place | None:
    """A single wrong element is worth a name where it is the very last."""
    if int(seen.at[0]) != seen.total - 1 or seen.total < 10:
        return None
    return Place("last tile", "in the very last element")


def _everywhere(seen: Seen) -> Place | None:
    """All elements, or all but those where zeros or -inf are expected: of empty sequences."""
    if seen.together or seen.count >= MOST * seen.total:
        return EVERYWHERE
    filled = share(_filled(seen.expected_at(seen.anywhere)))
    inside = share(_filled(seen.expected)) > MOST
    return EVERYWHERE if inside and seen.count >= MOST * filled * seen.total else None


def _filled(values: torch.Tensor) -> torch.Tensor:
    """Where something is expected that is neither 0 nor -inf."""
    return (values != 0) & (values != -inf)


def _padding(seen: Seen) -> Place | None:
    """Where nothing but zeros or -inf is expected, and elsewhere something is."""
    filled = share(_filled(seen.expected_at(seen.anywhere)))
    if share(_filled(seen.expected)) > 0.01 or filled < 0.05 or (1 - filled) ** seen.count > 0.01:
        return None
    what = "zeros are" if bool((seen.expected == 0).any()) else "-inf is"
    return Place("padding region", f"where {what} expected: padding or what is masked")


def _box(seen: Seen) -> Place | None:
    """Some indices of one dimension or more, and in the others all."""
    sets = [found for dim in range(len(seen.shape)) if (found := _along(seen, dim))]
    if not sets:
        return None
    density = seen.count / (prod(found.part for found in sets) * seen.total)
    sets = [found for found in sets if found.tells(density)]
    if not sets:
        return None
    # What is true of nearly a whole dimension may be so by chance, as where an input is small.
    small = [found for found in sets if found.part <= MOST] or sets
    part = "" if density >= 0.5 else f"in {_percent(density)} of elements "
    phrase = part + " and ".join(found.phrase for found in small)
    if min(found.part for found in sets) > MOST:
        return Place("everywhere", phrase)
    if len(small) > 1 and any(found.kind != "last tile" for found in small):
        return Place("block", phrase, density >= 0.5)
    return Place(small[0].kind, phrase, density >= 0.5)


def _everywhere_loosely(seen: Seen) -> Place | None:
    return EVERYWHERE if seen.count >= 0.5 * seen.total else None


def _percent(part: float) -> str:
    return f"{100 * part:.2g} %"


def _members(seen: Seen, dim: int) -> torch.Tensor:
    """The indices of a dimension at which anything is wrong, ascending; on the CPU."""
    others = [d for d in range(len(seen.shape)) if d != dim]
    wrong = seen.output.wrong
    profile = wrong.amax(dim=others) if others else wrong
    return profile.nonzero()[:, 0].cpu()


def _along(seen: Seen, dim: int) -> _Set | None:
    """The indices of one dimension that are wrong, where they are hardly so by chance."""
    members, size = _members(seen, dim), seen.shape[dim]
    if len(members) == size:
        return None
    found = _named(members, size, seen.axis(dim), _role(seen, dim))
    found = replace(found, part=len(members) / size)
    chance = seen.count * log10(len(members) / size) + found.kinds
    return found if chance <= found.chance else None


def _role(seen: Seen, dim: int) -> str:
    if "head" in seen.axis(dim) and "dim" not in seen.axis(dim):
        return "heads"
    if dim == len(seen.shape) - 1:
        return "whole columns" if dim else "elements"
    return "whole rows" if dim == 0 else "whole slices"


def _named(members: torch.Tensor, size: int, axis: str, role: str) -> _Set:
    first, last, count = int(members[0]), int(members[-1]), len(members)
    several = {"heads": "some heads"}.get(role, role)
    if count == 1 and (role == "heads" or last != size - 1):
        return _Set({"heads": "one head"}.get(role, role), f"at {axis} {first}", log10(size))
    if last - first + 1 == count:
        return _contiguous(first, count, size, axis, several)
    step = _step(members)
    if step and first < step and last + step >= size:
        phrase = f"at every {ordinal(step)} of {axis}, from {first} on"
        return _Set("every k-th", phrase, 2 * log10(size))
    if size - count == 1:
        left_out = (set(range(size)) - set(members.tolist())).pop()
        return _Set(several, f"everywhere but at {axis} {left_out}", log10(size))
    phrase = f"at {axis} {listed(members.tolist())}"
    return _Set(several, phrase, _choices(size, count), listed=True)


def _contiguous(first: int, count: int, size: int, axis: str, role: str) -> _Set:
    if first + count == size and count <= size / 2:
        tile, likely = _tile(size, count)
        what = f"the last {count}" if count > 1 else "the last one"
        phrase = f"at {what} of {size} along {axis}{tile}"
        name = role if role == "some heads" else "last tile"
        return _Set(name, phrase, 0.0 if likely else log10(size), LIKELY_CHANCE)
    if first == 0:
        return _Set(role, f"at the first {count} of {size} along {axis}", log10(size))
    tile = next((f", a tile of {t}" for t in TILES if t == count and first % t == 0), "")
    return _Set(role, f"at {axis} {first}..{first + count - 1}{tile}", 2 * log10(size))


def _tile(size: int, count: int) -> tuple[str, bool]:
    """What a tail of this length may come from, and whether it is likely to come about."""
    if count == 1:
        return " (off by one?)", True
    for tile in TILES:
        if size % tile == count:
            return f" (what tiles of {tile} leave)", True
    return (f" (a tile of {count})", True) if count in TILES else ("", False)


def _step(members: torch.Tensor) -> int:
    """The distance of all neighbours, if that is one; otherwise 0."""
    gaps = members.diff()
    if len(members) < LEAST_MEMBERS or int(gaps[0]) < 2 or not bool((gaps == gaps[0]).all()):
        return 0
    return int(gaps[0])


def _choices(size: int, count: int) -> float:
    """log10 of the number of ways to choose ``count`` of ``size``."""
    ways = lgamma(size + 1) - lgamma(count + 1) - lgamma(size - count + 1)
    return ways / log(10)


def _tail(seen: Seen) -> Place | None:
    """The last elements in memory, whatever rows they are in."""
    first = int(seen.at[0])
    length = seen.total - first
    if seen.count < 0.9 * length or seen.count * log10(length / seen.total) > CHANCE:
        return None
    tile = _tile(seen.total, length)[0]
    return Place("last tile", f"in the last {length} of {seen.total} elements in memory{tile}")


def _progression(seen: Seen) -> Place | None:
    """Every k-th element in memory."""
    if seen.count > COMPARED and not seen.output.wrong.is_contiguous():
        return None
    found = seen.output.wrong.reshape(-1)[: COMPARED * 16].nonzero()[:, 0].cpu()
    step = _step(found)
    if not step or seen.count < 0.9 * (seen.total // step):
        return None
    return Place(
        "every k-th", f"at every {ordinal(step)} element in memory, from {int(found[0])} on"
    )


def _triangle(seen: Seen) -> Place | None:
    """One side of the diagonal of the last two dimensions."""
    if len(seen.shape) < 2 or min(seen.shape[-2:]) < 3:
        return None
    row, column = _last_two(seen, seen.at)
    any_row, any_column = _last_two(seen, seen.anywhere)
    for side, mine, all_ in (
        ("above", column > row, any_column > any_row),
        ("below", column < row, any_column < any_row),
        ("on", column == row, any_column == any_row),
    ):
        part = share(all_)
        # Less would be a block that happens to lie there.
        dense = 0 < part < 0.75 and seen.count >= 0.9 * part * seen.total
        if share(mine) == 1 and dense and seen.count * log10(part) <= CHANCE:
            dims = f"{seen.axis(len(seen.shape) - 2)} and {seen.axis(len(seen.shape) - 1)}"
            return Place("diagonal", f"{side} the diagonal of {dims}")
    return None


def _last_two(seen: Seen, flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return flat // seen.width % seen.shape[-2], flat % seen.width


def _scattered_rows(seen: Seen) -> Place | None:
    """Rows, each wrong as a whole, in no order."""
    if len(seen.shape) < 3 or seen.width < 4:
        return None
    per_row = seen.output.wrong.reshape(-1, seen.width).sum(1)
    rows = int((per_row > 0).sum())
    if seen.count < 0.5 * rows * seen.width or rows >= 0.5 * seen.height:
        return None
    dims = ", ".join(seen.axis(dim) for dim in range(len(seen.shape) - 1))
    return Place("whole rows", f"in {rows} of {seen.height} whole rows (of {dims})")


def listed(numbers: Sequence[object], most: int = 5) -> str:
    """Some numbers, the first of them and how many more."""
    shown = ", ".join(map(str, numbers[:most]))
    return shown if len(numbers) <= most else f"{shown} and {len(numbers) - most} more"


def ordinal(number: int) -> str:
    """2nd, 3rd, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"


def position(seen: Seen, flat: int) -> str:
    """An element as it is written in Python: ``[3, 17]``."""
    index = [
        flat // step % size for step, size in zip(strides(seen.shape), seen.shape, strict=True)
    ]
    return f"[{', '.join(map(str, index))}]" if index else ""
