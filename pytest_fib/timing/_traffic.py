"""The least a kernel must move, from its definition alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.workloads import tensor_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_fib.data import Definition


def least_bytes(definition: Definition, axes: Mapping[str, int]) -> int:
    """Bytes of every input read once and every output written once; ``axes`` as in a Workload."""
    values = definition.axis_values(dict(axes))
    specs = [*definition.inputs.values(), *definition.outputs.values()]
    return sum(tensor_bytes(spec, values) for spec in specs)
