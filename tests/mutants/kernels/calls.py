"""RMSNorm with a residual, right in its numbers and wrong in what a call may do."""

import torch
from _wrong import caught

from pytest_fib import implements


def normalised(total, weight, eps):
    return torch.nn.functional.rms_norm(total, total.shape[1:], weight.float(), eps)


@implements("fused_add_rmsnorm_d4096")
@caught(status="RUNTIME_ERROR")
def one_output_of_two(input, residual, weight, eps):
    total = input.float() + residual.float()
    return normalised(total, weight, eps).to(input.dtype)


@implements("fused_add_rmsnorm_d4096")
@caught(status="RUNTIME_ERROR")
def residual_summed_in_place(input, residual, weight, eps):
    residual += input
    return normalised(residual.float(), weight, eps).to(input.dtype), residual
