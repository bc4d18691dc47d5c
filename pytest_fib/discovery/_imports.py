"""Which files of its own folder a source file imports or includes, found by reading them."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

#: UTF-8, with or without the mark that some editors begin a file with, and Python reads over.
_ENCODING = "utf-8-sig"
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


def local_files(entry: Path) -> dict[Path, str]:
    """``entry`` and the files under its folder that it needs, directly or not, with their texts.

    C++ and CUDA need what they include in quotes, relative to the including file or to the folder
    of ``entry``. A Python module named ``a.b`` is ``a/b.py`` or ``a/b/__init__.py``, and needs
    ``a/__init__.py`` where there is one.

    Raises OSError and UnicodeDecodeError for ``entry`` itself only.
    """
    needed = _imported_files if entry.suffix == ".py" else _included_files
    texts = {entry: entry.read_text(encoding=_ENCODING)}
    unread = [entry]
    while unread:
        for path in needed(unread.pop(), texts, entry.parent):
            if path not in texts and (text := _text(path)) is not None:
                texts[path] = text
                unread.append(path)
    return texts


def _included_files(path: Path, texts: dict[Path, str], root: Path) -> Iterator[Path]:
    for name in _INCLUDE.findall(texts[path]):
        for folder in (path.parent, root):
            file = Path(os.path.normpath(folder / name))
            if file.is_relative_to(root):
                yield file


def _imported_files(path: Path, texts: dict[Path, str], root: Path) -> Iterator[Path]:
    package = path.relative_to(root).parts[:-1]
    for name in _imported_names(texts[path], package):
        for length in range(1, len(name) + 1):
            module = root.joinpath(*name[:length])
            yield from (module.with_name(f"{module.name}.py"), module / "__init__.py")


def _imported_names(text: str, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The dotted names that a module imports; of ``from a import b``, which may be a module, both.

    ``package`` is the module's own, which relative imports start from.
    """
    try:
        tree = ast.parse(text)
    # Seen to fail when it is imported.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package) + 1:
            start = package[: len(package) + 1 - node.level] if node.level else ()
            module = (*start, *node.module.split(".")) if node.module else start
            yield from ((*module, alias.name) for alias in node.names)


def _text(path: Path) -> str | None:
    """None for what is no file to import: a pipe, say, which nobody may ever write to."""
    from pytest_fib.data import LARGEST_SOURCE

    try:
        if not path.is_file() or path.stat().st_size > LARGEST_SOURCE:
            return None
        return path.read_text(encoding=_ENCODING)
    except (OSError, UnicodeDecodeError):
        return None
