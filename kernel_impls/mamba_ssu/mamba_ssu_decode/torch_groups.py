"""Selective state update with heads folded into their groups, read out by matrix products."""

import torch

from pytest_fib import implements


@implements("mamba_ssu_decode_h*_g[0-9]*", description="Heads folded into groups; matrix products.")
def run(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    batch, heads, dim = x.shape
    groups, dstate = B.shape[1:]
    step = dt.float() + dt_bias
    step = torch.logaddexp(step, torch.zeros_like(step))
    new = state.index_select(0, state_batch_indices).float()
    new.mul_((A * step[..., None]).exp_())
    # [batch * groups, channels of a group, 1] and [batch * groups, 1, dstate]
    taken = (step * x).reshape(batch * groups, -1, 1)
    folded = new.view(batch * groups, -1, dstate)
    folded.baddbmm_(taken, B.float().reshape(batch * groups, 1, dstate))
    read = torch.bmm(folded, C.float().reshape(batch * groups, dstate, 1))
    output = torch.addcmul(read.view(batch, heads, dim), x.float(), D)
    return output.to(x.dtype), new.to(state.dtype)
