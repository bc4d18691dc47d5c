"""RMSNorm and layer normalisation."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names

RMSNORM = names("rmsnorm_d*_bfloat16")
LAYERNORM = names("layernorm_*")


def rmsnorm_scale(each):
    """Every factor has been rounded a few times."""
    return each.expected["out"].double().abs()


def layernorm_scale(each):
    """The mean loses what it cancels; the bias is added in the end."""
    x, weight, bias, eps = each.inputs.values()
    wide = x.double()
    deviation = (wide.var(dim=-1, correction=0, keepdim=True) + eps).sqrt()
    size = wide.abs().amax(dim=-1, keepdim=True) + wide.abs()
    return size / deviation * weight.double().abs() + bias.double().abs()


@pytest.mark.parametrize("name", RMSNORM)
def test_rmsnorm_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 20):
        each.agree(rmsnorm_scale(each))


@pytest.mark.parametrize("name", RMSNORM)
@pytest.mark.parametrize("layout", ["contiguous", "row_strided", "offset"])
@pytest.mark.parametrize("batch", [1, 33])
def test_rmsnorm_agrees_however_rows_lie(name, layout, batch):
    each = case(name, {"batch": batch}, regime={"layout": layout, "values": "wide"})
    each.agree(rmsnorm_scale(each))


@pytest.mark.parametrize("name", RMSNORM)
def test_rmsnorm_of_zeros_is_zero(name):
    each = case(name, {"batch": 2}, regime={"values": "zeros"})
    for who, out in each.outputs():
        assert not out["out"].any(), who


@pytest.mark.parametrize("name", LAYERNORM)
def test_layernorm_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 20):
        each.agree(layernorm_scale(each))


@pytest.mark.parametrize("name", LAYERNORM)
def test_layernorm_of_equal_values_is_the_bias(name):
    each = case(name, {"batch": 3})
    each.inputs["x"].copy_(torch.tensor([[-1.0], [0.0], [8.0]]))
    for who, out in each.outputs():
        for row in out["out"]:
            assert torch.equal(row, each.inputs["bias"]), who


@pytest.mark.parametrize("name", LAYERNORM)
def test_layernorm_keeps_a_small_spread_about_a_large_mean(name):
    x = case(name, {"batch": 4}).inputs["x"]
    x = (x.sign() + 256).to(x.dtype)
    each = case(name, {"batch": 4}, x=x)
    each.agree(layernorm_scale(each))
    assert each.expected["out"].float().std() > 0.1
