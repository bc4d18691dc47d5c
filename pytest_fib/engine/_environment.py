"""What a result was obtained on."""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

import torch

from pytest_fib.data import Environment


@lru_cache
def environment(device: str) -> Environment:
    """The hardware's name and the versions that decide what was measured."""
    libs = {"torch": torch.__version__, "python": platform.python_version()}
    if triton := _version("triton"):
        libs["triton"] = triton
    if device == "cpu":
        return Environment(hardware=_processor(), libs=libs)
    libs["cuda"] = str(torch.version.cuda)
    return Environment(hardware=torch.cuda.get_device_name(), libs=libs)


def _version(distribution: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
