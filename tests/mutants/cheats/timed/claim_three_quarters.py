"""Claims a little less time than it takes: too little to be seen at a glance."""

from _claiming import claim
from _working import work

from pytest_fib import implements
from pytest_fib.sandbox import Blocks

SHARE = 0.77

claim(
    Blocks,
    samples_ns=lambda reply: tuple(sample * SHARE for sample in reply.samples_ns),
    blocks_ns=lambda reply: reply.blocks_ns * SHARE,
)


@implements("scale_float32")
def run(x, factor):
    return work(x, factor)
