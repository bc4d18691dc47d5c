"""From an EvaluationRequest to an Evaluation: the judge and its phases.

Importing this imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import EvaluationRequest, Outcome
    from pytest_fib.engine._in_process import FunctionChecker
    from pytest_fib.engine._judge import Judge
    from pytest_fib.engine._search import diagnose_failure, search_and_diagnose

__all__ = [
    "FunctionChecker",
    "Judge",
    "diagnose_failure",
    "evaluate",
    "search_and_diagnose",
]

# Resolved on first use: these import torch.
_HOMES = {
    "Judge": "pytest_fib.engine._judge",
    "FunctionChecker": "pytest_fib.engine._in_process",
    "diagnose_failure": "pytest_fib.engine._search",
    "search_and_diagnose": "pytest_fib.engine._search",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pytest_fib.engine' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def evaluate(request: EvaluationRequest, judge: Judge | None = None) -> Outcome:
    """What comes of one implementation on one workload.

    ``judge`` keeps its sandboxes and memory from call to call; without one, a CPU or CUDA judge
    (whichever there is) serves this call alone.
    """
    if judge is not None:
        return judge.evaluate(request)
    import torch

    from pytest_fib.engine._judge import Judge

    with Judge("cuda" if torch.cuda.is_available() else "cpu") as own:
        return own.evaluate(request)
