"""Where foreign code runs: child processes, what is said to them, and the memory they share."""

from pytest_fib.sandbox._arena import (
    ALIGNMENT,
    ArenaAllocator,
    changed,
    copy_bits,
    fill_with_poison,
    nbytes,
    room_for,
)
from pytest_fib.sandbox._calling import InvalidOutput, bind, dtype_name, store
from pytest_fib.sandbox._channel import Channel, ChannelBroken, ChannelClosed, ChannelLate
from pytest_fib.sandbox._container import container_command
from pytest_fib.sandbox._cores import TimingCore
from pytest_fib.sandbox._last_call import LastCall
from pytest_fib.sandbox._messages import (
    Argument,
    Blocks,
    Build,
    Call,
    Collect,
    CountOperations,
    Done,
    Failed,
    Load,
    Prepare,
    Reply,
    Request,
    TensorRef,
    Widened,
)
from pytest_fib.sandbox._sandbox import (
    ForkServer,
    ForkServerError,
    LocalSandbox,
    ProcessSandbox,
    Sandbox,
    environment_for,
    no_answer_within,
)
from pytest_fib.sandbox._widen import YARDSTICKS, OracleUnavailable, run_widened, widened_dtype

__all__ = [
    "ALIGNMENT",
    "YARDSTICKS",
    "ArenaAllocator",
    "Argument",
    "Blocks",
    "Build",
    "Call",
    "Channel",
    "ChannelBroken",
    "ChannelClosed",
    "ChannelLate",
    "Collect",
    "CountOperations",
    "Done",
    "Failed",
    "ForkServer",
    "ForkServerError",
    "InvalidOutput",
    "LastCall",
    "Load",
    "LocalSandbox",
    "OracleUnavailable",
    "Prepare",
    "ProcessSandbox",
    "Reply",
    "Request",
    "Sandbox",
    "TensorRef",
    "TimingCore",
    "Widened",
    "bind",
    "changed",
    "container_command",
    "copy_bits",
    "dtype_name",
    "environment_for",
    "fill_with_poison",
    "nbytes",
    "no_answer_within",
    "room_for",
    "run_widened",
    "store",
    "widened_dtype",
]
