"""Judge, sandboxes and verdict: from an EvaluationRequest to an Evaluation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.engine._judge import Judge
from pytest_fib.engine._request import DefinitionError, EvaluationRequest
from pytest_fib.engine._telling import told

if TYPE_CHECKING:
    from pytest_fib.data import Evaluation

__all__ = ["DefinitionError", "EvaluationRequest", "Judge", "evaluate", "told"]


def evaluate(request: EvaluationRequest, judge: Judge | None = None) -> Evaluation:
    """Evaluate one implementation on one workload.

    ``judge`` keeps its sandboxes and memory from call to call; without one, a CPU or CUDA judge
    (whichever there is) serves this call alone. Raises DefinitionError where the definition is
    at fault.
    """
    if judge is not None:
        return judge.evaluate(request)
    import torch

    with Judge("cuda" if torch.cuda.is_available() else "cpu") as own:
        return own.evaluate(request)
