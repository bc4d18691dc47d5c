"""The files of a folder: what is linked is searched too, what tools hide is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

#: How the names of definition files end.
YAML_SUFFIXES = (".yaml", ".yml")


def files_below(directory: Path) -> Iterator[Path]:
    """Each file in a folder and below it: those of a folder by name, then those of its subfolders.

    Linked folders are searched as pytest does, but each once: links may go round in a circle.
    """
    walked: set[str] = set()
    for folder, subfolders, names in os.walk(directory, followlinks=True):
        place = os.path.realpath(folder)
        if place in walked:  # by a link
            subfolders.clear()
            continue
        walked.add(place)
        named = (s for s in subfolders if not s.startswith((".", "__pycache__")))
        subfolders[:] = sorted(named, key=lambda s: (Path(folder, s).is_symlink(), s))
        yield from (Path(folder, name) for name in sorted(names))


def definition_files(directory: Path) -> list[Path]:
    """The YAML files in a folder and below it, in the order of their paths."""
    return sorted(path for path in files_below(directory) if path.suffix in YAML_SUFFIXES)
