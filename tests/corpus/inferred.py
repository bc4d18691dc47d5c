"""Definitions that say nothing of their inputs: what these are is inferred."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


def _shifted_state(x, conv_state, idx):
    new = conv_state.clone()
    new[idx] = torch.cat([conv_state[idx][..., 1:], x[..., None]], -1)
    return new


@implements("conv_state_step")
def honest_conv_step_taps(x, conv_state, weight, bias, state_idx):
    old = conv_state.index_select(0, state_idx)
    acc = bias.float().expand(x.shape).clone()
    for t in range(3):
        acc += old[..., t].float() * weight[:, t].float()
    acc += x.float() * weight[:, 3].float()
    return (acc * torch.sigmoid(acc)).to(x.dtype), _shifted_state(x, conv_state, state_idx.long())


@implements("conv_state_step")
def honest_conv_step_conv1d(x, conv_state, weight, bias, state_idx):
    idx = state_idx.long()
    win = torch.cat([conv_state[idx].float(), x.float()[..., None]], -1)
    y = F.conv1d(win, weight.float()[:, None], bias.float(), groups=x.shape[1])[..., 0]
    out = y / (1 + torch.exp(-y))
    rolled = conv_state.clone()
    rolled[idx] = win[..., 1:].to(conv_state.dtype)
    return out.bfloat16(), rolled


@implements("conv_state_step")
def wrong_stale_conv_step_state_by_row(x, conv_state, weight, bias, state_idx):
    idx = torch.arange(len(x), device=x.device)
    win = torch.cat([conv_state[idx], x[..., None]], -1).float()
    return F.silu((win * weight.float()).sum(-1) + bias.float()).bfloat16(), _shifted_state(
        x, conv_state, idx
    )


@implements("conv_state_step")
def wrong_stale_conv_step_state_not_shifted(x, conv_state, weight, bias, state_idx):
    idx = state_idx.long()
    win = torch.cat([conv_state[idx], x[..., None]], -1).float()
    new = conv_state.clone()
    new[idx, :, -1] = x
    return F.silu((win * weight.float()).sum(-1) + bias.float()).bfloat16(), new


@implements("conv_state_step")
def wrong_formula_conv_step_bias_after_silu(x, conv_state, weight, bias, state_idx):
    idx = state_idx.long()
    win = torch.cat([conv_state[idx], x[..., None]], -1).float()
    return (F.silu((win * weight.float()).sum(-1)) + bias.float()).bfloat16(), _shifted_state(
        x, conv_state, idx
    )


@implements("conv_state_step")
def wrong_accumulation_conv_step_in_bfloat16(x, conv_state, weight, bias, state_idx):
    idx = state_idx.long()
    win = torch.cat([conv_state[idx], x[..., None]], -1)
    acc = bias
    for t in range(4):
        acc = acc + win[..., t] * weight[:, t]
    return F.silu(acc), _shifted_state(x, conv_state, idx)


def _token_counts(output_ids, vocab):
    hot = torch.zeros(len(output_ids), vocab + 1, device=output_ids.device)
    for j in range(output_ids.shape[1]):
        hot[torch.arange(len(output_ids), device=output_ids.device), output_ids[:, j]] += 1
    return hot[:, :vocab]


def _repeated(logits, seen, repetition):
    r = repetition[:, None]
    scaled = torch.where(logits > 0, logits / r, logits * r)
    return torch.where(seen, scaled, logits)


@implements("penalties_of_padded_ids")
def honest_penalties_loop(logits, output_ids, repetition, frequency, presence):
    c = _token_counts(output_ids, logits.shape[1])
    out = _repeated(logits, c > 0, repetition)
    return out - (frequency[:, None] * c + presence[:, None] * (c > 0))


@implements("penalties_of_padded_ids")
def honest_penalties_bincount(logits, output_ids, repetition, frequency, presence):
    batch, vocab = logits.shape
    rows = torch.arange(batch, device=logits.device)[:, None] * (vocab + 1)
    c = torch.bincount((output_ids + rows).flatten(), minlength=batch * (vocab + 1)).view(
        batch, -1
    )[:, :vocab]
    seen = (c > 0).float()
    f = torch.where(logits > 0, 1 / repetition[:, None], repetition[:, None])
    out = logits * torch.where(c > 0, f, 1.0)
    out = out - c * frequency[:, None]
    return out - seen * presence[:, None]


@implements("penalties_of_padded_ids")
def wrong_formula_penalties_always_divide(logits, output_ids, repetition, frequency, presence):
    c = _token_counts(output_ids, logits.shape[1])
    out = torch.where(c > 0, logits / repetition[:, None], logits)
    return out - frequency[:, None] * c - presence[:, None] * (c > 0)


@implements("penalties_of_padded_ids")
def wrong_sentinel_penalties_padding_is_the_last(
    logits, output_ids, repetition, frequency, presence
):
    vocab = logits.shape[1]
    c = _token_counts(output_ids.clamp(max=vocab - 1), vocab)
    return (
        _repeated(logits, c > 0, repetition) - frequency[:, None] * c - presence[:, None] * (c > 0)
    )


@implements("penalties_of_padded_ids")
def wrong_formula_penalties_presence_counts(logits, output_ids, repetition, frequency, presence):
    c = _token_counts(output_ids, logits.shape[1])
    return _repeated(logits, c > 0, repetition) - (frequency + presence)[:, None] * c


@implements("penalties_of_padded_ids")
def wrong_overflow_penalties_255_at_most(logits, output_ids, repetition, frequency, presence):
    c = _token_counts(output_ids, logits.shape[1])
    return (
        _repeated(logits, c > 0, repetition)
        - frequency[:, None] * c.clamp(max=255)
        - presence[:, None] * (c > 0)
    )


@implements("penalties_of_padded_ids")
def wrong_order_penalties_before_repetition(logits, output_ids, repetition, frequency, presence):
    c = _token_counts(output_ids, logits.shape[1])
    out = logits - frequency[:, None] * c - presence[:, None] * (c > 0)
    return _repeated(out, c > 0, repetition)


@implements("greedy_draft_acceptance")
def honest_acceptance_loop(draft_ids, target_ids):
    batch, k = draft_ids.shape
    accepted = torch.zeros(batch, dtype=torch.int32, device=draft_ids.device)
    alive = torch.ones(batch, dtype=torch.bool, device=draft_ids.device)
    out = torch.full_like(target_ids, -1)
    for i in range(k + 1):
        out[:, i] = torch.where(alive, target_ids[:, i], out[:, i])
        if i < k:
            alive = alive & (draft_ids[:, i] == target_ids[:, i])
            accepted += alive.int()
    return accepted, out


@implements("greedy_draft_acceptance")
def honest_acceptance_first_mismatch(draft_ids, target_ids):
    batch, k = draft_ids.shape
    wrong = draft_ids != target_ids[:, :-1]
    place = torch.arange(k, device=draft_ids.device, dtype=torch.int32).expand(batch, k)
    first = torch.where(wrong, place, k).amin(1)
    out = target_ids.clone()
    out[torch.arange(k + 1, device=draft_ids.device)[None] > first[:, None]] = -1
    return first.to(torch.int32), out


@implements("greedy_draft_acceptance")
def wrong_formula_acceptance_counts_all(draft_ids, target_ids):
    k = draft_ids.shape[1]
    accepted = (draft_ids == target_ids[:, :k]).sum(1)
    place = torch.arange(k + 1, device=draft_ids.device)[None]
    return accepted.int(), torch.where(place <= accepted[:, None], target_ids, -1)


@implements("greedy_draft_acceptance")
def wrong_offbyone_acceptance_no_bonus(draft_ids, target_ids):
    k = draft_ids.shape[1]
    accepted = torch.cumprod((draft_ids == target_ids[:, :k]).int(), 1).sum(1)
    place = torch.arange(k + 1, device=draft_ids.device)[None]
    keep = (place <= accepted[:, None]) & (place < k)
    return accepted.int(), torch.where(keep, target_ids, -1)


@implements("greedy_draft_acceptance")
def wrong_overflow_acceptance_in_int16(draft_ids, target_ids):
    k = draft_ids.shape[1]
    same = draft_ids.to(torch.int16) == target_ids[:, :k].to(torch.int16)
    accepted = torch.cumprod(same.int(), 1).sum(1)
    place = torch.arange(k + 1, device=draft_ids.device)[None]
    return accepted.int(), torch.where(place <= accepted[:, None], target_ids, -1)


@implements("greedy_draft_acceptance")
def wrong_boundary_acceptance_of_16(draft_ids, target_ids):
    k = draft_ids.shape[1]
    same = draft_ids == target_ids[:, :k]
    same[:, 16:] = False
    accepted = torch.cumprod(same.int(), 1).sum(1)
    place = torch.arange(k + 1, device=draft_ids.device)[None]
    return accepted.int(), torch.where(place <= accepted[:, None], target_ids, -1)


AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)


def _unpacked(p, order=AWQ_ORDER):
    return torch.stack([(p >> (4 * o)) & 0xF for o in order], -1).flatten(-2)


@implements("awq_unpack")
def honest_awq_stacked(qweight, qzeros, scales):
    q = _unpacked(qweight).view(len(qzeros), 64, -1)
    z = _unpacked(qzeros)[:, None]
    return ((q - z).half() * scales[:, None]).flatten(0, 1)


@implements("awq_unpack")
def honest_awq_bytes(qweight, qzeros, scales):
    def up(p):
        b = p.contiguous().view(torch.uint8).view(*p.shape, 4)
        nib = torch.stack([b & 15, b >> 4], -1).flatten(-2).to(torch.int16)
        return nib[..., list(AWQ_ORDER)].flatten(-2)

    z = up(qzeros).float()
    q = up(qweight).float().view(len(z), 64, -1)
    out = q * scales.float()[:, None] - (z * scales.float())[:, None]
    return out.half().reshape(-1, scales.shape[1])


@implements("awq_unpack")
def wrong_order_awq_plain(qweight, qzeros, scales):
    plain = tuple(range(8))
    q = _unpacked(qweight, plain).view(len(qzeros), 64, -1)
    return ((q - _unpacked(qzeros, plain)[:, None]).half() * scales[:, None]).flatten(0, 1)


@implements("awq_unpack")
def wrong_sign_awq_top_nibble(qweight, qzeros, scales):
    def up(p):
        return torch.stack(
            [(p >> 28) if o == 7 else (p >> (4 * o)) & 15 for o in AWQ_ORDER], -1
        ).flatten(-2)

    q = up(qweight).view(len(qzeros), 64, -1)
    return ((q - up(qzeros)[:, None]).half() * scales[:, None]).flatten(0, 1)


@implements("awq_unpack")
def wrong_offbyone_awq_zero(qweight, qzeros, scales):
    q = _unpacked(qweight).view(len(qzeros), 64, -1)
    return ((q - _unpacked(qzeros)[:, None] - 1).half() * scales[:, None]).flatten(0, 1)


@implements("awq_unpack")
def wrong_broadcast_awq_first_zeros(qweight, qzeros, scales):
    q = _unpacked(qweight).view(len(qzeros), 64, -1)
    return ((q - _unpacked(qzeros)[:1, None]).half() * scales[:, None]).flatten(0, 1)


@implements("gated_adaln")
def honest_adaln_addcmul(x, residual, gate, shift, scale, eps):
    r = torch.addcmul(residual.float(), gate.float()[:, None], x.float())
    c = r - r.sum(-1, keepdim=True) / r.shape[-1]
    h = c * (c.square().sum(-1, keepdim=True) / r.shape[-1] + eps).sqrt().reciprocal()
    y = torch.addcmul(shift.float()[:, None], h, scale.float()[:, None] + 1)
    return y.bfloat16(), r.bfloat16()


@implements("gated_adaln")
def honest_adaln_welford(x, residual, gate, shift, scale, eps):
    r = x.float() * gate.float().unsqueeze(1) + residual
    count, mean, m2 = 0, torch.zeros_like(r[..., :1]), torch.zeros_like(r[..., :1])
    for part in r.split(256, dim=-1):
        n = part.shape[-1]
        pm = part.mean(-1, keepdim=True)
        p2 = (part - pm).square().sum(-1, keepdim=True)
        delta = pm - mean
        m2 = m2 + p2 + delta * delta * (count * n / (count + n))
        mean = mean + delta * (n / (count + n))
        count += n
    inv = 1 / torch.sqrt(m2 / count + eps)
    y = (r - mean) * inv * (1 + scale.float()[:, None]) + shift.float()[:, None]
    return y.bfloat16(), r.to(torch.bfloat16)


@implements("gated_adaln")
def wrong_formula_adaln_no_one_plus(x, residual, gate, shift, scale, eps):
    r = residual.float() + gate.float()[:, None] * x.float()
    h = F.layer_norm(r, r.shape[-1:], eps=eps)
    return (h * scale.float()[:, None] + shift.float()[:, None]).bfloat16(), r.bfloat16()


@implements("gated_adaln")
def wrong_eps_adaln_outside(x, residual, gate, shift, scale, eps):
    r = residual.float() + gate.float()[:, None] * x.float()
    c = r - r.mean(-1, keepdim=True)
    h = c / (c.square().mean(-1, keepdim=True).sqrt() + eps)
    return (h * (1 + scale.float()[:, None]) + shift.float()[:, None]).bfloat16(), r.bfloat16()


@implements("gated_adaln")
def wrong_broadcast_adaln_first_gate(x, residual, gate, shift, scale, eps):
    r = residual.float() + gate.float()[:1, None] * x.float()
    h = F.layer_norm(r, r.shape[-1:], eps=eps)
    return (h * (1 + scale.float()[:, None]) + shift.float()[:, None]).bfloat16(), r.bfloat16()


@implements("gated_adaln")
def wrong_formula_adaln_unbiased(x, residual, gate, shift, scale, eps):
    r = residual.float() + gate.float()[:, None] * x.float()
    c = r - r.mean(-1, keepdim=True)
    h = c * torch.rsqrt(c.square().sum(-1, keepdim=True) / max(c.shape[-1] - 1, 1) + eps)
    return (h * (1 + scale.float()[:, None]) + shift.float()[:, None]).bfloat16(), r.bfloat16()
