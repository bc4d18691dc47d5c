"""Value patterns: how the elements of floating inputs are distributed.

Each fills a tensor in place, and each breaks kernels of its own. Their names are in
``pytest_fib.data.VALUE_PATTERNS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isnan, log2
from typing import NamedTuple, TypeAlias

import torch

from pytest_fib.workloads._places import in_turn, places, row_count, whose_turn
from pytest_fib.workloads._special_values import SPECIAL_VALUES

#: How many parts a vector of ``mixed`` has.
PARTS = 8
#: How close those of ``shifted`` are that are closer, as a share of where they are.
CLOSE = 2.0**-9.5
#: How many of the least positive numbers some subnormal ones are of.
FEW_LEAST = 4
#: Integers of as many bytes as floating numbers.
_INTEGERS_OF = {4: torch.int32, 2: torch.int16}
#: How far below 0 exponentials are close to it.
FAR_BELOW = 16.0
#: Where exponentials are more than float32 holds.
FAR = 128.0


class Limits(NamedTuple):
    """The largest number of a dtype, its smallest normal one, and its name."""

    max: float
    tiny: float
    dtype: str


#: Fills a tensor; it may be wider than the dtype that the values are for and the limits are of.
PatternFill: TypeAlias = Callable[[torch.Tensor, torch.Generator, Limits], object]


def _zeros_and_ones(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Sums of these are whole numbers, which every order of summation gives exactly.

    Products of long rows stay below 256, so also where partial sums are kept in bfloat16: of ones
    at random places in two rows of n, about n times the square of their share meet.
    """
    length = max(tensor.shape[-1], 1) if tensor.dim() else 1
    tensor.bernoulli_(min(0.5, (64 / length) ** 0.5), generator=generator)


def _small(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Squares of these are about 1e-6, where an epsilon decides; half are smaller still.

    What cancels near zero is off by more than these. Not subnormal.
    """
    tensor.normal_(generator=generator).mul_(max(1e-3, limits.tiny))
    tensor.mul_(_for_half(tensor, generator, max(1e-6, limits.tiny) / max(1e-3, limits.tiny)))


def _negative(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """None above zero: a maximum that begins at 0 stays there. Half of them are large.

    So one that begins at -10,000, or what is clamped from below, shows as well. Of float16 that is
    near the largest number. Half are below -16: of all that are in such a row, exponentials and
    sigmoids are below an epsilon of 1e-6, but not 0.
    """
    tensor.normal_(generator=generator).abs_().neg_()
    tensor.mul_(_for_half(tensor, generator, limits.max**0.25))
    if limits.dtype == "float16":
        tensor.mul_(_for_half(tensor, generator, limits.max**0.75 / 4)).clamp_(min=-limits.max)
    tensor.sub_(_for_half(tensor, generator, 1 + FAR_BELOW) - 1).clamp_(min=-limits.max)


def _positive(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """The same above zero."""
    _negative(tensor, generator, limits)
    tensor.neg_()


def _for_half(tensor: torch.Tensor, generator: torch.Generator, factor: float) -> torch.Tensor:
    """The factor, or as often 1: one for each row, or each index of some first dimensions.

    Of three or more, once in four of the second one alone, as where channels are normalised. If
    there are several, not the same for all. Of a vector, one for all.
    """
    deepest = min(max(tensor.dim() - 1, 1), 2)  # what lies behind may be normalised as one
    depth = int(torch.empty(1, device=tensor.device).random_(0, deepest, generator=generator))
    depth += tensor.dim() > 1
    if tensor.dim() > 1 and tensor.shape[:depth].numel() == 1:
        depth = deepest
    alone = int(torch.empty(1, device=tensor.device).random_(0, 4, generator=generator)) == 0
    first = int(alone and tensor.dim() > 2 and tensor.shape[1] > 1)
    end = 2 if first else depth
    shape = [n if first <= i < end else 1 for i, n in enumerate(tensor.shape)]
    some = tensor.new_empty(shape).bernoulli_(generator=generator)
    some.view(-1)[1:2] = 1 - some.view(-1)[:1]
    return torch.where(some == 1, some * factor, 1)


def _one_hot(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """One 1 in each row, often the first or the last element: what is at an end is easily lost."""
    tensor.zero_()
    if tensor.dim() and tensor.numel():
        tensor.scatter_(-1, _random_places(tensor, generator), 1.0)


def _wide(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Magnitudes from 2**-8 to 2**8, or to those of ``large``: float16 has no room for more."""
    top = min(8.0, log2(limits.max) / 4)
    exponents = tensor.new_empty(tensor.shape).uniform_(-8, top, generator=generator).floor_()
    tensor.normal_(generator=generator).mul_(exponents.exp2_())


def _outlier(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Normal, but for one element of each row that is 100 or more, or -100 or less."""
    tensor.normal_(generator=generator)
    if tensor.dim() and tensor.numel():
        at = _random_places(tensor, generator)
        outliers = tensor.gather(-1, at)
        tensor.scatter_(-1, at, 100 * (outliers + outliers.sign()))


def _random_places(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The index of one element in each row: the first, the last, or as often any."""
    row = tensor[..., :1]
    choice = torch.empty_like(row, dtype=torch.long).random_(0, 4, generator=generator)
    anywhere = torch.empty_like(choice).random_(0, tensor.shape[-1], generator=generator)
    ends = torch.where(choice == 0, 0, tensor.shape[-1] - 1)
    return torch.where(choice < 2, ends, anywhere)


def _cancelling(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Each row holds every number and its negative, so that sums over it are lost in rounding."""
    tensor.normal_(generator=generator)
    half = tensor.shape[-1] // 2 if tensor.dim() else 0
    if half:
        tensor[..., half : 2 * half] = -tensor[..., :half]


def _shifted(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Far from zero, and close together: 16 and a little, or 3 and less where that is float16.

    What subtracts a mean, or its square from that of squares, is left with few digits; with hardly
    any in half of them, which are closer together still: in bfloat16 all but a few are equal.
    A sum of 4096 products is still a number.
    """
    middle = min(16.0, limits.max**0.1)
    tensor.normal_(generator=generator).mul_(_for_half(tensor, generator, 16 * CLOSE))
    tensor.mul_(middle / 16).add_(middle)


def _large(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """The fourth root of the largest number: a product of two squares still is one.

    Of float16, the first row and half of the others are of the square root: there a square is none,
    as where sums of squares are kept in that. Half of the rows are larger still, for what is an
    infinity in float32 soon, such as an exponential. Half have one sign, and long sums are none
    either, as where means are of sums in float16.
    """
    usual = limits.max**0.25
    tensor.normal_(generator=generator).mul_(usual)
    if limits.dtype == "float16" and tensor.dim():
        larger = tensor.new_empty((*tensor.shape[:-1], 1)).bernoulli_(0.5, generator=generator)
        larger.view(-1)[:1] = 1
        tensor.mul_(larger.mul_(usual - 1).add_(1))
        tensor.mul_(_for_half(tensor, generator, usual)).clamp_(-limits.max, limits.max)
        has_one_sign = torch.empty_like(larger).bernoulli_(0.5, generator=generator).bool()
        tensor.copy_(torch.where(has_one_sign, tensor.abs(), tensor))


def _subnormal(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Below the smallest normal number of the dtype; half of them are a few of the least there are.

    Of float16, rows of up to 48 of these have norms below an epsilon of 1e-6.
    """
    few = FEW_LEAST * torch.finfo(getattr(torch, limits.dtype)).eps
    tensor.uniform_(-1, 1, generator=generator).mul_(limits.tiny)
    tensor.mul_(_for_half(tensor, generator, min(few, 1.0)))


def _with_special_values(
    cases: Sequence[Mapping[float, str]],
    turn: int,
    tensor: torch.Tensor,
    generator: torch.Generator,
    limits: Limits,
) -> None:
    """Normal but for special values, in half of the rows; where there is but one row, in that.

    A row has one of several cases, each of which says of some values where they are: in one row at
    least the case whose turn it is, so that searches have all of them in small tensors too.
    """
    tensor.normal_(generator=generator)
    put_special_values(cases, turn, tensor, generator)


def put_special_values(
    cases: Sequence[Mapping[float, str]],
    turn: int,
    tensor: torch.Tensor,
    generator: torch.Generator,
) -> None:
    """Put special values into a tensor, as ``_with_special_values`` does.

    Half of the NaN are those of CUDA's arithmetic, all of whose bits are ones but for the sign:
    what is added to the bits of these goes round to numbers.
    """
    rows = row_count(tensor)
    if not rows:
        return
    special = torch.empty(rows, device=tensor.device).uniform_(generator=generator) < 0.5
    special[turn % rows] = True
    certain = int(whose_turn(tensor, len(cases), 0)[turn % rows])
    for value in sorted({value for case in cases for value in case}):
        at = in_turn(tensor, [case.get(value, "none") for case in cases], turn - certain)
        mask = places(tensor, at.where(special, 0), generator)
        tensor.masked_fill_(mask, value)
        if isnan(value) and tensor.element_size() in _INTEGERS_OF:
            bits = tensor.view(_INTEGERS_OF[tensor.element_size()])
            mask &= torch.empty_like(mask).bernoulli_(generator=generator)
            bits.masked_fill_(mask, torch.iinfo(bits.dtype).max)


def _mixed(tensor: torch.Tensor, generator: torch.Generator, limits: Limits) -> None:
    """Rows of one sort each: zero, all ones, small, large, negative, normal, with an outlier, far.

    Those that are far are close together where exponentials overflow. Of a vector, the parts of it.
    """
    _outlier(tensor, generator, limits)
    if not tensor.dim():
        return
    sort = torch.empty((*tensor.shape[:-1], 1), dtype=torch.long, device=tensor.device)
    if tensor.dim() == 1:
        sort = sort.repeat(PARTS)
    sort.random_(0, 8, generator=generator)
    if tensor.dim() == 1:
        sort = sort.repeat_interleave(-(-len(tensor) // PARTS))[: len(tensor)]
    usual = torch.empty_like(tensor).normal_(generator=generator)
    usual = torch.where(sort == 6, usual.abs(), usual)
    tensor.copy_(torch.where(sort == 5, tensor, usual))
    large = limits.max**0.25
    factors = [0.0, 0.0, max(1e-3, limits.tiny), large, 1.0, 1.0, -1.0, 1.0]
    tensor.mul_(torch.tensor(factors, dtype=tensor.dtype, device=tensor.device)[sort])
    tensor.add_(sort == 1).add_(sort == 7, alpha=min(FAR, large))


#: By name. Where inputs are ``negative``, some others are ``positive``.
PATTERN_FILLS: dict[str, PatternFill] = {
    "normal": lambda tensor, generator, limits: tensor.normal_(generator=generator),
    "ones": lambda tensor, generator, limits: tensor.fill_(1.0),
    "zeros": lambda tensor, generator, limits: tensor.zero_(),
    "zeros_and_ones": _zeros_and_ones,
    "small": _small,
    "negative": _negative,
    "positive": _positive,
    "one_hot": _one_hot,
    "wide": _wide,
    "outlier": _outlier,
    "cancelling": _cancelling,
    "shifted": _shifted,
    "large": _large,
    "subnormal": _subnormal,
    "mixed": _mixed,
}


def pattern_fill(name: str, turn: int) -> PatternFill:
    """How the pattern of this name fills a tensor; special values take turns at their places."""
    if name in SPECIAL_VALUES:
        return partial(_with_special_values, SPECIAL_VALUES[name], turn)
    return PATTERN_FILLS[name]
