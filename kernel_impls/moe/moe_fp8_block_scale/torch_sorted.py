"""Routed experts over tokens sorted by expert, with scales applied to partial products."""

import torch

from pytest_fib import implements

TOP_K, GROUPS, TOP_GROUPS = 8, 8, 4
BLOCK = 128


@implements(
    "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_*",
    description="Tokens sorted by expert; a product for each block of 128, then its scales.",
)
def run(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights,
    gemm1_weights_scale, gemm2_weights, gemm2_weights_scale, local_expert_offset,
    routed_scaling_factor,
):  # fmt: skip
    experts, weights = _routed(routing_logits.float(), routing_bias.float())
    local = experts - local_expert_offset
    mine = (local >= 0) & (local < len(gemm1_weights))
    order = torch.argsort(torch.where(mine, local, len(gemm1_weights)).flatten(), stable=True)
    counts = torch.bincount(local[mine], minlength=len(gemm1_weights)).tolist()
    order = order[: sum(counts)]
    tokens, shares = order // TOP_K, weights.flatten()[order] * routed_scaling_factor

    x, x_scale = hidden_states[tokens].float(), hidden_states_scale[:, tokens].T
    results = x.new_empty(x.shape)
    for expert, rows in enumerate(torch.arange(len(order), device=x.device).split(counts)):
        if len(rows) == 0:
            continue
        first = _matmul(x[rows], gemm1_weights[expert], gemm1_weights_scale[expert], x_scale[rows])
        up, gate = first.chunk(2, dim=-1)
        hidden = torch.nn.functional.silu(gate) * up
        results[rows] = _matmul(hidden, gemm2_weights[expert], gemm2_weights_scale[expert])
    # Each share has a place of its own: adding to shared ones is in a different order each time.
    parts = results.new_zeros(weights.numel(), results.shape[1])
    parts[order] = results * shares[:, None]
    return parts.unflatten(0, weights.shape).sum(dim=1).to(torch.bfloat16)


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


def _matmul(x, weights, scale, x_scale=None):
    """x @ weights.T, a block of columns after the other, each multiplied by its scales."""
    rows = torch.arange(len(weights), device=x.device) // BLOCK
    out = x.new_zeros((len(x), len(weights)))
    for block in range(scale.shape[1]):
        columns = slice(block * BLOCK, (block + 1) * BLOCK)
        partial = x[:, columns] @ weights[:, columns].float().T
        partial *= scale[rows, block]
        out += partial if x_scale is None else partial * x_scale[:, block, None]
    return out
