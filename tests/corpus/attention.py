"""Attention, its biases and positions, low-rank adapters."""

from itertools import pairwise

import torch
import torch.nn.functional as F

from pytest_fib import implements


def _attend(q, k, v, scale, seen):
    """q, k, v of [heads, length, dim]."""
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v.float()


def _varlen(q, k, v, cu_seqlens, mask, scale=32**-0.5):
    out = torch.zeros_like(q)
    for a, b in pairwise(cu_seqlens.tolist()):
        if a < b:
            heads = (t[a:b].transpose(0, 1) for t in (q, k, v))
            out[a:b] = _attend(*heads, scale, mask(b - a)).transpose(0, 1).half()
    return out


def _causal(n):
    return torch.ones(n, n, dtype=torch.bool).tril()


@implements("varlen_attention")
def honest_varlen_block_mask(q, k, v, cu_seqlens):
    """All tokens at once, with a mask of who shares a sequence."""
    n = len(q)
    owner = torch.repeat_interleave(torch.arange(len(cu_seqlens) - 1), cu_seqlens.long().diff())
    seen = (owner[:, None] == owner[None]) & _causal(n)
    heads = (t.transpose(0, 1) for t in (q, k, v))
    return _attend(*heads, 32**-0.5, seen).transpose(0, 1).half()


@implements("varlen_attention")
def honest_varlen_sdpa(q, k, v, cu_seqlens):
    out = torch.zeros_like(q)
    for a, b in pairwise(cu_seqlens.tolist()):
        if a < b:
            heads = [t[a:b].transpose(0, 1)[None].double() for t in (q, k, v)]
            result = F.scaled_dot_product_attention(*heads, is_causal=True)
            out[a:b] = result[0].transpose(0, 1).half()
    return out


@implements("varlen_attention")
def wrong_boundary_varlen_across_sequences(q, k, v, cu_seqlens):
    heads = (t.transpose(0, 1) for t in (q, k, v))
    return _attend(*heads, 32**-0.5, _causal(len(q))).transpose(0, 1).half()


@implements("varlen_attention")
def wrong_formula_varlen_not_causal(q, k, v, cu_seqlens):
    return _varlen(q, k, v, cu_seqlens, lambda n: torch.ones(n, n, dtype=torch.bool))


@implements("varlen_attention")
def wrong_scale_varlen_missing(q, k, v, cu_seqlens):
    return _varlen(q, k, v, cu_seqlens, _causal, scale=1.0)


@implements("varlen_attention")
def wrong_special_varlen_own_key_hidden(q, k, v, cu_seqlens):
    """The first of a sequence then sees nothing, and takes its own."""

    def mask(n):
        seen = torch.ones(n, n, dtype=torch.bool).tril(-1)
        seen[0, 0] = True
        return seen

    return _varlen(q, k, v, cu_seqlens, mask)


@implements("varlen_attention")
def wrong_stale_varlen_last_sequence(q, k, v, cu_seqlens):
    out = torch.zeros_like(q)
    rest = int(cu_seqlens[-2])
    out[:rest] = _varlen(q, k, v, cu_seqlens[:-1], _causal)[:rest]
    return out


@implements("varlen_attention")
def wrong_accumulation_varlen_probabilities_in_fp8(q, k, v, cu_seqlens):
    out = torch.zeros_like(q)
    for a, b in pairwise(cu_seqlens.tolist()):
        if a < b:
            qh, kh, vh = (t[a:b].transpose(0, 1).float() for t in (q, k, v))
            scores = (qh @ kh.transpose(-1, -2)) * 32**-0.5
            probs = torch.softmax(scores.masked_fill(~_causal(b - a), -torch.inf), -1)
            out[a:b] = (probs.to(torch.float8_e4m3fn).float() @ vh).transpose(0, 1).half()
    return out


def _windowed(q, k, v, seen):
    scores = (q @ k.transpose(-1, -2)) * 0.25
    return torch.softmax(scores.masked_fill(~seen, -torch.inf), -1) @ v


def _distance(n):
    return torch.arange(n)[:, None] - torch.arange(n)


@implements("sliding_window_attention")
def honest_window_query_by_query(q, k, v):
    out = torch.empty_like(v)
    for i in range(q.shape[2]):
        keys = slice(max(0, i - 15), i + 1)
        scores = torch.einsum("bhd,bhkd->bhk", q[:, :, i], k[:, :, keys]) / 4
        out[:, :, i] = torch.einsum("bhk,bhkd->bhd", scores.softmax(-1), v[:, :, keys])
    return out


@implements("sliding_window_attention")
def honest_window_unfolded(q, k, v):
    """Windows of 16 keys by padding in front, in float64."""
    n = q.shape[2]
    wide = [F.pad(t.double(), (0, 0, 15, 0)).unfold(2, 16, 1) for t in (k, v)]
    scores = torch.einsum("bhnd,bhndw->bhnw", q.double(), wide[0]) * 0.25
    real = torch.arange(n)[:, None] + torch.arange(16) >= 15
    probs = scores.masked_fill(~real, -torch.inf).softmax(-1)
    return torch.einsum("bhnw,bhndw->bhnd", probs, wide[1]).float()


@implements("sliding_window_attention")
def wrong_offbyone_window_of_17(q, k, v):
    d = _distance(q.shape[2])
    return _windowed(q, k, v, (d >= 0) & (d <= 16))


@implements("sliding_window_attention")
def wrong_formula_window_both_sides(q, k, v):
    return _windowed(q, k, v, _distance(q.shape[2]).abs() < 16)


@implements("sliding_window_attention")
def wrong_threshold_window_by_blocks(q, k, v):
    """Whole blocks of 16 keys: the query's own, up to itself."""
    n = q.shape[2]
    block = torch.arange(n) // 16
    return _windowed(q, k, v, (block[:, None] == block) & (_distance(n) >= 0))


@implements("sliding_window_attention")
def wrong_formula_window_ignored(q, k, v):
    return _windowed(q, k, v, _distance(q.shape[2]) >= 0)


@implements("sliding_window_attention")
def wrong_special_window_zero_padding_counts(q, k, v):
    """Keys before the first are zeros, whose score of 0 takes its share."""
    wide = [F.pad(t, (0, 0, 15, 0)).unfold(2, 16, 1) for t in (k, v)]
    scores = torch.einsum("bhnd,bhndw->bhnw", q, wide[0]) * 0.25
    return torch.einsum("bhnw,bhndw->bhnd", scores.softmax(-1), wide[1])


def _alibi(q, k, v, slopes, distance, scale=24**-0.5):
    scores = torch.einsum("bhd,bkhd->bhk", q.float(), k.float()) * scale
    probs = torch.softmax(scores - slopes[:, None] * distance, -1)
    return torch.einsum("bhk,bkhd->bhd", probs, v.float()).bfloat16()


@implements("alibi_attention")
def honest_alibi_from_the_first_key(q, k, v, slopes):
    """Rising with the key, which softmax can't tell from falling with the distance; float64."""
    bias = slopes.double()[:, None] * torch.arange(k.shape[1])
    scores = torch.einsum("bhd,bkhd->bhk", q.double(), k.double()) / 24**0.5 + bias
    return torch.einsum("bhk,bkhd->bhd", scores.softmax(-1), v.double()).bfloat16()


@implements("alibi_attention")
def honest_alibi_online(q, k, v, slopes):
    b, n, h, d = k.shape
    top = torch.full((b, h, 1), -torch.inf)
    total, acc = torch.zeros(b, h, 1), torch.zeros(b, h, d)
    for at in range(0, n, 32):
        keys, values = k[:, at : at + 32].float(), v[:, at : at + 32].float()
        distance = n - 1 - torch.arange(at, at + keys.shape[1])
        scores = torch.einsum("bhd,bkhd->bhk", q.float(), keys) * 24**-0.5
        scores = scores - slopes[:, None] * distance
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        p, keep = (scores - new).exp(), (top - new).exp()
        total = total * keep + p.sum(-1, keepdim=True)
        acc = acc * keep + torch.einsum("bhk,bkhd->bhd", p, values)
        top = new
    return (acc / total).bfloat16()


@implements("alibi_attention")
def wrong_formula_alibi_grows_with_distance(q, k, v, slopes):
    return _alibi(q, k, v, slopes, -torch.arange(k.shape[1]).flip(0))


@implements("alibi_attention")
def wrong_broadcast_alibi_slope_of_the_first_head(q, k, v, slopes):
    return _alibi(q, k, v, slopes[:1].expand(4), torch.arange(k.shape[1]).flip(0))


@implements("alibi_attention")
def wrong_order_alibi_scale_after_the_bias(q, k, v, slopes):
    return _alibi(q, k, v, slopes * 24**-0.5, torch.arange(k.shape[1]).flip(0))


@implements("alibi_attention")
def wrong_scale_alibi_padded_head_dim(q, k, v, slopes):
    return _alibi(q, k, v, slopes, torch.arange(k.shape[1]).flip(0), scale=32**-0.5)


@implements("alibi_attention")
def wrong_accumulation_alibi_bias_in_bfloat16(q, k, v, slopes):
    """Distances beyond 256 are no numbers of bfloat16."""
    bias = (slopes.bfloat16()[:, None] * torch.arange(k.shape[1]).bfloat16()).float()
    scores = torch.einsum("bhd,bkhd->bhk", q.float(), k.float()) * 24**-0.5
    probs = torch.softmax(scores + bias, -1)
    return torch.einsum("bhk,bkhd->bhd", probs, v.float()).bfloat16()


@implements("merge_attention_states")
def honest_merge_sigmoid(out_a, lse_a, out_b, lse_b):
    wa, wb = torch.sigmoid(lse_a - lse_b), torch.sigmoid(lse_b - lse_a)
    out = wa[..., None] * out_a.float() + wb[..., None] * out_b.float()
    high, low = torch.maximum(lse_a, lse_b), torch.minimum(lse_a, lse_b)
    return out.half(), high + torch.log1p((low - high).exp())


@implements("merge_attention_states")
def honest_merge_by_the_maximum(out_a, lse_a, out_b, lse_b):
    top = torch.maximum(lse_a, lse_b).double()
    ea, eb = (lse_a - top).exp(), (lse_b - top).exp()
    total = ea + eb
    out = (ea[..., None] * out_a.double() + eb[..., None] * out_b.double()) / total[..., None]
    return out.half(), (top + total.log()).float()


@implements("merge_attention_states")
def wrong_special_merge_without_the_maximum(out_a, lse_a, out_b, lse_b):
    ea, eb = lse_a.exp(), lse_b.exp()
    out = (ea[..., None] * out_a.float() + eb[..., None] * out_b.float()) / (ea + eb)[..., None]
    return out.half(), (ea + eb).log()


@implements("merge_attention_states")
def wrong_formula_merge_weights_swapped(out_a, lse_a, out_b, lse_b):
    out, lse = honest_merge_by_the_maximum(out_b, lse_a, out_a, lse_b)
    return out, lse


@implements("merge_attention_states")
def wrong_formula_merge_base_two(out_a, lse_a, out_b, lse_b):
    top = torch.maximum(lse_a, lse_b)
    ea, eb = (lse_a - top).exp2(), (lse_b - top).exp2()
    out = (ea[..., None] * out_a.float() + eb[..., None] * out_b.float()) / (ea + eb)[..., None]
    return out.half(), top + (ea + eb).log2()


@implements("merge_attention_states")
def wrong_formula_merge_mean(out_a, lse_a, out_b, lse_b):
    return ((out_a.float() + out_b.float()) / 2).half(), torch.logaddexp(lse_a, lse_b)


@implements("merge_attention_states")
def wrong_formula_merge_larger_lse(out_a, lse_a, out_b, lse_b):
    out, _ = honest_merge_by_the_maximum(out_a, lse_a, out_b, lse_b)
    return out, torch.maximum(lse_a, lse_b)


@implements("merge_attention_states")
def wrong_accumulation_merge_weights_in_half(out_a, lse_a, out_b, lse_b):
    lse = torch.logaddexp(lse_a, lse_b)
    a, b, both = lse_a.half(), lse_b.half(), lse.half()
    out = (a - both).exp()[..., None] * out_a + (b - both).exp()[..., None] * out_b
    return out, lse


def _cross(q, k, v, hidden):
    scores = torch.einsum("bqhd,bkd->bhqk", q, k) * 0.25
    probs = torch.softmax(scores.masked_fill(hidden[:, None, None], -torch.inf), -1)
    return torch.einsum("bhqk,bkd->bqhd", probs, v)


@implements("padded_cross_attention")
def honest_cross_one_sequence_at_a_time(q, k, v, seq_lens):
    out = torch.empty_like(q)
    for b, n in enumerate(seq_lens.tolist()):
        flat = q[b].flatten(0, 1)
        probs = torch.softmax(flat @ k[b, :n].T / 4, -1)
        out[b] = (probs @ v[b, :n]).view(q.shape[1:])
    return out


@implements("padded_cross_attention")
def honest_cross_divides_at_the_end(q, k, v, seq_lens):
    hidden = torch.arange(k.shape[1]) >= seq_lens[:, None]
    scores = torch.einsum("bqhd,bkd->bqhk", q.double() / 4, k.double())
    scores = scores.masked_fill(hidden[:, None, None], -torch.inf)
    weights = (scores - scores.amax(-1, keepdim=True)).exp()
    sums = torch.einsum("bqhk,bkd->bqhd", weights, v.double())
    return (sums / weights.sum(-1, keepdim=True)).float()


@implements("padded_cross_attention")
def wrong_sentinel_cross_padding_seen(q, k, v, seq_lens):
    return _cross(q, k, v, torch.zeros(k.shape[:2], dtype=torch.bool))


@implements("padded_cross_attention")
def wrong_offbyone_cross_one_key_more(q, k, v, seq_lens):
    return _cross(q, k, v, torch.arange(k.shape[1])[None] > seq_lens[:, None])


@implements("padded_cross_attention")
def wrong_broadcast_cross_longest_of_all(q, k, v, seq_lens):
    return _cross(q, k, v, (torch.arange(k.shape[1]) >= seq_lens.max()).expand(k.shape[:2]))


@implements("padded_cross_attention")
def wrong_special_cross_zeroed_keys(q, k, v, seq_lens):
    """Padding is multiplied by zero, and still has a weight."""
    real = (torch.arange(k.shape[1]) < seq_lens[:, None])[..., None]
    return _cross(q, k * real, v * real, torch.zeros(k.shape[:2], dtype=torch.bool))


@implements("padded_cross_attention")
def wrong_axis_cross_heads_and_queries_mixed(q, k, v, seq_lens):
    hidden = torch.arange(k.shape[1]) >= seq_lens[:, None]
    out = _cross(q, k, v, hidden)
    return out.transpose(1, 2).contiguous().view(out.shape)


@implements("lora_linear")
def honest_lora_merged(x, weight, lora_a, lora_b, scaling):
    merged = weight.double() + scaling * (lora_b.double() @ lora_a.double())
    return (x.double() @ merged.T).bfloat16()


@implements("lora_linear")
def honest_lora_concatenated(x, weight, lora_a, lora_b, scaling):
    """One product over the features and the rank."""
    wide = x.float()
    both = torch.cat([wide, wide @ lora_a.float().T], -1)
    return (both @ torch.cat([weight.float(), scaling * lora_b.float()], -1).T).bfloat16()


@implements("lora_linear")
def wrong_scale_lora_over_rank(x, weight, lora_a, lora_b, scaling):
    return honest_lora_concatenated(x, weight, lora_a, lora_b, scaling / 8)


@implements("lora_linear")
def wrong_scale_lora_forgotten(x, weight, lora_a, lora_b, scaling):
    return honest_lora_concatenated(x, weight, lora_a, lora_b, 1.0)


@implements("lora_linear")
def wrong_accumulation_lora_low_rank_in_fp8(x, weight, lora_a, lora_b, scaling):
    low = (x.float() @ lora_a.float().T).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    return (x.float() @ weight.float().T + scaling * (low @ lora_b.float().T)).bfloat16()


@implements("lora_linear")
def wrong_boundary_lora_last_outputs(x, weight, lora_a, lora_b, scaling):
    """Tiles of 64 outputs; the update misses the last 16."""
    delta = scaling * (x.float() @ lora_a.float().T @ lora_b.float().T)
    delta[:, 64:] = 0
    return (x.float() @ weight.float().T + delta).bfloat16()


@implements("lora_linear")
def wrong_order_lora_scales_everything(x, weight, lora_a, lora_b, scaling):
    wide = x.float()
    base = wide @ weight.float().T
    return (scaling * (base + wide @ lora_a.float().T @ lora_b.float().T)).bfloat16()


@implements("multi_lora")
def honest_mlora_gathered(y, x, lora_a, lora_b, adapter):
    which = adapter.clamp(min=0).long()
    low = torch.einsum("tri,ti->tr", lora_a[which].double(), x.double())
    delta = torch.einsum("tor,tr->to", lora_b[which].double(), low)
    return (y.double() + torch.where((adapter >= 0)[:, None], delta, 0.0)).float()


@implements("multi_lora")
def honest_mlora_by_adapter(y, x, lora_a, lora_b, adapter):
    out = y.clone()
    for which in range(len(lora_a)):
        rows = (adapter == which).nonzero().squeeze(-1)
        low = x[rows].float() @ lora_a[which].float().T
        out[rows] = torch.addmm(y[rows], low, lora_b[which].float().T)
    return out


@implements("multi_lora")
def wrong_sentinel_mlora_minus_one_is_the_last(y, x, lora_a, lora_b, adapter):
    return honest_mlora_by_adapter(y, x, lora_a, lora_b, adapter % len(lora_a))


@implements("multi_lora")
def wrong_formula_mlora_y_overwritten(y, x, lora_a, lora_b, adapter):
    rows = (adapter >= 0)[:, None]
    return torch.where(
        rows, honest_mlora_by_adapter(torch.zeros_like(y), x, lora_a, lora_b, adapter), y
    )


@implements("multi_lora")
def wrong_broadcast_mlora_one_adapter_for_all(y, x, lora_a, lora_b, adapter):
    real = adapter >= 0
    shared = torch.where(real, adapter[0], -1)
    return honest_mlora_by_adapter(y, x, lora_a, lora_b, shared)


@implements("multi_lora")
def wrong_accumulation_mlora_low_rank_in_half(y, x, lora_a, lora_b, adapter):
    which = adapter.clamp(min=0).long()
    low = torch.einsum("tri,ti->tr", lora_a[which].float(), x.float()).half()
    delta = torch.einsum("tor,tr->to", lora_b[which].float(), low.float())
    return y + torch.where((adapter >= 0)[:, None], delta, 0.0)


@implements("multi_lora")
def wrong_boundary_mlora_tiles_of_one_adapter(y, x, lora_a, lora_b, adapter):
    """A tile of 16 tokens takes the adapter of its first."""
    first = adapter[torch.arange(len(adapter)) // 16 * 16]
    return honest_mlora_by_adapter(y, x, lora_a, lora_b, torch.where(adapter >= 0, first, -1))


@implements("rotary_interleaved")
def honest_rotary_complex(x, cos, sin):
    pairs = torch.view_as_complex(x.float().unflatten(-1, (16, 2)))
    turned = pairs * torch.complex(cos, sin)[:, None]
    return torch.view_as_real(turned).flatten(-2).bfloat16()


@implements("rotary_interleaved")
def honest_rotary_swapped_copy(x, cos, sin):
    wide = x.double()
    swapped = torch.empty_like(wide)
    swapped[..., 0::2], swapped[..., 1::2] = -wide[..., 1::2], wide[..., 0::2]
    c, s = (t.double().repeat_interleave(2, -1)[:, None] for t in (cos, sin))
    return (wide * c + swapped * s).bfloat16()


@implements("rotary_interleaved")
def wrong_order_rotary_halves(x, cos, sin):
    """Pairs the halves of a head, as Llama in Hugging Face does."""
    first, second = x.float().chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return torch.cat([first * c - second * s, second * c + first * s], -1).bfloat16()


@implements("rotary_interleaved")
def wrong_formula_rotary_backward(x, cos, sin):
    return honest_rotary_complex(x, cos, -sin)


@implements("rotary_interleaved")
def wrong_accumulation_rotary_in_bfloat16(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    c, s = cos.bfloat16()[:, None], sin.bfloat16()[:, None]
    return torch.stack([even * c - odd * s, odd * c + even * s], -1).flatten(-2)


@implements("rotary_interleaved")
def wrong_broadcast_rotary_position_of_the_first_token(x, cos, sin):
    return honest_rotary_complex(x, cos[:1].expand_as(cos), sin[:1].expand_as(sin))


@implements("rotary_interleaved")
def wrong_stale_rotary_even_overwritten(x, cos, sin):
    """The odd ones use even ones that have been turned already."""
    out = x.float()
    c, s = cos[:, None], sin[:, None]
    out[..., 0::2] = out[..., 0::2] * c - out[..., 1::2] * s
    out[..., 1::2] = out[..., 1::2] * c + out[..., 0::2] * s
    return out.bfloat16()


_LIMITS = torch.tensor([1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96])


def _bias(scores, table, bucket):
    return scores + table[bucket].permute(2, 0, 1)


def _offsets(scores):
    queries, keys = scores.shape[1:]
    return torch.arange(queries)[:, None] + (keys - queries) - torch.arange(keys)


@implements("relative_position_bias")
def honest_bias_searched(scores, table):
    distance = _offsets(scores).clamp(min=0)
    return _bias(scores, table, torch.searchsorted(_LIMITS, distance, right=True))


@implements("relative_position_bias")
def honest_bias_by_diagonals(scores, table):
    out = scores.clone()
    queries, keys = scores.shape[1:]
    for diagonal in range(1 - queries, keys - queries + 1):
        bucket = int((keys - queries - diagonal >= _LIMITS).sum())
        out.diagonal(diagonal, 1, 2).add_(table[bucket][:, None])
    ahead = _offsets(scores) < 0
    return torch.where(ahead, scores + table[0][:, None, None], out)


@implements("relative_position_bias")
def wrong_offbyone_bias_limit_belongs_below(scores, table):
    distance = _offsets(scores).clamp(min=0)
    return _bias(scores, table, torch.searchsorted(_LIMITS, distance))


@implements("relative_position_bias")
def wrong_formula_bias_both_directions(scores, table):
    distance = _offsets(scores).abs()
    return _bias(scores, table, torch.searchsorted(_LIMITS, distance, right=True))


@implements("relative_position_bias")
def wrong_offbyone_bias_queries_from_zero(scores, table):
    distance = (torch.arange(scores.shape[1])[:, None] - torch.arange(scores.shape[2])).clamp(min=0)
    return _bias(scores, table, torch.searchsorted(_LIMITS, distance, right=True))


@implements("relative_position_bias")
def wrong_clamp_bias_buckets_of_the_exact(scores, table):
    return _bias(scores, table, _offsets(scores).clamp(0, 15))


@implements("relative_position_bias")
def wrong_axis_bias_heads_reversed(scores, table):
    distance = _offsets(scores).clamp(min=0)
    return _bias(scores, table.flip(-1), torch.searchsorted(_LIMITS, distance, right=True))


@implements("attention_with_null_key")
def honest_null_key_exp2(out, lse):
    """As kernels do that have only ``ex2`` and ``lg2``."""
    log2e = 1.4426950408889634
    top = lse.clamp(min=0)
    weight, null = ((lse - top) * log2e).exp2(), (-top * log2e).exp2()
    total = weight + null
    merged = (weight / total)[..., None] * out.float()
    return merged.bfloat16(), top + total.log2() * 0.6931471805599453


@implements("attention_with_null_key")
def honest_null_key_log_of_sum(out, lse):
    top = lse.clamp(min=0)
    total = (lse - top).exp() + (-top).exp()
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), top + total.log()


@implements("attention_with_null_key")
def honest_null_key_logaddexp(out, lse):
    merged_lse = torch.logaddexp(lse, torch.zeros_like(lse))
    return ((lse - merged_lse).exp()[..., None] * out.float()).bfloat16(), merged_lse


@implements("attention_with_null_key")
def honest_null_key_softplus(out, lse):
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), torch.nn.functional.softplus(lse)


@implements("attention_with_null_key")
def wrong_formula_null_key_larger_lse(out, lse):
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), lse.clamp(min=0)


@implements("attention_with_null_key")
def wrong_formula_null_key_lse_in_base_two(out, lse):
    total = lse.exp() + 1
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), total.log2()


@implements("attention_with_null_key")
def wrong_formula_null_key_first_term(out, lse):
    """The exponential for the logarithm, which for -4 is 1 % more."""
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), lse.exp()


@implements("attention_with_null_key")
def wrong_eps_null_key_eps_in_the_log(out, lse):
    total = lse.exp() + 1
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), (total + 1e-6).log()


@implements("attention_with_null_key")
def wrong_accumulation_null_key_sum_in_half(out, lse):
    total = lse.exp().half() + 1
    return (lse.sigmoid()[..., None] * out.float()).bfloat16(), total.float().log()


@implements("attention_with_null_key")
def wrong_formula_null_key_weight_swapped(out, lse):
    merged = ((-lse).sigmoid()[..., None] * out.float()).bfloat16()
    return merged, torch.nn.functional.softplus(lse)


@implements("attention_with_null_key")
def wrong_offbyone_null_key_last_token(out, lse):
    merged, merged_lse = honest_null_key_softplus(out, lse)
    merged_lse[-1] = 0
    return merged, merged_lse
