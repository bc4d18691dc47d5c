"""What executors share that ask another process: an answer that can't be had is one, too."""

from __future__ import annotations

from abc import abstractmethod

from pytest_fib.data import (
    NOT_EVALUATED,
    BuildRequest,
    BuildResult,
    EvaluationRequest,
    Outcome,
    SearchRequest,
    SearchResult,
    outcome_from_json,
)
from pytest_fib.executors._answers import JudgeRequest, not_evaluated
from pytest_fib.executors._archives import RemoteError
from pytest_fib.executors._protocol import Executor

#: How often a request is asked of processes that die of it.
ATTEMPTS = 3


class RemoteExecutor(Executor):
    """Evaluates elsewhere; what can't be asked is answered as not evaluated."""

    @abstractmethod
    def _ask(self, kind: str, request: JudgeRequest) -> bytes:
        """The answer to a request of this kind, a method's name, as JSON. Raises RemoteError."""

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        try:
            return outcome_from_json(self._ask("evaluate", request))
        except RemoteError as error:
            return not_evaluated(str(error))

    def search(self, request: SearchRequest) -> SearchResult:
        try:
            return SearchResult.from_json(self._ask("search", request))
        except RemoteError as error:
            outcome = not_evaluated(str(error))
        from pytest_fib.workloads import make_workload, smallest_axes

        workload = make_workload(request.definition, smallest_axes(request.definition))
        return SearchResult(tried=0, workload=workload, outcome=outcome)

    def build(self, request: BuildRequest) -> BuildResult:
        try:
            return BuildResult.from_json(self._ask("build", request))
        except RemoteError as error:
            return BuildResult(status="SKIPPED", message=f"{NOT_EVALUATED}: {error}")
