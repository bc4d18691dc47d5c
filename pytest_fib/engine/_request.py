"""The seam: what an evaluation is asked with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Solution, Workload


class DefinitionError(Exception):
    """The definition itself is at fault: its reference raises, or its inputs can't be made."""


@dataclass(frozen=True)
class EvaluationRequest:
    """One implementation on one workload; plain data.

    ``directory`` is where the solution's sources lie on disk, if they do; ``root``, what paths of
    recorded tensors in the workload are relative to. With ``timing`` the calls are also timed, once
    the outputs were found right, to a ``precision`` that is one of ``timing.PRECISIONS``. With
    ``draws``, outputs that are chosen at random are also drawn many times, which takes seconds; not
    where calls are timed. With ``explain``, a failure without a pattern is compared with what the
    reference makes of other inputs, which takes many calls. ``timeout`` is in seconds.
    """

    definition: Definition
    solution: Solution
    workload: Workload
    directory: str | None = None
    timing: bool = False
    timeout: float = 60.0
    root: str | None = None
    precision: str = "default"
    draws: bool = False
    explain: bool = False
