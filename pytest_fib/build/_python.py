"""Python: import the entry file under a name of its own."""

from __future__ import annotations

import getpass
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_fib.build._program import Program


def load(program: Program) -> ModuleType:
    """Import the program's entry file afresh; its folder is importable while it loads.

    Raises whatever the module's top level raises.
    """
    root = _folder(program)
    name = f"fib_{program.key}_{Path(program.entry_file).stem}"
    spec = importlib.util.spec_from_file_location(name, root / program.entry_file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Registered because dataclasses and Triton's source lookup find a module by its name.
    sys.modules[name] = module
    sys.path.insert(0, str((root / program.entry_file).parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.pop(0)
    return module


def _folder(program: Program) -> Path:
    """Where the sources lie: in the program's own folder, unless a file there has changed since."""
    if program.directory is not None:
        folder = Path(program.directory)
        if all(_holds(folder / path, content) for path, content in program.sources):
            return folder
    return _written_out(program)


def _holds(path: Path, content: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == content
    except (OSError, UnicodeDecodeError):
        return False


def _written_out(program: Program) -> Path:
    """Write the sources to a folder named by their content: tracebacks and Triton read files."""
    root = Path(tempfile.gettempdir()) / f"pytest-fib-{getpass.getuser()}" / program.key
    for path, content in program.sources:
        target = root / path
        if _holds(target, content):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_name(f"{target.name}.{os.getpid()}")
        partial.write_text(content, encoding="utf-8")
        partial.replace(target)  # atomic: another worker may be writing the same file
    return root
