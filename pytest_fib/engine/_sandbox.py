"""Where foreign code runs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Protocol

from pytest_fib.engine._runner import Runner

if TYPE_CHECKING:
    from pytest_fib.engine._memory import Layout
    from pytest_fib.engine._messages import Reply, Request


class Sandbox(Protocol):
    """Answers requests of the judge."""

    def ask(self, request: Request, timeout: float) -> Reply:
        """The answer, or a Failed with status TIMEOUT after ``timeout`` seconds."""

    def close(self) -> None:
        """End it."""


class LocalSandbox:
    """Foreign code in this very process: for debuggers and coverage. Nothing stops it."""

    def __init__(self, device: str, layout: Layout) -> None:
        os.environ.update(environment_for(device))
        self._runner = Runner(device, layout.tensor)

    def ask(self, request: Request, timeout: float) -> Reply:
        """The answer; a hang hangs, since there is nobody left to end it."""
        return self._runner.answer(request)

    def close(self) -> None:
        """Nothing to end."""


def environment_for(device: str) -> dict[str, str]:
    """Variables that a process needs before it imports triton."""
    return {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
