"""Production: calls go to the best implementation that was verified, with a fallback.

Importing this imports no torch, pydantic, pytest or hypothesis.
"""

from pytest_fib.dispatch._apply import (
    AppliedTraceSet,
    apply,
    disable_apply,
    disable_tracing,
    enable_apply,
    enable_tracing,
    is_enabled,
    known_definition,
    stats,
)
from pytest_fib.dispatch._choice import Policy
from pytest_fib.dispatch._stats import DefinitionStats
from pytest_fib.dispatch._tracing import Tracer, TracingConfig, TracingStats, flush_on_signal

__all__ = [
    "AppliedTraceSet",
    "DefinitionStats",
    "Policy",
    "Tracer",
    "TracingConfig",
    "TracingStats",
    "apply",
    "disable_apply",
    "disable_tracing",
    "enable_apply",
    "enable_tracing",
    "flush_on_signal",
    "is_enabled",
    "known_definition",
    "stats",
]
