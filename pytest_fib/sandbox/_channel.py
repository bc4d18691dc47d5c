"""Messages over a socket between two processes that need not trust one another."""

from __future__ import annotations

import select
import socket
import struct
from time import monotonic

#: Serial number and length of the payload.
_HEADER = struct.Struct("!QI")
#: No honest message is longer, in bytes.
LIMIT = 64 << 20
#: How long the rest of a message may take that began in time, in seconds.
REST = 1.0


class ChannelClosed(Exception):
    """The other end is gone."""


class ChannelLate(Exception):
    """No whole message came before the deadline."""


class ChannelBroken(Exception):
    """What came is no valid message."""


class Channel:
    """Sends and receives messages: a serial number, bytes, and perhaps file descriptors.

    A reply has the serial number of its request, so that it isn't taken for that of another.
    A message of more than ``limit`` bytes is refused before it is read. ``pidfd`` is of the process
    at the other end: nobody waits for one that is dead, even if what it started keeps its end open.
    """

    def __init__(self, end: socket.socket, limit: int = LIMIT, pidfd: int | None = None) -> None:
        self._socket = end
        self._limit = limit
        self._pidfd = pidfd

    def close(self) -> None:
        self._socket.close()

    def send(
        self,
        serial: int,
        payload: bytes,
        descriptors: tuple[int, ...] = (),
        timeout: float | None = None,
    ) -> None:
        """Send a message. Raises ChannelClosed or ChannelLate."""
        self._socket.settimeout(timeout)
        header = _HEADER.pack(serial, len(payload))
        try:
            if descriptors:
                socket.send_fds(self._socket, [header], list(descriptors))
                self._socket.sendall(payload)
            else:
                self._socket.sendall(header + payload)
        except TimeoutError:
            raise ChannelLate from None
        except OSError as error:
            raise ChannelClosed from error

    def receive(
        self, timeout: float | None = None, descriptors: int = 0
    ) -> tuple[int, bytes, list[int]]:
        """A whole message within ``timeout`` seconds, whatever the pieces it comes in.

        Where this process was stopped meanwhile, what came by then is in time.
        At most ``descriptors`` file descriptors are taken; the kernel closes the others.
        Raises ChannelClosed, ChannelLate or ChannelBroken.
        """
        deadline = None if timeout is None else monotonic() + timeout
        header, received = self._some(_HEADER.size, deadline, descriptors)
        if deadline is not None:
            deadline = max(deadline, monotonic() + REST)
        header += self._rest(_HEADER.size - len(header), deadline)
        serial, length = _HEADER.unpack(header)
        if length > self._limit:
            raise ChannelBroken(f"a message of {length} bytes")
        return serial, self._rest(length, deadline), received

    def pending(self) -> bool:
        """Whether something was received and not read yet."""
        self._socket.settimeout(0)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False

    def _some(
        self, size: int, deadline: float | None, descriptors: int = 0
    ) -> tuple[bytes, list[int]]:
        self._wait(deadline)
        try:
            data, received, _, _ = socket.recv_fds(self._socket, size, descriptors)
        except TimeoutError:
            raise ChannelLate from None
        except OSError as error:
            raise ChannelClosed from error
        if not data:
            raise ChannelClosed
        return data, received

    def _rest(self, size: int, deadline: float | None) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece, _ = self._some(min(size - len(data), 1 << 20), deadline)
            data += piece
        return bytes(data)

    def has_news_within(self, seconds: float) -> bool:
        """Whether there is something to read, or the other end is gone, after so long at most."""
        return bool(self._ready_within(seconds))

    def _wait(self, deadline: float | None) -> None:
        """Until there is something to read, if the other end is watched."""
        remaining = None if deadline is None else deadline - monotonic()
        if remaining is not None and remaining <= 0:
            raise ChannelLate
        self._socket.settimeout(remaining)
        if self._pidfd is None:
            return
        ready = self._ready_within(remaining)
        if not ready:
            raise ChannelLate
        if self._socket.fileno() not in ready:
            raise ChannelClosed

    def _ready_within(self, seconds: float | None) -> set[int]:
        """Those of the socket and the other end's pidfd, if it is watched, that have something."""
        poll = select.poll()
        for descriptor in filter(None, (self._socket.fileno(), self._pidfd)):
            poll.register(descriptor, select.POLLIN)
        return {ready for ready, _ in poll.poll(None if seconds is None else 1000 * seconds)}
