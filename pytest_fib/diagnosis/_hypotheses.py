"""Hypotheses about inputs: which wrong inputs would explain the outputs?

A kernel that ignores an input, reads it one element too far, stops before its end or walks an axis
in another order writes what the reference computes from an input that is changed in this way.
Floating inputs may become anything; integers only what is valid for any reference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import isclose, isnan, log, nan
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pytest_fib.data import Definition, InputRule, is_unnamed, kinds
from pytest_fib.diagnosis._wrong_output import dimension, vary
from pytest_fib.workloads import TILE_SIZES, bits, dtype_name, once, plan

if TYPE_CHECKING:
    from pytest_fib.diagnosis._wrong_output import Back, CallContext

#: What indices may be read as, in words.
IN_ORDER = "were 0, 1, 2, ..."
#: Kinds of integers that stay valid in another order, or if all equal the first.
_MOVABLE = ("indices", "positions", "permutation", "last_page_len")
#: Floating inputs that may be any numbers.
_ANY = (kinds.Values, kinds.Normal)
#: Kinds of indices, which stay valid if they are halved.
_PICKING = ("indices", "positions", "block_table", "topk_ids")
#: Changes of any floating input, and of scalars only: factors of whole tensors are found by the
#: fits of outputs.
_CHANGES: tuple[tuple[str, Callable[[Any], Any]], ...] = (
    ("were 0", lambda x: 0 * x),
    ("were 1", lambda x: 0 * x + 1),
    ("had lost its signs", abs),
    ("were multiplied by ln 2", lambda x: x * log(2)),
    ("were divided by ln 2", lambda x: x / log(2)),
    ("were negated", lambda x: -x),
)
_OF_NUMBERS: tuple[tuple[str, Callable[[float], float]], ...] = (
    *_CHANGES,
    ("were far larger, or ignored", lambda x: 1000 * x),
    ("were 10 times as large", lambda x: 10 * x),
    ("were a tenth of that", lambda x: x / 10),
    ("were twice as large", lambda x: 2 * x),
    ("were half of that", lambda x: x / 2),
    ("were squared", lambda x: x * x),
    ("were its square root", lambda x: abs(x) ** 0.5),
    # That of an epsilon would hide whatever is divided by it.
    ("were its reciprocal", lambda x: 1 / x if 1 / FAR <= abs(x) <= FAR else x),
)
#: How much of an order is listed.
SHOWN_OF_ORDER = 6
#: The largest scalar whose reciprocal is tried.
FAR = 1000.0
#: The place in its range at which a scalar is tried as well: neither an end nor the middle.
ELSEWHERE = 0.618
#: Sizes of other numbers that are tried, each with either sign: few may be on the same side of a
#: limit by chance.
OTHERS = (1.0, 3.0)
#: How often inputs get other numbers that may be in each other's place.
DRAWS = 4
#: Narrower dtypes that an input may be rounded to on the way.
_NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)


#: Makes values of inputs, and other ones that they are read as, perhaps several times.
Elsewhere: TypeAlias = Callable[[], Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]]

#: Makes other values of an input, with words for each.
Changed: TypeAlias = Callable[[torch.Tensor], Iterator[tuple[str, torch.Tensor]]]


@dataclass(frozen=True)
class InputHypothesis:
    """Other values of some inputs, by name; of size 1 along dimensions of stride 0.

    ``words`` fit after "as if". ``back`` turns an output of the reference, whose axes it is given,
    into what such a kernel writes. ``pattern`` is that of the diagnosis. What is not ``partial``
    explains all that is wrong or nothing: of a few indices, other ones are what they are by chance.
    Where values that it is ``unlike`` explain as much, it says too much.
    ``elsewhere`` makes other values for inputs, and what the hypothesis says that they are read as;
    where it ``shows_elsewhere``, outputs are wrong with these too.
    """

    words: str
    values: Mapping[str, Any]
    back: Back = lambda output, axes: output
    pattern: str = "misread input"
    partial: bool = True
    elsewhere: Elsewhere | None = None
    unlike: Mapping[str, Any] | None = None
    shows_elsewhere: bool = False


def input_hypotheses(
    definition: Definition, inputs: Mapping[str, Any], wrong: Collection[str] = ()
) -> Iterator[InputHypothesis]:
    """The likelier hypotheses first; ``wrong`` names the wrong outputs, if not all are."""
    scalars = {n: x for n, x in inputs.items() if not isinstance(x, torch.Tensor)}
    tensors = {n: once(x) for n, x in inputs.items() if isinstance(x, torch.Tensor) and x.numel()}
    planned, last = plan(definition), _last_axes(definition)
    rules = planned.rules
    for name, number in scalars.items():
        is_fixed = name in planned.constrained
        yield from _of_a_scalar(name, number, rules, scalars, last, is_fixed=is_fixed)
    picks = _other_picks(tensors, rules)
    for make in (_values, _moved):
        for name, tensor in tensors.items():
            axes = definition.inputs[name].shape or ()
            changed = partial(make, axes=axes, rule=rules[name], definition=definition)
            for words, value in changed(tensor):
                is_partial = tensor.is_floating_point()
                read = {name: value}
                elsewhere: Elsewhere | None = None
                if make is _moved and picks and is_partial:
                    elsewhere = partial(_both, picks, {**picks, **read})
                elif isinstance(rules[name], _ANY):
                    elsewhere = partial(_of_other_numbers, name, tensor, words, changed)
                unlike = {name: value.flip(0)} if words == IN_ORDER else None  # any will do
                yield InputHypothesis(
                    f"{name} {words}", read, partial=is_partial, elsewhere=elsewhere, unlike=unlike
                )
    yield from _rounded(tensors)
    yield from _exchanged({**scalars, **tensors}, rules)
    yield from _interleaved(definition, tensors)
    yield from _cut_short(definition, tensors, wrong or definition.outputs)


def _of_other_numbers(
    name: str, tensor: torch.Tensor, words: str, changed: Changed
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The same of numbers of either sign: of zeros, or of ones, much is so by chance.

    So it is of numbers that hardly matter, such as what only a limit is compared with.
    """
    generator = torch.Generator(tensor.device).manual_seed(len(words))
    for size in OTHERS:
        wide = torch.empty_like(tensor, dtype=torch.float64).normal_(0, size, generator=generator)
        for other in (wide.to(tensor.dtype), (-wide).to(tensor.dtype)):
            yield {name: other}, {name: dict(changed(other))[words]}


def _of_a_scalar(
    name: str,
    number: float,
    rules: Mapping[str, InputRule],
    scalars: Mapping[str, float],
    axes: Mapping[str, int],
    *,
    is_fixed: bool,
) -> Iterator[InputHypothesis]:
    """Hypotheses with ``elsewhere``, since a scalar may be 0 or 1 by chance.

    So may another scalar that it is confused with; that one gets another value too. An integer that
    ``is_fixed`` by constraints may be no other.
    """
    other = another_number(rules[name])
    changed = {} if isnan(other) else dict(_numbers(other, axes))
    for words, value in _numbers(number, axes):
        alike = {
            n: another_number(rules[n]) for n, x in scalars.items() if n != name and x == value
        }
        others = {n: x for n, x in alike.items() if not isnan(x)}
        elsewhere = ({name: other}, {name: changed[words]}) if words in changed else ({}, {})
        moved, read_as = ({**each, **others} for each in elsewhere)
        shown: Elsewhere | None = None
        if isinstance(number, int) and not is_fixed:
            shown = partial(_of_other_integers, name, number, value, rules[name])
        elif moved:
            shown = partial(_both, moved, {name: value, **read_as})
        # Where an integer is an index, what is wrong there is so as if it were any other.
        is_partial = not isinstance(number, int)
        yield InputHypothesis(f"{name} {words}", {name: value}, partial=is_partial, elsewhere=shown)


def _of_other_integers(
    name: str, number: int, value: float, rule: InputRule
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Smaller numbers that the scalar may be: of what is cut off by one, it may be any."""
    if not (isinstance(rule, kinds.Integers) and isinstance(rule.min, int)):
        return
    step = rule.step if isinstance(rule.step, int) else 1
    for other in sorted({1, 2, 3, number // 2}):
        is_step = (other - rule.min) % step == 0
        if rule.min <= other < number and other != value and is_step:
            yield {name: other}, {name: value}


def _both(
    moved: Mapping[str, Any], read_as: Mapping[str, Any]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    return [(moved, read_as)]


def another_number(rule: InputRule) -> float:
    """Another number for a scalar; NaN if its rule has no range."""
    ends = (rule.min, rule.max) if isinstance(rule, kinds.Uniform) else (None, None)
    low, high = (end if isinstance(end, (int, float)) else nan for end in ends)
    return low + ELSEWHERE * (high - low)


def _other_picks(
    tensors: Mapping[str, torch.Tensor], rules: Mapping[str, InputRule]
) -> dict[str, torch.Tensor]:
    """Other valid indices: reads at a single index show no order."""
    return {
        name: torch.where(x > 0, x // 2, x)
        for name, x in tensors.items()
        if rules[name].kind in _PICKING and not getattr(rules[name], "unique", False)
    }


def hypothetical_outputs(
    context: CallContext, wrong: Collection[str]
) -> Iterator[tuple[InputHypothesis, Mapping[str, torch.Tensor]]]:
    """Each hypothesis, and the outputs that a kernel would write if it held."""
    if context.definition is None or context.reference_outputs is None:
        return
    axes = {name: spec.shape or () for name, spec in context.definition.outputs.items()}
    for hypothesis in input_hypotheses(context.definition, context.inputs, wrong):
        outputs = context.reference_outputs(hypothesis.values)
        if outputs is not None:
            yield hypothesis, {n: hypothesis.back(x, axes[n]) for n, x in outputs.items()}


def _last_axes(definition: Definition) -> dict[str, int]:
    """The constant axes that inputs end in: softmax scales are computed from them."""
    ends = [spec.shape[-1] for spec in definition.inputs.values() if spec.shape]
    return {axis: definition.const_axes[axis] for axis in ends if axis in definition.const_axes}


def _numbers(number: float, axes: Mapping[str, int]) -> Iterator[tuple[str, float]]:
    if isinstance(number, int):
        if not isinstance(number, bool):
            yield "were 0", 0  # others need not be valid
        return
    for words, change in _OF_NUMBERS:
        yield words, change(number)
    for names in (*combinations(axes, 1), *combinations(axes, 2)):
        root = sum(axes[name] for name in names) ** -0.5
        if number > 0 and not isclose(root, number, rel_tol=1e-3):
            yield f"were 1 / sqrt({' + '.join(names)})", root


def _values(
    x: torch.Tensor, axes: Sequence[str], rule: InputRule, definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if not x.is_floating_point():
        yield from _integers(x, rule, definition)
        return
    if x.dtype is torch.float4_e2m1fn_x2:
        pairs = x.view(torch.uint8)
        yield "had its nibbles swapped", ((pairs >> 4) | (pairs << 4)).view(x.dtype)
        yield "had lost its signs", (pairs & 0x77).view(x.dtype)
        return
    for words, change in _CHANGES:
        yield words, change(x.double()).to(x.dtype)


def _integers(
    x: torch.Tensor, rule: InputRule, definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(rule, kinds.LastPageLen):
        page = rule.page_size
        size = definition.const_axes.get(page) if isinstance(page, str) else page
        if size is not None:
            yield "were the page size", torch.full_like(x, size)
    if rule.kind in ("indices", "positions", "permutation") and x.dim() == 1 and len(x) > 2:
        in_order = torch.arange(len(x), device=x.device, dtype=x.dtype)
        yield IN_ORDER, in_order.clamp(max=int(x.max()))


def _moved(
    x: torch.Tensor, axes: Sequence[str], rule: InputRule, definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if not x.is_floating_point() and rule.kind not in _MOVABLE:
        return
    for dim, (size, axis) in enumerate(zip(x.shape, axes, strict=False)):
        of_two = not x.is_floating_point() and axis in definition.var_axes
        if size < 2 or (size == 2 and of_two):
            continue  # two indices may agree with anything
        for words, order in _orders(size, is_const=axis not in definition.var_axes):
            yield words.format(dimension(axis, dim)), _along(x, dim, order)
    for i, j in combinations(range(x.dim()), 2):
        if x.shape[i] == x.shape[j] > 1:
            yield f"were transposed ({axes[i]}, {axes[j]})", x.transpose(i, j).contiguous()


def _orders(size: int, *, is_const: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Other orders of an axis; one that may be longer shows only then whether it is reversed."""
    order = torch.arange(size)
    yield "repeated its first entry along {}", torch.zeros_like(order)
    if size > 2 or is_const:
        yield "were reversed along {}", order.flip(0)
    if size > 2:
        yield "were shifted by +1 along {}", order.roll(1)
        yield "were shifted by -1 along {}", order.roll(-1)
    if size > 2 and size % 2 == 0:
        yield "had the halves of {} swapped", order.roll(size // 2)
        # Pairs for halves, as in the two conventions of rotary embeddings.
        pairs = order.view(2, -1).T.flatten()
        yield "had the halves of {} interleaved", pairs
        yield "had {} interleaved, not in halves", pairs.argsort()


def _along(x: torch.Tensor, dim: int, order: torch.Tensor) -> torch.Tensor:
    return bits(x).index_select(dim, order.to(x.device)).view(x.dtype)


def _rounded(tensors: Mapping[str, torch.Tensor]) -> Iterator[InputHypothesis]:
    """Each wide input in a narrower dtype, and all of them.

    What is wrong by nothing else is right where inputs are such numbers as they come.
    """
    wide = {n: x for n, x in tensors.items() if x.is_floating_point() and x.element_size() > 1}
    for dtype in _NARROW:
        wider = {name: x for name, x in wide.items() if x.dtype is not dtype}
        for names in (tuple(wider), *((name,) for name in wider if len(wider) > 1)):
            values = {name: _as_rounded(wider[name], dtype) for name in names}
            held = partial(_held_by, dtype, {name: wider[name] for name in names})
            of_which = "all inputs" if len(names) > 1 else "".join(names)
            if names:
                words = f"{of_which} were rounded to {dtype_name(dtype)}"
                yield InputHypothesis(words, values, pattern="lower precision", elsewhere=held)


def _as_rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Rounded to a dtype; infinities stay what they are, though it may have none."""
    return torch.where(x.isfinite(), x.to(dtype).to(x.dtype), x)


def _held_by(
    dtype: torch.dtype, tensors: Mapping[str, torch.Tensor]
) -> list[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """The numbers nearest to these that a dtype holds; they are finite if these are."""
    held = {}
    for name, x in tensors.items():
        most = min(torch.finfo(dtype).max, torch.finfo(x.dtype).max)
        held[name] = torch.where(x.isfinite(), x.clamp(-most, most), x).to(dtype).to(x.dtype)
    return [(held, held)]


def _exchanged(
    inputs: Mapping[str, Any], rules: Mapping[str, InputRule]
) -> Iterator[InputHypothesis]:
    """One input in place of another like it, or both in each other's."""
    for (one, x), (other, y) in combinations(inputs.items(), 2):
        if _float_kind(x) != _float_kind(y) or _float_kind(x) is None:
            continue
        is_known = all(_has_range(rules[name]) for name in (one, other))
        for words, of in (
            (f"{one} were {other}", {one: other}),
            (f"{other} were {one}", {other: one}),
            (f"{one} and {other} were swapped", {one: other, other: one}),
        ):
            both = {one: x, other: y}
            elsewhere = partial(_other_pairs, both, rules, of) if is_known else None
            values = {name: inputs[its] for name, its in of.items()}
            yield InputHypothesis(words, values, elsewhere=elsewhere, shows_elsewhere=True)


def _other_pairs(
    both: Mapping[str, Any], rules: Mapping[str, InputRule], of: Mapping[str, str]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Other numbers of two inputs, and those of them that are in the other's place."""
    for draw in range(DRAWS):
        moved = {
            name: _other_numbers(value, rules[name], 2 * draw + number)
            for number, (name, value) in enumerate(both.items(), 1)
        }
        yield moved, {name: moved[its] for name, its in of.items()}


def _has_range(rule: InputRule) -> bool:
    return isinstance(rule, _ANY) or not isnan(another_number(rule))


def _other_numbers(value: Any, rule: InputRule, draw: int) -> Any:
    """Other numbers of an input's range, others for each draw."""
    low, high = (rule.min, rule.max) if isinstance(rule, kinds.Uniform) else (1.0, 2.0)
    assert not isinstance(low, str)
    assert not isinstance(high, str)
    if not isinstance(value, torch.Tensor):
        return low + (high - low) * (ELSEWHERE * draw % 1.0)
    generator = torch.Generator(value.device).manual_seed(draw)
    between = torch.empty_like(value, dtype=torch.float32).uniform_(0.1, 0.9, generator=generator)
    return (low + (high - low) * between).to(value.dtype)


def _float_kind(x: Any) -> Any:
    """The common kind of floating inputs that may be exchanged; None for others."""
    if isinstance(x, torch.Tensor):
        return (x.shape, x.dtype) if x.is_floating_point() else None
    return float if isinstance(x, float) else None


def _interleaved(
    definition: Definition, tensors: Mapping[str, torch.Tensor]
) -> Iterator[InputHypothesis]:
    """An interleaved axis: heads that share a key, or the pairs of a rotary embedding.

    Such a kernel writes what the reference computes from the axis in another order, in that order.
    """
    constants = definition.const_axes
    for axis in dict.fromkeys(a for spec in definition.outputs.values() for a in spec.shape or ()):
        size = constants.get(axis, 0)
        for length in sorted({n for n in (size, *constants.values()) if 3 < n <= size})[::-1]:
            sizes = {2, *(n for n in constants.values() if n > 1)}
            for distance in sorted({n for s in sizes if length % s == 0 for n in (s, length // s)}):
                if 1 < distance < length:
                    yield _counted(definition, tensors, axis, length, distance)


def _counted(
    definition: Definition,
    tensors: Mapping[str, torch.Tensor],
    axis: str,
    length: int,
    distance: int,
) -> InputHypothesis:
    """Says that neighbours in the first ``length`` of an axis are ``distance`` apart."""
    size = definition.const_axes[axis]
    order = torch.arange(size)
    order[:length] = order[:length].view(-1, distance).T.flatten()
    values = {
        name: _ordered(x, definition.inputs[name].shape or (), axis=axis, order=order)
        for name, x in tensors.items()
        if axis in (definition.inputs[name].shape or ())
    }
    whole = f"a dimension of {size}" if is_unnamed(axis) else axis
    counted = whole if length == size else f"the first {length} of {whole}"
    listed = ", ".join(map(str, order[:SHOWN_OF_ORDER].tolist()))
    more = ", ..." if size > SHOWN_OF_ORDER else ""
    words = f"{counted} came in the order {listed}{more}, in inputs and outputs alike"
    back = partial(_ordered, axis=axis, order=order.argsort())
    return InputHypothesis(words, values, back, partial=False)


def _ordered(x: torch.Tensor, axes: Sequence[str], axis: str, order: torch.Tensor) -> torch.Tensor:
    for dim, (size, name) in enumerate(zip(x.shape, axes, strict=False)):
        if name == axis and size == len(order):
            x = _along(x, dim, order)
    return x


def _cut_short(
    definition: Definition, tensors: Mapping[str, torch.Tensor], wrong: Collection[str]
) -> Iterator[InputHypothesis]:
    """Sums that leave out the end of an axis, by the first of the inputs that share it.

    Of whole numbers by each, since some have a zero of their own. Of an input that is one number,
    as where values are ones, much looks so by chance; with others, such sums are wrong as well.
    """
    covered = {axis for name in wrong for axis in definition.outputs[name].shape or ()}
    rules = plan(definition).rules
    axes = [
        (name, x, dim, axis)
        for name, x in tensors.items()
        if x.dtype is not torch.float4_e2m1fn_x2
        and (x.is_floating_point() or isinstance(rules[name], kinds.Integers))
        and vary(bits(x))
        for dim, axis in enumerate(definition.inputs[name].shape or ())
    ]
    for name, x, dim, axis in axes:
        if axis in covered:
            continue
        if x.is_floating_point():
            covered.add(axis)
        size, nothing = x.shape[dim], x.clone()
        bits(nothing).zero_()
        for count in sorted({1, *TILE_SIZES, *(size % tile for tile in TILE_SIZES)}):
            if 0 < count < size:
                whole = x.clone()
                bits(whole).narrow(dim, size - count, count).zero_()
                last = "one" if count == 1 else str(count)
                words = f"{name} were 0 at the last {last} of {size} along {dimension(axis, dim)}"
                yield InputHypothesis(words, {name: whole}, unlike={name: nothing})
