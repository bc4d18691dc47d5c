"""Frames over a socket between two processes that need not trust one another."""

from __future__ import annotations

import socket
import struct
from time import monotonic

#: Serial number and length of the payload.
_HEADER = struct.Struct("!QI")
#: Nothing that is said takes more; a longer frame is a forgery or a mistake.
LIMIT = 64 << 20


class ChannelClosed(Exception):
    """The other end is gone."""


class ChannelLate(Exception):
    """Nothing, or not all of it, came before the deadline."""


class ChannelBroken(Exception):
    """What came is not what may come."""


class Channel:
    """Sends and receives frames: a serial number, bytes, and perhaps file descriptors.

    A request's serial number comes back with its reply, so that no reply is taken for another's.
    A frame of more than ``limit`` bytes is refused before it is read.
    """

    def __init__(self, end: socket.socket, limit: int = LIMIT) -> None:
        self._socket = end
        self._limit = limit

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._socket.fileno()

    def send(
        self,
        serial: int,
        payload: bytes,
        descriptors: tuple[int, ...] = (),
        timeout: float | None = None,
    ) -> None:
        """Send a frame. Raises ChannelClosed or ChannelLate."""
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
        """A whole frame within ``timeout`` seconds, whatever the pieces it comes in.

        At most so many ``descriptors`` are taken; the kernel closes the others.
        Raises ChannelClosed, ChannelLate or ChannelBroken.
        """
        deadline = None if timeout is None else monotonic() + timeout
        header, received = self._some(_HEADER.size, deadline, descriptors)
        header += self._rest(_HEADER.size - len(header), deadline)
        serial, length = _HEADER.unpack(header)
        if length > self._limit:
            raise ChannelBroken(f"a frame of {length} bytes")
        return serial, self._rest(length, deadline), received

    def pending(self) -> bool:
        """Whether something lies there unread."""
        self._socket.settimeout(0)
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except (BlockingIOError, TimeoutError):
            return False
        except OSError:
            return False

    def _some(
        self, size: int, deadline: float | None, descriptors: int = 0
    ) -> tuple[bytes, list[int]]:
        self._allow(deadline)
        received: list[int] = []
        try:
            if descriptors:
                data, received, _, _ = socket.recv_fds(self._socket, size, descriptors)
            else:
                data = self._socket.recv(size)
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

    def _allow(self, deadline: float | None) -> None:
        if deadline is None:
            self._socket.settimeout(None)
            return
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise ChannelLate
        self._socket.settimeout(remaining)
