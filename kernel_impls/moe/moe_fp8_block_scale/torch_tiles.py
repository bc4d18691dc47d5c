"""Routed experts as batched products of tiles, each of tokens of one expert."""

import torch

from pytest_fib import implements

TOP_K, GROUPS, TOP_GROUPS = 8, 8, 4
BLOCK = 128


@implements(
    "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_*",
    description="Tokens are padded to tiles, each of which meets its expert.",
)
def run(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights,
    gemm1_weights_scale, gemm2_weights, gemm2_weights_scale, local_expert_offset,
    routed_scaling_factor,
):  # fmt: skip
    experts, weights = _routed(routing_logits.float(), routing_bias.float())
    slot, expert, real = _tiles(experts - local_expert_offset, len(gemm1_weights))
    token = slot // TOP_K  # [tiles, size]
    x = hidden_states[token].float()
    x.unflatten(2, (-1, BLOCK)).mul_(hidden_states_scale.T[token][..., None])
    first = torch.bmm(x, _dequantised(gemm1_weights[expert], gemm1_weights_scale[expert]))
    up, gate = first.chunk(2, dim=-1)
    second = _dequantised(gemm2_weights[expert], gemm2_weights_scale[expert])
    results = torch.bmm(torch.nn.functional.silu(gate).mul_(up), second).flatten(0, 1)

    # Where each token's results are; those of other places' experts are the one after the last.
    last = len(results)
    place = slot.new_full((weights.numel() + 1,), last)
    place[torch.where(real, slot, weights.numel()).flatten()] = torch.arange(last, device=x.device)
    return torch.nn.functional.embedding_bag(
        place[:-1].view_as(weights),
        torch.nn.functional.pad(results, (0, 0, 0, 1)),
        mode="sum",
        per_sample_weights=weights * routed_scaling_factor,
        padding_idx=last,
    ).to(torch.bfloat16)


def _routed(logits, bias):
    """Experts of each token and their weights, both [tokens, TOP_K], by sorting."""
    scores = logits.sigmoid()
    groups = (scores + bias).unflatten(1, (GROUPS, -1))
    best_two = groups.sort(dim=-1, descending=True).values[..., :2]
    rank = best_two.sum(dim=-1).argsort(dim=-1, descending=True).argsort(dim=-1)
    allowed = torch.where(rank[..., None] < TOP_GROUPS, groups, -torch.inf).flatten(1)
    experts = allowed.argsort(dim=-1, descending=True)[:, :TOP_K]
    chosen = scores.gather(1, experts)
    return experts, chosen / chosen.sum(dim=-1, keepdim=True)


def _tiles(local, count):
    """Tiles of choices of one expert: which they are, the expert, and which are no padding.

    ``local`` are the experts of each token, [tokens, TOP_K], of which those in [0, count) are here.
    With tiles of the mean length, at most half of all choices are padding, and there are at most
    twice as many tiles as experts, however the choices are distributed.
    """
    number = torch.arange(count + 1, device=local.device)
    here = torch.where((local >= 0) & (local < count), local, count).flatten()
    ordered, slot = here.sort(stable=True)
    starts = torch.searchsorted(ordered, number)
    lengths = starts.diff()
    size = max(1, -(-int(starts[-1]) // count))
    tiles = (lengths + size - 1) // size
    expert = number[:-1].repeat_interleave(tiles)
    within = torch.arange(len(expert), device=local.device) - (tiles.cumsum(0) - tiles)[expert]
    at = within[:, None] * size + torch.arange(size, device=local.device)
    row = (starts[expert, None] + at).clamp_max_(len(slot) - 1)
    return slot[row], expert, at < lengths[expert, None]


def _dequantised(weights, scale):
    """float32 weights of some experts, transposed, from one scale for each BLOCK x BLOCK."""
    wide = weights.float()
    wide.unflatten(1, (-1, BLOCK)).unflatten(3, (-1, BLOCK)).mul_(scale[:, :, None, :, None])
    return wide.transpose(1, 2)
