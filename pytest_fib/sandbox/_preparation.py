"""What each sandbox would do first, done once in the process that they are forked from."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from importlib import import_module

from pytest_fib.sandbox._messages import prepare_messages

#: What loading a program imports, and what Triton does to recognise its own tensor descriptors.
_LOADERS = ("pytest_fib.build._python", "pytest_fib.discovery._catalogue")
_DESCRIPTORS = "triton.experimental.gluon.nvidia.hopper"


def prepare(device: str) -> None:
    """Import and compute what all sandboxes need. None of it makes a CUDA context."""
    prepare_messages()
    for name in _LOADERS:
        import_module(name)
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        _prepare_compiler()
    if device != "cpu":
        with suppress(ImportError, RuntimeError):  # not installed, or without its library
            import_module("cupti.cupti")


def _prepare_compiler() -> None:
    """Triton's, whose fingerprint is that of files of 500 MB, which each process reads."""
    with suppress(ImportError):  # of versions that have none
        import_module(_DESCRIPTORS)
    with suppress(ImportError):
        fingerprint = getattr(import_module("triton.runtime.cache"), "triton_key", None)
        if fingerprint is not None:
            fingerprint()
