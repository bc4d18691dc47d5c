"""The host's memory: nothing takes all of it, and what was taken is known."""

import sys

import pytest
import torch

from pytest_fib.sandbox import forget_peak, limited_memory, out_of_memory, peak_bytes

MEGABYTE = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and peaks are Linux's")


def test_what_takes_more_than_there_may_be_fails_and_later_nothing_is_limited(monkeypatch):
    monkeypatch.setattr("pytest_fib.sandbox._host_memory.HOST_MEMORY", 256 * MEGABYTE)
    with limited_memory():
        torch.empty(64 * MEGABYTE, dtype=torch.uint8)
        with pytest.raises(RuntimeError) as caught:
            torch.empty(1024 * MEGABYTE, dtype=torch.uint8)
    assert out_of_memory(caught.value)
    assert torch.empty(1024 * MEGABYTE, dtype=torch.uint8).numel() == 1024 * MEGABYTE


def test_a_peak_is_that_since_the_one_before_was_forgotten():
    before = forget_peak()
    torch.ones(256 * MEGABYTE, dtype=torch.uint8)
    assert peak_bytes() - before > 200 * MEGABYTE
    before = forget_peak()
    assert peak_bytes() - before < 100 * MEGABYTE
