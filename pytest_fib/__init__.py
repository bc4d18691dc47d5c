"""pytest-fib: kernel definitions become correctness and perf tests for every implementation."""

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily

if TYPE_CHECKING:
    from pytest_fib.data import (
        Definition as Definition,
        Evaluation as Evaluation,
        EvaluationRequest as EvaluationRequest,
        Solution as Solution,
        Trace as Trace,
        TraceSet as TraceSet,
        Workload as Workload,
    )
    from pytest_fib.discovery import FibWarning as FibWarning, implements as implements
    from pytest_fib.dispatch import (
        TracingConfig as TracingConfig,
        apply as apply,
        disable_apply as disable_apply,
        disable_tracing as disable_tracing,
        enable_apply as enable_apply,
        enable_tracing as enable_tracing,
    )
    from pytest_fib.engine import evaluate as evaluate
    from pytest_fib.executors import Benchmark as Benchmark

__version__ = "0.1.0"


# Resolved on first use: importing the package must not import torch, pydantic or yaml.
__getattr__ = lazily(
    __name__,
    {
        "data": "Definition Evaluation EvaluationRequest Solution Trace TraceSet Workload",
        "discovery": "FibWarning implements",
        "dispatch": "TracingConfig apply disable_apply disable_tracing enable_apply enable_tracing",
        "engine": "evaluate",
        "executors": "Benchmark",
    },
)
