"""One side of a benchmark: its prepared calls, which its sandbox makes in blocks or one by one.

In a block, all inputs exist when the first call is made, so a call can do the work of later ones.
One by one it can't, whatever was replaced in its process: a call's inputs appear after the last
call's outputs. The judge and the sandbox wake each other with a byte on a socket of their own: with
messages, a turn took 60 µs, and left so little in the caches that calls took half as long again.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.engine._cheat_checks import (
    check_blocks_ns,
    check_method,
    check_samples_ns,
    check_steps,
)
from pytest_fib.sandbox import Blocks, Collect, Done, Prepare, PrepareIdle, Step
from pytest_fib.timing import IDLE_CALLS, TimedBlocks

if TYPE_CHECKING:
    import torch

    from pytest_fib.engine._context import BufferPool, EvaluationContext, Side
    from pytest_fib.sandbox import Reply

#: For a call: the place of its inputs, their values, the copy of its outputs, and their place.
Turn: TypeAlias = "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]"


class TimedSide:
    """One side's prepared calls, run by its sandbox. A BlockTimer.

    ``done`` ends the evaluation if a reply is a failure.
    """

    buffers: BufferPool

    def __init__(
        self, context: EvaluationContext, side: Side, done: Callable[[Reply], Done]
    ) -> None:
        self._context = context
        self._side = side
        self._done = done
        self._timeout = context.request.timeout
        self.is_process = side.sandbox.is_process
        self.method = ""
        self.groups: tuple[int, ...] = ()
        self.calls_per_block = 0
        self.flush_ns = 0.0
        #: How many kernels a captured block has, by what the side says.
        self.kernels_per_block = 0
        #: How long the last round took by the judge's clock.
        self.wall_ns = 0.0
        #: Whether the calls have run since they got new values.
        self.has_run = False

    @property
    def is_captured(self) -> bool:
        return self.method.startswith("cuda graph")

    @property
    def called(self) -> list[int]:
        """The buffers that a round's calls work on."""
        return [group + i for group in self.groups for i in range(self.calls_per_block)]

    def allocate(self, count: int) -> None:
        """Allocate memory for so many calls; it replaces the earlier memory."""
        self.buffers = self._context.buffers(self._side, count)

    def prepare(self, groups: list[int], size: int, *, check: bool, cold: bool) -> Reply:
        """Have the sandbox get groups of ``size`` calls ready; its reply is for ``prepared``."""
        self.groups, self.calls_per_block = tuple(groups), size
        tensors, stride = self.buffers.first, self.buffers.stride
        outputs = tuple(tensors.outputs.values())
        request = Prepare(tensors.arguments, outputs, stride, self.groups, size, check, cold)
        return self._side.sandbox.ask(request, self._timeout)

    def prepared(self, reply: Reply) -> None:
        """Take the reply of ``prepare``; ends the evaluation if it failed."""
        done, device = self._done(reply), self._context.device
        self._context.refuse_if(check_method(done.method, device))
        self.method = done.method + ("" if device == "cpu" else ", cold L2")
        self.flush_ns = done.flush_ns
        self.kernels_per_block = done.nodes // len(self.groups)

    def run(self) -> TimedBlocks:
        done = self._ask(Blocks())
        samples, longest_ns = done.samples_ns, self._timeout * 1e9
        self._context.refuse_if(check_samples_ns(samples, longest_ns, len(self.groups)))
        claimed_ns = sum(samples) * self.calls_per_block
        wrong = check_blocks_ns(done.blocks_ns, claimed_ns, longest_ns, self.method)
        self._context.refuse_if(wrong)
        sandbox = self._side.sandbox
        self.wall_ns, self.has_run = sandbox.ran_ns, True
        return TimedBlocks(samples, done.blocks_ns, self.wall_ns, sandbox.waited_ns)

    def collect(self) -> float:
        """Have the outputs of the round's calls stored; returns the nanoseconds that it took."""
        self._ask(Collect())
        return self._side.sandbox.ran_ns

    def steps_ns(
        self, values: tuple[torch.Tensor, torch.Tensor], *, idle: bool = False
    ) -> list[int]:
        """The nanoseconds of each turn, for prepared calls on the first buffers, one by one.

        By the judge's clock, from one turn's end to the next, so the judge's own work is included.
        ``values`` are their inputs, (calls, words), and the memory that their outputs are copied to
        at once, before anything can be written later. An ``idle`` turn does all of this except the
        call.
        """
        inputs, outputs = values
        count, pool = len(inputs), self.buffers
        own, left = pool.inputs()[:count], pool.outputs()[:count]
        own.zero_()
        turns = list(zip(own, inputs, outputs, left, strict=True))
        ours, theirs = socket.socketpair()
        with ours, theirs, ThreadPoolExecutor(1) as thread:
            ask, request = self._side.sandbox.ask, Step(idle=idle)
            reply = thread.submit(ask, request, self._timeout, theirs.fileno())
            # Then this waits for nobody, whoever else has this end open.
            reply.add_done_callback(lambda _: _shut(theirs, socket.SHUT_RDWR))
            try:
                taken_ns = _take(turns, ours)
            finally:
                _shut(ours, socket.SHUT_WR)  # and the sandbox waits for no step
        left.copy_(outputs)  # it has stopped
        self.has_run = True
        self._done(reply.result())
        self._context.refuse_if(check_steps(len(taken_ns), count))
        return taken_ns

    def _ask(self, request: Blocks | Collect) -> Done:
        return self._done(self._side.sandbox.ask(request, self._timeout))


class IdleBlocks:
    """Blocks of the reference's sandbox whose calls hardly do anything. A BlockTimer.

    ``done`` ends the evaluation if a reply is a failure.
    """

    calls_per_block = IDLE_CALLS

    def __init__(self, reference: Side, timeout: float, done: Callable[[Reply], Done]) -> None:
        self._sandbox = reference.sandbox
        self._timeout = timeout
        self._done = done
        self.flush_ns = 0.0

    def prepare(self, groups: int) -> None:
        """Have the sandbox get as many blocks ready."""
        reply = self._sandbox.ask(PrepareIdle(groups), self._timeout)
        self.flush_ns = self._done(reply).flush_ns

    def run(self) -> TimedBlocks:
        done = self._done(self._sandbox.ask(Blocks(idle=True), self._timeout))
        ran_ns, waited_ns = self._sandbox.ran_ns, self._sandbox.waited_ns
        return TimedBlocks(done.samples_ns, done.blocks_ns, ran_ns, waited_ns)


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
