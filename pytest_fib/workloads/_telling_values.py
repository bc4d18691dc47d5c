"""Puts values that tell into inputs, by what the reference does with them.

Such as what it compares elements with, since only equals tell ``<`` from ``<=``: numbers, and
elements of inputs that are filled before, or what is subtracted from them. Random elements hardly
ever equal them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import inf, isnan, log, nan, sqrt
from typing import TYPE_CHECKING, TypeAlias

import torch

from pytest_fib.data import kinds
from pytest_fib.workloads._constraints import constraints_on
from pytest_fib.workloads._places import one_of_each, row_count
from pytest_fib.workloads._plan import (
    HOLD_ANY,
    may_be_any,
    picking,
    special_values,
    value_patterns,
)
from pytest_fib.workloads._reference_uses import SORTING
from pytest_fib.workloads._scalar_uses import UNDEFINED_AT_ZERO
from pytest_fib.workloads._special_values import cases_of, is_lse, near_numbers
from pytest_fib.workloads._value_patterns import put_special_values

if TYPE_CHECKING:
    from pytest_fib.data import InputRule
    from pytest_fib.workloads._reference_uses import LeftOut
    from pytest_fib.workloads._tensors import FillContext

#: A number, or another input's name with its tensor, or its number.
Source: TypeAlias = "float | tuple[str, torch.Tensor | float]"
#: The share of the elements that equal something they are compared with.
SHARE, HALF = 0.125, 0.5
#: The most whole numbers of steps, of either sign, that elements are put halfway between.
HALVES = 8
#: That where most are what they are compared with: in one of so many workloads that have any such,
#: and which.
MOST, MOST_TURNS, MOST_TURN = 0.75, 4, 3
#: Of so many workloads, one is without them where values are normal; and one has integers that end
#: at such a number.
USUAL_TURNS, INTEGER_TURNS = 4, 3
#: Of so many, one has integers that all are well below such a number.
BELOW_TURNS = 12
#: Of so many workloads, one has infinities or NaN where the reference asks for these.
ASKED_TURNS = 3
#: Of so many workloads, one has tensors that are 0 in a part.
QUIET_TURNS = 4
#: Of so many, one has zeros at the same places of all inputs.
ZERO_TURNS = 8
#: Of so many workloads, one has a few different integers where some are put in order, and half as
#: often where a largest is taken; how many.
KEY_TURNS, FEW_KEYS = 4, 3
#: The largest number of an implementation's source that floating tensors have: others stand for
#: infinity, or are sizes, of whose exponentials differences are lost.
MOST_NEAR = 8
#: Of so many workloads, one has numbers from 0 on of which some are 0, as ``torch.rand`` gives.
ZERO_OF_RANGE_TURNS = 3
#: How far apart the ends are of numbers among which normal ones are searched.
NORMAL_SPREAD = 6.0
#: The turn in which all integers are 1.
ONES_TURN = 10
#: Of so many workloads, one has integers that each are the place before their own; which one.
CHAIN_TURNS, CHAIN_TURN = 12, 7
#: Of so many, one has rows of at least so many integers that repeat up to so many; which one.
PERIODIC_TURNS, LEAST_REPEATED, MOST_PERIOD, PERIODIC_TURN = 12, 4, 24, 8
#: Of so many workloads, one has rows whose largest element an index picks; and one has integers
#: of which that share is what another input has.
PICKED_TURNS, AGREEING_TURNS, AGREEING = 3, 6, 0.875
#: Integers by kind, and the kinds that they agree with: what indexes is the same on every device.
_INDEXING = ("indices", "positions")
AGREEING_WITH = {"integers": ("integers", *_INDEXING), **dict.fromkeys(_INDEXING, _INDEXING)}
AGREEING_WITH["labels"] = ("labels",)
#: Of so many, one has probabilities close to those of another; by what share, nearly; and the least
#: that rows may add up to.
CLOSE_TURNS, CLOSENESS, FEWEST = 3, 0.25, 1e-30
#: Of so many, one has such values where another input has them; those of value patterns.
SAME_TURNS = 4
NOT_FINITE_OF = {"nan": (nan,), "inf": (inf, -inf)}
#: What tells equal numbers from others.
ORDERING = SORTING | {"argmax", "argmin", "amax", "amin", "max", "min", "sign", "median"}
ORDERING |= {"cummax", "cummin", "maximum", "minimum", "searchsorted", "bucketize"}
#: What goes along rows by the order of their numbers; of so many workloads, one has some that rise.
RUNNING = SORTING | {"cummax", "cummin"}
RISING_TURNS, RISING_TURN, RISING_ROWS = 6, 3, 4
#: Value patterns whose elements may be any, those above 0, and those below 0.
ANY, ABOVE, BELOW = ("normal", "wide", "outlier"), ("positive",), ("negative",)


def put_telling_values(
    name: str,
    tensor: torch.Tensor,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Put values that tell a wrong kernel from a right one into an input, a contiguous tensor.

    By what the reference does with it. ``before`` are the inputs that were filled before this one.
    """
    uses = context.uses
    if context.rules[name].kind == "values" and tensor.numel():
        if uses.are_logits(name):
            _make_peaked(tensor, context)
        if uses.calls & ORDERING:
            _make_coarse(tensor, context)
        if uses.calls & RUNNING:
            _make_rising(tensor, context)
        _make_quiet(tensor, context)
        _put_zeros(tensor, context)
    if tensor.is_floating_point():
        _make_close(tensor, name, context, before)
        _put_picked_first(tensor, name, context, before)
    else:
        _put_agreeing(tensor, name, context, before)
    _make_boundaries(name, tensor, context)
    _put_limits(name, tensor, context, before)
    _put_near(name, tensor, context)
    _put_special(name, tensor, context, before)


def _make_boundaries(name: str, tensor: torch.Tensor, context: FillContext) -> None:
    """Make numbers among which others are searched ones that these may equal, in half of workloads.

    That are of no more bits than those have; and, where any may be, as large as normal numbers are.
    """
    rule, uses = context.rules[name], context.uses
    if not isinstance(rule, kinds.Sorted) or name not in uses.searched or not tensor.numel():
        return
    if not tensor.is_floating_point() or constraints_on(name, context.definition):
        return
    if rule.pad is not None:
        return
    may_be_any = rule.max is None and "min" not in rule.model_fields_set
    if rule.unique and may_be_any and context.turn % 4 < 2:
        middle = tensor.select(-1, tensor.shape[-1] // 2)[..., None].clone()
        spread = (tensor[..., -1:] - tensor[..., :1]).clamp_min(1.0) / NORMAL_SPREAD
        tensor.copy_((tensor - middle) / spread)
    others = sorted(uses.compared.get(name, ()))
    dtypes = [context.definition.inputs[other].dtype for other in others]
    narrow = [each for each in dtypes if 8 < each.itemsize_bits < 8 * tensor.element_size()]
    if narrow and context.turn % 2:
        rounded = tensor.to(getattr(torch, narrow[0].value)).to(tensor.dtype)
        least, most = float(tensor.amin()), float(tensor.amax())
        if rule.max is not None:
            least, most = context.number(rule.min), context.number(rule.max)
        rounded = rounded.clamp(least, most) if rounded.isfinite().all() else tensor
        if not rule.unique or bool((rounded.diff(dim=-1) > 0).all()):
            tensor.copy_(rounded)


def _put_limits(
    name: str,
    tensor: torch.Tensor,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Put what elements are compared with into an input, where it may be.

    Integers are clamped to a number now and then, so that it is their greatest or their least, or
    some are what they are compared with.
    Of floating numbers some become such numbers, or elements of another input that has the same
    axes, or else any of it; and, of a range from 0 on, 0 now and then. Of zeros that are sorted,
    half are -0, which is none less than 0.
    """
    rule, uses = context.rules[name], context.uses
    numbers = sorted(uses.limits.get(name, ()))
    if not tensor.numel():
        return
    if uses.calls & SORTING and isinstance(rule, HOLD_ANY) and tensor.element_size() > 1:
        minus = torch.empty_like(tensor, dtype=torch.bool).bernoulli_(
            generator=context.device_random
        )
        tensor.masked_fill_((tensor == 0) & minus, -0.0)
    if _are_places(name, context):
        _make_chains(tensor, context)
    if isinstance(rule, kinds.Integers | kinds.Positions):
        if constraints_on(name, context.definition):
            _clamp(tensor, numbers, rule, context)
        else:
            _put_whole_limits(name, tensor, context, before)
    elif isinstance(rule, HOLD_ANY) and not _stays_as_it_is(tensor, rule, context):
        others = sorted(uses.compared.get(name, set()) & before.keys())
        near = [each for number in numbers for each in _near(number, tensor.dtype)]
        begins_at_0 = isinstance(rule, kinds.Uniform) and rule.min == 0 and not rule.ends
        if begins_at_0 and context.turn % ZERO_OF_RANGE_TURNS == 1:
            near.append(0.0)
        sources: list[Source] = [*near, *((other, before[other]) for other in others)]
        _put(tensor, sources, name, context)
        steps = [step for step in sorted(uses.steps.get(name, ())) if step[0] in before]
        _put_halves(tensor, steps, name, context, before)


def _put_whole_limits(
    name: str,
    tensor: torch.Tensor,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """The same of integers on which there are no constraints."""
    rule, uses = context.rules[name], context.uses
    _make_alike(tensor, rule, context)
    _make_periodic(tensor, rule, context)
    _clamp(tensor, sorted(uses.limits.get(name, ())), rule, context)
    edges = [edge for edge in sorted(uses.edges.get(name, ()), key=str) if edge[0] in before]
    beside = [(other, 1, sign * context.whole(size)) for other, sign, size in edges]
    beside += [
        (other, n, 0) for other, n in sorted(uses.scaled_edges.get(name, ())) if other in before
    ]
    if beside and context.turn % INTEGER_TURNS == 1:
        _put_edges(tensor, beside, name, context, before)
    elif name in uses.equated and context.turn % INTEGER_TURNS == 2:
        _put_scalars(tensor, [before[other] for other, *_ in edges], rule, context)


def _put_near(name: str, tensor: torch.Tensor, context: FillContext) -> None:
    """Put the number that the regime asks for into an input, and what is next to it.

    Where it may be any number of a range, by its rule alone.
    """
    rule = context.rules[name]
    near = near_numbers(context.regime, whole=not tensor.is_floating_point())
    if not near or not tensor.numel() or constraints_on(name, context.definition):
        return
    if tensor.is_floating_point():
        if isinstance(rule, HOLD_ANY) and tensor.element_size() > 1 and abs(near[0]) <= MOST_NEAR:
            both = [sign * number for number in near for sign in (1, -1)]
            _put(tensor, [x for each in both for x in _near(each, tensor.dtype)], name, context)
        return
    is_apart = isinstance(rule, kinds.Indices) and (rule.unique or rule.pad is not None)
    if is_apart or not isinstance(rule, kinds.Integers | kinds.Positions | kinds.Indices):
        return
    limits = torch.iinfo(tensor.dtype)
    numbers = torch.tensor([n for n in near if limits.min <= n <= limits.max], dtype=torch.int64)
    numbers = numbers[context.allows(rule, numbers)]
    if len(numbers):
        put = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
        put.bernoulli_(SHARE, generator=context.device_random)
        put.view(-1)[context.turn % put.numel()] = True
        which = torch.randint(0, len(numbers), tensor.shape, generator=context.host_random)
        values = numbers[which].to(tensor.device)
        tensor.copy_(torch.where(put, values.to(tensor.dtype), tensor))


def _put_special(
    name: str,
    tensor: torch.Tensor,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Put the infinities and NaN that the reference asks for into an input, or doesn't use.

    What a scalar leaves out has NaN.
    """
    rule, uses = context.rules[name], context.uses
    if not tensor.numel():
        return
    if asked := special_values(name, context.definition, uses, rule):
        _put_asked(tensor, asked, name, context, may_be_rows=uses.takes_special_rows(name))
    listed = NOT_FINITE_OF.get(context.regime.get("values", ""), ())
    is_turn = listed or context.shared_turn % SAME_TURNS == 0
    if is_turn and isinstance(rule, kinds.Values) and tensor.element_size() > 1:
        _put_same_special(tensor, listed or asked, name, context, before)
    if may_be_any(name, context.definition, rule):
        _put_unused(tensor, uses.left_out.get(name), context, before)


def _put_unused(
    tensor: torch.Tensor,
    left_out: LeftOut | None,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Put NaN into an input in workloads in which the reference doesn't use it."""
    if left_out is not None and left_out.applies(before[left_out.scalar]):
        put_special_values(cases_of([nan]), context.turn, tensor, context.device_random)


def _make_peaked(tensor: torch.Tensor, context: FillContext) -> None:
    """Make few elements of half the rows count in a softmax, in half of all normal workloads.

    Of n normal numbers few count from a deviation of ``sqrt(2 * ln(n))`` on (Derrida, Random-energy
    model, 1981); of standard ones all do. Half of these rows are multiples of 1/2, as of logits of
    few bits: some are equal, of those that count as well.
    """
    if not _is_normal(context) or not tensor.dim() or context.turn % 2:
        return
    of_rows = tensor.new_empty((*tensor.shape[:-1], 1), dtype=torch.float32)
    sort = of_rows.random_(0, 4, generator=context.device_random)
    peaked = tensor.float() * sqrt(2 * log(max(tensor.shape[-1], 2)))
    peaked = torch.where(sort == 1, _in_halves(peaked), peaked)
    tensor.copy_(torch.where(sort < 2, peaked.to(tensor.dtype), tensor))


def _make_quiet(tensor: torch.Tensor, context: FillContext) -> None:
    """Make a part of a tensor 0 along one of its axes but the last, in a quarter of the workloads.

    As frames of silence at the end of a recording: rows alone are 0 in other workloads.
    """
    if not _may_have_zeros(context) or tensor.dim() < 3 or context.turn % QUIET_TURNS != 1:
        return
    dim = context.turn // QUIET_TURNS % (tensor.dim() - 1)
    n = tensor.shape[dim]
    tensor.narrow(dim, n - n // 3, n // 3).zero_()


def _put_zeros(tensor: torch.Tensor, context: FillContext) -> None:
    """Make an element 0, and one row of a matrix, in one workload of eight, in all inputs the same.

    As of two vectors, of which neither has a direction then.
    """
    if not _may_have_zeros(context) or context.shared_turn % ZERO_TURNS != 5:
        return
    tensor.view(-1)[tensor.numel() // 2] = 0
    if tensor.dim() > 1:
        tensor.flatten(0, -2)[row_count(tensor) // 3] = 0


def _may_have_zeros(context: FillContext) -> bool:
    """Whether the pattern has elements of any size, and the definition allows all to be 0."""
    has_any = context.regime.get("values", "normal") in ANY
    return has_any and "zeros" in value_patterns(context.definition)


def _make_close(
    tensor: torch.Tensor,
    name: str,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Make probabilities close to those of another input of the same shape, now and then.

    As those of a draft are to the target's, a student's to its teacher's: of two that are random,
    the ratios of a few decide alone.
    """
    if context.rules[name].kind != "probabilities" or context.turn % CLOSE_TURNS != 2:
        return
    for other, values in before.items():
        is_alike = context.rules[other].kind == "probabilities"
        if isinstance(values, torch.Tensor) and is_alike and values.shape == tensor.shape:
            noise = torch.empty(tensor.shape, dtype=torch.float32, device=tensor.device)
            noise.normal_(std=CLOSENESS, generator=context.device_random)
            near = values.float() * noise.exp_()
            tensor.copy_(near / near.sum(-1, keepdim=True).clamp_min_(FEWEST))
            return


def _put_picked_first(
    tensor: torch.Tensor,
    name: str,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Make what an index picks of a row its largest element, in half of the rows now and then.

    As labels that are predicted right, and drafted tokens that are likely: others hardly ever are.
    """
    if context.turn % PICKED_TURNS != 1 or tensor.element_size() == 1 or not tensor.numel():
        return
    for other in picking(name, context.definition, context.rules):
        places = before.get(other)
        if not isinstance(places, torch.Tensor) or places.shape != tensor.shape[:-1]:
            continue
        rows, at = tensor.view(-1, tensor.shape[-1]), places.reshape(-1, 1).long()
        chosen = torch.empty(at.shape, dtype=torch.bool, device=tensor.device)
        chosen.bernoulli_(generator=context.device_random)
        chosen &= (at >= 0) & (at < rows.shape[1])
        at = at.clamp(0, rows.shape[1] - 1)
        best = rows.argmax(1, keepdim=True)
        largest, picked = rows.gather(1, best), rows.gather(1, at)
        rows.scatter_(1, best, torch.where(chosen, picked, largest))
        rows.scatter_(1, at, torch.where(chosen, largest, rows.gather(1, at)))


def _put_agreeing(
    tensor: torch.Tensor,
    name: str,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Make most integers those of another input at the same places, now and then.

    As what is predicted, beside what is true. Random labels of several hardly ever agree. Of
    sequences along other axes, as a text and a reference, they are the first ones of a row; or one
    place further from some place on, as where a word is left out.
    """
    is_turn = context.turn % AGREEING_TURNS == 4 and not context.all_alike
    if not is_turn or constraints_on(name, context.definition):
        return
    rule, sources = context.rules[name], AGREEING_WITH.get(context.rules[name].kind, ())
    if isinstance(rule, kinds.Indices) and (rule.unique or rule.pad is not None):
        return
    for other, values in before.items():
        if not isinstance(values, torch.Tensor) or context.rules[other].kind not in sources:
            continue
        if rule.kind == "labels" and (rule != context.rules[other] or values.dtype != tensor.dtype):
            continue  # these are other numbers
        rows = _rows_of_both(tensor, context.axes(name), values, context.axes(other))
        if rows is None:
            continue
        own, others = rows
        if context.axes(other) != context.axes(name) and context.turn // AGREEING_TURNS % 2:
            others = _one_further(others, context)
        may = torch.rand(own.shape, generator=context.host_random) < AGREEING
        may = may.to(tensor.device)
        may &= context.allows(rule, others)
        own.copy_(torch.where(may, others.to(own.dtype), own))
        return


def _rows_of_both(
    own: torch.Tensor, axes: tuple[str, ...], values: torch.Tensor, others: tuple[str, ...]
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The first elements of rows of two tensors whose other axes are the same, as far as both go.

    Or where one has more axes behind these, as several references have for each text.
    """
    if axes == others:
        return own, values
    outer, of_others = axes[:-1], others[:-1]
    if not axes or not others or of_others != outer[: len(of_others)]:
        return None
    if outer and not of_others:
        return None  # all rows would be the same
    width = min(own.shape[-1], values.shape[-1])
    inner = (1,) * (len(outer) - len(of_others))
    values = values[..., :width].reshape(*values.shape[:-1], *inner, width)
    return own[..., :width], values.expand(own[..., :width].shape)


def _one_further(rows: torch.Tensor, context: FillContext) -> torch.Tensor:
    """Rows whose elements are one place further from a place on, where one is there twice."""
    width = rows.shape[-1]
    at = torch.arange(width, device=rows.device)
    begin = int(torch.randint(0, max(width, 1), (), generator=context.host_random))
    return rows[..., torch.where(at > begin, at - 1, at)]


def _make_coarse(tensor: torch.Tensor, context: FillContext) -> None:
    """Make half of the rows multiples of 1/2, in a quarter of all normal workloads.

    So some are equal beside others that are not, the largest and their neighbours as well.
    """
    if not _is_normal(context) or not tensor.dim() or context.turn % 4 != 1:
        return
    is_coarse = tensor.new_empty((*tensor.shape[:-1], 1), dtype=torch.bool)
    is_coarse.bernoulli_(generator=context.device_random)
    if tensor.dim() > 2:
        is_coarse = is_coarse.flatten(1)[:, :1].view(-1, *[1] * (tensor.dim() - 1))
    coarse = _in_halves(tensor.float())
    tensor.copy_(torch.where(is_coarse, coarse.to(tensor.dtype), tensor))


def _make_rising(tensor: torch.Tensor, context: FillContext) -> None:
    """Make some rows rise, others fall, and others rise but for their last element, now and then.

    That is as far below the others as these are large together: what goes back from there goes far.
    """
    is_turn = context.turn % RISING_TURNS == RISING_TURN and _is_normal(context)
    if not is_turn or not tensor.dim() or not tensor.numel() or tensor.element_size() == 1:
        return
    rows = tensor.view(-1, tensor.shape[-1])
    for number in range(RISING_ROWS - 1):
        at = one_of_each(len(rows), number, RISING_ROWS, tensor.device)
        rising = rows[at].sort(-1, descending=number == 1).values
        if number == 0 and bool(rising.isfinite().all()):
            most = torch.finfo(tensor.dtype).max
            rising[:, -1] = -rising.double().abs().sum(-1).clamp_max_(most).to(tensor.dtype)
        rows[at] = rising


def _is_normal(context: FillContext) -> bool:
    return context.regime.get("values", "normal") == "normal"


def _in_halves(values: torch.Tensor) -> torch.Tensor:
    """The nearest multiples of 1/2."""
    return (2 * values).round() / 2


def _put_asked(
    tensor: torch.Tensor,
    asked: Collection[float],
    name: str,
    context: FillContext,
    *,
    may_be_rows: bool,
) -> None:
    """Put infinities and NaN into an input in some workloads, where a reference asks for them.

    No row is all infinite, but of an ``lse`` and where it ``may_be_rows``: what a softmax makes of
    that may be NaN, or not.
    """
    turn, may_be_rows = context.turn // ASKED_TURNS, may_be_rows or is_lse(name)
    cases = [case for case in cases_of(asked) if may_be_rows or "all" not in case.values()]
    if not cases or context.turn % ASKED_TURNS:
        return
    finite = tensor.float() if tensor.element_size() == 1 else tensor.clone()
    special = finite.clone()
    put_special_values(cases, turn, special, context.device_random)
    if not may_be_rows and special.dim():
        is_whole = special.isfinite().any(-1, keepdim=True).logical_not()
        special = torch.where(is_whole, finite, special)
    tensor.copy_(special)


def _put_same_special(
    tensor: torch.Tensor,
    special: Collection[float],
    name: str,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Make some elements the same of these special values that another input has at their places.

    Of two inputs that have such values at random places, both hardly ever have one at the same.
    """
    for other, values in before.items():
        if (
            not isinstance(values, torch.Tensor)
            or not isinstance(context.rules[other], kinds.Values)
            or context.axes(other) != context.axes(name)
            or values.shape != tensor.shape
            or values.element_size() == 1
        ):
            continue
        at = torch.zeros_like(values, dtype=torch.bool)
        for value in special:
            at |= values.isnan() if isnan(value) else values == value
        at &= torch.empty_like(at).bernoulli_(generator=context.device_random)
        put = values.to(tensor.dtype)
        if {inf, -inf} <= {*special}:  # some are opposite ones
            is_same = torch.empty_like(at).bernoulli_(generator=context.device_random)
            put = torch.where(is_same, put, -put)
        tensor.copy_(torch.where(at, put, tensor))


def _stays_as_it_is(tensor: torch.Tensor, rule: InputRule, context: FillContext) -> bool:
    """Whether nothing is put into an input in this workload."""
    is_usual = _is_normal(context) or not isinstance(rule, kinds.Values)
    return tensor.element_size() == 1 or (is_usual and context.turn % USUAL_TURNS == 0)


def _clamp(
    tensor: torch.Tensor, limits: Sequence[float], rule: InputRule, context: FillContext
) -> None:
    count, turn = len(limits), context.turn
    if not count:
        return
    limit, end = limits[turn // INTEGER_TURNS % count], turn // INTEGER_TURNS // count % 2
    if end == 0 and context.round_number % 2:
        limit -= 1  # the last that is below it
    if turn % BELOW_TURNS == 2:  # all are well below it: what is at the limit may be on either side
        limit, end = limit // 2, 0
    elif turn % INTEGER_TURNS:
        return
    if not int(tensor.min()) < limit < int(tensor.max()):
        return
    number = int(limit)
    if bool(context.allows(rule, torch.tensor(number))):
        tensor.clamp_(**{("max", "min")[end]: number})


def _make_alike(tensor: torch.Tensor, rule: InputRule, context: FillContext) -> None:
    """Make all integers 1 in one turn: counts, of which a total is small.

    Where some are put in order, or a largest one is taken, make them a few different ones now and
    then: of keys that are equal, what else counts.
    """
    turns = KEY_TURNS if context.uses.calls & SORTING else 2 * KEY_TURNS
    if context.uses.calls & ORDERING and context.turn % turns == 2:
        few = tensor.reshape(-1)[:FEW_KEYS].clone()
        which = torch.randint(0, len(few), tensor.shape, generator=context.host_random)
        tensor.copy_(few[which.to(tensor.device)])
    are_counts = isinstance(rule, kinds.Integers) and not rule.ends and tensor.element_size() > 1
    if are_counts and context.turn == ONES_TURN and bool(context.allows(rule, torch.tensor(1))):
        tensor.fill_(1)


def _make_periodic(tensor: torch.Tensor, rule: InputRule, context: FillContext) -> None:
    """Make rows of integers repeat their first few, from the start or later on, now and then.

    As text that loops: random numbers hardly ever equal those a few places before. Not those of
    which the ends are asked for, which are settings, one of each row.
    """
    length = tensor.shape[-1] if tensor.dim() else 0
    is_data = not getattr(rule, "ends", False)
    is_turn = is_data and context.turn % PERIODIC_TURNS == PERIODIC_TURN
    if length < LEAST_REPEATED or not is_turn or context.all_alike or context.nearly_alike:
        return
    rows, random = tensor.view(-1, length), context.host_random
    period = torch.randint(1, min(MOST_PERIOD, length // 2) + 1, (len(rows), 1), generator=random)
    begin = torch.randint(-(length // 2), length // 2, (len(rows), 1), generator=random).clamp_min(
        0
    )
    at = torch.arange(length)
    source = torch.where(at < begin, at, begin + (at - begin) % period)
    tensor.copy_(rows.gather(1, source.to(tensor.device)).view(tensor.shape))


def _are_places(name: str, context: FillContext) -> bool:
    """Whether integers of a row are places in that row, of which several may be the same."""
    rule, axes = context.rules[name], context.axes(name)
    if not axes or constraints_on(name, context.definition):
        return False
    if isinstance(rule, kinds.Integers):
        is_from_0 = rule.step == 1 and not isinstance(rule.min, str) and rule.min <= 0
        return is_from_0 and str(rule.max).replace(" ", "") == f"{axes[-1]}-1"
    is_once = isinstance(rule, kinds.Indices) and (rule.unique or rule.pad is not None)
    is_below = isinstance(rule, kinds.Indices | kinds.Positions) and rule.below == axes[-1]
    return is_below and not is_once


def _make_chains(tensor: torch.Tensor, context: FillContext) -> None:
    """Make each integer of a row the place before its own, now and then; in half of the rows most.

    As parents of nodes, and links: of random ones, hardly any is far from the first.
    """
    n = tensor.shape[-1]
    if context.turn % CHAIN_TURNS != CHAIN_TURN or n < 2:
        return
    rows = tensor.view(-1, n)
    before = torch.arange(-1, n - 1, device=tensor.device).expand_as(rows).clone()
    before[:, 0] = rows[:, 0]
    kept = torch.empty(rows.shape, dtype=torch.bool, device=tensor.device)
    kept.bernoulli_(SHARE, generator=context.device_random)
    kept[::2] = False
    rows.copy_(torch.where(kept, rows, before.to(tensor.dtype)))


def _put_edges(
    tensor: torch.Tensor,
    edges: Sequence[tuple[str, int, int]],
    name: str,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Make some integers what they are compared with, or one less or more, if they may be that.

    That is so many times another input's, and so many more.
    """
    rule, number = context.rules[name], context.turn // INTEGER_TURNS
    put = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
    are_most = number % MOST_TURNS == MOST_TURN
    put.bernoulli_(MOST if are_most else SHARE, generator=context.device_random)
    put.view(-1)[context.turn % put.numel()] = True
    other, factor, more = edges[number % len(edges)]
    edge = _values_of((other, before[other]), name, put, context)
    values = (factor * edge + more).expand(int(put.sum())).clone()
    if are_most:
        values[::8] -= 1
    values[context.turn % 3 :: 3] -= 1
    values[(context.turn + 1) % 3 :: 3] += 1
    may = values.isfinite() & context.allows(rule, values)
    tensor[put] = torch.where(may, values.nan_to_num(0.0).to(tensor.dtype), tensor[put])


def _put_scalars(
    tensor: torch.Tensor,
    asked: Sequence[torch.Tensor | float],
    rule: InputRule,
    context: FillContext,
) -> None:
    """Make half of the integers a scalar that they are asked whether they equal: a mask's id, say.

    Or, by turns, an eighth of them. Of many numbers, hardly any would be that one.
    """
    scalars = [each for each in asked if not isinstance(each, torch.Tensor)]
    number = context.turn // INTEGER_TURNS
    value = torch.tensor(scalars[number % len(scalars)]) if scalars else None
    if value is None or not bool(context.allows(rule, value)):
        return
    put = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
    put.bernoulli_(HALF if number % 2 else SHARE, generator=context.device_random)
    tensor.masked_fill_(put, int(value))


def _near(number: float, dtype: torch.dtype) -> list[float]:
    """The number, or what a dtype has below and above where it hasn't that: 3/4 of it, and 3/2."""
    if float(torch.tensor(number, dtype=dtype)) == number:
        return [number]
    return torch.tensor([0.75 * number, 1.5 * number], dtype=dtype).tolist()


def _put(tensor: torch.Tensor, sources: Sequence[Source], name: str, context: FillContext) -> None:
    """Make some elements what they are compared with, and one at least, where they can be that.

    In half of the workloads all of one row of eight are elements of another input: where the
    difference of both is taken, it is 0 there. Not where the definition leaves out zeros.
    """
    if not sources:
        return
    turn, generator = context.turn, context.device_random
    put = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
    put.bernoulli_(SHARE, generator=generator)
    certain = turn % put.numel()
    put.view(-1)[certain] = True
    chosen = torch.zeros_like(put)
    chosen.view(-1)[certain] = True
    number, may_be_zeros = turn // 2 % len(sources), "zeros" in value_patterns(context.definition)
    if tensor.dim() and turn % 2 and isinstance(sources[number], tuple) and may_be_zeros:
        rows, every = row_count(tensor), min(row_count(tensor), 8)
        at = one_of_each(rows, turn // 2 % every, every, tensor.device)
        chosen.view(-1, tensor.shape[-1])[at] = True
        put |= chosen
    elements = tensor[put]
    which = torch.empty_like(elements, dtype=torch.long)
    which.random_(0, len(sources), generator=generator)
    which[chosen[put]] = number
    for place, source in enumerate(sources):
        values = _values_of(source, name, put, context)
        if isinstance(source, tuple) and not isinstance(source[1], torch.Tensor):
            values = values.to(tensor.dtype).double()  # what is next to it, if it isn't one of them
        here = (which == place) & _may_be(values, tensor.dtype, name, context)
        elements = torch.where(here, values.to(tensor.dtype), elements)
    tensor[put] = elements


def _put_halves(
    tensor: torch.Tensor,
    steps: Sequence[tuple[str, bool]],
    name: str,
    context: FillContext,
    before: Mapping[str, torch.Tensor | float],
) -> None:
    """Put some elements halfway between two whole numbers of steps, where a dtype holds that.

    Of steps that are powers of two: those have a reciprocal that gives the same halves.
    """
    if not steps:
        return
    put = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
    put.bernoulli_(SHARE, generator=context.device_random)
    other, is_product = steps[context.turn % len(steps)]
    step = _values_of((other, before[other]), name, put, context).expand(int(put.sum()))
    halves = torch.empty_like(step).random_(-HALVES, HALVES, generator=context.device_random) + 0.5
    values = halves / step if is_product else halves * step
    may = step.frexp().mantissa.abs() == 0.5
    may &= _may_be(values, tensor.dtype, name, context)
    tensor[put] = torch.where(may, values.nan_to_num(0.0).to(tensor.dtype), tensor[put])


def _values_of(source: Source, name: str, put: torch.Tensor, context: FillContext) -> torch.Tensor:
    """A number; or of each place in an input, another's element of the same indices, or any."""
    other, values = source if isinstance(source, tuple) else ("", source)
    if not isinstance(values, torch.Tensor):
        return torch.tensor(values, dtype=torch.float64, device=put.device)
    if not values.numel() or values.element_size() == 1:
        return torch.tensor(nan, dtype=torch.float64, device=put.device)
    beside = _beside(values, context.axes(other), put.shape, context.axes(name), context)
    if beside is not None:
        return beside.expand(put.shape)[put].double()
    any_of_it = torch.empty(int(put.sum()), dtype=torch.long, device=put.device)
    any_of_it.random_(0, values.numel(), generator=context.device_random)
    return values.reshape(-1)[any_of_it].double()


def _beside(
    values: torch.Tensor,
    their_axes: Sequence[str],
    shape: Sequence[int],
    axes: Sequence[str],
    context: FillContext,
) -> torch.Tensor | None:
    """The values of the same index along axes that both have; of others, those of any one index.

    None where no axis is shared, or not in the same order.
    """
    shared = [axis for axis in their_axes if axis in axes]
    if not shared or [axis for axis in axes if axis in shared] != shared:
        return None
    for dim in reversed([dim for dim, axis in enumerate(their_axes) if axis not in axes]):
        at = torch.randint(0, values.shape[dim], (), generator=context.host_random)
        values = values.select(dim, int(at))
    sizes = iter(values.shape)
    values = values.reshape([next(sizes) if axis in shared else 1 for axis in axes])
    fits = all(n in (1, size) for n, size in zip(values.shape, shape, strict=True))
    return values if fits else None


def _may_be(
    values: torch.Tensor, dtype: torch.dtype, name: str, context: FillContext
) -> torch.Tensor:
    """Which numbers are the same in a dtype, and among those that the input may hold."""
    rule = context.rules[name]
    may = (values.to(dtype).double() == values) & values.isfinite()
    pattern = context.regime.get("values", "normal")
    if isinstance(rule, kinds.Uniform):
        may &= (values >= context.number(rule.min)) & (values <= context.number(rule.max))
        # A number of torch.rand is 0 now and then.
        uses = context.uses
        is_safe = name not in uses.divisors and not uses.calls & UNDEFINED_AT_ZERO
        return may if is_safe else may & (values != 0)
    may &= values != 0
    if isinstance(rule, kinds.Values) and pattern not in ANY:
        sign = (pattern in ABOVE) - (pattern in BELOW)
        return may & (values * sign > 0)
    return may
