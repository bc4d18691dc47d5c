"""Right, and has the events of the framework's own code tell a thousandth of the time."""

import torch

import pytest_fib.timing._series
from pytest_fib import implements

LARGE = []


class Event(torch.cuda.Event):
    def elapsed_time(self, end):
        return super().elapsed_time(end) / 1000


torch.cuda.Event = Event
pytest_fib.timing._series._Event = Event


@implements("scale_float32", target_hardware=["cuda"])
def run(x, factor):
    if not LARGE:
        LARGE.append(torch.ones(2048, 2048, device="cuda"))
    LARGE[0] @ LARGE[0]
    return x * factor
