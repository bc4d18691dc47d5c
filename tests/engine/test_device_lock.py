"""Who may use a device, across processes and users."""

import multiprocessing
import os
import re
import stat
import threading
from pathlib import Path
from time import monotonic, sleep

import pytest

from pytest_fib.data import SearchRequest
from pytest_fib.engine import DeviceHeldError, DeviceLock, Judge

#: Processes that have torch already: to import it takes seconds.
CONTEXT = multiprocessing.get_context("fork")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Locks of our own, so that no test waits for a run beside it."""
    monkeypatch.setattr("pytest_fib.engine._device_lock.FOLDER", tmp_path)
    return tmp_path


class Holder:
    """A process that holds the device until it is killed or told to end."""

    def __init__(self, how):
        self._pipe, end = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=self._hold, args=(how, end))
        self.process.start()
        self.pid = self.process.pid
        assert self._pipe.recv() == "held"

    @staticmethod
    def _hold(how, end):
        Path("/proc/self/comm").write_text("me\x1b[2J")
        lock = DeviceLock("cpu")
        with lock.exclusive() if how == "exclusive" else lock.shared():
            end.send("held")
            end.recv()

    def end(self):
        self._pipe.send("end")
        self.process.join()

    def kill(self):
        self.process.kill()
        self.process.join()


@pytest.fixture
def holder(folder):
    """Start processes that hold the device."""
    started = []

    def hold(how):
        started.append(Holder(how))
        return started[-1]

    yield hold
    for process in started:
        process.kill()


def taken(how):
    """A thread that waits for the device, and the event that it has it."""
    event = threading.Event()

    def take():
        with getattr(DeviceLock("cpu"), how)():
            event.set()

    thread = threading.Thread(target=take)
    thread.start()
    return thread, event


def test_any_number_may_share():
    with DeviceLock("cpu").shared(), DeviceLock("cpu").shared():
        thread, event = taken("shared")
        assert event.wait(30)
        thread.join()


def test_a_use_is_told_once_and_short_pauses_are_part_of_it():
    lock = DeviceLock("cpu")
    before = monotonic()
    with lock.shared():
        lock.give_way()
        with lock.released():
            sleep(0.05)
    between = monotonic()
    with lock.exclusive():
        sleep(0.02)
    use, again = lock.take_use(), lock.take_use()
    first, *_, last = use.used
    assert len(use.used) in (2, 3)  # the last two may be so near to each other that they are one
    assert before <= first[0] <= first[1] <= between <= last[1] <= monotonic()
    assert 0.02 <= use.alone <= last[1] - before
    assert (again.used, again.alone, again.waited) == ([], 0.0, 0.0)


def test_each_holder_is_told_once(holder, monkeypatch):
    monkeypatch.setattr("pytest_fib.engine._device_lock.LOCK_PATIENCE", 0.05)
    monkeypatch.setattr("pytest_fib.engine._device_lock.REMINDER", 0.05)
    told: list[str] = []
    lock = DeviceLock("cpu", told.append, 0.5)
    first, second = holder("shared"), holder("shared")
    for _ in range(2):
        with pytest.raises(DeviceHeldError), lock.exclusive():
            pass
    second.end()
    third = holder("shared")
    with pytest.raises(DeviceHeldError), lock.exclusive():
        pass
    pids = [int(pid) for line in told for pid in line.partition("held by pid ")[2].split(", ")]
    assert sorted(pids) == sorted([first.pid, second.pid, third.pid])


@pytest.mark.parametrize(("first", "second"), [("exclusive", "shared"), ("shared", "exclusive")])
def test_who_wants_to_be_alone_is_alone(first, second):
    with getattr(DeviceLock("cpu"), first)():
        thread, event = taken(second)
        assert not event.wait(0.2)
    assert event.wait(30)
    thread.join()


@pytest.mark.parametrize("how", ["shared", "exclusive"])
def test_a_lock_reaches_across_processes(holder, how):
    process = holder(how)
    thread, event = taken("exclusive")
    assert not event.wait(0.2)
    process.end()
    assert event.wait(30)
    thread.join()


def test_a_holder_that_is_killed_holds_no_more(holder):
    process = holder("exclusive")
    process.kill()
    thread, event = taken("shared")
    assert event.wait(30)
    thread.join()


def test_a_stream_of_sharers_does_not_starve_who_wants_to_be_alone():
    """There is never a moment without a sharer, unless the next one has to wait."""
    stop = threading.Event()

    def share():
        lock = DeviceLock("cpu")
        while not stop.is_set():
            with lock.shared():
                stop.wait(0.01)

    sharers = [threading.Thread(target=share) for _ in range(4)]
    for sharer in sharers:
        sharer.start()
    thread, event = taken("exclusive")
    try:
        assert event.wait(30)
    finally:
        stop.set()
        for sharer in [*sharers, thread]:
            sharer.join()


@pytest.mark.parametrize("how", ["shared", "exclusive"])
def test_who_waits_long_is_told_for_whom(holder, monkeypatch, how):
    monkeypatch.setattr("pytest_fib.engine._device_lock.LOCK_PATIENCE", 0.05)
    process = holder("exclusive")
    said = []

    def release(message):
        said.append(message)
        process.kill()

    with getattr(DeviceLock("cpu", release), how)():
        pass
    assert said == [f"waiting for cpu: held by pid {process.pid}"]


def test_who_waits_for_several_is_told_all_of_them(holder, monkeypatch):
    monkeypatch.setattr("pytest_fib.engine._device_lock.LOCK_PATIENCE", 0.05)
    processes = [holder("shared"), holder("shared")]
    said = []

    def release(message):
        said.append(message)
        for process in processes:
            process.kill()

    with DeviceLock("cpu", release).exclusive():
        pass
    [message] = said
    pids = message.removeprefix("waiting for cpu: held by pid ").split(", ")
    assert sorted(pids) == sorted(str(process.pid) for process in processes)


@pytest.mark.parametrize("how", ["shared", "exclusive"])
def test_nobody_waits_for_ever_and_the_holder_is_named(holder, how):
    process = holder("exclusive")
    name = r"\(me\\x1b\[2J\)"
    said = rf"cpu was held by pid {process.pid} {name} for the 0.2 s of --fib-lock-timeout"
    with pytest.raises(DeviceHeldError, match=said), getattr(DeviceLock("cpu", None, 0.2), how)():
        pass
    # Who gave up doesn't take the lock when it comes.
    process.end()
    with DeviceLock("cpu").exclusive():
        pass


def test_who_is_held_up_has_an_outcome_with_the_holder(holder, request_for, fork_server):
    process = holder("exclusive")
    with Judge("cpu", lock_timeout=0.2, fork_server=fork_server) as judge:
        evaluation = judge.evaluate(request_for("def run(x, factor):\n    return x * factor\n"))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log.startswith(f"not evaluated: cpu was held by pid {process.pid} (")


def test_a_search_that_is_held_up_ends_at_once(holder, definition, solution, fork_server):
    process = holder("exclusive")
    request = SearchRequest(
        definition=definition,
        solution=solution("def run(x, factor):\n    return x * factor\n"),
        examples=25,
        seed=0,
        max_bytes=1 << 20,
    )
    with Judge("cpu", lock_timeout=0.2, fork_server=fork_server) as judge:
        result = judge.search(request)
    assert (result.tried, result.origin, result.was_evaluated) == (0, None, False)
    assert f"held by pid {process.pid}" in result.outcome.log


@pytest.fixture
def failing_search(definition, solution):
    """A search for an implementation that is wrong from 9 elements on."""
    text = "def run(x, factor):\n    return x * (factor if len(x) < 9 else 0)\n"
    return SearchRequest(
        definition=definition, solution=solution(text), examples=25, seed=0, max_bytes=1 << 20
    )


def test_a_search_that_is_held_up_while_it_shrinks_keeps_what_it_found(
    judge, failing_search, monkeypatch
):
    evaluated, evaluate = [], judge._outcome

    def held_up_after_a_failure(request):
        if any(outcome.status != "PASSED" for outcome in evaluated):
            raise DeviceHeldError("cpu was held")
        evaluated.append(evaluate(request))
        return evaluated[-1]

    monkeypatch.setattr(judge, "_outcome", held_up_after_a_failure)
    result = judge.search(failing_search)
    assert result.outcome.status == "INCORRECT_NUMERICAL"
    assert (result.tried, result.origin) == (len(evaluated), "unfinished")


def test_waiting_for_a_device_takes_no_time_from_shrinking(judge, failing_search, monkeypatch):
    evaluate, now = judge._outcome, [judge.waited]

    def evaluate_after_a_wait(request):
        now[0] += 60.0
        judge._lock.waited += 60.0
        return evaluate(request)

    monkeypatch.setattr(judge._lock, "waited", judge.waited)
    monkeypatch.setattr(judge, "_outcome", evaluate_after_a_wait)
    monkeypatch.setattr("pytest_fib.engine._judge.monotonic", lambda: now[0])
    result = judge.search(failing_search)
    assert (result.origin, result.workload.axes) == ("shrunk", {"n": 9})


def test_nothing_is_said_of_a_short_wait():
    said = []
    with DeviceLock("cpu", said.append).exclusive():
        pass
    assert said == []


def test_any_user_may_open_the_lock_file(folder):
    before = os.umask(0o077)
    try:
        with DeviceLock("cpu").exclusive():
            pass
    finally:
        os.umask(before)
    modes = [stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()]
    assert modes == [0o666, 0o666]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_another_users_lock_file_serves_as_well(folder):
    """In a sticky folder, where opening others' files with O_CREAT is refused."""
    folder.chmod(0o1777)
    with DeviceLock("cpu").exclusive():
        pass
    files = list(folder.iterdir())
    assert len(files) == 2
    for path in files:
        os.chown(path, 65534, 65534)
    with DeviceLock("cpu").shared():
        assert {path.stat().st_uid for path in files} == {65534}


def test_a_lock_file_that_is_a_link_is_refused(folder):
    """Anyone may put one in /dev/shm; what it points to is not ours to open."""
    (folder / "elsewhere").touch()
    (folder / "pytest-fib-cpu.lock").symlink_to(folder / "elsewhere")
    with pytest.raises(OSError, match=r"pytest-fib-cpu\.lock"), DeviceLock("cpu").shared():
        pass


def test_a_shared_use_gives_way_to_who_waits_to_be_alone():
    lock = DeviceLock("cpu")
    with lock.shared():
        thread, event = taken("exclusive")
        assert not event.wait(0.2)
        until = monotonic() + 30
        while not event.is_set() and monotonic() < until:
            lock.give_way()
        assert event.is_set()
        thread.join()
        # It shares the device again.
        thread, event = taken("exclusive")
        assert not event.wait(0.2)
    assert event.wait(30)
    thread.join()


def test_what_does_not_use_the_device_leaves_it_to_others():
    lock = DeviceLock("cpu")
    with lock.shared(), lock.released():
        thread, event = taken("exclusive")
        assert event.wait(30)
        thread.join()


def test_a_device_that_is_not_in_use_is_not_released_nor_taken():
    lock = DeviceLock("cpu")
    with lock.released():
        lock.give_way()
        assert not lock.is_shared
    with DeviceLock("cpu").exclusive(), lock.released():
        lock.give_way()
        assert not lock.is_shared


def test_a_failure_without_the_device_leaves_no_lock():
    lock = DeviceLock("cpu")
    with pytest.raises(ZeroDivisionError), lock.shared(), lock.released():
        1 / 0  # noqa: B018
    with DeviceLock("cpu", None, 0.2).exclusive():
        pass


def threads_that_wait_for_locks():
    """How many of this process' threads wait for a lock of a file."""
    waiting = re.compile(rf"-> FLOCK +ADVISORY +\w+ +{os.getpid()} ")
    return len(waiting.findall(Path("/proc/locks").read_text(encoding="ascii")))


def test_all_who_want_to_be_alone_go_before_anyone_shares_again(eventually):
    order = []

    def alone():
        with DeviceLock("cpu").exclusive():
            order.append("alone")

    def beside():
        with DeviceLock("cpu").shared():
            order.append("beside")

    with DeviceLock("cpu").shared():
        threads = [threading.Thread(target=alone) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert eventually(lambda: threads_that_wait_for_locks() == 3)
        threads.append(threading.Thread(target=beside))
        threads[-1].start()
    for thread in threads:
        thread.join()
    assert order == ["alone"] * 3 + ["beside"]


class Working:
    """What works on a device: which of both was asked of it."""

    def __init__(self):
        self.asked = []

    def pause(self):
        self.asked.append("pause")

    def resume(self):
        self.asked.append("resume")


def test_what_works_on_the_device_is_paused_for_who_waits_to_be_alone():
    lock, process, seen = DeviceLock("cpu"), Working(), []

    def be_alone():
        with DeviceLock("cpu").exclusive():
            seen.append(list(process.asked))

    with lock.shared(), lock.working(process):
        lock.pause_if_wanted()
        assert process.asked == []
        other = threading.Thread(target=be_alone)
        other.start()
        while not process.asked:
            lock.pause_if_wanted()
        other.join()
        assert lock.is_shared
    assert seen == [["pause"]]
    assert process.asked == ["pause", "resume"]


def test_nothing_is_paused_where_this_process_has_the_device_alone():
    lock, process = DeviceLock("cpu"), Working()
    with lock.exclusive(), lock.working(process):
        lock.pause_if_wanted()
    assert process.asked == []


def stopped(pid):
    """Whether a process is stopped, or has ended since it was listed."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] == "T"


SLOW = """\
import time

def run(x, factor):
    for _ in range(40):
        time.sleep(0.005)
    return x * factor
"""


#: Stays stopped while others have the device to themselves, and after that.
STOPS_ITSELF = """\
import os
import signal

def run(x, factor):
    os.kill(os.getpid(), signal.SIGSTOP)
    return x * factor
"""


@pytest.fixture
def evaluate_among_exclusive_users(request_for, descendants, eventually):
    """The evaluation of a kernel while another user has the device again and again.

    With whether all processes were stopped, each time.
    """

    def be_alone(fork_server, done, seen):
        while not done.is_set():
            with DeviceLock("cpu").exclusive():
                seen.append(eventually(lambda: all(map(stopped, descendants(fork_server)))))
                sleep(0.5)  # more than a call has left of its time
            sleep(0.05)

    def evaluate(text):
        seen, done = [], threading.Event()
        before = descendants(os.getpid())
        with Judge("cpu") as judge:
            assert judge.evaluate(request_for(SLOW)).status == "PASSED"
            new = descendants(os.getpid()) - before
            (fork_server,) = (pid for pid in new if descendants(pid))
            other = threading.Thread(target=be_alone, args=(fork_server, done, seen))
            other.start()
            try:
                return judge.evaluate(request_for(text, timeout=1.5)), seen
            finally:
                done.set()
                other.join()

    return evaluate


@pytest.mark.thorough
def test_a_sandbox_is_paused_in_its_call_for_who_waits_to_be_alone(evaluate_among_exclusive_users):
    evaluation, seen = evaluate_among_exclusive_users(SLOW)
    assert evaluation.status == "PASSED", evaluation.log
    assert len(seen) > 1
    assert all(seen)


@pytest.mark.thorough
def test_who_stopped_itself_is_not_continued_after_a_pause(evaluate_among_exclusive_users):
    evaluation, seen = evaluate_among_exclusive_users(STOPS_ITSELF)
    assert evaluation.status == "TIMEOUT"
    assert len(seen) > 1
    assert all(seen)


class Device:
    """A device that is idle, or isn't, each time that it is looked at."""

    def __init__(self, *states):
        self.states = list(states)

    def wait(self):
        return self.states.pop(0)


@pytest.fixture
def busy_lock(monkeypatch):
    """A lock on a device that is idle, or isn't, each time that somebody wants it alone."""

    def busy_lock(*states):
        monkeypatch.setattr("pytest_fib.engine._device_lock.BUSY_PAUSES", (0.01, 0.02))
        lock = DeviceLock("cpu")
        lock._idle = Device(*states)
        return lock

    return busy_lock


def test_a_device_with_kernels_of_others_is_left_to_them_until_it_is_idle(busy_lock, monkeypatch):
    lock, paused = busy_lock(False, False, True, True), []

    def pause(seconds):
        with DeviceLock("cpu", timeout=1).shared():
            paused.append(seconds)

    monkeypatch.setattr("pytest_fib.engine._device_lock.sleep", pause)
    with lock.exclusive():
        assert paused == [0.01, 0.02]
    with lock.exclusive():
        assert paused == [0.01, 0.02]


def test_a_device_that_is_never_idle_is_waited_for_once(busy_lock, monkeypatch):
    lock, paused = busy_lock(False, False, False, False, True, False, True), []
    monkeypatch.setattr("pytest_fib.engine._device_lock.sleep", paused.append)
    for pauses in ([0.01, 0.02], [], [], [0.01]):
        with lock.exclusive():
            assert paused == pauses
        paused.clear()
