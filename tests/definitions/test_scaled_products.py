"""Products of numbers in fp8 and fp4 that share scales: gemm, gemv and experts."""

import pytest
import torch

from tests.definitions.harness import case, drawn, names, reference

GEMM_SMALL = names("fp8_block_scale_gemm_*_k512")
GEMM_LARGE = names("fp8_block_scale_gemm_*_k7168")
MOE_SMALL = names("moe_fp8_block_scale_*_h256_i128")
MOE_LARGE = [*names("moe_fp8_block_scale_*_h256_i2048"), *names("moe_*_h7168_i128")]
BLOCK = 128


def gemm_scale(a, b, a_scale, b_scale):
    """The sum of the magnitudes that a sum of products adds."""
    a_scale, b_scale = (x.double().repeat_interleave(BLOCK, dim=1) for x in (a_scale, b_scale))
    b_scale = b_scale.repeat_interleave(BLOCK, dim=0)[: len(b)]
    return (a.double().abs() * a_scale) @ (b.double().abs() * b_scale).T


@pytest.mark.parametrize("name", GEMM_SMALL)
def test_fp8_gemm_agrees_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=8 << 20):
        each.agree(gemm_scale(**each.inputs))


@pytest.mark.parametrize("name", GEMM_LARGE)
def test_fp8_gemm_of_large_weights_agrees(name):
    for each in drawn(name, count=2, max_bytes=96 << 20):
        each.agree(gemm_scale(**each.inputs))


@pytest.mark.parametrize("m", [1, 16, 17, 64, 65, 130])
def test_fp8_gemm_agrees_where_tiles_end(m):
    axes = {"m": m, "n_blocks": 5, "k_blocks": 4}
    each = case("fp8_block_scale_gemm_n576_k512", axes, regime={"layout": "row_strided"})
    each.agree(gemm_scale(**each.inputs))


def test_each_block_has_the_scale_of_its_own():
    """In a product of ones, an element is the sum of its blocks' scales."""
    axes = {"m": 3, "n_blocks": 5, "k_blocks": 4}
    a_scale = torch.tensor([[1.0, 2.0, 4.0, 8.0]]) * torch.tensor([[1.0], [0.5], [2.0]])
    b_scale = 2.0 ** -torch.arange(20.0).view(5, 4)
    given = {"a_scale": a_scale, "b_scale": b_scale}
    each = case("fp8_block_scale_gemm_n576_k512", axes, regime={"values": "ones"}, **given)
    expected = BLOCK * (a_scale @ b_scale.T).repeat_interleave(BLOCK, dim=1)[:, :576]
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert torch.equal(out["c"], expected.bfloat16()), who


def gemv_scale(a, b, sfa, sfb):
    numbers = reference("nvfp4_gemv", "dequantised")
    product = numbers(a, sfa).double().abs() * numbers(b, sfb).double().abs()
    return product.sum(dim=1, keepdim=True)


def test_nvfp4_gemv_agrees_on_drawn_workloads():
    for each in drawn("nvfp4_gemv", max_bytes=2 << 20):
        each.agree(gemv_scale(**each.inputs))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("k", [64, 256, 320])
@pytest.mark.parametrize("m", [1, 16, 17])
def test_nvfp4_gemv_agrees_where_tiles_end(m, k, batch):
    each = case("nvfp4_gemv", {"m": m, "k": k, "l": batch, "k_blocks": k // 16})
    each.agree(gemv_scale(**each.inputs))


def test_nvfp4_numbers_are_decoded_each_in_its_place():
    """Row i of the identity picks number i of the vector, which has all 16 of them."""
    codes = torch.arange(16).repeat(4)
    one = torch.eye(64).long() * 2  # code 2 is 1.0
    scale = torch.ones(1, 4, 1)
    scale[0, 2] = 8.0
    each = case(
        "nvfp4_gemv",
        {"m": 64, "k": 64, "l": 1, "k_blocks": 4},
        a=packed(one),
        b=packed(codes[None]),
        sfa=torch.ones(64, 4, 1).to(torch.float8_e4m3fn),
        sfb=scale.to(torch.float8_e4m3fn),
    )
    sizes = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    expected = torch.cat((sizes, -sizes)).repeat(4)
    expected[32:48] *= 8
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert torch.equal(out["c"].flatten(), expected.half()), who


def packed(codes):
    """Codes [rows, k] as bytes [rows, k / 2, 1]: the first of a pair in the low half."""
    low, high = codes[:, ::2], codes[:, 1::2]
    bytes_ = (low | high << 4).to(torch.uint8)
    return bytes_[:, :, None].view(torch.float4_e2m1fn_x2)


def moe_scale(definition, given):
    """A bound of the magnitudes that are added for each element of the output.

    A gate moves the output by as much as its own sum loses, times its slope, which is below 1.1.
    """
    route, dequantised = (reference(definition, f) for f in ("route", "dequantised"))
    ids, weights = route(
        given["routing_logits"], given["routing_bias"], given["routed_scaling_factor"]
    )
    x_scale = given["hidden_states_scale"].T.repeat_interleave(BLOCK, dim=1)
    x = (given["hidden_states"].float() * x_scale).double()
    total = torch.zeros_like(x)
    for local in range(len(given["gemm1_weights"])):
        tokens, slots = torch.nonzero(ids == given["local_expert_offset"] + local, as_tuple=True)
        first = dequantised(given["gemm1_weights"][local], given["gemm1_weights_scale"][local])
        up, gate = (x[tokens] @ first.T.double()).chunk(2, dim=-1)
        up_size, gate_size = (x[tokens].abs() @ first.T.double().abs()).chunk(2, dim=-1)
        silu = torch.nn.functional.silu(gate).abs()
        slope = (gate.sigmoid() * (1 + gate * (1 - gate.sigmoid()))).abs()
        hidden = silu * up_size + slope * gate_size * up.abs()
        second = dequantised(given["gemm2_weights"][local], given["gemm2_weights_scale"][local])
        added = hidden @ second.T.double().abs()
        total[tokens] += weights[tokens, slots, None].double() * added
    return total


@pytest.mark.parametrize("name", MOE_SMALL)
def test_experts_agree_on_drawn_workloads(name):
    for each in drawn(name, max_bytes=16 << 20):
        each.agree(moe_scale(name, each.inputs))


@pytest.mark.parametrize("name", MOE_LARGE)
def test_large_experts_agree(name):
    for each in drawn(name, count=3, max_bytes=192 << 20):
        each.agree(moe_scale(name, each.inputs))


def moe(tokens, **inputs):
    axes = {"seq_len": tokens, "gemm1_out_size": 256, "num_hidden_blocks": 2}
    axes |= {"num_intermediate_blocks": 1, "num_gemm1_out_blocks": 2}
    return case(MOE_SMALL[0], axes, **inputs)


@pytest.mark.parametrize("offset", [0, 5, 24])
def test_experts_elsewhere_add_nothing(offset):
    """All tokens go to experts 8 to 15 and 16 to 23 at the most, by the bias."""
    bias = torch.zeros(32, dtype=torch.bfloat16)
    bias[8:24] = 4.0
    each = moe(6, routing_bias=bias, local_expert_offset=offset)
    nowhere = offset in (0, 24)
    for who, out in {"reference": each.expected, **dict(each.outputs())}.items():
        assert bool((out["output"] == 0).all()) == nowhere, who


def test_a_group_is_left_out_although_all_scores_are_negative():
    """With zeros in the place of what is left out, the wrong experts would win."""
    bias = torch.full((32,), -2.0, dtype=torch.bfloat16)
    each = moe(9, routing_bias=bias)
    each.agree(moe_scale(MOE_SMALL[0], each.inputs))
    ids, _ = reference(MOE_SMALL[0], "route")(each.inputs["routing_logits"], bias, 1.0)
    assert all(len((row // 4).unique()) <= 4 for row in ids)
