"""The right outputs of a workload, and those that honest rounding may lead to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_fib.sandbox import YARDSTICKS
from pytest_fib.verdict import Outputs, is_rounded

if TYPE_CHECKING:
    import torch

    from pytest_fib.data import Workload

#: Bytes of the cache of expected outputs, and the most for one workload.
CACHE_BYTES, LARGEST_BYTES = 256 << 20, 16 << 20


#: A workload as text, and the addresses of its recorded tensors.
Key: TypeAlias = tuple[str, tuple[str, ...]]


@dataclass(frozen=True)
class Expected:
    """The right outputs, and why they are not in float64, or None."""

    outputs: dict[str, torch.Tensor]
    no_oracle: str | None = None

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.outputs.values())


class ExpectedCache:
    """A cache of one definition's expected outputs; the oldest are dropped first.

    Items of one definition follow each other, and their searches draw the same workloads.
    ``tensors`` are as in a request.
    """

    def __init__(self) -> None:
        self._entries: dict[Key, Expected] = {}
        self._bytes = 0

    def get(self, workload: Workload, tensors: Mapping[str, str]) -> Expected | None:
        return self._entries.get(_key(workload, tensors))

    def put(self, workload: Workload, tensors: Mapping[str, str], expected: Expected) -> None:
        """Add a copy in the judge's own memory, which no sandbox can map, unless it is large."""
        if expected.bytes > LARGEST_BYTES:
            return
        copy = Expected(copies(expected.outputs), expected.no_oracle)
        self._entries[_key(workload, tensors)] = copy
        self._bytes += copy.bytes
        while self._bytes > CACHE_BYTES:
            self._bytes -= self._entries.pop(next(iter(self._entries))).bytes


def _key(workload: Workload, tensors: Mapping[str, str]) -> Key:
    # Not the uuid: a recorded one may be anything, and another seed's workload keeps it.
    return repr(workload), tuple(tensors.values())


def copies(tensors: Outputs) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def yardstick_runs(*, own: bool) -> Iterator[Sequence[Mapping[str, Any]]]:
    """The variations of ``run_widened``; with ``own``, those that are possible without float64."""
    for runs in YARDSTICKS:
        if not own:
            yield runs
        elif runs[0].keys() & {"moved", "naive", "lean"}:
            yield [{**how, "own": True} for how in runs]


def believed(how: Mapping[str, Any], outputs: Outputs) -> Outputs:
    """The outputs of a variation that show how far honest rounding may go.

    A nudge changes the inputs, and so what is decided by them: rounded outputs are left out.
    """
    if "nudge" not in how:
        return outputs
    return {name: output for name, output in outputs.items() if not is_rounded(output.dtype)}
