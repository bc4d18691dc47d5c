"""--fib-select shows what to deploy, from files alone."""

import pytest

from pytest_fib import TraceSet
from tests.data.test_trace_set import definition, solution, trace, workload


@pytest.fixture
def dataset(project):
    made = TraceSet([definition(), definition("other")], map(solution, ("wide", "narrow", "odd")))
    times = {"wide": (1.0, 2.0), "narrow": (0.5, 9.0), "odd": (1.5, 2.5)}
    for number, (n, count) in enumerate([(8, 1000), (64, 100)]):
        made.add_workload("scale", workload(n), count)
        for name, of in times.items():
            made.add_trace(trace(name, n, of[number]))
    made.add_workload("scale", workload(1), 5)
    made.add_workload("other", workload(1), 5)
    made.to_path(project.path / "dataset")
    return made


def test_the_fewest_implementations_and_what_they_save_are_shown(project, dataset):
    result = project.run("--fib-select", "dataset")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "fib: choosing by the calls and times in dataset",
            "*- NVIDIA H200 -*",
            "implementation  calls  reference  chosen  saved of all",
            "scale           1,100     8.80 s  700 ms          92 %",
            "  narrow        1,000             500 ms",
            "  wide            100             200 ms",
            "2 of 3 implementations; all of them would take 0 % less time",
            "saved of the references' time for all captured calls: 92 %",
            "scale: 5 calls at shapes where nothing was timed",
            "nothing was timed on captured workloads of other; to time them:",
            "  pytest --fib-dataset=dataset --fib-bench",
            "  python -m pytest_fib traces merge dataset fib-traces.jsonl -o dataset",
        ]
    )


def test_traces_without_a_time_and_calls_that_nobody_captured_choose_nothing(project):
    made = TraceSet([definition(), definition("other")], [solution("narrow")])
    made.add_workload("scale", workload(8), 10)
    made.add_trace(trace("narrow", 8, status="RUNTIME_ERROR"))
    made.to_path(project.path / "dataset")
    result = project.run("--fib-select", "dataset")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(
        [
            "no calls of other were captured: enable_tracing does",
            "nothing was timed on captured workloads of scale; to time them:",
        ]
    )


@pytest.mark.thorough
def test_no_test_is_collected_and_workers_change_nothing(project, dataset):
    project.write("test_it.py", "raise AssertionError\n")
    dataset.save(project.path / "all.json")
    result = project.run_apart("--fib-select", "all.json", "-n", "1", "-p", "xdist")
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["  wide            100             200 ms"])


def test_what_cannot_be_read_is_a_usage_error(project):
    result = project.run("--fib-select", "nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-select=nowhere: *No such file*"])
    (project.path / "empty").mkdir()
    project.write("fib-traces.jsonl", "{}\n{}\n")
    result = project.run("--fib-select", "fib-traces.jsonl")
    result.stderr.fnmatch_lines(
        ["ERROR: --fib-select=*: is no dataset but records; *traces merge*"]
    )
    result = project.run("--fib-select", "empty")
    result.stderr.fnmatch_lines(["ERROR: --fib-select=empty: *empty is no dataset: there are no*"])


def test_what_takes_longer_than_the_reference_saves_less_than_nothing(project):
    made = TraceSet([definition()], [solution("slow")])
    made.add_workload("scale", workload(8), 10)
    made.add_trace(trace("slow", 8, 12.0))
    made.save(project.path / "all.json")
    result = project.run("--fib-select", "all.json")
    result.stdout.fnmatch_lines(["scale              10    80.0 ms  120 ms         -50 %"])
