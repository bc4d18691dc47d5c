"""Which files of its own folder a Python module imports, found by reading them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def local_modules(entry: Path) -> dict[Path, str]:
    """``entry`` and the files under its folder that it imports, directly or not, with their texts.

    A module named ``a.b`` is ``a/b.py`` or ``a/b/__init__.py``, and needs ``a/__init__.py`` where
    there is one. Raises OSError and UnicodeDecodeError for ``entry`` itself only.
    """
    texts = {entry: entry.read_text(encoding="utf-8")}
    unread = [entry]
    while unread:
        for path in _imported_files(unread.pop(), texts, entry.parent):
            if path not in texts and (text := _text(path)) is not None:
                texts[path] = text
                unread.append(path)
    return texts


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
    except (SyntaxError, ValueError):  # seen to fail when it is imported
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package) + 1:
            start = package[: len(package) + 1 - node.level] if node.level else ()
            module = (*start, *node.module.split(".")) if node.module else start
            yield from ((*module, alias.name) for alias in node.names)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
