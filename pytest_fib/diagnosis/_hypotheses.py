"""Hypotheses about inputs: which wrong ones would explain what a kernel wrote?

A kernel that ignores an input, reads it one element too far, stops before its end or walks an axis
in another order writes what the reference computes from an input that is changed accordingly.
Floating inputs may become anything; integers only what is valid for any reference.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import isclose, log, prod
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import Definition, InputRule, kinds
from pytest_fib.workloads import TILE_SIZES, bits, once, plan

if TYPE_CHECKING:
    from pytest_fib.diagnosis._wrong_output import CallContext

#: Kinds of integers that stay valid in another order, and when the first stands for all.
_MOVABLE = ("indices", "positions", "permutation", "last_page_len")
#: Mistakes that change a number.
_FACTORS = (
    (10.0, "10 times as large"),
    (0.1, "a tenth of that"),
    (0.01, "a hundredth of that"),
    (2.0, "twice as large"),
    (0.5, "half of that"),
    (log(2), "multiplied by ln 2"),
    (1 / log(2), "divided by ln 2"),
    (-1.0, "negative"),
)
#: How much larger a number is that limits nothing.
FAR = 1e4
#: Narrower dtypes that an input may be rounded to on the way.
_NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)


@dataclass(frozen=True)
class InputHypothesis:
    """Other values of some inputs, by name; of size 1 along dimensions of stride 0.

    ``words`` fit after "as if". ``back`` turns an output of the reference, whose axes it is given,
    into what such a kernel writes. ``pattern`` is that of the diagnosis. What is not ``partial``
    explains all that is wrong or nothing: of a few indices, other ones are what they are by chance.
    """

    words: str
    values: Mapping[str, Any]
    back: Callable[[torch.Tensor, Sequence[str]], torch.Tensor] = lambda output, axes: output
    pattern: str = "misread input"
    partial: bool = True


def input_hypotheses(
    definition: Definition, inputs: Mapping[str, Any], wrong: Collection[str] = ()
) -> Iterator[InputHypothesis]:
    """The likelier hypotheses first; ``wrong`` names the wrong outputs, if not all are."""
    scalars = {n: x for n, x in inputs.items() if not isinstance(x, torch.Tensor)}
    tensors = {n: once(x) for n, x in inputs.items() if isinstance(x, torch.Tensor) and x.numel()}
    rules = plan(definition).rules
    for name, number in scalars.items():
        for words, other in _numbers(number, _last_axes(definition), rules[name]):
            yield InputHypothesis(f"{name} {words}", {name: other})
    for (one, x), (two, y) in combinations(scalars.items(), 2):
        if isinstance(x, float) and isinstance(y, float) and x != y:
            yield InputHypothesis(f"{one} and {two} were swapped", {one: y, two: x})
    for make in (_values, _moved):
        for name, tensor in tensors.items():
            axes = definition.inputs[name].shape or ()
            for words, value in make(tensor, axes, rules[name], definition):
                partial = tensor.is_floating_point()
                yield InputHypothesis(f"{name} {words}", {name: value}, partial=partial)
    yield from _sentinels(definition, tensors, rules)
    yield from _last_of_ties(definition, tensors, rules, wrong or definition.outputs)
    yield from _rounded(tensors)
    yield from _exchanged(tensors)
    yield from _interleaved(definition, tensors)
    counted = {n: x for n, x in tensors.items() if _may_be_zero(x, rules[n])}
    yield from _cut_short(definition, counted, wrong or definition.outputs)


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


def _numbers(
    number: float, axes: Mapping[str, int], rule: InputRule
) -> Iterator[tuple[str, float]]:
    if isinstance(number, int):
        yield from _whole_numbers(number, rule)
        return
    yield "were 0", 0.0
    yield "were 1", 1.0
    yield "were far larger", FAR * number  # a limit that is not kept, or kept at another number
    for factor, what in _FACTORS:
        yield f"were {what}", number * factor
    for axis, size in axes.items():
        yield f"were divided by {axis}", number / size
        yield f"were multiplied by {axis}", number * size
    yield "were squared", number * number
    if number > 0:
        yield "were its square root", number**0.5
    if number != 0:
        yield "were its reciprocal", 1 / number
    for names in (*combinations(axes, 1), *combinations(axes, 2)):
        root = sum(axes[name] for name in names) ** -0.5
        if number > 0 and not isclose(root, number, rel_tol=1e-3):
            yield f"were 1 / sqrt({' + '.join(names)})", root


def _whole_numbers(number: int, rule: InputRule) -> Iterator[tuple[str, int]]:
    if isinstance(number, bool):
        return
    yield "were 0", 0
    limits = (rule.min, rule.max) if isinstance(rule, kinds.Integers) else (1, 0)
    if any(isinstance(limit, str) for limit in limits):
        return
    for words, other in (("one more", number + 1), ("one less", number - 1)):
        if float(limits[0]) <= other <= float(limits[1]):
            yield f"were {words}", other


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
    wide = x.double()
    yield "were 0", torch.zeros_like(wide).to(x.dtype)
    yield "were 1", torch.ones_like(wide).to(x.dtype)
    yield "had lost its signs", wide.abs().to(x.dtype)
    for factor, what in _FACTORS[5:]:  # other ones are seen by what elements have in common
        yield f"were {what}", (factor * wide).to(x.dtype)


def _integers(
    x: torch.Tensor, rule: InputRule, definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if x.dtype is torch.bool:
        yield "were inverted", ~x
        yield "were True everywhere", torch.ones_like(x)
        yield "were False everywhere", torch.zeros_like(x)
        return
    if isinstance(rule, kinds.LastPageLen):
        page = rule.page_size
        size = definition.const_axes.get(page) if isinstance(page, str) else page
        if size is not None:
            yield "were the page size", torch.full_like(x, size)
    if rule.kind in ("indices", "positions", "permutation") and x.dim() == 1 and len(x) > 2:
        in_order = torch.arange(len(x), device=x.device, dtype=x.dtype)
        yield "were 0, 1, 2, ...", in_order.clamp(max=int(x.max()))
    if rule.kind == "positions":
        yield "were one more", (x + 1).clamp(max=int(x.max()))
        yield "were one less", (x - 1).clamp(min=0)


def _moved(
    x: torch.Tensor, axes: Sequence[str], rule: InputRule, definition: Definition
) -> Iterator[tuple[str, torch.Tensor]]:
    if not x.is_floating_point() and rule.kind not in _MOVABLE:
        return
    whole = bits(x)
    for dim, (size, axis) in enumerate(zip(x.shape, axes, strict=False)):
        of_two = not x.is_floating_point() and axis in definition.var_axes
        if size < 2 or (size == 2 and of_two):
            continue  # of two indices, anything may be
        first = whole.narrow(dim, 0, 1).expand_as(whole).contiguous()
        yield f"repeated its first entry along {axis}", first.view(x.dtype)
        if size == 2:
            yield f"had its two entries along {axis} swapped", whole.flip(dim).view(x.dtype)
            continue
        yield f"were reversed along {axis}", whole.flip(dim).view(x.dtype)
        yield f"were shifted by +1 along {axis}", whole.roll(1, dim).view(x.dtype)
        yield f"were shifted by -1 along {axis}", whole.roll(-1, dim).view(x.dtype)
        if size % 2 == 0:
            halves = whole.roll(size // 2, dim)
            yield f"had the halves of {axis} swapped", halves.view(x.dtype)
            # Pairs for halves, as in the two conventions of rotary embeddings.
            order = torch.arange(size, device=x.device).view(2, -1).T.flatten()
            pairs = whole.index_select(dim, order)
            yield f"had the halves of {axis} interleaved", pairs.view(x.dtype)
            halved = whole.index_select(dim, order.argsort())
            yield f"had {axis} interleaved, not in halves", halved.view(x.dtype)
    for i, j in combinations(range(x.dim()), 2):
        if x.shape[i] == x.shape[j] > 1:
            yield f"were transposed ({axes[i]}, {axes[j]})", x.transpose(i, j).contiguous()


def _sentinels(
    definition: Definition, tensors: Mapping[str, torch.Tensor], rules: Mapping[str, InputRule]
) -> Iterator[InputHypothesis]:
    """Indices below 0, which stand for nothing, that are taken for others."""
    sizes = dict(definition.const_axes)
    for name, x in tensors.items():
        sizes.update(zip(definition.inputs[name].shape or (), x.shape, strict=False))
    for name, x in tensors.items():
        rule = rules[name]
        if not isinstance(rule, kinds.Indices) or not bool((x < 0).any()):
            continue
        factors = [part.strip() for part in str(rule.below).split("*")]
        counts = [sizes.get(part) or (int(part) if part.isdigit() else 0) for part in factors]
        which = f"{name} below 0"
        if below := prod(counts):
            last = torch.where(x < 0, below - 1, x)
            yield InputHypothesis(f"{which} were the last there is", {name: last}, partial=False)
        yield InputHypothesis(f"{which} were 0", {name: x.clamp(min=0)}, partial=False)


def _last_of_ties(
    definition: Definition,
    tensors: Mapping[str, torch.Tensor],
    rules: Mapping[str, InputRule],
    wrong: Collection[str],
) -> Iterator[InputHypothesis]:
    """Of equal values along an axis the last is chosen, and not the first."""
    if any(definition.outputs[name].dtype.is_floating for name in wrong):
        return
    shapes = {name: definition.inputs[name].shape or () for name in tensors}
    for axis in dict.fromkeys(axis for shape in shapes.values() for axis in shape):
        having = [name for name, shape in shapes.items() if axis in shape]
        if not all(_is_free(tensors[name], rules[name]) for name in having):
            continue
        dims = {name: shapes[name].index(axis) for name in having}
        values = {name: bits(tensors[name]).flip(dim) for name, dim in dims.items()}
        size = tensors[having[0]].shape[dims[having[0]]]
        yield InputHypothesis(
            f"the last of equal ones along {axis} were taken, not the first",
            {name: value.view(tensors[name].dtype) for name, value in values.items()},
            partial(_counted_back, size=size),
            partial=False,
        )


def _is_free(x: torch.Tensor, rule: InputRule) -> bool:
    """Whether elements may be in any order."""
    if x.is_floating_point():
        return x.dtype is not torch.float4_e2m1fn_x2
    return isinstance(rule, (kinds.Integers, kinds.Boolean))


def _counted_back(output: torch.Tensor, axes: Sequence[str], size: int) -> torch.Tensor:
    """Indices from the other end; those below 0 stand for nothing."""
    if output.is_floating_point() or output.dtype is torch.bool:
        return output
    return torch.where(output < 0, output, size - 1 - output)


def _rounded(tensors: Mapping[str, torch.Tensor]) -> Iterator[InputHypothesis]:
    """Each wide input in a narrower dtype, and all of them."""
    wide = {n: x for n, x in tensors.items() if x.is_floating_point() and x.element_size() > 1}
    for dtype in _NARROW:
        values = {name: x.to(dtype).to(x.dtype) for name, x in wide.items() if x.dtype is not dtype}
        words = f"rounded to {str(dtype).removeprefix('torch.')}"
        if len(values) > 1:
            yield InputHypothesis(f"all inputs were {words}", values, pattern="lower precision")
        for name, value in values.items():
            each = {name: value}
            yield InputHypothesis(f"{name} were {words}", each, pattern="lower precision")


def _exchanged(tensors: Mapping[str, torch.Tensor]) -> Iterator[InputHypothesis]:
    """One input in place of another like it, or both in each other's."""
    for (name, x), (other, y) in combinations(tensors.items(), 2):
        if x.shape == y.shape and x.dtype == y.dtype and x.is_floating_point():
            yield InputHypothesis(f"{name} were {other}", {name: y})
            yield InputHypothesis(f"{other} were {name}", {other: x})
            yield InputHypothesis(f"{name} and {other} were swapped", {name: y, other: x})


def _interleaved(
    definition: Definition, tensors: Mapping[str, torch.Tensor]
) -> Iterator[InputHypothesis]:
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
) -> InputHypothesis:
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
    return InputHypothesis(words, values, partial(_ordered, axis=axis, order=order.argsort()))


def _ordered(x: torch.Tensor, axes: Sequence[str], axis: str, order: torch.Tensor) -> torch.Tensor:
    for dim, (size, name) in enumerate(zip(x.shape, axes, strict=False)):
        if name == axis and size == len(order):
            x = bits(x).index_select(dim, order.to(x.device)).view(x.dtype)
    return x


def _may_be_zero(x: torch.Tensor, rule: InputRule) -> bool:
    """Whether an element of the tensor may be 0 and mean nothing else."""
    if isinstance(rule, kinds.Integers):
        numbers = [end for end in (rule.min, rule.max) if not isinstance(end, str)]
        return len(numbers) == 2 and numbers[0] < 0 < numbers[1]
    return x.is_floating_point() and x.dtype is not torch.float4_e2m1fn_x2


def _cut_short(
    definition: Definition, tensors: Mapping[str, torch.Tensor], wrong: Collection[str]
) -> Iterator[InputHypothesis]:
    """Sums that leave out the end of an axis, by the first of the inputs that share it."""
    covered = {axis for name in wrong for axis in definition.outputs[name].shape or ()}
    for name, x in tensors.items():
        for dim, (size, axis) in enumerate(
            zip(x.shape, definition.inputs[name].shape or (), strict=False)
        ):
            if axis in covered:
                continue
            covered.add(axis)
            for count in sorted({1, *TILE_SIZES, *(size % tile for tile in TILE_SIZES)}):
                if 0 < count < size:
                    whole = bits(x).clone()
                    whole.narrow(dim, size - count, count).zero_()
                    last = "one" if count == 1 else str(count)
                    words = f"{name} were 0 at the last {last} of {size} along {axis}"
                    yield InputHypothesis(words, {name: whole.view(x.dtype)})
