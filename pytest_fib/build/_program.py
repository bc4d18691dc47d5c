"""What a sandbox needs to run a reference or an implementation, as plain data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_fib.data import Definition, Solution


@dataclass(frozen=True)
class Program:
    """Source code, its entry point and how it is called.

    ``directory`` is where ``sources`` already lie on disk; without one, or where a file there has
    another text by now, they are written out before they are loaded. ``calling`` is ``value``,
    ``destination`` or ``tuple``.
    """

    name: str
    language: str
    entry_file: str
    entry_symbol: str
    calling: str
    outputs: tuple[str, ...]
    sources: tuple[tuple[str, str], ...]
    directory: str | None = None

    @property
    def key(self) -> str:
        """A digest of all fields."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]


def program_of(solution: Solution, definition: Definition, directory: Path | None) -> Program:
    """The program of a Solution; ``directory`` holds its sources, if they are on disk."""
    assert solution.spec.calling is not None  # resolved when a BuildSpec is validated
    return Program(
        name=solution.name,
        language=solution.spec.language.value,
        entry_file=solution.entry_file,
        entry_symbol=solution.entry_symbol,
        calling=solution.spec.calling,
        outputs=tuple(definition.outputs),
        sources=tuple((source.path, source.content) for source in solution.sources),
        directory=None if directory is None else str(directory),
    )


def reference_program(definition: Definition) -> Program:
    """The definition's own ``run``, which returns its outputs."""
    return Program(
        name=f"{definition.name} reference",
        language="python",
        entry_file="reference.py",
        entry_symbol="run",
        calling="value",
        outputs=tuple(definition.outputs),
        sources=(("reference.py", definition.reference),),
    )
