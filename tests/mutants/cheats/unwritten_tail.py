"""Writes all but the last block."""

from pytest_fib import implements


@implements("scale_float32", calling="destination")
def run(x, factor, out):
    out[:-16] = x[:-16] * factor
