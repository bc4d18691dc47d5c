"""Gives the shipped kernels more time on a slow or busy machine: Triton's interpreter is Python."""

from statistics import median
from time import perf_counter

import pytest

#: How many steps of Python are timed, how often, and the seconds that they take on a quiet machine.
STEPS, REPEATS, QUIET_SECONDS = 500_000, 3, 0.03


def seconds_of_python() -> float:
    """How long some steps of Python take now."""
    return median(_seconds_of_steps() for _ in range(REPEATS))


def _seconds_of_steps() -> float:
    start, total = perf_counter(), 0
    for number in range(STEPS):
        total += number % 7
    return perf_counter() - start


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Scale ``--fib-timeout`` by how much slower Python is here; workers get it scaled."""
    if not hasattr(config, "workerinput"):
        config.option.fib_timeout *= max(1.0, seconds_of_python() / QUIET_SECONDS)
