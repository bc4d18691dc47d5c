"""How long a call takes, in GPU or CPU time of the call alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_fib.timing._ceilings import Ceilings, DeviceCeilings
from pytest_fib.timing._clocks import Clocks
from pytest_fib.timing._driver import cuda_driver
from pytest_fib.timing._hardware import nvidia_driver, processor
from pytest_fib.timing._measure import (
    GROUPS,
    PRECISIONS,
    Measured,
    Shape,
    Turn,
    calls_per_block,
    measure,
    placements,
    turn,
)
from pytest_fib.timing._roofline import Roofline, compute_dtype, roofline
from pytest_fib.timing._series import EmptyCaptureError, Graph, Series, flush_ns, l2_bytes, series
from pytest_fib.timing._statistics import Estimate, Samples
from pytest_fib.timing._traffic import OperationCounts, Traffic, traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "GROUPS",
    "PRECISIONS",
    "Ceilings",
    "Clocks",
    "DeviceCeilings",
    "EmptyCaptureError",
    "Estimate",
    "Graph",
    "Measured",
    "OperationCounts",
    "Roofline",
    "Samples",
    "Series",
    "Shape",
    "Traffic",
    "Turn",
    "calls_per_block",
    "compute_dtype",
    "count_operations",
    "cuda_driver",
    "flush_ns",
    "l2_bytes",
    "measure",
    "nvidia_driver",
    "placements",
    "processor",
    "roofline",
    "series",
    "traffic",
    "turn",
]


def count_operations(function: Callable[..., Any], arguments: Sequence[Any]) -> OperationCounts:
    """Call a function once and count what its operations do."""
    # Takes 0.6 s to import, which most runs don't need.
    from pytest_fib.timing._count import count_operations as counted

    return counted(function, arguments)
