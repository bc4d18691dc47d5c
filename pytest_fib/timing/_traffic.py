"""The least a kernel must move, from its definition and its inputs alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fib.workloads import tensor_bytes, touched_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_fib.data import Definition


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
    seen: Mapping[str, int] | None = None,
) -> Traffic:
    """Every input read once, as far as the workload uses it; every output written once.

    ``axes`` as in a Workload; ``tensors`` are the inputs, filled. ``seen`` has the bytes of each
    input that the reference read: what it did without, as experts without tokens, isn't needed.
    """
    needed = touched_bytes(definition, axes, tensors)
    values = definition.axis_values(dict(axes))
    return Traffic(
        read=sum(min(n, (seen or {}).get(name, n)) for name, n in needed.items()),
        written=sum(tensor_bytes(spec, values) for spec in definition.outputs.values()),
    )
