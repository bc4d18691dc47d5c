"""Rules of masks, flags and labels: numbers that are only asked which one they are."""

from __future__ import annotations

import re

from pytest_fib.data import DTYPE_CLASSES, InputRule, kinds
from pytest_fib.workloads._subject import Subject, sentinels_of

#: How many labels there are where the reference asks for some by number, besides these.
FEW_LABELS = 4
FLAGS = r"(is|has|do|no|use|skip)_.*|(.*_)?(dones?|terminated|truncated|flags?|valid|alive|active)"
FLAGS += r"|(.*_)?(resets?|h?flip)"
MASK = r"(.*_)?mask(_.*)?"


def mask(subject: Subject) -> InputRule | None:
    """Where it is added, 0 or -inf; else 0 or 1.

    A whole row is -inf where the reference puts numbers for a softmax of nothing: else that is NaN.
    """
    if subject.spec.dtype.is_floating and subject.name not in subject.uses.factors:
        is_added = subject.name in subject.uses.added and subject.spec.shape
        return kinds.Mask(allow_empty=subject.uses.mends_nothing) if is_added else None
    is_integer = subject.spec.dtype in DTYPE_CLASSES["integer"]
    are_bits = is_integer and subject.name in subject.uses.shifted | subject.uses.any_bits
    are_rows = is_integer and subject.name in subject.uses.pads
    return None if are_bits or are_rows else truths(subject)


def truths(subject: Subject) -> InputRule:
    """True or false; as many are true as a constraint says, as in ``n == mask.sum().item()``."""
    return kinds.Boolean(total=subject.sums.get(subject.name))


def narrow_flags(subject: Subject) -> InputRule | None:
    """Integers of 8 bits, which by their name, or since only that is asked, are true or false."""
    uses, name = subject.uses, subject.name
    if subject.spec.dtype not in DTYPE_CLASSES["bytes"]:
        return None
    numbers = {*uses.limits.get(name, ())}
    is_asked = uses.only_asks(name) and bool(numbers) and numbers <= {0, 1}
    are_bits = name in uses.shifted | uses.any_bits
    return kinds.Boolean() if is_asked or (re.fullmatch(FLAGS, name) and not are_bits) else None


def switch(subject: Subject) -> InputRule | None:
    """A number of which only is asked whether it is true."""
    is_switch = subject.name in subject.uses.seen - subject.uses.more_than_true
    return kinds.Integers(min=0, max=1) if is_switch else None


def choice(subject: Subject) -> InputRule | None:
    """One of the numbers that the reference asks for, or the next; not what others are too."""
    uses, numbers = subject.uses, subject.uses.limits.get(subject.name, ())
    if not uses.only_asks(subject.name) or not numbers or subject.name in uses.edges:
        return None
    is_switch = {*numbers} <= {0, 1}  # any other number may be as good as 1, or not
    return kinds.Integers(min=int(min(0, *numbers)), max=1 if is_switch else int(max(numbers)) + 1)


def labels(subject: Subject) -> InputRule | None:
    """A few labels, so that some are equal; among them those that the reference asks for."""
    uses, name = subject.uses, subject.name
    if name not in uses.equated - uses.beyond_equality - uses.numbers or subject.spec.is_scalar:
        return None
    scalars = {n for n, spec in subject.definition.inputs.items() if spec.is_scalar}
    with_scalars = any(other in scalars for other, *_ in uses.edges.get(name, ()))
    of_others = {*uses.limits.get(name, ())} - {0} or name in uses.pads  # 0 is there in any case
    is_asked = (name in uses.computed and of_others) or with_scalars
    return _some_asked_for(subject) if is_asked else kinds.Labels()


def asked_labels(subject: Subject) -> InputRule | None:
    """A few labels, of integers that are only asked whether they equal some numbers.

    Those that are only asked whether they are 1, and those of 8 bits, may be flags.
    """
    uses, name = subject.uses, subject.name
    numbers = uses.limits.get(name, ())
    is_flag = subject.spec.dtype.itemsize_bits == 8 or 1 in numbers or not numbers
    return _some_asked_for(subject) if uses.only_asks(name) and not is_flag else None


def _some_asked_for(subject: Subject) -> InputRule:
    """A few labels, and those of other numbers that the reference asks for."""
    least, most = subject.spec.dtype.ends
    numbers = [int(number) for number in subject.uses.limits.get(subject.name, ())]
    asked_for = [n for n in (*numbers, *(sentinels_of(subject) or ())) if least <= n <= most]
    others = sorted({number for number in asked_for if not 0 <= number < FEW_LABELS})
    return kinds.Positions(below=FEW_LABELS, sentinels=others or None)
