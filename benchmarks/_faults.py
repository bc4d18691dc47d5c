"""Implementations of which a random third crash, hang, exhaust memory, or exit.

They are files, so that a judge and a whole pytest run can be tried on the same ones.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: One that is right, and the ways to go wrong: the lines of ``run(x, factor)``.
RIGHT = "return x * factor"
FAULTS = {
    "crash": (
        "ctypes.string_at(0)",
        "os.abort()",
        "os.kill(os.getpid(), signal.SIGBUS)",
        "ctypes.memset(id(x), 0xFF, 4096); return x * factor",
    ),
    "hang": ("while True: pass", "time.sleep(10_000)"),
    "memory": (
        "bytearray(1 << 44)",
        "torch.empty(1 << 46)",
        # Not touched, so that no machine is brought to its knees.
        "hoard = []\n    while True: hoard.append(torch.empty(1 << 28))",
    ),
    "exit": ("os._exit(0)", "os._exit(7)", "sys.exit()", "raise KeyboardInterrupt"),
}
#: The same on CUDA, besides the others: an error that the whole context does not survive.
CUDA_FAULTS = {
    "context": (
        "_spoil[(1,)](x, 1 << 42); torch.cuda.synchronize()",
        "_spoil[(1,)](x, 1 << 42); return x * factor",
    ),
    "memory": ("torch.empty(1 << 46, device='cuda')",),
}
HEADING = """\
import ctypes, os, signal, sys, time

import torch

from pytest_fib import implements
"""
SPOIL = """\

import triton
import triton.language as tl

@triton.jit
def _spoil(x, far):
    tl.store(x + far, 1.0)
"""


@dataclass(frozen=True)
class Written:
    """An implementation that was written: its name and its kind of fault, "" where it is right."""

    name: str
    fault: str

    @property
    def status(self) -> str:
        """What its evaluation must end with."""
        if not self.fault:
            return "PASSED"
        return "TIMEOUT" if self.fault == "hang" else "RUNTIME_ERROR"


def write_implementations(
    folder: Path, count: int, seed: int, share: float = 1 / 3, device: str = "cpu"
) -> list[Written]:
    """Write ``count`` implementations of ``scale_float32`` into a folder, as files of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    return list(_written(folder, count, random.Random(seed), share, device))


def _written(
    folder: Path, count: int, draw: random.Random, share: float, device: str
) -> Iterator[Written]:
    faults = FAULTS if device == "cpu" else FAULTS | CUDA_FAULTS
    faulty = set(draw.sample(range(count), round(count * share)))
    heading = HEADING if device == "cpu" else HEADING + SPOIL
    for i in range(count):
        fault = draw.choice(list(faults)) if i in faulty else ""
        line = draw.choice(faults[fault]) if fault else RIGHT
        name = f"kernel_{i:03}"
        text = f'{heading}\n\n@implements("scale_float32")\ndef run(x, factor):\n    {line}\n'
        (folder / f"{name}.py").write_text(text, encoding="utf-8")
        yield Written(name, fault)
