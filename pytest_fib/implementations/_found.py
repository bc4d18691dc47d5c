"""What a scan finds: the facts of one implementation, and its Solution record on demand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_fib.data import Solution


@dataclass(frozen=True)
class Implementation:
    """One implementation, as read from its source; nothing of it has been imported.

    ``definition`` is a definition's name or a glob. ``problem``, where set, says why it can't be
    tested, in words that name the file and line. ``record`` is the file of a Solution record.
    """

    name: str
    definition: str
    path: Path
    line: int
    symbol: str = "run"
    language: str = "python"
    target_hardware: tuple[str, ...] = ("cpu", "cuda")
    dependencies: tuple[str, ...] = ()
    calling: Literal["value", "destination", "tuple"] = "value"
    author: str = ""
    description: str = ""
    record: Path | None = None
    problem: str | None = None

    @property
    def directory(self) -> Path | None:
        """Where the sources lie on disk; None for a JSON record, which holds them itself."""
        if self.record is None:
            return self.path.parent
        return None if self.record.suffix == ".json" else self.record.parent

    def solution(self, definition: str) -> Solution:
        """The FlashInfer Trace Solution record of this implementation of ``definition``.

        Raises ``pytest_fib.data.DataError`` where a Solution file is malformed.
        """
        from pytest_fib.data import (
            BuildSpec,
            Solution,
            SourceFile,
            SupportedLanguages,
            load_solution_file,
        )

        if self.record is not None:
            return load_solution_file(self.record)
        return Solution(
            name=self.name,
            definition=definition,
            author=self.author or "unknown",
            description=self.description or None,
            spec=BuildSpec(
                language=SupportedLanguages(self.language),
                target_hardware=list(self.target_hardware),
                entry_point=f"{self.path.name}::{self.symbol}",
                dependencies=list(self.dependencies),
                calling=self.calling,
            ),
            sources=[
                SourceFile(path=self.path.name, content=self.path.read_text(encoding="utf-8"))
            ],
        )
