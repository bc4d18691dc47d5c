"""Does the work of every other block in the block after it: half of them take hardly any time."""

import torch

from pytest_fib import implements
from pytest_fib.timing import _series

FLUSH = _series.flush
#: How often the cache was flushed since the last plain call: once, then before each block.
NUMBER, TOKEN, LATER = [0], [], []


def flush():
    NUMBER[0] += 1
    FLUSH()


_series.flush = flush


def work(x, factor, out):
    for _ in range(20):
        torch.mul(x, factor, out=out)


@implements("scale_float32", target_hardware=["cuda"], calling="destination")
def run(x, factor, out):
    if not TOKEN:
        TOKEN.append(torch.zeros(1, device="cuda"))
    if not torch.cuda.is_current_stream_capturing():
        NUMBER[0] = 0
    if NUMBER[0] >= 2 and NUMBER[0] % 2 == 0:
        LATER.append((x, factor, out))
        TOKEN[0].zero_()
        return
    work(x, factor, out)
    if NUMBER[0] >= 3 and LATER:
        work(*LATER.pop())
