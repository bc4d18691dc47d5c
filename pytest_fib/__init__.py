"""pytest-fib: kernel definitions become correctness and perf tests for every implementation."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib._warnings import FibWarning
    from pytest_fib.implementations.marker import implements

__version__ = "0.1.0"

# Resolved on first use: importing the package must not import torch, pydantic or yaml.
_HOMES = {
    "FibWarning": "pytest_fib._warnings",
    "implements": "pytest_fib.implementations.marker",
}

__all__ = ["FibWarning", "__version__", "implements"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'pytest_fib' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
