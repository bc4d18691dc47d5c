"""The process of a sandbox: reads requests, has the Runner run them, replies."""

from __future__ import annotations

import ctypes
import faulthandler
import io
import mmap
import os
import resource
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch

from pytest_fib.build import Program, compiler_cache_of
from pytest_fib.data import SupportedLanguages
from pytest_fib.sandbox import _cuda_ipc
from pytest_fib.sandbox._arena import view
from pytest_fib.sandbox._channel import Channel, ChannelClosed
from pytest_fib.sandbox._foreign_errors import one_line, own_traceback
from pytest_fib.sandbox._host_memory import HOST_MEMORY
from pytest_fib.sandbox._messages import Build, Done, Load, Map, Reply, decode_request, encode_reply
from pytest_fib.sandbox._runner import Runner
from pytest_fib.walls import raise_walls

#: The largest file it may write; what it prints is a file in memory.
FILE_SIZE = 1 << 30
#: The most descriptors that a message of a socket holds. A user may send one as long as no more
#: descriptors are under way, in all of the user's sockets, than the sender may have open. So that
#: messages of foreign code don't keep the judge's from being sent, it may have fewer open.
IN_A_MESSAGE = 253
#: Freed memory of its own that a sandbox reuses for its next tensors, in bytes.
REUSED_MEMORY = 512 << 20
_LIBC = ctypes.CDLL(None)
# glibc's mallopt: how much free memory the heap keeps, and how many allocations are mapped instead.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def serve(channel: int, output: int, device: str, folder: Path, caches: Sequence[Path]) -> None:
    """Reply to requests until the judge is gone.

    ``output`` is where prints go; files may be written beneath ``folder`` and ``caches``.
    """
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
    os.close(output)
    sys.stdout, sys.stderr = _unbuffered(1), _unbuffered(2)
    # Of a crash, and of a call that takes too long: then the judge sends SIGABRT.
    faulthandler.enable(2, all_threads=True)
    # Code that takes too much fails here, not on the whole machine.
    _limit(resource.RLIMIT_DATA, HOST_MEMORY)
    _limit(resource.RLIMIT_FSIZE, FILE_SIZE)
    _limit(resource.RLIMIT_CORE, 0)  # to write out all of torch takes seconds
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    _limit(resource.RLIMIT_NOFILE, files - min(IN_A_MESSAGE + 1, files // 2))
    _reuse_freed_memory()
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None  # what it is was read before the fork
    raise_walls([folder, *caches], device)
    worker = _Worker(Channel(socket.socket(fileno=channel)), device, folder)
    try:
        worker.serve()
    except BaseException as error:
        if not worker.is_used:
            raise  # this package's own
        # By a signal, a thread or what it replaced, the program can have anything raised here.
        os.write(2, _escaped(error, folder).encode())
        os._exit(1)


def _escaped(error: BaseException, folder: Path) -> str:
    """What ended the loop, in words: of this package's frames, only where the last one was."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    text = own_traceback(error).rstrip("\n") or one_line(error)
    # No more than is needed: what the program has replaced may be missing here.
    if frame is not None:
        file = frame.tb_frame.f_code.co_filename.rpartition("/")[2]
        text = f"{text}\nraised at {file}:{frame.tb_lineno}"
    return text.replace(f"{folder}/", "")


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    """A text stream of which a crash loses nothing."""
    raw = io.FileIO(descriptor, "w", closefd=False)
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", write_through=True)


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (limit, limit))


def _reuse_freed_memory() -> None:
    """Reuse freed pages for the next tensors: clearing new ones took most of a call's time."""
    if hasattr(_LIBC, "mallopt"):
        _LIBC.mallopt(_M_TRIM_THRESHOLD, REUSED_MEMORY)
        _LIBC.mallopt(_M_MMAP_MAX, 0)


class _Worker:
    def __init__(self, channel: Channel, device: str, folder: Path) -> None:
        self._channel = channel
        self._device = device
        self._folder = folder
        #: Whether it has begun to run foreign code.
        self.is_used = False
        self._arena = torch.empty(0, dtype=torch.uint8)
        self._mapped: _cuda_ipc.Mapped | None = None
        self._runner = Runner(device, lambda ref: view(self._arena, ref), is_process=True)
        #: All set by the fork server.
        names = filter(None, (language.facts.cache for language in SupportedLanguages))
        self._caches = {name: os.environ[name] for name in names}

    def serve(self) -> None:
        while True:
            try:
                serial, payload, descriptors = self._channel.receive(descriptors=1)
            except ChannelClosed:
                return
            request = decode_request(payload)
            if isinstance(request, Map):
                reply: Reply = self._map(request, descriptors)
            else:
                if isinstance(request, (Build, Load)):
                    self.is_used = True
                    self._choose_cache(request.program)
                reply = self._runner.answer(request, *descriptors)
                for descriptor in descriptors:
                    os.close(descriptor)
                if reply.log:
                    # Its folder has another name each time, and tracebacks name files in it.
                    reply = replace(reply, log=reply.log.replace(f"{self._folder}/", ""))
            _LIBC.fflush(None)  # what C code, and CUDA's printf, have printed
            self._channel.send(serial, encode_reply(reply))

    def _choose_cache(self, program: Program) -> None:
        """Have its compiler keep what it makes in a folder of this program's own."""
        if name := SupportedLanguages(program.language).facts.cache:
            os.environ[name] = compiler_cache_of(program, self._caches[name])
            with suppress(OSError):  # there is none yet
                os.utime(os.environ[name])  # used now

    def _map(self, request: Map, descriptors: list[int]) -> Done:
        os.environ.update(request.environment)
        if request.size == 0:
            torch.zeros(1, device=self._device)  # which makes the context, on CUDA
            return Done()
        self._runner.release()
        if self._mapped is not None:
            self._arena = self._arena.new_empty(0)
            self._mapped.close()
        if self._device == "cpu":
            # The mapping ends with its last tensor.
            memory = mmap.mmap(descriptors[0], request.size)
            os.close(descriptors[0])
            self._arena = torch.frombuffer(memory, dtype=torch.uint8)
        else:
            self._mapped = _cuda_ipc.Mapped(bytes.fromhex(request.handle), request.size)
            self._arena = self._mapped.tensor
        return Done()
