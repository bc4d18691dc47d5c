"""Is an output right? Bounds, comparison, and the statistics of random outputs."""

from pytest_fib.verdict import _hypothesis_tests
from pytest_fib.verdict._bounds import (
    PRECISION as PRECISION,
    dtype_bound as dtype_bound,
    is_rounded as is_rounded,
    overridden as overridden,
)
from pytest_fib.verdict._compare import (
    OutputComparison as OutputComparison,
    element_name as element_name,
    element_sentence as element_sentence,
    marked as marked,
    number_at as number_at,
)
from pytest_fib.verdict._sampling import (
    CALL_BYTES as CALL_BYTES,
    SamplingPlan as SamplingPlan,
    SamplingTest as SamplingTest,
    check_ranks as check_ranks,
    check_support as check_support,
    judge_ranks as judge_ranks,
    judge_samples as judge_samples,
    plan_sampling as plan_sampling,
    ranks as ranks,
)
from pytest_fib.verdict._verdict import (
    Outputs as Outputs,
    Verdict as Verdict,
    compare_outputs as compare_outputs,
    compare_tensor as compare_tensor,
    detail_lines as detail_lines,
    qualified as qualified,
    verdict_of as verdict_of,
)

hypothesis_tests = _hypothesis_tests
