"""Ragged prefill in tiles of queries, all at once, with an online softmax over chunks of keys."""

import math

import torch

from pytest_fib import implements

QUERIES, TOKENS = 64, 64


@implements("gqa_ragged_prefill_*", description="Online softmax over chunks, of all query tiles.")
def run(q, k, v, qo_indptr, kv_indptr, sm_scale):
    heads = q.shape[1]
    kv_heads = k.shape[1]
    q_len, kv_len = qo_indptr.diff().long(), kv_indptr.diff().long()
    sequence, within = _tiles(q_len)
    offset = within[:, None] + torch.arange(QUERIES, device=q.device)  # of a query in its sequence
    real = offset < q_len[sequence, None]
    sees = torch.where(real, offset + (kv_len - q_len)[sequence, None] + 1, 0)  # keys of a query
    rows = torch.where(real, qo_indptr[:-1].long()[sequence, None] + offset, 0)
    query = q[rows].float().unflatten(2, (kv_heads, heads // kv_heads))
    top = query.new_full(query.shape[:4], -math.inf)
    total, sums = torch.zeros_like(top), torch.zeros_like(query)
    reach, first = sees.amax(1), kv_indptr[:-1].long()[sequence]
    for start in range(0, int(reach.max()), TOKENS):
        some = torch.nonzero(reach > start).flatten()  # tiles that see that far
        at = torch.arange(start, start + TOKENS, device=q.device)
        token = first[some, None] + torch.minimum(at, reach[some, None] - 1)
        logits = torch.einsum("nqhgd,nthd->nqhgt", query[some], k[token].float()) * sm_scale
        unseen = at >= sees[some, :, None]
        logits.masked_fill_(unseen[:, :, None, None], -math.inf)
        larger = torch.maximum(top[some], logits.amax(-1))
        base = torch.where(larger == -math.inf, 0.0, larger)  # a query may see nothing so far
        weights = torch.exp(logits - base[..., None])
        kept = torch.exp(top[some] - base)
        total[some] = total[some] * kept + weights.sum(-1)
        added = torch.einsum("nqhgt,nthd->nqhgd", weights, v[token].float())
        sums[some] = sums[some] * kept[..., None] + added
        top[some] = larger
    output = torch.empty_like(q, memory_format=torch.contiguous_format)
    output[rows[real]] = (sums / total[..., None])[real].flatten(1, 2).to(q.dtype)
    lse = q.new_empty(q.shape[:2], dtype=torch.float32)
    lse[rows[real]] = ((top + total.log()) / math.log(2))[real].flatten(1)
    return output, lse


def _tiles(lengths):
    """The sequence of each tile of queries, and where in it the tile begins."""
    tiles = -(-lengths // QUERIES)
    sequence = torch.repeat_interleave(torch.arange(len(lengths), device=lengths.device), tiles)
    number = (
        torch.arange(len(sequence), device=lengths.device) - (tiles.cumsum(0) - tiles)[sequence]
    )
    return sequence, number * QUERIES
