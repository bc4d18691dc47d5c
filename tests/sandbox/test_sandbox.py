"""Whatever an implementation does to its process costs that one evaluation, and is named."""

import os
import re
import signal
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from pytest_fib.build import program_of
from pytest_fib.engine import Judge
from pytest_fib.sandbox import Blocks, ForkServer
from pytest_fib.walls import wall_names

GOOD = """\
def run(x, factor):
    return x * factor
"""

#: What a run does, and the first line of what is said of it.
ENDINGS = {
    "torch's memory": (
        "import torch; torch.empty(1 << 42)",
        "RuntimeError: can't allocate memory: you tried to allocate 17592186044416 bytes",
    ),
    "raise": ("raise ValueError('boom\\nmore')", "ValueError: boom"),
    "raise nothing": ("raise KeyError", "KeyError"),
    "sys.exit": ("sys.exit(3)", "SystemExit: 3"),
    "exit(0)": ("exit(0)", "SystemExit: 0"),
    "os._exit": ("os._exit(3)", "the process exited with code 3"),
    "os._exit(0)": ("os._exit(0)", "the process exited with code 0"),
    "segv": ("ctypes.string_at(0)", "the process was killed by SIGSEGV"),
    "abort": ("os.abort()", "the process was killed by SIGABRT"),
    "bus": ("os.kill(os.getpid(), signal.SIGBUS)", "the process was killed by SIGBUS"),
    "unnamed signal": ("os.kill(os.getpid(), 40)", "the process was killed by signal 40"),
    "kill itself": ("os.kill(os.getpid(), signal.SIGKILL)", "the process was killed by SIGKILL"),
    "keyboard interrupt": ("raise KeyboardInterrupt('me')", "KeyboardInterrupt: me"),
    "generator's end": ("raise GeneratorExit", "GeneratorExit"),
    "neither error nor exit": ("raise type('Odd', (BaseException,), {})(5)", "Odd: 5"),
    "interrupts itself": ("signal.raise_signal(signal.SIGINT)", "KeyboardInterrupt"),
    "memory": ("bytearray(1 << 40)", "MemoryError"),
    "recursion": ("run(x, factor)", "RecursionError: maximum recursion depth exceeded"),
    "surrogate": ("raise ValueError('a\\udcffb')", "ValueError: a\\udcffb"),
    "unreadable": ("raise Unreadable", "Unreadable: its message can't be read"),
    "message of its own kind of text": ("raise OddText", "OddText: odd"),
    "class that can't be read": ("raise OddClass", "OddClass"),
    "notes that can't be read": ("raise OddNotes", "OddNotes"),
    "name that can't be read": ("raise OddName", "OddName"),
    "escape codes": (
        "raise type('A\\x1b[31m\\n::error::b', (Exception,), {})('c\\x1b]0;d\\x07')",
        "A\\x1b[31m\\n\\x3a:error::b: c\\x1b]0;d\\x07",
    ),
    "long": ("raise ValueError('x' * 10_000_000)", "ValueError: xxx"),
    "stack": (
        "nested = ()\n    for _ in range(1_000_000): nested = (nested,)\n    hash(nested)",
        "the process was killed by SIGSEGV",
    ),
    "a thread exits": (
        "import threading; threading.Thread(target=os._exit, args=[0]).start(); time.sleep(60)",
        "the process exited with code 0",
    ),
    "all files closed": ("os.closerange(0, 1000)", "the process exited with code 1"),
    "a builtin is gone": ("__builtins__['isinstance'] = None", "the process exited with code 1"),
    "its own module is gone": ("del sys.modules[__name__]", "KeyError: "),
    "torch is gone": ("import torch; vars(torch).clear()", "AttributeError: module has no"),
    "close": ("os.closerange(3, 100); time.sleep(60)", "the process closed its channel"),
    "kill the parent": (
        "os.kill(os.getppid(), signal.SIGKILL)",
        "PermissionError: [Errno 1] Operation not permitted"
        if "landlock" in wall_names()
        else "it killed or disturbed the process that starts sandboxes",
    ),
}

HEADING = """\
import ctypes, os, signal, sys, time

class Unreadable(Exception):
    def __str__(self):
        raise RuntimeError

class Text(str):
    def splitlines(self):
        raise RuntimeError

class OddText(Exception):
    def __str__(self):
        return Text("odd")

class OddClass(Exception):
    __class__ = property(lambda self: 1 / 0)

class OddNotes(Exception):
    __notes__ = property(lambda self: 1 / 0)

class OddName(Exception, metaclass=type("", (type,), {"__name__": property(lambda kind: 1 / 0)})):
    pass

"""


#: Of workloads that no other test has, so that nothing is known of what is expected.
NEW_SEEDS = count(1_000_000)


def descendants_of_both_sides(judge, evaluate, descendants):
    """The processes of the fork server, with a candidate's and the reference's of this judge."""
    assert evaluate(GOOD, seed=next(NEW_SEEDS)).status == "PASSED"
    return descendants(judge._fork_server.pid)


def body(line):
    return f"{HEADING}def run(x, factor):\n    {line}\n    return x * factor\n"


@pytest.mark.parametrize(("line", "summary"), ENDINGS.values(), ids=ENDINGS)
def test_how_it_ended_is_named_and_the_next_evaluation_is_right(evaluate, line, summary):
    evaluation = evaluate(body(line))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log.splitlines()[0].startswith(summary)
    assert "/pytest_fib/" not in evaluation.log, "frames of this package are of no use"
    assert evaluate(GOOD).status == "PASSED"


ESCAPING = """\
import pytest_fib.sandbox._worker as worker

def stop(reply):
    raise GeneratorExit("stop")

def run(x, factor):
    worker.encode_reply = {}
    return x * factor
"""


@pytest.mark.parametrize(
    ("replacement", "said"),
    [
        ("stop", 'File "\\w+/module.py", line 4, in stop\n(.*\n)+raised at module.py:4'),
        ("None", "TypeError: .* not callable\nraised at _worker.py:\\d+"),
    ],
    ids=["by the program", "by what it broke"],
)
def test_what_is_raised_after_a_call_is_named_without_frames_of_this_package(
    evaluate, replacement, said
):
    evaluation = evaluate(ESCAPING.format(replacement))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log.startswith("the process exited with code 1\n")
    assert re.search(said, evaluation.log), evaluation.log
    assert "/pytest_fib/" not in evaluation.log
    assert evaluate(GOOD).status == "PASSED"


@pytest.mark.parametrize(
    "line",
    [
        "while True: pass",
        "time.sleep(1000)",
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)",
    ],
    ids=["loop", "sleep", "stops itself", "ignores SIGTERM"],
)
def test_a_hang_is_a_timeout_and_leaves_no_process(judge, evaluate, descendants, eventually, line):
    before = descendants_of_both_sides(judge, evaluate, descendants)
    evaluation = evaluate(body(line), timeout=0.5)
    assert evaluation.status == "TIMEOUT"
    assert evaluation.log.splitlines()[0] == "no answer within 0.5 s (--fib-timeout)"
    assert evaluate(GOOD).status == "PASSED"
    assert eventually(lambda: len(descendants(judge._fork_server.pid)) <= len(before))


def test_nobody_waits_for_a_process_that_is_dead_but_for_a_child(
    judge, evaluate, descendants, eventually
):
    """The channel stays open in the child, and nobody answers."""
    before = descendants_of_both_sides(judge, evaluate, descendants)
    evaluation = evaluate(body("os.fork() and os._exit(0); time.sleep(1000)"))
    assert evaluation.log.splitlines()[0] == "the process exited with code 0"
    assert evaluate(GOOD).status == "PASSED"
    assert eventually(lambda: len(descendants(judge._fork_server.pid)) <= len(before))


def test_a_hang_while_it_loads_is_a_timeout(evaluate):
    evaluation = evaluate("import time\ntime.sleep(1000)\ndef run(x, factor): ...\n", timeout=0.5)
    assert evaluation.status == "TIMEOUT"


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("def run(x, factor)\n    return x\n", "SyntaxError: expected ':' (module.py, line 1)"),
        ("import nonesuch\n", "ModuleNotFoundError: No module named 'nonesuch'"),
        (
            "def other(x): ...\n",
            "module.py has no function 'run', but 'other': one of them may be the entry",
        ),
        (
            "run = 5\n",
            "module.py has no function 'run': it is of type int; is its language another?",
        ),
        ("import os\nos._exit(4)\n", "the process exited with code 4"),
    ],
)
def test_what_cannot_be_loaded_says_why(evaluate, text, summary):
    evaluation = evaluate(text)
    assert evaluation.status in ("COMPILE_ERROR", "RUNTIME_ERROR")
    assert evaluation.log.splitlines()[0] == summary


def test_the_traceback_is_the_implementations_own(evaluate):
    log = evaluate("def run(x, factor):\n    helper(x)\n\ndef helper(x):\n    x.nonesuch\n").log
    lines = [line.strip() for line in log.splitlines()]
    assert "Traceback (most recent call last):" in lines
    assert "helper(x)" in lines
    assert "x.nonesuch" in lines
    assert "/pytest_fib/" not in log


def test_a_stack_without_frames_of_the_program_is_left_out(evaluate):
    hidden = 'compile("def run(x, factor): os.abort()", "/pytest_fib/hidden.py", "exec")'
    assert evaluate(f"import os\nexec({hidden})\n").log == "the process was killed by SIGABRT"


def test_what_was_printed_before_a_crash_is_in_the_log(evaluate):
    line = "print('out', end=''); sys.stderr.write('err'); ctypes.CDLL(None).puts(b'c'); "
    log = evaluate(body(line + "ctypes.CDLL(None).fflush(None); ctypes.string_at(0)")).log
    assert log.startswith("the process was killed by SIGSEGV\nouterrc\nFatal Python error: ")
    assert log.endswith(" in run")  # whatever was called from where


def test_what_was_printed_by_a_call_that_passed_is_in_the_log(evaluate):
    evaluation = evaluate(body("print('from python'); ctypes.CDLL(None).puts(b'from C')"))
    assert evaluation.status == "PASSED"
    assert evaluation.log == "--- printed ---\nfrom python\nfrom C"


@pytest.mark.parametrize("end", ["pass", "os._exit(1)"])
def test_of_much_that_is_printed_the_end_is_kept(evaluate, end):
    log = evaluate(body(f"print('x' * (64 << 20)); print('the end'); {end}")).log
    assert 16_384 <= len(log) <= 16_384 + 100
    assert log.endswith("the end")


def test_printing_without_end_ends(evaluate):
    """What is printed lies in memory, so there is a limit to it."""
    evaluation = evaluate(body("\n    while True:\n        print('x' * (64 << 20))"))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log.splitlines()[0] == "OSError: [Errno 27] File too large"


CHANNEL = """\
import os, socket, stat, struct, time

def channel():
    kinds = {fd: os.fstat(int(fd)) for fd in os.listdir("/proc/self/fd") if int(fd) > 2
             and os.path.exists(f"/proc/self/fd/{fd}")}
    [fd] = [int(fd) for fd, facts in kinds.items() if stat.S_ISSOCK(facts.st_mode)]
    return socket.socket(fileno=os.dup(fd))

def frame(serial, payload):
    return struct.pack("!QI", serial, len(payload)) + payload

DONE = b'{"log": "", "samples_ns": [], "kind": "done"}'

def run(x, factor):
    """

#: What is sent on the channel, and what is said of it.
FORGERIES = {
    "garbage": ("channel().send(frame(3, b'{]'))", "the process forged a message: "),
    "not a reply": (
        'channel().send(frame(3, b\'{"kind": "call"}\'))',
        "the process forged a message: ",
    ),
    "a verdict": (
        'channel().send(frame(3, b\'{"kind": "failed", "status": "PASSED", "summary": ""}\'))',
        "the process forged a message: ",
    ),
    "somebody else's doing": (
        'forged = b\'{"kind": "failed", "status": "RUNTIME_ERROR", "summary": "", \'\n'
        "    channel().send(frame(3, forged + b'\"killed\": true}'))",
        "the process forged a message: a reply of a process that was killed",
    ),
    "nobody's fault": (
        'forged = b\'{"kind": "failed", "status": "RUNTIME_ERROR", "summary": \'\n'
        "    channel().send(frame(3, forged + b'\"Not evaluated: no memory\"}'))",
        "it says: Not evaluated: no memory",
    ),
    "our fault": (
        "raise type(\"pytest-fib's own fault\", (Exception,), {})('no verdict')",
        "it says: pytest-fib's own fault: no verdict",
    ),
    "of another turn": (
        "channel().send(frame(99, DONE))",
        "the process forged a message: a reply out of turn",
    ),
    "too long": (
        "channel().send(struct.pack('!QI', 3, 1 << 31)); time.sleep(60)",
        "the process forged a message: a message of 2147483648 bytes",
    ),
    # The answer is taken, and nothing was computed; its own answer is then one too many.
    "ahead of time": ("channel().send(frame(3, DONE)); time.sleep(60)", "out: never written"),
    "two at once": (
        "channel().send(frame(3, DONE) + frame(4, DONE)); time.sleep(60)",
        "out: never written",
    ),
}


@pytest.mark.parametrize(("line", "said"), FORGERIES.values(), ids=FORGERIES)
def test_a_forged_message_decides_nothing(own_judge, request_for, line, said):
    forger = f"{CHANNEL}{line}\n    return x + 1\n"
    evaluation = own_judge.evaluate(request_for(forger))
    assert evaluation.status in ("RUNTIME_ERROR", "INCORRECT_NUMERICAL")
    assert evaluation.log.startswith(said)
    assert own_judge.evaluate(request_for(GOOD)).status == "PASSED"


def test_a_reply_too_many_is_noticed_before_the_next_question(own_judge, request_for):
    forger = f"{CHANNEL}channel().send(frame(3, DONE) + frame(4, DONE))\n    return x * factor\n"
    statuses = [own_judge.evaluate(request_for(forger, seed=seed)).status for seed in range(2)]
    assert "PASSED" not in statuses


def test_a_sandbox_answers_nothing_when_it_only_dribbles(evaluate):
    line = "c = channel()\n    while True: c.send(b'\\0'); time.sleep(0.05)"
    evaluation = evaluate(f"{CHANNEL}{line}\n", timeout=0.5)
    assert evaluation.status in ("TIMEOUT", "RUNTIME_ERROR")
    assert evaluate(GOOD).status == "PASSED"


def test_a_sandbox_has_nothing_open_but_what_it_needs(evaluate):
    """Its channel, the arena it maps, and what it prints to: no other process' files."""
    text = """\
import os

def run(x, factor):
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}").partition("[")[0])
        except FileNotFoundError:
            pass  # the listing itself
    print(sorted(links))
    return x * factor
"""
    log = evaluate(text).log
    assert log.removeprefix("--- printed ---\n") == str(
        [
            "/dev/null",
            "/memfd:pytest-fib arena (deleted)",
            "/memfd:pytest-fib output (deleted)",
            "/memfd:pytest-fib output (deleted)",
            "socket:",
        ]
    )


def test_children_that_outlive_a_sandbox_are_ended(evaluate, tmp_path, lives, eventually):
    pids = tmp_path / "pids"
    text = f"""\
import contextlib, os, subprocess, time

def run(x, factor):
    with open({str(pids)!r}, "a") as file:
        file.write(f"{{subprocess.Popen(['sleep', '1000']).pid}}\\n")
    if os.fork() == 0:
        with contextlib.suppress(PermissionError):
            os.setsid()
        if os.fork() == 0:  # a daemon: its parent is gone, and so it would be from its session
            with open({str(pids)!r}, "a") as file:
                file.write(f"{{os.getpid()}}\\n")
            time.sleep(1000)
        os._exit(0)
    os.wait3(0)
    time.sleep(0.2)
    return x * factor
"""
    assert evaluate(text).status == "PASSED"
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 6, "each of three calls started two"
    assert evaluate(GOOD).status == "PASSED"  # in another sandbox
    assert eventually(lambda: not any(map(lives, started)))


def test_between_requests_a_sandbox_and_its_children_are_stopped(
    breakable_judge, request_for, eventually
):
    text = f"import os\nif os.fork() == 0:\n    while True: pass\n{GOOD}"
    assert breakable_judge.evaluate(request_for(text)).status == "PASSED"
    child = breakable_judge._candidate.sandbox._child
    numbers = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    group = [pid for pid in numbers if of_group(pid, child.pid)]
    assert len(group) == 2
    assert eventually(lambda: all(state(pid) == "T" for pid in group))


IN_THE_KERNEL = """\
import ctypes, mmap, os, threading
import torch

SIZE, POPULATE, REMOVE = 1 << 26, 23, 9
MEMORY = mmap.mmap(-1, SIZE)
PLACE = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(MEMORY)))
MADVISE = ctypes.CDLL(None).madvise

def hog():
    while True:  # milliseconds each time, in which no signal is looked at
        for advice in (REMOVE, POPULATE):
            MADVISE(PLACE, ctypes.c_size_t(SIZE), advice)

{start}

def run(x, factor):
    return x * factor
"""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="nothing tells of threads")
@pytest.mark.parametrize(
    "start",
    [
        "threading.Thread(target=hog, daemon=True).start()",
        pytest.param(
            "if os.fork() == 0:\n    os.fork() or hog()\n    os._exit(0)",
            marks=pytest.mark.thorough,
        ),
    ],
    ids=["thread", "grandchild"],
)
def test_who_is_asked_for_times_has_stopped_by_then(
    breakable_judge, request_for, monkeypatch, start
):
    """A stop takes effect at the end of a system call, and the reference is timed by then."""
    text = IN_THE_KERNEL.format(start=start)
    sandbox = breakable_judge._candidate.sandbox
    working, exchange = [], sandbox._exchange

    def noted(request, timeout, descriptors=()):
        reply = exchange(request, timeout, descriptors)
        if isinstance(request, Blocks):
            working.append(states(sandbox._child.pid) - set("TZX"))
        if len(working) == 4:
            raise KeyboardInterrupt
        return reply

    monkeypatch.setattr(sandbox, "_exchange", noted)
    with pytest.raises(KeyboardInterrupt):
        breakable_judge.evaluate(request_for(text, timing=True))
    assert not any(working)


def states(session):
    """Of all threads of a session."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/task/[0-9]*/stat"):
        with suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            found |= {fields[0]} if int(fields[3]) == session else set()
    return found


def of_group(pid, group):
    try:
        return os.getpgid(pid) == group
    except ProcessLookupError:
        return False


def state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize(
    "when", ["between evaluations", "before it has mapped its memory", "while it maps that"]
)
@pytest.mark.parametrize("side", ["candidate", "reference"])
def test_a_sandbox_killed_from_outside_is_not_blamed(
    own_judge, request_for, monkeypatch, side, when
):
    assert own_judge.evaluate(request_for(GOOD)).status == "PASSED"
    sandbox = getattr(own_judge, f"_{side}").sandbox
    if when == "between evaluations":
        os.kill(sandbox._child.pid, signal.SIGKILL)
    else:
        # As where the device has no memory left for its context.
        number = signal.SIGABRT if when == "while it maps that" else signal.SIGKILL
        end_the_next(own_judge._fork_server, monkeypatch, number)
        sandbox.close()
    assert own_judge.evaluate(request_for(GOOD, seed=1)).status == "PASSED"


def end_the_next(fork_server, monkeypatch, number):
    start = fork_server.start

    def ended():
        monkeypatch.undo()
        child = start()
        os.kill(child.pid, number)
        return child

    monkeypatch.setattr(fork_server, "start", ended)


def test_the_process_that_sandboxes_come_from_may_be_killed_from_outside(own_judge, request_for):
    assert own_judge.evaluate(request_for(GOOD)).status == "PASSED"
    os.kill(own_judge._fork_server.pid, signal.SIGKILL)
    assert own_judge.evaluate(request_for(GOOD, seed=1)).status == "PASSED"


def test_who_is_killed_every_time_has_an_outcome_that_says_so(judge, request_for):
    evaluation = judge.evaluate(request_for(body("os.kill(os.getpid(), signal.SIGKILL)")))
    first, second = evaluation.log.splitlines()
    assert first == "the process was killed by SIGKILL"
    assert second == "this happened in each of 3 attempts"


def test_without_sandboxes_nothing_is_evaluated_and_nobody_blamed(request_for, monkeypatch):
    def fails(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr("subprocess.Popen", fails)
    with Judge("cpu", fork_server=ForkServer("cpu", {})) as judge:
        evaluation = judge.evaluate(request_for(GOOD))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.diagnosis.pattern == "not evaluated"
    said = "not evaluated: no sandbox can be started, tried 2 times in a row: no more processes"
    assert evaluation.log.startswith(said)


def test_a_program_that_could_not_be_loaded_is_not_held(judge, evaluate, solution, definition):
    text = "raise ValueError\n"
    evaluate(text)
    assert not judge._candidate.sandbox.holds(program_of(solution(text), definition, None))


PAGES = """\
import resource, torch

def run(x, factor):
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(16_000_000)
    print("pages:", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults)
    return x * factor
"""


def test_pages_of_freed_tensors_are_used_again(evaluate):
    evaluate(PAGES)
    logs = [evaluate(PAGES).log for _ in range(4)]
    # Fresh ones would be 15,625, of 4 KiB each, in all of them; in one, small tensors may lie among
    # those that are free.
    assert min(int(log.partition("pages: ")[2].split()[0]) for log in logs) < 1000
