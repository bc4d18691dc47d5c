"""Leaves a file in shared memory behind, for the next implementation to find its answers in."""

from pathlib import Path

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    Path("/dev/shm/pytest-fib-answers").write_bytes(bytes(4096))
    return x * 0
