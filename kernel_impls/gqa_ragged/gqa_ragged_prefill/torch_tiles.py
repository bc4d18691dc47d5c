"""Ragged prefill in batches of tiles of queries, each with all keys that it sees."""

import math

import torch

from pytest_fib import implements

QUERIES = 64  # of a tile, at most
ELEMENTS = 1 << 26  # of a batch's logits, and of its keys and values, at most


@implements("gqa_ragged_prefill_*", description="Tiles of queries in batches of like lengths.")
def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    # Of the mean length, so that at most half of all queries are padding.
    queries = min(QUERIES, -(-len(q) // (len(qo_indptr) - 1)))
    sees, sequence, offset = _tiles(qo_indptr.diff().long(), kv_indptr.diff().long(), queries)
    row = torch.where(sees > 0, qo_indptr[sequence, None] + offset, len(q))
    output = q.new_empty((len(q) + 1, *q.shape[1:]))  # the last row is for the padding of tiles
    lse = q.new_empty((len(q) + 1, q.shape[1]), dtype=torch.float32)
    reach = sees.amax(1)
    width = max(queries * q.shape[1], 2 * k[0].numel())  # of a key, in elements
    for some, longest in _batches(reach.tolist(), width):
        at = torch.arange(longest, device=q.device)
        at = torch.minimum(at, reach[some, None] - 1)
        token = kv_indptr[sequence[some], None] + at
        query = q[row[some].clamp_max(len(q) - 1)].float() * sm_scale
        attended, logarithm = _attend(query, k[token], v[token], sees[some])
        output[row[some]], lse[row[some]] = attended.to(q.dtype), logarithm
    return output[:-1], lse[:-1]


def _tiles(q_len, kv_len, queries):
    """Tiles of queries, those that see most first.

    How many keys each query sees, [tiles, queries], where 0 is padding; each tile's sequence; and
    each query's place in it, [tiles, queries].
    """
    tiles = (q_len + queries - 1) // queries
    sequence = torch.arange(len(tiles), device=q_len.device).repeat_interleave(tiles)
    number = torch.arange(len(sequence), device=q_len.device) - (tiles.cumsum(0) - tiles)[sequence]
    offset = number[:, None] * queries + torch.arange(queries, device=q_len.device)
    real = offset < q_len[sequence, None]
    sees = torch.where(real, offset + (kv_len - q_len)[sequence, None] + 1, 0)
    order = sees.amax(1).argsort(descending=True)
    return sees[order], sequence[order], offset[order]


def _batches(lengths, width):
    """Slices of tiles that fit, of which none is padded to over twice its length; the longest's."""
    start = 0
    while start < len(lengths):
        alike = sum(2 * length >= lengths[start] for length in lengths[start:])
        size = min(alike, max(1, ELEMENTS // (width * lengths[start])))
        yield slice(start, start + size), lengths[start]
        start += size


def _attend(query, keys, values, sees):
    """Attention of [tiles, queries, heads, dim] to [tiles, keys, kv heads, dim], and its lse."""
    keys, values = (
        one.transpose(1, 2).to(torch.float32, memory_format=torch.contiguous_format)
        for one in (keys, values)
    )  # [tiles, kv heads, keys, dim]
    folded = query.unflatten(2, (keys.shape[1], -1)).permute(0, 2, 3, 1, 4)
    logits = torch.matmul(folded.flatten(2, 3), keys.transpose(2, 3))
    logits = logits.unflatten(2, (-1, sees.shape[1]))  # [tiles, kv heads, group, queries, keys]
    at = torch.arange(keys.shape[2], device=keys.device)
    logits.masked_fill_((at >= sees[..., None])[:, None, None], -math.inf)
    top = logits.amax(-1, keepdim=True)
    weights = logits.sub_(top).exp_()
    total = weights.sum(-1, keepdim=True)
    sums = torch.matmul(weights.flatten(2, 3), values).view_as(folded) / total
    lse = (top + total.log()).squeeze(-1) / math.log(2)
    return sums.permute(0, 3, 1, 2, 4).flatten(2, 3), lse.permute(0, 3, 1, 2).flatten(2)
