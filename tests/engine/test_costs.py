"""What a workload costs follows from what others did."""

import pytest

from pytest_fib.data import Definition
from pytest_fib.engine import Costs

DEFINITION = Definition.model_validate(
    {
        "name": "op",
        "op_type": "op",
        "axes": {"m": "var", "n": "var"},
        "inputs": {"x": {"shape": ["m", "n"], "dtype": "float32"}},
        "outputs": {"y": {"shape": ["m", "n"], "dtype": "float32"}},
        "reference": "def run(x): ...",
    }
)
TRIED = [{"m": m, "n": n} for m, n in [(2, 2), (8, 300), (250, 30), (500, 70), (90, 900)]]


@pytest.mark.parametrize(
    "cost",
    [
        lambda m, n: 1.0 + m + n,
        lambda m, n: 5.0 + m * n,
        lambda m, n: 0.1 * n * n,
        lambda m, n: m * n + 20.0 * m,
    ],
)
def test_what_costs_grow_with_is_found(cost):
    costs = Costs(DEFINITION, noticeable=10.0)
    for axes in TRIED:
        costs.add(axes, cost(**axes))
    larger = {"m": 5000, "n": 7000}
    assert cost(**larger) / 3 < costs.expected(larger) < cost(**larger) * 3


def test_nothing_is_expected_of_costs_that_are_hardly_more_than_the_least():
    costs = Costs(DEFINITION, noticeable=10.0)
    assert costs.expected(TRIED[0]) == 0.0
    for cost, axes in enumerate(TRIED):
        costs.add(axes, 100.0 + cost)
    assert costs.expected({"m": 10**6, "n": 10**6}) == 0.0


def test_what_is_larger_and_cost_less_is_believed():
    """A first call may take seconds whatever its size."""
    costs = Costs(DEFINITION, noticeable=0.1)
    for n in (1, 2, 3, 4):
        costs.add({"m": n, "n": n}, 5.0 * n)
    assert costs.expected({"m": 100, "n": 100}) > 100.0
    costs.add({"m": 7, "n": 7}, 0.01)
    assert costs.expected({"m": 100, "n": 100}) < 0.1


def test_one_or_two_that_took_long_tell_nothing_of_larger_ones():
    costs = Costs(DEFINITION, noticeable=0.1)
    for n, cost in ((1, 0.01), (2, 1.0), (3, 1.0)):
        costs.add({"m": n, "n": n}, cost)
    assert costs.expected({"m": 5000, "n": 5000}) == pytest.approx(1.0)


def test_nothing_costs_less_than_what_is_smaller_along_every_axis():
    costs = Costs(DEFINITION, noticeable=0.1)
    for axes, cost in [((1, 1), 0.0), ((50, 10_000), 1.0), ((60, 90), 60.0)]:
        costs.add(dict(zip("mn", axes, strict=True)), cost)
    assert costs.expected({"m": 60, "n": 91}) >= 60.0


def test_costs_are_fitted_for_what_is_smaller_along_some_axis_than_all_that_was_tried():
    costs = Costs(DEFINITION, noticeable=0.1)
    costs.add({"m": 1, "n": 1}, 0.0)
    for n in (10, 20, 40):
        costs.add({"m": n, "n": n}, n)
    assert 5 < costs.expected({"m": 5, "n": 400}) < 2000


def test_what_took_long_at_one_sequence_says_nothing_of_many_short_ones():
    """All that is known to cost much has the same batch, so that fits it best."""
    costs = Costs(DEFINITION, noticeable=0.5)
    for axes, cost in [((1, 1), 0.0), ((512, 1), 0.01), ((4, 512), 0.02), ((33, 256), 0.1)]:
        costs.add(dict(zip("mn", axes, strict=True)), cost)
    for n, cost in ((4096, 1.0), (8192, 1.1), (16384, 0.9), (32768, 1.2)):
        costs.add({"m": 1, "n": n}, cost)
    assert costs.expected({"m": 33, "n": 256}) <= 0.1
    assert costs.expected({"m": 30, "n": 200}) <= 0.1
    assert costs.expected({"m": 65, "n": 65}) < 1.0
    assert costs.expected({"m": 1024, "n": 1}) < 1.0
