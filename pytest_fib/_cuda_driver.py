"""CUDA's driver library, which every room may ask: nothing heavy is imported for it."""

from __future__ import annotations

import ctypes
from functools import cache


@cache
def cuda_driver() -> ctypes.CDLL:
    """The driver's functions; each acts on the calling thread's context, which torch makes.

    Raises OSError where there is no driver.
    """
    return ctypes.CDLL("libcuda.so.1")
