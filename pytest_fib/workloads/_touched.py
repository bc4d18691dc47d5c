"""How much of each input a workload uses: the pages, experts, rows and lengths that it names.

Which inputs name something, and of which axes, follows from their generators' parameters:
``{kind: indices, below: num_pages}`` names elements along ``num_pages``. A tensor is used in part
where its leading axis is one of those; their other axes may be anywhere in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from pytest_fib.workloads._constraints import parse_expression
from pytest_fib.workloads._plan import plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import torch

    from pytest_fib.data import Definition


@dataclass(frozen=True)
class Mask:
    """What is used along ``axes``: ``used`` is a bool tensor on the host, a dimension for each.

    Of several masks that name what is used, one is enough; each of those that are ``limits``, such
    as lengths, has to allow it.
    """

    axes: tuple[str, ...]
    used: torch.Tensor
    limits: bool = False


@dataclass(frozen=True)
class _Naming:
    """An input that may name elements of others: its name, rule and values, and all around it."""

    definition: Definition
    sizes: Mapping[str, int]
    tensors: Mapping[str, torch.Tensor]
    name: str
    rule: Mapping[str, Any]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of the input."""
        return tuple(self.definition.inputs[self.name].shape or ())

    @property
    def values(self) -> torch.Tensor:
        """The input's own, on the host."""
        return self.tensors[self.name].cpu().long()

    def factors(self, parameter: str) -> tuple[str, ...]:
        """The axes of a parameter that is an axis or a product of them, else nothing."""
        names = tuple(part.strip() for part in str(self.rule.get(parameter)).split("*"))
        return names if all(name in self.definition.axes for name in names) else ()

    def number(self, parameter: str, default: int) -> int:
        """A parameter that is a number, or an expression of axes."""
        text = str(self.rule.get(parameter, default))
        return int(parse_expression(text, self.definition)(self.sizes))

    def shape(self, axes: Sequence[str]) -> list[int]:
        """The sizes of these axes."""
        return [self.sizes[axis] for axis in axes]


def touched_bytes(
    definition: Definition, axes: Mapping[str, int], tensors: Mapping[str, torch.Tensor]
) -> dict[str, int]:
    """Bytes of each input tensor that the workload needs; ``axes`` as in a Workload.

    ``tensors`` are the inputs, filled. Elements that several indices share, as of a broadcast
    tensor with stride 0, count once. Never more than is needed, as far as the rules tell.
    """
    sizes = definition.axis_values(dict(axes))
    masks: list[Mask] = []
    for name, rule in plan(definition).rules.items():
        kind = rule.get("kind", "")
        if kind in NAMING and name in tensors:
            masks += NAMING[kind](_Naming(definition, sizes, tensors, name, rule))
    return {
        name: _used_elements(spec.shape or (), tensors[name], masks) * tensors[name].element_size()
        for name, spec in definition.inputs.items()
        if name in tensors
    }


def _used_elements(axes: Sequence[str], tensor: torch.Tensor, masks: Sequence[Mask]) -> int:
    import torch

    sizes = [1 if step == 0 else n for n, step in zip(tensor.shape, tensor.stride(), strict=True)]
    ours = [mask for mask in masks if axes and axes[0] in mask.axes]
    dims = [i for i, axis in enumerate(axes) if any(axis in mask.axes for mask in ours)]
    dims = [i for i in dims if axes.index(axes[i]) == i]  # of two dimensions of one axis, the first
    names = [axes[i] for i in dims]
    used, named = torch.ones([sizes[i] for i in dims], dtype=torch.bool), None
    for mask in ours:
        along = _along(mask, names, [tensor.stride(i) == 0 for i in dims])
        if mask.limits:
            used = used & along
        else:
            named = along if named is None else named | along
    used = used if named is None else used & named
    return int(used.sum()) * prod(n for i, n in enumerate(sizes) if i not in dims)


def _along(mask: Mask, names: Sequence[str], single: Sequence[bool]) -> torch.Tensor:
    """A mask with a dimension for each of ``names``: what those it lacks don't tell is any.

    Where ``single``, a dimension has one element that stands for all.
    """
    used, kept = mask.used, list(mask.axes)
    for axis in mask.axes:
        if axis not in names or single[names.index(axis)]:
            used = used.any(dim=kept.index(axis))
            kept.remove(axis)
    used = used.permute([kept.index(name) for name in names if name in kept])
    sizes = iter(used.shape)
    return used.reshape([next(sizes) if name in kept else 1 for name in names])


def _indices(naming: _Naming, parameter: str = "below", shift: int = 0) -> Iterator[Mask]:
    """Those that are there; what is below 0 is padding."""
    import torch

    axes = naming.factors(parameter)
    if not axes:
        return
    shape = naming.shape(axes)
    named = (naming.values >> shift).flatten()
    used = torch.zeros(prod(shape), dtype=torch.bool)
    used[named[(named >= 0) & (named < used.numel())]] = True
    yield Mask(axes, used.view(shape))


def _experts(naming: _Naming) -> Iterator[Mask]:
    return _indices(naming, "experts")


def _routing(naming: _Naming) -> Iterator[Mask]:
    return _indices(naming, "experts", shift=16)


def _indptr(naming: _Naming) -> Iterator[Mask]:
    """What lies between the first offset and the last, and the sequences that are not empty."""
    import torch

    offsets, total = naming.values, naming.factors("total")
    if len(total) == 1:
        at = torch.arange(naming.sizes[total[0]])
        yield Mask(total, (at >= offsets[0]) & (at < offsets[-1]), limits=True)
    for axis in _counted_by(naming.definition, naming.axes[0]):
        yield Mask((axis,), offsets.diff() > 0, limits=True)


def _counted_by(definition: Definition, length: str) -> Iterator[str]:
    """The axes of which a constraint says that ``length`` is one more."""
    for constraint in plan(definition).stated:
        for axis in constraint.axes - {length}:
            pair = constraint.axes == {axis, length} and constraint.equals(length)
            more = ({axis: n, length: n + 1} for n in (1, 2))
            if pair and all(constraint.holds({**definition.const_axes, **m}) for m in more):
                yield axis


def _last_page_len(naming: _Naming) -> Iterator[Mask]:
    """Of the last page of each sequence, as many tokens as it holds."""
    import torch

    size, pages = naming.factors("page_size"), _pages_of(naming)
    if not size or pages is None:
        return
    offsets = naming.tensors[naming.rule["indptr"]].cpu().long()
    begun = (offsets.diff() > 0).nonzero().flatten()
    numbers, length = pages.values, naming.number("page_size", 1)
    held = torch.full_like(numbers, length)
    held[offsets[begun + 1] - 1] = naming.values[begun]
    axes = pages.factors("below")
    filled = torch.full((naming.sizes[axes[0]],), length)
    there = numbers >= 0  # the others are padding
    filled.scatter_reduce_(0, numbers[there], held[there], "amax", include_self=False)
    slots = (torch.arange(length) < filled[:, None]).view(-1, *naming.shape(size))
    yield Mask((*axes, *size), slots, limits=True)


def _pages_of(naming: _Naming) -> _Naming | None:
    """The input that holds the pages which the indptr of ``naming`` splits over sequences."""
    rules = plan(naming.definition).rules
    total = rules.get(naming.rule.get("indptr", ""), {}).get("total")
    for name, rule in rules.items():
        found = _Naming(naming.definition, naming.sizes, naming.tensors, name, rule)
        is_of_pages = rule.get("kind") == "indices" and len(found.factors("below")) == 1
        if is_of_pages and found.axes == (total,) and name in naming.tensors:
            return found
    return None


def _block_table(naming: _Naming) -> Iterator[Mask]:
    """The tokens of each page, and the entries of the table itself, that lengths reach."""
    import torch

    pages, size = naming.factors("pages"), naming.factors("page_size")
    lengths = naming.tensors[naming.rule["lengths"]].cpu().long()
    length = naming.number("page_size", 1)
    table = naming.values
    held = (lengths[:, None] - torch.arange(table.shape[1]) * length).clamp(0, length)
    yield Mask(naming.axes, held > 0, limits=True)
    if len(pages) == 1:
        filled = torch.zeros(naming.sizes[pages[0]], dtype=torch.long)
        filled.scatter_reduce_(0, table.flatten().clamp_min(0), held.flatten(), "amax")
        slots = torch.arange(length) < filled[:, None]
        shape = naming.shape((*pages, *size))
        yield Mask((*pages, *size), slots.view(shape) if size else slots.any(dim=-1))


def _seq_lens(naming: _Naming) -> Iterator[Mask]:
    """Of each sequence, as much as it is long."""
    import torch

    longest = naming.factors("max")
    if len(longest) == 1 and len(naming.axes) == 1:
        at = torch.arange(naming.sizes[longest[0]])
        yield Mask((*naming.axes, *longest), at < naming.values[:, None], limits=True)


#: The kinds of input that say which elements of others are used.
NAMING: dict[str, Callable[[_Naming], Iterator[Mask]]] = {
    "indices": _indices,
    "positions": _indices,
    "topk_ids": _experts,
    "routing": _routing,
    "indptr": _indptr,
    "last_page_len": _last_page_len,
    "block_table": _block_table,
    "seq_lens": _seq_lens,
}
