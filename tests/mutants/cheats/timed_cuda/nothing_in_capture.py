"""Does nothing while it is captured."""

import torch

from pytest_fib import implements


@implements("scale_float32", target_hardware=["cuda"], calling="destination")
def run(x, factor, out):
    if not torch.cuda.is_current_stream_capturing():
        torch.mul(x, factor, out=out)
