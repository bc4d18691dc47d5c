"""Where foreign code runs: child processes, what is said to them, and the memory they share.

Importing this imports no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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

# Resolved on first use: nearly all of these import torch.
_HOMES = {
    "ALIGNMENT": "_arena",
    "YARDSTICKS": "_widen",
    "ArenaAllocator": "_arena",
    "Argument": "_messages",
    "Blocks": "_messages",
    "Build": "_messages",
    "Call": "_messages",
    "Channel": "_channel",
    "ChannelBroken": "_channel",
    "ChannelClosed": "_channel",
    "ChannelLate": "_channel",
    "Collect": "_messages",
    "CountOperations": "_messages",
    "Done": "_messages",
    "Failed": "_messages",
    "ForkServer": "_fork_server_client",
    "ForkServerError": "_fork_server_client",
    "InvalidOutput": "_calling",
    "LastCall": "_last_call",
    "Load": "_messages",
    "LocalSandbox": "_sandbox",
    "OracleUnavailable": "_widen",
    "Prepare": "_messages",
    "ProcessSandbox": "_sandbox",
    "Reply": "_messages",
    "Request": "_messages",
    "Sandbox": "_sandbox",
    "TensorRef": "_messages",
    "TimingCore": "_cores",
    "Widened": "_messages",
    "bind": "_calling",
    "changed": "_arena",
    "container_command": "_container",
    "copy_bits": "_arena",
    "dtype_name": "_calling",
    "environment_for": "_fork_server_client",
    "fill_with_poison": "_arena",
    "nbytes": "_arena",
    "no_answer_within": "_sandbox",
    "room_for": "_arena",
    "run_widened": "_widen",
    "store": "_calling",
    "widened_dtype": "_widen",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
