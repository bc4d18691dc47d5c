"""Datasets, recorded workloads, and failures that are kept as such."""

import fcntl
import json
from concurrent.futures import ThreadPoolExecutor

import torch
from safetensors.torch import save_file

from pytest_fib.data import Workload, load_definition_file
from pytest_fib.workloads import record_workload, recorded_workloads

DEFINITION = {
    "name": "pick",
    "op_type": "gather",
    "axes": {"n": {"type": "var"}, "m": {"type": "var"}},
    "inputs": {
        "x": {"shape": ["n"], "dtype": "float32"},
        "order": {"shape": ["m"], "dtype": "int64"},
    },
    "outputs": {"y": {"shape": ["m"], "dtype": "float32"}},
    "reference": "def run(x, order):\n    return x.__getitem__(order)\n",
}
SOLUTION = {
    "name": "index_select",
    "definition": "pick",
    "author": "me",
    "spec": {
        "language": "python",
        "target_hardware": ["cpu"],
        "entry_point": "main.py::run",
        "destination_passing_style": False,
    },
    "sources": [
        {"path": "main.py", "content": "def run(x, order):\n    return x.index_select(0, order)\n"}
    ],
}


def record(uuid, path):
    order = {"type": "safetensors", "path": path, "tensor_key": "order"}
    inputs = {"x": {"type": "random"}, "order": order}
    return {
        "definition": "pick",
        "workload": {"axes": {"n": 8, "m": 3}, "inputs": inputs, "uuid": uuid},
    }


def dataset(project):
    """One definition, solution and two workloads; of one the tensors were not fetched."""
    root = project.path / "dataset"
    project.write("dataset/definitions/gather/pick.json", json.dumps(DEFINITION))
    project.write("dataset/solutions/me/gather/pick/one.json", json.dumps(SOLUTION))
    lines = [
        record("aaaaaaaa-1", "blob/here.safetensors"),
        record("bbbbbbbb-2", "blob/lfs.safetensors"),
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    project.write("dataset/workloads/gather/pick.jsonl", text)
    project.write("dataset/blob/lfs.safetensors", "version https://git-lfs.github.com/spec/v1\n")
    save_file({"order": torch.tensor([7, 0, 7])}, root / "blob/here.safetensors")
    return root


def test_a_dataset_is_collected_beside_the_project(project, scale_yaml):
    project.define(scale_yaml)
    project.implement("good", "x, factor\nreturn x * factor")
    dataset(project)
    assert sorted(project.ids("--fib-dataset=dataset")) == [
        "dataset/definitions/gather/pick.json::pick[index_select-correctness]",
        "dataset/definitions/gather/pick.json::pick[index_select-workload-aaaaaaaa]",
        "dataset/definitions/gather/pick.json::pick[index_select-workload-bbbbbbbb]",
        "kernel_defs/toy/scale.yaml::scale[good-correctness]",
    ]


def test_recorded_tensors_are_loaded_and_what_is_missing_is_a_skip(project):
    dataset(project)
    result = project.run("--fib-dataset=dataset", "-rs")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED * nothing says what order (int64 tensor) means*; *",
            "SKIPPED * input 'order': dataset/blob/lfs.safetensors is a Git LFS pointer; *",
        ]
    )
    [trace] = project.traces()
    assert trace["workload"]["uuid"] == "aaaaaaaa-1"
    assert trace["evaluation"]["status"] == "PASSED"


def test_captured_workloads_are_timed_in_place_of_the_ladder(project):
    dataset(project)
    bench = ("--fib-dataset=dataset", "--fib-bench", "-m", 'fib(kind="bench")')
    labels = [i.partition("-bench-")[2].rstrip("]") for i in project.ids(*bench)]
    assert labels == ["aaaaaaaa", "bbbbbbbb"]
    project.run(*bench, "-k", "aaaaaaaa").assert_outcomes(passed=1)
    [trace] = project.traces()
    assert trace["workload"]["uuid"] == "aaaaaaaa-1"
    # Of eight elements of x, two are named.
    assert trace["evaluation"]["performance"]["least_bytes"] == 2 * 4 + 3 * 8 + 3 * 4


def test_a_dataset_that_is_not_there_is_a_usage_error(scale):
    result = scale.run("--fib-dataset=nowhere")
    result.stderr.fnmatch_lines(["ERROR: --fib-dataset nowhere: no such directory"])
    scale.write("data/definitions/toy/scale.json", "{}")
    result = scale.run("--fib-dataset=data/definitions")
    message = "--fib-dataset data/definitions: it has no folder definitions; did you mean data?"
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_kept_failure_is_an_item_of_its_own_from_then_on(toys):
    toys.run("-k", "tail", "--fib-examples=20", "--fib-keep-failures").assert_outcomes(failed=1)
    [line] = (toys.path / "kernel_defs/toy/scale.workloads.jsonl").read_text().splitlines()
    assert json.loads(line)["workload"]["axes"] == {"n": 65}
    toys.run("-k", "tail", "--fib-examples=20", "--fib-keep-failures")
    assert len((toys.path / "kernel_defs/toy/scale.workloads.jsonl").read_text().splitlines()) == 1
    result = toys.run("-k", "workload", "-v")
    result.assert_outcomes(passed=1, failed=1)


def test_tensors_that_mean_something_are_kept_with_a_failure(project, scale_yaml):
    text = scale_yaml.replace(
        "  x:      {shape: [n], dtype: float32}", "  x: {shape: [n], dtype: int64}"
    )
    text = text.replace("y: {shape: [n], dtype: float32}", "y: {shape: [n], dtype: int64}")
    text = text.replace("factor: {value: 3.0}", "factor: {value: 3.0}, x: {kind: permutation}")
    text = text.replace("return x * factor", "return x * 3")
    project.define(text)
    project.implement("wrong", "x, factor\nreturn x")
    project.run("--fib-keep-failures").assert_outcomes(failed=1)
    [line] = (project.path / "kernel_defs/toy/scale.workloads.jsonl").read_text().splitlines()
    stored = json.loads(line)["workload"]["inputs"]["x"]
    assert stored["type"] == "safetensors"
    assert (project.path / "kernel_defs/toy" / stored["path"]).is_file()
    project.run("-k", "workload").assert_outcomes(failed=1)


def test_a_file_that_stays_locked_costs_a_warning_and_no_verdict(project, scale_yaml):
    project.define(scale_yaml)
    project.implement("wrong", "x, factor\nreturn x")
    file = project.path / "kernel_defs/toy/scale.workloads.jsonl"
    file.touch()
    with file.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = project.run("--fib-keep-failures")
    result.assert_outcomes(failed=1, warnings=1)
    result.stdout.fnmatch_lines(["*could not be recorded: *scale.workloads.jsonl is locked by*"])


def test_workers_that_record_at_the_same_time_lose_nothing(tmp_path, scale_yaml):
    path = tmp_path / "scale.yaml"
    path.write_text(scale_yaml)
    [loaded] = load_definition_file(path)
    workloads = [
        Workload(axes={"n": n}, inputs={"x": {"type": "random"}}, seed=0) for n in range(1, 9)
    ]
    with ThreadPoolExecutor(8) as pool:
        files = list(pool.map(lambda each: record_workload(each, loaded, ()), workloads * 4))
    recorded = recorded_workloads(loaded, ())
    assert {each.workload.uuid for each in recorded.values()} == {w.uuid for w in workloads}
    assert len((tmp_path / "scale.workloads.jsonl").read_text().splitlines()) == 8
    assert files.count(None) == 24
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "scale.workloads.jsonl",
        "scale.yaml",
    ]
