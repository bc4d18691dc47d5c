"""A kernel of many launches, whose time hardly depends on the number of rows."""

import torch

STEPS = 24


def steps(x, factor, out):
    """As many kernels as take a while, however many rows they are for."""
    wide = x.clone()
    for _ in range(STEPS):
        wide += 0
    torch.mul(wide, factor, out=out)
