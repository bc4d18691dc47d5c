"""What items do while they run: sent to the process that has the terminal, and shown there."""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from secrets import token_hex
from threading import RLock, Thread
from time import monotonic
from typing import Any

import pytest

from pytest_fib.temporary import TemporaryFolder

#: Seconds until an item is shown, and between two updates.
SHOWN_AFTER, REDRAW_INTERVAL = 2.0, 0.5
#: Seconds until a line is written if nothing can be redrawn; the next comes after twice as many.
FIRST_LINE = 60.0
#: Longest folder name that leaves room for the path of a socket.
LONGEST_FOLDER = 60


class Progress:
    """Reports what this process' item does. ``address`` is that of a ``Display``, with its key.

    Other code of the same user can find the socket, but can't send without the key.
    """

    def __init__(self, address: tuple[str, str] | None, process: str) -> None:
        self._address = address
        self._process = process
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._item = ""
        #: The current activity, for failures that show only then.
        self.activity = ""
        self._checkpoint: Callable[[], None] = _nothing

    @contextmanager
    def of(self, item: str, checkpoint: Callable[[], None]) -> Iterator[None]:
        """Report what an item does while it runs; ``checkpoint`` is called before each report."""
        self._item, self._checkpoint = item, checkpoint
        self.tell("getting ready")
        try:
            yield
        finally:
            self._send("end")
            self._item, self._checkpoint = "", _nothing

    def tell(self, activity: str) -> None:
        """Report a new activity."""
        self._checkpoint()
        self.activity = activity
        self._send("activity", activity)

    def announce(self, message: str) -> None:
        """Report something that the user should see now."""
        self._send("announce", message)

    def _send(self, kind: str, text: str = "") -> None:
        if self._address is None:
            return
        path, key = self._address
        message = json.dumps([self._process, self._item, kind, text])
        with suppress(OSError):  # nobody listens, or not fast enough; progress may be lost
            self._socket.sendto(f"{key}{message}".encode(), path)


@dataclass(frozen=True)
class _Running:
    """The activity of one process."""

    item: str
    activity: str
    since: float
    next_line: float


class Display:
    """Shows slow items: on a line that is redrawn, or with a line now and then.

    The line is below pytest's own, and removed before pytest writes again.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        # A socket's address has 107 bytes, and the folder for temporary files may be that long.
        short = None if len(tempfile.gettempdir()) <= LONGEST_FOLDER else "/tmp"
        self._folder = TemporaryFolder.make(short)
        #: The address for reports of this run's processes, and the key that they prove that with.
        self.address = str(self._folder.path / "socket"), token_hex()
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address[0])
        self._output = _duplicate(sys.stdout)
        self._redraws = self._output is not None and _can_redraw(config)
        self._lock = RLock()
        self._running: dict[str, _Running] = {}
        self._announced: set[str] = set()
        self._is_drawn = self._closed = False
        #: Whether a line of ours ended the one that pytest is in, and it has written nothing since.
        self._ended_line = False
        Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._erase()
            self._closed = True
        self._folder.remove()

    def _listen(self) -> None:
        self._socket.settimeout(REDRAW_INTERVAL)
        drawn = 0.0
        while not self._closed:
            with suppress(TimeoutError):
                key, message = self.address[1].encode(), self._socket.recv(65536)
                if message.startswith(key):
                    self._take_in(*json.loads(message.removeprefix(key)))
            if monotonic() - drawn >= REDRAW_INTERVAL:
                self._show()
                drawn = monotonic()
        self._socket.close()

    def _take_in(self, process: str, item: str, kind: str, text: str) -> None:
        from pytest_fib.data import visible_line

        now = monotonic()
        with self._lock:
            if kind == "end":
                self._running.pop(process, None)
            elif kind == "announce":
                self._announce(visible_line(text), item)
            else:
                new = _Running(item, "", now, now + FIRST_LINE)
                before = self._running.get(process, new)
                known = before if before.item == item else new
                self._running[process] = replace(known, activity=visible_line(text))

    def _announce(self, text: str, item: str) -> None:
        """Announce once in a run, with the first item."""
        if text not in self._announced:
            self._announced.add(text)
            self._write_line(f"{text} ({item})" if item else text)

    def _show(self) -> None:
        with self._lock:
            if self._closed:
                return
            now = monotonic()
            late = {p: each for p, each in self._running.items() if now - each.since >= SHOWN_AFTER}
            if not self._redraws:
                self._write_lines(late, now)
            elif late:
                self._draw(self._line(list(late.values()), now))
            else:
                self._erase()

    @staticmethod
    def _line(late: list[_Running], now: float) -> str:
        """The item that has run the longest, and the number of others."""
        first = min(late, key=lambda each: each.since)
        others = f"; {len(late) - 1} more run" if len(late) > 1 else ""
        return f"{first.item}: {first.activity}, {now - first.since:.0f} s{others}"

    def _write_lines(self, late: dict[str, _Running], now: float) -> None:
        for process, each in late.items():
            if now >= each.next_line:
                self._write_line(self._line([each], now))
                passed = now - each.since
                self._running[process] = replace(each, next_line=each.since + 2 * passed)

    def _write_line(self, text: str) -> None:
        self._erase()
        is_begun = self._config.get_terminal_writer().width_of_current_line > 0
        own_line = "\n" if is_begun and not self._ended_line else ""
        self._write(f"{own_line}fib: {text}\n")
        self._ended_line = self._config.option.capture != "no"  # else what tests print may follow

    def _draw(self, text: str) -> None:
        """Write on a new line below, and put the cursor back where pytest writes."""
        writer = self._config.get_terminal_writer()
        column = writer.width_of_current_line % writer.fullwidth + 1
        shown = text if len(text) < writer.fullwidth else f"{text[: writer.fullwidth - 2]}…"
        self._write(f"\n\x1b[A\x1b[{column}G\x1b7\x1b[B\r\x1b[2K{shown}\x1b8")
        self._is_drawn = True

    def _erase(self) -> None:
        if self._is_drawn:
            self._write("\x1b7\x1b[B\r\x1b[2K\x1b8")
            self._is_drawn = False

    def _write(self, text: str) -> None:
        if self._output is not None:
            with suppress(OSError):
                os.write(self._output, text.encode())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_logstart(self) -> Iterator[None]:
        """Remove the line; nothing is drawn while pytest writes."""
        with self._lock:
            self._erase()
            outcome = yield
            self._ended_line = False
            return outcome

    pytest_runtest_logreport = pytest_runtest_logfinish = pytest_runtest_logstart

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Remove the line for good."""
        self.close()


def _can_redraw(config: pytest.Config) -> bool:
    """Whether this is a terminal with escape sequences that only pytest writes to."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    others_write = config.option.capture == "no" or config.option.usepdb or config.option.trace
    own = type(reporter).__module__ == "_pytest.terminal"
    escapes = config.get_terminal_writer().hasmarkup  # not with NO_COLOR, nor on dumb terminals
    return own and sys.stdout.isatty() and escapes and not others_write


def _duplicate(stream: Any) -> int | None:
    """The stream's file, while pytest doesn't capture it; None if it has none."""
    try:
        return os.dup(stream.fileno())
    except (OSError, ValueError):
        return None


def _nothing() -> None:
    """Nothing to check."""
