"""Which GPUs there are, found without torch."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from functools import lru_cache

from pytest_fib._cuda_driver import cuda_driver
from pytest_fib.build._targets import Hardware

#: The driver's attributes of a device that hold its major and its minor version.
_COMPUTE_CAPABILITY = 75, 76


@lru_cache(maxsize=1)
def count() -> int:
    """How many CUDA devices this process may use; 0 without a driver or a torch that uses it."""
    return 0 if (number := _on_the_driver()) and _torch_without_cuda() else number


def why_none(machine: str = "this machine") -> str:
    if _on_the_driver():
        return "torch is built without CUDA"
    return f"there is no CUDA device on {machine}"


def _torch_without_cuda() -> bool:
    return importlib.metadata.version("torch").endswith("+cpu")


def _on_the_driver() -> int:
    """How many devices the driver has; it honours CUDA_VISIBLE_DEVICES and makes no context."""
    try:
        driver = cuda_driver()
    except OSError:
        return 0
    number = ctypes.c_int(0)
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(number)) != 0:
        return 0
    return number.value


def first() -> Hardware:
    """The device that this process uses; it may see several."""
    try:
        driver = cuda_driver()
    except OSError:
        return Hardware("cuda")  # whoever runs kernels will say what is wrong
    name = ctypes.create_string_buffer(256)
    version = [ctypes.c_int(0), ctypes.c_int(0)]
    driver.cuInit(0)
    driver.cuDeviceGetName(name, len(name), 0)
    for part, attribute in zip(version, _COMPUTE_CAPABILITY, strict=True):
        driver.cuDeviceGetAttribute(ctypes.byref(part), attribute, 0)
    return Hardware("cuda", (version[0].value, version[1].value), name.value.decode())


def visible(number: int) -> list[str]:
    """The names of this process' devices as CUDA_VISIBLE_DEVICES spells them."""
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(number)] if mask is None else mask.split(",")
    return [name.strip() for name in names][:number]
