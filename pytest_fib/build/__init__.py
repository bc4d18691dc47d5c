"""From a Solution to a callable: one module per language."""

from pytest_fib.build._builders import BuildError, load
from pytest_fib.build._program import Program, program_of, reference_program
from pytest_fib.build._runnable import why_not_runnable

__all__ = [
    "BuildError",
    "Program",
    "load",
    "program_of",
    "reference_program",
    "why_not_runnable",
]
