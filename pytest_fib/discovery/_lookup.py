"""Definitions by name or by file, for tests written by hand."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.discovery._catalogue import Catalogue, load_catalogue
from pytest_fib.discovery._folders import YAML_SUFFIXES, definition_files

if TYPE_CHECKING:
    from pytest_fib.data import LoadedDefinition

#: Where definitions are looked for outside of a pytest run.
DEFAULT_DIRECTORY = "kernel_defs"
_FILES = (*YAML_SUFFIXES, ".json")


@dataclass(frozen=True, eq=False)
class DefinitionLookup:
    """Finds definitions by name in a catalogue, or in a file whose path is relative to ``root``."""

    root: Path
    catalogue: Callable[[], Catalogue]

    def find(self, reference: str | os.PathLike[str]) -> LoadedDefinition:
        """The definition of a name, or of a YAML or JSON file: ``path`` or ``path::name``.

        Raises LookupError where there is none, with the names that there are.
        """
        text = os.fspath(reference)
        path, _, name = text.partition("::")
        if not path.endswith(_FILES):
            catalogue = self.catalogue()
            for broken in catalogue.broken.values():
                if fnmatchcase(text, broken.names):
                    raise LookupError(broken.problem)
            if not catalogue.loaded:
                where = f"the definition directories of {self.root}"
                raise LookupError(f"no definition {text!r}: there are none in {where}")
            return _named(text, catalogue.loaded)
        from pytest_fib.data import load_definition_file

        loaded = load_definition_file(self.root / path)
        return loaded[0] if not name and len(loaded) == 1 else _named(name, loaded, path)


_active: list[DefinitionLookup] = []


def activate(lookup: DefinitionLookup) -> Callable[[], None]:
    """Let ``find_definition`` use this lookup until the function that is returned is called."""
    _active.append(lookup)
    return functools.partial(_active.remove, lookup)


def find_definition(reference: str | os.PathLike[str]) -> LoadedDefinition:
    """The definition of a name or file, as the running pytest session knows it.

    Outside of a session that has kernels, names are those under ``kernel_defs`` in the current
    directory. Raises LookupError where there is no such definition.
    """
    lookup = _active[-1] if _active else _directory(Path.cwd())
    return lookup.find(reference)


@functools.cache
def _directory(root: Path) -> DefinitionLookup:
    files = definition_files(root / DEFAULT_DIRECTORY)
    return DefinitionLookup(root, functools.cache(lambda: load_catalogue([files], ())))


def _named(name: str, loaded: Iterable[LoadedDefinition], path: str = "") -> LoadedDefinition:
    from pytest_fib.data import did_you_mean, shortened

    by_name = {entry.definition.name: entry for entry in loaded}
    if name in by_name:
        return by_name[name]
    names = sorted(by_name)
    what = f"no definition {name!r}" if name else f"{path} has several definitions"
    raise LookupError(f"{what}{did_you_mean(name, names) or '.'} There are: {shortened(names)}")
