"""The process that sandboxes are forked from: it may die, and nothing else may with it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytest_fib.sandbox import ForkServer

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared():
    fork_server = ForkServer("cpu", {})
    fork_server.warm()
    yield fork_server
    fork_server.close()


@pytest.fixture
def fork_server(shared):
    """A fork_server that may be broken: it has to work again for the next test."""
    return shared


def test_a_child_lives_until_it_is_ended(fork_server, lives):
    child = fork_server.start()
    assert fork_server.has(child)
    assert lives(child.pid)
    fork_server.kill(child)
    assert not lives(child.pid)


def test_how_a_child_ended_is_told(fork_server):
    child = fork_server.start()
    os.kill(child.pid, signal.SIGSEGV)
    assert fork_server.end(child) == -signal.SIGSEGV


def test_a_child_that_does_not_end_is_ended(fork_server, lives):
    child = fork_server.start()
    os.kill(child.pid, signal.SIGSTOP)
    assert fork_server.end(child) is None
    assert not lives(child.pid)


def test_a_child_ends_by_itself_when_its_channel_closes(fork_server):
    child = fork_server.start()
    child.channel.close()
    assert fork_server.end(child) == 1


def test_children_die_with_the_process_they_come_from(fork_server, lives, eventually):
    children = [fork_server.start() for _ in range(3)]
    os.kill(fork_server.pid, signal.SIGKILL)
    assert eventually(lambda: not any(lives(child.pid) for child in children))
    assert not any(fork_server.has(child) for child in children)
    for child in children:
        fork_server.kill(child)


def test_there_is_another_after_the_death_of_the_first(fork_server):
    first = fork_server.start()
    os.kill(fork_server.pid, signal.SIGKILL)
    second = fork_server.start()
    assert fork_server.has(second)
    assert not fork_server.has(first)
    fork_server.kill(first)
    assert fork_server.has(second), "the death of a child of the first is no concern of the second"
    fork_server.kill(second)


def test_a_process_that_does_not_answer_is_replaced(fork_server, monkeypatch):
    monkeypatch.setattr("pytest_fib.sandbox._sandbox.FORK_TIMEOUT", 0.2)
    monkeypatch.setattr("pytest_fib.sandbox._sandbox.CLOSE_TIMEOUT", 0.2)
    fork_server.close()  # the deadline is read when a process starts
    child = fork_server.start()
    os.kill(fork_server.pid, signal.SIGSTOP)
    assert not fork_server.has(child)
    fork_server.kill(child)
    monkeypatch.undo()
    fork_server.close()
    child = fork_server.start()
    assert fork_server.has(child)
    fork_server.kill(child)


def test_an_interrupt_leaves_no_answer_behind_for_the_next_question(fork_server, monkeypatch):
    child = fork_server.start()

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pytest_fib.sandbox._sandbox._receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fork_server.has(child)
    fork_server.kill(child)
    child = fork_server.start()
    assert fork_server.has(child)
    fork_server.kill(child)


def test_closing_takes_the_children_along(lives):
    fork_server = ForkServer("cpu", {})
    children = [fork_server.start() for _ in range(2)]
    pid = fork_server.pid
    fork_server.close()
    assert not lives(pid)
    assert not any(lives(child.pid) for child in children)
    fork_server.close()


def test_closing_does_not_wait_for_torch_to_be_imported(lives):
    fork_server = ForkServer("cpu", {})
    fork_server.warm()
    pid = fork_server.pid
    fork_server.close()
    assert not lives(pid)


def test_a_failed_start_leaves_nothing_open(fork_server, monkeypatch, open_files):
    fork_server.kill(fork_server.start())
    before = len(open_files())

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fork_server, "_ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fork_server.start()
    assert len(open_files()) == before


HANGS = """\
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from pytest_fib.data import *
from pytest_fib.engine import *
from pytest_fib.workloads import make_workload

definition = load_definition_file(Path({root!r}, "kernel_defs/scale/scale.yaml"))[2].definition
text = '''
import contextlib, os, subprocess
def run(x, factor):
    subprocess.Popen(["sleep", "1000"])
    if os.fork() == 0:
        with contextlib.suppress(PermissionError):
            os.setsid()
    print("running", file=open({flag!r}, "w"))
    while True:
        pass
'''
spec = BuildSpec(language="python", target_hardware=["cpu"], entry_point="m.py::run",
                 calling="value")
solution = Solution(name="s", definition=definition.name, author="a", spec=spec,
                    sources=[SourceFile(path="m.py", content=text)])
request = EvaluationRequest(
    definition=definition, solution=solution, workload=make_workload(definition, {{"n": 100000}})
)
Judge("cpu").evaluate(request)
"""


@pytest.mark.parametrize("signum", [signal.SIGKILL, signal.SIGTERM])
def test_killing_the_judge_leaves_no_process_and_no_memory(
    tmp_path, descendants, lives, eventually, signum
):
    """Not even what an implementation had started, in a session of its own at that."""
    flag = tmp_path / "flag"
    script = HANGS.format(root=str(ROOT), flag=str(flag))
    judge = subprocess.Popen([sys.executable, "-c", script])
    assert eventually(lambda: flag.exists() or judge.poll() is not None)
    family = descendants(judge.pid)
    assert len(family) >= 4  # what forks, the sandbox, its sleep and its fork
    judge.send_signal(signum)
    judge.wait()
    assert eventually(lambda: not any(map(lives, family)))
    assert not any(file.stat().st_size for file in Path("/dev/shm").glob("*fib*"))  # but locks


def test_a_child_leaves_no_process_behind(fork_server, descendants, lives, eventually):
    before = descendants(os.getpid())
    child = fork_server.start()
    os.kill(child.pid, signal.SIGKILL)
    fork_server.end(child)
    assert eventually(lambda: descendants(os.getpid()) <= before)
    assert not lives(child.pid)


def test_a_fork_server_serves_from_any_thread_that_lives(fork_server):
    """The kernel ends a child with the thread that started it: the next start makes another."""
    fork_server.close()
    thread = threading.Thread(target=fork_server.warm)
    thread.start()
    thread.join()
    child = fork_server.start()
    assert fork_server.has(child)
    fork_server.kill(child)
