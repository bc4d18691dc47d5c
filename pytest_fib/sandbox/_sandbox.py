"""Where foreign code runs: in a process of its own or, for debuggers, in this one."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.data import visible, visible_line
from pytest_fib.sandbox import _fork_server
from pytest_fib.sandbox._channel import Channel, ChannelBroken, ChannelClosed, ChannelLate
from pytest_fib.sandbox._container import container_command, container_environment
from pytest_fib.sandbox._foreign_errors import LINE_LIMIT, LOG_LIMIT, own_stacks
from pytest_fib.sandbox._messages import (
    Build,
    Done,
    Failed,
    Load,
    Map,
    decode_reply,
    encode_request,
    is_short,
)
from pytest_fib.sandbox._orphans import Adoption, end_group
from pytest_fib.sandbox._runner import Runner
from pytest_fib.walls import wall_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_fib.build import Program
    from pytest_fib.sandbox._arena import Arena, ArenaAllocator
    from pytest_fib.sandbox._last_call import LastCall
    from pytest_fib.sandbox._messages import FailedStatus, Reply, Request

#: Mapping an arena takes milliseconds; a new CUDA context before it, a fraction of a second.
MAP_TIMEOUT = 60.0
#: Starting Python and importing torch, on a machine where eight workers do so at once.
START_TIMEOUT = 120.0
FORK_TIMEOUT = 10.0
#: How long the fork server may take to end its sandboxes and itself.
CLOSE_TIMEOUT = 5.0
#: How long a process may take to write where its threads are.
STACKS_TIMEOUT = 2.0
GONE = "the process that starts sandboxes is gone"
#: Fork servers in a row that start no sandbox, until no more are tried: where somebody kills them,
#: and where they end or hang by themselves.
KILLED_IN_A_ROW, FAILED_IN_A_ROW = 20, 2
#: A reply holds little more than a log and the durations of a block.
REPLY_LIMIT = 4 << 20


class LocalSandbox:
    """Foreign code in this very process: for debuggers and coverage. Nothing stops it."""

    is_process = False

    def __init__(
        self, device: str, allocator: ArenaAllocator, last_call: LastCall | None = None
    ) -> None:
        os.environ.update(environment_for(device))
        self._runner = Runner(device, allocator.tensor, last_call)
        self.ran_ns = 0

    def open(self, program: Program) -> Reply:
        """Nothing to start."""
        return Done()

    def ask(self, request: Request, timeout: float, file: int | None = None) -> Reply:
        """The reply; nothing ends a request that hangs."""
        assert not isinstance(request, Map), "nothing is mapped within one process"
        start = perf_counter_ns()
        reply = self._runner.answer(request, file)
        self.ran_ns = perf_counter_ns() - start
        return _fit_to_show(reply)

    def pin(self, cores: set[int]) -> None:
        """It runs where this thread does."""

    def holds(self, program: Program) -> bool:
        """Whether that program is loaded."""
        return self._runner.program == program

    def close(self) -> None:
        """Forget the program: loaded again, it starts from nothing."""
        self._runner.program = None
        self._runner.release()


class ForkServerError(RuntimeError):
    """No sandbox can be had; the message says why."""


@dataclass(frozen=True)
class Child:
    """A sandbox's process: its channel, and the file that catches what it prints.

    ``inner_pid`` is what its fork server calls it, which is another in a container.
    ``pidfd`` is readable when the process has ended; None where the kernel has no such thing.
    ``generation`` counts fork servers: a sandbox dies with the one that forked it.
    """

    pid: int
    inner_pid: int
    channel: Channel
    output: int
    pidfd: int | None
    generation: int

    def close(self) -> None:
        """Close what belongs to it here."""
        self.channel.close()
        os.close(self.output)
        if self.pidfd is not None:
            os.close(self.pidfd)


class ForkServer:
    """Starts sandboxes on one device, and ends them. Its process is replaced when it dies.

    A ``contained`` one runs under bwrap, which has to be installed. On CUDA one sandbox is started
    ahead: its context takes a fraction of a second to make, while others are at work.
    """

    def __init__(
        self, device: str, environment: dict[str, str], *, contained: bool = False
    ) -> None:
        self._device = device
        self._environment = environment
        self.contained = contained
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._adoption: Adoption | None = None
        #: The sandboxes of this process, which are the leaders of their groups.
        self._pids: set[int] = set()
        self._generation = 0
        self._ready = False
        #: Whether it has started a sandbox, and how many before it in a row have not.
        self._has_served = False
        self._failures = 0
        #: How the last one ended, as subprocess has it, if it was started.
        self._exit_code: int | None = None
        self._lock = RLock()  # two sandboxes may be asked at the same time
        self._spare: Child | None = None
        self._folder = ""
        #: Looked up now: by the time it is replaced, foreign code has run.
        self._has_triton = find_spec("triton") is not None

    @property
    def pid(self) -> int | None:
        """The process id of the fork server, while there is one."""
        return None if self._process is None else self._process.pid

    def warm(self) -> None:
        """Start the fork server without waiting; whether that worked is told by ``start``."""
        with self._lock, suppress(OSError):
            self._launch_if_needed()

    def _launch_if_needed(self) -> None:
        if self._control is None:
            self._launch()

    def _launch(self) -> None:
        self._generation += 1
        self._ready = self._has_served = False
        self._exit_code = None
        self._folder = tempfile.mkdtemp(prefix="pytest-fib-")
        modules = ["triton"] * self._has_triton + ["pytest_fib.sandbox._worker"]
        settings = _fork_server.Settings(
            self._device, self._folder, modules, sys.path, self.contained
        )
        # Nothing is imported from the working directory or PYTHONPATH, where a triton.py may be.
        command = [sys.executable, "-P", _fork_server.__file__, json.dumps(asdict(settings))]
        environment = {**os.environ, **self._environment}
        environment.pop("PYTHONPATH", None)
        if self.contained:
            folder = Path(self._folder)
            command = [*container_command(self._device, folder), *command]
            environment |= container_environment(folder)
        control, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with server_end:
                self._process = subprocess.Popen(
                    command,
                    stdin=server_end.fileno(),
                    stdout=subprocess.DEVNULL,
                    env=environment,
                    start_new_session=True,
                )
        except OSError:
            control.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._control, self._adoption = control, Adoption()

    def start(self, *, uses_device: bool = False) -> Child:
        """A new sandbox. Raises ForkServerError.

        A fork server that is gone is replaced, as long as some get to start a sandbox.
        """
        with self._lock:
            while True:
                try:
                    child = self._start(with_spare=uses_device and self._device != "cpu")
                except OSError as error:
                    self.close()
                    self._count_failure(error)
                else:
                    self._has_served, self._failures = True, 0
                    return child

    def _start(self, *, with_spare: bool) -> Child:
        if not with_spare:
            return self._fork()
        child = self._take_spare() or self._fork()
        self._spare = self._fork(b"start with context")
        return child

    def _take_spare(self) -> Child | None:
        spare, self._spare = self._spare, None
        return spare

    def _count_failure(self, error: OSError) -> None:
        """Raise ForkServerError where the next one is unlikely to do better."""
        if self._has_served:
            return
        self._failures += 1
        killed = self._exit_code in (-signal.SIGKILL, 128 + signal.SIGKILL)  # the latter is bwrap's
        if self._failures < (KILLED_IN_A_ROW if killed else FAILED_IN_A_ROW):
            return
        why = str(error)
        if self._exit_code is not None:
            why += f"; it {_how_it_ended(self._exit_code)}"
        if killed:
            why = "each was killed by SIGKILL, as by a kernel that is short of memory"
        tried = f"tried {self._failures} times in a row"
        raise ForkServerError(f"no sandbox can be started, {tried}: {why}") from error

    def _fork(self, request: bytes = b"start") -> Child:
        self._launch_if_needed()
        judge_end, sandbox_end = socket.socketpair()
        output = os.memfd_create("pytest-fib output")
        fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
        try:
            with sandbox_end:
                judge_end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, self.contained)
                pid = inner_pid = int(self._ask(request, sandbox_end.fileno(), output))
            if self.contained:
                pid = _pid_of_sender(judge_end)
        except BaseException:  # an interrupt included
            judge_end.close()
            os.close(output)
            raise
        self._pids.add(pid)
        pidfd = _pidfd(pid)
        channel = Channel(judge_end, REPLY_LIMIT, pidfd)
        return Child(pid, inner_pid, channel, output, pidfd, self._generation)

    def has(self, child: Child) -> bool:
        """Whether the fork server that a sandbox came from still answers, and so it may live.

        A killed process answers no more, even before it is quite gone. So asked right after a
        sandbox has replied, this tells whether that sandbox killed it.
        """
        if child.generation != self._generation:
            return False
        try:
            return self._ask(b"ping") == b"pong"
        except OSError:
            return False

    def end(self, child: Child) -> int | None:
        """The exit code of a sandbox that closed its channel; negative for a signal.

        None where it had not ended by itself.
        """
        status, killed = self._dismiss(child, b"end")
        return None if killed else os.waitstatus_to_exitcode(status)

    def kill(self, child: Child) -> None:
        """End a sandbox now, and whatever it started."""
        self._dismiss(child, b"kill")

    def _dismiss(self, child: Child, word: bytes) -> tuple[int, int]:
        child.close()
        with suppress(OSError), self._lock:
            if child.generation == self._generation:
                status, killed = self._ask(b"%s %d" % (word, child.inner_pid)).split()
                self._pids.discard(child.pid)
                return int(status), int(killed)
        return signal.SIGKILL, 0  # it died with its fork server

    def _ask(self, request: bytes, *descriptors: int) -> bytes:
        """The fork server's reply. Raises OSError.

        Each request has a random number, so that a sandbox that got hold of the other end can't
        reply in advance. Whatever goes wrong ends the fork server, an interrupt included: its late
        reply would be taken for that to the next request.
        """
        with self._lock:
            try:
                return self._exchange(request, descriptors)
            except BaseException:
                self.close()
                raise

    def _exchange(self, request: bytes, descriptors: Sequence[int]) -> bytes:
        if self._control is None:
            raise ConnectionResetError(GONE)
        if not self._ready:
            self._control.settimeout(START_TIMEOUT)
            _receive(self._control)
            self._control.settimeout(FORK_TIMEOUT)
            self._ready = True
        number = os.urandom(8).hex().encode()
        socket.send_fds(self._control, [b"%s %s" % (number, request)], descriptors)
        echo, _, reply = _receive(self._control).partition(b" ")
        if echo != number:
            raise ConnectionAbortedError("the reply is not from the process that starts sandboxes")
        return reply

    def close(self) -> None:
        """End the fork server, and every sandbox with it."""
        with self._lock:
            if self._control is None or self._process is None or self._adoption is None:
                return
            if (spare := self._take_spare()) is not None:
                spare.close()
            self._control.close()
            # One that imports torch has no sandboxes yet, and may not listen for seconds.
            (self._process.terminate if self._ready else self._process.kill)()
            try:
                self._process.wait(CLOSE_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(CLOSE_TIMEOUT)
            self._exit_code = self._process.returncode
            for group in (*self._pids, self._process.pid):
                end_group(group, CLOSE_TIMEOUT)  # what it left, if it was killed
            self._adoption.end()
            self._control = self._process = self._adoption = None
            self._pids.clear()
            shutil.rmtree(self._folder, ignore_errors=True)  # where it couldn't do so itself


def _pid_of_sender(end: socket.socket) -> int:
    """Receive a byte, and who sent it: a process id of this side's. Raises OSError."""
    credentials = struct.Struct("iii")
    end.settimeout(FORK_TIMEOUT)
    data, ancillary, _, _ = end.recvmsg(1, socket.CMSG_SPACE(credentials.size))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    if not data:
        raise ConnectionResetError("a sandbox ended before it could be told by its process id")
    [(_, _, sender)] = ancillary
    return int(credentials.unpack(sender)[0])


def _pidfd(pid: int) -> int | None:
    with suppress(OSError):  # not everywhere, and not of a process that is gone
        return os.pidfd_open(pid)
    return None


def _receive(control: socket.socket) -> bytes:
    reply = control.recv(64)
    if not reply:
        raise ConnectionResetError(GONE)
    return reply


class ProcessSandbox:
    """A child process for each program: started when one is loaded, ended when another is.

    No state of one implementation can reach the next, since no process sees two of them. It is
    stopped between requests, so that it can neither finish work late nor disturb others. Each reply
    of an ``untrusted`` one is confirmed with the process that forked it; a reference has nothing to
    gain by killing that, so it is spared the time. One that only builds has no ``allocator``.
    """

    is_process = True  # so it may be asked while another one is

    def __init__(
        self, fork_server: ForkServer, allocator: ArenaAllocator | None, *, untrusted: bool
    ) -> None:
        self._fork_server = fork_server
        self._allocator = allocator
        self._untrusted = untrusted
        self._child: Child | None = None
        self._program: Program | None = None
        self._arena: Arena | None = None  # kept alive while it is mapped
        self._serial = 0
        self._stopped = False
        #: How long the process could run for its last reply, by this process' clock.
        self.ran_ns = 0

    def ask(self, request: Request, timeout: float, file: int | None = None) -> Reply:
        """The reply within ``timeout`` seconds; ``file`` is sent along, if it is given.

        Failed where the process dies, hangs or sends what is no reply; it is ended then.
        """
        try:
            return self._ask(request, timeout, () if file is None else (file,))
        except BaseException:  # an interrupt leaves a request without its reply
            self.close()
            raise

    def _ask(self, request: Request, timeout: float, descriptors: tuple[int, ...]) -> Reply:
        reply = self._map() or self._exchange(request, timeout, descriptors)
        if isinstance(request, Load) and isinstance(reply, Done):
            self._program = request.program
        if isinstance(reply, Failed) and reply.broken:
            self.close()
        return reply

    def open(self, program: Program) -> Reply:
        """Start a process for the program, unless it has one; not counted in any timeout."""
        if self.holds(program):
            return Done()
        self.close()
        self._child = self._fork_server.start(uses_device=self._allocator is not None)
        return self._map() or Done()

    def pin(self, cores: set[int]) -> None:
        """Run the main thread on these cores only."""
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.sched_setaffinity(self._child.pid, cores)

    def holds(self, program: Program) -> bool:
        """Whether that program is loaded."""
        return self._child is not None and program == self._program

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._fork_server.kill(self._child)
        self._forget()

    def _forget(self) -> None:
        self._child = self._program = self._arena = None
        self._stopped = False

    def _map(self) -> Failed | None:
        arena = None if self._allocator is None else self._allocator.arena
        if arena is None or arena is self._arena:
            return None
        reply = self._exchange(Map(arena.size, arena.handle), MAP_TIMEOUT, arena.descriptors)
        if isinstance(reply, Failed):
            return reply
        self._arena = arena
        return None

    def _exchange(
        self, request: Request, timeout: float, descriptors: tuple[int, ...] = ()
    ) -> Reply:
        child = self._child
        assert child is not None, "a sandbox is opened before it is asked"
        self._serial += 1
        try:
            if child.channel.pending():
                raise ChannelBroken("a message without a request")
            serial, reply = self._timed_exchange(child, request, timeout, descriptors)
            if serial != self._serial:
                raise ChannelBroken("a reply out of turn")
            if self._untrusted and not self._fork_server.has(child):
                raise ChannelClosed
            return _fit_to_show(_decoded(reply), _printed(child))
        except ChannelLate:
            option = "--fib-build-timeout" if isinstance(request, Build) else "--fib-timeout"
            return self._late(child, no_answer_within(round(timeout, 1), option))
        except ChannelBroken as error:
            return self._failed(child, "RUNTIME_ERROR", f"the process forged a message: {error}")
        except (ChannelClosed, ProcessLookupError):
            # Before its program is loaded, nothing that ends it is the program's doing.
            unused = isinstance(request, Map) and self._program is None
            return self._ended(child, unused=unused)

    def _timed_exchange(
        self, child: Child, request: Request, timeout: float, descriptors: tuple[int, ...]
    ) -> tuple[int, bytes]:
        """Let the process run until it replies: the serial number and the message."""
        payload, short = encode_request(request), is_short(request)
        if short:  # it fits the socket, and is there when the process wakes up
            child.channel.send(self._serial, payload, (), timeout)
        start = perf_counter_ns()
        self._resume(child)
        if not short:
            child.channel.send(self._serial, payload, descriptors, timeout)
        serial, reply, _ = child.channel.receive(timeout)
        self._stop(child)
        self.ran_ns = perf_counter_ns() - start
        return serial, reply

    def _stop(self, child: Child) -> None:
        """Both sides, so that asking either takes as long."""
        os.killpg(child.pid, signal.SIGSTOP)  # and what it started, but for other sessions
        self._stopped = True

    def _resume(self, child: Child) -> None:
        if self._stopped:
            os.killpg(child.pid, signal.SIGCONT)
        self._stopped = False

    def _ended(self, child: Child, *, unused: bool) -> Failed:
        printed, orphaned = _printed(child), not self._fork_server.has(child)
        self._forget()
        code = self._fork_server.end(child)
        summary = f"the process {_how_it_ended(code)}"
        killed = orphaned or unused or code == -signal.SIGKILL
        # Landlock keeps foreign code from that where it scopes signals.
        by_others = orphaned and (not self._untrusted or "landlock" in wall_names())
        if by_others:
            summary = "the process that sandboxes come from was killed"
        elif orphaned:
            summary = "it killed or disturbed the process that sandboxes come from"
        return Failed(
            "RUNTIME_ERROR", summary, printed, broken=True, killed=killed, by_others=by_others
        )

    def _late(self, child: Child, summary: str) -> Failed:
        """End a process that takes too long, once it has said where all of its threads are."""
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGABRT)
        if child.pidfd is not None:
            select.select([child.pidfd], [], [], STACKS_TIMEOUT)
        return self._failed(child, "TIMEOUT", summary)

    def _failed(self, child: Child, status: FailedStatus, summary: str) -> Failed:
        printed = _printed(child)
        self.close()
        return Failed(status, summary, printed, broken=True)


Sandbox: TypeAlias = LocalSandbox | ProcessSandbox


def no_answer_within(seconds: float, option: str = "--fib-timeout") -> str:
    """That there was no answer in time."""
    return f"no answer within {seconds:g} s ({option})"


def _decoded(payload: bytes) -> Reply:
    """The reply of a message. Raises ChannelBroken."""
    try:
        return decode_reply(payload)
    except ValueError as error:
        raise ChannelBroken(str(error).partition("\n")[0]) from error


def _printed(child: Child) -> str:
    """What the process printed since this was last read; the end of it where it is long."""
    size = os.fstat(child.output).st_size
    if size == 0:
        return ""
    tail = os.pread(child.output, LOG_LIMIT, max(0, size - LOG_LIMIT))
    os.ftruncate(child.output, 0)
    return own_stacks(visible(tail.decode(errors="replace")))


def _how_it_ended(code: int | None) -> str:
    if code is None:
        return "closed its channel"
    if code >= 0:
        return f"exited with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def _fit_to_show(reply: Reply, printed: str = "") -> Reply:
    """A reply with what was printed in its log; all text cut to its limits, and visible.

    Here, on the judge's side: a sandbox may forge its replies. So nobody who shows a summary, a log
    or a record has to care.
    """
    log = visible(reply.log[-LOG_LIMIT:])
    if printed:
        log = f"{log}\n--- printed ---\n{printed}".lstrip()
    if isinstance(reply, Done):
        return replace(reply, log=log, method=visible_line(reply.method[:LINE_LIMIT]))
    return replace(reply, log=log, summary=visible_line(reply.summary[:LINE_LIMIT]))


def environment_for(device: str) -> dict[str, str]:
    """Variables that a process needs before it imports torch and triton."""
    if device != "cpu":
        return {}
    # Threads that spin while they wait take cores from other workers: with as many workers as
    # cores, calls of 0.1 ms were seen to take 10 to 60 ms.
    policy = os.environ.get("OMP_WAIT_POLICY", "passive")
    return {"TRITON_INTERPRET": "1", "OMP_WAIT_POLICY": policy}
