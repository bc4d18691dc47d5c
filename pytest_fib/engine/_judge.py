"""The trusted side: makes the inputs, owns the memory, decides. Runs no foreign code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.engine._case import Case, Side
from pytest_fib.engine._memory import Layout
from pytest_fib.engine._sandbox import LocalSandbox

if TYPE_CHECKING:
    from types import TracebackType

    from pytest_fib.data import Evaluation
    from pytest_fib.engine._request import EvaluationRequest


class Judge:
    """Evaluates one request after another on one device, ``cpu`` or ``cuda``.

    Keeps a sandbox and an arena for the candidate, and others for the reference: the candidate's
    side never holds an expected value.
    """

    def __init__(self, device: str = "cpu") -> None:
        self.device = device
        self._candidate = _side(device)
        self._reference = _side(device)

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandboxes."""
        self._candidate.sandbox.close()
        self._reference.sandbox.close()

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Run the implementation, then the reference, on one workload, and compare.

        Raises DefinitionError where the definition is at fault.
        """
        return Case(self._candidate, self._reference, request).evaluation()


def _side(device: str) -> Side:
    layout = Layout(device)
    return Side(LocalSandbox(device, layout), layout)
