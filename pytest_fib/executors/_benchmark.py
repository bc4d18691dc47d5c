"""A trace set's solutions against its workloads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar, get_args

from pytest_fib.executors._devices import on_all_devices

if TYPE_CHECKING:
    from pytest_fib.data import (
        Definition,
        EvaluationRequest,
        Outcome,
        Precision,
        Solution,
        Trace,
        TraceSet,
        Workload,
    )
    from pytest_fib.executors._protocol import Executor

_R = TypeVar("_R")


def _check(trace_set: object, device: object, precision: object, timeout: float) -> None:
    """Raises TypeError and ValueError."""
    from pytest_fib.data import Precision, TraceSet

    if not isinstance(trace_set, TraceSet):
        raise TypeError(f"Benchmark takes a TraceSet, as TraceSet.load has it, not {trace_set!r}")
    choices = {
        "device": (device, (None, "cpu", "cuda")),
        "precision": (precision, get_args(Precision)),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            names = ", ".join(filter(None, known))
            raise ValueError(f"{name} {value!r} is not one of {names}")
    if not timeout > 0:
        raise ValueError(f"timeout should be more than 0 s, not {timeout!r}")


class Benchmark:
    """Checks and times every solution of a trace set, with the figures that bench items have.

    trace_set: definitions, solutions and workloads; a definition without recorded workloads is
        timed on those that its bench items have.
    device: ``cpu`` or ``cuda``; not given, CUDA where there is a device. Of several GPUs, as
        CUDA_VISIBLE_DEVICES has them, each evaluates the next as it is free.
    precision: ``quick``, ``default`` or ``strict``, as for ``--fib-precision``.
    timeout: seconds for one evaluation.
    executor: what evaluates, in place of one in this process. It reads recorded tensors from
        where they lie only if it was given `files`.
    """

    def __init__(
        self,
        trace_set: TraceSet,
        *,
        device: str | None = None,
        precision: Precision = "default",
        timeout: float = 60.0,
        executor: Executor | None = None,
    ) -> None:
        from pytest_fib.build import gpus
        from pytest_fib.data import TensorFiles

        _check(trace_set, device, precision, timeout)
        self.trace_set = trace_set
        #: Where recorded tensors lie, by what they hold.
        self.files = TensorFiles()
        #: What could not be evaluated, and why: no implementation is to blame.
        self.skipped: list[str] = []
        self._device = device or ("cuda" if gpus.count() else "cpu")
        self._names = gpus.visible(gpus.count()) if self._device == "cuda" else []
        self._precision, self._timeout = precision, timeout
        self._executor = executor

    def run_all(
        self,
        *,
        resume: bool = False,
        progress: bool | None = None,
        journal: str | os.PathLike[str] | None = None,
    ) -> list[Trace]:
        """Evaluate everything; the traces, which are also added to the trace set as they come.

        A failure is a trace, and what can't be evaluated is in `skipped`; neither stops the rest.
        Each trace is written to the ``journal`` at once. With ``resume``, traces of an earlier
        journal are read first, and what has one that passed and was timed is left out, on whichever
        hardware that was. ``progress`` shows a line on standard error; not given, on a terminal.
        """
        path = None if journal is None else Path(journal)
        if resume and path is not None and path.exists():
            _drop_half_a_line(path)
            self.trace_set.read_traces(path)
        cases = [case for case in self._cases() if not (resume and self._has_passed(*case[1:]))]
        shows = sys.stderr.isatty() if progress is None else progress
        executor = self._executor or on_all_devices(self._device, self._names, self.files)
        requests = [request for case in cases if (request := self._request(*case)) is not None]
        traces: list[Trace] = []
        try:
            with _opened(path, resume=resume) as file:
                for number, (request, outcome) in enumerate(executor.evaluate_all(requests), 1):
                    trace = self._trace(request, outcome)
                    if trace is not None:
                        traces.append(trace)
                        self.trace_set.add_trace(trace)
                        print(trace.to_json_line(), file=file, flush=True)
                    if shows:
                        _show(number, len(requests), request.solution.name)
        finally:
            if self._executor is None:
                executor.close()
        return traces

    def _cases(self) -> Iterator[tuple[Definition, Solution, Workload]]:
        from pytest_fib.workloads import bench_workloads

        for name in self.trace_set.definitions:
            definition = self._read(name, partial(self.trace_set.definitions.__getitem__, name))
            if definition is None:
                continue
            recorded = [trace.workload for trace in self.trace_set.workloads[name]]
            workloads = recorded or list(bench_workloads(definition).values())
            if not workloads:
                self.skipped.append(f"{name}: no workload is recorded, or can be made")
            for whose in self.trace_set.solution_names(name):
                solution = self._read(whose, partial(self.trace_set.solution, whose))
                if solution is not None:
                    yield from ((definition, solution, workload) for workload in workloads)

    def _read(self, name: str, read: Callable[[], _R]) -> _R | None:
        """A record; None, and a line in `skipped`, where it can't be read."""
        try:
            return read()
        except (OSError, ValueError) as error:
            self.skipped.append(f"{name}: {error}")
            return None

    def _has_passed(self, solution: Solution, workload: Workload) -> bool:
        return self.trace_set.has_passed(solution.definition, solution.name, workload.uuid)

    def _request(
        self, definition: Definition, solution: Solution, workload: Workload
    ) -> EvaluationRequest | None:
        """The request; None, and a line in `skipped`, if it can't be answered here."""
        from pytest_fib.data import EvaluationRequest
        from pytest_fib.workloads import why_unfit

        not_here = self._why_not_here(solution) if self._executor is None else None
        if reason := not_here or why_unfit(definition, workload):
            self._skip(solution, workload, reason)
            return None
        try:
            tensors = self._tensors(definition, workload)
        except OSError as error:
            why = f"recorded tensors can't be read: {error.filename}: {error.strerror}"
            self._skip(solution, workload, why)
            return None
        return EvaluationRequest(
            definition=definition,
            solution=solution,
            workload=workload,
            tensors=tensors,
            timeout=self._timeout,
            timing=True,
            precision=self._precision,
        )

    def _why_not_here(self, solution: Solution) -> str | None:
        """Why a solution can't be timed on this machine's devices, or None."""
        from pytest_fib.build import CPU, gpus, why_not_runnable, why_not_timeable
        from pytest_fib.discovery import Implementation

        hardware = CPU if self._device == "cpu" else gpus.first()
        untimed = why_not_timeable(solution.spec.language.value, hardware)
        recorded = Implementation.of_record(solution, Path("a.json"))
        return untimed or why_not_runnable(recorded, hardware)

    def _trace(self, request: EvaluationRequest, outcome: Outcome) -> Trace | None:
        from pytest_fib.data import NOT_EVALUATED, Evaluation, Trace

        if not isinstance(outcome, Evaluation):
            self._skip(request.solution, request.workload, outcome.message)
            return None
        if outcome.diagnosis is not None and outcome.diagnosis.pattern == NOT_EVALUATED:
            self._skip(request.solution, request.workload, outcome.diagnosis.sentence)
            return None
        return Trace(
            definition=request.definition.name,
            solution=request.solution.name,
            workload=request.workload,
            evaluation=outcome,
        )

    def _skip(self, solution: Solution, workload: Workload, reason: str) -> None:
        from pytest_fib.report import axis_sizes

        sizes = axis_sizes(workload.axes)
        self.skipped.append(f"{solution.name} on {sizes} ({workload.uuid[:8]}): {reason}")

    def _tensors(self, definition: Definition, workload: Workload) -> dict[str, str]:
        from pytest_fib.workloads import stored_inputs

        paths = {given.path for given in stored_inputs(definition, workload).values()}
        return {path: self.files.add(self.trace_set.file(path)) for path in paths}


def _opened(path: Path | None, *, resume: bool) -> IO[str]:
    """A journal, to be gone on with or begun; without a path, one that nobody reads."""
    return (path or Path(os.devnull)).open("a" if resume else "w", encoding="utf-8")


def _drop_half_a_line(path: Path) -> None:
    """Remove a line that its writer did not finish."""
    with path.open("rb+") as file:
        file.truncate(file.read().rfind(b"\n") + 1)


def _show(done: int, total: int, name: str) -> None:
    bar = "#" * (30 * done // total)
    end = "\n" if done == total else ""
    print(f"\r[{bar:<30}] {done}/{total} {name:<40.40}", end=end, file=sys.stderr, flush=True)
