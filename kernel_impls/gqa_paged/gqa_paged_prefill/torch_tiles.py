"""Paged prefill in tiles of queries, all at once, with an online softmax over chunks of keys."""

import math

import torch

from pytest_fib import implements

QUERIES, TOKENS = 64, 64


@implements("gqa_paged_prefill_*_ps1", description="Online softmax over chunks, of all tiles.")
def run(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, sm_scale):
    pages = (kv_indptr, kv_indices, kv_indptr.diff().long())
    return _prefill(q, k_cache, v_cache, qo_indptr, *pages, sm_scale)


@implements("gqa_paged_prefill_*_ps64", description="Online softmax over chunks, of all tiles.")
def run_pages(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    pages = kv_indptr.diff().long()
    in_last = kv_last_page_len[: len(pages)]  # datasets have longer ones
    lengths = torch.where(pages > 0, (pages - 1) * k_cache.shape[1] + in_last, 0)
    return _prefill(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, lengths, sm_scale)


def _prefill(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_len, sm_scale):
    heads = q.shape[1]
    page_size, kv_heads = k_cache.shape[1:3]
    q_len = qo_indptr.diff().long()
    sequence, within = _tiles(q_len)
    offset = within[:, None] + torch.arange(QUERIES, device=q.device)  # of a query in its sequence
    real = offset < q_len[sequence, None]
    sees = torch.where(real, offset + (kv_len - q_len)[sequence, None] + 1, 0)  # keys of a query
    rows = torch.where(real, qo_indptr[:-1].long()[sequence, None] + offset, 0)
    query = q[rows].float().unflatten(2, (kv_heads, heads // kv_heads))
    top = query.new_full(query.shape[:4], -math.inf)
    total, sums = torch.zeros_like(top), torch.zeros_like(query)
    reach, first_page = sees.amax(1), kv_indptr[:-1].long()[sequence]
    for start in range(0, int(reach.max()), TOKENS):
        some = torch.nonzero(reach > start).flatten()  # tiles that see that far
        at = torch.arange(start, start + TOKENS, device=q.device)
        token = torch.minimum(at, reach[some, None] - 1)
        page = kv_indices[first_page[some, None] + token // page_size].long()
        keys, values = (cache[page, token % page_size].float() for cache in (k_cache, v_cache))
        logits = torch.einsum("nqhgd,nthd->nqhgt", query[some], keys) * sm_scale
        unseen = at >= sees[some, :, None]
        logits.masked_fill_(unseen[:, :, None, None], -math.inf)
        larger = torch.maximum(top[some], logits.amax(-1))
        base = torch.where(larger == -math.inf, 0.0, larger)  # a query may see nothing so far
        weights = torch.exp(logits - base[..., None])
        kept = torch.exp(top[some] - base)
        total[some] = total[some] * kept + weights.sum(-1)
        sums[some] = sums[some] * kept[..., None] + torch.einsum(
            "nqhgt,nthd->nqhgd", weights, values
        )
        top[some] = larger
    output, lse = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
    output[rows[real]] = (sums / total[..., None])[real].flatten(1, 2).to(q.dtype)
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
