"""pytest-fib: kernel definitions become correctness and perf tests for every implementation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import (
        Definition,
        Evaluation,
        EvaluationRequest,
        Solution,
        Trace,
        Workload,
    )
    from pytest_fib.discovery import FibWarning, implements
    from pytest_fib.engine import evaluate

__version__ = "0.1.0"

# Resolved on first use: importing the package must not import torch, pydantic or yaml.
_HOMES = {
    "Definition": "pytest_fib.data",
    "Evaluation": "pytest_fib.data",
    "EvaluationRequest": "pytest_fib.data",
    "FibWarning": "pytest_fib.discovery",
    "Solution": "pytest_fib.data",
    "Trace": "pytest_fib.data",
    "Workload": "pytest_fib.data",
    "evaluate": "pytest_fib.engine",
    "implements": "pytest_fib.discovery",
}

__all__ = [
    "Definition",
    "Evaluation",
    "EvaluationRequest",
    "FibWarning",
    "Solution",
    "Trace",
    "Workload",
    "__version__",
    "evaluate",
    "implements",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pytest_fib' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
