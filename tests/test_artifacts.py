"""Trace records: what is in them, where they go, and that a run which dies loses none."""

import json

import pytest

from pytest_fib.data import Trace, read_traces, validate_flashinfer

# Times differ from run to run, and so does what they make of a record.
VOLATILE = ("timestamp", "performance", "log")


def lasting(trace: dict) -> str:
    """A record without what depends on when it was made, as text that sorts."""
    evaluation = {k: v for k, v in trace["evaluation"].items() if k not in VOLATILE}
    timed = trace["evaluation"]["performance"] is not None
    return json.dumps({**trace, "evaluation": evaluation, "timed": timed}, sort_keys=True)


def test_each_evaluated_item_leaves_one_record(toys):
    toys.run("--fib-bench").assert_outcomes(passed=7, failed=3)
    cases = [(t["solution"], t["evaluation"]["performance"] is not None) for t in toys.traces()]
    assert sorted(cases) == [
        ("good", False),
        ("good", True),
        ("good", True),
        ("pair", False),
        ("pair", True),
        ("swapped", False),
        ("swapped", False),
        ("tail", False),
        ("tail", True),
        ("tail", True),
    ]


def test_the_record_of_a_failure_is_the_smallest_workload(toys):
    toys.run("-k", "tail", "--fib-examples=20").assert_outcomes(failed=1)
    [trace] = toys.traces()
    assert trace["definition"] == "scale"
    assert trace["workload"]["axes"] == {"n": 65}
    assert trace["evaluation"]["status"] == "INCORRECT_NUMERICAL"
    assert trace["evaluation"]["correctness"]["extra"]["elements_wrong"] == {"y": 1}


def test_the_record_of_a_pass_is_the_workload_that_came_closest_to_its_bound(scale):
    # Exact, but for a little on odd sizes.
    scale.implement("near", "x, factor\nreturn x * factor * (1 + 3e-7 * (len(x) % 2))")
    scale.run("-k", "near", "--fib-examples=20").assert_outcomes(passed=1)
    [trace] = scale.traces()
    assert trace["evaluation"]["status"] == "PASSED"
    assert trace["workload"]["axes"]["n"] % 2 == 1
    assert 0 < trace["evaluation"]["correctness"]["extra"]["bound_used"] < 1


def test_the_records_of_a_bench_run_are_flashinfer_traces(toys):
    toys.run("--fib-bench", "-m", 'fib(kind="bench")').assert_outcomes(passed=5, failed=1)
    traces = list(read_traces(toys.path / "fib-traces.jsonl"))
    assert len(traces) == 6
    assert [complaint for trace in traces for complaint in validate_flashinfer(trace)] == []
    assert all(isinstance(trace, Trace) and trace.evaluation.hardware for trace in traces)


def test_traces_go_where_they_are_asked_to(scale):
    result = scale.run("--fib-traces", "out/new/run.jsonl")
    assert [t["solution"] for t in scale.traces("out/new/run.jsonl")] == ["good"]
    assert not (scale.path / "fib-traces.jsonl").exists()
    result.stdout.fnmatch_lines(
        ["fib: *, traces to out/new/run.jsonl", "1 trace record in out/new/run.jsonl"]
    )


def test_a_run_replaces_the_records_of_the_one_before(scale):
    scale.run()
    scale.run()
    assert len(scale.traces()) == 1


def test_a_run_without_kernel_tests_leaves_the_last_records_alone(scale):
    scale.run()
    scale.write("test_app.py", "def test_app():\n    pass\n")
    scale.run("test_app.py").assert_outcomes(passed=1)
    scale.run("--collect-only")
    assert len(scale.traces()) == 1


def test_unwritable_traces_are_a_usage_error_before_any_test(scale):
    scale.implement("touch", "x, factor\nopen('touched', 'w')\nreturn x * factor")
    result = scale.run("--fib-traces", "/proc/none/run.jsonl")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --fib-traces /proc/none/run.jsonl: can't be *"])
    assert not (scale.path / "touched").exists()


def test_stopping_at_the_first_failure_keeps_what_was_finished(toys):
    toys.run("-x", "--fib-examples=20").assert_outcomes(passed=1, failed=1)
    assert [t["solution"] for t in toys.traces()] == ["good", "tail"]


def test_an_interrupted_run_keeps_what_was_finished(toys):
    toys.implement("pair", "x\nraise KeyboardInterrupt", "split")
    result = toys.run_apart("--fib-examples=20")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [t["solution"] for t in toys.traces()] == ["good", "tail"]
    result.stdout.fnmatch_lines(["good * PASSED *", "2 trace records in fib-traces.jsonl"])


def test_workers_give_the_ids_results_and_records_of_a_single_process(toys):
    toys.write("pytest.ini", "[pytest]\naddopts = --fib-examples=8\n")
    runs = []
    for workers in ("0", "2"):
        toys.run_apart(
            "-n", workers, "--fib-bench", "--junitxml", "junit.xml", "-p", "no:cacheprovider"
        )
        xml = (toys.path / "junit.xml").read_text()
        outcomes = sorted(
            part.split('" time=')[0] + ("<failure" in part) * " failed"
            for part in xml.split("<testcase ")[1:]
        )
        runs.append((outcomes, sorted(map(lasting, toys.traces()))))
    assert len(runs[0][0]) == len(runs[0][1]) == 10
    assert runs[0] == runs[1]


def test_a_worker_that_dies_takes_no_finished_record_with_it(toys):
    toys.implement("pair", "x\nimport os\nos._exit(7)", "split")
    result = toys.run_apart("-n", "2", "--fib-examples=20", "--fib-isolation=none")
    result.stdout.fnmatch_lines(["worker 'gw*' crashed while running *split[[]pair-correctness]*"])
    assert sorted(t["solution"] for t in toys.traces()) == ["good", "swapped", "tail"]


def test_a_kernel_that_dies_costs_its_own_evaluation_only(toys):
    toys.implement("pair", "x\nimport os\nprint('last words', flush=True)\nos._exit(7)", "split")
    result = toys.run_apart("--fib-isolation=process", "--fib-examples=20")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["RUNTIME_ERROR: *"])
    assert [t["solution"] for t in toys.traces()] == ["good", "tail", "pair", "swapped"]
    assert "last words" in toys.traces()[2]["evaluation"]["log"]
