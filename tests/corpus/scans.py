"""Prefix sums and recurrences."""

import numpy as np
import torch

from pytest_fib import implements


@implements("cumsum_rows")
def honest_cumsum_chunks(x):
    """Chunks of 64 by themselves, then the sums of those before."""
    out, carry = [], torch.zeros(len(x), 1)
    for chunk in x.split(64, -1):
        inner = chunk.cumsum(-1)
        out.append(inner + carry)
        carry = carry + inner[:, -1:]
    return torch.cat(out, -1)


@implements("cumsum_rows")
def honest_cumsum_doubling(x):
    out, step = x.clone(), 1
    while step < x.shape[-1]:
        out[:, step:] = out[:, step:] + out[:, :-step]
        step *= 2
    return out


@implements("cumsum_rows")
def wrong_offbyone_cumsum_exclusive(x):
    return x.cumsum(-1) - x


@implements("cumsum_rows")
def wrong_boundary_cumsum_chunks_without_carry(x):
    return torch.cat([chunk.cumsum(-1) for chunk in x.split(1024, -1)], -1)


@implements("cumsum_rows")
def wrong_offbyone_cumsum_carry_of_the_last_chunk_only(x):
    out, carry = [], torch.zeros(len(x), 1)
    for chunk in x.split(256, -1):
        inner = chunk.cumsum(-1)
        out.append(inner + carry)
        carry = inner[:, -1:]
    return torch.cat(out, -1)


@implements("cumsum_rows")
def wrong_accumulation_cumsum_carry_in_bfloat16(x):
    out, carry = [], torch.zeros(len(x), 1)
    for chunk in x.split(128, -1):
        inner = chunk.cumsum(-1) + carry
        out.append(inner)
        carry = inner[:, -1:].bfloat16().float()
    return torch.cat(out, -1)


@implements("cumsum_rows")
def wrong_axis_cumsum_down_the_columns(x):
    return x.cumsum(0)


@implements("exclusive_scan_int")
def honest_offsets_numpy(lengths):
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths.numpy(), out=offsets[1:])
    return torch.from_numpy(offsets)


@implements("exclusive_scan_int")
def honest_offsets_matmul(lengths):
    """Blocks by a triangle of ones; float64 holds these sums exactly."""
    offsets, total = [torch.zeros(1, dtype=torch.float64)], 0.0
    for block in lengths.double().split(128):
        sums = torch.ones(len(block), len(block), dtype=torch.float64).tril() @ block + total
        offsets.append(sums)
        total = sums[-1]
    return torch.cat(offsets).long()


@implements("exclusive_scan_int")
def wrong_overflow_offsets_in_int32(lengths):
    zero = torch.zeros(1, dtype=torch.int32)
    return torch.cat([zero, lengths.cumsum(0, dtype=torch.int32)]).long()


@implements("exclusive_scan_int")
def wrong_accumulation_offsets_in_float32(lengths):
    return torch.cat([torch.zeros(1), lengths.float().cumsum(0)]).long()


@implements("exclusive_scan_int")
def wrong_stale_offsets_total_unwritten(lengths):
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    offsets[1:-1] = lengths.long().cumsum(0)[:-1]
    return offsets


@implements("exclusive_scan_int")
def wrong_offbyone_offsets_inclusive(lengths):
    total = lengths.long().cumsum(0)
    return torch.cat([total, total[-1:]])


@implements("exclusive_scan_int")
def wrong_boundary_offsets_one_block_of_1024(lengths):
    offsets = torch.zeros(len(lengths) + 1, dtype=torch.int64)
    for at in range(0, len(lengths), 1024):
        offsets[at + 1 : at + 1025] = lengths[at : at + 1024].long().cumsum(0)
    return offsets


@implements("cumprod_rows")
def honest_cumprod_loop(decay):
    out = torch.empty_like(decay)
    running = torch.ones(len(decay))
    for t in range(decay.shape[1]):
        running = running * decay[:, t]
        out[:, t] = running
    return out


@implements("cumprod_rows")
def honest_cumprod_logs(decay):
    return decay.double().log().cumsum(-1).exp().float()


@implements("cumprod_rows")
def wrong_accumulation_cumprod_in_half(decay):
    return decay.half().cumprod(-1).float()


@implements("cumprod_rows")
def wrong_offbyone_cumprod_exclusive(decay):
    return torch.cat([torch.ones(len(decay), 1), decay[:, :-1].cumprod(-1)], -1)


@implements("cumprod_rows")
def wrong_axis_cumprod_reversed(decay):
    return decay.flip(-1).cumprod(-1).flip(-1)


@implements("cumprod_rows")
def wrong_boundary_cumprod_restarts_at_128(decay):
    return torch.cat([decay[:, :128].cumprod(-1), decay[:, 128:].cumprod(-1)], -1)


@implements("cumprod_rows")
def wrong_formula_cumprod_first_order(decay):
    """1 - the sum of what each step takes away."""
    return 1 - (1 - decay).cumsum(-1)


@implements("selective_scan")
def honest_ss_one_channel_at_a_time(x, dt, A, B, C, D):
    y = torch.empty_like(x)
    for c in range(x.shape[2]):
        h = torch.zeros(len(x), A.shape[1])
        for t in range(x.shape[1]):
            rate = dt[:, t, c, None]
            h = h * (rate * A[c]).exp() + rate * x[:, t, c, None] * B[:, t]
            y[:, t, c] = torch.einsum("bs,bs->b", h, C[:, t]) + D[c] * x[:, t, c]
    return y


@implements("selective_scan")
def honest_ss_chunks_of_decays(x, dt, A, B, C, D):
    """The states of a chunk from the one before it, by a triangle of decays, in float64."""
    x64, dt64, A64 = x.double(), dt.double(), A.double()
    log = (dt64[..., None] * A64).transpose(0, 1)
    inputs = ((dt64 * x64)[..., None] * B.double()[:, :, None]).transpose(0, 1)
    h = torch.zeros(inputs.shape[1:], dtype=torch.float64)
    states = []
    for logs, parts in zip(log.split(16), inputs.split(16), strict=True):
        sums = logs.cumsum(0)
        size = len(sums)
        lower = torch.ones(size, size, dtype=torch.bool).tril()[:, :, None, None, None]
        decays = torch.where(lower, (sums[:, None] - sums[None]).clamp(max=0).exp(), 0.0)
        chunk = torch.einsum("tubcs,ubcs->tbcs", decays, parts) + sums.exp() * h
        states.append(chunk)
        h = chunk[-1]
    hidden = torch.cat(states).transpose(0, 1)
    return (torch.einsum("blcs,bls->blc", hidden, C.double()) + D.double() * x64).float()


def _scan(x, dt, A, B, C, D, *, dtype=torch.float32, before=False):
    h = torch.zeros(len(x), x.shape[2], A.shape[1], dtype=dtype)
    ys = []
    for t in range(x.shape[1]):
        new = (dt[:, t, :, None] * A).exp() * h + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]
        read = h if before else new
        ys.append((read * C[:, t, None]).sum(-1) + D * x[:, t])
        h = new.to(dtype)
    return torch.stack(ys, 1)


@implements("selective_scan")
def wrong_accumulation_ss_state_in_bfloat16(x, dt, A, B, C, D):
    return _scan(x, dt, A, B, C, D, dtype=torch.bfloat16).float()


@implements("selective_scan")
def wrong_order_ss_reads_the_state_before(x, dt, A, B, C, D):
    return _scan(x, dt, A, B, C, D, before=True)


@implements("selective_scan")
def wrong_formula_ss_without_D(x, dt, A, B, C, D):
    return _scan(x, dt, A, B, C, torch.zeros_like(D))


@implements("selective_scan")
def wrong_formula_ss_euler_decay(x, dt, A, B, C, D):
    h = torch.zeros(len(x), x.shape[2], A.shape[1])
    ys = []
    for t in range(x.shape[1]):
        h = (1 + dt[:, t, :, None] * A) * h + (dt[:, t] * x[:, t])[..., None] * B[:, t, None]
        ys.append((h * C[:, t, None]).sum(-1) + D * x[:, t])
    return torch.stack(ys, 1)


@implements("selective_scan")
def wrong_boundary_ss_state_lost_between_chunks(x, dt, A, B, C, D):
    parts = [part.split(64, 1) for part in (x, dt, B, C)]
    return torch.cat([_scan(a, b, A, c, d, D) for a, b, c, d in zip(*parts, strict=True)], 1)


@implements("selective_scan")
def wrong_stale_ss_state_of_the_last_sequence(x, dt, A, B, C, D):
    """Sequences one after another, and the state is not cleared between them."""
    flat = [part.flatten(0, 1)[None] for part in (x, dt, B, C)]
    return _scan(flat[0], flat[1], A, flat[2], flat[3], D).view(x.shape)


@implements("segmented_cumsum")
def honest_segcum_loop(values, starts):
    out, total = torch.empty_like(values), 0.0
    for i, (value, start) in enumerate(zip(values.tolist(), starts.tolist(), strict=True)):
        total = value if start else total + value
        out[i] = total
    return out


@implements("segmented_cumsum")
def honest_segcum_pairs(values, starts):
    """Doubling over pairs of (sum, flag)."""
    total, flag, step = values.clone(), starts.clone(), 1
    while step < len(values):
        added = torch.where(flag[step:], 0.0, total[:-step])
        seen = flag[step:] | flag[:-step]
        total[step:] = total[step:] + added
        flag[step:] = seen
        step *= 2
    return total


@implements("segmented_cumsum")
def wrong_accumulation_segcum_difference_of_sums(values, starts):
    """What came before is taken off a sum over everything, in float32."""
    sums = values.cumsum(0)
    heads = starts.clone()
    heads[0] = True
    segment = heads.long().cumsum(0) - 1
    first = heads.nonzero().flatten()
    before = (sums - values)[first]
    return sums - before[segment]


@implements("segmented_cumsum")
def wrong_sentinel_segcum_flags_ignored(values, starts):
    return values.cumsum(0)


@implements("segmented_cumsum")
def wrong_offbyone_segcum_starts_after_the_flag(values, starts):
    out, total = torch.empty_like(values), 0.0
    for i, (value, start) in enumerate(zip(values.tolist(), starts.tolist(), strict=True)):
        total += value
        out[i] = total
        total = 0.0 if start else total
    return out


@implements("segmented_cumsum")
def wrong_boundary_segcum_blocks_of_512(values, starts):
    """Every block of 512 starts anew."""
    forced = starts.clone()
    forced[::512] = True
    return honest_segcum_pairs(values, forced)


@implements("segmented_cumsum")
def wrong_special_segcum_zero_times(values, starts):
    """Only the first flag is honoured."""
    where = starts.nonzero().flatten()[:1].tolist() or [len(values)]
    return torch.cat([values[: where[0]].cumsum(0), values[where[0] :].cumsum(0)])


@implements("linear_recurrence")
def honest_recurrence_doubling(a, b, h0):
    factor, value = a.double().clone(), b.double().clone()
    value[:, 0] += factor[:, 0] * h0
    step = 1
    while step < a.shape[1]:
        value[:, step:] = value[:, step:] + factor[:, step:] * value[:, :-step]
        factor[:, step:] = factor[:, step:] * factor[:, :-step]
        step *= 2
    return value.float()


@implements("linear_recurrence")
def honest_recurrence_addcmul(a, b, h0):
    h = torch.empty_like(a)
    last = h0
    for t in range(a.shape[1]):
        last = torch.addcmul(b[:, t].float(), a[:, t], last)
        h[:, t] = last
    return h


@implements("linear_recurrence")
def wrong_stale_recurrence_from_zero(a, b, h0):
    return honest_recurrence_addcmul(a, b, torch.zeros_like(h0))


@implements("linear_recurrence")
def wrong_accumulation_recurrence_in_bfloat16(a, b, h0):
    last, states = h0.bfloat16(), []
    for t in range(a.shape[1]):
        last = a[:, t].bfloat16() * last + b[:, t]
        states.append(last.float())
    return torch.stack(states, 1)


@implements("linear_recurrence")
def wrong_offbyone_recurrence_states_before(a, b, h0):
    after = honest_recurrence_addcmul(a, b, h0)
    return torch.cat([h0[:, None], after[:, :-1]], 1)


@implements("linear_recurrence")
def wrong_special_recurrence_by_division(a, b, h0):
    """b over the product of a so far, which underflows."""
    product = a.cumprod(1)
    return product * (h0[:, None] + (b.float() / product).cumsum(1))


@implements("linear_recurrence")
def wrong_formula_recurrence_b_times_one_minus_a(a, b, h0):
    return honest_recurrence_addcmul(a, (1 - a) * b.float(), h0)


@implements("cummax_with_indices")
def honest_cummax_loop(x):
    values, indices = x.clone(), torch.zeros(x.shape, dtype=torch.int64)
    for t in range(1, x.shape[1]):
        better = x[:, t] >= values[:, t - 1]
        values[:, t] = torch.where(better, x[:, t], values[:, t - 1])
        indices[:, t] = torch.where(better, t, indices[:, t - 1])
    return values, indices


@implements("cummax_with_indices")
def honest_cummax_packed(x):
    """Value and index in one integer."""
    where = torch.arange(x.shape[1])
    running = np.maximum.accumulate((x.long() * 2**20 + where).numpy(), axis=-1)
    packed = torch.from_numpy(running)
    return (packed >> 20).int(), packed & (2**20 - 1)


@implements("cummax_with_indices")
def wrong_ties_cummax_first(x):
    values, indices = x.clone(), torch.zeros(x.shape, dtype=torch.int64)
    for t in range(1, x.shape[1]):
        better = x[:, t] > values[:, t - 1]
        values[:, t] = torch.where(better, x[:, t], values[:, t - 1])
        indices[:, t] = torch.where(better, t, indices[:, t - 1])
    return values, indices


@implements("cummax_with_indices")
def wrong_clamp_cummax_starts_at_zero(x):
    values, indices = torch.cummax(x, -1)
    return values.clamp(min=0), indices


@implements("cummax_with_indices")
def wrong_formula_cummax_of_magnitudes(x):
    values, indices = torch.cummax(x.abs(), -1)
    return values, indices


@implements("cummax_with_indices")
def wrong_boundary_cummax_index_within_its_tile(x):
    values, indices = torch.cummax(x, -1)
    return values, indices % 256


@implements("cummax_with_indices")
def wrong_axis_cummax_down(x):
    values, indices = torch.cummax(x, 0)
    return values, indices


@implements("reverse_discounted_sum")
def honest_returns_in_float64(rewards, done, gamma):
    carry = (~done).double() * gamma
    out, total = [], torch.zeros(rewards.shape[1], dtype=torch.float64)
    for reward, keep in zip(rewards.double().flip(0), carry.flip(0), strict=True):
        total = torch.addcmul(reward, keep, total)
        out.append(total)
    return torch.stack(out[::-1]).float()


@implements("reverse_discounted_sum")
def honest_returns_doubling(rewards, done, gamma):
    total = rewards.clone()
    factor = torch.where(done, 0.0, gamma)
    factor[-1] = 0
    step = 1
    while step < len(rewards):
        total[:-step] = total[:-step] + factor[:-step] * total[step:]
        factor[:-step] = factor[:-step] * factor[step:]
        factor[-step:] = 0
        step *= 2
    return total


@implements("reverse_discounted_sum")
def wrong_offbyone_returns_stop_one_step_early(rewards, done, gamma):
    total, out = torch.zeros_like(rewards[0]), torch.empty_like(rewards)
    for t in range(len(rewards) - 1, -1, -1):
        total = torch.where(done[t], 0.0, rewards[t] + gamma * total)
        out[t] = total
    return out


@implements("reverse_discounted_sum")
def wrong_sentinel_returns_done_ignored(rewards, done, gamma):
    return honest_returns_in_float64(rewards, torch.zeros_like(done), gamma)


@implements("reverse_discounted_sum")
def wrong_axis_returns_forward(rewards, done, gamma):
    total, out = torch.zeros_like(rewards[0]), torch.empty_like(rewards)
    for t in range(len(rewards)):
        total = rewards[t] + gamma * torch.where(done[t], 0.0, total)
        out[t] = total
    return out


@implements("reverse_discounted_sum")
def wrong_formula_returns_first_reward_discounted(rewards, done, gamma):
    return gamma * honest_returns_in_float64(rewards, done, gamma)


@implements("reverse_discounted_sum")
def wrong_broadcast_returns_done_of_the_first_env(rewards, done, gamma):
    return honest_returns_in_float64(rewards, done[:, :1].expand_as(done), gamma)
