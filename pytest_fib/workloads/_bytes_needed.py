"""How much of each input a workload needs: the pages, experts, rows and lengths it refers to.

Which inputs refer to elements of others, and along which axes, follows from their generators'
parameters: ``{kind: indices, below: num_pages}`` refers to elements along ``num_pages``. A tensor
is needed in part where its leading axis is one of those; the other axes may be anywhere in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_fib.workloads._plan import plan
from pytest_fib.workloads._tensors import InputTensors, once

if TYPE_CHECKING:
    import torch

    from pytest_fib.data import Definition
    from pytest_fib.workloads._structure_generators import Needed


def bytes_needed(
    definition: Definition, axes: Mapping[str, int], tensors: Mapping[str, torch.Tensor]
) -> dict[str, int]:
    """Bytes of each input tensor that the workload needs; ``axes`` as in a Workload.

    ``tensors`` are the inputs, filled. Elements that several indices share, as of a broadcast
    tensor with stride 0, count once. Never more than is needed, as far as the rules tell.
    """
    from pytest_fib.workloads._structure_generators import MASKS  # these import torch

    rules = plan(definition).rules
    inputs = InputTensors(definition, rules, definition.axis_values(dict(axes)), tensors)
    masks: list[Needed] = []
    for name, rule in rules.items():
        if name in tensors and rule.kind in MASKS:
            masks += MASKS[rule.kind](name, rule, inputs)
    return {
        name: _elements_needed(spec.shape or (), tensors[name], masks) * tensors[name].itemsize
        for name, spec in definition.inputs.items()
        if name in tensors
    }


def _elements_needed(axes: Sequence[str], tensor: torch.Tensor, masks: Sequence[Needed]) -> int:
    import torch

    stored = once(tensor)
    needed, referred = torch.ones([1] * stored.dim(), dtype=torch.bool), None
    for mask in masks:
        if axes and axes[0] in mask.axes:
            along = _along(mask, axes, stored.shape)
            if mask.limit:
                needed = needed & along
            else:
                referred = along if referred is None else referred | along
    needed = needed if referred is None else needed & referred
    # Along dimensions of size 1 here, all of the tensor's elements are needed.
    return int(needed.sum()) * stored.numel() // max(needed.numel(), 1)


def _along(mask: Needed, axes: Sequence[str], shape: Sequence[int]) -> torch.Tensor:
    """A mask with a dimension for each axis of a tensor, of size 1 for axes absent from the mask.

    Axes of the mask that the tensor lacks, or stores once, are unconstrained: an element is needed
    where any element along them is. Of two dimensions of one axis, the first counts.
    """
    needed, dims = mask.needed, list(mask.axes)
    for axis in mask.axes:
        if axis not in axes or shape[axes.index(axis)] == 1:
            needed = needed.any(dim=dims.index(axis))
            dims.remove(axis)
    needed = needed.permute(sorted(range(len(dims)), key=lambda dim: axes.index(dims[dim])))
    first = {axes.index(axis) for axis in dims}
    return needed.reshape([n if dim in first else 1 for dim, n in enumerate(shape)])
