"""Right, and tells no times."""

from _claiming import claim

from pytest_fib import implements
from pytest_fib.sandbox import Blocks

claim(Blocks, samples_ns=lambda reply: ())


@implements("scale_float32")
def run(x, factor):
    return x * factor
