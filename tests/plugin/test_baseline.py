"""Comparing a run with an earlier one: what is read, what fails, what is shown."""

import json
import shlex
from math import exp

import pytest

from pytest_fib.data import Correctness, Environment, Evaluation, Trace
from pytest_fib.workloads import make_workload
from tests.no_clock import HARDWARE, METHOD, WITHOUT_CLOCK

USAGE = pytest.ExitCode.USAGE_ERROR
TIMED = ("--fib-bench", "-m", 'fib(kind="bench")')


@pytest.fixture
def timed(scale, no_clock):
    """A definition with one implementation, ``good``, whose calls take 1 ms."""
    return scale


@pytest.fixture
def before(scale):
    """Writes records of earlier runs: milliseconds by size."""
    from pytest_fib.data import load_definition_file

    [loaded] = load_definition_file(scale.path / "kernel_defs/toy/scale.yaml")

    def record(n, ms, solution, hardware, method, width):
        interval = [ms * exp(-width), ms * exp(width)]
        return Trace(
            definition="scale",
            solution=solution,
            workload=make_workload(loaded.definition, {"n": n}),
            evaluation=Evaluation(
                status="PASSED",
                environment=Environment(hardware=hardware),
                correctness=Correctness(max_relative_error=0.0, max_absolute_error=0.0),
                performance={"latency_ms": ms, "method": method, "ci_ms": interval},
            ),
        )

    def before(
        times, path="base.jsonl", solution="good", hardware=HARDWARE, method=METHOD, width=0.002
    ):
        lines = [
            record(n, ms, solution, hardware, method, width).to_json_line()
            for n, ms in times.items()
        ]
        scale.write(path, "\n".join(lines) + "\n")

    return before


def shown(result, heading="before"):
    """The rows of the comparison's table, and what is said after it."""
    lines = result.outlines
    start = next(i for i, line in enumerate(lines) if line.split()[2:4] == [heading, "now"])
    # Where there are workers, pytest's own dots and failures come after the table.
    end = next(i for i in range(start, len(lines)) if len(lines[i].split()) < 4)
    said = next(i for i in range(end, len(lines)) if " compared with " in lines[i])
    sentences = lines[said : len(lines) - 2]
    # Another run may have had the device.
    return lines[start + 1 : end], [line for line in sentences if " waited " not in line]


def test_a_run_is_compared_with_a_file(timed, before):
    before({8: 0.8, 64: 1.0})
    result = timed.run(*TIMED, "--fib-compare=base.jsonl")
    result.assert_outcomes(passed=2)
    rows, said = shown(result)
    assert rows == [
        "good            n=8        800 µs  1.00 ms  +25.0 %   ±1.3  slower",
        "good            n=64      1.00 ms  1.00 ms   +0.0 %  ±1.04  same",
    ]
    assert said == ["2 times compared with base.jsonl: 1 same, 1 slower"]


def test_what_is_credibly_slower_fails_its_item(timed, before):
    before({8: 0.8, 64: 0.96})
    result = timed.run(*TIMED, "--fib-compare=base.jsonl", "--fib-fail-on=slower > 5%")
    result.assert_outcomes(passed=1, failed=1)
    lines = result.outlines
    start = lines.index("SLOWER: 1.00 ms is 25.0 % slower than 800 µs before; 5 % is allowed")
    assert lines[start + 2 : start + 5] == [
        "  implementation  good  kernel_impls/toy/good.py:4",
        "  workload        n=8; factor 3; normal values, seed 0",
        "  slower by       23.7 to 26.3 %",
    ]
    assert lines[start + 5].startswith("  before          good, 20")
    command = shlex.split(lines[start + 8])
    assert command[1:4] == [
        "kernel_defs/toy/scale.yaml::scale[good-bench-n=8]",
        "--fib-bench",
        "--fib-compare=base.jsonl",
    ]
    result.stdout.fnmatch_lines(["good * python * SLOWER *"])
    # The time was taken, and is recorded.
    assert len(timed.traces()) == 2


def test_the_replay_of_a_slower_item_runs_it_alone(timed, before):
    before({8: 0.8, 64: 0.96})
    result = timed.run(*TIMED, "--fib-compare=base.jsonl", "--fib-fail-on=slower > 5%")
    command = next(line for line in result.outlines if line.startswith("  pytest "))
    timed.run(*shlex.split(command)[1:]).assert_outcomes(failed=1)


@pytest.mark.parametrize(
    "facts",
    [
        {"width": 0.3},
        {"hardware": "A100"},
        {"method": "sundial"},
        {"solution": "bad"},
        {"method": ""},
    ],
)
def test_what_is_not_credibly_slower_passes(timed, before, facts):
    before({8: 0.8}, **facts)
    arguments = ("--fib-compare=base.jsonl", "--fib-fail-on=slower > 5%")
    timed.run(*TIMED, *arguments).assert_outcomes(passed=2)


def test_what_cannot_be_compared_is_said_once_for_all(timed, before):
    before({8: 0.8, 64: 0.9}, hardware="A100")
    result = timed.run(*TIMED, "--fib-compare=base.jsonl")
    first = result.outlines.index("no times compared with base.jsonl")
    said = result.outlines[first : first + 2]
    assert said == [
        "no times compared with base.jsonl",
        "2 not compared: measured on A100, now on abacus",
    ]


def test_a_run_may_be_compared_with_the_file_that_it_replaces(timed, before):
    before({8: 0.8}, path="fib-traces.jsonl")
    result = timed.run(*TIMED, "--fib-compare=fib-traces.jsonl", "--fib-traces=fib-traces.jsonl")
    rows, _ = shown(result)
    assert [row.split()[1] for row in rows] == ["n=8"]
    assert [t["workload"]["axes"]["n"] for t in timed.traces()] == [8, 64]


def test_a_directory_may_be_a_dataset(timed, before):
    before({8: 0.8}, path="data/traces/me/toy/scale.jsonl")
    before({8: 9.9}, path="data/else.jsonl")
    rows, said = shown(timed.run(*TIMED, "--fib-compare=data"))
    assert rows[0].split()[2:4] == ["800", "µs"]
    assert said[0] == "1 time compared with data: 1 slower"


def test_the_best_is_the_fastest_of_the_last_run_and_the_datasets(timed, before):
    before({8: 0.9, 64: 0.9}, path="fib-traces.jsonl", solution="rival")
    before({8: 0.8}, path="data/traces/me/toy/scale.jsonl", solution="champion")
    timed.write("data/definitions/.keep", "")
    result = timed.run(*TIMED, "--fib-compare=best", "--fib-dataset=data", "-v")
    rows, said = shown(result, "best")
    assert [row.split()[2:4] for row in rows[::2]] == [["800", "µs"], ["900", "µs"]]
    assert rows[1].startswith("  against champion, 20")
    assert rows[3].startswith("  against rival, 20")
    assert said[0] == "2 times compared with the best known: 2 slower"


def test_at_q_only_failures_are_shown(timed, before):
    before({8: 0.8})
    result = timed.run(*TIMED, "--fib-compare=base.jsonl", "-q")
    result.stdout.no_fnmatch_line("*compared*")


@pytest.mark.parametrize("expression", ["slower > 5%", "slower>5 %", " slower > 5.0% "])
def test_a_condition_may_be_spaced_as_one_likes(timed, before, expression):
    before({8: 0.8})
    result = timed.run(*TIMED, "--fib-compare=base.jsonl", "--fib-fail-on", expression)
    result.assert_outcomes(passed=1, failed=1)


@pytest.mark.parametrize(
    "expression", ["", "slowr > 5%", "slower > 5", "slower", "slower > x%", "slower > -1%", "5%"]
)
def test_a_bad_condition_is_a_usage_error(timed, expression):
    result = timed.run(*TIMED, "--fib-compare=base.jsonl", f"--fib-fail-on={expression}")
    assert result.ret == USAGE
    said = f"*argument --fib-fail-on: {expression!r} is not a condition such as 'slower > 5%'"
    result.stderr.fnmatch_lines([said])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fib-bench", "--fib-compare=none.jsonl"], "=none.jsonl: no such file or directory"),
        (["--fib-bench", "--fib-compare=tox.ini"], "=tox.ini: can't be read: *:1: *"),
        (["--fib-bench", "--fib-compare=kernel_defs"], "=kernel_defs: no times in kernel_defs; *"),
        (
            ["--fib-bench", "--fib-compare=best"],
            "=best: there are no earlier traces: fib-traces.jsonl does not exist",
        ),
        (["--fib-compare=base.jsonl"], " needs --fib-bench: without it nothing is timed"),
    ],
)
def test_a_baseline_that_compares_nothing_is_a_usage_error(timed, arguments, message):
    result = timed.run(*arguments)
    assert result.ret == USAGE
    result.stderr.fnmatch_lines([f"ERROR: --fib-compare{message}"])


def test_times_of_other_definitions_are_a_usage_error(timed, before, scale_yaml):
    before({8: 0.8})
    timed.define(scale_yaml.replace("name: scale", "name: scaled"))
    timed.implement("good", "x, factor\nreturn x * factor", "scaled")
    result = timed.run(*TIMED, "--fib-compare=base.jsonl")
    assert result.ret == USAGE
    says = "no times of the selected definitions, only of: scale"
    result.stderr.fnmatch_lines([f"ERROR: --fib-compare=base.jsonl: {says}"])


def test_a_condition_without_a_baseline_is_a_usage_error(timed):
    result = timed.run(*TIMED, "--fib-fail-on=slower > 5%")
    assert result.ret == USAGE
    says = "--fib-fail-on needs --fib-compare=TRACES to compare times with"
    result.stderr.fnmatch_lines([f"ERROR: {says}"])


def test_a_wrong_implementation_fails_as_that_and_is_not_compared(timed, before):
    before({8: 0.8, 64: 0.8})
    timed.implement("good", "x, factor\nreturn x")
    result = timed.run(*TIMED, "--fib-compare=base.jsonl", "--fib-fail-on=slower > 5%")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["INCORRECT_NUMERICAL*", "no times compared with base.jsonl"])
    result.stdout.no_fnmatch_line("SLOWER*")


@pytest.mark.thorough
def test_workers_compare_with_what_the_controller_read(scale, before):
    """The file is replaced as soon as the first result arrives; the workers read none."""
    scale.write("conftest.py", WITHOUT_CLOCK)
    before({8: 0.8, 64: 1.0}, path="fib-traces.jsonl")
    result = scale.run_apart(
        *TIMED, "-n2", "--fib-compare=fib-traces.jsonl", "--fib-fail-on=slower > 5%",
        "--fib-traces=fib-traces.jsonl",
    )  # fmt: skip
    result.assert_outcomes(passed=1, failed=1)
    rows, said = shown(result)
    assert [(row.split()[1], row.split()[-1]) for row in rows] == [
        ("n=8", "slower"),
        ("n=64", "same"),
    ]
    assert said[0] == "2 times compared with fib-traces.jsonl: 1 same, 1 slower"
    records = [json.loads(line) for line in (scale.path / "fib-traces.jsonl").open()]
    assert sorted(record["workload"]["axes"]["n"] for record in records) == [8, 64]
