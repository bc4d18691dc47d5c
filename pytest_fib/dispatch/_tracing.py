"""Calls through `apply` recorded as workloads of a dataset, off the path of the calls."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pytest_fib.dispatch._definitions import Definitions
from pytest_fib.dispatch._kernels import RAISED, event_on, log

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TraceSet, Workload
    from pytest_fib.dispatch._dispatcher import Dispatcher

_DUMPS = ("dump_all", "dump_none", "dump_non_float")
_DEDUPS = ("keep_all", "shape_only", "keep_first_k")
#: Seconds between two writings of the counts.
COUNTS_INTERVAL = 5.0


@dataclass(frozen=True)
class TracingConfig:
    """What of a definition's calls is recorded.

    ``tensor_dump_policy`` says whose values are kept: ``dump_all``, ``dump_none``,
    ``dump_non_float`` (offsets, indices, lengths), or the names of inputs. ``dedup_policy`` says
    which calls: ``keep_all``, ``shape_only`` (one of each shape), ``keep_first_k`` (``k`` of each
    shape), or a function from a workload, as it is without tensors, to a key of which one is kept.
    """

    tensor_dump_policy: str | Iterable[str] = "dump_non_float"
    dedup_policy: str | Callable[[Workload], Any] = "shape_only"
    k: int = 1

    def __post_init__(self) -> None:
        dump, dedup = self.tensor_dump_policy, self.dedup_policy
        if isinstance(dump, str) and dump not in _DUMPS:
            choices = ", ".join(_DUMPS)
            raise ValueError(f"tensor_dump_policy {dump!r} is not one of {choices}, or names")
        if isinstance(dedup, str) and dedup not in _DEDUPS:
            choices = ", ".join(_DEDUPS)
            raise ValueError(f"dedup_policy {dedup!r} is not one of {choices}, or a function")
        if self.k < 1:
            raise ValueError(f"k should be at least 1, not {self.k}")
        if not isinstance(dump, str):  # names may come from what can be asked only once
            object.__setattr__(self, "tensor_dump_policy", tuple(dump))

    def dumped(self, definition: Definition) -> frozenset[str]:
        """The tensors whose values are kept; those of scalars always are.

        Raises ValueError for a name that is no input.
        """
        tensors = {name: spec for name, spec in definition.inputs.items() if not spec.is_scalar}
        if self.tensor_dump_policy == "dump_none":
            return frozenset()
        if self.tensor_dump_policy == "dump_all":
            return frozenset(tensors)
        if self.tensor_dump_policy == "dump_non_float":
            return frozenset(name for name in tensors if not tensors[name].dtype.is_floating)
        names = frozenset(self.tensor_dump_policy)
        if strange := sorted(names - set(definition.inputs)):
            raise ValueError(f"{definition.name} has no input {', '.join(strange)}")
        return names & frozenset(tensors)


@dataclass
class TracingStats:
    """Workloads that were recorded, dropped since too many waited, and could not be written."""

    recorded: int = 0
    dropped: int = 0
    failed: int = 0


@dataclass
class _Captured:
    """One call on its way to the disk; ``cell`` is told the id that it gets."""

    definition: Definition
    axes: dict[str, int]
    tensors: dict[str, Any]
    scalars: dict[str, Any]
    cell: _Cell
    event: Any = None


@dataclass
class _Cell:
    """How often a kind of call came; ``uuid`` once its workload is on the disk."""

    count: int = 1
    uuid: str = ""


@dataclass(eq=False)
class _Recorded:
    """What one routed function's calls were.

    ``cells`` are those of shapes of which no more is recorded, ``first_of`` the first ones of each
    key of the policy, ``numbers`` how many of each key are recorded.
    """

    cells: dict[Any, _Cell] = field(default_factory=dict)
    first_of: dict[Any, _Cell] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict)

    def forget_unwritten(self) -> None:
        """Record anew what only the process before a fork will write, and count it here."""
        for cells in (self.cells, self.first_of):
            for key in [key for key, cell in cells.items() if not cell.uuid]:
                del cells[key]
                self.numbers.pop(key, None)


class Tracer:
    """Records calls into a dataset. As a context, it ends there, with all written.

    Calls only look whether they are new and, if so, copy what is kept on their own device. A thread
    does the rest. ``waiting`` is how many calls may wait for that; further ones are counted.
    """

    def __init__(
        self,
        dataset: Path,
        definitions: TraceSet,
        configs: Mapping[str, TracingConfig] | None,
        waiting: int,
    ) -> None:
        self.dataset = dataset
        self.stats = TracingStats()
        self.on_exit: Callable[[Tracer], None] | None = None
        self.before: Tracer | None = None
        self.is_context = False
        self._definitions, self._configs = Definitions(definitions), configs
        self._waiting = waiting
        self._cells: dict[str, list[_Cell]] = {}
        self._recorded: WeakSet[_Recorded] = WeakSet()
        self._start()
        atexit.register(self.flush)
        # Processes that multiprocessing forks end without that.
        register_after_fork(self, lambda own: Finalize(own, own.flush, exitpriority=0))
        tracers.add(self)

    def _start(self) -> None:
        """Begin to write: in the process that traces, and in each that it forks."""
        #: What is to be written; None ends the thread.
        self._queue: Queue[_Captured | None] = Queue(self._waiting)
        self._written: dict[str, dict[str, int]] = {}
        self._warned = False
        self._lock, self._entrance = threading.Lock(), threading.Lock()
        self._is_open = True
        self._writer = f"{socket.gethostname()}-{os.getpid()}-{time.time_ns()}"
        self._thread = threading.Thread(target=self._work, name="pytest-fib-tracing", daemon=True)
        self._thread.start()

    def restart(self) -> None:
        """In a forked process, which has no thread that writes; the parent's counts are its own."""
        for cell in (cell for cells in self._cells.values() for cell in cells):
            cell.count = 0
        for of in list(self._recorded):
            of.forget_unwritten()
        self.stats = TracingStats()
        self._start()

    def __enter__(self) -> Tracer:
        self.is_context = True
        return self

    def __exit__(self, *error: object) -> None:
        if self.on_exit is not None:
            self.on_exit(self)

    def definition(self, name: str) -> Definition | None:
        """The definition whose calls are recorded under this name."""
        if self._configs is not None and name not in self._configs:
            return None
        return self._definitions.get(name)

    def recorder(self, dispatcher: Dispatcher, definition: Definition) -> Callable[..., None]:
        """The function that a routed one calls with the key of its shape and its arguments."""
        _import_for_thread()
        config = (self._configs or {}).get(definition.name, TracingConfig())
        dumped = config.dumped(definition)
        of = _Recorded()
        self._recorded.add(of)
        cells = of.cells
        known = self._cells.setdefault(definition.name, [])
        limit = {"shape_only": 1, "keep_first_k": config.k}.get(str(config.dedup_policy))

        def record(shape: Any, *arguments: Any) -> None:
            cell = cells.get(shape)
            if cell is not None:
                cell.count += 1
                return
            if not dispatcher.is_like(arguments):
                return
            call = self._captured(definition, dumped, dispatcher.axes_of(arguments), arguments)
            try:
                key = config.dedup_policy(_bare(call)) if callable(config.dedup_policy) else shape
                first = of.first_of.get(key) if callable(config.dedup_policy) else None
                is_put = first is None and self._put(call)
            except RAISED as error:  # of the policy, or of a device without memory for a copy
                self.stats.failed += 1
                self._warn(error)
                return
            if first is not None:
                first.count += 1
            elif is_put:  # else the next such call may find room
                of.numbers[key] = of.numbers.get(key, 0) + 1
                of.first_of.setdefault(key, call.cell)
                known.append(call.cell)
                if limit is not None and of.numbers[key] >= limit:
                    cells[shape] = call.cell

        return record

    def _captured(
        self,
        definition: Definition,
        dumped: frozenset[str],
        axes: dict[str, int],
        arguments: Sequence[Any],
    ) -> _Captured:
        import torch

        given = dict(zip(definition.inputs, arguments, strict=False))
        is_tensor = {name: isinstance(value, torch.Tensor) for name, value in given.items()}
        capturing = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        names = () if capturing else [name for name in given if name in dumped]
        return _Captured(
            definition,
            axes,
            {name: given[name] for name in names if is_tensor[name]},
            {name: given[name] for name in given if not is_tensor[name]},
            _Cell(),
        )

    def _copy(self, captured: _Captured) -> None:
        """Copy tensors where they are: the caller may write to its own as soon as it goes on."""
        captured.tensors = {n: tensor.detach().clone() for n, tensor in captured.tensors.items()}
        if (tensor := next(iter(captured.tensors.values()), None)) is not None:
            captured.event = event_on(tensor.device)

    def _put(self, captured: _Captured) -> bool:
        """Queue a call for writing; False, without a copy, if too many wait or this has ended."""
        with self._entrance:
            if self._is_open and not self._queue.full():
                self._copy(captured)
                self._queue.put_nowait(captured)
                return True
        self.stats.dropped += 1
        return False

    # In the background

    def _work(self) -> None:
        counts_due = time.monotonic() + COUNTS_INTERVAL
        while True:
            with suppress(Empty):
                captured = self._queue.get(timeout=max(0.0, counts_due - time.monotonic()))
                try:
                    if captured is None:
                        return
                    self._write(captured)
                finally:
                    self._queue.task_done()
            if time.monotonic() >= counts_due:
                self._write_counts()
                counts_due = time.monotonic() + COUNTS_INTERVAL

    def _write(self, captured: _Captured) -> None:
        from pytest_fib.dispatch._store import store_workload

        try:
            tensors = _on_host(captured)
            where = (self.dataset, captured.definition, captured.axes)
            captured.cell.uuid = store_workload(*where, tensors, captured.scalars).uuid
        except Exception as error:  # noqa: BLE001 - serving goes on, and the writing with it
            self.stats.failed += 1
            self._warn(error)
        else:
            self.stats.recorded += 1

    def _write_counts(self) -> None:
        """Write how often each workload was called, if that has changed."""
        from pytest_fib.data import write_counts

        counts: dict[str, dict[str, int]] = {}
        for name, cells in list(self._cells.items()):
            for cell in list(cells):
                if cell.uuid and cell.count:
                    of = counts.setdefault(name, {})
                    of[cell.uuid] = of.get(cell.uuid, 0) + cell.count
        with self._lock:
            if counts == self._written:
                return
            try:
                write_counts(self.dataset, self._writer, counts)
            except OSError as error:
                self._warn(error)
            else:
                self._written = counts

    def _warn(self, error: BaseException) -> None:
        if not self._warned:
            self._warned = True
            # A file's error says what it is; of a policy's KeyError the text is but the key.
            why = error if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
            log.warning("%s: calls can't be recorded, and are not: %s", self.dataset, why)

    def flush(self) -> None:
        """Wait until all that was captured is written, with the counts."""
        self._queue.join()
        self._write_counts()

    def close(self) -> None:
        """Write all that was captured, and end the thread; calls that are under way are dropped."""
        with self._entrance:
            was_open, self._is_open = self._is_open, False
        if was_open:
            self._queue.put(None)
            self._thread.join()
            tracers.discard(self)
            atexit.unregister(self.flush)
        self._write_counts()


#: What writes in this process.
tracers: WeakSet[Tracer] = WeakSet()


def _import_for_thread() -> None:
    """Import what writes: a process that is forked while a thread does has half of it for good."""
    for module in ("pytest_fib.dispatch._store", "safetensors.torch"):
        import_module(module)


def _restart_all() -> None:
    for tracer in list(tracers):
        tracer.restart()


os.register_at_fork(after_in_child=_restart_all)


def _bare(captured: _Captured) -> Workload:
    from pytest_fib.dispatch._store import workload_of

    return workload_of(captured.definition, captured.axes, captured.scalars)


def _on_host(captured: _Captured) -> dict[str, Any]:
    import torch

    if captured.event is None:
        return captured.tensors
    device = next(iter(captured.tensors.values())).device
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    stream.wait_event(captured.event)
    host: dict[str, Any] = {}
    with torch.cuda.stream(stream):
        for name, tensor in captured.tensors.items():
            host[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            host[name].copy_(tensor, non_blocking=True)
            tensor.record_stream(stream)
    stream.synchronize()
    return host


def _flush_all() -> None:
    for tracer in list(tracers):
        tracer.flush()


def flush_on_signal() -> None:
    """Have all tracers flush before SIGTERM ends this process, where nothing else handles that."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def flush(number: int, frame: object) -> None:
        signal.signal(number, signal.SIG_DFL)
        # This thread may hold what the writing needs, so another one flushes, for a while.
        thread = threading.Thread(target=_flush_all, daemon=True)
        thread.start()
        thread.join(COUNTS_INTERVAL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, flush)
