"""Evaluations on a machine that is reached by the system's ``ssh``."""

from __future__ import annotations

import hashlib
import json
import select
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib.resources import files as package_files
from pathlib import Path
from secrets import token_hex
from threading import Event, Lock, Thread
from time import monotonic, sleep
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pytest_fib.build import Machine
from pytest_fib.data import TensorFiles
from pytest_fib.executors._answers import SHARED, parts_of
from pytest_fib.executors._archives import Archive, RemoteError, RemotePython, archive_of
from pytest_fib.executors._relay import MAGIC, read_frame, write_frame
from pytest_fib.executors._remote import ATTEMPTS, RemoteExecutor
from pytest_fib.executors.worker import PULSE
from pytest_fib.temporary import TemporaryFolder

if TYPE_CHECKING:
    from pytest_fib.executors._answers import JudgeRequest

#: How long the far end may take over each step of a connection, in seconds.
STEP_TIMEOUT = 60.0
#: Between attempts to connect, in seconds, doubling from the first to the last.
FIRST_WAIT, LAST_WAIT = 0.1, 5.0
#: Of files, in bytes.
FILE_CHUNK = 1 << 20
#: What the remote Python runs: a script that comes first, after its length.
_READ_SCRIPT = "import sys;exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"
#: Ends with 1 where torch can't be imported, and says why last. What imports may crash, and what
#: crashes looks to ssh like a connection that is lost.
_IMPORT_TORCH = b"""\
import os
import subprocess
import sys
import threading

IMPORT = '''
import sys
try:
    import torch
except Exception as error:
    sys.exit(" ".join(f"{type(error).__name__}: {error}".split()))
'''
command = [sys.executable, "-P", "-c", IMPORT]
process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2)

def end_with_the_connection():
    os.read(0, 1)
    process.kill()

threading.Thread(target=end_with_the_connection, daemon=True).start()
sys.exit(process.wait() != 0)
"""
#: What a shell says of a command that is not there, or is none.
_NO_COMMAND = (126, 127)
#: Comes after the user's own configuration, and so only adds what that leaves open.
_CONFIGURATION = """\
Include ~/.ssh/config
Include /etc/ssh/ssh_config
Host *
    ControlMaster auto
    ControlPath {folder}/%C
    ControlPersist 60
    ServerAliveInterval 5
    ServerAliveCountMax 3
    ConnectTimeout 10
"""


class _LostError(Exception):
    """The connection is gone; the message is what ssh said, or nothing."""


@dataclass(frozen=True)
class SshTarget:
    """A machine: ``ssh://user@host:port/folder``, of which only the host has to be there.

    ``folder`` is where pytest-fib keeps its files there, relative to nothing; ``python`` a command
    of the shell there.
    """

    url: str
    host: str
    user: str | None = None
    port: int | None = None
    folder: str | None = None
    python: str = "python3"

    @classmethod
    def parse(cls, url: str, python: str = "python3") -> SshTarget:
        """Raises ValueError that says what is wrong."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise ValueError(f"{url!r}: {error}") from None
        if parts.scheme != "ssh" or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not ssh://user@host:port/folder")
        if parts.password is not None:
            raise ValueError(f"{parts.hostname}: a password does not belong here; use a key")
        user = None if parts.username is None else unquote(parts.username)
        if parts.hostname.startswith("-") or (user or "").startswith("-"):
            raise ValueError(f"{url!r}: neither a host nor a user begins with '-'")
        folder = unquote(parts.path).replace("/~", "~", 1) if parts.path.strip("/") else None
        # In the letters of the URL: ssh tells aliases apart by case, `hostname` has lost that.
        address = parts.netloc.rpartition("@")[2]
        is_ip = address.startswith("[")
        host = address[1:].partition("]")[0] if is_ip else address.partition(":")[0]
        return cls(url, host, user, port, folder, python)

    @property
    def arguments(self) -> list[str]:
        user = [] if self.user is None else ["-l", self.user]
        port = [] if self.port is None else ["-p", str(self.port)]
        return [*user, *port, "--", self.host]


class SshConnections:
    """How ssh is called, by one process or several that share connections: a folder of sockets.

    Whoever is not given a folder makes one, and ends the shared connections in `close`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._own: TemporaryFolder | None = None
        if folder is None:
            # Not below $TMPDIR, which may be too long for a socket's name.
            self._own = TemporaryFolder.make("/tmp")
            folder = self._own.path
        self.folder = folder
        self._targets: set[SshTarget] = set()
        #: What each target has to have, by name, once that is known.
        self.archives: dict[SshTarget, dict[str, Archive]] = {}
        if self._own is not None:
            self._configuration.write_text(_CONFIGURATION.format(folder=self.folder))

    @property
    def is_owner(self) -> bool:
        return self._own is not None

    @property
    def _configuration(self) -> Path:
        return self.folder / "config"

    def command(self, target: SshTarget, *options: str) -> list[str]:
        self._targets.add(target)
        ssh = ["ssh", "-F", str(self._configuration), "-o", "BatchMode=yes", "-T"]
        return [*ssh, *options, *target.arguments]

    def close(self) -> None:
        """End the shared connections, if they are this one's own."""
        if self._own is None:
            return
        for target in self._targets:
            command = self.command(target, "-O", "exit")
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(command, capture_output=True, timeout=5, check=False)
        self._own.remove()


class _Connection:
    """One process of ssh, and what the far end says through it."""

    def __init__(self, command: list[str]) -> None:
        # A file: the process that keeps a shared connection holds it for as long as that lives.
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed in close)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for pytest, which says so there
            )
        except OSError as error:
            raise RemoteError(f"ssh can't be started: {error}") from None
        self._lock = Lock()
        self.worker, self.pid = "", 0
        self.sent: set[str] = set()

    def send(self, record: dict[str, Any], payload: bytes = b"") -> None:
        """Raises _LostError."""
        assert self._process.stdin is not None
        try:
            with self._lock:
                write_frame(self._write, record, payload)
        except (OSError, ValueError):
            raise _LostError from None

    def _write(self, content: bytes) -> None:
        assert self._process.stdin is not None
        view = memoryview(content)
        while view:
            view = view[self._process.stdin.write(view) or 0 :]

    def send_script(self, script: bytes) -> None:
        """Send the script that the remote Python runs first. Raises _LostError."""
        try:
            self._write(b"%d\n%s" % (len(script), script))
        except OSError:
            raise _LostError from None

    def receive(self, timeout: float | None = None) -> tuple[dict[str, Any], bytes]:
        """The next frame; without a timeout it may take for ever. Raises _LostError."""
        until = None if timeout is None else monotonic() + timeout
        try:
            record, payload = read_frame(lambda size: self._read(size, until))
        except (OSError, EOFError, ValueError):
            raise _LostError from None
        return record, payload

    def skip_to(self, mark: bytes, timeout: float) -> None:
        """Read past a mark. Raises _LostError."""
        until, skipped = monotonic() + timeout, b""
        try:
            while not skipped.endswith(mark):
                if not (byte := self._read(1, until)) or len(skipped) > FILE_CHUNK:
                    raise _LostError
                skipped += byte
        except OSError:
            raise _LostError from None

    def _read(self, size: int, until: float | None) -> bytes:
        """So many bytes; fewer at the end. Raises OSError where it takes too long."""
        stdout = self._process.stdout
        assert stdout is not None
        content = bytearray()
        while len(content) < size:
            left = None if until is None else max(0.0, until - monotonic())
            if not select.select([stdout], [], [], left)[0]:
                raise OSError("no answer in time")
            part = stdout.read(size - len(content))
            if not part:
                break
            content += part
        return bytes(content)

    def why_lost(self, python: str) -> str:
        """What ssh said, or the command that it ran."""
        try:
            status = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it does not answer"
        messages = [line for line in self._said() if not line.startswith("Warning: ")]
        reason = " ".join(messages[-2:])
        if status in _NO_COMMAND:
            return f"there is no {python} (--fib-remote-python): {reason}"
        return reason or f"the connection ended with status {status}"

    def why_failed(self) -> str:
        """The last line that a command wrote which ends with status 1, or nothing."""
        if self._process.wait() != 1:
            return ""
        lines = self._said()
        return lines[-1] if lines else "the process crashed"

    def _said(self) -> list[str]:
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return [line.strip() for line in lines]

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(OSError):
                pipe.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._errors.close()


@dataclass
class RemoteOptions:
    """Options of a remote worker: arguments of a judge, its GPU by name, its grace in seconds.

    What was built ahead of time, in the folder ``prebuilt`` here, travels there.
    """

    device: str = "cpu"
    isolation: str = "process"
    lock_timeout: float = 600.0
    gpu: str | None = None
    grace: float = 60.0
    prebuilt: Path | None = None


@dataclass
class _Session:
    """A remote worker by name, and how it is started."""

    target: SshTarget
    options: RemoteOptions
    name: str = field(default_factory=lambda: token_hex(16))

    @cached_property
    def prebuilt(self) -> Archive | None:
        """The artifacts built ahead of time. Raises RemoteError if they can't be read."""
        folder = self.options.prebuilt
        try:
            return None if folder is None else archive_of(folder)
        except OSError as error:
            raise RemoteError(f"{folder}: {error}") from None

    def to_json(self) -> dict[str, Any]:
        options = asdict(self.options)
        gpu = options.pop("gpu")
        prebuilt = None if self.prebuilt is None else self.prebuilt.name
        return {
            "session": self.name,
            "environment": {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu},
            "options": {**options, "root": self.target.folder, "prebuilt": prebuilt},
        }


class Description:
    """A remote machine that describes itself: begun at once, and told when somebody asks."""

    def __init__(self, connections: SshConnections, target: SshTarget) -> None:
        self._connections, self._target = connections, target
        self._connection = _opened(connections, target)
        with suppress(_LostError):  # which is said by whoever reads
            self._connection.send({"archives": None})
        self._is_ordered = False

    def order(self) -> None:
        """Have it begin, once it is known what has to travel. Raises RemoteError."""
        if self._is_ordered:
            return
        with _errors_of(self._target, self._connection):
            self._connection.skip_to(MAGIC, STEP_TIMEOUT)
            archives = _needed(self._connection)
            self._connections.archives[self._target] = archives
            _order(self._connection, self._target, archives, None)
        self._is_ordered = True

    def machine(self) -> Machine:
        """The machine, which has this package afterwards. Raises RemoteError."""
        self.order()
        with _errors_of(self._target, self._connection):
            archives = self._connections.archives[self._target]
            _, text = _answer_to_order(self._connection, archives)
        self.close()
        return Machine.from_json(text)

    def close(self) -> None:
        self._connection.close()


def describe(connections: SshConnections, target: SshTarget) -> Machine:
    """Describe the remote machine; afterwards it has this package. Raises RemoteError."""
    description = Description(connections, target)
    try:
        return description.machine()
    finally:
        description.close()


def _opened(connections: SshConnections, target: SshTarget) -> _Connection:
    """A connection to a relay, which is sent but not heard yet. Raises RemoteError."""
    connection = _Connection(_command(connections, target))
    script = package_files("pytest_fib.executors").joinpath("_relay.py").read_bytes()
    with suppress(_LostError):  # which is said by whoever reads
        connection.send_script(script)
    return connection


def _command(connections: SshConnections, target: SshTarget) -> list[str]:
    """What runs a script there, once that is sent."""
    return [*connections.command(target), f"exec {target.python} -c '{_READ_SCRIPT}'"]


@contextmanager
def _errors_of(target: SshTarget, connection: _Connection) -> Iterator[None]:
    """Close the connection where something goes wrong, and say where that was."""
    try:
        yield
    except _LostError:
        why = connection.why_lost(target.python)
        connection.close()
        raise RemoteError(f"{target.url}: {why}") from None
    except RemoteError as error:
        connection.close()
        raise RemoteError(f"{target.url}: {error}") from None
    except BaseException:  # an interrupt
        connection.close()
        raise


class TorchImport:
    """An import of torch on a remote machine, which goes on until somebody asks."""

    def __init__(self, connections: SshConnections, target: SshTarget) -> None:
        self._target = target
        self._connection = _Connection(_command(connections, target))
        with suppress(_LostError):
            self._connection.send_script(_IMPORT_TORCH)

    def check(self) -> None:
        """Wait for it. Raises RemoteError where torch can't be imported there.

        Not where the connection is lost: whoever needs one takes it up again.
        """
        if why := self._connection.why_failed():
            raise RemoteError(f"{self._target.url}: torch can't be imported there: {why}")

    def close(self) -> None:
        self._connection.close()


def _connected(connections: SshConnections, target: SshTarget, session: _Session) -> _Connection:
    """A connection to a session's worker. Raises RemoteError."""
    connection = _opened(connections, target)
    with _errors_of(target, connection):
        connection.skip_to(MAGIC, STEP_TIMEOUT)
        if target not in connections.archives:
            connection.send({"archives": None})
            connections.archives[target] = _needed(connection)
        archives = connections.archives[target]
        if session.prebuilt is not None:
            archives = {**archives, session.prebuilt.name: session.prebuilt}
        _order(connection, target, archives, session)
        record, _ = _answer_to_order(connection, archives)
        connection.worker, connection.pid = record["worker"], record["pid"]
    return connection


def _needed(connection: _Connection) -> dict[str, Archive]:
    """What has to be there, by name, from what the relay says of it.

    Raises _LostError and RemoteError.
    """
    python = RemotePython(connection.receive(STEP_TIMEOUT)[0])
    python.check()
    return {each.name: each for each in python.archives()}


def _order(
    connection: _Connection,
    target: SshTarget,
    archives: Mapping[str, Archive],
    session: _Session | None,
) -> None:
    """Ask for a session's worker; without one, what machine it is. Raises _LostError."""
    worker = None if session is None else session.to_json()
    connection.send({"root": target.folder, "archives": list(archives), "worker": worker})


def _answer_to_order(
    connection: _Connection, archives: Mapping[str, Archive]
) -> tuple[dict[str, Any], bytes]:
    """Send what lacks there first. Raises _LostError and RemoteError."""
    while "lacks" in (answer := _unless_error(connection))[0]:
        connection.send({}, archives[answer[0]["lacks"]].content())
    return answer


def _unless_error(connection: _Connection) -> tuple[dict[str, Any], bytes]:
    record, payload = connection.receive(STEP_TIMEOUT)
    if "error" in record:
        raise RemoteError(record["error"])
    return record, payload


class SshExecutor(RemoteExecutor):
    """Evaluates on a remote machine, by a worker there that outlives lost connections.

    ``files`` has the recorded tensors that requests name; ``announce`` is told of lost connections
    and of others that hold the device, ``progress`` what is done now. ``connections`` may be shared
    by several executors. Lost connections are taken up again for ``options.grace`` seconds; after
    that, requests are answered as not evaluated, and each tries once more.
    """

    def __init__(
        self,
        target: SshTarget,
        options: RemoteOptions | None = None,
        announce: Callable[[str], None] | None = None,
        files: TensorFiles | None = None,
        connections: SshConnections | None = None,
        *,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self._target = target
        self._session = _Session(target, options or RemoteOptions())
        self._announce = announce or _silent
        self._progress = progress or _silent
        self._files = files or TensorFiles()
        self._owns_connections = connections is None
        self._connections = connections or SshConnections()
        self._connection: _Connection | None = None
        self._was_lost_for_good = False
        self._number = 0
        self._closed = Event()

    def start(self) -> None:
        """Connect, and have the worker get ready. Raises RemoteError."""
        Thread(target=self._give_signs_of_life, daemon=True).start()
        self._connection = _connected(self._connections, self._target, self._session)

    def is_ready(self) -> bool:
        """Wait for the worker; False where it can't evaluate anything, or is lost."""
        if self._connection is None:
            return False
        try:
            while "ready" not in (record := self._connection.receive()[0]):
                self._pass_on(record)
        except _LostError:
            self._drop()
            return False
        return bool(record["ready"])

    @property
    def worker_pid(self) -> int | None:
        """The remote worker's process id there, while it is connected."""
        return None if self._connection is None else self._connection.pid

    def close(self) -> None:
        """End the remote worker, whatever it does."""
        self._closed.set()
        if self._connection is not None:
            with suppress(_LostError):
                self._connection.send({"end": True})
            self._drop()
        if self._owns_connections:
            self._connections.close()

    # One request.

    def _ask(self, kind: str, request: JudgeRequest) -> bytes:
        """The answer, from whichever connection it comes. Raises RemoteError."""
        self._number += 1
        body, records = _split(request)
        workers: set[str] = set()
        while True:
            connection = self._connection or self._connected_again()
            workers.add(connection.worker)
            if len(workers) > ATTEMPTS:
                raise RemoteError(
                    f"{self._target.url}: the worker died {ATTEMPTS} times of this request"
                )
            try:
                return self._exchange(connection, kind, request, (body, records))
            except _LostError:
                self._drop()

    def _exchange(
        self,
        connection: _Connection,
        kind: str,
        request: JudgeRequest,
        parts: tuple[bytes, dict[str, bytes]],
    ) -> bytes:
        body, records = parts
        for address in records.keys() - connection.sent:
            connection.send({"record": address}, records[address])
            connection.sent.add(address)
        question = {"ask": self._number, "kind": kind}
        connection.send(question, body)
        while True:
            record, payload = connection.receive()
            if record.get("answer") == self._number:
                return payload
            self._pass_on(record)
            if record.get("refused") == self._number:
                raise RemoteError(f"{self._target.url}: {record['why']}")
            for address in record.get("lacks", ()):
                self._send_part(connection, address, records)
            if "lacks" in record:
                connection.send(question, body)

    def _pass_on(self, record: dict[str, Any]) -> None:
        """Pass on a record that is no answer."""
        if "announce" in record:
            self._announce(f"{self._target.host}: {record['announce']}")
        if "progress" in record:
            self._progress(f"{record['progress']} on {self._target.host}")

    def _send_part(self, connection: _Connection, address: str, records: dict[str, bytes]) -> None:
        """A record, or a file of tensors in parts. Raises RemoteError where it has gone."""
        if address in records:
            connection.send({"record": address}, records[address])
            return
        path = self._files.find(address)
        try:
            if path is None:
                raise FileNotFoundError(f"no file of recorded tensors holds {address}")
            size = path.stat().st_size
            with path.open("rb") as file:
                for start in range(0, max(size, 1), FILE_CHUNK):
                    more = start + FILE_CHUNK < size
                    connection.send({"file": address, "more": more}, file.read(FILE_CHUNK))
        except OSError as error:
            raise RemoteError(f"a recorded tensor can't be sent: {error}") from None

    # The connection.

    def _connected_again(self) -> _Connection:
        """Within the grace, unless it was exceeded before. Raises RemoteError."""
        until = monotonic() + (0.0 if self._was_lost_for_good else self._session.options.grace)
        wait = FIRST_WAIT
        while True:
            try:
                self._connection = _connected(self._connections, self._target, self._session)
            except RemoteError:
                self._was_lost_for_good = monotonic() + wait > until
                if self._was_lost_for_good:
                    raise
                if wait == FIRST_WAIT:
                    self._announce(f"the connection to {self._target.host} is lost; trying again")
                sleep(wait)
                wait = min(2 * wait, LAST_WAIT)
            else:
                self._was_lost_for_good = False
                return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _give_signs_of_life(self) -> None:
        while not self._closed.wait(PULSE):
            if (connection := self._connection) is not None:
                with suppress(_LostError):
                    connection.send({"alive": True})


def _split(request: JudgeRequest) -> tuple[bytes, dict[str, bytes]]:
    """A request that names its large parts by their content, and these parts."""
    own, *shared = parts_of(request)
    addresses = [hashlib.sha256(text).hexdigest() for text in shared]
    body = json.loads(own) | dict(zip(SHARED, addresses, strict=True))
    return json.dumps(body).encode(), dict(zip(addresses, shared, strict=True))


def _silent(_: str) -> None:
    """Nobody to tell."""
