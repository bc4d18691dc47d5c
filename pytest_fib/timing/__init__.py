"""How long a call takes, in GPU or CPU time of the call alone."""

from pytest_fib.timing._clocks import Clocks
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
from pytest_fib.timing._roofline import (
    Ceilings,
    DeviceCeilings,
    Roofline,
    compute_dtype,
    roofline,
)
from pytest_fib.timing._series import EmptyCaptureError, Graph, Series, flush_ns, l2_bytes, series
from pytest_fib.timing._statistics import Estimate, Samples
from pytest_fib.timing._traffic import Traffic, traffic

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
    "Roofline",
    "Samples",
    "Series",
    "Shape",
    "Traffic",
    "Turn",
    "calls_per_block",
    "compute_dtype",
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
