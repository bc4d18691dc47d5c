"""Times calls where they run, in a sandbox. Clocks are bound before a program is loaded.

A *group* is some calls on tensors of their own; a *block* is one timed run of a group. On CUDA
blocks are captured in a graph where that works, so that launches by the host take no time. Before
each block the L2 cache is flushed: three times its size is read.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from time import perf_counter_ns
from typing import Any, Protocol

import torch

from pytest_fib._cuda_driver import cuda_driver
from pytest_fib.timing import _cupti
from pytest_fib.timing._capture import capturing
from pytest_fib.timing._measure import MOST_CALLS, TimedBlocks

Calls = Sequence[Callable[[], Any]]

# The base class, as attributes of a Python class could be replaced. Not in builds without CUDA.
_Event: Callable[..., Any] = getattr(torch._C, "_CudaEventBase", torch.cuda.Event)
_synchronize = torch.cuda.synchronize
_amax = torch.amax

#: How much is read to flush the L2 cache, in sizes of it.
FLUSH = 3
#: How often a flush is timed.
FLUSHES = 9
#: How much is copied at most to see how long that takes, in bytes, and how often.
COPIED_BYTES, COPIES = 128 << 20, 5
#: The calls of an idle block: their kernels take about as long as a usual block.
IDLE_CALLS = MOST_CALLS["cuda"]
#: By how many bytes the allocations of calls on the CPU are moved from group to group.
SPACING = (4 << 20) + 4160
_PERSISTING_L2_LIMIT = 0x06  # CU_LIMIT_PERSISTING_L2_CACHE_SIZE


class EmptyCaptureError(Exception):
    """A captured graph lacks work of the calls that were captured."""


class Series(Protocol):
    """Groups of calls, ready to be timed. ``results`` holds what each call returned last."""

    method: str
    results: list[list[Any]]

    def run(self) -> TimedBlocks:
        """Time a block of each group, in order."""


def series(
    groups: Sequence[Calls],
    device: str,
    *,
    check: bool = False,
    capturable: bool | None = None,
    cold: bool = True,
) -> Series:
    """Get groups ready to be timed.

    On CUDA the first of these that works: a CUDA graph; CUPTI's records of what the device did;
    events. ``capturable`` says whether a graph does, where that is known. With ``check``, and where
    CUPTI is installed, the graph must contain what plain calls run. On CUDA the cache is flushed
    before each block if these are to be ``cold``. Raises EmptyCaptureError, and
    whatever the calls raise.
    """
    if device == "cpu":
        return OnCpu(groups)
    for call in groups[0][:2]:
        call()
    _synchronize()
    if _capturable(groups[0][0]) if capturable is None else capturable:
        graph = Graph(groups, cold=cold)
        if check and _cupti.available():
            graph.refuse_missing_work()
        return graph
    return (Recorded if _cupti.available() else Eager)(groups, cold=cold)


class OnCpu:
    """Calls timed by the clock.

    Allocations of the calls lie at other addresses in each group too: at the same ones throughout a
    process, they made one of two equal sides up to 15 % slower.
    """

    def __init__(self, groups: Sequence[Calls]) -> None:
        self.method = f"cpu, {_threads(torch.get_num_threads())}"
        self.results: list[list[Any]] = [[None] * len(calls) for calls in groups]
        self._groups = groups

    def run(self) -> TimedBlocks:
        return _timed([self._block(number) for number in range(len(self._groups))], self._groups)

    def _block(self, number: int) -> float:
        calls, results = self._groups[number], self.results[number]
        # Not a tensor: once a call has asked torch for deterministic algorithms, it fills those,
        # which only the judge's clock sees.
        spacer = torch.UntypedStorage(number * SPACING, device="cpu")  # type: ignore[no-untyped-call]
        start = perf_counter_ns()
        for i, call in enumerate(calls):
            results[i] = call()
        taken = perf_counter_ns() - start
        del spacer
        return taken


def _timed(blocks_ns: Sequence[float], groups: Sequence[Calls]) -> TimedBlocks:
    """Blocks whose time is all their calls'."""
    samples = (ns / len(calls) for ns, calls in zip(blocks_ns, groups, strict=True))
    return TimedBlocks(tuple(samples), sum(blocks_ns))


def _threads(number: int) -> str:
    return f"{number} thread{'s' * (number != 1)}"


class Graph:
    """One CUDA graph of all blocks, with events before and after each.

    One, because with several graphs each kernel starts 0.3 µs later from the fourth launch on,
    until the device switches to another process: measured on an H200 with CUDA 13.0.
    """

    method = "cuda graph"

    def __init__(self, groups: Sequence[Calls], *, cold: bool = True) -> None:
        self.results: list[list[Any]] = []
        self._groups = groups
        self._cold = cold
        flush()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with capturing(graph):
            self._events = [self._captured(calls) for calls in groups]
        #: How many kernels, copies and fills the calls of all groups have.
        self.nodes = _nodes(graph) - len(groups) * _nodes_without_calls(cold=cold)
        if self.nodes < sum(map(len, groups)):
            raise EmptyCaptureError("a call leaves no work on the stream that it is called on")
        graph.instantiate()
        self._graph = graph
        self._launch(graph)

    def _captured(self, calls: Calls) -> tuple[Any, Any]:
        if self._cold:
            flush()
        start, end = _timing_event(external=True), _timing_event(external=True)
        stream = torch.cuda.current_stream()
        start.record(stream)
        self.results.append([call() for call in calls])
        end.record(stream)
        return start, end

    def _launch(self, graph: torch.cuda.CUDAGraph) -> None:
        _forget_persisting()
        graph.replay()
        _synchronize()

    def refuse_missing_work(self) -> None:
        """Compare what CUPTI records of the graph and of plain calls. Raises EmptyCaptureError."""
        with _cupti.recording() as plain:
            for call in self._groups[0]:
                call()
        with _cupti.recording() as captured:
            self._launch(self._graph)
        if missing := _cupti.missing(plain * len(self._groups), captured):
            raise EmptyCaptureError(f"the captured graph lacks what plain calls run: {missing}")

    def run(self) -> TimedBlocks:
        self._launch(self._graph)
        return _timed([s.elapsed_time(e) * 1e6 for s, e in self._events], self._groups)


class Eager:
    """Calls that can't be captured, between events: gaps between launches are part of the time.

    Blocks take longer than that, by what the host does before and after.
    """

    method = "events"

    def __init__(self, groups: Sequence[Calls], *, cold: bool = True) -> None:
        self.results: list[list[Any]] = [[None] * len(calls) for calls in groups]
        self._groups = groups
        self._cold = cold

    def run(self) -> TimedBlocks:
        blocks = [self._block(number) for number in range(len(self._groups))]
        calls = _timed([calls_ns for calls_ns, _ in blocks], self._groups)
        return TimedBlocks(calls.samples_ns, sum(block_ns for _, block_ns in blocks))

    def _block(self, number: int) -> tuple[float, float]:
        """How long the calls of a block took, and how long the block did."""
        flushed_ns = 0.0
        if self._cold:
            flush()
            flushed_ns = flush_ns()  # the host does not wait for that
        _forget_persisting()
        start = perf_counter_ns()
        calls_ns = self._calls_ns(number)
        taken = perf_counter_ns() - start - flushed_ns
        return calls_ns, max(taken, calls_ns)

    def _calls_ns(self, number: int) -> float:
        start, end = _timing_event(), _timing_event()
        start.record(torch.cuda.current_stream())
        self._call(number)
        end.record(torch.cuda.current_stream())
        _synchronize()
        return float(start.elapsed_time(end)) * 1e6

    def _call(self, number: int) -> None:
        results = self.results[number]
        for i, call in enumerate(self._groups[number]):
            results[i] = call()


class Recorded(Eager):
    """Calls that can't be captured, by CUPTI's records: the time in which the device was busy."""

    method = "cupti"

    def _calls_ns(self, number: int) -> float:
        with _cupti.recording() as records:
            self._call(number)
        return _cupti.busy_ns(records)


def idle_blocks(groups: int) -> Graph:
    """Blocks with as many calls as short ones have, which hardly do anything."""
    value = torch.zeros((), device="cuda")
    return Graph([[value.neg_] * IDLE_CALLS] * groups)


def _capturable(call: Callable[[], Any]) -> bool:
    """Whether a call can be captured: it doesn't wait for the device, and a capture succeeds."""
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
    """Fill the L2 cache with lines that no call reads and that need not be written back."""
    buffer, result = _flush_buffers()
    _amax(buffer, 0, out=result)


@cache
def flush_ns() -> float:
    """How long a flush takes, in nanoseconds of the device's time.

    The shortest of several, since other processes may have the device in between. Where it is too
    long, as much is missing in every block of calls that are launched one by one.
    """
    flush()
    return min(_one_flush_ns() for _ in range(FLUSHES))


def _one_flush_ns() -> float:
    start, end = _timing_event(), _timing_event()
    start.record(torch.cuda.current_stream())
    flush()
    end.record(torch.cuda.current_stream())
    _synchronize()
    return float(start.elapsed_time(end)) * 1e6


def copy_ns(outputs: Sequence[tuple[int, str]], calls: int) -> float:
    """How many nanoseconds storing the outputs of one more captured call takes.

    ``calls`` is the number of calls whose outputs are stored together; ``outputs`` has the number
    of elements and the torch dtype of each output. It is the difference of two times by the host's
    clock, so what storing takes for any number of calls is not in it.
    """
    one_call: int = sum(elements * getattr(torch, dtype).itemsize for elements, dtype in outputs)
    share = min(1.0, COPIED_BYTES / max(one_call, 1))  # of an output that is large
    number = max(1, min(calls, COPIED_BYTES // max(one_call, 1)))
    copies = [
        torch.empty(2, 2 * number, int(share * elements), dtype=getattr(torch, name), device="cuda")
        for elements, name in outputs
    ]
    few_ns, many_ns = (
        min(_copies_ns(copies, number * more) for _ in range(COPIES)) for more in (1, 2)
    )
    return max(0.0, many_ns - few_ns) / number / share


def _copies_ns(copies: Sequence[torch.Tensor], calls: int) -> int:
    """How long storing the outputs of so many calls takes, done as in a sandbox.

    Of each output, (2, calls, elements): where to, and what.
    """
    pairs = [(list(targets[:calls]), list(values[:calls])) for targets, values in copies]
    _synchronize()
    start = perf_counter_ns()
    for targets, values in pairs:
        torch._foreach_copy_(targets, values)
    _synchronize()
    return perf_counter_ns() - start


def _forget_persisting() -> None:
    """Drop lines that outlive a flush, where a part of the L2 cache is set aside for such."""
    limit = ctypes.c_size_t()
    cuda_driver().cuCtxGetLimit(ctypes.byref(limit), _PERSISTING_L2_LIMIT)
    if limit.value > 0:
        _synchronize()
        cuda_driver().cuCtxResetPersistingL2Cache()


def _timing_event(*, external: bool = False) -> Any:
    """An event; an ``external`` one is recorded anew by each launch of its graph."""
    return _Event(enable_timing=True, external=external)


@cache
def _nodes_without_calls(*, cold: bool) -> int:
    """The nodes of a captured block that has no calls: the events, and a flush if it is cold."""
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with capturing(graph):
        if cold:
            flush()
        for _ in range(2):
            _timing_event(external=True).record(torch.cuda.current_stream())
    return _nodes(graph)


def _nodes(graph: torch.cuda.CUDAGraph) -> int:
    number = ctypes.c_size_t()
    cuda_driver().cuGraphGetNodes(
        ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(number)
    )
    return number.value
