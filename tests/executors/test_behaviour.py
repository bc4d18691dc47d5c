"""What must hold of every executor, wherever it evaluates."""

import os
import signal
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from pytest_fib.data import SearchRequest
from pytest_fib.executors import (
    LocalExecutor,
    RayExecutor,
    RayOptions,
    RemoteOptions,
    SshExecutor,
    SshTarget,
)
from tests.conftest import HANGS
from tests.executors.conftest import Ssh
from tests.executors.kernels import definition, evaluation, solution

#: Seconds that anything may take here.
AT_MOST = 60.0


class Here:
    """In this process: what can be lost is the process that its sandboxes come from."""

    def __init__(self, folder):
        before = children(os.getpid())
        self.executor = LocalExecutor("cpu")
        self.executor.start()
        self._others = before

    def lose(self):
        for pid in children(os.getpid()) - self._others:
            os.kill(pid, signal.SIGKILL)


class FarAway:
    """Another process, by a stand-in for ssh: what is lost is the worker."""

    def __init__(self, folder):
        self._patch = pytest.MonkeyPatch()
        for name, value in Ssh(folder).environment.items():
            self._patch.setenv(name, value)
        target = SshTarget.parse("ssh://somewhere", sys.executable)
        self.executor = SshExecutor(target, RemoteOptions(grace=20.0))
        self.executor.start()

    def lose(self):
        os.kill(self.executor.worker_pid, signal.SIGKILL)


class OnRay:
    """A cluster of one machine: what is lost is the actor."""

    def __init__(self, folder):
        self._ray = pytest.importorskip("ray")
        self.executor = RayExecutor("local", RayOptions(device="cpu", actors=1))
        self.executor.start()

    def lose(self):
        shared = self.executor.shared
        actor = self._ray.get_actor(shared.names[0], shared.namespace)
        self._ray.kill(actor, no_restart=False)


KINDS = {"here": Here, "ssh": FarAway, "ray": OnRay}


def children(pid):
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return {int(word) for word in text.split()}


@pytest.fixture(scope="module", params=KINDS)
def place(request, tmp_path_factory):
    place = KINDS[request.param](tmp_path_factory.mktemp(request.param))
    yield place
    place.executor.close()
    if hasattr(place, "_patch"):
        place._patch.undo()


@pytest.fixture
def executor(place):
    return place.executor


def is_gone(pid):
    until = time.monotonic() + AT_MOST
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


def test_each_request_gets_its_own_answer_once(executor):
    asked = [
        evaluation(name, n) for n in (1, 7, 120) for name in ("right", "wrong", "raising", "shape")
    ]
    asked += asked[:4]
    statuses = {
        "right": "PASSED",
        "wrong": "INCORRECT_NUMERICAL",
        "raising": "RUNTIME_ERROR",
        "shape": "INCORRECT_SHAPE",
    }
    answers = list(executor.evaluate_all(iter(asked)))
    assert Counter(id(request) for request, _ in answers) == Counter(map(id, asked))
    for request, answer in answers:
        assert answer.status == statuses[request.solution.name]


def test_one_at_a_time_answers_come_in_order(executor):
    names = ["right", "wrong", "right", "raising"]
    passed = [executor.evaluate(evaluation(name)).status == "PASSED" for name in names]
    assert passed == [True, False, True, False]


def test_a_crash_is_of_its_own_request_only(executor):
    crashed = executor.evaluate(evaluation("crashing"))
    assert crashed.status == "RUNTIME_ERROR"
    assert "exited with code 3" in crashed.log
    assert executor.evaluate(evaluation("right")).status == "PASSED"


def test_what_hangs_is_ended_in_time(executor):
    assert executor.evaluate(evaluation("hanging", timeout=0.5)).status == "TIMEOUT"
    assert executor.evaluate(evaluation("right")).status == "PASSED"


def test_long_logs_arrive_cut_to_their_limit(executor):
    answer = executor.evaluate(evaluation("loud"))
    assert answer.status == "PASSED"
    assert 1000 < len(answer.log) < 1 << 20
    assert "long line" in answer.log


def test_any_text_arrives_readable(executor):
    answer = executor.evaluate(evaluation("worldly"))
    assert "größer: 💥" in answer.diagnosis.sentence
    assert "\x1b" not in answer.log


@pytest.mark.thorough
def test_a_search_shrinks_where_it_runs(executor):
    request = SearchRequest(definition=definition(), solution=solution("tail"), examples=6)
    found = executor.search(request)
    assert (found.origin, found.workload.axes) == ("shrunk", {"n": 101})


@pytest.mark.thorough
def test_what_was_lost_is_done_again(place):
    timer = threading.Timer(0.7, place.lose)
    timer.start()
    answer = place.executor.evaluate(evaluation("slow"))
    timer.join()
    assert answer.status == "PASSED"
    assert place.executor.evaluate(evaluation("wrong")).status == "INCORRECT_NUMERICAL"


@pytest.mark.thorough
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_ends_what_runs(kind, tmp_path, tmp_path_factory):
    mark = tmp_path_factory.getbasetemp() / "waiting"
    mark.unlink(missing_ok=True)
    place = KINDS[kind](tmp_path)

    def interrupt():
        while not (mark.exists() and mark.read_text()):
            time.sleep(0.02)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        place.executor.evaluate(evaluation("waiting", timeout=HANGS))
    place.executor.close()
    if hasattr(place, "_patch"):
        place._patch.undo()
    assert is_gone(int(mark.read_text()))
