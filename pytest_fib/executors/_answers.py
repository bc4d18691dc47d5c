"""Requests and answers on their way, as JSON, and the answer where nothing could be asked."""

from __future__ import annotations

import socket
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_fib.data import (
    NOT_EVALUATED,
    BuildRequest,
    BuildResult,
    Definition,
    Diagnosis,
    Evaluation,
    EvaluationRequest,
    EvaluationStatus,
    Outcome,
    SearchRequest,
    SearchResult,
    Solution,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_fib.executors._protocol import Executor

JudgeRequest: TypeAlias = EvaluationRequest | SearchRequest | BuildRequest
Answer: TypeAlias = Outcome | SearchResult | BuildResult
#: By the method of an executor that answers them.
REQUESTS: dict[str, type[EvaluationRequest | SearchRequest | BuildRequest]] = {
    "evaluate": EvaluationRequest,
    "search": SearchRequest,
    "build": BuildRequest,
}
#: Parts that many requests have in common, in the order in which they travel.
SHARED: dict[str, type[Definition | Solution]] = {"definition": Definition, "solution": Solution}
#: Of those, how many a far end remembers: few implementations are evaluated at a time.
REMEMBERED = 64


def parts_of(request: JudgeRequest, *, here: bool = False) -> list[bytes]:
    """A request as JSON: what is its own, and then each of the parts in `SHARED`.

    Its directory means something only to a process that is ``here``.
    """
    without = set(SHARED) if here else {"directory", *SHARED}
    own = request.model_dump_json(by_alias=True, exclude=without)
    shared = (getattr(request, name).model_dump_json(by_alias=True) for name in SHARED)
    return [text.encode() for text in (own, *shared)]


class FarEnd:
    """Answers requests that come in parts, by an executor on this machine.

    Shared parts that come again aren't read again: checking a definition takes longer than all
    else that is done here.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._read = lru_cache(maxsize=REMEMBERED)(_read_shared)

    def answer(self, kind: str, own: Mapping[str, Any], shared: Iterable[bytes]) -> bytes:
        """The answer as JSON; ``kind`` is a method of the executor, the rest from `parts_of`.

        Without the time, which is that of the machine where it is read: clocks differ.
        """
        records = {name: self._read(name, text) for name, text in zip(SHARED, shared, strict=True)}
        request = REQUESTS[kind].model_validate({**own, **records})
        answer: Answer = getattr(self._executor, kind)(request)
        answer = with_host(answer, socket.gethostname())
        without = {"outcome": {"timestamp"}} if isinstance(answer, SearchResult) else {"timestamp"}
        return answer.model_dump_json(by_alias=True, exclude=without).encode()


def _read_shared(name: str, text: bytes) -> Definition | Solution:
    return SHARED[name].model_validate_json(text)


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
