"""What engines for language models compute around their products, and a few others."""

import functools
import itertools
import math
import operator

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("stochastic_round_bf16")
def honest_sr_int64(x, bits):
    raw = x.view(torch.int32).long() + (bits.long() & 0xFFFF)
    return ((raw >> 16) & 0xFFFF).to(torch.int32).to(torch.int16).view(torch.bfloat16)


@implements("stochastic_round_bf16")
def honest_sr_inplace_ops(x, bits):
    r = x.clone().view(torch.int32)
    r += bits.bitwise_and(65535)
    r &= ~65535
    return r.view(torch.float32).bfloat16()


@implements("stochastic_round_bf16")
def wrong_rounding_sr_nearest(x, bits):
    # rounds to nearest
    return x.bfloat16()


@implements("stochastic_round_bf16")
def wrong_formula_sr_high_bits(x, bits):
    # takes the high 16 bits of the random number
    return ((x.view(torch.int32) + ((bits >> 16) & 0xFFFF)) & -65536).view(torch.float32).bfloat16()


@implements("stochastic_round_bf16")
def wrong_sign_sr_signed_bits(x, bits):
    # random part sign-extended
    b = (bits << 16) >> 16
    return ((x.view(torch.int32) + b) & -65536).view(torch.float32).bfloat16()


@implements("stochastic_round_bf16")
def wrong_rounding_sr_double_round(x, bits):
    # rounds to nearest after adding
    return (x.view(torch.int32) + (bits & 0xFFFF)).view(torch.float32).bfloat16()


@implements("stochastic_round_bf16")
def wrong_offbyone_sr_15_bits(x, bits):
    # only 15 random bits
    return ((x.view(torch.int32) + (bits & 0x7FFF)) & -65536).view(torch.float32).bfloat16()


@implements("stochastic_round_bf16")
def wrong_boundary_sr_tail(x, bits):
    # last partial vector of 8 rounded to nearest
    y = ((x.view(torch.int32) + (bits & 0xFFFF)) & -65536).view(torch.float32).bfloat16()
    n = len(x) // 8 * 8
    y[n:] = x[n:].bfloat16()
    return y


def ssd_ssd(
    x,
    dt,
    dt_bias,
    A_log,
    B,
    C,
    D,
    z,
    sp=F.softplus,
    bias=True,
    rep=True,
    skip=True,
    gate=F.silu,
    cast=lambda s: s,
    w=torch.float32,
):
    step = sp(dt.to(w) + (dt_bias.to(w) if bias else 0))
    a = -torch.exp(A_log.to(w))
    b, c = (t.to(w).repeat_interleave(2, 1) if rep else t.to(w).repeat(1, 2, 1) for t in (B, C))
    s = torch.zeros(4, 8, 16, dtype=w)
    y = torch.empty(x.shape, dtype=w)
    xf = x.to(w)
    for t in range(len(x)):
        s = cast(
            s * torch.exp(a * step[t])[:, None, None]
            + (step[t][:, None] * xf[t])[..., None] * b[t][:, None]
        )
        y[t] = torch.einsum("hps,hs->hp", s, c[t]) + (D[:, None].to(w) * xf[t] if skip else 0)
    return (y * gate(z.to(w))).to(x.dtype), s.float()


@implements("ssd_scan")
def honest_ssd_fp32(x, dt, dt_bias, A_log, B, C, D, z):
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z)


@implements("ssd_scan")
def honest_ssd_quadratic(x, dt, dt_bias, A_log, B, C, D, z):
    n = len(x)
    step = F.softplus(dt.float() + dt_bias)
    cum = torch.cumsum((-torch.exp(A_log) * step).double(), 0)
    L = (
        torch.exp(cum[:, None] - cum[None])
        .masked_fill(~torch.ones(n, n).tril().bool()[..., None], 0.0)
        .float()
    )
    b, c = B.float().repeat_interleave(2, 1), C.float().repeat_interleave(2, 1)
    xs = x.float() * step[..., None]
    y = torch.einsum("thn,shn,tsh,shp->thp", c, b, L, xs) + D[:, None] * x.float()
    s = torch.einsum("sh,shp,shn->hpn", torch.exp(cum[-1] - cum).float(), xs, b)
    return (y * F.silu(z.float())).bfloat16(), s


@implements("ssd_scan")
def honest_ssd_softplus_of_sums(x, dt, dt_bias, A_log, B, C, D, z):
    """As Mamba's kernels do: what is above 20 stays as it is."""

    def softplus(v):
        return torch.where(v <= 20, torch.log(torch.exp(v) + 1), v)

    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, sp=softplus)


@implements("ssd_scan")
def wrong_axis_ssd_groups_tiled(x, dt, dt_bias, A_log, B, C, D, z):
    # head h uses group h % 2
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, rep=False)


@implements("ssd_scan")
def wrong_formula_ssd_no_dt_bias(x, dt, dt_bias, A_log, B, C, D, z):
    # dt_bias ignored
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, bias=False)


@implements("ssd_scan")
def wrong_accumulation_ssd_softplus_threshold(x, dt, dt_bias, A_log, B, C, D, z):
    # softplus by log(1+exp): overflows for dt > 88
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, sp=lambda v: torch.log(1 + torch.exp(v)))


@implements("ssd_scan")
def wrong_formula_ssd_no_D(x, dt, dt_bias, A_log, B, C, D, z):
    # skip connection forgotten
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, skip=False)


@implements("ssd_scan")
def wrong_formula_ssd_sigmoid_gate(x, dt, dt_bias, A_log, B, C, D, z):
    # sigmoid gate instead of SiLU
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, gate=torch.sigmoid)


@implements("ssd_scan")
def wrong_accumulation_ssd_bf16_state(x, dt, dt_bias, A_log, B, C, D, z):
    # state in bf16
    return ssd_ssd(x, dt, dt_bias, A_log, B, C, D, z, cast=lambda s: s.bfloat16().float())


@implements("ssd_scan")
def wrong_boundary_ssd_chunk_256(x, dt, dt_bias, A_log, B, C, D, z):
    # state lost at chunk ends of 256
    o = [
        ssd_ssd(
            x[i : i + 256],
            dt[i : i + 256],
            dt_bias,
            A_log,
            B[i : i + 256],
            C[i : i + 256],
            D,
            z[i : i + 256],
        )
        for i in range(0, len(x), 256)
    ]
    return torch.cat([a for a, _ in o]), o[-1][1]


@implements("run_length_decode")
def honest_runs_search(values, lengths):
    e = lengths.cumsum(0)
    return values[torch.searchsorted(e, torch.arange(int(e[-1])), right=True)]


@implements("run_length_decode")
def honest_runs_loop(values, lengths):
    return torch.tensor(
        functools.reduce(
            operator.iadd,
            ([v] * n for v, n in zip(values.tolist(), lengths.tolist(), strict=False)),
            [],
        ),
        dtype=torch.int16,
    )


@implements("run_length_decode")
def wrong_offbyone_runs_left(values, lengths):
    # searchsorted on the wrong side
    e = lengths.cumsum(0)
    return values[torch.searchsorted(e, torch.arange(int(e[-1])))]


@implements("run_length_decode")
def wrong_special_runs_zero_runs(values, lengths):
    # runs of length 0 counted as heads
    n = int(lengths.sum())
    h = torch.zeros(n + 1, dtype=torch.int64)
    s = (lengths.cumsum(0) - lengths).long()
    h[s] = 1
    return values[(h.cumsum(0)[:n] - 1)]


@implements("run_length_decode")
def wrong_threshold_runs_max_32(values, lengths):
    # a warp writes at most 32 elements of a run
    n = lengths.long()
    r = torch.repeat_interleave(torch.arange(len(n)), n)
    s = (n.cumsum(0) - n)[r]
    return torch.where(torch.arange(len(r)) - s < 32, values[r], 0).to(torch.int16)


@implements("run_length_decode")
def wrong_overflow_runs_uint8(values, lengths):
    # values carried in 8 bits
    return torch.repeat_interleave(values.to(torch.int8).to(torch.int16), lengths.long())


def kv8_q8(k, div=127.0, rnd=torch.round, eps=1e-30):
    x = k.float()
    s = x.abs().amax(-1) / div
    q = rnd(x / s.clamp(min=eps)[..., None]).clamp(-128, 127).to(torch.int8)
    return q, s


def kv8_put(cache, scales, slots, q, s, keep):
    cache, scales = cache.clone(), scales.clone()
    for t in keep:
        cache[slots[t]] = q[t]
        scales[slots[t]] = s[t]
    return cache, scales


def kv8_live(m):
    return [t for t in range(len(m)) if m[t] >= 0]


@implements("kv_append_int8")
def honest_kv8_loop(k, cache, scales, slot_mapping):
    return kv8_put(cache, scales, slot_mapping, *kv8_q8(k), kv8_live(slot_mapping))


@implements("kv_append_int8")
def honest_kv8_index_copy(k, cache, scales, slot_mapping):
    q, s = kv8_q8(k)
    keep = slot_mapping >= 0
    return cache.index_copy(0, slot_mapping[keep], q[keep]), scales.index_copy(
        0, slot_mapping[keep], s[keep]
    )


@implements("kv_append_int8")
def wrong_sentinel_kv8_minus_one(k, cache, scales, slot_mapping):
    # padding -1 wraps and writes the last slot
    return kv8_put(cache, scales, slot_mapping, *kv8_q8(k), range(len(k)))


@implements("kv_append_int8")
def wrong_rounding_kv8_trunc(k, cache, scales, slot_mapping):
    # truncates instead of rounding
    return kv8_put(cache, scales, slot_mapping, *kv8_q8(k, rnd=torch.trunc), kv8_live(slot_mapping))


@implements("kv_append_int8")
def wrong_scale_kv8_128(k, cache, scales, slot_mapping):
    # divides by 128: +max saturates
    return kv8_put(cache, scales, slot_mapping, *kv8_q8(k, 128.0), kv8_live(slot_mapping))


@implements("kv_append_int8")
def wrong_accumulation_kv8_half_scale(k, cache, scales, slot_mapping):
    # scale rounded to fp16
    q, s = kv8_q8(k)
    s = s.half().float()
    q = (
        torch.where(s[..., None] > 0, (k.float() / s.clamp(min=1e-30)[..., None]), 0.0)
        .round()
        .clamp(-128, 127)
        .to(torch.int8)
    )
    return kv8_put(cache, scales, slot_mapping, q, s, kv8_live(slot_mapping))


@implements("kv_append_int8")
def wrong_broadcast_kv8_token_scale(k, cache, scales, slot_mapping):
    # one scale for all heads of a token
    x = k.float()
    s = (x.abs().amax((-1, -2)) / 127)[:, None].expand(-1, 2)
    q = (x / s.clamp(min=1e-30)[..., None]).round().to(torch.int8)
    return kv8_put(cache, scales, slot_mapping, q, s, kv8_live(slot_mapping))


@implements("kv_append_int8")
def wrong_mutation_kv8_in_place(k, cache, scales, slot_mapping):
    # writes its inputs
    q, s = kv8_q8(k)
    keep = slot_mapping >= 0
    cache[slot_mapping[keep]] = q[keep]
    scales[slot_mapping[keep]] = s[keep]
    return cache.clone(), scales.clone()


@implements("kv_append_int8")
def wrong_sentinel_kv8_stop_at_pad(k, cache, scales, slot_mapping):
    # takes padding to be at the end only
    n = int((slot_mapping >= 0).sum())
    return kv8_put(
        cache, scales, slot_mapping, *kv8_q8(k), [t for t in range(n) if slot_mapping[t] >= 0]
    )


def paged8_attend(q, kc, vc, ks, vs, bt, lens, cut=lambda n: n, w=torch.float32, kmap=lambda t: t):
    out = torch.zeros_like(q)
    for b in range(len(q)):
        n = cut(int(lens[b]))
        t = torch.arange(n)
        r = bt[b].long()[kmap(t // 4)]
        k = kc[r, t % 4].to(w).repeat_interleave(2, 1)
        v = vc[r, t % 4].to(w).repeat_interleave(2, 1)
        s = (
            torch.einsum("hd,nhd->hn", q[b].to(w), k).float()
            * (ks.repeat_interleave(2) / 4)[:, None]
        )
        out[b] = (
            torch.einsum("hn,nhd->hd", s.softmax(-1).to(w), v).float()
            * vs.repeat_interleave(2)[:, None]
        ).half()
    return out


@implements("paged_attention_int8_scales")
def honest_paged8_scale_after(q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens):
    return paged8_attend(q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens)


@implements("paged_attention_int8_scales")
def honest_paged8_sdpa(q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens):
    m = block_tables.shape[1] * 4
    bt = block_tables.long().clamp(0, len(k_cache) - 1)
    live = torch.arange(m)[None] < context_lens[:, None]
    k = (
        (k_cache.float() * k_scale[:, None])[bt]
        .flatten(1, 2)
        .repeat_interleave(2, 2)
        .transpose(1, 2)
    )
    v = (
        (v_cache.float() * v_scale[:, None])[bt]
        .flatten(1, 2)
        .repeat_interleave(2, 2)
        .transpose(1, 2)
    )
    return F.scaled_dot_product_attention(
        q.float()[:, :, None], k, v, attn_mask=live[:, None, None]
    )[:, :, 0].half()


@implements("paged_attention_int8_scales")
def wrong_scale_paged8_v_with_k_scale(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens
):
    # v scaled by k's scale
    return paged8_attend(q, k_cache, v_cache, k_scale, k_scale, block_tables, context_lens)


@implements("paged_attention_int8_scales")
def wrong_broadcast_paged8_head0_scale(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens
):
    # per-tensor scale: head 0's
    return paged8_attend(
        q,
        k_cache,
        v_cache,
        k_scale[:1].expand(2),
        v_scale[:1].expand(2),
        block_tables,
        context_lens,
    )


@implements("paged_attention_int8_scales")
def wrong_boundary_paged8_full_blocks(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens
):
    # attends to all of the last page
    return paged8_attend(
        q,
        k_cache,
        v_cache,
        k_scale,
        v_scale,
        block_tables,
        context_lens,
        cut=lambda n: (n + 3) // 4 * 4,
    )


@implements("paged_attention_int8_scales")
def wrong_threshold_paged8_max_8_pages(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens
):
    # reads at most eight pages
    return paged8_attend(
        q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens, cut=lambda n: min(n, 32)
    )


@implements("paged_attention_int8_scales")
def wrong_accumulation_paged8_bf16(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens
):
    # products and sums in bf16
    return paged8_attend(
        q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens, w=torch.bfloat16
    )


@implements("paged_attention_int8_scales")
def wrong_formula_paged8_contiguous_pages(
    q, k_cache, v_cache, k_scale, v_scale, block_tables, context_lens
):
    # pages thought to follow each other from the first
    bt = block_tables[:, :1] + torch.arange(block_tables.shape[1])
    return paged8_attend(q, k_cache, v_cache, k_scale, v_scale, bt % len(k_cache), context_lens)


def viterbi_vit(e, tr, ln, trans=False, full=False, lse=False, off=0, zero=False):
    s = torch.zeros_like(e[:, 0]) if zero else e[:, 0]
    m = tr.T if trans else tr
    for i in range(1, e.shape[1]):
        c = s[:, :, None] + m
        nx = (torch.logsumexp(c, 1) if lse else c.amax(1)) + e[:, i]
        s = nx if full else torch.where((i < ln + off)[:, None], nx, s)
    return s.amax(1)


@implements("viterbi_path")
def honest_viterbi_same(emissions, transitions, lengths):
    return viterbi_vit(emissions, transitions, lengths)


@implements("viterbi_path")
def honest_viterbi_loop(emissions, transitions, lengths):
    out = []
    for e, n in zip(emissions.double(), lengths.tolist(), strict=False):
        s = e[0]
        for i in range(1, max(n, 1)):
            s = (s[:, None] + transitions.double()).max(0).values + e[i]
        out.append(s.max())
    return torch.stack(out).float()


@implements("viterbi_path")
def wrong_axis_viterbi_transposed(emissions, transitions, lengths):
    # transitions read to-from
    return viterbi_vit(emissions, transitions, lengths, trans=True)


@implements("viterbi_path")
def wrong_boundary_viterbi_full_length(emissions, transitions, lengths):
    # lengths ignored
    return viterbi_vit(emissions, transitions, lengths, full=True)


@implements("viterbi_path")
def wrong_offbyone_viterbi_one_more(emissions, transitions, lengths):
    # one step too many
    return viterbi_vit(emissions, transitions, lengths, off=1)


@implements("viterbi_path")
def wrong_formula_viterbi_forward(emissions, transitions, lengths):
    # logsumexp (forward algorithm)
    return viterbi_vit(emissions, transitions, lengths, lse=True)


@implements("viterbi_path")
def wrong_formula_viterbi_no_first(emissions, transitions, lengths):
    # first emission forgotten
    return viterbi_vit(emissions, transitions, lengths, zero=True)


@implements("viterbi_path")
def wrong_threshold_viterbi_16_tags(emissions, transitions, lengths):
    # at most 16 tags
    return viterbi_vit(emissions[..., :16], transitions[:16, :16], lengths)


def lbias_rows(ip):
    return torch.repeat_interleave(torch.arange(len(ip) - 1), (ip[1:] - ip[:-1]).long())


@implements("logit_bias_ragged")
def honest_lbias_flat(logits, bias_indptr, bias_ids, bias_values):
    out = logits.float()
    flat = lbias_rows(bias_indptr) * out.shape[1] + bias_ids.long()
    out.view(-1).index_add_(0, flat, bias_values)
    return out


@implements("logit_bias_ragged")
def honest_lbias_put(logits, bias_indptr, bias_ids, bias_values):
    add = torch.zeros(logits.shape).index_put(
        (lbias_rows(bias_indptr), bias_ids.long()), bias_values, accumulate=True
    )
    return logits.float() + add


@implements("logit_bias_ragged")
def wrong_ties_lbias_no_accumulate(logits, bias_indptr, bias_ids, bias_values):
    # duplicates: the last one wins
    out = logits.float()
    out2 = out.clone()
    for r, i, v in zip(
        lbias_rows(bias_indptr).tolist(), bias_ids.tolist(), bias_values, strict=False
    ):
        out2[r, i] = out[r, i] + v
    return out2


@implements("logit_bias_ragged")
def wrong_accumulation_lbias_half(logits, bias_indptr, bias_ids, bias_values):
    # added in fp16
    out = logits.clone()
    out.index_put_((lbias_rows(bias_indptr), bias_ids.long()), bias_values.half(), accumulate=True)
    return out.float()


@implements("logit_bias_ragged")
def wrong_sizes_lbias_equal_split(logits, bias_indptr, bias_ids, bias_values):
    # takes sequences to be equally long
    n = len(bias_ids)
    r = torch.arange(n) * len(logits) // max(n, 1)
    return logits.float().index_put((r, bias_ids.long()), bias_values, accumulate=True)


@implements("logit_bias_ragged")
def wrong_boundary_lbias_last_row(logits, bias_indptr, bias_ids, bias_values):
    # the last request is left out
    r = lbias_rows(bias_indptr)
    k = r < len(logits) - 1 if len(logits) > 1 else r >= 0
    return logits.float().index_put((r[k], bias_ids[k].long()), bias_values[k], accumulate=True)


@implements("logit_bias_ragged")
def wrong_threshold_lbias_max_300(logits, bias_indptr, bias_ids, bias_values):
    # at most 300 biases a request, as OpenAI's API, not the definition, has it
    r = lbias_rows(bias_indptr)
    k = torch.arange(len(r)) - bias_indptr[r] < 300
    return logits.float().index_put((r[k], bias_ids[k].long()), bias_values[k], accumulate=True)


def rank_lp(x, ids):
    return F.log_softmax(x.float(), -1).gather(1, ids[:, None])[:, 0]


def rank_rk(x, ids, op=torch.gt):
    return op(x, x.gather(1, ids[:, None])).sum(1)


@implements("token_logprob_rank")
def honest_rank_log_softmax(logits, token_ids):
    return rank_lp(logits, token_ids), rank_rk(logits, token_ids) + 1


@implements("token_logprob_rank")
def honest_rank_rank_of_logprobs_sorted(logits, token_ids):
    s = logits.float().sort(1, descending=True).values
    c = logits.float().gather(1, token_ids[:, None])
    return rank_lp(logits, token_ids), torch.searchsorted(-s, -c)[:, 0] + 1


@implements("token_logprob_rank")
def wrong_ties_rank_ge(logits, token_ids):
    # ties count: rank of the last equal one
    return rank_lp(logits, token_ids), rank_rk(logits, token_ids, torch.ge)


@implements("token_logprob_rank")
def wrong_offbyone_rank_zero_based(logits, token_ids):
    # rank from zero
    return rank_lp(logits, token_ids), rank_rk(logits, token_ids)


@implements("token_logprob_rank")
def wrong_overflow_rank_no_max(logits, token_ids):
    # sum of exponentials without the maximum
    x = logits.float()
    return x.gather(1, token_ids[:, None])[:, 0] - x.exp().sum(1).log(), rank_rk(
        logits, token_ids
    ) + 1


@implements("token_logprob_rank")
def wrong_ties_rank_argsort_rank(logits, token_ids):
    # rank by place in an argsort: ties by index
    o = torch.argsort(logits.float(), dim=1, descending=True, stable=True)
    return rank_lp(logits, token_ids), (o == token_ids[:, None]).int().argmax(1) + 1


@implements("token_logprob_rank")
def wrong_rounding_rank_rank_of_rounded(logits, token_ids):
    # ranks log-probabilities rounded to bf16
    y = F.log_softmax(logits.float(), -1).bfloat16()
    return rank_lp(logits, token_ids), rank_rk(y, token_ids) + 1


@implements("token_logprob_rank")
def wrong_accumulation_rank_bf16(logits, token_ids):
    # log-softmax in bf16
    return F.log_softmax(logits, -1).gather(1, token_ids[:, None])[:, 0].float(), rank_rk(
        logits, token_ids
    ) + 1


@implements("token_logprob_rank")
def honest_rank_base_two(logits, token_ids):
    x = logits.float()
    t = x * 1.4426950408889634
    m = t.amax(1)
    lse = (m + torch.log2(torch.exp2(t - m[:, None]).sum(1))) * 0.6931471805599453
    return x.gather(1, token_ids[:, None])[:, 0] - lse, rank_rk(logits, token_ids) + 1


def spec_parts(dp, tp, ids, u, cmp=torch.lt):
    p = tp.gather(2, ids[..., None])[..., 0]
    q = dp.gather(2, ids[..., None])[..., 0]
    return cmp(u * q, p)


def spec_rest(dp, tp, a, norm=True, fallback=True):
    r = torch.arange(len(a))
    gap = F.relu(tp[r, a] - dp[r, a])
    if not norm:
        return gap
    t = gap.sum(1, keepdim=True)
    out = gap / t.clamp(min=1e-30)
    return torch.where(t > 0, out, tp[r, a]) if fallback else out


@implements("spec_rejection")
def honest_spec_loop(draft_probs, target_probs, draft_ids, uniform):
    ok = spec_parts(draft_probs, target_probs, draft_ids, uniform)
    acc = torch.tensor(
        [next((i for i, x in enumerate(row) if not x), len(row)) for row in ok.tolist()]
    )
    return acc, spec_rest(draft_probs, target_probs, acc.clamp(max=3))


@implements("spec_rejection")
def honest_spec_double(draft_probs, target_probs, draft_ids, uniform):
    ok = spec_parts(draft_probs.double(), target_probs.double(), draft_ids, uniform.double())
    acc = ok.int().cumprod(1).sum(1)
    return acc, spec_rest(draft_probs.double(), target_probs.double(), acc.clamp(max=3)).float()


@implements("spec_rejection")
def wrong_formula_spec_count_all(draft_probs, target_probs, draft_ids, uniform):
    # counts acceptances after the first rejection
    acc = spec_parts(draft_probs, target_probs, draft_ids, uniform).sum(1)
    return acc, spec_rest(draft_probs, target_probs, acc.clamp(max=3))


@implements("spec_rejection")
def wrong_formula_spec_unnormalised(draft_probs, target_probs, draft_ids, uniform):
    # residual isn't normalised
    acc = spec_parts(draft_probs, target_probs, draft_ids, uniform).long().cumprod(1).sum(1)
    return acc, spec_rest(draft_probs, target_probs, acc.clamp(max=3), False)


@implements("spec_rejection")
def wrong_special_spec_no_fallback(draft_probs, target_probs, draft_ids, uniform):
    # equal distributions give zeros
    acc = spec_parts(draft_probs, target_probs, draft_ids, uniform).long().cumprod(1).sum(1)
    return acc, spec_rest(draft_probs, target_probs, acc.clamp(max=3), True, False)


@implements("spec_rejection")
def wrong_ties_spec_le(draft_probs, target_probs, draft_ids, uniform):
    # accepts at equality: a token of probability 0 in both
    acc = (
        spec_parts(draft_probs, target_probs, draft_ids, uniform, torch.le).long().cumprod(1).sum(1)
    )
    return acc, spec_rest(draft_probs, target_probs, acc.clamp(max=3))


@implements("spec_rejection")
def wrong_formula_spec_greedy(draft_probs, target_probs, draft_ids, uniform):
    # accepts where p >= q, without the draw
    ok = spec_parts(draft_probs, target_probs, draft_ids, torch.ones_like(uniform), torch.le)
    acc = ok.long().cumprod(1).sum(1)
    return acc, spec_rest(draft_probs, target_probs, acc.clamp(max=3))


@implements("spec_rejection")
def wrong_broadcast_spec_last_row(draft_probs, target_probs, draft_ids, uniform):
    # residual always from the last step
    acc = spec_parts(draft_probs, target_probs, draft_ids, uniform).long().cumprod(1).sum(1)
    return acc, spec_rest(draft_probs, target_probs, torch.full_like(acc, 3))


def segmax_sa(v, ip, first=True, empty=-1, init=-math.inf, rel=False, tile=None):
    ip = ip.tolist()
    idx, best = [], []
    for a, b in itertools.pairwise(ip):
        m, j = init, empty
        for i in range(a, b):
            x = float(v[i])
            if x > m or (x == m and not first):
                m, j = x, i - (a if rel else 0)
        idx.append(j)
        best.append(m)
    return torch.tensor(idx, dtype=torch.int64), torch.tensor(best, dtype=torch.float32)


@implements("segment_argmax")
def honest_segmax_loop(values, indptr):
    return segmax_sa(values, indptr)


@implements("segment_argmax")
def honest_segmax_scatter(values, indptr):
    n = len(indptr) - 1
    seg = torch.repeat_interleave(torch.arange(n), (indptr[1:] - indptr[:-1]).long())
    best = torch.full((n,), -math.inf).scatter_reduce(0, seg, values, "amax")
    i = torch.where(values == best[seg], torch.arange(len(values)), 2**62)
    idx = torch.full((n,), 2**62).scatter_reduce(0, seg, i, "amin")
    return torch.where(idx == 2**62, -1, idx), best


@implements("segment_argmax")
def wrong_ties_segmax_last_tie(values, indptr):
    # the last of equal ones
    return segmax_sa(values, indptr, first=False)


@implements("segment_argmax")
def wrong_special_segmax_init_zero(values, indptr):
    # running maximum begins at 0: all-negative segments
    return segmax_sa(values, indptr, init=0.0)


@implements("segment_argmax")
def wrong_offset_segmax_relative(values, indptr):
    # index inside the segment
    return segmax_sa(values, indptr, rel=True)


@implements("segment_argmax")
def wrong_sentinel_segmax_empty_zero(values, indptr):
    # empty segments get index 0
    return segmax_sa(values, indptr, empty=0)


@implements("segment_argmax")
def wrong_threshold_segmax_1024(values, indptr):
    # looks at the first 1024 of a segment
    n = len(indptr) - 1
    _i, _b = honest_segmax_scatter(values, indptr)
    keep = (
        torch.arange(len(values))
        - indptr[torch.repeat_interleave(torch.arange(n), (indptr[1:] - indptr[:-1]).long())]
        < 1024
    )
    return honest_segmax_scatter(torch.where(keep, values, -3e38), indptr)


@implements("bilinear_sample_zeros")
def honest_sample_grid_sample(image, xy):
    return F.grid_sample(image[None], (xy * 2 - 1)[None, :, None], align_corners=False)[
        0, :, :, 0
    ].T.contiguous()


def sample_samp(im, xy, border=False, half=0.5, trunc=False, wdt=None, swap=False):
    c, h, w = im.shape
    x, y = xy[:, 0] * w - half, xy[:, 1] * h - half
    if swap and h == w:
        x, y = y, x
    f = torch.trunc if trunc else torch.floor
    x0, y0 = f(x), f(y)
    o = torch.zeros(len(xy), c)
    for dy in (0, 1):
        for dx in (0, 1):
            xi, yi = x0 + dx, y0 + dy
            wt = (1 - (x - xi).abs()) * (1 - (y - yi).abs())
            if wdt:
                wt = wt.to(wdt).float()
            ok = (
                torch.ones_like(xi, dtype=torch.bool)
                if border
                else (xi >= 0) & (xi < w) & (yi >= 0) & (yi < h)
            )
            o += (wt * ok)[:, None] * im[:, yi.clamp(0, h - 1).long(), xi.clamp(0, w - 1).long()].T
    return o


@implements("bilinear_sample_zeros")
def honest_sample_gather(image, xy):
    return sample_samp(image, xy)


@implements("bilinear_sample_zeros")
def wrong_boundary_sample_border(image, xy):
    # clamps to the border
    return sample_samp(image, xy, border=True)


@implements("bilinear_sample_zeros")
def wrong_offset_sample_corners(image, xy):
    # pixel centres at whole numbers
    return sample_samp(image, xy, half=0.0)


@implements("bilinear_sample_zeros")
def wrong_rounding_sample_trunc(image, xy):
    # truncates instead of floor: wrong left of the first pixel
    return sample_samp(image, xy, trunc=True)


@implements("bilinear_sample_zeros")
def wrong_accumulation_sample_9bit_weights(image, xy):
    # texture unit's 8 bits of fraction
    _c, h, w = image.shape

    def q(v, n):
        return (torch.round((v * n - 0.5) * 256) / 256 + 0.5) / n

    return sample_samp(image, torch.stack([q(xy[:, 0], w), q(xy[:, 1], h)], 1))


@implements("bilinear_sample_zeros")
def wrong_sizes_sample_swap_square(image, xy):
    # x and y swapped in square images
    return sample_samp(image, xy, swap=True)


@implements("bilinear_sample_zeros")
def wrong_special_sample_nearest_far(image, xy):
    # nearest pixel where the image has one row
    return (
        sample_samp(image, xy)
        if image.shape[1] > 1
        else sample_samp(image, torch.stack([xy[:, 0], torch.full_like(xy[:, 1], 0.5)], 1))
    )


def amsgrad_ams(
    p,
    g,
    m,
    v,
    vm,
    step,
    wd,
    eps_in=False,
    dec=False,
    usemax=True,
    b2=0.999,
    stepoff=0,
    rnd=None,
    corr=True,
):
    gr = g.float() + (0 if dec else wd * p.float())
    m = 0.9 * m + 0.1 * gr
    v = b2 * v + (1 - b2) * gr * gr
    vm = torch.maximum(vm, v)
    s = step + stepoff
    c1, c2 = (1 - 0.9**s, 1 - 0.999**s) if corr else (1, 1)
    w = vm if usemax else v
    d = (w / c2 + 1e-8).sqrt() if eps_in else w.sqrt() / c2**0.5 + 1e-8
    q = p.float() * (1 - 1e-3 * wd if dec else 1) - 1e-3 / c1 * m / d
    return (rnd(q) if rnd else q.bfloat16()), m, v, vm


@implements("amsgrad_l2")
def honest_amsgrad_plain(p, g, m, v, vmax, step, wd):
    return amsgrad_ams(p, g, m, v, vmax, step, wd)


@implements("amsgrad_l2")
def honest_amsgrad_addcdiv(p, g, m, v, vmax, step, wd):
    gr = torch.add(g.float(), p.float(), alpha=wd)
    m = torch.lerp(m, gr, 0.1)
    v = (v * 0.999).addcmul(gr, gr, value=0.001)
    vm = torch.maximum(vmax, v)
    c1, c2 = 1 - 0.9**step, math.sqrt(1 - 0.999**step)
    return p.float().addcdiv(m, vm.sqrt() / c2 + 1e-8, value=-1e-3 / c1).bfloat16(), m, v, vm


@implements("amsgrad_l2")
def wrong_formula_amsgrad_decoupled(p, g, m, v, vmax, step, wd):
    # AdamW's decay
    return amsgrad_ams(p, g, m, v, vmax, step, wd, dec=True)


@implements("amsgrad_l2")
def wrong_eps_amsgrad_eps_inside(p, g, m, v, vmax, step, wd):
    # epsilon under the root
    return amsgrad_ams(p, g, m, v, vmax, step, wd, eps_in=True)


@implements("amsgrad_l2")
def wrong_formula_amsgrad_no_max(p, g, m, v, vmax, step, wd):
    # uses v, not its maximum
    return amsgrad_ams(p, g, m, v, vmax, step, wd, usemax=False)


@implements("amsgrad_l2")
def wrong_offbyone_amsgrad_step_plus_one(p, g, m, v, vmax, step, wd):
    # step counted from zero
    return amsgrad_ams(p, g, m, v, vmax, step, wd, stepoff=1)


@implements("amsgrad_l2")
def wrong_rounding_amsgrad_truncated(p, g, m, v, vmax, step, wd):
    # truncates to bf16
    return amsgrad_ams(
        p,
        g,
        m,
        v,
        vmax,
        step,
        wd,
        rnd=lambda q: (q.contiguous().view(torch.int32) & -65536).view(torch.float32).bfloat16(),
    )


@implements("amsgrad_l2")
def wrong_formula_amsgrad_b2_99(p, g, m, v, vmax, step, wd):
    # 0.99 for 0.999
    return amsgrad_ams(p, g, m, v, vmax, step, wd, b2=0.99)


@implements("amsgrad_l2")
def wrong_boundary_amsgrad_tail(p, g, m, v, vmax, step, wd):
    # the last n % 4 elements aren't updated
    o = amsgrad_ams(p, g, m, v, vmax, step, wd)
    k = len(p) // 4 * 4
    for a, b in zip(o, (p, m, v, vmax), strict=False):
        a[k:] = b[k:]
    return o


def pairs_by(k, v, i, o):
    return k[o], v[o], i[o]


@implements("sort_pairs_by_key")
def honest_pairs_argsort(keys, values, ids):
    return pairs_by(keys, values, ids, torch.argsort(keys.long(), stable=True))


@implements("sort_pairs_by_key")
def honest_pairs_radix(keys, values, ids):
    o = torch.arange(len(keys))
    u = keys.long() + 2**31
    for s in range(0, 32, 8):
        d = (u[o] >> s) & 255
        o = o[torch.sort(d, stable=True).indices]
    return pairs_by(keys, values, ids, o)


@implements("sort_pairs_by_key")
def wrong_sign_pairs_unsigned(keys, values, ids):
    # negative keys behind positive ones
    return pairs_by(keys, values, ids, torch.argsort(keys.long() & 0xFFFFFFFF, stable=True))


@implements("sort_pairs_by_key")
def wrong_order_pairs_descending(keys, values, ids):
    # descending
    return pairs_by(keys, values, ids, torch.argsort(keys.long(), descending=True, stable=True))


@implements("sort_pairs_by_key")
def wrong_ties_pairs_unstable(keys, values, ids):
    # equal keys in reverse order
    return pairs_by(
        keys, values, ids, torch.argsort(keys.long().flip(0), stable=True).neg() + len(keys) - 1
    )


@implements("sort_pairs_by_key")
def wrong_boundary_pairs_24_bits(keys, values, ids):
    # radix passes over the high 24 bits only
    return pairs_by(keys, values, ids, torch.argsort(keys.long() >> 8, stable=True))


@implements("sort_pairs_by_key")
def wrong_accumulation_pairs_float_keys(keys, values, ids):
    # compares keys as float32
    return pairs_by(keys, values, ids, torch.argsort(keys.float(), stable=True))


@implements("sort_pairs_by_key")
def wrong_overflow_pairs_ids_int32(keys, values, ids):
    # payload carried in 32 bits
    a, b, c = pairs_by(keys, values, ids, torch.argsort(keys, stable=True))
    return a, b, c.int().long()


@implements("sort_pairs_by_key")
def wrong_threshold_pairs_blocks(keys, values, ids):
    # above 4096, blocks are sorted but not merged
    o = torch.cat(
        [
            torch.argsort(keys[i : i + 4096].long(), stable=True) + i
            for i in range(0, len(keys), 4096)
        ]
    )
    return pairs_by(keys, values, ids, o)


def bsa_full(q, k, v, mask, empty=0.0, dt=torch.float32, lse_base=1.0):
    len(q)
    s = torch.einsum("qhd,khd->hqk", q.float(), k.float()) / 4.0
    s = s.masked_fill(~mask, -math.inf)
    m = s.amax(-1, keepdim=True)
    dead = torch.isinf(m)
    e = torch.exp(s - torch.where(dead, 0.0, m))
    den = e.sum(-1, keepdim=True)
    p = torch.where(dead, empty, e / den.where(~dead, 1.0)).to(dt)
    lse = torch.where(dead, -math.inf, m + den.log())[..., 0]
    return torch.einsum("hqk,khd->qhd", p, v.to(dt)).half(), (lse * lse_base).T.contiguous()


def bsa_up(b):
    return b.repeat_interleave(16, 1).repeat_interleave(16, 2)


def bsa_tri(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


@implements("block_sparse_attention")
def honest_bsa_dense(q, k, v, block_mask):
    return bsa_full(q, k, v, bsa_up(block_mask) & bsa_tri(len(q)))


@implements("block_sparse_attention")
def honest_bsa_online(q, k, v, block_mask):
    n = len(q)
    out = torch.zeros(n, 2, 16)
    lse = torch.full((n, 2), -math.inf)
    for h in range(2):
        for i in range(n // 16):
            m = torch.full((16,), -math.inf)
            den = torch.zeros(16)
            acc = torch.zeros(16, 16)
            for j in range(i + 1):
                if not block_mask[h, i, j]:
                    continue
                s = q[i * 16 : i * 16 + 16, h].float() @ k[j * 16 : j * 16 + 16, h].float().T / 4
                if i == j:
                    s = s.masked_fill(~bsa_tri(16), -math.inf)
                new = torch.maximum(m, s.amax(-1))
                f = torch.exp(m - new)
                e = torch.exp(s - new[:, None])
                acc = acc * f[:, None] + e @ v[j * 16 : j * 16 + 16, h].float()
                den = den * f + e.sum(-1)
                m = new
            live = den > 0
            out[i * 16 : i * 16 + 16, h] = torch.where(
                live[:, None], acc / den.clamp(min=1e-30)[:, None], 0.0
            )
            lse[i * 16 : i * 16 + 16, h] = torch.where(live, m + den.log(), -math.inf)
    return out.half(), lse


@implements("block_sparse_attention")
def wrong_special_bsa_empty_mean(q, k, v, block_mask):
    # rows without keys attend to everything instead of giving zero
    return bsa_full(q, k, v, bsa_up(block_mask) & bsa_tri(len(q)), empty=1.0 / len(q))


@implements("block_sparse_attention")
def wrong_broadcast_bsa_head0_mask(q, k, v, block_mask):
    # mask of head 0 for all heads
    return bsa_full(q, k, v, bsa_up(block_mask[:1].expand(2, -1, -1)) & bsa_tri(len(q)))


@implements("block_sparse_attention")
def wrong_boundary_bsa_no_causal_diag(q, k, v, block_mask):
    # causal by block only: inside the diagonal block everything is seen
    n = len(q)
    b = bsa_tri(n // 16)
    return bsa_full(q, k, v, bsa_up(block_mask & b))


@implements("block_sparse_attention")
def wrong_axis_bsa_transposed(q, k, v, block_mask):
    # block mask read transposed
    return bsa_full(q, k, v, bsa_up(block_mask.transpose(1, 2)) & bsa_tri(len(q)))


@implements("block_sparse_attention")
def wrong_scale_bsa_lse_log2(q, k, v, block_mask):
    # lse in base 2
    return bsa_full(q, k, v, bsa_up(block_mask) & bsa_tri(len(q)), lse_base=1.4426950408889634)


@implements("block_sparse_attention")
def wrong_formula_bsa_diag_always(q, k, v, block_mask):
    # diagonal blocks always computed
    n = len(q)
    return bsa_full(
        q, k, v, (bsa_up(block_mask | torch.eye(n // 16, dtype=torch.bool))) & bsa_tri(n)
    )
