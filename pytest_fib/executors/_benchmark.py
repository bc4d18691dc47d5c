"""A trace set's solutions against its workloads."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pytest_fib.executors._local import LocalExecutor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_fib.data import Definition, Solution, Trace, TraceSet, Workload
    from pytest_fib.executors._protocol import Executor


class Benchmark:
    """Checks and times every solution of a trace set, with the figures that bench items have.

    trace_set: definitions, solutions and workloads; a definition without recorded workloads is
        timed on those that its bench items have.
    device: ``cpu`` or ``cuda``; not given, CUDA where there is a device.
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
        precision: str = "default",
        timeout: float = 60.0,
        executor: Executor | None = None,
    ) -> None:
        from pytest_fib.data import TensorFiles

        self.trace_set = trace_set
        #: Where recorded tensors lie, by what they hold.
        self.files = TensorFiles()
        #: What could not be evaluated, and why: no implementation is to blame.
        self.skipped: list[str] = []
        self._device, self._precision, self._timeout = device, precision, timeout
        self._executor = executor

    def run_all(self, *, resume: bool = False, progress: bool | None = None) -> list[Trace]:
        """Evaluate everything; the traces, which are also added to the trace set as they come.

        A failure is a trace, and what can't be evaluated is in `skipped`; neither stops the rest.
        With ``resume``, what has a trace that passed and was timed is left out, on whichever
        hardware that was. ``progress`` shows a line on standard error; not given, on a terminal.
        """
        cases = [case for case in self._cases() if not (resume and self._has_passed(*case[1:]))]
        shows = sys.stderr.isatty() if progress is None else progress
        executor = self._executor or LocalExecutor(self._device or _device(), files=self.files)
        traces: list[Trace] = []
        try:
            for number, case in enumerate(cases, 1):
                trace = self._evaluated(executor, *case)
                if trace is not None:
                    traces.append(trace)
                    self.trace_set.add_trace(trace)
                if shows:
                    _show(number, len(cases), case[1].name)
        finally:
            if self._executor is None:
                executor.close()
        return traces

    def _cases(self) -> Iterator[tuple[Definition, Solution, Workload]]:
        from pytest_fib.workloads import bench_workloads

        for name, definition in self.trace_set.definitions.items():
            recorded = [trace.workload for trace in self.trace_set.workloads[name]]
            workloads = recorded or list(bench_workloads(definition).values())
            for solution in self.trace_set.solutions[name]:
                for workload in workloads:
                    yield definition, solution, workload

    def _has_passed(self, solution: Solution, workload: Workload) -> bool:
        return self.trace_set.has_passed(solution.definition, solution.name, workload.uuid)

    def _evaluated(
        self, executor: Executor, definition: Definition, solution: Solution, workload: Workload
    ) -> Trace | None:
        from pytest_fib.data import Evaluation, EvaluationRequest, Trace

        try:
            tensors = self._tensors(definition, workload)
        except OSError as error:
            self.skipped.append(f"{solution.name} on {workload.uuid}: {error}")
            return None
        request = EvaluationRequest(
            definition=definition,
            solution=solution,
            workload=workload,
            tensors=tensors,
            timeout=self._timeout,
            timing=True,
            precision=self._precision,
        )
        outcome = executor.evaluate(request)
        if not isinstance(outcome, Evaluation):
            self.skipped.append(f"{solution.name} on {workload.uuid}: {outcome.message}")
            return None
        names = {"definition": definition.name, "solution": solution.name}
        return Trace(**names, workload=workload, evaluation=outcome)

    def _tensors(self, definition: Definition, workload: Workload) -> dict[str, str]:
        from pytest_fib.workloads import stored_inputs

        paths = {given.path for given in stored_inputs(definition, workload).values()}
        return {path: self.files.add(self.trace_set.file(path)) for path in paths}


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _show(done: int, total: int, name: str) -> None:
    bar = "#" * (30 * done // total)
    end = "\n" if done == total else ""
    print(f"\r[{bar:<30}] {done}/{total} {name:<40.40}", end=end, file=sys.stderr, flush=True)
