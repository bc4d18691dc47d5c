"""``python -m pytest_fib doctor``: what this machine has, and what each missing piece costs."""

from __future__ import annotations

import platform
import shutil
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from textwrap import wrap
from typing import Any


@dataclass(frozen=True)
class _Piece:
    """Something that kernels need: ``find`` says which there is, or nothing.

    ``cost`` is what can't be done without it, ``remedy`` the command or step that adds it.
    """

    name: str
    find: Callable[[], str | None]
    cost: str
    remedy: str
    needed: bool = False


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "doctor", help="show what this machine has for kernels, and what is missing"
    )
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    """1 where something is missing without which nothing works."""
    width = min(shutil.get_terminal_size().columns, 100)
    lacking = [piece for piece in _PIECES if not _shown(piece, width)]
    if lacking:
        print(f"\nmissing: {', '.join(piece.name for piece in lacking)}")
    return 1 if any(piece.needed for piece in lacking) else 0


def _shown(piece: _Piece, width: int) -> bool:
    """Print what there is of a piece; whether there is any."""
    version = piece.find()
    if version:
        print(f"{piece.name:<14} {version}")
        return True
    print(f"{piece.name:<14} missing")
    for line in (f"without it: {piece.cost}", f"to add it: {piece.remedy}"):
        # Not at hyphens: what is to be installed is copied.
        for part in wrap(line, width - 15, subsequent_indent="  ", break_on_hyphens=False):
            print(f"{'':<15}{part}")
    return False


def _version(package: str) -> Callable[[], str | None]:
    def find() -> str | None:
        from pytest_fib.build import installed_version

        return installed_version(package)

    return find


def _python() -> str:
    return f"{platform.python_version()}  {sys.executable}"


def _gpu() -> str | None:
    import torch

    if not torch.cuda.is_available():
        return None
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return ", ".join(f"{each.name} (sm_{each.major}{each.minor})" for each in devices)


def _nvcc() -> str | None:
    from pytest_fib.build import nvcc

    return nvcc()


def _cpp() -> str | None:
    from pytest_fib.build import cpp_compiler

    return cpp_compiler()


def _walls() -> str | None:
    from pytest_fib.walls import wall_names

    names = wall_names()
    return ", ".join(names) if "landlock" in names else None


_PIECES = (
    _Piece("python", _python, "", "", needed=True),
    _Piece("torch", _version("torch"), "nothing runs", "pip install torch", needed=True),
    _Piece("triton", _version("triton"), "Triton kernels are skipped", "pip install triton"),
    _Piece(
        "GPU",
        _gpu,
        "kernels run on the CPU, those in Triton in its interpreter; CUDA kernels are compiled at "
        "most",
        "a machine with an NVIDIA GPU and its driver, and a torch that is built for CUDA",
    ),
    _Piece(
        "nvcc",
        _nvcc,
        "CUDA kernels are skipped",
        "https://developer.nvidia.com/cuda-downloads, or pip install nvidia-cuda-nvcc",
    ),
    _Piece("C++ compiler", _cpp, "C++ and CUDA kernels are skipped", "apt install g++"),
    _Piece(
        "tvm-ffi",
        _version("apache-tvm-ffi"),
        "C++ and CUDA kernels are skipped",
        "pip install apache-tvm-ffi",
    ),
    _Piece(
        "CUPTI",
        _version("cupti-python"),
        "kernels that can't be captured in a CUDA graph are timed by events, which are coarser",
        "pip install 'cupti-python>=13'",
    ),
    _Piece("TileLang", _version("tilelang"), "its kernels are skipped", "pip install tilelang"),
    _Piece(
        "CuTe DSL",
        _version("nvidia-cutlass-dsl"),
        "its kernels are skipped",
        "pip install nvidia-cutlass-dsl",
    ),
    _Piece(
        "walls",
        _walls,
        "kernels can read and write this user's files: the kernel has no Landlock",
        "Linux 5.13 or newer with Landlock, or --fib-isolation=container",
    ),
    _Piece(
        "bwrap",
        lambda: shutil.which("bwrap"),
        "--fib-isolation=container can't be had",
        "apt install bubblewrap",
    ),
)
