import math

import pytest
from pydantic import ValidationError

from pytest_fib.data import AxisDomain, Tolerance, WorkloadsSection


def test_a_domain_is_everything_from_one_by_default():
    assert AxisDomain() == AxisDomain(min=1, max=None, multiple_of=1, values=None)


@pytest.mark.parametrize(
    "domain",
    [
        {"min": -1},
        {"min": 4, "max": 3},
        {"multiple_of": 0},
        {"min": 1, "max": 127, "multiple_of": 128},
        {"min": 129, "max": 255, "multiple_of": 128},
        {"values": []},
        {"values": [-1]},
        {"min": True},
        {"max": "4"},
        {"max": 4.0},
    ],
)
def test_a_domain_without_members_or_of_other_types_is_refused(domain):
    with pytest.raises(ValidationError):
        AxisDomain(**domain)


@pytest.mark.parametrize(
    "domain",
    [{"min": 4, "max": 4}, {"min": 0, "max": 0}, {"min": 128, "max": 128, "multiple_of": 128}],
)
def test_a_domain_with_one_member_is_fine(domain):
    assert AxisDomain(**domain).max == domain["max"]


@pytest.mark.parametrize("size", [-1, 1.5, True, "1"])
def test_examples_and_bench_have_sizes(size):
    for section in ("examples", "bench"):
        with pytest.raises(ValidationError):
            WorkloadsSection.model_validate({section: [{"batch": size}]})


def test_tolerances_default_to_the_dtypes_own():
    assert Tolerance() == Tolerance(rtol=None, atol=None, by="elements")
    assert Tolerance().matched_ratio is Tolerance().from_ is None
    assert Tolerance().exact is Tolerance().linear is False


@pytest.mark.parametrize(
    "wrong",
    [
        {"rtol": -1},
        {"atol": math.nan},
        {"atol": math.inf},
        {"tol": 1},
        {"by": "value"},
        {"matched_ratio": 0},
        {"matched_ratio": 1.5},
        {"exact": "perhaps"},
    ],
)
def test_tolerances_are_finite_and_have_no_other_keys(wrong):
    with pytest.raises(ValidationError):
        Tolerance(**wrong)


@pytest.mark.parametrize("by", ["elements", "gathered", "samples"])
def test_a_tolerance_says_what_is_compared(by):
    assert Tolerance.model_validate({"by": by}).by == by


def test_a_tolerance_names_what_indices_point_into():
    assert Tolerance.model_validate({"by": "gathered", "from": "logits"}).from_ == "logits"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"exact": True, "rtol": 0.1}, "exact can't be combined with rtol"),
        (
            {"exact": True, "atol": 0, "matched_ratio": 1},
            "exact can't be combined with atol, matched",
        ),
        ({"from": "logits"}, "from is only for indices, compared by: gathered"),
    ],
)
def test_tolerances_that_contradict_themselves_are_refused(wrong, message):
    with pytest.raises(ValidationError, match=message):
        Tolerance.model_validate(wrong)
