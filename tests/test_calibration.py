"""Shipped kernels have more time where Python is slow."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

CONFTEST = Path(__file__).parents[1] / "kernel_defs/conftest.py"


@pytest.fixture
def conftest():
    spec = importlib.util.spec_from_file_location("kernel_defs_conftest", CONFTEST)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("slower", "timeout"), [(0.5, 180.0), (1.0, 180.0), (4.0, 720.0)])
def test_a_timeout_grows_with_how_slow_python_is(conftest, monkeypatch, slower, timeout):
    taken = slower * conftest.QUIET_SECONDS
    monkeypatch.setattr(conftest, "seconds_of_python", lambda: taken)
    config = SimpleNamespace(option=SimpleNamespace(fib_timeout=180.0))
    conftest.pytest_configure(config)
    assert config.option.fib_timeout == pytest.approx(timeout)


def test_workers_have_it_from_the_controller(conftest):
    config = SimpleNamespace(option=SimpleNamespace(fib_timeout=540.0), workerinput={})
    conftest.pytest_configure(config)
    assert config.option.fib_timeout == 540.0


def test_python_takes_some_time(conftest):
    assert conftest.seconds_of_python() > 0
