"""Kinds of values that floating inputs take: each has broken kernels that normal data did not."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    Fill = Callable[[torch.Tensor, torch.Generator], object]


def _normal(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.normal_(generator=generator)


def _ones(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.fill_(1.0)


def _zeros(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.zero_()


def _small(tensor: torch.Tensor, generator: torch.Generator) -> None:
    # Squares of these are about 1e-6, where an epsilon decides the result.
    tensor.normal_(generator=generator).mul_(1e-3)


def _wide(tensor: torch.Tensor, generator: torch.Generator) -> None:
    exponents = tensor.new_empty(tensor.shape).uniform_(-8, 8, generator=generator).floor_()
    tensor.normal_(generator=generator).mul_(exponents.exp2_())


def _outlier(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Normal, but for one element of each row that is 100 times larger."""
    tensor.normal_(generator=generator)
    if tensor.dim() and tensor.numel():
        rows = tensor.reshape(-1, tensor.shape[-1])
        at = rows.new_empty(()).long().random_(0, rows.shape[1], generator=generator)
        rows[:, int(at)].mul_(100)


#: The regimes by name, plainest first: that is the order in which a failure is shrunk.
VALUES: dict[str, Fill] = {
    "normal": _normal,
    "ones": _ones,
    "zeros": _zeros,
    "small": _small,
    "wide": _wide,
    "outlier": _outlier,
}
