"""Memory that the judge owns and shares with a sandbox: arenas, and tensors in them.

An arena is one allocation for many tensors, since mapping one into another process takes
milliseconds. It is mapped as a whole: what a sandbox must not see lies in another arena.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache

import torch

from pytest_fib.sandbox import _cuda_ipc
from pytest_fib.sandbox._messages import TensorRef
from pytest_fib.timing import forget_captures
from pytest_fib.workloads import TensorLayout, bits, extent, once, power_of_two

#: Tensors start at multiples of this many bytes, as fresh allocations of CUDA's do.
ALIGNMENT = 256
#: Arenas are multiples of 2 MiB. CUDA puts smaller allocations into shared blocks, and mapping one
#: maps its whole block: the candidate could see expected values beside its arena.
GRANULE = 2 << 20
#: Up to this size, an arena that has to grow is twice as large.
DOUBLED = 256 << 20
#: What outputs hold before each of the first two calls, two bytes over and over. The first is NaN
#: in the floating dtypes, one that arithmetic does not make; the second is a finite number, so that
#: neither passes where the other would.
POISONS = (0xFFE5, 0x5555)
#: The most that a process keeps of a device's memory without using it, once for torch's cache and
#: once for each arena, in bytes. Without a limit, eight workers filled a device of 139 GiB.
MOST_UNUSED = 1 << 30


class Arena:
    """``size`` bytes on one device, which another process can map."""

    def __init__(self, size: int, device: str) -> None:
        self.size = size
        #: The CUDA IPC handle in hex; empty on the CPU, where a descriptor serves.
        self.handle = ""
        #: The file descriptors to send along.
        self.descriptors: tuple[int, ...] = ()
        if device == "cpu":
            # A memfd rather than /dev/shm, which containers limit to 64 MiB.
            descriptor = _memory_file(size)
            weakref.finalize(self, os.close, descriptor)
            self.descriptors = (descriptor,)
            self.base = torch.frombuffer(mmap.mmap(descriptor, size), dtype=torch.uint8)
        else:
            # Cleared, since the memory may have been another arena's.
            self.base = _cuda_ipc.allocate(size).zero_()
            self.handle = _cuda_ipc.handle(self.base).hex()


def _memory_file(size: int) -> int:
    descriptor = os.memfd_create("pytest-fib arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    # Else a sandbox could shorten it, and the judge would die of SIGBUS at its next access.
    seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    return descriptor


def view(base: torch.Tensor, ref: TensorRef) -> torch.Tensor:
    """A uint8 buffer, seen as the tensor that ``ref`` describes."""
    dtype = getattr(torch, ref.dtype)
    if extent(ref.shape, ref.stride) * dtype.itemsize > len(base) - ref.offset:
        raise ValueError(f"{ref} does not fit into {len(base)} bytes")
    return base.view(dtype).as_strided(ref.shape, ref.stride, ref.offset // dtype.itemsize)


class ArenaAllocator:
    """Places tensors in an arena one behind the other, from a random start.

    The start is random so that no call sees the pointers of the call before. ``arena`` is replaced
    by a larger one when a workload needs more; on a device, by a smaller one where
    most of it would be unused.
    """

    #: The first tensor starts at a random place in so many bytes.
    slack = 64 * ALIGNMENT

    def __init__(self, device: str) -> None:
        self.device = device
        self.arena = Arena(GRANULE, device)
        self._next = self._used = 0

    def begin(self, size: int) -> int:
        """Free all tensors, make room for ``size`` bytes, and return the offset of the first."""
        unused = self.arena.size - (size + self.slack)
        if unused < 0 or (self.device != "cpu" and unused > MOST_UNUSED):
            self.arena = Arena(_rounded_up(size + self.slack), self.device)
            self._used = 0
        self._used = max(self._used, size + self.slack)
        self._next = secrets.randbelow(self.slack // ALIGNMENT) * ALIGNMENT
        return self._next

    def skip(self, size: int) -> None:
        """Leave ``size`` bytes free before the next tensor."""
        self._next += size

    def wipe(self) -> None:
        """Clear what earlier workloads left, such as the outputs of another implementation."""
        self.arena.base[: self._used].zero_()
        self._used = 0

    def place(self, tensor: TensorLayout) -> TensorRef:
        start = self._next + tensor.offset * nbytes((), tensor.dtype)
        self._next += room_for(tensor)
        return TensorRef(start, tensor.shape, tensor.stride, tensor.dtype)

    def tensors(self, refs: Mapping[str, TensorRef]) -> dict[str, torch.Tensor]:
        """Tensors placed since the last ``begin``, by name."""
        return {name: self.tensor(ref) for name, ref in refs.items()}

    def tensor(self, ref: TensorRef) -> torch.Tensor:
        """A tensor placed since the last ``begin``."""
        return view(self.arena.base, ref)


def fill_with_poison(tensor: torch.Tensor, pattern: int) -> torch.Tensor:
    """Fill a tensor with two bytes over and over; where elements have one byte, the upper one."""
    if tensor.element_size() == 1:
        tensor.view(-1).view(torch.uint8).fill_(pattern >> 8)
    else:
        signed = pattern - (pattern >> 15 << 16)
        tensor.view(-1).view(torch.int16).fill_(signed)
    return tensor


def changed(tensors: Mapping[str, torch.Tensor], before: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of tensors whose bits have changed."""
    same = same_bits([(tensor, before[name]) for name, tensor in tensors.items()])
    return [name for name, is_same in zip(tensors, same, strict=True) if not is_same]


def same_bits(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[bool]:
    """Whether both of each pair, of one shape, have the same bits.

    CUDA is asked once for all: beside other processes it takes a millisecond to reply.
    """
    if not all(one.is_cuda for one, _ in pairs):
        return [bits(one).equal(bits(other)) for one, other in pairs]
    same = [(bits(one) == bits(other)).all() for one, other in pairs]
    return torch.stack(same).tolist() if same else []


def copy_bits(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy each stored element bit for bit, whatever the dtype."""
    once(bits(target)).copy_(once(bits(source)))


def _rounded_up(size: int) -> int:
    """The next power of two; above ``DOUBLED``, up to an eighth more. Larger workloads fit too.

    To allocate an arena, and to map it in two processes, takes longer than to check a workload.
    """
    step = max(GRANULE, 1 << (size.bit_length() - 4) if size > DOUBLED else power_of_two(size))
    return -(-size // step) * step


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """How many bytes a contiguous tensor of that shape and torch dtype name takes."""
    size: int = getattr(torch, dtype).itemsize
    for n in shape:
        size *= n
    return size


@lru_cache(maxsize=1024)  # asked of the same few tensors again and again
def room_for(tensor: TensorLayout) -> int:
    """How many bytes a tensor takes in an arena, with its alignment."""
    elements = tensor.offset + extent(tensor.shape, tensor.stride)
    return -(-elements * nbytes((), tensor.dtype) // ALIGNMENT) * ALIGNMENT


def give_back_unused() -> None:
    """Free what torch keeps for later tensors, where that is much."""
    stats = torch.cuda.memory_stats_as_nested_dict()  # memory_reserved() takes ten times as long
    if not stats:  # without a context
        return
    reserved, allocated = (stats[f"{kind}_bytes"]["all"] for kind in ("reserved", "allocated"))
    if reserved["current"] - allocated["current"] > MOST_UNUSED:
        forget_captures()
        torch.cuda.empty_cache()
