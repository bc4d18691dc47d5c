"""The tensors of many calls: one set for each, so that no timed call finds another's in a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._memory import ALIGNMENT

if TYPE_CHECKING:
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

    def repeat(self, distinct: int) -> None:
        """Copy the inputs of the first sets to the others, in turn."""
        inputs = self.inputs()
        for number in range(distinct):
            inputs[number + distinct :: distinct] = inputs[number]


def most_sets(size: int, device: str) -> int:
    """How many sets of that many bytes a side may have."""
    most = MOST_BYTES[device]
    if device != "cpu":
        most = min(most, int(MOST_SHARE * torch.cuda.mem_get_info()[1]))
    return max(2, most // (size + GAP))
