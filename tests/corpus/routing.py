"""What chooses tokens, experts or beams, and what works on those chosen."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


def combined(e, r, w, acc=torch.float32, keep=lambda i: i >= 0):
    out = torch.zeros(r.shape[0], e.shape[1], dtype=acc)
    for j in range(r.shape[1]):
        i = r[:, j].long()
        ok = keep(i)
        out[ok] += e[i[ok]].to(acc) * w[ok, j].to(acc)[:, None]
    return out.bfloat16()


@implements("moe_unpermute")
def honest_unpermute_slots(expert_out, row_of_slot, weights):
    return combined(expert_out, row_of_slot, weights)


@implements("moe_unpermute")
def wrong_accumulation_unpermute_bf16_acc(expert_out, row_of_slot, weights):
    return combined(expert_out, row_of_slot, weights, acc=torch.bfloat16)


@implements("moe_unpermute")
def wrong_sentinel_unpermute_drop_row0(expert_out, row_of_slot, weights):
    return combined(expert_out, row_of_slot, weights, keep=lambda i: i > 0)


@implements("moe_unpermute")
def wrong_sentinel_unpermute_minus_one(expert_out, row_of_slot, weights):
    return combined(expert_out, row_of_slot, weights, keep=lambda i: i > -5)


@implements("moe_unpermute")
def wrong_sentinel_unpermute_stop_at_dropped(expert_out, row_of_slot, weights):
    r = torch.where((row_of_slot < 0).cumsum(1) > 0, -1, row_of_slot)
    return combined(expert_out, r, weights)


@implements("moe_unpermute")
def wrong_formula_unpermute_renormalise_dropped(expert_out, row_of_slot, weights):
    w = weights * (row_of_slot >= 0)
    s = w.sum(1, keepdim=True)
    w = torch.where(
        (row_of_slot < 0).any(1, keepdim=True),
        w / s.clamp(min=1e-9) * weights.sum(1, keepdim=True),
        w,
    )
    return combined(expert_out, row_of_slot, w)


@implements("moe_unpermute")
def wrong_order_unpermute_dups_once(expert_out, row_of_slot, weights):
    r = row_of_slot.clone()
    r[:, 1] = torch.where(r[:, 1] == r[:, 0], -1, r[:, 1])
    return combined(expert_out, r, weights)


@implements("moe_unpermute")
def honest_unpermute_index_add(expert_out, row_of_slot, weights):
    token, slot = (row_of_slot >= 0).nonzero(as_tuple=True)
    rows = expert_out[row_of_slot[token, slot].long()].float() * weights[token, slot, None]
    out = torch.zeros(len(weights), expert_out.shape[1])
    return out.index_add_(0, token, rows).bfloat16()


def silu_of_rows(x, m, le=False, zero=True):
    make = torch.zeros if zero else torch.empty
    o = make(*x.shape[:2], 64, dtype=x.dtype)
    for e, n in enumerate(m.tolist()):
        a = x[e, : n + le].float()
        o[e, : n + le] = (F.silu(a[:, :64]) * a[:, 64:]).bfloat16()
    return o


@implements("masked_silu_of_experts")
def honest_silu_loop(x, masked_m):
    return silu_of_rows(x, masked_m)


@implements("masked_silu_of_experts")
def wrong_offbyone_silu_le(x, masked_m):
    return silu_of_rows(x, masked_m, le=True)


@implements("masked_silu_of_experts")
def wrong_stale_silu_uninit(x, masked_m):
    return silu_of_rows(x, masked_m, zero=False)


@implements("masked_silu_of_experts")
def wrong_order_silu_halves_swapped(x, masked_m):
    gate, up = x.chunk(2, -1)
    return silu_of_rows(torch.cat([up, gate], -1), masked_m)


@implements("masked_silu_of_experts")
def wrong_special_silu_mult_mask_nan(x, masked_m):
    m = masked_m.clone()
    m[m == 1] = 0
    return silu_of_rows(x, m)


@implements("masked_silu_of_experts")
def wrong_boundary_silu_tile_rows(x, masked_m):
    m = torch.where(masked_m > 64, (masked_m + 15) // 16 * 16, masked_m).clamp(max=x.shape[1])
    return silu_of_rows(x, m)


@implements("masked_silu_of_experts")
def honest_silu_where(x, masked_m):
    gate, up = x[..., :64].float(), x[..., 64:].float()
    live = torch.arange(x.shape[1]) < masked_m[:, None]
    return torch.where(live[..., None], gate / (1 + torch.exp(-gate)) * up, 0.0).bfloat16()


def top_k_kept(x, k, le=False, off=0, clamp=None):
    o = torch.empty_like(x)
    for b in range(len(x)):
        n = int(k[b]) + off
        n = min(max(n, 1), x.shape[1])
        if clamp:
            n = min(n, clamp)
        t = x[b].topk(n).values[-1]
        o[b] = torch.where((x[b] > t) if le else (x[b] >= t), x[b], float("-inf"))
    return o


@implements("top_k_mask_with_ties")
def honest_topk_topk(logits, top_k):
    return top_k_kept(logits, top_k)


@implements("top_k_mask_with_ties")
def wrong_ties_topk_strict(logits, top_k):
    return top_k_kept(logits, top_k, le=True)


@implements("top_k_mask_with_ties")
def wrong_offbyone_topk_off(logits, top_k):
    return top_k_kept(logits, top_k, off=1)


@implements("top_k_mask_with_ties")
def wrong_ties_topk_exact_k(logits, top_k):
    o = torch.full_like(logits, float("-inf"))
    for b in range(len(logits)):
        i = logits[b].sort(descending=True, stable=True).indices[: int(top_k[b])]
        o[b, i] = logits[b, i]
    return o


@implements("top_k_mask_with_ties")
def wrong_threshold_topk_max_64(logits, top_k):
    return top_k_kept(logits, top_k, clamp=64)


@implements("top_k_mask_with_ties")
def wrong_special_topk_finite_min(logits, top_k):
    o = top_k_kept(logits, top_k)
    return o.clamp(min=torch.finfo(torch.float32).min)


@implements("top_k_mask_with_ties")
def wrong_broadcast_topk_k0(logits, top_k):
    return top_k_kept(logits, top_k[:1].expand_as(top_k))


@implements("top_k_mask_with_ties")
def honest_topk_counted(logits, top_k):
    out = torch.full_like(logits, float("-inf"))
    for row, (values, k) in enumerate(zip(logits, top_k.tolist(), strict=True)):
        least = values.sort().values[len(values) - k]
        out[row] = torch.where(values < least, out[row], values)
    return out


def beams_chosen(lp, bs, fin, tok=0, low=False):
    b, k, v = lp.shape
    x = lp.clone()
    x[fin] = float("-inf")
    x[..., tok] = torch.where(fin, torch.zeros_like(bs), x[..., tok])
    x = (bs[..., None] + x).view(b, -1)
    sc, par, tk = [], [], []
    for _ in range(k):
        m = x.amax(-1)
        i = (
            (x == m[:, None]).int().argmax(-1)
            if not low
            else (x.shape[1] - 1 - (x == m[:, None]).flip(-1).int().argmax(-1))
        )
        sc.append(m)
        par.append(i // v)
        tk.append(i % v)
        x = x.scatter(1, i[:, None], float("-inf"))
    return torch.stack(sc, 1), torch.stack(par, 1).int(), torch.stack(tk, 1).int()


@implements("beam_search_step")
def honest_beams_iter(logprobs, beam_scores, finished):
    return beams_chosen(logprobs, beam_scores, finished)


@implements("beam_search_step")
def wrong_formula_beams_ignores_finished(logprobs, beam_scores, finished):
    return beams_chosen(logprobs, beam_scores, torch.zeros_like(finished))


@implements("beam_search_step")
def wrong_special_beams_finished_any_token(logprobs, beam_scores, finished):
    """A finished beam goes on with every token at no cost."""
    free = torch.where(finished[..., None], 0.0, logprobs)
    return beams_chosen(free, beam_scores, torch.zeros_like(finished))


@implements("beam_search_step")
def wrong_threshold_beams_two_per_beam(logprobs, beam_scores, finished):
    x = logprobs.clone()
    x[finished] = float("-inf")
    x[..., 0] = torch.where(finished, 0.0, x[..., 0])
    x = beam_scores[..., None] + x
    _b, k, _v = x.shape
    val, t = x.topk(2, -1)
    val, t = val.flatten(1), t.flatten(1)
    w, o = val.sort(dim=-1, descending=True, stable=True)
    w, o = w[:, :k], o[:, :k]
    return w, (o // 2).int(), t.gather(1, o).int()


@implements("beam_search_step")
def wrong_threshold_beams_vocab_pow2(logprobs, beam_scores, finished):
    _b, _k, v = logprobs.shape
    s, p, t = beams_chosen(logprobs, beam_scores, finished)
    f = p * v + t
    vp = v if v & (v - 1) == 0 or v < 1024 else v + 1
    return s, (f // vp).int(), (f % vp).int()


@implements("beam_search_step")
def wrong_ties_beams_tie_high(logprobs, beam_scores, finished):
    return beams_chosen(logprobs, beam_scores, finished, low=True)


@implements("beam_search_step")
def honest_beams_sorted(logprobs, beam_scores, finished):
    stay = torch.full_like(logprobs, float("-inf"))
    stay[..., 0] = 0
    total = beam_scores[..., None] + torch.where(finished[..., None], stay, logprobs)
    key, order = torch.sort(-total.flatten(1), stable=True)
    beams, vocab = logprobs.shape[1:]
    order = order[:, :beams].int()
    return -key[:, :beams], order // vocab, order % vocab
