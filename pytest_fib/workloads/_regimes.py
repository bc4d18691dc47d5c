"""Kinds of workload: values, lengths and layouts, each of which breaks kernels of its own."""

from __future__ import annotations

from math import log2
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.workloads._lengths import LENGTHS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from pytest_fib.data import Definition

#: Fills a tensor, which may be wider than the dtype that its values are for and its limits are of.
Fill: TypeAlias = "Callable[[torch.Tensor, torch.Generator, torch.finfo], object]"


def _normal(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    tensor.normal_(generator=generator)


def _ones(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    tensor.fill_(1.0)


def _zeros(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    tensor.zero_()


def _zeros_and_ones(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Sums of these are whole numbers, which every order of summation gives exactly.

    Products of long rows stay below 256, so also where partial sums are kept in bfloat16: of ones
    at random places in two rows of n, about n times the square of their share meet.
    """
    length = max(tensor.shape[-1], 1) if tensor.dim() else 1
    tensor.bernoulli_(min(0.5, (64 / length) ** 0.5), generator=generator)


def _small(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Squares of these are about 1e-6, where an epsilon decides; but not subnormal."""
    tensor.normal_(generator=generator).mul_(max(1e-3, limits.tiny))


def _negative(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Normal, but none above zero: a maximum that begins at 0 stays there."""
    tensor.normal_(generator=generator).abs_().neg_()


def _one_hot(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """One 1 in each row, at a random place."""
    tensor.zero_()
    if tensor.dim() and tensor.numel():
        tensor.scatter_(-1, _places(tensor, generator), 1.0)


def _wide(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Magnitudes from 2**-8 to 2**8, or to those of ``large``: float16 has no room for more."""
    top = min(8.0, log2(limits.max) / 4)
    exponents = tensor.new_empty(tensor.shape).uniform_(-8, top, generator=generator).floor_()
    tensor.normal_(generator=generator).mul_(exponents.exp2_())


def _outlier(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Normal, but for one element of each row that is 100 or more, or -100 or less."""
    tensor.normal_(generator=generator)
    if tensor.dim() and tensor.numel():
        at = _places(tensor, generator)
        found = tensor.gather(-1, at)
        tensor.scatter_(-1, at, 100 * (found + found.sign()))


def _places(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The index of one random element in each row."""
    import torch

    places = tensor.new_empty((*tensor.shape[:-1], 1), dtype=torch.long)
    return places.random_(0, tensor.shape[-1], generator=generator)


def _cancelling(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Each row holds every number and its negative, so that sums over it are lost in rounding."""
    tensor.normal_(generator=generator)
    half = tensor.shape[-1] // 2 if tensor.dim() else 0
    if half:
        tensor[..., half : 2 * half] = -tensor[..., :half]


def _shifted(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Far from zero, and close together: 16 and a little, or 3 and less where that is float16.

    What subtracts a mean, or its square from that of squares, is left with few digits. A sum of
    4096 products is still a number.
    """
    middle = min(16.0, limits.max**0.1)
    tensor.normal_(generator=generator).mul_(middle / 16).add_(middle)


def _large(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """The fourth root of the largest number: a product of two squares still is one.

    Of float16, the first row and half of the others are of the square root: there a square is none,
    as where sums of squares are kept in that.
    """
    usual = limits.max**0.25
    tensor.normal_(generator=generator)
    factor = tensor.new_empty((*tensor.shape[:-1], 1)).bernoulli_(0.5, generator=generator)
    factor.view(-1)[:1] = 1
    larger = limits.max**0.5 if limits.dtype == "float16" else usual
    factor.mul_(larger - usual).add_(usual)
    tensor.mul_(factor.view(*tensor.shape[:-1], 1) if tensor.dim() else factor[0])


def _subnormal(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Below the smallest normal number of the dtype."""
    tensor.uniform_(-1, 1, generator=generator).mul_(limits.tiny)


def _with_nan(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    _sprinkled(tensor, generator, float("nan"))


def _with_inf(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    _sprinkled(tensor, generator, float("inf"))


def _sprinkled(tensor: torch.Tensor, generator: torch.Generator, special: float) -> None:
    tensor.normal_(generator=generator)
    chosen = tensor.new_empty(tensor.shape).uniform_(generator=generator) < 0.01
    tensor.masked_fill_(chosen, special)


def _mixed(tensor: torch.Tensor, generator: torch.Generator, limits: torch.finfo) -> None:
    """Rows that are zero, all ones, small, large, negative, normal, or that but for an outlier."""
    import torch

    _outlier(tensor, generator, limits)
    if not tensor.dim():
        return
    sort = torch.empty((*tensor.shape[:-1], 1), dtype=torch.long, device=tensor.device)
    sort.random_(0, 7, generator=generator)
    usual = torch.empty_like(tensor).normal_(generator=generator)
    usual = torch.where(sort == 6, usual.abs(), usual)
    tensor.copy_(torch.where(sort == 5, tensor, usual))
    factors = [0.0, 0.0, max(1e-3, limits.tiny), limits.max**0.25, 1.0, 1.0, -1.0]
    tensor.mul_(torch.tensor(factors, dtype=tensor.dtype, device=tensor.device)[sort])
    tensor.add_(sort == 1)


#: Regimes of values by name, plainest first: that is the order in which a failure is shrunk.
VALUES: dict[str, Fill] = {
    "normal": _normal,
    "ones": _ones,
    "zeros": _zeros,
    "zeros_and_ones": _zeros_and_ones,
    "small": _small,
    "negative": _negative,
    "one_hot": _one_hot,
    "wide": _wide,
    "outlier": _outlier,
    "cancelling": _cancelling,
    "shifted": _shifted,
    "large": _large,
    "subnormal": _subnormal,
    "mixed": _mixed,
    "nan": _with_nan,
    "inf": _with_inf,
}
#: Those that a definition must ask for, under ``workloads.values``.
ON_REQUEST = ("nan", "inf")
#: Regimes of layout; all but the first must be asked for, under ``workloads.layouts``.
LAYOUTS = ("contiguous", "row_strided", "offset")
#: Which of the inputs that follow the regime of values do so; the others are normal.
INPUTS = ("all", "some")
#: Every regime, and its names.
REGIMES = {
    "values": tuple(VALUES), "inputs": INPUTS, "lengths": tuple(LENGTHS), "layout": LAYOUTS
}  # fmt: skip
#: Kinds of input that follow the regime of values.
FOLLOWING = ("values", "probabilities", "quantized")


def regimes(definition: Definition) -> dict[str, list[str]]:
    """What may be drawn of each regime, plainest first; those that change nothing are left out."""
    from pytest_fib.workloads._plan import plan

    section = definition.workloads
    kinds = [rule.get("kind") for rule in plan(definition).rules.values()]
    following = sum(kind in FOLLOWING for kind in kinds)
    chosen: dict[str, list[str]] = {}
    if following:
        usual = [name for name in VALUES if name not in ON_REQUEST]
        asked = section.values if section and section.values else ["usual"]
        named = [name for each in asked for name in (usual if each == "usual" else [each])]
        chosen["values"] = list(dict.fromkeys(named))
    if following > 1:
        chosen["inputs"] = list(INPUTS)
    if {"indptr", "seq_lens"} & {*kinds}:
        chosen["lengths"] = list(LENGTHS)
    if section and section.layouts:
        chosen["layout"] = [LAYOUTS[0], *section.layouts]
    return chosen


def special(regime: Mapping[str, str]) -> dict[str, str]:
    """What a regime says beyond the plainest names; it is the same without the rest."""
    left = {what: name for what, name in regime.items() if name != REGIMES[what][0]}
    if "values" not in left:
        left.pop("inputs", None)
    return left
