"""RMSNorm, wrong in ways that norms are."""

import torch
from _wrong import caught, fp16_sum, narrow, put, toward_zero

from pytest_fib import implements


def rmsnorm(x, weight, eps, read=torch.Tensor.float, mean=None, root=torch.rsqrt):
    wide = read(x)
    square = wide.square().mean(-1, keepdim=True) if mean is None else mean(wide)
    return wide * root(square + eps) * weight.float()


@implements("rmsnorm_d*_bfloat16")
@caught("zeros")
def zeros(x, weight, eps):
    return torch.zeros_like(x)


@implements("rmsnorm_d256_bfloat16")
@caught("constant")
def constant(x, weight, eps):
    return torch.full_like(x, 0.5)


@implements("rmsnorm_d256_bfloat16")
@caught("zeros", "whole rows", "last tile")
def zero_middle_row(x, weight, eps):
    return put(rmsnorm(x, weight, eps), len(x) // 2, 0.0).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("zeros", "whole columns")
def zero_column(x, weight, eps):
    return put(rmsnorm(x, weight, eps), (slice(None), 1234), 0.0).to(x.dtype)


@implements("rmsnorm_d1536_bfloat16")
@caught("zeros", "last tile")
def last_tile_dropped(x, weight, eps):
    return put(rmsnorm(x, weight, eps), (slice(None), slice(1472, None)), 0.0).to(x.dtype)


@implements("rmsnorm_d128_bfloat16")
@caught("zeros", "every k-th")
def every_fourth_zero(x, weight, eps):
    return put(rmsnorm(x, weight, eps), (slice(None), slice(3, None, 4)), 0.0).to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("copied input")
def untouched(x, weight, eps):
    return x.clone()


@implements("rmsnorm_d4096")
@caught("misread input")
def without_weight(x, weight, eps):
    return rmsnorm(x, torch.ones_like(weight), eps).to(x.dtype)


@implements("rmsnorm_d512_bfloat16")
@caught("misread input")
def eps_ten_times(x, weight, eps):
    return rmsnorm(x, weight, 10 * eps).to(x.dtype)


@implements("rmsnorm_d512_bfloat16")
@caught("misread input", "factor per row")
def eps_outside_the_root(x, weight, eps):
    return rmsnorm(x, weight, eps, root=lambda s: 1 / ((s - eps).sqrt() + eps)).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("nan")
def no_eps(x, weight, eps):
    return rmsnorm(x, weight, 0.0).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("one factor")
def half_a_percent_large(x, weight, eps):
    return (1.005 * rmsnorm(x, weight, eps)).to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("one factor")
def half_a_percent_small(x, weight, eps):
    return (0.995 * rmsnorm(x, weight, eps)).to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("one offset")
def shifted_up(x, weight, eps):
    return (rmsnorm(x, weight, eps) + 0.02).to(x.dtype)


@implements("rmsnorm_d128_bfloat16")
@caught("one factor", "factor per row")
def sum_for_mean(x, weight, eps):
    return rmsnorm(x, weight, eps, mean=lambda w: w.square().sum(-1, keepdim=True)).to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("factor per row", "one factor")
def last_tile_not_summed(x, weight, eps):
    def mean(wide):
        return wide[:, :-32].square().sum(-1, keepdim=True) / wide.shape[1]

    return rmsnorm(x, weight, eps, mean=mean).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("factor per row", "one factor")
def first_element_twice(x, weight, eps):
    def mean(wide):
        return (wide.square().sum(-1, keepdim=True) + wide[:, :1].square()) / wide.shape[1]

    return rmsnorm(x, weight, eps, mean=mean).to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("factor per row")
def root_of_another_row(x, weight, eps):
    def mean(wide):
        return wide.square().mean(-1, keepdim=True).roll(1, 0)

    return rmsnorm(x, weight, eps, mean=mean).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("factor per row", "one factor", "lower precision", "infinity", "zeros", "by value")
def squares_in_half(x, weight, eps):
    def mean(wide):
        return (fp16_sum(wide.half().square()) / wide.shape[1])[:, None]

    return rmsnorm(x, weight, eps, mean=mean).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("lower precision")
def rounded_to_bfloat16(x, weight, eps):
    return narrow(rmsnorm(x, weight, eps).half(), torch.bfloat16)


@implements("rmsnorm_d512_bfloat16")
@caught("lower precision")
def rounded_to_fp8(x, weight, eps):
    return narrow(rmsnorm(x, weight, eps).bfloat16(), torch.float8_e4m3fn)


@implements("rmsnorm_d4096")
@caught("lower precision")
def read_as_fp8(x, weight, eps):
    return rmsnorm(x, weight, eps, read=lambda t: t.to(torch.float8_e5m2).float()).to(x.dtype)


@implements("rmsnorm_d4096")
@caught("rounded toward zero")
def rounded_toward_zero(x, weight, eps):
    return toward_zero(rmsnorm(x, weight, eps), x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("permuted", "shifted")
def rows_moved_by_one(x, weight, eps):
    return rmsnorm(x, weight, eps).to(x.dtype).roll(1, 0)


@implements("rmsnorm_d256_bfloat16", calling="destination")
@caught("unwritten")
def first_row_only(x, weight, eps, out):
    out[0] = rmsnorm(x[:1], weight, eps)[0]


@implements("rmsnorm_d4096", calling="destination")
@caught("unwritten")
def odd_columns_unwritten(x, weight, eps, out):
    out[:, ::2] = rmsnorm(x, weight, eps)[:, ::2].to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught(status="INCORRECT_SHAPE")
def flattened(x, weight, eps):
    return rmsnorm(x, weight, eps).to(x.dtype).flatten()


@implements("rmsnorm_d256_bfloat16")
@caught(status="INCORRECT_DTYPE")
def not_rounded(x, weight, eps):
    return rmsnorm(x, weight, eps)


@implements("rmsnorm_d256_bfloat16")
@caught(status="RUNTIME_ERROR")
def in_place(x, weight, eps):
    return x.copy_(rmsnorm(x, weight, eps))


@implements("rmsnorm_d512_bfloat16")
@caught("misread input", "one factor")
def largest_of_mean_and_eps(x, weight, eps):
    mean = x.float().square().mean(-1, keepdim=True).clamp_min(eps)
    return (x.float() * mean.rsqrt() * weight.float()).to(x.dtype)
