"""A process that waits for a program: whose it becomes, and when it runs."""

import os
import signal
from pathlib import Path

import pytest

from pytest_fib.build import reference_program
from pytest_fib.engine import DeviceLock
from pytest_fib.sandbox import ArenaAllocator, Done, Load, ProcessSandbox, SpareProcess


@pytest.fixture
def spare(fork_server):
    """One for sandboxes on the CPU: there is no context to make."""
    spare = SpareProcess(fork_server)
    yield spare
    spare.close()


@pytest.fixture
def sandbox(fork_server, spare):
    """What takes it."""
    allocator = ArenaAllocator("cpu")
    allocator.begin(1024)
    sandbox = ProcessSandbox(fork_server, allocator, untrusted=True, spare=spare)
    yield sandbox
    sandbox.close()


@pytest.fixture
def loaded(sandbox, definition):
    """Load the reference in a process of its own, and have the next one started: the replies."""

    def loaded():
        program = reference_program(definition)
        sandbox.close()
        replies = [sandbox.open(program), sandbox.map(), sandbox.ask(Load(program), 60.0)]
        sandbox.get_ready()
        return replies

    return loaded


def state(pid):
    """As ``ps`` has it: T is a stopped process."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]


def test_there_is_none_until_a_sandbox_gets_ready(spare, loaded):
    assert spare.pid is None
    assert loaded() == [Done()] * 3
    assert spare.pid is not None


def test_a_sandbox_gets_ready_once(spare, sandbox):
    sandbox.get_ready()
    first = spare.pid
    sandbox.get_ready()
    assert spare.pid == first


def test_the_next_program_gets_it_and_there_is_another(spare, loaded, lives):
    loaded()
    first = spare.pid
    assert loaded() == [Done()] * 3
    assert lives(first)
    assert spare.pid != first
    loaded()
    assert not lives(first), "it was the last program's"


def test_one_that_was_killed_is_nobodys_fault(spare, loaded, eventually, lives):
    loaded()
    os.kill(spare.pid, signal.SIGKILL)
    assert eventually(lambda: state(spare.pid) == "Z")
    assert loaded() == [Done()] * 3


def test_it_dies_with_the_process_it_comes_from(fork_server, spare, loaded, lives):
    loaded()
    fork_server.close()
    assert not lives(spare.pid)
    assert loaded() == [Done()] * 3


def test_it_runs_only_while_its_user_has_the_device(spare, tmp_path, monkeypatch, eventually):
    monkeypatch.setattr("pytest_fib.engine._device_lock.FOLDER", tmp_path)
    lock = DeviceLock("cpu")
    lock.add_background(spare)
    with lock.shared():
        spare.begin()
        assert state(spare.pid) != "T"
        with lock.released():
            assert eventually(lambda: state(spare.pid) == "T")
        assert eventually(lambda: state(spare.pid) != "T")
    with lock.exclusive():
        assert eventually(lambda: state(spare.pid) == "T")


def test_closing_ends_it(spare, lives):
    spare.begin()
    pid = spare.pid
    spare.close()
    assert not lives(pid)
    assert spare.pid is None
