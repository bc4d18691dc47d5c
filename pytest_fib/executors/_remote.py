"""What executors share that ask another process: an answer that can't be had is one, too."""

from __future__ import annotations

import json
import re
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
from pytest_fib.temporary import PREFIX

#: How often a request is asked of processes that die of it.
ATTEMPTS = 3
#: A frame in a file of a program: what Python says of an exception leaves out the folder of a
#: sandbox, what it says of a crash doesn't.
_FRAME = re.compile(rb'File \\"(?:[^"\\]*/%b[^"\\]*/)?[0-9a-f]{16}/' % PREFIX.encode())


class RemoteExecutor(Executor):
    """Evaluates elsewhere; what can't be asked is answered as not evaluated."""

    @abstractmethod
    def _ask(self, kind: str, request: JudgeRequest) -> bytes:
        """The answer to a request of this kind, a method's name, as JSON. Raises RemoteError."""

    def _answer(self, kind: str, request: EvaluationRequest | SearchRequest) -> bytes:
        """As `_ask`; frames of tracebacks are in the files here that were sent."""
        answer = self._ask(kind, request)
        if request.directory is None:
            return answer
        folder = json.dumps(request.directory)[1:-1].encode()
        return _FRAME.sub(lambda _: rb"File \"" + folder + b"/", answer)

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        try:
            return outcome_from_json(self._answer("evaluate", request))
        except RemoteError as error:
            return not_evaluated(str(error))

    def search(self, request: SearchRequest) -> SearchResult:
        try:
            return SearchResult.from_json(self._answer("search", request))
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


class UnreachableExecutor(RemoteExecutor):
    """Answers that nothing can be evaluated, and why: in place of one that can't be had."""

    def __init__(self, why: str) -> None:
        self._why = why

    def _ask(self, kind: str, request: JudgeRequest) -> bytes:
        raise RemoteError(self._why)

    def close(self) -> None:
        """There is nothing to end."""
