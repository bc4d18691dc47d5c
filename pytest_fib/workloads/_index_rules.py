"""Rules of indices: which row, token or position something is at."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Literal

from pytest_fib.data import InputRule, kinds
from pytest_fib.workloads._descriptions import more
from pytest_fib.workloads._length_rules import TIMES_AS_LONG
from pytest_fib.workloads._subject import Subject, sentinels_of

#: Tokens that have no table which says how many there are: GPT-OSS has 201,088.
VOCABULARY = 201_088
#: Positions that have no table which says how many there are.
POSITIONS = 8192


def of_axis(subject: Subject) -> InputRule | None:
    """Numbers along an axis that the reference indexes with them."""
    axis = subject.uses.picks.get(subject.name)
    if axis is None:
        return None
    sentinels = _sentinels_beyond(axis, subject)
    spare = subject.uses.spare.get(subject.name)
    below = axis if spare is None else f"{axis} + {spare}"
    of, behind = subject.uses.behind.get(subject.name, (None, 0))
    below = below if of != axis else f"{below} - {behind}"
    if subject.spec.is_scalar:
        return kinds.Integers(min=min([0, *(sentinels or ())]), max=more(below, -1), ends=True)
    if _may_be_beyond(axis, subject):
        return kinds.Positions(below=f"2 * {axis}", sentinels=sentinels)
    return kinds.Indices(below=below, unique=_must_differ(subject, below), sentinels=sentinels)


def _sentinels_beyond(below: str | int, subject: Subject) -> list[int] | None:
    """Its sentinels, and the numbers that it is asked for and that are none of those below."""
    n = subject.const(below) if isinstance(below, str) else below
    least = int(subject.spec.dtype.ends[1]) if n is None else n
    asked = {*subject.uses.equals.get(subject.name, ()), *(sentinels_of(subject) or ())}
    first, last = subject.spec.dtype.ends
    beyond = {n for n in asked if (n < 0 or n >= least) and first <= n <= last}
    return sorted(beyond) or None


def _may_be_beyond(axis: str | int, subject: Subject) -> bool:
    """Whether numbers from the size of an axis on are legal, and nothing says that they aren't."""
    is_said = subject.said.padding is not None or subject.said.most is not None
    return not is_said and subject.uses.beyond.get(subject.name) == axis


def _must_differ(subject: Subject, below: str | int) -> bool | Literal["everywhere"]:
    """Whether it says where elements are put, of which two in one place would be in no order.

    In one row, or ``everywhere`` where all rows say so at once.
    """
    shape, sizes = subject.spec.shape or ("",), subject.definition.const_axes
    places = subject.const(str(below)) if isinstance(below, str) else below
    is_at_once = subject.name in subject.uses.placed_at_once
    n = [sizes.get(axis, 1) for axis in (shape if is_at_once else shape[-1:])]
    fits = places is None or prod(n) <= places
    are_unique = bool(subject.uses.calls & {"unique"})  # whichever of them there are
    if subject.name not in subject.uses.placed or not fits or are_unique:
        return False
    return "everywhere" if is_at_once and len(shape) > 1 else True


def distinct(*axes: str) -> Callable[[Subject], InputRule | None]:
    """Indices below the size of the first of these axes, none of them twice."""

    def make(subject: Subject) -> InputRule | None:
        below = subject.axis(*axes)
        return None if below is None else kinds.Indices(below=below, unique=True)

    return make


def token_ids(subject: Subject) -> InputRule | None:
    """Tokens, which are rows of a table, the first and the last among them."""
    rows = subject.axis("vocab_size", "vocabulary", "vocab", "num_embeddings")
    rows = rows or subject.dim(subject.input("embedding", "embedding_table", "table", "weight"), 0)
    if rows is None:
        return None
    # What a tensor that is longer by one has for them is where padding goes.
    n, picked = subject.const(rows), subject.uses.picks.get(subject.name)
    if picked is None and subject.name in subject.uses.any_bits:  # it may be hashed
        subject.doubts.append(f"below {rows}")
    if picked == rows and _may_be_beyond(rows, subject):
        return kinds.Positions(below=f"2 * {rows}", sentinels=sentinels_of(subject))
    is_longer = (picked, subject.uses.spare.get(subject.name)) == (rows, 1)
    if n is not None and (is_longer or str(picked) == str(n + 1)):
        return kinds.Positions(below=rows, sentinels=[n])
    if is_longer:
        return kinds.Positions(below=f"{rows} + 1", sentinels=sentinels_of(subject))
    return kinds.Positions(below=rows, sentinels=sentinels_of(subject))


def tokens_of_any_vocabulary(subject: Subject) -> InputRule | None:
    """Tokens of a vocabulary that nothing says the size of, where no place or size depends on them.

    If the reference compares them with a number, up to that: it may be the first that is no token.
    """
    name, uses = subject.name, subject.uses
    if name not in uses.calculated or subject.spec.dtype.itemsize_bits < 32:
        return None
    below = max((int(n) + 1 for n in uses.limits.get(name, ()) if n > 1), default=VOCABULARY)
    subject.doubts.append(f"below {below}")
    return kinds.Positions(below=below, sentinels=sentinels_of(subject))


def positions(subject: Subject) -> InputRule | None:
    """Positions of tokens, below the rows of a rotary table or the longest sequence."""
    cache = subject.input("cos_sin_cache", "cos_cache", "cos")
    below = subject.dim(cache, 0) or subject.axis("max_seq_len", "max_position")
    return None if below is None else kinds.Positions(below=below, sentinels=sentinels_of(subject))


def angle_positions(subject: Subject) -> InputRule | None:
    """Positions of tokens or pixels, of which sines are taken; nothing says how many there are."""
    if subject.name not in subject.uses.angles or subject.spec.is_scalar:
        return None
    subject.doubts.append(f"below {POSITIONS}")
    return kinds.Positions(below=POSITIONS)


def relative_positions(subject: Subject) -> InputRule | None:
    """Positions that are only subtracted and compared: within a few lengths of each other.

    Those of the axis whose places they are held against, or of their own.
    """
    uses = subject.uses
    axis = uses.spans.get(subject.name) or (subject.spec.shape or ("",))[-1]
    if not axis or subject.name not in uses.calculated | uses.edges.keys():
        return None
    subject.doubts.append(f"below {TIMES_AS_LONG} * {axis}")
    return kinds.Positions(below=f"{TIMES_AS_LONG} * {axis}")


def first_of_so_many(subject: Subject) -> InputRule | None:
    """The first of so many places of an axis, as a size says: the last of them is on it as well."""
    found = subject.uses.begins.get(subject.name)
    if found is None:
        return None
    axis, size = found
    return kinds.Integers(min=0, max=f"{axis} - {size}", ends=True)


def beside_a_start(subject: Subject) -> InputRule | None:
    """Numbers of which those from a start on count, so many; or that start, in a scalar."""
    uses, name = subject.uses, subject.name
    spans = [(other, size) for other, _, size in uses.edges.get(name, ()) if size not in (0, 1)]
    others, sizes = {other for other, _ in spans}, {size for _, size in spans}
    inputs = subject.definition.inputs
    pairs = [other for other in others if inputs[other].is_scalar != subject.spec.is_scalar]
    if len(sizes) != 1 or not pairs:
        return None
    (size,), parts = sizes, TIMES_AS_LONG - subject.spec.is_scalar
    subject.doubts.append(f"below {parts} * {size}")
    if subject.spec.is_scalar:
        return kinds.Integers(min=0, max=f"{parts} * {size}", ends=True)
    return kinds.Positions(below=f"{TIMES_AS_LONG} * {size}", sentinels=sentinels_of(subject))
