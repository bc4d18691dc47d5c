"""Where sandboxes come from: the judge's end of the process that forks them."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from threading import Lock

from pytest_fib.engine._channel import Channel

#: Starting Python and importing torch, on a machine where eight workers do so at once.
START_TIMEOUT = 120.0
FORK_TIMEOUT = 10.0
#: How long the forking process may take to end its sandboxes and itself.
CLOSE_TIMEOUT = 5.0
#: A reply holds little more than a log and the durations of a block.
REPLY_LIMIT = 4 << 20


class NurseryError(RuntimeError):
    """No sandbox can be had; the message says why."""


@dataclass(frozen=True)
class Child:
    """A sandbox's process: its channel, and the file that catches what it prints.

    ``generation`` counts the forking processes: a child dies with the one it came from.
    """

    pid: int
    channel: Channel
    output: int
    generation: int


class Nursery:
    """Starts sandboxes on one device, and ends them. Survives the death of its own process."""

    def __init__(self, device: str, environment: dict[str, str]) -> None:
        self._device = device
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._generation = 0
        self._ready = False
        self._speaking = Lock()  # two sandboxes may be asked at the same time

    @property
    def pid(self) -> int | None:
        """The process that forks, while there is one."""
        return None if self._process is None else self._process.pid

    def warm(self) -> None:
        """Start the process that forks, and do not wait for it."""
        if self._control is not None:
            return
        self._generation += 1
        self._ready = False
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, "-m", "pytest_fib.engine._zygote", self._device]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env={**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(sys.path)},
                start_new_session=True,
            )

    def start(self) -> Child:
        """A new sandbox. Raises NurseryError."""
        try:
            return self._forked()
        except OSError:
            self.close()  # it was killed, perhaps by a sandbox; the next one is as good
        try:
            return self._forked()
        except OSError as error:
            raise NurseryError(f"no sandbox can be started: {error}") from error

    def _forked(self) -> Child:
        self.warm()
        ours, theirs = socket.socketpair()
        output = os.memfd_create("pytest-fib output")
        try:
            fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
            with theirs:
                pid = int(self._say(b"start", theirs.fileno(), output))
        except BaseException:  # an interrupt included
            ours.close()
            os.close(output)
            raise
        return Child(pid, Channel(ours, REPLY_LIMIT), output, self._generation)

    def has(self, child: Child) -> bool:
        """Whether the process that forked a sandbox still answers, and so the sandbox may live.

        A killed process answers nothing more, even before it is quite gone; so right after a
        sandbox has replied this tells whether that sandbox did it.
        """
        if child.generation != self._generation:
            return False
        try:
            return self._say(b"ping") == b"pong"
        except OSError:
            return False

    def end(self, child: Child) -> int | None:
        """How a sandbox that closed its channel ended: its exit code, or a signal's negative.

        None where it had not ended at all.
        """
        status, killed = self._dismiss(child, b"end")
        return None if killed else os.waitstatus_to_exitcode(status)

    def kill(self, child: Child) -> None:
        """End a sandbox now, and whatever it started."""
        self._dismiss(child, b"kill")

    def _dismiss(self, child: Child, word: bytes) -> tuple[int, int]:
        child.channel.close()
        os.close(child.output)
        try:
            if child.generation == self._generation:
                status, killed = self._say(b"%s %d" % (word, child.pid)).split()
                return int(status), int(killed)
        except OSError:
            self.close()
        return signal.SIGKILL, 0  # it died with the process it came from

    def _say(self, message: bytes, *descriptors: int) -> bytes:
        with self._speaking:
            return self._said(message, *descriptors)

    def _said(self, message: bytes, *descriptors: int) -> bytes:
        """What the process answers. Raises OSError.

        A sandbox that got hold of the other end can't answer in advance: each turn has a random
        name. Whatever goes wrong ends that process, an interrupt included: its late answer would be
        taken for the answer to what is said next.
        """
        try:
            if self._control is None:
                raise ConnectionResetError("the process that starts sandboxes is gone")
            self._await_ready(self._control)
            turn = os.urandom(8).hex().encode()
            socket.send_fds(self._control, [b"%s %s" % (turn, message)], descriptors)
            echo, _, answer = _answer(self._control).partition(b" ")
            if echo != turn:
                raise ConnectionAbortedError("somebody answers in the place of another process")
            return answer
        except BaseException:
            self.close()
            raise

    def _await_ready(self, control: socket.socket) -> None:
        if self._ready:
            return
        control.settimeout(START_TIMEOUT)
        _answer(control)
        control.settimeout(FORK_TIMEOUT)
        self._ready = True

    def close(self) -> None:
        """End the process that forks, and every sandbox with it."""
        if self._control is None or self._process is None:
            return
        self._control.close()
        self._process.terminate()
        try:
            self._process.wait(CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._control = self._process = None


def _answer(control: socket.socket) -> bytes:
    answer = control.recv(64)
    if not answer:
        raise ConnectionResetError("the process that starts sandboxes is gone")
    return answer
