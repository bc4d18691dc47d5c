"""Every key of a definition's tolerances does what it says, in every kind of dtype."""

import pytest
import torch
from pydantic import ValidationError

from pytest_fib.data import Definition, Tolerance
from pytest_fib.verdict import compare_outputs, verdict_of

FLOATING = ["float32", "bfloat16", "float8_e4m3fn", "float8_e5m2"]
WHOLE = ["int64", "int32", "int8", "uint8"]


def passes(got, expected, dtype, tolerance, *yardsticks, exact=False, **inputs):
    """Whether rows of numbers are right by a tolerance."""
    spec = {"shape": ["m", "n"], "dtype": dtype}
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"m": "var", "n": "var", "k": "var"},
            "inputs": {name: {"shape": ["m", "k"], "dtype": "float32"} for name in inputs},
            "outputs": {"y": spec},
            "reference": "def run(*inputs): ...",
            "tolerances": {"y": tolerance},
        }
    )

    def outputs(values):
        return {"y": torch.tensor([values], dtype=torch.float64).to(getattr(torch, dtype))}

    compared = compare_outputs(
        definition,
        outputs(got),
        outputs(expected),
        [outputs(each) for each in yardsticks],
        exact=exact,
        inputs=inputs,
    )
    return verdict_of(compared).passed


@pytest.mark.parametrize("dtype", FLOATING + WHOLE)
def test_atol_is_how_far_an_element_may_be_off(dtype):
    expected, near, far = [8, 16, 32], [8, 20, 32], [8, 24, 32]
    assert not passes(near, expected, dtype, {})
    assert passes(near, expected, dtype, {"atol": 4, "rtol": 0})
    assert not passes(far, expected, dtype, {"atol": 4, "rtol": 0})


@pytest.mark.parametrize("dtype", FLOATING + WHOLE)
def test_rtol_is_how_far_relatively(dtype):
    expected, near, far = [8, 16, 32], [8, 16, 40], [10, 20, 48]
    assert passes(near, expected, dtype, {"rtol": 0.25, "atol": 0})
    assert not passes(near, expected, dtype, {"rtol": 0.2, "atol": 0})
    assert not passes(far, expected, dtype, {"rtol": 0.25, "atol": 0})


@pytest.mark.parametrize("dtype", [*FLOATING, *WHOLE, "bool"])
def test_matched_ratio_is_the_share_that_must_keep_to_it(dtype):
    expected, near, far = [0] * 10, [1] + [0] * 9, [1, 1] + [0] * 8
    assert not passes(near, expected, dtype, {})
    assert passes(near, expected, dtype, {"matched_ratio": 0.9})
    assert not passes(far, expected, dtype, {"matched_ratio": 0.9})
    with_limits = {"matched_ratio": 0.9, "atol": 0.5, "rtol": 0}
    assert passes(near, expected, dtype, with_limits)
    assert not passes(far, expected, dtype, with_limits)


@pytest.mark.parametrize("dtype", [*FLOATING, *WHOLE, "bool"])
def test_exact_allows_no_difference_whatever_yardsticks_say(dtype):
    expected, other = [0, 1, 1], [0, 1, 0]
    assert passes(expected, expected, dtype, {"exact": True}, other)
    assert not passes(other, expected, dtype, {"exact": True}, other)
    assert passes(other, expected, dtype, {}, other)


@pytest.mark.parametrize("dtype", [*FLOATING, *WHOLE])
def test_linear_allows_none_where_all_inputs_are_zero_or_one(dtype):
    expected, other = [1, 2, 3], [1, 2, 4]
    assert not passes(other, expected, dtype, {"linear": True}, other, exact=True)
    assert passes(other, expected, dtype, {"linear": True}, other, exact=False)
    assert passes(other, expected, dtype, {}, other, exact=True)


def test_gathered_compares_what_indices_point_at_by_the_limits_that_are_given():
    x = torch.tensor([[5.0, 4.0, 4.0, 3.0]])
    by = {"by": "gathered", "from": "x"}
    assert passes([0, 2], [0, 1], "int32", by, x=x)
    assert not passes([0, 3], [0, 1], "int32", by, x=x)
    assert passes([0, 3], [0, 1], "int32", {**by, "atol": 1, "rtol": 0}, x=x)
    assert not passes([3, 1], [0, 1], "int32", {**by, "atol": 1, "rtol": 0}, x=x)
    assert passes([3, 1], [0, 1], "int32", {**by, "matched_ratio": 0.5}, x=x)


def test_from_says_where_indices_point():
    x, z = torch.tensor([[1.0, 1.0]]), torch.tensor([[1.0, 2.0]])
    assert passes([1], [0], "int32", {"by": "gathered", "from": "x"}, x=x, z=z)
    assert not passes([1], [0], "int32", {"by": "gathered", "from": "z"}, x=x, z=z)


def test_samples_are_left_to_the_statistics():
    assert passes([1], [2], "int32", {"by": "samples"})


@pytest.mark.parametrize(
    "contradiction",
    [
        {"exact": True, "atol": 1},
        {"exact": True, "by": "gathered"},
        {"linear": True, "by": "gathered"},
        {"exact": True, "by": "samples"},
        {"rtol": 0.1, "by": "samples"},
        {"from": "x"},
    ],
)
def test_what_could_not_be_done_is_refused(contradiction):
    with pytest.raises(ValidationError):
        Tolerance(**contradiction)


def test_of_values_whose_order_rounding_leaves_open_any_may_have_any_place():
    x = torch.tensor([[9.0, -90.0, -95.0, -99.0, -200.0, 1.0]])
    by, expected = {"by": "gathered", "from": "x"}, [0, 5, 1, 2]
    worst = [0, 5, 3, 2]  # as if the last ones had underflowed to equal zeros
    for got in ([0, 5, 3, 1], [0, 5, 2, 1], [0, 5, 2, 3]):
        assert not passes(got, expected, "int32", by, x=x)
        assert passes(got, expected, "int32", by, worst, x=x)
    for wrong in ([0, 5, 4, 1], [0, 1, 5, 2], [0, 5, 2, 2]):
        assert not passes(wrong, expected, "int32", by, worst, x=x)
