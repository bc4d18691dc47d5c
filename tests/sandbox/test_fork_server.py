"""The process that sandboxes are forked from: it may die, and nothing else may with it."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from pytest_fib.sandbox import ForkServer, ForkServerError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def breakable():
    """One that may be broken: it has to work again for the next test.

    It imports no torch, which takes seconds: few tests let a sandbox live until it serves.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pytest_fib.sandbox._fork_server_client.PRELOADED", ())
        fork_server = ForkServer("cpu", {})
    fork_server.warm()
    yield fork_server
    fork_server.close()


def test_a_child_lives_until_it_is_ended(breakable, lives):
    child = breakable.start()
    assert breakable.has(child)
    assert lives(child.pid)
    breakable.kill(child)
    assert not lives(child.pid)


def test_how_a_child_ended_is_told(breakable):
    child = breakable.start()
    os.kill(child.pid, signal.SIGSEGV)
    assert breakable.end(child) == -signal.SIGSEGV


def test_a_child_that_does_not_end_is_ended(breakable, lives):
    child = breakable.start()
    os.kill(child.pid, signal.SIGSTOP)
    assert breakable.end(child) is None
    assert not lives(child.pid)


def test_a_child_ends_by_itself_when_its_channel_closes(fork_server):
    child = fork_server.start()
    child.channel.close()
    assert fork_server.end(child) == 1


def test_children_die_with_the_process_they_come_from(breakable, lives, eventually):
    children = [breakable.start() for _ in range(3)]
    os.kill(breakable.pid, signal.SIGKILL)
    assert eventually(lambda: not any(lives(child.pid) for child in children))
    assert not any(breakable.has(child) for child in children)
    for child in children:
        breakable.kill(child)


def test_there_is_another_after_the_death_of_the_first(breakable):
    first = breakable.start()
    os.kill(breakable.pid, signal.SIGKILL)
    second = breakable.start()
    assert breakable.has(second)
    assert not breakable.has(first)
    breakable.kill(first)
    assert breakable.has(second), "the death of a child of the first is no concern of the second"
    breakable.kill(second)


def test_a_process_that_does_not_answer_is_replaced(breakable, monkeypatch):
    monkeypatch.setattr("pytest_fib.sandbox._fork_server_client.FORK_TIMEOUT", 0.2)
    monkeypatch.setattr("pytest_fib.sandbox._fork_server_client.CLOSE_TIMEOUT", 0.2)
    breakable.close()  # the deadline is read when a process starts
    child = breakable.start()
    os.kill(breakable.pid, signal.SIGSTOP)
    assert not breakable.has(child)
    breakable.kill(child)
    monkeypatch.undo()
    breakable.close()
    child = breakable.start()
    assert breakable.has(child)
    breakable.kill(child)


def test_an_interrupt_leaves_no_answer_behind_for_the_next_question(breakable, monkeypatch):
    child = breakable.start()

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("pytest_fib.sandbox._fork_server_client._receive", interrupted)
        with pytest.raises(KeyboardInterrupt):
            breakable.has(child)
    breakable.kill(child)
    child = breakable.start()
    assert breakable.has(child)
    breakable.kill(child)


def test_closing_takes_the_children_along(lives, monkeypatch):
    monkeypatch.setattr("pytest_fib.sandbox._fork_server_client.PRELOADED", ())
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


def test_a_failed_start_leaves_nothing_open(breakable, monkeypatch, open_files):
    breakable.kill(breakable.start())
    before = Counter(open_files())

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(breakable, "_ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            breakable.start()
    assert not Counter(open_files()) - before  # others may be closed meanwhile


HANGS = """\
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from pytest_fib.data import *
from pytest_fib.engine import Judge
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


@pytest.mark.parametrize(
    "signum", [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.thorough)]
)
@pytest.mark.thorough
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


def test_a_child_leaves_no_process_behind(breakable, descendants, lives, eventually):
    before = descendants(os.getpid())
    child = breakable.start()
    os.kill(child.pid, signal.SIGKILL)
    breakable.end(child)
    assert eventually(lambda: descendants(os.getpid()) <= before)
    assert not lives(child.pid)


def test_a_fork_server_serves_from_any_thread_that_lives(breakable):
    """The kernel ends a child with the thread that started it: the next start makes another."""
    breakable.close()
    thread = threading.Thread(target=breakable.warm)
    thread.start()
    thread.join()
    child = breakable.start()
    assert breakable.has(child)
    breakable.kill(child)


def test_what_a_killed_one_leaves_is_ended_before_it_is_replaced(breakable, descendants, lives):
    """Strays of a sandbox, too: in its group, they have become children of this process."""
    children = [breakable.start() for _ in range(2)]
    pid = breakable.pid
    family = descendants(pid)
    os.kill(pid, signal.SIGKILL)
    breakable.close()
    assert len(family) == 2
    assert not any(map(lives, family))
    for child in children:
        with pytest.raises(ChildProcessError):  # reaped, as well
            os.waitpid(child.pid, os.WNOHANG)
        breakable.kill(child)


def test_children_of_other_code_are_left_alone(breakable, lives):
    """Orphans, which become children of this process meanwhile, among them."""
    breakable.start()
    text = "import subprocess; print(subprocess.Popen(['sleep', '100'], stdout=-3).pid)"
    printed = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, check=True)
    orphan = int(printed.stdout)
    beside = subprocess.Popen(["sleep", "100"])
    os.kill(breakable.pid, signal.SIGKILL)
    breakable.close()
    try:
        assert lives(orphan)
        assert beside.poll() is None
        assert os.waitpid(orphan, os.WNOHANG) == (0, 0)
    finally:
        os.kill(orphan, signal.SIGKILL)
        os.waitpid(orphan, 0)
        beside.kill()
        beside.wait()


def test_orphans_are_adopted_only_while_there_is_a_fork_server():
    asked = """\
import ctypes
from pytest_fib.sandbox import ForkServer

def is_subreaper():
    flag = ctypes.c_int()
    ctypes.CDLL(None).prctl(37, ctypes.byref(flag))
    return bool(flag.value)

servers = [ForkServer("cpu", {}) for _ in range(2)]
found = [is_subreaper()]
for server in servers:
    server.warm()
for server in servers:
    found.append(is_subreaper())
    server.close()
print([*found, is_subreaper()])
"""
    command = [sys.executable, "-c", asked]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    assert printed.stdout.strip() == "[False, True, True, False]"


def test_it_is_replaced_as_often_as_it_is_killed(breakable):
    for _ in range(2):
        child = breakable.start()
        os.kill(breakable.pid, signal.SIGKILL)
        breakable.kill(child)
    child = breakable.start()
    assert breakable.has(child)
    breakable.kill(child)


def test_after_several_that_are_killed_before_they_serve_no_more_are_tried(breakable, monkeypatch):
    monkeypatch.setattr("pytest_fib.sandbox._fork_server_client.KILLED_IN_A_ROW", 3)
    breakable.close()
    launch, launched = breakable._launch, []

    def launch_and_kill():
        launch()
        launched.append(breakable.pid)
        os.kill(breakable.pid, signal.SIGKILL)

    with monkeypatch.context() as patch:
        patch.setattr(breakable, "_launch", launch_and_kill)
        with pytest.raises(ForkServerError, match=r"tried 3 times in a row: each was killed by"):
            breakable.start()
    assert len(launched) == 3
    breakable.kill(breakable.start())


ENDS_SLOWLY = """\
import sys
from time import sleep

class Slow:
    def __del__(self, sleep=sleep):
        sleep(0.5)

sys.slow = Slow()
raise ImportError("broken")
"""


def test_one_that_fails_by_itself_is_not_said_to_have_been_killed(tmp_path, monkeypatch):
    """Its socket is closed before it has ended."""
    (tmp_path / "broken_module.py").write_text(ENDS_SLOWLY, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("pytest_fib.sandbox._fork_server_client.PRELOADED", ["broken_module"])
    fork_server = ForkServer("cpu", {})
    with pytest.raises(ForkServerError, match=r"tried 2 times in a row: .*; it exited with code 1"):
        fork_server.start()
