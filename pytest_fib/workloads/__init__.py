"""From a definition to workloads, and from a workload to tensors.

Nothing here imports torch before tensors are made: collecting tests does not need it.
"""

from pytest_fib.workloads._axes import Domain as Domain, is_open as is_open
from pytest_fib.workloads._bytes_needed import bytes_needed as bytes_needed
from pytest_fib.workloads._inference import RULES
from pytest_fib.workloads._make import (
    HIDING as HIDING,
    bench_workloads as bench_workloads,
    doubled as doubled,
    enlarge as enlarge,
    example_workloads as example_workloads,
    given_scalars as given_scalars,
    make_workload as make_workload,
    parse_workload as parse_workload,
    read_workload as read_workload,
    reduced as reduced,
    regime_choices as regime_choices,
    why_unfit as why_unfit,
    with_integer_scalars as with_integer_scalars,
    with_other_values as with_other_values,
    without_plainest as without_plainest,
)
from pytest_fib.workloads._output_order import upstream_outputs as upstream_outputs
from pytest_fib.workloads._plan import (
    Choice as Choice,
    Plan as Plan,
    in_domain as in_domain,
    lone_sizes as lone_sizes,
    plan as plan,
    smallest_axes as smallest_axes,
    value_patterns as value_patterns,
    why_not_generated as why_not_generated,
    workload_bytes as workload_bytes,
)
from pytest_fib.workloads._recorded import (
    RecordedError as RecordedError,
    missing as missing,
    stored_inputs as stored_inputs,
)
from pytest_fib.workloads._sizes import (
    DEFAULT_BUDGETS as DEFAULT_BUDGETS,
    TILE_SIZES as TILE_SIZES,
    TURNS as TURNS,
    USUAL_BYTES as USUAL_BYTES,
    power_of_two as power_of_two,
)
from pytest_fib.workloads._solver import InfeasibleError as InfeasibleError
from pytest_fib.workloads._tensors import (
    BrokenConstraintError as BrokenConstraintError,
    TensorLayout as TensorLayout,
    TorchDefaults as TorchDefaults,
    bits as bits,
    coupled_inputs as coupled_inputs,
    dtype_name as dtype_name,
    empty_tensor as empty_tensor,
    extent as extent,
    fill_inputs as fill_inputs,
    layouts as layouts,
    make_inputs as make_inputs,
    once as once,
    plain_defaults as plain_defaults,
    row_major_strides as row_major_strides,
    scalar_inputs as scalar_inputs,
    special_at_end as special_at_end,
    why_broken as why_broken,
    with_all_alike as with_all_alike,
)
from pytest_fib.workloads._workload_files import (
    RecordedWorkload as RecordedWorkload,
    record_workload as record_workload,
    recorded_workloads as recorded_workloads,
)

INFERENCE_RULES = RULES
