"""Evaluations in this process."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_fib.data import (
        BuildRequest,
        BuildResult,
        EvaluationRequest,
        Outcome,
        SearchRequest,
        SearchResult,
    )
    from pytest_fib.engine import Judge


class LocalExecutor:
    """Evaluates with a judge of its own, which is started on the first request.

    The arguments are those of ``pytest_fib.engine.Judge``, which is not imported before.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._arguments, self._options = arguments, options

    @cached_property
    def _judge(self) -> Judge:
        from pytest_fib.engine import Judge

        return Judge(*self._arguments, **self._options)

    def start(self) -> None:
        """Have the judge ready before the first request."""
        _ = self._judge

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        """What comes of one implementation on one workload."""
        return self._judge.evaluate(request)

    def evaluate_all(
        self, requests: Iterable[EvaluationRequest]
    ) -> Iterator[tuple[EvaluationRequest, Outcome]]:
        """One after another."""
        return ((request, self.evaluate(request)) for request in requests)

    def search(self, request: SearchRequest) -> SearchResult:
        """What a search for a failing workload comes to."""
        return self._judge.search(request)

    def build(self, request: BuildRequest) -> BuildResult:
        """What comes of compiling one implementation for one target."""
        return self._judge.build(request)

    @property
    def waited(self) -> float:
        """Seconds that the judge has waited for others who use the device."""
        return self._judge.waited if "_judge" in vars(self) else 0.0

    def close(self) -> None:
        """End the judge's sandboxes."""
        if "_judge" in vars(self):
            self._judge.close()
