"""What a result was obtained on."""

from __future__ import annotations

import platform
from functools import lru_cache

import torch

from pytest_fib.data import Environment
from pytest_fib.timing import processor


@lru_cache
def environment(device: str) -> Environment:
    """The hardware's name and the versions that decide what was measured."""
    libs = {"torch": torch.__version__, "python": platform.python_version()}
    if triton := _version("triton"):
        libs["triton"] = triton
    if device == "cpu":
        return Environment(hardware=processor(), libs=libs)
    libs["cuda"] = str(torch.version.cuda)
    return Environment(hardware=torch.cuda.get_device_name(), libs=libs)


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
