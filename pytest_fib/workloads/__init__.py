"""From a Definition to workloads, and from a Workload to tensors.

``pytest_fib.workloads.search`` is a module of its own, since it needs Hypothesis. Nothing here
imports torch before tensors are made: collecting tests does not need it.
"""

from pytest_fib.workloads._bench import bench_workloads, example_workloads
from pytest_fib.workloads._budget import DEFAULT_BUDGETS, tensor_bytes, workload_bytes
from pytest_fib.workloads._complete import complete, parse_workload, read_workload, why_unfit
from pytest_fib.workloads._generators import BrokenConstraintError, fill_inputs, scalar_inputs
from pytest_fib.workloads._grown import grown
from pytest_fib.workloads._layouts import TensorLayout, layouts
from pytest_fib.workloads._plan import (
    in_domain,
    plan,
    smallest_axes,
    stored_inputs,
    why_not_generated,
)
from pytest_fib.workloads._recorded import RecordedError, missing
from pytest_fib.workloads._regimes import LAYOUTS, VALUES
from pytest_fib.workloads._tensors import bits, extent, once
from pytest_fib.workloads._touched import touched_bytes

__all__ = [
    "DEFAULT_BUDGETS",
    "LAYOUTS",
    "VALUES",
    "BrokenConstraintError",
    "RecordedError",
    "TensorLayout",
    "bench_workloads",
    "bits",
    "complete",
    "example_workloads",
    "extent",
    "fill_inputs",
    "grown",
    "in_domain",
    "layouts",
    "missing",
    "once",
    "parse_workload",
    "plan",
    "read_workload",
    "scalar_inputs",
    "smallest_axes",
    "stored_inputs",
    "tensor_bytes",
    "touched_bytes",
    "why_not_generated",
    "why_unfit",
    "workload_bytes",
]
