"""Steps of recurrent states: Mamba's selective one, and the gated delta rule's."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names

MAMBA = names("mamba_ssu_decode_*")
MAMBA_SMALL, MAMBA_LARGE = names("mamba_ssu_*_s16_*"), names("mamba_ssu_*_s128_*")
GDN = names("gdn_decode_*")
# The states of larger ones alone take more than the interpreter is given.
GDN_SMALL, GDN_LARGE = names("gdn_decode_qk4_v8_*"), names("gdn_decode_qk4_v32_*")


def mamba_scales(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    share = x.shape[1] // B.shape[1]
    B, C = (t.double().repeat_interleave(share, dim=1)[:, :, None].abs() for t in (B, C))
    step = torch.nn.functional.softplus(dt.double() + dt_bias)
    old = state[state_batch_indices.long()].double().abs()
    decayed = torch.exp(A * step[..., None]) * old
    new = decayed * (1 + (A * step[..., None]).abs()) + (step * x.double().abs())[..., None] * B
    return (new * C).sum(-1) + D * x.double().abs(), new


@pytest.mark.parametrize("name", MAMBA_SMALL)
def test_mamba_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=2 << 20):
        each.agree(*mamba_scales(**each.inputs))


@pytest.mark.parametrize("name", MAMBA_LARGE)
def test_mamba_of_large_states_agrees(name):
    for each in drawn(name, count=5, max_bytes=8 << 20):
        each.agree(*mamba_scales(**each.inputs))


@pytest.mark.parametrize("name", MAMBA)
def test_mamba_takes_values_that_are_no_broadcasts(name):
    each = case(name, {"batch_size": 3, "state_cache_size": 3})
    given = {n: each.inputs[n].contiguous() for n in ("dt", "A", "D", "dt_bias")}
    scattered = {n: x * torch.linspace(0.5, 1.0, x.shape[-1]).to(x.dtype) for n, x in given.items()}
    each = case(name, {"batch_size": 3, "state_cache_size": 3}, **scattered)
    each.agree(*mamba_scales(**each.inputs))


@pytest.mark.parametrize("name", MAMBA)
def test_without_input_a_state_only_decays(name):
    axes = {"batch_size": 2, "state_cache_size": 4}
    given = {"x": torch.zeros(2, 16, 64).bfloat16(), "state_batch_indices": torch.tensor([3, 1])}
    given["state_batch_indices"] = given["state_batch_indices"].int()
    each = case(name, axes, **given)
    old = each.inputs["state"][[3, 1]].float()
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        new = out["new_state"].float()
        assert (new.abs() <= old.abs()).all(), who
        assert (new.sign() == old.sign()).all(), who


def gdn_scales(q, k, v, state, A_log, a, dt_bias, b, scale):
    share = v.shape[2] // q.shape[2]
    q, k = (t[:, 0].double().repeat_interleave(share, dim=1).abs() for t in (q, k))
    step = torch.nn.functional.softplus(a[:, 0].double() + dt_bias)
    decayed = torch.exp(-A_log.exp() * step)[..., None, None] * state.double().abs()
    held = torch.einsum("bhvk,bhk->bhv", decayed, k)
    update = b[:, 0].double().sigmoid()[..., None] * (v[:, 0].double().abs() + held)
    new = 2 * decayed + update[..., None] * k[..., None, :]
    return scale * torch.einsum("bhvk,bhk->bhv", new, q)[:, None], new


@pytest.mark.parametrize("name", GDN_SMALL)
def test_gated_delta_rule_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=4 << 20):
        each.agree(*gdn_scales(**each.inputs))


@pytest.mark.parametrize("name", GDN_LARGE)
def test_gated_delta_rule_of_many_heads_agrees(name):
    for each in drawn(name, count=5, max_bytes=16 << 20):
        each.agree(*gdn_scales(**each.inputs))


@pytest.mark.parametrize("name", GDN)
def test_a_full_step_makes_the_state_hold_the_value(name):
    """With beta 1 and an orthonormal key, the key then reads the value."""
    each = case(name, {"batch_size": 1})
    key = torch.zeros_like(each.inputs["k"])
    key[..., 7] = 1
    b = torch.full_like(each.inputs["b"], 40)
    each = case(name, {"batch_size": 1}, k=key, q=key, b=b, scale=1.0)
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert torch.allclose(out["output"].float(), each.inputs["v"].float(), rtol=2**-7), who


@pytest.mark.parametrize("name", GDN)
@pytest.mark.parametrize("gate", [-60.0, 60.0])
def test_a_gate_may_keep_all_or_nothing(name, gate):
    each = case(name, {"batch_size": 2})
    a = torch.full_like(each.inputs["a"], gate)
    each = case(name, {"batch_size": 2}, a=a)
    each.agree(*gdn_scales(**each.inputs))
