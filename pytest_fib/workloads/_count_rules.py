"""Rules of counts: how many there are of something, such as tokens, steps or parts."""

from __future__ import annotations

import re

from pytest_fib.data import Definition, InputRule, kinds
from pytest_fib.workloads._axes import OPEN_MAXIMUM, listed_domain
from pytest_fib.workloads._constraints import constraints_on, parse_all
from pytest_fib.workloads._index_rules import POSITIONS
from pytest_fib.workloads._length_rules import lengths_along
from pytest_fib.workloads._subject import Subject, decides_a_size

#: Steps of an optimiser.
STEPS = 100_000
#: Between what is done now and then.
FEW = 16
#: Parts that an average is of, such as microbatches.
FEW_PARTS = 64
#: Scalars that constraints tie to axes are up to that.
TIED = 4096


def named_counts(subject: Subject) -> InputRule | None:
    """As many as a sequence has tokens, where nothing but numbers depends on them.

    Or as a constraint says.
    """
    bounds, definition = subject.bounds.get(subject.name), subject.definition
    texts = constraints_on(subject.name, definition)
    stated = [text for text in texts if not _are_pairs(text, definition)]
    if bounds and len(stated) == 1 and len(subject.spec.shape or ()) == 1:
        return lengths_along(subject, bounds[0])
    if subject.spec.is_scalar:
        if decides_a_size(subject) or subject.name in subject.uses.whole_divisors:
            return None
    elif subject.name not in subject.uses.calculated:
        return None
    subject.doubts.append(f"none is negative, or above {POSITIONS}")
    return kinds.Integers(min=0, max=POSITIONS)


def _are_pairs(text: str, definition: Definition) -> bool:
    """Whether a constraint compares each element of an input with another's, and says no more."""
    relations = [each.relation for each in parse_all(text, definition)]
    pairs = [relation.pair if relation else None for relation in relations]
    return all(pair and {*pair} <= definition.inputs.keys() for pair in pairs)


def compared_counts(subject: Subject) -> InputRule | None:
    """Counts of which each is compared with another one's, so that equal ones are frequent."""
    uses, inputs = subject.uses, subject.definition.inputs
    beside = uses.edges.get(subject.name, ())
    is_more = subject.name in {*uses.lengths, *uses.cuts, *uses.spans, *uses.offsets, *uses.sliced}
    if is_more or any(size != 0 or inputs[other].is_scalar for other, _, size in beside):
        return None
    subject.doubts.append(f"from 0 to {FEW}")
    return kinds.Integers(min=0, max=FEW) if beside else None


def summands(subject: Subject) -> InputRule | None:
    """Counts or lengths, as those are of which sums say where things begin: none is negative."""
    uses = subject.uses
    only_summed = (uses.summed & uses.calculated) | uses.running.keys()
    if subject.name not in only_summed - uses.numbers:
        return None
    subject.doubts.append("none is negative")
    axis, own = uses.running.get(subject.name), (subject.spec.shape or ("",))[-1]
    if axis and own:  # so that their total is now below that, now above
        return kinds.Integers(min=0, max=f"2 * {axis} // {own} + 1")
    return kinds.Integers(min=0, max=2 ** min(subject.spec.dtype.itemsize_bits - 1, 48) - 1)


def step(subject: Subject) -> InputRule | None:
    """The number of a step: from 0 on, unless something is divided by it."""
    if decides_a_size(subject):
        return None
    least = 1 if subject.name in subject.uses.whole_divisors else 0
    subject.doubts.append(f"up to {STEPS}")
    return kinds.Integers(min=least, max=STEPS, ends=True)


def exponent(subject: Subject) -> InputRule | None:
    """A step in an exponent, from 1 on: corrections such as ``1 - beta ** step`` are divided by."""
    is_power = subject.name in subject.uses.exponents
    return kinds.Integers(min=1, max=STEPS, ends=True) if is_power else None


def interval(subject: Subject) -> InputRule | None:
    """An interval of a few steps, so that it now and then is over."""
    subject.doubts.append(f"up to {FEW}")
    return None if decides_a_size(subject) else kinds.Integers(min=1, max=FEW, ends=True)


def whole_divisors(subject: Subject) -> InputRule | None:
    """Divisors in a tensor: not zero, unless the reference looks for that."""
    uses, name = subject.uses, subject.name
    divisors = uses.whole_divisors | uses.clamped_divisors
    if name not in divisors & uses.numbers or 0 in uses.limits.get(name, ()):
        return None
    least = 1 if name in uses.whole_divisors else 0
    most = min(int(subject.spec.dtype.ends[1]), POSITIONS)
    subject.doubts.append(f"from {least} to {most}")
    return kinds.Integers(min=least, max=most)


def whole_divisor(subject: Subject) -> InputRule | None:
    """How many of something an average is of, which divides it; the reference takes any number."""
    uses, name = subject.uses, subject.name
    if name not in uses.whole_divisors or name in uses.edges or decides_a_size(subject):
        return None
    subject.doubts.append(f"from 1 to {FEW_PARTS}")
    return kinds.Integers(min=1, max=FEW_PARTS, ends=True)


def tied_to_axes(subject: Subject) -> InputRule | None:
    """What a constraint makes equal to a sum or difference of axes, up to a few thousand.

    Or holds against one, unless it is divided by: of such ones fewer will do.
    """
    is_divisor = subject.name in subject.uses.whole_divisors
    compared = "==" if is_divisor else "(==|<=?|>=?)"
    texts = constraints_on(subject.name, subject.definition)
    sums = (text for text in texts if re.fullmatch(rf"[\w\s+*-]+{compared}[\w\s+*-]+", text))
    named = {word for text in sums for word in re.findall(r"\w+", text)}
    if not named & subject.definition.axes.keys():
        return None
    axes = named & {*subject.definition.var_axes}
    stated = [listed_domain(subject.definition, axis) for axis in axes]
    most = max([TIED, *(domain.high for domain in stated if domain.high < OPEN_MAXIMUM)])
    subject.doubts.append(f"up to {most}")
    return kinds.Integers(min=1 if is_divisor else 0, max=most)
