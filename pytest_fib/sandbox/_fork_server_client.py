"""The judge's end of the fork server: starts it, and has it start and end sandboxes.

Importing this imports no torch, so the fork server can import it while this process does.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from threading import RLock
from types import MappingProxyType

from pytest_fib.sandbox import _fork_server
from pytest_fib.sandbox._channel import Channel
from pytest_fib.sandbox._container import container_command
from pytest_fib.sandbox._orphans import Adoption, end_group
from pytest_fib.temporary import TemporaryFolder

#: Starting Python and importing torch, on a machine where eight workers do so at once.
START_TIMEOUT = 120.0
FORK_TIMEOUT = 10.0
#: How long the fork server may take to end its sandboxes and itself.
CLOSE_TIMEOUT = 5.0
#: How long one that has closed its control socket may take to be gone: Python's end, with torch.
END_TIMEOUT = 5.0
#: How long it may take to remove what its sandboxes wrote.
REMOVE_TIMEOUT = 30.0
GONE = "the process that starts sandboxes is gone"
#: Fork servers in a row that start no sandbox, until no more are tried: where somebody kills them,
#: and where they end or hang by themselves.
KILLED_IN_A_ROW, FAILED_IN_A_ROW = 20, 2
#: What a fork server imports once for all its sandboxes, where it is installed.
PRELOADED = ("triton", "pytest_fib.sandbox._worker")
#: How OpenMP's threads wait. Those that spin take cores from other workers: with as many workers as
#: cores, calls of 0.1 ms were seen to take 10 to 60 ms, and comparisons ten times as long.
WAIT_POLICY, PASSIVE = "OMP_WAIT_POLICY", "passive"
#: A reply holds little more than a log and the durations of a block.
REPLY_LIMIT = 4 << 20


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

    def has_ended(self) -> bool:
        """Whether it is known to have ended."""
        return self.pidfd is not None and bool(select.select([self.pidfd], [], [], 0)[0])

    def close(self) -> None:
        """Close this side's descriptors."""
        self.channel.close()
        os.close(self.output)
        if self.pidfd is not None:
            os.close(self.pidfd)


class ForkServer:
    """Starts sandboxes on one device, and ends them. Its process is replaced when it dies.

    A ``contained`` one runs under bwrap, which has to be installed. Sandboxes of programs that make
    CUDA streams have the variables ``of_streams`` as well as those of ``environment``.
    """

    def __init__(
        self,
        device: str,
        environment: dict[str, str],
        *,
        contained: bool = False,
        of_streams: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._device = device
        self._environment = environment
        self.contained = contained
        self.of_streams = of_streams
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
        self._folder: TemporaryFolder | None = None
        #: Looked up now: by the time it is replaced, foreign code has run.
        self._modules = [name for name in PRELOADED if find_spec(name) is not None]

    @property
    def pid(self) -> int | None:
        """The process id of the fork server, while there is one."""
        return None if self._process is None else self._process.pid

    def pin(self, cores: set[int]) -> None:
        """Run on these cores only, as sandboxes that are started from now on."""
        with suppress(ProcessLookupError):
            if self.pid is not None:
                os.sched_setaffinity(self.pid, cores)

    def warm(self) -> None:
        """Start the fork server without waiting; ``start`` says whether that worked."""
        with self._lock, suppress(OSError):
            self._launch_if_needed()

    def _launch_if_needed(self) -> None:
        if self._control is None:
            self._launch()

    def _launch(self) -> None:
        self._generation += 1
        self._ready = self._has_served = False
        self._exit_code = None
        temporary = TemporaryFolder.make()
        folder = temporary.path
        settings = _fork_server.ServerSettings(
            self._device, str(folder), self._modules, sys.path, self.contained
        )
        # Nothing is imported from the working directory or PYTHONPATH, where a triton.py may be.
        command = [sys.executable, "-P", _fork_server.__file__, json.dumps(asdict(settings))]
        # Nor do sandboxes get to know which tests run, or from which seeds.
        hidden = "PYTHONPATH", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST"
        environment = {name: os.environ[name] for name in os.environ if name not in hidden}
        environment |= self._environment
        if self.contained:
            command = [*container_command(self._device, folder), *command]
            # Nowhere that anyone else reads: they go with the folder.
            caches = _fork_server.default_caches()
            environment |= {name: str(folder / name.lower()) for name in caches}
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
            temporary.remove()
            raise
        self._folder, self._control, self._adoption = temporary, control, Adoption()

    def start(self) -> Child:
        """A new sandbox. Raises ForkServerError.

        A fork server that is gone is replaced, as long as some get to start a sandbox.
        """
        with self._lock:
            while True:
                try:
                    child = self._fork()
                except OSError as error:
                    self.close()
                    self._count_failure(error)
                else:
                    self._has_served, self._failures = True, 0
                    return child

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
            why += f"; it {how_it_ended(self._exit_code)}"
        if killed:
            why = "each was killed by SIGKILL, as by a kernel that is short of memory"
        tried = f"tried {self._failures} times in a row"
        raise ForkServerError(f"no sandbox can be started, {tried}: {why}") from error

    def _fork(self) -> Child:
        self._launch_if_needed()
        judge_end, sandbox_end = socket.socketpair()
        output = os.memfd_create("pytest-fib output")
        fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
        try:
            with sandbox_end:
                judge_end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, self.contained)
                pid = inner_pid = int(self._ask(b"start", sandbox_end.fileno(), output))
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
            assert self._folder is not None, "it comes with the process"
            if _has_hung_up(self._control):  # or the exit code would be that of being killed here
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(END_TIMEOUT)
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
            # What it left, if it was killed. A new one may leave the server's group meanwhile.
            for group in (*self._pids, self._process.pid, *self._pids):
                end_group(group, CLOSE_TIMEOUT)
            self._adoption.end()
            self._control = self._process = self._adoption = None
            self._pids.clear()
            # Where it couldn't do so itself, or not in time.
            self._folder.remove(REMOVE_TIMEOUT)


def _pid_of_sender(end: socket.socket) -> int:
    """Receive a byte, and its sender's process id on this side. Raises OSError."""
    credentials = struct.Struct("iii")
    end.settimeout(FORK_TIMEOUT)
    data, ancillary, _, _ = end.recvmsg(1, socket.CMSG_SPACE(credentials.size))
    end.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
    if not data:
        raise ConnectionResetError("a sandbox ended before its process id was known")
    [(_, _, sender)] = ancillary
    return int(credentials.unpack(sender)[0])


def _pidfd(pid: int) -> int | None:
    with suppress(OSError):  # not everywhere, and not of a process that is gone
        return os.pidfd_open(pid)
    return None


def _has_hung_up(control: socket.socket) -> bool:
    """Whether the other end is closed, as by a process that ends."""
    poll = select.poll()
    poll.register(control, 0)
    return any(event & select.POLLHUP for _, event in poll.poll(0))


def _receive(control: socket.socket) -> bytes:
    reply = control.recv(64)
    if not reply:
        raise ConnectionResetError(GONE)
    return reply


def how_it_ended(code: int | None) -> str:
    """How a process ended, in words; its exit code is as in subprocess."""
    if code is None:
        return "closed its channel"
    if code >= 0:
        return f"exited with code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was killed by {names.get(-code, f'signal {-code}')}"


def environment_for(device: str) -> dict[str, str]:
    """Variables that a sandbox needs before it imports torch and triton."""
    interpreted = {"TRITON_INTERPRET": "1"} if device == "cpu" else {}
    return {**interpreted, WAIT_POLICY: os.environ.get(WAIT_POLICY, PASSIVE)}
