"""Whether outputs are right, and what is said of those that are not."""

import math

import pytest
import torch

from pytest_fib.data import Definition, DefinitionError, EvaluationStatus
from pytest_fib.verdict import (
    compare_outputs,
    compare_tensor,
    dtype_bound,
    marked,
    verdict_of,
)

INF, NAN = math.inf, math.nan


def define(dtype="float32", tolerances=None, outputs=None, inputs=None):
    shape = ["m", "n"]
    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"m": "var", "n": "var", "k": "var"},
            "inputs": inputs or {"x": {"shape": shape, "dtype": "float32"}},
            "outputs": outputs or {"y": {"shape": shape, "dtype": dtype}},
            "reference": "def run(*inputs): ...",
            "tolerances": tolerances or {},
        }
    )


def judge_outputs(*arguments, **more):
    return verdict_of(compare_outputs(*arguments, **more))


def judged(got, expected, dtype="float32", own=None, tolerances=None, **more):
    """The verdict on rows of numbers, in a dtype, against float64 ones."""
    side = torch.as_tensor(got, dtype=torch.float64).to(getattr(torch, dtype))
    right = torch.as_tensor(expected, dtype=torch.float64)
    own = () if own is None else [{"y": torch.as_tensor(own, dtype=torch.float64).to(side.dtype)}]
    definition = define(dtype, tolerances)
    return judge_outputs(definition, {"y": side}, {"y": right}, own, **more)


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def normal():
    return torch.randn(64, 128, dtype=torch.float64)


def extra(verdict):
    return verdict.correctness.extra


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rounded_values_are_right(normal, dtype):
    verdict = judged(normal, normal, dtype)
    assert verdict.passed
    assert verdict.diagnosis is None
    assert extra(verdict)["oracle"] == "float64"
    assert 0 < extra(verdict)["bound_used"] < 0.6


def test_the_figures_are_those_of_the_whole_output():
    expected = torch.ones(4, 64, dtype=torch.float64)
    got = expected.clone()
    got[1, 2], got[3, 4] = 1.5, 0.75
    verdict = judged(got, expected)
    assert verdict.status is EvaluationStatus.INCORRECT_NUMERICAL
    assert verdict.correctness.max_absolute_error == 0.5
    assert verdict.correctness.max_relative_error == 0.5
    figures = extra(verdict)
    assert figures["elements_wrong"] == {"y": 2}
    assert figures["elements"] == {"y": 256}
    assert figures["matched_ratio"] == 1 - 2 / 256
    assert figures["rmse"]["y"] == pytest.approx(math.sqrt((0.25 + 0.0625) / 256))
    assert figures["max_ulp"] == 0.5 / 2**-23
    worst = figures["worst"]
    assert (worst["output"], worst["index"], worst["got"], worst["expected"]) == (
        "y",
        [1, 2],
        1.5,
        1,
    )
    assert worst["allowed"] == pytest.approx(64 * 2**-24)
    assert figures["bound_used"] == pytest.approx(0.5 / worst["allowed"])
    assert verdict.diagnosis.sentence == "y[1, 2] got 1.5, expected 1, allowed ±3.8e-06"


def test_expected_values_in_the_outputs_own_dtype_are_said_to_be(normal):
    rounded = normal.half()
    verdict = judge_outputs(define("float16"), {"y": rounded}, {"y": rounded})
    assert verdict.passed
    assert extra(verdict)["oracle"] == "own precision"


@pytest.mark.parametrize("special", [INF, -INF, NAN])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_specials_match_in_place_and_sign(normal, special, dtype):
    normal[5, 6] = special
    assert judged(normal, normal, dtype).passed
    for other in {INF, -INF, NAN, 1.0} - {special}:
        if math.isnan(special) and math.isnan(other):
            continue
        wrong = normal.clone()
        wrong[5, 6] = other
        verdict = judged(wrong, normal, dtype)
        assert (verdict.passed, extra(verdict)["elements_wrong"]["y"]) == (False, 1)
        assert extra(verdict)["worst"]["index"] == [5, 6]


@pytest.mark.parametrize("special", [INF, -INF, NAN])
def test_a_special_elsewhere_is_wrong_twice(normal, special):
    wrong = normal.clone()
    normal[5, 6] = wrong[7, 8] = special
    assert extra(judged(wrong, normal))["elements_wrong"]["y"] == 2


def test_an_expected_nan_is_no_wildcard_for_its_row(normal):
    normal[5] = NAN
    wrong = normal.clone()
    wrong[6, 1] += 1
    assert extra(judged(wrong, normal))["elements_wrong"]["y"] == 1


def test_overflow_is_what_the_dtype_makes_of_the_value():
    assert judged([[INF, -INF, 1.0]], [[1e5, -1e300, 1.0]], "float16").passed
    assert not judged([[65504.0, 1.0]], [[1e5, 1.0]], "float16").passed
    assert not judged([[INF, 1.0]], [[-1e5, 1.0]], "float16").passed


def test_what_rounds_to_the_largest_number_has_the_bound_of_its_size():
    """Beside an infinity, which is looked at more closely."""
    assert judged([[65504.0, INF, 1.0]], [[65510.8, 1e6, 1.0]], "float16").passed
    assert not judged([[65504.0, INF, 1.0]], [[65700.0, 1e6, 1.0]], "float16").passed


@pytest.mark.parametrize("got", [65504.0, INF])
@pytest.mark.parametrize("expected", [65519.0, 65520.0, 65530.0])
def test_at_the_largest_number_both_roundings_are_right(got, expected):
    assert judged([[got, 1.0]], [[expected, 1.0]], "float16").passed


def test_what_the_reference_saturates_is_not_infinite():
    for dtype, top in (("float16", 65504.0), ("bfloat16", 2.0**127 * (2 - 2**-7))):
        expected = [[top, -top, 1.0]]
        assert judged(expected, expected, dtype).passed
        assert not judged([[INF, -top, 1.0]], expected, dtype).passed
        assert not judged([[top, -INF, 1.0]], expected, dtype).passed
        near = torch.tensor([[0.99 * top, -top, 1.0]], dtype=getattr(torch, dtype))
        assert judged([[INF, -top, 1.0]], expected, dtype, own=near).passed


def test_what_may_be_off_by_more_than_the_largest_number_may_be_any_infinity():
    expected, own = [[-7e4, 1.0]], torch.tensor([[6e4, 1.0]], dtype=torch.float16)
    for got, is_right in ((INF, True), (-INF, True), (6e4, True), (NAN, False)):
        assert judged([[got, 1.0]], expected, "float16", own=own).passed == is_right
    near = torch.tensor([[-6e4, 1.0]], dtype=torch.float16)
    assert not judged([[INF, 1.0]], expected, "float16", own=near).passed


def test_large_and_tiny_rows_are_bounded_by_their_own_scale():
    expected = torch.randn(3, 128, dtype=torch.float64)
    scale = torch.tensor([[1e37], [1e-37], [1.0]])
    assert judged(expected * scale, expected * scale, "bfloat16").passed
    for row in range(3):
        wrong = expected.clone()
        wrong[row] *= 1.1
        assert not judged(wrong * scale, expected * scale, "bfloat16").passed


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_zeros_are_exact_but_for_the_smallest_numbers(dtype):
    zeros = torch.zeros(4, 64, dtype=torch.float64)
    least = torch.finfo(getattr(torch, dtype)).smallest_normal * 2 ** (
        -5 if dtype == "float16" else 2
    )
    assert judged(zeros, zeros, dtype).passed
    wrong = zeros.clone()
    wrong[0, 0] = least
    assert not judged(wrong, zeros, dtype).passed


def test_where_a_yardstick_overflows_the_output_may():
    expected = torch.ones(1, 64, dtype=torch.float64)
    got = expected.clone()
    got[0, 3] = INF
    assert not judged(got, expected).passed
    assert judged(got, expected, own=got).passed
    assert not judged(-got, expected, own=got).passed


def test_in_a_row_of_sums_that_float32_cant_hold_the_order_of_terms_says_which_are_infinite():
    expected = torch.full((2, 64), 1e38, dtype=torch.float64)
    expected[0, 0] = 1e39
    own, got = expected.clone(), expected.clone()
    got[0, :2] = NAN
    own[0, 2] = INF
    assert not judged(got, expected).passed
    assert judged(got, expected, own=own).passed
    got[1, 0] = NAN
    assert not judged(got, expected, own=own).passed


def test_a_sum_of_terms_that_may_overflow_is_any_infinity_or_none():
    expected = torch.full((1, 64), 1e30, dtype=torch.float64)
    expected[0, 0], expected[0, 1], expected[0, 2] = 3e38, 1e39, NAN
    yardstick = expected.clone()
    yardstick[0, :2] = NAN
    for got in ([3e38, INF, NAN], [NAN, -INF, NAN], [INF, NAN, NAN]):
        output = expected.clone()
        output[0, :3] = torch.tensor(got)
        assert judged(output, expected, "bfloat16", own=yardstick).passed
    for at, got in ((0, 1e38), (1, 3e38), (2, INF), (3, NAN)):
        output = expected.clone()
        output[0, at] = got
        assert not judged(output, expected, "bfloat16", own=yardstick).passed


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_yardstick_beyond_what_float32_holds_widens_bounds(dtype):
    expected = torch.zeros(1, 64, dtype=torch.float64)
    got, far = expected.clone(), expected.clone()
    got[0, 3], far[0, 5] = 50.0, 1e150
    sides = {"y": got.to(getattr(torch, dtype))}, {"y": expected}
    assert not judge_outputs(define(dtype), *sides, [{"y": expected}]).passed
    assert judge_outputs(define(dtype), *sides, [{"y": expected}, {"y": far}]).passed


def test_one_number_that_is_rounded_to_infinity_excuses_no_others_of_its_row():
    expected = torch.full((1, 64), 3e4, dtype=torch.float64)
    expected[0, 0] = 65_510
    own, got = expected.clone(), expected.clone()
    own[0, 0] = 65_530
    assert judged(got, expected, "float16", own=own).passed
    got[0, 1] = INF
    assert not judged(got, expected, "float16", own=own).passed


def test_what_only_the_output_cant_hold_is_infinite():
    expected = torch.full((1, 64), 1e6, dtype=torch.float64)
    assert judged(expected, expected, "float16", own=expected).passed
    assert not judged(expected * NAN, expected, "float16", own=expected).passed


@pytest.mark.parametrize(("value", "rounds_to"), [(66_000.0, 65_400.0), (65_000.0, INF)])
def test_what_a_yardstick_moves_across_the_largest_number_may_be_on_either_side(value, rounds_to):
    expected = torch.full((1, 64), 3e4, dtype=torch.float64)
    expected[0, 0] = value
    got, own = expected.clone(), expected.clone()
    got[0, 0] = rounds_to
    own[0, 5] += 1000
    assert not judged(got, expected, "float16").passed
    assert judged(got, expected, "float16", own=own).passed
    assert not judged(-got, expected, "float16", own=own).passed
    own[0, 5] = 3e4 + 100
    assert not judged(got, expected, "float16", own=own).passed


def test_what_float32_cannot_tell_from_the_limit_may_be_masked_or_not():
    """And is the number that it is then; what no yardstick leaves is masked."""
    expected = torch.arange(1, 65, dtype=torch.float64)[None] / 64
    number = expected[0, 5].item()
    expected[0, 5:7] = -math.inf
    own, got = expected.clone(), expected.clone()
    own[0, 5] = got[0, 5] = number
    assert not judged(got, expected).passed
    assert judged(got, expected, own=own).passed
    assert judged(expected, got, own=expected).passed
    for at, value in ((5, 1.01 * number), (5, math.inf), (5, math.nan), (6, number)):
        wrong = got.clone()
        wrong[0, at] = value
        assert not judged(wrong, expected, own=own).passed


def test_an_ill_conditioned_row_may_be_as_far_off_as_the_reference():
    expected = torch.full((2, 64), 1e-9, dtype=torch.float64)
    own, got = expected.clone(), expected.clone()
    own[0] += 1e-6
    got[0] -= 1e-6
    assert not judged(got, expected).passed
    assert judged(got, expected, own=own).passed
    got[1] += 1e-6
    assert not judged(got, expected, own=own).passed


def test_one_row_that_is_off_is_named(normal):
    signs = normal.sign()
    wrong = signs.clone()
    wrong[17] *= 1.01
    verdict = judged(wrong, signs, "bfloat16")
    assert not verdict.passed
    assert verdict.diagnosis.sentence.startswith("y[17, :]: RMS error is ")
    assert extra(verdict)["check"] == "rows"


def test_a_scale_that_no_element_shows_is_named(normal):
    verdict = judged(normal * 1.005, normal, "bfloat16")
    assert verdict.diagnosis.sentence.startswith("y is 0.5 % too large on average, allowed 0.2 %")
    assert extra(verdict)["check"] == "bias"
    assert extra(verdict)["elements_wrong"] == {"y": 0}


def test_an_offset_that_no_element_shows_is_named(normal):
    verdict = judged(normal - 0.005, normal, "bfloat16")
    assert verdict.diagnosis.sentence.startswith("y is shifted by -0.5 % of a row's scale")


def test_a_share_of_the_elements_may_be_wrong(normal):
    wrong = normal.clone()
    wrong.view(-1)[:80] = 100  # 1 %
    assert judged(wrong, normal, tolerances={"y": {"matched_ratio": 0.98}}).passed
    verdict = judged(wrong, normal, tolerances={"y": {"matched_ratio": 0.995}})
    assert not verdict.passed
    assert extra(verdict)["bound_used"] == pytest.approx(80 / 8192 / 0.005)


def test_own_tolerances_replace_the_dtypes(normal):
    assert not judged(normal * 1.1, normal).passed
    assert judged(normal * 1.1, normal, tolerances={"y": {"rtol": 0.11}}).passed
    assert judged(normal + 0.5, normal, tolerances={"y": {"atol": 0.51}}).passed


def test_an_exact_output_is_the_rounded_value(normal):
    exact = {"y": {"exact": True}}
    assert judged(normal, normal, "bfloat16", tolerances=exact).passed
    wrong = normal.bfloat16()
    wrong[3, 4] = torch.nextafter(wrong[3, 4], torch.tensor(9.0).bfloat16())
    verdict = judged(wrong.double(), normal, "bfloat16", tolerances=exact)
    assert extra(verdict)["elements_wrong"] == {"y": 1}
    assert extra(verdict)["worst"]["index"] == [3, 4]
    assert verdict.diagnosis.sentence.endswith("allowed ±0")


def test_linear_outputs_are_exact_where_inputs_are_whole():
    expected = torch.arange(128, dtype=torch.float64).view(2, 64) * 3
    got = expected.clone()
    got[0, 63] += 1
    linear = {"y": {"linear": True}}
    assert judged(got, expected, "bfloat16", tolerances=linear).passed
    assert not judged(got, expected, "bfloat16", tolerances=linear, exact=True).passed
    assert judged(got, expected, "bfloat16", exact=True).passed
    assert judged(expected, expected, "bfloat16", tolerances=linear, exact=True).passed


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "bool"])
def test_integers_are_exact(dtype):
    expected = torch.tensor([[0, 1, 1, 0]]).to(getattr(torch, dtype))
    wrong = expected.clone()
    wrong[0, 2] = 0
    definition = define(dtype)
    assert judge_outputs(definition, {"y": expected}, {"y": expected}).passed
    verdict = judge_outputs(definition, {"y": wrong}, {"y": expected})
    assert extra(verdict)["elements_wrong"] == {"y": 1}
    assert judge_outputs(definition, {"y": wrong}, {"y": expected}, [{"y": wrong}]).passed


def test_integers_beyond_what_float64_holds_are_distinguished():
    expected = torch.tensor([[2**53, 2**60]])
    verdict = judge_outputs(define("int64"), {"y": expected + 1}, {"y": expected})
    assert extra(verdict)["elements_wrong"] == {"y": 2}


def integers(values, dtype="int64"):
    return {"y": torch.tensor([values], dtype=getattr(torch, dtype))}


@pytest.mark.parametrize(
    ("tolerance", "wrong"),
    [
        ({"atol": 1, "rtol": 0}, [False, False, True, True]),
        ({"atol": 0, "rtol": 0.01}, [True, False, False, True]),
        ({"atol": 1, "rtol": 0.01}, [False, False, False, True]),
        ({"atol": 1}, [False, False, True, True]),
        ({}, [True, True, True, True]),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_with_a_tolerance_may_be_off_by_that(dtype, tolerance, wrong):
    definition = define(dtype, {"y": tolerance})
    expected = integers([10, 100, 1000, 1000], dtype)
    got = integers([11, 101, 1010, 1012], dtype)
    comparison = compare_outputs(definition, got, expected)[0]
    assert marked(comparison)[0].tolist() == [wrong]
    verdict = verdict_of([comparison])
    assert (verdict.passed, extra(verdict)["elements_wrong"]) == (False, {"y": sum(wrong)})
    assert extra(verdict)["worst"]["index"] == [0, wrong.index(True)]
    right = compare_outputs(definition, {"y": got["y"][:, 1:2]}, {"y": expected["y"][:, 1:2]})
    assert verdict_of(right).passed == bool(tolerance)


@pytest.mark.parametrize(("off", "used"), [(0, 0.0), (1, 0.25), (4, 1.0), (5, INF)])
def test_integers_use_the_share_of_their_tolerance_that_they_are_off_by(off, used):
    definition = define("int64", {"y": {"atol": 4, "rtol": 0}})
    verdict = judge_outputs(definition, integers([7, 8 + off]), integers([7, 8]))
    assert extra(verdict)["bound_used"] == used
    assert verdict.passed is (off <= 4)


def test_a_tolerance_holds_for_integers_beyond_what_float64_holds():
    definition = define("int64", {"y": {"atol": 1, "rtol": 0}})
    expected = integers([2**60, 2**60, 2**63 - 1, -(2**63)])
    got = integers([2**60 + 1, 2**60 + 2, -(2**63), 2**63 - 1])
    wrong, allowed = marked(compare_outputs(definition, got, expected)[0])
    assert wrong.tolist() == [[False, True, True, True]]
    assert allowed.tolist() == [[1.0, 1.0, 1.0, 1.0]]


def test_small_unsigned_integers_do_not_wrap_around_within_a_tolerance():
    definition = define("uint8", {"y": {"atol": 2, "rtol": 0}})
    comparison = compare_outputs(
        definition, integers([254, 0], "uint8"), integers([0, 2], "uint8")
    )[0]
    assert marked(comparison)[0].tolist() == [[True, False]]
    assert comparison.describe() == "y[0, 0] got 254, expected 0, allowed ±2"


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_8_bit_outputs_are_bounded_by_their_steps(dtype):
    expected = torch.linspace(1, 100, 256, dtype=torch.float64).view(4, 64)
    name = str(dtype).removeprefix("torch.")
    assert judge_outputs(define(name), {"y": expected.to(dtype)}, {"y": expected}).passed
    assert judge_outputs(define(name), {"y": expected.to(dtype)}, {"y": expected.to(dtype)}).passed
    wrong = (expected * 2).to(dtype)
    assert not judge_outputs(define(name), {"y": wrong}, {"y": expected}).passed


@pytest.mark.parametrize("shape", [(), (0,), (1,), (0, 4), (3, 0), (130,), (7, 9, 2), (2, 40_000)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_any_shape_can_be_judged(shape, dtype):
    expected = torch.ones(shape, dtype=torch.float64)
    got = expected.to(getattr(torch, dtype))
    right = expected if got.is_floating_point() else got
    assert judge_outputs(define(dtype), {"y": got}, {"y": right}).passed
    if got.numel():
        verdict = judge_outputs(define(dtype), {"y": got * 2}, {"y": right})
        assert extra(verdict)["elements_wrong"] == {"y": got.numel()}


def test_the_worst_output_is_named_and_all_are_counted(normal):
    spec = {"shape": ["m", "n"], "dtype": "float32"}
    definition = define(outputs={"a": spec, "b": spec})
    right = {"a": normal, "b": normal}
    got = {"a": normal.float() + 1e-3, "b": normal.float() + 1}
    verdict = judge_outputs(definition, got, right)
    assert verdict.diagnosis.sentence.startswith("b[")
    assert min(extra(verdict)["elements_wrong"].values()) > 8000


def test_outputs_judged_by_samples_are_left_alone():
    samples = {"y": {"by": "samples"}}
    got, expected = torch.tensor([[1]]), torch.tensor([[2]])
    assert judge_outputs(define("int64", samples), {"y": got}, {"y": expected}).passed


@pytest.mark.parametrize("width", [64, 100, 4096])
def test_what_is_compared_in_pieces_is_compared_as_row_by_row(width):
    """A large output is taken in pieces of 65,536 elements."""
    expected = torch.randn(200_000 // width, width, dtype=torch.float64)
    wrong = expected.clone()
    wrong[-2, 50] += 9
    bound = dtype_bound(torch.float32)
    whole = compare_tensor("y", wrong.float(), expected, bound)
    rows = zip(wrong.float(), expected, strict=True)
    alone = [compare_tensor("y", row, right, bound) for row, right in rows]
    assert (whole.at, whole.wrong) == (expected.numel() - 2 * width + 50, 1)
    assert whole.used == max(row.used for row in alone)
    assert whole.square_sum == pytest.approx(sum(row.square_sum for row in alone))


# --- indices ------------------------------------------------------------------------------------

LOGITS = torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 5.0, -1.0, 5.0]])
TOP = torch.tensor([[0, 2], [1, 3]], dtype=torch.int32)


def picked(ids, expected=TOP, source=None, x=LOGITS, **more):
    tolerance = {"by": "gathered"} | ({"from": source} if source else {})
    definition = define(
        tolerances={"ids": tolerance},
        outputs={"ids": {"shape": ["m", "k"], "dtype": "int32"}},
        inputs={"x": {"shape": ["m", "n"], "dtype": "float32"}, **more},
    )
    ids = torch.as_tensor(ids, dtype=torch.int32)
    return judge_outputs(definition, {"ids": ids}, {"ids": expected}, inputs={"x": x})


@pytest.mark.parametrize("ids", [[[0, 2], [1, 3]], [[2, 0], [3, 1]]])
def test_indices_of_equal_values_are_right_in_any_order(ids):
    assert picked(ids).passed
    assert picked(ids, source="x").passed


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ([[0, 3], [1, 3]], "ids[0, 1] got 3, expected 2: x has 2 there, not 3"),
        ([[0, 0], [1, 3]], "ids[0, 1] got 0, expected 2: the same index twice in a row"),
        ([[0, 2], [1, 4]], "ids[1, 1] got 4, expected 3: x has no such index"),
        ([[0, 2], [1, -1]], "ids[1, 1] got -1, expected 3: x has no such index"),
    ],
)
def test_indices_of_other_values_or_of_none_are_wrong(ids, reason):
    verdict = picked(ids)
    assert not verdict.passed
    assert verdict.diagnosis.sentence == reason
    assert extra(verdict)["elements_wrong"] == {"ids": 1}


def test_padding_is_where_it_is_expected():
    expected = torch.tensor([[0, -1], [1, -1]], dtype=torch.int32)
    assert picked([[2, -1], [3, -1]], expected).passed
    assert not picked([[2, 3], [3, -1]], expected).passed


def test_infinite_logits_may_be_picked():
    x = torch.tensor([[INF, 1.0, INF, -INF]])
    expected = torch.tensor([[0, 2, 1, 3]], dtype=torch.int32)
    assert picked([[2, 0, 1, 3]], expected, x=x).passed
    assert not picked([[2, 0, 3, 1]], expected, x=x).passed


def test_a_source_that_could_be_several_has_to_be_named():
    more = {"bias": {"shape": ["m", "n"], "dtype": "float32"}}
    with pytest.raises(DefinitionError, match="add 'from: <tensor>'; x and bias would fit"):
        picked(TOP, **more)
    assert picked(TOP, source="x", **more).passed
