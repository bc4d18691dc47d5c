"""Claims a tenth of its time for the calls, and all of it for the blocks that they are in."""

from _claiming import claim

from pytest_fib import implements
from pytest_fib.sandbox import Blocks

claim(Blocks, samples_ns=lambda reply: tuple(sample / 10 for sample in reply.samples_ns))


@implements("scale_float32")
def run(x, factor):
    return x * factor
