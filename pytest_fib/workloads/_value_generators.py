"""Generators of values: random numbers whose bits don't shape the work, and tables of angles.

Each fills a contiguous tensor in place. What is bulk is made where the tensor lies, so it differs
between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, inf, log2, prod
from typing import TYPE_CHECKING

import torch

from pytest_fib.data import kinds
from pytest_fib.workloads._places import filled_lengths, in_turn, one_of_each, places, whose_turn
from pytest_fib.workloads._sizes import MOST_OF_LENGTHS, TILE_SIZES, TURNS, power_of_two
from pytest_fib.workloads._value_patterns import Limits, PatternFill, pattern_fill

if TYPE_CHECKING:
    from pytest_fib.workloads._tensors import Fill, FillContext


def _fill_floating(tensor: torch.Tensor, fill: Callable[[torch.Tensor], object]) -> None:
    """Fill by a function that needs arithmetic; 8-bit dtypes have none, so they are rounded to."""
    if tensor.element_size() > 1:
        fill(tensor)
        return
    wide = tensor.new_empty(tensor.shape, dtype=torch.float32)
    fill(wide)
    limit = torch.finfo(tensor.dtype).max
    infinite = wide.isinf() & (tensor.dtype is torch.float8_e5m2)
    tensor.copy_(wide.where(infinite, wide.clamp(-limit, limit)))


def _values(tensor: torch.Tensor, rule: kinds.Values, context: FillContext) -> None:
    limits = _limits(tensor.dtype, context)
    _fill_floating(tensor, lambda t: _pattern(context)(t, context.device_random, limits))


def _sorted(tensor: torch.Tensor, rule: kinds.Sorted, context: FillContext) -> None:
    fill = _ascending if rule.unique else _never_falling
    fill(tensor, rule, context)
    if rule.pad is not None:
        at = torch.arange(tensor.shape[-1], device=tensor.device)
        lengths = filled_lengths(tensor.shape, context.host_random).to(tensor.device)
        tensor.masked_fill_(at >= lengths, context.number(rule.pad))


def _never_falling(tensor: torch.Tensor, rule: kinds.Sorted, context: FillContext) -> None:
    if not tensor.dtype.is_floating_point:
        most: int | float | str = 1 if tensor.dtype is torch.bool else SORTED_INTEGERS
        most = most if rule.max is None else rule.max
        _integers(tensor, kinds.Integers(min=rule.min, max=most), context)
    elif rule.max is None:
        _values(tensor, kinds.Values(), context)
    else:
        _uniform(tensor, kinds.Uniform(min=rule.min, max=rule.max), context)
    if tensor.dtype.is_floating_point:
        tensor.nan_to_num_(0.0, inf, -inf)  # beside NaN, nothing is in order
    tensor.copy_(tensor.sort(-1).values)


def _ascending(tensor: torch.Tensor, rule: kinds.Sorted, context: FillContext) -> None:
    """Make each of a row larger than the one before it."""
    length, low = tensor.shape[-1], context.number(rule.min)
    if tensor.dtype.is_floating_point:
        largest = min(float(length), torch.finfo(tensor.dtype).max)
        high = largest if rule.max is None else context.number(rule.max)
        gaps = torch.empty(tensor.shape, dtype=torch.float64, device=tensor.device)
        gaps.uniform_(0.125, 1, generator=context.device_random)
        share = gaps.cumsum(-1)
        if context.turn % 2:  # in others, the first is a gap above the least
            share.sub_(gaps[..., :1])
        share.div_(gaps.sum(-1, keepdim=True) + gaps[..., :1])
        tensor.copy_(low + (high - low) * share)
        return
    most_held = 1 if tensor.dtype is torch.bool else torch.iinfo(tensor.dtype).max
    largest = min(length + SORTED_INTEGERS, most_held)
    high = largest if rule.max is None else context.number(rule.max)
    # In order and each as much larger as there are before it: all are different, and in the range.
    most = max(int(high) - max(length - 1, 0), int(low))
    wide = torch.empty(tensor.shape, dtype=torch.int64, device=tensor.device)
    _integers(wide, kinds.Integers(min=int(low), max=most), context)
    steps = torch.arange(length, device=tensor.device)
    tensor.copy_(wide.sort(-1).values + steps)


def _limits(dtype: torch.dtype, context: FillContext) -> Limits:
    """Those of the dtype; of inputs that are as large as can be in float32, one alone leads.

    Products of two have squares then, and sums of these, whichever way they are summed.
    """
    info = torch.finfo(dtype)
    largest = min(context.top, info.max) if info.max > HALF_MAX else info.max
    return Limits(float(largest), float(info.tiny), str(info.dtype))


def _pattern(context: FillContext) -> PatternFill:
    return pattern_fill(context.regime.get("values", "normal"), context.turn)


def _one_of_eight(tensor: torch.Tensor, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of a tensor, and which of them: one of eight, another one for each number."""
    rows = tensor.view(-1, tensor.shape[-1])
    return rows, one_of_each(len(rows), number % 8, 8, tensor.device)


def _normal(tensor: torch.Tensor, rule: kinds.Normal, context: FillContext) -> None:
    mean, std = context.number(rule.mean), context.number(rule.std)

    def fill(wide: torch.Tensor) -> None:
        wide.normal_(mean, std, generator=context.device_random)
        _with_extremes_at_ends(wide, context.turn)
        if abs(mean) < std:
            _with_rows_of_one_sign(wide, context.turn)

    _fill_floating(tensor, fill)


def _uniform(tensor: torch.Tensor, rule: kinds.Uniform, context: FillContext) -> None:
    low, high = context.number(rule.min), context.number(rule.max)

    def fill(wide: torch.Tensor) -> None:
        wide.uniform_(low, high, generator=context.device_random)
        _with_extremes_at_ends(wide, context.turn)
        _with_few_values(wide, context.turn, low, high)
        _with_rows_at_ends(wide, context.turn, low, high)
        if low == 0:
            faint = max(FAINT, 4 * torch.finfo(tensor.dtype).tiny)  # which stays positive
            _with_faint_rows(wide, context.shared_turn, faint)
            if context.regime.get("values") == "small" and context.turn % 2:
                wide.mul_(faint)  # as of a state that began with such values

    _fill_floating(tensor, fill)
    _put_whole_numbers(tensor, context, low, high)
    _put_rows_of_zeros(tensor, context, low, high)
    if rule.ends:
        _put_ends(tensor, context, low, high)
    _with_equal_rows(tensor, context.turn + 2, goes_on=False)
    _put_zeros(tensor, context, low, high)
    put_sentinels(tensor, rule.sentinels, context)


def put_sentinels(
    tensor: torch.Tensor, sentinels: Sequence[float] | None, context: FillContext
) -> None:
    """Put numbers that stand for nothing where the rows' names say, any of them."""
    if not sentinels:
        return
    if context.turn == LONE_INDEX_TURN and tensor.numel():
        at = torch.ones_like(tensor, dtype=torch.bool)
        at.view(-1)[context.round_number % at.numel()] = False
    else:
        rows = in_turn(tensor, SENTINEL_ROWS, context.turn)
        at = places(tensor, rows, context.device_random)
    which = torch.randint(0, len(sentinels), tensor.shape, generator=context.host_random)
    wide = torch.float64 if tensor.is_floating_point() else torch.int64
    chosen = torch.tensor(sentinels, dtype=wide)[which].to(tensor.device, tensor.dtype)
    tensor.copy_(torch.where(at, chosen, tensor))


def _put_whole_numbers(tensor: torch.Tensor, context: FillContext, low: float, high: float) -> None:
    """Make one element of sixteen whole in a range of several: coordinates on an edge."""
    least, most = ceil(low), floor(high)
    if most - least >= LEAST_WHOLE and tensor.element_size() > 1:
        some = torch.rand(tensor.shape, generator=context.host_random) < 1 / 16
        some = some.to(tensor.device)
        tensor[some] = tensor[some].round().clamp(least, most)


def _with_few_values(tensor: torch.Tensor, turn: int, low: float, high: float) -> None:
    """Make one row of eight of a few different numbers within the limits: numbers that tie."""
    if tensor.dim() and tensor.numel():
        rows, at = _one_of_eight(tensor, 1 - turn)
        step = (high - low) / FEW_VALUES
        which = rows[at].sub_(low).div_(step or 1.0).floor_().clamp_(0, FEW_VALUES - 1)
        rows[at] = which.add_(0.5).mul_(step).add_(low)


def _with_rows_at_ends(tensor: torch.Tensor, turn: int, low: float, high: float) -> None:
    """Make one row of eight of numbers near the least, another of those near the largest.

    By chance, no long row is: of a bias, all are negative there.
    """
    if tensor.dim() and tensor.numel():
        for number, end in ((3 - turn, low), (5 - turn, high)):
            rows, at = _one_of_eight(tensor, number)
            near = rows[at].mul_(NEAR_AN_END).add_((1 - NEAR_AN_END) * end)
            rows[at] = near.clamp_(low, high)


def _with_rows_of_one_sign(tensor: torch.Tensor, turn: int) -> None:
    """Make one row of eight negative, and another positive."""
    if tensor.dim() and tensor.numel():
        for number, sign in ((3 - turn, -1), (5 - turn, 1)):
            rows, at = _one_of_eight(tensor, number)
            rows[at] = rows[at].abs_().mul_(sign)


def _with_faint_rows(tensor: torch.Tensor, turn: int, faint: float) -> None:
    """Make those of one row of eight near to 0, the same row of each input.

    So of a second moment, an epsilon shows that is added in the wrong place.
    """
    if tensor.dim() and tensor.numel():
        rows, at = _one_of_eight(tensor, 6 - turn)
        rows[at] *= faint


def _integers(tensor: torch.Tensor, rule: kinds.Integers, context: FillContext) -> None:
    steps = context.steps(rule)
    if steps.are_all:
        _fill_integers(tensor, rule, context, *steps.ends)
    else:
        # There may be more steps than the dtype has whole numbers.
        wide = torch.float64 if tensor.is_floating_point() else torch.int64
        numbers = torch.empty_like(tensor, dtype=wide)
        _fill_integers(numbers, rule, context, *steps.ends)
        tensor.copy_(numbers.mul_(steps.size).add_(steps.base))
    put_sentinels(tensor, rule.sentinels, context)


def _fill_integers(
    tensor: torch.Tensor, rule: kinds.Integers, context: FillContext, low: int, high: int
) -> None:
    if rule.ends:
        _draw(tensor, low, high, context)
        if high - low > FEW_NUMBERS:
            small = _small_numbers(tensor, context.shared_turn, low, high, context)
            is_small = torch.empty_like(tensor, dtype=torch.bool)
            is_small.bernoulli_(generator=context.device_random)
            tensor.copy_(torch.where(is_small, small, tensor))
        _put_whole_tiles(tensor, context, low, high)
        _put_ends(tensor, context, low, high)
    else:
        _whole_numbers(tensor, context, low, high)
        if context.turn == NOTHING_TURN and low <= 0 <= high:
            tensor.zero_()  # as zero points that a kernel takes for none


def _draw(tensor: torch.Tensor, low: int, high: int, context: FillContext) -> None:
    """Any of the whole numbers between two, both included; up to the last that int64 has."""
    end = None if high == MOST_OF_ALL else high + 1
    tensor.random_(low, end, generator=context.device_random)


def _whole_numbers(tensor: torch.Tensor, context: FillContext, low: int, high: int) -> None:
    """Any of them; rows of equal ones, of the same as other inputs have, of close ones, of ends."""
    _draw(tensor, low, high, context)
    if tensor.numel() == 1:
        _put_alone(tensor, context.turn, low, high)
    _put_whole_tiles(tensor, context, low, high)
    _put_powers(tensor, context, low, high)
    _with_small_rows(tensor, context, low, high)
    goes_on = high - low > FEW_NUMBERS and context.turn % 2 == 0
    _with_equal_rows(_with_extremes_at_ends(tensor, context.turn), context.turn, goes_on=goes_on)
    if high - low < FEW_NUMBERS:
        _with_shared_rows(tensor, context.shared_turn, low, high)
    if high - low > CLOSE_NUMBERS**2:
        _with_close_rows(tensor, context, high)
        _put_landmarks(tensor, context.turn, low, high)
    if (low, high) in BYTES:
        _with_rows_of_marks(tensor, context, low, high)
        _with_flat_blocks(tensor, context.turn, low)
        _with_blocks_of_two(tensor, context, low, high)
    _with_all_at_ends(tensor, context.turn, low, high)
    if context.all_alike and tensor.numel():
        tensor.fill_(tensor.view(-1)[context.turn % tensor.numel()].clone())
    elif context.nearly_alike and tensor.numel() > 2 and tensor.dim():
        _make_nearly_alike(tensor, context.turn)


def _make_nearly_alike(tensor: torch.Tensor, turn: int) -> None:
    """Make all numbers of each row one number but for one: of counts, one is far the largest."""
    rows = tensor.view(-1, tensor.shape[-1])
    place = turn % rows.shape[1]
    alone = rows[:, place].clone()
    rows[:] = rows[:, place - 1 : place] if place else rows[:, -1:]
    rows[:, place] = alone


def _put_alone(tensor: torch.Tensor, turn: int, low: int, high: int) -> None:
    """Make a single number one of those where things change, in half of the workloads."""
    marks = sorted({mark for mark in (low, low + 1, 0, 1, high - 1, high) if low <= mark <= high})
    if turn % (2 * len(marks)) < len(marks):
        tensor.fill_(marks[turn % len(marks)])


def _put_whole_tiles(tensor: torch.Tensor, context: FillContext, low: int, high: int) -> None:
    """Put what whole tiles hold, or one more or less, into some elements: they may be lengths.

    Into a quarter of a vector's; of other tensors, which are more likely data, fewer.
    """
    tiles = torch.tensor([tile for tile in TILE_SIZES[1:] if tile <= high])
    if not len(tiles) or tensor.element_size() < LENGTH_BYTES:
        return
    host = context.host_random
    some = torch.rand(tensor.shape, generator=host) < (0.25 if tensor.dim() < 2 else 0.0625)
    tile = tiles[torch.randint(0, len(tiles), (int(some.sum()),), generator=host)]
    most = min(high, MOST_OF_LENGTHS) // tile
    count = ((most + 1) ** torch.rand(len(tile), generator=host)).long().clamp(min=1)
    near = torch.tensor([0, 0, -1, 1])[torch.randint(0, 4, (len(tile),), generator=host)]
    numbers = (tile * count + near).clamp(low, high)
    tensor[some.to(tensor.device)] = numbers.to(tensor)


def _put_powers(tensor: torch.Tensor, context: FillContext, low: int, high: int) -> None:
    """Put powers of two of any size, or one more or less, into some elements of a wide range.

    A logarithm rounds there, and a narrower number ends there.
    """
    if high < LEAST_POWERS:
        return
    host = context.host_random
    some = torch.rand(tensor.shape, generator=host) < SHARE_OF_POWERS
    count = int(some.sum())
    power = 2 ** torch.randint(2, high.bit_length(), (count,), generator=host)
    sign = torch.randint(0, 2, (count,), generator=host) * 2 - 1 if low < 0 else 1
    near = torch.randint(-1, 2, (count,), generator=host)
    tensor[some.to(tensor.device)] = (sign * power + near).clamp(low, high).to(tensor)


def _with_small_rows(tensor: torch.Tensor, context: FillContext, low: int, high: int) -> None:
    """Make those of one row of eight small, the same row of each input.

    Of a wide range, numbers at random are hardly small, and hardly 0 in two inputs at once. A
    vector's elements belong to rows, unless all of it is small.
    """
    if tensor.dim() and tensor.numel() and high - low > FEW_NUMBERS:
        turn = context.shared_turn
        is_of_rows = tensor.dim() == 1 and (4 - turn) % 8 > 0
        rows, at = _one_of_eight(tensor[:, None] if is_of_rows else tensor, 4 - turn)
        rows[at] = _small_numbers(rows[at], turn // 8, low, high, context)


def _small_numbers(
    like: torch.Tensor, turn: int, low: int, high: int, context: FillContext
) -> torch.Tensor:
    """Integers around 0, or from what is next to that, up to a few more."""
    nearest, reach = min(max(low, 0), high), SMALL_NUMBERS[turn % len(SMALL_NUMBERS)]
    least, most = max(nearest - reach, low), min(nearest + reach, high)
    return torch.empty_like(like).random_(least, most + 1, generator=context.device_random)


def _with_all_at_ends(tensor: torch.Tensor, turn: int, low: int, high: int) -> None:
    """Make all of one row the most there may be, of another the least: sums as large as they get.

    Of three rows of equal numbers, these are two. Of three axes or more all that is at one index of
    the first is such a row; there are few, so it is one of eight.
    """
    if tensor.dim() and tensor.numel():
        few = tensor.dim() > 2
        rows, every = (tensor.flatten(1), 8) if few else (tensor.view(-1, tensor.shape[-1]), 24)
        for number, end in ((1 - turn, high), ((5 if few else 9) - turn, low)):
            rows[one_of_each(len(rows), number % every, every, tensor.device)] = end


def _one_of(tensor: torch.Tensor, rule: kinds.OneOf, context: FillContext) -> None:
    """As numbers that count them are: each in its turn in a scalar, and equal ones in rows."""
    which = torch.empty_like(tensor, dtype=torch.int64)
    _whole_numbers(which, context, 0, len(rule.values) - 1)
    values = torch.tensor(sorted(rule.values), dtype=tensor.dtype, device=tensor.device)
    tensor.copy_(values[which])


def _labels(tensor: torch.Tensor, rule: kinds.Labels, context: FillContext) -> None:
    """In half of the workloads others stand for 0, 1, ..., in each input the same.

    What compares half of their bits then finds them equal, or what compares a byte, or as many as
    the significand of a floating number has. In a quarter, some are negative, if they may be.
    """
    most = context.whole(rule.count) - 1
    _whole_numbers(tensor, context, 0, most)
    turn, bits = context.shared_turn, 8 * tensor.element_size()
    room = bits - 1 - most.bit_length()
    if turn % 8 in LABELS_BELOW_ZERO_TURNS and tensor.dtype.is_signed:
        tensor.sub_(most // 2 + 1)
    if turn % 2 and room > 0:
        # Not each third of these turns the same: in some all of a vector are equal.
        case = (turn // 2 + turn // 8 + context.round_number) % len(LABEL_SHIFTS)
        shift = min(LABEL_SHIFTS[case](bits), room)
        if case < len(LABEL_SHIFTS) - 1:
            tensor.bitwise_left_shift_(shift)
        else:
            tensor.add_(1 << shift)


def _with_extremes_at_ends(tensor: torch.Tensor, turn: int) -> torch.Tensor:
    """The same; in half of the rows the first or the last is the only one of the largest or least.

    What is left out of a row at an end hardly shows unless much depends on it.
    """
    if not tensor.dim() or not tensor.numel():
        return tensor
    for number, (extreme, other, end) in enumerate(EXTREMES_AT_ENDS):
        rows, at = _one_of_eight(tensor, 2 * number - turn)
        some = rows[at]
        value = extreme(some, dim=-1, keepdim=True)
        is_extreme = some == value
        next_to_it = extreme(
            torch.where(is_extreme, other(some, dim=-1, keepdim=True), some), dim=-1, keepdim=True
        )
        some = torch.where(is_extreme, next_to_it, some)
        some[:, end] = value[:, 0]
        rows[at] = some
    return tensor


def _with_equal_rows(tensor: torch.Tensor, turn: int, *, goes_on: bool) -> None:
    """Make all of a row the same, in one row of eight: ties, and sums that meet a limit exactly.

    If it ``goes_on``, with the end of the row before, for what goes on from row to row.
    """
    if tensor.dim() and tensor.numel():
        rows, at = _one_of_eight(tensor, 1 - turn)
        rows[at] = rows[at, :1].expand(-1, rows.shape[1])
        if goes_on:
            at = at[at > 0]
            rows[at - 1, -1] = rows[at, 0]


def _with_shared_rows(tensor: torch.Tensor, turn: int, low: int, high: int) -> None:
    """Make all of one row of sixteen the same number, in each input of such numbers.

    So of two that are compared all are equal there, as drafts are that are all accepted.
    """
    if tensor.dim() and tensor.numel():
        rows = tensor.view(-1, tensor.shape[-1])
        at = one_of_each(len(rows), (5 - turn) % 16, 16, tensor.device)
        rows[at] = low + turn % (high + 1 - low)


def _with_close_rows(tensor: torch.Tensor, context: FillContext, high: int) -> None:
    """Make those of one row of eight differ in their last bits alone, by which they are in order.

    Some are equal; of all there may be, numbers at random hardly have the first half in common.
    """
    if tensor.dim() and tensor.numel():
        rows, at = _one_of_eight(tensor, 3 - context.turn)
        some = rows[at]
        more = torch.empty_like(some).random_(0, CLOSE_NUMBERS, generator=context.device_random)
        rows[at] = (some[:, :1].clamp(max=high - CLOSE_NUMBERS) + more).clamp(max=high)


def _with_rows_of_marks(tensor: torch.Tensor, context: FillContext, low: int, high: int) -> None:
    """Make those of one row of eight the numbers at the ends, and at a change of the leading bit.

    Of bytes that are put together to numbers, these make the largest and the least.
    """
    if tensor.dim() and tensor.numel():
        rows, at = _one_of_eight(tensor, 7 - context.turn)
        marks = torch.tensor([low, low + 1, low + 127, low + 128, high - 1, high])
        which = torch.randint(0, len(marks), rows[at].shape, generator=context.host_random)
        rows[at] = marks[which].to(tensor)


def _with_flat_blocks(tensor: torch.Tensor, turn: int, low: int) -> None:
    """Make all of one block of eight what lies in the middle, where an image is grey, or beside."""
    if tensor.dim() > 2 and tensor.numel():
        rows, at = tensor.flatten(1), one_of_each(len(tensor), (3 - turn) % 8, 8, tensor.device)
        rows[at] = low + 127 + turn // 8


def _with_blocks_of_two(tensor: torch.Tensor, context: FillContext, low: int, high: int) -> None:
    """Make all of one block of eight the least or the most, as an image that is a mask."""
    if tensor.dim() > 2 and tensor.numel():
        rows = tensor.flatten(1)
        at = one_of_each(len(rows), (7 - context.turn) % 8, 8, tensor.device)
        is_most = torch.empty_like(rows[at], dtype=torch.bool)
        is_most.bernoulli_(generator=context.device_random)
        rows[at] = torch.where(is_most, high, low).to(tensor.dtype)


def _put_landmarks(tensor: torch.Tensor, turn: int, low: int, high: int) -> None:
    """Put the least and the most there may be, and 0 with what is beside it, into rows of eight.

    Of so many numbers, few are drawn; what has no absolute value, no logarithm or no sign is.
    """
    if not tensor.dim() or not tensor.numel():
        return
    marks = torch.tensor([mark for mark in (low, 0, high, -1, 1) if low <= mark <= high])
    marks = marks.roll(turn // 8).to(tensor)
    n = min(len(marks), tensor.shape[-1])
    at = (torch.arange(n, device=tensor.device) + turn) % tensor.shape[-1]
    for first in (5, 7):
        rows, some = _one_of_eight(tensor, first - turn)
        rows[some[:, None], at] = marks[:n]


def _put_ends(tensor: torch.Tensor, context: FillContext, low: float, high: float) -> None:
    """Make a quarter of the elements the least there may be, a quarter the most.

    Of three or more, and often of two, one is the least and one the most: random choices are tested
    by the few rows of one workload. Of several rows, one of eight stays as it is: what goes on from
    element to element, and ends at 0, is seen to go on there.
    """
    choice = torch.randint(0, 4, tensor.shape, generator=context.host_random)
    if (n := choice.numel()) > int(torch.randint(1, 3, (), generator=context.host_random)):
        first = torch.randint(0, n, (), generator=context.host_random)
        other = (first + torch.randint(1, n, (), generator=context.host_random)) % n
        choice.view(-1)[torch.stack((first, other))] = torch.tensor([0, 1])
    if tensor.dim() > 1 and n >= ROWS_WITH_ENDS * tensor.shape[-1]:
        rows, at = _one_of_eight(choice, 5 - context.turn)
        rows[at] = 3
    choice = choice.to(tensor.device)
    wide = tensor.float() if tensor.element_size() == 1 else tensor  # these can't be filled
    tensor.copy_(wide.masked_fill(choice == 0, low).masked_fill(choice == 1, high))
    _put_zeros(tensor, context, low, high)


def _put_zeros(tensor: torch.Tensor, context: FillContext, low: float, high: float) -> None:
    """Make all 0 where other values are, if they may: so states begin, and maxima may be 0."""
    if context.regime.get("values") == "zeros" and low <= 0 <= high:
        tensor.zero_()


def _put_rows_of_zeros(tensor: torch.Tensor, context: FillContext, low: float, high: float) -> None:
    """Make one row of eight 0 in a workload of four: it has no length and no direction then."""
    if context.turn % ZERO_ROWS == ZERO_ROWS - 1 and low < 0 < high and tensor.dim() > 1:
        rows, at = _one_of_eight(tensor, 7 - context.turn)
        rows[at] = 0


def _boolean(tensor: torch.Tensor, rule: kinds.Boolean, context: FillContext) -> None:
    if rule.total is not None:
        _exactly(tensor, context.whole(rule.total), context)
        return
    p = context.number(rule.p)
    tensor.bernoulli_(p, generator=context.device_random)
    if not 0 < p < 1 or not tensor.numel():
        return
    if p >= RARE or context.turn % 4 != RARE_TURN:
        _put_rows(tensor, BOOLEAN_ROWS, context)
    if context.turn in LONE_FLAG_TURNS:
        # In all, or in each of several planes: much is far from it.
        planes = tensor.zero_().view(-1, prod(tensor.shape[-2:]))
        planes = planes if context.turn != LONE_FLAG_TURNS[0] else planes.view(1, -1)
        first = context.round_number + torch.arange(len(planes), device=tensor.device) * APART
        planes.scatter_(1, (first % planes.shape[1])[:, None], 1)


def _exactly(tensor: torch.Tensor, count: int, context: FillContext) -> None:
    """Make that many elements 1, the others 0: the first, the last, a contiguous run, or any."""
    tensor.zero_()
    left = tensor.numel() - count
    firsts = (0, left, int(torch.randint(0, left + 1, (), generator=context.host_random)))
    if (way := context.turn % 4) < len(firsts):
        tensor.view(-1)[firsts[way] : firsts[way] + count] = 1
    else:
        at = torch.randperm(tensor.numel(), generator=context.host_random)[:count]
        tensor.view(-1)[at.to(tensor.device)] = 1


def _put_rows(tensor: torch.Tensor, names: Sequence[str], context: FillContext) -> None:
    """Make 1 what the names say of each row in turn, and the rest 0; "" leaves a row as it is.

    In two turns of all rows alike: what is counted over several is none then, or all.
    """
    names = ALIKE.get(context.turn, ("all",) if context.all_alike else names)
    rows = in_turn(tensor, [name or "none" for name in names], context.turn)
    ones = places(tensor, rows, context.device_random).to(tensor.dtype)
    put = torch.tensor([bool(name) for name in names], device=tensor.device)
    put = put[whose_turn(tensor, len(names), context.turn)]
    tensor.copy_(
        torch.where(put.view(*tensor.shape[:-1], 1) if tensor.dim() else put[0], ones, tensor)
    )


def _mask(tensor: torch.Tensor, rule: kinds.Mask, context: FillContext) -> None:
    counts = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
    counts.bernoulli_(generator=context.device_random)
    _put_rows(counts, MASK_ROWS, context)
    if not rule.allow_empty:
        one = places(counts, in_turn(counts, ["one"], 0), context.device_random)
        counts |= one & ~counts.any(-1, keepdim=True)
    if tensor.is_floating_point():
        tensor.zero_().masked_fill_(~counts, -inf)
    else:
        tensor.copy_(counts)


def _l2_normalized(tensor: torch.Tensor, rule: kinds.L2Normalized, context: FillContext) -> None:
    wide = tensor.new_empty(tensor.shape, dtype=torch.float32)
    wide.normal_(generator=context.device_random)
    tensor.copy_(torch.nn.functional.normalize(wide, dim=-1))


def _probabilities(tensor: torch.Tensor, rule: kinds.Probabilities, context: FillContext) -> None:
    """Ones make them all equal; large values leave one token, and zeros for the others.

    Now and then half of a row is that of its last few tokens: so much lies in the last block then.
    """
    logits = _wide_values(tensor, context)
    shares = (logits * context.number(rule.sharpness)).softmax(dim=-1)
    length = tensor.shape[-1]
    if context.turn % LATE_TURNS == 1 and length > 1:
        few = 1 + context.turn // LATE_TURNS % max(length // 8, 1)
        is_late = torch.empty_like(shares[..., :1]).bernoulli_(generator=context.device_random)
        shares.mul_(1 - is_late / 2)
        shares[..., -few:] += is_late / (2 * few)
    tensor.copy_(shares)


def _scales(tensor: torch.Tensor, rule: kinds.Scales, context: FillContext) -> None:
    ends = context.number(rule.min), context.number(rule.max)
    low, high = map(log2, ends)

    def fill(wide: torch.Tensor) -> None:
        wide.uniform_(low, high, generator=context.device_random)
        if ceil(low) <= floor(high):  # some are powers of two: 1 too, if that is one of them
            is_whole = torch.empty_like(wide).bernoulli_(0.25, generator=context.device_random)
            whole = wide.round().clamp_(ceil(low), floor(high))
            wide.copy_(torch.where(is_whole == 1, whole, wide))
        wide.exp2_()
        if rule.signed:
            signs = torch.empty_like(wide).bernoulli_(generator=context.device_random)
            wide.mul_(signs.mul_(2).sub_(1))
        end = ends[context.turn % 4 == 3]  # as of a loss scale that can't grow any more
        is_held = ends[0] <= float(torch.tensor(end, dtype=tensor.dtype)) <= ends[1]
        if wide.numel() and context.turn % 2 and is_held:
            at = wide.view(-1)[context.turn // 4 % wide.numel()]
            at.copy_(torch.copysign(torch.full_like(at, end), at))

    _fill_floating(tensor, fill)


def _quantized(tensor: torch.Tensor, rule: kinds.Quantized, context: FillContext) -> None:
    """Only a block of zeros stays as it is. The last one of a row may be shorter."""
    limit = torch.finfo(tensor.dtype).max
    wide = _wide_values(tensor, context)
    for block in torch.split(wide, context.whole(rule.block), dim=-1):
        largest = block.abs().amax(dim=-1, keepdim=True)
        block.div_(largest.where(largest > 0, 1)).mul_(limit)
    tensor.copy_(wide.clamp_(-limit, limit))


def _wide_values(tensor: torch.Tensor, context: FillContext) -> torch.Tensor:
    """The value pattern's values in float32, for a tensor of this shape."""
    wide = tensor.new_empty(tensor.shape, dtype=torch.float32)
    _pattern(context)(wide, context.device_random, _limits(torch.float32, context))
    return wide


def _fp4(tensor: torch.Tensor, rule: kinds.Fp4, context: FillContext) -> None:
    """Every bit pattern is a number."""
    tensor.view(torch.uint8).random_(0, 256, generator=context.device_random)


def _fp8_pages(tensor: torch.Tensor, rule: kinds.Fp8Pages, context: FillContext) -> None:
    """Of a page's bytes the last 4 * page_size are one scale > 0 a token; the rest are values."""
    pages = tensor.view(torch.uint8).reshape(tensor.shape[0], -1)
    bytes_of_scales = 4 * tensor.shape[1]
    values = pages.new_empty((len(pages), pages.shape[1] - bytes_of_scales), dtype=torch.float32)
    values.normal_(0.0, 64.0, generator=context.device_random).clamp_(-448, 448)
    scales = pages.new_empty((len(pages), tensor.shape[1]), dtype=torch.float32)
    scales.uniform_(-10.0, -4.0, generator=context.device_random).exp2_()
    encoded = values.to(torch.float8_e4m3fn).view(torch.uint8)
    tensor.copy_(
        torch.cat((encoded, scales.view(torch.uint8)), dim=1).view(tensor.dtype).view(tensor.shape)
    )


def _cos_sin_cache(tensor: torch.Tensor, rule: kinds.CosSinCache, context: FillContext) -> None:
    angles = _angles(tensor, tensor.shape[1], context.number(rule.base))
    tensor.copy_(torch.cat((angles.cos(), angles.sin()), dim=-1))


def _cos(tensor: torch.Tensor, rule: kinds.Cos, context: FillContext) -> None:
    tensor.copy_(_rows_of_angles(tensor, rule, context).cos())


def _sin(tensor: torch.Tensor, rule: kinds.Sin, context: FillContext) -> None:
    tensor.copy_(_rows_of_angles(tensor, rule, context).sin())


def _rows_of_angles(
    tensor: torch.Tensor, rule: kinds.Cos | kinds.Sin, context: FillContext
) -> torch.Tensor:
    width = tensor.shape[-1]
    angles = _angles(tensor, width * (1 if rule.twice else 2), context.number(rule.base))
    return angles.repeat(1, 2)[:, :width] if rule.twice else angles


def _angles(tensor: torch.Tensor, dim: int, base: float) -> torch.Tensor:
    """Rotary angles as in RoPE (Su et al. 2021): [positions, one for two of ``dim``], float64."""
    where = tensor.device
    exponents = torch.arange(0, dim, 2, dtype=torch.float64, device=where) / dim
    positions = torch.arange(tensor.shape[-2], dtype=torch.float64, device=where)
    return torch.outer(positions, base**-exponents)


def _router_logits(tensor: torch.Tensor, rule: kinds.RouterLogits, context: FillContext) -> None:
    """Now and then all rows rank the experts alike, so that a few experts get all tokens.

    In one workload of four all logits are negative, of 16 bits if they are up to 256.

    In float32, the n sigmoids of a row lie 1 / (4 n N) or more apart, where N is the least power of
    two from n on; also when multiples of 1 / N, which bfloat16 holds exactly, are added to them as
    a bias. In 16 bits, the logits of up to 512 experts lie 1 / 32 or more apart.
    """
    ranked = torch.rand(tensor.shape, generator=context.host_random)
    if torch.rand((), generator=context.host_random) < 0.25:
        ranked[:] = ranked[:1].clone()
    few_bits, ranks = tensor.element_size() < 4, ranked.argsort(dim=-1)
    step = 1.0 if few_bits else FAR_STEP
    if rule.far and context.turn % 8 == FAR_TURN and ranks.shape[-1] * step <= FAR_LOGIT:
        last = step * (ranks.shape[-1] - 1)
        above = FAR_LOGIT if context.turn < TURNS // 2 else -FAR_LOGIT - last
        tensor.copy_(ranks * step + above)
    elif rule.low and context.turn % 8 == FAR_TURN and (step := _low_step(tensor)):
        n = ranks.shape[-1]
        logits, is_best = ranks * step + LOW_LOGIT, ranks == n - 1
        logits.view(-1, n)[1::2].masked_fill_(is_best.view(-1, n)[1::2], FAR_LOGIT)
        tensor.copy_(logits)
    else:
        tensor.copy_((_logits_apart if few_bits else _scores_apart)(ranks, context))
    if rule.ties and context.turn % 8 == TIES_TURN:
        rows, at = _one_of_eight(tensor, context.turn // 8)
        rows[at] = 0.0


def _low_step(tensor: torch.Tensor) -> float:
    """The step between low logits; 0 where there are more than the dtype holds.

    Numbers from 8 to 16 are 8 times as far apart as those from 1 to 2.
    """
    n = tensor.shape[-1]
    step = max(LOW_SPAN / n, 8 * torch.finfo(tensor.dtype).eps)
    return step if step * n <= 2 * LOW_SPAN else 0.0


def _are_negative(context: FillContext) -> bool:
    return context.turn % 4 == 3


def _scores_apart(ranks: torch.Tensor, context: FillContext) -> torch.Tensor:
    """Scores in units of 1 / N: a whole number, and a fraction that tells the experts apart."""
    n, most = ranks.shape[-1], 0.5 if _are_negative(context) else 1.0
    jitter = torch.rand(ranks.shape, dtype=torch.float64, generator=context.host_random)
    scores = (ranks + (torch.arange(n) + 0.25 + 0.5 * jitter) / n) / power_of_two(n)
    return (most * scores).logit()


def _logits_apart(ranks: torch.Tensor, context: FillContext) -> torch.Tensor:
    """Logits in equal steps from -8 to 8, or to 0 if there are enough; the same in each row."""
    n = ranks.shape[-1]
    steps = max(512, power_of_two(n))
    most = steps // 2 if _are_negative(context) and 2 * n <= steps else steps
    drawn = torch.randperm(most, generator=context.host_random)[:n].sort().values
    return drawn[ranks] * (16 / steps) - 8


#: Which extreme of a row is put at which end of it, where one is; and the other one.
EXTREMES_AT_ENDS = (
    (torch.amax, torch.amin, -1),
    (torch.amin, torch.amax, 0),
    (torch.amax, torch.amin, 0),
    (torch.amin, torch.amax, -1),
)
#: Of so many workloads, one has rows of probabilities of which half is late.
LATE_TURNS = 4
#: The largest number of float16; what float8 holds is below that.
HALF_MAX = 65504.0
#: Over how many integers those are spread that are close together.
CLOSE_NUMBERS = 12
#: The largest of sorted integers, if nothing says so.
SORTED_INTEGERS = 100
#: How many different numbers a row of uniform ones has that tie; and how large those near to 0 are.
FEW_VALUES, FAINT = 4, 2.0**-30
#: How much of their range those take that are near one of its ends.
NEAR_AN_END = 0.125
#: The largest number of int64.
MOST_OF_ALL = 2**63 - 1
#: The least range that has powers of two of many sizes; and how many elements are near to one.
LEAST_POWERS, SHARE_OF_POWERS = 1 << 20, 1 / 16
#: How far from 0 logits are that exponentials overflow of, or underflow; their steps in float32;
#: and the turns of eight in which they are so far, and in which those of some rows are equal.
FAR_LOGIT, FAR_STEP, FAR_TURN, TIES_TURN = 128.0, 0.25, 5, 1
#: Sigmoids of the least are 5e-5, and sums of a few such are off by 1e-4 with an epsilon of 1e-6;
#: how far the largest is above, at least.
LOW_LOGIT, LOW_SPAN = -10.0, 3.0
#: Integers that may be lengths have so many bytes, at least.
LENGTH_BYTES = 4
#: The most that small integers are, in turn.
SMALL_NUMBERS = (3, 15, 255)
#: The turns of eight in which some labels are below 0.
LABELS_BELOW_ZERO_TURNS = (2, 4)
#: The turns in which one flag alone is true: of all first, then of each plane. And how much further
#: the next plane's is.
LONE_FLAG_TURNS, APART = (10, 13, 20), 7
#: Flags of which fewer are true are so by chance alone, without whole rows, in one turn of four.
RARE, RARE_TURN = 1 / 16, 3
#: The turn in which all integers of an input are 0, and those of others most likely not.
NOTHING_TURN = 20
#: In one of so many turns, rows of numbers of both signs are 0.
ZERO_ROWS = 4
#: Of fewer, two that are drawn are often equal.
FEW_NUMBERS = 16
#: Rows of which one may be without the ends.
ROWS_WITH_ENDS = 4
#: The least range of which some numbers are whole; and the ranges of all that a byte holds.
LEAST_WHOLE, BYTES = 2, ((0, 255), (-128, 127))
#: By how many bits labels are moved up; the last, how many an equal part above them has.
LABEL_SHIFTS: Sequence[Callable[[int], int]] = (
    lambda bits: bits // 2,
    lambda bits: 8,
    lambda bits: {32: 26, 64: 55}.get(bits, 12),
)
#: By kind.
VALUE_FILLS: dict[str, Fill] = {
    "values": _values,
    "sorted": _sorted,
    "normal": _normal,
    "uniform": _uniform,
    "integers": _integers,
    "one_of": _one_of,
    "labels": _labels,
    "boolean": _boolean,
    "mask": _mask,
    "l2_normalized": _l2_normalized,
    "probabilities": _probabilities,
    "router_logits": _router_logits,
    "scales": _scales,
    "quantized": _quantized,
    "fp4": _fp4,
    "fp8_pages": _fp8_pages,
    "cos_sin_cache": _cos_sin_cache,
    "cos": _cos,
    "sin": _sin,
}
#: The turn in which all indices but one are sentinels: a mean over the others is of one element.
LONE_INDEX_TURN = 17
#: Where rows have sentinels.
SENTINEL_ROWS = (
    "some", "none", "last", "none", "first", "some", "start", "none", "one", "all", "end", "none",
)  # fmt: skip
#: What is true in rows of booleans: at random, or as said.
BOOLEAN_ROWS = ("", "all", "", "none", "", "start", "", "last", "", "first", "", "end")
#: What is true in all rows, by the turn: in others, the lists here leave a single row as it is.
ALIKE: Mapping[int, Sequence[str]] = {4: ("none",), 16: ("all",)}
#: What counts in rows of a mask.
MASK_ROWS = ("", "start", "none", "first", "", "all", "end", "last", "", "start", "one", "all")
