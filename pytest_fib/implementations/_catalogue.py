"""Definitions and implementations of a project, matched with one another."""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pytest_fib.data import LoadedDefinition
    from pytest_fib.implementations._found import Implementation

_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Catalogue:
    """What there is to test. ``errors`` holds what is wrong with a definition file, by its path."""

    definitions: dict[Path, tuple[LoadedDefinition, ...]]
    errors: dict[Path, str]
    implementations: tuple[Implementation, ...]
    # Split once, so that matching costs what the matches cost: only globs are tried one by one.
    _plain: dict[str, list[Implementation]] = field(default_factory=lambda: defaultdict(list))
    _globs: list[Implementation] = field(default_factory=list)

    def __post_init__(self) -> None:
        for implementation in self.implementations:
            if _GLOB.search(implementation.definition):
                self._globs.append(implementation)
            else:
                self._plain[implementation.definition].append(implementation)

    @property
    def names(self) -> list[str]:
        """The names of all definitions, sorted."""
        return sorted(d.definition.name for loaded in self.definitions.values() for d in loaded)

    def implementations_of(self, definition: str) -> list[Implementation]:
        """The implementations of a definition, by name; two of one name become one problem."""
        globs = [i for i in self._globs if i.is_for(definition)]
        return _distinct(self._plain.get(definition, []) + globs)

    def strays(self) -> list[str]:
        """A sentence for each implementation that implements no definition there is.

        None while a definition file can't be read, since that may be the one they mean.
        """
        if self.errors:
            return []
        names = self.names
        strays = [i for name in self._plain.keys() - set(names) for i in self._plain[name]]
        strays += [i for i in self._globs if not any(i.is_for(name) for name in names)]
        return [_stray(i, names) for i in sorted(strays, key=lambda i: (i.path, i.line))]


def load_catalogue(
    definition_files: Iterable[Path], implementations: Sequence[Implementation]
) -> Catalogue:
    """Read the definition files and match the implementations with what they define."""
    from pytest_fib.data import DataError, load_definition_file

    loaded: dict[Path, tuple[LoadedDefinition, ...]] = {}
    errors: dict[Path, str] = {}
    for path in definition_files:
        try:
            loaded[path] = load_definition_file(path)
        except DataError as error:
            errors[path] = str(error)
    _refuse_duplicates(loaded, errors)
    return Catalogue(loaded, errors, tuple(implementations))


def _refuse_duplicates(
    loaded: dict[Path, tuple[LoadedDefinition, ...]], errors: dict[Path, str]
) -> None:
    """Two definitions of one name: an error of every file that has one of them."""
    homes = defaultdict(list)
    for definitions in loaded.values():
        for entry in definitions:
            homes[entry.definition.name].append(entry)
    for name, entries in homes.items():
        for entry in entries[1:]:
            first = entries[0]
            other = f"{entry.path}:{entry.line}: name: {name!r} is defined"
            errors[entry.path] = f"{other} in {first.path}:{first.line} too; rename one of them"
    for path in errors:
        loaded.pop(path, None)


def _distinct(implementations: list[Implementation]) -> list[Implementation]:
    by_name: dict[str, Implementation] = {}
    for implementation in implementations:
        first = by_name.setdefault(implementation.name, implementation)
        if first is not implementation:
            places = f"{first.path}:{first.line} and {implementation.path}:{implementation.line}"
            problem = f"two implementations are named {first.name!r}: {places}; rename one of them"
            by_name[first.name] = replace(first, problem=problem)
    return sorted(by_name.values(), key=lambda implementation: implementation.name)


def _stray(implementation: Implementation, names: list[str]) -> str:
    if implementation.problem is not None:
        return implementation.problem
    near = difflib.get_close_matches(implementation.definition, names, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    place = f"{implementation.path}:{implementation.line}"
    return f"{place}: implements {implementation.definition!r}, which no file defines{hint}"
