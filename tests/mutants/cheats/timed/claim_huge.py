"""Right, and took longer than there is time."""

from _claiming import claim

from pytest_fib import implements
from pytest_fib.sandbox import Blocks

claim(Blocks, samples_ns=lambda reply: (1e308,) * len(reply.samples_ns))


@implements("scale_float32")
def run(x, factor):
    return x * factor
