"""The trusted side: makes the inputs, owns the memory, decides. Runs no foreign code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pytest_fib._defaults import PLAIN
from pytest_fib.engine._case import Case, KilledError, Side
from pytest_fib.engine._expected import Known
from pytest_fib.engine._lease import Lease
from pytest_fib.engine._memory import Layout
from pytest_fib.engine._nursery import Nursery
from pytest_fib.engine._sandbox import LocalSandbox, ProcessSandbox, environment_for
from pytest_fib.timing import DeviceCeilings

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from pytest_fib.data import Evaluation
    from pytest_fib.engine._case import CountKey
    from pytest_fib.engine._messages import Counted
    from pytest_fib.engine._request import EvaluationRequest


class Judge:
    """Evaluates one request after another on one device, ``cpu`` or ``cuda``.

    Keeps a sandbox and an arena for the candidate, and others for the reference: the candidate's
    side never holds an expected value. ``isolation`` ``none`` runs foreign code in this process.
    ``announce`` is told when another process holds the device.
    """

    def __init__(
        self,
        device: str = "cpu",
        isolation: Literal["process", "none"] = "process",
        announce: Callable[[str], None] | None = None,
    ) -> None:
        self.device = device
        self._lease = Lease(device, announce)
        self._known = Known()
        self._counts: dict[CountKey, Counted | None] = {}
        self._ceilings = DeviceCeilings(device)
        self._nursery: Nursery | None = None
        if isolation == "process":
            self._nursery = Nursery(device, environment_for(device))
            self._nursery.warm()
        self._candidate = self._side(suspect=True)
        self._reference = self._side(suspect=False)

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the sandboxes."""
        self._candidate.sandbox.close()
        self._reference.sandbox.close()
        if self._nursery is not None:
            self._nursery.close()

    @PLAIN.held()
    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Run the implementation, then the reference, on one workload, and compare.

        Raises DefinitionError where the definition is at fault.
        """
        try:
            return self._case(request, last_attempt=False).evaluation()
        except KilledError:
            # Whose doing it was shows the second time. What killed one may have killed the other.
            self._candidate.sandbox.close()
            self._reference.sandbox.close()
            return self._case(request, last_attempt=True).evaluation()

    def _case(self, request: EvaluationRequest, *, last_attempt: bool) -> Case:
        sides = self._candidate, self._reference
        return Case(
            *sides,
            self._lease,
            request,
            self._known,
            counts=self._counts,
            ceilings=self._ceilings.known,
            last_attempt=last_attempt,
        )

    def _side(self, *, suspect: bool) -> Side:
        layout = Layout(self.device)
        if self._nursery is None:
            return Side(LocalSandbox(self.device, layout), layout)
        return Side(ProcessSandbox(self._nursery, layout, suspect=suspect), layout)
