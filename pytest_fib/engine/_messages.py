"""What the judge asks of a sandbox, and what it may answer: plain data, carried as JSON.

JSON rather than pickle, since reading a pickle runs code of the sender's choice in the reader.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from pytest_fib.build import Program  # noqa: TC001  (messages are decoded by their annotations)


@dataclass(frozen=True)
class TensorRef:
    """A tensor's place in an arena. ``offset`` is in bytes, ``stride`` in elements."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def moved(self, by: int) -> TensorRef:
        """The place of a tensor that lies the same, ``by`` bytes further on."""
        return replace(self, offset=self.offset + by)


#: The statuses that a sandbox can end a request with; whether outputs are right is not its to say.
FailedStatus: TypeAlias = Literal[
    "INCORRECT_SHAPE", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"
]
Argument: TypeAlias = TensorRef | bool | int | float


@dataclass(frozen=True)
class Map:
    """From now on tensors lie in this arena of ``size`` bytes, and in no other.

    ``handle`` is a CUDA IPC handle in hex; on the CPU a file descriptor travels beside the message.
    """

    size: int
    handle: str = ""
    kind: Literal["map"] = "map"


@dataclass(frozen=True)
class Load:
    """Make the program callable. A sandbox holds one program at a time."""

    program: Program
    kind: Literal["load"] = "load"


@dataclass(frozen=True)
class Widened:
    """Compute in float64, perhaps with one of the variations of ``_oracle.run_widened``."""

    nudge: int | None = None
    narrow_operands: bool = False
    round_operands: bool = False


@dataclass(frozen=True)
class Call:
    """Call the loaded program and leave its outputs in the given places.

    With ``again``, call it a second time for these: one request costs less than two.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    again: tuple[TensorRef, ...] = ()
    widened: Widened | None = None
    kind: Literal["call"] = "call"


@dataclass(frozen=True)
class Prepare:
    """Get groups of calls of the loaded program ready to be timed.

    Call ``i`` works on ``inputs`` and ``outputs`` moved by ``i * stride`` bytes. Each group is
    ``size`` calls in a row, from the one in ``groups`` on; in a block, each runs ``repeat`` times.
    With ``check``, a captured graph must contain what plain calls run: the first of a process.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    stride: int
    groups: tuple[int, ...]
    size: int
    repeat: int = 1
    check: bool = False
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True)
class Blocks:
    """Time a block of each group, ``rounds`` times; ``hot``, of one call again and again."""

    rounds: int = 1
    hot: bool = False
    kind: Literal["blocks"] = "blocks"


@dataclass(frozen=True)
class Collect:
    """Leave what the calls of these groups returned last in their outputs."""

    groups: tuple[int, ...]
    kind: Literal["collect"] = "collect"


@dataclass(frozen=True)
class Count:
    """Call the loaded program once and count what its operations do; its outputs are dropped."""

    inputs: tuple[Argument, ...]
    kind: Literal["count"] = "count"


Request: TypeAlias = Map | Load | Call | Prepare | Blocks | Collect | Count


@dataclass(frozen=True)
class Counted:
    """What a Count found, in the words of ``timing.count``; ``seen`` in the order of the inputs."""

    flops: int
    moved_bytes: int
    seen: tuple[int | None, ...]


@dataclass(frozen=True)
class Done:
    """It ran.

    ``samples_ns`` are durations of one call in each block, round after round; ``method``, how
    prepared calls are timed; ``flush_ns``, what making the cache cold before a block takes.
    """

    log: str = ""
    samples_ns: tuple[float, ...] = ()
    method: str = ""
    flush_ns: float = 0.0
    counted: Counted | None = None
    kind: Literal["done"] = "done"


@dataclass(frozen=True)
class Failed:
    """It did not. ``summary`` is one line for people.

    ``broken`` says that the process can't be used any more, as after an illegal memory access;
    ``killed``, that it was killed, or the process that all sandboxes are forked from, which may
    have been anyone's doing; ``no_oracle``, that the program can't be computed in float64.
    """

    status: FailedStatus
    summary: str
    log: str = ""
    broken: bool = False
    killed: bool = False
    no_oracle: bool = False
    kind: Literal["failed"] = "failed"


Reply: TypeAlias = Done | Failed


@cache
def requests() -> TypeAdapter[Request]:
    """Reads and writes requests."""
    return TypeAdapter(Request)


@cache
def replies() -> TypeAdapter[Reply]:
    """Reads and writes replies; refuses what is not one."""
    return TypeAdapter(Reply)
