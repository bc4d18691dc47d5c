"""Datasets as serving engines dump them: what stops a test is said, and the others go on."""

import json
import os
import shlex
import shutil

import pytest
import torch
from safetensors.torch import save_file

DOUBLE = {
    "name": "double",
    "op_type": "toy",
    "axes": {"n": {"type": "var"}, "width": {"type": "const", "value": 4}},
    "inputs": {"x": {"shape": ["n", "width"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "width"], "dtype": "float32"}},
    "reference": "def run(x):\n    return 2 * x\n",
}
PICK = {
    "name": "pick",
    "op_type": "toy",
    "axes": {"n": {"type": "var"}, "m": {"type": "var"}},
    "constraints": ["m <= n"],
    "inputs": {
        "x": {"shape": ["n"], "dtype": "float32"},
        "order": {"shape": ["m"], "dtype": "int64"},
        "factor": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["m"], "dtype": "float32"}},
    "reference": "def run(x, order, factor):\n    return x.__getitem__(order) * factor\n",
}
SAMPLE = {
    "name": "sample",
    "op_type": "sampling",
    "axes": {"rows": {"type": "var"}, "vocab_size": {"type": "const", "value": 40}},
    "inputs": {
        "probs": {"shape": ["rows", "vocab_size"], "dtype": "float32"},
        "top_k": {"shape": ["rows"], "dtype": "int32"},
    },
    "outputs": {"samples": {"shape": ["rows"], "dtype": "int64"}},
    "reference": """\
import torch

def run(probs, top_k):
    rank = probs.argsort(dim=-1, descending=True).argsort(dim=-1)
    return torch.multinomial(probs.where(rank < top_k[:, None], 0), 1)[:, 0]
""",
}
ORDER = {"type": "safetensors", "path": "blob/order.safetensors", "tensor_key": "order"}
INPUTS = {"x": {"type": "random"}, "order": ORDER, "factor": {"type": "scalar", "value": 2.0}}


class Dataset:
    """A folder in the layout of datasets, with a solution for every definition."""

    def __init__(self, project):
        self.project = project

    def define(self, definition, folder="toy", content=None, **changes):
        data = {**definition, **changes}
        name = data["name"]
        self._write(f"definitions/{folder}/{name}.json", json.dumps(data))
        self.solve(name, data, content)

    def solve(self, name, data, content=None):
        body = "2 * x" if "order" not in data["inputs"] else "x.index_select(0, order) * factor"
        content = content or f"def run({', '.join(data['inputs'])}):\n    return {body}\n"
        solution = {
            "name": "one",
            "definition": name,
            "author": "me",
            "spec": {
                "language": "python",
                "target_hardware": ["cpu"],
                "entry_point": "main.py::run",
                "destination_passing_style": False,
            },
            "sources": [{"path": "main.py", "content": content}],
        }
        self._write(f"solutions/me/toy/{name}/one.json", json.dumps(solution))

    def record(self, *lines, folder="toy", name="pick"):
        text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
        self._write(f"workloads/{folder}/{name}.jsonl", text)

    def store(self, **tensors):
        path = self.project.path / "dataset/blob/order.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, path)

    def run(self, *arguments):
        return self.project.run("--fib-dataset=dataset", "-rs", *arguments)

    def _write(self, path, text):
        self.project.write(f"dataset/{path}", text)


@pytest.fixture
def dataset(project):
    return Dataset(project)


def workload(uuid="aaaaaaaa-1", axes=None, **inputs):
    """A line of a file of workloads."""
    case = {"uuid": uuid, "axes": axes or {"n": 8, "m": 3}, "inputs": {**INPUTS, **inputs}}
    return {"definition": "pick", "workload": case, "solution": None, "evaluation": None}


# Definitions.


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (
            {"reference": "def reference(x):\n    return 2 * x\n"},
            "reference: no function 'run' at its top level",
        ),
        (
            {"inputs": {"x": {"shape": ["n", "width"], "dtype": "unknown"}}},
            "inputs.x.dtype: 'unknown' is not one of float32, *",
        ),
        (
            {"inputs": {"x": {"shape": ["n", "height"], "dtype": "float32"}}},
            "inputs.x.shape[[]1]: unknown axis 'height'*",
        ),
        ({"reference": "def run(x:\n"}, "reference: not Python: *"),
        ({"axes": {"n": {"type": "var"}, "width": {"type": "const"}}}, "axes.width: missing key *"),
    ],
)
def test_what_stops_a_definition_is_said_and_the_others_go_on(dataset, changes, reason):
    dataset.define(DOUBLE)
    dataset.define(DOUBLE, name="dumped", **changes)
    result = dataset.run()
    result.assert_outcomes(passed=1, skipped=1)
    place = "dataset/definitions/toy/dumped.json"
    result.stdout.fnmatch_lines([f"SKIPPED * can't be tested: {place}:*: {reason}"])


def test_what_stops_no_definition(dataset):
    """Keys that the schema does not have, inputs that may be left out, dots in a name."""
    x = {**DOUBLE["inputs"]["x"], "optional": True, "alignment": 16}
    dataset.define(DOUBLE, name="double.v2", inputs={"x": x}, engine={"version": 3}, optional=1)
    dataset.run().assert_outcomes(passed=1)


@pytest.mark.thorough
@pytest.mark.parametrize(("content", "passed"), [("top_k", 1), ("top_k + 1", 0)])
def test_samplers_are_judged_by_what_they_may_choose(dataset, content, passed):
    """Datasets have no tolerances, and no two calls of a sampler are alike."""
    dataset.define(SAMPLE, "sampling", SAMPLE["reference"].replace("top_k[:", f"({content})[:"))
    result = dataset.run("--fib-examples=4")
    result.assert_outcomes(passed=passed, failed=1 - passed)
    if not passed:
        result.stdout.fnmatch_lines(["INCORRECT_NUMERICAL: samples: row * chose token *"])


def test_a_file_that_is_no_json_is_a_skip(dataset, project):
    dataset.define(DOUBLE)
    project.write("dataset/definitions/toy/broken.json", '{"name": "broken",\n')
    result = dataset.run()
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * can't be tested: *broken.json:2: bad JSON: *"])


def test_inputs_and_constraints_that_nothing_can_be_made_of_are_skips(dataset):
    dataset.define(DOUBLE)
    dataset.define(DOUBLE, name="never", constraints=["n >= 9", "n <= 5"])
    dataset.define(PICK)
    result = dataset.run()
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED * axis 'n' (1 to 134217728): no value meets 'n >= 9' and 'n <= 5'",
            "SKIPPED * nothing says what order (int64 tensor) means*; *",
        ]
    )


@pytest.mark.thorough
def test_many_definitions_go_on_after_one_that_is_broken(dataset):
    for number in range(20):
        changes = {} if number % 5 else {"reference": "def reference(x): ..."}
        dataset.define(DOUBLE, name=f"double_{number}", **changes)
    dataset.run().assert_outcomes(passed=16, skipped=4)


def test_a_selection_leaves_broken_definitions_out(dataset):
    dataset.define(DOUBLE)
    dataset.define(DOUBLE, name="dumped", reference="def reference(x): ...")
    dataset.run("--fib-definition=double").assert_outcomes(passed=1)


def test_a_dataset_elsewhere_may_be_given_after_a_blank(dataset, project, tmp_path):
    """pytest then has another rootdir, where no implementations are."""
    dataset.define(DOUBLE)
    elsewhere = (project.path / "dataset").rename(tmp_path / "elsewhere")
    shutil.rmtree(elsewhere / "solutions")
    (project.path / "tox.ini").unlink()
    project.implement("ours", "x\nreturn x + x", "double")
    result = project.run(
        "--fib-dataset", str(elsewhere), "--fib-isolation=none", "-v", "-k", "ours"
    )
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line(f"rootdir: {project.path}")


@pytest.mark.parametrize("where", [".", "below"])
def test_a_replay_runs_the_failed_test_alone(dataset, project, monkeypatch, where):
    """In the folder where pytest was started."""
    for name in ("wrong", "right", "other"):
        content = "def run(x):\n    return x\n" if name == "wrong" else None
        dataset.define(DOUBLE, name=name, content=content)
    (project.path / where).mkdir(exist_ok=True)
    monkeypatch.chdir(project.path / where)
    there = os.path.relpath(project.path / "dataset")
    result = project.run(f"--fib-dataset={there}", there, "--fib-examples=3")
    result.assert_outcomes(passed=2, failed=1)
    command, *_ = [line for line in result.outlines if line.startswith("  pytest ")]
    project.run(*shlex.split(command)[1:]).assert_outcomes(failed=1)


def test_the_header_names_the_datasets(dataset):
    dataset.define(DOUBLE)
    result = dataset.run("--collect-only")
    result.stdout.fnmatch_lines(["fib: device cpu, definitions in dataset/definitions, *"])


def test_a_folder_of_a_dataset_is_collected_alone(dataset):
    dataset.define(DOUBLE)
    dataset.define(DOUBLE, folder="others", name="other")
    dataset.run("dataset/definitions/others").assert_outcomes(passed=1)


def test_a_replay_of_a_projects_kernel_does_not_run_the_dataset(dataset, project):
    dataset.define(DOUBLE, name="other")
    project.define(json.dumps({**DOUBLE, "axes": {"n": "var", "width": 4}}), "kernel_defs/d.yaml")
    project.implement("wrong", "x\nreturn x", "double")
    result = dataset.run("--fib-examples=3", "kernel_defs")
    result.assert_outcomes(passed=1, failed=1)
    command, *_ = [line for line in result.outlines if line.startswith("  pytest ")]
    project.run(*shlex.split(command)[1:]).assert_outcomes(failed=1)


def test_definitions_of_one_name_are_told_apart_in_tables_and_traces(dataset, project):
    dataset.define(DOUBLE)
    project.define(json.dumps({**DOUBLE, "description": "x twice"}), "kernel_defs/d.yaml")
    result = dataset.run("--fib-examples=3")
    result.assert_outcomes(passed=2)
    files = ["dataset/definitions/toy/double.json", "kernel_defs/d.yaml"]
    result.stdout.fnmatch_lines([f"*- double ({file}) -*" for file in files])
    assert sorted(trace["definition_file"] for trace in project.traces()) == files


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"axes": {"n": "var", "width": 8}}, "axes"),
        ({"outputs": {"y": {**DOUBLE["outputs"]["y"], "dtype": "float64"}}}, "outputs"),
    ],
)
def test_another_definition_of_a_name_of_the_project_names_both_files(
    dataset, project, changes, what
):
    dataset.define(DOUBLE)
    project.define(json.dumps({**DOUBLE, **changes}), "kernel_defs/d.yaml")
    result = dataset.run("--fib-examples=3", "-rs", "-k", "definition")
    result.assert_outcomes(skipped=1)
    output = " ".join(result.stdout.str().split())
    assert (
        f"double.json:1: name: 'double' is defined in kernel_defs/d.yaml:1 with other {what};"
        in output
    )


# Recorded workloads.


def test_a_recorded_workload_is_a_test(dataset):
    dataset.define(PICK)
    dataset.store(order=torch.tensor([7, 0, 7]))
    older = workload("bbbbbbbb-1", axes={"n": 8, "m": 3})
    older["workload"]["inputs"]["x"] = {"type": "random", "dtype": "float32"}
    dataset.record(workload(), older)
    dataset.run("-k", "workload").assert_outcomes(passed=2)


def test_tables_show_the_sizes_of_recorded_workloads_smallest_first(dataset):
    dataset.define(PICK)
    dataset.store(order=torch.tensor([7, 0, 7]))
    large = workload("aaaaaaaa-1", axes={"n": 10_000, "m": 3})
    dataset.record(large, workload("bbbbbbbb-1", axes={"n": 8_000, "m": 3}))
    result = dataset.run("-k", "bench", "--fib-bench", "--fib-max-bytes=9")
    small, large = (f"one *n={n}, m=3 (*) *SKIPPED  needs *" for n in (8000, 10_000))
    result.stdout.fnmatch_lines([small, large])


def test_workloads_are_found_where_their_definition_lies(dataset):
    """Some datasets have definitions in another folder than that of their op_type."""
    dataset.define(PICK, folder="gather")
    dataset.store(order=torch.tensor([7, 0, 7]))
    dataset.record(workload(), folder="gather")
    dataset.run("-k", "workload").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (workload(axes={"n": 8}), "no value for axis 'm'"),
        (workload(axes={"n": 2, "m": 3}), "axes: {'n': 2, 'm': 3} break the constraint 'm <= n'"),
        (workload(z={"type": "random"}), "inputs: 'z' is not one of x, order, factor"),
        (
            workload(x={"type": "scalar", "value": 3}),
            "input 'x': scalar was given for a float32 tensor",
        ),
        (workload(factor=ORDER), "input 'factor': safetensors was given for a float32 scalar"),
    ],
)
def test_a_workload_that_does_not_fit_is_a_skip(dataset, line, reason):
    dataset.define(PICK)
    dataset.store(order=torch.tensor([7, 0, 7]))
    dataset.record(line, workload("bbbbbbbb-2"))
    result = dataset.run("-k", "workload")
    result.assert_outcomes(passed=1, skipped=1)
    uuid = line["workload"]["uuid"]
    result.stdout.fnmatch_lines([f"SKIPPED * workload {uuid} does not fit pick: {reason}"])


def test_a_broken_line_is_a_skip(dataset):
    dataset.define(PICK)
    dataset.store(order=torch.tensor([7, 0, 7]))
    odd = {"definition": "pick", "workload": {"axes": {"n": "three"}, "inputs": {}}}
    dataset.record('{"definition": "pick", "wor', workload(), odd)
    result = dataset.run("-k", "workload")
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(
        [
            "SKIPPED * can't be tested: dataset/workloads/toy/pick.jsonl:1: bad JSON: *",
            "SKIPPED * dataset/workloads/toy/pick.jsonl:3: workload.axes.n: should be a whole *",
        ]
    )


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({"order": torch.tensor([7, 0])}, "'order' has shape torch.Size([[]2[]]), not torch*"),
        ({"order": torch.tensor([7, 0, 7]).int()}, "'order' has dtype torch.int32, not torch.int*"),
        ({"other": torch.tensor([7, 0, 7])}, "'order' can't be read: *"),
    ],
)
def test_a_file_with_other_tensors_blames_no_implementation(dataset, tensors, reason):
    dataset.define(PICK)
    dataset.store(**tensors)
    dataset.record(workload())
    result = dataset.run("-k", "workload")
    result.assert_outcomes(failed=1)
    place = "a recorded workload can't be used: *dataset/blob/order.safetensors: "
    result.stdout.fnmatch_lines([f"*{place}{reason}*"])
    assert dataset.project.traces() == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "does not exist"),
        ("version https://git-lfs.github.com/spec/v1\n", "is a Git LFS pointer; fetch it with: *"),
    ],
)
def test_tensors_that_are_not_there_are_a_skip(dataset, project, content, reason):
    dataset.define(PICK)
    if content is not None:
        project.write("dataset/blob/order.safetensors", content)
    dataset.record(workload())
    result = dataset.run("-k", "workload")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED * input 'order': dataset/blob/order.safe* {reason}"])


def test_recorded_tensors_need_only_meet_what_the_definition_states(dataset, project):
    """Our own pages would be distinct; an engine may share them between sequences."""
    shared = {
        **PICK,
        "name": "pick",
        "axes": {**PICK["axes"], "num_pages": {"type": "var"}},
        "constraints": [],
        "inputs": {
            "x": {"shape": ["num_pages"], "dtype": "float32"},
            "kv_indices": {"shape": ["m"], "dtype": "int64"},
        },
        "reference": "def run(x, kv_indices):\n    return x[kv_indices]\n",
    }
    dataset.define(shared)
    solution = project.path / "dataset/solutions/me/toy/pick/one.json"
    solution.write_text(solution.read_text().replace("2 * x", "x.index_select(0, kv_indices)"))
    dataset.store(kv_indices=torch.tensor([1, 0, 1]))
    line = workload(axes={"n": 1, "m": 3, "num_pages": 2})
    line["workload"]["inputs"] = {"kv_indices": {**ORDER, "tensor_key": "kv_indices"}}
    dataset.record(line)
    dataset.run("-k", "workload").assert_outcomes(passed=1)
    # Made by us, three distinct pages of two are too many.
    line["workload"]["inputs"] = {}
    dataset.record(line)
    result = dataset.run("-k", "workload")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED * break the constraint 'm <= num_pages'"])


def test_recorded_tensors_that_break_what_is_stated_are_reported_with_its_text(dataset):
    dataset.define(PICK, constraints=["order.max() < n"])
    dataset.store(order=torch.tensor([7, 0, 9]))
    dataset.record(workload())
    result = dataset.run("-k", "workload")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a workload of pick was recorded that breaks 'order.max() < n'*"])


def test_only_the_tensors_that_are_needed_are_read(dataset, monkeypatch):
    import safetensors

    read = []

    class Watched:
        def __init__(self, *args, **kwargs):
            self._file = safetensors_open(*args, **kwargs)

        def __enter__(self):
            self._opened = self._file.__enter__()
            return self

        def __exit__(self, *error):
            return self._file.__exit__(*error)

        def get_tensor(self, key):
            read.append(key)
            return self._opened.get_tensor(key)

    safetensors_open = safetensors.safe_open
    monkeypatch.setattr(safetensors, "safe_open", Watched)
    dataset.define(PICK)
    dataset.store(order=torch.tensor([7, 0, 7]), other=torch.zeros(1 << 20))
    dataset.record(workload())
    dataset.run("-k", "workload").assert_outcomes(passed=1)
    assert set(read) == {"order"}
