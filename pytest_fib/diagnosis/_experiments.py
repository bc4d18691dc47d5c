"""Experiments: calls of the kernel with other inputs, instead of guesses from one call.

The implementation is called again, beside the reference. If inputs are moved a little, rounding
errors change, but those of a wrong formula hardly do. If outputs become right as soon as an input
is 0, a term is wrong of which it is a part.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import torch

from pytest_fib.data import InputRule, Part, kinds
from pytest_fib.diagnosis._hypotheses import InputHypothesis, another_number, input_hypotheses
from pytest_fib.diagnosis._wrong_output import (
    FEW,
    HELD,
    NEARLY_ALL,
    CallContext,
    Failure,
    WrongOutput,
    share,
    take,
)
from pytest_fib.verdict import PRECISION, OutputComparison
from pytest_fib.workloads import bits, once, plan

#: The most that inputs are moved, relatively.
FURTHEST = 0.15
#: The least that they are moved, in steps between the numbers near 1.
LEAST_STEPS = 2.0
#: How much less they are moved if that changes what most elements are.
LESS = 0.125
#: The share of elements that have to stay the same.
MOST = 0.5
#: Numbers from which on 0 is far from them.
FAR = 0.01
#: Errors of so many times their bound are clearly wrong: smaller ones may be within it where an
#: input is 0 and what they are a share of is less.
CLEARLY = 10.0
#: Dtypes of choices and counts; rounded numbers have narrower ones.
_DECISIONS = (torch.bool, torch.int32, torch.int64)
#: How far other numbers are from a scalar, of the way to one inside its range.
BESIDE = (1 / 64, 1 / 4, 1.0)
#: How many seeds' inputs a hypothesis must hold for as well.
OTHER_SEEDS = 4
#: The most inputs that are tried with 0 and 1, scalars and the smallest tensors first; and the most
#: that are named, of alternatives and of what counts together.
TRIED, NAMED, TOGETHER = 12, 2, 3
#: Kinds of inputs that may be any number, and so 0 or 1.
_FREE = (kinds.Values, kinds.Normal, kinds.Uniform, kinds.Boolean, kinds.Scales, kinds.FixedValue)


def errors_of_moved_inputs(output: WrongOutput, failure: Failure, by: float) -> torch.Tensor | None:
    """The errors of an output if all floating inputs are moved by a share of about ``by``.

    NaN where the reference then decides otherwise, since elements are not the same then. If that is
    most of them, inputs are moved by less. None if most still change.
    """
    for less in (1.0, LESS):
        moved = _moved_inputs(failure.context, by * less)
        sides = failure.context.both(moved) if moved else None
        if sides is None:
            return None
        got, expected = sides
        decided = _decided_alike(output, failure, expected)
        if share(decided) >= MOST:
            error = got[output.name].double() - expected[output.name]
            return error.masked_fill(~decided.to(error.device), math.nan)
    return None


def _moved_inputs(context: CallContext, by: float) -> dict[str, torch.Tensor]:
    """The floating inputs, each element moved by a share of between 2/3 and 4/3 of ``by``."""
    moved = {}
    for number, (name, value) in enumerate(context.tensors().items()):
        if value.dtype in PRECISION:
            generator = torch.Generator(value.device).manual_seed(number)
            wide = once(value).double()
            step = torch.finfo(value.dtype).eps  # less would be rounded away
            share = min(max(by, LEAST_STEPS * step), FURTHEST)
            noise = torch.empty_like(wide).uniform_(-1.0, 1.0, generator=generator)
            factor = noise.add_(noise.sign()).mul_(share / 1.5).add_(1.0)
            moved[name] = (wide * factor).to(value.dtype)
    return moved


def _decided_alike(
    output: WrongOutput, failure: Failure, moved: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """The elements of an output for which choices, which aren't rounded numbers, are the same.

    A choice is of the element in its own place, if its output has the same shape. Otherwise it is
    of all elements with the same indices in the dimensions that both begin with.
    """
    expected = {**failure.right, **{each.name: each.expected for each in failure.outputs}}
    alike = torch.ones(output.shape, dtype=torch.bool)
    for name, values in expected.items():
        if moved[name].dtype in _DECISIONS and name != output.name:
            same = (moved[name] == values).cpu()
            common = _common_dims(same.shape, output.shape)
            same = same.flatten(common).all(-1) if common < same.dim() else same
            alike &= same.reshape(*same.shape, *[1] * (alike.dim() - same.dim()))
    return alike


def _common_dims(one: Sequence[int], other: Sequence[int]) -> int:
    """How many dimensions two shapes have in common, from the first on."""
    equal = (a == b for a, b in zip(one, other, strict=False))
    return sum(1 for _ in takewhile(bool, equal))


def correlation(one: torch.Tensor, other: torch.Tensor, *, beside: torch.Tensor) -> float:
    """The partial correlation about 0 of two tensors of errors, given a third."""
    known = one.isfinite() & other.isfinite() & beside.isfinite()
    one, other, beside = one[known], other[known], beside[known]
    length = beside.square().sum().clamp(min=1e-300)
    one, other = (x - beside * (x * beside).sum() / length for x in (one, other))
    size = float(one.norm() * other.norm())
    return float((one * other).sum()) / size if size else 0.0


@dataclass(frozen=True)
class Conditions(Part):
    """What makes wrong outputs right: inputs that are 0, and other conditions on inputs, in words.

    What an input is a factor of vanishes where that is 0: the error is in that, or in the input's
    use, or in what it is multiplied by.
    """

    zeros: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        *first, last = self.zeros or ("",)
        listed = f"{', '.join(first)} and {last}" if first else last
        zeros = f", in what depends on {listed}" if listed else ""
        return f"{zeros}, but right if {' or '.join(self.others)}" if self.others else zeros

    def also_in(self, other: Conditions) -> Conditions:
        """Those of them that another has too."""
        return Conditions(
            tuple(each for each in self.zeros if each in other.zeros),
            tuple(each for each in self.others if each in other.others),
        )


def right_with(outputs: Sequence[WrongOutput], failure: Failure) -> Conditions:
    """The inputs that make all outputs right if they are 0, or a scalar that is 1.

    None for outputs that are hardly wrong: they may become right by chance. Factors of a product
    are named together: where one is 0, nothing is left of the others, whatever is wrong with them.
    No more than a few are.
    """
    context = failure.context
    are_many = all(output.total >= FEW for output in outputs)
    if context.definition is None or not are_many or not any(map(_is_clearly_wrong, outputs)):
        return Conditions()
    zeros: dict[str, tuple[Any, list[torch.Tensor]]] = {}
    others: dict[str, str] = {}
    for name, number, value in _plain_inputs(context):
        compared = _right_with(name, value, outputs, failure)
        if compared is None:
            continue
        if context.definition.inputs[name].dtype.value == "bool":
            alike = f"{name} is all alike"
            of = f"all of {name}" if isinstance(value, torch.Tensor) else name
            others[name] = alike if name in others else f"{of} is {bool(number)}"
        elif number == 0:
            expected = _where_wrong(outputs, {each.name: each.expected for each in compared})
            if any(bool(each.isfinite().any()) for each in expected):  # else it hides all there is
                zeros[name] = value, expected
        elif name not in zeros:
            others[name] = f"{name} is {number}"
    together = _with_hidden(zeros, outputs, context)
    named = tuple(name for name in context.definition.inputs if name in together)
    return Conditions(named if len(named) <= TOGETHER else (), tuple(others.values())[:NAMED])


def only_with(outputs: Sequence[WrongOutput], failure: Failure) -> str:
    """The scalar that is 0 or 1, or at an end of its range, without which outputs are right.

    As ``only where beta is 1``; "" where there is none. They are right with all numbers that are
    tried, next to that one as well.
    """
    context = failure.context
    names = [output.name for output in outputs]
    rules = {} if context.definition is None else plan(context.definition).rules
    for name, value in context.inputs.items():
        rule = rules.get(name)
        if type(value) is not float or not isinstance(rule, kinds.Uniform):
            continue
        other = another_number(rule)
        if math.isnan(other) or value not in (0, 1, rule.min, rule.max):
            continue
        numbers = (value + by * (other - value) for by in BESIDE)
        tried = (context.compared(_with_equal_ones(context, name, number)) for number in numbers)
        if all(each is not None and _all_passed(each, names) for each in tried):
            return f"only where {name} is {value:g}"
    return ""


def _with_equal_ones(context: CallContext, name: str, number: float) -> dict[str, Any]:
    """A scalar with another number, and with it the elements of inputs that equal the scalar.

    What is wrong where these are equal isn't so of one number alone. The number is rounded to
    bfloat16, so that elements of narrow dtypes can have it.
    """
    old, number = context.inputs[name], float(torch.tensor(number, dtype=torch.bfloat16))
    changed: dict[str, Any] = {name: number}
    for other, x in context.tensors().items():
        if x.is_floating_point() and x.element_size() > 1:
            values = once(x)
            if bool((values == old).any()):
                changed[other] = values.masked_fill(values == old, number)
    return changed


def _with_hidden(
    zeros: Mapping[str, tuple[Any, list[torch.Tensor]]],
    outputs: Sequence[WrongOutput],
    context: CallContext,
) -> set[str]:
    """Those inputs, and the ones that each of their zeros hides, if that leaves others that count.

    One that is hidden is multiplied by it, or limited, and may as well be what is wrong. With each
    zero are the wrong elements as they should be then.
    """
    right = [output.wrong_sample.expected for output in outputs]
    count: dict[str, Any] = {}
    for other, value in _zeros(context) if zeros else ():
        without = _of_reference({other: value}, outputs, context)
        if without is not None and not _are_same(without, right):
            count[other] = value
    hidden = [
        {
            other
            for other, value in count.items()
            if _is_hidden(other, {name: zero, other: value}, expected, outputs, context)
        }
        for name, (zero, expected) in zeros.items()
    ]
    found = set(zeros).union(set.intersection(*hidden) if hidden else ())
    return found if count.keys() - found else set()


def _is_hidden(
    other: str,
    changed: Mapping[str, Any],
    expected: Sequence[torch.Tensor],
    outputs: Sequence[WrongOutput],
    context: CallContext,
) -> bool:
    """Whether an input may have the ``changed`` value without a change, where another is zero.

    Where nothing is finite then, as after a division by 0, twice what it is tells; and of integers,
    such as bits of a mask, nothing does.
    """
    side = _of_reference(changed, outputs, context)
    if side is not None and not any(bool(each.isfinite().any()) for each in side):
        own = context.inputs[other]
        is_float = isinstance(own, float) or (
            isinstance(own, torch.Tensor) and own.is_floating_point() and own.element_size() > 1
        )
        if not is_float:
            return False
        side = _of_reference({**changed, other: 2 * own}, outputs, context) or side
    return side is None or _are_same_where_known(side, expected)


def _of_reference(
    changed: Mapping[str, Any], outputs: Sequence[WrongOutput], context: CallContext
) -> list[torch.Tensor] | None:
    """The elements that are wrong, as the reference has them with other values of inputs."""
    values = None if context.reference_outputs is None else context.reference_outputs(changed)
    return None if values is None else _where_wrong(outputs, values)


def _are_same_where_known(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """The same, but for what isn't finite on one side: of zeros, directions aren't known."""
    pairs = zip(one, other, strict=True)
    return all(torch.equal(x[known], y[known]) for x, y in pairs for known in [(x + y).isfinite()])


def _are_same(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(x.nan_to_num(), y.nan_to_num()) for x, y in zip(one, other, strict=True))


def _right_with(
    name: str, value: Any, outputs: Sequence[WrongOutput], failure: Failure
) -> Sequence[OutputComparison] | None:
    """The outputs with another value of an input, which makes them right; None if it doesn't."""
    context, changed = failure.context, {name: value}
    compared = context.compared(changed)
    if compared is None or not _is_right(outputs, context, compared, value):
        return None
    if not _is_right_elsewhere(outputs, failure, changed):
        return None
    return None if _is_right_with_any(outputs, context, name, value) else compared


def _where_wrong(
    outputs: Sequence[WrongOutput], values: Mapping[str, torch.Tensor]
) -> list[torch.Tensor]:
    """The elements that are wrong, as other values of the outputs have them."""
    return [take(values[output.name], output.wrong_sample.at) for output in outputs]


def _is_right_elsewhere(
    outputs: Sequence[WrongOutput], failure: Failure, changed: Mapping[str, Any]
) -> bool:
    """Whether outputs are right with that value and other inputs, or nobody knows.

    With some of these, they must be wrong without that value.
    """
    names = [output.name for output in outputs]
    is_known = is_shown = False
    for other in failure.elsewhere:
        compared = failure.context.compared({**other.context.inputs, **changed})
        if compared is None:
            continue
        if not _all_passed(compared, names):
            return False
        is_known, is_shown = True, is_shown or any(each.name in names for each in other.outputs)
    return is_shown or not is_known


def _is_right_with_any(
    outputs: Sequence[WrongOutput], context: CallContext, name: str, value: Any
) -> bool:
    """Whether any other number of a scalar is right too: inputs may hold that of its own."""
    assert context.definition is not None
    if isinstance(value, torch.Tensor) or math.isnan(
        other := another_number(plan(context.definition).rules[name])
    ):
        return False
    compared = context.compared({name: type(value)(other)})
    return compared is not None and _all_passed(compared, [output.name for output in outputs])


def _all_passed(compared: Sequence[OutputComparison], names: Collection[str]) -> bool:
    return all(each.passed for each in compared if each.name in names)


def holds_for_other_seeds(
    hypothesis: InputHypothesis,
    outputs: Sequence[WrongOutput],
    context: CallContext,
    *,
    whole: bool,
) -> bool:
    """Whether a hypothesis holds for inputs of other seeds too, or nobody knows.

    Of the ``whole`` outputs, or of what is wrong then: of a few rows, or of values such as NaN,
    much is so by chance. Of a part, or of a few elements, only where something is wrong then.
    """
    if context.other_inputs is None or context.definition is None:
        return True
    wrong = [output.name for output in outputs]
    is_seen = whole and sum(output.count for output in outputs) >= FEW
    for number in range(OTHER_SEEDS + 1):
        inputs = context.other_inputs(number)
        hypotheses = input_hypotheses(context.definition, inputs, wrong)
        same = next((each for each in hypotheses if each.words == hypothesis.words), None)
        if same is None:
            continue
        claimed = context.compared(inputs, same.values, same.back)
        expected = context.compared(inputs)
        if claimed is None or expected is None:
            continue
        of_claim, of_right = ({each.name: each for each in side} for side in (claimed, expected))
        if not any(bool(of_claim[name].got.float().isfinite().any()) for name in wrong):
            continue  # as where a divisor is 0
        if not all(_holds(of_claim[name], of_right[name], whole=whole) for name in wrong):
            return False
        is_seen |= not all(of_right[name].passed for name in wrong)
    return is_seen


def _holds(of_claim: OutputComparison, of_right: OutputComparison, *, whole: bool) -> bool:
    """Whether an output has the claimed values: the ``whole`` of it, or where it is wrong."""
    if whole and of_claim.matched_ratio < HELD:
        return False
    differ, wrong = (WrongOutput.of(each, None).wrong for each in (of_claim, of_right))
    is_wrong = bool(wrong.any())
    if whole and is_wrong and int(differ.sum()) > int(wrong.sum()) * (1 - NEARLY_ALL):
        return False
    return not is_wrong or share(~differ[wrong]) >= NEARLY_ALL


def holds_elsewhere(
    hypothesis: InputHypothesis, outputs: Sequence[WrongOutput], context: CallContext
) -> bool:
    """Whether a hypothesis holds for other values too, if it has some and they can be tried.

    Of all elements, or of those that were wrong if it may be partial.
    """
    if hypothesis.elsewhere is None:
        return True
    tried = (_holds_with(*pair, hypothesis, outputs, context) for pair in hypothesis.elsewhere())
    return all(tried)


def _holds_with(
    moved: Mapping[str, Any],
    read_as: Mapping[str, Any],
    hypothesis: InputHypothesis,
    outputs: Sequence[WrongOutput],
    context: CallContext,
) -> bool:
    """Whether it holds for such values, or they can't be tried."""
    compared = context.compared(moved, read_as)
    if compared is None:
        return True
    wrong = {output.name: output for output in outputs}
    if hypothesis.shows_elsewhere and _all_passed(context.compared(moved) or (), wrong):
        return False
    return all(
        _is_right_where(wrong[name], each)
        and (hypothesis.partial or each.matched_ratio >= NEARLY_ALL)
        for each in compared
        if (name := each.name) in wrong
    )


def _is_right_where(wrong: WrongOutput, compared: OutputComparison) -> bool:
    """Whether elements are right that were wrong before."""
    now = WrongOutput.of(compared, None).wrong.reshape(-1)
    return share(~now[wrong.wrong_sample.at.to(now.device)]) >= NEARLY_ALL


def _is_clearly_wrong(output: WrongOutput) -> bool:
    sample = output.wrong_sample
    return share(~(sample.error.abs() <= CLEARLY * sample.bound)) > MOST


def _plain_inputs(context: CallContext) -> Iterator[tuple[str, int, Any]]:
    """Inputs that may be any number: the name, 0 or 1, and the input as that number."""
    assert context.definition is not None
    rules, inputs = plan(context.definition).rules, context.readable_inputs()
    tensors = {
        name: torch.as_tensor(value)
        for name, value in inputs.items()
        if isinstance(rules[name], _FREE) or _may_be_0(rules[name])
    }
    for name in sorted(tensors, key=lambda name: tensors[name].numel())[:TRIED]:
        value, tensor, rule = inputs[name], tensors[name], rules[name]
        # Of ones, sums are the same whatever is added, and products, whatever is multiplied.
        tried = (0, 1) if tensor.numel() == 1 or tensor.dtype is torch.bool else (0,)
        numbers = [each for each in tried if not _is_beyond(each, rule)]
        is_whole = not tensor.is_floating_point() and tensor.dtype is not torch.bool
        if is_whole:  # as counts are, and zero points; of a scalar setting, 0 may be another one
            numbers = [0] if tensor.dim() and _may_be_0(rule) else []
        for number in numbers:
            if isinstance(value, torch.Tensor):
                yield name, number, torch.full_like(once(value).float(), number).to(value.dtype)
            elif value != number:
                yield name, number, type(value)(number)


def _zeros(context: CallContext) -> Iterator[tuple[str, Any]]:
    """The smallest inputs that are numbers, as zeros; of whole ones, those that may be 0."""
    assert context.definition is not None
    rules, inputs = plan(context.definition).rules, context.readable_inputs()
    numbers = {
        name: value
        for name, value in inputs.items()
        if isinstance(rules[name], _FREE) or _may_be_0(rules[name])
    }
    by_size = sorted(numbers, key=lambda name: torch.as_tensor(numbers[name]).numel())
    for name in by_size[:TRIED]:
        value = numbers[name]
        if isinstance(value, torch.Tensor):
            nothing = once(value).clone()
            bits(nothing).zero_()
            yield name, nothing
        else:
            yield name, type(value)(0)


def _may_be_0(rule: InputRule) -> bool:
    """Whether whole numbers may be 0: what indexes something by them may have no such place."""
    if not isinstance(rule, kinds.Integers) or isinstance(rule.min, str) or rule.min > 0:
        return False
    return isinstance(rule.max, str) or rule.max >= 0


def _is_beyond(number: int, rule: InputRule) -> bool:
    """Whether an input is never that, as factors of an optimiser's are never 1."""
    if isinstance(rule, kinds.Scales):
        return number == 0
    least, most = (rule.min, rule.max) if isinstance(rule, kinds.Uniform) else (None, None)
    is_less = isinstance(least, int | float) and number < least and least > FAR
    return is_less or (isinstance(most, int | float) and number > most)


def _is_right(
    outputs: Sequence[WrongOutput],
    context: CallContext,
    compared: Sequence[OutputComparison],
    changed: Any,
) -> bool:
    """Whether wrong elements are right now, and not trivially so.

    Their bounds are less than the errors were, in most of them: 1 added to what is small hides all.
    The right values must not be nearly equal, nor just an input, as after an optimiser's step with
    rate 0, or nearly: what is added is less than a bound. But if a term of each element's own
    vanishes and an input remains, that term is wrong; a mask is no term, and leaves nothing to
    compute where all is masked.
    """
    expected = {each.name: each.expected for each in compared}
    for output in outputs:
        are_numbers = isinstance(changed, torch.Tensor) and changed.is_floating_point()
        is_term = are_numbers and changed.shape == output.got.shape
        at = output.wrong_sample.at
        values = take(expected[output.name], at)
        now = WrongOutput.of(next(each for each in compared if each.name == output.name), None)
        if share(now.sample_at(at).bound < output.wrong_sample.error.abs()) < MOST:
            return False  # such an error would be within its bound
        written = values.to(output.got.dtype).double()  # float64's may differ by roundoffs alone
        if len(torch.unique(written)) < FEW or not bool(values.isfinite().all()):
            return False
        if share(written == written.mode().values) > MOST:
            return False  # nothing is left to be wrong
        given = [take(x, at) for x in context.tensors().values() if x.shape == output.got.shape]
        if not is_term and any(share(x == values) >= NEARLY_ALL for x in given):
            return False
        if _are_nearly(given, values, now.sample_at(at).bound):
            return False
    return _all_passed(compared, [output.name for output in outputs])


def _are_nearly(given: Sequence[torch.Tensor], values: torch.Tensor, bound: torch.Tensor) -> bool:
    """Whether values are those of an input but for errors within their bounds, and not the same."""
    return any(
        share((x - values).abs() <= bound) >= NEARLY_ALL and share(x == values) < NEARLY_ALL
        for x in given
    )
