"""Production: calls go to the best implementation that was verified, with a fallback.

Importing this imports no torch, pydantic, pytest or hypothesis.
"""

from pytest_fib.dispatch._apply import (
    AppliedTraceSet as AppliedTraceSet,
    apply as apply,
    disable_apply as disable_apply,
    disable_tracing as disable_tracing,
    enable_apply as enable_apply,
    enable_tracing as enable_tracing,
    is_enabled as is_enabled,
    known_definition as known_definition,
    stats as stats,
)
from pytest_fib.dispatch._choice import Policy as Policy
from pytest_fib.dispatch._stats import DefinitionStats as DefinitionStats
from pytest_fib.dispatch._tracing import (
    Tracer as Tracer,
    TracingConfig as TracingConfig,
    TracingStats as TracingStats,
)
