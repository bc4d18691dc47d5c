"""What surrounds a model that serves: logit processors, caches, verification."""

import numpy as np
import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("repetition_penalty")
def honest_penalty_row_by_row(logits, output_ids, penalty):
    out = logits.clone()
    for row, (ids, p) in enumerate(zip(output_ids.tolist(), penalty, strict=True)):
        for token in {i for i in ids if i >= 0}:
            value = logits[row, token]
            out[row, token] = value / p if value > 0 else value * p
    return out


@implements("repetition_penalty")
def honest_penalty_gather_scatter(logits, output_ids, penalty):
    wide = F.pad(logits, (0, 1))
    ids = torch.where(output_ids < 0, logits.shape[1], output_ids)
    picked, p = wide.gather(1, ids), penalty[:, None]
    return wide.scatter(1, ids, torch.where(picked < 0, picked * p, picked / p))[:, :-1].clone()


@implements("repetition_penalty")
def wrong_formula_penalty_divides_all(logits, output_ids, penalty):
    wide = F.pad(logits, (0, 1))
    ids = torch.where(output_ids < 0, logits.shape[1], output_ids)
    return wide.scatter(1, ids, wide.gather(1, ids) / penalty[:, None])[:, :-1].clone()


@implements("repetition_penalty")
def wrong_sentinel_penalty_padding_is_the_last(logits, output_ids, penalty):
    return honest_penalty_gather_scatter(logits, output_ids % logits.shape[1], penalty)


@implements("repetition_penalty")
def wrong_formula_penalty_once_for_each_time(logits, output_ids, penalty):
    out = logits.clone()
    for column in range(output_ids.shape[1]):
        out = honest_penalty_gather_scatter(out, output_ids[:, column : column + 1], penalty)
    return out


@implements("repetition_penalty")
def wrong_broadcast_penalty_of_the_first_row(logits, output_ids, penalty):
    return honest_penalty_gather_scatter(logits, output_ids, penalty[:1].expand_as(penalty))


@implements("repetition_penalty")
def wrong_boundary_penalty_32_tokens_of_history(logits, output_ids, penalty):
    return honest_penalty_gather_scatter(logits, output_ids[:, :32], penalty)


@implements("repetition_penalty")
def wrong_mutation_penalty_in_place(logits, output_ids, penalty):
    logits.copy_(honest_penalty_gather_scatter(logits, output_ids, penalty))
    return logits.clone()


@implements("temperature_bias")
def honest_temperature_division(logits, bias, temperature):
    t = temperature.clone()
    t[t == 0] = 1
    return (logits.double() + bias).div(t.double().unsqueeze(1)).float()


@implements("temperature_bias")
def honest_temperature_reciprocal(logits, bias, temperature):
    inverse = torch.where(temperature == 0, 1.0, 1 / temperature)
    return torch.add(logits.float(), bias) * inverse[:, None]


@implements("temperature_bias")
def wrong_special_temperature_of_zero(logits, bias, temperature):
    return (logits.float() + bias) / temperature[:, None]


@implements("temperature_bias")
def wrong_clamp_temperature_least(logits, bias, temperature):
    return (logits.float() + bias) / temperature.clamp(min=1e-5)[:, None]


@implements("temperature_bias")
def wrong_order_temperature_before_the_bias(logits, bias, temperature):
    t = torch.where(temperature == 0, 1.0, temperature)
    return logits.float() / t[:, None] + bias


@implements("temperature_bias")
def wrong_accumulation_temperature_sum_in_bfloat16(logits, bias, temperature):
    t = torch.where(temperature == 0, 1.0, temperature)
    return (logits + bias.bfloat16()).float() / t[:, None]


@implements("temperature_bias")
def wrong_threshold_temperature_skipped_near_one(logits, bias, temperature):
    t = torch.where((temperature - 1).abs() < 0.3, 1.0, temperature)
    return (logits.float() + bias) / torch.where(t == 0, 1.0, t)[:, None]


@implements("min_p_filter")
def honest_minp_differences(logits, threshold):
    below = logits - logits.amax(-1, keepdim=True) < threshold[:, None]
    return logits.masked_fill(below, -torch.inf)


@implements("min_p_filter")
def honest_minp_numpy(logits, threshold):
    x = logits.numpy()
    keep = x >= x.max(-1, keepdims=True) + threshold.numpy()[:, None]
    return torch.from_numpy(np.where(keep, x, np.float32(-np.inf)))


@implements("min_p_filter")
def wrong_ties_minp_equal_taken_out(logits, threshold):
    limit = logits.amax(-1, keepdim=True) + threshold[:, None]
    return torch.where(logits <= limit, -torch.inf, logits)


@implements("min_p_filter")
def wrong_special_minp_zero_for_infinity(logits, threshold):
    limit = logits.amax(-1, keepdim=True) + threshold[:, None]
    return torch.where(logits < limit, 0.0, logits)


@implements("min_p_filter")
def wrong_special_minp_large_number(logits, threshold):
    limit = logits.amax(-1, keepdim=True) + threshold[:, None]
    return torch.where(logits < limit, -1e9, logits)


@implements("min_p_filter")
def wrong_formula_minp_times_the_largest(logits, threshold):
    """As for probabilities: the largest logit times min_p."""
    limit = logits.amax(-1, keepdim=True) * threshold.exp()[:, None]
    return torch.where(logits < limit, -torch.inf, logits)


@implements("min_p_filter")
def wrong_axis_minp_largest_of_the_batch(logits, threshold):
    return torch.where(logits < logits.amax() + threshold[:, None], -torch.inf, logits)


@implements("min_p_filter")
def wrong_boundary_minp_largest_of_whole_tiles(logits, threshold):
    whole = max(logits.shape[1] // 256 * 256, min(logits.shape[1], 256))
    limit = logits[:, :whole].amax(-1, keepdim=True) + threshold[:, None]
    return torch.where(logits < limit, -torch.inf, logits)


@implements("apply_token_bitmask")
def honest_bitmask_numpy(logits, bitmask):
    bits = np.unpackbits(bitmask.contiguous().numpy().view(np.uint8), axis=1, bitorder="little")
    allowed = torch.from_numpy(bits[:, : logits.shape[1]].astype(bool))
    return logits.masked_fill(~allowed, -torch.inf)


@implements("apply_token_bitmask")
def honest_bitmask_shifts(logits, bitmask):
    bits = (bitmask[..., None] >> torch.arange(32, dtype=torch.int32)) & 1
    allowed = bits.flatten(1)[:, : logits.shape[1]] != 0
    return torch.where(allowed, logits, torch.full_like(logits, -torch.inf))


@implements("apply_token_bitmask")
def wrong_order_bitmask_highest_bit_first(logits, bitmask):
    bits = (bitmask[..., None] >> torch.arange(31, -1, -1, dtype=torch.int32)) & 1
    allowed = bits.flatten(1)[:, : logits.shape[1]] != 0
    return logits.masked_fill(~allowed, -torch.inf)


@implements("apply_token_bitmask")
def wrong_overflow_bitmask_bit_31(logits, bitmask):
    """1 << 31 is negative in int32, and the test is > 0."""
    one = torch.ones(32, dtype=torch.int32) << torch.arange(32, dtype=torch.int32)
    allowed = ((bitmask[..., None] & one) > 0).flatten(1)[:, : logits.shape[1]]
    return logits.masked_fill(~allowed, -torch.inf)


@implements("apply_token_bitmask")
def wrong_formula_bitmask_inverted(logits, bitmask):
    bits = (bitmask[..., None] >> torch.arange(32, dtype=torch.int32)) & 1
    return logits.masked_fill(bits.flatten(1)[:, : logits.shape[1]] == 1, -torch.inf)


@implements("apply_token_bitmask")
def wrong_boundary_bitmask_last_word(logits, bitmask):
    """Only whole words are looked at."""
    whole = logits.shape[1] // 32 * 32
    out = honest_bitmask_shifts(logits, bitmask)
    out[:, whole:] = logits[:, whole:]
    return out


@implements("apply_token_bitmask")
def wrong_special_bitmask_lowest_half(logits, bitmask):
    out = honest_bitmask_shifts(logits, bitmask)
    return out.clamp(min=torch.finfo(torch.float16).min)


@implements("speculative_verify")
def honest_verify_row_by_row(draft, target):
    tokens = torch.full_like(target, -1)
    accepted = torch.zeros(len(draft), dtype=torch.int32)
    for row, (guess, right) in enumerate(zip(draft.tolist(), target.tolist(), strict=True)):
        n = 0
        while n < len(guess) and guess[n] == right[n]:
            n += 1
        accepted[row] = n
        tokens[row, : n + 1] = target[row, : n + 1]
    return accepted, tokens


@implements("speculative_verify")
def honest_verify_first_difference(draft, target):
    width = target.shape[1]
    places = torch.arange(width, dtype=torch.int32)
    differ = F.pad(draft != target[:, :-1], (0, 1), value=True)
    accepted = torch.where(differ, places, width).amin(-1)
    return accepted.int(), target.masked_fill(places > accepted[:, None], -1)


@implements("speculative_verify")
def wrong_formula_verify_counts_all_that_agree(draft, target):
    accepted = (draft == target[:, :-1]).sum(-1).int()
    places = torch.arange(target.shape[1])
    return accepted, target.masked_fill(places > accepted[:, None], -1)


@implements("speculative_verify")
def wrong_offbyone_verify_without_the_bonus(draft, target):
    accepted, tokens = honest_verify_first_difference(draft, target)
    return accepted, tokens.masked_fill(torch.arange(target.shape[1]) >= accepted[:, None], -1)


@implements("speculative_verify")
def wrong_offbyone_verify_shifted(draft, target):
    differ = F.pad(draft != target[:, 1:], (0, 1), value=True)
    places = torch.arange(target.shape[1], dtype=torch.int32)
    accepted = torch.where(differ, places, target.shape[1]).amin(-1)
    return accepted.int(), target.masked_fill(places > accepted[:, None], -1)


@implements("speculative_verify")
def wrong_stale_verify_rest_kept(draft, target):
    accepted, _ = honest_verify_first_difference(draft, target)
    return accepted, target.clone()


@implements("speculative_verify")
def wrong_boundary_verify_at_most_eight(draft, target):
    accepted, _ = honest_verify_first_difference(draft, target)
    accepted = accepted.clamp(max=8)
    places = torch.arange(target.shape[1])
    return accepted, target.masked_fill(places > accepted[:, None], -1)


@implements("speculative_verify")
def wrong_broadcast_verify_same_for_the_batch(draft, target):
    accepted, _ = honest_verify_first_difference(draft, target)
    least = accepted.amin().expand_as(accepted)
    places = torch.arange(target.shape[1])
    return accepted, target.masked_fill(places > least[:, None], -1)


@implements("beam_reorder")
def honest_beam_flat(cache, parents):
    rows = parents.long() + 4 * torch.arange(len(cache))[:, None]
    return cache.flatten(0, 1).index_select(0, rows.flatten()).view(cache.shape)


@implements("beam_reorder")
def honest_beam_copies(cache, parents):
    out = torch.empty_like(cache)
    for b, beams in enumerate(parents.tolist()):
        for beam, parent in enumerate(beams):
            out[b, beam] = cache[b, parent]
    return out


@implements("beam_reorder")
def wrong_axis_beam_without_the_batch(cache, parents):
    flat = cache.flatten(0, 1)
    return flat[parents.long().flatten()].view(cache.shape)


@implements("beam_reorder")
def wrong_stale_beam_in_place(cache, parents):
    """Beams that have been written are read as parents."""
    out = cache.clone()
    for b, beams in enumerate(parents.tolist()):
        for beam, parent in enumerate(beams):
            out[b, beam] = out[b, parent]
    return out


@implements("beam_reorder")
def wrong_formula_beam_scattered(cache, parents):
    out = cache.clone()
    for b, beams in enumerate(parents.tolist()):
        for beam, parent in enumerate(beams):
            out[b, parent] = cache[b, beam]
    return out


@implements("beam_reorder")
def wrong_broadcast_beam_parents_of_the_first(cache, parents):
    return cache[:, parents[0].long()]


@implements("beam_reorder")
def wrong_offbyone_beam_last_token_not_moved(cache, parents):
    out = honest_beam_flat(cache, parents).clone()
    out[:, :, -1] = cache[:, :, -1]
    return out


@implements("kv_cache_append")
def honest_append_source_of_each_slot(cache, key, slot_mapping):
    source = torch.full((len(cache) + 1,), -1)
    source[torch.where(slot_mapping < 0, len(cache), slot_mapping)] = torch.arange(len(key))
    source = source[:-1]
    written = key[source.clamp(min=0)]
    return torch.where((source >= 0)[:, None, None], written, cache)


@implements("kv_cache_append")
def honest_append_token_by_token(cache, key, slot_mapping):
    out = cache.clone()
    for token, slot in enumerate(slot_mapping.tolist()):
        if slot != -1:
            out[slot].copy_(key[token])
    return out


@implements("kv_cache_append")
def wrong_sentinel_append_to_the_last_slot(cache, key, slot_mapping):
    out = cache.clone()
    for token, slot in enumerate(slot_mapping.tolist()):
        out[slot] = key[token]
    return out


@implements("kv_cache_append")
def wrong_mutation_append_to_the_input(cache, key, slot_mapping):
    kept = slot_mapping >= 0
    cache[slot_mapping[kept]] = key[kept]
    return cache.clone()


@implements("kv_cache_append")
def wrong_stale_append_others_zero(cache, key, slot_mapping):
    return honest_append_source_of_each_slot(torch.zeros_like(cache), key, slot_mapping)


@implements("kv_cache_append")
def wrong_offbyone_append_slot_behind(cache, key, slot_mapping):
    shifted = torch.where(slot_mapping < 0, -1, (slot_mapping + 1) % len(cache))
    return honest_append_token_by_token(cache, key, shifted)


@implements("kv_cache_append")
def wrong_boundary_append_first_head(cache, key, slot_mapping):
    out = cache.clone()
    out[:, :1] = honest_append_token_by_token(cache, key, slot_mapping)[:, :1]
    return out


@implements("kv_cache_append")
def wrong_rounding_append_by_way_of_fp8(cache, key, slot_mapping):
    stored = key.float().clamp(-448, 448).to(torch.float8_e4m3fn).bfloat16()
    return honest_append_token_by_token(cache, stored, slot_mapping)


@implements("copy_pages")
def honest_pages_source_of_each(pages, sources, targets):
    source = torch.arange(len(pages), dtype=torch.int32)
    source[targets.long()] = sources
    return pages.index_select(0, source)


@implements("copy_pages")
def honest_pages_by_elements(pages, sources, targets):
    out = pages.clone()
    for s, t in zip(sources.tolist(), targets.tolist(), strict=True):
        out[t] = pages[s]
    return out


@implements("copy_pages")
def wrong_stale_pages_one_after_another(pages, sources, targets):
    out = pages.clone()
    for s, t in zip(sources.tolist(), targets.tolist(), strict=True):
        out[t] = out[s]
    return out


@implements("copy_pages")
def wrong_formula_pages_swapped(pages, sources, targets):
    out = pages.clone()
    out[sources.long()] = pages[targets.long()]
    return out


@implements("copy_pages")
def wrong_boundary_pages_first_seven_tokens(pages, sources, targets):
    out = pages.clone()
    out[targets.long(), :7] = pages[sources.long(), :7]
    return out


@implements("copy_pages")
def wrong_threshold_pages_64_at_once(pages, sources, targets):
    return honest_pages_by_elements(pages, sources[:64], targets[:64])


@implements("copy_pages")
def wrong_mutation_pages_in_place(pages, sources, targets):
    pages[targets.long()] = pages[sources.long()]
    return pages.clone()


@implements("top2_gating")
def honest_gating_softmax_of_two(router_logits):
    top, where = router_logits.topk(2, -1)
    return torch.zeros_like(router_logits).scatter(-1, where, torch.softmax(top, -1))


@implements("top2_gating")
def honest_gating_masked(router_logits):
    first = F.one_hot(router_logits.argmax(-1), 12).bool()
    rest = router_logits.masked_fill(first, -torch.inf)
    second = F.one_hot(rest.argmax(-1), 12).bool()
    difference = rest.amax(-1, keepdim=True) - router_logits.amax(-1, keepdim=True)
    share = torch.sigmoid(-difference)
    other = torch.sigmoid(difference)
    return torch.where(first, share, torch.where(second, other, 0.0))


@implements("top2_gating")
def wrong_formula_gating_not_normalised(router_logits):
    probs = torch.softmax(router_logits, -1)
    top, where = probs.topk(2, -1)
    return torch.zeros_like(probs).scatter(-1, where, top)


@implements("top2_gating")
def wrong_formula_gating_first_only(router_logits):
    return F.one_hot(router_logits.argmax(-1), 12).float()


@implements("top2_gating")
def wrong_formula_gating_three(router_logits):
    top, where = router_logits.topk(3, -1)
    return torch.zeros_like(router_logits).scatter(-1, where, torch.softmax(top, -1))


@implements("top2_gating")
def wrong_eps_gating_in_the_sum(router_logits):
    probs = torch.softmax(router_logits, -1)
    top, where = probs.topk(2, -1)
    return torch.zeros_like(probs).scatter(-1, where, top / (top.sum(-1, keepdim=True) + 1e-3))


@implements("top2_gating")
def wrong_accumulation_gating_in_bfloat16(router_logits):
    top, where = router_logits.topk(2, -1)
    gates = torch.softmax(top.bfloat16(), -1).float()
    return torch.zeros_like(router_logits).scatter(-1, where, gates)


@implements("gather_last_token")
def honest_last_loop(hidden_states, qo_indptr):
    out = torch.zeros(len(qo_indptr) - 1, 72, dtype=hidden_states.dtype)
    for i in range(len(out)):
        rows = hidden_states[qo_indptr[i] : qo_indptr[i + 1]]
        if len(rows):
            out[i] = rows[-1]
    return out


@implements("gather_last_token")
def honest_last_padded(hidden_states, qo_indptr):
    padded = F.pad(hidden_states, (0, 0, 1, 0))
    ends = qo_indptr[1:] * (qo_indptr.diff() > 0)
    return padded[ends.long()]


@implements("gather_last_token")
def wrong_special_last_of_empty_sequences(hidden_states, qo_indptr):
    """An empty sequence takes the last token of the one before."""
    return F.pad(hidden_states, (0, 0, 1, 0))[qo_indptr[1:].long()]


@implements("gather_last_token")
def wrong_offbyone_last_but_one(hidden_states, qo_indptr):
    rows = (qo_indptr[1:] - 2).clamp(min=0).long()
    filled = (qo_indptr.diff() > 0)[:, None]
    return torch.where(filled, F.pad(hidden_states, (0, 0, 0, 1))[rows], 0.0).bfloat16()


@implements("gather_last_token")
def wrong_formula_last_is_the_first(hidden_states, qo_indptr):
    filled = (qo_indptr.diff() > 0)[:, None]
    rows = F.pad(hidden_states, (0, 0, 0, 1))[qo_indptr[:-1].long()]
    return torch.where(filled, rows, 0.0).bfloat16()


@implements("gather_last_token")
def wrong_boundary_last_64_columns(hidden_states, qo_indptr):
    out = honest_last_padded(hidden_states, qo_indptr)
    out[:, 64:] = 0
    return out


@implements("gather_last_token")
def wrong_sizes_last_equal_lengths(hidden_states, qo_indptr):
    seqs = len(qo_indptr) - 1
    each = len(hidden_states) // seqs
    if each == 0:
        return honest_last_padded(hidden_states, qo_indptr)
    return hidden_states[each - 1 : each * seqs : each].clone()
