"""Makes inputs meet what constraints say of each element, such as ``all(low <= high)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import kinds

if TYPE_CHECKING:
    from pytest_fib.data import InputRule
    from pytest_fib.workloads._constraints import Constraint, Relation
    from pytest_fib.workloads._plan import Plan
    from pytest_fib.workloads._tensors import InputTensors

#: What may be changed element by element. Offsets, tables and routes are made as a whole.
FREE = (
    kinds.Values, kinds.Normal, kinds.Uniform, kinds.Integers, kinds.Scales, kinds.SeqLens,
    kinds.Positions,
)  # fmt: skip
#: How often all constraints are gone through: what is done for one may break another.
ATTEMPTS = 3
#: In wider ranges, differences may be beyond what int64 holds; infinite ones have no middle.
WIDEST = 2**62
#: Beyond these, not all whole numbers are floating ones of 64 bits.
MOST_WHOLE = 2**53


def _is_free(rule: InputRule) -> bool:
    """Whether elements are made one by one: of indices, those that may be equal."""
    return rule.are_independent if isinstance(rule, kinds.Indices) else isinstance(rule, FREE)


def relate(planned: Plan, inputs: InputTensors, values: Mapping[str, Any], made: set[str]) -> None:
    """Change tensors in place so that they meet constraints on each of their elements.

    ``values`` has all axes and inputs by name, of which those in ``made`` may be changed. Two that
    are made alike change places where the smaller one is larger. Else one of those in a constraint
    is made as small, or large, as the others ask for. Elements stay within the rule of their input:
    a constraint that asks for others stays broken.
    """
    known = [each for each in planned.stated if each.tensors <= values.keys()]
    stated = [(each, each.relation) for each in known if each.relation]
    if not stated:
        return
    free = [
        name
        for name in planned.fill
        if name in made and _is_free(planned.rules[name]) and _may_change(values[name])
    ]
    for attempt in range(ATTEMPTS):
        for constraint, relation in stated:
            of = {name: name for name in free if name in constraint.tensors}
            of |= {part: name for part, (name, _) in relation.parts.items() if name in of}
            if of and not constraint.holds(values):
                all_values = relation.with_parts(values)
                _meet(constraint, relation, of, inputs, all_values, attempt=attempt)


def _may_change(tensor: torch.Tensor) -> bool:
    """Whether each element has memory of its own, and can be compared and calculated with."""
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    shared = any(step == 0 and n > 1 for n, step in strides)
    is_small = tensor.element_size() == 1 and tensor.is_floating_point()
    return not shared and not is_small and tensor.dtype is not torch.bool


def _meet(
    constraint: Constraint,
    relation: Relation,
    free: Mapping[str, str],
    inputs: InputTensors,
    values: Mapping[str, Any],
    *,
    attempt: int,
) -> None:
    """Order a pair that is made alike, or limit one input after the other as far as they may be.

    ``free`` has the input that each name is, or is a part of. Only the first ``attempt`` changes
    more than it has to: what one constraint moves far, another may move back. The last input of one
    attempt is the first of the next, so that limits of either are met.
    """
    is_first = attempt == 0
    if is_first and relation.pair and {*relation.pair} <= {*free}:
        one, other = relation.pair
        are_alike = inputs.rules[free[one]] == inputs.rules[free[other]]
        are_alike &= not _share_elements(relation, values)
        if are_alike and _order(values[one], values[other]) and constraint.holds(values):
            return
    for name, of in [*free.items()][:: 1 if attempt % 2 == 0 else -1]:
        _limit(name, inputs.rules[of], relation, inputs, values, may_spread=is_first)


def _share_elements(relation: Relation, values: Mapping[str, Any]) -> bool:
    """Whether both sides are of one tensor, and have elements of it in common."""
    (one, first), (other, last) = (
        relation.parts.get(side, (side, ())) for side in relation.pair or ()
    )
    if one != other:
        return False
    places = torch.arange(values[one].numel()).view(values[one].shape)
    return bool(torch.isin(places[first], places[last]).any())


def _order(smaller: torch.Tensor, larger: torch.Tensor) -> bool:
    """Exchange elements that are in the wrong order, if these are of one shape and dtype."""
    if smaller.shape != larger.shape or smaller.dtype != larger.dtype:
        return False
    low, high = smaller.minimum(larger), smaller.maximum(larger)
    smaller.copy_(low)
    larger.copy_(high)
    return True


def _limit(
    name: str,
    rule: InputRule,
    relation: Relation,
    inputs: InputTensors,
    values: Mapping[str, Any],
    *,
    may_spread: bool,
) -> None:
    """Bring those elements of an input that its rule allows to what a constraint leaves.

    That is to the bound; or, if they ``may_spread``, every other one to anywhere within it.
    """
    found = relation.bound_of(name)
    if found is None:
        return
    is_least, tree = found
    tensor = values[name]
    bound = torch.as_tensor(relation.compute(tree, values), device=tensor.device)
    is_whole = not tensor.is_floating_point() or isinstance(rule, kinds.Integers)
    end_of = _whole_end if is_whole else _end
    end = end_of(bound, tensor, is_least=is_least, strict=relation.strict)
    limited = tensor.maximum(end) if is_least else tensor.minimum(end)
    if limited.shape == tensor.shape:
        # As far as the rule allows it: another input does the rest.
        if ends := inputs.ends(rule):
            low, high = map(float if tensor.is_floating_point() else int, ends)
            limited = limited.clamp(low, high)
            if may_spread and high - low <= WIDEST:
                spread = _spread(tensor, limited, high if is_least else low, is_whole=is_whole)
                limited = torch.where(inputs.allows(rule, spread), spread, limited)
        tensor.copy_(torch.where(inputs.allows(rule, limited), limited, tensor))


def _spread(
    tensor: torch.Tensor, limited: torch.Tensor, end: float, *, is_whole: bool
) -> torch.Tensor:
    """Numbers that were limited, every other one anywhere from there to the other end."""
    if not tensor.numel():
        return limited
    numbers = (limited, tensor) if tensor.is_floating_point() else (limited.long(), tensor.long())
    room, excess = (end - numbers[0]), (numbers[1] - numbers[0]).abs()
    if is_whole:
        by = excess % (room.abs() + 1)
    else:
        by = room.abs() * (excess / excess.amax().clamp(min=torch.finfo(tensor.dtype).tiny))
    every_other = torch.arange(tensor.numel(), device=tensor.device).reshape(tensor.shape) % 2 == 1
    moved = (numbers[0] + room.sign() * by).to(tensor.dtype)
    return torch.where(every_other & (tensor != limited), moved, limited)


def _whole_end(
    bound: torch.Tensor, tensor: torch.Tensor, *, is_least: bool, strict: bool
) -> torch.Tensor:
    """The least or the most whole number that a dtype has within a bound."""
    if bound.is_floating_point():
        whole = bound.double().ceil() if is_least else bound.double().floor()
        whole = whole.clamp(-MOST_WHOLE, MOST_WHOLE).long()
    else:
        whole = bound.long()
    more = ((whole == bound) & strict).long()
    whole = whole + more if is_least else whole - more
    if tensor.is_floating_point():
        return whole.to(tensor.dtype)
    ends = torch.iinfo(tensor.dtype)
    return whole.clamp(ends.min, ends.max).to(tensor.dtype)


def _end(
    bound: torch.Tensor, tensor: torch.Tensor, *, is_least: bool, strict: bool
) -> torch.Tensor:
    """The least or the most that a dtype has within a bound, or beyond it if that is no number."""
    end = bound.to(tensor.dtype)
    inward = torch.full_like(end, torch.inf if is_least else -torch.inf)
    is_beyond = end.double() < bound if is_least else end.double() > bound
    is_beyond |= (end.double() == bound) & strict
    return torch.where(is_beyond, end.nextafter(inward), end)
