"""From a Solution to a callable: one module per language."""

from pytest_fib.build._builders import BUILDERS, BuildError, load, why_no_builder
from pytest_fib.build._program import Program, program_of, reference_program

__all__ = [
    "BUILDERS",
    "BuildError",
    "Program",
    "load",
    "program_of",
    "reference_program",
    "why_no_builder",
]
