"""One implementation as it was found, and its Solution record."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Binding, Calling, CompileOptions, Solution

#: Flags that name a library or where libraries are; nvcc's ``-lineinfo`` isn't one.
_LINKED = re.compile(r"-l(?!ineinfo$).+|-L.+|[^-].*\.(?:a|o|so)")


@dataclass(frozen=True)
class Implementation:
    """One implementation, as read from its source without importing it.

    ``definition`` is a definition's name or a glob. ``flags`` are for the compiler of a single C++
    or CUDA file, and name libraries to link. ``problem`` says why it can't be tested, with its file
    and line. ``record`` is the file of its Solution record, if it has one.
    """

    name: str
    definition: str
    path: Path
    line: int
    symbol: str = "run"
    language: str = "python"
    target_hardware: tuple[str, ...] = ("cpu", "cuda")
    dependencies: tuple[str, ...] = ()
    calling: Calling = "value"
    binding: Binding | None = None
    supported_major_versions: tuple[int, ...] = ()
    flags: tuple[str, ...] = ()
    author: str = ""
    description: str = ""
    record: Path | None = None
    problem: str | None = None

    @classmethod
    def of_record(cls, solution: Solution, record: Path) -> Implementation:
        """The implementation that a Solution record in this file describes."""
        spec = solution.spec
        return cls(
            name=solution.name,
            definition=solution.definition,
            path=record,
            line=1,
            symbol=solution.entry_symbol,
            language=spec.language.value,
            target_hardware=tuple(spec.target_hardware),
            dependencies=tuple(spec.dependencies),
            calling=spec.calling or "value",
            binding=spec.binding,
            supported_major_versions=tuple(spec.supported_major_versions),
            author=solution.author,
            description=solution.description or "",
            record=record,
        )

    @property
    def directory(self) -> Path | None:
        """Where the sources lie on disk; None for a JSON record, which holds them itself."""
        if self.record is None:
            return self.path.parent
        return None if self.record.suffix == ".json" else self.record.parent

    def solution(self, definition: str) -> Solution:
        """The FlashInfer Trace Solution record of this implementation of ``definition``.

        Its sources are the files that it imports or includes from its folder. They are read once.
        Raises ``pytest_fib.data.DataError`` where a Solution file is malformed.
        """
        return self._solution.model_copy(update={"definition": definition})

    def parameters(self) -> list[str]:
        """The names of its parameters without defaults, where it is a Python function."""
        file = self._solution.spec.entry_point.partition("::")[0]
        sources = {each.path: each.content for each in self._solution.sources}
        is_python = file.endswith(".py")
        return _required_parameters(sources[file], self.symbol) if is_python else []

    @cached_property
    def _solution(self) -> Solution:
        """The record, with the definition as the mark has it, which may be a glob."""
        from pytest_fib.data import (
            BuildSpec,
            Solution,
            SourceFile,
            SupportedLanguages,
            load_solution_file,
        )
        from pytest_fib.discovery._imports import local_files

        if self.record is not None:
            return load_solution_file(self.record)
        sources = local_files(self.path)
        return Solution(
            name=self.name,
            definition=self.definition,
            author=self.author or "unknown",
            description=self.description or None,
            spec=BuildSpec(
                language=SupportedLanguages(self.language),
                target_hardware=list(self.target_hardware),
                entry_point=f"{self.path.name}::{self.symbol}",
                dependencies=list(self.dependencies),
                calling=self.calling,
                binding=self.binding,
                compile_options=_compile_options(self.flags),
                supported_major_versions=list(self.supported_major_versions),
            ),
            sources=[
                SourceFile(path=path.relative_to(self.path.parent).as_posix(), content=text)
                for path, text in sources.items()
            ],
        )


def _required_parameters(source: str, function: str) -> list[str]:
    """What a Python function must be given by position; nothing where there is none such."""
    with suppress(SyntaxError, ValueError, RecursionError):
        for each in ast.parse(source).body:
            if isinstance(each, ast.FunctionDef) and each.name == function:
                named = [*each.args.posonlyargs, *each.args.args]
                return [arg.arg for arg in named[: len(named) - len(each.args.defaults)]]
    return []


def _compile_options(flags: Sequence[str]) -> CompileOptions | None:
    from pytest_fib.data import CompileOptions

    if not flags:
        return None
    linked = [flag for flag in flags if _LINKED.fullmatch(flag)]
    others = [flag for flag in flags if flag not in linked]
    return CompileOptions(cflags=others, cuda_cflags=others, ld_flags=linked)
