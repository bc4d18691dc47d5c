"""What a run shows while items run."""

import fcntl
import os
import pty
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from time import sleep

import pytest

#: Nobody waits in a test for what takes minutes elsewhere.
AT_ONCE = """\
import pytest

patch = pytest.MonkeyPatch()
patch.setattr("pytest_fib.plugin._progress.SHOWN_AFTER", 0)
patch.setattr("pytest_fib.plugin._progress.REDRAW_INTERVAL", 0.05)
patch.setattr("pytest_fib.plugin._progress.FIRST_LINE", 0.1)
patch.setattr("pytest_fib.engine._device_lock.LOCK_PATIENCE", 0.1)
"""
COMMAND = sys.executable, "-m", "pytest", "--fib-isolation=none", "-m", "fib"


@pytest.fixture
def slow(scale):
    """Beside a right implementation, one that takes its time."""
    scale.implement("slow", "x, factor\nimport time\ntime.sleep(0.1)\nreturn x * factor")
    scale.write("conftest.py", AT_ONCE)
    return scale


@pytest.mark.parametrize("workers", [pytest.param("0", marks=pytest.mark.thorough), "2"])
@pytest.mark.thorough
def test_without_a_terminal_lines_say_now_and_then_what_an_item_does(slow, workers):
    result = slow.run_apart("-k", "slow", "-n", workers)
    result.assert_outcomes(passed=1)
    activity = r"(?:getting ready|workload \d of 8: n=\d+)"
    shown = re.findall(
        rf"^fib: scale\[slow-correctness\]: {activity}, (\d+) s$", result.stdout.str(), re.M
    )
    assert shown
    # Each comes after twice the time, which is shown rounded.
    assert all(int(after) >= 2 * int(before) - 1 for before, after in pairwise(shown))
    assert result.stdout.str().count("fib: scale[slow-correctness]") == len(shown)
    assert not re.search(r"fib: scale\[slow.*\n\nfib: scale\[slow", result.stdout.str())


@pytest.mark.thorough
def test_quiet_runs_show_nothing(slow):
    result = slow.run_apart("-k", "slow", "-q")
    assert "fib: scale[slow" not in result.stdout.str()


def shown_on_a_terminal(project, **more):
    """What a run writes where its output is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **more}
    environment.pop("PY_COLORS", None)  # pytester's
    run = subprocess.Popen(
        [*COMMAND, "-k", "slow"], cwd=project.path, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
    assert run.wait() == 0
    return shown.decode()


@pytest.mark.thorough
def test_on_a_terminal_one_line_is_drawn_again_and_gone_at_the_end(slow):
    lines = re.findall(r"\x1b\[2K([^\x1b]*)\x1b8", shown_on_a_terminal(slow))
    assert any(re.match(r"scale\[slow-correctness\]: workload \d of 8: n=", line) for line in lines)
    assert lines[-1] == ""


@pytest.mark.thorough
def test_without_colours_lines_are_not_drawn_again(slow):
    shown = shown_on_a_terminal(slow, NO_COLOR="1")
    assert "\x1b" not in shown
    assert "fib: scale[slow-correctness]: " in shown


@pytest.mark.thorough
def test_a_wait_is_said_once_and_summed_up_at_the_end(slow):
    descriptor = os.open("/dev/shm/pytest-fib-cpu.lock", os.O_RDWR | os.O_CREAT)
    with os.fdopen(descriptor, "r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = subprocess.Popen(COMMAND, cwd=slow.path, stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        line = next(line for line in run.stdout if "waiting for cpu" in line)
        sleep(1.1)
    rest = run.stdout.read()
    assert run.wait() == 0
    assert re.fullmatch(r"fib: waiting for cpu: held by .* \(scale\[.*\]\)\n", line)
    assert f"held by pid {os.getpid()}" not in rest
    waited = r"^\d items? waited \d+ s for other processes on the device$"
    assert re.search(waited, rest, re.MULTILINE)


@pytest.mark.thorough
def test_what_others_say_is_not_shown(scale, monkeypatch):
    """Foreign code finds the socket of the run that it is in."""
    body = """\
x, factor
import socket
from pathlib import Path
messages = b"x", b"[]", bytes(100), b'["", "forged", "announce", "forged"]', b'["","","end",""]'
for line in Path("/proc/net/unix").read_text().splitlines():
    if line.endswith("/socket") and {folder!r} in line:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            for message in messages:
                end.sendto(message, line.split()[-1])
return x * factor"""
    with tempfile.TemporaryDirectory() as folder:  # a short one: the socket's address is
        monkeypatch.setenv("TMPDIR", folder)
        scale.implement("talks", body.replace("{folder!r}", repr(folder)))
        result = scale.run_apart("-k", "talks", "-W", "error", "--fib-examples=1")
    result.assert_outcomes(passed=1)
    assert "forged" not in result.stdout.str()
