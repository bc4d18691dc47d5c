"""Definitions and implementations of a project, matched with one another."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_fib.discovery._scan import why_unreadable

if TYPE_CHECKING:
    from pytest_fib.data import Definition, LoadedDefinition, TensorSpec
    from pytest_fib.discovery._implementation import Implementation

_GLOB = re.compile(r"[*?\[]")
#: How many implementations of unknown definitions are named one by one.
STRAY_LIMIT = 20


@dataclass(frozen=True)
class BrokenFile:
    """A definition file's problem, and a glob for the names that it seems to define."""

    problem: str
    names: str


@dataclass(frozen=True)
class Catalogue:
    """The definitions and implementations there are to test, and the files that can't be used.

    ``dangling`` are sentences on links that lead nowhere: to pytest they are no files, so no
    collector reports them.
    """

    definitions: dict[Path, tuple[LoadedDefinition, ...]]
    broken: dict[Path, BrokenFile]
    implementations: tuple[Implementation, ...]
    dangling: tuple[str, ...] = ()
    # Matched once: trying every glob for every definition would cost the product of the two.
    _by_name: dict[str, list[Implementation]] = field(default_factory=lambda: defaultdict(list))
    _strays: list[Implementation] = field(default_factory=list)

    def __post_init__(self) -> None:
        names = self.names
        matching = cache(lambda glob: _matching(glob, names))
        for implementation in self.implementations:
            for name in matching(implementation.definition) or self._home(implementation):
                self._by_name[name].append(implementation)
            if not matching(implementation.definition):
                self._strays.append(implementation)

    def _home(self, implementation: Implementation) -> list[str]:
        """Where a file is seen to fail that doesn't say what it implements; a record only warns.

        The definition that its folder or it itself is named after, or the first of the kind that
        the folder is named after, or the first of all.
        """
        if implementation.problem is None or implementation.record is not None:
            return []
        definitions = [each.definition for each in self.loaded]
        folder = implementation.path.parent.name
        for name in (folder, implementation.path.stem):
            if name in self.names:
                return [name]
        of_folder = sorted(d.name for d in definitions if d.op_type == folder)
        return (of_folder or self.names)[:1]

    @property
    def loaded(self) -> list[LoadedDefinition]:
        """The definitions of all files."""
        return list(itertools.chain.from_iterable(self.definitions.values()))

    @property
    def names(self) -> list[str]:
        return sorted({each.definition.name for each in self.loaded})

    def implementations_of(self, definition: str) -> list[Implementation]:
        """The implementations of a definition, by name; two of one name become one problem."""
        return _by_distinct_names(self._by_name.get(definition, []))

    def strays(self) -> list[str]:
        """A sentence for each link that leads nowhere and implementation of an unknown definition.

        Not for the latter while a definition file is malformed: that may be the one they mean.
        """
        if self.broken:
            return list(self.dangling)
        strays = sorted(self._strays, key=lambda i: (i.path, i.line))
        problems = [i.problem for i in strays if i.problem and i.record is not None]
        unknown = [i for i in strays if i.problem is None]
        sentences = [_stray(i, self.names) for i in unknown[:STRAY_LIMIT]]
        if more := len(unknown) - len(sentences):
            sentences.append(f"{more} more implementations name unknown definitions")
        return [*self.dangling, *problems, *sentences]


def _matching(glob: str, names: Sequence[str]) -> list[str]:
    """The sorted names that match; only those that begin like the glob are tried."""
    prefix = _GLOB.split(glob, maxsplit=1)[0]
    start, end = bisect_left(names, prefix), bisect_left(names, f"{prefix}{chr(0x10FFFF)}")
    if prefix == glob:
        return [glob] if start < end and names[start] == glob else []
    return [name for name in names[start:end] if fnmatchcase(name, glob)]


def load_catalogue(
    definition_files: Iterable[Iterable[Path]], implementations: Sequence[Implementation]
) -> Catalogue:
    """Read the definition files and match the implementations with what they define.

    The files are in groups: those of the project, and those of each dataset. A name may be defined
    once in a group; a dataset may define what the project defines too, with the same axes, inputs
    and outputs.
    """
    from pytest_fib.data import DataError, load_definition_file

    loaded: dict[Path, tuple[LoadedDefinition, ...]] = {}
    errors: dict[Path, str] = {}
    dangling: list[str] = []
    for group in definition_files:
        files: dict[Path, tuple[LoadedDefinition, ...]] = {}
        for path in group:
            try:
                files[path] = load_definition_file(path)
            except DataError as error:
                errors[path] = str(error)
            except OSError as error:
                problem = why_unreadable(path, error)
                if path.is_file():
                    errors[path] = problem
                else:
                    dangling.append(problem)
        _refuse_duplicates(files, errors)
        _refuse_others_of_one_name(files, loaded, errors)
        loaded |= files
    broken = {path: BrokenFile(error, _likely_names(path)) for path, error in errors.items()}
    return Catalogue(loaded, broken, tuple(implementations), tuple(dangling))


def _likely_names(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return path.stem
    match = re.search(r"""^name\s*:\s*["']?([\w\-${}]+)""", text, re.MULTILINE)
    return re.sub(r"\$\{\w+\}", "*", match.group(1)) if match else path.stem


def _refuse_duplicates(
    loaded: dict[Path, tuple[LoadedDefinition, ...]], errors: dict[Path, str]
) -> None:
    """Of several definitions of one name, each but the first is an error of its file."""
    firsts: dict[str, LoadedDefinition] = {}
    for entry in itertools.chain.from_iterable(loaded.values()):
        name = entry.definition.name
        first = firsts.setdefault(name, entry)
        if first is not entry:
            other = f"{entry.path}:{entry.line}: name: {name!r} is defined"
            errors[entry.path] = f"{other} in {first.path}:{first.line} too; rename one of them"
    for path in errors:
        loaded.pop(path, None)


def _refuse_others_of_one_name(
    files: dict[Path, tuple[LoadedDefinition, ...]],
    earlier: Mapping[Path, tuple[LoadedDefinition, ...]],
    errors: dict[Path, str],
) -> None:
    """Refuse a dataset's definition with the name of an earlier one, but other axes or tensors."""
    known = {d.definition.name: d for each in earlier.values() for d in each}
    for path, entries in list(files.items()):
        for entry in entries:
            other = known.get(entry.definition.name)
            if other is not None and (what := _difference(entry.definition, other.definition)):
                errors[path] = (
                    f"{path}:{entry.line}: name: {entry.definition.name!r} is defined in "
                    f"{other.path}:{other.line} with {what}; rename one of them"
                )
                files.pop(path, None)


def _difference(one: Definition, other: Definition) -> str:
    """What two definitions of one name differ in; descriptions and references are their own."""

    def axes(definition: Definition) -> dict[str, int | None]:
        return {name: definition.const_axes.get(name) for name in definition.axes}

    def tensors(specs: Mapping[str, TensorSpec]) -> list[tuple[str, object, object]]:
        return [(name, spec.shape, spec.dtype) for name, spec in specs.items()]

    differ = {
        "axes": axes(one) != axes(other),
        "inputs": tensors(one.inputs) != tensors(other.inputs),
        "outputs": tensors(one.outputs) != tensors(other.outputs),
    }
    differences = [what for what in differ if differ[what]]
    return f"other {' and '.join(differences)}" if differences else ""


def _by_distinct_names(implementations: list[Implementation]) -> list[Implementation]:
    by_name: dict[str, Implementation] = {}
    for implementation in implementations:
        first = by_name.setdefault(implementation.name, implementation)
        if first is not implementation:
            places = f"{first.path}:{first.line} and {implementation.path}:{implementation.line}"
            problem = f"two implementations are named {first.name!r}: {places}; rename one of them"
            by_name[first.name] = replace(first, problem=problem)
    return sorted(by_name.values(), key=lambda implementation: implementation.name)


def _stray(implementation: Implementation, names: list[str]) -> str:
    from pytest_fib.data import did_you_mean

    hint = did_you_mean(implementation.definition, names)
    place = f"{implementation.path}:{implementation.line}"
    return f"{place}: implements {implementation.definition!r}, which no file defines{hint}"
