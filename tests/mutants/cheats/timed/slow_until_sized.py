"""Claims to be slow while blocks are made, so that these are short, and then to take no time."""

from dataclasses import replace

from _working import work

import pytest_fib.sandbox._runner
from pytest_fib import implements
from pytest_fib.sandbox import Blocks, Prepare

PREPARED = []
answer = pytest_fib.sandbox._runner.Runner._answer


def lying(self, request, *rest):
    reply = answer(self, request, *rest)
    if isinstance(request, Prepare):
        PREPARED.append(request)
    if not isinstance(request, Blocks):
        return reply
    claimed = 1e7 if len(PREPARED) == 1 else 20.0
    total = claimed * PREPARED[-1].size * len(reply.samples_ns)
    return replace(reply, samples_ns=(claimed,) * len(reply.samples_ns), blocks_ns=total)


pytest_fib.sandbox._runner.Runner._answer = lying


@implements("scale_float32")
def run(x, factor):
    return work(x, factor)
