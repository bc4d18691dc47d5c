"""A process for the next program, started while another one is tried."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from time import monotonic, sleep

from pytest_fib.sandbox._channel import ChannelClosed, ChannelLate
from pytest_fib.sandbox._fork_server_client import Child, ForkServer, ForkServerError
from pytest_fib.sandbox._messages import Map, encode_request

#: Seconds until a process that was forked takes a request and leads its group; and between looks.
SPARE_START_TIMEOUT, LOOK = 10.0, 0.001


class SpareProcess:
    """A process that makes its CUDA context before anybody knows what it will run.

    That takes 0.2 s on an H200, and 1.4 s where eight workers do so. It works on the device, so it
    has to be paused while others have that alone.
    """

    def __init__(self, fork_server: ForkServer) -> None:
        self._fork_server = fork_server
        self._child: Child | None = None

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    def begin(self) -> None:
        """Start one, if there is none. An error is raised later, when it is needed."""
        if self._child is not None:
            return
        with suppress(ForkServerError):
            self._child = self._fork_server.start()
            try:
                self._child.channel.send(0, encode_request(Map(0)), (), SPARE_START_TIMEOUT)
                _wait_for_its_group(self._child.pid)
            except (ChannelClosed, ChannelLate, ProcessLookupError):
                self.close()

    def take(self) -> Child | None:
        """Give it away, with the reply to ``Map(0)`` outstanding; None where there is none."""
        child, self._child = self._child, None
        if child is not None and (child.has_ended() or not self._fork_server.has(child)):
            self._fork_server.kill(child)
            return None
        return child

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def close(self) -> None:
        if self._child is not None:
            self._fork_server.kill(self._child)
        self._child = None


def _wait_for_its_group(pid: int) -> None:
    """Wait until it has a process group, by which it is paused. Raises ProcessLookupError."""
    until = monotonic() + SPARE_START_TIMEOUT
    while os.getpgid(pid) != pid:
        if monotonic() > until:
            raise ChannelLate
        sleep(LOOK)
