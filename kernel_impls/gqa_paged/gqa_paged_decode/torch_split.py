"""Paged decode of all sequences at once, in chunks of tokens that are summed after."""

import math

import torch

from pytest_fib import implements

TOKENS = 64  # of a chunk


@implements("gqa_paged_decode_*_ps1", description="All chunks in one product, then their sums.")
def run(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    return _decode(q, k_cache, v_cache, kv_indptr, kv_indices, kv_indptr.diff().long(), sm_scale)


@implements("gqa_paged_decode_*_ps64", description="All chunks in one product, then their sums.")
def run_pages(q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale):
    pages = kv_indptr.diff().long()
    lengths = torch.where(pages > 0, (pages - 1) * k_cache.shape[1] + kv_last_page_len, 0)
    return _decode(q, k_cache, v_cache, kv_indptr, kv_indices, lengths, sm_scale)


def _decode(q, k_cache, v_cache, kv_indptr, kv_indices, lengths, sm_scale):
    batch, heads, dim = q.shape
    page_size, kv_heads = k_cache.shape[1:3]
    sequence, at, offsets = _chunks(lengths, len(kv_indices) * page_size // TOKENS + batch)
    real = at < lengths[sequence, None]
    at = torch.where(real, at, 0)  # the sequence's own, whose weight will be 0
    # Where the last sequences are empty, their first page would be the one after the last.
    numbers = torch.cat((kv_indices, kv_indices.new_zeros(1)))
    page = numbers[kv_indptr[sequence, None] + at // page_size]
    gathered = (cache[page, at % page_size].transpose(1, 2) for cache in (k_cache, v_cache))
    keys, values = (
        one.to(torch.float32, memory_format=torch.contiguous_format) for one in gathered
    )  # [chunks, kv heads, tokens, dim]
    query = q.float().view(batch, kv_heads, heads // kv_heads, dim)[sequence]
    logits = torch.matmul(query, keys.transpose(2, 3)).mul_(sm_scale)
    logits.masked_fill_(~real[:, None, None], -math.inf)
    top = torch.segment_reduce(logits.amax(-1), "max", offsets=offsets, axis=0)
    weights = logits.sub_(top[sequence][..., None]).exp_()
    total = torch.segment_reduce(weights.sum(-1), "sum", offsets=offsets, axis=0)
    sums = torch.matmul(weights, values)
    sums = torch.segment_reduce(sums, "sum", offsets=offsets, axis=0)
    output = (sums / total[..., None]).masked_fill_(lengths.eq(0)[:, None, None, None], 0.0)
    lse = (top + total.log()) / math.log(2)
    return output.view_as(q).to(q.dtype), lse.view(batch, heads)


def _chunks(lengths, most):
    """The sequence of each chunk, its tokens' places there, and where a sequence's chunks begin.

    There are as many as there may be at most: who asked how many there are would wait for the
    device. Those that are too many are given to the last sequence, past its end.
    """
    offsets = torch.nn.functional.pad(((lengths + TOKENS - 1) // TOKENS).cumsum(0), (1, 0))
    chunk = torch.arange(most, device=lengths.device)
    sequence = torch.searchsorted(offsets[1:], chunk, right=True).clamp_max_(len(lengths) - 1)
    begin = (chunk - offsets[sequence]) * TOKENS
    return sequence, begin[:, None] + torch.arange(TOKENS, device=lengths.device), offsets
