"""Returns one of a few tensors from each call, so that later calls overwrite earlier ones'."""

from itertools import count

import torch

from pytest_fib import implements

CALLS, OUTPUTS = count(), {}


@implements("scale_float32")
def run(x, factor):
    ring = OUTPUTS.setdefault(x.shape, [torch.empty_like(x) for _ in range(5)])
    return torch.mul(x, factor, out=ring[next(CALLS) % len(ring)])
