"""Triton: Python modules, on the CPU run by Triton's interpreter; compiled without a device."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from pytest_fib.build._artifact import Built, KernelResources
from pytest_fib.build._compiler_log import kernel_resources
from pytest_fib.build._errors import BuildError, source_line
from pytest_fib.build._python import load
from pytest_fib.build._targets import capability_of
from pytest_fib.build._toolchain import settings_of

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

#: The file of all cubins, one behind the other.
CUBINS = "kernels.cubin"
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE)


def versions(program: Program) -> dict[str, str]:
    """The version of Triton, which brings its own assembler, and what the environment sets."""
    return {"triton": importlib.metadata.version("triton"), **settings_of("triton")}


def build(
    program: Program, folder: Path, call: Callable[[Callable[..., Any]], object] | None
) -> Built:
    """Compile what ``call`` launches. Raises BuildError, or what the program's host code raises."""
    assert program.compilation is not None, "a program that is built says for what"
    assert call is not None, "kernels are compiled when they are launched"
    capability = capability_of(program.compilation.target)
    if capability is None:
        raise BuildError(f"Triton does not know the target {program.compilation.target}")
    function = getattr(load(program), program.entry_symbol)
    launches = _Launches(program, 10 * capability[0] + capability[1])
    with launches.compiling():
        call(function)
    if not launches.compiled:
        raise LookupError("it launches no kernel")
    kernels = {kernel.hash: kernel for kernel in launches.compiled}.values()
    (folder / CUBINS).write_bytes(b"".join(kernel.asm["cubin"] for kernel in kernels))
    taken = (_resources(kernel, launches.architecture, folder) for kernel in kernels)
    return Built(CUBINS, kernels=tuple(chain.from_iterable(taken)))


class _Launches:
    """Compiles kernels that are launched for an architecture (90) instead of running them."""

    def __init__(self, program: Program, architecture: int) -> None:
        self._program = program
        self.architecture = architecture
        #: What Triton compiled, in the order of launches.
        self.compiled: list[Any] = []

    def compiling(self) -> ExitStack:
        """While this is entered, launches compile, and nothing is tuned."""
        from triton.runtime import Autotuner, JITFunction, driver

        run = JITFunction.run
        launches = self

        def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
            return launches.compile(
                lambda: run(self, *args, grid=grid, warmup=True, **kwargs), self
            )

        stack = ExitStack()
        stack.enter_context(mock.patch.object(JITFunction, "run", compile_only))
        stack.enter_context(mock.patch.object(Autotuner, "do_bench", staticmethod(_untimed)))
        driver.set_active(_target_driver(self.architecture))  # for good: the process ends soon
        return stack

    def compile(self, run: Callable[[], Any], function: Any) -> Any:
        """Compile one launch. Raises BuildError."""
        try:
            kernel = run()
        except Exception as error:
            raise self._failure(error, function) from error
        self.compiled.append(kernel)
        return kernel

    def _failure(self, error: Any, function: Any) -> BuildError:
        """The innermost error, at the user's line if Triton names it."""
        while isinstance(error.__cause__, type(error)):
            error = error.__cause__
        text = str(getattr(error, "error_message", None) or error or type(error).__name__)
        first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
        node = getattr(error, "node", None)
        lines = (getattr(error, "src", None) or "").splitlines()
        if node is None or not 0 < node.lineno <= len(lines):
            return BuildError(first, str(error))
        shown = lines[node.lineno - 1]
        place = self._place(shown, function)
        if place is None:
            return BuildError(first, f"{shown.strip()}\n\n{error}")
        path, line = place
        return BuildError(f"{path}:{line}: {first}", f"{source_line(line, shown)}\n\n{error}")

    def _place(self, shown: str, function: Any) -> tuple[str, int] | None:
        """File and line of a line of a kernel: Triton counts lines from the kernel's own."""
        start = int(getattr(function, "starting_line_number", 1))
        texts = ((path, text.splitlines()) for path, text in self._program.sources)
        places = [
            (abs(number - start), path, number)
            for path, lines in texts
            for number, line in enumerate(lines, 1)
            if line.strip() == shown.strip()
        ]
        return min(places)[1:] if places else None


def _untimed(call: Callable[[], object], quantiles: tuple[float, ...] = ()) -> list[float]:
    """In place of a benchmark: every configuration is compiled, none is better."""
    call()
    return [0.0] * len(quantiles)


def _target_driver(architecture: int) -> Any:
    """What Triton asks of a driver, for a device that is not there."""
    import torch
    from triton.backends.compiler import GPUTarget

    return SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", architecture, 32),
        get_active_torch_device=lambda: torch.device("cpu"),
        get_benchmarker=lambda: _untimed,
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
    )


def _resources(kernel: Any, architecture: int, folder: Path) -> list[KernelResources]:
    """What Triton's ptxas says of a kernel; it allocates shared memory when it launches."""
    kernels = kernel_resources(_assembler_log(kernel.asm["ptx"], architecture, folder))
    return [replace(each, shared_bytes=kernel.metadata.shared) for each in kernels]


def _assembler_log(ptx: str, architecture: int, folder: Path) -> str:
    from triton.backends.nvidia.compiler import get_ptxas

    source = folder / "kernel.ptx"
    source.write_text(ptx, encoding="utf-8")
    target = _TARGET.search(ptx)
    name = target[1] if target else f"sm_{architecture}"
    command = [get_ptxas(architecture).path, "-v", f"--gpu-name={name}", "-o", os.devnull, source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr
