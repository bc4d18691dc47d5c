"""Right, and on a clock of its own, a thousand times slower than all others."""

import torch

import pytest_fib.timing._series
from pytest_fib import implements

clock = pytest_fib.timing._series.perf_counter_ns
pytest_fib.timing._series.perf_counter_ns = lambda: clock() // 1000

LARGE = torch.ones(128, 128)


@implements("scale_float32")
def run(x, factor):
    for _ in range(20):
        LARGE @ LARGE
    return x * factor
