"""Where foreign code runs: child processes, what is said to them, and the memory they share.

Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily

if TYPE_CHECKING:
    from pytest_fib.sandbox._arena import (
        ALIGNMENT,
        POISONS,
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
    from pytest_fib.sandbox._device_memory import give_back_unused
    from pytest_fib.sandbox._fork_server_client import ForkServer, ForkServerError, environment_for
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
    from pytest_fib.sandbox._sandbox import LocalSandbox, ProcessSandbox, Sandbox, no_answer_within
    from pytest_fib.sandbox._spare import SpareProcess
    from pytest_fib.sandbox._widen import (
        SLOW_YARDSTICKS,
        YARDSTICKS,
        OracleUnavailable,
        run_widened,
        widened_dtype,
    )

__all__ = [
    "ALIGNMENT",
    "POISONS",
    "SLOW_YARDSTICKS",
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
    "SpareProcess",
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
    "give_back_unused",
    "nbytes",
    "no_answer_within",
    "room_for",
    "run_widened",
    "store",
    "widened_dtype",
]

# Resolved on first use: nearly all of these import torch.
__getattr__ = lazily(
    __name__,
    {
        "_arena": (
            "ALIGNMENT",
            "POISONS",
            "ArenaAllocator",
            "changed",
            "copy_bits",
            "fill_with_poison",
            "nbytes",
            "room_for",
        ),
        "_calling": ("InvalidOutput", "bind", "dtype_name", "store"),
        "_channel": ("Channel", "ChannelBroken", "ChannelClosed", "ChannelLate"),
        "_container": ("container_command",),
        "_cores": ("TimingCore",),
        "_device_memory": ("give_back_unused",),
        "_fork_server_client": ("ForkServer", "ForkServerError", "environment_for"),
        "_last_call": ("LastCall",),
        "_messages": (
            "Argument",
            "Blocks",
            "Build",
            "Call",
            "Collect",
            "CountOperations",
            "Done",
            "Failed",
            "Load",
            "Prepare",
            "Reply",
            "Request",
            "TensorRef",
            "Widened",
        ),
        "_sandbox": ("LocalSandbox", "ProcessSandbox", "Sandbox", "no_answer_within"),
        "_spare": ("SpareProcess",),
        "_widen": (
            "OracleUnavailable",
            "SLOW_YARDSTICKS",
            "YARDSTICKS",
            "run_widened",
            "widened_dtype",
        ),
    },
)
