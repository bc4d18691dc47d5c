"""One step of Mamba-2 and of the gated delta rule, wrong."""

import torch
from _wrong import caught, narrow, put

from pytest_fib import implements

softplus = torch.nn.functional.softplus


def mamba(state, x, dt, A, B, C, D, dt_bias, at, step=None, decay=None, groups=None, skip=True):
    share = x.shape[1] // B.shape[1]
    groups = groups or (lambda t: t.repeat_interleave(share, dim=1))
    inward, outward = groups(B.float())[:, :, None], groups(C.float())[:, :, None]
    step = softplus(dt.float() + dt_bias) if step is None else step(dt.float())
    fade = torch.exp(A * step[..., None]) if decay is None else decay(A, step[..., None])
    new = fade * state[at.long()].float() + (step * x.float())[..., None] * inward
    output = (new * outward).sum(-1) + (D * x.float() if skip else 0)
    return output.to(x.dtype), new.to(state.dtype)


def delta(q, k, v, state, A_log, a, dt_bias, b, scale, gate=None, beta=None, share=None, old=False):
    n = v.shape[2] // q.shape[2]
    share = share or (lambda t: t.repeat_interleave(n, dim=1))
    query, key, value = share(q[:, 0].float()), share(k[:, 0].float()), v[:, 0].float()
    step = softplus(a[:, 0].float() + dt_bias)
    gate = torch.exp(-A_log.exp() * step) if gate is None else gate(A_log, step)
    beta = torch.sigmoid(b[:, 0].float()) if beta is None else beta(b[:, 0].float())
    decayed = gate[..., None, None] * state
    held = torch.einsum("bhvk,bhk->bhv", state if old else decayed, key)
    new = decayed + (beta[..., None] * (value - held))[..., None] * key[..., None, :]
    output = scale * torch.einsum("bhvk,bhk->bhv", new, query)
    return output[:, None].to(q.dtype), new


@implements("mamba_ssu_decode_h16_d64_s16_g2_bfloat16")
@caught("misread input")
def without_dt_bias(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    return mamba(state, x, dt, A, B, C, D, 0 * dt_bias, state_batch_indices)


@implements("mamba_ssu_decode_h16_d64_s16_g2_bfloat16")
@caught()
def without_softplus(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    return mamba(
        state, x, dt, A, B, C, D, dt_bias, state_batch_indices, step=lambda dt: dt + dt_bias
    )


@implements("mamba_ssu_decode_h16_d64_s16_g2_float32")
@caught("misread input")
def without_skip(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    return mamba(state, x, dt, A, B, C, D, dt_bias, state_batch_indices, skip=False)


@implements("mamba_ssu_decode_h16_d64_s16_g2_float32")
@caught("misread input")
def groups_interleaved(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    share = x.shape[1] // B.shape[1]
    return mamba(
        state, x, dt, A, B, C, D, dt_bias, state_batch_indices,
        groups=lambda t: t.repeat(1, share, 1),
    )  # fmt: skip


@implements("mamba_ssu_decode_h16_d64_s16_g2_float32")
@caught("lower precision")
def state_in_bfloat16(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    output, new = mamba(state, x, dt, A, B, C, D, dt_bias, state_batch_indices)
    return output, narrow(new, torch.bfloat16)


@implements("mamba_ssu_decode_h16_d64_s16_g2_float32")
@caught("lower precision", "follows an input")
def decay_in_half(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    return mamba(
        state, x, dt, A, B, C, D, dt_bias, state_batch_indices,
        decay=lambda A, step: torch.exp((A * step).half().float()),
    )  # fmt: skip


@implements("mamba_ssu_decode_h16_d64_s16_g2_bfloat16")
@caught("misread input")
def first_states_of_the_cache(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    at = torch.arange(len(x), device=x.device)
    return mamba(state, x, dt, A, B, C, D, dt_bias, at)


@implements("mamba_ssu_decode_h16_d64_s16_g2_bfloat16")
@caught()
def state_not_updated(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    output, _ = mamba(state, x, dt, A, B, C, D, dt_bias, state_batch_indices)
    return output, state[state_batch_indices.long()]


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught("misread input", "one factor")
def without_scale(q, k, v, state, A_log, a, dt_bias, b, scale):
    return delta(q, k, v, state, A_log, a, dt_bias, b, 1.0)


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught()
def without_decay(q, k, v, state, A_log, a, dt_bias, b, scale):
    return delta(
        q, k, v, state, A_log, a, dt_bias, b, scale, gate=lambda A_log, step: torch.ones_like(step)
    )


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught()
def beta_is_one(q, k, v, state, A_log, a, dt_bias, b, scale):
    return delta(q, k, v, state, A_log, a, dt_bias, b, scale, beta=torch.ones_like)


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught()
def held_before_decay(q, k, v, state, A_log, a, dt_bias, b, scale):
    return delta(q, k, v, state, A_log, a, dt_bias, b, scale, old=True)


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught("transposed")
def state_transposed(q, k, v, state, A_log, a, dt_bias, b, scale):
    output, new = delta(q, k, v, state, A_log, a, dt_bias, b, scale)
    return output, new.transpose(-1, -2).contiguous()


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught("misread input")
def query_heads_interleaved(q, k, v, state, A_log, a, dt_bias, b, scale):
    n = v.shape[2] // q.shape[2]
    return delta(q, k, v, state, A_log, a, dt_bias, b, scale, share=lambda t: t.repeat(1, n, 1))


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught("zeros", "one head")
def one_head_of_state_zero(q, k, v, state, A_log, a, dt_bias, b, scale):
    output, new = delta(q, k, v, state, A_log, a, dt_bias, b, scale)
    return output, put(new, (slice(None), 3), 0.0)


@implements("gdn_decode_qk4_v8_d64_k_last")
@caught("lower precision")
def new_state_in_half(q, k, v, state, A_log, a, dt_bias, b, scale):
    output, new = delta(q, k, v, state, A_log, a, dt_bias, b, scale)
    return output, narrow(new, torch.float16)
