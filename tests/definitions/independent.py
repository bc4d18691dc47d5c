"""What each op_type is meant to compute, in float64 and as plainly as it can be said.

Each function takes the inputs of a definition by name and returns its outputs; none of it is taken
from a reference. Loops stand where a reference has clever indexing.
"""

from collections.abc import Callable
from math import exp, inf, log

import torch
from torch.nn import functional as F

COMPUTED: dict[str, Callable[..., tuple[torch.Tensor, ...]]] = {}


def computes(op_type: str):
    """Register what an op_type computes."""

    def register(function):
        COMPUTED[op_type] = function
        return function

    return register


def outputs_of(definition, inputs):
    """The outputs by name."""
    values = {n: x.double() if is_number(x) else x for n, x in inputs.items()}
    return dict(zip(definition.outputs, COMPUTED[definition.op_type](**values), strict=True))


def is_number(x):
    """Whether it is a tensor of a floating dtype that torch can convert; not packed fp4."""
    return (
        isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float4_e2m1fn_x2
    )


@computes("scale")
def _scale(x, factor):
    return (x * factor,)


@computes("rmsnorm")
def _rmsnorm(x, weight, eps):
    return (F.rms_norm(x, x.shape[-1:], weight, eps),)


@computes("fused_add_rmsnorm")
def _fused_add_rmsnorm(input, residual, weight, eps):
    return *_rmsnorm(input + residual, weight, eps), input + residual


@computes("layernorm")
def _layernorm(x, weight, bias, eps):
    return (F.layer_norm(x, x.shape[-1:], weight, bias, eps),)


@computes("silu_and_mul")
def _silu_and_mul(x):
    d = x.shape[1] // 2
    return (F.silu(x[:, :d]) * x[:, d:],)


@computes("rope")
def _rope(q, k, cos_sin_cache, positions):
    """Pairs of numbers, half the rotated width apart, are complex numbers to be turned."""
    half = cos_sin_cache.shape[1] // 2
    rows = cos_sin_cache[positions][:, None]
    turn = torch.complex(rows[..., :half], rows[..., half:])

    def turned(x):
        z = torch.complex(x[..., :half], x[..., half : 2 * half]) * turn
        return torch.cat([z.real, z.imag, x[..., 2 * half :]], dim=-1)

    return turned(q), turned(k)


@computes("gemm")
def _gemm(A, B):
    return (torch.einsum("mk,nk->mn", A, B),)


@computes("grouped_gemm")
def _grouped_gemm(A, B, m_indptr):
    """Row by row: its group is the last that begins at or before it."""
    group_of = torch.bucketize(torch.arange(len(A)), m_indptr[1:].long(), right=True)
    rows = [B[group] @ row for row, group in zip(A, group_of.tolist(), strict=True)]
    return (torch.stack(rows) if rows else A.new_zeros(0, B.shape[1]),)


def attention(q, k, v, sm_scale):
    """Causal attention of queries [n, heads, dim], the last of the tokens of k and v.

    Gives the output, and the logarithm to base 2 of the sum of the exponentials. Of no tokens,
    these are 0 and -inf.
    """
    if not len(k):
        return q.new_zeros(len(q), q.shape[1], v.shape[2]), q.new_full(q.shape[:2], -inf)
    share = q.shape[1] // k.shape[1]
    mask = torch.ones(len(q), len(k)).tril(len(k) - len(q)).bool()
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    k, v = k.repeat_interleave(share, 0), v.repeat_interleave(share, 0)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=sm_scale)
    logits = (q @ k.transpose(1, 2) * sm_scale).masked_fill(~mask, -inf)
    return out.transpose(0, 1), (logits.logsumexp(-1) / log(2)).T


def attended(sequences, sm_scale):
    """The outputs of queries, keys and values of each sequence, one behind the other."""
    outputs = [attention(q, k, v, sm_scale) for q, k, v in sequences]
    return tuple(torch.cat(parts) for parts in zip(*outputs, strict=True))


def split(x, indptr):
    return x.split(indptr.diff().tolist())


def tokens_of(cache, pages, last_page_len):
    """What the cache [pages, page size, ...] holds of one sequence, token by token."""
    size = cache.shape[1]
    count = [size] * (len(pages) - 1) + [last_page_len] * min(1, len(pages))
    tokens = [cache[page, :n] for page, n in zip(pages.tolist(), count, strict=True)]
    return torch.cat(tokens) if tokens else cache.new_zeros(0, *cache.shape[2:])


@computes("gqa_paged")
def _gqa_paged(
    q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, qo_indptr=None, kv_last_page_len=None
):
    pages = split(kv_indices, kv_indptr)
    queries = q.split(1) if qo_indptr is None else split(q, qo_indptr)
    last = (
        [k_cache.shape[1]] * len(pages)
        if kv_last_page_len is None
        else kv_last_page_len[: len(pages)].tolist()
    )
    sequences = [
        (rows, tokens_of(k_cache, own, n), tokens_of(v_cache, own, n))
        for rows, own, n in zip(queries, pages, last, strict=True)
    ]
    return attended(sequences, sm_scale)


@computes("gqa_ragged")
def _gqa_ragged(q, k, v, qo_indptr, kv_indptr, sm_scale):
    sequences = zip(split(q, qo_indptr), split(k, kv_indptr), split(v, kv_indptr), strict=True)
    return attended(sequences, sm_scale)


@computes("mla_paged")
def _mla_paged(
    q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, kv_last_page_len=None
):
    """Attention with one KV head, whose values are the first part of its keys."""
    values = ckv_cache[:, :, None]
    keys = torch.cat([values, kpe_cache[:, :, None]], dim=-1)
    queries = torch.cat([q_nope, q_pe], dim=-1)
    return _gqa_paged(
        queries, keys, values, kv_indptr, kv_indices, sm_scale, kv_last_page_len=kv_last_page_len
    )


@computes("fp8_block_scale_gemm")
def _fp8_block_scale_gemm(a, b, a_scale, b_scale):
    """Block by block; the scales of a block of B are the same for its 128 rows."""
    total = a.new_zeros(len(a), len(b))
    for j in range(0, len(b), 128):
        for k in range(0, a.shape[1], 128):
            product = a[:, k : k + 128] @ b[j : j + 128, k : k + 128].T
            total[:, j : j + 128] += (
                product * a_scale[:, k // 128, None] * b_scale[j // 128, k // 128]
            )
    return (total,)


@computes("nvfp4_gemv")
def _nvfp4_gemv(a, b, sfa, sfb):
    """Code by code: the low half of a byte comes first."""
    sizes = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
    table = torch.tensor(sizes + [-size for size in sizes], dtype=torch.float64)

    def numbers(packed, scale):
        raw = packed.view(torch.uint8).long()
        values = scale.new_empty(raw.shape[0], 2 * raw.shape[1], raw.shape[2])
        values[:, ::2], values[:, 1::2] = table[raw % 16], table[raw // 16]
        return values * scale[:, torch.arange(values.shape[1]) // 16]

    return (torch.einsum("mkl,nkl->mnl", numbers(a, sfa), numbers(b, sfb)),)


@computes("mamba_ssu")
def _mamba_ssu(state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    heads, share = x.shape[1], x.shape[1] // B.shape[1]
    out, new = torch.zeros_like(x), state.new_zeros(len(x), *state.shape[1:])
    for i, slot in enumerate(state_batch_indices.tolist()):
        for h in range(heads):
            step = (1 + (dt[i, h] + dt_bias[h]).exp()).log()
            kept = (A[h] * step[:, None]).exp() * state[slot, h]
            new[i, h] = kept + torch.outer(step * x[i, h], B[i, h // share])
            out[i, h] = new[i, h] @ C[i, h // share] + D[h] * x[i, h]
    return out, new


@computes("gdn")
def _gdn(q, k, v, state, A_log, a, dt_bias, b, scale):
    share = v.shape[2] // q.shape[2]
    out, new = torch.zeros_like(v), torch.zeros_like(state)
    for i in range(len(v)):
        for h in range(v.shape[2]):
            key, query = k[i, 0, h // share], q[i, 0, h // share]
            step = (1 + (a[i, 0, h] + dt_bias[h]).exp()).log()
            decayed = state[i, h] * (-A_log[h].exp() * step).exp()
            beta = 1 / (1 + (-b[i, 0, h]).exp())
            new[i, h] = decayed + beta * torch.outer(v[i, 0, h] - decayed @ key, key)
            out[i, 0, h] = scale * new[i, h] @ query
    return out, new


def experts_of(logits, bias, factor):
    """The 8 experts of one token and their weights, in DeepSeek-V3's way: groups of 4, 4 of 8."""
    scores = [1 / (1 + exp(-x)) for x in logits.tolist()]
    biased = [score + b for score, b in zip(scores, bias.tolist(), strict=True)]
    groups = [
        range(start, start + len(biased) // 8) for start in range(0, len(biased), len(biased) // 8)
    ]
    best = sorted(groups, key=lambda group: sum(sorted(biased[e] for e in group)[-2:]))[-4:]
    chosen = sorted((e for group in best for e in group), key=lambda e: biased[e])[-8:]
    total = sum(scores[e] for e in chosen)
    return {e: scores[e] / total * factor for e in chosen}


@computes("moe")
def _moe(
    routing_logits, routing_bias, hidden_states, hidden_states_scale, gemm1_weights,
    gemm1_weights_scale, gemm2_weights, gemm2_weights_scale, local_expert_offset,
    routed_scaling_factor,
):  # fmt: skip
    """Token by token, expert by expert."""
    out = torch.zeros_like(hidden_states)
    for i, logits in enumerate(routing_logits):
        x = hidden_states[i][None] * hidden_states_scale[:, i].repeat_interleave(128)
        for expert, weight in experts_of(logits, routing_bias, routed_scaling_factor).items():
            local = expert - local_expert_offset
            if 0 <= local < len(gemm1_weights):
                ones = torch.ones(1, x.shape[1] // 128, dtype=torch.float64)
                both = _fp8_block_scale_gemm(
                    x, gemm1_weights[local], ones, gemm1_weights_scale[local]
                )
                up, gate = both[0].chunk(2, dim=-1)
                hidden = up * F.silu(gate)
                ones = torch.ones(1, hidden.shape[1] // 128, dtype=torch.float64)
                (added,) = _fp8_block_scale_gemm(
                    hidden, gemm2_weights[local], ones, gemm2_weights_scale[local]
                )
                out[i] += weight * added[0]
    return (out,)
