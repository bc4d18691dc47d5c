"""What a run of a project wrote becomes part of a dataset, with the implementations it names."""

import re

import pytest

from pytest_fib import TraceSet
from pytest_fib.commands import main
from tests.data.test_trace_set import definition, solution, trace

EVERY = """\
from pytest_fib import implements

@implements("scale*")
def run(x, factor):
    return x * factor
"""


@pytest.fixture
def measured(project, monkeypatch, scale_yaml):
    monkeypatch.chdir(project.path)
    project.define(scale_yaml)
    project.define(scale_yaml.replace("name: scale", "name: scale_too"), "kernel_defs/too.yaml")
    project.write("kernel_impls/every.py", EVERY)
    assert project.run("--fib-examples=2").ret == 0
    return project


def test_implementations_of_a_project_come_along_under_names_of_their_own(measured):
    assert main(["traces", "merge", "fib-traces.jsonl", "-o", "dataset"]) == 0
    dataset = TraceSet.from_path("dataset")
    names = [solution.name for each in dataset.solutions.values() for solution in each]
    assert names == ["scale_every", "scale_too_every"]
    assert {trace.solution for trace in dataset.traces["scale_too"]} == {"scale_too_every"}
    assert "return x * factor" in dataset.solution("scale_every").sources[0].content
    assert main(["traces", "merge", "dataset", "fib-traces.jsonl", "-o", "dataset"]) == 0
    assert len(TraceSet.from_path("dataset").solutions["scale"]) == 1
    assert len(TraceSet.from_path("dataset")) == len(dataset)


def test_what_an_export_has_no_place_for_is_said(measured, capsys):
    assert main(["traces", "export", "fib-traces.jsonl", "dataset"]) == 0
    without = "left out, since FlashInfer Trace has no place for it: workloads of scale\n"
    assert without in capsys.readouterr().out


def test_export_stands_beside_import_too(measured, monkeypatch):
    assert main(["export", "fib-traces.jsonl", "dataset"]) == 0
    monkeypatch.chdir(measured.path / "dataset")
    assert main(["import", ".", "scale"]) == 0
    assert (measured.path / "dataset/kernel_defs/elementwise/scale.yaml").is_file()


def test_validation_tells_figures_that_nothing_can_have(tmp_path, capsys):
    made = TraceSet([definition()], [solution("fast")], traces=[trace("fast")])
    made.save(tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text()
    assert main(["traces", "validate", str(tmp_path / "all.json")]) == 0
    (tmp_path / "all.json").write_text(re.sub(r'("latency_ms": ?)[\d.]+', r"\1-1.0", text))
    assert main(["traces", "validate", str(tmp_path / "all.json")]) == 1
    said = "a trace of scale by fast: performance.latency_ms is -1.0\nproblems: 1\n"
    assert capsys.readouterr().out.endswith(said)


def test_what_flashinfer_refuses_for_one_reason_is_said_once(measured, capsys):
    runs = measured.path / "fib-traces.jsonl"
    earlier = runs.read_text().replace('"timestamp":"2', '"timestamp":"1')
    runs.write_text(earlier + runs.read_text())
    assert main(["traces", "export", "fib-traces.jsonl", "dataset"]) == 0
    refused = (
        "FlashInfer can't read it, so it is under pytest_fib/: "
        "a trace of scale by scale_every: no performance"
    )
    assert [line for line in capsys.readouterr().out.splitlines() if refused in line] == [
        f"{refused} (2 of these)"
    ]


def test_what_was_timed_nowhere_or_elsewhere_is_said(tmp_path, capsys):
    made = TraceSet([definition()], [solution("fast")])
    made.save(tmp_path / "untimed.json")
    made.add_trace(trace("fast", hardware="NVIDIA H200"))
    made.save(tmp_path / "timed.json")
    assert main(["traces", "best", str(tmp_path / "untimed.json")]) == 0
    assert main(["traces", "best", str(tmp_path / "timed.json"), "--hardware", "far away"]) == 0
    nothing = "nothing has passed and been timed"
    assert capsys.readouterr().out == f"{nothing}\n{nothing} there, only on NVIDIA H200\n"


@pytest.mark.parametrize(
    "action", [["traces", "summary"], ["traces", "best"], ["traces", "validate"], ["import"]]
)
def test_a_folder_that_is_no_dataset_is_an_error(tmp_path, capsys, action):
    assert main([*action, str(tmp_path)]) == 2
    assert f"error: {tmp_path} is no dataset: there are no definitions" in capsys.readouterr().err


def test_of_a_folder_of_records_the_files_are_to_be_named(tmp_path, capsys):
    (tmp_path / "part-1.jsonl").touch()
    assert main(["traces", "merge", str(tmp_path), "-o", str(tmp_path / "merged")]) == 2
    said = f"{tmp_path} is no dataset but has files of records: name {tmp_path}/*.jsonl"
    assert capsys.readouterr().err == f"error: {said}\n"


def test_what_has_changed_since_is_not_mixed_with_what_it_was(measured, capsys):
    main(["traces", "merge", "fib-traces.jsonl", "-o", "dataset"])
    measured.write("kernel_impls/every.py", EVERY.replace("x * factor", "factor * x"))
    assert main(["traces", "merge", "dataset", "fib-traces.jsonl", "-o", "dataset"]) == 2
    assert "every.py has changed since 'scale_too_every' was added" in capsys.readouterr().err


def test_what_is_nowhere_is_left_out_and_named(measured, capsys):
    """As the functions of tests written by hand, of which there are traces, too."""
    command = ["traces", "merge", "fib-traces.jsonl", "--impls", "elsewhere", "-o", "dataset"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "left out: 1 trace of scale by every, which elsewhere doesn't have\n" in said


def test_what_a_run_wrote_is_looked_into_as_it_is(measured, capsys):
    assert main(["traces", "summary", "fib-traces.jsonl"]) == 0
    assert "2 traces: 2 passed, 0 failed" in capsys.readouterr().out
    assert main(["traces", "validate", "fib-traces.jsonl"]) == 0
    assert main(["traces", "best", "fib-traces.jsonl"]) == 0


def test_where_nothing_is_written_that_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fib-traces.jsonl").touch()
    assert main(["export", "fib-traces.jsonl", "out"]) == 0
    said = "out: 0 records; fib-traces.jsonl has none that can be written\n"
    assert capsys.readouterr().out == said
    assert not (tmp_path / "out").exists()
