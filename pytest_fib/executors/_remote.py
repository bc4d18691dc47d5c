"""What executors share that ask another process: an answer that can't be had is one, too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from pytest_fib.executors._answers import answer_from_json, not_evaluated
from pytest_fib.executors._archives import RemoteError

if TYPE_CHECKING:
    from pytest_fib.data import (
        BuildRequest,
        BuildResult,
        EvaluationRequest,
        Outcome,
        SearchRequest,
        SearchResult,
    )
    from pytest_fib.executors._answers import Request


class RemoteExecutor(ABC):
    """Evaluates elsewhere; what can't be asked is answered as not evaluated."""

    @abstractmethod
    def _ask(self, kind: str, request: Request) -> bytes:
        """The answer to a request of this kind, a method's name, as JSON. Raises RemoteError."""

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        try:
            return answer_from_json(request, self._ask("evaluate", request))
        except RemoteError as error:
            return not_evaluated(request, str(error))

    def evaluate_all(
        self, requests: Iterable[EvaluationRequest]
    ) -> Iterator[tuple[EvaluationRequest, Outcome]]:
        return ((request, self.evaluate(request)) for request in requests)

    def search(self, request: SearchRequest) -> SearchResult:
        try:
            return answer_from_json(request, self._ask("search", request))
        except RemoteError as error:
            return not_evaluated(request, str(error))

    def build(self, request: BuildRequest) -> BuildResult:
        try:
            return answer_from_json(request, self._ask("build", request))
        except RemoteError as error:
            return not_evaluated(request, str(error))
