"""What the judge asks of a sandbox, and what it may answer: plain data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from pytest_fib.build import Program  # noqa: TC001  (messages are decoded by their annotations)


@dataclass(frozen=True)
class TensorRef:
    """A tensor's place in an arena. ``offset`` is in bytes, ``stride`` in elements."""

    arena: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str


Argument: TypeAlias = TensorRef | int | float | bool


@dataclass(frozen=True)
class Load:
    """Make the program callable. A sandbox holds one program at a time."""

    program: Program


@dataclass(frozen=True)
class Call:
    """Call the loaded program once and leave its outputs in the given places."""

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]


@dataclass(frozen=True)
class Block:
    """Call the loaded program ``calls`` times in a row and time that."""

    inputs: tuple[Argument, ...]
    outputs: tuple[TensorRef, ...]
    calls: int


Request: TypeAlias = Load | Call | Block


@dataclass(frozen=True)
class Done:
    """It ran. ``samples_ns`` are durations of one call each, of a Block."""

    log: str = ""
    samples_ns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Failed:
    """It did not. ``status`` is an EvaluationStatus; ``summary`` is one line for people."""

    status: str
    summary: str
    log: str = ""


Reply: TypeAlias = Done | Failed
