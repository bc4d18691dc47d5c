"""How long a call takes, in GPU or CPU time of the call alone."""

from pytest_fib.timing import _cupti as cupti
from pytest_fib.timing._accounting import Accounting, Turn, account, hidden_share
from pytest_fib.timing._count import count_operations
from pytest_fib.timing._device import Clocks, IdleDevice, cuda_driver, place_on_machine, processor
from pytest_fib.timing._measure import (
    GROUPS,
    PRECISIONS,
    Estimate,
    Samples,
    TimedBlocks,
    Timings,
    calls_per_block,
    placements,
    time_both_sides,
    time_round,
)
from pytest_fib.timing._roofline import (
    Ceilings,
    DeviceCeilings,
    OperationCounts,
    compute_dtype,
    least_traffic,
    roofline,
)
from pytest_fib.timing._series import (
    EmptyCaptureError,
    Graph,
    Series,
    copy_ns,
    flush,
    flush_ns,
    series,
)

__all__ = [
    "GROUPS",
    "PRECISIONS",
    "Accounting",
    "Ceilings",
    "Clocks",
    "DeviceCeilings",
    "EmptyCaptureError",
    "Estimate",
    "Graph",
    "IdleDevice",
    "OperationCounts",
    "Samples",
    "Series",
    "TimedBlocks",
    "Timings",
    "Turn",
    "account",
    "calls_per_block",
    "compute_dtype",
    "copy_ns",
    "count_operations",
    "cuda_driver",
    "cupti",
    "flush",
    "flush_ns",
    "hidden_share",
    "least_traffic",
    "place_on_machine",
    "placements",
    "processor",
    "roofline",
    "series",
    "time_both_sides",
    "time_round",
]
