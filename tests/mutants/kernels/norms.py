"""RMSNorm with a residual and LayerNorm, wrong."""

import torch
from _wrong import caught, put

from pytest_fib import implements


def fused(x, residual, weight, eps, total=None):
    total = x.float() + residual.float() if total is None else total
    root = torch.rsqrt(total.square().mean(-1, keepdim=True) + eps)
    return (total * root * weight.float()).to(x.dtype), (x.float() + residual.float()).to(x.dtype)


def layernorm(x, weight, bias, eps, mean=None, variance=None):
    wide = x.float()
    centred = wide - (wide.mean(-1, keepdim=True) if mean is None else mean(wide))
    spread = centred.square().mean(-1, keepdim=True) if variance is None else variance(centred)
    return (centred * torch.rsqrt(spread + eps) * weight.float() + bias.float()).to(x.dtype)


@implements("fused_add_rmsnorm_d4096")
@caught("swapped outputs")
def swapped_outputs(input, residual, weight, eps):
    return fused(input, residual, weight, eps)[::-1]


@implements("fused_add_rmsnorm_d4096")
@caught("misread input")
def residual_not_normalised(input, residual, weight, eps):
    """The residual is added to what is handed on, and not to what is normalised."""
    return fused(input, residual, weight, eps, total=input.float())


@implements("fused_add_rmsnorm_d4096")
@caught("copied input")
def residual_handed_back(input, residual, weight, eps):
    return fused(input, residual, weight, eps)[0], residual.clone()


@implements("fused_add_rmsnorm_d4096")
@caught("follows an input")
def residual_twice(input, residual, weight, eps):
    out, total = fused(input, residual, weight, eps)
    return out, total + residual


@implements("fused_add_rmsnorm_d4096")
@caught("swapped outputs")
def same_output_twice(input, residual, weight, eps):
    out, _ = fused(input, residual, weight, eps)
    return out, out.clone()


@implements("fused_add_rmsnorm_d4096")
@caught("one factor", "factor per row", "zeros", "by value", "infinity")
def squares_overflow(input, residual, weight, eps):
    total = input.float() + residual.float()
    square = total.half().square().float().mean(-1, keepdim=True)
    return (total * torch.rsqrt(square + eps) * weight.float()).half(), total.half()


@implements("fused_add_rmsnorm_d4096", calling="destination")
@caught("unwritten")
def residual_unwritten(input, residual, weight, eps, out, residual_out):
    out.copy_(fused(input, residual, weight, eps)[0])


@implements("layernorm_d768_bfloat16")
@caught("misread input")
def without_bias(x, weight, bias, eps):
    return layernorm(x, weight, torch.zeros_like(bias), eps)


@implements("layernorm_d768_float16")
@caught("follows an input")
def bias_twice(x, weight, bias, eps):
    return layernorm(x, weight, bias + bias, eps)


@implements("layernorm_d768_float16")
@caught()
def unbiased_variance(x, weight, bias, eps):
    def variance(centred):
        return centred.square().sum(-1, keepdim=True) / (centred.shape[1] - 1)

    return layernorm(x, weight, bias, eps, variance=variance)


@implements("layernorm_d768_bfloat16")
@caught()
def mean_not_subtracted(x, weight, bias, eps):
    return layernorm(x, weight, bias, eps, mean=lambda wide: 0.0)


@implements("layernorm_d768_bfloat16")
@caught()
def variance_about_zero(x, weight, bias, eps):
    square = x.float().square().mean(-1, keepdim=True)
    return layernorm(x, weight, bias, eps, variance=lambda centred: square)


@implements("layernorm_d768_bfloat16")
@caught("misread input")
def bias_off_by_one(x, weight, bias, eps):
    return layernorm(x, weight, bias.roll(1), eps)


@implements("layernorm_d768_float16")
@caught("zeros", "whole rows", "last tile")
def last_row_zero(x, weight, bias, eps):
    return put(layernorm(x, weight, bias, eps), -1, 0.0)


@implements("layernorm_d768_float16")
@caught("misread input", "last tile")
def bias_missing_in_last_tile(x, weight, bias, eps):
    return layernorm(x, weight, put(bias, slice(-32, None), 0.0), eps)


@implements("layernorm_d768_bfloat16")
@caught("misread input")
def eps_of_rmsnorm(x, weight, bias, eps):
    return layernorm(x, weight, bias, eps / 10)


@implements("layernorm_d768_bfloat16")
@caught("misread input")
def weight_and_bias_exchanged(x, weight, bias, eps):
    return layernorm(x, bias, weight, eps)


@implements("layernorm_d768_float16")
@caught()  # by little where it is smallest
def mean_in_half(x, weight, bias, eps):
    return layernorm(x, weight, bias, eps, mean=lambda w: w.mean(-1, keepdim=True).half().float())


@implements("layernorm_d768_bfloat16")
@caught("factor per row", "one factor", "follows an input", "lower precision", "nan")
def one_pass_in_bfloat16(x, weight, bias, eps):
    mean = x.mean(-1, keepdim=True)
    spread = ((x * x).mean(-1, keepdim=True) - mean * mean).float()
    return layernorm(x, weight, bias, eps, variance=lambda centred: spread)
