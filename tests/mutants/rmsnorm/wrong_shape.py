"""A batch of one row loses its batch axis."""

import torch

from pytest_fib import implements


@implements("rmsnorm_d4096")
def run(x, weight, eps):
    wide = torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    return wide.to(x.dtype).squeeze()
