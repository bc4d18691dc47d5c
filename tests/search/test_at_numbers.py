"""Kernels that are wrong at numbers of their own, which no other workload has."""

import pytest
import torch

from pytest_fib.data import Definition
from pytest_fib.search import search
from pytest_fib.workloads import make_inputs, make_workload, parse_workload
from tests.definitions.harness import found


def drawn(definition, numbers, examples=25):
    return found(definition, examples, 1 << 28, numbers=numbers)


def test_each_axis_has_one_more_than_a_number_while_the_others_are_least(define):
    definition = define({"m": "var", "n": "var"})
    sizes = [workload.axes for workload in drawn(definition, [2741])]
    assert {"m": 2742, "n": 1} in sizes
    assert {"m": 1, "n": 2742} in sizes
    assert any(axes["m"] == 2742 and axes["n"] > 1 for axes in sizes)
    assert any(axes["n"] == 2741 for axes in sizes)


def test_no_axis_is_beyond_its_domain(define):
    definition = define({"n": "var"}, domains={"n": {"max": 100}})
    assert max(workload.axes["n"] for workload in drawn(definition, [2741])) == 100


def test_there_are_no_more_than_two_for_each_example(define):
    plain = drawn(define(), [], examples=5)
    assert len(plain) < len(drawn(define(), range(100, 200), examples=5)) <= len(plain) + 10


def test_two_axes_have_more_than_a_number_or_have_it_as_their_product(define):
    definition = define({"m": "var", "n": "var"}, domains={"m": {"max": 4000}})
    sizes = [workload.axes for workload in drawn(definition, [2741, 3198])]
    assert {"m": 2742, "n": 2742} in sizes
    assert {"m": 3199, "n": 3199} in sizes
    products = [axes for axes in sizes if axes["m"] * axes["n"] == 3198 and min(axes.values()) > 1]
    assert products
    assert all(axes["m"] != axes["n"] for axes in products)


def test_two_axes_have_a_quarter_more_than_a_number(define):
    sizes = [workload.axes for workload in drawn(define({"m": "var", "n": "var"}), [1003])]
    assert {"m": 1254, "n": 1254} in sizes


def test_a_failure_at_a_number_is_shrunk_to_plain_values_where_they_fail(define):
    def look(fails):
        options = {"failed": bool, "closeness": lambda outcome: 0.0, "numbers": [2741]}
        return search(define(), fails, **options).workload

    assert look(lambda w: "near" in w.regime).regime == {"near": "2741"}
    assert look(lambda w: w.axes["n"] == 2742).axes == {"n": 2742}
    assert look(lambda w: "near" in w.regime or (w.axes["n"], w.seed) == (1, 3)).regime == {}


RULES = {
    "count": {"kind": "integers", "min": 0, "max": 100_000},
    "ids": {"kind": "indices", "below": 5000, "unique": False},
    "x": {"kind": "values"},
    "share": {"kind": "uniform", "min": 0, "max": 1},
    "step": {"kind": "integers", "min": 1, "max": 100_000},
    "rate": {"kind": "uniform", "min": 0, "max": 1000},
}
INPUTS = {
    "count": {"shape": ["n"], "dtype": "int64"},
    "ids": {"shape": ["n"], "dtype": "int32"},
    "x": {"shape": ["n"], "dtype": "float32"},
    "share": {"shape": ["n"], "dtype": "float32"},
    "step": {"shape": None, "dtype": "int32"},
    "rate": {"shape": None, "dtype": "float32"},
}


@pytest.fixture
def made(define):
    definition = define({"n": "var"}, INPUTS, rules=RULES)

    def made(near, seed=0):
        workload = make_workload(definition, {"n": 40}, seed, {"near": near})
        return make_inputs(definition, workload)

    return made


def test_inputs_and_scalars_are_at_a_number_and_next_to_it(made):
    inputs = made("777")
    assert {776, 777, 778} >= {*inputs["count"].tolist()} & {*range(770, 785)} != set()
    assert {776, 777, 778} & {*inputs["ids"].tolist()}
    assert {6.5, -6.5, 4.875, 9.75} & {*made("6.5")["x"].tolist()}
    assert {made("777", seed)["step"] for seed in range(3)} == {776, 777, 778}
    assert {made("777", seed)["rate"] for seed in range(2)} == {777.0, 582.75}


def test_a_number_that_an_input_may_not_be_is_left_out(made):
    inputs = made("777777.5")
    assert int(inputs["count"].max()) <= 100_000
    assert int(inputs["ids"].max()) < 5000
    assert float(inputs["share"].max()) <= 1
    assert 1 <= inputs["step"] <= 100_000


def test_no_tensor_of_floats_has_what_stands_for_infinity(made):
    for near in ("-1e38", "32"):
        assert float(made(near)["x"].abs().max()) < 10
    assert made("900.0")["rate"] in (900.0, 675.0)


def test_whole_numbers_of_64_bits_are_exact(made):
    assert 99_999 in {made("99999", seed)["step"] for seed in range(3)}
    assert made(str(2**62 + 1))["count"].max() <= 100_000


@pytest.mark.parametrize("near", ["many", "nan", "inf", ""])
def test_what_is_no_number_is_refused(near):
    with pytest.raises(ValueError, match=r"^regime.near: '\w*' is not a number$"):
        parse_workload(f'{{"axes": {{}}, "regime": {{"near": "{near}"}}}}')


def wrong_in_a_row_beyond(x):
    return torch.where(torch.arange(x.shape[1]) < 2741, 2 * x, x)


def wrong_beyond_a_value(x):
    return 2 * x.clamp(max=7.25)


@pytest.mark.parametrize("wrong", [wrong_in_a_row_beyond, wrong_beyond_a_value])
def test_such_a_kernel_is_found(kernel_check, wrong):
    matrix = {"shape": ["m", "n"], "dtype": "float32"}
    definition = Definition.model_validate(
        {
            "name": "double",
            "op_type": "op",
            "axes": {"m": "var", "n": "var"},
            "inputs": {"x": matrix},
            "outputs": {"y": matrix},
            "reference": "def run(x):\n    return 2 * x\n",
            "workloads": {"inputs": {"x": {"kind": "normal"}}, "axes": {"n": {"max": 2742}}},
        }
    )
    with pytest.raises(AssertionError, match=wrong.__name__):
        kernel_check(definition, wrong, examples=3)
