"""Rules of integers that are numbers by themselves, and no places, lengths or labels."""

from __future__ import annotations

from pytest_fib.data import DType, InputRule, kinds
from pytest_fib.workloads._reference_uses import SORTING
from pytest_fib.workloads._subject import Subject, sentinels_of

#: By how many bits numbers are shifted where nothing says how many these have.
MOST_SHIFT = 15


def narrow_numbers(subject: Subject) -> InputRule | None:
    """Numbers of few bits, any of them: what is calculated with in floating point is no index."""
    uses, name = subject.uses, subject.name
    if subject.spec.dtype is DType.UINT8:  # unless it is a flag, which no table's rows are of
        axes = subject.spec.shape or ()
        is_table = len(axes) > 1 and axes[0] in {*uses.picks.values()}
        is_more = is_table or max(uses.limits.get(name, ()), default=0) > 1
        return kinds.Integers(min=0, max=255) if is_more and name in uses.numbers else None
    is_whole = subject.spec.dtype is DType.INT16 and name in uses.calculated
    is_number = (is_whole or subject.spec.dtype is DType.INT8) and name in uses.numbers
    return _any_number(subject) if is_number else None


def pixels(subject: Subject) -> InputRule | None:
    """All that bytes hold which become floating numbers, or 16 bits of sound."""
    dtype = subject.spec.dtype
    return _any_number(subject) if dtype in (DType.UINT8, DType.INT16) else None


def moved(subject: Subject) -> InputRule | None:
    """Integers that are only moved are no indices."""
    uses = subject.uses
    is_moved = subject.name in uses.seen - uses.computed - uses.numbers
    return _any_number(subject) if is_moved and not subject.spec.is_scalar else None


def calculated(subject: Subject) -> InputRule | None:
    """Integers that are only calculated with are no indices; wider than bytes, maybe counts."""
    uses = subject.uses
    free = uses.calculated if subject.spec.dtype.itemsize_bits == 8 else uses.any_bits
    return _any_number(subject) if subject.name in free & uses.calculated else None


def bytes_taken_apart(subject: Subject) -> InputRule | None:
    """All that bytes hold, where what is shifted out of them is used for something."""
    is_byte = subject.spec.dtype is DType.UINT8 and subject.name in subject.uses.shifted
    if is_byte:
        subject.doubts.append("any byte")
    return _any_number(subject) if is_byte else None


def _any_number(subject: Subject) -> InputRule:
    """Any number that the dtype holds."""
    least, most = subject.spec.dtype.ends
    return kinds.Integers(min=int(least), max=int(most))


def ordered(subject: Subject) -> InputRule | None:
    """Any numbers, which the reference only sorts and moves; those below 0 stand for none."""
    uses, bits = subject.uses, subject.spec.dtype.itemsize_bits
    is_sorted = subject.name in uses.any_bits - uses.shifted and uses.calls & SORTING
    if not is_sorted or subject.name not in uses.pads:
        return None
    return kinds.Positions(below=2 ** min(bits - 1, 40), sentinels=sentinels_of(subject))


def put_into_outputs(subject: Subject) -> InputRule | None:
    """Any number that the reference puts into outputs of as many bits; of those below 0, -1."""
    uses, bits = subject.uses, min(32, subject.spec.dtype.itemsize_bits)
    is_moved = subject.name in uses.seen - uses.computed - uses.numbers
    dtypes = [spec.dtype for spec in subject.definition.outputs.values()]
    if not is_moved or any(each.is_floating or each.itemsize_bits < bits for each in dtypes):
        return None
    return kinds.Integers(min=-1, max=2 ** (bits - 1) - 1, ends=True)


def zero_points(subject: Subject) -> InputRule | None:
    """Zero points of numbers of 8 bits, signed or not as other tensors are, or else of either kind.

    They are of a wider dtype themselves.
    """
    uses = subject.uses
    is_used = subject.name in uses.calculated | uses.numbers
    if not is_used or subject.spec.dtype.itemsize_bits == 8:
        return None
    subject.doubts.append("of 8 bits")
    definition = subject.definition
    others = {spec.dtype for spec in (*definition.inputs.values(), *definition.outputs.values())}
    least, most = -128, 255
    if others & {DType.INT8, DType.UINT8}:
        least = -128 if DType.INT8 in others else 0
        most = 255 if DType.UINT8 in others else 127
    return kinds.Integers(min=least, max=most)


def bias(subject: Subject) -> InputRule | None:
    """A bias of integers, as large as sums of a few products of bytes."""
    if subject.name not in subject.uses.calculated:
        return None
    most = min(2**15, int(subject.spec.dtype.ends[1]))
    subject.doubts.append(f"from -{most} to {most}")
    return kinds.Integers(min=-most, max=most)


def shift(subject: Subject) -> InputRule | None:
    """By how many bits others are shifted: up to 15, which numbers of 16 bits have as well."""
    if subject.name not in subject.uses.shifts:
        return None
    subject.doubts.append(f"from 0 to {MOST_SHIFT}")
    return kinds.Integers(min=0, max=MOST_SHIFT, ends=True)


def seed(subject: Subject) -> InputRule:
    """A seed, no more than has room beside a factor of 32 bits, as in hashes of Python's integers.

    Any, where the reference takes no more of it than its halves.
    """
    is_halved = subject.name in subject.uses.seen - subject.uses.more_than_halves
    bits = 63 if is_halved else 31
    most = min(2**bits - 1, int(subject.spec.dtype.ends[1]))
    subject.doubts.append(f"up to {most}")
    return kinds.Integers(min=0, max=most, ends=True)
