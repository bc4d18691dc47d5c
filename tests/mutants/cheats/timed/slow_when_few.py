"""Claims a tenth of its time, and has few rounds take as long as many, to look like an overhead."""

import time
from dataclasses import replace

import pytest_fib.sandbox._runner
from pytest_fib import implements
from pytest_fib.sandbox import Blocks

MANY = 8
answer = pytest_fib.sandbox._runner.Runner._answer


def lying(self, request):
    start = time.perf_counter()
    reply = answer(self, request)
    if not isinstance(request, Blocks) or self._prepared.repeat == 1:
        return reply
    taken = time.perf_counter() - start
    time.sleep(taken / request.rounds * max(MANY - request.rounds, 0))
    return replace(reply, samples_ns=tuple(sample / 10 for sample in reply.samples_ns))


pytest_fib.sandbox._runner.Runner._answer = lying


@implements("scale_float32")
def run(x, factor):
    return x * factor
