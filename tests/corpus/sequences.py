"""What goes along a sequence: attention, convolutions with a state, recurrences."""

import itertools

import torch
import torch.nn.functional as F

from pytest_fib import implements


def online_attention(
    q,
    k,
    v,
    sm_scale,
    cap,
    diag=None,
    tile=64,
    head=lambda h, n, m: h // (n // m),
    rescaled=True,
):
    nq, hq, d = q.shape
    nk, hk, _ = k.shape
    out = torch.empty_like(q)
    diag = nk - nq if diag is None else diag
    for h in range(hq):
        kh, vh = k[:, head(h, hq, hk)].float(), v[:, head(h, hq, hk)].float()
        m = torch.full((nq,), float("-inf"))
        total = torch.zeros(nq)
        acc = torch.zeros(nq, d)
        for a in range(0, nk, tile):
            b = min(a + tile, nk)
            s = q[:, h].float() @ kh[a:b].T
            s = s * sm_scale
            if cap:
                s = cap * torch.tanh(s / cap)
            rows = torch.arange(nq)[:, None]
            cols = torch.arange(a, b)[None]
            s = s.masked_fill(cols > rows + diag, float("-inf"))
            new = torch.maximum(m, s.max(-1).values)
            safe = torch.where(new == float("-inf"), torch.zeros_like(new), new)
            alpha = torch.exp(m - safe)
            p = torch.exp(s - safe[:, None])
            total = total * (alpha if rescaled or a < 2 * tile else 1) + p.sum(-1)
            acc = acc * alpha[:, None] + p @ vh[a:b]
            m = new
        out[:, h] = (acc / total[:, None]).to(q.dtype)
    return out


@implements("softcapped_causal_attention")
def honest_softcap_flash(q, k, v, sm_scale, logits_soft_cap):
    return online_attention(q, k, v, sm_scale, logits_soft_cap)


@implements("softcapped_causal_attention")
def wrong_boundary_softcap_topleft(q, k, v, sm_scale, logits_soft_cap):
    return online_attention(q, k, v, sm_scale, logits_soft_cap, diag=0)


@implements("softcapped_causal_attention")
def wrong_axis_softcap_heads(q, k, v, sm_scale, logits_soft_cap):
    return online_attention(q, k, v, sm_scale, logits_soft_cap, head=lambda h, n, m: h % m)


@implements("softcapped_causal_attention")
def wrong_formula_softcap_nocap(q, k, v, sm_scale, logits_soft_cap):
    return online_attention(q, k, v, sm_scale, 0)


@implements("softcapped_causal_attention")
def wrong_threshold_softcap_rescale_third_tile(q, k, v, sm_scale, logits_soft_cap):
    return online_attention(q, k, v, sm_scale, logits_soft_cap, rescaled=False)


@implements("softcapped_causal_attention")
def wrong_scale_softcap_cap_default(q, k, v, sm_scale, logits_soft_cap):
    return online_attention(q, k, v, sm_scale, 30.0)


@implements("softcapped_causal_attention")
def honest_softcap_scores_at_once(q, k, v, sm_scale, logits_soft_cap):
    tokens, _heads, dim = q.shape
    grouped = q.float().view(tokens, k.shape[1], -1, dim)
    s = torch.einsum("tkgd,ukd->kgtu", grouped, k.float()) * (sm_scale / logits_soft_cap)
    ahead = torch.arange(len(k))[None] > torch.arange(tokens)[:, None] + len(k) - tokens
    s = (logits_soft_cap * torch.tanh(s)).masked_fill(ahead, float("-inf"))
    out = torch.einsum("kgtu,ukd->tkgd", s.softmax(-1), v.float())
    return out.reshape(q.shape).bfloat16()


def updated(x, s, w, b, i, flip=False, shift=True, act=True, acc=torch.float32):
    i = i.long()
    ns = s.clone()
    o = torch.empty_like(x)
    for r in range(len(x)):
        win = torch.cat([s[i[r]], x[r][:, None]], 1)
        y = b.to(acc)
        for t in range(4):
            y = y + win[:, 3 - t if flip else t].to(acc) * w[:, t].to(acc)
        o[r] = F.silu(y) if act else y
        ns[i[r]] = win[:, 1:] if shift else torch.cat([s[i[r]][:, :2], x[r][:, None]], 1)
    return o, ns


@implements("conv1d_state_update")
def honest_update_loop(x, conv_state, weight, bias, state_indices):
    return updated(x, conv_state, weight, bias, state_indices)


@implements("conv1d_state_update")
def wrong_axis_update_flip(x, conv_state, weight, bias, state_indices):
    return updated(x, conv_state, weight, bias, state_indices, flip=True)


@implements("conv1d_state_update")
def wrong_stale_update_no_shift(x, conv_state, weight, bias, state_indices):
    return updated(x, conv_state, weight, bias, state_indices, shift=False)


@implements("conv1d_state_update")
def wrong_accumulation_update_bf16(x, conv_state, weight, bias, state_indices):
    return updated(x, conv_state, weight, bias, state_indices, acc=torch.bfloat16)


@implements("conv1d_state_update")
def wrong_order_update_ignores_indices(x, conv_state, weight, bias, state_indices):
    return updated(x, conv_state, weight, bias, torch.arange(len(x)))


@implements("conv1d_state_update")
def wrong_mutation_update_state_inplace(x, conv_state, weight, bias, state_indices):
    o, n = updated(x, conv_state, weight, bias, state_indices)
    conv_state.copy_(n)
    return o, n


@implements("conv1d_state_update")
def wrong_sizes_update_output_index(x, conv_state, weight, bias, state_indices):
    o, n = updated(x, conv_state, weight, bias, state_indices)
    if len(x) == conv_state.shape[0]:
        z = torch.empty_like(o)
        z[state_indices.long()] = o
        o = z
    return o, n


@implements("conv1d_state_update")
def honest_update_at_once(x, conv_state, weight, bias, state_indices):
    window = torch.cat([conv_state[state_indices.long()], x[:, :, None]], 2)
    out = F.silu(torch.einsum("bdw,dw->bd", window.float(), weight.float()) + bias.float())
    return out.bfloat16(), conv_state.index_copy(0, state_indices.long(), window[:, :, 1:])


def convolved(x, w, q, bleed=False, flip=False, acc=torch.float32, short=True):
    n = len(x)
    starts = torch.zeros(n, dtype=torch.long)
    p = q.tolist()
    for a, b in itertools.pairwise(p):
        starts[a:b] = a
    at = torch.arange(n)
    y = torch.zeros(n, 24, dtype=acc)
    for t in range(4):
        src = at - (3 - t)
        ok = src >= (0 if bleed else starts)
        y = y + torch.where(
            ok[:, None], x[src.clamp(min=0)].to(acc) * w[:, 3 - t if flip else t].to(acc), 0
        )
    return y.half()


@implements("causal_conv1d_of_sequences")
def honest_varlen_gather(x, weight, query_start_loc):
    return convolved(x, weight, query_start_loc)


@implements("causal_conv1d_of_sequences")
def wrong_boundary_varlen_reads_neighbours(x, weight, query_start_loc):
    return convolved(x, weight, query_start_loc, bleed=True)


@implements("causal_conv1d_of_sequences")
def wrong_axis_varlen_flip(x, weight, query_start_loc):
    return convolved(x, weight, query_start_loc, flip=True)


@implements("causal_conv1d_of_sequences")
def wrong_accumulation_varlen_half_acc(x, weight, query_start_loc):
    return convolved(x, weight, query_start_loc, acc=torch.float16)


@implements("causal_conv1d_of_sequences")
def wrong_boundary_varlen_short_seq(x, weight, query_start_loc):
    y = convolved(x, weight, query_start_loc)
    p = query_start_loc.tolist()
    for a, b in itertools.pairwise(p):
        if 0 < b - a < 3:
            y[a:b] = convolved(x, weight, query_start_loc, bleed=True)[a:b]
    return y


@implements("causal_conv1d_of_sequences")
def wrong_boundary_varlen_chunk_boundary(x, weight, query_start_loc):
    y = convolved(x, weight, query_start_loc)
    p = query_start_loc.tolist()
    for a, b in itertools.pairwise(p):
        for c in range(a + 64, b, 64):
            y[c] = (x[c].float() * weight[:, 3].float()).half()
    return y


@implements("causal_conv1d_of_sequences")
def honest_varlen_by_torch(x, weight, query_start_loc):
    out = torch.empty_like(x)
    ends = query_start_loc.tolist()
    for start, end in itertools.pairwise(ends):
        if end > start:
            part = F.pad(x[start:end].float().T, (3, 0))
            out[start:end] = F.conv1d(part, weight.float()[:, None], groups=24).T.half()
    return out


def chunked(q, k, v, g, s, chunk=16, carry=True, before=False, low=False):
    out = torch.empty_like(q)
    s = s.clone()
    n = len(q)
    for a in range(0, n, chunk):
        e = min(a + chunk, n)
        lg = g[a:e].log().cumsum(0)
        c = lg.exp()
        w = (lg[:, None] - lg[None]).exp()
        i = torch.arange(e - a)
        w = torch.where(
            (i[:, None] >= i[None])[..., None] if not before else (i[:, None] > i[None])[..., None],
            w,
            0,
        )
        sc = torch.einsum("thd,uhd->tuh", q[a:e], k[a:e]) * w
        out[a:e] = torch.einsum("tuh,uhd->thd", sc, v[a:e]) + c[..., None] * torch.einsum(
            "thd,hde->the", q[a:e], s
        )
        tail = (lg[-1:] - lg).exp()
        s = c[-1][:, None, None] * s * (1 if carry or a < 8 * chunk else 0) + torch.einsum(
            "th,thd,the->hde", tail, k[a:e], v[a:e]
        )
        if low:
            s = s.bfloat16().float()
    return out, s


@implements("gated_linear_attention")
def honest_gated_chunks(q, k, v, decay, state):
    return chunked(q, k, v, decay, state)


@implements("gated_linear_attention")
def honest_gated_loop(q, k, v, decay, state):
    o, s = [], state.double()
    for t in range(len(q)):
        s = decay[t].double()[:, None, None] * s + torch.einsum(
            "hd,he->hde", k[t].double(), v[t].double()
        )
        o.append(torch.einsum("hd,hde->he", q[t].double(), s))
    return torch.stack(o).float(), s.float()


@implements("gated_linear_attention")
def wrong_threshold_gated_carry_8(q, k, v, decay, state):
    return chunked(q, k, v, decay, state, carry=False)


@implements("gated_linear_attention")
def wrong_offbyone_gated_exclusive(q, k, v, decay, state):
    return chunked(q, k, v, decay, state, before=True)


@implements("gated_linear_attention")
def wrong_accumulation_gated_bf16_state(q, k, v, decay, state):
    return chunked(q, k, v, decay, state, low=True)


@implements("gated_linear_attention")
def wrong_axis_gated_transposed_state(q, k, v, decay, state):
    o, s = chunked(q, k, v, decay, state)
    return o, s.mT


@implements("gated_linear_attention")
def wrong_stale_gated_zero_init(q, k, v, decay, state):
    return chunked(q, k, v, decay, torch.zeros_like(state) if len(q) > 1 else state)


@implements("gated_linear_attention")
def wrong_boundary_gated_padded_tail(q, k, v, decay, state):
    o, s = chunked(q, k, v, decay, state)
    if len(q) % 16:
        s = s * decay[-1][:, None, None]
    return o, s


def distance(x, y, sub=1, cap=None):
    row = list(range(len(y) + 1))
    for i, p in enumerate(x):
        new = [i + 1]
        for j, q in enumerate(y):
            new.append(min(row[j + 1] + 1, new[-1] + 1, row[j] + (sub if p != q else 0)))
        row = new
    return row[-1]


def distances(a, b, la, lb, f=distance, **kw):
    return torch.tensor(
        [
            f(x[:n], y[:m], **kw)
            for x, y, n, m in zip(a.tolist(), b.tolist(), la.tolist(), lb.tolist(), strict=False)
        ],
        dtype=torch.int32,
    )


@implements("edit_distance")
def honest_edits_rows(a, b, a_len, b_len):
    return distances(a, b, a_len, b_len)


@implements("edit_distance")
def wrong_formula_edits_sub_2(a, b, a_len, b_len):
    return distances(a, b, a_len, b_len, sub=2)


@implements("edit_distance")
def wrong_special_edits_empty_a(a, b, a_len, b_len):
    d = distances(a, b, a_len, b_len)
    return torch.where(a_len == 0, 0, d).int()


@implements("edit_distance")
def wrong_boundary_edits_padding_counts(a, b, a_len, b_len):
    return distances(a, b, a_len, torch.full_like(b_len, b.shape[1]))


@implements("edit_distance")
def wrong_threshold_edits_max_16(a, b, a_len, b_len):
    return distances(a, b, a_len.clamp(max=16), b_len)


@implements("edit_distance")
def wrong_special_edits_both_empty(a, b, a_len, b_len):
    d = distances(a, b, a_len, b_len)
    return torch.where((a_len == 0) & (b_len == 0), 1, d).int()


@implements("edit_distance")
def honest_edits_by_columns(a, b, a_len, b_len):
    return distances(b, a, b_len, a_len)
