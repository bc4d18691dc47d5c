"""Steps of engines that serve language models: routing, drafts, positions, quantised norms."""

import math

import torch
import torch.nn.functional as F

from pytest_fib import implements

NI = float("-inf")


def _norm(x, weight, eps, mean_of=None, eps_inside=True):
    x = x.float()
    n = mean_of or x.shape[-1]
    ms = x.square().sum(-1, keepdim=True) / n
    inv = torch.rsqrt(ms + eps) if eps_inside else 1 / (ms.sqrt() + eps)
    return x * inv * weight.float()


def _rows_int8(y, guard=1e-10):
    scale = (y.abs().amax(-1, keepdim=True) / 127.0).clamp(min=guard)
    return torch.round(y / scale).clamp(-128, 127).to(torch.int8), scale


@implements("rmsnorm_int8_dynamic")
def honest_rid_plain(x, weight, eps):
    return _rows_int8(_norm(x, weight, eps))


@implements("rmsnorm_int8_dynamic")
def honest_rid_reciprocal(x, weight, eps):
    y = _norm(x, weight, eps)
    top = torch.maximum(y.amax(-1, keepdim=True), -y.amin(-1, keepdim=True))
    scale = torch.clamp(top * (1.0 / 127.0), min=1e-10)
    return (y * scale.reciprocal()).round().clamp(-128, 127).to(torch.int8), scale


@implements("rmsnorm_int8_dynamic")
def wrong_accumulation_rid_norm_in_bfloat16(x, weight, eps):
    """The normalised row goes through bfloat16 before it is quantised."""
    return _rows_int8(_norm(x, weight, eps).bfloat16().float())


@implements("rmsnorm_int8_dynamic")
def wrong_rounding_rid_truncates(x, weight, eps):
    """Cut off, not rounded."""
    y = _norm(x, weight, eps)
    _, scale = _rows_int8(y)
    return (y / scale).clamp(-128, 127).to(torch.int8), scale


@implements("rmsnorm_int8_dynamic")
def wrong_guard_rid_zero_row(x, weight, eps):
    """No floor under the scale."""
    return _rows_int8(_norm(x, weight, eps), 0.0)


@implements("rmsnorm_int8_dynamic")
def wrong_boundary_rid_amax_of_full_tiles(x, weight, eps):
    """The largest is sought in full tiles of 256 only."""
    y = _norm(x, weight, eps)
    n = y.shape[-1]
    full = y[:, : n - n % 256] if n > 256 else y
    scale = (full.abs().amax(-1, keepdim=True) / 127.0).clamp(min=1e-10)
    return torch.round(y / scale).clamp(-128, 127).to(torch.int8), scale


def _positions(cu, ctx, side="right"):
    at = torch.arange(int(cu[-1]))
    ids = torch.searchsorted(cu[1:].long().contiguous(), at, right=side == "right")
    ids = ids.clamp(max=max(len(ctx) - 1, 0))
    return at - cu.long()[ids] + ctx.long()[ids], ids.int()


@implements("positions_from_cu_seqlens")
def honest_pfc_searchsorted(cu_seqlens, context_lens):
    return _positions(cu_seqlens, context_lens)


@implements("positions_from_cu_seqlens")
def honest_pfc_loop(cu_seqlens, context_lens):
    pos, ids = [], []
    for b, (i, j) in enumerate(zip(cu_seqlens.tolist(), cu_seqlens.tolist()[1:], strict=False)):
        pos.append(torch.arange(j - i) + int(context_lens[b]))
        ids.append(torch.full((j - i,), b, dtype=torch.int32))
    return torch.cat(pos), torch.cat(ids)


@implements("positions_from_cu_seqlens")
def wrong_tie_pfc_left(cu_seqlens, context_lens):
    """The first token of a sequence belongs to the one before."""
    return _positions(cu_seqlens, context_lens, "left")


@implements("positions_from_cu_seqlens")
def wrong_state_pfc_no_context(cu_seqlens, context_lens):
    """What is cached already isn't counted for the first sequence."""
    ctx = context_lens.clone()
    ctx[:1] = 0
    return _positions(cu_seqlens, ctx)


@implements("positions_from_cu_seqlens")
def wrong_mask_pfc_skips_empty(cu_seqlens, context_lens):
    """Empty sequences have no number."""
    n = cu_seqlens.diff()
    pos, _ = _positions(cu_seqlens, context_lens)
    full = n[n > 0].long()
    return pos, torch.repeat_interleave(torch.arange(len(full)), full).int()


@implements("positions_from_cu_seqlens")
def wrong_overflow_pfc_int16(cu_seqlens, context_lens):
    """The numbers of sequences in a byte."""
    pos, ids = _positions(cu_seqlens, context_lens)
    return pos, ids & 255


def _mlstm(q, k, v, i, f, c, n, m, stable=True, floor=True, absolute=True, scale=0.25):
    lf = F.logsigmoid(f)
    top = torch.maximum(lf + m, i) if stable else torch.zeros_like(m)
    ff, ii = torch.exp(lf + m - top)[..., None], torch.exp(i - top)[..., None]
    k = k * scale
    c = ff[..., None] * c + ii[..., None] * torch.einsum("bhi,bhj->bhij", v, k)
    n = ff * n + ii * k
    dot = torch.einsum("bhi,bhi->bh", n, q)
    dot = dot.abs() if absolute else dot
    low = torch.exp(-top) if floor else torch.ones_like(top)
    den = torch.maximum(dot, low)[..., None]
    return torch.einsum("bhij,bhj->bhi", c, q) / den, c, n, top


@implements("mlstm_step")
def honest_mls_einsum(q, k, v, i_gate, f_gate, c_state, n_state, m_state):
    return _mlstm(q, k, v, i_gate, f_gate, c_state, n_state, m_state)


@implements("mlstm_step")
def honest_mls_matmul(q, k, v, i_gate, f_gate, c_state, n_state, m_state):
    lf = -F.softplus(-f_gate)
    m = torch.where(lf + m_state > i_gate, lf + m_state, i_gate)
    f = torch.exp(lf + m_state - m)[..., None]
    i = torch.exp(i_gate - m)[..., None]
    c = f[..., None] * c_state + (i * v)[..., None] * (k / 4)[:, :, None]
    n = f * n_state + i * (k / 4)
    den = torch.maximum((n[:, :, None] @ q[..., None]).flatten(1).abs(), torch.exp(-m))
    return (c @ q[..., None])[..., 0] / den[..., None], c, n, m


@implements("mlstm_step")
def wrong_guard_mls_floor_of_one(q, k, v, i_gate, f_gate, c_state, n_state, m_state):
    """The denominator's floor is 1, as without the running maximum."""
    return _mlstm(q, k, v, i_gate, f_gate, c_state, n_state, m_state, floor=False)


@implements("mlstm_step")
def wrong_formula_mls_signed(q, k, v, i_gate, f_gate, c_state, n_state, m_state):
    """The denominator without its absolute value."""
    return _mlstm(q, k, v, i_gate, f_gate, c_state, n_state, m_state, absolute=False)


@implements("mlstm_step")
def wrong_scale_mls_k_unscaled(q, k, v, i_gate, f_gate, c_state, n_state, m_state):
    """Keys aren't divided by the root of their width."""
    return _mlstm(q, k, v, i_gate, f_gate, c_state, n_state, m_state, scale=1.0)


@implements("mlstm_step")
def wrong_state_mls_old_maximum(q, k, v, i_gate, f_gate, c_state, n_state, m_state):
    """The maximum never falls."""
    h, c, n, m = _mlstm(q, k, v, i_gate, f_gate, c_state, n_state, m_state)
    return h, c, n, torch.maximum(m, m_state)


def _grouped(logits, bias, group_of=2, kept=4, weigh="scores", factor=2.5, eps=1e-20):
    scores = torch.sigmoid(logits)
    biased = scores + bias
    g = biased.unflatten(1, (8, 8)).sort(-1, descending=True).values[..., :group_of].sum(-1)
    ids = g.sort(dim=-1, descending=True, stable=True).indices[:, :kept]
    keep = torch.zeros_like(g, dtype=torch.bool).scatter_(1, ids, True).repeat_interleave(8, 1)
    top = torch.where(keep, biased, NI).sort(dim=-1, descending=True, stable=True).indices[:, :8]
    w = (scores if weigh == "scores" else biased).gather(1, top)
    w = factor * w / (w.sum(-1, keepdim=True) + eps)
    return torch.zeros_like(scores).scatter_(1, top, w)


@implements("group_limited_topk")
def honest_glt_sort(router_logits, correction_bias):
    return _grouped(router_logits, correction_bias)


@implements("group_limited_topk")
def honest_glt_threshold(router_logits, correction_bias):
    s = 1 / (1 + torch.exp(-router_logits))
    b = (s + correction_bias).view(-1, 8, 8)
    first = b.amax(-1)
    second = b.scatter(2, b.argmax(-1, keepdim=True), NI).amax(-1)
    groups = (first + second).topk(4).indices
    ids = (groups[..., None] * 8 + torch.arange(8)).flatten(1)
    pick = ids.gather(1, (s + correction_bias).gather(1, ids).topk(8).indices)
    w = s.gather(1, pick)
    return torch.zeros_like(s).scatter(1, pick, w / (w.sum(1, keepdim=True) + 1e-20) * 2.5)


@implements("group_limited_topk")
def wrong_formula_glt_biased_weights(router_logits, correction_bias):
    """Weights of the biased scores."""
    return _grouped(router_logits, correction_bias, weigh="biased")


@implements("group_limited_topk")
def wrong_axis_glt_group_by_largest(router_logits, correction_bias):
    """Groups by their largest only."""
    return _grouped(router_logits, correction_bias, group_of=1)


@implements("group_limited_topk")
def wrong_mask_glt_zero_for_minus_infinity(router_logits, correction_bias):
    """Experts of other groups count as 0, which is more than a negative score."""
    scores = torch.sigmoid(router_logits)
    biased = scores + correction_bias
    g = biased.view(-1, 8, 8).topk(2).values.sum(-1)
    keep = torch.zeros_like(g).scatter_(1, g.topk(4).indices, 1.0).repeat_interleave(8, 1) > 0
    top = biased.masked_fill(~keep, 0.0).topk(8).indices
    w = scores.gather(1, top)
    w = 2.5 * w / (w.sum(-1, keepdim=True) + 1e-20)
    return torch.zeros_like(scores).scatter_(1, top, w)


@implements("group_limited_topk")
def wrong_scale_glt_no_factor(router_logits, correction_bias):
    """Without the factor."""
    return _grouped(router_logits, correction_bias, factor=1.0)


@implements("recovered_probs")
def honest_rec_relu(target_probs, draft_probs):
    d = F.relu(target_probs - draft_probs)
    total = d.sum(-1, keepdim=True)
    return torch.where(total > 0, d / torch.where(total > 0, total, 1.0), target_probs)


@implements("recovered_probs")
def honest_rec_rows(target_probs, draft_probs):
    d = torch.maximum(target_probs, draft_probs) - draft_probs
    total = d.double().sum(-1).float()
    out = target_probs.clone()
    some = total > 0
    out[some] = d[some] / total[some, None]
    return out


@implements("recovered_probs")
def wrong_guard_rec_equal(target_probs, draft_probs):
    """Nothing where both are equal: a quotient by zero."""
    d = (target_probs - draft_probs).clamp(min=0)
    return d / d.sum(-1, keepdim=True)


@implements("recovered_probs")
def wrong_guard_rec_epsilon(target_probs, draft_probs):
    """A small number in place of the guard."""
    d = (target_probs - draft_probs).clamp(min=0)
    return d / (d.sum(-1, keepdim=True) + 1e-6)


@implements("recovered_probs")
def wrong_formula_rec_swapped(target_probs, draft_probs):
    """The draft's surplus."""
    d = (draft_probs - target_probs).clamp(min=0)
    t = d.sum(-1, keepdim=True)
    return torch.where(t > 0, d / t, target_probs)


@implements("recovered_probs")
def wrong_formula_rec_abs(target_probs, draft_probs):
    """Absolute differences."""
    d = (target_probs - draft_probs).abs()
    t = d.sum(-1, keepdim=True)
    return torch.where(t > 0, d / t, target_probs)


@implements("unscale_found_inf")
def honest_ufi_abs(grad, inv_scale):
    return inv_scale * grad.float(), (~(grad.float().abs() < math.inf)).any().float()


@implements("unscale_found_inf")
def honest_ufi_bits(grad, inv_scale):
    bits = grad.contiguous().view(torch.int16) & 0x7C00
    return grad.to(torch.float32).mul(inv_scale), (bits == 0x7C00).any().to(torch.float32)


@implements("unscale_found_inf")
def wrong_guard_ufi_only_inf(grad, inv_scale):
    """NaN isn't found."""
    return grad.float() * inv_scale, torch.isinf(grad).any().float()


@implements("unscale_found_inf")
def wrong_guard_ufi_plus_inf(grad, inv_scale):
    """Minus infinity isn't found."""
    return grad.float() * inv_scale, (torch.isnan(grad) | (grad == math.inf)).any().float()


@implements("unscale_found_inf")
def wrong_boundary_ufi_tail(grad, inv_scale):
    """The last incomplete vector of four isn't looked at."""
    n = len(grad) - len(grad) % 4 if len(grad) > 4 else len(grad)
    return grad.float() * inv_scale, (~torch.isfinite(grad[:n])).any().float()


@implements("unscale_found_inf")
def wrong_accumulation_ufi_half(grad, inv_scale):
    """Unscaled in float16."""
    return (grad * inv_scale).float(), (~torch.isfinite(grad)).any().float()
