"""One module for each language, ``_<language>.py``, whose ``load`` makes a program a module."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_fib.build._program import Program


class BuildError(Exception):
    """The program could not be made callable; the message says why."""


def has_builder(language: str) -> bool:
    """Whether programs in this language can be loaded."""
    return find_spec(_module_name(language)) is not None


def load(program: Program) -> Callable[..., Any]:
    """The program's entry symbol, ready to be called.

    Raises BuildError, or whatever the program's own top-level code raises.
    """
    builder = import_module(_module_name(program.language))
    function = getattr(builder.load(program), program.entry_symbol, None)
    if not callable(function):
        raise BuildError(f"{program.entry_file} has no function {program.entry_symbol!r}")
    return function  # type: ignore[no-any-return]


def _module_name(language: str) -> str:
    return f"pytest_fib.build._{language}"
