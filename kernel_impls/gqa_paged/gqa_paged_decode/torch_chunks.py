"""Paged decode in chunks of tokens, of all sequences at once, with an online softmax."""

import math

import torch

from pytest_fib import implements

TOKENS = 128


@implements("gqa_paged_decode_*_ps1", description="Online softmax over chunks of all sequences.")
def run(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    return _decode(q, k_cache, v_cache, kv_indptr, kv_indices, kv_indptr.diff().long(), sm_scale)


@implements("gqa_paged_decode_*_ps64", description="Online softmax over chunks of all sequences.")
def run_pages(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    pages = kv_indptr.diff().long()
    lengths = torch.where(pages > 0, (pages - 1) * k_cache.shape[1] + kv_last_page_len, 0)
    return _decode(q, k_cache, v_cache, kv_indptr, kv_indices, lengths, sm_scale)


def _decode(q, k_cache, v_cache, kv_indptr, kv_indices, lengths, sm_scale):
    batch, heads, dim = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    query = q.float().view(batch, kv_heads, heads // kv_heads, dim)
    top = query.new_full(query.shape[:3], -math.inf)
    total, sums = torch.zeros_like(top), torch.zeros_like(query)
    first_page = kv_indptr[:-1].long()
    for start in range(0, int(lengths.max()), TOKENS):
        some = torch.nonzero(lengths > start).flatten()  # sequences that are that long
        at = torch.arange(start, start + TOKENS, device=q.device)
        at = torch.minimum(at, lengths[some, None] - 1)
        page = kv_indices[first_page[some, None] + at // page_size].long()
        keys, values = (cache[page, at % page_size].float() for cache in (k_cache, v_cache))
        logits = torch.einsum("bhgd,bthd->bhgt", query[some], keys) * sm_scale
        beyond = torch.arange(TOKENS, device=q.device) >= lengths[some, None] - start
        logits.masked_fill_(beyond[:, None, None], -math.inf)
        larger = torch.maximum(top[some], logits.amax(-1))
        weights = torch.exp(logits - larger[..., None])
        kept = torch.exp(top[some] - larger)
        total[some] = total[some] * kept + weights.sum(-1)
        added = torch.einsum("bhgt,bthd->bhgd", weights, values)
        sums[some] = sums[some] * kept[..., None] + added
        top[some] = larger
    output = torch.where(total[..., None] > 0, sums / total[..., None], 0.0)
    lse = (top + total.log()) / math.log(2)
    return output.view_as(q).to(q.dtype), lse.view(batch, heads)
