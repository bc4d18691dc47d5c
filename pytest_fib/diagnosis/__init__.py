"""What a wrong output looks like, and where."""

from pytest_fib.diagnosis._diagnose import VAGUE_PATTERNS, diagnose, explain
from pytest_fib.diagnosis._hypotheses import input_hypotheses
from pytest_fib.diagnosis._wrong_output import (
    CallContext,
    Failure,
    WrongOutput,
    is_readable,
    take,
)

__all__ = [
    "VAGUE_PATTERNS",
    "CallContext",
    "Failure",
    "WrongOutput",
    "diagnose",
    "explain",
    "input_hypotheses",
    "is_readable",
    "take",
]
