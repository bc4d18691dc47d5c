"""Python: the entry file and the modules beside it, compiled from the text that was collected."""

from __future__ import annotations

import atexit
import importlib.util
import linecache
import stat
import sys
import tempfile
from functools import cache, partial
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
)
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_fib.build._interpreter import repair_if_used
from pytest_fib.temporary import TemporaryFolder

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

#: The collected sources of each loaded program, by folder and by path.
_sources: dict[str, dict[str, str]] = {}


def load(program: Program, artifact: Path | None = None) -> ModuleType:
    """Import the program's entry file afresh; its folder is importable while it loads.

    Raises whatever the module's top level raises.
    """
    root = _folder(program)
    texts = {str(root / path): content for path, content in program.sources}
    _sources[str(root)] = texts
    for path, text in texts.items():
        # Tracebacks and Triton look sources up; without a time, entries aren't checked on disk.
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
    entry = root / program.entry_file
    name = f"fib_{program.key}_{entry.stem}"
    loader = _CollectedLoader(texts, name, str(entry))
    spec = importlib.util.spec_from_file_location(name, entry, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Registered because dataclasses and Triton's source lookup find a module by its name.
    sys.modules[name] = module
    _make_importable(str(entry.parent))
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.pop(0)
    repair_if_used()  # whatever language a module says it is written in, it may use Triton
    return module


class _CollectedLoader(SourceFileLoader):
    """Compiles what was collected; other files of the folder from the disk, never from byte code.

    Whoever may write to the folder may plant byte code there, with the time and size of a source.
    """

    def __init__(self, texts: dict[str, str], name: str, path: str) -> None:
        super().__init__(name, path)
        self._texts = texts

    def path_stats(self, path: str) -> NoReturn:
        """Without the time of a source, importlib neither reads nor writes byte code."""
        raise OSError(f"byte code of {path} isn't used")

    def get_data(self, path: str) -> bytes:
        text = self._texts.get(path)
        return super().get_data(path) if text is None else text.encode()


def _finder(folder: str) -> FileFinder:
    """A path hook: the finder of a program's folder and of those in it."""
    for root, texts in _sources.items():
        if Path(folder).is_relative_to(root):
            loader: Any = partial(_CollectedLoader, texts)
            extensions = ExtensionFileLoader, EXTENSION_SUFFIXES
            return FileFinder(folder, extensions, (loader, SOURCE_SUFFIXES))
    raise ImportError(f"{folder} is no program's")


def _make_importable(folder: str) -> None:
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    for path in [path for path in sys.path_importer_cache if Path(path).is_relative_to(folder)]:
        del sys.path_importer_cache[path]
    sys.path.insert(0, folder)


def _folder(program: Program) -> Path:
    """Where the sources lie: in the program's own folder, unless a file there has changed since."""
    if program.directory is not None:
        folder = Path(program.directory)
        if all(_holds(folder / path, content) for path, content in program.sources):
            return folder
    return _written_out(program)


def _holds(path: Path, content: str) -> bool:
    try:
        return path.read_text(encoding="utf-8-sig") == content
    except (OSError, UnicodeDecodeError):
        return False


@cache
def _private_folder(parent: Path) -> Path:
    """A folder that is removed when this process ends."""
    folder = TemporaryFolder.make(parent)
    atexit.register(folder.remove)
    return folder.path


def _written_out(program: Program) -> Path:
    """Write the sources to a folder that nobody else may write to."""
    root = Path(tempfile.gettempdir())
    if root.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        root = _private_folder(root)
    root /= program.key
    program.write_to(root)
    return root
