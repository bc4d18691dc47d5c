"""Timing calls where they run. Clocks are bound before any program is loaded."""

from __future__ import annotations

from functools import lru_cache
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_Event: Callable[..., Any] = torch.cuda.Event


def time_calls(call: Callable[[], Any], calls: int, device: str) -> tuple[Any, tuple[float, ...]]:
    """Call ``calls`` times; the last result, and durations of one call in nanoseconds.

    On CUDA a duration for each call, taken by events around it, with the L2 cache flushed before.
    On the CPU one duration, the mean over the block, with warm caches.
    """
    if device == "cpu":
        return _on_cpu(call, calls)
    return _on_cuda(call, calls)


def _on_cpu(call: Callable[[], Any], calls: int) -> tuple[Any, tuple[float, ...]]:
    result = None
    start = perf_counter_ns()
    for _ in range(calls):
        result = call()
    return result, ((perf_counter_ns() - start) / calls,)


def _on_cuda(call: Callable[[], Any], calls: int) -> tuple[Any, tuple[float, ...]]:
    result = None
    flush = _flush_buffer()
    pairs = [(_Event(enable_timing=True), _Event(enable_timing=True)) for _ in range(calls)]
    for start, end in pairs:
        flush.zero_()
        start.record()
        result = call()
        end.record()
    torch.cuda.synchronize()
    return result, tuple(start.elapsed_time(end) * 1e6 for start, end in pairs)


@lru_cache(maxsize=1)
def _flush_buffer() -> torch.Tensor:
    """Twice the L2 cache: writing it evicts everything else."""
    size = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return torch.empty(2 * size, dtype=torch.uint8, device="cuda")
