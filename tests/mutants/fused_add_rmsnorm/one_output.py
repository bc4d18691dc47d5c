"""The second output is forgotten."""

import torch

from pytest_fib import implements


@implements("fused_add_rmsnorm_d4096")
def run(input, residual, weight, eps):
    total = input.float() + residual.float()
    out = torch.nn.functional.rms_norm(total, (total.shape[-1],), weight.float(), eps)
    return out.to(input.dtype)
