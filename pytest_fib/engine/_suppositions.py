"""Inputs that a wrong kernel may have computed with in place of those that it was given.

A failure that has no pattern of its own may have one of its inputs': the reference, given an input
that is forgotten, moved by one, cut short or read for all from the first, makes just what the
kernel made; or given inputs that count an axis in another order, as heads are counted by turns.
Floating inputs may become anything; integers only what no reference can stumble over.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import isclose, log
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.workloads import bits, once, plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_fib.data import Definition

#: Kinds of integers that stay valid in another order, and when the first stands for all.
_MOVABLE = ("indices", "positions", "permutation", "last_page_len")
#: Tiles of a sum of which the last may be left out, or what it leaves of the axis.
_TILES = (8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class Supposition:
    """Other values of inputs, by name; along dimensions of stride 0, one.

    ``words`` fit after "as if". ``back`` makes of an output of the reference, by its axes, what a
    kernel then writes.
    """

    words: str
    values: Mapping[str, Any]
    back: Callable[[torch.Tensor, Sequence[str]], torch.Tensor] = lambda output, axes: output


def suppositions(definition: Definition, inputs: Mapping[str, Any]) -> Iterator[Supposition]:
    """What may be supposed of the inputs, the likelier first."""
    scalars = {n: x for n, x in inputs.items() if not isinstance(x, torch.Tensor)}
    tensors = {n: once(x) for n, x in inputs.items() if isinstance(x, torch.Tensor) and x.numel()}
    rules = plan(definition).rules
    for name, number in scalars.items():
        for words, other in _numbers(number, _last_axes(definition)):
            yield Supposition(f"{name} {words}", {name: other})
    for make in (_values, _moved):
        for name, tensor in tensors.items():
            axes = definition.inputs[name].shape or ()
            for words, value in make(tensor, axes, rules.get(name, {}), definition):
                yield Supposition(f"{name} {words}", {name: value})
    yield from _exchanged(tensors)
    yield from _interleaved(definition, tensors)
    yield from _cut_short(definition, tensors)


def _last_axes(definition: Definition) -> dict[str, int]:
    """The constant axes that inputs end in, one of which a scale may be made of."""
    ends = [spec.shape[-1] for spec in definition.inputs.values() if spec.shape]
    return {axis: definition.const_axes[axis] for axis in ends if axis in definition.const_axes}


def _numbers(number: float, axes: Mapping[str, int]) -> Iterator[tuple[str, float]]:
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
    for names in (*combinations(axes, 1), *combinations(axes, 2)):
        root = sum(axes[name] for name in names) ** -0.5
        if number > 0 and not isclose(root, number, rel_tol=1e-3):
            yield f"were 1 / sqrt({' + '.join(names)})", root


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
            halved = whole.index_select(dim, order.argsort())
            yield f"had {axis} interleaved, not in halves", halved.view(x.dtype)
    for i, j in combinations(range(x.dim()), 2):
        if x.shape[i] == x.shape[j] > 1:
            yield f"were transposed ({axes[i]}, {axes[j]})", x.transpose(i, j).contiguous()


def _exchanged(tensors: Mapping[str, torch.Tensor]) -> Iterator[Supposition]:
    """One input in place of another like it, or both in each other's."""
    for (name, x), (other, y) in combinations(tensors.items(), 2):
        if x.shape == y.shape and x.dtype == y.dtype and x.is_floating_point():
            yield Supposition(f"{name} were {other}", {name: y})
            yield Supposition(f"{other} were {name}", {other: x})
            yield Supposition(f"{name} and {other} changed places", {name: y, other: x})


def _interleaved(
    definition: Definition, tensors: Mapping[str, torch.Tensor]
) -> Iterator[Supposition]:
    """An axis counted by turns: heads that share a key, or the pairs of a rotary embedding.

    What computes so makes what the reference makes of the axis in another order, in that order.
    """
    constants = definition.const_axes
    for axis in dict.fromkeys(a for spec in definition.outputs.values() for a in spec.shape or ()):
        size = constants.get(axis, 0)
        for length in sorted({n for n in (size, *constants.values()) if 3 < n <= size})[::-1]:
            sizes = {2, *(n for n in constants.values() if n > 1)}
            for apart in sorted({n for s in sizes if length % s == 0 for n in (s, length // s)}):
                if 1 < apart < length:
                    yield _counted(definition, tensors, axis, length, apart)


def _counted(
    definition: Definition,
    tensors: Mapping[str, torch.Tensor],
    axis: str,
    length: int,
    apart: int,
) -> Supposition:
    """Of an axis the first ``length``, what should be neighbours so many elements apart."""
    size = definition.const_axes[axis]
    order = torch.arange(size)
    order[:length] = order[:length].view(-1, apart).T.flatten()
    values = {
        name: _ordered(x, definition.inputs[name].shape or (), axis=axis, order=order)
        for name, x in tensors.items()
        if axis in (definition.inputs[name].shape or ())
    }
    which = axis if length == size else f"the first {length} of {axis}"
    words = f"{which} were interleaved, with neighbours {apart} apart"
    return Supposition(words, values, partial(_ordered, axis=axis, order=order.argsort()))


def _ordered(x: torch.Tensor, axes: Sequence[str], axis: str, order: torch.Tensor) -> torch.Tensor:
    for dim, (size, name) in enumerate(zip(x.shape, axes, strict=False)):
        if name == axis and size == len(order):
            x = bits(x).index_select(dim, order.to(x.device)).view(x.dtype)
    return x


def _cut_short(
    definition: Definition, tensors: Mapping[str, torch.Tensor]
) -> Iterator[Supposition]:
    """Sums that leave out the end of an axis, by the first of the inputs that share it."""
    kept = {axis for spec in definition.outputs.values() for axis in spec.shape or ()}
    for name, x in tensors.items():
        if not x.is_floating_point() or x.dtype is torch.float4_e2m1fn_x2:
            continue
        for dim, (size, axis) in enumerate(
            zip(x.shape, definition.inputs[name].shape or (), strict=False)
        ):
            if axis in kept:
                continue
            kept.add(axis)
            for count in sorted({1, *_TILES, *(size % tile for tile in _TILES)}):
                if 0 < count < size:
                    whole = bits(x).clone()
                    whole.narrow(dim, size - count, count).zero_()
                    last = "one" if count == 1 else str(count)
                    words = f"{name} were 0 at the last {last} of {size} along {axis}"
                    yield Supposition(words, {name: whole.view(x.dtype)})
