"""Caches and attention of engines: chunks, latent keys, slots, rings, rows chosen beforehand."""

import torch

from pytest_fib import implements

NI = float("-inf")
F8 = torch.float8_e4m3fn


def _chunked(q, k, v, heads=None, back=0, scores=torch.float32):
    heads = heads if heads is not None else torch.arange(8) // 4
    out = torch.empty_like(q)
    for start in range(0, q.shape[0], 64):
        end, first = min(start + 64, q.shape[0]), max(start - back, 0)
        keep = torch.arange(first, end) <= torch.arange(start, end)[:, None]
        keys, values = (each[first:end].float()[:, heads] for each in (k, v))
        s = torch.einsum("ihd,jhd->hij", q[start:end].float(), keys) * 32**-0.5
        p = s.to(scores).float().masked_fill(~keep, NI).softmax(-1)
        out[start:end] = torch.einsum("hij,jhd->ihd", p, values).to(q.dtype)
    return out


def _chunked_online(q, k, v, rescale=True):
    """Key tiles of 16 rows, probabilities as matrix units want them."""
    out = torch.empty_like(q)
    for start in range(0, q.shape[0], 64):
        end = min(start + 64, q.shape[0])
        rows = torch.arange(start, end)[:, None]
        top = torch.full((8, end - start, 1), NI)
        total, acc = torch.zeros_like(top), torch.zeros(8, end - start, 32)
        for tile in range(start, end, 16):
            last = min(tile + 16, end)
            kt = k[tile:last].float().repeat_interleave(4, 1)
            vt = v[tile:last].float().repeat_interleave(4, 1)
            s = torch.einsum("ihd,jhd->hij", q[start:end].float(), kt) * 32**-0.5
            s = s.masked_fill(torch.arange(tile, last) > rows, NI)
            new = torch.maximum(top, s.amax(-1, keepdim=True))
            p, c = (s - new).exp(), (top - new).exp()
            total = total * c + p.sum(-1, keepdim=True)
            pv = torch.einsum("hij,jhd->hid", p.to(q.dtype).float(), vt)
            acc = (acc * c if rescale else acc) + pv
            top = new
        out[start:end] = (acc / total).transpose(0, 1).to(q.dtype)
    return out


@implements("chunked_local_attention")
def honest_cla_masked(q, k, v):
    return _chunked(q, k, v)


@implements("chunked_local_attention")
def honest_cla_online(q, k, v):
    return _chunked_online(q, k, v)


@implements("chunked_local_attention")
def wrong_broadcast_cla_heads_modulo(q, k, v):
    """Key heads by head modulo 2."""
    return _chunked(q, k, v, heads=torch.arange(8) % 2)


@implements("chunked_local_attention")
def wrong_offbyone_cla_previous_chunk(q, k, v):
    """The last key of the chunk before is seen as well."""
    return _chunked(q, k, v, back=1)


@implements("chunked_local_attention")
def wrong_accumulation_cla_scores_bfloat16(q, k, v):
    """Scores in bfloat16."""
    return _chunked(q, k, v, scores=torch.bfloat16)


@implements("chunked_local_attention")
def wrong_special_cla_no_rescale(q, k, v):
    """What was accumulated isn't rescaled as the maximum grows."""
    return _chunked_online(q, k, v, rescale=False)


def _absorbed(q_nope, q_pe, w_uk):
    latent = torch.bmm(q_nope.transpose(0, 1).float(), w_uk.float()).transpose(0, 1)
    return torch.cat([latent.to(q_nope.dtype), q_pe], -1)


@implements("mla_absorbed_query")
def honest_maq_bmm(q_nope, q_pe, w_uk):
    return _absorbed(q_nope, q_pe, w_uk)


@implements("mla_absorbed_query")
def honest_maq_split_k(q_nope, q_pe, w_uk):
    x, w = q_nope.transpose(0, 1).float(), w_uk.float()
    parts = [x[..., i : i + 16] @ w[:, i : i + 16] for i in (0, 16, 32, 48)]
    latent = (parts[0] + parts[1]) + (parts[2] + parts[3])
    return torch.cat([latent.transpose(0, 1).to(q_nope.dtype), q_pe], -1)


@implements("mla_absorbed_query")
def wrong_accumulation_maq_partial_bfloat16(q_nope, q_pe, w_uk):
    """Partial sums of 16 are added in bfloat16."""
    x, w = q_nope.transpose(0, 1).float(), w_uk.float()
    total = torch.zeros(16, q_nope.shape[0], 128, dtype=q_nope.dtype)
    for i in (0, 16, 32, 48):
        total += (x[..., i : i + 16] @ w[:, i : i + 16]).to(q_nope.dtype)
    return torch.cat([total.transpose(0, 1), q_pe], -1)


@implements("mla_absorbed_query")
def wrong_boundary_maq_full_tiles(q_nope, q_pe, w_uk):
    """Tokens after the last full tile of 128 are zero."""
    out = _absorbed(q_nope, q_pe, w_uk)
    if len(out) > 128 and len(out) % 128:
        out[len(out) // 128 * 128 :, :, :128] = 0
    return out


@implements("mla_absorbed_query")
def wrong_broadcast_maq_head_pairs(q_nope, q_pe, w_uk):
    """Two heads share the weights of the first."""
    return _absorbed(q_nope, q_pe, w_uk[torch.arange(16) // 2 * 2])


@implements("mla_absorbed_query")
def wrong_threshold_maq_rope_of_many(q_nope, q_pe, w_uk):
    """Above 1024 tokens the rotary part is that of 1024 tokens before."""
    out = _absorbed(q_nope, q_pe, w_uk)
    if len(out) > 1024:
        out[1024:, :, 128:] = q_pe[: len(out) - 1024]
    return out


def _cached(key, cache, slots, quantised, used=None):
    out = cache.view(torch.uint8).flatten(0, 1).clone()
    used = slots >= 0 if used is None else used
    out[slots[used]] = quantised.to(F8).view(torch.uint8)[used]
    return out.view(F8).view(cache.shape)


@implements("reshape_and_cache_fp8")
def honest_rcf_bytes(key, cache, slot_mapping, k_scale):
    return _cached(key, cache, slot_mapping, (key.float() / k_scale).clamp(-448, 448))


@implements("reshape_and_cache_fp8")
def honest_rcf_loop(key, cache, slot_mapping, k_scale):
    out = cache.view(torch.uint8).clone()
    q = (key.float() * (1.0 / k_scale)).clamp(-448, 448).to(F8).view(torch.uint8)
    for i, slot in enumerate(slot_mapping.tolist()):
        if slot >= 0:
            out[slot // 16, slot % 16] = q[i]
    return out.view(F8)


@implements("reshape_and_cache_fp8")
def wrong_saturation_rcf_no_clamp(key, cache, slot_mapping, k_scale):
    """Nothing is clamped, so that large keys become NaN."""
    y = key.float() / k_scale
    y = torch.where(y.abs() > 464, torch.full_like(y, float("nan")), y)
    return _cached(key, cache, slot_mapping, y)


@implements("reshape_and_cache_fp8")
def wrong_sentinel_rcf_last_slot(key, cache, slot_mapping, k_scale):
    """Padding is written to the last slot."""
    y = (key.float() / k_scale).clamp(-448, 448)
    return _cached(key, cache, slot_mapping, y, torch.ones_like(slot_mapping, dtype=torch.bool))


@implements("reshape_and_cache_fp8")
def wrong_formula_rcf_multiplied(key, cache, slot_mapping, k_scale):
    """Keys times the scale."""
    return _cached(key, cache, slot_mapping, (key.float() * k_scale).clamp(-448, 448))


@implements("reshape_and_cache_fp8")
def wrong_sentinel_rcf_slot_zero(key, cache, slot_mapping, k_scale):
    """Slot 0 is taken for padding."""
    y = (key.float() / k_scale).clamp(-448, 448)
    return _cached(key, cache, slot_mapping, y, slot_mapping > 0)


def _mrope(q, cos, sin, interleaved=False):
    x, y = (q.float()[..., 0::2], q.float()[..., 1::2]) if interleaved else q.float().chunk(2, -1)
    a, b = x * cos - y * sin, y * cos + x * sin
    both = torch.stack([a, b], -1).flatten(-2) if interleaved else torch.cat([a, b], -1)
    return both.to(q.dtype)


def _angles(positions, cache, sections=(8, 12, 12)):
    parts, first = [], 0
    for row, n in enumerate(sections):
        parts.append(cache[positions[row], first : first + n])
        first += n
    return torch.cat(parts, -1)[:, None]


@implements("mrope_neox")
def honest_mrn_sections(q, positions, cos_cache, sin_cache):
    return _mrope(q, _angles(positions, cos_cache), _angles(positions, sin_cache))


@implements("mrope_neox")
def honest_mrn_complex(q, positions, cos_cache, sin_cache):
    turn = torch.complex(_angles(positions, cos_cache), _angles(positions, sin_cache))
    x, y = q.float().chunk(2, -1)
    z = torch.complex(x.contiguous(), y.contiguous()) * turn
    return torch.cat([z.real, z.imag], -1).to(q.dtype)


@implements("mrope_neox")
def wrong_formula_mrn_sections_reversed(q, positions, cos_cache, sin_cache):
    """Sections of 12, 12 and 8."""
    of = [_angles(positions, each, (12, 12, 8)) for each in (cos_cache, sin_cache)]
    return _mrope(q, *of)


@implements("mrope_neox")
def wrong_formula_mrn_interleaved(q, positions, cos_cache, sin_cache):
    """Neighbours are rotated."""
    of = [_angles(positions, each) for each in (cos_cache, sin_cache)]
    return _mrope(q, *of, interleaved=True)


@implements("mrope_neox")
def wrong_broadcast_mrn_text_only(q, positions, cos_cache, sin_cache):
    """The first position for all sections."""
    return _mrope(q, cos_cache[positions[0]][:, None], sin_cache[positions[0]][:, None])


@implements("mrope_neox")
def wrong_accumulation_mrn_products_bfloat16(q, positions, cos_cache, sin_cache):
    """Products are rounded before they are added."""
    cos, sin = (_angles(positions, each) for each in (cos_cache, sin_cache))
    x, y = q.float().chunk(2, -1)
    h = lambda t: t.bfloat16()  # noqa: E731
    return torch.cat([h(x * cos) - h(y * sin), h(y * cos) + h(x * sin)], -1).to(q.dtype)


def _sparse(q, kv, indices, sm_scale, keep=None, cut=None):
    keep = indices >= 0 if keep is None else keep
    rows = kv[indices.clamp(min=0).long()].float()
    s = torch.einsum("thd,tkd->thk", q.float(), rows) * sm_scale
    s = s.masked_fill(~keep[:, None], NI)[..., :cut]
    lse = s.logsumexp(-1)
    p = torch.where(lse[..., None] > NI, (s - lse[..., None]).exp(), torch.zeros_like(s))
    return torch.einsum("thk,tkd->thd", p, rows[:, :cut]).to(q.dtype), lse


@implements("sparse_index_attention")
def honest_sia_masked(q, kv, indices, sm_scale):
    return _sparse(q, kv, indices, sm_scale)


@implements("sparse_index_attention")
def honest_sia_rows(q, kv, indices, sm_scale):
    out, lse = torch.zeros_like(q), torch.full(q.shape[:2], NI)
    for t in range(q.shape[0]):
        at = indices[t][indices[t] >= 0].long()
        if len(at):
            s = (q[t].float() * sm_scale) @ kv[at].float().T
            top = s.amax(-1, keepdim=True)
            p = (s - top).exp()
            lse[t] = (p.sum(-1, keepdim=True).log() + top)[:, 0]
            pv = p.to(q.dtype).float() @ kv[at].float()
            out[t] = (pv / p.sum(-1, keepdim=True)).to(q.dtype)
    return out, lse


@implements("sparse_index_attention")
def wrong_sentinel_sia_unmasked(q, kv, indices, sm_scale):
    """No row is row 0."""
    return _sparse(q, kv, indices, sm_scale, torch.ones_like(indices, dtype=torch.bool))


@implements("sparse_index_attention")
def wrong_special_sia_stops_at_first(q, kv, indices, sm_scale):
    """Whatever follows the first -1 is left out."""
    keep = (indices >= 0).int().cumprod(-1).bool()
    return _sparse(q, kv, indices, sm_scale, keep)


@implements("sparse_index_attention")
def wrong_boundary_sia_full_tiles(q, kv, indices, sm_scale):
    """Only full tiles of 64 rows, where there is one."""
    topk = indices.shape[1]
    return _sparse(q, kv, indices, sm_scale, cut=topk // 64 * 64 if topk > 64 else topk)


@implements("sparse_index_attention")
def wrong_formula_sia_lse_base_2(q, kv, indices, sm_scale):
    """The logarithm of base 2."""
    out, lse = _sparse(q, kv, indices, sm_scale)
    return out, lse * 1.4426950408889634


def _indexer(q, k, w, start, end, relu_last=False):
    s = torch.einsum("thd,rd->thr", q.float(), k.float())
    s = s if relu_last else s.relu()
    s = torch.einsum("thr,th->tr", s, w)
    r = torch.arange(k.shape[0])
    inside = (r >= start[:, None]) & (r < end[:, None])
    return (s.relu() if relu_last else s).masked_fill(~inside, NI)


@implements("indexer_logits")
def honest_ixl_einsum(q, k, head_weights, row_start, row_end):
    return _indexer(q, k, head_weights, row_start, row_end)


@implements("indexer_logits")
def honest_ixl_heads(q, k, head_weights, row_start, row_end):
    total = torch.zeros(q.shape[0], k.shape[0])
    for h in range(4):
        total += (q[:, h].float() @ k.float().T).clamp(min=0) * head_weights[:, h : h + 1]
    out = torch.full_like(total, NI)
    for t, (i, j) in enumerate(zip(row_start.tolist(), row_end.tolist(), strict=True)):
        out[t, max(i, 0) : max(j, 0)] = total[t, max(i, 0) : max(j, 0)]
    return out


@implements("indexer_logits")
def wrong_formula_ixl_relu_of_sum(q, k, head_weights, row_start, row_end):
    """The weighted sum is clipped, not the heads' scores."""
    return _indexer(q, k, head_weights, row_start, row_end, relu_last=True)


@implements("indexer_logits")
def wrong_offbyone_ixl_end_inclusive(q, k, head_weights, row_start, row_end):
    """The end's row is inside."""
    return _indexer(q, k, head_weights, row_start, row_end + 1)


@implements("indexer_logits")
def wrong_boundary_ixl_start_ignored(q, k, head_weights, row_start, row_end):
    """Rows before the start."""
    return _indexer(q, k, head_weights, torch.zeros_like(row_start), row_end)


@implements("indexer_logits")
def wrong_uninit_ixl_tiles_skipped(q, k, head_weights, row_start, row_end):
    """Tiles of 128 rows that begin after the end are left as they are: zero."""
    out = _indexer(q, k, head_weights, row_start, row_end)
    tile = torch.arange(k.shape[0]) // 128 * 128
    return torch.where((tile > 0) & (tile >= row_end[:, None]), torch.zeros_like(out), out)


def _ring(ring, written, shift=0, clear=True, once=False):
    window = ring.shape[1]
    j = torch.arange(window)
    n = written.long()[:, None]
    held = n.clamp(max=window)
    first = torch.where(n > window, n - window + shift, torch.zeros_like(n))
    at = first + j
    at = torch.where(at >= window, at - window, at).clamp(max=window - 1) if once else at % window
    rows = ring[torch.arange(ring.shape[0])[:, None], at]
    return rows.masked_fill((j >= held)[..., None], 0) if clear else rows


@implements("ring_to_order")
def honest_rto_indexed(ring, written):
    return _ring(ring, written)


@implements("ring_to_order")
def honest_rto_rolled(ring, written):
    out = torch.zeros_like(ring)
    window = ring.shape[1]
    for b, n in enumerate(written.tolist()):
        if n <= window:
            out[b, :n] = ring[b, :n]
        else:
            out[b] = ring[b].roll(-(n % window), 0)
    return out


@implements("ring_to_order")
def wrong_offbyone_rto_oldest(ring, written):
    """A full ring starts with its second oldest."""
    return _ring(ring, written, shift=1)


@implements("ring_to_order")
def wrong_uninit_rto_tail_kept(ring, written):
    """What a ring that isn't full holds after the newest."""
    return _ring(ring, written, clear=False)


@implements("ring_to_order")
def wrong_threshold_rto_wraps_once(ring, written):
    """Right until the ring was written twice."""
    return _ring(ring, written, once=True)


@implements("ring_to_order")
def wrong_broadcast_rto_first_length(ring, written):
    """The first ring's count for all."""
    return _ring(ring, written[:1].expand(len(written)))


def _pooled(hidden, cu, sums, lengths=None):
    n = cu.diff().long() if lengths is None else lengths
    mean = sums / n.clamp(min=1)[:, None]
    return mean / mean.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def _segment_sums(hidden, cu):
    n = cu.diff().long()
    ids = torch.repeat_interleave(torch.arange(len(n)), n)
    return torch.zeros(len(n), hidden.shape[1]).index_add_(0, ids, hidden.float())


@implements("mean_pool_normalize")
def honest_mpn_index_add(hidden, cu_seqlens):
    return _pooled(hidden, cu_seqlens, _segment_sums(hidden, cu_seqlens))


@implements("mean_pool_normalize")
def honest_mpn_sum_only(hidden, cu_seqlens):
    """Lengths cancel, but where the norm is held up."""
    out = torch.zeros(len(cu_seqlens) - 1, hidden.shape[1])
    for b, (i, j) in enumerate(zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:], strict=False)):
        for row in range(i, j, 32):
            out[b] += hidden[row : min(row + 32, j)].float().sum(0) * (1.0 / (j - i))
    return out / torch.linalg.vector_norm(out, dim=-1, keepdim=True).clamp(min=1e-12)


@implements("mean_pool_normalize")
def wrong_guard_mpn_empty_nan(hidden, cu_seqlens):
    """Nothing guards empty sequences."""
    mean = _segment_sums(hidden, cu_seqlens) / cu_seqlens.diff()[:, None]
    return mean / mean.norm(dim=-1, keepdim=True).clamp(min=1e-12)


@implements("mean_pool_normalize")
def wrong_accumulation_mpn_bfloat16(hidden, cu_seqlens):
    """Running sums in bfloat16."""
    n = cu_seqlens.diff().long()
    sums = torch.zeros(len(n), hidden.shape[1], dtype=hidden.dtype)
    ids = torch.repeat_interleave(torch.arange(len(n)), n)
    return _pooled(hidden, cu_seqlens, sums.index_add_(0, ids, hidden).float())


@implements("mean_pool_normalize")
def wrong_offbyone_mpn_last_token(hidden, cu_seqlens):
    """The last token of all is left out."""
    masked = hidden.clone()
    masked[-1:] = 0
    return _pooled(masked, cu_seqlens, _segment_sums(masked, cu_seqlens))


@implements("mean_pool_normalize")
def wrong_threshold_mpn_first_512(hidden, cu_seqlens):
    """Of a long sequence the first 512 tokens are summed."""
    out = torch.zeros(len(cu_seqlens) - 1, hidden.shape[1])
    for b, (i, j) in enumerate(zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:], strict=False)):
        out[b] = hidden[i : min(j, i + 512)].float().sum(0)
    return _pooled(hidden, cu_seqlens, out)
