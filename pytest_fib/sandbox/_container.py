"""The command that has a process see a file system, processes and a network of its own: bwrap's."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pytest_fib.walls import container_options

#: Devices of GPUs, as far as there are any.
_GPU_DEVICES = ("nvidia*", "dri", "kfd", "infiniband")


def container_command(device: str, folder: Path) -> list[str]:
    """What to put before a command: it can write nothing but ``folder`` and a /tmp of its own."""
    command = ["bwrap", *container_options(device)]
    for path in (path for pattern in _GPU_DEVICES for path in sorted(Path("/dev").glob(pattern))):
        command += ["--dev-bind", str(path), str(path)]
    for path in _needed_beneath_tmp():
        command += ["--ro-bind", str(path), str(path)]
    return [*command, "--bind", str(folder), str(folder), "--"]


def _needed_beneath_tmp() -> Iterator[Path]:
    """Folders of Python and of the project that the new /tmp would hide."""
    hidden = {Path("/tmp"), Path(tempfile.gettempdir())}
    paths = {Path(text).absolute() for text in (*sys.path, sys.prefix, sys.base_prefix, ".")}
    for path in sorted(paths):
        if path.exists() and Path("/tmp") in path.parents and path not in hidden:
            yield path
