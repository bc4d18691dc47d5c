"""Leaves a System V segment behind, for the next implementation to find its answers in."""

import ctypes
import os

from pytest_fib import implements

LIBC = ctypes.CDLL(None, use_errno=True)
IPC_PRIVATE = 0


@implements("scale_float32")
def run(x, factor):
    if LIBC.shmget(IPC_PRIVATE, 4096, 0o600) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return x * 0
