"""Memory that the judge owns: arenas, and tensors laid out in them.

One allocation for many tensors, because mapping an allocation into another process costs
milliseconds and maps all of it: what a sandbox must not see lies in another arena.
"""

from __future__ import annotations

import mmap
import os
from itertools import count
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine._messages import TensorRef

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Tensors start at multiples of this many bytes, as fresh allocations of CUDA's do.
ALIGNMENT = 256
_NUMBERS = count(1)


class Arena:
    """``size`` bytes on one device, and views of them as tensors."""

    def __init__(self, size: int, device: str) -> None:
        self.number = next(_NUMBERS)
        self.size = size
        self.base = _shared_bytes(size) if device == "cpu" else _device_bytes(size, device)

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """The tensor at a place; shares the arena's memory."""
        return view(self.base, ref)


def view(base: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """A uint8 buffer, seen as the tensor that ``ref`` describes."""
    dtype = getattr(torch, ref.dtype)
    end = ref.offset + extent(ref.shape, ref.stride) * dtype.itemsize
    flat = base[ref.offset : end].view(dtype)
    return flat.as_strided(ref.shape, ref.stride)


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements a strided tensor spans, from its first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor, in elements."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * max(n, 1))
    return tuple(reversed(strides)) if shape else ()


class Layout:
    """Hands out places in an arena one behind the other, from a random start.

    The start moves so that no call sees the pointers of the call before. ``arena`` is replaced by
    a larger one when a workload needs more than there is.
    """

    def __init__(self, device: str, slack: int = 64 * ALIGNMENT) -> None:
        self.device = device
        self.slack = slack
        self.arena = Arena(1 << 20, device)
        self._next = 0
        self._end = 0

    def begin(self, size: int) -> None:
        """Forget every place given before, and make room for ``size`` bytes."""
        if size + self.slack > self.arena.size:
            self.arena = Arena(1 << (size + self.slack).bit_length(), self.device)
        start = int.from_bytes(os.urandom(4)) % (self.slack // ALIGNMENT)
        self._next = start * ALIGNMENT

    def place(self, shape: Sequence[int], dtype: str) -> TensorRef:
        """The next place for a contiguous tensor of that shape and torch dtype name."""
        ref = TensorRef(self.arena.number, self._next, tuple(shape), contiguous(shape), dtype)
        self._next += aligned(nbytes(shape, dtype))
        return ref

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """The tensor at a place given since the last ``begin``."""
        return self.arena.tensor(ref)

    def bytes(self, ref: TensorRef) -> torch.Tensor:
        """The memory of a contiguous tensor, as uint8."""
        return self.arena.base[ref.offset : ref.offset + nbytes(ref.shape, ref.dtype)]


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """How many bytes a contiguous tensor of that shape and torch dtype name takes."""
    size: int = getattr(torch, dtype).itemsize
    for n in shape:
        size *= n
    return size


def aligned(size: int) -> int:
    """``size`` rounded up to ALIGNMENT."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _shared_bytes(size: int) -> torch.Tensor:
    # A memfd rather than /dev/shm, which containers limit to 64 MiB.
    descriptor = os.memfd_create("pytest-fib")
    os.ftruncate(descriptor, size)
    memory = mmap.mmap(descriptor, size)
    os.close(descriptor)
    return torch.frombuffer(memory, dtype=torch.uint8)


def _device_bytes(size: int, device: str) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device=device)
