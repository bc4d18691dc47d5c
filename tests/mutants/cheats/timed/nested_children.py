"""Has a chain of hundreds of processes, so that looking whether they have stopped takes long."""

import os
import signal

from pytest_fib import implements

DEPTH = 600


def start_chain():
    """Each process starts the next one, and waits; this one goes on."""
    if os.fork() == 0:
        for _ in range(DEPTH):
            if os.fork():
                break
        while True:
            signal.pause()


start_chain()


@implements("scale_float32")
def run(x, factor):
    return x * factor
