"""What a run says of its devices at its end."""

import re

import pytest

from pytest_fib.engine import DeviceUse
from pytest_fib.executors import LocalExecutor


@pytest.fixture
def uses(monkeypatch):
    """Have items report these uses of devices, one after another."""

    def uses(*each):
        left = list(each)
        monkeypatch.setattr(LocalExecutor, "take_device_use", lambda executor: left.pop(0))

    return uses


def shares(result):
    """The line's beginning and percentages."""
    pattern = r"(.*) busy (\d+) %, timed (\d+) %, waited (\d+) %"
    [found] = filter(None, (re.fullmatch(pattern, line) for line in result.outlines))
    return found[1], *map(int, found.groups()[1:])


def test_time_that_several_share_a_device_counts_once(scale, uses):
    scale.implement("other", "x, factor\nreturn factor * x")
    first = DeviceUse("GPU-1", used=[[0.0, 3e6], [5e6, 6e6]], alone=1e6)
    second = DeviceUse("GPU-1", used=[[2e6, 5e6]], alone=2e6)
    uses(first, second)
    device, busy, timed, waited = shares(scale.run("-k", "good or other", "-m", "fib"))
    assert (device, waited) == ("device", 0)
    assert busy / timed == pytest.approx(2.0, rel=1e-3)


def test_of_several_devices_the_mean_is_shown(scale, uses):
    scale.implement("other", "x, factor\nreturn factor * x")
    uses(DeviceUse("GPU-1", used=[[0.0, 3e6]], alone=1e6), DeviceUse("GPU-2", used=[[0.0, 1e6]]))
    devices, busy, timed, _ = shares(scale.run("-k", "good or other", "-m", "fib"))
    assert devices == "2 devices"
    assert busy / timed == pytest.approx(4.0, rel=1e-3)


def test_where_nothing_was_timed_only_waits_are_told(scale, uses):
    uses(DeviceUse("cpu", used=[[0.0, 1.0]], waited=41.2))
    lines = scale.run("-k", "good").outlines
    assert "1 item waited 41 s for other processes on the device" in lines
    assert not any(" busy " in line for line in lines)
