"""The few functions of the CUDA driver that torch does not offer: memory between processes.

torch's own IPC shares blocks of its caching allocator, which hold other tensors too. Here each
arena is an allocation of its own, so a process that maps it sees that arena and nothing else.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from pytest_fib._cuda_driver import cuda_driver

_HANDLE_SIZE = 64
_OUT_OF_MEMORY = 2
_LAZY_PEER_ACCESS = 1


class CudaError(RuntimeError):
    """A driver call failed; the message names the call and the driver's reason."""


class _Handle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _HANDLE_SIZE),)


@cache
def _driver() -> ctypes.CDLL:
    torch.cuda.synchronize()  # makes the primary context current on this thread
    return cuda_driver()


def _call(function: str, *arguments: object) -> None:
    driver = _driver()
    status = getattr(driver, function)(*arguments)
    if status == _OUT_OF_MEMORY:
        free, total = (size >> 20 for size in torch.cuda.mem_get_info())
        raise torch.OutOfMemoryError(f"{function}: {free} of the device's {total} MiB are free")
    if status:
        text = ctypes.c_char_p()
        driver.cuGetErrorString(status, ctypes.byref(text))
        raise CudaError(f"{function}: {(text.value or b'unknown error').decode()}")


class _Memory:
    """Device memory that torch can see through ``__cuda_array_interface__``."""

    def __init__(self, pointer: int, size: int) -> None:
        self.pointer = pointer
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
        }


class _Owned(_Memory):
    """An allocation; freed when the last tensor on it is gone."""

    def __init__(self, size: int) -> None:
        pointer = ctypes.c_uint64()
        _call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        super().__init__(pointer.value, size)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            _driver().cuMemFree_v2(ctypes.c_uint64(self.pointer))


def allocate(size: int) -> torch.Tensor:
    """A uint8 tensor on an allocation of its own. Raises CudaError, torch.OutOfMemoryError."""
    try:
        memory = _Owned(size)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()  # torch's own allocator does so, too
        memory = _Owned(size)
    return torch.as_tensor(memory, device="cuda")


def handle(tensor: torch.Tensor) -> bytes:
    """The IPC handle of the allocation that starts where the tensor does."""
    exported = _Handle()
    _call("cuIpcGetMemHandle", ctypes.byref(exported), ctypes.c_uint64(tensor.data_ptr()))
    return bytes(exported)


class Mapped:
    """Another process' allocation, as a uint8 tensor here."""

    def __init__(self, exported: bytes, size: int) -> None:
        pointer = ctypes.c_uint64()
        opened = _Handle.from_buffer_copy(exported)
        _call(
            "cuIpcOpenMemHandle_v2", ctypes.byref(pointer), opened, ctypes.c_uint(_LAZY_PEER_ACCESS)
        )
        self._pointer = pointer
        self.tensor = torch.as_tensor(_Memory(pointer.value, size), device="cuda")

    def close(self) -> None:
        """Unmap it; tensors on it must not be used any more."""
        _call("cuIpcCloseMemHandle", self._pointer)
