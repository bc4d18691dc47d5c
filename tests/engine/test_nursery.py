"""The process that sandboxes are forked from: it may die, and nothing else may with it."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pytest_fib.engine._nursery import Nursery

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shared():
    nursery = Nursery("cpu", {})
    nursery.warm()
    yield nursery
    nursery.close()


@pytest.fixture
def nursery(shared):
    """A nursery that may be broken: it has to work again for the next test."""
    return shared


def test_a_child_lives_until_it_is_ended(nursery, lives):
    child = nursery.start()
    assert nursery.has(child)
    assert lives(child.pid)
    nursery.kill(child)
    assert not lives(child.pid)


def test_how_a_child_ended_is_told(nursery):
    child = nursery.start()
    os.kill(child.pid, signal.SIGSEGV)
    assert nursery.end(child) == -signal.SIGSEGV


def test_a_child_that_does_not_end_is_ended(nursery, lives):
    child = nursery.start()
    os.kill(child.pid, signal.SIGSTOP)
    assert nursery.end(child) is None
    assert not lives(child.pid)


def test_a_child_ends_by_itself_when_its_channel_closes(nursery):
    child = nursery.start()
    child.channel.close()
    assert nursery.end(child) == 1


def test_children_die_with_the_process_they_come_from(nursery, lives, eventually):
    children = [nursery.start() for _ in range(3)]
    os.kill(nursery.pid, signal.SIGKILL)
    assert eventually(lambda: not any(lives(child.pid) for child in children))
    assert not any(nursery.has(child) for child in children)
    for child in children:
        nursery.kill(child)


def test_there_is_another_after_the_death_of_the_first(nursery):
    first = nursery.start()
    os.kill(nursery.pid, signal.SIGKILL)
    second = nursery.start()
    assert nursery.has(second)
    assert not nursery.has(first)
    nursery.kill(first)
    assert nursery.has(second), "the death of a child of the first is no concern of the second"
    nursery.kill(second)


def test_a_process_that_does_not_answer_is_replaced(nursery, monkeypatch):
    monkeypatch.setattr("pytest_fib.engine._nursery.FORK_TIMEOUT", 0.2)
    monkeypatch.setattr("pytest_fib.engine._nursery.CLOSE_TIMEOUT", 0.2)
    nursery.close()  # the deadline is read when a process starts
    child = nursery.start()
    os.kill(nursery.pid, signal.SIGSTOP)
    assert not nursery.has(child)
    nursery.kill(child)
    monkeypatch.undo()
    nursery.close()
    child = nursery.start()
    assert nursery.has(child)
    nursery.kill(child)


def test_an_interrupt_leaves_no_answer_behind_for_the_next_question(nursery, monkeypatch):
    child = nursery.start()

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pytest_fib.engine._nursery._answer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            nursery.has(child)
    nursery.kill(child)
    child = nursery.start()
    assert nursery.has(child)
    nursery.kill(child)


def test_closing_takes_the_children_along(lives):
    nursery = Nursery("cpu", {})
    children = [nursery.start() for _ in range(2)]
    pid = nursery.pid
    nursery.close()
    assert not lives(pid)
    assert not any(lives(child.pid) for child in children)
    nursery.close()


def test_closing_does_not_wait_for_torch_to_be_imported(lives):
    nursery = Nursery("cpu", {})
    nursery.warm()
    pid = nursery.pid
    nursery.close()
    assert not lives(pid)


def test_a_failed_start_leaves_nothing_open(nursery, monkeypatch, open_files):
    nursery.kill(nursery.start())
    before = len(open_files())

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(nursery, "_say", interrupted)
        with pytest.raises(KeyboardInterrupt):
            nursery.start()
    assert len(open_files()) == before


HANGS = """\
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from pytest_fib.data import *
from pytest_fib.engine import *
from pytest_fib.workloads import complete

definition = load_definition_file(Path({root!r}, "kernel_defs/scale/scale.yaml"))[2].definition
text = '''
import os, subprocess
def run(x, factor):
    subprocess.Popen(["sleep", "1000"])
    if os.fork() == 0:
        os.setsid()
    print("running", file=open({flag!r}, "w"))
    while True:
        pass
'''
spec = BuildSpec(language="python", target_hardware=["cpu"], entry_point="m.py::run",
                 calling="value")
solution = Solution(name="s", definition=definition.name, author="a", spec=spec,
                    sources=[SourceFile(path="m.py", content=text)])
request = EvaluationRequest(definition, solution, complete(definition, {{"n": 100000}}))
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
    assert not list(Path("/dev/shm").glob("*fib*"))


def test_a_child_leaves_no_process_behind(nursery, descendants, lives, eventually):
    before = descendants(os.getpid())
    child = nursery.start()
    os.kill(child.pid, signal.SIGKILL)
    nursery.end(child)
    assert eventually(lambda: descendants(os.getpid()) <= before)
    assert not lives(child.pid)


def test_a_nursery_serves_from_any_thread_that_lives(nursery):
    """The kernel ends a child with the thread that started it: the next start makes another."""
    nursery.close()
    thread = threading.Thread(target=nursery.warm)
    thread.start()
    thread.join()
    child = nursery.start()
    assert nursery.has(child)
    nursery.kill(child)
