"""Scaling by torch's multiplication, into the output it is given."""

import torch

from pytest_fib import implements


@implements("scale_*", calling="destination", description="torch.mul in float32.")
def run(x, factor, out):
    torch.mul(x.float(), factor, out=out)
