"""How long threads waited for a core."""

import os
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from pytest_fib.sandbox import waited_ns

BUSY = "import os\nos.sched_setaffinity(0, {core})\nprint(flush=True)\nwhile True: pass"
#: An upper bound for what takes milliseconds, on however busy a machine.
AT_MOST = 120.0


@pytest.fixture
def core():
    """A core that this thread keeps to."""
    before = os.sched_getaffinity(0)
    core = min(before)
    os.sched_setaffinity(0, {core})
    yield core
    os.sched_setaffinity(0, before)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this kernel doesn't tell")
def test_two_that_want_one_core_wait_for_it(core):
    before = waited_ns()
    command = [sys.executable, "-c", BUSY.format(core={core})]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            process.stdout.readline()
            of_both, until = waited_ns(process.pid), monotonic() + AT_MOST
            while waited_ns() - before < 10e6 or waited_ns(process.pid) - of_both < 30e6:
                assert monotonic() < until
        finally:
            process.kill()


def test_a_process_that_is_gone_did_not_wait():
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    before = waited_ns()
    assert before <= waited_ns(process.pid) <= waited_ns()
