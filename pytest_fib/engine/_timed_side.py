"""One side's timed calls: the buffers that they work on, and its sandbox, which times them.

A timed call finds none of its tensors in a cache: calls work on many buffers in turn.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

import torch

from pytest_fib.sandbox import ALIGNMENT, Blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random
    from typing import NoReturn

    from pytest_fib.engine._context import CallTensors, Side
    from pytest_fib.sandbox import ArenaAllocator, Collect, Done, Reply

#: Memory between two buffers: an odd number of lines, so that equal places in buffers of a round
#: size don't all fall into the same part of a cache.
GAP = 17 * ALIGNMENT
#: What the buffers of one side may take in all, in bytes, and as a share of a device's memory; two
#: are made however large they are.
MOST_BYTES = {"cpu": 512 << 20, "cuda": 8 << 30}
MOST_SHARE = 1 / 8
#: Buffers with values of their own. The others repeat them, which costs less than making them.
DISTINCT = 2
#: The ways of timing that there are.
METHODS = {"cpu": r"cpu, warm, \d{1,4} threads?", "cuda": "cuda graph|cupti|events"}
#: A call takes no less, in nanoseconds.
LEAST_NS = 1.0


@dataclass(frozen=True)
class BufferPool:
    """``count`` buffers of tensors that lie alike, each ``stride`` bytes after the one before.

    A buffer is its inputs, ``inputs_size`` bytes, then its outputs.
    """

    allocator: ArenaAllocator
    start: int
    first: CallTensors
    stride: int
    inputs_size: int
    size: int
    count: int

    def at(self, number: int) -> CallTensors:
        """Where the tensors of one buffer lie."""
        return self.first.moved(number * self.stride)

    def inputs(self) -> torch.Tensor:
        """All inputs as whole numbers, shape (count, words)."""
        return self._words()[:, : self.inputs_size // 8]

    def outputs(self) -> torch.Tensor:
        """All outputs as whole numbers, shape (count, words)."""
        return self._words()[:, self.inputs_size // 8 : self.size // 8]

    def _words(self) -> torch.Tensor:
        end = self.start + self.count * self.stride
        return self.allocator.arena.base[self.start : end].view(torch.int64).view(self.count, -1)

    def repeat(self, contents: Sequence[int]) -> None:
        """Copy inputs of the first buffers to the others: for each, the number of its model."""
        inputs, models = self.inputs(), torch.tensor(contents)
        for number in range(DISTINCT):
            copies = DISTINCT + (models[DISTINCT:] == number).nonzero()[:, 0]
            inputs[copies.to(inputs.device)] = inputs[number]


def contents_of(count: int, called: Sequence[int], source: Random) -> list[int]:
    """Which of the distinct values each of so many buffers has: the first ones, their own.

    Those that are called have them in random order, about as many of each: who knows where a buffer
    lies doesn't know by that which other one has the same.
    """
    contents = [number % DISTINCT for number in range(count)]
    others = [number for number in called if number >= DISTINCT]
    shuffled = source.sample(others, len(others))
    for i, number in enumerate(shuffled, start=1):
        contents[number] = i % DISTINCT
    return contents


def most_buffers(size: int, device: str) -> int:
    """How many buffers of that many bytes a side may have."""
    most = MOST_BYTES[device]
    if device != "cpu":
        most = min(most, int(MOST_SHARE * torch.cuda.mem_get_info()[1]))
    return max(2, most // (size + GAP))


class TimedSide:
    """One side's prepared calls, asked through its sandbox."""

    buffers: BufferPool

    def __init__(
        self,
        side: Side,
        done: Callable[[Reply], Done],
        refuse: Callable[[str], NoReturn],
        timeout: float,
    ) -> None:
        self._side = side
        self._done = done
        self._refuse = refuse
        self._timeout = timeout
        self.is_process = side.sandbox.is_process
        self.method = ""
        self.groups: tuple[int, ...] = ()
        self.size = 0
        self.repeat = 1
        self.calls_per_block = 0
        self.flush_ns = 0.0

    def prepare(
        self, groups: Sequence[int], size: int, repeat: int = 1, *, check: bool = False
    ) -> Reply:
        """Have the sandbox get groups of ``size`` calls ready; its reply is for ``prepared``."""
        self.groups, self.size, self.repeat = tuple(groups), size, repeat
        return self._repeating(repeat, check=check)

    def prepared(self, reply: Reply) -> None:
        """Take the answer to that; ends the evaluation where it is none."""
        done = self._done(reply)
        device = self._side.allocator.device
        # How its times are held against the judge's clock hangs on this word of the sandbox.
        if not re.fullmatch(METHODS[device], done.method):
            self._refuse(f"its times are false: unknown timing method {done.method[:60]!r}")
        self.method = done.method + ("" if device == "cpu" else ", cold L2")
        if not 0 <= done.flush_ns < inf:
            self._refuse(f"its times are false: flushing the cache took {done.flush_ns} ns")
        self.calls_per_block, self.flush_ns = self.size * self.repeat, done.flush_ns

    def _repeating(self, repeat: int, *, check: bool = False) -> Reply:
        request = self.buffers.first.prepare(self.buffers.stride, self.groups, self.size, repeat)
        return self._side.sandbox.ask(replace(request, check=check), self._timeout)

    def once(self) -> None:
        """Where blocks repeat calls, have them call once until ``again``."""
        if self.repeat > 1:
            self._done(self._repeating(1))

    def again(self) -> None:
        """Have blocks repeat calls as they did."""
        if self.repeat > 1:
            self._done(self._repeating(self.repeat))

    @property
    def called(self) -> list[int]:
        """The sets that a round's calls are on."""
        return [group + i for group in self.groups for i in range(self.size)]

    def run(self, rounds: int) -> tuple[float, ...]:
        """Time a block of each group: nanoseconds of one call in each."""
        samples = self._samples(Blocks(rounds))
        if len(samples) != rounds * len(self.groups):
            sides = f"{rounds * len(self.groups)} blocks were timed {len(samples)} times"
            self._refuse(f"its times are false: {sides}")
        return samples

    def hot(self, rounds: int) -> tuple[float, ...]:
        """Time blocks of one call again and again: nanoseconds of a call in each."""
        return self._samples(Blocks(rounds, hot=True))

    def _samples(self, request: Blocks) -> tuple[float, ...]:
        samples = self.ask(request).samples_ns
        # Neither NaN is between these, nor what was done in no time, or took longer than we waited.
        wrong = [s for s in samples if not LEAST_NS <= s <= self._timeout * 1e9]
        if wrong or not samples:
            self._refuse(f"its times are false: a call took {wrong[0] if wrong else 'no'} ns")
        return samples

    def ask(self, request: Blocks | Collect) -> Done:
        """The sandbox's answer; ends the evaluation where there is none."""
        return self._done(self._side.sandbox.ask(request, self._timeout))
