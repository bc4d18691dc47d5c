"""Is wrong in one call of three."""

from itertools import count

from pytest_fib import implements

CALLS = count(1)


@implements("scale_float32")
def run(x, factor):
    return x * (factor if next(CALLS) % 3 else 0)
