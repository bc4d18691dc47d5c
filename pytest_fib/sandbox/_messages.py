"""Requests of the judge and replies of a sandbox: plain data, sent as JSON.

Not as pickles: reading one runs code of the sender's choice. What is sent while calls are timed has
a short form: reading JSON took 0.1 ms and more there, as nothing that it needs is in a cache.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

# Messages are decoded by their annotations.
from pytest_fib.build import Built, Program  # noqa: TC001
from pytest_fib.data import Definition, Workload  # noqa: TC001
from pytest_fib.timing import OperationCounts  # noqa: TC001


@dataclass(frozen=True)
class TensorRef:
    """Where a tensor lies in an arena. ``offset`` is in bytes, ``stride`` in elements."""

    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    def moved(self, by: int) -> TensorRef:
        """The same, ``by`` bytes further on."""
        return replace(self, offset=self.offset + by)


#: The statuses that a sandbox may reply with; whether outputs are right, the judge decides.
FailedStatus: TypeAlias = Literal[
    "INCORRECT_SHAPE", "INCORRECT_DTYPE", "RUNTIME_ERROR", "COMPILE_ERROR", "TIMEOUT"
]
Argument: TypeAlias = TensorRef | bool | int | float


@dataclass(frozen=True)
class Map:
    """Map this arena of ``size`` bytes; from now on all tensors lie in it.

    ``handle`` is a CUDA IPC handle in hex; on the CPU a file descriptor is sent with the message.
    Of size 0 there is nothing to map but, on CUDA, a context to make. The variables of
    ``environment`` are set before.
    """

    size: int
    handle: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    kind: Literal["map"] = "map"


@dataclass(frozen=True)
class Build:
    """Compile the program; the artifact is written to the file that is sent with the message.

    With a ``definition`` and a ``workload``, it may be called with such inputs, on the CPU.
    """

    program: Program
    definition: Definition | None = None
    workload: Workload | None = None
    kind: Literal["build"] = "build"


@dataclass(frozen=True)
class Load:
    """Make the program callable. A sandbox holds one program at a time.

    What it was built to, if it is of a compiled language, is in a file sent with the message.
    """

    program: Program
    kind: Literal["load"] = "load"


@dataclass(frozen=True)
class Widened:
    """Compute in float64, unless ``own``; the fields are the variations of ``run_widened``."""

    nudge: int | None = None
    narrow_operands: bool = False
    round_operands: bool = False
    moved: int | None = None
    naive: bool = False
    lean: tuple[int, ...] | None = None
    own: bool = False


@dataclass(frozen=True)
class Call:
    """Call the loaded program and store what it returns in ``outputs``.

    With ``second_outputs``, call it again for these: one request takes less time than two.
    ``earlier_outputs`` get once more what the last call before this request returned.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    second_outputs: tuple[TensorRef, ...] = ()
    earlier_outputs: tuple[TensorRef, ...] = ()
    widened: Widened | None = None
    kind: Literal["call"] = "call"


@dataclass(frozen=True)
class Prepare:
    """Get groups of calls of the loaded program ready to be timed.

    Call ``i`` has ``inputs`` and ``outputs`` moved by ``i * stride`` bytes. Each group is ``size``
    calls, starting with the one in ``groups``. With ``check``, the first captured graph of a
    process must contain what plain calls run. The cache is flushed before each block if these are
    to be ``cold``.
    """

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    stride: int
    groups: tuple[int, ...]
    size: int
    check: bool = False
    cold: bool = True
    kind: Literal["prepare"] = "prepare"


@dataclass(frozen=True)
class PrepareIdle:
    """Get as many groups of calls ready that hardly do anything, beside those of the program."""

    groups: int
    kind: Literal["prepare_idle"] = "prepare_idle"


@dataclass(frozen=True)
class Blocks:
    """Time a block of each group, or of each ``idle`` one."""

    idle: bool = False
    kind: Literal["blocks"] = "blocks"


@dataclass(frozen=True)
class Collect:
    """Store what the calls of the last round returned in their outputs."""

    kind: Literal["collect"] = "collect"


@dataclass(frozen=True)
class Step:
    """Make the prepared calls one by one, each when a byte comes by the socket that is sent along.

    One goes back once its outputs are stored. Where it is to be ``idle``, no call is made but
    the first, and what that returned is stored each time.
    """

    idle: bool = False
    kind: Literal["step"] = "step"


@dataclass(frozen=True)
class CountOperations:
    """Call the loaded program once and count what its operations do; its outputs are dropped."""

    inputs: tuple[Argument, ...]
    kind: Literal["count"] = "count"


Request: TypeAlias = (
    Map | Build | Load | Call | Prepare | PrepareIdle | Blocks | Collect | Step | CountOperations
)


@dataclass(frozen=True)
class Done:
    """The request succeeded.

    ``samples_ns`` are times of one call in each block, ``blocks_ns`` is what all blocks took;
    ``method``, how prepared calls are timed; ``flush_ns``, how long it takes to flush the cache
    before a block; ``nodes``, how many kernels a round of captured calls has; ``built``, the facts
    of a build; ``peak_bytes``, the memory that the process had in a widened call beyond what it had
    as the program was loaded; 0 if it once had as much.
    """

    log: str = ""
    samples_ns: tuple[float, ...] = ()
    blocks_ns: float = 0.0
    method: str = ""
    flush_ns: float = 0.0
    nodes: int = 0
    counts: OperationCounts | None = None
    built: Built | None = None
    peak_bytes: int = 0
    kind: Literal["done"] = "done"


@dataclass(frozen=True)
class Failed:
    """The request failed. ``summary`` is one line for people.

    ``broken``: the process can't be used any more, as after an illegal memory access. ``killed``:
    it or the fork server was killed, perhaps by someone else; ``by_others``: surely. ``no_oracle``:
    the program can't be computed in float64. ``own_fault``: what varies such a run failed.
    ``exhausted``: there was not enough time or memory.
    """

    status: FailedStatus
    summary: str
    log: str = ""
    broken: bool = False
    killed: bool = False
    by_others: bool = False
    no_oracle: bool = False
    own_fault: bool = False
    exhausted: bool = False
    kind: Literal["failed"] = "failed"


Reply: TypeAlias = Done | Failed


#: The requests that have a short form.
_SHORT: dict[bytes, Request] = {
    b"blocks": Blocks(),
    b"idle": Blocks(idle=True),
    b"collect": Collect(),
}
_SHORT_NAMES = {request: name for name, request in _SHORT.items()}
#: What the short form of a reply starts with: no JSON does.
_TIMES_PREFIX = b"times   "


def is_short(request: Request) -> bool:
    """Whether it is sent while calls are timed."""
    return isinstance(request, Blocks | Collect)


def encode_request(request: Request) -> bytes:
    return _SHORT_NAMES[request] if is_short(request) else _requests().dump_json(request)


def decode_request(payload: bytes) -> Request:
    """The request of a message. Raises ValueError."""
    return _SHORT.get(payload) or _requests().validate_json(payload)


def encode_reply(reply: Reply) -> bytes:
    if isinstance(reply, Done) and reply == Done(
        samples_ns=reply.samples_ns, blocks_ns=reply.blocks_ns
    ):
        return _TIMES_PREFIX + array("d", (reply.blocks_ns, *reply.samples_ns)).tobytes()
    return _replies().dump_json(reply)


def decode_reply(payload: bytes) -> Reply:
    """The reply of a message. Raises ValueError where it is none."""
    if not payload.startswith(_TIMES_PREFIX):
        reply = _replies().validate_json(payload)
        if isinstance(reply, Failed) and (reply.killed or reply.by_others):
            raise ValueError("a reply of a process that was killed")
        return reply
    times = array("d")
    times.frombytes(payload[len(_TIMES_PREFIX) :])
    if not times:
        raise ValueError("a reply without times")
    return Done(samples_ns=tuple(times[1:]), blocks_ns=times[0])


def prepare_messages() -> None:
    """Make now what the first message needs."""
    _requests()
    _replies()


@cache
def _requests() -> TypeAdapter[Request]:
    return TypeAdapter(Request)


@cache
def _replies() -> TypeAdapter[Reply]:
    return TypeAdapter(Reply)
