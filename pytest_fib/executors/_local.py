"""Evaluations in this process."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from threading import Thread
from typing import TYPE_CHECKING, Any

from pytest_fib.executors._protocol import Executor

if TYPE_CHECKING:
    from pytest_fib.data import (
        BuildRequest,
        BuildResult,
        EvaluationRequest,
        Outcome,
        SearchRequest,
        SearchResult,
    )
    from pytest_fib.engine import DeviceUse, Isolation, Judge
    from pytest_fib.sandbox import ForkServer


class LocalExecutor(Executor):
    """Evaluates with a judge of its own, which is started on the first request.

    The arguments are those of ``pytest_fib.engine.Judge``, which is not imported before.
    """

    def __init__(
        self,
        device: str = "cpu",
        isolation: Isolation = "process",
        *arguments: Any,
        **options: Any,
    ) -> None:
        self._device, self._isolation = device, isolation
        self._arguments, self._options = arguments, options

    @cached_property
    def _fork_server(self) -> ForkServer | None:
        """Started before this process imports torch: it does that, too."""
        from pytest_fib.engine import start_fork_server

        names = {"builds", "prebuilt", "timed"}
        options = {name: self._options[name] for name in names & self._options.keys()}
        return start_fork_server(self._device, self._isolation, **options)

    @cached_property
    def _judge(self) -> Judge:
        server = self._fork_server
        from pytest_fib.engine import Judge

        where = self._device, self._isolation
        return Judge(*where, *self._arguments, fork_server=server, **self._options)

    def start_fork_server(self) -> None:
        """Begin to start what sandboxes are forked from, without waiting for it."""
        _ = self._fork_server

    def warm(self) -> None:
        """Begin what takes seconds, without waiting for it."""
        self.start_fork_server()
        Thread(target=_import_the_judge, daemon=True).start()

    def start(self) -> None:
        """Have the judge ready before the first request."""
        _ = self._judge

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        return self._judge.evaluate(request)

    def search(self, request: SearchRequest) -> SearchResult:
        return self._judge.search(request)

    def build(self, request: BuildRequest) -> BuildResult:
        return self._judge.build(request)

    def take_device_use(self) -> DeviceUse | None:
        """What this did with the device since this was called last; None before any request."""
        return self._judge.take_device_use() if "_judge" in vars(self) else None

    def close(self) -> None:
        for each in ("_judge", "_fork_server"):
            if (started := vars(self).get(each)) is not None:
                started.close()


def _import_the_judge() -> None:
    # What goes wrong does so again where the judge is needed, and is said there. After Ctrl-C
    # modules are half imported, of which any exception may come; nobody waits for this any more.
    with suppress(Exception):
        from pytest_fib.engine import Judge  # noqa: F401
