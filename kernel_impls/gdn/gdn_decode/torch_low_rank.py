"""Gated delta rule step whose output is read from the old state and the update apart."""

import torch

from pytest_fib import implements


@implements(
    "gdn_decode_*_k_last", description="Keys and queries read the old state in one product."
)
def run(q, k, v, state, A_log, a, dt_bias, b, scale):
    batch, _, heads, size = v.shape
    share = heads // q.shape[2]
    # The new state is g S + u k^T, so that what q reads of it is g S q + (k . q) u.
    both = torch.stack((k[:, 0], q[:, 0]), dim=-1).float()  # [batch, q heads, size, 2]
    step = torch.nn.functional.softplus(a[:, 0].float() + dt_bias)
    gate = (-A_log.exp() * step).exp()[..., None]
    folded = state.view(batch, heads // share, share * size, size)
    read = torch.matmul(folded, both).view(batch, heads, size, 2) * gate[..., None]
    update = (v[:, 0].float() - read[..., 0]) * b[:, 0].float().sigmoid()[..., None]
    overlap = (both[..., 0] * both[..., 1]).sum(-1).repeat_interleave(share, dim=1)[..., None]
    output = (read[..., 1] + overlap * update) * scale
    keys = both[..., 0].repeat_interleave(share, dim=1)
    new = torch.addcmul(state * gate[..., None], update[..., None], keys[..., None, :])
    return output[:, None].to(q.dtype), new
