"""What a verdict is made of, and what is said of it where it is a failure."""

import math
import re

import pytest
import torch

from pytest_fib.data import Definition, Workload
from pytest_fib.engine import OutputChecker
from pytest_fib.sandbox import POISONS, fill_with_poison
from pytest_fib.verdict import compare_tensor, dtype_bound, marked


def define(dtype="float32", **more):
    spec = {"shape": ["m", "n"], "dtype": dtype}
    return Definition.model_validate(
        {
            "name": "d",
            "op_type": "toy",
            "axes": {"m": "var", "n": "var"},
            "inputs": {"x": spec},
            "outputs": {"y": spec},
            "reference": "def run(x):\n    return x\n",
            **more,
        }
    )


def checker(expected, dtype="float32", **more):
    m, n = expected.shape
    definition = define(dtype, **more.pop("definition", {}))
    inputs = {"x": torch.ones(m, n)}
    return OutputChecker(
        definition, Workload(axes={"m": m, "n": n}), inputs, {"y": expected}, **more
    )


def values(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_a_failure_names_its_pattern_then_the_worst_elements():
    expected = values(8, 256)
    got = expected.float()
    got[:, 192:] = 0
    verdict = checker(expected).check({"y": got})
    diagnosis = verdict.diagnosis
    assert diagnosis.sentence == "y: zeros at the last 64 of 256 along n (a tile of 64?)"
    assert len(diagnosis.details) == 5
    assert all(line.startswith("  y[") and len(line) <= 80 for line in diagnosis.details)
    assert (diagnosis.pattern, diagnosis.place) == ("zeros", "last tile")
    assert not {"pattern", "place"} & verdict.correctness.extra.keys()


def test_what_is_right_is_not_looked_at(monkeypatch):
    def no(*arguments):
        raise AssertionError("nothing to explain")

    monkeypatch.setattr("pytest_fib.engine._output_checker.diagnose", no)
    expected = values(8, 256)
    verdict = checker(expected, yardsticks=no).check({"y": expected.float()})
    assert verdict.passed
    assert verdict.diagnosis is None


@pytest.mark.parametrize(("errors", "asked"), [((1e-6, 1e-6), 1), ((1e-12, 1e-6, 1e-6), 2)])
def test_yardsticks_are_asked_for_until_they_explain_what_is_wrong(errors, asked):
    expected = torch.full((1, 64), 1e-9, dtype=torch.float64)
    made = []

    def yardsticks(is_near):
        for error in errors:
            made.append(error)
            yield [{"y": (expected + error).float()}]

    got = {"y": (expected - 1e-6).float()}
    assert checker(expected, yardsticks=yardsticks).check(got).passed
    assert len(made) == asked
    assert not checker(expected).check(got).passed


@pytest.mark.parametrize(("error", "is_near"), [(1e-5, True), (4e-5, False)])
def test_more_yardsticks_are_made_where_others_nearly_explain_what_is_wrong(error, is_near):
    """Elements that share an error were moved by little, by luck."""
    expected, asked = torch.full((1, 64), 1e-9, dtype=torch.float64), []

    def yardsticks(is_near):
        yield [{"y": (expected + 3e-6).float()}]
        asked.append(is_near())
        if asked[0]:
            yield [{"y": (expected + 6e-6).float()}]

    verdict = checker(expected, yardsticks=yardsticks).check({"y": (expected - error).float()})
    assert (verdict.passed, asked) == (is_near, [is_near])


def test_more_yardsticks_are_made_where_hardly_any_element_is_wrong():
    """It may have been decided by numbers that nearly tie."""
    expected, asked = torch.zeros(2, 1 << 17, dtype=torch.float64), []
    other = expected.float()
    other[1, 3] = 1.0

    def yardsticks(is_near):
        yield [{"y": expected.float()}]
        asked.append(is_near())
        if asked[-1]:
            yield [{"y": other}]

    assert checker(expected, yardsticks=yardsticks).check({"y": other}).passed
    many = expected.float()
    many[1, :9] = 1.0
    assert not checker(expected, yardsticks=yardsticks).check({"y": many}).passed
    assert asked == [True, False]


def test_an_element_that_says_more_than_its_place_is_in_the_first_line():
    expected = values(8, 64)
    got = expected.float()
    got[3, 4] = 9
    summary = checker(expected).check({"y": got}).diagnosis.headline
    assert summary.startswith("y: wrong in one element; y[3, 4] got 9, expected ")


def test_what_no_element_shows_is_said_below_the_pattern():
    expected = values(64, 512)
    got = (expected * 1.005).to(torch.bfloat16)
    verdict = checker(expected, "bfloat16").check({"y": got})
    assert verdict.diagnosis.pattern == "one factor"
    assert verdict.diagnosis.details[0].startswith(
        "  y is 0.5 % too large on average, allowed 0.2 %"
    )


def test_elements_within_their_bounds_are_not_said_to_be_wrong():
    expected = values(16, 64).sign()
    some = torch.arange(64) % 3 == 0
    got = (expected * (1 + 0.0019 * some * values(32, 64)[16:].sign())).half()
    diagnosis = checker(expected, "float16").check({"y": got}).diagnosis
    assert re.fullmatch(r"y\[\d+, :\]: RMS error is 1\.\d+ times .*", diagnosis.headline)
    assert diagnosis.details[0].startswith("  y[")


def test_outputs_left_as_they_were_are_named_by_their_poison():
    expected = values(4, 64)
    got = expected.float()
    got[2].view(torch.uint8).fill_(0x55)
    left = checker(expected).check({"y": got}, (0x5555,))
    assert left.diagnosis.pattern == "unwritten"
    assert checker(expected).check({"y": got}).diagnosis.pattern != "unwritten"


def test_what_an_earlier_call_should_have_written_is_stale():
    expected, before = values(4, 64), values(4, 64).exp()
    verdict = checker(expected).check({"y": before.float()}, previous={"y": before})
    assert verdict.diagnosis.sentence == "y: holds the results of an earlier call everywhere"


def test_indices_are_explained_by_what_they_point_at():
    definition = Definition.model_validate(
        {
            "name": "top",
            "op_type": "toy",
            "axes": {"m": "var", "n": "var", "k": "var"},
            "inputs": {"x": {"shape": ["m", "n"], "dtype": "float32"}},
            "outputs": {"ids": {"shape": ["m", "k"], "dtype": "int32"}},
            "reference": "def run(x):\n    return x\n",
            "tolerances": {"ids": {"by": "gathered"}},
        }
    )
    x = values(3, 10).float()
    expected = x.topk(4).indices.int()
    got = expected.clone()
    got[1, 2] = got[1, 1]
    workload = Workload(axes={"m": 3, "n": 10, "k": 4})
    verdict = OutputChecker(definition, workload, {"x": x}, {"ids": expected}).check({"ids": got})
    assert not verdict.passed
    assert "the same index twice in a row" in verdict.diagnosis.details[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_marks_and_counts_agree(dtype):
    expected = values(40, 5000)
    got = expected.to(dtype)
    got[7, 100:200] = 0
    got[8, 3] = float("nan")
    bound = dtype_bound(dtype)
    comparison = compare_tensor("y", got, expected, bound)
    wrong, allowed = marked(comparison)
    assert int(wrong.sum()) == comparison.wrong
    assert wrong[8, 3]
    error = (got.double() - expected).abs()[~got.isnan()]
    assert torch.equal(error > allowed.double()[~got.isnan()], wrong[~got.isnan()])


def test_marks_follow_yardsticks():
    expected = values(4, 64)
    got = expected.float()
    got[2] += 0.5
    bound = dtype_bound(torch.float32)
    assert int(marked(compare_tensor("y", got, expected, bound, [got]))[0].sum()) == 0
    whole, exact = torch.arange(12).view(3, 4), dtype_bound(torch.int64)
    other = whole + 1
    assert bool(marked(compare_tensor("y", other, whole, exact))[0].all())
    assert not bool(marked(compare_tensor("y", other, whole, exact, [other]))[0].any())


def test_a_row_that_is_wrong_together_is_marked_whole():
    expected = values(20, 512)
    noise = torch.where(values(20, 512) > 0, 1.0, -1.0)
    got = expected.clone()
    got[3] += noise[3] * 0.6 * 2 * 2.0**-8 * (expected[3].abs() + 1)
    bound = dtype_bound(torch.bfloat16)
    comparison = compare_tensor("y", got.to(torch.bfloat16), expected, bound)
    assert (comparison.passed, comparison.wrong) == (False, 0)
    wrong, _ = marked(comparison)
    assert wrong.any(1).nonzero().flatten().tolist() == [3]


def test_the_record_has_every_figure():
    expected = values(4, 64)
    got = expected.float()
    got[1, 2] += 0.25
    extra = checker(expected).check({"y": got}).correctness.extra
    assert extra["oracle"] == "float64"
    assert extra["worst"]["output"] == "y"
    assert extra["worst"]["index"] == [1, 2]
    assert extra["worst"]["got"] - extra["worst"]["expected"] == pytest.approx(0.25, rel=1e-5)
    assert extra["bound_used"] == pytest.approx(0.25 / extra["worst"]["allowed"], rel=1e-3)
    assert extra["rmse"]["y"] == pytest.approx(0.25 / 16, rel=1e-3)
    assert extra["matched_ratio"] == 1 - 1 / 256
    assert extra["max_ulp"] == pytest.approx(0.25 / 2.0**-23 / power_of_two(expected[1, 2]))
    assert extra["check"] == "elements"


def power_of_two(value):
    return 2.0 ** math.floor(math.log2(abs(float(value))))


def test_the_record_says_that_and_why_the_oracle_is_not_float64():
    expected = values(4, 64).float()
    verdict = checker(expected, no_oracle="AssertionError: float16 only").check({"y": expected})
    assert verdict.passed
    assert verdict.correctness.extra["oracle"] == "own precision"
    assert verdict.correctness.extra["no_oracle"] == "AssertionError: float16 only"


def test_specials_are_right_in_place_only():
    expected = torch.tensor([[math.nan, -math.inf, math.inf, 1.0]], dtype=torch.float64)
    assert checker(expected).check({"y": expected.float()}).passed
    for order in ([1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]):
        verdict = checker(expected).check({"y": expected.float()[:, order]})
        assert verdict.correctness.extra["elements_wrong"] == {"y": 2}
    finite = torch.full_like(expected, torch.finfo(torch.float32).max).float()
    finite[0, 0] = math.nan
    verdict = checker(expected).check({"y": finite})
    assert verdict.correctness.extra["elements_wrong"] == {"y": 3}


def test_bits_that_differ_are_counted_as_they_are():
    expected = values(4, 64)
    first, second = expected.float(), expected.float()
    first[0, 0], second[0, 0] = 0.0, -0.0
    expected[0, 0] = 0.0
    verdict = checker(expected).check_twice({"y": first}, {"y": second})
    assert not verdict.passed
    assert verdict.diagnosis.sentence == (
        "y: two calls on the same inputs gave other bits in 1 of 256 elements; "
        "y[0, 0] was 0, then -0, the largest difference"
    )


def test_what_was_left_unwritten_is_not_compared_with_a_second_call():
    first, second = (fill_with_poison(torch.empty(4, 64), poison) for poison in POISONS)
    verdict = checker(values(4, 64)).check_twice({"y": first}, {"y": second})
    assert verdict.diagnosis.pattern == "unwritten"
    assert "two calls" not in verdict.diagnosis.text


def test_packed_outputs_are_explained_by_their_bytes():
    expected = torch.arange(64, dtype=torch.uint8).view(4, 16)
    got = expected.clone()
    got[2, 3] = 200
    packed = torch.float4_e2m1fn_x2
    verdict = checker(expected.view(packed), "float4_e2m1").check({"y": got.view(packed)})
    assert verdict.diagnosis.headline == (
        "y: wrong in one element; y[2, 3] got 200, expected 35, allowed ±0"
    )


DTYPES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "int32", "int64", "uint8", "bool"]


@pytest.mark.parametrize("dtype", [*DTYPES, "float4_e2m1"])
@pytest.mark.parametrize("given", [*DTYPES, "float4_e2m1"])
@pytest.mark.parametrize("shape", [(1, 1), (3, 65), (64, 4)])
def test_whatever_bytes_are_there_a_failure_is_explained(dtype, given, shape):
    def some(name, seed):
        kind = torch.float4_e2m1fn_x2 if name == "float4_e2m1" else getattr(torch, name)
        size = shape[0] * shape[1] * kind.itemsize
        generator = torch.Generator().manual_seed(seed)
        raw = torch.randint(0, 256, (size,), generator=generator, dtype=torch.uint8)
        return (raw % 2 if name == "bool" else raw).view(kind).view(shape)

    spec = {"shape": ["m", "n"], "dtype": given}
    definition = define(dtype, inputs={"x": spec})
    workload = Workload(axes=dict(zip("mn", shape, strict=True)))
    expected = some(dtype, 1)
    found = OutputChecker(definition, workload, {"x": some(given, 2)}, {"y": expected})
    for seed in range(3, 12):
        verdict = found.check({"y": some(dtype, seed)}, (255,))
        if not verdict.passed:
            break
    assert not verdict.passed
    assert verdict.diagnosis.pattern
    assert verdict.diagnosis.sentence.startswith("y: ")
    assert all(len(line) <= 80 for line in verdict.diagnosis.details)
