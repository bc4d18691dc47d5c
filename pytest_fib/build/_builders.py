"""Which module builds which language."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_fib.build._program import Program

# Triton kernels are Python modules; what differs is where they run, not how they are loaded.
BUILDERS = {
    "python": "pytest_fib.build._python",
    "triton": "pytest_fib.build._python",
}


class BuildError(Exception):
    """The program could not be made callable; the message says why."""


def load(program: Program) -> Callable[..., Any]:
    """The program's entry symbol, ready to be called.

    Raises BuildError, or whatever the program's own top-level code raises.
    """
    builder = import_module(BUILDERS[program.language])
    function = getattr(builder.load(program), program.entry_symbol, None)
    if not callable(function):
        raise BuildError(f"{program.entry_file} has no function {program.entry_symbol!r}")
    return function  # type: ignore[no-any-return]


def why_no_builder(language: str) -> str | None:
    """Why implementations in this language can't be run yet, or None where they can."""
    if language in BUILDERS:
        return None
    return f"no builder for {language!r} yet (there are: {', '.join(BUILDERS)})"
