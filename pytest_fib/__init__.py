"""pytest-fib: kernel definitions become correctness and perf tests for every implementation."""

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily

if TYPE_CHECKING:
    from pytest_fib.data import (
        Definition,
        Evaluation,
        EvaluationRequest,
        Solution,
        Trace,
        TraceSet,
        Workload,
    )
    from pytest_fib.discovery import FibWarning, implements
    from pytest_fib.dispatch import (
        TracingConfig,
        apply,
        disable_apply,
        disable_tracing,
        enable_apply,
        enable_tracing,
    )
    from pytest_fib.engine import evaluate
    from pytest_fib.executors import Benchmark

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "Definition",
    "Evaluation",
    "EvaluationRequest",
    "FibWarning",
    "Solution",
    "Trace",
    "TraceSet",
    "TracingConfig",
    "Workload",
    "__version__",
    "apply",
    "disable_apply",
    "disable_tracing",
    "enable_apply",
    "enable_tracing",
    "evaluate",
    "implements",
]


# Resolved on first use: importing the package must not import torch, pydantic or yaml.
__getattr__ = lazily(
    __name__,
    {
        "data": (
            "Definition",
            "Evaluation",
            "EvaluationRequest",
            "Solution",
            "Trace",
            "TraceSet",
            "Workload",
        ),
        "discovery": ("FibWarning", "implements"),
        "dispatch": (
            "TracingConfig",
            "apply",
            "disable_apply",
            "disable_tracing",
            "enable_apply",
            "enable_tracing",
        ),
        "engine": ("evaluate",),
        "executors": ("Benchmark",),
    },
)
