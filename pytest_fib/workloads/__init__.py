"""From a Definition to workloads, and from a Workload to tensors.

``pytest_fib.workloads.search`` is a module of its own, since it needs Hypothesis. Nothing here
imports torch before tensors are made: collecting tests does not need it.
"""

from pytest_fib.workloads._axes import in_domain, smallest_axes
from pytest_fib.workloads._bench import bench_workloads
from pytest_fib.workloads._budget import DEFAULT_BUDGETS, tensor_bytes, workload_bytes
from pytest_fib.workloads._complete import complete, parse_workload, read_workload
from pytest_fib.workloads._generators import fill_input, scalar_inputs, why_not_generated
from pytest_fib.workloads._regimes import VALUES
from pytest_fib.workloads._tensors import torch_dtype

__all__ = [
    "DEFAULT_BUDGETS",
    "VALUES",
    "bench_workloads",
    "complete",
    "fill_input",
    "in_domain",
    "parse_workload",
    "read_workload",
    "scalar_inputs",
    "smallest_axes",
    "tensor_bytes",
    "torch_dtype",
    "why_not_generated",
    "workload_bytes",
]
