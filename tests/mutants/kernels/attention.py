"""Attention over pages and over ragged sequences, wrong."""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from _wrong import caught, narrow, put, tf32

from pytest_fib import implements

LN2 = math.log(2)


def grouped_heads(x, heads):
    """Each KV head for all the query heads of its group, which are neighbours."""
    return x.repeat_interleave(heads // x.shape[1], dim=1)


def causal(queries, tokens, device):
    sees = torch.arange(queries, device=device) + tokens - queries
    return torch.arange(tokens, device=device) > sees[:, None]


@dataclass(frozen=True)
class How:
    """The steps of attention, each of which a mutant may take in another way."""

    heads: Any = grouped_heads
    masked: Any = causal
    logits: Any = lambda q, k: torch.einsum("qhd,thd->hqt", q, k)
    exp: Any = lambda s: (s - s.amax(-1, keepdim=True)).exp()
    weights: Any = lambda w: w / w.sum(-1, keepdim=True)
    lse: Any = lambda s: torch.logsumexp(s, -1) / LN2
    scale: Any = lambda scale, d: scale


RIGHT = How()


def attend(q, k, v, scale, how=RIGHT):
    """q [n, heads, d], k and v [tokens, kv heads, d] -> [n, heads, d], lse [n, heads]."""
    heads = q.shape[1]
    keys, values = how.heads(k.float(), heads), how.heads(v.float(), heads)
    logits = how.logits(q.float(), keys) * how.scale(scale, q.shape[-1])
    if how.masked is not None:
        logits = logits.masked_fill(how.masked(len(q), len(k), q.device), -math.inf)
    weights = how.weights(how.exp(logits))
    return torch.einsum("hqt,thd->qhd", weights, values), how.lse(logits).T


def each(q, q_bounds, tokens_of, scale, how=RIGHT):
    output = torch.zeros(q.shape, dtype=q.dtype, device=q.device)
    lse = torch.full(q.shape[:2], -math.inf, device=q.device)
    for i, (start, end) in enumerate(pairwise(q_bounds)):
        keys, values = tokens_of(i)
        if end > start and len(keys):
            out, lse[start:end] = attend(q[start:end], keys, values, scale, how)
            output[start:end] = out.to(q.dtype)
    return output, lse


def decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how=RIGHT, last=None):
    """``last`` are the lengths of last pages; without, all of them are full."""
    bounds = kv_indptr.tolist()

    def tokens_of(i):
        pages = kv_indices[bounds[i] : bounds[i + 1]].long()
        keys, values = (cache[pages].flatten(0, 1) for cache in (k_cache, v_cache))
        empty = len(keys) == 0 or last is None
        tokens = len(keys) if empty else len(keys) - k_cache.shape[1] + int(last[i])
        return keys[:tokens], values[:tokens]

    return each(q, list(range(len(q) + 1)), tokens_of, sm_scale, how)


def prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, how=RIGHT):
    bounds = kv_indptr.tolist()

    def tokens_of(i):
        return k[bounds[i] : bounds[i + 1]], v[bounds[i] : bounds[i + 1]]

    return each(q, qo_indptr.tolist(), tokens_of, sm_scale, how)


def paged_prefill(
    q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, last, sm_scale, how=RIGHT
):  # fmt: skip
    bounds = kv_indptr.tolist()

    def tokens_of(i):
        pages = kv_indices[bounds[i] : bounds[i + 1]].long()
        keys, values = (cache[pages].flatten(0, 1) for cache in (k_cache, v_cache))
        tokens = len(keys) - k_cache.shape[1] + int(last[i]) if len(keys) else 0
        return keys[:tokens], values[:tokens]

    return each(q, qo_indptr.tolist(), tokens_of, sm_scale, how)


def mla(q_nope, q_pe, ckv, kpe, indptr, indices, scale, how=RIGHT, pe=True, last=None):
    q = torch.cat([q_nope, q_pe if pe else 0 * q_pe], -1).float()
    bounds = indptr.tolist()
    output = torch.zeros_like(q_nope)
    lse = torch.full(q.shape[:2], -math.inf, device=q.device)
    for i in range(len(q)):
        pages = indices[bounds[i] : bounds[i + 1]].long()
        if len(pages) == 0:
            continue
        tokens = len(pages) * ckv.shape[1]
        tokens += 0 if last is None else int(last[i]) - ckv.shape[1]
        values = ckv[pages].flatten(0, 1)[:tokens, None]
        keys = torch.cat([values, kpe[pages].flatten(0, 1)[:tokens, None]], -1)
        out, lse[i] = attend(q[i : i + 1], keys, values, scale, how)
        output[i] = out[0].to(q_nope.dtype)
    return output, lse


def modulo_heads(x, heads):
    return x.repeat(1, heads // x.shape[1], 1)


def strictly_causal(queries, tokens, device):
    """The token itself is not seen, unless it is the first."""
    masked = causal(queries, tokens, device)
    sees = torch.arange(queries, device=device) + tokens - queries
    return masked | ((torch.arange(tokens, device=device) == sees[:, None]) & (sees > 0)[:, None])


def one_too_many(queries, tokens, device):
    return causal(queries, tokens, device).roll(1, -1) & causal(queries, tokens, device)


def top_left(queries, tokens, device):
    """As if the queries were the first of the sequence, not the last."""
    return torch.arange(tokens, device=device) > torch.arange(queries, device=device)[:, None]


def last_not_seen(queries, tokens, device):
    masked = torch.zeros(queries, tokens, dtype=torch.bool, device=device)
    masked[:, max(tokens - 1, 1) :] = True
    return masked


# ---- decode, a token in a page ----


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("one factor")
def natural_lse(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    return output, lse * LN2


@implements("gqa_paged_decode_h32_kv4_d128_ps1")
@caught()
def lse_without_log(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, lse=lambda s: s.amax(-1) / LN2)
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("misread input")
def heads_by_modulo(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, heads=modulo_heads)
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("some heads")
def first_kv_head_for_all(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, heads=lambda x, heads: x[:, :1].expand(-1, heads, -1))
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("infinity", "nan")
def exp_without_maximum(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, exp=torch.exp)
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("factor per row")
def not_normalised(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, weights=lambda w: w)
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("misread input")
def scaled_twice(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale**2)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("lower precision")
def logits_in_bfloat16(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, logits=lambda q, k: narrow(RIGHT.logits(q, k), torch.bfloat16))
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("lower precision")
def weights_in_fp8(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, weights=lambda w: narrow(RIGHT.weights(w), torch.float8_e4m3fn))
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught()
def last_token_not_seen(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, masked=last_not_seen)
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("lost special value", "padding region")
def lse_of_nothing_is_zero(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    return output, lse.masked_fill(lse.isinf(), 0.0)


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("nan", "padding region")
def nothing_divided_by_nothing(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    return output.masked_fill(lse.isinf()[..., None], math.nan), lse


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("zeros", "one head")
def one_head_zero(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    return put(output, (slice(None), 7), 0.0), lse


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("one factor", "one head")
def one_head_scaled(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    return put(output, (slice(None), 7), lambda x: 1.03 * x), lse


@implements("gqa_paged_decode_h32_kv8_d128_ps1")
@caught("misread input")
def page_table_not_read(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    pages = torch.arange(len(kv_indices), device=q.device)
    return decode(q, k_cache, v_cache, kv_indptr, pages, sm_scale)


@implements("gqa_paged_decode_h32_kv8_d128_ps1", calling="destination")
@caught("unwritten")
def lse_unwritten(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, output, lse):
    output.copy_(decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)[0])


@implements("gqa_paged_decode_h32_kv8_d128_ps1", calling="destination")
@caught("unwritten")
def nothing_for_empty_sequences(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, output, lse):
    right = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    filled = kv_indptr.diff() > 0
    output[filled], lse[filled] = right[0][filled], right[1][filled]


# ---- decode, 64 tokens in a page ----


@implements("gqa_paged_decode_h32_kv4_d128_ps64")
@caught("misread input")
def last_page_taken_as_full(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)


@implements("gqa_paged_decode_h32_kv4_d128_ps64")
@caught("misread input")
def first_last_page_len_for_all(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    last = kv_last_page_len[:1].expand_as(kv_last_page_len)
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, last=last)


@implements("gqa_paged_decode_h32_kv8_d128_ps64")
@caught("misread input")
def keys_for_values(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    return decode(q, k_cache, k_cache, kv_indptr, kv_indices, sm_scale, last=kv_last_page_len)


@implements("gqa_paged_decode_h32_kv8_d128_ps64")
@caught("permuted", "shifted", "misread input")
def heads_rotated(
    q, k_cache, v_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    output, lse = decode(
        q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, last=kv_last_page_len
    )
    return output.roll(4, 1), lse


# ---- prefill ----


@implements("gqa_ragged_prefill_causal_h32_kv8_d128")
@caught()
def not_causal(q, k, v, qo_indptr, kv_indptr, sm_scale):
    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, replace(RIGHT, masked=None))


@implements("gqa_ragged_prefill_causal_h32_kv8_d128")
@caught()
def token_itself_masked(q, k, v, qo_indptr, kv_indptr, sm_scale):
    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, replace(RIGHT, masked=strictly_causal))


@implements("gqa_ragged_prefill_causal_h32_kv8_d128")
@caught()
def sees_one_too_many(q, k, v, qo_indptr, kv_indptr, sm_scale):
    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, replace(RIGHT, masked=one_too_many))


@implements("gqa_ragged_prefill_causal_h32_kv4_d128")
@caught()
def mask_at_the_top_left(q, k, v, qo_indptr, kv_indptr, sm_scale):
    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, replace(RIGHT, masked=top_left))


@implements("gqa_ragged_prefill_causal_h32_kv4_d128")
@caught()
def rounded_scale(q, k, v, qo_indptr, kv_indptr, sm_scale):
    return prefill(q, k, v, qo_indptr, kv_indptr, 0.09)


@implements("gqa_ragged_prefill_causal_h32_kv8_d128")
@caught("zeros", "last tile", "whole rows")
def last_query_dropped(q, k, v, qo_indptr, kv_indptr, sm_scale):
    output, lse = prefill(q, k, v, qo_indptr, kv_indptr, sm_scale)
    return put(output, -1, 0.0), lse


@implements("gqa_ragged_prefill_causal_h32_kv8_d128")
@caught("lower precision")
def prefill_in_tf32(q, k, v, qo_indptr, kv_indptr, sm_scale):
    """Which shows in the lse alone, that is float32."""
    how = replace(RIGHT, lse=lambda s: tf32(RIGHT.lse(s)))
    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, how)


@implements("gqa_ragged_prefill_causal_h32_kv8_d128")
@caught()
def first_sequence_only(q, k, v, qo_indptr, kv_indptr, sm_scale):
    """Every sequence reads the keys of the first."""
    lengths = kv_indptr.diff()
    first = torch.cat([k[: int(n)] for n in lengths]), torch.cat([v[: int(n)] for n in lengths])
    return prefill(q, *first, qo_indptr, kv_indptr, sm_scale)


@implements("gqa_paged_prefill_causal_h32_kv4_d128_ps64")
@caught("misread input")
def prefill_of_whole_pages(
    q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    full = torch.full_like(kv_last_page_len, k_cache.shape[1])
    return paged_prefill(q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, full, sm_scale)


@implements("gqa_paged_prefill_causal_h32_kv4_d128_ps64")
@caught("one factor")
def prefill_wrong_scale(
    q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    output, lse = paged_prefill(
        q, k_cache, v_cache, qo_indptr, kv_indptr, kv_indices, kv_last_page_len, sm_scale
    )
    return (output.float() * 1.02).bfloat16(), lse


# ---- latent attention ----


@implements("mla_paged_decode_h16_ckv512_kpe64_ps1")
@caught("misread input")
def positions_ignored(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    return mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, pe=False)


@implements("mla_paged_decode_h16_ckv512_kpe64_ps1")
@caught()
def scale_of_absorbed_dims(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    return mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, 576**-0.5)


@implements("mla_paged_decode_h16_ckv512_kpe64_ps1")
@caught("one factor")
def mla_natural_lse(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale)
    return output, lse * LN2


@implements("mla_paged_decode_h16_ckv512_kpe64_ps1")
@caught("zeros", "last tile")
def latent_tail_zero(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale)
    return put(output, (..., slice(448, None)), 0.0), lse


@implements("mla_paged_decode_h16_ckv512_kpe64_ps1")
@caught("one offset")
def lse_off_by_one_bit(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    output, lse = mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale)
    return output, lse + 1


@implements("mla_paged_decode_h16_ckv512_kpe64_ps64")
@caught("misread input")
def mla_ignores_the_last_page(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    return mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale)


@implements("mla_paged_decode_h16_ckv512_kpe64_ps64")
@caught("lower precision")
def mla_logits_in_bfloat16(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, kv_last_page_len, sm_scale
):  # fmt: skip
    how = replace(RIGHT, logits=lambda q, k: narrow(RIGHT.logits(q, k), torch.bfloat16))
    return mla(
        q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, how,
        last=kv_last_page_len,
    )  # fmt: skip


@implements("mla_paged_decode_h16_ckv512_kpe64_ps1")
@caught("misread input")
def scale_of_all_dims(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale):
    dims = ckv_cache.shape[-1] + kpe_cache.shape[-1]
    return mla(q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, dims**-0.5)


@implements("gqa_paged_decode_h32_kv4_d128_ps1")
@caught()
def logits_capped(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    how = replace(RIGHT, logits=lambda q, k: 500 * torch.tanh(RIGHT.logits(q, k) / 500))
    return decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, how)


@implements("gqa_paged_decode_h32_kv4_d128_ps1")
@caught("one factor", "factor per row")
def one_added_to_the_sum(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale):
    """As a sink that every token sees, but the lse does not tell of."""
    output, lse = decode(q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale)
    return (output * torch.sigmoid(lse * LN2)[..., None]).to(q.dtype), lse


@implements("gqa_ragged_prefill_causal_h32_kv4_d128")
@caught()
def masked_by_a_number(q, k, v, qo_indptr, kv_indptr, sm_scale):
    """-30 is not small enough where logits are large and negative.

    Where one row is so, its lse is the same for all heads; where several are, they differ.
    """

    def masked(q, k):
        unseen = causal(q.shape[0], k.shape[0], q.device)
        return RIGHT.logits(q, k).masked_fill(unseen, -30 / sm_scale)

    how = replace(RIGHT, logits=masked, masked=None)
    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, how)


@implements("gqa_ragged_prefill_causal_h32_kv4_d128")
@caught()
def one_too_many_after_a_prefix(q, k, v, qo_indptr, kv_indptr, sm_scale):
    """The mask is off by one only where there are more keys than queries."""

    def masked(queries, tokens, device):
        return (one_too_many if tokens > queries else causal)(queries, tokens, device)

    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, replace(RIGHT, masked=masked))


@implements("gqa_ragged_prefill_causal_h32_kv4_d128")
@caught()
def window_of_64(q, k, v, qo_indptr, kv_indptr, sm_scale):
    def masked(queries, tokens, device):
        at = torch.arange(tokens, device=device)
        last = torch.arange(queries, device=device)[:, None] + tokens - queries
        return (at > last) | (at <= last - 64)

    return prefill(q, k, v, qo_indptr, kv_indptr, sm_scale, replace(RIGHT, masked=masked))
