"""Which results float32 computes without rounding, and how far it rounds others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from pytest_fib.sandbox._operations import PRODUCTS, ROUNDOFF, UNDERFLOW, Operation, is_wide, words

#: Numbers of bits of two factors of which float32 holds any product.
FEW_BITS = ((12, 12), (8, 16))
#: By how many roundoffs a sum of equal terms is off for each of these: up to half of them are in
#: the last binade of the partial sums. How many values make terms equal, of how many looked at.
EQUAL_SHARE, FEW_TERMS, TERMS_LOOKED_AT = 0.25, 4, 1024
#: By how much of themselves equal terms differ once they are moved: 32 roundoffs.
NEARLY_EQUAL = 32 * ROUNDOFF
#: A quotient that float32 holds may have been a product with a reciprocal, which it does not hold;
#: and a reciprocal is part of a scale, which has many forms.
_QUOTIENT_OPERATIONS, _RECIPROCALS = words("div sqrt"), words("reciprocal rsqrt")
_PLAIN = words("add sub rsub mul")
#: Operations of Python floats and tensors.
ARITHMETIC = _PLAIN | words("div")
#: What is an exponential less 1, somewhere, and comes near to -1; and all that comes near to 1 or
#: to -1.
LESS_ONE = words("elu expm1")
NEAR_ONE = LESS_ONE | words("sigmoid tanh erf")
#: Sums at places of the first tensor of what the last one has.
_ADDED_AT = words("index_add scatter_add scatter_reduce")
#: Products of windows of the first tensor with the second one, to which a third may be added.
_WINDOWS = words("convolution")
#: The number with which an operation leaves its other operand as it is, and which may be that.
_WITH_IDENTITY = {"mul": (1, (0, 1)), "div": (1, (1,)), "add": (0, (0, 1)), "sub": (0, (1,))}


def rounding_step(
    value: torch.Tensor,
    roundoffs: float,
    noise: torch.Tensor,
    offset: torch.Tensor | None = None,
) -> torch.Tensor:
    """So many roundoffs of float32, or a step of a narrower dtype, times the noise.

    Roundoffs of the value; where it is a sum of ``offset`` and of what is computed from a sum with
    1, those of ``offset`` and of 1. Where that sum is 1 up to its roundoff, no more than all of it.
    """
    narrow = value.dtype.itemsize < 4
    by = torch.finfo(value.dtype).eps if narrow else ROUNDOFF * roundoffs
    if offset is None:
        step = value * by
    else:
        step = value.abs().clamp_min(offset.abs()) * by + (value - offset).abs().clamp_max(by)
    step *= noise
    tiny = (value.abs() < UNDERFLOW) & (value != 0)
    if not narrow and bool(tiny.any()):
        step += torch.where(tiny, value.sign() * UNDERFLOW, 0.0) * noise.abs()
    return step.nan_to_num_(0.0, 0.0, 0.0)


def unrounded(
    call: Operation, output: torch.Tensor, offset: torch.Tensor | None = None
) -> torch.Tensor:
    """Which elements of a result float32 computes without rounding, or the dtype that it has.

    What a sum with 1 adds to ``offset`` is rounded there, if it is less than 1.
    """
    if call.name in _RECIPROCALS:
        return torch.zeros_like(output, dtype=torch.bool)
    if output.dtype is torch.float64:
        held = output.float().double() == output
    else:
        args = tree_map(lambda x: x.double() if is_wide(x) else x, call.args)
        held = call.func(*args, **call.kwargs) == output.double()
    if call.name in _PLAIN and not (call.in_place or call.kwargs):
        held &= (_is_exact_product if call.name == "mul" else _is_exact_sum)(call, output)
    if call.name in _QUOTIENT_OPERATIONS:
        held &= _is_exact_quotient(call, output) if call.name == "div" else _is_power_of_two(output)
    if call.name in _WITH_IDENTITY and not (call.in_place or call.kwargs):
        neutral, operands = _WITH_IDENTITY[call.name]
        for other in operands:
            held |= torch.as_tensor(call.args[other], device=output.device) == neutral
    if offset is not None:
        added = (output - offset).abs()
        held &= (added == 0) | (added >= 1)
    return held if call.name not in NEAR_ONE else held & ~is_rounded_to_one(call, output)


def is_rounded_to_one(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where what comes near to 1 or -1 is that, not only of an infinity: the difference is lost."""
    value: torch.Tensor = call.args[0]
    ends = output == -1
    if call.name not in LESS_ONE:
        ends |= output == 1
    return ends & value.isfinite()


def _is_exact_sum(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where not even float64 rounds: 2 is the sum of 2 and a tiny number, but not its exact sum."""
    one, other = (torch.as_tensor(x, dtype=torch.float64, device=output.device) for x in call.args)
    one, other = {"sub": (one, -other), "rsub": (other, -one)}.get(call.name, (one, other))
    total = output.double()
    return (total - one == other) & (total - other == one)


def _is_exact_product(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where the factors have so few bits that float32 holds any such product, or one has one bit.

    Others are held by chance: in another formula for the same, they are not.
    """
    one, other = (torch.as_tensor(x, dtype=torch.float64, device=output.device) for x in call.args)
    exact = _has_bits(one, 1) | _has_bits(other, 1)
    for few, more in FEW_BITS:
        exact |= _has_bits(one, few) & _has_bits(other, more)
        exact |= _has_bits(one, more) & _has_bits(other, few)
    return exact


def _has_bits(value: torch.Tensor, count: int) -> torch.Tensor:
    """Where a float64 number has so many significant bits at most; its first one isn't stored."""
    return value.view(torch.int64) & ((1 << (53 - count)) - 1) == 0


def _is_exact_quotient(call: Operation, output: torch.Tensor) -> torch.Tensor:
    """Where the divisor is a power of two; or the quotient by a constant, if a product has it too.

    That with the reciprocal: 448 * 2**k / 448 is a power of two in any way to divide, and 41 / 41
    is not.
    """
    value, divisor = call.args[:2]
    exact: torch.Tensor = _is_power_of_two(divisor)
    if isinstance(divisor, torch.Tensor) or call.in_place:
        return exact
    reciprocal = torch.tensor(divisor, dtype=torch.float64, device=output.device).reciprocal()
    same: torch.Tensor = value.float() * reciprocal.float() == output.float()
    return exact | (_is_power_of_two(output) & same)


def _is_power_of_two(value: Any) -> torch.Tensor:
    mantissa: torch.Tensor = torch.as_tensor(value).double().frexp().mantissa
    return mantissa.abs() == 0.5


def term_count(call: Operation) -> int:
    """How many terms a result is the sum of."""
    tensors = [x for x in call.args if isinstance(x, torch.Tensor)]
    if call.name in PRODUCTS:
        return int(tensors[-1].shape[0 if tensors[-1].dim() == 1 else -2])
    if call.name in _ADDED_AT:
        return _most_at_one_place(call)
    if call.name in _WINDOWS:
        weight = call.args[1]
        return int((weight[:, :1] if call.argument("transposed") else weight[:1]).numel())
    first, dims = tensors[0], call.argument("dim")
    if dims in (None, []):
        return first.numel()
    dims = [dims] if isinstance(dims, int) else dims
    return math.prod(first.shape[dim] for dim in dims) if first.dim() else 1


def _most_at_one_place(call: Operation) -> int:
    """How many terms are added to one element, the most of any, with what was there."""
    dim, index = call.dim or 0, call.argument("index")
    if not index.numel():
        return 1
    if not index.dim() or not call.args[0].dim():
        return 1 + int(index.numel())
    rows = index.movedim(dim, -1) if index.dim() > 1 else index
    rows = rows.reshape(-1, rows.shape[-1])
    first = torch.arange(len(rows), device=rows.device)[:, None] * call.args[0].shape[dim]
    return 1 + int(torch.unique(rows + first, return_counts=True)[1].max())


def has_few_values(call: Operation) -> bool:
    """Whether most terms have an equal; of what is added at places, those of the first column.

    Terms that differ by some roundoffs, as results do that were moved, count as equal.
    """
    tensors = [*filter(is_wide, call.args)]
    terms = tensors[0]
    if call.name in _ADDED_AT and tensors[-1].dim() and tensors[-1].numel():
        lines = tensors[-1].movedim(call.dim or 0, 0)
        terms = lines.reshape(len(lines), -1)[:, 0]
    return _different(terms.flatten()[:TERMS_LOOKED_AT]) <= FEW_TERMS


def are_all_equal(call: Operation) -> bool:
    """Whether each operand of a product of matrices is one number, so that all terms are equal."""
    operands = [*filter(is_wide, call.args)][-2:]
    return all(x.numel() > 0 and bool(x.amin() == x.amax()) for x in operands)


def _different(values: torch.Tensor) -> int:
    """How many numbers differ by more than some roundoffs; infinities of one sign are one."""
    some = values.sort().values
    low, high = some[:-1], some[1:]
    are_equal = (high == low) | (high.isfinite() & (high - low <= NEARLY_EQUAL * high.abs()))
    return int((~are_equal).sum()) + min(len(some), 1)


def is_exact(call: Operation) -> bool:
    """Whether all partial sums fit into float32 in any order: they are on one grid."""
    if call.name not in PRODUCTS | _ADDED_AT | _WINDOWS | {"sum", "nansum", "cumsum"}:
        return False
    terms = [x for x in call.args if is_wide(x)]
    some = [x.flatten()[:TERMS_LOOKED_AT] for x in terms]
    return _fits(call, some) and _fits(call, terms)  # nearly always, some say that they don't


def _fits(call: Operation, terms: Sequence[torch.Tensor]) -> bool:
    """Whether partial sums of these elements, as many as the operation has, fit into float32."""
    grids = [_grid(x) for x in terms]
    most = [float(x.abs().max()) if x.numel() else 0.0 for x in terms]
    if call.name in _ADDED_AT:
        largest = most[0] + most[-1] * term_count(call)
        adds = call.argument("alpha") in (None, 1) and call.argument("reduce") in (None, "sum")
        return adds and bool(largest < min(grids) / ROUNDOFF)
    if call.name in _WINDOWS:
        bias = max(most[2:], default=0.0)
        grid = min(grids[0] * grids[1], *grids[2:], math.inf)
        return bool(most[0] * most[1] * term_count(call) + bias < grid / ROUNDOFF)
    if call.name not in PRODUCTS:
        return bool(most[0] * call.args[0].numel() < grids[0] / ROUNDOFF)
    largest, grid = most[-1] * most[-2] * term_count(call), grids[-1] * grids[-2]
    if len(terms) > 2:  # what is added to the product
        largest, grid = largest + most[0], min(grid, grids[0])
    return bool(largest < grid / ROUNDOFF)


def _grid(value: torch.Tensor) -> float:
    """The largest power of two that all numbers are multiples of; 0 where one is not finite."""
    mantissa, exponent = value.double().frexp()
    if not bool(mantissa.isfinite().all()):
        return 0.0
    whole = (mantissa * 2.0**53).long()
    steps = torch.ldexp((whole & -whole).double(), exponent.double() - 53)[whole != 0]
    return float(steps.min()) if steps.numel() else math.inf
