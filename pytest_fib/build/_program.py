"""A program: what a sandbox needs to run a reference or an implementation, as plain data."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.build._targets import CPU, Hardware, build_target

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Solution, TensorSpec

#: ``torch.cuda.Stream``, ``cudaStreamCreateWithFlags``, ``cuStreamCreate``, ``getStreamFromPool``.
_MAKES_STREAMS = re.compile(r"\bStream\b|StreamCreate|StreamFromPool")


@dataclass(frozen=True)
class Parameter:
    """An input or output as a definition declares it. ``shape`` is None of a number.

    A dimension is a size, or the name of an axis that is known only when it is called; "k / 2" is
    of an axis along which two numbers share a byte. ``order`` has the dimensions from the slowest
    to the fastest; ``compact`` says that there are no gaps.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    order: tuple[int, ...] = ()
    compact: bool = True


@dataclass(frozen=True)
class Compilation:
    """How a program is compiled: for ``target`` (``cpu`` or ``sm_90a``), with which flags.

    ``include_paths`` are absolute, or relative to the sources. ``parameters`` are what it is called
    with, of languages in which that decides.
    """

    target: str
    binding: str = "tvm-ffi"
    cflags: tuple[str, ...] = ()
    cuda_cflags: tuple[str, ...] = ()
    ld_flags: tuple[str, ...] = ()
    include_paths: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()


@dataclass(frozen=True)
class Program:
    """Source code, its entry point and how it is called.

    ``directory`` is where ``sources`` already lie on disk; without one, or where a file there has
    another text by now, they are written out before they are loaded. ``calling`` is ``value``,
    ``destination`` or ``tuple``. One with a ``compilation`` is built before it is loaded.
    """

    name: str
    language: str
    entry_file: str
    entry_symbol: str
    calling: str
    outputs: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    directory: str | None = None
    compilation: Compilation | None = None

    @property
    def key(self) -> str:
        """A digest of all fields."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    @property
    def makes_streams(self) -> bool:
        """Whether its sources name what makes CUDA streams beside the current one."""
        return any(_MAKES_STREAMS.search(content) for _, content in self.sources)

    def write_to(self, folder: Path) -> None:
        """Write the sources beneath a folder. Raises OSError."""
        for path, content in self.sources:
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(content, encoding="utf-8")


def compiler_cache_of(program: Program, root: str) -> str:
    """The folder beneath ``root`` for what a compiler makes of a program: by its sources alone."""
    digest = hashlib.sha256(json.dumps(sorted(program.sources)).encode()).hexdigest()
    return f"{root}/{digest[:32]}"


def program_of(
    solution: Solution, definition: Definition, directory: Path | None, hardware: Hardware = CPU
) -> Program:
    """The program of a Solution on this hardware; ``directory`` holds its sources, if any does.

    Raises BuildError where it is for other hardware, and has to be compiled.
    """
    spec = solution.spec
    assert spec.calling is not None  # resolved when a BuildSpec is validated
    return Program(
        name=solution.name,
        language=spec.language.value,
        entry_file=solution.entry_file,
        entry_symbol=solution.entry_symbol,
        calling=spec.calling,
        outputs=tuple(definition.outputs),
        sources=tuple((source.path, source.content) for source in solution.sources),
        directory=None if directory is None else str(directory),
        compilation=_compilation(solution, definition, hardware),
    )


def _compilation(
    solution: Solution, definition: Definition, hardware: Hardware
) -> Compilation | None:
    from pytest_fib.data import CompileOptions

    spec = solution.spec
    compiled = spec.language.facts.compiled
    if not compiled:
        return None
    options = spec.compile_options or CompileOptions()
    return Compilation(
        target=build_target(spec, hardware),
        binding=spec.binding or "tvm-ffi",
        cflags=tuple(options.cflags),
        cuda_cflags=tuple(options.cuda_cflags),
        ld_flags=tuple(options.ld_flags),
        include_paths=tuple(spec.include_paths),
        parameters=_parameters(definition) if compiled == "function for arguments" else (),
    )


def _parameters(definition: Definition) -> tuple[Parameter, ...]:
    tensors = {**definition.inputs, **definition.outputs}
    return tuple(_parameter(definition, name, tensor) for name, tensor in tensors.items())


def _parameter(definition: Definition, name: str, tensor: TensorSpec) -> Parameter:
    if tensor.shape is None:
        return Parameter(name, tensor.dtype.value, None)
    section = definition.workloads
    rule = section.inputs.get(name) if section else None
    order = getattr(rule, "memory_order", None) or tensor.shape
    is_compact = getattr(rule, "broadcast", None) is None and not (section and section.layouts)
    packed = getattr(rule, "packed", None)
    sizes: dict[str, int | str] = {**definition.const_axes}
    if packed:
        sizes[packed] = f"{packed} / 2"
    return Parameter(
        name,
        tensor.dtype.value,
        tuple(sizes.get(axis, axis) for axis in tensor.shape),
        tuple(tensor.shape.index(axis) for axis in order),
        compact=is_compact or name in definition.outputs,
    )


def reference_program(definition: Definition) -> Program:
    """The definition's own ``run``, which returns its outputs."""
    return Program(
        name=f"{definition.name} reference",
        language="python",
        entry_file="reference.py",
        entry_symbol="run",
        calling="value",
        outputs=tuple(definition.outputs),
        sources=(("reference.py", definition.reference),),
    )
