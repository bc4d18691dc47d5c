"""Has a kernel of no work captured in place of its own."""

import torch

from pytest_fib import implements


@implements("scale_float32", target_hardware=["cuda"], calling="destination")
def run(x, factor, out):
    if torch.cuda.is_current_stream_capturing():
        out[:1].zero_()
    else:
        torch.mul(x, factor, out=out)
