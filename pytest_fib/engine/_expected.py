"""The right outputs of workloads, kept for the implementations that are tried on them next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from pytest_fib.data import Definition
    from pytest_fib.engine._request import EvaluationRequest

#: What is kept, in bytes, and the most that one workload's outputs may take of it.
KEPT, LARGEST = 256 << 20, 16 << 20


@dataclass(frozen=True)
class Expected:
    """The right outputs, and why they are not in float64, where they are not."""

    outputs: dict[str, torch.Tensor]
    no_oracle: str | None = None

    @property
    def bytes(self) -> int:
        """The memory they take."""
        return sum(tensor.nbytes for tensor in self.outputs.values())

    def copy(self) -> Expected:
        """The same in memory of the judge's own, which no sandbox can map."""
        return Expected({n: x.clone() for n, x in self.outputs.items()}, self.no_oracle)


class Known:
    """Expected values of the definition that was asked for last, the oldest dropped first.

    Items of one definition follow each other, and their searches draw the same workloads.
    """

    def __init__(self) -> None:
        self._definition: Definition | None = None
        self._kept: dict[tuple[str, str | None], Expected] = {}
        self._bytes = 0

    def get(self, request: EvaluationRequest) -> Expected | None:
        """What is expected of a request's workload, if it is known."""
        if self._definition is not request.definition and self._definition != request.definition:
            self._definition, self._kept, self._bytes = request.definition, {}, 0
        return self._kept.get(_key(request))

    def put(self, request: EvaluationRequest, expected: Expected) -> None:
        """Keep a copy, unless it is large. ``get`` was asked for the same before."""
        size = expected.bytes
        if size > LARGEST:
            return
        self._kept[_key(request)] = expected.copy()
        self._bytes += size
        while self._bytes > KEPT:
            self._bytes -= self._kept.pop(next(iter(self._kept))).bytes


def _key(request: EvaluationRequest) -> tuple[str, str | None]:
    # Not the uuid: a recorded one may be anything, and another seed's workload keeps it.
    return request.workload.model_dump_json(), request.root
