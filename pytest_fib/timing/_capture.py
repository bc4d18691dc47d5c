"""Captures calls in CUDA graphs, each in the memory of those captured before.

``torch.cuda.graph`` gives all unused memory back to the driver first, and each of its graphs asks
for memory of its own. The driver serves one such call at a time, for all processes of a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

_synchronize = torch.cuda.synchronize


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture what is launched on the current stream meanwhile.

    Graphs share memory: one that was captured earlier may overwrite what the calls of a later one
    return. So the results of a graph are used up before an earlier one is launched again. Raises
    RuntimeError for what can't be captured, and whatever is raised meanwhile.
    """
    stream, first = _shared()
    _synchronize()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=first.pool())
            try:
                yield
            finally:
                graph.capture_end()
    except BaseException:  # of the calls too, which are foreign code
        forget_captures()  # torch goes on giving this stream memory of the failed capture
        raise


@cache
def _shared() -> tuple[torch.cuda.Stream, torch.cuda.CUDAGraph]:
    """The stream that captures, and a graph whose memory all others share: torch asks for one."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    first = torch.cuda.CUDAGraph()
    value = torch.zeros((), device="cuda")
    with torch.cuda.graph(first, stream=stream):
        value.zero_()
    return stream, first


def forget_captures() -> None:
    """Let the memory of captured graphs be freed, once they are gone."""
    _shared.cache_clear()
