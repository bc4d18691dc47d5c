"""A planted mistake is named, in the words of its pattern, and noise is not."""

import math
import re

import pytest
import torch

from pytest_fib.diagnosis import (
    VAGUE_PATTERNS,
    CallContext,
    Failure,
    WrongOutput,
    explain,
    without_rounding,
)
from pytest_fib.sandbox import POISONS, fill_with_poison

ROUNDOFF = {torch.float32: 2.0**-24, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
CONSTANT = {torch.float32: 32.0}

NORM = (("batch", "hidden_size"), (48, 1024), torch.bfloat16)
ATTENTION = (("batch", "num_qo_heads", "head_dim"), (20, 16, 64), torch.float16)
LSE = (("batch", "num_qo_heads"), (24, 16), torch.float32)
GEMM = (("M", "N"), (96, 160), torch.float16)
VECTOR = (("n",), (5000,), torch.float32)


def normal(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def output(got, expected, dims, name="out"):
    """What a verdict would say of ``got``, by the usual bound of its dtype."""
    bound = torch.zeros(())
    if got.is_floating_point():
        sound = torch.where(expected.isfinite(), expected, 0.0)
        scale = sound.square().mean(-1, keepdim=True).sqrt()
        bound = CONSTANT.get(got.dtype, 2.0) * ROUNDOFF[got.dtype] * (sound.abs() + scale) + 1e-30
    same = (got.double() == expected) | (got.isnan() & expected.isnan())
    wrong = ~same & ~((got.double() - expected).abs() <= bound)
    return WrongOutput(name, dims, got, expected, wrong, bound)


def explained(kind, change, expected=None, **facts):
    """The explanation of an output that ``change`` made of the expected one."""
    dims, shape, dtype = kind
    expected = normal(shape) if expected is None else expected
    got = change(expected.clone()).to(dtype).contiguous()
    axes = dict(zip(dims, shape, strict=True))
    return explain(Failure((output(got, expected, dims),), CallContext(axes=axes, **facts)))


def test_of_whole_numbers_the_first_that_is_wrong_is_shown():
    """Behind the first that a running count misses, each is too few, and the last by most."""
    expected = torch.arange(40.0, dtype=torch.float64).reshape(1, 40)
    change = put(ALL, slice(9, None), value=lambda x: x - 1 - torch.arange(31.0))
    found = explained((("rows", "d"), (1, 40), torch.int64), change, expected)
    assert found.element.startswith("out[0, 9] got 8, expected 9")


def test_a_factor_that_only_a_part_of_each_row_has_is_not_said_of_all():
    """As where each group of a row has a scale of its own, and some of these are rounded."""
    change = put(ALL, slice(0, 32), value=scaled(1 - 0.0009))
    for seed in range(6):
        expected = normal((1, 64), seed).half().double()
        found = explained((("rows", "d"), (1, 64), torch.float16), change, expected)
        assert "every element" not in found.sentence


def experiments(expected, error):
    """What a kernel and its reference make of moved inputs, whose errors are then these."""
    return {
        "inputs": {"x": torch.ones(4)},
        "reference_outputs": lambda values: {"out": expected},
        "outputs": lambda values: {"out": expected + error},
    }


def put(*index, value):
    """Put a value, or what a function makes of those there, at an index."""

    def change(x):
        x[index] = value(x[index]) if callable(value) else value
        return x

    return change


def scaled(factor):
    return lambda x: x * factor


ALL = slice(None)


@pytest.mark.parametrize(
    ("kind", "change", "pattern", "place"),
    [
        (NORM, scaled(0.0), "zeros", "everywhere"),
        (NORM, put(5, value=0.0), "zeros", "whole rows"),
        (NORM, put(47, value=0.0), "zeros", "last tile"),
        (NORM, put(ALL, slice(960, None), value=0.0), "zeros", "last tile"),
        (NORM, put(ALL, -1, value=0.0), "zeros", "last tile"),
        (NORM, put(ALL, slice(128, 256), value=0.0), "zeros", "whole columns"),
        (NORM, put(ALL, slice(3, None, 4), value=0.0), "zeros", "every k-th"),
        (VECTOR, put(slice(4992, None), value=0.0), "zeros", "last tile"),
        (VECTOR, put(-1, value=0.0), "zeros", "last tile"),
        (VECTOR, put(slice(0, None, 2), value=0.0), "zeros", "every k-th"),
        (ATTENTION, put(ALL, 3, value=0.0), "zeros", "one head"),
        (ATTENTION, put(ALL, slice(None, None, 2), value=0.0), "zeros", "every k-th"),
        (ATTENTION, put(ALL, ALL, slice(48, None), value=0.0), "zeros", "last tile"),
        (ATTENTION, put(7, value=0.0), "zeros", "whole rows"),
        (NORM, lambda x: torch.full_like(x, 0.75), "constant", "everywhere"),
        (NORM, torch.neg, "negated", "everywhere"),
        (ATTENTION, put(ALL, 3, value=torch.neg), "negated", "one head"),
        (NORM, scaled(1.005), "one factor", None),
        (NORM, scaled(0.5), "one factor", "everywhere"),
        (ATTENTION, scaled(1.01), "one factor", None),
        (VECTOR, scaled(1 + 1e-4), "one factor", None),
        (ATTENTION, put(ALL, 3, value=scaled(2.0)), "one factor", "one head"),
        (NORM, lambda x: x + 0.05, "one offset", None),
        (LSE, lambda x: x + 0.5, "one offset", "everywhere"),
        (LSE, scaled(1 / math.log(2)), "one factor", "everywhere"),
        (GEMM, lambda x: x.T.contiguous().view(96, 160), "transposed", "everywhere"),
        (GEMM, lambda x: x.roll(1, 0), "shifted", "everywhere"),
        (GEMM, lambda x: x.roll(-1, 1), "shifted", "everywhere"),
        (VECTOR, lambda x: x.roll(1, 0), "shifted", "everywhere"),
        (ATTENTION, lambda x: x[:, torch.arange(16) * 5 % 16], "permuted", None),
        (GEMM, lambda x: x.flip(0), "permuted", None),
        (NORM, lambda x: x.roll(512, 1), "permuted", "everywhere"),
        (NORM, lambda x: x * torch.linspace(1.1, 2, 48)[:, None], "factor per row", None),
        (NORM, put(ALL, slice(960, None), value=torch.exp), "last tile", "last tile"),
        (ATTENTION, put(ALL, 11, value=torch.exp), "one head", "one head"),
        (NORM, put(11, value=torch.exp), "whole rows", "whole rows"),
        (NORM, put(ALL, slice(64, 128), value=torch.exp), "whole columns", "whole columns"),
        (GEMM, put(slice(64, None), slice(128, None), value=torch.exp), "last tile", "last tile"),
        (NORM, put(3, 17, value=9.0), "one element", "one element"),
        (NORM, scaled(math.nan), "nan", "everywhere"),
        (ATTENTION, put(ALL, 2, value=math.nan), "nan", "one head"),
        (GEMM, lambda x: x.cos().exp(), "everywhere", "everywhere"),
    ],
)
def test_a_planted_mistake_is_named(kind, change, pattern, place):
    found = explained(kind, change)
    assert found.pattern == pattern, found.sentence
    assert place in (None, found.place), found.sentence


@pytest.mark.parametrize("poison", POISONS)
@pytest.mark.parametrize(
    ("kind", "index", "place"),
    [
        (NORM, (slice(None),), "everywhere"),
        (NORM, (slice(None), slice(960, None)), "last tile"),
        (ATTENTION, (slice(None), 5), "one head"),
        (VECTOR, (slice(1, None, 2),), "every k-th"),
    ],
)
def test_what_was_never_written_is_named_by_its_poison(kind, index, place, poison):
    dims, shape, dtype = kind
    expected = normal(shape)
    got = expected.to(dtype)
    got[index] = fill_with_poison(torch.empty(1, dtype=dtype), poison)
    found = explain(Failure((output(got, expected, dims),), CallContext(poisons=(poison,))))
    assert (found.pattern, found.place) == ("unwritten", place)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.bool, torch.int8])
@pytest.mark.parametrize("written", [True, False])
def test_a_byte_that_is_poison_too_was_written_unless_the_other_call_left_its_own(dtype, written):
    expected = normal((40, 16)).sign().double().clamp(min=0)
    again = expected.to(torch.float32).to(dtype)
    left, others = (fill_with_poison(again[:1, :1].clone(), poison) for poison in POISONS)
    got = torch.where(expected > 0, left.view(torch.uint8), again.view(torch.uint8)).view(dtype)
    wrong = got if written else others.view(torch.uint8)
    second = torch.where(expected > 0, wrong.view(torch.uint8), again.view(torch.uint8)).view(dtype)
    failed = WrongOutput("out", ("a", "b"), got, expected, expected > 0, torch.zeros(()))
    context = CallContext(poisons=POISONS, second_outputs={"out": second})
    assert (explain(Failure((failed,), context)).pattern == "unwritten") is not written


def test_results_of_an_earlier_call_are_stale():
    before = normal(NORM[1], seed=1)
    found = explained(NORM, lambda x: before, previous={"out": before})
    assert (found.pattern, found.place) == ("stale", "everywhere")


def test_a_number_in_place_of_an_infinity_is_named():
    expected = normal(LSE[1])
    expected[3] = -math.inf
    found = explained(LSE, lambda x: x.nan_to_num(neginf=-1e4), expected)
    assert (found.pattern, found.place) == ("lost special value", "padding region")


def test_what_is_finite_or_infinite_in_place_of_nan_is_a_number():
    expected = torch.full((64,), math.nan, dtype=torch.float64)
    got = torch.arange(64.0)
    for some, words in ((got, "finite numbers"), (got.masked_fill(got > 60, math.inf), "numbers")):
        found = explained((("n",), (64,), torch.float32), lambda x, some=some: some, expected)
        assert found.sentence.removeprefix("out: ").startswith(f"{words} ")


def test_infinities_in_place_of_numbers_and_the_other_way_are_both_told():
    expected = torch.tensor([1.0, -math.inf], dtype=torch.float64)
    found = explained((("n",), (2,), torch.float32), lambda x: x.flip(0), expected)
    assert "-inf where numbers are expected, and vice versa" in found.sentence


def test_one_number_in_place_of_another_is_no_factor():
    """As of a clamp, in a workload in which all elements are at its end."""
    expected = torch.full((8,), 448.0, dtype=torch.float64)
    expected[3] = -448.0
    found = explained((("n",), (8,), torch.float32), lambda x: x.clamp(-240, 240), expected)
    assert "x expected" not in found.sentence


def test_nearly_everywhere_is_not_where_a_threshold_leaves_the_first_right():
    found = explained(VECTOR, put(slice(64, None), value=0.0))
    assert (found.pattern, found.sentence) == ("zeros", "out: zeros at n 64..4999")
    by_chance = explained(VECTOR, put(torch.arange(5000) % 97 != 5, value=0.0))
    assert by_chance.sentence == "out: zeros at 4948 of 5000 elements"


def test_a_range_in_which_some_are_right_by_chance_is_a_place():
    expected = normal((300, 8))
    expected[torch.randperm(300, generator=torch.Generator().manual_seed(1))[:150]] = 0.0
    expected[200], expected[298], expected[299] = 1.0, 1.0, 0.0

    def tail(x):
        x[200:] = 0
        return x

    found = explained((("n", "d"), (300, 8), torch.float32), tail, expected)
    assert found.sentence == "out: zeros where it is wrong: in 55 % of elements at n 200..298"
    zero_at_one = normal((300,)).index_fill(0, torch.tensor([150]), 0.0)
    found = explained((("n",), (300,), torch.float32), put(slice(100, 299), value=0.0), zero_at_one)
    assert found.sentence == "out: zeros at n 100..298"
    found = explained(
        (("n",), (300,), torch.float32), put(torch.arange(1, 300, 3) * 7 % 300, value=9.0)
    )
    assert " at n " not in found.sentence


def test_the_share_is_of_the_place_that_is_named():
    """Not of fewer rows, which happen to have all of the errors."""
    at = torch.rand((40, 6, 50), generator=torch.Generator().manual_seed(0)) < 0.02
    at[:, :4] = False
    at[3::9] = False

    def some(x):
        x[at] += 3
        return x

    found = explained((("rows", "heads", "d"), (40, 6, 50), torch.float32), some)
    share = 100 * at.sum() / (40 * 2 * 50)
    assert f"in {share:.2g} % of elements at the last 2 of 6 along heads" in found.sentence


def test_what_a_place_leaves_out_comes_last():
    rows = torch.arange(8)[:, None] != 2
    columns = torch.arange(80) < 48
    found = explained(
        (("tokens", "dim"), (8, 80), torch.float32),
        lambda x: torch.where(rows & columns, normal(x.shape, 7), x),
        normal((8, 80)),
    )
    assert found.sentence.startswith(
        "out: wrong at the first 48 of 80 along dim, except at tokens 2"
    )


@pytest.mark.parametrize(
    ("size", "why"),
    [
        (4096, "off by one?"),
        (65, "off by one, or the rest after tiles of up to 64?"),
    ],
)
def test_one_last_index_may_be_the_rest_after_tiles(size, why):
    found = explained((("n",), (size,), torch.float32), put(slice(-1, None), value=0.0))
    assert found.sentence.startswith("out: zeros in the very last element")
    kind = (("rows", "n"), (40, size), torch.float32)
    found = explained(kind, put(slice(None), -1, value=0.0))
    assert found.sentence == f"out: zeros at the last of {size} along n ({why})"


@pytest.mark.parametrize(
    ("size", "past"), [(1169, ", all past 1024"), (1300, ""), (2080, ", all past 2048")]
)
def test_a_limit_is_named_as_well_as_tiles(size, past):
    kind = (("rows", "n"), (40, size), torch.float32)
    wrong = size - 1024 if size < 2000 else 32
    wrong = wrong if past else 20
    found = explained(kind, put(slice(None), slice(-wrong, None), value=0.0))
    assert found.sentence.startswith(f"out: zeros at the last {wrong} of {size} along n")
    assert found.sentence.endswith(past) or not past
    assert past or "past" not in found.sentence


@pytest.mark.parametrize(
    ("others", "where"),
    [
        ([-1], "in the very last element"),
        ([40], "at 1 of 320 elements"),
        ([], "at 1 of 320 elements"),
    ],
)
def test_the_very_last_element_is_named_if_it_is_wrong_with_other_inputs_too(others, where):
    expected = normal((320,))
    wrong = [output(put(at, value=7.0)(expected.float()), expected, ("n",)) for at in (-1, *others)]
    failure = Failure((wrong[0],))
    vars(failure)["elsewhere"] = (Failure(tuple(wrong[1:])),)  # what other inputs would show
    assert explain(failure).sentence.startswith(f"out: wrong {where}")


def test_zeros_of_integers_are_named_with_what_they_stand_for():
    """0 may be a token: it need not be what nobody wrote."""
    expected = torch.arange(200, dtype=torch.float64)
    expected[50:] = -1
    found = explained((("n",), (200,), torch.int64), lambda x: x.clamp(min=0), expected)
    assert found.sentence == "out: 0 in place of -1 at n 50..199"


def test_padding_is_a_place():
    expected = normal(NORM[1])
    expected[[3, 9, 11, 30]] = 0.0
    found = explained(NORM, lambda x: torch.where(x == 0, normal(x.shape, 3), x), expected)
    assert (found.pattern, found.place) == ("padding region", "padding region")


def test_no_factor_or_offset_lies_between_integers_that_is_none_of_them():
    expected = torch.arange(600, dtype=torch.float64).view(20, 30)
    kind = (NORM[0], (20, 30), torch.int64)
    for change in (lambda x: (0.61 * x).round(), lambda x: x + (x % 3 > 0)):
        assert explained(kind, change, expected).pattern not in ("one factor", "one offset")


def test_what_is_small_beside_what_is_expected_is_not_zeros():
    expected = normal(NORM[1])
    zero = {"x": torch.zeros(NORM[1]).bfloat16()}
    found = explained(NORM, lambda x: x * 2.0**-8, expected, inputs=zero)
    assert found.pattern == "one factor"


@pytest.mark.parametrize("both", [True, False])
def test_outputs_that_change_places_are_named(both):
    a, b = normal(NORM[1]), normal(NORM[1], seed=1)
    got = (b, a if both else b)
    outputs = tuple(
        output(got.bfloat16(), expected, NORM[0], name)
        for name, got, expected in zip("ab", got, (a, b), strict=True)
    )
    found = explain(Failure(outputs))
    assert found.pattern == "swapped outputs"
    assert "holds the expected values of" in found.sentence


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.003, True), (1.02, False)])
def test_values_times_one_factor_are_not_held_though_a_bound_allows_for_both(factor, holds):
    right = normal((4096,))
    got, bound = right * 2**0.5 * factor, torch.full((), 0.05, dtype=torch.float64)
    wrong = (got - right).abs() > bound
    output = WrongOutput("out", ("n",), got, right, wrong, bound)
    assert output.holds(output.wrong_sample.expected * 2**0.5) == holds


def test_an_input_handed_back_is_named():
    x = normal(NORM[1], seed=4).bfloat16()
    found = explained(NORM, lambda _: x.double(), inputs={"x": x})
    assert found.pattern == "copied input"
    assert "equal to the input x" in found.sentence


@pytest.mark.parametrize(
    ("factor", "words"),
    [
        (math.log(2), "ln 2: a logarithm"),
        (1 / 24, "1 / batch"),
        (24**0.5, "sqrt(batch)"),
        (24 / 23, "batch / (batch - 1)"),
        (0.09, "(which is sm_scale)"),
        (1.37, "every element is 1.37 x expected"),
    ],
)
def test_a_factor_says_what_it_is_known_for(factor, words):
    found = explained(LSE, scaled(factor), inputs={"sm_scale": 0.09})
    assert found.sentence.endswith(f"{words})") or words in found.sentence


def test_a_ratio_of_small_numbers_may_come_from_anywhere():
    found = explained((("batch", "n"), (3, 400), torch.float32), scaled(2 / 3))
    assert found.sentence == "out: every element is 0.66667 x expected"


def test_numbers_of_another_size_are_no_factor():
    kind = (("m", "n"), (33, 63), torch.float32)
    sums = 1e5 + 1e4 * normal((33, 63))
    found = explained(kind, lambda y: y.round().remainder(65536) / 256 - 128, sums)
    assert "x expected" not in found.sentence


def test_a_function_that_bends_is_no_factor():
    found = explained(GEMM, lambda y: y / (1 + 0.004 * y.abs()))
    assert "x expected" not in found.sentence


def test_a_wrong_epsilon_is_a_factor_of_small_rows():
    x = normal(NORM[1]) * torch.logspace(-4, 0, 48, dtype=torch.float64)[:, None]
    norm = [x / (x.square().mean(1, keepdim=True) + eps).sqrt() for eps in (1e-6, 1e-5)]
    found = explained(NORM, lambda _: norm[1], norm[0], inputs={"x": x.bfloat16()})
    assert found.pattern == "factor per row"


@pytest.mark.parametrize("low", [torch.float16, torch.bfloat16])
def test_a_lower_precision_is_named(low):
    a, b = normal((96, 256)), normal((256, 160), seed=1)
    rounded = a.to(low).double() @ b.to(low).double()
    tried = experiments(a @ b, normal(GEMM[1], 2))
    found = explained((GEMM[0], GEMM[1], torch.float32), lambda _: rounded, a @ b, **tried)
    assert found.pattern == "lower precision"
    assert "like those of rounding" in found.sentence


@pytest.mark.parametrize("kind", [NORM, GEMM])
def test_rounding_toward_zero_is_named(kind):
    def truncated(x):
        near = x.to(kind[2])
        down = torch.nextafter(near, torch.zeros_like(near))
        return torch.where(near.double().abs() > x.abs(), down, near).double()

    expected = normal(kind[1])
    got = truncated(expected).to(kind[2])
    wrong = output(got, expected, kind[0])
    wrong.wrong.zero_()
    assert explain(Failure((wrong,))).pattern == "rounded toward zero"


def test_half_of_8_bit_numbers_one_step_lower_are_not_all_rounded_toward_zero():
    """A factor lowers those with large mantissas, two bits of mantissa those with an odd one."""
    dtype = torch.float8_e4m3fn
    exact = 8 * normal((64, 256))
    expected = exact.to(dtype).double()
    bits = exact.to(dtype).view(torch.uint8)
    truncated = bits - (expected.abs() > exact.abs()).byte()
    coarse = bits - (bits & 1)

    def pattern(got):
        wrong = got.double() != expected
        found = WrongOutput("q", ("m", "n"), got, expected, wrong, torch.zeros(()))
        return explain(Failure((found,))).pattern

    assert pattern(truncated.view(dtype)) == "rounded toward zero"
    assert pattern(coarse.view(dtype)) != "rounded toward zero"
    assert pattern((0.95 * exact).to(dtype)) != "rounded toward zero"


def test_an_output_that_holds_what_a_right_one_should_is_named():
    a, b = normal(NORM[1]), normal(NORM[1], seed=1)
    wrong = output(a.bfloat16(), b, NORM[0], "b")
    found = explain(Failure((wrong,), right={"a": a}))
    assert (found.pattern, found.sentence) == (
        "swapped outputs",
        "b: holds the expected values of a nearly everywhere",
    )


def test_nan_that_was_computed_is_not_taken_for_poison():
    for dtype in ROUNDOFF:
        expected = normal(NORM[1])
        got = (expected.float() * math.inf * 0).to(dtype)
        found = explain(Failure((output(got, expected, NORM[0]),), CallContext(poisons=POISONS)))
        assert found.pattern == "nan"


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_errors_that_are_larger_in_some_rows_are_no_place(share):
    """Noise everywhere, beyond the bound of few elements, in no order."""

    def change(x):
        size = torch.linspace(0.2, 1, len(x), dtype=x.dtype)[:, None]
        return x + normal(x.shape, 11) * size * 0.02 * share

    found = explained(NORM, change)
    assert (found.pattern, found.place in ("", "everywhere")) == ("small errors", True)


def test_integers_are_explained_too():
    expected = torch.arange(600).square().remainder(997).view(20, 30).double()
    kind = (("a", "b"), (20, 30), torch.int32)
    assert explained(kind, lambda x: x + 1, expected).pattern == "one offset"


@pytest.mark.parametrize("kind", [NORM, ATTENTION, LSE, GEMM, VECTOR])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("share", [0.0005, 0.01, 0.2])
def test_noise_at_scattered_elements_has_no_pattern(kind, seed, share):
    def change(x):
        generator = torch.Generator().manual_seed(seed)
        hit = torch.rand(x.shape, generator=generator) < share
        return torch.where(hit, x + normal(x.shape, seed + 50), x)

    # A handful of elements may all lie in one row; else there is nothing more to say.
    assert explained(kind, change).pattern in ("scattered", "one element", "everywhere")


@pytest.mark.parametrize("kind", [NORM, ATTENTION, LSE, GEMM, VECTOR])
@pytest.mark.parametrize("seed", range(6))
def test_noise_everywhere_is_a_lower_precision_if_it_is_another_for_other_inputs(kind, seed):
    expected, error = normal(kind[1]), normal(kind[1], seed + 90) * 1e-2
    for again, is_rounding in ((normal(kind[1], seed + 91), True), (error, False)):
        found = explained(kind, lambda x: x + error, expected, **experiments(expected, again))
        assert (found.pattern == "lower precision") is is_rounding
    assert explained(kind, lambda x: x + error).pattern == "small errors"


@pytest.mark.parametrize("shape", [(96, 160), (96, 8)])
@pytest.mark.parametrize("other_choices", [1 / 8, 2 / 3])
def test_noise_is_a_lower_precision_where_moved_inputs_choose_the_same(shape, other_choices):
    """Elements of other choices are not the same, so their values say nothing."""
    expected = normal(GEMM[1])
    error, again = (normal(GEMM[1], seed) * 1e-3 for seed in (1, 2))
    ids = torch.zeros(shape, dtype=torch.int32)
    is_other = torch.rand(shape if shape == GEMM[1] else (96, 1)) < other_choices

    def other_where_moved_far(values):
        far = float((values["x"] - 1).abs().max()) > 0.02
        return torch.where(is_other, int(far), ids)

    right = output((expected + error).float(), expected, GEMM[0])
    for of_moved, pattern in ((again, "lower precision"), (error, "everywhere")):
        tried = CallContext(
            inputs={"x": torch.ones(4)},
            reference_outputs=lambda x: {"out": expected, "ids": other_where_moved_far(x)},
            outputs=lambda x, e=of_moved: {"out": expected + e, "ids": other_where_moved_far(x)},
        )
        assert explain(Failure((right,), tried, {"ids": ids})).pattern == pattern


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_elements_say_little(n):
    kind = (("n",), (n,), torch.float32)
    found = explained(kind, lambda x: normal(x.shape, 7))
    assert found.pattern in ("everywhere", "one element", "scattered")
    assert len(found.details) == n


def test_an_output_that_is_wrong_as_a_whole_only_is_looked_at_as_a_whole():
    expected = normal(NORM[1])
    wrong = output((expected * 1.004).bfloat16(), expected, NORM[0])
    wrong.wrong.zero_()
    found = explain(Failure((wrong,)))
    assert found.pattern == "one factor"
    assert "1.004 x expected" in found.sentence


def test_the_worst_elements_are_shown_in_80_columns():
    found = explained(NORM, lambda x: put(5, 9, value=1e6)(put(40, value=3.0)(x)))
    assert found.details[0].startswith("  out[5, 9] got 999424, expected ")
    assert len(found.details) == 5
    assert all(len(line) <= 80 for line in found.details)


def test_a_large_output_is_sampled_and_still_named():
    dims, shape = ("batch", "hidden_size"), (1024, 4096)
    kind = (dims, shape, torch.float16)
    assert explained(kind, put(ALL, slice(4064, None), value=0.0)).place == "last tile"
    assert explained(kind, scaled(1.01)).pattern == "one factor"
    assert explained(kind, put(5, 77, value=9.0)).pattern == "one element"


def test_the_largest_errors_of_all_sizes_are_no_offset():
    def off(y):
        return y + 0.024 * torch.rand(y.shape, generator=torch.Generator().manual_seed(0))

    found = explained((GEMM[0], GEMM[1], torch.bfloat16), off, 1 + normal(GEMM[1]).abs() / 8)
    assert "off by" not in found.sentence


def test_errors_beside_larger_ones_are_not_called_like_those_of_rounding():
    a, b = normal((96, 256)), normal((256, 160), seed=1)
    rounded = a.bfloat16().double() @ b.bfloat16().double()
    tried = experiments(a @ b, normal(GEMM[1], 2))
    found = explained((GEMM[0], GEMM[1], torch.float32), lambda _: rounded, a @ b, **tried)
    sentence = without_rounding(found).sentence
    assert re.fullmatch(r"out: errors of 0.\d+ % of a row's scale everywhere", sentence)


def test_integers_are_said_whole():
    kind = (("a", "b"), (20, 30), torch.int64)
    found = explained(kind, lambda x: x - 1000003, torch.arange(600).view(20, 30) * 7919)
    assert found.sentence == "out: every element is off by -1000003"


def test_what_is_expected_is_said_once():
    expected = normal((48, 1024))
    expected[7:9] = 0
    found = explained(NORM, put(slice(7, 9), value=math.nan), expected)
    assert found.sentence == "out: NaN only where 0 is expected"
    expected[20:30] = 0  # of which not all are wrong
    found = explained(NORM, put(slice(7, 9), value=math.nan), expected)
    assert found.sentence == "out: NaN at batch 7..8, where 0 is expected"


@pytest.mark.parametrize(
    ("which", "place"),
    [
        (lambda i, j: i < j, "above the diagonal"),
        (lambda i, j: i > j, "below the diagonal"),
        (lambda i, j: i == j, "on the diagonal"),
        (lambda i, j: i <= j, "on the diagonal and above"),
        (lambda i, j: (i < j) & (i % 2 == 0), None),
    ],
)
def test_a_triangle_of_a_square_is_a_place(which, place):
    i = torch.arange(12)
    marked = which(i[:, None], i)
    matrices = (("batch", "n", "n"), (30, 12, 12), torch.float32)
    found = explained(matrices, lambda x: torch.where(marked, x.sin() + 9, x))
    assert (place is not None and found.sentence.endswith(f" wrong {place}")) or (
        place is None and "diagonal" not in found.sentence
    )


@pytest.mark.parametrize("kind", [NORM, GEMM])
def test_equal_values_are_not_called_moved(kind):
    """Whatever is wrong with one of many equal numbers, its neighbour holds what it should."""
    _, shape, _ = kind
    expected = normal((shape[0], 1)).expand(shape).clone()
    found = explained(kind, put(slice(4, 8), value=lambda x: x * 1.02), expected)
    assert found.pattern not in ("shifted", "transposed", "permuted")


def test_columns_that_are_nearly_alike_are_not_called_moved():
    """What is sorted the other way: a column is like several, and none of them is its own."""
    steps = torch.linspace(-3, 3, 400, dtype=torch.float64).expand(40, 400)
    expected = steps + 1e-4 * normal((40, 400)).sort(1).values
    found = explained(
        (("rows", "cols"), (40, 400), torch.float16),
        lambda x: x.flip(1)[:, ::2].repeat_interleave(2, 1),
        expected,
    )
    assert found.pattern != "permuted"


def test_two_slices_that_changed_places_are_no_shift():
    found = explained(
        (("tokens", "topk"), (60, 8), torch.float32),
        lambda x: x[:, [1, 0, 2, 3, 4, 5, 6, 7]],
    )
    assert found.pattern == "permuted"
    assert "0 holds that of 1, 1 holds that of 0" in found.sentence


def test_slices_that_are_equal_in_groups_changed_places():
    """Heads that share keys and values have equal outputs where there is a single key."""
    expected = normal((60, 4, 16)).repeat_interleave(4, 1)
    heads = (("tokens", "heads", "dim"), (60, 16, 16), torch.float32)
    found = explained(heads, lambda x: x.roll(4, 1), expected)
    assert found.pattern == "permuted"
    assert "0 holds that of 12, 1 holds that of 13" in found.sentence


def test_one_row_that_many_equal_is_no_permutation():
    expected = normal((40, 64))
    expected[:20] = expected[0]
    rows = (("n", "d"), (40, 64), torch.float32)
    found = explained(rows, put(slice(20, 40), value=expected[0].expand(20, 64)), expected)
    assert found.pattern != "permuted"


def test_of_slices_that_changed_places_in_part_it_is_said_how_much():
    def some(x):
        return torch.where(torch.arange(60)[:, None] % 2 == 0, x[:, [1, 0, *range(2, 8)]], x)

    found = explained((("tokens", "topk"), (60, 8), torch.float32), some)
    assert found.pattern == "permuted"
    assert found.sentence.endswith("1 holds that of 0, at 60 of 480 elements")


def test_small_errors_that_grow_with_part_of_a_value_are_no_rounding():
    part = normal(NORM[1], 1)
    expected = normal(NORM[1]) + part
    tried = experiments(expected, -0.02 * (expected - part))
    found = explained(NORM, lambda x: x - 0.02 * (x - part), expected, **tried)
    assert found.pattern in VAGUE_PATTERNS


def test_rows_of_one_number_each_have_no_factor():
    of_rows = normal((GEMM[1][0], 1)).exp().expand(GEMM[1]).clone()
    found = explained(GEMM, scaled(0.25), of_rows)
    assert (found.pattern, "factor" in found.sentence) == ("one factor", False)
    found = explained(GEMM, scaled(0.25), torch.full(GEMM[1], 3.0, dtype=torch.float64))
    assert found.sentence == "out: wrong everywhere"


def test_rows_of_one_number_and_its_roundings_have_no_factor_each():
    kind = (("tokens", "dim"), (24, 20), torch.float32)
    expected = normal((24, 1)).expand(24, 20) * (1 + normal((24, 20), 3) * 1e-7)
    others = normal((24, 1), 5).expand(24, 20)
    assert explained(kind, lambda x: others, expected).sentence == "out: wrong everywhere"


@pytest.mark.parametrize(("size", "is_tile"), [(64, True), (32, False), (75, False)])
def test_the_last_tile_is_one_of_several_that_fill_the_axis(size, is_tile):
    kind = (("tokens", "dim"), (40, size), torch.float32)
    last = torch.arange(size) >= size - 16
    found = explained(kind, lambda x: torch.where(last, normal(x.shape, 7), x), normal(kind[1]))
    assert f"wrong at the last 16 of {size} along dim" in found.sentence
    assert ("(a tile of 16?)" in found.sentence) == is_tile


def test_one_number_among_zeros_has_no_factor():
    one = torch.tensor([0.0, 3.0, 0.0], dtype=torch.float64)
    found = explained((("n",), (3,), torch.float32), scaled(0.7), one)
    assert "x expected" not in found.sentence


def test_factors_of_rows_that_look_the_same_are_one():
    right = normal(GEMM[1])
    spread = torch.linspace(1.9999, 2.0001, GEMM[1][0])[:, None]
    found = explained((*GEMM[:2], torch.float32), lambda x: x * spread, right)
    assert "factors" not in found.sentence
    near_one = torch.linspace(1.00002, 1.00004, GEMM[1][0])[:, None]
    found = explained((*GEMM[:2], torch.float32), lambda x: x * near_one, right)
    assert "rows are scaled, by factors from 1.00002 to 1.00004," in found.sentence


def test_rows_of_multiples_of_one_are_not_scaled_if_others_are_not():
    """As where all indices are the same: each row is then a multiple of the one that they pick."""
    table, weights, rows = normal((64, 32)), normal((33, 4), 1), torch.arange(132).view(33, 4)
    others_first = torch.cat([weights[:, :1].roll(1, 0), weights[:, 1:]], 1)

    def failure(picked):
        expected, got = (
            (each[..., None] * table[picked]).sum(1) for each in (weights, others_first)
        )
        return Failure((output(got.float(), expected, ("rows", "dim")),), CallContext())

    same, others = failure(torch.full((33, 4), 7)), failure(rows % 64)
    assert explain(same).pattern == "factor per row"
    vars(same)["elsewhere"] = (others, others)
    assert explain(same).pattern == "everywhere"


@pytest.mark.parametrize(
    ("dtype", "times"),
    [(torch.bfloat16, "0.901"), (torch.float16, "0.9012"), (torch.float32, "0.90123")],
)
def test_a_factor_has_the_digits_that_rounding_leaves(dtype, times):
    expected = normal((40, 16)).exp().to(dtype).double()
    which = (torch.arange(40) * 7 % 5 < 2)[:, None]
    found = explained((("a", "b"), (40, 16), dtype), lambda x: x * (1 - 0.09877 * which), expected)
    assert found.sentence == f"out: {times} x expected at 16 of 40 along a"


@pytest.mark.parametrize(
    ("dtype", "factor", "times"),
    [
        (torch.float32, 1.0000213, "1.00002"),
        (torch.float16, 1.0057, "1.006"),
        (torch.bfloat16, 0.972, "0.97"),
        (torch.bfloat16, 1.155, "1.15"),
        (torch.bfloat16, 3e-3, "0.003"),
    ],
)
def test_a_factor_of_a_few_elements_has_the_digits_that_are_known(dtype, factor, times):
    expected = normal((2, 12)).exp().to(dtype).double()
    found = explained((("a", "b"), (2, 12), dtype), lambda x: x * factor, expected)
    assert found.sentence.startswith(f"out: every element is {times}"), found.sentence


def test_numbers_that_lack_a_single_bit_are_not_called_wrapped_around():
    """Bit 31 of a mask of which no other high bit is set."""
    expected = torch.arange(40).double() % 7 + 2.0**31 * (torch.arange(40) % 8 == 3)
    found = explained((("n",), (40,), torch.int64), lambda x: x % 2.0**31, expected)
    assert "wrapped" not in found.sentence
    expected = torch.arange(40).double() * 1000
    found = explained((("n",), (40,), torch.int64), lambda x: x % 256, expected)
    assert found.sentence.startswith("out: wrapped around, as if of 8 bits")


@pytest.mark.parametrize(("count", "first"), [(1, False), (600, True)])
def test_elements_that_are_numbers_are_shown_before_a_few_that_are_not(count, first):
    """As of rows that were copied to other places, one of which has a NaN."""
    expected = normal((40, 16))
    expected.view(-1)[:count] = math.nan
    found = explained((("a", "b"), (40, 16), torch.float32), lambda x: x.roll(3, 0) * 2, expected)
    assert ("nan" in found.element) is first


def test_rows_that_now_sum_to_one_are_named():
    expected = normal((40, 16)).exp()
    expected /= 3 * expected.sum(1, keepdim=True) * normal((40, 1), 1).exp()
    kind = (("tokens", "experts"), (40, 16), torch.float32)
    found = explained(kind, lambda x: x / x.sum(1, keepdim=True), expected)
    assert (found.pattern, found.sentence.endswith("; each row sums to 1")) == (
        "factor per row",
        True,
    )


def test_the_sign_of_tiny_numbers_is_looked_at_closely():
    expected = normal(VECTOR[1]) * 1e-38
    found = explained(VECTOR, lambda x: x * 1.01 + 1e-40, expected)
    assert found.pattern != "negated"


@pytest.mark.parametrize(
    "change",
    [
        # A window leaves the rows within it as they are.
        lambda x: x + 0.03 * normal(x.shape, 3) * (torch.arange(len(x))[:, None] % 3 == 0),
        # A mean that is not subtracted changes every row along one vector.
        lambda x: x + 0.02 * normal((len(x), 1), 3) * normal(x.shape[1:], 4),
    ],
)
@pytest.mark.parametrize("kind", [NORM, LSE])
def test_small_errors_of_related_rows_are_no_lower_precision(kind, change):
    expected = normal(kind[1])
    tried = experiments(expected, change(expected.clone()) - expected)
    assert explained(kind, change, expected, **tried).pattern not in (
        "lower precision",
        "small errors",
    )


def test_small_errors_of_one_sign_are_no_lower_precision():
    """A window leaves out terms, so every logarithm of their sum is a little smaller."""
    kind = (LSE[0], (1, 32), torch.float32)
    found = explained(kind, lambda x: x - 0.005 * normal(x.shape, 3).abs())
    assert found.pattern == "everywhere"


def test_where_one_number_stands_for_another_that_is_no_factor():
    """As where a table's last entry is taken for the one before it."""
    expected = normal((5000,))
    expected[::7] = 0.25
    found = explained(VECTOR, lambda x: torch.where(x == 0.25, 7.3, x), expected)
    assert found.pattern not in ("one factor", "one offset")


def test_one_number_that_is_off_by_little_is_told_in_enough_digits():
    expected = torch.full((5000,), 0.25)
    expected[::2] = 0.5
    found = explained(VECTOR, lambda x: x * (1 + 2**-16), expected)
    assert found.pattern == "one factor"
    assert found.sentence == "out: every element is 1.00001526 x expected"


def test_a_single_number_does_not_say_that_it_is_from_elsewhere():
    labels = torch.arange(35, dtype=torch.int64).view(5, 7)
    labels[4, 2] = -100
    found = explained((("n", "m"), (5, 7), torch.int64), put(2, 4, value=-100), labels)
    assert found.pattern != "transposed"
    value = torch.tensor([[0.5]], dtype=torch.float64)
    outputs = (
        output(-value.float(), value, ("n", "m"), "amax"),
        output(-value.float(), -value, ("n", "m"), "dbias"),
    )
    found = explain(Failure(outputs, CallContext(axes={"n": 1, "m": 1})))
    assert found.pattern == "negated"


def test_infinities_of_the_wrong_sign_are_none_that_are_missing():
    expected = normal(VECTOR[1])
    expected[::3] = math.inf

    def change(x):
        x[:3000:3] = -math.inf
        x[3000::3] = 1.0
        return x

    found = explained(VECTOR, change, expected)
    assert found.sentence.startswith("out: wrong infinities at ")


def test_a_value_that_an_input_has_throughout_is_no_constant():
    bytes_ = (("n", "width"), (11, 400), torch.int32)
    expected = torch.arange(4400, dtype=torch.float64).view(11, 400) % 251
    for image, is_said in ((torch.full((11, 400), 128), False), (torch.arange(400), True)):
        found = explained(bytes_, put(3, value=128.0), expected, inputs={"image": image})
        assert ("the same value, 128" in found.sentence) is is_said, found.sentence


def test_zeros_are_no_product_with_a_scalar_without_which_they_are_zeros_too():
    expected = normal(VECTOR[1])
    for other, is_said in ((torch.zeros(5000), False), (torch.ones(5000), True)):
        facts = {"inputs": {"alpha": 0.0}, "outputs": lambda values, other=other: {"out": other}}
        found = explained(VECTOR, lambda x: x * 0, expected, **facts)
        assert found.sentence.startswith("out: zeros")
        assert ("where alpha is 0" in found.sentence) is is_said, found.sentence


def test_what_has_an_inputs_values_only_where_0_is_expected_may_have_them_elsewhere_too():
    x, keep = normal(NORM[1]), normal(NORM[1], 1) > -0.5
    given = x.to(torch.bfloat16)
    expected = torch.where(keep, given.double(), 0.0)
    found = explained(NORM, lambda _: given.double(), expected, inputs={"x": given})
    assert found.sentence == "out: wrong only where 0 is expected, and equal to the input x there"


def test_no_cause_is_guessed_of_what_is_wrong_in_part_of_the_last_elements():
    expected = normal((2000, 193))
    kind = (("rows", "classes"), (2000, 193), torch.float32)
    some = normal((2000,), 1) > 1.7
    found = explained(kind, put(some, -1, value=lambda x: x * 1.5 + 1), expected)
    assert "at the last of 193 along classes" in found.sentence
    assert "off by one" not in found.sentence


def test_nan_that_changes_places_with_a_number_is_there_and_missing():
    expected = normal(VECTOR[1])
    expected[::2] = math.nan
    found = explained(VECTOR, lambda x: x.view(-1, 2).flip(1).reshape(-1), expected)
    assert found.sentence.startswith("out: NaN where numbers are expected, and vice versa")


def test_every_other_element_of_a_part_of_a_row_is_named():
    """As the second elements of the pairs of a rotary embedding, which covers half of a head."""
    changed = put(ALL, slice(1, 32, 2), value=lambda x: x.sin())
    found = explained((("rows", "d"), (40, 64), torch.float32), changed, normal((40, 64)))
    assert "at every 2nd of d, from 1 to 31" in found.sentence


def test_errors_of_a_range_about_a_number_are_no_offset():
    """As of a square to which a little was added before."""
    spread = 8e-6 * (1 + 0.3 * normal((5000,), 1))
    some = torch.arange(5000) % 7 == 0
    found = explained(VECTOR, lambda x: torch.where(some, x + spread, x))
    assert "off by" not in found.sentence


def test_a_value_that_a_scalar_has_is_said_to_be_that():
    change = put(torch.arange(5000) % 3 == 0, value=0.005015)
    found = explained(VECTOR, change, inputs={"scale_ub": 0.005015})
    assert "the same value, 0.005015 (which is scale_ub), " in found.sentence
    halves = (VECTOR[0], VECTOR[1], torch.bfloat16)
    found = explained(halves, change, inputs={"scale_ub": 0.005015})
    assert "(which is scale_ub), " in found.sentence
    found = explained(VECTOR, change, inputs={"scale_ub": 0.005015, "other": 0.005015})
    assert "which is" not in found.sentence


@pytest.mark.parametrize(("factor", "said"), [(128.0, "128"), (1024.0, "1024"), (0.5, "0.50")])
def test_a_whole_factor_has_all_its_digits(factor, said):
    kind = (("rows", "d"), (2, 8), torch.bfloat16)
    found = explained(kind, scaled(factor), normal((2, 8)).bfloat16().double())
    assert found.sentence.startswith(f"out: every element is {float(said):g} x expected")


def test_of_bytes_the_worst_is_shown_first():
    expected = torch.arange(40.0, dtype=torch.float64).reshape(1, 40)
    change = put(ALL, slice(9, None), value=lambda x: x - 1 - torch.arange(31.0))
    found = explained((("rows", "d"), (1, 40), torch.int8), change, expected)
    assert found.element.startswith("out[0, 39] ")


def test_both_ends_of_a_row_are_named_and_not_what_is_between():
    """As where a signal is repeated beyond its ends."""
    changed = put(ALL, torch.arange(141) % 121 < 20, value=lambda x: x.sin() + 3)
    found = explained((("rows", "d"), (30, 141), torch.float32), changed, normal((30, 141)))
    assert "at the first 20 and the last 20 of 141 along d" in found.sentence
    assert found.place == "both ends"


def test_small_errors_of_most_elements_leave_out_those_that_are_far_smaller():
    """Logarithms of which a fifth have no mismatch."""
    some = torch.arange(5000) % 5 > 0
    error = torch.where(some, 0.01 * normal((5000,), 3), 1e-9)
    found = explained(VECTOR, lambda x: x + error)
    assert "everywhere" not in found.sentence


def test_runs_at_a_regular_distance_are_named_by_it():
    """As the rotary elements of each head, or what is wrong of a packed word."""
    heads = [i for start in range(0, 384, 64) for i in range(start, start + 32)]
    found = explained((("rows", "qkv"), (40, 512), torch.float32), put(ALL, heads, value=torch.sin))
    assert "at 32 of every 64 of qkv, from 0 to 351" in found.sentence
    words = [i for start in range(1, 157, 8) for i in range(start, min(start + 6, 157))]
    found = explained((("rows", "n"), (40, 157), torch.float32), put(ALL, words, value=torch.sin))
    assert "at 6 of every 8 of n, from 1 on" in found.sentence
    short = [i for start in (0, 8, 16) for i in range(start, start + 4)]
    found = explained((("rows", "n"), (40, 27), torch.float32), put(ALL, short, value=torch.sin))
    assert "at 4 of every 8 of n, from 0 to 19" in found.sentence
    uneven = [*range(5), *range(20, 25), *range(44, 49), *range(60, 65)]
    found = explained((("rows", "n"), (40, 157), torch.float32), put(ALL, uneven, value=torch.sin))
    assert "of every" not in found.sentence
