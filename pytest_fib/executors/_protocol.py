"""What runs evaluations, wherever it does so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pytest_fib.data import (
        BuildRequest,
        BuildResult,
        EvaluationRequest,
        Outcome,
        SearchRequest,
        SearchResult,
    )


class Executor(Protocol):
    """Answers requests, which are data that can travel, as answers are."""

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        """What comes of one implementation on one workload."""

    def evaluate_all(
        self, requests: Iterable[EvaluationRequest]
    ) -> Iterator[tuple[EvaluationRequest, Outcome]]:
        """Requests and what came of them, as these come; the next are read as there is room."""
        return ((request, self.evaluate(request)) for request in requests)

    def search(self, request: SearchRequest) -> SearchResult:
        """Search for a failing workload; the whole search runs at the far end."""

    def build(self, request: BuildRequest) -> BuildResult:
        """Compile one implementation for one target."""

    def close(self) -> None:
        """End what was started."""
