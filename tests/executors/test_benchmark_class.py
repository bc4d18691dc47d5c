"""Benchmark: every solution on every workload, whatever fails."""

import contextlib
import threading

import pytest

from pytest_fib import Benchmark, Definition, Solution, Trace, TraceSet
from pytest_fib.data import DefinitionFault, Evaluation, EvaluationRequest, TensorFiles, Workload
from pytest_fib.executors import DevicePool, DeviceProcess

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

    def evaluate_all(self, requests):
        return ((request, self.evaluate(request)) for request in requests)

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
    assert sum("the reference fails" in line for line in benchmark.skipped) == 1
    named = f"right on n=5 ({missing.uuid[:8]}): recorded tensors can't be read: "
    reasons = [line for line in benchmark.skipped if "blob/x.safetensors" in line]
    assert [line.startswith(named) for line in reasons] == [True, False]
    assert len(trace_set) == 3
    assert "4/4" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "gpu"}, "device 'gpu' is not one of cpu, cuda"),
        ({"precision": "fast"}, "precision 'fast' is not one of quick, default, strict"),
        ({"timeout": 0}, "timeout should be more than 0 s, not 0"),
    ],
)
def test_an_argument_that_cannot_be_used_is_an_error_at_once(trace_set, options, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Benchmark(trace_set, **options)


def test_a_path_is_no_trace_set():
    with pytest.raises(TypeError, match=r"takes a TraceSet, .*, not 'dataset'$"):
        Benchmark("dataset")


def test_what_passed_is_left_out_on_resuming(trace_set):
    Benchmark(trace_set, executor=Scripted()).run_all()
    again = Scripted()
    Benchmark(trace_set, executor=again).run_all(resume=True)
    assert again.asked == [("right", 13), ("wrong", 4), ("wrong", 13)]


def test_without_recorded_workloads_those_of_bench_items_are_timed():
    executor = Scripted()
    Benchmark(TraceSet([definition()], [solution("right")]), executor=executor).run_all()
    assert executor.asked == [("right", 1000)]


def test_each_evaluation_has_the_precision_and_the_timeout_that_are_given(trace_set):
    asked = []

    class Noting(Scripted):
        def evaluate(self, request):
            asked.append((request.timing, request.precision, request.timeout))
            return super().evaluate(request)

    Benchmark(trace_set, executor=Noting(), precision="quick", timeout=7.0).run_all()
    assert asked == [(True, "quick", 7.0)] * 4


WHERE = """\
import os
def run(x):
    assert os.environ["CUDA_VISIBLE_DEVICES"] == {name!r}
    return x + x
"""


@pytest.mark.thorough
def test_each_device_has_a_process_that_sees_no_other(trace_set):
    """Devices are simulated: the processes' sandboxes run on the CPU, each with its own mask."""
    files = TensorFiles()
    processes = [DeviceProcess("cpu", name, files) for name in ("0", "GPU-1")]
    requests = []
    for name in ("0", "GPU-1"):
        source = {"path": "main.py", "content": WHERE.format(name=name)}
        here = Solution.model_validate({**solution(name).model_dump(), "sources": [source]})
        workload = Workload(axes={"n": 4})
        requests.append(
            EvaluationRequest(definition=definition(), solution=here, workload=workload)
        )
    with contextlib.ExitStack() as stack:
        for process in processes:
            stack.callback(process.close)
        for process, request in zip(processes, requests, strict=True):
            assert process.evaluate(request).status == "PASSED"


def test_devices_take_the_next_as_they_are_free(trace_set):
    slow, quick = Scripted(), Scripted()
    may_go_on = threading.Event()

    def waits(request):
        may_go_on.wait(10)
        return Scripted.evaluate(slow, request)

    def works(request):
        if len(quick.asked) == 2:
            may_go_on.set()
        return Scripted.evaluate(quick, request)

    slow.evaluate, quick.evaluate = waits, works
    pool = DevicePool([slow, quick])
    traces = Benchmark(trace_set, executor=pool).run_all()
    assert len(slow.asked) + len(quick.asked) == 4
    assert slow.asked
    assert len(traces) == 3


@pytest.mark.thorough
def test_a_process_that_ends_costs_one_evaluation(trace_set):
    process = DeviceProcess("nonsense", "7", TensorFiles())
    request = EvaluationRequest(
        definition=definition(), solution=solution("right"), workload=Workload(axes={"n": 4})
    )
    assert "the process of device 7 has ended" in process.evaluate(request).log


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ({"target_hardware": ["NVIDIA_H100"]}, "this run is on the CPU"),
        ({"dependencies": ["no_such_thing"]}, "needs no_such_thing, which is not installed"),
    ],
)
def test_what_cannot_run_on_this_machine_is_skipped(fact, reason):
    other = solution("right").model_dump()
    other["spec"] |= fact
    only = TraceSet([definition()], [Solution.model_validate({**other, "name": "far"})])
    benchmark = Benchmark(only, device="cpu")
    assert benchmark.run_all() == []
    assert "far on " in benchmark.skipped[0]
    assert reason in benchmark.skipped[0]


def test_a_workload_that_does_not_fit_its_definition_is_skipped(trace_set, tmp_path):
    """As a dataset may hold one."""
    trace_set.to_path(tmp_path)
    (file,) = tmp_path.rglob("workloads/**/double.jsonl")
    file.write_text(Trace(definition="double", workload=Workload(axes={"m": 4})).to_json_line())
    benchmark = Benchmark(TraceSet.from_path(tmp_path), executor=Scripted())
    assert benchmark.run_all() == []
    assert len(benchmark.skipped) == 2
    assert "unknown axis 'm'" in benchmark.skipped[0]


def test_a_definition_without_workloads_is_skipped(trace_set):
    other = {"name": "never", "constraints": ["n == n + 1"]}
    never = definition().model_dump(by_alias=True) | other
    never.pop("workloads")
    trace_set.add_definition(Definition.model_validate(never))
    benchmark = Benchmark(trace_set, executor=Scripted())
    benchmark.run_all()
    assert "never: no workload is recorded, or can be made" in benchmark.skipped


def test_records_that_cannot_be_read_are_skipped(trace_set, tmp_path):
    trace_set.to_path(tmp_path)
    (wrong,) = tmp_path.rglob("solutions/**/wrong.json")
    wrong.write_text(wrong.read_text().replace('"python"', '"rust"'))
    (path,) = tmp_path.rglob("definitions/**/double.json")
    broken = path.read_text().replace('"double"', '"triple"').replace("float32", "unknown")
    (path.parent / "triple.json").write_text(broken)
    benchmark = Benchmark(TraceSet.from_path(tmp_path), executor=Scripted())
    assert {trace.solution for trace in benchmark.run_all()} == {"right"}
    assert any("wrong: " in line and "'rust' is not one of" in line for line in benchmark.skipped)
    assert any("triple: " in line and "dtype" in line for line in benchmark.skipped)


def test_a_journal_outlives_its_driver(trace_set, tmp_path):
    class Dying(Scripted):
        def evaluate(self, request):
            if len(self.asked) == 1:
                raise KeyboardInterrupt
            return super().evaluate(request)

    journal = tmp_path / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        Benchmark(trace_set, executor=Dying()).run_all(journal=journal)
    with journal.open("a") as file:
        file.write('{"definition": "dou')
    again = Scripted()
    fresh = TraceSet([definition()], [solution("right"), solution("wrong")])
    for n in (4, 13):
        fresh.add_workload("double", Workload(axes={"n": n}))
    Benchmark(fresh, executor=again).run_all(journal=journal, resume=True)
    assert again.asked == [("right", 13), ("wrong", 4), ("wrong", 13)]
    assert len(journal.read_text().splitlines()) == 3
    assert len(fresh) == 3
