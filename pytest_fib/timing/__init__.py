"""How long a call takes, in GPU or CPU time of the call alone."""

from pytest_fib.timing._clocks import Clocks
from pytest_fib.timing._measure import (
    GROUPS,
    PRECISIONS,
    Measured,
    Shape,
    Turn,
    calls_per_block,
    measure,
    placements,
)
from pytest_fib.timing._series import EmptyCaptureError, Series, flush_ns, l2_bytes, series
from pytest_fib.timing._statistics import Estimate, Samples
from pytest_fib.timing._traffic import least_bytes

__all__ = [
    "GROUPS",
    "PRECISIONS",
    "Clocks",
    "EmptyCaptureError",
    "Estimate",
    "Measured",
    "Samples",
    "Series",
    "Shape",
    "Turn",
    "calls_per_block",
    "flush_ns",
    "l2_bytes",
    "least_bytes",
    "measure",
    "placements",
    "series",
]
