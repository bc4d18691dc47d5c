"""A TraceSet: names that fit together, choosing, and files in both forms."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fib.commands import main
from pytest_fib.data import DataError, Definition, Evaluation, Solution, Trace, TraceSet, Workload
from tests.data.flashinfer_dataset import read_as_flashinfer

ROOT = Path(__file__).parents[2]
H200 = "NVIDIA H200"


def definition(name="scale", **changes):
    record = {
        "name": name,
        "op_type": "elementwise",
        "axes": {"n": "var", "width": 8},
        "inputs": {"x": {"shape": ["n", "width"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["n", "width"], "dtype": "float32"}},
        "reference": "def run(x):\n    return x\n",
    }
    return Definition.model_validate({**record, **changes})


def solution(name="fast", of="scale", author="a", **spec):
    record = {
        "name": name,
        "definition": of,
        "author": author,
        "spec": {
            "language": "python",
            "target_hardware": ["cpu"],
            "entry_point": "main.py::run",
            **spec,
        },
        "sources": [{"path": "main.py", "content": "def run(x):\n    return x\n"}],
    }
    return Solution.model_validate(record)


def workload(n=4, **more):
    return Workload.model_validate({"axes": {"n": n}, "inputs": {"x": {"type": "random"}}, **more})


def trace(by="fast", n=4, latency=1.0, status="PASSED", hardware=H200, of="scale", **performance):
    record = {"status": status, "environment": {"hardware": hardware}, "timestamp": "now"}
    if status == "PASSED":
        record["correctness"] = {"max_relative_error": 0.0, "max_absolute_error": 0.0}
        times = {"latency_ms": latency, "reference_latency_ms": 8.0, "speedup_factor": 8 / latency}
        record["performance"] = {**times, **performance}
    evaluation = Evaluation.model_validate(record)
    return Trace(definition=of, workload=workload(n), solution=by, evaluation=evaluation)


@pytest.fixture
def trace_set():
    return TraceSet(
        [definition(), definition("other")],
        [solution("fast"), solution("slow", author="b"), solution("third", "other")],
        [("scale", workload(4)), ("scale", workload(8))],
        [trace("fast", 4, 1.0), trace("slow", 4, 2.0), trace("fast", 8, 3.0), trace("slow", 8, 2)],
    )


def test_names_are_checked_as_records_are_added(trace_set):
    with pytest.raises(ValueError, match="there is a definition 'scale' already"):
        trace_set.add_definition(definition())
    with pytest.raises(ValueError, match="there is a solution 'fast' already"):
        trace_set.add_solution(solution())
    with pytest.raises(ValueError, match="unknown definition 'scal'; did you mean 'scale'"):
        trace_set.add_solution(solution("x", "scal"))
    with pytest.raises(ValueError, match="unknown definition 'else'"):
        trace_set.add_workload("else", workload())
    with pytest.raises(ValueError, match="unknown solution 'fats'; did you mean 'fast'"):
        trace_set.add_trace(trace("fats"))
    with pytest.raises(ValueError, match="solution 'third' is of 'other', not of 'scale'"):
        trace_set.add_trace(trace("third"))


def test_workloads_have_the_axes_of_their_definition(trace_set, tmp_path):
    """Also where a dataset has them; what is wrong is said whole."""
    wrong = Workload(axes={"m": 4, "width": 9})
    evaluation = trace().evaluation
    problem = "a workload of scale: unknown axis 'm'; there are n, width; axis 'width' is 8, not 9;"
    problem += " no value for axis 'n'"
    with pytest.raises(ValueError, match=f"^{problem}$"):
        trace_set.add_workload("scale", wrong)
    with pytest.raises(ValueError, match=f"^{problem}$"):
        trace_set.add_trace(trace().model_copy(update={"workload": wrong}))
    trace_set.add_workload("scale", Workload(axes={"n": 4, "width": 8}))
    trace_set.to_path(tmp_path)
    (file,) = tmp_path.rglob("workloads/**/scale.jsonl")
    line = Trace(definition="scale", workload=wrong).to_json_line()
    file.write_text(f"{file.read_text()}{line}\n")
    (file,) = tmp_path.rglob("traces/a/**/scale.jsonl")
    by = Trace(definition="scale", workload=wrong, solution="fast", evaluation=evaluation)
    file.write_text(f"{file.read_text()}{by.to_json_line()}\n")
    assert TraceSet.load(tmp_path).validate() == [problem]


def test_it_is_made_of_mappings_as_it_has_them(trace_set):
    of_mappings = TraceSet(
        trace_set.definitions, trace_set.solutions, trace_set.workloads, trace_set.traces
    )
    assert repr(of_mappings) == repr(trace_set)
    assert dict(of_mappings.traces) == dict(trace_set.traces)


def test_the_best_is_the_fastest_at_a_shape_and_gains_most_over_all(trace_set):
    assert trace_set.best("scale", {"n": 4}).solution == "fast"
    assert trace_set.best("scale", {"n": 8, "width": 8}, "nvidia_h200").solution == "slow"
    assert trace_set.best("scale").workload.axes == {"n": 4}
    assert trace_set.best("scale", {"n": 5}) is None
    assert trace_set.best("scale", {"n": 4}, "NVIDIA A100") is None
    assert trace_set.best("other") is None
    with pytest.raises(ValueError, match="unknown axis 'm'"):
        trace_set.best("scale", {"m": 4})


def test_intervals_decide_and_names_break_ties(trace_set):
    trace_set.add_solution(solution("lucky"))
    trace_set.add_solution(solution("equal"))
    trace_set.add_trace(trace("lucky", 4, 0.9, ci_ms=[0.1, 1.5]))
    trace_set.add_trace(trace("equal", 4, 1.0))
    assert trace_set.ranked("scale", H200)[4,] == ("equal", "fast", "lucky", "slow")


def test_what_failed_at_a_shape_is_not_chosen_there(trace_set):
    trace_set.add_trace(trace("fast", 4, status="RUNTIME_ERROR"))
    assert trace_set.best("scale", {"n": 4}).solution == "slow"


def test_what_passed_since_it_failed_is_chosen_again(trace_set):
    def at(minute, **facts):
        made = trace("fast", 4, **facts)
        moment = {"timestamp": f"2026-01-01T00:0{minute}:00+00:00"}
        return made.model_copy(update={"evaluation": made.evaluation.model_copy(update=moment)})

    only = TraceSet(trace_set.definitions, trace_set.solutions)
    only.add_trace(at(3, latency=1.0))
    only.add_trace(at(2, status="RUNTIME_ERROR"))
    assert only.best("scale", {"n": 4}).solution == "fast"
    only.add_trace(at(4, status="RUNTIME_ERROR"))
    assert only.best("scale", {"n": 4}) is None
    only.add_trace(at(5, latency=2.0))
    assert only.ranked("scale", H200)[4,] == ("fast",)


@pytest.mark.parametrize("latency", [math.nan, math.inf, 0.0, -1.0])
def test_a_time_that_means_nothing_is_never_best(trace_set, latency):
    bad = trace("fast", 16)
    times = {"latency_ms": latency, "reference_latency_ms": 1.0, "speedup_factor": 1.0}
    evaluation = bad.evaluation.model_dump() | {"performance": times}
    trace_set.add_trace(bad.model_copy(update={"evaluation": Evaluation(**evaluation)}))
    assert trace_set.best("scale", {"n": 16}) is None


def test_one_file_keeps_every_record(trace_set, tmp_path):
    with_tolerance = definition("strict", tolerances={"y": {"rtol": 1e-4}})
    trace_set.add_definition(with_tolerance)
    trace_set.add_solution(solution("tupled", "strict", calling="tuple"))
    trace_set.add_workload("scale", workload(99), count=7)
    trace_set.save(tmp_path / "all.json")
    again = TraceSet.load(tmp_path / "all.json")
    assert again.definitions["strict"] == with_tolerance
    assert again.solution("tupled").spec.calling == "tuple"
    assert dict(again.traces) == dict(trace_set.traces)
    assert dict(again.workloads) == dict(trace_set.workloads)
    assert again.counts("scale")[workload(99).uuid] == 7
    assert repr(again) == "<TraceSet: 3 definitions, 4 solutions, 3 workloads, 4 traces>"


def test_a_file_in_another_form_is_read_too(trace_set, tmp_path):
    trace_set.save(tmp_path / "all.json")
    document = json.loads((tmp_path / "all.json").read_text())
    text = json.dumps(dict(reversed(document.items())), indent=4)
    (tmp_path / "all.json").write_text(f"\ufeff{text}")  # as some editors begin a file
    assert dict(TraceSet.load(tmp_path / "all.json").traces) == dict(trace_set.traces)


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({"traces": 5}, "traces should be a list"),
        ({"counts": 5}, "valid dictionary"),
        ({"counts": {"scale": {"x": "often"}}}, "valid integer"),
    ],
)
def test_a_section_of_another_kind_is_an_error(tmp_path, document, problem):
    (tmp_path / "all.json").write_text(json.dumps(document))
    with pytest.raises(DataError, match=f"all.json:1: .*{problem}"):
        TraceSet.load(tmp_path / "all.json")


def test_a_newer_schema_is_refused(trace_set, tmp_path):
    trace_set.save(tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text()
    (tmp_path / "all.json").write_text(text.replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(DataError, match="schema 2 is newer than what this version reads, 1"):
        TraceSet.load(tmp_path / "all.json")


def test_a_dataset_goes_through_its_directory(trace_set, tmp_path):
    trace_set.add_workload("scale", workload(4), count=3)
    export = trace_set.to_path(tmp_path)
    assert (export.written, export.refused, export.missing) == (11, [], [])
    again = TraceSet.from_path(tmp_path)
    for kind in ("definitions", "solutions", "workloads"):
        assert dict(getattr(again, kind)) == dict(getattr(trace_set, kind))
    assert sorted(map(repr, again.traces["scale"])) == sorted(map(repr, trace_set.traces["scale"]))
    assert (
        again.counts("scale")
        == trace_set.counts("scale")
        == {workload(4).uuid: 3} | {workload(8).uuid: 0}
    )
    again.to_path(tmp_path)
    assert TraceSet.from_path(tmp_path).counts("scale") == trace_set.counts("scale")
    assert (tmp_path / "solutions/a/elementwise/scale/fast.json").is_file()
    assert (tmp_path / "traces/b/elementwise/scale.jsonl").is_file()


def test_every_export_is_what_flashinfer_reads_and_nothing_is_lost(trace_set, tmp_path):
    octets = {"x": {"shape": ["n", "width"], "dtype": "uint8"}}
    trace_set.add_definition(definition("octets", inputs=octets))
    trace_set.add_definition(definition("indented", constraints=["  n > 0"]))
    odd = solution("../odd", "indented", author="..").model_dump()
    odd["spec"]["entry_point"] = "./main.py::run"
    odd["sources"].append({"path": "empty.py", "content": ""})
    trace_set.add_solution(Solution.model_validate(odd))
    trace_set.add_solution(solution("cute", language="cutedsl"))
    trace_set.add_solution(solution("tupled", calling="tuple"))
    untimed = trace().evaluation.model_dump() | {"performance": None}
    unknown = {"max_relative_error": None, "max_absolute_error": 0.5}
    nowhere = trace("fast", status="TIMEOUT").evaluation.model_dump() | {"environment": None}
    negative = {"max_relative_error": -1.0, "max_absolute_error": 0.5}
    for n, evaluation in enumerate(
        [
            untimed,
            nowhere,
            trace("fast", status="COMPILE_ERROR").evaluation.model_dump(),
            trace().evaluation.model_dump() | {"correctness": {}},
            {**trace().evaluation.model_dump(), "correctness": unknown},
            {**untimed, "status": "INCORRECT_NUMERICAL", "correctness": unknown},
            {**untimed, "status": "INCORRECT_NUMERICAL", "correctness": negative},
            trace(latency=math.nan).evaluation.model_dump(),
        ]
    ):
        record = trace("fast", 100 + n).model_dump() | {"evaluation": evaluation}
        trace_set.add_trace(Trace.model_validate(record))
    export = trace_set.to_path(tmp_path)
    theirs = read_as_flashinfer(tmp_path)
    assert {each.name for each in theirs["definitions"]} == {"scale", "other", "indented"}
    assert {each.name for each in theirs["solutions"]} == {"fast", "slow", "third", "../odd"}
    assert {t.workload.axes["n"] for t in theirs["traces"]} == {4, 8, 102, 103, 104, 105}
    errors = {t.workload.axes["n"]: t.evaluation.correctness for t in theirs["traces"]}
    assert math.isnan(errors[104].max_relative_error)
    assert errors[105].max_absolute_error == 0.5
    assert len(export.refused) == 7
    assert "definition octets: inputs.x has dtype uint8" in export.refused
    assert "a trace of scale by fast: no performance" in export.refused
    again = TraceSet.from_path(tmp_path)
    assert (len(again), len(again.definitions)) == (len(trace_set), 4)
    assert all(path.resolve().is_relative_to(tmp_path) for path in tmp_path.rglob("*"))


def test_every_problem_of_a_dataset_is_listed(trace_set, tmp_path):
    trace_set.to_path(tmp_path)
    (tmp_path / "definitions/again.json").write_text(json.dumps(definition().to_flashinfer()))
    (tmp_path / "solutions/stray.json").write_text(
        json.dumps(solution("stray", "scala").to_flashinfer())
    )
    (tmp_path / "solutions/broken.json").write_text("{")
    (tmp_path / "solutions/gone.json").symlink_to("nowhere")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 3\n"
    (tmp_path / "solutions/pointer.json").write_text(pointer)
    (tmp_path / "traces/pointer.jsonl").write_text(pointer)
    os.mkfifo(tmp_path / "traces/pipe.jsonl")  # who waited for a writer would never return
    with (tmp_path / "traces/a/elementwise/scale.jsonl").open("a") as file:
        file.write(trace("nobody").to_json_line() + "\n")
        file.write(trace(of="nothing").to_json_line() + "\nnot JSON\n")
        file.write(
            '{"definition": "scale", "workload": {}, "solution": "fast", "evaluation": {}}\n'
        )
    with pytest.raises(DataError) as caught:
        TraceSet.from_path(tmp_path)
    text = str(caught.value)
    for expected in (
        "there is a definition 'scale' already",
        "unknown definition 'scala'; did you mean 'scale'",
        "broken.json:1: ",
        "gone.json:1: is no regular file",
        "solutions/pointer.json:1: is a Git LFS pointer",
        "traces/pointer.jsonl:1: is a Git LFS pointer",
        "pipe.jsonl:1: is no regular file",
        "scale.jsonl:3: unknown solution 'nobody'",
        "scale.jsonl:4: unknown definition 'nothing'",
        "scale.jsonl:5: bad JSON",
        "scale.jsonl:6: workload: missing key 'axes'",
        "scale.jsonl:6: evaluation: missing key 'status'",
    ):
        assert expected in text
    assert "pointer.jsonl:2" not in text


def test_half_of_a_trace_is_no_crash(trace_set, tmp_path):
    trace_set.to_path(tmp_path)
    whole = json.loads(trace("fast", 64).to_json_line())
    with (tmp_path / "traces/a/elementwise/scale.jsonl").open("a") as file:
        file.write(json.dumps({**whole, "evaluation": None}) + "\n")
    again = TraceSet.from_path(tmp_path)
    assert (len(again), again.summary().passed, len(list(again.records()))) == (5, 4, 4)
    assert again.best("scale", {"n": 64}) is None
    with (tmp_path / "traces/a/elementwise/scale.jsonl").open("a") as file:
        file.write(json.dumps({**whole, "solution": None}) + "\n")
    with pytest.raises(DataError, match=r"scale\.jsonl:4: an evaluation of no solution"):
        TraceSet.from_path(tmp_path)


def test_a_line_that_was_cut_off_is_lost_alone(trace_set, tmp_path):
    trace_set.to_path(tmp_path)
    path = tmp_path / "traces/a/elementwise/scale.jsonl"
    path.write_text(path.read_text()[:-20])
    assert len(TraceSet.from_path(tmp_path)) == len(trace_set) - 1


def test_records_are_read_when_they_are_asked_for(trace_set, tmp_path):
    trace_set.to_path(tmp_path)
    again = TraceSet.from_path(tmp_path)
    path = tmp_path / "solutions/a/elementwise/scale/fast.json"
    path.write_text(path.read_text().replace("python", "snake"))
    assert again.best("scale", {"n": 4}).solution == "fast"
    assert "scale" in again.solutions
    assert "fast" in again.solution_names("scale")
    with pytest.raises(DataError, match=r"fast.json:\d+: spec.language: 'snake' is not one of"):
        again.solution("fast")
    assert len(TraceSet.from_path(tmp_path).validate()) == 1


def test_a_status_that_there_is_not_is_an_error(trace_set):
    with pytest.raises(ValueError, match="unknown status 'PASED'; did you mean 'PASSED'"):
        trace_set.filter(status="PASED")


def test_filtering_keeps_what_goes_together(trace_set):
    trace_set.add_trace(trace("fast", 32, hardware="A100"))
    trace_set.add_trace(trace("slow", 32, status="TIMEOUT"))
    assert len(trace_set.filter(hardware="a100")) == 1
    failed = trace_set.filter(status="TIMEOUT")
    assert (len(failed), list(failed.definitions)) == (1, ["scale"])
    by_author = trace_set.filter(author="b")
    assert [each.name for each in by_author.solutions["scale"]] == ["slow"]
    assert len(by_author) == 3
    assert list(trace_set.filter(definition="other").definitions) == ["other"]
    assert len(trace_set.filter(op_type="gemm").definitions) == 0


def test_merging_keeps_what_is_the_same_once_and_names_every_clash(trace_set):
    other = TraceSet([definition(), definition("more")], [solution("fast")])
    other.add_workload("scale", workload(4), count=2)
    other.add_trace(trace("fast", 4, 1.0))
    other.add_trace(trace("fast", 64, 1.0))
    both = trace_set.merge(other).merge(other)
    assert (len(both), len(both.definitions)) == (5, 3)
    assert both.counts("scale")[workload(4).uuid] == 4
    other.add_solution(solution("slow", "more"))
    clashing = TraceSet([definition(op_type="other")], [solution("slow")])
    with pytest.raises(ValueError, match=r"definition 'scale'.*\nsolution 'slow'"):
        trace_set.merge(clashing)


def test_a_summary_counts_and_records_are_flat(trace_set):
    summary = trace_set.summary()
    assert (summary.total, summary.passed, summary.failed) == (4, 4, 0)
    assert (summary.definitions[0].best, summary.definitions[0].speedup) == ("fast", 8.0)
    rows = list(trace_set.records())
    assert rows[1] | {"timestamp": ""} == {
        "definition": "scale",
        "solution": "slow",
        "author": "b",
        "workload": workload(4).uuid,
        "axes.n": 4,
        "status": "PASSED",
        "hardware": H200,
        "timestamp": "",
        "latency_ms": 2.0,
        "reference_latency_ms": 8.0,
        "speedup_factor": 4.0,
        "max_relative_error": 0.0,
        "max_absolute_error": 0.0,
    }


def test_a_dataframe_has_a_row_for_each_trace(trace_set):
    pandas = pytest.importorskip("pandas")
    frame = trace_set.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["latency_ms"]) == [1.0, 2.0, 3.0, 2.0]


def test_recorded_tensors_go_with_an_export(tmp_path):
    stored = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "x"}
    gone = {**stored, "path": "blob/gone.safetensors"}
    (tmp_path / "in/blob").mkdir(parents=True)
    (tmp_path / "in/blob/x.safetensors").write_bytes(b"tensor")
    others = (stored, gone, {**gone, "tensor_key": "y"})
    both = [("scale", workload(inputs={"x": each})) for each in others]
    TraceSet([definition()], workloads=both).to_path(tmp_path / "in")
    export = TraceSet.from_path(tmp_path / "in").to_path(tmp_path / "out")
    assert export.missing == ["blob/gone.safetensors"]
    assert (tmp_path / "out/blob/x.safetensors").read_bytes() == b"tensor"


def test_the_command_shows_merges_exports_and_validates(trace_set, tmp_path, capsys):
    trace_set.save(tmp_path / "all.json")
    (tmp_path / "run.jsonl").write_text(trace("slow", 128).to_json_line() + "\n")
    command = ["traces", "merge", f"{tmp_path}/all.json", f"{tmp_path}/run.jsonl"]
    assert main([*command, "-o", f"{tmp_path}/merged"]) == 0
    assert main(["traces", "export", f"{tmp_path}/merged", f"{tmp_path}/again.json"]) == 0
    assert main(["traces", "summary", f"{tmp_path}/again.json"]) == 0
    assert "5 traces: 5 passed, 0 failed" in capsys.readouterr().out
    assert main(["traces", "best", f"{tmp_path}/merged", "--definition", "scale"]) == 0
    assert "scale       n=8    NVIDIA H200  slow      2" in capsys.readouterr().out
    assert main(["traces", "validate", f"{tmp_path}/merged"]) == 0
    assert main(["traces", "summary", f"{tmp_path}/nothing"]) == 2
    assert "nothing" in capsys.readouterr().err


def test_a_trace_is_kept_once_in_whichever_form_it_was_read(trace_set, tmp_path):
    trace_set.to_path(tmp_path / "dataset")
    trace_set.save(tmp_path / "all.json")
    lines = [each.to_json_line() for of in trace_set.traces.values() for each in of]
    (tmp_path / "run.jsonl").write_text("".join(f"{line}\n" for line in lines))
    number = len(trace_set)
    written = TraceSet.from_path(tmp_path / "dataset")
    assert len(written.merge(TraceSet.load(tmp_path / "all.json"))) == number
    assert len(written.merge(trace_set)) == number
    assert written.read_traces(tmp_path / "run.jsonl") == number
    assert len(written) == number


@pytest.mark.parametrize("size", [None, "many", 1.5, math.nan, -3, 2**49])
def test_a_trace_whose_size_is_none_is_refused_with_its_line(trace_set, tmp_path, size):
    trace_set.to_path(tmp_path)
    (file, *_) = tmp_path.rglob("traces/**/*.jsonl")
    record = json.loads(file.read_text().splitlines()[0])
    record["workload"]["axes"]["n"] = size
    lines = len(file.read_text().splitlines())
    with file.open("a") as appended:
        appended.write(json.dumps(record) + "\n")
    with pytest.raises(DataError, match=f"{file.name}:{lines + 1}: workload.axes.n: should be"):
        TraceSet.from_path(tmp_path)


@pytest.mark.parametrize("line", ["null", "5", "[]"])
def test_a_line_that_is_no_record_is_refused(trace_set, tmp_path, line):
    (tmp_path / "run.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=r"run.jsonl:1: should be a mapping"):
        trace_set.read_traces(tmp_path / "run.jsonl")


@pytest.mark.parametrize("interval", [[0.5], [None, None], {"upper": 0.5}, "0.5", 0.5])
def test_an_interval_of_another_form_leaves_the_time_itself(trace_set, tmp_path, interval):
    (tmp_path / "run.jsonl").write_text(trace("slow", 64, ci_ms=interval).to_json_line() + "\n")
    trace_set.read_traces(tmp_path / "run.jsonl")
    assert trace_set.best("scale", axes={"n": 64}).evaluation.latency_ms == 1.0


def test_a_trace_set_imports_no_torch_and_no_pytest():
    code = "import sys; from pytest_fib import TraceSet; TraceSet()\n"
    code += "print({'torch', 'pytest', 'hypothesis', 'numpy'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", code]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "set()\n"
