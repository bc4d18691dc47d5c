"""Rotary embedding."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names

ROPE = names("rope_*")


def scales(each):
    """Two elements of a head, a half apart, make one."""
    half = each.inputs["cos_sin_cache"].shape[-1] // 2
    for name in ("q", "k"):
        x = each.inputs[name].double().abs()
        turned, rest = x[..., : 2 * half], x[..., 2 * half :]
        both = turned + turned.roll(half, dims=-1)
        yield torch.cat((both, rest), dim=-1)


@pytest.mark.parametrize("name", ROPE)
def test_rope_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=1 << 19):
        each.agree(*scales(each))


@pytest.mark.parametrize("name", ROPE)
@pytest.mark.parametrize("layout", ["contiguous", "row_strided", "offset"])
@pytest.mark.parametrize("tokens", [1, 2, 5])
def test_rope_agrees_at_the_end_of_the_cache(name, layout, tokens):
    axes = {"num_tokens": tokens, "max_seq_len": 3}
    positions = torch.full((tokens,), 2)
    each = case(name, axes, regime={"layout": layout}, positions=positions)
    each.agree(*scales(each))


@pytest.mark.parametrize("name", ROPE)
def test_rope_at_position_zero_changes_nothing(name):
    axes = {"num_tokens": 4, "max_seq_len": 9}
    each = case(name, axes, positions=torch.zeros(4, dtype=torch.int64))
    for who, out in each.outputs():
        assert torch.equal(out["q_out"], each.inputs["q"]), who
        assert torch.equal(out["k_out"], each.inputs["k"]), who


def test_rope_keeps_what_is_not_rotated():
    each = case("rope_h6_kv1_d80_rd36", {"num_tokens": 7, "max_seq_len": 100})
    for who, out in each.outputs():
        assert torch.equal(out["q_out"][..., 36:], each.inputs["q"][..., 36:]), who
        assert not torch.equal(out["q_out"][..., :36], each.inputs["q"][..., :36]), who
