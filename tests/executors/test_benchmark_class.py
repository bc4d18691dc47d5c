"""Benchmark: every solution on every workload, whatever fails."""

import pytest

from pytest_fib import Benchmark, Definition, Solution, TraceSet
from pytest_fib.data import DefinitionFault, Evaluation, Workload

STORED = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "x"}


class Scripted:
    """Answers by the names of solutions."""

    def __init__(self):
        self.asked = []

    def evaluate(self, request):
        self.asked.append((request.solution.name, request.workload.axes["n"]))
        if request.solution.name == "wrong":
            return Evaluation.model_validate({"status": "RUNTIME_ERROR", "hardware": "here"})
        if request.workload.axes["n"] == 13:
            return DefinitionFault(message="the reference fails")
        facts = {"max_relative_error": 0.0, "latency_ms": 1.0, "speedup_factor": 3.0}
        return Evaluation.model_validate({"status": "PASSED", "hardware": "here", **facts})

    def close(self):
        raise AssertionError("it is not the benchmark's")


def definition():
    tensor = {"shape": ["n"], "dtype": "float32"}
    return Definition.model_validate(
        {
            "name": "double",
            "op_type": "elementwise",
            "axes": {"n": "var"},
            "inputs": {"x": tensor},
            "outputs": {"y": tensor},
            "reference": "def run(x):\n    return x * 2\n",
            "workloads": {"bench": [{"n": 1000}]},
        }
    )


def solution(name):
    spec = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"}
    source = {"path": "main.py", "content": "def run(x):\n    return x + x\n"}
    facts = {"name": name, "definition": "double", "author": "a", "sources": [source]}
    return Solution.model_validate({**facts, "spec": {**spec, "calling": "value"}})


@pytest.fixture
def trace_set():
    workloads = [("double", Workload(axes={"n": n})) for n in (4, 13)]
    return TraceSet([definition()], [solution("right"), solution("wrong")], workloads)


def test_everything_is_evaluated_and_failures_stop_nothing(trace_set, capsys):
    missing = Workload.model_validate({"axes": {"n": 5}, "inputs": {"x": STORED}})
    trace_set.add_workload("double", missing)
    benchmark = Benchmark(trace_set, executor=Scripted())
    traces = benchmark.run_all(progress=True)
    found = [(t.solution, t.workload.axes["n"], t.evaluation.status.value) for t in traces]
    assert found == [
        ("right", 4, "PASSED"),
        ("wrong", 4, "RUNTIME_ERROR"),
        ("wrong", 13, "RUNTIME_ERROR"),
    ]
    assert traces[0].evaluation.speedup_factor == 3.0
    assert traces[0].evaluation.max_relative_error == 0.0
    assert "the reference fails" in benchmark.skipped[0]
    assert sum("blob/x.safetensors" in line for line in benchmark.skipped) == 2
    assert len(trace_set) == 3
    assert "6/6" in capsys.readouterr().err


def test_what_passed_is_left_out_on_resuming(trace_set):
    Benchmark(trace_set, executor=Scripted()).run_all()
    again = Scripted()
    Benchmark(trace_set, executor=again).run_all(resume=True)
    assert again.asked == [("right", 13), ("wrong", 4), ("wrong", 13)]


def test_without_recorded_workloads_those_of_bench_items_are_timed():
    executor = Scripted()
    Benchmark(TraceSet([definition()], [solution("right")]), executor=executor).run_all()
    assert executor.asked == [("right", 1000)]
