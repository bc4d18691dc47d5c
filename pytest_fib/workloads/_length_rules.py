"""Rules of lengths: of sequences, of rows, and of the windows within them."""

from __future__ import annotations

import re

from pytest_fib.data import InputRule, kinds
from pytest_fib.workloads._constraints import constraints_on
from pytest_fib.workloads._flag_rules import MASK
from pytest_fib.workloads._subject import Subject, decides_a_size

#: How many times as long as an axis lengths are that the reference keeps within it.
TIMES_AS_LONG = 4
#: Axes of the tokens of sequences.
_TOKENS = r"(.*_)?(len|length|tokens?|seq|seqlen|kv|keys|queries)|[st]|total(_.*)?"


def lengths_along(subject: Subject, axis: str | None) -> InputRule | None:
    """Lengths up to an axis, and of 0 where the reference can do an empty sequence."""
    if axis is None:
        return None
    return kinds.SeqLens(max=axis, allow_empty=subject.may_be_empty)


def up_to(most: str, subject: Subject) -> InputRule:
    """A length up to that: from 1 on; from 0, or -1, where the reference takes that."""
    least = 0 if subject.may_be_empty else 1
    return kinds.Integers(min=subject.uses.pads.get(subject.name, least), max=most, ends=True)


def summed_lengths(subject: Subject) -> InputRule | None:
    """Lengths by their total; bounded where a constraint or the reference bounds each of them."""
    total = subject.sums.get(subject.name)
    if total is None or re.fullmatch(MASK, subject.name):
        return None
    name, uses = subject.name, subject.uses
    along = uses.lengths.get(name)
    bounds = dict.fromkeys(subject.bounds.get(name, ()))
    if along not in (None, total, uses.beyond.get(name)):
        bounds |= {along: None}
    most = f"min({', '.join(bounds)})" if len(bounds) > 1 else next(iter(bounds), None)
    return kinds.Lengths(total=total, max=most)


def cut_lengths(subject: Subject) -> InputRule | None:
    """Lengths, at which the reference cuts an axis off; longer ones where it keeps them within."""
    axis = subject.uses.lengths.get(subject.name)
    if axis is None or subject.uses.beyond.get(subject.name) != axis:
        return lengths_along(subject, axis)
    least = 0 if subject.may_be_empty else 1
    return kinds.Integers(min=least, max=f"{TIMES_AS_LONG} * {axis}")


def cut_length(subject: Subject) -> InputRule | None:
    """As many as there are along an axis, or fewer; not what a constraint makes an axis' size."""
    axis, name = subject.uses.lengths.get(subject.name), subject.name
    texts = constraints_on(name, subject.definition)
    if any(re.fullmatch(rf"\w+ == {name}|{name} == \w+", text) for text in texts):
        return None
    return None if axis is None else up_to(axis, subject)


def lengths_less_places(subject: Subject) -> InputRule | None:
    """Lengths, of which the reference takes the places of an axis: how many are left there."""
    axis = subject.uses.less_places.get(subject.name)
    return lengths_along(subject, axis if axis in subject.definition.axes else None)


def row_lengths(subject: Subject) -> InputRule | None:
    """Lengths of rows, where all tensors of such rows go on with the same axis."""
    shape, inputs = subject.spec.shape or (), subject.definition.inputs.values()
    shapes = [spec.shape for spec in inputs if spec.shape and len(spec.shape) > 1]
    behind = {each[1] for each in shapes if each[:1] == shape}
    is_one = len(behind) == 1 and behind <= {*subject.definition.var_axes}
    if len(shape) != 1 or not is_one or decides_a_size(subject):
        return None
    axis = behind.pop()
    subject.doubts.append(f"up to {axis}")
    return kinds.SeqLens(max=axis, allow_empty=subject.may_be_empty)


def window(subject: Subject) -> InputRule | None:
    """As many tokens as a sequence has, or fewer; -1 where the reference asks for that."""
    of_tokens = subject.input("k", "key", "q", "query", "qkv", "k_cache", "kv_cache")
    spec = subject.definition.inputs.get(of_tokens or "")
    along = [axis for axis in (spec and spec.shape) or () if re.fullmatch(_TOKENS, axis)]
    if not along:
        return None
    subject.doubts.append(f"up to {along[0]}")
    is_switch = 0 in subject.uses.limits.get(subject.name, ())
    least = subject.uses.pads.get(subject.name, 0 if is_switch else 1)
    return kinds.Integers(min=least, max=along[0], ends=True)
