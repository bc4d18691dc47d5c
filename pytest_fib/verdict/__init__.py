"""Is an output right? Bounds, comparison, and the statistics of random outputs."""

from pytest_fib.verdict import _hypothesis_tests as hypothesis_tests
from pytest_fib.verdict._bounds import PRECISION, dtype_bound, is_rounded, overridden
from pytest_fib.verdict._compare import marked
from pytest_fib.verdict._sampling import (
    CALL_BYTES,
    SamplingPlan,
    SamplingTest,
    check_support,
    is_seeded,
    judge_samples,
    plan_sampling,
)
from pytest_fib.verdict._verdict import (
    OutputComparison,
    Outputs,
    Verdict,
    compare_outputs,
    compare_tensor,
    detail_lines,
    element_name,
    element_sentence,
    number_at,
    qualified,
    verdict_of,
)

__all__ = [
    "CALL_BYTES",
    "PRECISION",
    "OutputComparison",
    "Outputs",
    "SamplingPlan",
    "SamplingTest",
    "Verdict",
    "check_support",
    "compare_outputs",
    "compare_tensor",
    "detail_lines",
    "dtype_bound",
    "element_name",
    "element_sentence",
    "hypothesis_tests",
    "is_rounded",
    "is_seeded",
    "judge_samples",
    "marked",
    "number_at",
    "overridden",
    "plan_sampling",
    "qualified",
    "verdict_of",
]
