"""C++ and CUDA: compiled to a shared library, through TVM FFI or as an extension of torch.

The commands are few and known, so there is no build system in between.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pytest_fib.build._artifact import Built, KernelResources
from pytest_fib.build._compiler_log import failure, kernel_resources
from pytest_fib.build._errors import BuildError
from pytest_fib.build._targets import nvcc_flags
from pytest_fib.build._toolchain import (
    needed_compiler,
    needed_version,
    nm,
    settings_of,
    version_of,
)

if TYPE_CHECKING:
    from pytest_fib.build._program import Compilation, Program

LIBRARY = "program.so"
#: The name of a torch extension's module, which is compiled into it.
_EXTENSION = "fib_extension"
#: What the library has of a function that TVM FFI exports, and of a torch extension.
_EXPORTED = re.compile(r"\b(?:__tvm_ffi_|PyInit_)(\w+)$", re.MULTILINE)
#: Where headers are that come with the system and its compilers.
_OF_THE_SYSTEM = (Path("/usr/include"), Path("/usr/lib"))
_CPP_SUFFIXES = frozenset({".cpp", ".cc", ".cxx", ".c"})
_COMMON = ["-O3", "-std=c++20"]


def versions(program: Program) -> dict[str, str]:
    """The compilers, what the environment sets of them, the binding's library, the machine."""
    compilation = _compilation_of(program)
    by_tool = {"machine": platform.machine(), "c++": version_of(needed_compiler("cpp"))}
    by_tool |= settings_of("c++")
    if program.language == "cuda":
        by_tool |= {"nvcc": version_of(needed_compiler("cuda")), **settings_of("nvcc")}
    if compilation.binding == "torch":
        return by_tool | {"torch": needed_version("torch"), "python": sys.implementation.cache_tag}
    return by_tool | {"apache-tvm-ffi": needed_version("apache-tvm-ffi")}


def build(program: Program, folder: Path, call: object = None) -> Built:
    """Compile every source file, all at once, and link them. Raises BuildError."""
    program.write_to(folder)
    files = [
        path for path, _ in program.sources if PurePosixPath(path).suffix in _suffixes(program)
    ]
    if not files:
        raise BuildError(f"no source file is one of {', '.join(sorted(_suffixes(program)))}")
    objects = [f"{i}.o" for i in range(len(files))]

    def compile_file(path: str, output: str) -> str:
        return _run(program, _compile_command(program, path, output), folder, path)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        logs = list(pool.map(compile_file, files, objects))
    logs.append(_run(program, _link_command(program, objects), folder))
    read = (*_headers(program, folder), *_static_libraries(program, objects, folder))
    kernels = _with_readable_names(kernel_resources("".join(logs)))
    return Built(LIBRARY, read, tuple(kernels), _exports(folder))


def load(program: Program, artifact: Path | None) -> Any:
    """The library's functions as attributes. Raises BuildError."""
    if artifact is None:
        raise BuildError(f"{program.name} was not built")
    try:
        if _compilation_of(program).binding == "torch":
            return _extension(artifact)
        return _module(program, artifact)
    except (ImportError, RuntimeError) as error:  # unresolved symbols, mostly
        text = str(error).replace(f"{artifact.parent}/", "")
        raise BuildError(f"what was built can't be loaded: {text.splitlines()[0]}", text) from error


def why_not_callable(program: Program, built: Built) -> str | None:
    """Why a library lacks the program's entry point, or None; it may have several."""
    exports = built.exports
    if exports is None or program.entry_symbol in exports:
        return None
    if _compilation_of(program).binding == "torch":
        if _EXTENSION in exports:  # what functions it has is known once it is loaded
            return None
        return "the extension has another name: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
    lacks = f"{program.entry_file} exports no function {program.entry_symbol!r}"
    if exports:
        from pytest_fib.data import shortened

        named = shortened([*map(repr, exports)])
        return f"{lacks}, but {named}: one of them may be the entry"
    export = f"TVM_FFI_DLL_EXPORT_TYPED_FUNC({program.entry_symbol}, <a function>);"
    return f"{lacks}: end it with {export}"


class _Functions:
    """Keeps the library loaded for as long as its functions."""

    def __init__(self, module: Any, name: str) -> None:
        self._module = module
        setattr(self, name, getattr(module, name, None))


def _module(program: Program, artifact: Path) -> Any:
    import tvm_ffi

    _crash_at_once()
    return _Functions(tvm_ffi.load_module(str(artifact)), program.entry_symbol)


def _crash_at_once() -> None:
    """Undo the handler that TVM FFI installs when it is imported.

    It resolves all symbols before a process dies of SIGSEGV, which was seen to take 20 seconds.
    """
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)
    if faulthandler.is_enabled():
        faulthandler.enable()


def _extension(artifact: Path) -> Any:
    import torch  # noqa: F401  # its libraries are those that the extension needs

    loader = ExtensionFileLoader(_EXTENSION, str(artifact))
    spec = spec_from_file_location(_EXTENSION, artifact, loader=loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def _compile_command(program: Program, path: str, output: str) -> list[str]:
    compilation = _compilation_of(program)
    host = ["-fPIC", *_definitions(compilation)]
    include = [f"-I{place}" for place in (".", *compilation.include_paths)]
    system = [part for place in _system_headers(program) for part in ("-isystem", place)]
    where = ["-MD", "-MF", f"{output}.d", "-c", path, "-o", output]
    if PurePosixPath(path).suffix == ".cu":
        through = [part for flag in host for part in ("-Xcompiler", flag)]
        target = nvcc_flags(compilation.target)
        own = ["-Xptxas", "-v", "--expt-relaxed-constexpr", *compilation.cuda_cflags]
        compiler = [needed_compiler("cuda"), "-ccbin", needed_compiler("cpp")]
        return [*compiler, *_COMMON, *target, *through, *own, *include, *system, *where]
    return [needed_compiler("cpp"), *_COMMON, *host, *compilation.cflags, *include, *system, *where]


def _link_command(program: Program, objects: Iterable[str]) -> list[str]:
    compilation = _compilation_of(program)
    # nvcc links its runtime statically: whoever loads the library needs the driver alone.
    compiler = needed_compiler(program.language)
    # Device code that several files share (-rdc=true) is linked for a target, else for nvcc's own.
    target = nvcc_flags(compilation.target) if program.language == "cuda" else []
    libraries = [f"-L{_library_folder(compilation)}", *_libraries(program)]
    command = [compiler, *target, "-shared", "-o", LIBRARY, *objects]
    # What is missing fails now, not at the first call; Python's own symbols come when it is loaded.
    missing = "now" if compilation.binding == "torch" else "defs"
    strict = ["-Xlinker", "-z", "-Xlinker", missing]
    return [*command, *libraries, *strict, *compilation.ld_flags]


def _definitions(compilation: Compilation) -> list[str]:
    if compilation.binding != "torch":
        return []
    # Hidden, as pybind11 wants its types to be.
    names = [f"-DTORCH_EXTENSION_NAME={_EXTENSION}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    return ["-fvisibility=hidden", *names]


def _libraries(program: Program) -> list[str]:
    if _compilation_of(program).binding != "torch":
        return ["-ltvm_ffi"]
    cuda = ["-lc10_cuda", "-ltorch_cuda"] if program.language == "cuda" else []
    return ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", *cuda]


def _library_folder(compilation: Compilation) -> Path:
    return _package(compilation) / "lib"


def _system_headers(program: Program) -> list[str]:
    compilation = _compilation_of(program)
    include = _package(compilation) / "include"
    if compilation.binding != "torch":
        return [str(include)]
    return [str(include), str(include / "torch/csrc/api/include"), sysconfig.get_path("include")]


def _package(compilation: Compilation) -> Path:
    """Where the binding's library is installed, found without importing it."""
    name = "torch" if compilation.binding == "torch" else "tvm_ffi"
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise BuildError(f"needs {name}, which is not installed")
    return Path(spec.origin).parent


def _run(program: Program, command: list[str], folder: Path, compiled: str = "") -> str:
    """The command's output; ``compiled`` is its only source. Raises BuildError if it fails."""
    environment = {**os.environ, "LC_ALL": "C"}  # messages in English, quotes in ASCII
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    log = done.stdout.decode(errors="replace").replace(f"{folder}/", "")
    if done.returncode != 0:
        log = log or f"{command[0]} ended with code {done.returncode}"
        error = failure(program, log, compiled)
        raise BuildError(_readable(str(error)), error.log)
    return log


def _readable(text: str) -> str:
    """With names as C++ has them in place of a linker's: ``twice<float>``."""
    tool = shutil.which("c++filt")  # comes with linkers
    if tool is None:
        return text
    command = [tool, "--no-params"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else text


def _with_readable_names(kernels: Iterable[KernelResources]) -> Iterable[KernelResources]:
    return (replace(kernel, name=_readable(kernel.name)) for kernel in kernels)


def _exports(folder: Path) -> tuple[str, ...] | None:
    """The functions, or a torch extension, that the library has by name; None without binutils."""
    tool = nm()
    if tool is None:
        return None
    command = [tool, "-D", "--defined-only", LIBRARY]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return tuple(_EXPORTED.findall(done.stdout)) if done.returncode == 0 else None


def _headers(program: Program, folder: Path) -> Iterable[tuple[str, str]]:
    """The headers outside the sources that were read, and their digests.

    Not those of the system, of nvcc's toolkit and of the binding: versions that are known decide
    those. Others that flags call headers of the system are listed.
    """
    listed: set[str] = set()
    for listing in folder.glob("*.d"):
        _, _, names = listing.read_text(encoding="utf-8").replace("\\\n", " ").partition(":")
        listed.update(re.split(r"(?<!\\)\s+", names.strip()))
    paths = {folder / name.replace("\\ ", " ") for name in listed}
    toolkits = [path.parent for path in paths if path.name == "cuda_runtime.h"]
    known = [folder, *toolkits, *map(Path, _system_headers(program)), *_OF_THE_SYSTEM]
    known = [place.resolve() for place in known]
    for path in sorted(paths):
        if not any(path.resolve().is_relative_to(place) for place in known):
            yield str(path), _digest(path)


def _static_libraries(
    program: Program, objects: Iterable[str], folder: Path
) -> Iterable[tuple[str, str]]:
    """The archives and objects that flags had linked, as they are a part of the library now."""
    if not _compilation_of(program).ld_flags:
        return
    trace = [*_link_command(program, objects), "-Xlinker", "--trace"]
    for path in sorted({Path(line) for line in _run(program, trace, folder).splitlines()}):
        if path.is_absolute() and path.suffix in (".a", ".o") and path.is_file():
            yield str(path), _digest(path)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _compilation_of(program: Program) -> Compilation:
    assert program.compilation is not None, "programs of compiled languages say how"
    return program.compilation


def _suffixes(program: Program) -> frozenset[str]:
    return _CPP_SUFFIXES | {".cu"} if program.language == "cuda" else _CPP_SUFFIXES
