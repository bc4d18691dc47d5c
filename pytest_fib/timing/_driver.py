"""The library of the CUDA driver, for what torch doesn't offer."""

from __future__ import annotations

import ctypes
from functools import cache


@cache
def cuda_driver() -> ctypes.CDLL:
    """The driver's functions; each acts on the calling thread's context, which torch makes."""
    return ctypes.CDLL("libcuda.so.1")
