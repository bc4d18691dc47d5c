"""Kinds of workload: values, lengths and layouts, each of which breaks kernels of its own."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.workloads._lengths import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_fib.data import Definition

Fill: TypeAlias = "Callable[[torch.Tensor, torch.Generator], object]"


def _normal(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.normal_(generator=generator)


def _ones(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.fill_(1.0)


def _zeros(tensor: torch.Tensor, generator: torch.Generator) -> None:
    tensor.zero_()


def _zeros_and_ones(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Sums of these are whole numbers, which every order of summation gives exactly.

    Products of long rows stay below 256, so also where partial sums are kept in bfloat16: of ones
    at random places in two rows of n, about n times the square of their share meet.
    """
    length = max(tensor.shape[-1], 1) if tensor.dim() else 1
    tensor.bernoulli_(min(0.5, (64 / length) ** 0.5), generator=generator)


def _small(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Squares of these are about 1e-6, where an epsilon decides the result."""
    tensor.normal_(generator=generator).mul_(1e-3)


def _one_hot(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """One 1 in each row, at a random place."""
    tensor.zero_()
    if tensor.dim() and tensor.numel():
        at = tensor.new_empty((*tensor.shape[:-1], 1)).long()
        tensor.scatter_(-1, at.random_(0, tensor.shape[-1], generator=generator), 1.0)


def _wide(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Magnitudes from 2**-8 to 2**8, or to those of ``large``: float16 has no room for more."""
    top = min(8.0, log2(_limits(tensor).max) / 4)
    exponents = tensor.new_empty(tensor.shape).uniform_(-8, top, generator=generator).floor_()
    tensor.normal_(generator=generator).mul_(exponents.exp2_())


def _outlier(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Normal, but for one element of each row that is 100 times larger."""
    tensor.normal_(generator=generator)
    if tensor.dim() and tensor.numel():
        at = tensor.new_empty(()).long().random_(0, tensor.shape[-1], generator=generator)
        tensor[..., int(at)] *= 100


def _cancelling(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Each row holds every number and its negative, so that sums over it are lost in rounding."""
    tensor.normal_(generator=generator)
    half = tensor.shape[-1] // 2 if tensor.dim() else 0
    if half:
        tensor[..., half : 2 * half] = -tensor[..., :half]


def _large(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """The fourth root of the largest number: a product of two squares still is one."""
    tensor.normal_(generator=generator).mul_(_limits(tensor).max ** 0.25)


def _subnormal(tensor: torch.Tensor, generator: torch.Generator) -> None:
    """Below the smallest normal number of the dtype."""
    tensor.uniform_(-1, 1, generator=generator).mul_(_limits(tensor).tiny)


def _with_nan(tensor: torch.Tensor, generator: torch.Generator) -> None:
    _sprinkled(tensor, generator, float("nan"))


def _with_inf(tensor: torch.Tensor, generator: torch.Generator) -> None:
    _sprinkled(tensor, generator, float("inf"))


def _sprinkled(tensor: torch.Tensor, generator: torch.Generator, special: float) -> None:
    tensor.normal_(generator=generator)
    chosen = tensor.new_empty(tensor.shape).uniform_(generator=generator) < 0.01
    tensor.masked_fill_(chosen, special)


def _limits(tensor: torch.Tensor) -> torch.finfo:
    import torch

    return torch.finfo(tensor.dtype)


#: Regimes of values by name, plainest first: that is the order in which a failure is shrunk.
VALUES: dict[str, Fill] = {
    "normal": _normal,
    "ones": _ones,
    "zeros": _zeros,
    "zeros_and_ones": _zeros_and_ones,
    "small": _small,
    "one_hot": _one_hot,
    "wide": _wide,
    "outlier": _outlier,
    "cancelling": _cancelling,
    "large": _large,
    "subnormal": _subnormal,
    "nan": _with_nan,
    "inf": _with_inf,
}
#: Those that a definition must ask for, under ``workloads.values``.
ON_REQUEST = ("nan", "inf")
#: Regimes of layout; all but the first must be asked for, under ``workloads.layouts``.
LAYOUTS = ("contiguous", "row_strided", "offset")
#: Every regime, and its names.
REGIMES = {"values": tuple(VALUES), "lengths": tuple(LENGTHS), "layout": LAYOUTS}


def regimes(definition: Definition) -> dict[str, list[str]]:
    """What may be drawn of each regime, plainest first; those that change nothing are left out."""
    from pytest_fib.workloads._plan import plan

    section = definition.workloads
    kinds = {rule.get("kind") for rule in plan(definition).rules.values()}
    chosen: dict[str, list[str]] = {}
    if kinds & {"values", "probabilities", "quantized"}:
        usual = [name for name in VALUES if name not in ON_REQUEST]
        chosen["values"] = list(section.values) if section and section.values else usual
    if kinds & {"indptr", "seq_lens"}:
        chosen["lengths"] = list(LENGTHS)
    if section and section.layouts:
        chosen["layout"] = [LAYOUTS[0], *section.layouts]
    return chosen
