"""The device's clocks, and what holds them back, by NVML; an optional dependency."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

#: How close two readings of the SM clock are when it is steady.
STEADY = 0.01
#: Names of NVML's reasons for clocks below what they could be; that nothing runs is not one.
_REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "thermal slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}


class Clocks:
    """Reads the clocks of torch's current device; without NVML every clock counts as steady."""

    def __init__(self, device: str) -> None:
        self._nvml: Any
        self._handle: Any
        self._nvml, self._handle = _nvml() if device != "cpu" else (None, None)
        self._before = 0

    def steady(self) -> bool:
        """Whether the SM clock is what it was at the last call."""
        if self._nvml is None:
            return True
        before, self._before = self._before, self._sm()
        return abs(self._before - before) <= STEADY * self._before

    def facts(self) -> dict[str, Any]:
        """Clocks in MHz, the reasons that hold them back, the driver; empty without NVML."""
        if self._nvml is None:
            return {}
        memory = self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_MEM)
        return {
            "sm_clock_mhz": self._sm(),
            "memory_clock_mhz": memory,
            "throttle_reasons": list(self._reasons()),
            "driver": self._nvml.nvmlSystemGetDriverVersion(),
        }

    def _sm(self) -> int:
        return int(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))

    def _reasons(self) -> Iterator[str]:
        found = self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)
        for constant, name in _REASONS.items():
            if found & getattr(self._nvml, constant):
                yield name


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
