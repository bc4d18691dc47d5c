"""How long a call takes, in GPU or CPU time of the call alone."""

from pytest_fib.timing import _cupti
from pytest_fib.timing._accounting import (
    SURE as SURE,
    Accounting as Accounting,
    Claims as Claims,
    Turn as Turn,
    account as account,
    hidden_share as hidden_share,
    surely_longer as surely_longer,
)
from pytest_fib.timing._capture import capturing as capturing, forget_captures as forget_captures
from pytest_fib.timing._count import count_operations as count_operations
from pytest_fib.timing._device import (
    Clocks as Clocks,
    IdleDevice as IdleDevice,
    place_on_machine as place_on_machine,
    processor as processor,
)
from pytest_fib.timing._measure import (
    GROUPS as GROUPS,
    LEAST_GROUPS as LEAST_GROUPS,
    PRECISIONS as PRECISIONS,
    Estimate as Estimate,
    Samples as Samples,
    TimedBlocks as TimedBlocks,
    Timings as Timings,
    calls_per_block as calls_per_block,
    is_slow as is_slow,
    placements as placements,
    random_place as random_place,
    time_both_sides as time_both_sides,
    time_round as time_round,
)
from pytest_fib.timing._roofline import (
    Ceilings as Ceilings,
    DeviceCeilings as DeviceCeilings,
    OperationCounts as OperationCounts,
    compute_dtype as compute_dtype,
    least_traffic as least_traffic,
    roofline as roofline,
)
from pytest_fib.timing._series import (
    IDLE_CALLS as IDLE_CALLS,
    EmptyCaptureError as EmptyCaptureError,
    Graph as Graph,
    Series as Series,
    copy_ns as copy_ns,
    flush as flush,
    flush_ns as flush_ns,
    idle_blocks as idle_blocks,
    series as series,
)

cupti = _cupti
