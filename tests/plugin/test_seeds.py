"""Which workloads a run draws: some that nobody knows before, and all of them again if asked."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
#: Writes down what it was called with, and is right.
NOTING = """\
x, factor
with open("calls-{name}", "a") as file:
    print(len(x), x.sum().item(), file=file)
return x * factor
"""
#: Fails where a number follows what is said of seeds in a log.
READING = """\
x, factor
import re
from pathlib import Path
text = Path({log!r}).read_text()
assert "other draws" in text, "it is in no log"
assert not re.search(r"(draws from|--fib-seed=0:) ?[0-9]", text), "it is there"
return x * factor
"""


@pytest.fixture
def noted(project, scale_yaml):
    """Two implementations that note their calls, in runs that get no seed from the ini file."""
    project.define(scale_yaml)
    for name in ("one", "two"):
        project.implement(name, NOTING.format(name=name))
    project.pytester.makeini(
        "[pytest]\naddopts = --fib-examples=10 --fib-isolation=none --fib-device=cpu "
        "--fib-implementation=one --fib-implementation=two\n"
    )
    return project


HIDDEN = "fib: seed 0, other draws from a seed of this run's own (shown at the end)"


def calls(project, result):
    """What each implementation was called with in a run, and what that says of seeds."""
    result.assert_outcomes(passed=2)
    lines = [line for line in result.outlines if re.match("fib: seed |--fib-seed=", line)]
    notes = [project.path / f"calls-{name}" for name in ("one", "two")]
    texts = [note.read_text() for note in notes]
    for note in notes:
        note.unlink()
    return texts, lines


def replay(lines):
    """The option by which draws are repeated, as a run says at its end."""
    first, last = lines
    assert first == HIDDEN
    return re.fullmatch(r"(--fib-seed=0:\d+) draws the same workloads again", last)[1]


def test_a_run_has_draws_of_its_own_and_says_at_its_end_how_to_repeat_them(noted):
    (first, same), lines = calls(noted, noted.run())
    assert first == same  # one seed for all implementations
    (again, _), given = calls(noted, noted.run(replay(lines)))
    assert again == first
    assert given == [f"fib: seed 0, other draws from {replay(lines).rpartition(':')[2]}"]
    (other, _), other_lines = calls(noted, noted.run())
    assert replay(other_lines) != replay(lines)
    assert {*first.splitlines()} & {*other.splitlines()}  # most draws are those of seed 0
    assert {*first.splitlines()} != {*other.splitlines()}


@pytest.mark.thorough
def test_all_workers_of_xdist_draw_from_the_seed_of_the_controller(noted):
    (one, two), lines = calls(noted, noted.run_apart("-n", "2"))
    assert one == two
    assert calls(noted, noted.run(replay(lines)))[0] == [one, two]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", ["3", "3:4"])
def test_a_seed_that_is_given_decides_all_draws(noted, seed):
    alone, lines = calls(noted, noted.run(f"--fib-seed={seed}"))
    workers, worker_lines = calls(noted, noted.run_apart("-n", "2", f"--fib-seed={seed}"))
    assert (alone, lines) == (workers, worker_lines)
    assert lines == [f"fib: seed 3{' for all draws' if seed == '3' else ', other draws from 4'}"]


def test_hand_written_tests_draw_what_items_do(noted):
    noted.write(
        "test_it.py",
        """\
        def test_it(kernel_check):
            def two(x, factor):
                with open("calls-two", "a") as file:
                    print(len(x), x.sum().item(), file=file)
                return x * factor
            kernel_check("scale", two)
        """,
    )
    result = noted.run("-k", "test_it or one", ".")
    (items, by_hand), _ = calls(noted, result)
    once = [*dict.fromkeys(items.splitlines())]
    assert {*by_hand.splitlines()} < {*once}  # items are called on other values, too


def test_a_replayed_workload_needs_no_seed(noted):
    result = noted.run("--fib-workload", '{"axes": {"n": 7}}')
    assert not [line for line in result.outlines if re.match("fib: seed |--fib-seed=", line)]


@pytest.mark.thorough
def test_no_kernel_can_read_the_seed_of_a_run_in_its_log(project, scale_yaml):
    project.define(scale_yaml)
    project.pytester.makeini("[pytest]\naddopts = --fib-examples=1")
    log = project.path / "log.txt"
    project.implement("curious", READING.format(log=str(log)))
    command = [sys.executable, "-m", "pytest", "--fib-device=cpu", "-v"]
    with log.open("w") as file:
        run = subprocess.run(command, cwd=project.path, stdout=file, check=False)
    text = log.read_text()
    assert run.returncode == 0, text
    assert HIDDEN in text
    assert re.search(r"\n--fib-seed=0:\d+ draws the same workloads again\n", text)


@pytest.mark.thorough
def test_a_kernel_that_knows_the_draws_of_seed_0_fails_in_a_default_run(tmp_path):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--fib-device=cpu"]
    command += ["--fib-impls=tests/mutants/cheats", "--fib-implementation=known_draws"]
    command += ["--fib-definition=scale_float32", "--fib-max-bytes=1M"]

    def last_line(*options):
        traces = f"--fib-traces={tmp_path / 'traces.jsonl'}"
        run = subprocess.run(
            [*command, traces, *options], cwd=ROOT, check=False, capture_output=True, text=True
        )
        return run.stdout.splitlines()[-1]

    assert " 1 passed" in last_line("--fib-seed=0")
    assert " 1 failed" in last_line()
