"""What the judge asks of a sandbox, and what it may answer: plain data, carried as JSON.

JSON rather than pickle, since reading a pickle runs code of the sender's choice in the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class Call:
    """Call the loaded program once and leave its outputs in the given places."""

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    widened: Widened | None = None
    kind: Literal["call"] = "call"


@dataclass(frozen=True)
class Block:
    """Call the loaded program ``calls`` times in a row and time that."""

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    calls: int
    kind: Literal["block"] = "block"


Request: TypeAlias = Map | Load | Call | Block


@dataclass(frozen=True)
class Done:
    """It ran. ``samples_ns`` are durations of one call each, of a Block."""

    log: str = ""
    samples_ns: tuple[float, ...] = ()
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
