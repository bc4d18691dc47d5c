"""Conftests change torch's defaults for the tests beside ours; verdicts are made with its own."""

import pytest
import torch

from pytest_fib.testing import assert_kernel_close
from pytest_fib.workloads import TorchDefaults, plain_defaults

ODD = TorchDefaults(torch.device("meta"), torch.float64)


@pytest.fixture(autouse=True)
def odd_defaults():
    with ODD.applied():
        yield


def test_defaults_are_those_of_the_caller_again():
    with plain_defaults():
        assert torch.zeros(1).device.type == "cpu"
        assert torch.zeros(1).dtype is torch.float32
        with ODD.applied():
            assert torch.zeros(1).device.type == "meta"
    assert TorchDefaults.now() == ODD


def test_they_are_after_an_error():
    with pytest.raises(ZeroDivisionError), plain_defaults():
        _ = 1 / 0
    assert TorchDefaults.now() == ODD


def test_an_output_is_compared():
    expected = torch.linspace(-1, 1, 4096, device="cpu", dtype=torch.float64)
    assert_kernel_close(expected.half(), expected)
    with pytest.raises(AssertionError, match="INCORRECT_NUMERICAL"):
        assert_kernel_close(expected.half() * 1.05, expected)


CONFTEST = """\
import torch

def pytest_configure():
    torch.set_default_device("meta")
    torch.set_default_dtype(torch.float64)
"""
BY_HAND = """\
import torch

def test_by_hand(kernel_check):
    def scale(x, factor):
        assert torch.zeros(1).device.type == "meta"
        return x * factor

    kernel_check("scale", scale, examples=2)
"""


@pytest.mark.parametrize("isolation", ["process", "none"])
@pytest.mark.thorough
def test_items_and_the_fixture_are_as_ever(toys, isolation):
    """In a process of its own, since the defaults stay."""
    toys.write("conftest.py", CONFTEST)
    toys.write("test_by_hand.py", BY_HAND)
    result = toys.run_apart(f"--fib-isolation={isolation}", "-rA", "--fib-examples=20")
    outcomes = [line for line in result.outlines if line.startswith(("PASSED", "FAILED"))]
    assert [line.partition("::")[2].partition(" ")[0] for line in outcomes] == [
        "scale[good-correctness]",
        "split[pair-correctness]",
        "test_by_hand",
        "scale[tail-correctness]",
        "split[swapped-correctness]",
    ]
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(["*INCORRECT_NUMERICAL: y: zeros at n 64..*"])
