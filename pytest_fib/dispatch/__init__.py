"""Production: calls go to the best implementation that was verified, with a fallback.

Importing this imports no torch, pydantic, pytest or hypothesis.
"""

from pytest_fib.dispatch._apply import (
    AppliedTraceSet,
    apply,
    disable_apply,
    enable_apply,
    stats,
)
from pytest_fib.dispatch._choice import Policy
from pytest_fib.dispatch._stats import DefinitionStats

__all__ = [
    "AppliedTraceSet",
    "DefinitionStats",
    "Policy",
    "apply",
    "disable_apply",
    "enable_apply",
    "stats",
]
