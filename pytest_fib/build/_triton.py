"""Triton: Python modules, on the CPU run by Triton's interpreter."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_fib.build import _python
from pytest_fib.build._interpreter import repair

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from pytest_fib.build._program import Program


def load(program: Program, artifact: Path | None = None) -> ModuleType:
    """As ``_python.load``."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        repair()
    return _python.load(program)
