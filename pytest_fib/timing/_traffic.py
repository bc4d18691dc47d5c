"""The bytes that a kernel has to move, from its definition and its inputs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fib.workloads import bytes_needed, tensor_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_fib.data import Definition


@dataclass(frozen=True)
class OperationCounts:
    """What a function's operations do, each run as a kernel of its own.

    ``flops`` are those of matrix products; ``moved_bytes``, what all operations read and wrote.
    ``read_bytes`` has, for each argument, how many of its bytes were read: None for a scalar, and
    for a tensor that no operation was seen to read, as when Python reads it whole.
    """

    flops: int
    moved_bytes: int
    read_bytes: tuple[int | None, ...]


@dataclass(frozen=True)
class Traffic:
    """Bytes that any kernel has to read and to write, however it computes."""

    read: int
    written: int

    @property
    def least_bytes(self) -> int:
        """Both."""
        return self.read + self.written


def traffic(
    definition: Definition,
    axes: Mapping[str, int],
    tensors: Mapping[str, torch.Tensor],
    read_bytes: Mapping[str, int] | None = None,
) -> Traffic:
    """Every input read once, as far as the workload uses it; every output written once.

    ``axes`` as in a Workload; ``tensors`` are the inputs, filled. ``read_bytes``
    are those of each input that the reference read: what it did without, as the weights of experts
    without tokens, isn't needed.
    """
    needed = bytes_needed(definition, axes, tensors)
    values = definition.axis_values(dict(axes))
    return Traffic(
        read=sum(min(n, (read_bytes or {}).get(name, n)) for name, n in needed.items()),
        written=sum(tensor_bytes(spec, values) for spec in definition.outputs.values()),
    )
