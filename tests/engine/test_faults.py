"""Many implementations, a third of which break their process: every verdict is right."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from time import sleep

import pytest

from benchmarks import _faults, faults
from pytest_fib.data import EvaluationRequest
from pytest_fib.discovery import find_implementations
from pytest_fib.workloads import make_workload

ROOT = Path(__file__).parents[2]
WORKLOAD = '{"axes": {"n": 1000}}'
#: Long enough for what is right, on however busy a machine.
HANG = 2.0


@pytest.fixture
def pytest_run(tmp_path):
    """Start pytest on what lies in ``impls``, with one workload for each implementation."""

    def start(*options):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        command += ["--fib-defs", "defs", "--fib-impls", "impls", "-k", "not definition"]
        command += ["--fib-definition", "scale_float32", "--fib-workload", WORKLOAD]
        command += ["--fib-device", "cpu", f"--fib-timeout={HANG}", "--fib-traces", "traces.jsonl"]
        # In a folder of its own, so that this project's configuration is not its own.
        (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
        shutil.copytree(ROOT / "kernel_defs/scale", tmp_path / "defs")
        return subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)

    return start


def statuses(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    traces = map(json.loads, lines)
    return {trace["solution"]: trace["evaluation"]["status"] for trace in traces}


def test_every_verdict_of_a_judge_is_right(breakable_judge, definition, tmp_path):
    written = _faults.write_implementations(tmp_path, 60, seed=39)
    implementations = {each.name: each for each in find_implementations([tmp_path])}
    workload = make_workload(definition, {"n": 1000})

    def status(name):
        solution = implementations[name].solution(definition.name)
        request = EvaluationRequest(
            definition=definition,
            solution=solution,
            workload=workload,
            directory=str(tmp_path),
            timeout=HANG,
        )
        return breakable_judge.evaluate(request).status

    assert {w.name: status(w.name) for w in written} == {w.name: w.status for w in written}


@pytest.mark.thorough
def test_every_verdict_of_two_workers_is_right(pytest_run, tmp_path):
    written = _faults.write_implementations(tmp_path / "impls", 30, seed=49)
    process = pytest_run("-n", "2")
    output, _ = process.communicate()
    assert process.returncode == 1, output
    assert statuses(tmp_path / "traces.jsonl") == {w.name: w.status for w in written}
    assert "crashed" not in output
    passed = sum(w.status == "PASSED" for w in written)
    assert f"{30 - passed} failed, {passed} passed" in output


@pytest.mark.thorough
def test_sandboxes_killed_at_random_moments_lose_no_verdict(
    pytest_run, tmp_path, descendants, lives
):
    """Each kill hits another evaluation: who kills one twice is taken for its own doing."""
    _faults.write_implementations(tmp_path / "impls", 60, seed=0, share=0)
    traces = tmp_path / "traces.jsonl"
    draw = random.Random(0)
    process = pytest_run()
    kills = 0

    def recorded():
        return traces.read_bytes().count(b"\n") if traces.exists() else 0

    while process.poll() is None:
        sleep(draw.uniform(0, 0.1))
        done = recorded()
        sandboxes = [pid for pid in descendants(process.pid) if forked(pid)]
        if sandboxes and done:
            os.kill(draw.choice(sandboxes), signal.SIGKILL)
            kills += 1
            while recorded() < done + 2 and process.poll() is None:
                sleep(0.002)
    output = process.communicate()[0]
    assert process.returncode == 0, output
    assert kills >= 10
    assert list(statuses(traces).values()) == ["PASSED"] * 60


def forked(pid):
    """Whether a process is a sandbox: a copy of its parent."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
        parent = next(line for line in status.splitlines() if line.startswith("PPid:")).split()[1]
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return (
            b"sandbox/_fork_server.py" in command
            and command == Path(f"/proc/{parent}/cmdline").read_bytes()
        )
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.thorough
def test_whatever_is_killed_of_two_workers_no_verdict_is_lost(tmp_path):
    campaign = faults.run(tmp_path, 12, 2, every=3.0, seed=1, seconds=0.05)
    assert campaign.kills, campaign.output
    assert (campaign.right + campaign.killed, campaign.wrong, campaign.lost) == (12, 0, 0)
    assert (campaign.tracebacks, campaign.left) == (0, []), campaign.output
