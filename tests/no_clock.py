"""Kernels that are timed without a clock, for tests of what is done with times."""

from collections.abc import Callable
from math import exp
from pathlib import Path

from pytest_fib.data import Environment, EvaluationRequest, Outcome, Performance
from pytest_fib.executors import LocalExecutor

#: How and where kernels are timed without a clock, and what all of them take.
METHOD, HARDWARE, MILLISECONDS = "by the book", "abacus", 1.0


def timed_by_the_book(evaluate: Callable[..., Outcome]) -> Callable[..., Outcome]:
    """What evaluates in place of this: the same, but whatever is right takes a millisecond."""

    def timed(executor: LocalExecutor, request: EvaluationRequest) -> Outcome:
        outcome = evaluate(executor, request.model_copy(update={"timing": False}))
        if not request.timing or not outcome.correctness or outcome.status != "PASSED":
            return outcome
        performance = Performance(
            latency_ms=MILLISECONDS,
            reference_latency_ms=MILLISECONDS,
            speedup_factor=1.0,
            method=METHOD,
            ci_ms=[MILLISECONDS * exp(-0.002), MILLISECONDS * exp(0.002)],
        )
        environment = Environment(hardware=HARDWARE)
        return outcome.model_copy(update={"performance": performance, "environment": environment})

    return timed


#: The same in workers of xdist: a conftest.py. Their controller needs no torch.
WITHOUT_CLOCK = f"""\
import os
import sys

if "PYTEST_XDIST_WORKER" in os.environ:
    sys.path.insert(0, {str(Path(__file__).parents[1])!r})
    from pytest_fib.executors import LocalExecutor
    from tests.no_clock import timed_by_the_book

    LocalExecutor.evaluate = timed_by_the_book(LocalExecutor.evaluate)
"""
