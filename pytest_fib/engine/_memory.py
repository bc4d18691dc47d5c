"""Memory that the judge owns: arenas, and tensors laid out in them.

One allocation for many tensors, because mapping an allocation into another process costs
milliseconds and maps all of it: what a sandbox must not see lies in another arena.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import weakref
from typing import TYPE_CHECKING

import torch

from pytest_fib.engine import _cuda
from pytest_fib.engine._messages import TensorRef
from pytest_fib.workloads import bits, extent, once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_fib.workloads import TensorLayout

#: Tensors start at multiples of this many bytes, as fresh allocations of CUDA's do.
ALIGNMENT = 256
#: Arenas take multiples of 2 MiB. CUDA puts smaller allocations into blocks that they share, and
#: mapping one maps its whole block: the candidate's arena could bring the expected values along.
GRANULE = 2 << 20


class Arena:
    """``size`` bytes on one device, which another process can map."""

    def __init__(self, size: int, device: str) -> None:
        self.size = size
        #: What another process needs to map this; empty where a descriptor does.
        self.handle = ""
        self._descriptor: int | None = None
        if device == "cpu":
            # A memfd rather than /dev/shm, which containers limit to 64 MiB.
            self._descriptor = _memory_file(size)
            weakref.finalize(self, os.close, self._descriptor)
            self.base = torch.frombuffer(mmap.mmap(self._descriptor, size), dtype=torch.uint8)
        else:
            # Cleared, since the driver may hand out what another arena held.
            self.base = _cuda.allocate(size).zero_()
            self.handle = _cuda.handle(self.base).hex()

    def descriptors(self) -> tuple[int, ...]:
        """The file descriptors to send along."""
        return () if self._descriptor is None else (self._descriptor,)

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """The tensor at a place; shares the arena's memory."""
        return view(self.base, ref)


def _memory_file(size: int) -> int:
    descriptor = os.memfd_create("pytest-fib arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    # Who maps it could otherwise make it shorter, and the judge's next access would be a SIGBUS.
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def view(base: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """A uint8 buffer, seen as the tensor that ``ref`` describes."""
    dtype = getattr(torch, ref.dtype)
    if extent(ref.shape, ref.stride) * dtype.itemsize > len(base) - ref.offset:
        raise ValueError(f"{ref} does not fit into {len(base)} bytes")
    return base.view(dtype).as_strided(ref.shape, ref.stride, ref.offset // dtype.itemsize)


def moved(tensor: torch.Tensor, by: int) -> torch.Tensor:
    """A tensor that lies the same, ``by`` bytes further on in the same memory."""
    start = tensor.storage_offset() + by // tensor.itemsize
    return tensor.as_strided(tensor.shape, tensor.stride(), start)


class Layout:
    """Hands out places in an arena one behind the other, from a random start.

    The start moves so that no call sees the pointers of the call before. ``arena`` is replaced by
    a larger one when a workload needs more than there is.
    """

    def __init__(self, device: str, slack: int = 64 * ALIGNMENT) -> None:
        self.device = device
        self.slack = slack
        self.arena = Arena(GRANULE, device)
        self._next = 0
        self._used = 0

    def begin(self, size: int) -> int:
        """Forget every place given before, and make room for ``size`` bytes; where that starts."""
        if size + self.slack > self.arena.size:
            self.arena = Arena(_roomy(size + self.slack), self.device)
            self._used = 0
        self._used = max(self._used, size + self.slack)
        start = int.from_bytes(os.urandom(4)) % (self.slack // ALIGNMENT)
        self._next = start * ALIGNMENT
        return self._next

    def skip(self, size: int) -> None:
        """Leave ``size`` bytes before the next place."""
        self._next += size

    def wipe(self) -> None:
        """Clear what was left in memory, such as the outputs of another implementation."""
        self.arena.base[: self._used].zero_()
        self._used = 0

    def place(self, tensor: TensorLayout) -> TensorRef:
        """The next place for a tensor that lies like this."""
        start = self._next + tensor.offset * nbytes((), tensor.dtype)
        self._next += room_for(tensor)
        return TensorRef(start, tensor.shape, tensor.stride, tensor.dtype)

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """The tensor at a place given since the last ``begin``."""
        return self.arena.tensor(ref)

    def bytes(self, ref: TensorRef) -> torch.Tensor:
        """The memory of a contiguous tensor, as uint8."""
        return self.arena.base[ref.offset : ref.offset + nbytes(ref.shape, ref.dtype)]


def poisoned(tensor: torch.Tensor, pattern: int) -> torch.Tensor:
    """The tensor, filled with two bytes over and over; where elements have one, the upper."""
    if tensor.element_size() == 1:
        tensor.view(-1).view(torch.uint8).fill_(pattern >> 8)
    else:
        tensor.view(-1).view(torch.int16).fill_(
            pattern - (pattern >> 15 << 16)
        )  # as a signed number
    return tensor


def changed(tensors: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of tensors whose bits are others now."""
    return [name for name, tensor in tensors.items() if not bits(tensor).equal(bits(before[name]))]


def copy_bits(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy the elements that are there, whatever their dtype."""
    once(bits(target)).copy_(once(bits(source)))


def _roomy(size: int) -> int:
    """``size`` and up to an eighth more, so that slightly larger workloads fit as well."""
    step = max(GRANULE, 1 << (size.bit_length() - 4))
    return -(-size // step) * step


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """How many bytes a contiguous tensor of that shape and torch dtype name takes."""
    size: int = getattr(torch, dtype).itemsize
    for n in shape:
        size *= n
    return size


def room_for(tensor: TensorLayout) -> int:
    """The bytes that a tensor takes in an arena, alignment included."""
    elements = tensor.offset + extent(tensor.shape, tensor.stride)
    return -(-elements * nbytes((), tensor.dtype) // ALIGNMENT) * ALIGNMENT
