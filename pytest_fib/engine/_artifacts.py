"""The artifacts of compiled programs: from the cache, or built in a sandbox of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.build import (
    CPU,
    Artifact,
    ArtifactCache,
    BuildError,
    Built,
    Compilation,
    Hardware,
    Prebuilt,
    Program,
    capability_of,
    program_of,
    why_not_callable,
)
from pytest_fib.data import BuildRequest, BuildResult, Compiled, Definition, Workload, visible_line
from pytest_fib.sandbox import Build, Failed
from pytest_fib.workloads import (
    DEFAULT_BUDGETS,
    bench_workloads,
    make_workload,
    smallest_axes,
    workload_bytes,
)

if TYPE_CHECKING:
    from pytest_fib.sandbox import Sandbox


#: No kernel takes more registers, or bytes of shared memory and of spills.
MOST_RESOURCES = 1 << 40
#: What nvcc says about a target that it doesn't support.
_UNKNOWN_TARGET = "Unsupported gpu architecture"


class Artifacts:
    """Builds each compiled program once, also if that fails.

    Programs in ``prebuilt`` are not built.

    Compilers read any file that sources name, and some run code, so the judge starts none.
    ``sandbox`` makes a sandbox for a language's compilers, one for each build.
    """

    def __init__(
        self,
        cache: ArtifactCache,
        prebuilt: Prebuilt | None,
        sandbox: Callable[[str], Sandbox],
    ) -> None:
        self._cache = cache
        self._prebuilt = prebuilt
        self._sandbox = sandbox
        self._failed: dict[str, Failed] = {}
        #: The artifact or the error of each program.
        self.compiled: dict[Program, Compiled] = {}

    def get(
        self,
        program: Program,
        timeout: float,
        subject: tuple[Definition, Workload] | None = None,
    ) -> Artifact | Failed:
        """The artifact of a program; ``timeout`` is in seconds.

        With a ``subject``, it is compiled for calls on inputs like that.
        """
        artifact = self._get(program, timeout, subject)
        if isinstance(artifact, Artifact):
            self.compiled[program] = _compiled(program, artifact)
        return artifact

    def _get(
        self, program: Program, timeout: float, subject: tuple[Definition, Workload] | None
    ) -> Artifact | Failed:
        assert program.compilation is not None, "only compiled programs are built"
        if self._prebuilt is not None and (ready := self._prebuilt.find(program)):
            return ready
        request = Build(program, *(subject or ()))
        called = [program.entry_symbol, *(each.model_dump_json() for each in subject or ())]
        try:
            key = self._cache.key(program, "\n".join(called) if subject else "")
        except BuildError as error:
            return Failed("COMPILE_ERROR", f"{self._damage(program)}{error}", error.log)
        if key in self._failed:
            return self._failed[key]
        what = f"{program.name} for {program.compilation.target}"
        result = self._cache.get(key, what, timeout, lambda: self._build(request, timeout))
        if isinstance(result, Failed):
            if not result.killed:
                self._failed[key] = result
            return result
        # The library has all exports of its sources, and this program enters one of them.
        reason = why_not_callable(program, result.built)
        return Failed("COMPILE_ERROR", reason) if reason else result

    def _damage(self, program: Program) -> str:
        """Why the prebuilt artifact can't be used, as the start of a message; or nothing."""
        if self._prebuilt is None or not self._prebuilt.has(program):
            return ""
        return f"its library in {self._prebuilt.folder} was changed since it was built; "

    def _build(self, request: Build, timeout: float) -> Artifact | Failed:
        sandbox = self._sandbox(request.program.language)
        with file_in_memory() as file:
            reply = sandbox.open(request.program)
            if not isinstance(reply, Failed):
                reply = sandbox.ask(request, timeout, file)
            sandbox.close()  # from here on nobody writes to the file
            if isinstance(reply, Failed):
                return _as_compile_error(reply, timeout)
            if problem := _why_forged(reply.built):
                return Failed("COMPILE_ERROR", f"the process forged a message: {problem}")
            assert reply.built is not None, "that would be forged"
            return Artifact(os.pread(file, os.fstat(file).st_size, 0), _visible(reply.built))


def build_subject(request: BuildRequest) -> tuple[Program, tuple[Definition, Workload] | None]:
    """The program of a request, and its arguments if these decide what is compiled.

    Raises BuildError if it is not for that target.
    """
    definition, target = request.definition, request.target
    directory = None if request.directory is None else Path(request.directory)
    capability = capability_of(target)
    hardware = CPU if target == "cpu" else Hardware("cuda", capability, target)
    program = program_of(request.solution, definition, directory, hardware)
    if program.compilation is not None:
        return program, None
    return replace(program, compilation=Compilation(target)), (definition, _typical(definition))


def _typical(definition: Definition) -> Workload:
    """A timed workload that fits in the CPU's budget, else the smallest workload."""
    fitting = (
        workload
        for workload in bench_workloads(definition).values()
        if workload_bytes(definition, workload.axes) <= DEFAULT_BUDGETS["cpu"]
    )
    return next(fitting, None) or make_workload(definition, smallest_axes(definition))


def _compiled(program: Program, artifact: Artifact) -> Compiled:
    assert program.compilation is not None
    result = build_result(artifact)
    facts = {name: getattr(result, name) for name in Compiled.model_fields if name != "target"}
    return Compiled(target=program.compilation.target, **facts)


def build_result(build: Artifact | Failed) -> BuildResult:
    """The record of a build."""
    if isinstance(build, Failed):
        if _UNKNOWN_TARGET in build.summary:
            return BuildResult(
                status="SKIPPED", message="this nvcc does not support it", log=build.log
            )
        if build.status == "COMPILE_ERROR":
            return BuildResult(status="COMPILE_ERROR", message=build.summary, log=build.log)
        why = f"without a device its host code can't launch kernels: {build.summary}"
        return BuildResult(status="SKIPPED", message=why, log=build.log)
    kernels = build.built.kernels
    worst = max(kernels, key=lambda kernel: kernel.spills, default=None)
    return BuildResult(
        status="PASSED",
        kernel=worst.name if worst is not None and worst.spills else "",
        registers=max((kernel.registers for kernel in kernels), default=0),
        shared_bytes=max((kernel.shared_bytes for kernel in kernels), default=0),
        spills=0 if worst is None else worst.spills,
        binary_bytes=len(build.content),
    )


@contextmanager
def file_in_memory(content: bytes = b"") -> Iterator[int]:
    """The descriptor of a file that has no name, to send to a sandbox."""
    descriptor = os.memfd_create("pytest-fib artifact", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:
            file.write(content)
        yield descriptor
    finally:
        os.close(descriptor)


def _as_compile_error(failed: Failed, timeout: float) -> Failed:
    if failed.status == "COMPILE_ERROR" or not failed.broken:
        return failed
    why = f"while it was built, {failed.summary}"
    if failed.status == "TIMEOUT":
        why = f"not built within {timeout:g} s (--fib-build-timeout)"
    return replace(failed, status="COMPILE_ERROR", summary=why)


def _why_forged(built: Built | None) -> str:
    """What no compiler says; or nothing."""
    if built is None:
        return "nothing was built"
    numbers = [n for k in built.kernels for n in (k.registers, k.shared_bytes, k.spills)]
    possible = all(0 <= number <= MOST_RESOURCES for number in numbers)
    return "" if possible else "numbers of registers or bytes that no kernel takes"


def _visible(built: Built) -> Built:
    """Make names of kernels and functions safe to show: they come from a sandbox."""
    kernels = tuple(replace(each, name=visible_line(each.name)) for each in built.kernels)
    exports = None if built.exports is None else tuple(map(visible_line, built.exports))
    return replace(built, kernels=kernels, exports=exports)
