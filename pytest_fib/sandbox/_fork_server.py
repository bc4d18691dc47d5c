"""The process that starts sandboxes: it has torch imported, and forks one on request.

A script, its control socket as standard input and the JSON of ``ServerSettings`` as argument.
multiprocessing's forkserver does nearly this, but a process has only one, which it shares with all
other code, and its children import the parent's ``__main__``.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from getpass import getuser
from importlib import import_module
from pathlib import Path
from time import monotonic, sleep
from typing import NoReturn

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: How long a sandbox that closed its channel may take to be gone, in seconds.
GRACE = 0.5
_LIBC = ctypes.CDLL(None)


@dataclass(frozen=True)
class ServerSettings:
    """``folder`` is for files of sandboxes; ``modules`` are imported once for all of them.

    ``path`` is ``sys.path`` for foreign code. A ``contained`` one may have other process ids than
    the judge: each sandbox sends a byte, with which the kernel tells the judge who sent it.
    """

    device: str
    folder: str
    modules: list[str]
    path: list[str]
    contained: bool


def main(settings: ServerSettings) -> None:
    """Serve until the control socket closes or SIGTERM comes; then end every sandbox."""
    # What is installed first, and the working directory last: a triton.py there may be foreign.
    here = Path.cwd()
    others = (folder for folder in settings.path if folder not in sys.path)
    sys.path += sorted(others, key=lambda folder: Path(folder).absolute().is_relative_to(here))
    server = _Server(settings)
    signal.signal(signal.SIGTERM, lambda *_: server.leave())
    die_with_parent(signal.SIGTERM)
    # Orphans of a sandbox become children of this process, and so can be found.
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _preload(settings)
    try:
        server.serve()
    finally:
        server.leave()


def _preload(settings: ServerSettings) -> None:
    for name in settings.modules:
        import_module(name)
    if settings.modules:
        from pytest_fib.sandbox._preparation import prepare

        prepare(settings.device)
    from pytest_fib.walls import hide_from_ptrace

    hide_from_ptrace()
    gc.freeze()  # else a collection in a sandbox copies all memory that it shares
    sys.path[:] = settings.path
    os.environ["PYTHONPATH"] = os.pathsep.join(settings.path)


class _Server:
    def __init__(self, settings: ServerSettings) -> None:
        self._device = settings.device
        self._folder = settings.folder
        self._contained = settings.contained
        from pytest_fib.temporary import remove_folder

        self._remove_folder = remove_folder
        self._control = socket.socket(fileno=os.dup(0))
        with Path(os.devnull).open("rb") as empty:
            os.dup2(empty.fileno(), 0)
        #: The folder of each living sandbox, by its process id.
        self._folders: dict[int, Path] = {}

    def serve(self) -> None:
        self._caches = _caches()
        self._control.send(b"ready")
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._control, 64, 2)
            if not message:
                return
            number, word, *arguments = message.split()
            if word == b"start":
                reply = b"%d" % self._start(descriptors)
            elif word == b"ping":
                reply = b"pong"
            else:
                reply = b"%d %d" % self._end(int(arguments[0]), GRACE if word == b"end" else 0.0)
            self._control.send(b"%s %s" % (number, reply))

    def leave(self) -> NoReturn:
        for pid in self._folders:
            _kill(pid)
        _end_orphans(set())
        self._remove_folder(self._folder)
        os._exit(0)  # with no exception, which another signal could cut short

    def _start(self, descriptors: list[int]) -> int:
        parent = os.getpid()
        folder = Path(tempfile.mkdtemp(dir=self._folder))
        pid = os.fork()
        if pid == 0:
            self._become_sandbox(descriptors, folder, parent)
        self._folders[pid] = folder
        for descriptor in descriptors:
            os.close(descriptor)
        return pid

    def _become_sandbox(self, descriptors: list[int], folder: Path, parent: int) -> NoReturn:
        try:
            # A session of its own: Ctrl-C at the terminal goes to the judge alone, and what the
            # sandbox starts can be stopped and ended with it.
            os.setsid()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            die_with_parent(signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(1)  # the parent died before that took effect
            self._control.close()
            from pytest_fib.sandbox._worker import serve

            channel, output = descriptors
            if self._contained:
                os.write(channel, b"!")
            serve(channel, output, self._device, folder, self._caches)
        except BaseException:  # noqa: BLE001  (KeyboardInterrupt, say; goes where prints go)
            traceback.print_exc()
        finally:
            os._exit(1)

    def _end(self, pid: int, grace: float) -> tuple[int, int]:
        """End a sandbox; its wait status, and whether it had to be killed."""
        status = _ended(pid, grace)
        had_to_be_killed = status is None
        _kill(pid)  # and what it started
        if status is None:
            status = os.waitpid(pid, 0)[1]
        folder = self._folders.pop(pid)
        _end_orphans(set(self._folders))
        self._remove_folder(folder)
        return status, had_to_be_killed


def default_caches() -> dict[str, Path]:
    """Where compilers keep what they made, by the variables that say otherwise."""
    home = Path(os.environ.get("HOME", "/nonexistent"))
    extensions = Path(os.environ.get("XDG_CACHE_HOME", home / ".cache")) / "torch_extensions"
    return {
        "TRITON_CACHE_DIR": Path(os.environ.get("TRITON_HOME", home)) / ".triton" / "cache",
        "TILELANG_CACHE_DIR": home / ".tilelang" / "cache",
        "TORCHINDUCTOR_CACHE_DIR": Path(tempfile.gettempdir()) / f"torchinductor_{getuser()}",
        "TORCH_EXTENSIONS_DIR": extensions,
        "CUDA_CACHE_PATH": home / ".nv" / "ComputeCache",
    }


def _caches() -> list[Path]:
    """Folders of what compilers made, for the next sandbox and the next run."""
    defaults = default_caches()
    for name, folder in defaults.items():
        # Set, since some would follow the folder for temporary files.
        cache = Path(os.environ.setdefault(name, str(folder)))
        with suppress(OSError):  # no home, or one that can't be written
            cache.mkdir(parents=True, exist_ok=True)
    return [Path(os.environ[name]) for name in defaults]


def die_with_parent(number: signal.Signals) -> None:
    """Have the kernel signal this process when its parent ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, number)


def _ended(pid: int, grace: float) -> int | None:
    """The wait status of a process, if it ends within so many seconds."""
    until = monotonic() + grace
    while monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        sleep(0.001)
    return None


def _kill(pid: int) -> None:
    _kill_group(pid)
    with suppress(ProcessLookupError):  # it may have no group yet
        os.kill(pid, signal.SIGKILL)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def _end_orphans(children: set[int]) -> None:
    """End what dead sandboxes left in sessions of their own, and what those leave in turn."""
    while orphans := _all_children() - children:
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _all_children() -> set[int]:
    """The children of this process, where the kernel lists them."""
    try:
        text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    except FileNotFoundError:
        return set()
    return {int(pid) for pid in text.split()}


if __name__ == "__main__":
    main(ServerSettings(**json.loads(sys.argv[1])))
