"""Folders for temporary files: they go with whoever made them, or soon after."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_fib.temporary import TemporaryFolder

MAKE = """\
import sys, time
from pytest_fib.temporary import TemporaryFolder
folder = TemporaryFolder.make(sys.argv[1])
(folder.path / "inner").mkdir()
(folder.path / "inner" / "file").touch()
print(folder.path, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def maker(tmp_path):
    """A process that has made a folder; gives both."""
    with subprocess.Popen(
        [sys.executable, "-c", MAKE, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_one_of_a_process_that_was_killed_is_removed_by_the_next(maker, tmp_path):
    process, folder = maker
    process.kill()
    process.wait()
    assert (folder / "inner" / "file").exists()
    new = TemporaryFolder.make(tmp_path)
    assert list(tmp_path.iterdir()) == [new.path]
    new.remove()
    assert not list(tmp_path.iterdir())


def test_what_a_killed_worker_left_is_removed_at_the_end_of_its_run(pytester, monkeypatch):
    """No other one is made beside it: nothing runs in a sandbox here."""
    monkeypatch.setenv("TMPDIR", str(pytester.mkdir("files")))
    pytester.mkdir("kernel_defs")  # else the plugin takes no part
    pytester.makepyfile(
        """\
        import os, signal
        from pytest_fib.temporary import TemporaryFolder

        def test_one():
            TemporaryFolder.make()
            os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    result = pytester.runpytest_subprocess("-n1", "--fib-device=cpu", "--max-worker-restart=0")
    result.stdout.fnmatch_lines(["worker 'gw0' crashed while running *"])
    assert not list(pytester.path.glob("files/*pytest-fib-run-*"))


def test_one_in_use_stays_even_while_its_process_is_stopped(maker, tmp_path):
    process, folder = maker
    os.kill(process.pid, signal.SIGSTOP)
    own = TemporaryFolder.make(tmp_path)
    TemporaryFolder.make(tmp_path).remove()
    assert {*tmp_path.iterdir()} == {folder, own.path}
    own.remove()


def test_what_others_left_stays(tmp_path):
    other = tmp_path / "pytest-fib-run-other"
    other.touch()
    (tmp_path / "pytest-fib-run-link").symlink_to(tmp_path.parent)
    (tmp_path / "pytest-of-root").mkdir()
    TemporaryFolder.make(tmp_path).remove()
    assert len(list(tmp_path.iterdir())) == 3
