"""What is read of the device's clocks, from a driver's library that is none."""

from types import SimpleNamespace

import pytest

from pytest_fib.timing import Clocks

#: What holds clocks back: by its name in the library, how it is told.
REASONS = {
    "nvmlClocksThrottleReasonSwPowerCap": "power cap",
    "nvmlClocksThrottleReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksThrottleReasonSwThermalSlowdown": "thermal slowdown",
    "nvmlClocksThrottleReasonHwThermalSlowdown": "hardware thermal slowdown",
    "nvmlClocksThrottleReasonHwPowerBrakeSlowdown": "power brake",
}
NAMES = list(REASONS)


class Refused(Exception):
    """As NVMLError."""


@pytest.fixture
def nvml(monkeypatch):
    """A library as nvidia-ml-py is: its clocks and reasons are what a test sets."""
    constants = {name: 1 << bit for bit, name in enumerate(NAMES, start=2)}
    fake = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        clocks={1: 1980, 2: 2619},
        reasons=0,
        asked=[],
        nvmlSystemGetDriverVersion=lambda: "580.1",
        NVMLError=Refused,
        **constants,
    )

    def clock(handle, kind):
        fake.asked.append(handle)
        if kind not in fake.clocks:
            raise Refused
        return fake.clocks[kind]

    fake.nvmlDeviceGetClockInfo = clock
    fake.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: fake.reasons
    monkeypatch.setattr("pytest_fib.timing._device._nvml", lambda: (fake, "the device"))
    monkeypatch.setattr("pytest_fib.timing._device.nvidia_driver", lambda: "580.1")
    return fake


def test_a_clock_is_steady_when_it_is_what_it_was_before(nvml):
    clocks = Clocks("cuda")
    seen = []
    for mhz in (345, 1980, 1980, 1965, 1980, 1755, 1755):
        nvml.clocks[nvml.NVML_CLOCK_SM] = mhz
        seen.append(clocks.steady())
    assert seen == [False, False, True, True, True, False, True]
    assert set(nvml.asked) == {"the device"}


def test_the_facts_are_clocks_and_driver(nvml):
    assert Clocks("cuda").facts() == {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "throttle_reasons": [],
        "driver": "580.1",
    }


def test_each_reason_that_holds_clocks_back_is_named(nvml):
    for name in NAMES:
        nvml.reasons = getattr(nvml, name)
        assert Clocks("cuda").facts()["throttle_reasons"] == [REASONS[name]]
    nvml.reasons = getattr(nvml, NAMES[0]) | getattr(nvml, NAMES[2])
    assert Clocks("cuda").facts()["throttle_reasons"] == ["power cap", "thermal slowdown"]


def test_that_nothing_runs_is_no_reason(nvml):
    nvml.reasons = 1  # nvmlClocksThrottleReasonGpuIdle
    assert Clocks("cuda").facts()["throttle_reasons"] == []


def test_the_cpu_has_no_clocks_to_read(nvml):
    clocks = Clocks("cpu")
    assert clocks.steady()
    assert clocks.facts() == {}
    assert nvml.asked == []


def test_without_the_library_clocks_count_as_steady_and_the_driver_is_told(nvml, monkeypatch):
    monkeypatch.setattr("pytest_fib.timing._device._nvml", lambda: (None, None))
    clocks = Clocks("cuda")
    assert clocks.steady()
    assert clocks.facts() == {"driver": "580.1"}


def test_clocks_that_a_device_does_not_tell_count_as_steady(nvml, monkeypatch):
    def refuse(handle):
        raise Refused

    nvml.clocks.clear()
    monkeypatch.setattr(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", refuse)
    clocks = Clocks("cuda")
    assert [clocks.steady(), clocks.steady()] == [True, True]
    assert clocks.facts() == {
        "driver": "580.1",
        "sm_clock_mhz": None,
        "memory_clock_mhz": None,
        "throttle_reasons": None,
    }
