"""What a wrong output looks like, and where."""

from pytest_fib.diagnosis._diagnose import VAGUE_PATTERNS, diagnose
from pytest_fib.diagnosis._wrong_output import CallContext, is_readable, take

__all__ = [
    "VAGUE_PATTERNS",
    "CallContext",
    "diagnose",
    "is_readable",
    "take",
]
