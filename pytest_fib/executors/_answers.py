"""Answers as JSON, to requests of any kind, and the answer where nothing could be asked."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, TypeAlias

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
)

if TYPE_CHECKING:
    from pytest_fib.executors._protocol import Executor

JudgeRequest: TypeAlias = EvaluationRequest | SearchRequest | BuildRequest
Answer: TypeAlias = Outcome | SearchResult | BuildResult
#: By the method of an executor that answers them.
REQUESTS: dict[str, type[EvaluationRequest | SearchRequest | BuildRequest]] = {
    "evaluate": EvaluationRequest,
    "search": SearchRequest,
    "build": BuildRequest,
}


def answer_here(executor: Executor, kind: str, text: str | bytes) -> bytes:
    """The answer of an executor on this machine to a request, both as JSON.

    Without the time, which is that of the machine where it is read: clocks differ.
    """
    answer: Answer = getattr(executor, kind)(REQUESTS[kind].from_json(text))
    answer = with_host(answer, socket.gethostname())
    without = {"outcome": {"timestamp"}} if isinstance(answer, SearchResult) else {"timestamp"}
    return answer.model_dump_json(by_alias=True, exclude=without).encode()


def with_host(answer: Answer, host: str) -> Answer:
    """The answer with the name of the machine that it is from."""
    if isinstance(answer, SearchResult):
        return answer.model_copy(update={"outcome": with_host(answer.outcome, host)})
    if not isinstance(answer, Evaluation) or answer.environment is None:
        return answer
    environment = answer.environment.model_copy(update={"host": host})
    return answer.model_copy(update={"environment": environment})


def not_evaluated(why: str) -> Evaluation:
    """The outcome where nothing could be asked: it blames no implementation."""
    sentence = f"{NOT_EVALUATED}: {why}"
    diagnosis = Diagnosis(sentence=sentence, pattern=NOT_EVALUATED)
    return Evaluation(status=EvaluationStatus.RUNTIME_ERROR, diagnosis=diagnosis, log=sentence)
