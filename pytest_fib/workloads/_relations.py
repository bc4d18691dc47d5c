"""Makes inputs meet what constraints say of each element, such as ``all(low <= high)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_fib.data import ScalarInput, Workload, kinds
from pytest_fib.workloads._recorded import stored_inputs

if TYPE_CHECKING:
    import torch

    from pytest_fib.workloads._constraints import Relation
    from pytest_fib.workloads._plan import Plan

#: What may be changed element by element. Offsets, tables and routes are made as a whole.
FREE = (
    kinds.Values, kinds.Normal, kinds.Uniform, kinds.Integers, kinds.Scales, kinds.SeqLens,
    kinds.Positions, kinds.Labels,
)  # fmt: skip


#: How often all constraints are gone through: what is done for one may break another.
ATTEMPTS = 3


def relate(
    planned: Plan,
    sizes: Mapping[str, int],
    workload: Workload,
    tensors: Mapping[str, torch.Tensor],
) -> None:
    """Change tensors in place so that they meet constraints on each of their elements.

    Two that are compared change places where the smaller one is larger. Else one of those in a
    constraint is made as small, or large, as the others ask for. What then is beyond its own rule
    breaks a constraint still.
    """
    recorded = stored_inputs(planned.definition, workload)
    scalars = {n: v.value for n, v in workload.inputs.items() if isinstance(v, ScalarInput)}
    values: dict[str, Any] = {**sizes, **scalars, **tensors}
    free = [
        name
        for name in planned.fill
        if name in tensors
        and name not in recorded
        and isinstance(planned.rules[name], FREE)
        and _may_change(tensors[name])
    ]
    stated = [(each, each.relation()) for each in planned.stated if each.tensors <= values.keys()]
    for attempt in range(ATTEMPTS):
        for constraint, relation in stated:
            names = [name for name in free if name in constraint.tensors]
            if relation is None or not names or constraint.holds(values):
                continue
            if attempt == 0 and relation.pair and {*relation.pair} <= {*names}:
                _order(*(tensors[name] for name in relation.pair), strict=relation.strict)
            else:
                _limit(relation, names, values)


def _may_change(tensor: torch.Tensor) -> bool:
    """Whether each element has memory of its own, and can be compared."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    shared = any(step == 0 and n > 1 for n, step in strides)
    return not shared and (tensor.element_size() > 1 or not tensor.is_floating_point())


def _order(smaller: torch.Tensor, larger: torch.Tensor, *, strict: bool) -> None:
    """Exchange elements that are in the wrong order; of equal ones, one is less where it has to."""
    if smaller.shape != larger.shape or smaller.dtype != larger.dtype:
        return
    low, high = smaller.minimum(larger), smaller.maximum(larger)
    if strict and low.is_floating_point():
        less = low.nextafter(low.new_tensor(float("-inf")))
        low = low.where(low < high, less)
    elif strict:
        low = low - (low == high).to(low.dtype)
    smaller.copy_(low)
    larger.copy_(high)


def _limit(relation: Relation, free: list[str], values: Mapping[str, Any]) -> None:
    """Clamp the first tensor that is alone on its side to what the constraint leaves for it."""
    for name in free:
        found = relation.bound_of(name)
        if found is None:
            continue
        is_least, tree = found
        tensor, bound = values[name], relation.compute(tree, values)
        end = tensor.new_tensor(bound) if isinstance(bound, int | float) else bound.to(tensor.dtype)
        if end.dim() <= tensor.dim():
            limited = tensor.maximum(end) if is_least else tensor.minimum(end)
            if limited.shape == tensor.shape:
                tensor.copy_(limited)
        return
