"""What candidates were built to: from the cache, or built now, in a sandbox of its own."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_fib.build import Artifact, BuildError
from pytest_fib.data import visible_line
from pytest_fib.sandbox import Build, Failed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_fib.build import ArtifactCache, Built, Program
    from pytest_fib.sandbox import Sandbox


class Artifacts:
    """Builds compiled programs once: what fails to build is not tried again either.

    Compilers read any file that sources name, and some run code; so the judge starts none.
    ``sandbox`` is where they run, one process for each build.
    """

    def __init__(self, cache: ArtifactCache, sandbox: Sandbox) -> None:
        self._cache = cache
        self._sandbox = sandbox
        self._failed: dict[str, Failed] = {}

    def get(self, program: Program, timeout: float) -> Artifact | Failed:
        """What a program was built to; ``timeout`` is in seconds."""
        assert program.compilation is not None, "only compiled programs are built"
        try:
            key = self._cache.key(program)
        except BuildError as error:
            return Failed("COMPILE_ERROR", str(error), error.log)
        if key in self._failed:
            return self._failed[key]
        if found := self._cache.find(key):
            return found
        what = f"{program.name} for {program.compilation.target}"
        with self._cache.lock(key, what, timeout):
            # Another process may have been faster.
            result = self._cache.find(key) or self._build(program, timeout)
            if isinstance(result, Artifact):
                self._cache.add(key, result)
            elif not result.killed:
                self._failed[key] = result
        return result

    def _build(self, program: Program, timeout: float) -> Artifact | Failed:
        sandbox = self._sandbox
        with file_in_memory() as file:
            reply = sandbox.open(program)
            if not isinstance(reply, Failed):
                reply = sandbox.ask(Build(program), timeout, file)
            sandbox.close()  # from here on nobody writes to the file
            if isinstance(reply, Failed):
                return _as_compile_error(reply, timeout)
            if reply.built is None:
                return Failed("COMPILE_ERROR", "the process forged a message: nothing was built")
            return Artifact(os.pread(file, os.fstat(file).st_size, 0), _visible(reply.built))


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
    if failed.status == "COMPILE_ERROR":
        return failed
    why = f"while it was built, {failed.summary}"
    if failed.status == "TIMEOUT":
        why = f"not built within {timeout:g} s (--fib-build-timeout)"
    return replace(failed, status="COMPILE_ERROR", summary=why)


def _visible(built: Built) -> Built:
    """Names of kernels are shown in tables, and a sandbox says them."""
    kernels = tuple(replace(each, name=visible_line(each.name)) for each in built.kernels)
    return replace(built, kernels=kernels)
