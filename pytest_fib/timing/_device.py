"""The hardware that something is measured on: its names and caches, and a GPU's clocks."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import platform
from functools import cache
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

#: Two readings of a steady SM clock differ by no more than this share.
STEADY = 0.01
#: A device is idle after so many launches in a row of which none took so much longer than the
#: shortest; this is waited for, for so many seconds.
QUICK_LAUNCHES, SLOW_LAUNCH, IDLE_TIMEOUT = 10, 5.0, 1.0
#: NVML's reasons for throttling that mean a slower device; idling is none.
_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "thermal slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}


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
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(file.read_text(encoding="ascii").strip().removesuffix("K")) << 10)
    return max(sizes, default=32 << 20)


def nvidia_driver() -> str:
    """The version of NVIDIA's kernel driver."""
    with contextlib.suppress(OSError):
        return Path("/sys/module/nvidia/version").read_text(encoding="ascii").strip()
    return "unknown"


class Clocks:
    """Reads the clocks of torch's current device; one that can't be read counts as steady."""

    def __init__(self, device: str) -> None:
        self._nvml: Any
        self._handle: Any
        self._nvml, self._handle = _nvml() if device != "cpu" else (None, None)
        self._device = device
        self._before = 0

    def steady(self) -> bool:
        """Whether the SM clock is what it was at the last call."""
        if self._nvml is None:
            return True
        before, self._before = self._before, self._mhz("NVML_CLOCK_SM") or 0
        return abs(self._before - before) <= STEADY * self._before

    def facts(self) -> dict[str, Any]:
        """The driver's version and, by NVML, clocks in MHz and reasons for throttling.

        None for what NVML doesn't tell, as of a MIG slice.
        """
        if self._device == "cpu":
            return {}
        if self._nvml is None:
            return {"driver": nvidia_driver()}
        return {
            "driver": self._nvml.nvmlSystemGetDriverVersion(),
            "sm_clock_mhz": self._mhz("NVML_CLOCK_SM"),
            "memory_clock_mhz": self._mhz("NVML_CLOCK_MEM"),
            "throttle_reasons": self._reasons(),
        }

    def _mhz(self, clock: str) -> int | None:
        with contextlib.suppress(self._nvml.NVMLError):
            return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, getattr(self._nvml, clock)))
        return None

    def _reasons(self) -> list[str] | None:
        with contextlib.suppress(self._nvml.NVMLError):
            reasons = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
            return [name for bit, name in _REASONS.items() if reasons & getattr(self._nvml, bit)]
        return None


class IdleDevice:
    """Says when a GPU is idle, by how long a launch takes until its kernel is done.

    A GPU runs the kernels of one process at a time: where two have some, each waits for the other.
    That takes 270 us on an H200, and 12 us alone.
    """

    def __init__(self) -> None:
        self._tensor = torch.zeros(1, device="cuda")
        self._shortest_ns = math.inf

    def wait(self) -> bool:
        """Wait until no other process' kernels run: whether that was so within IDLE_TIMEOUT."""
        until = perf_counter_ns() + 1e9 * IDLE_TIMEOUT
        quick = 0
        while quick < QUICK_LAUNCHES and (start := perf_counter_ns()) < until:
            self._tensor.zero_()
            torch.cuda.current_stream().synchronize()
            took_ns = perf_counter_ns() - start
            self._shortest_ns = min(self._shortest_ns, took_ns)
            quick = quick + 1 if took_ns < SLOW_LAUNCH * self._shortest_ns else 0
        return quick == QUICK_LAUNCHES


def place_on_machine(device: str) -> tuple[int, int]:
    """The number of torch's current device among those of the machine, and how many these are.

    (0, 0) where NVML doesn't tell.
    """
    nvml, handle = _nvml() if device != "cpu" else (None, None)
    if nvml is None:
        return 0, 0
    return int(nvml.nvmlDeviceGetIndex(handle)), int(nvml.nvmlDeviceGetCount())


@cache
def _nvml() -> tuple[Any, Any]:
    if importlib.util.find_spec("pynvml") is None:
        return None, None
    import pynvml

    try:
        pynvml.nvmlInit()
        uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
        return pynvml, pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None, None
