"""Trace records: what is in them, where they go, and that a run which dies loses none."""

import json
from errno import ENOSPC
from pathlib import Path

import pytest

from pytest_fib.data import Trace, read_traces
from tests.data.flashinfer import flashinfer_complaints

# Times differ from run to run, and so does what they make of a record.
VOLATILE = ("timestamp", "performance", "log")


def lasting(trace: dict) -> str:
    """A record without what depends on when it was made, as text that sorts."""
    evaluation = {k: v for k, v in trace["evaluation"].items() if k not in VOLATILE}
    timed = trace["evaluation"]["performance"] is not None
    lasts = {**trace, "evaluation": evaluation, "timed": timed}
    return json.dumps({k: v for k, v in lasts.items() if k != "item_seconds"}, sort_keys=True)


def test_each_evaluated_item_leaves_one_record(toys, no_clock):
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
    assert [complaint for trace in traces for complaint in flashinfer_complaints(trace)] == []
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
    result = toys.run("--fib-examples=20", no_reraise_ctrlc=True)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [t["solution"] for t in toys.traces()] == ["good", "tail"]
    result.stdout.fnmatch_lines(["good * PASSED *", "2 trace records in fib-traces.jsonl"])


@pytest.mark.thorough
def test_workers_give_the_ids_results_and_records_of_a_single_process(toys):
    toys.write("pytest.ini", "[pytest]\naddopts = --fib-examples=8 --fib-seed=0\n")
    runs = []
    for workers in ("0", "2"):
        toys.run_apart(
            *("-n", workers, "--fib-bench", "-k", "not definition"),
            *("--junitxml", "junit.xml", "-p", "no:cacheprovider"),
        )
        xml = (toys.path / "junit.xml").read_text()
        outcomes = sorted(
            part.split('" time=')[0] + ("<failure" in part) * " failed"
            for part in xml.split("<testcase ")[1:]
        )
        runs.append((outcomes, sorted(map(lasting, toys.traces()))))
    assert len(runs[0][0]) == len(runs[0][1]) == 10
    assert runs[0] == runs[1]


@pytest.mark.thorough
def test_a_worker_that_dies_takes_no_finished_record_with_it(toys):
    toys.implement("pair", "x\nimport os\nos._exit(7)", "split")
    result = toys.run_apart("-n", "2", "--fib-examples=20", "--fib-isolation=none")
    result.stdout.fnmatch_lines(["worker 'gw*' crashed while running *split[[]pair-correctness]*"])
    assert sorted(t["solution"] for t in toys.traces()) == ["good", "swapped", "tail"]


def test_a_kernel_that_dies_costs_its_own_evaluation_only(toys):
    toys.implement("pair", "x\nimport os\nprint('last words', flush=True)\nos._exit(7)", "split")
    result = toys.run("--fib-isolation=process", "--fib-examples=20")
    result.assert_outcomes(passed=1, failed=3)
    result.stdout.fnmatch_lines(["RUNTIME_ERROR: *"])
    assert [t["solution"] for t in toys.traces()] == ["good", "tail", "pair", "swapped"]
    assert "last words" in toys.traces()[2]["evaluation"]["log"]


#: What plugins do that run a failed test again, until it passes; pytest-rerunfailures, for one.
RERUN = """\
from _pytest.runner import runtestprotocol


def pytest_runtest_protocol(item, nextitem):
    for attempt in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        again = attempt < 2 and any(report.failed for report in reports)
        for report in reports:
            if again and report.failed:
                report.outcome = "rerun"
            item.ihook.pytest_runtest_logreport(report=report)
        if not again:
            break
    return True


def pytest_report_teststatus(report):
    if report.outcome == "rerun":
        return "rerun", "R", ("RERUN", {"yellow": True})
"""


@pytest.fixture
def flaky(scale):
    """Beside a right implementation, one that is right from the third call on."""
    body = """\
    x, factor
    with open("calls", "a+") as file:
        file.write(".")
        calls = file.tell()
    return x * factor if calls > 2 else x
    """
    scale.implement("flaky", body)
    return scale


@pytest.mark.parametrize("plugin", ["emulated", "pytest_rerunfailures"])
def test_of_an_item_that_runs_again_the_last_run_counts(flaky, plugin):
    options = ["--fib-workload", '{"axes": {"n": 3}}', "-v"]
    if plugin == "emulated":
        flaky.write("conftest.py", RERUN)
        options += ["-p", "no:rerunfailures"]
    else:
        pytest.importorskip(plugin)
        options += ["--reruns=2"]
    result = flaky.run(*options)
    result.stdout.fnmatch_lines(["flaky * PASSED * after 1 rerun", "2 trace records in *"])
    result.stdout.fnmatch_lines(["*2 passed, *1 rerun*"])
    statuses = [(t["solution"], t["evaluation"]["status"]) for t in flaky.traces()]
    assert statuses == [("flaky", "PASSED"), ("good", "PASSED")]


def test_an_item_that_was_to_run_again_and_did_not_leaves_its_record(flaky):
    flaky.write("conftest.py", RERUN.replace("range(3)", "range(1)").replace("2", "1"))
    result = flaky.run("--fib-workload", '{"axes": {"n": 3}}', "-p", "no:rerunfailures")
    result.stdout.fnmatch_lines(["flaky * RERUN *", "2 trace records in *"])
    assert [t["solution"] for t in flaky.traces()] == ["good", "flaky"]


ENDINGS = """\
import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        if "xfails" in item.name:
            item.add_marker(pytest.mark.xfail(reason="known", strict="strict" in item.name))


def pytest_runtest_setup(item):
    if "stuck" in item.name:
        raise OSError("no disk")


def pytest_runtest_teardown(item):
    if "leaky" in item.name:
        raise OSError("no disk")
"""


def test_any_ending_of_an_item_is_in_the_table(scale):
    right, wrong = "x, factor\nreturn x * factor", "x, factor\nreturn x"
    scale.implement("xfails_wrong", wrong)
    scale.implement("xfails_right", right)
    scale.implement("xfails_strict", right)
    scale.implement("stuck", right)
    scale.implement("leaky", right)
    scale.write("conftest.py", ENDINGS)
    result = scale.run("--fib-examples=2")
    result.assert_outcomes(passed=2, failed=1, errors=2, xfailed=1, xpassed=1)
    result.stdout.fnmatch_lines(
        [
            "good * PASSED *",
            "leaky * ERROR  error in teardown",
            "stuck * ERROR  error in setup",
            "xfails_right * XPASS *",
            "xfails_strict * FAILED *",
            "xfails_wrong * XFAIL *",
            "5 trace records in *",
        ]
    )


#: A kernel that runs a line after its first call, in pytest's own process, and is wrong.
FORGED = '{"definition": "scale", "workload": {"axes": {"n": 1}, "inputs": {}, "uuid": "x"}}\\n'
TAMPERING = {
    "replaced": f"open('fake', 'w').write('{FORGED}'); os.replace('fake', 'fib-traces.jsonl')",
    "linked": "os.symlink('/dev/null', 'fake'); os.replace('fake', 'fib-traces.jsonl')",
    "removed": "os.remove('fib-traces.jsonl')",
    "extended": f"open('fib-traces.jsonl', 'a').write('{FORGED}')",
    "emptied": "open('fib-traces.jsonl', 'w').close()",
}


@pytest.fixture
def watched(scale):
    """A right implementation, one to be written that ends after it, and a right one at last."""
    scale.implement("zuletzt", "x, factor\nreturn x * factor")

    def tamper(line, file="fib-traces.jsonl"):
        scale.implement("mischief", f"x, factor\nimport os\n{line}\nreturn x * 0")
        return scale.run("--fib-traces", file)

    scale.tamper = tamper
    return scale


@pytest.mark.parametrize("line", TAMPERING.values(), ids=TAMPERING)
def test_a_file_that_a_kernel_tampers_with_is_written_again_and_the_run_says_so(watched, line):
    result = watched.tamper(f"if os.path.exists('fib-traces.jsonl'): {line}")
    result.assert_outcomes(passed=2, failed=1)
    statuses = [(t["solution"], t["evaluation"]["status"]) for t in watched.traces()]
    assert statuses == [
        ("good", "PASSED"),
        ("mischief", "INCORRECT_NUMERICAL"),
        ("zuletzt", "PASSED"),
    ]
    result.stdout.fnmatch_lines(
        [
            "*= trace records =*",
            "fib-traces.jsonl was * during this run, as was seen after *[[]mischief-correctness].",
            "It was written again, with all 3 records of this run.",
        ]
    )
    result.stdout.no_fnmatch_line("3 trace records in *")


def test_a_run_that_passes_fails_where_its_records_were_tampered_with(scale):
    hook = "import os\ndef pytest_runtest_logfinish():\n    os.remove('fib-traces.jsonl')\n"
    scale.write("conftest.py", hook)
    result = scale.run("-q")
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "fib-traces.jsonl was removed during this run, as was seen at the end.",
            "It was written again, with the only record of this run.",
        ]
    )
    assert [t["solution"] for t in scale.traces()] == ["good"]


def test_records_that_are_changed_in_place_are_seen_at_the_end(scale):
    hook = """\
    def pytest_runtest_logfinish():
        with open("fib-traces.jsonl", "r+") as file:
            text = file.read().replace("PASSED", "FAILED")
            file.seek(0)
            file.write(text)
    """
    scale.write("conftest.py", hook)
    assert scale.run().ret == pytest.ExitCode.TESTS_FAILED
    assert [t["evaluation"]["status"] for t in scale.traces()] == ["PASSED"]


@pytest.mark.thorough
def test_workers_cannot_tamper_unseen_either(toys):
    toys.implement("swapped", "x\nimport os\nos.remove('fib-traces.jsonl')\nreturn -x, -x", "split")
    result = toys.run_apart("-n", "1", "--fib-examples=20")
    result.stdout.fnmatch_lines(["fib-traces.jsonl was removed during this run, as was seen *"])
    assert [t["solution"] for t in toys.traces()] == ["good", "tail", "pair", "swapped"]


def test_a_folder_that_is_removed_is_made_again(watched):
    result = watched.tamper("import shutil; shutil.rmtree('out', True)", "out/run.jsonl")
    assert len(watched.traces("out/run.jsonl")) == 3
    result.stdout.fnmatch_lines(["out/run.jsonl was removed during this run, as was seen after *"])


def elsewhere(result):
    """The records in the file that a run names in place of the one it couldn't write."""
    [line] = [line for line in result.outlines if line.startswith("Written instead, ")]
    return [json.loads(line) for line in Path(line.split(" of this run: ")[1]).open()]


def test_on_a_full_disk_the_run_goes_on_and_records_are_elsewhere(toys, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = toys.run("--fib-traces=/dev/full", "--fib-examples=20", "-q")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*/dev/full can't be written: No space left on device. So the run fails.",
            "Written instead, with all 4 records of this run: *.jsonl",
        ]
    )
    assert [t["solution"] for t in elsewhere(result)] == ["good", "tail", "pair", "swapped"]
    assert len(list(tmp_path.glob("fib-traces-*.jsonl"))) == 1


def test_a_run_that_passes_fails_where_its_records_cannot_be_written(scale, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert scale.run("--fib-traces=/dev/full").ret == pytest.ExitCode.TESTS_FAILED


def test_records_that_fit_nowhere_are_printed(scale, monkeypatch):
    def full(*names):
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr("tempfile.mkstemp", full)
    result = scale.run("--fib-traces=/dev/full")
    result.stdout.fnmatch_lines(
        [
            "No other file can be written either. Here, the only record of this run:",
            '{"definition":"scale",*',
        ]
    )
    [line] = [line for line in result.outlines if line.startswith("{")]
    assert json.loads(line)["solution"] == "good"


#: While records are written, no file may be larger than one record and a half.
LIMITED = """\
import os, resource
import pytest


def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, -1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report):
    size = os.path.getsize("fib-traces.jsonl") if os.path.exists("fib-traces.jsonl") else 0
    if size and not (FREED and "swapped" in report.nodeid):
        limit(size * 3 // 2)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish():
    if not FREED:
        limit(os.path.getsize("fib-traces.jsonl") * 3 // 2)


class Freeing:
    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self):
        limit(-1)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self):
        limit(-1)


def pytest_configure(config):
    config.pluginmanager.register(Freeing())
"""


@pytest.mark.thorough
def test_a_disk_that_becomes_full_leaves_whole_records(toys):
    toys.write("conftest.py", f"FREED = False\n{LIMITED}")
    result = toys.run_apart("--fib-examples=20")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["fib-traces.jsonl can't be written: File too large. *"])
    assert [t["solution"] for t in toys.traces()] == ["good"]
    assert len([line for line in result.outlines if line.startswith("{")]) == 4


@pytest.mark.thorough
def test_once_there_is_room_again_records_are_written_after_all(toys):
    toys.write("conftest.py", f"FREED = True\n{LIMITED}")
    result = toys.run_apart("--fib-examples=20")
    result.stdout.fnmatch_lines(["4 trace records in fib-traces.jsonl"])
    assert [t["solution"] for t in toys.traces()] == ["good", "tail", "pair", "swapped"]
