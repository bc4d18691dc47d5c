"""Inputs that a wrong kernel may have computed with in place of those that it was given.

A failure that has no pattern of its own may have one of its inputs': the reference, given an input
that is forgotten, moved by one or read for all from the first, makes just what the kernel made.
Floating inputs may become anything; integers only what no reference can stumble over.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.workloads import bits, once, plan

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_fib.data import Definition

#: Kinds of integers that stay valid in another order, and when the first stands for all.
_MOVABLE = ("indices", "positions", "permutation", "last_page_len")


@dataclass(frozen=True)
class Supposition:
    """An input and another value of it; along dimensions of stride 0, one.

    ``words`` fit after "as if" and its name.
    """

    name: str
    words: str
    value: Any


def suppositions(definition: Definition, inputs: Mapping[str, Any]) -> Iterator[Supposition]:
    """What may be supposed of each input, the likelier first."""
    scalars = {n: x for n, x in inputs.items() if not isinstance(x, torch.Tensor)}
    tensors = {n: once(x) for n, x in inputs.items() if isinstance(x, torch.Tensor) and x.numel()}
    rules = plan(definition).rules
    for name, number in scalars.items():
        yield from (Supposition(name, *supposed) for supposed in _numbers(number))
    for make in (_values, _moved):
        for name, tensor in tensors.items():
            axes = definition.inputs[name].shape or ()
            found = make(tensor, axes, rules.get(name, {}), definition)
            yield from (Supposition(name, *supposed) for supposed in found)
    yield from _exchanged(tensors)


def _numbers(number: float) -> Iterator[tuple[str, float]]:
    if isinstance(number, bool):
        return
    if isinstance(number, int):
        yield "were 0", 0
        return
    yield "were 0", 0.0
    yield "were 1", 1.0
    for factor, what in (
        (10.0, "10 times as large"),
        (0.1, "a tenth of that"),
        (0.01, "a hundredth of that"),
        (2.0, "twice as large"),
        (0.5, "half of that"),
        (log(2), "multiplied by ln 2"),
        (1 / log(2), "divided by ln 2"),
        (-1.0, "negative"),
    ):
        yield f"were {what}", number * factor
    yield "were squared", number * number
    if number > 0:
        yield "were its square root", number**0.5
    if number != 0:
        yield "were its reciprocal", 1 / number


def _values(
    x: torch.Tensor, axes: Sequence[str], rule: Mapping[str, Any], definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if not x.is_floating_point():
        yield from _integers(x, rule, definition)
        return
    if x.dtype is torch.float4_e2m1fn_x2:
        pairs = x.view(torch.uint8)
        yield "had its nibbles exchanged", ((pairs >> 4) | (pairs << 4)).view(x.dtype)
        yield "had lost its signs", (pairs & 0x77).view(x.dtype)
        return
    wide = x.double()
    yield "were 0", torch.zeros_like(wide).to(x.dtype)
    yield "were 1", torch.ones_like(wide).to(x.dtype)
    yield "were negative", (-wide).to(x.dtype)
    yield "had lost its signs", wide.abs().to(x.dtype)


def _integers(
    x: torch.Tensor, rule: Mapping[str, Any], definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    kind = rule.get("kind")
    if kind == "last_page_len":
        size = rule.get("page_size")
        size = definition.const_axes.get(size) if isinstance(size, str) else size
        if size is not None:
            yield "were the page size", torch.full_like(x, size)
    if kind in ("indices", "positions", "permutation") and x.dim() == 1:
        in_order = torch.arange(len(x), device=x.device, dtype=x.dtype)
        yield "were 0, 1, 2, ...", in_order.clamp(max=int(x.max()))
    if kind == "positions":
        yield "were one more", (x + 1).clamp(max=int(x.max()))
        yield "were one less", (x - 1).clamp(min=0)


def _moved(
    x: torch.Tensor, axes: Sequence[str], rule: Mapping[str, Any], definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if not x.is_floating_point() and rule.get("kind") not in _MOVABLE:
        return
    whole = bits(x)
    for dim, (size, axis) in enumerate(zip(x.shape, axes, strict=False)):
        if size < 2:
            continue
        first = whole.narrow(dim, 0, 1).expand_as(whole).contiguous()
        yield f"had the first of {axis} for all", first.view(x.dtype)
        yield f"were moved by +1 along {axis}", whole.roll(1, dim).view(x.dtype)
        yield f"were moved by -1 along {axis}", whole.roll(-1, dim).view(x.dtype)
        if size % 2 == 0 and size > 2:
            halves = whole.roll(size // 2, dim)
            yield f"had the halves of {axis} exchanged", halves.view(x.dtype)
            # Pairs for halves, as in the two conventions of rotary embeddings.
            order = torch.arange(size, device=x.device).view(2, -1).T.flatten()
            pairs = whole.index_select(dim, order)
            yield f"had the halves of {axis} interleaved", pairs.view(x.dtype)


def _exchanged(tensors: Mapping[str, torch.Tensor]) -> Iterator[Supposition]:
    """One input in place of another like it."""
    for name, x in tensors.items():
        for other, y in tensors.items():
            alike = x.shape == y.shape and x.dtype == y.dtype
            if name != other and alike and x.is_floating_point():
                yield Supposition(name, f"were {other}", y)
