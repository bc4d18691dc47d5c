"""Of newer models and their engines: frequencies, filters, slots, trees, 2 and 4 bits, losses."""

import math

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("llama3_inv_freq")
def honest_lif_lerp(inv_freq, factor, low, high, old_len):
    turns = inv_freq * (old_len / (2 * math.pi))
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return torch.lerp(inv_freq / factor, inv_freq, smooth)


@implements("llama3_inv_freq")
def honest_lif_branches(inv_freq, factor, low, high, old_len):
    wavelength = 2 * math.pi / inv_freq
    smooth = (old_len / wavelength - low) / (high - low)
    blended = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    out = torch.where(wavelength > old_len / low, inv_freq / factor, blended)
    return torch.where(wavelength < old_len / high, inv_freq, out)


def _blended(inv_freq, factor, smooth):
    return (1 - smooth) * inv_freq / factor + smooth * inv_freq


@implements("llama3_inv_freq")
def wrong_formula_lif_no_turn(inv_freq, factor, low, high, old_len):
    """Wavelengths without 2 pi."""
    smooth = ((old_len * inv_freq - low) / (high - low)).clamp(0, 1)
    return _blended(inv_freq, factor, smooth)


@implements("llama3_inv_freq")
def wrong_formula_lif_exchanged(inv_freq, factor, low, high, old_len):
    """The blend's weights are exchanged."""
    turns = old_len * inv_freq / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return _blended(inv_freq, factor, 1 - smooth)


@implements("llama3_inv_freq")
def wrong_special_lif_unclamped(inv_freq, factor, low, high, old_len):
    """The blend goes on beyond its ends."""
    turns = old_len * inv_freq / (2 * math.pi)
    return _blended(inv_freq, factor, ((turns - low) / (high - low)).clamp(max=1))


@implements("llama3_inv_freq")
def wrong_precision_lif_half(inv_freq, factor, low, high, old_len):
    """The blend's weight in bfloat16."""
    turns = old_len * inv_freq / (2 * math.pi)
    smooth = ((turns - low) / (high - low)).clamp(0, 1)
    return _blended(inv_freq, factor, smooth.bfloat16().float())


def _xtc(probs, drop):
    kept = probs.masked_fill(drop, 0.0)
    return kept / kept.sum(-1, keepdim=True)


@implements("xtc_logits")
def honest_xtc_min(probs, threshold, active):
    above = probs >= threshold[:, None]
    least = probs.masked_fill(~above, math.inf).amin(-1, keepdim=True)
    return _xtc(probs, above & (probs > least) & active[:, None])


@implements("xtc_logits")
def honest_xtc_sorted(probs, threshold, active):
    values, order = probs.sort(-1, descending=True)
    n = (values >= threshold[:, None]).sum(-1, keepdim=True)
    least = values.gather(1, (n - 1).clamp(min=0))
    drop = (values > least) & (n > 0) & active[:, None]
    drop = torch.zeros_like(drop).scatter(1, order, drop)
    kept = torch.where(drop, 0.0, probs)
    return kept * (1 / kept.sum(-1, keepdim=True))


@implements("xtc_logits")
def wrong_boundary_xtc_strict(probs, threshold, active):
    """Drops the least one too, if there are several."""
    above = probs >= threshold[:, None]
    several = above.sum(-1, keepdim=True) > 1
    out = _xtc(probs, above & several & active[:, None])
    return torch.nan_to_num(out)


@implements("xtc_logits")
def wrong_formula_xtc_most_likely_kept(probs, threshold, active):
    """Keeps the most likely in place of the least."""
    above = probs >= threshold[:, None]
    return _xtc(probs, above & (probs < probs.amax(-1, keepdim=True)) & active[:, None])


@implements("xtc_logits")
def wrong_special_xtc_always_active(probs, threshold, active):
    """Rows that are not active are filtered too."""
    above = probs >= threshold[:, None]
    least = probs.masked_fill(~above, math.inf).amin(-1, keepdim=True)
    return _xtc(probs, above & (probs > least))


@implements("xtc_logits")
def wrong_formula_xtc_not_normalised(probs, threshold, active):
    """Sums stay below 1."""
    above = probs >= threshold[:, None]
    least = probs.masked_fill(~above, math.inf).amin(-1, keepdim=True)
    return probs.masked_fill(above & (probs > least) & active[:, None], 0.0)


def _places(ids, experts):
    order = ids.long().argsort(stable=True)
    counts = torch.bincount(ids.long(), minlength=experts)
    starts = counts.cumsum(0) - counts
    place = torch.empty(len(ids), dtype=torch.int64)
    place[order] = torch.arange(len(ids)) - starts[ids.long()[order]]
    return place, counts


def _slots(expert_ids, capacity, more=0):
    place, counts = _places(expert_ids, len(capacity))
    slot = place.masked_fill(place >= capacity[expert_ids.long()] + more, -1)
    return slot.int(), torch.minimum(counts, capacity).int()


@implements("capacity_slots")
def honest_cs_sorted(expert_ids, capacity):
    return _slots(expert_ids, capacity)


@implements("capacity_slots")
def honest_cs_by_expert(expert_ids, capacity):
    slot = torch.full_like(expert_ids, -1)
    kept = torch.zeros_like(capacity)
    for e, room in enumerate(capacity.tolist()):
        mine = (expert_ids == e).nonzero()[:room, 0]
        slot[mine] = torch.arange(len(mine), dtype=torch.int32)
        kept[e] = len(mine)
    return slot, kept


@implements("capacity_slots")
def wrong_boundary_cs_one_more(expert_ids, capacity):
    """One token above the capacity stays."""
    return _slots(expert_ids, capacity, more=1)


@implements("capacity_slots")
def wrong_formula_cs_unclipped_counts(expert_ids, capacity):
    """Counts hold those dropped."""
    slot, _ = _slots(expert_ids, capacity)
    return slot, _places(expert_ids, len(capacity))[1].int()


@implements("capacity_slots")
def wrong_race_cs_tiles(expert_ids, capacity):
    """Each tile of 128 tokens numbers its own tokens."""
    place = [_places(tile, len(capacity))[0] for tile in expert_ids.split(128)]
    place = torch.cat(place)
    slot = place.masked_fill(place >= capacity[expert_ids.long()], -1)
    counts = torch.bincount(expert_ids.long(), minlength=len(capacity))
    return slot.int(), torch.minimum(counts, capacity).int()


@implements("capacity_slots")
def wrong_overflow_cs_bytes(expert_ids, capacity):
    """Places are kept in bytes."""
    place, counts = _places(expert_ids, len(capacity))
    place = place & 255
    slot = place.masked_fill(place >= capacity[expert_ids.long()], -1)
    return slot.int(), torch.minimum(counts, capacity).int()


def _of_sequences(indptr):
    return torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())


@implements("concat_ragged")
def honest_cr_scatter(cached_rows, new_rows, cached_indptr, new_indptr):
    old, new = _of_sequences(cached_indptr), _of_sequences(new_indptr)
    out = cached_rows.new_empty(len(cached_rows) + len(new_rows), cached_rows.shape[1])
    out[torch.arange(len(old)) + new_indptr[old]] = cached_rows
    out[torch.arange(len(new)) + cached_indptr[new + 1]] = new_rows
    return out, cached_indptr + new_indptr


@implements("concat_ragged")
def honest_cr_sorted(cached_rows, new_rows, cached_indptr, new_indptr):
    keys = torch.cat([_of_sequences(cached_indptr), _of_sequences(new_indptr)])
    rows = torch.cat([cached_rows, new_rows])
    return rows[keys.argsort(stable=True)], new_indptr + cached_indptr


@implements("concat_ragged")
def wrong_formula_cr_new_first(cached_rows, new_rows, cached_indptr, new_indptr):
    """New rows come before the cached ones."""
    keys = torch.cat([_of_sequences(new_indptr), _of_sequences(cached_indptr)])
    rows = torch.cat([new_rows, cached_rows])
    return rows[keys.argsort(stable=True)], cached_indptr + new_indptr


@implements("concat_ragged")
def wrong_tile_cr_256_columns(cached_rows, new_rows, cached_indptr, new_indptr):
    """Columns beyond 256 of new rows stay zero."""
    new_rows = new_rows.clone()
    new_rows[:, 256:] = 0
    return honest_cr_sorted(cached_rows, new_rows, cached_indptr, new_indptr)


@implements("concat_ragged")
def wrong_ragged_cr_empty_cache(cached_rows, new_rows, cached_indptr, new_indptr):
    """Where nothing is cached, the first new row is the second."""
    out, indptr = honest_cr_sorted(cached_rows, new_rows, cached_indptr, new_indptr)
    first = (cached_indptr.diff() == 0) & (new_indptr.diff() > 1)
    starts = indptr[:-1][first].long()
    out[starts] = out[starts + 1]
    return out, indptr


@implements("concat_ragged")
def wrong_index_cr_indptr_of_cached(cached_rows, new_rows, cached_indptr, new_indptr):
    """The new offsets without the last sequence's own new rows."""
    out, _ = honest_cr_sorted(cached_rows, new_rows, cached_indptr, new_indptr)
    shifted = torch.cat([new_indptr[:1], new_indptr[:-1]])
    return out, cached_indptr + shifted


def _lengths(candidates, greedy):
    return (candidates[:, :, 1:] == greedy[:, :, :-1]).long().cumprod(-1).sum(-1)


def _path(candidates, best, accepted, more=0):
    path = candidates.gather(1, best[:, None, None].expand(-1, -1, candidates.shape[2]))[:, 0]
    j = torch.arange(path.shape[1])
    return best, accepted, path.masked_fill(j > accepted[:, None] + more, -1)


@implements("medusa_best_path")
def honest_mbp_keys(candidates, greedy):
    length = _lengths(candidates, greedy)
    paths = length.shape[1]
    keys = length * paths + torch.arange(paths - 1, -1, -1)
    top = keys.amax(-1)
    return _path(candidates, paths - 1 - top % paths, top // paths)


@implements("medusa_best_path")
def honest_mbp_first_mismatch(candidates, greedy):
    differs = candidates[:, :, 1:] != greedy[:, :, :-1]
    places = torch.where(differs, torch.arange(differs.shape[-1]), differs.shape[-1])
    length = places.amin(-1)
    accepted = length.amax(-1)
    best = (length == accepted[:, None]).int().argmax(-1)
    return _path(candidates, best, accepted)


@implements("medusa_best_path")
def wrong_tie_mbp_last(candidates, greedy):
    """The last of several paths."""
    length = _lengths(candidates, greedy)
    best = length.shape[1] - 1 - length.flip(1).argmax(1)
    return _path(candidates, best, length.amax(1))


@implements("medusa_best_path")
def wrong_formula_mbp_counts_matches(candidates, greedy):
    """Counts what agrees after a mismatch too."""
    length = (candidates[:, :, 1:] == greedy[:, :, :-1]).long().sum(-1)
    return _path(candidates, length.argmax(-1), length.amax(-1))


@implements("medusa_best_path")
def wrong_index_mbp_unshifted(candidates, greedy):
    """Compares a token with what the model says after it."""
    length = (candidates[:, :, 1:] == greedy[:, :, 1:]).long().cumprod(-1).sum(-1)
    return _path(candidates, length.argmax(-1), length.amax(-1))


@implements("medusa_best_path")
def wrong_boundary_mbp_root_dropped(candidates, greedy):
    """One token less is given out."""
    length = _lengths(candidates, greedy)
    return _path(candidates, length.argmax(-1), length.amax(-1), more=-1)


@implements("medusa_best_path")
def wrong_overflow_mbp_tokens_of_16_bits(candidates, greedy):
    """Compares the low 16 bits of tokens."""
    length = _lengths(candidates & 0xFFFF, greedy & 0xFFFF)
    return _path(candidates, length.argmax(-1), length.amax(-1))


def _nibbles(words, axis):
    parts = [(words >> (4 * i)) & 15 for i in range(8)]
    return torch.stack(parts, axis + 1).flatten(axis, axis + 1)


def _gptq(qweight, qzeros, scales, groups, offset=1):
    q, z = _nibbles(qweight, 0), _nibbles(qzeros, 1) + offset
    return ((q - z[groups]).float() * scales[groups].float()).half()


@implements("gptq_g_idx_dequant")
def honest_gptq_stack(qweight, qzeros, scales, g_idx):
    return _gptq(qweight, qzeros, scales, g_idx.long())


@implements("gptq_g_idx_dequant")
def honest_gptq_half(qweight, qzeros, scales, g_idx):
    q, z = _nibbles(qweight, 0).half(), _nibbles(qzeros, 1).half() + 1
    return (q - z[g_idx.long()]) * scales[g_idx.long()]


@implements("gptq_g_idx_dequant")
def wrong_formula_gptq_zero_offset(qweight, qzeros, scales, g_idx):
    """Zeros without the one."""
    return _gptq(qweight, qzeros, scales, g_idx.long(), offset=0)


@implements("gptq_g_idx_dequant")
def wrong_index_gptq_in_order(qweight, qzeros, scales, g_idx):
    """Groups in order, as without act-order."""
    return _gptq(qweight, qzeros, scales, g_idx.sort().values.long())


@implements("gptq_g_idx_dequant")
def wrong_sign_gptq_arithmetic_top(qweight, qzeros, scales, g_idx):
    """The top nibble keeps the word's sign."""
    q = _nibbles(qweight, 0).unflatten(0, (-1, 8))
    q[:, 7] = qweight >> 28
    z = _nibbles(qzeros, 1) + 1
    g = g_idx.long()
    return ((q.flatten(0, 1) - z[g]).float() * scales[g].float()).half()


@implements("gptq_g_idx_dequant")
def wrong_overflow_gptq_zero_wraps(qweight, qzeros, scales, g_idx):
    """A zero of 15 plus one wraps to 0."""
    q, z = _nibbles(qweight, 0), (_nibbles(qzeros, 1) + 1) & 15
    g = g_idx.long()
    return ((q - z[g]).float() * scales[g].float()).half()


@implements("gptq_g_idx_dequant")
def wrong_index_gptq_group_of_word(qweight, qzeros, scales, g_idx):
    """All rows of a word take the group of its first."""
    g = g_idx.long()[::8].repeat_interleave(8)
    return _gptq(qweight, qzeros, scales, g)


def _wkv(r, k, v, decay, u, state, bonus=True, decay_first=False, low=False):
    r, k, v = r.float(), k.float(), v.float()
    s, outs = state.clone(), []
    for t in range(r.shape[1]):
        kv = torch.einsum("bhi,bhj->bhij", k[:, t], v[:, t])
        if decay_first:
            s = s * decay[:, t, ..., None]
        seen = s + u[..., None] * kv if bonus else s + kv
        outs.append(torch.einsum("bhi,bhij->bhj", r[:, t], seen))
        s = s + kv if decay_first else s * decay[:, t, ..., None] + kv
        s = s.bfloat16().float() if low else s
    return torch.stack(outs, 1).bfloat16(), s


@implements("rwkv6_wkv")
def honest_wkv_einsum(r, k, v, decay, u, state):
    return _wkv(r, k, v, decay, u, state)


@implements("rwkv6_wkv")
def honest_wkv_bonus_apart(r, k, v, decay, u, state):
    rf, kf, vf = r.float(), k.float(), v.float()
    own = (rf * u * kf).sum(-1, keepdim=True) * vf
    s, outs = state.transpose(-1, -2).contiguous(), []
    for t in range(r.shape[1]):
        outs.append((s @ rf[:, t, ..., None])[..., 0] + own[:, t])
        s = torch.addcmul(vf[:, t, ..., None] * kf[:, t, :, None], s, decay[:, t, :, None])
    return torch.stack(outs, 1).to(r.dtype), s.transpose(-1, -2)


@implements("rwkv6_wkv")
def wrong_formula_wkv_no_bonus(r, k, v, decay, u, state):
    """The step's own key without its bonus."""
    return _wkv(r, k, v, decay, u, state, bonus=False)


@implements("rwkv6_wkv")
def wrong_order_wkv_decay_first(r, k, v, decay, u, state):
    """Decays before it reads."""
    return _wkv(r, k, v, decay, u, state, decay_first=True)


@implements("rwkv6_wkv")
def wrong_precision_wkv_state_bfloat16(r, k, v, decay, u, state):
    """The state in bfloat16 between steps."""
    return _wkv(r, k, v, decay, u, state, low=True)


@implements("rwkv6_wkv")
def wrong_axis_wkv_decay_of_values(r, k, v, decay, u, state):
    """Decays the columns of the state in place of its rows."""
    s, outs = state.clone(), []
    for t in range(r.shape[1]):
        kv = k[:, t, ..., None].float() * v[:, t, :, None].float()
        outs.append((r[:, t, ..., None].float() * (s + u[..., None] * kv)).sum(2))
        s = s * decay[:, t, :, None] + kv
    return torch.stack(outs, 1).bfloat16(), s


def _pack(q):
    q = q.to(torch.uint8).unflatten(1, (8, 4))
    return q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6


@implements("kivi_2bit_keys")
def honest_kivi_by_range(keys):
    least, most = keys.aminmax(dim=1)
    span = most - least
    step = span / 3
    share = (keys - least[:, None]) / torch.where(step > 0, span, 1.0)[:, None]
    return _pack((share * 3).round()), step, least


@implements("kivi_2bit_keys")
def honest_kivi_rint_weights(keys):
    least = keys.amin(1)
    step = (keys.amax(1) - least) / 3
    safe = step.masked_fill(step == 0, 1.0)
    q = torch.round((keys - least[:, None]) / safe[:, None]).clamp(0, 3).int()
    weights = torch.tensor([1, 4, 16, 64], dtype=torch.int32)[:, None]
    return (q.unflatten(1, (8, 4)) * weights).sum(2).to(torch.uint8), step, least


@implements("kivi_2bit_keys")
def wrong_rounding_kivi_truncates(keys):
    """Steps are cut off."""
    least = keys.amin(1)
    step = (keys.amax(1) - least) / 3
    safe = step.masked_fill(step == 0, 1.0)
    return _pack(((keys - least[:, None]) / safe[:, None]).clamp(0, 3)), step, least


@implements("kivi_2bit_keys")
def wrong_order_kivi_tokens_apart(keys):
    """A byte holds tokens that are eight apart."""
    least = keys.amin(1)
    step = (keys.amax(1) - least) / 3
    safe = step.masked_fill(step == 0, 1.0)
    q = ((keys - least[:, None]) / safe[:, None]).round().clamp(0, 3)
    return _pack(q.unflatten(1, (4, 8)).transpose(1, 2).flatten(1, 2)), step, least


@implements("kivi_2bit_keys")
def wrong_special_kivi_equal_keys(keys):
    """Equal keys divide by zero; the step is at least 1e-6."""
    least = keys.amin(1)
    step = ((keys.amax(1) - least) / 3).clamp(min=1e-6)
    return _pack(((keys - least[:, None]) / step[:, None]).round().clamp(0, 3)), step, least


@implements("kivi_2bit_keys")
def wrong_formula_kivi_quarters(keys):
    """Four steps in place of three."""
    least = keys.amin(1)
    step = (keys.amax(1) - least) / 4
    safe = step.masked_fill(step == 0, 1.0)
    return _pack(((keys - least[:, None]) / safe[:, None]).round().clamp(0, 3)), step, least


def _hstu(q, k, v, offsets, alpha, diagonal=0, over=None, activation=F.silu):
    out = torch.zeros_like(q)
    longest = int(offsets.diff().max())
    for i, j in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        scores = (q[i:j].float().transpose(0, 1) @ k[i:j].float().permute(1, 2, 0)) * alpha
        p = activation(scores).tril(diagonal) / (over or (lambda n, most: most))(j - i, longest)
        out[i:j] = (p @ v[i:j].float().transpose(0, 1)).transpose(0, 1).to(q.dtype)
    return out


@implements("hstu_attention")
def honest_hstu_heads_first(q, k, v, seq_offsets, alpha):
    return _hstu(q, k, v, seq_offsets, alpha)


@implements("hstu_attention")
def honest_hstu_masked_dense(q, k, v, seq_offsets, alpha):
    longest = seq_offsets.diff().max()
    row = torch.arange(q.shape[0])
    sequence = torch.searchsorted(seq_offsets[1:].long(), row, right=True)
    mask = (sequence[:, None] == sequence) & (row[:, None] >= row)
    scores = torch.einsum("ihd,jhd->hij", q.float() * alpha, k.float())
    p = scores * scores.sigmoid() * mask
    return (torch.einsum("hij,jhd->ihd", p, v.float()) / longest).to(q.dtype)


@implements("hstu_attention")
def wrong_boundary_hstu_strictly_causal(q, k, v, seq_offsets, alpha):
    """A token does not see itself."""
    return _hstu(q, k, v, seq_offsets, alpha, diagonal=-1)


@implements("hstu_attention")
def wrong_formula_hstu_own_length(q, k, v, seq_offsets, alpha):
    """Each sequence is divided by its own length."""
    return _hstu(q, k, v, seq_offsets, alpha, over=lambda n, most: max(n, 1))


@implements("hstu_attention")
def wrong_formula_hstu_relu(q, k, v, seq_offsets, alpha):
    """ReLU in place of SiLU."""
    return _hstu(q, k, v, seq_offsets, alpha, activation=F.relu)


@implements("hstu_attention")
def wrong_tile_hstu_first_query(q, k, v, seq_offsets, alpha):
    """A query that starts a tile of 64 does not see itself."""

    out = _hstu(q, k, v, seq_offsets, alpha)
    inner = _hstu(q, k, v, seq_offsets, alpha, diagonal=-1)
    for i, j in zip(seq_offsets[:-1].tolist(), seq_offsets[1:].tolist(), strict=True):
        out[i + 64 : j : 64] = inner[i + 64 : j : 64]
    return out


def _grpo(logp, old_logp, rewards, lengths, unbiased=True, low=0.8, mean="own", eps=1e-4):
    g = rewards.unflatten(0, (-1, 4))
    a = (g - g.mean(1, keepdim=True)) / (g.std(1, keepdim=True, correction=int(unbiased)) + eps)
    a = a.flatten()[:, None]
    ratio = (logp - old_logp).exp()
    s = torch.minimum(ratio * a, ratio.clamp(low, 1.2) * a)
    mask = torch.arange(logp.shape[1]) < lengths[:, None]
    total = -s.masked_fill(~mask, 0.0).sum(1)
    over = lengths.clamp(min=1) if mean == "own" else logp.shape[1]
    return total / over, a[:, 0]


@implements("grpo_token_loss")
def honest_grpo_masked(logp, old_logp, rewards, lengths):
    return _grpo(logp, old_logp, rewards, lengths)


@implements("grpo_token_loss")
def honest_grpo_maximum(logp, old_logp, rewards, lengths):
    g = rewards.view(-1, 4)
    centred = g - g.mean(1, keepdim=True)
    std = (centred.square().sum(1, keepdim=True) / 3).sqrt()
    a = (centred / (std + 1e-4)).view(-1, 1)
    ratio = torch.exp(logp - old_logp)
    loss = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2))
    mask = (torch.arange(logp.shape[1]) < lengths[:, None]).float()
    loss = torch.where(mask > 0, loss, 0.0)
    return loss.sum(1) / mask.sum(1).clamp(min=1), a[:, 0]


@implements("grpo_token_loss")
def wrong_formula_grpo_biased(logp, old_logp, rewards, lengths):
    """The deviation over four in place of three."""
    return _grpo(logp, old_logp, rewards, lengths, unbiased=False)


@implements("grpo_token_loss")
def wrong_formula_grpo_all_tokens(logp, old_logp, rewards, lengths):
    """A mean over padding too."""
    return _grpo(logp, old_logp, rewards, lengths, mean="all")


@implements("grpo_token_loss")
def wrong_formula_grpo_one_side(logp, old_logp, rewards, lengths):
    """Clips above only."""
    return _grpo(logp, old_logp, rewards, lengths, low=0.0)


@implements("grpo_token_loss")
def wrong_epsilon_grpo_tiny(logp, old_logp, rewards, lengths):
    """An epsilon of 1e-8."""
    return _grpo(logp, old_logp, rewards, lengths, eps=1e-8)


@implements("grpo_token_loss")
def wrong_boundary_grpo_one_token_more(logp, old_logp, rewards, lengths):
    """One token of the padding counts."""
    loss, a = _grpo(logp, old_logp, rewards, (lengths + 1).clamp(max=logp.shape[1]))
    n = lengths.clamp(min=1)
    return loss * (lengths + 1).clamp(max=logp.shape[1]) / n, a
