"""Benchmark on every device there is: each has a process of its own."""

import pytest

from pytest_fib import Benchmark, Solution, TraceSet
from pytest_fib.build import gpus
from pytest_fib.workloads import make_workload


@pytest.fixture
def trace_set(definition):
    source = {"path": "main.py", "content": "def run(x, factor):\n    return x * factor\n"}
    spec = {"language": "python", "target_hardware": ["cuda"], "entry_point": "main.py::run"}
    solutions = [
        Solution.model_validate(
            {
                "name": f"kernel_{number}",
                "definition": definition.name,
                "author": "tests",
                "spec": {**spec, "destination_passing_style": False},
                "sources": [source],
            }
        )
        for number in range(4)
    ]
    workloads = [(definition.name, make_workload(definition, {"n": n})) for n in (1000, 100_000)]
    return TraceSet([definition], solutions, workloads)


def test_all_devices_evaluate(trace_set):
    if gpus.count() < 2:
        pytest.skip("needs two CUDA devices")
    traces = Benchmark(trace_set, precision="quick").run_all()
    assert [trace.evaluation.status.value for trace in traces] == ["PASSED"] * 8


def test_on_one_device_the_figures_are_those_of_bench_items(trace_set):
    benchmark = Benchmark(trace_set, precision="quick")
    traces = benchmark.run_all()
    assert benchmark.skipped == []
    assert all(trace.evaluation.performance.model_extra["method"] for trace in traces)
