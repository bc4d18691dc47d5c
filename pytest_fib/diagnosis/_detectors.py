"""What kind of bug does a wrong output look like?

A detector examines samples of one wrong output and yields what it recognises, most specific first:
a pattern, and the parts of a sentence that follow the output's name. To add one, write the function
and put it into ``SPECIFIC``, where the first that recognises something decides, or into
``GENERAL``, which comes after the hypotheses about inputs. If the wrong elements hold other known
values, no detector is needed, but a line in ``_other_values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from math import inf, isclose, sqrt
from typing import TypeAlias

import torch

from pytest_fib.data import Sentence, shortened
from pytest_fib.diagnosis import _parts as parts
from pytest_fib.diagnosis._experiments import correlation, errors_of_moved_inputs
from pytest_fib.diagnosis._fits import factor_or_offset
from pytest_fib.diagnosis._localize import (
    how_many,
    localize,
    shares_filled,
    where,
    wrong_along,
)
from pytest_fib.diagnosis._parts import WRONG
from pytest_fib.diagnosis._wrong_output import (
    COMMON,
    FEW,
    NEARLY_ALL,
    Failure,
    WrongOutput,
    evenly,
    rms,
    share,
    take,
    unraveled,
    vary,
)
from pytest_fib.sandbox import fill_with_poison
from pytest_fib.verdict import PRECISION
from pytest_fib.workloads import bits, once, row_major_strides

OtherValues: TypeAlias = tuple[str, str, torch.Tensor, torch.Tensor | None]
Detector: TypeAlias = Callable[[WrongOutput, Failure], Iterator[tuple[str, Sentence]]]

#: The share of wrong elements that a detector must explain; and that is more than a few.
MOST, SOME = 0.5, 0.1
#: What says that elements have values from elsewhere, which a single number does not show.
ELSEWHERE = ("copied input", "swapped outputs", "transposed")
#: The share of wrong elements that a shift brings from within the tensor.
SHIFTED = 0.7
#: How many slices of a dimension are searched for at other places, and elements that identify one.
SLICES, LEAST_MARKS, MARKS, MOST_SLICES = 64, 4, 24, 8192
#: The most slices that may equal a wrong one, on average, if it is to be a mix-up; and the most
#: that may equal any of them.
MOST_ALIKE, MOST_LIKE = 1.5, 512
#: The largest errors, as a share of a row's scale, that are said to be like those of rounding, and
#: that are called small.
LIKE_ROUNDING, SMALL = 0.008, 0.08
#: How far inputs are moved, over the size of small errors, to see whether these become others, and
#: the correlation from which they are the same. Of products with a factor beside a power of two,
#: neighbours over dozens of steps are rounded alike.
MOVED, RELATED = 64.0, 0.5
#: The bits of a byte, which are the places of a usual block as well.
BYTE = 8
#: Bits of narrow integers; and how many must agree: offsets of tiles are powers of two as well.
WIDTHS, LEAST_BITS = (32, 16, BYTE), 32
#: How far a scalar is from what elements hold of it, relatively.
SAME = 1e-6
#: Errors that are a smaller share of the others' aren't those of rounding, but none.
FAINT = 2.0**-10
#: The share of their bounds, root mean square, that errors of mere rounding don't use.
ROUNDING_SHARE = 0.15


def _where_those(output: WrongOutput, which: torch.Tensor) -> Sentence:
    """The place of some wrong elements; others may be wrong because of them."""
    return where(replace(output, wrong=output.wrong & which))


def _wrong_flag(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """A bool that is wrong beside numbers, which may follow from it: not one for each of them."""
    all_wrong = output.count == output.total and not output.is_number
    others = [other for other in failure.outputs if other is not output]
    is_flag = bool(others) and all(other.shape != output.shape for other in others)
    if all_wrong and is_flag and not vary(output.wrong_sample.got):
        yield "wrong flag", (_wrong(output),)


# ---- values that no element should have ----


def _never_written(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """Elements that keep their value in each call, so that they are never written.

    With a single call, only if two bytes tell poison from numbers.
    """
    context, at = failure.context, output.wrong_sample.at
    second_call = context.second_outputs.get(output.name)
    calls = [output.got] if second_call is None else [output.got, second_call]
    if len(calls) > len(context.poisons) or (len(calls) == 1 and output.got.element_size() == 1):
        return
    poison_left = torch.ones(output.shape, dtype=torch.bool, device=output.got.device)
    for got, poison in zip(calls, context.poisons, strict=False):
        written = bits(got.reshape(-1))
        same = written == fill_with_poison(written[:1].clone(), poison)
        poison_left &= same.view(output.shape)
    if share(poison_left.reshape(-1)[at]) >= MOST:
        place = _where_those(output, poison_left)
        yield "unwritten", ("never written", *(() if place == (parts.Everywhere(),) else place))


def _special_values(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """NaN and infinities that are not expected, or that are missing."""
    got, expected = output.wrong_sample.got, output.wrong_sample.expected
    infinite = got.isinf() & expected.isfinite()
    lost = got.isfinite() & expected.isinf()
    opposite = got.isinf() & expected.isinf() & (got != expected)
    if share(opposite) >= SOME and share(infinite | lost | opposite) >= MOST:
        yield "infinity", ("wrong infinities", *where(output))
    extra, missing = ~got.isfinite() & expected.isfinite(), got.isfinite() & ~expected.isfinite()
    if min(share(extra), share(missing)) >= SOME and share(extra | missing) >= NEARLY_ALL:
        pattern, special = "infinity", f"{float(got[extra][0]):g}"
        if special == "nan":
            pattern, special = "nan", "NaN"
        words = f"{special} where numbers are expected, and vice versa"
        yield pattern, (words, *where(output))
    if share(~got.isfinite() & expected.isfinite()) >= MOST and infinite.any():
        kinds = torch.unique(got[infinite]).tolist()
        special = f"{kinds[0]:g}" if len(kinds) == 1 else "infinities"
        those = output.got.double().isinf()
        if int(got.isnan().sum()) > int(infinite.sum()):
            special, those = f"NaN and {special}", ~output.got.double().isfinite()
        said = _instead(special, _where_those(output, those), "numbers are")
        are_all = share(take(those, output.wrong_sample.at).bool()) >= NEARLY_ALL
        in_all = () if are_all else (f", and {WRONG}", how_many(output), "in all")
        yield "infinity", (*said, *in_all)
    if share(got.isnan() & ~expected.isnan()) >= MOST:
        yield "nan", _instead("NaN", where(output), _numbers_in_words(expected[got.isnan()]))
    rounded = expected.to(output.got.dtype).double()
    lost = ~rounded.isfinite() & got.isfinite()
    if share(lost) >= MOST:
        special = "NaN" if bool(rounded.isnan().any()) else f"{float(rounded[lost].min()):g}"
        values = "numbers" if bool((got.isinf() & rounded.isnan()).any()) else "finite numbers"
        yield "lost special value", _instead(values, where(output), f"{special} is")


def _numbers_in_words(expected: torch.Tensor) -> str:
    """What is expected, before ``expected``; a few infinities are infinities as well."""
    if not bool(expected.isinf().any()):
        return "numbers are"
    return "infinity is" if bool(expected.isinf().all()) else "numbers and infinities are"


def _instead(values: str, place: Sentence, right: str) -> Sentence:
    """The values at some place, and the expected ones, unless a place has words for both."""
    if place == (parts.OnlyExpected(right.removesuffix(" is")),):
        return (f"{values} where {right} expected",)
    says_both = isinstance(place[-1], parts.Expected | parts.Wherever)
    return (values, *place) if says_both else (values, *place, f", where {right} expected")


def _one_value(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    sample = output.wrong_sample
    value = sample.got[0]
    if not output.is_number or output.total < FEW or vary(sample.got):
        return
    if value == 0:
        known = _scalars_of_zero(output, failure) if output.count > FEW else ()
        is_copied = _is_given(sample.expected[0], failure)
        words = "zeros" if is_copied else _zeros(output, sample.expected)
        yield "zeros", (words, *where(output, left_out=True), *known)
    elif (
        len(sample.at) >= 4
        and vary(sample.expected)
        and not _is_common(output, value)
        and not _is_given(value, failure)
        and not _is_of_an_input(output, failure)
    ):
        name = _scalar_of(output, value, failure)
        number = parts.Number(output.digits(value), before=", ")
        named = (parts.Name(name),) if name else ()
        yield "constant", ("the same value", number, *named, ",", *where(output, left_out=True))


def _is_given(value: torch.Tensor, failure: Failure) -> bool:
    """Whether an input has hardly any other value, so that what is copied of it has that."""
    tensors = [once(x) for x in failure.context.tensors().values() if x.dtype is not torch.bool]
    return any(x.numel() > 1 and share((x == value).reshape(-1)) >= NEARLY_ALL for x in tensors)


def _is_of_an_input(output: WrongOutput, failure: Failure) -> bool:
    """Whether an input of the same shape has what the wrong elements hold, which are all alike."""
    sample = output.wrong_sample
    return any(
        x.shape == output.got.shape and bool((take(x, sample.at) == sample.got).all())
        for x in failure.context.tensors().values()
    )


def _scalar_of(output: WrongOutput, value: torch.Tensor, failure: Failure) -> str:
    """The only floating scalar that elements hold, rounded to their dtype; "" if none is."""
    scalars = {n: x for n, x in failure.context.inputs.items() if type(x) is float}
    held = {n: float(torch.tensor(x).to(output.got.dtype)) for n, x in scalars.items()}
    near = [name for name, x in held.items() if isclose(float(value), x, rel_tol=SAME)]
    return near[0] if len(near) == 1 else ""


def _scalars_of_zero(output: WrongOutput, failure: Failure) -> Sentence:
    """The factors that are 0, which explains zeros; an integer may be a flag.

    None if there are as many zeros where none of these is 0.
    """
    context = failure.context
    names = [name for name, x in context.inputs.items() if type(x) is float and x == 0]
    if not names:
        return ()
    outputs = context.outputs(dict.fromkeys(names, 1.0)) if context.outputs else None
    other = (outputs or {}).get(output.name)
    if other is None or other.shape != output.got.shape:
        zeros = 0.0
    else:
        zeros = share(take(other, output.wrong_sample.at) == 0)
    verb = "is" if len(names) == 1 else "are"
    return () if zeros > MOST else (parts.WhereZero(f"{' and '.join(names)} {verb}"),)


def _zeros(output: WrongOutput, expected: torch.Tensor) -> str:
    """``zeros``; of what should all be one other number, which: 0 may be a result too."""
    is_one_number = len(expected) == 1 and output.got.is_floating_point()
    if is_one_number or vary(expected):
        return "zeros"
    return f"0 in place of {output.digits(expected[0])}"


def _is_common(output: WrongOutput, value: torch.Tensor) -> bool:
    """Whether this value is right for many elements: others may then have it for any reason."""
    return share(output.any_sample.expected == value) > COMMON


def _wrapped(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """Integers that are what fewer bits hold of the expected ones."""
    if output.got.is_floating_point() or not output.is_number:
        return
    got, difference = output.wrong_sample.got, output.difference_at(output.wrong_sample.at)
    if not bool(got.any()):
        return  # zeros may be so for any reason
    for width in WIDTHS:
        least = -(2.0 ** (width - 1)) if bool((got < 0).any()) else 0.0
        fits = bool(((got >= least) & (got < least + 2.0**width)).all())
        if len(got) * width < LEAST_BITS or not fits or (len(got) > 1 and not vary(got)):
            continue
        is_next_lost = bool(((difference >> width) & 1).any())  # a single bit above is no wrap
        if is_next_lost and share(difference & (2**width - 1) == 0) >= NEARLY_ALL:
            blocks = " (or counted in blocks of 256)" if width == BYTE else ""
            yield "wrapped", (f"wrapped around, as if of {width} bits{blocks}", *where(output))
            return


# ---- values of other elements or tensors ----


def _held_values(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    if not output.is_number:
        return
    for pattern, words, values, known in _other_values(output, failure):
        # One number, as of an input that is all the same, is right there by chance.
        if pattern in ELSEWHERE and not vary(output.wrong_sample.got):
            continue
        if output.holds(values, known, exact=pattern == "copied input"):
            has_no_place = pattern == "transposed" and _is_mostly_wrong(output)
            place = where(output)
            if isinstance(place[0], parts.OnlyExpected):  # what is right may hold it elsewhere too
                yield pattern, (WRONG, *place, f", and {words} there")
            elif pattern == "copied input" and _is_copy(output, words, failure):
                yield pattern, (words, parts.Everywhere(), f"({WRONG}", how_many(output), ")")
            else:
                yield pattern, (words, *(() if has_no_place else place))


def _is_copy(output: WrongOutput, words: str, failure: Failure) -> bool:
    """Whether all of an output is the input that it is said to equal, with some of it right."""
    name = next((n for n in failure.context.tensors() if words.endswith(f" {n}")), None)
    if name is None or output.count == output.total:
        return False
    x, got = failure.context.inputs[name], output.got
    is_like = x.dtype is got.dtype and x.shape == got.shape
    return is_like and torch.equal(bits(x.reshape(-1)), bits(got.reshape(-1)))


def _other_values(output: WrongOutput, failure: Failure) -> Iterator[OtherValues]:
    """Values that the wrong elements may hold instead: a pattern, words, and the values.

    And the elements that have such a value, if not all.
    """
    sample = output.wrong_sample
    previous = {n: x for n, x in failure.context.previous.items() if n == output.name}
    others = {other.name: other.expected for other in failure.outputs if other is not output}
    for pattern, words, tensors in (
        ("stale", "holds the results of an earlier call", previous),
        ("copied input", "equal to the input {}", failure.context.tensors()),
        ("swapped outputs", "holds the expected values of {}", {**failure.right, **others}),
    ):
        for name, tensor in tensors.items():
            if tensor.shape == output.got.shape:
                yield pattern, words.format(name), take(tensor, sample.at), None
    yield "negated", "the sign is wrong", -sample.expected, None
    yield from _moved(output)


def _moved(output: WrongOutput) -> Iterator[OtherValues]:
    """Values of elements at other places: two dimensions are transposed, or all is shifted by one.

    Values that a shift brings from outside may be anything. Where little is wrong, such as some
    rows of a sorted list, shifts follow from something else.
    """
    at, steps = output.wrong_sample.at, row_major_strides(output.shape)
    for i, j in combinations(range(len(output.shape)), 2):
        if 1 not in (output.shape[i], output.shape[j]):
            shape, swapped = list(output.shape), list(steps)
            for order in (shape, swapped):
                order[i], order[j] = order[j], order[i]
            pairs = zip(unraveled(at, shape), swapped, strict=True)
            source = torch.stack([index * step for index, step in pairs]).sum(0)
            words = f"{output.axis(i)} and {output.axis(j)} are transposed"
            yield "transposed", words, take(output.expected, source), None
    if not _is_mostly_wrong(output):
        return
    for dim, (size, step) in enumerate(zip(output.shape, steps, strict=True)):
        index = at // step % size
        for by in (1, -1):
            has_source = (index >= by) & (index - by < size)
            # A long shift leaves few elements. At a single index, two may be alike for any reason.
            if share(has_source) >= SHIFTED and vary(index):
                values = take(output.expected, torch.where(has_source, at - by * step, at))
                yield "shifted", f"shifted by {by:+d} along {output.axis(dim)}", values, has_source


def _is_mostly_wrong(output: WrongOutput) -> bool:
    """Whether most elements are wrong, of those for which neither 0 nor -inf is expected."""
    filled, _ = shares_filled(output)
    return output.count >= MOST * output.total * filled


def _permuted(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    values = output.any_sample.expected
    are_two = not output.got.is_floating_point() and len(torch.unique(values)) < 3
    if not output.is_number or are_two:
        return  # what isn't the one of two values is the other
    for dim, size in enumerate(output.shape):
        if 1 < size <= MOST_SLICES and (moves := _moves(output, dim)):
            texts = [f"{to} holds that of {from_}" for to, from_ in moves if to != from_]
            where_from = shortened(texts, 4)
            if len({from_ for _, from_ in moves}) == 1 < len(texts):
                where_from = f"{texts[0]}, and so do others"
            elif len(moves) < int(wrong_along(output, dim).sum()):
                where_from = f"{', '.join(texts[:4])} and more"
            in_moved = output.total * len(texts) / size
            extent = () if output.count >= NEARLY_ALL * in_moved else (",", how_many(output))
            words = f"right values at the wrong {output.axis(dim)}: {where_from}"
            yield "permuted", (words, *extent)


def _moves(output: WrongOutput, dim: int) -> list[tuple[int, int]] | None:
    """Which slices of a dimension hold another's values, if all wrong ones do."""
    size, step = output.shape[dim], row_major_strides(output.shape)[dim]
    index = output.wrong_sample.at // step % size
    wrong = torch.unique(index)[:SLICES]
    # The same elements of every slice, at which the wrong ones are wrong.
    marks = evenly(torch.unique(output.wrong_sample.at - index * step), MARKS)
    if len(marks) < LEAST_MARKS:
        return None
    every = output.sample_at(marks + torch.arange(size, device=marks.device)[:, None] * step)
    unit = 2 * every.bound.amax(0).clamp(min=1e-300)
    got, expected = every.got / unit, every.expected / unit
    # The expected values are the same: that is no move.
    alike = torch.cdist(expected[wrong], expected, p=inf) <= 1
    same = (torch.cdist(got[wrong], expected, p=inf) <= 1) & ~alike
    if share(same.any(1)) < NEARLY_ALL or not vary(got[wrong]):
        return None
    wrong, same = wrong[same.any(1)], same[same.any(1)]
    like = same.any(0).nonzero()[:, 0]
    are_few = len(like) <= MOST_LIKE
    each, of_all = _kinds(same[:, like], expected[like]) if are_few else (inf, 0)
    if each > MOST_ALIKE or (of_all == 1 < len(like) and len(wrong) > 1):
        return None  # values of many slices belong to none; nor do those of one that many equal
    # Of slices that are equal, the one that is as far away as most are.
    by = (like - wrong[:, None]) % size
    usual = torch.bincount(by[same[:, like]], minlength=size)
    sources = like[torch.where(same[:, like], usual[by], -1).argmax(1)].tolist()
    if len(set(sources)) == 1 < len(sources):
        # One for all is that at an end of the dimension, or of those that are wrong. A few small
        # integers are alike by chance.
        ends = {0, int(wrong.min()) - 1, int(wrong.max()) + 1, size - 1}
        are_few = len(marks) < MARKS and not output.got.is_floating_point()
        if are_few or not ends & set(sources):
            return None
    elif len(set(sources)) < NEARLY_ALL * len(sources):
        return None  # neither one for all nor one for each: they are just similar
    moves = list(zip(wrong.tolist(), sources, strict=True))
    # First those that only one slice explains, unless slices are equal in groups.
    matches = dict(zip(wrong.tolist(), same.sum(1).tolist(), strict=True))
    return sorted(moves, key=lambda move: matches[move[0]])


def _kinds(same: torch.Tensor, slices: torch.Tensor) -> tuple[float, int]:
    """How many slices a wrong one is the same as, on average, and how many there are of all.

    Equal ones count once.
    """
    alike = torch.cdist(slices, slices, p=inf) <= 1
    first = alike.int().argmax(1)
    if torch.equal(alike, first[:, None] == first):  # else each is only like the next
        same = same[:, first == torch.arange(len(first), device=first.device)]
    return float(same.sum(1).double().mean()), same.shape[1]


# ---- which elements are wrong, whatever their values ----


def _dense_location(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    location = localize(output)
    if location and location.dense and location.name not in ("everywhere", "one element"):
        yield from _location(output, failure)


def _location(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    location = localize(output)
    if output.total < FEW:
        yield "everywhere" if output.count == output.total else "scattered", (_wrong(output),)
    else:
        name = location.name if location else "scattered"
        yield name, (_wrong(output), *where(output))
        yield "scattered", (_wrong(output), how_many(output))


def _wrong(output: WrongOutput) -> str | parts.WrongBool:
    """``wrong``; for bools, which way if it is the same for all."""
    sides = [] if output.is_number else torch.unique(output.wrong_sample.got).tolist()
    return parts.WrongBool(str(not sides[0]), got=str(bool(sides[0]))) if len(sides) == 1 else WRONG


# ---- small errors ----


def _rounded_toward_zero(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """Every element is rounded toward zero, where half of them should be rounded away from it."""
    precision, sample = PRECISION.get(output.got.dtype), output.any_sample
    got, expected = sample.got.abs(), sample.expected.abs()
    normal = expected.isfinite() & (expected >= torch.finfo(torch.float16).tiny)
    if precision is None or int(normal.sum()) < 64:
        return
    step = 2 * precision.roundoff * expected[normal].frexp().exponent.sub(1).double().exp2()
    below = (expected[normal] - got[normal]) / step
    if share((below > -0.05) & (below < 1.05)) >= 0.98 and _is_half(below, expected[normal], step):
        words = "every element is rounded toward zero, not to the nearest number"
        yield "rounded toward zero", (words,)


def _is_half(below: torch.Tensor, expected: torch.Tensor, step: torch.Tensor) -> bool:
    """Whether elements are half a step too low, whatever their leading and last bits are.

    With few bits, a factor also lowers half of the numbers, those with larger mantissas, and a
    missing last bit those that have it. Steps below powers of two are shorter than above.
    """
    mantissa = expected.frexp().mantissa
    sort = 2 * (mantissa >= 0.75).int() + (expected / step).floor().remainder(2).int()
    sorts = [below[(sort == k) & (mantissa > 0.5)] for k in range(4)]
    seen = [each for each in sorts if len(each)]
    half = [abs(float(each.mean()) - 0.5) < 0.1 + len(each) ** -0.5 for each in seen]
    return len(seen) > 1 and all(half)


def _small_errors(output: WrongOutput, failure: Failure) -> Iterator[tuple[str, Sentence]]:
    """Small errors of every element; those of rounding change with the inputs."""
    if not output.got.is_floating_point():
        return
    rows = output.rows(output.any_sample)
    rows = output.sample_at(rows.at[rows.finite.all(1)])
    if rows.at.numel() < 16:
        return
    used = (rows.error / rows.bound.clamp(min=1e-300)).square().mean(1).sqrt()
    if float(used.median()) < ROUNDING_SHARE:  # most rows have no more than errors of rounding
        return
    scale = rows.expected.square().mean(1, keepdim=True).sqrt()
    has_scale = scale[:, 0] > 0
    error = (rows.error / scale)[has_scale]
    if not error.numel() or not 2.0**-14 < (size := rms(error)) < SMALL:
        return
    sample = output.any_sample
    if not _like_rounding(error) or share(sample.error[sample.finite] != 0) < MOST:
        return
    are_seen = sample.error[sample.finite].abs() > FAINT * rms(sample.error[sample.finite])
    extent = parts.Everywhere() if share(are_seen) >= NEARLY_ALL else "in most elements"
    words = f"errors of {100 * size:.2g} % of a row's scale"
    moved = errors_of_moved_inputs(output, failure, MOVED * size)
    if moved is None:
        yield "small errors", (words, extent)
    elif abs(correlation(take(moved, rows.at), rows.error, beside=rows.expected)) < RELATED:
        like_rounding = (parts.LikeRounding(),) if size < LIKE_ROUNDING else ()
        yield "lower precision", (words, extent, *like_rounding)


def _like_rounding(error: torch.Tensor) -> bool:
    """Whether errors [rows, elements] are in most elements and rows, and have no direction.

    A window, or a missing term, makes all elements larger, or all smaller; or it changes some rows
    only, and by more.
    """
    size, chance = rms(error), 4 / sqrt(error.numel())
    direction = max(abs(float(error.mean())) / size, abs(float(error.sign().mean())))
    of_rows = error.square().mean(1).sqrt()
    return (
        direction <= 0.1 + chance
        and float(error.abs().median()) >= 0.2 * size
        and float(of_rows.median()) >= 0.1 * size
    )


#: Detectors that say what went wrong, the most specific first.
SPECIFIC: tuple[Detector, ...] = (
    _wrong_flag,
    _never_written,
    _special_values,
    _one_value,
    _wrapped,
    _held_values,
    _rounded_toward_zero,
    _permuted,
)
#: Detectors that describe more than they explain.
GENERAL: tuple[Detector, ...] = (
    factor_or_offset,
    _dense_location,
    _small_errors,
    _location,
)
