"""Implementations as functions of this process: built once, quarantined when they fail."""

from __future__ import annotations

import logging
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.build import Artifact, Hardware, Program
    from pytest_fib.data import Definition, Solution, TraceSet

log = logging.getLogger("pytest_fib.dispatch")
#: Where loaded libraries lie until this process ends.
_folders: list[tempfile.TemporaryDirectory[str]] = []


class Busy(Exception):
    """Another thread is building."""


#: What ends no process where foreign code raises it; an interrupt does.
RAISED = (Exception, SystemExit)


def blame(error: BaseException) -> str:
    """A solution's exception, in one line: ``RuntimeError: no luck``.

    Raises it where that was the handler of a signal instead, which came while the solution ran.
    """
    handlers = map(signal.getsignal, signal.valid_signals())
    code = {getattr(handler, "__code__", None) for handler in handlers}
    if any(frame.f_code in code for frame, _ in walk_tb(error.__traceback__)):
        raise error
    first = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{type(error).__name__}: {first}"


class Kernels:
    """The functions of solutions, by name. What fails is quarantined, and logged once."""

    def __init__(self, trace_set: TraceSet) -> None:
        self._trace_set = trace_set
        self._loaded: dict[tuple[str, str], tuple[Callable[..., Any], str]] = {}
        self._locks: dict[tuple[str, str], Lock] = {}
        #: Why solutions are not called any more.
        self.quarantined: dict[str, str] = {}

    def restart(self) -> None:
        """In a forked process, where nobody ends what other threads were building."""
        self._locks = {}

    def get(self, name: str, definition: Definition, device: Any) -> tuple[Callable[..., Any], str]:
        """The function of a solution on a device, and how it is called. Raises Busy."""
        key = (name, str(device))
        loaded = self._loaded.get(key)
        if loaded is not None:
            return loaded
        lock = self._locks.setdefault(key, Lock())
        if not lock.acquire(blocking=False):
            raise Busy
        try:
            if key not in self._loaded:
                self._loaded[key] = self._load(self._trace_set.solution(name), definition, device)
        finally:
            lock.release()
        return self._loaded[key]

    def try_to_get(self, name: str, definition: Definition, device: Any) -> None:
        """Build a solution, or quarantine it."""
        if name in self.quarantined:
            return
        try:
            self.get(name, definition, device)
        except Busy:
            return  # by another thread
        except RAISED as error:
            self.quarantine(name, blame(error))

    def _load(
        self, solution: Solution, definition: Definition, device: Any
    ) -> tuple[Callable[..., Any], str]:
        from pytest_fib.build import load, program_of

        program = program_of(solution, definition, None, _hardware(device))
        artifact = _artifact_file(program) if program.compilation is not None else None
        return load(program, artifact), program.calling

    def quarantine(self, name: str, why: str) -> None:
        if name not in self.quarantined:
            self.quarantined[name] = why
            log.warning("%s is quarantined, the fallback serves its calls: %s", name, why)


def _hardware(device: Any) -> Hardware:
    import torch

    from pytest_fib.build import CPU, Hardware

    if device.type == "cpu":
        return CPU
    capability = torch.cuda.get_device_capability(device)
    return Hardware(device.type, capability, torch.cuda.get_device_name(device))


def hardware_name(device: Any) -> str:
    """The name of a device as traces have it."""
    import torch

    from pytest_fib.timing import processor

    return processor() if device.type == "cpu" else torch.cuda.get_device_name(device)


def event_on(device: Any) -> Any:
    """An event after all current work of the current stream; None on the CPU."""
    import torch

    if device.type != "cuda":
        return None
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event


def _artifact_file(program: Program) -> Path:
    """A file with what a compiled program was built to, ahead of time, before, or now."""
    artifact = _prebuilt(program) or _cached_or_built(program)
    folder = tempfile.TemporaryDirectory(prefix="pytest-fib-apply-")
    _folders.append(folder)
    file = Path(folder.name, Path(artifact.built.file).name)
    file.write_bytes(artifact.content)
    return file


def _prebuilt(program: Program) -> Artifact | None:
    """The artifacts built ahead of time, if the environment names their folder."""
    from pytest_fib.build import Prebuilt

    prebuilt = Prebuilt.from_environment()
    if prebuilt is None:
        return None
    prebuilt.expose_runtime()
    return prebuilt.find(program)


def _cached_or_built(program: Program) -> Artifact:
    from pytest_fib.build import ArtifactCache, default_builds_directory

    cache = ArtifactCache(default_builds_directory())
    return cache.get(cache.key(program), program.name, 600.0, lambda: _built(program))


def _built(program: Program) -> Artifact:
    from pytest_fib.build import Artifact, build

    with tempfile.TemporaryDirectory(prefix="pytest-fib-build-") as folder:
        built = build(program, Path(folder))
        return Artifact((Path(folder) / built.file).read_bytes(), built)
