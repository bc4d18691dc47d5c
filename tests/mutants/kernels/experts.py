"""Routing and mixtures of experts, wrong."""

import torch
from _wrong import caught, narrow, put

from pytest_fib import implements

TOP_K, GROUPS, TOP_GROUPS, BLOCK = 8, 8, 4, 128


def route(logits, k, weigh=lambda wide: wide.softmax(-1), pick=lambda wide: wide):
    wide = logits.float()
    ids = pick(wide).topk(k, -1).indices
    return weigh(wide).gather(-1, ids), ids.int()


def routed(logits, bias, factor, normalised=True, biased_weights=False, groups=TOP_GROUPS):
    scores = logits.float().sigmoid()
    biased = (scores + bias.float()).unflatten(1, (GROUPS, -1))
    best = biased.topk(2, -1).values.sum(-1).topk(groups, -1).indices
    kept = torch.zeros(biased.shape[:2], dtype=torch.bool, device=logits.device)
    candidates = biased.masked_fill(~kept.scatter(1, best, True)[..., None], -torch.inf)
    experts = candidates.flatten(1).topk(TOP_K, -1).indices
    chosen = (biased.flatten(1) if biased_weights else scores).gather(1, experts)
    total = chosen.sum(-1, keepdim=True) if normalised else 1
    return experts, chosen / total * factor


def spread(weights, scale):
    return weights.float() * scale.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)


def moe(
    logits, bias, x, x_scale, w1, s1, w2, s2, offset, factor,
    act=torch.nn.functional.silu, up_first=True, middle=lambda h: h, **how
):  # fmt: skip
    experts, weights = routed(logits, bias, factor, **how)
    wide = x.float() * x_scale.T.repeat_interleave(BLOCK, 1)
    output = torch.zeros_like(wide)
    for local in range(len(w1)):
        tokens, slots = torch.nonzero(experts == offset + local, as_tuple=True)
        if len(tokens):
            halves = (wide[tokens] @ spread(w1[local], s1[local]).T).chunk(2, -1)
            up, gate = halves if up_first else halves[::-1]
            product = middle(act(gate) * up) @ spread(w2[local], s2[local]).T
            output[tokens] += weights[tokens, slots, None] * product
    return output.bfloat16()


@implements("topk_softmax_e60_k8")
@caught("factor per row")
def normalised_over_the_chosen(logits):
    weights, ids = route(logits, 8)
    return weights / weights.sum(-1, keepdim=True), ids


@implements("topk_softmax_e60_k8")
@caught()
def sigmoid_weights(logits):
    return route(logits, 8, torch.sigmoid)


@implements("topk_softmax_e60_k2")
@caught("infinity", "nan")
def softmax_without_maximum(logits):
    return route(logits, 2, lambda wide: wide.exp() / wide.exp().sum(-1, keepdim=True))


@implements("topk_softmax_e60_k8")
@caught("permuted")
def least_first(logits):
    weights, ids = route(logits, 8)
    return weights.flip(-1), ids.flip(-1)


@implements("topk_softmax_e60_k8")
@caught("lower precision")
def weights_in_half(logits):
    weights, ids = route(logits, 8)
    return narrow(weights, torch.float16), ids


@implements("topk_softmax_e60_k2")
@caught("one offset")
def ids_from_one(logits):
    weights, ids = route(logits, 2)
    return weights, ids + 1


@implements("topk_softmax_e60_k2")
@caught()
def by_magnitude(logits):
    return route(logits, 2, pick=torch.abs)


@implements("topk_softmax_e60_k8")
@caught()
def last_experts_not_looked_at(logits):
    return route(logits, 8, pick=lambda wide: put(wide, (..., slice(56, None)), -torch.inf))


@implements("topk_softmax_e60_k8")
@caught("permuted")
def last_slot_repeats(logits):
    weights, ids = route(logits, 8)
    return put(weights, (..., -1), weights[:, 0]), put(ids, (..., -1), ids[:, 0])


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught("misread input", "one factor")
def without_the_factor(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights,
    gemm1_weights_scale, gemm2_weights, gemm2_weights_scale, local_expert_offset,
    routed_scaling_factor,
):  # fmt: skip
    return moe(
        routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights,
        gemm1_weights_scale, gemm2_weights, gemm2_weights_scale, local_expert_offset, 1.0,
    )  # fmt: skip


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught("one factor", "factor per row")
def weights_not_normalised(*inputs):
    return moe(*inputs, normalised=False)


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught()
def weights_with_bias(*inputs):
    return moe(*inputs, biased_weights=True)


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught()
def all_groups_stay(*inputs):
    return moe(*inputs, groups=GROUPS)


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught()
def gate_and_up_exchanged(*inputs):
    return moe(*inputs, up_first=False)


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught()
def gelu_experts(*inputs):
    return moe(*inputs, act=torch.nn.functional.gelu)


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught("lower precision")
def middle_in_fp8(*inputs):
    """Requantised with a scale for each token, as no one asked for."""

    def middle(hidden):
        scale = hidden.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
        return narrow(hidden / scale, torch.float8_e4m3fn) * scale

    return moe(*inputs, middle=middle)


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught("misread input")
def offset_ignored(*inputs):
    return moe(*inputs[:8], 0, inputs[9])


@implements("moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_l8_h256_i128")
@caught("zeros", "whole rows", "last tile")
def last_token_dropped(*inputs):
    return put(moe(*inputs), -1, 0.0)


@implements("topk_softmax_e60_k8")
@caught()
def in_order_of_index(logits):
    weights, ids = route(logits, 8)
    ids, order = ids.sort(-1)
    return weights.gather(-1, order), ids


@implements("topk_softmax_e60_k8")
@caught()
def equal_logits_are_one_expert(logits):
    largest = logits.topk(8, -1).values
    ids = (logits[:, None] == largest[..., None]).int().argmax(-1)
    return logits.softmax(-1).gather(-1, ids), ids.int()


@implements("topk_softmax_e60_k8")
@caught("permuted")
def first_two_weights_exchanged(logits):
    weights, ids = route(logits, 8)
    return weights[:, [1, 0, *range(2, 8)]], ids
