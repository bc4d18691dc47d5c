"""The last row is forgotten where the number of rows is odd."""

import torch

from pytest_fib import implements


@implements("rmsnorm_d4096")
def run(x, weight, eps):
    wide = torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    wide[len(x) // 2 * 2 :] = 0
    return wide.to(x.dtype)
