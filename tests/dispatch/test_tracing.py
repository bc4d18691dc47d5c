"""Tracing: which calls are recorded, what of them, and that serving goes on whatever happens."""

import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from pkgutil import resolve_name
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from pytest_fib import (
    Definition,
    TraceSet,
    TracingConfig,
    apply,
    disable_apply,
    disable_tracing,
    enable_apply,
    enable_tracing,
)

ROOT = Path(__file__).parents[2]
DEFINITION = Definition.model_validate(
    {
        "name": "pick",
        "op_type": "gather",
        "axes": {"n": "var", "m": "var"},
        "inputs": {
            "x": {"shape": ["n"], "dtype": "float32"},
            "at": {"shape": ["m"], "dtype": "int64"},
            "factor": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["m"], "dtype": "float32"}},
        "reference": "def run(x, at, factor):\n    return x[at] * factor\n",
    }
)


@apply("pick")
def pick(x, at, factor=1.0):
    return x[at] * factor


def call(n=4, m=2, value=0, factor=1.0):
    return pick(torch.arange(float(n)), torch.full((m,), value), factor)


@pytest.fixture
def dataset(tmp_path):
    TraceSet([DEFINITION]).to_path(tmp_path)
    yield tmp_path
    disable_tracing()
    disable_apply()


def recorded(dataset):
    return [trace.workload for trace in TraceSet.from_path(dataset).workloads["pick"]]


def test_one_call_of_each_shape_is_recorded_with_how_often_it_came(dataset):
    with enable_tracing(dataset) as tracer:
        for n in (4, 4, 5, 4):
            assert call(n, factor=2.0).tolist() == [0.0, 0.0]
    call(6)
    assert tracer.stats.recorded == 2
    four, five = recorded(dataset)
    assert (four.axes, five.axes) == ({"n": 4, "m": 2}, {"n": 5, "m": 2})
    assert four.inputs["factor"].value == 2.0
    assert four.inputs["x"].type == "random"
    tensors = load_file(dataset / four.inputs["at"].path)
    assert tensors["at"].tolist() == [0, 0]
    assert list(TraceSet.from_path(dataset).counts("pick").values()) == [3, 1]


@pytest.mark.parametrize(
    ("dump", "stored"),
    [
        ("dump_all", {"x", "at"}),
        ("dump_none", set()),
        ("dump_non_float", {"at"}),
        (["x"], {"x"}),
        (["at", "factor"], {"at"}),
    ],
)
def test_values_are_kept_as_the_policy_says(dataset, dump, stored):
    with enable_tracing(dataset, {"pick": TracingConfig(tensor_dump_policy=dump)}):
        call()
    (workload,) = recorded(dataset)
    kept = {name for name, given in workload.inputs.items() if given.type == "safetensors"}
    assert kept == stored


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (TracingConfig(dedup_policy="keep_all"), [0, 1, 2, 3]),
        (TracingConfig(dedup_policy="keep_first_k", k=2), [0, 1]),
        (TracingConfig(dedup_policy=lambda w: w.inputs["factor"].value), [0, 2]),
    ],
)
def test_calls_are_kept_as_the_policy_says(dataset, config, values):
    with enable_tracing(dataset, {"pick": config}):
        for value in range(4):
            call(value=value, factor=float(value // 2))
    paths = [workload.inputs["at"].path for workload in recorded(dataset)]
    assert [load_file(dataset / path)["at"][0].item() for path in paths] == values
    assert sum(TraceSet.from_path(dataset).counts("pick").values()) == 4


def test_calls_that_are_routed_are_recorded_too_and_strange_ones_are_not(dataset):
    with enable_apply(dataset), enable_tracing(dataset) as tracer:
        call()
        assert pick(torch.zeros(4, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)) == 0
        with pytest.raises(TypeError, match="missing"):
            pick(torch.zeros(4))
        call()
    assert tracer.stats.recorded == 1
    assert list(TraceSet.from_path(dataset).counts("pick").values()) == [2]


def test_only_configured_definitions_are_recorded_and_mistakes_are_refused(dataset):
    with enable_tracing(dataset, {"another": TracingConfig()}):
        call()
    assert recorded(dataset) == []
    with pytest.raises(ValueError, match="'dump_some' is not one of dump_all"):
        TracingConfig(tensor_dump_policy="dump_some")
    with pytest.raises(ValueError, match="'keep' is not one of keep_all"):
        TracingConfig(dedup_policy="keep")
    with pytest.raises(ValueError, match="pick has no input y"):
        enable_tracing(dataset, {"pick": TracingConfig(tensor_dump_policy=["at", "y"])})


def test_a_new_dataset_gets_the_definitions_of_what_is_recorded(tmp_path):
    other = DEFINITION.model_copy(update={"name": "other"})
    known = TraceSet([DEFINITION, other])
    with enable_tracing(tmp_path / "new", {"pick": TracingConfig()}, trace_set=known):
        call()
    assert list(TraceSet.from_path(tmp_path / "new").definitions) == ["pick"]
    assert len(recorded(tmp_path / "new")) == 1
    (tmp_path / "file").write_text("in the way")
    with enable_tracing(tmp_path / "file", trace_set=known) as tracer:
        assert call().tolist() == [0.0, 0.0]
    assert tracer.stats.failed == 1


def test_a_dataset_that_cannot_be_written_is_one_warning_and_a_count(dataset, caplog):
    (dataset / "workloads").write_text("in the way")
    with caplog.at_level(logging.WARNING), enable_tracing(dataset) as tracer:
        for n in range(1, 5):
            assert call(n).tolist() == [0.0, 0.0]
    assert (tracer.stats.recorded, tracer.stats.failed) == (0, 4)
    assert len(caplog.records) == 1


def test_calls_that_find_the_queue_full_are_counted_and_served(dataset, monkeypatch):
    may_go_on = threading.Event()
    store = "pytest_fib.dispatch._store.store_workload"
    monkeypatch.setattr(store, blocked(may_go_on))
    with enable_tracing(dataset, waiting=1) as tracer:
        for n in range(1, 9):
            assert call(n).tolist() == [0.0, 0.0]
        assert tracer.stats.dropped >= 6
        may_go_on.set()
        monkeypatch.undo()
        tracer.flush()
        call(8)  # which was dropped
    assert [workload.axes["n"] for workload in recorded(dataset)][-1:] == [8]


@pytest.mark.parametrize("policy", [lambda workload: 1 / 0, lambda workload: []])
def test_a_policy_that_fails_is_one_warning_and_a_count(dataset, caplog, policy):
    configs = {"pick": TracingConfig(dedup_policy=policy)}
    with caplog.at_level(logging.WARNING), enable_tracing(dataset, configs) as tracer:
        for n in range(1, 4):
            assert call(n).tolist() == [0.0, 0.0]
    assert (tracer.stats.recorded, tracer.stats.failed, len(caplog.records)) == (0, 3, 1)
    assert re.search("and are not: (ZeroDivision|Type)Error: ", caplog.text)


def test_names_of_inputs_may_come_from_a_generator(dataset):
    with enable_tracing(dataset, {"pick": TracingConfig(name for name in ["x"])}):
        call()
    ((workload),) = recorded(dataset)
    assert workload.inputs["x"].type == "safetensors"


def test_keeping_none_of_each_shape_is_refused():
    with pytest.raises(ValueError, match="k should be at least 1, not 0"):
        TracingConfig(dedup_policy="keep_first_k", k=0)


def test_a_device_without_memory_for_a_copy_is_one_warning_and_a_count(
    dataset, monkeypatch, caplog
):
    def no_memory(tensor):
        raise torch.OutOfMemoryError("no memory left")

    with caplog.at_level(logging.WARNING), enable_tracing(dataset) as tracer:
        with monkeypatch.context() as scarce:
            scarce.setattr(torch.Tensor, "clone", no_memory)
            for n in range(1, 4):
                assert call(n).tolist() == [0.0, 0.0]
        call(1)
    assert (tracer.stats.recorded, tracer.stats.failed, len(caplog.records)) == (1, 3, 1)


def test_a_config_of_no_definition_is_a_warning(dataset, caplog):
    with caplog.at_level(logging.WARNING), enable_tracing(dataset, {"pikc": TracingConfig()}):
        call()
    assert caplog.messages == ["pikc: no calls are recorded: there is no such definition"]


def test_counts_are_written_while_new_calls_keep_coming(dataset, monkeypatch):
    sizes = iter(range(2, 50))
    counted, ended, were_counted = threading.Event(), threading.Event(), []

    def store(*arguments):
        if not counted.is_set() and (n := next(sizes, 0)):
            call(n)  # before the writer can find nothing to do
        else:
            were_counted.append(counted.is_set())
            ended.set()
        return SimpleNamespace(uuid="some")

    monkeypatch.setattr("pytest_fib.dispatch._store.store_workload", store)
    monkeypatch.setattr("pytest_fib.data.write_counts", lambda *arguments: counted.set())
    monkeypatch.setattr("pytest_fib.dispatch._tracing.COUNTS_INTERVAL", 0.0)
    with enable_tracing(dataset):
        call(1)
        assert ended.wait(60)
        monkeypatch.undo()
    assert were_counted == [True]


def blocked(event):
    def store(*arguments):
        event.wait(10)
        raise OSError("no room")

    return store


def test_several_writers_share_a_dataset(dataset):
    for _ in range(2):
        with enable_tracing(dataset):
            call()
    assert len(recorded(dataset)) == 1
    assert list(TraceSet.from_path(dataset).counts("pick").values()) == [2]


def test_a_line_that_was_cut_off_costs_that_record_only(dataset):
    with enable_tracing(dataset):
        call(4)
        call(5)
    path = dataset / "workloads/gather/pick.jsonl"
    path.write_text(path.read_text()[:-9])
    assert len(recorded(dataset)) == 1
    with enable_tracing(dataset):
        call(6)
    assert [workload.axes["n"] for workload in recorded(dataset)] == [4, 6]
    assert all(json.loads(line) for line in path.read_text().splitlines())


SIGNALLED = """\
import sys, time
import torch
from pytest_fib import apply, disable_tracing, enable_tracing

@apply("pick")
def pick(x, at, factor=1.0):
    return x[at] * factor

enable_tracing(sys.argv[1])
disable_tracing()
enable_tracing(sys.argv[1])
assert "safetensors.torch" in sys.modules, "a process forked while a thread imports it lacks it"
for n in (4, 4, 7):
    pick(torch.zeros(n), torch.zeros(2, dtype=torch.int64))
print("ready", flush=True)
time.sleep(30)
"""


@pytest.mark.thorough
def test_what_was_captured_is_written_before_a_signal_ends_the_process(dataset):
    process = subprocess.Popen(
        [sys.executable, "-c", SIGNALLED, str(dataset)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM
    assert sorted(TraceSet.from_path(dataset).counts("pick").values()) == [1, 2]


def test_contexts_nest(dataset, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    TraceSet([DEFINITION]).to_path(other)
    with enable_tracing(dataset):
        with enable_tracing(other):
            call(4)
        call(5)
        disable_tracing()
        call(6)
    assert [workload.axes["n"] for workload in recorded(other)] == [4]
    assert [workload.axes["n"] for workload in recorded(dataset)] == [5]


def threads_that_write():
    return [each for each in threading.enumerate() if each.name == "pytest-fib-tracing"]


def test_no_thread_outlives_its_tracer(dataset):
    before = threads_that_write()
    with enable_tracing(dataset), enable_tracing(dataset):
        call(4)
        assert len(threads_that_write()) == len(before) + 2
    assert threads_that_write() == before
    for n in (5, 6, 7):
        last = enable_tracing(dataset)
        call(n)
    # The last one and the one before it, which a context would end with; the first was closed.
    assert len(threads_that_write()) == len(before) + 2
    disable_tracing()
    assert threads_that_write() == before
    last.flush()
    assert sorted(workload.axes["n"] for workload in recorded(dataset)) == [4, 5, 6, 7]


def test_a_call_that_was_under_way_when_its_tracer_ended_is_counted_and_served(dataset):
    begun, ended = threading.Event(), threading.Event()

    def policy(workload):
        """The first call waits here."""
        if workload.axes["n"] == 4:
            begun.set()
            assert ended.wait(30.0)
        return workload.axes["n"]

    tracer = enable_tracing(dataset, {"pick": TracingConfig(dedup_policy=policy)})
    results = []
    thread = threading.Thread(target=lambda: results.append(call(4).tolist()))
    thread.start()
    assert begun.wait(30.0)
    call(5)
    disable_tracing()
    ended.set()
    thread.join(30.0)
    assert results == [[0.0, 0.0]]
    assert (tracer.stats.recorded, tracer.stats.dropped) == (1, 1)
    tracer.flush()


WRITING = """\
import sys
import torch
from pytest_fib import TracingConfig, apply, enable_tracing

@apply("pick")
def pick(x, at, factor=1.0):
    return x[at] * factor

config = TracingConfig(dedup_policy="keep_all", tensor_dump_policy="dump_all")
with enable_tracing(sys.argv[1], {"pick": config}, waiting=10_000) as tracer:
    print("ready", flush=True)
    for n in range(1, int(sys.argv[3])):
        pick(torch.full((n,), float(sys.argv[2])), torch.zeros(2, dtype=torch.int64))
        if n % 5 == 0:
            tracer.flush()
        if n == 5:
            print("written", flush=True)
"""


def test_processes_write_together_and_one_that_is_killed_costs_no_other(dataset):
    def start(mark, number):
        command = [sys.executable, "-c", WRITING, str(dataset), str(mark), str(number)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    endless, short = start(1, 1_000_000), start(2, 60)
    assert endless.stdout.readline() == short.stdout.readline() == "ready\n"
    assert short.wait(120) == 0
    assert endless.stdout.readline() == "written\n"  # a busy machine may not have let it begin
    endless.kill()
    endless.wait()
    workloads = recorded(dataset)
    marks = [load_file(dataset / w.inputs["x"].path)["x"][0].item() for w in workloads]
    assert marks.count(2.0) == 59
    assert 1.0 in marks
    assert sum(TraceSet.from_path(dataset).counts("pick").values()) >= 59


def test_a_full_disk_is_one_warning_and_a_count(dataset, monkeypatch, caplog):
    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("pytest_fib.dispatch._store._append", full)
    with caplog.at_level(logging.WARNING), enable_tracing(dataset) as tracer:
        for n in range(1, 4):
            assert call(n).tolist() == [0.0, 0.0]
    assert (tracer.stats.recorded, tracer.stats.failed, len(caplog.records)) == (0, 3, 1)
    assert "No space left on device" in caplog.text
    assert recorded(dataset) == []


FORKING = """\
import multiprocessing
import os
import sys
import torch
from pytest_fib import apply, enable_tracing

@apply("pick")
def pick(x, at, factor=1.0):
    return x[at] * factor

with enable_tracing(sys.argv[1]) as tracer:
    pick(torch.zeros(4), torch.zeros(2, dtype=torch.int64))
    tracer.flush()
    if not os.fork():
        for n in (4, 7):
            pick(torch.zeros(n), torch.zeros(2, dtype=torch.int64))
        tracer.flush()
        os._exit(0)
    os.wait()
    arguments = torch.zeros(9), torch.zeros(2, dtype=torch.int64)
    child = multiprocessing.get_context("fork").Process(target=pick, args=arguments)
    child.start()
    child.join()
"""


def test_a_forked_process_counts_what_was_not_written_before(dataset, monkeypatch):
    """What waits when a process forks is written by that process alone, with its own count."""
    may_go_on, place = dataset / "may go on", "pytest_fib.dispatch._store.store_workload"
    store = resolve_name(place)

    def delayed(*arguments):
        while not may_go_on.exists():
            time.sleep(0.001)
        return store(*arguments)

    monkeypatch.setattr(place, delayed)
    with enable_tracing(dataset) as tracer:
        call(4)
        call(7)
        child = os.fork()
        if child == 0:
            call(4)
            call(4)
            may_go_on.touch()
            tracer.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    uuids = {workload.axes["n"]: workload.uuid for workload in recorded(dataset)}
    counts = TraceSet.from_path(dataset).counts("pick")
    assert {n: counts[uuid] for n, uuid in uuids.items()} == {4: 3, 7: 1}


def test_a_forked_process_records_its_own_calls(dataset):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", FORKING, str(dataset)]
    subprocess.run(command, check=True, env=environment, timeout=120)
    counts = {w.axes["n"]: w.uuid for w in recorded(dataset)}
    counted = TraceSet.from_path(dataset).counts("pick")
    assert {n: counted[uuid] for n, uuid in counts.items()} == {4: 2, 7: 1, 9: 1}
