"""Calls that are also computed by the fallback, in the background, and compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from queue import Empty, Full, Queue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from pytest_fib.dispatch._calling_styles import in_order
from pytest_fib.dispatch._kernels import RAISED, event_on, log

if TYPE_CHECKING:
    from pytest_fib.dispatch._dispatcher import Dispatcher

#: Calls that wait to be compared, at most: each holds its inputs and outputs.
WAITING = 4


class ShadowChecker:
    """Compares on a thread, while calls wait for it; what is wrong is quarantined and recorded."""

    def __init__(self, dataset: Path | None) -> None:
        self._dataset = dataset
        self._queue: Queue[ShadowCall] = Queue(WAITING)
        self._was_said = self._is_working = False
        self._lock = Lock()

    def begin(self, dispatcher: Dispatcher, arguments: Sequence[Any]) -> ShadowCall | None:
        """A copy of a call's inputs, or None where too many calls wait or memory is short."""
        if self._queue.full():
            return None
        try:
            return ShadowCall(self, dispatcher, arguments)
        except RuntimeError as error:  # as torch.OutOfMemoryError is: servers take all there is
            self._leave_out(dispatcher, error)
            return None

    def put(self, call: ShadowCall, result: Any, solution: str) -> None:
        """Have a call compared by what this solution made of it."""
        try:
            call.keep(result, solution)
            with self._lock:
                self._queue.put_nowait(call)
                is_working, self._is_working = self._is_working, True
            if not is_working:
                Thread(target=self._work, name="pytest-fib-shadow", daemon=True).start()
        except Full:
            return
        except RuntimeError as error:
            self._leave_out(call.dispatcher, error)

    def _leave_out(self, dispatcher: Dispatcher, error: RuntimeError) -> None:
        if not self._was_said:
            self._was_said = True
            what = "calls can't be copied, and aren't verified"
            log.warning("%s: %s: %s", dispatcher.name, what, error)

    def flush(self) -> None:
        self._queue.join()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            try:
                self._compare(call)
            except RAISED as error:
                log.warning("%s: a call could not be verified: %s", call.dispatcher.name, error)
            finally:
                self._queue.task_done()

    def _next(self) -> ShadowCall | None:
        """The call that has waited longest; None ends the thread, and the next call starts one."""
        with self._lock:
            try:
                return self._queue.get_nowait()
            except Empty:
                self._is_working = False
                return None

    def _compare(self, call: ShadowCall) -> None:
        import torch

        from pytest_fib.verdict import compare_outputs, verdict_of

        dispatcher, definition = call.dispatcher, call.dispatcher.definition
        if definition is None:
            return
        call.synchronize()
        with torch.inference_mode():
            expected = call.expected()
            inputs = dict(zip(definition.inputs, call.inputs, strict=True))
            names = list(definition.outputs)
            outputs = dict(zip(names, call.outputs, strict=True))
            right = dict(zip(names, expected, strict=True))
            verdict = verdict_of(compare_outputs(definition, outputs, right, inputs=inputs))
        stats = dispatcher.stats
        stats.shadowed += 1
        if verdict.diagnosis is None:
            return
        stats.mismatches += 1
        dispatcher.drop(call.solution, f"differs from the fallback: {verdict.diagnosis.headline}")
        self._record(call)

    def _record(self, call: ShadowCall) -> None:
        """Keep the workload for pytest, which collects it from the dataset."""
        import torch

        from pytest_fib.dispatch._store import store_workload

        definition = call.dispatcher.definition
        if self._dataset is None or definition is None:
            return
        inputs = dict(zip(definition.inputs, call.inputs, strict=True))
        is_tensor = {name: isinstance(value, torch.Tensor) for name, value in inputs.items()}
        tensors = {name: inputs[name].cpu() for name in inputs if is_tensor[name]}
        scalars = {name: inputs[name] for name in inputs if not is_tensor[name]}
        axes = call.dispatcher.axes_of(call.inputs)
        try:
            store_workload(self._dataset, definition, axes, tensors, scalars)
        except OSError as error:
            what = "the workload of a wrong output can't be recorded"
            log.warning("%s: %s: %s", definition.name, what, error)


class ShadowCall:
    """One call: its inputs as they were before, and what an implementation made of them."""

    def __init__(
        self, checker: ShadowChecker, dispatcher: Dispatcher, arguments: Sequence[Any]
    ) -> None:
        assert dispatcher.definition is not None
        self._checker, self.dispatcher = checker, dispatcher
        self._number = len(dispatcher.definition.inputs)
        self.inputs = [_copy(value) for value in arguments[: self._number]]
        self._destinations = arguments[self._number :]
        self.outputs: list[Any] = []
        self.solution = ""
        self._event: Any = None

    def queue(self, result: Any, solution: str) -> None:
        """Have the result of this solution compared."""
        self._checker.put(self, result, solution)

    def keep(self, result: Any, solution: str) -> None:
        """Copy a result before the caller writes to it. Raises RuntimeError without memory."""
        results = self._destinations or (result if isinstance(result, tuple) else (result,))
        self.outputs = [_copy(value) for value in results]
        self.solution = solution
        self._event = event_on(self.outputs[0].device)

    def synchronize(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def expected(self) -> Sequence[Any]:
        import torch

        definition = self.dispatcher.definition
        assert definition is not None
        given = [_copy(value) for value in self.inputs]
        if self._destinations:
            outputs = [torch.empty_like(value) for value in self.outputs]
            self.dispatcher.fall_back([*given, *outputs])
            return outputs
        result = in_order(self.dispatcher.fall_back(given), tuple(definition.outputs))
        return result if isinstance(result, tuple) else (result,)


def _copy(value: Any) -> Any:
    return value.detach().clone() if hasattr(value, "detach") else value
