"""RMSNorm and scaling, wrong for some sizes only."""

import torch
from _wrong import caught, put

from pytest_fib import implements


def rmsnorm(x, weight, eps):
    return torch.nn.functional.rms_norm(x.float(), x.shape[1:], weight.float(), eps).to(x.dtype)


@implements("rmsnorm_d256_bfloat16")
@caught("zeros", "whole rows", "last tile")
def last_of_an_odd_number_of_rows_is_zero(x, weight, eps):
    return put(rmsnorm(x, weight, eps), slice(len(x) // 2 * 2, None), 0.0)


@implements("rmsnorm_d256_bfloat16")
@caught(status="INCORRECT_SHAPE")
def one_row_loses_its_batch_axis(x, weight, eps):
    return rmsnorm(x, weight, eps).squeeze()


@implements("rmsnorm_d256_bfloat16")
@caught(status="RUNTIME_ERROR")
def more_than_two_rows_are_refused(x, weight, eps):
    if len(x) > 2:
        raise ValueError(f"a batch of {len(x)} rows is too large")
    return rmsnorm(x, weight, eps)


@implements("rmsnorm_d4096", calling="destination")
@caught("unwritten")
def last_column_masked_out(x, weight, eps, out):
    out[:, :-1] = rmsnorm(x, weight, eps)[:, :-1]


@implements("scale_float32")
@caught("copied input")
def scaled_in_whole_blocks_of_256(x, factor):
    whole = len(x) // 256 * 256
    return torch.cat([x[:whole] * factor, x[whole:]])


@implements("scale_bfloat16", calling="destination")
@caught("unwritten")
def last_element_masked_out(x, factor, out):
    out[:-1] = x[:-1] * factor
