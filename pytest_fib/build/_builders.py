"""Calls the builder of a program's language, a module that makes the program callable.

``SupportedLanguages`` names that module. Its ``load(program, artifact)`` returns what has the entry
symbol as an attribute. For compiled languages there is ``build(program, folder, call)`` before it:
it compiles in that folder, and what it returns names the file there that is the artifact. Both run
in sandboxes. ``versions(program)`` are the versions that decide what is built; only that runs
outside.

Kernels of Triton are compiled when they are launched. Their ``build`` has ``call`` call the
program's function with inputs, and launches compile for the target instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pytest_fib.build._errors import BuildError

if TYPE_CHECKING:
    from pytest_fib.build._artifact import Built
    from pytest_fib.build._program import Program


def build(
    program: Program, folder: Path, call: Callable[[Callable[..., Any]], object] | None = None
) -> Built:
    """Compile a program into an empty folder. Raises BuildError."""
    built: Built = _builder(program.language).build(program, folder, call)
    return built


def load(program: Program, artifact: Path | None = None) -> Callable[..., Any]:
    """The program's entry symbol, ready to be called; ``artifact`` is what it was built to.

    Raises BuildError, or whatever the program's own top-level code raises.
    """
    loaded = _builder(program.language).load(program, artifact)
    function = getattr(loaded, program.entry_symbol, None)
    if not callable(function):
        lacks = "has no function" if program.compilation is None else "exports no function"
        why = _what_it_has(loaded) if function is None else _what_it_is(function)
        raise BuildError(f"{program.entry_file} {lacks} {program.entry_symbol!r}{why}")
    return function  # type: ignore[no-any-return]


def _what_it_has(loaded: Any) -> str:
    """Functions of a module itself, of which one may be meant."""
    if not isinstance(loaded, ModuleType):
        return ""
    names = [
        repr(name)
        for name, value in vars(loaded).items()
        if inspect.isroutine(value) and value.__module__ == loaded.__name__ and name[0] != "_"
    ]
    return f", but {', '.join(names)}: one of them may be the entry" if names else ""


def _what_it_is(value: Any) -> str:
    return f": it is of type {type(value).__name__}; is its language another?"


def why_not_callable(program: Program, built: Built) -> str | None:
    """Why what was built lacks the program's entry point, or None; it is not loaded for that."""
    if built.exports is None:
        return None
    from pytest_fib.build import _native

    return _native.why_not_callable(program, built)


def versions(program: Program) -> dict[str, str]:
    """What decides the binary of a compiled program besides its sources and flags."""
    by_tool: dict[str, str] = _builder(program.language).versions(program)
    return by_tool


def _builder(language: str) -> Any:
    from pytest_fib.data import SupportedLanguages

    return import_module(f"pytest_fib.build.{SupportedLanguages(language).facts.builder}")
