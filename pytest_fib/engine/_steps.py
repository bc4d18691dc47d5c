"""Single calls that can't know of others: a call's inputs appear after the last call's outputs.

In a block, all inputs exist when the first call is made, so a call can do the work of later ones.
Here it can't, whatever was replaced in its process. The judge and the sandbox wake each other with
a byte on a socket of their own: with messages, a turn took 60 µs, and left so little in the caches
that calls took half as long again.
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

#: The quantile of the turns that counts: other work of the machine makes some longer.
QUANTILE = 0.25
#: For a call: the place of its inputs, their values, the copy of its outputs, and their place.
Turn: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]"


@dataclass(frozen=True)
class Steps:
    """The sandbox's reply after all calls, and the nanoseconds of each turn.

    By the judge's clock, from one turn's end to the next, so the judge's own work is included.
    """

    reply: Reply
    turns_ns: tuple[int, ...]

    @property
    def usual_ns(self) -> float:
        """The usual time of a turn."""
        return float(np.quantile(self.turns_ns, QUANTILE))


def steps(
    sandbox: Sandbox,
    pool: BufferPool,
    values: tuple[torch.Tensor, torch.Tensor],
    timeout: float,
    *,
    idle: bool = False,
) -> Steps:
    """Make the prepared calls on the first buffers of a pool, one by one.

    ``values`` are their inputs, (calls, words), and the memory that their outputs are copied to at
    once, before anything can be written later. An ``idle`` turn does all of this except the call.
    """
    inputs, outputs = values
    own, left = pool.inputs()[: len(inputs)], pool.outputs()[: len(inputs)]
    own.zero_()
    turns = list(zip(own, inputs, outputs, left, strict=True))
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as thread:
        reply = thread.submit(sandbox.ask, Step(idle=idle), timeout, theirs.fileno())
        # Then this waits for nobody, whoever else has this end open.
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
    """Nanoseconds of each turn; fewer if the other end is gone."""
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
