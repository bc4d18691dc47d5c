"""One side of a benchmark: its prepared calls, run by its sandbox."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pytest_fib.engine._cheat_checks import (
    check_blocks_ns,
    check_method,
    check_samples_ns,
    check_steps,
)
from pytest_fib.engine._steps import steps
from pytest_fib.sandbox import Blocks, Collect, Done, Prepare
from pytest_fib.timing import TimedBlocks

if TYPE_CHECKING:
    import torch

    from pytest_fib.engine._context import BufferPool, EvaluationContext, Side
    from pytest_fib.sandbox import Reply


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
        #: How long the last round took by the judge's clock.
        self.wall_ns = 0.0

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

    def run(self) -> TimedBlocks:
        done = self._ask(Blocks())
        samples, longest_ns = done.samples_ns, self._timeout * 1e9
        self._context.refuse_if(check_samples_ns(samples, longest_ns, len(self.groups)))
        claimed_ns = sum(samples) * self.calls_per_block
        wrong = check_blocks_ns(done.blocks_ns, claimed_ns, longest_ns, self.method)
        self._context.refuse_if(wrong)
        self.wall_ns = self._side.sandbox.ran_ns
        return TimedBlocks(samples, done.blocks_ns, self.wall_ns)

    def collect(self) -> float:
        """Have the outputs of the round's calls stored; returns the nanoseconds that it took."""
        self._ask(Collect())
        return self._side.sandbox.ran_ns

    def step_ns(self, values: tuple[torch.Tensor, torch.Tensor], *, idle: bool = False) -> float:
        """How long a step with one of the prepared calls takes, as in ``steps``."""
        stepped = steps(self._side.sandbox, self.buffers, values, self._timeout, idle=idle)
        self._done(stepped.reply)
        self._context.refuse_if(check_steps(len(stepped.turns_ns), len(values[0])))
        return stepped.usual_ns

    def _ask(self, request: Blocks | Collect) -> Done:
        return self._done(self._side.sandbox.ask(request, self._timeout))
