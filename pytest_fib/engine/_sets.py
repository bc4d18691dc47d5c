"""The tensors of many calls: one set for each, so that no timed call finds another's in a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._memory import ALIGNMENT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    from pytest_fib.engine._case import Places
    from pytest_fib.engine._memory import Layout

#: Memory between two sets: an odd number of lines, so that equal places in sets of a round size
#: don't all fall into the same part of a cache.
GAP = 17 * ALIGNMENT
#: What the sets of one side may take in all, in bytes, and as a share of a device's memory; two are
#: made however large they are.
MOST_BYTES = {"cpu": 512 << 20, "cuda": 8 << 30}
MOST_SHARE = 1 / 8
#: Sets with values of their own. The others repeat them, which costs less than making them.
DISTINCT = 2


@dataclass(frozen=True)
class Sets:
    """``count`` sets of tensors that lie alike, each ``stride`` bytes after the one before.

    A set is its inputs, ``inputs_size`` bytes, then its outputs.
    """

    layout: Layout
    start: int
    first: Places
    stride: int
    inputs_size: int
    size: int
    count: int

    def at(self, number: int) -> Places:
        """Where the tensors of one set lie."""
        return self.first.moved(number * self.stride)

    def inputs(self) -> torch.Tensor:
        """All inputs as whole numbers, shape (count, words)."""
        return self._words()[:, : self.inputs_size // 8]

    def outputs(self) -> torch.Tensor:
        """All outputs as whole numbers, shape (count, words)."""
        return self._words()[:, self.inputs_size // 8 : self.size // 8]

    def _words(self) -> torch.Tensor:
        end = self.start + self.count * self.stride
        return self.layout.arena.base[self.start : end].view(torch.int64).view(self.count, -1)

    def repeat(self, contents: Sequence[int]) -> None:
        """Copy inputs of the first sets to the others: for each set, the number of its model."""
        inputs, models = self.inputs(), torch.tensor(contents)
        for number in range(DISTINCT):
            copies = DISTINCT + (models[DISTINCT:] == number).nonzero()[:, 0]
            inputs[copies.to(inputs.device)] = inputs[number]


def contents_of(count: int, called: Sequence[int], source: Random) -> list[int]:
    """Which of the distinct values each of so many sets has: the first ones, their own.

    Those that are called have them in random order, about as many of each: who knows where a set
    lies doesn't know by that which other one has the same.
    """
    found = [number % DISTINCT for number in range(count)]
    others = [number for number in called if number >= DISTINCT]
    shuffled = source.sample(others, len(others))
    for i, number in enumerate(shuffled, start=1):
        found[number] = i % DISTINCT
    return found


def most_sets(size: int, device: str) -> int:
    """How many sets of that many bytes a side may have."""
    most = MOST_BYTES[device]
    if device != "cpu":
        most = min(most, int(MOST_SHARE * torch.cuda.mem_get_info()[1]))
    return max(2, most // (size + GAP))
