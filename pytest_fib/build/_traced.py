"""What TileLang and CuTe DSL have in common: Python is run to be compiled, ahead of any call.

That holds for functions of the language itself. A plain function that compiles kernels when it is
called is loaded as Python is, and its artifact is an empty file.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.build import _native, _python
from pytest_fib.build._artifact import Built
from pytest_fib.build._errors import BuildError, source_line

if TYPE_CHECKING:
    from pytest_fib.build._program import Program

_PYTHON = "python"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")


@contextmanager
def traced(program: Program) -> Iterator[None]:
    """Turn what is raised into a BuildError at a line of the program's own sources."""
    try:
        yield
    except BuildError:
        raise
    except Exception as error:
        raise _placed(program, error) from error


def entry_of(program: Program) -> Any:
    """The program's entry symbol. Raises BuildError, or what the module's top level raises."""
    entry = getattr(_python.load(program), program.entry_symbol, None)
    if entry is None:
        raise BuildError(f"{program.entry_file} has no function {program.entry_symbol!r}")
    return entry


def refuse_returning(program: Program) -> None:
    """Raise BuildError for functions that are to return outputs: these languages' can't."""
    if program.calling != "destination":
        raise BuildError(
            f"{program.entry_symbol} of {program.entry_file} can't return tensors: have it write "
            'outputs, its last arguments, and mark it with calling="destination"'
        )


def built_as_python(folder: Path) -> Built:
    (folder / _PYTHON).touch()
    return Built(_PYTHON)


def load(program: Program, artifact: Path | None) -> Any:
    """The library that a program was built to, or its module."""
    if artifact is not None and artifact.stat().st_size == 0:
        return _python.load(program)
    return _native.load(program, artifact)


def _placed(program: Program, error: Exception) -> BuildError:
    """The error, at the innermost line of the program's sources that it came from."""
    message = str(getattr(error, "message", "") or f"{type(error).__name__}: {error}")
    first = next(iter(_COLOURS.sub("", message).strip().splitlines()), type(error).__name__)
    log = _COLOURS.sub("", "".join(traceback.format_exception(error)))
    for file, line in _places(error):
        for path, text in program.sources:
            lines = text.splitlines()
            if file.endswith(f"/{path}") and 0 < line <= len(lines):
                shown = source_line(line, lines[line - 1])
                return BuildError(f"{path}:{line}: {first}", f"{shown}\n\n{log}")
    return BuildError(first, log)


def _places(error: Exception) -> Iterator[tuple[str, int]]:
    """Files and lines: those that CuTe DSL says, and those that the error went through."""
    place = getattr(error, "filename", None), getattr(error, "line", None)
    if isinstance(place[0], str) and isinstance(place[1], int):
        yield place[0], place[1]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        yield frame.filename, frame.lineno or 0
