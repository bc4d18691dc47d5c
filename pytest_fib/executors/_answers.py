"""Answers on their way: as JSON, whatever was asked, and for what could not be asked."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeAlias, overload

from pytest_fib.data import (
    NOT_EVALUATED,
    BuildRequest,
    BuildResult,
    Diagnosis,
    Evaluation,
    EvaluationRequest,
    EvaluationStatus,
    Outcome,
    SearchRequest,
    SearchResult,
    outcome_from_json,
)

if TYPE_CHECKING:
    from pytest_fib.executors._protocol import Executor

Request: TypeAlias = EvaluationRequest | SearchRequest | BuildRequest
Answer: TypeAlias = Outcome | SearchResult | BuildResult
#: By the method of an executor that answers them.
REQUESTS: dict[str, type[EvaluationRequest | SearchRequest | BuildRequest]] = {
    "evaluate": EvaluationRequest,
    "search": SearchRequest,
    "build": BuildRequest,
}


def answer_here(executor: Executor, kind: str, text: str | bytes) -> Answer:
    """What an executor of this machine answers to a request that came as JSON."""
    answer: Answer = getattr(executor, kind)(REQUESTS[kind].from_json(text))
    return with_host(answer, socket.gethostname())


def with_host(answer: Answer, host: str) -> Answer:
    """The answer with the name of the machine that it is from."""
    if isinstance(answer, SearchResult):
        return answer.model_copy(update={"outcome": with_host(answer.outcome, host)})
    if not isinstance(answer, Evaluation) or answer.environment is None:
        return answer
    environment = answer.environment.model_copy(update={"host": host})
    return answer.model_copy(update={"environment": environment})


def answer_to_json(answer: Answer) -> str:
    """As JSON without the time, which is that of the machine where it is read: clocks differ."""
    if isinstance(answer, SearchResult):
        return answer.model_dump_json(by_alias=True, exclude={"outcome": {"timestamp"}})
    return answer.model_dump_json(by_alias=True, exclude={"timestamp"})


@overload
def answer_from_json(request: EvaluationRequest, text: bytes) -> Outcome: ...
@overload
def answer_from_json(request: SearchRequest, text: bytes) -> SearchResult: ...
@overload
def answer_from_json(request: BuildRequest, text: bytes) -> BuildResult: ...
def answer_from_json(request: Request, text: bytes) -> Answer:
    """What `answer_to_json` gave for this request."""
    if isinstance(request, SearchRequest):
        return SearchResult.from_json(text)
    if isinstance(request, BuildRequest):
        return BuildResult.from_json(text)
    return outcome_from_json(text)


@overload
def not_evaluated(request: EvaluationRequest, why: str) -> Outcome: ...
@overload
def not_evaluated(request: SearchRequest, why: str) -> SearchResult: ...
@overload
def not_evaluated(request: BuildRequest, why: str) -> BuildResult: ...
def not_evaluated(request: Request, why: str) -> Answer:
    """The answer where nothing could be asked: it blames no implementation."""
    sentence = f"{NOT_EVALUATED}: {why}"
    if isinstance(request, BuildRequest):
        return BuildResult(status="SKIPPED", message=sentence)
    diagnosis = Diagnosis(sentence=sentence, pattern=NOT_EVALUATED)
    outcome = Evaluation(status=EvaluationStatus.RUNTIME_ERROR, diagnosis=diagnosis, log=sentence)
    if isinstance(request, EvaluationRequest):
        return outcome
    from pytest_fib.workloads import make_workload, smallest_axes

    definition = request.definition
    workload = make_workload(definition, smallest_axes(definition))
    return SearchResult(tried=0, workload=workload, outcome=outcome)
