"""Sources among implementations that look like one, but say nowhere what they implement."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.discovery._folders import files_below
from pytest_fib.discovery._header import LANGUAGES

if TYPE_CHECKING:
    from pytest_fib.discovery._implementation import Implementation

#: What may include, list, import or build a source.
_USERS = (".py", *LANGUAGES, ".cuh", ".c", ".h", ".hh", ".hpp", ".inl", ".inc", ".cmake", ".sh")
_USERS_BY_NAME = ("solution.yaml", "solution.yml", "CMakeLists.txt", "Makefile", "meson.build")
_RUN = re.compile(r"^def run\(", re.MULTILINE)
#: How many are named one by one.
_SHOWN = 5
#: What has more is no kernel that somebody wrote, in bytes.
_LARGEST = 1 << 20


def unused_sources(
    directories: Iterable[Path], known: Iterable[Implementation], definitions: Collection[str]
) -> list[str]:
    """A sentence for each source that isn't tested because it names no definition.

    That is a C++ or CUDA file without a header, or a Python file with an unmarked ``run``. Not one
    that another file uses by its name; whether a comment means it isn't asked.
    """
    implementing = {each.path for each in known}
    files = [path for folder in directories for path in files_below(folder) if path.is_file()]
    likely = {
        path: line
        for path in files
        if path not in implementing and (line := _line_of_kernel(path)) is not None
    }
    if not likely:
        return []
    texts = {path: _text(path) for path in files if _may_use(path)}
    unused = [path for path in likely if not any(_uses(*user, path) for user in texts.items())]
    sentences = [_sentence(path, likely[path], definitions) for path in unused[:_SHOWN]]
    if left := unused[_SHOWN:]:
        place, more = f"{left[0]}:{likely[left[0]]}", len(left) - 1
        whole = f"nor are {more} more: they name" if more else "as it names"
        sentences.append(f"{place}: is not tested either, {whole} no definition")
    return sentences


def _line_of_kernel(path: Path) -> int | None:
    """The line where a file needs to be marked, if it looks like an implementation."""
    if path.suffix in LANGUAGES:
        return 1
    if path.suffix != ".py" or (match := _RUN.search(text := _text(path))) is None:
        return None
    return text.count("\n", 0, match.start()) + 1


def _may_use(path: Path) -> bool:
    return path.suffix in _USERS or path.name in _USERS_BY_NAME


def _uses(user: Path, text: str, source: Path) -> bool:
    """Whether a text names a source of its own folder or below, or elsewhere by its path."""
    if user == source:
        return False
    if source.suffix == ".py":
        return re.search(_import_of(re.escape(source.stem)), text) is not None
    return any(
        source.is_relative_to(user.parent) or os.path.normpath(user.parent / name) == str(source)
        for name in _paths_ending_in(source.name, text)
    )


def _import_of(module: str) -> str:
    """A pattern of statements, perhaps in brackets, and of names given to importlib."""
    return rf"""\b(?:import|from)\b[^\n(]*(?:\([^)]*)?\b{module}\b|["'][\w.]*\b{module}["']"""


def _paths_ending_in(name: str, text: str) -> Iterator[str]:
    yield from re.findall(rf"(?<![\w.-])(?:[\w.-]+/)*{re.escape(name)}(?![\w.-])", text)


def _sentence(path: Path, line: int, definitions: Collection[str]) -> str:
    name = path.parent.name if path.parent.name in definitions else "NAME"
    if path.suffix == ".py":
        return f'{path}:{line}: is not tested: mark its run with @implements("{name}")'
    lists = "no line begins with // implements:, and no solution.yaml lists it"
    return f"{path}:{line}: is not tested: {lists}; begin it with // implements: {name}"


def _text(path: Path) -> str:
    """The text of a file; nothing of one that can't be read or is too large."""
    try:
        if path.stat().st_size > _LARGEST:
            return ""
        return path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError:
        return ""
