"""The far end of `SshExecutor`: answers requests that come through a socket, each number once.

``python -m pytest_fib.executors.worker FOLDER OPTIONS``: listens on FOLDER/socket. It outlives
connections, and ends when it is told to or when nobody was heard of for the grace.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import sys
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic, sleep
from typing import Any, NoReturn

from pytest_fib.data import TensorFiles, cache_directory
from pytest_fib.executors._answers import SHARED, FarEnd
from pytest_fib.executors._local import LocalExecutor
from pytest_fib.executors._relay import UNUSED, read_frame, write_frame

#: How often clients give a sign of life, and how long they may forget it, in seconds.
PULSE, MISSED = 5.0, 15.0
#: How long a judge that does nothing may take to clean up, in seconds.
CLEANUP_TIMEOUT = 5.0
#: Of a torch that is installed and can't be used.
_TORCH_ERRORS = (ImportError, OSError, RuntimeError, SyntaxError)


class Worker:
    """One judge for all connections. A new connection replaces the one before."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self._folder = folder
        self._grace: float = options.pop("grace")
        root, prebuilt = options.pop("root"), options.pop("prebuilt")
        self._tensors = _Tensors(Path(root).expanduser() if root else cache_directory() / "remote")
        self._executor = LocalExecutor(
            **options,
            prebuilt=None if prebuilt is None else Path(prebuilt),
            announce=self._announce,
            files=self._tensors.files,
            progress=self._tell,
        )
        self._far_end = FarEnd(self._executor)
        self._id = secrets.token_hex(8)
        #: Parts of requests that travel apart, once: as JSON, by what they hold.
        self._records: dict[str, bytes] = {}
        #: None is the end.
        self._waiting: SimpleQueue[tuple[int, str, dict[str, Any]] | None] = SimpleQueue()
        #: The newest request, and its answer once there is one.
        self._number = 0
        self._answer: bytes | None = None
        #: Why nothing can be evaluated here; empty where all is ready, None while that is unknown.
        self._refusal: str | None = None
        #: Why not what needs a file of tensors.
        self._unkept: dict[str, str] = {}
        self._lock = Lock()
        self._connection: socket.socket | None = None
        self._heard = monotonic()

    def serve(self) -> NoReturn:
        """Answer until the end."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self._folder / "socket"))
        listener.listen()
        Thread(target=self._accept, args=(listener,), daemon=True).start()
        Thread(target=self._watch, daemon=True).start()
        refusal = self._start()
        with self._lock:
            self._refusal = refusal
            self._write({"ready": not refusal})
        while (job := self._waiting.get()) is not None:
            number, kind, body = job
            if refusal:
                self._refuse(number, refusal)
                continue
            shared = [self._records[body[name]] for name in SHARED]
            answer = self._far_end.answer(kind, body, shared)
            with self._lock:
                self._answer = answer
            self._send({"answer": number}, answer)
        self._executor.close()
        os._exit(0)

    def _start(self) -> str:
        """Have the judge ready; otherwise why it can't be."""
        try:
            self._executor.start()
        except _TORCH_ERRORS as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            return f"nothing can be evaluated there: {why}"
        return ""

    def _accept(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            with self._lock:
                if self._connection is not None:
                    with suppress(OSError):
                        self._connection.shutdown(socket.SHUT_RDWR)
                self._connection = connection
                # Before anything else is said through it.
                self._write({"worker": self._id, "pid": os.getpid()})
                if self._refusal is not None:
                    self._write({"ready": not self._refusal})
            Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: socket.socket) -> None:
        with suppress(OSError, EOFError), connection.makefile("rb") as file:
            while True:
                record, payload = read_frame(file.read)
                self._heard = monotonic()
                self._take(record, payload)
        with self._lock:
            if self._connection is connection:
                self._connection = None
                self._heard = monotonic()
        connection.close()

    def _take(self, record: dict[str, Any], payload: bytes) -> None:
        if "end" in record:
            self._end()
        if "record" in record:
            self._records[record["record"]] = payload
        if "file" in record:
            self._take_file(record["file"], payload, more=record["more"])
        if "ask" in record:
            self._take_request(record["ask"], record["kind"], json.loads(payload))

    def _take_file(self, address: str, content: bytes, *, more: bool) -> None:
        """A part; once there is no room for one, what follows it is of no use."""
        if address in self._unkept:
            return
        try:
            self._tensors.add(address, content, more=more)
        except OSError as error:
            self._unkept[address] = f"can't keep a recorded tensor: {error}"

    def _take_request(self, number: int, kind: str, body: dict[str, Any]) -> None:
        """Begin, unless it is under way or answered; or say what lacks."""
        if self._refusal:
            self._refuse(number, self._refusal)
            return
        if number == self._number:
            with self._lock:
                answer = self._answer
            if answer is not None:
                self._send({"answer": number}, answer)
            return
        lacking = [body[name] for name in SHARED if body[name] not in self._records]
        addresses = body.get("tensors", {}).values()
        lacking += [each for each in addresses if not self._tensors.has(each)]
        unkept = [self._unkept.pop(each) for each in lacking if each in self._unkept]
        if unkept:
            self._refuse(number, unkept[0])
            return
        if lacking:
            self._send({"lacks": lacking})
            return
        with self._lock:
            self._number, self._answer = number, None
        self._waiting.put((number, kind, body))

    def _refuse(self, number: int, why: str) -> None:
        self._send({"refused": number, "why": why})

    def _announce(self, message: str) -> None:
        self._send({"announce": message})

    def _tell(self, progress: str) -> None:
        self._send({"progress": progress})

    def _send(self, record: dict[str, Any], payload: bytes = b"") -> None:
        """What nobody is there to hear is asked for again."""
        with self._lock:
            self._write(record, payload)

    def _write(self, record: dict[str, Any], payload: bytes = b"") -> None:
        if self._connection is not None:
            with suppress(OSError):
                write_frame(self._connection.sendall, record, payload)

    def _watch(self) -> None:
        """End when nobody was heard of for too long."""
        while True:
            sleep(0.2)
            limit = self._grace + (MISSED if self._connection is not None else 0.0)
            if monotonic() > self._heard + limit:
                self._end()

    def _end(self) -> NoReturn:
        """Whatever runs: its sandboxes end with this process."""
        shutil.rmtree(self._folder, ignore_errors=True)
        with self._lock:
            is_idle = self._number == 0 or self._answer is not None
        if is_idle:
            self._waiting.put(None)
            sleep(CLEANUP_TIMEOUT)
        os._exit(0)


class _Tensors:
    """Recorded tensors that were sent, by content, in this run or an earlier one."""

    def __init__(self, root: Path) -> None:
        self.files = TensorFiles()
        self._folder = root / "tensors"
        self._parts: dict[str, Path] = {}

    def has(self, address: str) -> bool:
        """Whether it is here, whole."""
        if self.files.find(address) is None:
            path = self._folder / address
            with suppress(OSError):
                if self.files.add(path) == address:
                    os.utime(path)  # used now
        return self.files.find(address) is not None

    def add(self, address: str, content: bytes, *, more: bool) -> None:
        """Take the next part of a file. Raises OSError."""
        if address not in self._parts:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._remove_unused()
            self._parts[address] = self._folder / f"{address}.{secrets.token_hex(4)}"
        path = self._parts[address]
        try:
            with path.open("ab") as file:
                file.write(content)
        except OSError:
            self._forget_parts()
            raise
        if not more:
            del self._parts[address]
            path.replace(self._folder / address)

    def _forget_parts(self) -> None:
        """Remove incomplete files: the next request sends them from the beginning."""
        for path in self._parts.values():
            path.unlink(missing_ok=True)
        self._parts.clear()

    def _remove_unused(self) -> None:
        since = self._folder.stat().st_mtime - UNUSED
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another worker has renamed or removed it
                if path.stat().st_mtime < since:
                    path.unlink()


if __name__ == "__main__":
    Worker(Path(sys.argv[1]), json.loads(sys.argv[2])).serve()
