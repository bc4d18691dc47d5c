"""Other formulas and orders in which kernels compute what an operation does."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch._decomp import decomposition_table

from pytest_fib.sandbox._exactness import is_exact
from pytest_fib.sandbox._operations import ROUNDOFF, SUMS, Operation, is_wide, words

#: Sums whose terms may be added one after the other; and products that are such sums.
_ADDED, _DOTS = words("sum mean cumsum"), words("mv dot vdot")
#: Products of matrices, and how many products of numbers in them are added one after the other.
_MATRIX_PRODUCTS, MOST_PRODUCTS = words("mm bmm addmm baddbmm"), 1 << 28
#: Any number of many bits.
SCALE_OF_PRODUCTS = 0.7
#: Scores of -1e4 and below are masks.
LEAST_UNMASKED = -1e4


def added_in_turn(call: Operation) -> torch.Tensor:
    """A sum, a mean or a cumulative sum in float32, one term after the other."""
    value, dims = call.args[0], call.argument("dim")
    dims = call.argument("dims") if dims is None else dims  # torch's primitive ones
    dims = [dims] if isinstance(dims, int) else dims or range(value.dim())
    along = sorted(dim % value.dim() for dim in dims)
    others = [dim for dim in range(value.dim()) if dim not in along]
    rows = value.permute(*others, *along).flatten(len(others))
    with np.errstate(over="ignore", invalid="ignore"):  # torch doesn't warn either
        partial = np.cumsum(rows.float().cpu().numpy(), axis=-1, dtype=np.float32)
    sums = torch.from_numpy(partial).to(value)
    if call.name == "cumsum":
        return sums.movedim(-1, along[0])
    total = sums[..., -1] / (rows.shape[-1] if call.name == "mean" else 1)
    for dim in along if call.argument("keepdim") else ():
        total = total.unsqueeze(dim)
    return total


def added_from_the_end(call: Operation) -> torch.Tensor:
    """A running sum of what was flipped, as what the whole is more than the sum up to a term.

    Off by a roundoff of each of both, whatever luck makes of them.
    """
    dim = call.dim or 0
    sums: torch.Tensor = call.run()
    fore: torch.Tensor = call.args[0].double().flip(dim).cumsum(dim).flip(dim)
    return sums.add(ROUNDOFF * (fore.abs() + fore.narrow(dim, 0, 1).abs()).to(sums.dtype))


def multiplies(call: Operation) -> bool:
    """Whether this is a product of matrices of float32 or float64, which changes none."""
    if call.name not in _MATRIX_PRODUCTS or call.in_place:
        return False
    left, _ = _factors(call)
    return is_wide(left) and left.itemsize > 2


def is_multiplied(call: Operation) -> bool:
    """Whether ``multiplied_in_turn`` computes such a product, in a fraction of a second."""
    left, right = _factors(call)
    return 0 < left.numel() * right.shape[-1] <= MOST_PRODUCTS


def _factors(call: Operation) -> tuple[torch.Tensor, torch.Tensor]:
    left, right = call.args[-2:]
    return left, right


def multiplied_in_turn(call: Operation) -> torch.Tensor:
    """A product of matrices in float32, one term after the other.

    With a scale that belongs to one of the matrices, unless float32 holds all sums without: a scale
    that comes after the product may be a part of it, and then float32 holds no term exactly.
    """
    left, right = _factors(call)
    scale = 1.0 if is_exact(call) else SCALE_OF_PRODUCTS
    left = left * scale
    columns, rows = left.movedim(-1, 0).float(), right.movedim(-2, 0).float()
    total = torch.zeros_like(columns[0].unsqueeze(-1) * rows[0].unsqueeze(-2))
    for column, row in zip(columns.contiguous(), rows.contiguous(), strict=True):
        total += column.unsqueeze(-1) * row.unsqueeze(-2)
    result = total.to(left.dtype) / scale
    if len(call.args) == 2:
        return result
    alpha, beta = call.argument("alpha"), call.argument("beta")
    sums: torch.Tensor = alpha * result + beta * call.args[0]
    return sums


def is_added(call: Operation) -> bool:
    """Whether ``added_in_turn`` computes this operation."""
    if call.name not in _ADDED or not is_wide(call.args[0]):
        return False
    value: torch.Tensor = call.args[0]
    return value.dim() > 0 and value.numel() > 0


def simpler(call: Operation) -> Callable[..., Any] | None:
    """An operation written in those that kernels have for it; None where it isn't known how."""
    writes = call.in_place or "out" in call.kwargs
    if call.name in _FORMULAS and is_wide(call.args[0]) and not writes:
        return _FORMULAS[call.name]
    reduces = call.argument("reduction") in (1, 2)
    adds = call.name in SUMS - _ADDED or call.name in _DOTS or reduces
    steps: Callable[..., Any] | None = decomposition_table.get(call.func) if adds else None
    if steps is None or any(is_wide(x) and x.itemsize < 4 for x in call.args):
        return steps
    # What wraps it converts narrower numbers, and imports torch's compiler, which takes seconds.
    unwrapped: Callable[..., Any] = inspect.unwrap(steps)
    return unwrapped


def _variance_and_mean(
    value: torch.Tensor,
    dim: Sequence[int] | None = None,
    unbiased: bool = True,
    keepdim: bool = False,
    *,
    correction: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """As aten's ``var_mean``; torch's own decomposition has no sum of squares in it."""
    dims = list(dim or range(value.dim()))
    mean = value.mean(dims, keepdim=True)
    squares = (value - mean).square().sum(dims, keepdim=keepdim)
    less = int(unbiased) if correction is None else correction
    freedom = value.numel() / max(mean.numel(), 1) - less
    return squares / max(freedom, 0.0), mean if keepdim else mean.sum(dims)


def _deviation_and_mean(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = _variance_and_mean(*args, **kwargs)
    return variance.sqrt(), mean


def _less_logsumexp(
    value: torch.Tensor, dim: int, half_to_float: bool = False, *_: Any
) -> torch.Tensor:
    """A logarithm of softmax as of kernels that keep that of the sum, all of it in float32.

    Of large numbers the sum's logarithm is lost then, and the weights of equal ones are all 1.
    """
    narrow = value.float()
    if not value.numel():
        return narrow if half_to_float else value.clone()
    top = narrow.amax(dim, keepdim=True)
    logarithm = narrow - ((narrow - top).exp().sum(dim, keepdim=True).log() + top)
    return logarithm if half_to_float else logarithm.to(value.dtype)


def _softmax_of_logsumexp(*args: Any) -> torch.Tensor:
    return _less_logsumexp(*args).exp()


def _tanh_by_sigmoid(value: torch.Tensor) -> torch.Tensor:
    """As Triton's kernels have it, in float32."""
    return (2 * (2 * value.float()).sigmoid() - 1).to(value.dtype)


def _logaddexp_by_smaller(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """As of ring attention, ``one - logsigmoid(one - other)``, with the smaller one, in float32.

    That is off by roundoffs of the smaller one. A mask is lost so, which no kernel may lose.
    """
    both = torch.stack([torch.minimum(one, other), torch.maximum(one, other)])
    least, most = both.float()
    by_smaller = least - torch.nn.functional.logsigmoid(least - most)
    is_usual = (least > LEAST_UNMASKED) & most.isfinite()
    return torch.where(is_usual, by_smaller.to(both.dtype), both.logsumexp(0))


def _elu_by_exp(
    value: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> torch.Tensor:
    """As kernels have it that know no ``expm1``."""
    less_one = alpha * ((value.float() * input_scale).exp() - 1)
    return scale * torch.where(value > 0, value, less_one.to(value.dtype))


def _by_log2(base: float, value: torch.Tensor) -> torch.Tensor:
    """A logarithm as devices have it, which have that to base 2, in float32."""
    of_two = torch.tensor(math.log(2) / math.log(base), dtype=torch.float32, device=value.device)
    return (value.float().log2() * of_two).to(value.dtype)


_FORMULAS: Mapping[str, Callable[..., Any]] = {
    "log": partial(_by_log2, math.e),
    "log10": partial(_by_log2, 10.0),
    "tanh": _tanh_by_sigmoid,
    "elu": _elu_by_exp,
    "logaddexp": _logaddexp_by_smaller,
    "_softmax": _softmax_of_logsumexp,
    "_log_softmax": _less_logsumexp,
    "var_mean": _variance_and_mean,
    "std_mean": _deviation_and_mean,
    "var": lambda *args, **kwargs: _variance_and_mean(*args, **kwargs)[0],
    "std": lambda *args, **kwargs: _deviation_and_mean(*args, **kwargs)[0],
}


def is_quotient(call: Operation) -> bool:
    """Whether this divides numbers that have errors, and rounds no more than that."""
    return call.name == "div" and "rounding_mode" not in call.kwargs and is_wide(call.args[0])


def by_reciprocal(call: Operation) -> Any:
    """A quotient as float32's product with its reciprocal, which is infinite for faint divisors."""
    value, divisor = call.args
    reciprocal = torch.as_tensor(divisor).double().reciprocal().float()
    reciprocal = reciprocal.to(divisor.dtype if is_wide(divisor) else value.dtype)
    product = value * reciprocal
    product = product.float().to(product.dtype)
    return value.copy_(product) if call.in_place else product
