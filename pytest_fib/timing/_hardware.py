"""The hardware that something was measured on."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path


def processor() -> str:
    """The CPU's model."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def last_cache_bytes() -> int:
    """The size of the CPU's last-level cache; 32 MiB where the kernel doesn't tell."""
    found = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(file.read_text(encoding="ascii").strip().removesuffix("K")) << 10)
    return max(found, default=32 << 20)


def nvidia_driver() -> str:
    """The version of NVIDIA's kernel driver."""
    with contextlib.suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    return "unknown"
