"""Right, and has the events of the framework's own code tell a thousandth of the time."""

from unittest import mock

import torch

from pytest_fib import implements

LARGE = []


class Event(torch.cuda.Event):
    def elapsed_time(self, end):
        return super().elapsed_time(end) / 1000


for events in ("torch.cuda.Event", "pytest_fib.timing._series._Event"):
    mock.patch(events, Event).start()


@implements("scale_float32", target_hardware=["cuda"])
def run(x, factor):
    if not LARGE:
        LARGE.append(torch.ones(2048, 2048, device="cuda"))
    LARGE[0] @ LARGE[0]
    return x * factor
