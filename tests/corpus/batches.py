"""Between the steps of a batch: experts' rows, histories, drafts, pages, budgets, cut-offs."""

import torch

from pytest_fib import implements

NI = float("-inf")


def _combine(y, w, ids, shared, routed=2.5, of_shared=1.0, dropped=True):
    w = w.masked_fill(ids < 0, 0.0) if dropped else w
    return (torch.einsum("tkh,tk->th", y.float(), w) * routed + shared.float() * of_shared).to(
        y.dtype
    )


@implements("moe_combine_shared")
def honest_mcs_einsum(y, topk_weights, topk_ids, shared):
    return _combine(y, topk_weights, topk_ids, shared)


@implements("moe_combine_shared")
def honest_mcs_from_shared(y, topk_weights, topk_ids, shared):
    total = shared.float()
    for j in range(4):
        w = torch.where(topk_ids[:, j] < 0, 0.0, topk_weights[:, j] * 2.5)
        total = total + w[:, None] * y[:, j].float()
    return total.to(y.dtype)


@implements("moe_combine_shared")
def wrong_sentinel_mcs_dropped_counted(y, topk_weights, topk_ids, shared):
    """Rows of other ranks are added."""
    return _combine(y, topk_weights, topk_ids, shared, dropped=False)


@implements("moe_combine_shared")
def wrong_formula_mcs_shared_scaled(y, topk_weights, topk_ids, shared):
    """The shared expert is scaled too."""
    return _combine(y, topk_weights, topk_ids, shared, of_shared=2.5)


@implements("moe_combine_shared")
def wrong_accumulation_mcs_bfloat16(y, topk_weights, topk_ids, shared):
    """Sums in bfloat16."""
    w = topk_weights.masked_fill(topk_ids < 0, 0.0).to(y.dtype)
    total = torch.zeros_like(shared)
    for j in range(4):
        total = total + w[:, j : j + 1] * y[:, j]
    return total * 2.5 + shared


@implements("moe_combine_shared")
def wrong_special_mcs_stops_at_dropped(y, topk_weights, topk_ids, shared):
    """A dropped expert ends the token's loop."""
    alive = (topk_ids >= 0).int().cumprod(1)
    return _combine(y, topk_weights * alive, topk_ids, shared)


def _counts(history, prompt_mask, cut=None):
    out = torch.zeros(prompt_mask.shape, dtype=torch.int32)
    history = history[:, :cut]
    return out.scatter_add_(1, history.clamp(min=0), (history >= 0).int())


@implements("token_bin_counts")
def honest_tbc_scatter(history, prompt_mask):
    counts = _counts(history, prompt_mask)
    return counts, prompt_mask | counts.bool()


@implements("token_bin_counts")
def honest_tbc_bincount(history, prompt_mask):
    vocab = prompt_mask.shape[1]
    rows = [torch.bincount(row[row >= 0], minlength=vocab) for row in history]
    counts = torch.stack(rows).to(torch.int32)
    return counts, torch.where(counts > 0, True, prompt_mask)


@implements("token_bin_counts")
def wrong_race_tbc_duplicates_once(history, prompt_mask):
    """A token counts once, as without atomics."""
    counts = _counts(history, prompt_mask).clamp(max=1)
    return counts, prompt_mask | counts.bool()


@implements("token_bin_counts")
def wrong_sentinel_tbc_padding_is_last(history, prompt_mask):
    """Padding counts as the last token."""
    wrapped = torch.where(history < 0, prompt_mask.shape[1] - 1, history)
    counts = _counts(wrapped, prompt_mask)
    return counts, prompt_mask | counts.bool()


@implements("token_bin_counts")
def wrong_overflow_tbc_bytes(history, prompt_mask):
    """Counts as bytes."""
    counts = _counts(history, prompt_mask) & 255
    return counts, prompt_mask | counts.bool()


@implements("token_bin_counts")
def wrong_formula_tbc_prompt_forgotten(history, prompt_mask):
    """Only what was generated is seen."""
    counts = _counts(history, prompt_mask)
    return counts, counts > 0


def _accepted(draft, accepted, bonus, at=0, pad=-1):
    j = torch.arange(draft.shape[1] + 1)
    padded = torch.cat([draft, bonus[:, None]], 1)
    out = padded.masked_fill(j >= accepted[:, None], pad)
    return torch.where(j == accepted[:, None] + at, bonus[:, None], out), accepted + 1


@implements("accepted_and_bonus")
def honest_aab_where(draft, accepted, bonus):
    return _accepted(draft, accepted, bonus)


@implements("accepted_and_bonus")
def honest_aab_loop(draft, accepted, bonus):
    out = torch.full((draft.shape[0], draft.shape[1] + 1), -1, dtype=torch.int32)
    for b, n in enumerate(accepted.tolist()):
        out[b, :n] = draft[b, :n]
        out[b, n] = bonus[b]
    return out, accepted + 1


@implements("accepted_and_bonus")
def wrong_offbyone_aab_bonus_late(draft, accepted, bonus):
    """A place is left between, so that the bonus of a whole draft is lost."""
    return _accepted(draft, accepted, bonus, at=1)


@implements("accepted_and_bonus")
def wrong_sentinel_aab_zero_padding(draft, accepted, bonus):
    """Padded by 0."""
    return _accepted(draft, accepted, bonus, pad=0)


@implements("accepted_and_bonus")
def wrong_boundary_aab_no_bonus_at_end(draft, accepted, bonus):
    """A whole draft gets no bonus."""
    tokens, n = _accepted(draft, accepted, bonus)
    whole = accepted == draft.shape[1]
    tokens[:, -1] = torch.where(whole, -1, tokens[:, -1])
    return tokens, n


@implements("accepted_and_bonus")
def wrong_special_aab_rejected_at_once(draft, accepted, bonus):
    """Where nothing was accepted, the count is 0."""
    tokens, n = _accepted(draft, accepted, bonus)
    return tokens, torch.where(accepted == 0, 0, n)


def _need(seq_lens, new_tokens):
    return (seq_lens + new_tokens + 15) // 16 - (seq_lens + 15) // 16


def _starts(need):
    return need, (need.cumsum(0) - need).to(torch.int32)


@implements("pages_to_allocate")
def honest_pta_cumsum(seq_lens, new_tokens):
    return _starts(_need(seq_lens, new_tokens))


@implements("pages_to_allocate")
def honest_pta_free_slots(seq_lens, new_tokens):
    free = (-seq_lens) % 16
    need = ((new_tokens - free).clamp(min=0) + 15) >> 4
    start = torch.zeros_like(need)
    total = 0
    for b, n in enumerate(need.tolist()):
        start[b] = total
        total += n
    return need, start


@implements("pages_to_allocate")
def wrong_formula_pta_of_new_alone(seq_lens, new_tokens):
    """The free slots of a last page are not used."""
    return _starts((new_tokens + 15) // 16)


@implements("pages_to_allocate")
def wrong_rounding_pta_floor(seq_lens, new_tokens):
    """Full pages."""
    return _starts((seq_lens + new_tokens) // 16 - seq_lens // 16)


@implements("pages_to_allocate")
def wrong_overflow_pta_int16_starts(seq_lens, new_tokens):
    """Starts in 16 bits."""
    need, start = _starts(_need(seq_lens, new_tokens))
    return need, start.to(torch.int16).int()


@implements("pages_to_allocate")
def wrong_race_pta_blocks_not_carried(seq_lens, new_tokens):
    """A scan in blocks of 512, whose sums aren't carried on."""
    need = _need(seq_lens, new_tokens)
    return need, torch.cat([_starts(each)[1] for each in need.split(512)])


def _renormed(probs, keep):
    kept = probs * keep
    return kept / kept.sum(-1, keepdim=True)


def _pivot(probs, top_k):
    k = torch.where(top_k <= 0, probs.shape[1], top_k).clamp(max=probs.shape[1]).long()
    return probs.sort(-1, descending=True).values.gather(1, k[:, None] - 1)


@implements("top_k_renorm_rows")
def honest_tkr_sorted(probs, top_k):
    return _renormed(probs, probs >= _pivot(probs, top_k))


@implements("top_k_renorm_rows")
def honest_tkr_kthvalue(probs, top_k):
    out = torch.zeros_like(probs)
    vocab = probs.shape[1]
    for b, k in enumerate(top_k.tolist()):
        kept = min(k, vocab) if k > 0 else vocab
        pivot = probs[b].kthvalue(vocab - kept + 1).values
        keep = probs[b] >= pivot
        out[b, keep] = probs[b, keep] * (1.0 / probs[b, keep].sum())
    return out


@implements("top_k_renorm_rows")
def wrong_tie_tkr_above_pivot(probs, top_k):
    """Only what is above the last, where there is any."""
    above = probs > _pivot(probs, top_k)
    last = probs == _pivot(probs, top_k)
    first = last & (last.int().cumsum(-1) == 1)
    return _renormed(probs, above | first)


@implements("top_k_renorm_rows")
def wrong_special_tkr_zero_is_one(probs, top_k):
    """0 keeps one."""
    return _renormed(probs, probs >= _pivot(probs, top_k.clamp(min=1)))


@implements("top_k_renorm_rows")
def wrong_broadcast_tkr_first_k(probs, top_k):
    """The first row's k."""
    return _renormed(probs, probs >= _pivot(probs, top_k[:1].expand(len(top_k))))


@implements("top_k_renorm_rows")
def wrong_threshold_tkr_1024_candidates(probs, top_k):
    """No more than 1024 candidates."""
    return _renormed(probs, probs >= _pivot(probs, torch.where(top_k > 1024, 1024, top_k)))


def _eta(logits, epsilon, root=True, base=1.0, smaller=True):
    p = logits.softmax(-1)
    entropy = torch.special.entr(p).sum(-1, keepdim=True) / base
    by_entropy = (epsilon**0.5 if root else epsilon) * torch.exp(-entropy)
    eta = by_entropy.clamp(max=epsilon) if smaller else by_entropy.clamp(min=epsilon)
    drop = p < eta
    drop.scatter_(1, logits.argmax(-1, keepdim=True), False)
    return logits.masked_fill(drop, NI)


@implements("eta_cutoff_logits")
def honest_eta_entr(logits, epsilon):
    return _eta(logits, epsilon)


@implements("eta_cutoff_logits")
def honest_eta_from_lse(logits, epsilon):
    """Entropy from the sum of exponentials and of logits under it."""
    shifted = logits - logits.amax(-1, keepdim=True)
    e = shifted.exp()
    z = e.sum(-1, keepdim=True)
    entropy = z.log() - (e * shifted).sum(-1, keepdim=True) / z
    eta = torch.minimum(torch.tensor(epsilon), epsilon**0.5 * (-entropy).exp())
    drop = e / z < eta
    drop[torch.arange(len(logits)), logits.argmax(-1)] = False
    return torch.where(drop, NI, logits)


@implements("eta_cutoff_logits")
def wrong_formula_eta_no_root(logits, epsilon):
    """No root of epsilon."""
    return _eta(logits, epsilon, root=False)


@implements("eta_cutoff_logits")
def wrong_special_eta_unshifted(logits, epsilon):
    """Exponentials of logits as they are, which overflow."""
    z = logits.exp().sum(-1, keepdim=True)
    return torch.where(logits.exp() < z * 0, NI, _eta(logits - z.log(), epsilon) + z.log())


@implements("eta_cutoff_logits")
def wrong_formula_eta_bits(logits, epsilon):
    """Entropy in bits."""
    return _eta(logits, epsilon, base=0.6931471805599453)


@implements("eta_cutoff_logits")
def wrong_formula_eta_larger(logits, epsilon):
    """The larger of both cut-offs."""
    return _eta(logits, epsilon, smaller=False)


def _match(query, cached, lens, best=torch.argmax):
    same = (cached == query) & (torch.arange(len(query)) < lens[:, None])
    match = torch.where(same.all(-1), len(query), (~same).int().argmax(-1)).to(torch.int32)
    return match, best(match).reshape(1).to(torch.int32)


@implements("radix_match")
def honest_rxm_first_difference(query, cached, lens):
    return _match(query, cached, lens)


@implements("radix_match")
def honest_rxm_rows(query, cached, lens):
    match = []
    for row, n in zip(cached, lens.tolist(), strict=True):
        differs = (row[:n] != query[:n]).nonzero()
        match.append(int(differs[0]) if len(differs) else n)
    best = match.index(max(match))
    return torch.tensor(match, dtype=torch.int32), torch.tensor([best], dtype=torch.int32)


@implements("radix_match")
def wrong_tie_rxm_last_best(query, cached, lens):
    """Of equal rows the last."""
    match, _ = _match(query, cached, lens)
    best = len(match) - 1 - match.flip(0).argmax()
    return match, best.reshape(1).to(torch.int32)


@implements("radix_match")
def wrong_formula_rxm_all_equal_tokens(query, cached, lens):
    """Counts equal tokens after the first difference too."""
    same = (cached == query) & (torch.arange(len(query)) < lens[:, None])
    match = same.sum(-1).to(torch.int32)
    return match, match.argmax().reshape(1).to(torch.int32)


@implements("radix_match")
def wrong_boundary_rxm_lens_ignored(query, cached, lens):
    """What a row holds after its end may match."""
    return _match(query, cached, torch.full_like(lens, len(query)))


@implements("radix_match")
def wrong_special_rxm_whole_pages(query, cached, lens):
    """Down to a multiple of 4."""
    match, _ = _match(query, cached, lens)
    match = match // 4 * 4
    return match, match.argmax().reshape(1).to(torch.int32)


def _budget(remaining, budget):
    before = remaining.cumsum(0) - remaining
    return torch.minimum((budget - before).clamp(min=0), remaining.long())


def _with_starts(take):
    return take.to(torch.int32), torch.cat([torch.zeros(1), take.cumsum(0)]).to(torch.int32)


@implements("prefill_chunk_budget")
def honest_pcb_scan(remaining, budget):
    return _with_starts(_budget(remaining, budget))


@implements("prefill_chunk_budget")
def honest_pcb_ends(remaining, budget):
    ends = remaining.cumsum(0).clamp(max=budget)
    start = torch.cat([torch.zeros_like(ends[:1]), ends])
    return start.diff().to(torch.int32), start.to(torch.int32)


@implements("prefill_chunk_budget")
def wrong_formula_pcb_all_or_nothing(remaining, budget):
    """No part of a prompt."""
    take = _budget(remaining, budget)
    return _with_starts(torch.where(take < remaining, 0, take))


@implements("prefill_chunk_budget")
def wrong_special_pcb_skips_too_long(remaining, budget):
    """Prompts that would not fit alone don't use up the budget."""
    fits = torch.where(remaining > budget, 0, remaining)
    before = fits.cumsum(0) - fits
    return _with_starts(torch.minimum((budget - before).clamp(min=0), remaining.long()))


@implements("prefill_chunk_budget")
def wrong_offbyone_pcb_inclusive(remaining, budget):
    """A prompt that ends at the budget's last token loses it."""
    take = _budget(remaining, budget)
    total = take.cumsum(0)
    return _with_starts(torch.where((total == budget) & (take > 0), take - 1, take))


@implements("prefill_chunk_budget")
def wrong_race_pcb_blocks_of_256(remaining, budget):
    """Each block of 256 prompts has the budget for itself."""
    return _with_starts(torch.cat([_budget(each, budget) for each in remaining.split(256)]))
