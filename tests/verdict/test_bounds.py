"""How far an output may be off: what follows from dtypes, rows and definitions."""

import math

import pytest
import torch

from pytest_fib.data import Definition, DType, Tolerance
from pytest_fib.verdict import (
    PRECISION,
    compare_outputs,
    compare_tensor,
    dtype_bound,
    marked,
    overridden,
)

FLOATING = list(PRECISION)
BOUNDED = [dtype for dtype in FLOATING if dtype.itemsize > 1]
EXACT = overridden(dtype_bound(torch.int64), Tolerance(exact=True))
NARROW = [dtype for dtype in FLOATING if dtype.itemsize == 2]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_unit_roundoffs_are_those_of_the_dtypes(dtype):
    assert PRECISION[dtype].roundoff == torch.finfo(dtype).eps / 2


@pytest.mark.parametrize("dtype", BOUNDED)
def test_twice_the_smallest_number_that_arithmetic_keeps_is_always_allowed(dtype):
    """It is a normal one in float32, whose subnormal numbers GPUs may take for 0."""
    least = torch.tensor(dtype_bound(dtype).atol / 2, dtype=torch.float64)
    if dtype in (torch.float32, torch.bfloat16):
        assert float(least) == torch.finfo(dtype).smallest_normal
    else:
        assert float(least.to(dtype)) == float(least) > 0
        assert float((least / 2.1).to(dtype)) == 0


def test_every_dtype_of_a_definition_has_a_bound():
    known = [dtype for dtype in DType if hasattr(torch, dtype.value)]
    assert len(known) >= 10
    for dtype in known:
        is_rounded = not dtype.is_floating or dtype.itemsize_bits == 8
        assert dtype_bound(getattr(torch, dtype.value)).exact is is_rounded


@pytest.mark.parametrize("dtype", NARROW)
def test_bare_rounding_uses_at_most_half_of_the_element_bound(dtype):
    value = torch.linspace(1, 2, 1 << 16, dtype=torch.float64)
    found = compare_tensor("y", value.to(dtype), value, dtype_bound(dtype))
    assert 0.2 < found.used < 0.5
    assert found.rows_used < 0.63
    assert found.max_ulp == pytest.approx(0.5, rel=0.01)


def test_without_an_oracle_both_sides_are_rounded():
    alone, apart = dtype_bound(torch.float16), dtype_bound(torch.float16, oracle=False)
    assert apart.rtol == 2 * alone.rtol
    assert apart.scale == 2 * alone.scale


def test_what_a_definition_says_replaces_only_that():
    bound = dtype_bound(torch.float16)
    assert overridden(bound, None) == bound
    assert overridden(bound, Tolerance()) == bound
    assert overridden(bound, Tolerance(exact=True)) == EXACT
    loose = overridden(bound, Tolerance(rtol=0.5))
    assert (loose.rtol, loose.scale, loose.atol) == (0.5, bound.scale, bound.atol)
    flat = overridden(bound, Tolerance(atol=0.1))
    assert (flat.rtol, flat.scale, flat.atol) == (bound.rtol, 0.0, 0.1)


@pytest.mark.parametrize("tolerance", [{"rtol": 0.1}, {"atol": 0.1}, {"matched_ratio": 0.9}])
def test_who_says_how_far_elements_may_be_off_says_so_of_rows_and_bias(tolerance):
    bound = overridden(dtype_bound(torch.bfloat16), Tolerance(**tolerance))
    assert (bound.rows, bound.bias) == (None, None)
    assert bound.matched_ratio == tolerance.get("matched_ratio", 1.0)


def test_a_definition_bounds_each_output(scale_definition):
    definition = scale_definition(tolerances={"y": {"atol": 0.25}})
    (compared,) = compare_outputs(definition, {"y": torch.zeros(3)}, {"y": torch.zeros(3).double()})
    assert compared.bound.atol == 0.25


@pytest.fixture
def scale_definition():
    def make(**more):
        return Definition.model_validate(
            {
                "name": "scale",
                "op_type": "scale",
                "axes": {"n": "var"},
                "inputs": {"x": {"shape": ["n"], "dtype": "float32"}},
                "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
                "reference": "def run(x):\n    return x",
                **more,
            }
        )

    return make


@pytest.mark.parametrize(
    ("shape", "length"),
    [
        ((7,), 7),
        ((3, 4096), 4096),
        ((3, 4096, 80), 80),
        ((1000, 2), 64),
        ((1000, 24), 72),
        ((3, 8), 24),
        ((3, 2, 8), 48),
        ((1 << 20,), 16_384),
        ((4, 128_256), 16_384),
    ],
)
def test_a_row_is_the_last_dimension_unless_that_is_short_or_long(shape, length):
    """The first element gives its row a scale; elsewhere only zeros are right."""
    expected = torch.zeros(shape, dtype=torch.float64)
    expected.view(-1)[0] = 1
    got = (expected + 2**-20).bfloat16()
    wrong, _ = marked(compare_tensor("y", got, expected, dtype_bound(torch.bfloat16)))
    assert wrong.view(-1).tolist() == [False] * length + [True] * (expected.numel() - length)


@pytest.mark.parametrize("shape", [(), (0,), (5, 0), (0, 5)])
def test_one_element_or_none_has_a_scale(shape):
    found = compare_tensor(
        "y", torch.ones(shape), torch.ones(shape).double(), dtype_bound(torch.float32)
    )
    assert found.passed


def test_one_wrong_row_of_many_is_seen():
    right = torch.randn(1000, 256, dtype=torch.float64)
    got = right.to(torch.bfloat16)
    got[617] = (right[617] * 1.015).to(torch.bfloat16)
    found = compare_tensor("y", got, right, dtype_bound(torch.bfloat16))
    assert found.rows_used > 1
    assert found.row_at == 617 * 256


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("off", [lambda y: y * 1.005, lambda y: y * 0.995, lambda y: y + 0.005])
def test_a_scale_or_offset_of_half_a_percent_is_seen_throughout(dtype, off):
    right = torch.randn(64, 256, dtype=torch.float64)
    found = compare_tensor("y", off(right).to(dtype), right, dtype_bound(dtype))
    assert found.bias_used > 2


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("shape", [(1,), (31,), (64,), (3, 100), (256, 256)])
@pytest.mark.parametrize(
    "values",
    [
        lambda shape: torch.randn(shape, dtype=torch.float64),
        lambda shape: torch.full(shape, 1 / 3, dtype=torch.float64),
        lambda shape: torch.full(shape, 1.00195, dtype=torch.float64),
        lambda shape: torch.zeros(shape, dtype=torch.float64),
        lambda shape: torch.randint(0, 3, shape).double() / 7,
        lambda shape: torch.randn(shape, dtype=torch.float64).exp() * 1e-9,
        lambda shape: torch.randn(shape, dtype=torch.float64) * 1e-38,
    ],
)
def test_bare_rounding_passes_whatever_is_rounded(dtype, shape, values):
    right = values(shape)
    found = compare_tensor("y", right.to(dtype), right, dtype_bound(dtype))
    assert found.bound_used < 0.75, found


def test_a_scale_is_fitted_to_what_is_finite():
    right = torch.randn(64, 256, dtype=torch.float64)
    right[3, 4], right[5, 6] = math.inf, math.nan
    found = compare_tensor("y", (right * 1.005).half(), right, dtype_bound(torch.float16))
    assert found.bias.scale == pytest.approx(0.005, rel=0.1)


def test_a_yardstick_widens_the_rows_in_which_it_is_off():
    right = torch.randn(4, 128, dtype=torch.float64)
    own, got = right.float(), right.float()
    own[2] += 1e-3
    got[2] -= 1.5e-3
    bound = dtype_bound(torch.float32)
    assert not compare_tensor("y", got, right, bound).passed
    assert compare_tensor("y", got, right, bound, [own]).passed
    got[1, 5] += 1e-3
    found = compare_tensor("y", got, right, bound, [own])
    assert (found.passed, found.at, found.wrong) == (False, 133, 1)


def test_elements_that_are_alike_may_all_be_off_by_what_a_yardstick_is_at_one():
    """As where each is the same sum, which another order of terms moves in all of them."""
    bound = dtype_bound(torch.float32)
    for values, passes in ((torch.ones(256), True), (torch.linspace(1, 2, 256), False)):
        right = values.view(2, 128).double()
        own, got = right.float(), right.float() * (1 + 1e-5)
        own[:, ::16] += 1e-5
        assert compare_tensor("y", got, right, bound, [own]).passed is passes
        assert not compare_tensor("y", right.float() + 1e-4, right, bound, [own]).passed


def test_yardsticks_never_narrow():
    right = torch.randn(40, 128, dtype=torch.float64)
    got = right.bfloat16()
    bound = dtype_bound(torch.bfloat16)
    alone, beside = (
        compare_tensor("y", got, right, bound),
        compare_tensor("y", got, right, bound, [got, got]),
    )
    assert beside.bound_used <= alone.bound_used


def test_where_zero_is_expected_yardsticks_may_be_far_beyond_the_bound_of_the_dtype():
    """In bfloat16, whose bounds are compared in float32: it holds no share of more than 10^38."""
    right, bound = torch.zeros(1, 1, dtype=torch.float64), dtype_bound(torch.bfloat16)
    own, moved = torch.full_like(right, -8.4375), torch.full_like(right, 26.0)
    for got, passes in ((-8.4375, True), (30.0, True), (200.0, False)):
        compared = compare_tensor(
            "y", torch.full((1, 1), got, dtype=torch.bfloat16), right, bound, [own, moved]
        )
        assert compared.passed is passes
    assert not compare_tensor("y", own.bfloat16(), right, bound).passed


def test_where_nothing_is_allowed_a_yardstick_that_is_right_says_nothing():
    """A share of 0 of 0 is no number, and widens no bound."""
    bound = overridden(dtype_bound(torch.float32), Tolerance(rtol=0.01, atol=0.0))
    right = torch.zeros(1, 4, dtype=torch.float64)
    compared = compare_tensor("y", right.float(), right, bound, [right.float()])
    other = compare_tensor("y", right.float() + 1, right, bound, [right.float()])
    assert (compared.passed, other.passed) == (True, False)


def test_infinities_say_nothing_of_a_rows_scale_and_keep_no_yardstick_from_widening_it():
    right = torch.full((4, 128), -math.inf, dtype=torch.float64)
    right[:, :2] = torch.tensor([1e-3, 10.0])
    own, got = right.float(), right.float()
    bound = dtype_bound(torch.float32)
    got[:, 0] += 0.5 * bound.scale * 10 / math.sqrt(2)
    assert compare_tensor("y", got, right, bound).used == pytest.approx(0.5, rel=0.01)
    own[2, 0] += 1e-3
    got[2, 0] += 1.5e-3
    assert not compare_tensor("y", got, right, bound).passed
    assert compare_tensor("y", got, right, bound, [own]).passed


def test_inputs_of_few_values_allow_a_rounding_that_all_elements_share(scale_definition):
    def bound_after_a_failure(x, **tolerances):
        definition, outputs = scale_definition(tolerances=tolerances), {"y": torch.zeros(3).half()}
        expected = {"y": torch.zeros(3).double()}
        (found,) = compare_outputs(definition, outputs, expected, [outputs], inputs={"x": x})
        return found.bound

    bound = dtype_bound(torch.float16)
    few = torch.randint(0, 2, (4, 256)).half()
    assert bound_after_a_failure(few).bias == bound.bias + 2**-11
    for other in (torch.randn(4, 256).half(), few[0, :8], few.int(), 1.0):
        assert bound_after_a_failure(other) == bound
    assert bound_after_a_failure(few, y={"exact": True}) == EXACT


def test_one_factor_shows_where_yardsticks_widen_the_bounds_of_float32(scale_definition):
    right = torch.randn(64, 128, dtype=torch.float64)
    rounded = right * (1 + 2.0**-11 * torch.randn(right.shape, dtype=torch.float64))
    outputs, yardsticks = {"y": (right * 1.001).float()}, [{"y": rounded}]
    definition = scale_definition()
    (found,) = compare_outputs(definition, outputs, {"y": right}, yardsticks)
    assert (found.check, found.passed) == ("bias", False)
    (other,) = compare_outputs(definition, {"y": rounded.float()}, {"y": right}, yardsticks)
    assert other.passed
