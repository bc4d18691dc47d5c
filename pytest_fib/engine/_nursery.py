"""Where sandboxes come from: the judge's end of the process that forks them."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass

from pytest_fib.engine._channel import Channel

#: Starting Python and importing torch, on a machine where eight workers do so at once.
START_TIMEOUT = 120.0
FORK_TIMEOUT = 10.0


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

    def warm(self) -> None:
        """Start the process that forks, and do not wait for it."""
        if self._control is not None:
            return
        self._generation += 1
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
        self._control.settimeout(START_TIMEOUT)

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
        assert self._control is not None
        if self._control.gettimeout() == START_TIMEOUT:
            self._expect()
            self._control.settimeout(FORK_TIMEOUT)
        output = os.memfd_create("pytest-fib output")
        fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(self._control, [b"start"], [theirs.fileno(), output])
        return Child(int(self._expect()), Channel(ours), output, self._generation)

    def has(self, child: Child) -> bool:
        """Whether the process that forked a sandbox still answers, and so the sandbox may live.

        A killed process answers nothing more, even before it is quite gone; so right after a
        sandbox has replied this tells whether that sandbox did it.
        """
        try:
            if self._control is None or child.generation != self._generation:
                return False
            self._control.send(b"ping")
            return self._expect() == b"pong"
        except OSError:
            return False

    def end(self, child: Child) -> str:
        """How a sandbox that closed its channel ended: ``was killed by SIGSEGV``."""
        status, killed = self._dismiss(child, b"end")
        if killed:
            return "closed its channel"
        if os.WIFSIGNALED(status):
            return f"was killed by {signal.Signals(os.WTERMSIG(status)).name}"
        return f"exited with code {os.waitstatus_to_exitcode(status)}"

    def kill(self, child: Child) -> None:
        """End a sandbox now, and whatever it started."""
        self._dismiss(child, b"kill")

    def _dismiss(self, child: Child, word: bytes) -> tuple[int, int]:
        child.channel.close()
        os.close(child.output)
        try:
            if self._control is not None and child.generation == self._generation:
                self._control.send(b"%s %d" % (word, child.pid))
                status, killed = self._expect().split()
                return int(status), int(killed)
        except OSError:
            self.close()  # its children have died with it
        return signal.SIGKILL, 0

    def _expect(self) -> bytes:
        assert self._control is not None
        answer = self._control.recv(64)
        if not answer:
            raise ConnectionResetError("the process that starts sandboxes is gone")
        return answer

    def close(self) -> None:
        """End the process that forks, and every sandbox with it."""
        if self._control is None or self._process is None:
            return
        self._control.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._control = self._process = None
