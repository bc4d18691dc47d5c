"""What sampling kernels are given: probabilities, and parameters at the ends of their ranges."""

import pytest
import torch

from pytest_fib.data import ON_REQUEST, VALUE_PATTERNS, Definition
from pytest_fib.workloads import fill_inputs, make_workload, plan, regime_choices

USUAL = [name for name in VALUE_PATTERNS if name not in ON_REQUEST]


def made(rule, dtype="float32", shape=("n", "n"), n=64, seed=0, **regime):
    """A tensor that a rule fills."""
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"n": "var"},
            "inputs": {"x": {"shape": list(shape), "dtype": dtype}},
            "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
            "reference": "def run(x): ...",
            "workloads": {"inputs": {"x": rule}},
        }
    )
    assert plan(definition).problem is None
    x = torch.empty((n,) * len(shape), dtype=getattr(torch, dtype))
    fill_inputs({"x": x}, definition, make_workload(definition, {"n": n}, seed, regime))
    return definition, x


@pytest.mark.parametrize("values", USUAL)
def test_probabilities_sum_to_one_whatever_the_regime(values):
    _, x = made({"kind": "probabilities"}, values=values)
    assert (x >= 0).all()
    assert torch.allclose(x.sum(-1), torch.ones(64))


def test_probabilities_follow_the_regime():
    definition, uniform = made({"kind": "probabilities"}, values="ones")
    assert regime_choices(definition)["values"] == USUAL
    assert (uniform == 1 / 64).all()
    _, certain = made({"kind": "probabilities"}, values="large")
    assert ((certain == 0) | (certain == 1)).all()


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ({"kind": "integers", "min": 1, "max": 1000}, "int32"),
        ({"kind": "uniform", "min": 0.25, "max": 0.75}, "float32"),
        ({"kind": "uniform", "min": 0.25, "max": 0.75}, "bfloat16"),
    ],
)
def test_ends_are_drawn_often_where_they_are_asked_for(rule, dtype):
    for ends, often in ((True, True), (False, False)):
        _, x = made({**rule, "ends": ends}, dtype, ("n",), n=100)
        assert ((x >= rule["min"]) & (x <= rule["max"])).all()
        assert (int((x == rule["min"]).sum()) > 10) is often
        assert (int((x == rule["max"]).sum()) > 10) is often


def test_of_a_few_parameters_one_is_the_least_and_one_the_most():
    rule = {"kind": "integers", "min": 1, "max": 1000, "ends": True}
    drawn = {n: [made(rule, "int32", ("n",), n, seed)[1] for seed in range(40)] for n in (2, 3, 5)}
    both = {n: sum({1, 1000} <= {*x.tolist()} for x in some) for n, some in drawn.items()}
    assert both[3] == both[5] == 40
    assert 10 < both[2] < 35


def test_wide_float16_values_leave_room_for_sums_of_products():
    _, x = made({"kind": "values"}, "float16", n=256, values="wide")
    assert (x.float() @ x.float().T).abs().max() < torch.finfo(torch.float16).max
    assert x.abs().max() > 16
