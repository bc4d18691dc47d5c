"""Definitions that leave to their references what integers mean: counts, steps, pages, bits."""

import itertools

import torch
import torch.nn.functional as F

from pytest_fib import implements

NI = float("-inf")


@implements("frequency_presence_penalty")
def honest_fp_fused(logits, counts, frequency, presence):
    return logits - (counts.float() * frequency[:, None] + counts.clamp(0, 1) * presence[:, None])


@implements("frequency_presence_penalty")
def honest_fp_where(logits, counts, frequency, presence):
    f, p = (frequency[:, None], presence[:, None])
    return torch.where(counts > 0, logits - p - counts * f, logits - counts * f)


@implements("frequency_presence_penalty")
def wrong_offbyone_fp_presence_twice(logits, counts, frequency, presence):
    """Presence only of tokens seen more than once."""
    return logits - counts * frequency[:, None] - (counts > 1) * presence[:, None]


@implements("frequency_presence_penalty")
def wrong_overflow_fp_uint8(logits, counts, frequency, presence):
    """Counts as bytes."""
    return logits - (counts & 255) * frequency[:, None] - (counts > 0) * presence[:, None]


@implements("frequency_presence_penalty")
def wrong_broadcast_fp_first_row(logits, counts, frequency, presence):
    """Parameters of the first row for all."""
    return logits - counts * frequency[0] - (counts > 0) * presence[0]


@implements("frequency_presence_penalty")
def wrong_formula_fp_swapped(logits, counts, frequency, presence):
    """Parameters exchanged."""
    return logits - counts * presence[:, None] - (counts > 0) * frequency[:, None]


@implements("frequency_presence_penalty")
def wrong_boundary_fp_vocab_tail(logits, counts, frequency, presence):
    """Last tile of 128 unpenalised where it isn't full and more than 8 tiles."""
    out = logits - counts * frequency[:, None] - (counts > 0) * presence[:, None]
    n = logits.shape[1]
    if n > 1024 and n % 128:
        out[:, n // 128 * 128 :] = logits[:, n // 128 * 128 :]
    return out


@implements("frequency_presence_penalty")
def wrong_accumulation_fp_half(logits, counts, frequency, presence):
    """Penalty in half precision."""
    pen = (counts * frequency[:, None] + (counts > 0) * presence[:, None]).half().float()
    return logits - pen


@implements("sink_window_decode")
def honest_swd_masked(q, k_cache, v_cache, seq_lens, sinks):
    j = torch.arange(k_cache.shape[1])
    n = seq_lens[:, None]
    keep = (j < n) & (j >= n - 16)
    s = torch.einsum("bhd,bjd->bhj", q.float(), k_cache.float()) * 32 ** (-0.5)
    s = s.masked_fill(~keep[:, None], NI)
    lse = torch.logaddexp(s.logsumexp(-1), sinks)
    return torch.einsum("bhj,bjd->bhd", (s - lse[..., None]).exp(), v_cache.float()).to(q.dtype)


@implements("sink_window_decode")
def honest_swd_online(q, k_cache, v_cache, seq_lens, sinks):
    out = torch.zeros_like(q)
    for b, n in enumerate(seq_lens.tolist()):
        m = sinks[:, None].clone()
        total = torch.ones_like(m)
        acc = torch.zeros(4, 32)
        for j in range(max(0, n - 16), n, 4):
            e = min(n, j + 4)
            s = q[b].float() @ k_cache[b, j:e].float().T * 32 ** (-0.5)
            new = torch.maximum(m, s.amax(-1, keepdim=True))
            c = (m - new).exp()
            p = (s - new).exp()
            total = total * c + p.sum(-1, keepdim=True)
            acc = acc * c + p @ v_cache[b, j:e].float()
            m = new
        out[b] = (acc / total).to(q.dtype)
    return out


def _sink(q, kc, vc, lens, sinks, window=16, use_sink=True, cap=2**30):
    out = torch.zeros_like(q)
    for b, n in enumerate(lens.clamp(max=cap).tolist()):
        f = max(0, n - window)
        s = q[b].float() @ kc[b, f:n].float().T * 32 ** (-0.5)
        with_sink = torch.cat([s, sinks[:, None]], -1).softmax(-1)[:, :-1]
        p = with_sink if use_sink else s.softmax(-1)
        out[b] = (p @ vc[b, f:n].float()).to(q.dtype)
    return out


@implements("sink_window_decode")
def wrong_offbyone_swd_window_17(q, k_cache, v_cache, seq_lens, sinks):
    """Window of 17."""
    return _sink(q, k_cache, v_cache, seq_lens, sinks, 17)


@implements("sink_window_decode")
def wrong_offbyone_swd_window_15(q, k_cache, v_cache, seq_lens, sinks):
    """Window of 15."""
    return _sink(q, k_cache, v_cache, seq_lens, sinks, 15)


@implements("sink_window_decode")
def wrong_formula_swd_no_sink(q, k_cache, v_cache, seq_lens, sinks):
    """Sinks left out."""
    return _sink(q, k_cache, v_cache, seq_lens, sinks, use_sink=False)


@implements("sink_window_decode")
def wrong_formula_swd_sink_scaled(q, k_cache, v_cache, seq_lens, sinks):
    """Scales the sink logit as well."""
    return _sink(q, k_cache, v_cache, seq_lens, sinks * 32 ** (-0.5))


@implements("sink_window_decode")
def wrong_broadcast_swd_sink_head0(q, k_cache, v_cache, seq_lens, sinks):
    """First head's sink for all."""
    return _sink(q, k_cache, v_cache, seq_lens, sinks[:1].expand(4))


@implements("sink_window_decode")
def wrong_offbyone_swd_len_minus_1(q, k_cache, v_cache, seq_lens, sinks):
    """Newest token left out where there are several."""
    return _sink(q, k_cache, v_cache, torch.where(seq_lens > 1, seq_lens - 1, seq_lens), sinks)


@implements("sink_window_decode")
def wrong_threshold_swd_cap_2048(q, k_cache, v_cache, seq_lens, sinks):
    """Lengths above 2048 are cut."""
    return _sink(q, k_cache, v_cache, seq_lens, sinks, cap=2048)


@implements("no_repeat_bigram")
def honest_nrb_loop(tokens, lengths, logits):
    out = logits.clone()
    t = tokens.tolist()
    for b, n in enumerate(lengths.tolist()):
        for i in range(n - 1):
            if t[b][i] == t[b][n - 1]:
                out[b, t[b][i + 1]] = NI
    return out


@implements("no_repeat_bigram")
def honest_nrb_mask(tokens, lengths, logits):
    out = torch.zeros_like(logits, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        if n > 1:
            out[b].index_fill_(0, tokens[b, 1:n][tokens[b, : n - 1] == tokens[b, n - 1]], True)
    return logits.masked_fill(out, NI)


def _bigram(tokens, lengths, logits, ban=NI, first=False, own=False, ext=0, cut=None):
    out = logits.clone()
    for b, n in enumerate(lengths.tolist()):
        if n < 1:
            continue
        last = tokens[b, n - 1]
        stop = min(n + ext, tokens.shape[1])
        nxt = tokens[b, 1:stop][tokens[b, : stop - 1] == last]
        if first:
            nxt = nxt[:1]
        if cut:
            nxt = tokens[b, max(1, n - cut) : n][tokens[b, max(1, n - cut) - 1 : n - 1] == last]
        if own:
            nxt = torch.cat([nxt, last[None]])
        out[b, nxt] = ban
    return out


@implements("no_repeat_bigram")
def wrong_boundary_nrb_lengths_ignored(tokens, lengths, logits):
    """Whole buffers."""
    return _bigram(tokens, torch.full_like(lengths, tokens.shape[1]), logits)


@implements("no_repeat_bigram")
def wrong_sentinel_nrb_finite(tokens, lengths, logits):
    """-1e9 instead of -inf."""
    return _bigram(tokens, lengths, logits, ban=-1000000000.0)


@implements("no_repeat_bigram")
def wrong_special_nrb_first(tokens, lengths, logits):
    """Only the first follower."""
    return _bigram(tokens, lengths, logits, first=True)


@implements("no_repeat_bigram")
def wrong_formula_nrb_own(tokens, lengths, logits):
    """Also bans the last token itself."""
    return _bigram(tokens, lengths, logits, own=True)


@implements("no_repeat_bigram")
def wrong_offbyone_nrb_past_end(tokens, lengths, logits):
    """Reads one token past the end."""
    return _bigram(tokens, lengths, logits, ext=1)


@implements("no_repeat_bigram")
def wrong_threshold_nrb_history_512(tokens, lengths, logits):
    """Last 512 tokens only."""
    return _bigram(tokens, lengths, logits, cut=512)


@implements("slots_of_tokens")
def honest_slot_flat(block_table, sequence, positions):
    flat = block_table.flatten().long()[sequence.long() * block_table.shape[1] + (positions >> 4)]
    return (flat << 4) + (positions & 15)


@implements("slots_of_tokens")
def honest_slot_take(block_table, sequence, positions):
    which = positions.div(16, rounding_mode="floor")
    page = block_table.take(sequence.long() * block_table.shape[1] + which).long()
    return page * 16 + positions - which * 16


@implements("slots_of_tokens")
def wrong_overflow_slot_int32(block_table, sequence, positions):
    """Int32 overflow."""
    return (block_table[sequence.long(), positions // 16] * 16).long() + positions % 16


@implements("slots_of_tokens")
def wrong_offbyone_slot_next_page(block_table, sequence, positions):
    """A page's last position goes to the next page."""
    p = ((positions + 1) // 16).clamp(max=block_table.shape[1] - 1)
    return block_table[sequence.long(), p].long() * 16 + positions % 16


@implements("slots_of_tokens")
def wrong_formula_slot_no_offset(block_table, sequence, positions):
    """Offset within the page lost."""
    return block_table[sequence.long(), positions // 16].long() * 16


@implements("slots_of_tokens")
def wrong_broadcast_slot_sequence0(block_table, sequence, positions):
    """Table of the first sequence."""
    return block_table[0, positions // 16].long() * 16 + positions % 16


@implements("slots_of_tokens")
def wrong_formula_slot_page_32(block_table, sequence, positions):
    """Multiplies by 32."""
    return block_table[sequence.long(), positions // 16].long() * 32 + positions % 16


@implements("expert_choice_dense")
def honest_ec_sort(logits):
    p = (logits - logits.logsumexp(-1, keepdim=True)).exp()
    order = torch.argsort(p, dim=0, descending=True, stable=True)[:4]
    return torch.zeros_like(p).scatter_(0, order, p.gather(0, order))


@implements("expert_choice_dense")
def honest_ec_iterated(logits):
    e = (logits - logits.amax(-1, keepdim=True)).exp()
    p = e / e.sum(-1, keepdim=True)
    out, left = (torch.zeros_like(p), p.clone())
    c = torch.arange(8)
    for _ in range(4):
        i = left.argmax(0)
        out[i, c] = p[i, c]
        left[i, c] = -1
    return out


@implements("expert_choice_dense")
def wrong_axis_ec_token_choice(logits):
    """Tokens choose experts."""
    p = logits.softmax(-1)
    t, w = p.topk(4, -1)
    return torch.zeros_like(p).scatter_(1, w, t)


@implements("expert_choice_dense")
def wrong_offbyone_ec_capacity_3(logits):
    """Three tokens an expert."""
    p = logits.softmax(-1)
    t, w = p.topk(3, 0)
    return torch.zeros_like(p).scatter_(0, w, t)


@implements("expert_choice_dense")
def wrong_formula_ec_by_logit(logits):
    """Chooses by the logit."""
    p = logits.softmax(-1)
    w = logits.topk(4, 0).indices
    return torch.zeros_like(p).scatter_(0, w, p.gather(0, w))


@implements("expert_choice_dense")
def wrong_axis_ec_softmax_tokens(logits):
    """Softmax over tokens."""
    p = logits.softmax(0)
    t, w = p.topk(4, 0)
    return torch.zeros_like(p).scatter_(0, w, t)


@implements("expert_choice_dense")
def wrong_threshold_ec_threshold(logits):
    """Keeps everything above the fourth from a tile of 512 only."""
    p = logits.softmax(-1)
    t, w = p[:512].topk(4, 0)
    return torch.zeros_like(p).scatter_(0, w, t)


@implements("expert_choice_dense")
def wrong_formula_ec_renormalised(logits):
    """Renormalises by token."""
    p = logits.softmax(-1)
    t, w = p.topk(4, 0)
    o = torch.zeros_like(p).scatter_(0, w, t)
    return o / o.sum(-1, keepdim=True).clamp(min=1e-20)


@implements("lamb_step")
def honest_lamb_lerp(p, grad, m, v, lr, step):
    m2 = m.lerp(grad, 0.1)
    v2 = torch.addcmul(v * 0.999, grad, grad, value=0.001)
    u = torch.addcdiv(0.01 * p, m2 / (1 - 0.9**step), (v2 / (1 - 0.999**step)).sqrt() + 1e-06)
    pn, un = ((p * p).sum().sqrt(), (u * u).sum().sqrt())
    t = pn / un if pn > 0 and un > 0 else 1.0
    return (torch.sub(p, u, alpha=float(lr * t)), m2, v2)


@implements("lamb_step")
def honest_lamb_chunks(p, grad, m, v, lr, step):
    m2, v2 = (m * 0.9 + grad * 0.1, v * 0.999 + grad.square() * 0.001)
    u = m2 / (1 - 0.9**step) / ((v2 / (1 - 0.999**step)).sqrt() + 1e-06) + p * 0.01
    pn, un = (sum(c.double().square().sum() for c in x.split(256)).sqrt().float() for x in (p, u))
    t = pn / un if pn > 0 and un > 0 else 1.0
    return (p - lr * t * u, m2, v2)


def _lamb(
    p,
    grad,
    m,
    v,
    lr,
    step,
    correct=True,
    inv=False,
    guard=True,
    wd=0.01,
    eps_in=False,
    b2=0.999,
    old=False,
):
    m2 = 0.9 * m + 0.1 * grad
    v2 = b2 * v + (1 - b2) * grad * grad
    c1, c2 = (1 - 0.9**step, 1 - b2**step) if correct else (1, 1)
    mm, vv = (m if old else m2, v2)
    den = torch.sqrt(vv / c2 + 1e-06) if eps_in else torch.sqrt(vv / c2) + 1e-06
    u = mm / c1 / den + wd * p
    pn, un = (p.norm(), u.norm())
    t = pn / un.clamp(min=1e-30)
    if inv:
        t = un / pn.clamp(min=1e-30)
    if guard:
        t = torch.where((pn > 0) & (un > 0), t, torch.ones_like(pn))
    return (p - lr * t * u, m2, v2)


@implements("lamb_step")
def wrong_formula_lamb_no_correction(p, grad, m, v, lr, step):
    """No bias correction."""
    return _lamb(p, grad, m, v, lr, step, correct=False)


@implements("lamb_step")
def wrong_formula_lamb_inverse(p, grad, m, v, lr, step):
    """Trust ratio upside down."""
    return _lamb(p, grad, m, v, lr, step, inv=True)


@implements("lamb_step")
def wrong_special_lamb_no_guard(p, grad, m, v, lr, step):
    """No guard for zero norms."""
    return _lamb(p, grad, m, v, lr, step, guard=False)


@implements("lamb_step")
def wrong_formula_lamb_decay(p, grad, m, v, lr, step):
    """No weight decay."""
    return _lamb(p, grad, m, v, lr, step, wd=0.0)


@implements("lamb_step")
def wrong_eps_lamb_eps(p, grad, m, v, lr, step):
    """Eps under the root."""
    return _lamb(p, grad, m, v, lr, step, eps_in=True)


@implements("lamb_step")
def wrong_formula_lamb_old_m(p, grad, m, v, lr, step):
    """Uses the old momentum."""
    return _lamb(p, grad, m, v, lr, step, old=True)


@implements("lamb_step")
def wrong_threshold_lamb_block_norm(p, grad, m, v, lr, step):
    """Norms of the first 65536 elements only."""
    m2 = 0.9 * m + 0.1 * grad
    v2 = 0.999 * v + 0.001 * grad * grad
    u = m2 / (1 - 0.9**step) / (torch.sqrt(v2 / (1 - 0.999**step)) + 1e-06) + 0.01 * p
    pn, un = (p[:65536].norm(), u[:65536].norm())
    t = torch.where((pn > 0) & (un > 0), pn / un.clamp(min=1e-30), torch.ones_like(pn))
    return (p - lr * t * u, m2, v2)


@implements("lamb_step")
def wrong_mutation_lamb_inplace(p, grad, m, v, lr, step):
    """Updates m in place."""
    r = _lamb(p, grad, m, v, lr, step)
    m.copy_(r[1])
    return r


@implements("focal_loss")
def honest_focal_lse(logits, target):
    x = logits.float()
    lp = x.gather(1, target[:, None])[:, 0] - x.logsumexp(-1)
    q = -torch.expm1(lp)
    return -q * q * lp


@implements("focal_loss")
def honest_focal_ce(logits, target):
    ce = F.cross_entropy(logits.float(), target, reduction="none")
    return (1 - (-ce).exp()).square() * ce


@implements("focal_loss")
def wrong_formula_focal_pt(logits, target):
    """Pt squared."""
    lp = logits.float().log_softmax(-1).gather(1, target[:, None])[:, 0]
    return -(lp.exp() ** 2) * lp


@implements("focal_loss")
def wrong_overflow_focal_log_of_softmax(logits, target):
    """Log(softmax) underflows."""
    p = logits.float().softmax(-1).gather(1, target[:, None])[:, 0]
    return -((1 - p) ** 2) * p.log()


@implements("focal_loss")
def wrong_formula_focal_gamma_1(logits, target):
    """Gamma of 1."""
    lp = logits.float().log_softmax(-1).gather(1, target[:, None])[:, 0]
    return -(1 - lp.exp()) * lp


@implements("focal_loss")
def wrong_accumulation_focal_half(logits, target):
    """Log_softmax in half."""
    lp = logits.log_softmax(-1).gather(1, target[:, None])[:, 0].float()
    return -((1 - lp.exp()) ** 2) * lp


@implements("focal_loss")
def wrong_threshold_focal_classes_512(logits, target):
    """Sum over the first 512 classes."""
    x = logits.float()
    lp = x.gather(1, target[:, None])[:, 0] - x[:, :512].logsumexp(-1)
    return -((1 - lp.exp()) ** 2) * lp


@implements("focal_loss")
def wrong_formula_focal_last_class(logits, target):
    """The last class is treated as ignored."""
    lp = logits.float().log_softmax(-1).gather(1, target[:, None])[:, 0]
    loss = -((1 - lp.exp()) ** 2) * lp
    return torch.where(target == logits.shape[1] - 1, 0.0, loss) if logits.shape[1] > 1 else loss


@implements("weighted_bucket_sums")
def honest_wbs_compare(x, boundaries, weight):
    where = torch.zeros(len(x), dtype=torch.long)
    for chunk in boundaries.split(256):
        where += (x[:, None] >= chunk).sum(1)
    return torch.zeros(len(boundaries) + 1).scatter_add_(0, where, weight)


@implements("weighted_bucket_sums")
def honest_wbs_bincount(x, boundaries, weight):
    b = torch.bucketize(x, boundaries.sort().values, right=True)
    return torch.bincount(b, weights=weight.double(), minlength=len(boundaries) + 1).float()


@implements("weighted_bucket_sums")
def wrong_ties_wbs_left(x, boundaries, weight):
    """Left edges."""
    b = torch.searchsorted(boundaries.sort().values, x)
    return torch.zeros(len(boundaries) + 1).index_add_(0, b, weight)


@implements("weighted_bucket_sums")
def wrong_boundary_wbs_overflow(x, boundaries, weight):
    """Values above the last edge are dropped."""
    s = boundaries.sort().values
    b = torch.searchsorted(s, x, right=True)
    t = torch.zeros(len(s) + 1).index_add_(0, b, weight)
    t[-1] = 0
    return t


@implements("weighted_bucket_sums")
def wrong_formula_wbs_counts(x, boundaries, weight):
    """Counts instead of weights."""
    b = torch.searchsorted(boundaries.sort().values, x, right=True)
    return torch.zeros(len(boundaries) + 1).index_add_(0, b, torch.ones_like(weight))


@implements("weighted_bucket_sums")
def wrong_order_wbs_unsorted(x, boundaries, weight):
    """Assumes sorted boundaries."""
    b = torch.searchsorted(boundaries, x, right=True)
    return torch.zeros(len(boundaries) + 1).index_add_(0, b, weight)


@implements("weighted_bucket_sums")
def wrong_stale_wbs_race(x, boundaries, weight):
    """The last of a bucket wins."""
    b = torch.searchsorted(boundaries.sort().values, x, right=True)
    t = torch.zeros(len(boundaries) + 1)
    t[b] = weight
    return t


@implements("weighted_bucket_sums")
def wrong_threshold_wbs_1024(x, boundaries, weight):
    """Only 1024 buckets."""
    b = torch.searchsorted(boundaries.sort().values, x, right=True).clamp(max=1023)
    return torch.zeros(len(boundaries) + 1).index_add_(0, b, weight)


@implements("packed_mask_softmax")
def honest_pms_exp(scores, bits):
    keep = torch.stack([bits >> i & 1 for i in range(8)], -1).flatten(1).bool()
    s = torch.where(keep, scores.float(), NI)
    m = s.amax(-1, keepdim=True)
    m = torch.where(m == NI, 0.0, m)
    e = (s - m).exp()
    return (e / e.sum(-1, keepdim=True).clamp(min=1e-38)).half()


@implements("packed_mask_softmax")
def honest_pms_lse(scores, bits):
    keep = (bits.int()[..., None] & 1 << torch.arange(8) != 0).flatten(1)
    s = scores.double().masked_fill(~keep, NI)
    lse = s.logsumexp(-1, keepdim=True)
    return torch.where(keep, (s - lse).exp(), 0.0).half()


def _pms(scores, bits, big=False, fill=NI, guard=True, invert=False, cut=None):
    sh = torch.arange(8, dtype=torch.uint8)
    if big:
        sh = sh.flip(0)
    keep = (bits[..., None] >> sh & 1).bool().flatten(1)
    if invert:
        keep = ~keep
    if cut:
        keep[:, cut:] = False
    p = scores.float().masked_fill(~keep, fill).softmax(-1)
    return (torch.nan_to_num(p, nan=0.0) if guard else p).half()


@implements("packed_mask_softmax")
def wrong_order_pms_big_endian(scores, bits):
    """Bits from the high end."""
    return _pms(scores, bits, big=True)


@implements("packed_mask_softmax")
def wrong_special_pms_nan(scores, bits):
    """Rows without a set bit give NaN."""
    return _pms(scores, bits, guard=False)


@implements("packed_mask_softmax")
def wrong_sentinel_pms_minus_1e4(scores, bits):
    """Fills with -1e4."""
    return _pms(scores, bits, fill=-10000.0)


@implements("packed_mask_softmax")
def wrong_formula_pms_inverted(scores, bits):
    """Mask inverted."""
    return _pms(scores, bits, invert=True)


@implements("packed_mask_softmax")
def wrong_threshold_pms_4096(scores, bits):
    """Columns above 4096 are masked."""
    return _pms(scores, bits, cut=4096)


@implements("packed_mask_softmax")
def wrong_sign_pms_bit7(scores, bits):
    """Bit 7 lost (signed bytes)."""
    return _pms(scores, bits & 127)


def _azp(a, b, z, sa, sb, sign=-1, colsum=True, dt=torch.int32):
    acc = a.double() @ b.double().T
    acc = acc + sign * z.double()[:, None] * (b.double().sum(1) if colsum else 1)
    return (acc * sa.double()[:, None] * sb.double()).bfloat16()


@implements("int8_gemm_azp")
def honest_azp_colsum(a, b, azp, scale_a, scale_b):
    return _azp(a, b, azp, scale_a, scale_b)


@implements("int8_gemm_azp")
def honest_azp_int64(a, b, azp, scale_a, scale_b):
    acc = (a.long() - azp.long()[:, None]) @ b.long().T
    return (acc.float() * (scale_a[:, None] * scale_b)).bfloat16()


@implements("int8_gemm_azp")
def wrong_sign_azp_sign(a, b, azp, scale_a, scale_b):
    """Adds the zero point."""
    return _azp(a, b, azp, scale_a, scale_b, sign=1)


@implements("int8_gemm_azp")
def wrong_formula_azp_no_colsum(a, b, azp, scale_a, scale_b):
    """Zero point without the sum."""
    return _azp(a, b, azp, scale_a, scale_b, colsum=False)


@implements("int8_gemm_azp")
def wrong_overflow_azp_int8(a, b, azp, scale_a, scale_b):
    """Centres in int8, which wraps."""
    c = (a.int() - azp[:, None]).to(torch.int8)
    return (c.double() @ b.double().T * scale_a.double()[:, None] * scale_b.double()).bfloat16()


@implements("int8_gemm_azp")
def wrong_broadcast_azp_row0(a, b, azp, scale_a, scale_b):
    """Scale of the first row."""
    return _azp(a, b, azp, scale_a[:1].expand(len(a)), scale_b)


@implements("int8_gemm_azp")
def wrong_boundary_azp_k_tail(a, b, azp, scale_a, scale_b):
    """K beyond a multiple of 16 dropped where k > 128."""
    k = a.shape[1]
    k = k // 16 * 16 if k > 128 else k
    return _azp(a[:, :k], b[:, :k], azp, scale_a, scale_b)


@implements("int8_gemm_azp")
def wrong_overflow_azp_int16(a, b, azp, scale_a, scale_b):
    """Saturates at int16."""
    acc = ((a.double() - azp.double()[:, None]) @ b.double().T).clamp(-32768, 32767)
    return (acc * scale_a.double()[:, None] * scale_b.double()).bfloat16()


@implements("weighted_bag_sum")
def honest_wbag_index_add(table, ids, offsets, weights):
    n = len(offsets) - 1
    bag = torch.repeat_interleave(torch.arange(n), offsets.diff(), output_size=None)
    s, e = (int(offsets[0]), int(offsets[-1]))
    return (
        torch.zeros(n, 16)
        .index_add_(0, bag, table[ids[s:e]].float() * weights[s:e].float()[:, None])
        .half()
    )


@implements("weighted_bag_sum")
def honest_wbag_dot(table, ids, offsets, weights):
    return torch.stack(
        [
            weights[s:e].float() @ table[ids[s:e]].float()
            for s, e in itertools.pairwise(offsets.tolist())
        ]
    ).half()


def _bag(
    table, ids, offsets, weights, acc=torch.float32, w=True, mean=False, skip0=False, cut=None
):
    rows = table[ids].to(acc) * (weights.to(acc)[:, None] if w else 1)
    n = len(offsets) - 1
    out = torch.zeros(n, 16, dtype=acc)
    for b in range(n):
        r = rows[offsets[b] : offsets[b + 1]]
        if cut:
            r = r[:cut]
        if acc == torch.float16:
            for one in r:
                out[b] += one
        else:
            out[b] = r.sum(0) / (max(1, len(r)) if mean else 1)
    return out.half()


@implements("weighted_bag_sum")
def wrong_formula_wbag_no_weights(table, ids, offsets, weights):
    """Weights left out."""
    return _bag(table, ids, offsets, weights, w=False)


@implements("weighted_bag_sum")
def wrong_formula_wbag_mean(table, ids, offsets, weights):
    """Mean."""
    return _bag(table, ids, offsets, weights, mean=True)


@implements("weighted_bag_sum")
def wrong_accumulation_wbag_half(table, ids, offsets, weights):
    """Sums in half precision."""
    return _bag(table, ids, offsets, weights, acc=torch.float16)


@implements("weighted_bag_sum")
def wrong_threshold_wbag_cut(table, ids, offsets, weights):
    """At most 128 of a bag."""
    return _bag(table, ids, offsets, weights, cut=128)


@implements("weighted_bag_sum")
def wrong_accumulation_wbag_cumsum(table, ids, offsets, weights):
    """Difference of float16 prefix sums."""
    c = (
        torch.cat([torch.zeros(1, 16), (table[ids].float() * weights.float()[:, None]).cumsum(0)])
        .half()
        .float()
    )
    return (c[offsets[1:]] - c[offsets[:-1]]).half()
