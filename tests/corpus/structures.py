"""Sparse matrices, graphs, windows, sorts, and what has several kinds of outputs."""

import itertools

import torch
import torch.nn.functional as F

from pytest_fib import implements


@implements("block_sparse_matmul")
def honest_bsr_by_rows(data, row_indptr, col_indices, b):
    out = torch.zeros(len(row_indptr) - 1, 16, b.shape[2], dtype=torch.float16)
    ends = row_indptr.tolist()
    for row, (start, end) in enumerate(itertools.pairwise(ends)):
        left = data[start:end].float().transpose(0, 1).reshape(16, -1)
        right = b[col_indices[start:end].long()].float().reshape(-1, b.shape[2])
        out[row] = left @ right
    return out


@implements("block_sparse_matmul")
def honest_bsr_dense_columns(data, row_indptr, col_indices, b):
    c = torch.zeros(len(row_indptr) - 1, 16, b.shape[2])
    rows = torch.repeat_interleave(torch.arange(len(c)), row_indptr.diff().long())
    for row, column, block in zip(rows.tolist(), col_indices.tolist(), data, strict=True):
        c[row].addmm_(block.float(), b[column].float())
    return c.half()


@implements("block_sparse_matmul")
def wrong_accumulation_bsr_half_acc(data, row_indptr, col_indices, b):
    c = torch.zeros(len(row_indptr) - 1, 16, b.shape[2], dtype=torch.float16)
    p = row_indptr.tolist()
    for r in range(len(p) - 1):
        for at in range(p[r], p[r + 1]):
            c[r] += data[at] @ b[int(col_indices[at])]
    return c


@implements("block_sparse_matmul")
def wrong_stale_bsr_empty_rows(data, row_indptr, col_indices, b):
    c = torch.empty(len(row_indptr) - 1, 16, b.shape[2])
    p = row_indptr.tolist()
    for r in range(len(p) - 1):
        if p[r + 1] > p[r]:
            c[r] = sum(
                data[a].float() @ b[int(col_indices[a])].float() for a in range(p[r], p[r + 1])
            )
    return c.half()


@implements("block_sparse_matmul")
def wrong_threshold_bsr_first_row_start(data, row_indptr, col_indices, b):
    c = honest_bsr_by_rows(data, row_indptr, col_indices, b).float()
    p = row_indptr.tolist()
    r = len(p) - 2
    if p[r + 1] - p[r] > 8:
        a = p[r + 1] - 1
        c[r] -= data[a].float() @ b[int(col_indices[a])].float()
    return c.half()


@implements("block_sparse_matmul")
def wrong_axis_bsr_transposed_block(data, row_indptr, col_indices, b):
    return honest_bsr_by_rows(data.mT, row_indptr, col_indices, b)


@implements("block_sparse_matmul")
def wrong_order_bsr_dup_cols(data, row_indptr, col_indices, b):
    p = row_indptr.tolist()
    dense = torch.zeros(len(p) - 1, b.shape[0], 16, 16)
    for r in range(len(p) - 1):
        for at in range(p[r], p[r + 1]):
            dense[r, int(col_indices[at])] = data[at].float()
    return torch.einsum("rcij,cjn->rin", dense, b.float()).half()


def best_edges(m, d, nb, ge=False, init=float("-inf"), none=-1):
    best = [init] * len(nb)
    edge = [none] * len(nb)
    for e, (x, t) in enumerate(zip(m.tolist(), d.tolist(), strict=False)):
        if x > best[t] or (ge and x >= best[t]):
            best[t] = x
            edge[t] = e
    return torch.tensor(best, dtype=torch.float32) + nb, torch.tensor(edge)


@implements("scatter_max_with_edges")
def honest_edges_loop(messages, dst, node_bias):
    return best_edges(messages, dst, node_bias)


@implements("scatter_max_with_edges")
def wrong_ties_edges_last_tie(messages, dst, node_bias):
    return best_edges(messages, dst, node_bias, ge=True)


@implements("scatter_max_with_edges")
def wrong_special_edges_init_zero(messages, dst, node_bias):
    return best_edges(messages, dst, node_bias, init=0.0)


@implements("scatter_max_with_edges")
def wrong_sentinel_edges_none_zero(messages, dst, node_bias):
    return best_edges(messages, dst, node_bias, none=0)


@implements("scatter_max_with_edges")
def wrong_special_edges_init_finite(messages, dst, node_bias):
    return best_edges(messages, dst, node_bias, init=-1e30)


@implements("scatter_max_with_edges")
def wrong_offbyone_edges_last_edge(messages, dst, node_bias):
    return (
        best_edges(messages[:-1], dst[:-1], node_bias)
        if len(dst) > 1 and len(dst) % 2
        else best_edges(messages, dst, node_bias)
    )


@implements("scatter_max_with_edges")
def honest_edges_sorted(messages, dst, node_bias):
    order = torch.sort(-messages, stable=True).indices.flip(0)  # of equal ones the first comes last
    best, edge = torch.full_like(node_bias, float("-inf")), torch.full((len(node_bias),), -1)
    for at in order.tolist():
        best[dst[at]], edge[dst[at]] = messages[at], at
    return best + node_bias, edge


def pooled(x, pad=float("-inf"), last=False, off=-1):
    L = x.shape[-1]
    n = (L - 1) // 2 + 1
    c = 2 * torch.arange(n)
    best = torch.full((*x.shape[:2], n), float("-inf"))
    at = torch.zeros(best.shape, dtype=torch.long)
    for j in (-1, 0, 1):
        i = c + j
        v = torch.where((i >= 0) & (i < L), x[..., i.clamp(0, L - 1)], pad)
        up = v >= best if last else v > best
        best = torch.where(up, v, best)
        at = torch.where(up, i.expand_as(at), at)
    return best, at


@implements("max_pool1d_with_indices")
def honest_pool_compare(x):
    return pooled(x)


@implements("max_pool1d_with_indices")
def honest_pool_torch(x):
    return F.max_pool1d(x, 3, 2, 1, return_indices=True)


@implements("max_pool1d_with_indices")
def wrong_boundary_pool_zero_pad(x):
    return pooled(x, pad=0.0)


@implements("max_pool1d_with_indices")
def wrong_ties_pool_last_tie(x):
    return pooled(x, last=True)


@implements("max_pool1d_with_indices")
def wrong_formula_pool_local_index(x):
    b, a = pooled(x)
    return b, a - 2 * torch.arange(b.shape[-1]) + 1


@implements("max_pool1d_with_indices")
def wrong_boundary_pool_even_edge(x):
    b, a = pooled(x)
    if x.shape[-1] % 2 == 0:
        b[..., -1] = x[..., -2]
        a[..., -1] = x.shape[-1] - 2
    return b, a


@implements("max_pool1d_with_indices")
def wrong_axis_pool_channel6(x):
    b, a = pooled(x)
    if x.shape[0] > 3:
        a[3:, 5] = a[3:, 4]
    return b, a


@implements("real_dft_60")
def honest_dft_fft(x):
    return torch.view_as_real(torch.fft.rfft(x)).clone()


@implements("real_dft_60")
def wrong_sign_dft_sign(x):
    return torch.view_as_real(torch.fft.rfft(x).conj().resolve_conj()).clone()


@implements("real_dft_60")
def wrong_scale_dft_norm(x):
    return torch.view_as_real(torch.fft.rfft(x, norm="ortho")).clone()


@implements("real_dft_60")
def wrong_formula_dft_angle_f32(x):
    k = torch.arange(31.0)[:, None]
    j = torch.arange(60.0)[None]
    a = (k * j * 0.1047).float()
    return torch.stack([x @ a.cos().T, -(x @ a.sin().T)], -1)


@implements("real_dft_60")
def wrong_boundary_dft_nyquist(x):
    o = honest_dft_fft(x)
    o[:, 30] *= 0.5
    return o


@implements("real_dft_60")
def wrong_accumulation_dft_half_twiddle(x):
    import math

    k = torch.arange(31)[:, None]
    j = torch.arange(60)[None]
    a = 2 * math.pi / 60 * ((k * j) % 60).float()
    return torch.stack([x @ a.cos().half().float().T, -(x @ a.sin().half().float().T)], -1)


@implements("real_dft_60")
def wrong_axis_dft_planar(x):
    z = torch.fft.rfft(x)
    return torch.stack([z.real, z.imag], 1).reshape(len(x), 31, 2)


@implements("real_dft_60")
def honest_dft_products(x):
    turns = torch.outer(torch.arange(31), torch.arange(60)) % 60
    angles = torch.arange(60, dtype=torch.float64) * (torch.pi / 30)
    wave = torch.polar(torch.ones_like(angles), -angles)
    return torch.view_as_real(x.double().to(torch.complex128) @ wave[turns].T).float()


def radix_sorted(keys, bits=8, passes=4, sign=True):
    u = keys.long() & 0xFFFFFFFF
    if sign:
        u = u ^ 0x80000000
    order = torch.arange(len(keys))
    for p in range(passes):
        d = (u[order] >> (bits * p)) & ((1 << bits) - 1)
        o = torch.sort(d, stable=True).indices
        order = order[o]
    return keys[order], order.int()


@implements("argsort_int32")
def honest_keys_radix(keys):
    return radix_sorted(keys)


@implements("argsort_int32")
def honest_keys_packed(keys):
    packed = (keys.long() << 32) | torch.arange(len(keys))
    o = torch.sort(packed).values & 0xFFFFFFFF
    return keys[o], o.int()


@implements("argsort_int32")
def wrong_overflow_keys_unsigned(keys):
    return radix_sorted(keys, sign=False)


@implements("argsort_int32")
def wrong_boundary_keys_three_passes(keys):
    order = torch.sort((keys >> 4).long(), stable=True).indices
    return keys[order], order.int()


@implements("argsort_int32")
def wrong_accumulation_keys_float_keys(keys):
    order = torch.sort(keys.float(), stable=True).indices
    return keys[order], order.int()


@implements("argsort_int32")
def wrong_ties_keys_unstable(keys):
    v, o = torch.sort(keys.flip(0), stable=True)
    return v, (len(keys) - 1 - o).int()


@implements("argsort_int32")
def wrong_overflow_keys_subtract_compare(keys):
    k = (keys - (-2147483647)).int()
    o = torch.sort(k, stable=True).indices
    return keys[o], o.int()


@implements("argsort_int32")
def wrong_threshold_keys_large(keys):
    v, o = radix_sorted(keys)
    if len(keys) > 8192:
        o = o.clone()
        o[8192:] = o[8192:].flip(0)
        v = keys[o.long()]
    return v, o


def logit_gradient(g, x, labels):
    p = torch.exp(x.float() - x.float().logsumexp(-1, keepdim=True))
    p[torch.arange(len(p)), labels] -= 1
    return (p * g[:, None]).half()


@implements("cross_entropy_backward")
def honest_gradient_index(grad, logits, labels):
    return logit_gradient(grad, logits, labels)


@implements("cross_entropy_backward")
def wrong_formula_gradient_no_grad(grad, logits, labels):
    return logit_gradient(torch.ones_like(grad), logits, labels)


@implements("cross_entropy_backward")
def wrong_broadcast_gradient_grad0(grad, logits, labels):
    return logit_gradient(grad[:1].expand_as(grad), logits, labels)


@implements("cross_entropy_backward")
def wrong_boundary_gradient_last_class(grad, logits, labels):
    d = logit_gradient(grad, logits, labels)
    d[:, 256] = (logits.float().softmax(-1)[:, 256] * grad).half()
    return d


@implements("cross_entropy_backward")
def wrong_accumulation_gradient_half_p(grad, logits, labels):
    p = logits.softmax(-1)
    p[torch.arange(len(p)), labels] -= 1
    return p * grad[:, None].half()


@implements("cross_entropy_backward")
def wrong_sign_gradient_grad_sign(grad, logits, labels):
    return logit_gradient(grad.abs(), logits, labels)


@implements("cross_entropy_backward")
def honest_gradient_autograd(grad, logits, labels):
    leaf = logits.float().requires_grad_()
    F.cross_entropy(leaf, labels, reduction="none").backward(grad)
    return leaf.grad.half()


def normalised(x, rm, rv, mom, unb=True, eps=1e-5, swap=False):
    n = len(x)
    v, m = torch.var_mean(x, 0, unbiased=False)
    y = (x - m) / torch.sqrt(v + eps)
    u = v * n / (n - 1) if unb else v
    a = mom if not swap else 1 - mom
    return y, (1 - a) * rm + a * m, (1 - a) * rv + a * u


@implements("batch_norm_training")
def honest_running_two_products(x, running_mean, running_var, momentum):
    return normalised(x, running_mean, running_var, momentum)


@implements("batch_norm_training")
def honest_running_welford(x, running_mean, running_var, momentum):
    m = torch.zeros(48, dtype=torch.float64)
    s = torch.zeros(48, dtype=torch.float64)
    for i, a in enumerate(x.double().split(64)):
        k = len(a)
        c = i * 64
        d = a.mean(0) - m
        s = s + (a - a.mean(0)).pow(2).sum(0) + d * d * (c * k / (c + k))
        m = m + d * (k / (c + k))
    n = len(x)
    v = s / n
    return (
        ((x - m) / (v + 1e-5).sqrt()).float(),
        (running_mean * (1 - momentum) + momentum * m).float(),
        (running_var * (1 - momentum) + momentum * s / (n - 1)).float(),
    )


@implements("batch_norm_training")
def wrong_formula_running_biased_running(x, running_mean, running_var, momentum):
    return normalised(x, running_mean, running_var, momentum, unb=False)


@implements("batch_norm_training")
def wrong_formula_running_momentum_swapped(x, running_mean, running_var, momentum):
    return normalised(x, running_mean, running_var, momentum, swap=True)


@implements("batch_norm_training")
def wrong_eps_running_smaller_eps(x, running_mean, running_var, momentum):
    return normalised(x, running_mean, running_var, momentum, eps=1e-6)


@implements("batch_norm_training")
def wrong_accumulation_running_one_pass(x, running_mean, running_var, momentum):
    n = len(x)
    m = x.mean(0)
    v = ((x * x).mean(0) - m * m).clamp(min=0)
    return (
        (x - m) * torch.rsqrt(v + 1e-5),
        running_mean + momentum * (m - running_mean),
        running_var + momentum * (v * n / (n - 1) - running_var),
    )


@implements("batch_norm_training")
def wrong_mutation_running_updates_input(x, running_mean, running_var, momentum):
    y, a, b = normalised(x, running_mean, running_var, momentum)
    running_mean.copy_(a)
    running_var.copy_(b)
    return y, running_mean, running_var


@implements("batch_norm_training")
def wrong_threshold_running_sqrt_n(x, running_mean, running_var, momentum):
    y, a, b = normalised(x, running_mean, running_var, momentum)
    if len(x) > 1024:
        b = running_var + momentum * (x[:1024].var(0) - running_var)
    return y, a, b
