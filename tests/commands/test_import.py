"""Kernels of a dataset become files of a project."""

import json

import pytest

from pytest_fib.commands import main
from pytest_fib.data import load_definition_file

DEFINITION = {
    "name": "double",
    "op_type": "toy",
    "axes": {"n": {"type": "var"}, "d": {"type": "const", "value": 4, "description": "depth"}},
    "inputs": {"x": {"shape": ["n", "d"], "dtype": "float32"}},
    "outputs": {"y": {"shape": ["n", "d"], "dtype": "float32"}},
    "reference": "import torch\n\ndef run(x):\n    return x + x  \n",
}
SOLUTION = {
    "name": "times_two",
    "definition": "double",
    "author": "tests",
    "spec": {
        "language": "python",
        "target_hardware": ["cpu"],
        "entry_point": "main.py::run",
        "destination_passing_style": False,
    },
    "sources": [{"path": "main.py", "content": "def run(x):\n    return 2 * x\n"}],
}
WORKLOAD = {
    "definition": "double",
    "workload": {"uuid": "aaaa-1", "axes": {"n": 3}, "inputs": {"x": {"type": "random"}}},
    "solution": None,
    "evaluation": None,
}


@pytest.fixture
def dataset(project, monkeypatch):
    for path, record in (
        ("definitions/toy/double.json", DEFINITION),
        ("solutions/toy/double/times_two.json", SOLUTION),
        ("workloads/toy/double.jsonl", WORKLOAD),
    ):
        project.write(f"dataset/{path}", json.dumps(record))
    monkeypatch.chdir(project.path)
    return project


def test_what_was_imported_is_tested_like_ones_own(dataset, capsys):
    assert main(["import", "dataset"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "wrote kernel_defs/toy/double.yaml",
        "wrote kernel_impls/toy/double/times_two.json",
        "wrote kernel_defs/toy/double.workloads.jsonl",
    ]
    [loaded] = load_definition_file("kernel_defs/toy/double.yaml")
    assert loaded.definition.axes["d"].description == "depth"
    assert "  return x + x\n" in loaded.definition.reference
    result = dataset.run("-v")
    result.assert_outcomes(passed=2, deselected=1)
    result.stdout.fnmatch_lines(["*double[[]times_two-workload-*PASSED*"])


def test_what_is_there_is_left_as_it_is(dataset, capsys):
    dataset.write("kernel_defs/toy/double.yaml", "mine\n")
    assert main(["import", "dataset", "double"]) == 0
    assert "kernel_defs/toy/double.yaml exists and is kept" in capsys.readouterr().out
    assert (dataset.path / "kernel_defs/toy/double.yaml").read_text() == "mine\n"


def test_an_unknown_name_is_told(dataset, capsys):
    assert main(["import", "dataset", "dubble"]) == 2
    assert "no definition 'dubble' in dataset; it has double" in capsys.readouterr().err
