"""A judge on CUDA. Everything here is skipped where there is no device."""

import os
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_fib.build import gpus
from pytest_fib.data import (
    BuildSpec,
    Solution,
    SourceFile,
    SupportedLanguages,
    load_definition_file,
)

ROOT = Path(__file__).parents[2]
#: Starting a process, its CUDA context, and Triton's compiler: an upper bound.
AT_MOST = 120.0


@pytest.fixture(scope="session", autouse=True)
def device():
    """Asks the driver only, which makes no context in this process."""
    if gpus.count() == 0:
        pytest.skip("needs a CUDA device")


@pytest.fixture
def whole_device():
    """For tests that fill a device's memory or measure all of it, with what others have."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        pytest.skip("fills or measures the whole device: run it without other workers (-n 0)")


@pytest.fixture(scope="session")
def definition(device):
    """``out = x * factor`` in float32, over ``n`` elements."""
    loaded = load_definition_file(ROOT / "kernel_defs/scale/scale.yaml")
    return next(d.definition for d in loaded if d.definition.name == "scale_float32")


@pytest.fixture(scope="session")
def judge(device):
    """One judge for all tests."""
    from pytest_fib.engine import Judge

    with Judge("cuda") as judge:
        yield judge


@pytest.fixture
def request_for(definition):
    """A request from the text of an implementation."""
    from pytest_fib.data import EvaluationRequest
    from pytest_fib.workloads import make_workload

    def request_for(text, calling="value", n=1000, seed=0, timeout=AT_MOST, **settings):
        spec = BuildSpec(
            language=SupportedLanguages("python"),
            target_hardware=["cuda"],
            entry_point="module.py::run",
            calling=calling,
        )
        solution = Solution(
            name="s",
            definition=definition.name,
            author="tests",
            spec=spec,
            sources=[SourceFile(path="module.py", content=dedent(text))],
        )
        workload = make_workload(definition, {"n": n}, seed=seed)
        return EvaluationRequest(
            definition=definition,
            solution=solution,
            workload=workload,
            timeout=timeout,
            **settings,
        )

    return request_for


@pytest.fixture
def evaluate(judge, request_for):
    """The evaluation of an implementation, given as text."""

    def evaluate(text, calling="value", **facts):
        return judge.evaluate(request_for(text, calling, **facts))

    return evaluate
