"""A remote machine by ssh: what travels, what is lost and taken up again, what is said of it."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from importlib.metadata import distribution
from pathlib import Path
from threading import Event, Thread

import pytest

from pytest_fib.data import NOT_EVALUATED, TensorFiles
from pytest_fib.executors import (
    RemoteError,
    RemoteOptions,
    SshConnections,
    SshExecutor,
    SshTarget,
    TorchImport,
    describe,
)
from tests.executors.kernels import evaluation
from tests.executors.test_behaviour import AT_MOST, is_gone

#: A process that uses ssh and has no time to clean up.
KILLED = """\
import os
from pytest_fib.executors import SshConnections
print(SshConnections().folder, end="", flush=True)
os._exit(0)
"""


@contextmanager
def connected(url="ssh://somewhere", python=sys.executable, grace=20.0, **more):
    executor = SshExecutor(SshTarget.parse(url, python), RemoteOptions(grace=grace), **more)
    executor.start()
    try:
        yield executor
    finally:
        executor.close()


@pytest.fixture
def marks(tmp_path_factory):
    """A file that kernels may write to."""
    path = tmp_path_factory.getbasetemp() / "marks"
    path.unlink(missing_ok=True)
    return path


def counting(request, marks):
    """A slow kernel that leaves a line for each call."""
    (source,) = request.solution.sources
    line = f"    open({str(marks)!r}, 'a').write('called ')\n"
    text = source.content.replace("    time.sleep", line + "    time.sleep")
    solution = request.solution.model_copy(
        update={"sources": [source.model_copy(update={"content": text})]}
    )
    return request.model_copy(update={"solution": solution})


@pytest.mark.thorough
def test_a_verdict_is_made_once_though_the_connection_is_lost(ssh, marks):
    request = counting(evaluation("slow"), marks)
    said = []
    with connected(announce=said.append) as executor:
        assert executor.evaluate(request).status == "PASSED"
        calls = marks.read_text().split()
        marks.unlink()
        ssh.kill_when(marks.exists)
        worker = executor.worker_pid
        assert executor.evaluate(request).status == "PASSED"
        assert executor.worker_pid == worker
    assert marks.read_text().split() == calls
    assert len(ssh.pids) == 2


@pytest.mark.thorough
def test_after_the_grace_nothing_is_blamed_and_later_requests_try_again(ssh, marks):
    said = []
    with connected(grace=0.3, announce=said.append) as executor:
        worker = executor.worker_pid
        ssh.kill_when(marks.exists)
        ssh.take_down()
        answer = executor.evaluate(counting(evaluation("slow"), marks))
        assert answer.diagnosis.pattern == NOT_EVALUATED
        assert "ssh://somewhere: ssh: no route to somewhere" in answer.diagnosis.sentence
        assert said[-1] == "the connection to somewhere is lost; trying again"
        assert is_gone(worker)
        ssh.bring_up()
        assert executor.evaluate(evaluation("right")).status == "PASSED"


def kill_every_worker(executor):
    """Until the event that is returned is set."""
    enough = Event()

    def kill():
        while not enough.wait(0.05):
            if pid := executor.worker_pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    Thread(target=kill, daemon=True).start()
    return enough


@pytest.mark.thorough
def test_what_kills_the_worker_thrice_is_not_tried_for_ever(ssh):
    with connected() as executor:
        kill = kill_every_worker(executor)
        answer = executor.evaluate(evaluation("slow"))
        kill.set()
    assert "the worker died 3 times of this request" in answer.diagnosis.sentence


@pytest.mark.parametrize("kind", ["ImportError", "RuntimeError"])
def test_a_torch_that_cannot_be_imported_is_the_reason(ssh, tmp_path, kind):
    broken = tmp_path / "broken" / "torch.py"
    broken.parent.mkdir()
    broken.write_text(f"raise {kind}('no libcudart\\nhere')\n")
    python = f"env PYTHONPATH={broken.parent} {sys.executable}"
    with connected(python=python) as executor:
        for _ in range(2):
            answer = executor.evaluate(evaluation("right"))
            assert answer.diagnosis.pattern == NOT_EVALUATED
            assert f"evaluated there: {kind}: no libcudart here" in answer.diagnosis.sentence


def test_an_import_that_nobody_waits_for_ends(ssh, tmp_path):
    pid = tmp_path / "pid"
    slow = tmp_path / "slow" / "torch.py"
    slow.parent.mkdir()
    noted = f"open({str(pid)!r}, 'w').write(f'{{os.getpid()}} ')"
    slow.write_text(f"import os, time\n{noted}\ntime.sleep({2 * AT_MOST})\n")
    connections = SshConnections()
    python = f"env PYTHONPATH={slow.parent} {sys.executable}"
    importing = TorchImport(connections, SshTarget.parse("ssh://somewhere", python))
    wait_until(lambda: pid.exists() and pid.read_text().endswith(" "))
    importing.close()
    connections.close()
    assert is_gone(int(pid.read_text()))


@pytest.mark.thorough
def test_a_worker_that_nobody_needs_ends(ssh):
    with connected(grace=0.2) as executor:
        worker = executor.worker_pid
        ssh.kill_when(lambda: True)
        assert is_gone(worker)


@pytest.mark.thorough
def test_what_a_killed_worker_left_is_removed_by_a_later_one(ssh, monkeypatch):
    """And nothing of one that still works."""
    with tempfile.TemporaryDirectory() as there:  # a short path, as sockets need
        monkeypatch.setenv("TMPDIR", there)
        with connected(grace=0.0) as killed, connected():
            os.kill(killed.worker_pid, signal.SIGKILL)
            assert is_gone(killed.worker_pid)
            # Its children end, too.
            wait_until(lambda: any(map(is_unlocked, Path(there).glob("*/log"))))
            for log in Path(there).glob("*/log"):
                os.utime(log, (0, 0))
            with connected():
                folders = [path.parent for path in Path(there).glob("*/log")]
        assert len(folders) == 2
        wait_until(lambda: not any(Path(there).iterdir()))  # nor anything else of theirs


def test_sockets_of_a_killed_run_are_removed_by_a_later_one(ssh):
    folder = subprocess.check_output([sys.executable, "-c", KILLED], text=True)
    assert Path(folder).is_dir()
    living = SshConnections()
    later = SshConnections()
    assert not Path(folder).exists()
    assert living.folder.is_dir()
    for each in (living, later):
        each.close()
        assert not each.folder.exists()


def wait_until(condition):
    until = time.monotonic() + AT_MOST
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_unlocked(path):
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@pytest.mark.thorough
def test_recorded_tensors_travel_once(ssh, recorded):
    file, files, request = recorded
    (address,) = request.tensors.values()
    with connected(files=files) as executor:
        assert executor.evaluate(request).status == "PASSED"
    assert (ssh.folder / "far/pytest-fib/remote/tensors" / address).read_bytes() == (
        file.read_bytes()
    )
    file.unlink()
    with connected(files=TensorFiles()) as executor:
        assert executor.evaluate(request).status == "PASSED"
        shutil.rmtree(ssh.folder / "far/pytest-fib/remote/tensors")
        lost = request.model_copy(update={"tensors": dict.fromkeys(request.tensors, "0" * 64)})
        assert "no file of recorded tensors holds 0000" in executor.evaluate(lost).log


@pytest.mark.thorough
def test_tensors_that_there_is_no_room_for_keep_no_other_request_from_its_answer(
    ssh, recorded, monkeypatch
):
    monkeypatch.setattr("pytest_fib.executors._ssh.FILE_CHUNK", 64)
    _, files, request = recorded
    tensors = ssh.folder / "far/pytest-fib/remote/tensors"
    tensors.parent.mkdir(parents=True)
    tensors.write_text("no folder")
    with connected(files=files) as executor:
        assert "can't keep a recorded tensor" in executor.evaluate(request).diagnosis.sentence
        assert executor.evaluate(evaluation("right")).status == "PASSED"
        tensors.unlink()
        assert executor.evaluate(request).status == "PASSED"


@pytest.mark.thorough
def test_tracebacks_name_the_files_here(ssh):
    with connected() as executor:
        answer = executor.evaluate(evaluation("raising", directory="/home/me/kernels"))
        fault = executor.evaluate(evaluation("faulty", directory="/home/me/kernels"))
    assert 'File "/home/me/kernels/module.py", line 2, in run' in answer.log
    assert 'File "/home/me/kernels/module.py", line 3 in run' in fault.log
    assert answer.environment.host


def test_what_a_far_python_lacks_travels_with_us(ssh, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    for name in ("torch", "triton", "numpy", "typing_extensions"):
        for file in distribution(name).files:
            top = Path(str(file)).parts[0]
            if top != ".." and not (site / top).exists():
                (site / top).symlink_to(distribution(name).locate_file(top))
    python = f"env PYTHONPATH={site} {sys.executable} -S"
    with SharedConnections() as connections:
        machine = describe(connections, SshTarget.parse("ssh://bare", python))
    assert machine.version("pydantic") == distribution("pydantic").version
    assert machine.version("torch") == distribution("torch").version
    assert len(list((ssh.folder / "far/pytest-fib/remote/code").iterdir())) == 2


class SharedConnections(SshConnections):
    """Closed at the end of a block."""

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()


@pytest.mark.parametrize(
    ("url", "python", "message"),
    [
        ("ssh://unreachable", "python3", "ssh: connect to host unreachable port 22: Connection re"),
        ("ssh://me@stranger:2222", "python3", "nobody@stranger: Permission denied (publickey)."),
        ("ssh://h", "nosuch-python", "there is no nosuch-python (--fib-remote-python)"),
        ("ssh://h", f"{sys.executable} -I -S", "torch is not installed for "),
        (
            "ssh://h/dev/null/x",
            sys.executable,
            "/dev/null/x/code can't be written: [Errno 20] Not a directory: '/dev/null/x/code'; "
            "the URL may name another folder, as in ssh://host/scratch/me",
        ),
        ("ssh://h", "printf nothing;:", "the connection ended with status 0"),
    ],
)
def test_a_machine_that_cannot_be_used_says_why_in_a_line(ssh, url, python, message):
    with SharedConnections() as connections, pytest.raises(RemoteError) as error:
        describe(connections, SshTarget.parse(url, python))
    assert str(error.value).startswith(f"{url}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.thorough
def test_files_of_1970_travel(ssh, tmp_path):
    file = tmp_path / "built" / "old"
    file.parent.mkdir()
    file.write_text("content")
    os.utime(file, (0, 0))
    target = SshTarget.parse("ssh://somewhere", sys.executable)
    executor = SshExecutor(target, RemoteOptions(prebuilt=file.parent))
    executor.start()
    executor.close()
    (sent,) = (ssh.folder / "far/pytest-fib/remote/code").glob("*/old")
    assert sent.read_text() == "content"


def test_what_a_login_shell_prints_does_no_harm(ssh):
    with SharedConnections() as connections:
        machine = describe(connections, SshTarget.parse("ssh://chatty", sys.executable))
    assert machine.python == sys.version.split()[0]


def test_a_url_may_be_quoted():
    target = SshTarget.parse("ssh://me%40lab@gpu1/~/my%20files")
    assert target.user == "me@lab"
    assert target.folder == "~/my files"


@pytest.mark.parametrize(
    ("url", "host"),
    [("ssh://me@MyGPU:22/x", "MyGPU"), ("ssh://gpu@GPU", "GPU"), ("ssh://[FE80::1]:22", "FE80::1")],
)
def test_a_host_keeps_its_letters(url, host):
    """Aliases of ssh's configuration are told apart by case."""
    assert SshTarget.parse(url).host == host


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ssh://me@[::1", r"'ssh://me@\[::1': Invalid IPv6 URL"),
        ("gpu1", "'gpu1' is not ssh://user@host:port/folder"),
        ("ssh://", "is not ssh://user@host:port/folder"),
        ("ssh://me:secret@gpu1", "gpu1: a password does not belong here"),
        ("ssh://%2Dx@h", "neither a host nor a user begins with '-'"),
        ("ssh://-oProxyCommand=x", "neither a host nor a user begins with '-'"),
        ("ssh://h:port", "Port could not be cast"),
    ],
)
def test_a_bad_url_says_what_is_wrong(url, message):
    with pytest.raises(ValueError, match=message.replace("(", "[(]")):
        SshTarget.parse(url)
