"""What ssh starts on the remote machine: says what is there, takes what lacks, and passes bytes on.

Sent as text and run before anything of pytest-fib is there: it imports the standard library alone,
and Python 3.7 can read it. What it speaks are frames: JSON, then bytes.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import platform
import shutil
import socket
import struct
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

#: Before the first frame: a login shell may have printed something.
MAGIC = b"\0pytest-fib\n"
#: Seconds until what was not used for so long is removed.
UNUSED = 30 * 24 * 3600.0
#: Seconds that a worker may take until it listens.
START = 60.0
_LENGTHS = struct.Struct(">II")


def write_frame(
    write: Callable[[bytes], Any], record: dict[str, Any], payload: bytes = b""
) -> None:
    """Write a record and bytes by a function that writes all it is given."""
    text = json.dumps(record).encode()
    write(_LENGTHS.pack(len(text), len(payload)) + text + payload)


def read_frame(read: Callable[[int], bytes]) -> tuple[dict[str, Any], bytes]:
    """A record and its bytes, by a function that reads just so many. Raises EOFError."""
    lengths = read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        raise EOFError
    of_text, of_payload = _LENGTHS.unpack(lengths)
    text, payload = read(of_text), read(of_payload)
    if len(text) < of_text or len(payload) < of_payload:
        raise EOFError
    return json.loads(text.decode()), payload


def main() -> None:
    """Talk to the client, until it or the worker is gone."""
    out = os.fdopen(os.dup(1), "wb", 0)
    os.dup2(2, 1)  # nothing that is imported may print among the frames
    sys.path[:] = [folder for folder in sys.path if folder]  # not what lies in this folder

    def write(content: bytes) -> None:
        rest = memoryview(content)
        while rest:
            rest = rest[out.write(rest) :]

    write(MAGIC)
    try:
        _obey(sys.stdin.buffer.read, write)
    except EOFError:
        pass  # the client has gone
    except OSError as error:
        write_frame(write, {"error": str(error)})


def _facts() -> dict[str, Any]:
    """What decides what has to travel."""
    installed = {}
    try:
        from importlib.metadata import distributions
    except ImportError:
        pass  # of a Python that is too old, which is all that has to be said
    else:
        installed = {d.metadata["Name"]: d.version for d in distributions()}
    return {
        "version": list(sys.version_info[:2]),
        "python": platform.python_version(),
        "executable": sys.executable,
        "tag": [sys.implementation.cache_tag, sysconfig.get_platform()],
        "libc": platform.libc_ver(),
        "installed": installed,
    }


def _obey(read: Callable[[int], bytes], write: Callable[[bytes], Any]) -> None:
    order = read_frame(read)[0]
    if order["archives"] is None:
        write_frame(write, _facts())
        order = read_frame(read)[0]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "pytest-fib", "remote")
    root = Path(order["root"] or cache).expanduser() / "code"
    folders = []
    for name in order["archives"]:
        folder = root / name
        if not folder.is_dir():
            write_frame(write, {"lacks": name})
            _unpack(read_frame(read)[1], folder)
        os.utime(str(folder))  # used now
        folders.append(str(folder))
    if order["worker"] is not None:
        options = order["worker"]["options"]
        if options["prebuilt"] is not None:
            options["prebuilt"] = folders.pop()  # which is no code
        _relay(_attached(order["worker"], folders), write)
    sys.path[:0] = folders
    from pytest_fib.build import Machine

    write_frame(write, {}, Machine.here_for_others().to_json().encode())


def _unpack(content: bytes, folder: Path) -> None:
    try:
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_unused(folder.parent)
        unpacked = Path(tempfile.mkdtemp(dir=str(folder.parent)))
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                archive.extractall(str(unpacked))
            unpacked.rename(folder)
        finally:
            shutil.rmtree(str(unpacked), ignore_errors=True)
    except OSError as error:
        if not folder.is_dir():  # else another was faster
            other = "the URL may name another folder, as in ssh://host/scratch/me"
            raise OSError(f"{folder.parent} can't be written: {error}; {other}") from None


def _remove_unused(parent: Path) -> None:
    for path in parent.iterdir():
        try:
            is_unused = path.stat().st_mtime < time.time() - UNUSED
        except FileNotFoundError:
            continue  # another has unpacked and renamed it
        if is_unused:
            shutil.rmtree(str(path), ignore_errors=True)


def _attached(order: dict[str, Any], folders: list[str]) -> socket.socket:
    """A connection to the worker, which is started where there is none. Raises OSError."""
    beginning = f"pytest-fib-{os.getuid()}-"
    folder = Path(tempfile.gettempdir(), beginning + order["session"])
    connection = _connected(folder)
    if connection is not None:
        return connection
    shutil.rmtree(str(folder), ignore_errors=True)  # of a worker that died
    _remove_abandoned(folder.parent.glob(f"{beginning}*"))
    folder.mkdir(0o700)  # which fails if it is anyone else's
    worker = _started(order, folder, folders)
    until = time.monotonic() + START
    while time.monotonic() < until:
        ended = worker.poll() is not None
        connection = _connected(folder)
        if connection is not None:
            return connection
        if ended:
            break
        time.sleep(0.01)
    lines = (folder / "log").read_text(encoding="utf-8", errors="replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
    raise OSError(f"the worker does not start: {last.strip()}")


def _remove_abandoned(folders: Iterable[Path]) -> None:
    """Remove folders of killed workers: the lock on a log is released with its writer."""
    for folder in folders:
        log = folder / "log"
        try:
            is_new = log.stat().st_mtime > time.time() - START  # and may not be locked yet
            if is_new or folder.lstat().st_uid != os.getuid():
                continue
            with log.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(str(folder), ignore_errors=True)
        except OSError:
            pass  # in use, or gone by now


def _started(order: dict[str, Any], folder: Path, path: list[str]) -> subprocess.Popen[bytes]:
    """A worker in a session of its own, which the end of this one does not end."""
    path = [*path, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(path), **order["environment"])
    command = [sys.executable, "-P", "-m", "pytest_fib.executors.worker"]
    with (folder / "log").open("wb") as log:
        fcntl.flock(log, fcntl.LOCK_EX)  # until the worker ends, which writes to it
        return subprocess.Popen(
            [*command, str(folder), json.dumps(order["options"])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            cwd="/",
            start_new_session=True,
        )


def _connected(folder: Path) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(folder / "socket"))
    except OSError:
        connection.close()
        return None
    return connection


def _relay(connection: socket.socket, write: Callable[[bytes], Any]) -> None:
    """Pass on what comes from either side, until one has ended."""
    threading.Thread(target=_pass_to, args=(connection,), daemon=True).start()
    while True:
        content = connection.recv(1 << 16)
        if not content:
            os._exit(0)
        write(content)


def _pass_to(connection: socket.socket) -> None:
    while True:
        content = os.read(0, 1 << 16)
        if not content:
            os._exit(0)
        connection.sendall(content)


if __name__ == "__main__":
    main()
