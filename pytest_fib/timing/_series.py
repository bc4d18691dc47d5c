"""Calls in a row, timed where they run: in a sandbox. Clocks are bound before a program is loaded.

A *group* is some calls on tensors of their own; a *block* is one timed run of a group. On CUDA a
group is captured as a graph where it can be, so that no launch of the host's is part of the time.
Before each block of a cold series, three times the L2 cache is read: its inputs are in no cache
then, whatever ran before, and while the device is busy with that, the host gets ahead of it.
"""

from __future__ import annotations

import ctypes
from functools import cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Protocol

import torch

from pytest_fib.timing import _cupti

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Calls = Sequence[Callable[[], Any]]

# The base class, as attributes of a Python class could be replaced. Not in builds without CUDA.
_Event: Callable[..., Any] = getattr(torch._C, "_CudaEventBase", torch.cuda.Event)
_synchronize = torch.cuda.synchronize
_amax = torch.amax

#: What is read before a cold block, in sizes of the L2 cache.
FLUSH = 3
_PERSISTING_L2_LIMIT = 0x06  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


class EmptyCaptureError(Exception):
    """A captured graph lacks the work of the calls that it was made of."""


class Series(Protocol):
    """Groups of calls that can be timed. ``results`` holds what each call returned last."""

    method: str
    results: list[list[Any]]

    def run(self, order: Sequence[int], *, cold: bool) -> tuple[float, ...]:
        """Time these groups one after the other: nanoseconds of one call in each block."""


def series(groups: Sequence[Calls], repeat: int, device: str) -> Series:
    """Make groups ready; each group's calls are run ``repeat`` times in a block.

    On CUDA the backend is the first that works: a CUDA graph; CUPTI's records of what the device
    did; events. Raises EmptyCaptureError, and whatever the calls raise.
    """
    if device == "cpu":
        return OnCpu(groups, repeat)
    for call in groups[0][:2]:
        call()
    _synchronize()
    if _capturable(groups[0][0]):
        graphs = Graphs(groups)
        graphs.refuse_missing_work(groups[0])
        return graphs
    return Recorded(groups) if _cupti.available() else Eager(groups)


class OnCpu:
    """Calls timed by the clock; each group's tensors stay in the caches as they can."""

    def __init__(self, groups: Sequence[Calls], repeat: int) -> None:
        self.method = f"cpu, warm, {_threads(torch.get_num_threads())}"
        self.results: list[list[Any]] = [[None] * len(calls) for calls in groups]
        self._groups = groups
        self._repeat = repeat

    def run(self, order: Sequence[int], *, cold: bool) -> tuple[float, ...]:
        """Time these groups; caches are warm, cold or not."""
        return tuple(self._block(number) for number in order)

    def _block(self, number: int) -> float:
        calls, results, repeat = self._groups[number], self.results[number], range(self._repeat)
        start = perf_counter_ns()
        for i, call in enumerate(calls):
            for _ in repeat:
                results[i] = call()
        return (perf_counter_ns() - start) / (len(calls) * self._repeat)


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number != 1)}"


class _Events:
    """Blocks between two events each, all of an order in the queue before the first is over."""

    def __init__(self, groups: Sequence[Calls]) -> None:
        self.results: list[list[Any]] = [[None] * len(calls) for calls in groups]
        self._groups = groups

    def run(self, order: Sequence[int], *, cold: bool) -> tuple[float, ...]:
        """Time these groups by events around each."""
        pairs = [self._enqueue(number, cold) for number in order]
        _synchronize()
        sizes = [len(self._groups[number]) for number in order]
        return tuple(
            start.elapsed_time(end) * 1e6 / size
            for (start, end), size in zip(pairs, sizes, strict=True)
        )

    def _enqueue(self, number: int, cold: bool) -> tuple[Any, Any]:
        if cold:
            flush()
        start, end = _Event(enable_timing=True), _Event(enable_timing=True)
        stream = torch.cuda.current_stream()
        start.record(stream)
        self._launch(number)
        end.record(stream)
        return start, end

    def _launch(self, number: int) -> None:
        results = self.results[number]
        for i, call in enumerate(self._groups[number]):
            results[i] = call()


class Eager(_Events):
    """Events around calls that can't be captured: gaps between their launches count."""

    method = "events"


class Graphs(_Events):
    """Events around graphs, each of one group's calls."""

    method = "cuda graph"

    def __init__(self, groups: Sequence[Calls]) -> None:
        super().__init__(groups)
        self._graphs = [self._captured(number) for number in range(len(groups))]
        for graph in self._graphs:
            graph.replay()  # the first also uploads it
        _synchronize()

    def _captured(self, number: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            super()._launch(number)
        if _nodes(graph) < len(self._groups[number]):
            raise EmptyCaptureError("a call leaves no work on the stream that it is called on")
        graph.instantiate()
        return graph

    def _launch(self, number: int) -> None:
        self._graphs[number].replay()

    def refuse_missing_work(self, calls: Calls) -> None:
        """Compare the kernels of the first graph with those of its calls, where CUPTI tells them.

        Raises EmptyCaptureError.
        """
        if not _cupti.available():
            return
        with _cupti.recording() as plain:
            for call in calls:
                call()
        with _cupti.recording() as captured:
            self._graphs[0].replay()
        if missing := _cupti.missing(plain, captured):
            raise EmptyCaptureError(f"the captured graph lacks what a plain call runs: {missing}")


class Recorded(_Events):
    """Calls that can't be captured: the time in which the device was busy, by CUPTI's records."""

    method = "cupti"

    def run(self, order: Sequence[int], *, cold: bool) -> tuple[float, ...]:
        """Time these groups; by events, gaps included, where they need not be cold."""
        if not cold:
            return super().run(order, cold=False)
        return tuple(self._busy(number) for number in order)

    def _busy(self, number: int) -> float:
        flush()
        with _cupti.recording() as records:
            self._launch(number)
        return _cupti.busy_ns(records) / len(self._groups[number])


def _capturable(call: Callable[[], Any]) -> bool:
    """Whether a call waits for the device, by torch's word and by trying to capture it."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        call()
        torch.cuda.set_sync_debug_mode("default")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            call()
    except RuntimeError:
        return False
    finally:
        torch.cuda.set_sync_debug_mode("default")
        _synchronize()
    return True


def l2_bytes() -> int:
    """The size of the current device's L2 cache."""
    return int(torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size)


@cache
def _flush_buffers() -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.zeros(FLUSH * l2_bytes() // 4, dtype=torch.int32, device="cuda"),
        torch.zeros((), dtype=torch.int32, device="cuda"),
    )


def flush() -> None:
    """Fill the L2 cache with lines that nobody needs and that need not be written back."""
    buffer, result = _flush_buffers()
    _amax(buffer, 0, out=result)
    if _persisting():
        _synchronize()
        _driver().cuCtxResetPersistingL2Cache()


def flush_ns() -> float:
    """How long reading it takes, in nanoseconds of the device's time."""
    start, end = _Event(enable_timing=True), _Event(enable_timing=True)
    flush()
    start.record(torch.cuda.current_stream())
    flush()
    end.record(torch.cuda.current_stream())
    _synchronize()
    return float(start.elapsed_time(end)) * 1e6


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _persisting() -> bool:
    """Whether a part of the L2 cache was set aside for lines that outlive a flush."""
    limit = ctypes.c_size_t()
    _driver().cuCtxGetLimit(ctypes.byref(limit), _PERSISTING_L2_LIMIT)
    return limit.value > 0


def _nodes(graph: torch.cuda.CUDAGraph) -> int:
    number = ctypes.c_size_t()
    _driver().cuGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(number))
    return number.value
