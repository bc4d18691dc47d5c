"""Calls that can know of no other: a call's inputs appear once the one before left its outputs.

In a block, all inputs are there when the first call is made, and a call may do the work of those
that come. Here it can't, whatever was replaced in its process. The judge and the sandbox wake one
another by a socket of their own, a byte each time: by messages, a turn took 60 µs, and left so
little in the caches that calls took half as long again.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pytest_fib.sandbox import Step

if TYPE_CHECKING:
    import torch

    from pytest_fib.engine._context import BufferPool
    from pytest_fib.sandbox import Reply, Sandbox

#: Whatever else a machine does makes some turns longer, so a quantile of them counts.
QUANTILE = 0.25
#: A call's inputs: where they go, and what; its outputs: where they go, and where they lie.
Turn: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]"


@dataclass(frozen=True)
class Steps:
    """The sandbox's reply once all calls were made, and nanoseconds of each turn.

    By the judge's clock, from one turn's end to the next: what it does itself is a part.
    """

    reply: Reply
    turns_ns: tuple[int, ...]

    @property
    def usual_ns(self) -> float:
        """What a turn takes."""
        return float(np.quantile(self.turns_ns, QUANTILE))


def steps(
    sandbox: Sandbox,
    pool: BufferPool,
    values: tuple[torch.Tensor, torch.Tensor],
    timeout: float,
    *,
    idle: bool = False,
) -> Steps:
    """Have the calls made that are prepared on the first buffers of a pool.

    ``values`` are what their inputs are to be, (calls, words), and where their outputs go at once:
    what is written later is in neither. In an ``idle`` turn all is done but the call.
    """
    inputs, outputs = values
    own, left = pool.inputs()[: len(inputs)], pool.outputs()[: len(inputs)]
    own.zero_()
    turns = list(zip(own, inputs, outputs, left, strict=True))
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as thread:
        reply = thread.submit(sandbox.ask, Step(idle=idle), timeout, theirs.fileno())
        # Then we wait for nobody any more, whoever else has this end open.
        reply.add_done_callback(lambda _: _shut(theirs, socket.SHUT_RDWR))
        try:
            taken = _take(turns, ours)
        finally:
            _shut(ours, socket.SHUT_WR)  # and the sandbox waits for no step
    left.copy_(outputs)  # it has stopped
    return Steps(reply.result(), tuple(taken))


def _shut(end: socket.socket, how: int) -> None:
    with suppress(OSError):  # the other end is gone
        end.shutdown(how)


def _take(turns: Sequence[Turn], ours: socket.socket) -> list[int]:
    """Nanoseconds of each turn; of fewer, where the other end is gone."""
    taken: list[int] = []
    start = perf_counter_ns()
    with suppress(OSError):
        for place, shown, kept, output in turns:
            place.copy_(shown)
            ours.send(b"\0")
            if not ours.recv(1):
                break
            kept.copy_(output)
            now = perf_counter_ns()
            taken.append(now - start)
            start = now
    return taken
