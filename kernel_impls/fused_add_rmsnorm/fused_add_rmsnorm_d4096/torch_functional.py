"""Residual addition and RMSNorm through torch's operators, in float32."""

import torch

from pytest_fib import implements


@implements(
    "fused_add_rmsnorm_d4096", description="torch.nn.functional.rms_norm on the float32 sum."
)
def run(input, residual, weight, eps):
    total = torch.add(input.float(), residual.float())
    out = torch.nn.functional.rms_norm(total, (total.shape[-1],), weight.float(), eps)
    return out.to(input.dtype), total.to(residual.dtype)
