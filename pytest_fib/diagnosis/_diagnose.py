"""From wrong outputs to a Diagnosis: a pattern, a place, the worst elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice, product
from math import inf, log10
from types import UnionType

import torch

from pytest_fib.data import Diagnosis, Part, Sentence
from pytest_fib.diagnosis import _parts as parts
from pytest_fib.diagnosis._detectors import GENERAL, SPECIFIC, Detector
from pytest_fib.diagnosis._experiments import (
    holds_elsewhere,
    holds_for_other_seeds,
    only_with,
    right_with,
)
from pytest_fib.diagnosis._hypotheses import InputHypothesis, hypothetical_outputs
from pytest_fib.diagnosis._localize import (
    LAST,
    PADDING,
    Location,
    counted,
    held,
    how_many,
    localize,
    shares_filled,
    with_place,
    without_given_indices,
    without_lone_indices,
    wrong_along,
)
from pytest_fib.diagnosis._parts import AND, WRONG, is_in, replaced, saying, without_guess
from pytest_fib.diagnosis._where_input import only_where
from pytest_fib.diagnosis._wrong_output import (
    EVIDENCE,
    FEW,
    HELD,
    CallContext,
    Failure,
    Sample,
    WrongOutput,
    share,
    take,
)
from pytest_fib.verdict import (
    OutputComparison,
    detail_lines,
    element_name,
    element_sentence,
    number_at,
    qualified,
)
from pytest_fib.workloads import upstream_outputs

#: Patterns that say little without an element.
VAGUE_PATTERNS = ("everywhere", "one element", "scattered")
#: Patterns that need certain inputs or what was in memory, or that say little anyway.
OF_THESE_INPUTS = (
    *VAGUE_PATTERNS, "unwritten", "stale", "infinity", "nan", "lost special value", "wrong flag",
    "small errors", "lower precision", "wrapped",
)  # fmt: skip
#: Patterns of what was in memory, which may be elsewhere with other inputs.
OF_MEMORY = ("unwritten", "stale")
#: Patterns of what a scalar may bound, so that only without it numbers overflow.
NOT_FINITE = ("infinity", "nan")
#: Patterns of values that those may hold as well that are right.
HELD_BY_RIGHT_ONES = ("copied input", "swapped outputs", "zeros")
#: The least share of a row that is wrong for the row to be named.
SOME_OF_ROW = 0.4
#: The share of wrong elements, over that of another output, below which these say little.
LESS_WRONG = 0.1
#: Columns of a terminal, and the number of elements that are shown.
WIDTH, SHOWN = 80, 5


def diagnose(
    comparisons: Sequence[OutputComparison], context: CallContext | None = None
) -> Diagnosis:
    """Diagnose the outputs of a call, of which at least one failed its comparison.

    The diagnosis names the pattern of the wrong elements; its details are the worst of them.
    """
    context = context or CallContext()
    failed = [each for each in comparisons if not each.passed]
    right = {each.name: each.expected for each in comparisons if each.passed}
    outputs = tuple(WrongOutput.of(each, context.definition) for each in failed)
    diagnosis = explain(Failure(outputs, context, right))
    also = tuple(each.name for each in failed if each.name != diagnosis.output)
    diagnosis = diagnosis.model_copy(update={"also": also})
    worst = max(failed, key=lambda each: each.rank)
    if worst.shown_by_elements:
        return diagnosis
    says_nothing = diagnosis.pattern in VAGUE_PATTERNS and diagnosis.output == worst.name
    if says_nothing and worst.check != "elements":  # single elements may all be within their bound
        return diagnosis.with_parts(worst.describe()).model_copy(update={"vague": False})
    details = (*detail_lines(worst.describe()), *diagnosis.details)
    return diagnosis.model_copy(update={"details": details})


def explain(failure: Failure) -> Diagnosis:
    """Diagnose these outputs; at least one of them has elements."""
    outputs = _in_order([output for output in failure.outputs if output.total], failure)
    diagnosis = (
        _detected(SPECIFIC, outputs, failure)
        or _misread_input(outputs, failure)
        or _detected(GENERAL, _first_of(outputs, failure), failure)
    )
    if diagnosis is None:
        raise ValueError("there are no outputs with elements")
    diagnosis = _only_where(diagnosis, failure)
    if diagnosis.pattern in VAGUE_PATTERNS and str(conditions := right_with(outputs, failure)):
        found = saying(diagnosis, *diagnosis.parts, conditions)
        return found.model_copy(update={"pattern": "follows an input"})
    is_of_values = diagnosis.pattern not in (*VAGUE_PATTERNS, *NOT_FINITE)
    if is_of_values and (circumstance := only_with(outputs, failure)):
        return qualified(diagnosis, circumstance)
    return diagnosis


def _only_where(diagnosis: Diagnosis, failure: Failure) -> Diagnosis:
    """The diagnosis, with elements of an input that say where in place of a place, if any do."""
    output = next(each for each in failure.outputs if each.name == diagnosis.output)
    location = localize(output)
    places = [location.phrase] if location else []
    places += [(how_many(output),), *_counted_along(diagnosis.parts)]
    place = next((each for each in places if is_in(each, diagnosis.parts)), None)
    is_only_wrong = diagnosis.pattern in (*VAGUE_PATTERNS, diagnosis.place)
    if output.count == output.total or diagnosis.tiles or not (is_only_wrong or place):
        return diagnosis
    elements = only_where(output, failure, _elsewhere(output, failure))
    if elements is None or (elements.left_out and not is_only_wrong):
        return diagnosis
    if is_only_wrong or place is None:
        found = saying(diagnosis, f"{output.name}:", WRONG, elements)
        return found.model_copy(update={"pattern": "follows an input"})
    found = without_guess(diagnosis)
    return saying(found, *replaced(place, (elements,), found.parts))


def _counted_along(sentence: Sentence) -> list[Sentence]:
    """At how many indices of a dimension elements are wrong, if that is a place by itself."""
    pairs = zip(sentence, (*sentence[1:], ""), strict=True)
    return [(part,) for part, after in pairs if type(part) is parts.Along and after != AND]


def _in_order(outputs: list[WrongOutput], failure: Failure) -> list[WrongOutput]:
    """Outputs from which others are computed first, then the most wrong: others may follow from it.

    Or be wrong by chance, as bools that say something of numbers. Elements that are within their
    bounds show little of rows that aren't.
    """
    wrong = {each.name: -each.count / each.total if each.marked else 0.0 for each in outputs}
    left = sorted(outputs, key=lambda each: (each.by_rows, not each.is_number, wrong[each.name]))
    ordered: list[WrongOutput] = []
    while left:
        ordered.append(_first_of(left, failure)[0])
        left.remove(ordered[-1])
    return ordered


def _first_of(outputs: list[WrongOutput], failure: Failure) -> list[WrongOutput]:
    """Those of wrong outputs that are computed from none of the others; all if there are none."""
    definition = failure.context.definition
    upstream = {} if definition is None else upstream_outputs(definition)
    names = {each.name for each in outputs if each.marked and not each.by_rows}
    first = [each for each in outputs if not upstream.get(each.name, frozenset()) & names]
    return first or outputs


def _detected(
    detectors: Sequence[Detector], outputs: Sequence[WrongOutput], failure: Failure
) -> Diagnosis | None:
    for detect in detectors:
        for output in outputs:
            for pattern, said in detect(output, failure):
                is_of_values = detect in SPECIFIC and pattern not in OF_THESE_INPUTS
                if is_of_values and _is_less_wrong(output, failure):
                    continue
                location = localize(output)
                named = location if location and is_in(location.phrase, said) else None
                is_place = named is not None and pattern == named.name
                if not (
                    is_place
                    or pattern in OF_THESE_INPUTS
                    or _is_seen_elsewhere(detect, pattern, output, failure)
                ):
                    continue
                if named is None or pattern in OF_MEMORY:
                    return _diagnosis(pattern, said, output, location)
                if found := _at_held_place(pattern, said, output, failure, named):
                    return found
    return None


def _is_less_wrong(output: WrongOutput, failure: Failure) -> bool:
    """Whether far fewer elements are wrong than of an output that isn't computed from this one."""
    definition = failure.context.definition
    upstream = {} if definition is None else upstream_outputs(definition)
    shares = [
        each.count / each.total
        for each in failure.outputs
        if each.total and output.name not in upstream.get(each.name, frozenset())
    ]
    return output.count / output.total < LESS_WRONG * max(shares)


def _at_held_place(
    pattern: str, said: Sentence, output: WrongOutput, failure: Failure, location: Location
) -> Diagnosis | None:
    """The diagnosis with what of the place that it names is so with all other inputs.

    If values say where, only at how many indices; None if it says no more than where.
    """
    place: Location | None = location
    for other, _ in _elsewhere(output, failure):
        place = place and held(place, output, other)
    definition = failure.context.definition
    if place is not None and definition is not None:
        place = without_lone_indices(place, output, definition.var_axes)
    place = place and without_given_indices(place, output, failure.context.tensors())
    place = _named_by_scalar(location, output, failure) or place
    says_where = bool(location.at) or location.name in (LAST, PADDING)
    if says_where and not _elsewhere(output, failure) and (failure.elsewhere or location.listed):
        place = None  # only certain values are wrong, so these may say where; or nobody knows
    if place is location:
        return _diagnosis(pattern, said, output, location)
    is_place = pattern == location.name
    if place is None and is_place:
        return None
    others = [other for other, _ in _elsewhere(output, failure)]
    phrase = place.phrase if place else counted(location, output, others)
    expected = _expected(location.phrase)
    # Else what is expected here is so by chance.
    is_expected = not any(shares_filled(other)[1] for other in others)
    if is_expected and not (place and _expected(place.phrase)):
        phrase += expected
    said = with_place(said, location, phrase)
    return _diagnosis(place.name if place and is_place else pattern, said, output, place)


def _expected(place: Sentence) -> Sentence:
    """What a place says of what is expected there, beside another place."""
    return tuple(parts.Expected(part.value) for part in place if isinstance(part, parts.Expected))


def _named_by_scalar(location: Location, output: WrongOutput, failure: Failure) -> Location | None:
    """The place with the scalar that is the only index of it, which is so of other numbers too."""
    sides = [(output, failure), *_elsewhere(output, failure)]
    scalars = [
        name
        for name, value in failure.context.inputs.items()
        if type(value) is int and len({each.context.inputs[name] for _, each in sides}) > 1
    ]
    for name, dim in product(scalars, range(len(output.shape))):
        index = failure.context.inputs[name]
        found = [wrong_along(each, dim).nonzero()[:, 0].tolist() for each, _ in sides]
        is_that = found == [[each.context.inputs[name]] for _, each in sides]
        if is_that and share(output.wrong.movedim(dim, 0)[index].reshape(-1)) >= SOME_OF_ROW:
            at = parts.At(output.axis(dim), (index,), output.shape[dim])
            # In words: at other sizes, the scalar may be another.
            return replace(location, phrase=(f"{at}, which is {name}", *_expected(location.phrase)))
    return None


def _elsewhere(output: WrongOutput, failure: Failure) -> list[tuple[WrongOutput, Failure]]:
    """The output with each of other inputs with which elements of it are wrong."""
    return [
        (each, other)
        for other in failure.elsewhere
        for each in other.outputs
        if each.name == output.name and each.marked
    ]


def _is_seen_elsewhere(
    detect: Detector, pattern: str, output: WrongOutput, failure: Failure
) -> bool:
    """Whether an output has the pattern with half of the other inputs with which it is as wrong.

    Of a few rows, or where inputs are equal, much looks so by chance; so do a few wrong elements.
    With some inputs, no pattern can be seen.
    """
    sides = [
        (other, elsewhere)
        for other, elsewhere in _elsewhere(output, failure)
        if other.count >= FEW or output.count < FEW
    ]
    seen = [any(each == pattern for each, _ in detect(*side)) for side in sides]
    return 2 * sum(seen) >= len(seen)


def _diagnosis(
    pattern: str, said: Sentence, output: WrongOutput, location: Location | None
) -> Diagnosis:
    elements = _worst_elements(output)
    if pattern in HELD_BY_RIGHT_ONES:
        how_much = parts.Partly if pattern == "zeros" else parts.Partly | parts.Count
        said = _of_wrong_ones(said, how_much)
    diagnosis = Diagnosis(
        sentence="",
        output=output.name,
        element=elements[0],
        vague=pattern in VAGUE_PATTERNS or (output.count < FEW and pattern != "wrong flag"),
        pattern=pattern,
        place=location.name if location else "",
        details=detail_lines(*elements),
    )
    return saying(diagnosis, f"{output.name}:", *said)


def _of_wrong_ones(said: Sentence, how_much: type[Part] | UnionType) -> Sentence:
    """The same, where how much has a pattern is said of wrong elements: right ones may have it."""
    found: list[str | Part] = []
    for before, part, after in zip(("", *said), said, (*said[1:], ""), strict=False):
        is_said = before in (WRONG, f"({WRONG}") or isinstance(after, parts.AllBut)
        found += ["where it is wrong:"] if isinstance(part, how_much) and not is_said else []
        found.append(part)
    return tuple(found)


def _worst_elements(output: WrongOutput) -> list[str]:
    """The elements that are furthest beyond their bound; of wide whole numbers the first ones.

    Of running counts and the like, all behind the first that is wrong are. Where most are numbers,
    these come before NaN and infinities, which are of no size.
    """
    sample = output.wrong_sample
    if output.marked and not output.got.is_floating_point() and output.got.element_size() > 2:
        flat = output.wrong.reshape(-1).to(torch.uint8)
        first = output.sample_at(flat.argmax()[None])
        others = (i for i, at in enumerate(sample.at.tolist()) if at != int(first.at[0]))
        rest = [_element(output, sample, i) for i in islice(others, SHOWN - 1)]
        return [_element(output, first, 0), *rest]
    error = torch.where(sample.got == sample.expected, 0.0, sample.error.abs())
    used = (error / sample.bound.clamp(min=1e-300)).nan_to_num(inf, inf)
    if 2 * share(sample.finite) > 1:
        used = used.masked_fill(~sample.finite, -1.0)
    worst = used.argsort(descending=True, stable=True)[:SHOWN].tolist()
    return [_element(output, sample, i) for i in worst]


def _element(output: WrongOutput, sample: Sample, i: int) -> str:
    at = int(sample.at[i])
    element = element_name(output.name, at, output.shape)
    sides = number_at(output.got, at), number_at(output.expected, at)
    whole = element_sentence(element, *sides, float(sample.bound[i]))
    room = WIDTH - 2
    return whole if len(whole) <= room else element_sentence(element, *sides, None)[:room]


def _misread_input(outputs: Sequence[WrongOutput], failure: Failure) -> Diagnosis | None:
    """The hypothesis about the inputs that explains all wrong outputs.

    The best one explains all other outputs as well.
    """
    partial, context = None, failure.context
    hypotheses = hypothetical_outputs(context, [output.name for output in outputs])
    for number, (hypothesis, values) in enumerate(hypotheses, 1):
        sides = [(output, values[output.name]) for output in outputs]
        if sum(_support(*side) for side in sides) < EVIDENCE + log10(number):
            continue
        if not holds_elsewhere(hypothesis, outputs, context):
            continue
        samples = [(out, out.any_sample, value) for out, value in sides]
        whole = all(share(out.near(x, take(value, x.at))) >= HELD for out, x, value in samples)
        if not (whole or hypothesis.partial) or _says_too_much(hypothesis, outputs, context):
            continue
        if not holds_for_other_seeds(hypothesis, outputs, context, whole=whole):
            continue
        if whole:
            return _diagnosis(hypothesis.pattern, (f"as if {hypothesis.words}",), outputs[0], None)
        partial = partial or hypothesis
    location = localize(outputs[0])
    if partial is None or location is None or not _is_part(location, outputs[0]):
        return None
    said = (f"as if {partial.words},", *location.phrase)
    return _at_held_place(partial.pattern, said, outputs[0], failure, location)


def _is_part(location: Location, output: WrongOutput) -> bool:
    """Whether a place is a part of which all is wrong: one element holds that of many an order."""
    return location.dense and location.name != "everywhere" and output.count > 1


def _says_too_much(
    hypothesis: InputHypothesis, outputs: Sequence[WrongOutput], context: CallContext
) -> bool:
    """Whether values that a hypothesis is unlike explain what is wrong as well."""
    if hypothesis.unlike is None or context.reference_outputs is None:
        return False
    values = context.reference_outputs(hypothesis.unlike)
    return values is not None and all(
        out.agrees(out.wrong_sample, take(values[out.name], out.wrong_sample.at)) for out in outputs
    )


def _support(output: WrongOutput, values: torch.Tensor) -> float:
    """log10 of how unlikely an output agrees with a hypothesis by chance; -inf if it doesn't.

    The values of bools are no evidence.
    """
    sample = output.wrong_sample
    claimed = take(values, sample.at)
    agrees = output.is_number and output.agrees(sample, claimed)
    return output.evidence(sample, claimed) if agrees else -inf
