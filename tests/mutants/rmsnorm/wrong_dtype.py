"""The result is not rounded back to the dtype of the input."""

import torch

from pytest_fib import implements


@implements("rmsnorm_d4096")
def run(x, weight, eps):
    return torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
