"""Returns one tensor from every call, so that a call overwrites what its caller got before."""

import torch

from pytest_fib import implements

OUTPUTS = {}


@implements("scale_float32")
def run(x, factor):
    out = OUTPUTS.setdefault(x.shape, torch.empty_like(x))
    return torch.mul(x, factor, out=out)
