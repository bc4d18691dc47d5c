"""Where foreign code runs: child processes, what is said to them, and the memory they share.

Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily

if TYPE_CHECKING:
    from pytest_fib.sandbox._arena import (
        ALIGNMENT as ALIGNMENT,
        POISONS as POISONS,
        ArenaAllocator as ArenaAllocator,
        changed as changed,
        copy_bits as copy_bits,
        fill_with_poison as fill_with_poison,
        give_back_unused as give_back_unused,
        nbytes as nbytes,
        room_for as room_for,
    )
    from pytest_fib.sandbox._calling import (
        InvalidOutput as InvalidOutput,
        bind as bind,
        copies as copies,
        store as store,
        was_calling as was_calling,
    )
    from pytest_fib.sandbox._channel import (
        Channel as Channel,
        ChannelBroken as ChannelBroken,
        ChannelClosed as ChannelClosed,
        ChannelLate as ChannelLate,
    )
    from pytest_fib.sandbox._container import container_command as container_command
    from pytest_fib.sandbox._cores import TimingCore as TimingCore
    from pytest_fib.sandbox._foreign_errors import (
        one_line as one_line,
        out_of_memory as out_of_memory,
        own_traceback as own_traceback,
    )
    from pytest_fib.sandbox._fork_server_client import (
        PASSIVE as PASSIVE,
        WAIT_POLICY as WAIT_POLICY,
        ForkServer as ForkServer,
        ForkServerError as ForkServerError,
        environment_for as environment_for,
    )
    from pytest_fib.sandbox._host_memory import (
        forget_peak as forget_peak,
        limited_memory as limited_memory,
        memory_to_take as memory_to_take,
        peak_bytes as peak_bytes,
    )
    from pytest_fib.sandbox._last_call import LastCall as LastCall
    from pytest_fib.sandbox._messages import (
        Argument as Argument,
        Blocks as Blocks,
        Build as Build,
        Call as Call,
        Collect as Collect,
        CountOperations as CountOperations,
        Done as Done,
        Failed as Failed,
        Load as Load,
        Prepare as Prepare,
        PrepareIdle as PrepareIdle,
        Reply as Reply,
        Request as Request,
        Step as Step,
        TensorRef as TensorRef,
        Widened as Widened,
    )
    from pytest_fib.sandbox._rounding import (
        OracleUnavailable as OracleUnavailable,
        VariationError as VariationError,
    )
    from pytest_fib.sandbox._sandbox import (
        LocalSandbox as LocalSandbox,
        ProcessSandbox as ProcessSandbox,
        Sandbox as Sandbox,
        no_answer_within as no_answer_within,
    )
    from pytest_fib.sandbox._spare import SpareProcess as SpareProcess
    from pytest_fib.sandbox._waiting import waited_ns as waited_ns
    from pytest_fib.sandbox._widen import (
        DECIDED_AT_RANDOM as DECIDED_AT_RANDOM,
        MOVED_AGAIN as MOVED_AGAIN,
        YARDSTICKS as YARDSTICKS,
        run_widened as run_widened,
        widened_dtype as widened_dtype,
    )


# Resolved on first use: nearly all of these import torch.
__getattr__ = lazily(
    __name__,
    {
        "_arena": (
            "ALIGNMENT POISONS ArenaAllocator changed copy_bits fill_with_poison give_back_unused "
            "nbytes room_for"
        ),
        "_calling": "InvalidOutput bind copies store was_calling",
        "_channel": "Channel ChannelBroken ChannelClosed ChannelLate",
        "_container": "container_command",
        "_cores": "TimingCore",
        "_fork_server_client": "PASSIVE WAIT_POLICY ForkServer ForkServerError environment_for",
        "_foreign_errors": "one_line out_of_memory own_traceback",
        "_host_memory": "forget_peak limited_memory memory_to_take peak_bytes",
        "_last_call": "LastCall",
        "_messages": (
            "Argument Blocks Build Call Collect CountOperations Done Failed Load Prepare "
            "PrepareIdle Reply Request Step TensorRef Widened"
        ),
        "_rounding": "OracleUnavailable VariationError",
        "_sandbox": "LocalSandbox ProcessSandbox Sandbox no_answer_within",
        "_spare": "SpareProcess",
        "_waiting": "waited_ns",
        "_widen": "DECIDED_AT_RANDOM MOVED_AGAIN YARDSTICKS run_widened widened_dtype",
    },
)
