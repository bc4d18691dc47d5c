"""From a definition to workloads, and from a workload to tensors.

Nothing here imports torch before tensors are made: collecting tests does not need it.
"""

from pytest_fib.workloads._axes import Domain, is_open
from pytest_fib.workloads._bytes_needed import bytes_needed
from pytest_fib.workloads._costs import Costs
from pytest_fib.workloads._inference import RULES as INFERENCE_RULES
from pytest_fib.workloads._make import (
    bench_workloads,
    enlarge,
    example_workloads,
    make_workload,
    parse_workload,
    read_workload,
    regime_choices,
    why_unfit,
    without_plainest,
)
from pytest_fib.workloads._plan import (
    Choice,
    Plan,
    in_domain,
    plan,
    smallest_axes,
    why_not_generated,
    workload_bytes,
)
from pytest_fib.workloads._recorded import RecordedError, missing, stored_inputs
from pytest_fib.workloads._reference_uses import outputs_of_bits
from pytest_fib.workloads._sizes import DEFAULT_BUDGETS, TILE_SIZES, TURNS
from pytest_fib.workloads._solver import InfeasibleError
from pytest_fib.workloads._tensors import (
    BrokenConstraintError,
    TensorLayout,
    TorchDefaults,
    bits,
    coupled_inputs,
    empty_tensor,
    extent,
    fill_inputs,
    layouts,
    make_inputs,
    once,
    plain_defaults,
    scalar_inputs,
)
from pytest_fib.workloads._workload_files import (
    RecordedWorkload,
    record_workload,
    recorded_workloads,
)

__all__ = [
    "DEFAULT_BUDGETS",
    "INFERENCE_RULES",
    "TILE_SIZES",
    "TURNS",
    "BrokenConstraintError",
    "Choice",
    "Costs",
    "Domain",
    "InfeasibleError",
    "Plan",
    "RecordedError",
    "RecordedWorkload",
    "TensorLayout",
    "TorchDefaults",
    "bench_workloads",
    "bits",
    "bytes_needed",
    "coupled_inputs",
    "empty_tensor",
    "enlarge",
    "example_workloads",
    "extent",
    "fill_inputs",
    "in_domain",
    "is_open",
    "layouts",
    "make_inputs",
    "make_workload",
    "missing",
    "once",
    "outputs_of_bits",
    "parse_workload",
    "plain_defaults",
    "plan",
    "read_workload",
    "record_workload",
    "recorded_workloads",
    "regime_choices",
    "scalar_inputs",
    "smallest_axes",
    "stored_inputs",
    "why_not_generated",
    "why_unfit",
    "without_plainest",
    "workload_bytes",
]
