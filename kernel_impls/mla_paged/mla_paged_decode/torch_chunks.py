"""Latent decode in chunks of tokens, of all sequences at once, with an online softmax."""

import math

import torch

from pytest_fib import implements

TOKENS = 128


@implements("mla_paged_decode_*_ps1", description="Online softmax over chunks of all sequences.")
def run(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    lengths = kv_indptr.diff().long()
    return _decode(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, lengths, sm_scale)


@implements("mla_paged_decode_*_ps64", description="Online softmax over chunks of all sequences.")
def run_pages(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    pages = kv_indptr.diff().long()
    lengths = torch.where(pages > 0, (pages - 1) * ckv_cache.shape[1] + kv_last_page_len, 0)
    return _decode(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, lengths, sm_scale)


def _decode(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, lengths, sm_scale):
    page_size = ckv_cache.shape[1]
    query = torch.cat((q_nope, q_pe), dim=-1).float()  # one product for both parts of a logit
    top = query.new_full(query.shape[:2], -math.inf)
    total, sums = torch.zeros_like(top), torch.zeros_like(q_nope, dtype=torch.float32)
    first_page = kv_indptr[:-1].long()
    for start in range(0, int(lengths.max()), TOKENS):
        some = torch.nonzero(lengths > start).flatten()  # sequences that are that long
        at = torch.arange(start, start + TOKENS, device=query.device)
        at = torch.minimum(at, lengths[some, None] - 1)
        page = kv_indices[first_page[some, None] + at // page_size].long()
        latent = ckv_cache[page, at % page_size].float()
        keys = torch.cat((latent, kpe_cache[page, at % page_size].float()), dim=-1)
        logits = torch.bmm(query[some], keys.transpose(1, 2)) * sm_scale
        beyond = torch.arange(TOKENS, device=query.device) >= lengths[some, None] - start
        logits.masked_fill_(beyond[:, None], -math.inf)
        larger = torch.maximum(top[some], logits.amax(-1))
        weights = torch.exp(logits - larger[..., None])
        kept = torch.exp(top[some] - larger)
        total[some] = total[some] * kept + weights.sum(-1)
        sums[some] = torch.baddbmm(sums[some] * kept[..., None], weights, latent)
        top[some] = larger
    output = torch.where(total[..., None] > 0, sums / total[..., None], 0.0)
    return output.to(q_nope.dtype), (top + total.log()) / math.log(2)
