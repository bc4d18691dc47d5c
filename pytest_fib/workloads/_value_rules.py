"""Rules of tensors of real numbers: scales, divisors, rotary tables and decays."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pytest_fib.data import DType, InputRule, TensorSpec, kinds
from pytest_fib.workloads._flag_rules import FLAGS, MASK
from pytest_fib.workloads._scalar_rules import BELOW_ONE, LEAST_THRESHOLD

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject

#: On average that of numbers between 0 and 1.
_LOG_OF_A_DECAY = kinds.Uniform(min=-2.0, max=0.0)
#: How a reference makes numbers of few bits, or takes them apart.
_QUANTISES = re.compile(r"\btorch\.(u?int8|float8\w*|round)\b|\.round\(|>>")


def scales(subject: Subject) -> InputRule | None:
    """Scales, which are positive; but any values where they are added, as in ``x * (1 + scale)``.

    Around 1 where nothing is quantised.
    """
    definition, uses = subject.definition, subject.uses
    of_inputs, of_outputs = map(_has_codes, (definition.inputs, definition.outputs))
    if subject.name in uses.added:
        return None
    if of_outputs and not of_inputs and subject.name in uses.factors - uses.divisors:
        return kinds.Scales(min=2**-3, max=2**6)  # of what is quantised next, so that some is large
    is_quantised = of_inputs or of_outputs or _QUANTISES.search(definition.reference)
    return kinds.Scales() if is_quantised else kinds.Scales(min=0.25, max=4.0)


def _has_codes(specs: Mapping[str, TensorSpec]) -> bool:
    """Whether a tensor has numbers of 8 bits or fewer that aren't only true or false."""
    return any(
        spec.dtype.itemsize_bits <= 8 and spec.dtype is not DType.BOOL and not spec.is_scalar
        for name, spec in specs.items()
        if not re.fullmatch(rf"{MASK}|{FLAGS}", name)
    )


def packed_fp4(subject: Subject) -> InputRule | None:
    """Bytes of two numbers each, by the name of an axis."""
    packed = any("packed" in axis for axis in subject.spec.shape or ())
    return kinds.Fp4() if packed and subject.name not in subject.uses.shifted else None


def rotary_table(kind: type[kinds.Cos | kinds.Sin]) -> Callable[[Subject], InputRule | None]:
    """Cosines or sines: each twice where it is as wide as a head, once where it is half as wide."""

    def make(subject: Subject) -> InputRule | None:
        shape = subject.spec.shape or ()
        head = subject.dim(subject.input("q", "query", "x"), -1)
        if len(shape) < 2:
            return None
        twice = shape[-1] == head
        if twice:
            subject.doubts.append("its two halves are alike")
        return kind(twice=twice)

    return make


def searched(subject: Subject) -> InputRule | None:
    """Sorted numbers, as the reference searches in them."""
    if subject.name not in subject.uses.searched or not subject.spec.shape:
        return None
    if not subject.spec.dtype.is_floating:
        subject.doubts.append("from 0 to 100")
    return kinds.Sorted()


def compared_with_shares(subject: Subject) -> InputRule | None:
    """Limits that shares of a softmax are compared with."""
    if subject.name not in subject.uses.shares:
        return None
    return kinds.Uniform(min=LEAST_THRESHOLD, max=1.0, ends=True)


def positive(subject: Subject) -> InputRule | None:
    """From 0 on: under a root or in a logarithm of the reference."""
    return kinds.Uniform(min=0.0) if subject.name in subject.uses.positive else None


def divisors(subject: Subject) -> InputRule | None:
    """Divisors, not near zero; of either sign where each element has one of its own."""
    uses, shape = subject.uses, subject.spec.shape or ()
    if subject.name not in uses.divisors - uses.limited:
        return None
    if subject.name in uses.shares_of_one:  # as what is left of a signal
        return kinds.Uniform(min=LEAST_THRESHOLD, max=BELOW_ONE)
    most = max(len(spec.shape or ()) for spec in subject.definition.inputs.values())
    return kinds.Scales(
        min=0.25, max=4.0, signed=len(shape) == most > 0 and subject.name not in uses.positive
    )


def norms(subject: Subject) -> InputRule | None:
    """Norms of rows, or the most that these may be; not weights, which have a last axis."""
    shapes = [spec.shape for spec in subject.definition.inputs.values() if spec.shape]
    lasts = {shape[-1] for shape in shapes if len(shape) > 1}
    are_weights = lasts & {*(subject.spec.shape or ())}
    is_divisor = subject.name in subject.uses.divisors
    return None if are_weights or is_divisor else kinds.Uniform(min=0.0, max=4.0)


def decay_rates(subject: Subject) -> InputRule:
    """Rates of decay: negative, as states that grow are soon infinite; of heads, near -1."""
    has_heads = any("head" in axis for axis in subject.spec.shape or ())
    # In (-1.5, -0.5]: both ends may be reached by rounding, so the open one is kept away from.
    low, high = (-1.45, -0.5) if has_heads else (-16.0, -1 / 16)
    return kinds.Uniform(min=low, max=high, broadcast=_within_heads(subject))


def step_sizes(subject: Subject) -> InputRule:
    """Sizes of steps are positive; before a softplus, of which most are small, of either sign."""
    has_softplus = "softplus" in subject.definition.reference
    low, high = (-6.0, 2.0) if has_softplus else (0.0, 1.0)
    return kinds.Uniform(min=low, max=high, broadcast=_within_heads(subject))


def one_per_head(subject: Subject) -> InputRule | None:
    """Any values, of each head the same one."""
    within = _within_heads(subject)
    return None if within is None else kinds.Values(broadcast=within)


def _within_heads(subject: Subject) -> list[str] | None:
    """The axes after the heads' own: where there are heads, each has one value, with stride 0."""
    shape = subject.spec.shape or ()
    heads = next((i for i, axis in enumerate(shape) if "head" in axis), len(shape) - 1)
    return list(shape[heads + 1 :]) or None


def decays(subject: Subject) -> InputRule:
    """What is left of a number; its logarithm; or, where that is negated, the logarithm's own."""
    is_negated = subject.uses.raised.get(subject.name)
    if is_negated is None:
        return kinds.Uniform()
    return kinds.Uniform(min=-6.0, max=2.0) if is_negated else _LOG_OF_A_DECAY


def log_decays(subject: Subject) -> InputRule | None:
    """Logarithms of decays: not positive, where the reference takes an exponential of something."""
    return _LOG_OF_A_DECAY if subject.uses.calls & {"exp", "exp2"} else None
