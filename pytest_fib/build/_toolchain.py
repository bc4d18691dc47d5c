"""The compilers of this machine: where they are, and which."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from pytest_fib.build._errors import BuildError

_CPP_COMPILERS = ("g++", "c++", "clang++")
#: Where wheels put nvcc, in the package ``nvidia``.
_NVCC_IN_WHEELS = ("cu13/bin/nvcc", "cuda_nvcc/bin/nvcc")

#: Variables of the environment that change what compilers make.
_SETTINGS = {
    "c++": ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH"),
    "nvcc": ("NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"),
    "cutedsl": (
        "CUTE_DSL_COMPILER_BACKEND",
        "CUTE_DSL_COMPILER_OPT",
        "CUTE_DSL_DEBUG",
        "CUTE_DSL_ENABLE_ASSERTIONS",
        "CUTE_DSL_ENABLE_PYIR",
        "CUTE_DSL_LINEINFO",
        "CUTE_DSL_WARNINGS_AS_ERRORS",
    ),
    "triton": (
        "DISABLE_PTXAS_OPT",
        "PTXAS_OPTIONS",
        "TRITON_DEBUG",
        "TRITON_DEFAULT_FP_FUSION",
        "TRITON_DISABLE_LINE_INFO",
        "TRITON_F32_DEFAULT",
        "TRITON_FORCE_DISABLE_FP_FUSION",
        "TRITON_INSTRUMENTATION_MODE",
        "TRITON_PTXAS_PATH",
    ),
}


def cpp_compiler() -> str | None:
    """The path of ``$CXX`` or another C++ compiler, if there is one."""
    given = os.environ.get("CXX")
    names = (given,) if given else _CPP_COMPILERS
    return next(filter(None, map(shutil.which, names)), None)


def nvcc() -> str | None:
    """The path of nvcc, if there is one: in ``$CUDA_HOME``, on PATH, or of a wheel."""
    return next((str(path) for path in _nvcc_places() if os.access(path, os.X_OK)), None)


def _nvcc_places() -> Iterator[Path]:
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            yield Path(home, "bin", "nvcc")
    if on_path := shutil.which("nvcc"):
        yield Path(on_path)
    yield Path("/usr/local/cuda/bin/nvcc")
    package = find_spec("nvidia")
    for folder in package.submodule_search_locations or () if package else ():
        yield from (Path(folder, place) for place in _NVCC_IN_WHEELS)


def cuobjdump() -> str | None:
    """The path of cuobjdump, if there is one: on PATH, or of Triton's wheel."""
    triton = find_spec("triton")
    folders = triton.submodule_search_locations or () if triton else ()
    wheels = (Path(folder, "backends/nvidia/bin/cuobjdump") for folder in folders)
    return shutil.which("cuobjdump") or next(
        (str(p) for p in wheels if os.access(p, os.X_OK)), None
    )


def nm() -> str | None:
    """The path of what lists a library's symbols: it comes with linkers."""
    return shutil.which("nm")


def why_no_toolchain(language: str) -> str | None:
    """Which compiler a language lacks here and how to get it, or None."""
    from pytest_fib.data import SupportedLanguages

    compilers = SupportedLanguages(language).facts.compilers
    if "nvcc" in compilers and nvcc() is None:
        return (
            "needs nvcc, which is neither in CUDA_HOME nor on PATH: install the CUDA toolkit, "
            "https://developer.nvidia.com/cuda-downloads"
        )
    if "c++" in compilers and cpp_compiler() is None:
        if given := os.environ.get("CXX"):
            return f"needs a C++ compiler; there is no {given} on PATH, which CXX names"
        return f"needs a C++ compiler: install g++; none of {', '.join(_CPP_COMPILERS)} is on PATH"
    return None


def needed_compiler(language: str) -> str:
    """The path of nvcc for ``cuda``, else of a C++ compiler. Raises BuildError without one."""
    compiler = nvcc() if language == "cuda" else cpp_compiler()
    if compiler is None:
        raise BuildError(why_no_toolchain(language) or f"there is no compiler of {language}")
    return compiler


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, if it is installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def needed_version(distribution: str) -> str:
    """The same. Raises BuildError where it is not installed."""
    if (version := installed_version(distribution)) is None:
        raise BuildError(f"needs {distribution}, which is not installed")
    return version


def settings_of(compiler: str) -> dict[str, str]:
    """The environment's settings for one of these compilers, besides its flags."""
    return {name: os.environ[name] for name in _SETTINGS[compiler] if name in os.environ}


@cache
def version_of(compiler: str) -> str:
    command = [compiler, "--version"]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False
    ).stdout.strip()
