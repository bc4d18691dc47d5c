"""Fused layers: norms, activations and projections with what is quantised around them."""

import torch
import torch.nn.functional as F

from pytest_fib import implements

NI = float("-inf")
F8 = torch.float8_e4m3fn


def _add_norm(x, residual, weight, scale, inside=True, clamp=True, multiply=False):
    r = x.float() + residual.float()
    ms = r.square().mean(-1, keepdim=True)
    inv = torch.rsqrt(ms + 1e-6) if inside else 1 / (ms.sqrt() + 1e-6)
    y = r * inv * weight.float()
    y = y * scale if multiply else y / scale
    over = torch.full_like(y, float("nan"))
    y = y.clamp(-448, 448) if clamp else torch.where(y.abs() > 464, over, y)
    return y.to(F8), r.to(x.dtype)


@implements("add_rmsnorm_fp8_static")
def honest_arf_fused(x, residual, weight, scale):
    return _add_norm(x, residual, weight, scale)


@implements("add_rmsnorm_fp8_static")
def honest_arf_tiles(x, residual, weight, scale):
    r = x.float() + residual.float()
    total = torch.zeros(r.shape[0], 1)
    for i in range(0, r.shape[1], 64):
        total += r[:, i : i + 64].square().sum(-1, keepdim=True)
    inv = (total * (1.0 / r.shape[1]) + 1e-6).rsqrt() * (1.0 / scale)
    return (r * inv * weight.float()).clamp(-448, 448).to(F8), r.to(x.dtype)


@implements("add_rmsnorm_fp8_static")
def wrong_saturation_arf_nan(x, residual, weight, scale):
    """What is too large becomes NaN."""
    return _add_norm(x, residual, weight, scale, clamp=False)


@implements("add_rmsnorm_fp8_static")
def wrong_formula_arf_times_scale(x, residual, weight, scale):
    """Times the scale."""
    return _add_norm(x, residual, weight, scale, multiply=True)


@implements("add_rmsnorm_fp8_static")
def wrong_guard_arf_eps_outside(x, residual, weight, scale):
    """Epsilon is added to the root."""
    return _add_norm(x, residual, weight, scale, inside=False)


@implements("add_rmsnorm_fp8_static")
def wrong_boundary_arf_residual_tail(x, residual, weight, scale):
    """The residual keeps its last elements where rows aren't whole vectors of 8."""
    q, r = _add_norm(x, residual, weight, scale)
    n = x.shape[1]
    if n > 8 and n % 8:
        r[:, n // 8 * 8 :] = residual[:, n // 8 * 8 :]
    return q, r


def _silu_groups(gate_up, step=torch.ceil, floor=1e-4, swap=False, half=False):
    gate, up = gate_up.float().chunk(2, -1)
    y = F.silu(up) * gate if swap else F.silu(gate) * up
    y = (y.bfloat16().float() if half else y).unflatten(-1, (-1, 128))
    amax = y.abs().amax(-1, keepdim=True).clamp(min=floor)
    scale = torch.exp2(step(torch.log2(amax / 448.0)))
    return (y / scale).clamp(-448, 448).to(F8).flatten(-2), scale[..., 0]


@implements("silu_mul_fp8_groups_ue8m0")
def honest_smg_groups(gate_up):
    return _silu_groups(gate_up)


@implements("silu_mul_fp8_groups_ue8m0")
def honest_smg_bits(gate_up):
    """The exponent from the bits, as kernels do it."""
    gate, up = gate_up.float().chunk(2, -1)
    y = (gate / (1 + torch.exp(-gate)) * up).unflatten(-1, (-1, 128))
    bits = (y.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448.0).view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).int()
    scale = (exponent << 23).view(torch.float32)
    return (y / scale).clamp(-448, 448).to(F8).flatten(-2), scale[..., 0]


@implements("silu_mul_fp8_groups_ue8m0")
def wrong_rounding_smg_nearest(gate_up):
    """The exponent is rounded to the nearest."""
    return _silu_groups(gate_up, step=torch.round)


@implements("silu_mul_fp8_groups_ue8m0")
def wrong_guard_smg_zero_group(gate_up):
    """A floor far below under the largest value."""
    return _silu_groups(gate_up, floor=1e-10)


@implements("silu_mul_fp8_groups_ue8m0")
def wrong_formula_smg_halves_swapped(gate_up):
    """The gate is the second half."""
    return _silu_groups(gate_up, swap=True)


@implements("silu_mul_fp8_groups_ue8m0")
def wrong_boundary_smg_scale_of_next(gate_up):
    """Beyond eight groups, scales are those of a group before."""
    q, scale = _silu_groups(gate_up)
    if scale.shape[1] > 8:
        scale = torch.cat([scale[:, :8], scale[:, 7:-1]], 1)
    return q, scale


def _min_tokens(logits, eos, early, temperature, zero=True):
    out = logits.masked_fill(
        early[:, None] & torch.zeros(logits.shape[1], dtype=torch.bool).index_fill(0, eos, True), NI
    )
    t = torch.where(temperature == 0, 1.0, temperature) if zero else temperature
    return out / t[:, None]


@implements("min_tokens_then_temperature")
def honest_mtt_mask(logits, eos_ids, generated, min_tokens, temperature):
    return _min_tokens(logits, eos_ids, generated < min_tokens, temperature)


@implements("min_tokens_then_temperature")
def honest_mtt_reciprocal(logits, eos_ids, generated, min_tokens, temperature):
    inverse = torch.where(temperature > 0, 1.0 / temperature, torch.ones_like(temperature))
    out = logits * inverse[:, None]
    for b in range(len(out)):
        if int(generated[b]) < int(min_tokens[b]):
            out[b, eos_ids] = NI
    return out


@implements("min_tokens_then_temperature")
def wrong_offbyone_mtt_inclusive(logits, eos_ids, generated, min_tokens, temperature):
    """One token too many."""
    return _min_tokens(logits, eos_ids, generated <= min_tokens, temperature)


@implements("min_tokens_then_temperature")
def wrong_special_mtt_first_eos(logits, eos_ids, generated, min_tokens, temperature):
    """Only the first end."""
    return _min_tokens(logits, eos_ids[:1], generated < min_tokens, temperature)


@implements("min_tokens_then_temperature")
def wrong_guard_mtt_zero_temperature(logits, eos_ids, generated, min_tokens, temperature):
    """Divides by a temperature of 0."""
    return _min_tokens(logits, eos_ids, generated < min_tokens, temperature, zero=False)


@implements("min_tokens_then_temperature")
def wrong_broadcast_mtt_any_row(logits, eos_ids, generated, min_tokens, temperature):
    """Ends are banned everywhere if they are anywhere."""
    early = (generated < min_tokens).any().expand(len(generated))
    return _min_tokens(logits, eos_ids, early, temperature)


def _unpacked(qweight, high_first=False):
    low, high = qweight & 15, qweight >> 4
    return torch.stack([high, low] if high_first else [low, high], 1).flatten(0, 1)


def _w4(x, q, scales, zeros, plus=0.0, group=32):
    at = torch.arange(q.shape[0]) // group
    w = (q.float() - zeros.float()[at] - plus) * scales.float()[at]
    return (x.float() @ w).to(x.dtype)


@implements("w4a16_group_gemm_zeros")
def honest_w4g_dequantised(x, qweight, scales, zeros):
    return _w4(x, _unpacked(qweight), scales, zeros)


@implements("w4a16_group_gemm_zeros")
def honest_w4g_group_sums(x, qweight, scales, zeros):
    """Groups one by one, zeros and scales first."""
    q = _unpacked(qweight)
    total = torch.zeros(x.shape[0], q.shape[1])
    for g in range(scales.shape[0]):
        rows = slice(g * 32, g * 32 + 32)
        centred = q[rows].float() - zeros[g].float()
        total += (x[:, rows].float() @ centred) * scales[g].float()
    return total.to(x.dtype)


@implements("w4a16_group_gemm_zeros")
def wrong_formula_w4g_high_first(x, qweight, scales, zeros):
    """The even k from the high halves."""
    return _w4(x, _unpacked(qweight, high_first=True), scales, zeros)


@implements("w4a16_group_gemm_zeros")
def wrong_offbyone_w4g_zero_plus_one(x, qweight, scales, zeros):
    """Zeros that are stored less one, as GPTQ has them."""
    return _w4(x, _unpacked(qweight), scales, zeros, plus=1.0)


@implements("w4a16_group_gemm_zeros")
def wrong_overflow_w4g_bytes_wrap(x, qweight, scales, zeros):
    """The difference is that of bytes."""
    at = torch.arange(x.shape[1]) // 32
    w = (_unpacked(qweight) - zeros[at]).float() * scales.float()[at]
    return (x.float() @ w).to(x.dtype)


@implements("w4a16_group_gemm_zeros")
def wrong_formula_w4g_groups_of_64(x, qweight, scales, zeros):
    """Groups of 64."""
    return _w4(x, _unpacked(qweight), scales, zeros, group=64)


def _rms(x, weight, inside=True):
    x = x.float()
    ms = x.square().mean(-1, keepdim=True)
    inv = torch.rsqrt(ms + 1e-6) if inside else 1 / (ms.sqrt() + 1e-6)
    return x * inv * weight.float()


def _rotate(x, positions, cache):
    cos, sin = cache[positions][:, None].chunk(2, -1)
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


@implements("qkv_split_norm_rope")
def honest_qsn_parts(qkv, q_weight, k_weight, positions, cos_sin_cache):
    q, k, v = qkv.unflatten(-1, (8, 64)).split([4, 2, 2], 1)
    q = _rotate(_rms(q, q_weight), positions, cos_sin_cache).to(qkv.dtype)
    return q, _rotate(_rms(k, k_weight), positions, cos_sin_cache).to(qkv.dtype), v.contiguous()


@implements("qkv_split_norm_rope")
def honest_qsn_one_pass(qkv, q_weight, k_weight, positions, cos_sin_cache):
    heads = qkv.unflatten(-1, (8, 64)).float()
    inv = (heads.square().sum(-1, keepdim=True) / 64 + 1e-6).rsqrt()
    weight = torch.stack([q_weight] * 4 + [k_weight] * 2).float()
    x = heads[:, :6] * (weight * inv[:, :6])
    cos, sin = cos_sin_cache[positions][:, None].chunk(2, -1)
    turned = torch.cat([-x[..., 32:], x[..., :32]], -1)
    x = (x * torch.cat([cos, cos], -1) + turned * torch.cat([sin, sin], -1)).to(qkv.dtype)
    return x[:, :4].contiguous(), x[:, 4:].contiguous(), qkv[:, 384:].reshape(-1, 2, 64)


@implements("qkv_split_norm_rope")
def wrong_formula_qsn_norm_of_all_heads(qkv, q_weight, k_weight, positions, cos_sin_cache):
    """One norm for all heads of a token."""
    q, k, v = qkv.split([256, 128, 128], -1)
    q = _rms(q, q_weight.repeat(4)).unflatten(-1, (4, 64))
    k = _rms(k, k_weight.repeat(2)).unflatten(-1, (2, 64))
    q, k = (_rotate(each, positions, cos_sin_cache).to(qkv.dtype) for each in (q, k))
    return q, k, v.reshape(-1, 2, 64)


@implements("qkv_split_norm_rope")
def wrong_formula_qsn_rope_first(qkv, q_weight, k_weight, positions, cos_sin_cache):
    """Rotated before the weight is applied."""
    q, k, v = qkv.unflatten(-1, (8, 64)).split([4, 2, 2], 1)
    q = _rms(_rotate(q.float(), positions, cos_sin_cache), q_weight).to(qkv.dtype)
    k = _rms(_rotate(k.float(), positions, cos_sin_cache), k_weight).to(qkv.dtype)
    return q, k, v.contiguous()


@implements("qkv_split_norm_rope")
def wrong_broadcast_qsn_one_weight(qkv, q_weight, k_weight, positions, cos_sin_cache):
    """Keys are normalised by the weight of queries."""
    return honest_qsn_parts(qkv, q_weight, q_weight, positions, cos_sin_cache)


@implements("qkv_split_norm_rope")
def wrong_guard_qsn_eps_outside(qkv, q_weight, k_weight, positions, cos_sin_cache):
    """Epsilon is added to the root."""
    q, k, v = qkv.unflatten(-1, (8, 64)).split([4, 2, 2], 1)
    q = _rotate(_rms(q, q_weight, inside=False), positions, cos_sin_cache).to(qkv.dtype)
    k = _rotate(_rms(k, k_weight, inside=False), positions, cos_sin_cache).to(qkv.dtype)
    return q, k, v.contiguous()


def _masked_gemm(x, w, limit):
    y = torch.bmm(x.float(), w.float().transpose(1, 2))
    row = torch.arange(x.shape[1])[None, :, None]
    return y.masked_fill(row >= limit[:, None, None], 0).to(x.dtype)


@implements("masked_grouped_gemm")
def honest_mgg_bmm(x, w, masked_m):
    return _masked_gemm(x, w, masked_m)


@implements("masked_grouped_gemm")
def honest_mgg_experts(x, w, masked_m):
    y = torch.zeros(*x.shape[:2], 48, dtype=x.dtype)
    for e, m in enumerate(masked_m.tolist()):
        rows, weight = x[e, :m].float(), w[e].float().T
        y[e, :m] = (rows[:, :32] @ weight[:32] + rows[:, 32:] @ weight[32:]).to(x.dtype)
    return y


@implements("masked_grouped_gemm")
def wrong_boundary_mgg_rows_of_tiles(x, w, masked_m):
    """Whole tiles of 16 rows are computed."""
    return _masked_gemm(x, w, (masked_m + 15) // 16 * 16)


@implements("masked_grouped_gemm")
def wrong_threshold_mgg_256_rows(x, w, masked_m):
    """At most 256 rows of an expert."""
    return _masked_gemm(x, w, masked_m.clamp(max=256))


@implements("masked_grouped_gemm")
def wrong_accumulation_mgg_halves_bfloat16(x, w, masked_m):
    """Two halves of k, rounded before they are added."""
    row = torch.arange(x.shape[1])[None, :, None]
    parts = [
        torch.bmm(x[..., i : i + 8].float(), w[..., i : i + 8].float().transpose(1, 2)).to(x.dtype)
        for i in range(0, 64, 8)
    ]
    y = parts[0]
    for part in parts[1:]:
        y = y + part
    return y.masked_fill(row >= masked_m[:, None, None], 0)


@implements("masked_grouped_gemm")
def wrong_special_mgg_after_an_empty_expert(x, w, masked_m):
    """Nothing is computed after the first expert without tokens."""
    alive = (masked_m > 0).int().cumprod(0)
    return _masked_gemm(x, w, masked_m * alive)


def _embed(ids, table, weight, scale=None, one=1.0, pad=True):
    scale = table.shape[1] ** 0.5 if scale is None else scale
    h = table[ids.long()].float() * scale
    h = h.masked_fill((ids < 0)[:, None], 0.0) if pad else h
    y = h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-6) * (one + weight.float())
    return h.to(table.dtype), y.to(table.dtype)


@implements("embed_scale_gemma_norm")
def honest_esg_gather(ids, table, weight):
    return _embed(ids, table, weight)


@implements("embed_scale_gemma_norm")
def honest_esg_rows(ids, table, weight):
    padded = torch.cat([table.float(), torch.zeros(1, table.shape[1])])
    h = padded[torch.where(ids < 0, table.shape[0], ids).long()] * table.shape[1] ** 0.5
    inv = 1.0 / torch.sqrt(torch.linalg.vecdot(h, h)[:, None] / table.shape[1] + 1e-6)
    return h.to(table.dtype), (h * inv * weight.float() + h * inv).to(table.dtype)


@implements("embed_scale_gemma_norm")
def wrong_formula_esg_not_scaled(ids, table, weight):
    """Embeddings as they are in the table."""
    return _embed(ids, table, weight, scale=1.0)


@implements("embed_scale_gemma_norm")
def wrong_formula_esg_llama_norm(ids, table, weight):
    """Weights around 1."""
    return _embed(ids, table, weight, one=0.0)


@implements("embed_scale_gemma_norm")
def wrong_sentinel_esg_last_row(ids, table, weight):
    """Padding is the last row."""
    return _embed(ids, table, weight, pad=False)


@implements("embed_scale_gemma_norm")
def wrong_accumulation_esg_norm_of_rounded_sum(ids, table, weight):
    """The sum of squares is a running sum in bfloat16, 16 elements at a time."""
    h, _ = _embed(ids, table, weight)
    total = torch.zeros(len(ids), 1, dtype=torch.bfloat16)
    for i in range(0, table.shape[1], 16):
        total += h[:, i : i + 16].float().square().sum(-1, keepdim=True).bfloat16()
    inv = torch.rsqrt(total.float() / table.shape[1] + 1e-6)
    return h, (h.float() * inv * (1 + weight.float())).to(table.dtype)


def _relu2(x, y=None, floor=1e-8, top=None, rounding=torch.round):
    y = x.float().relu().square() if y is None else y
    scale = ((y.amax(-1) if top is None else top) / 127.0).clamp(min=floor)
    return rounding(y / scale[:, None]).clamp(-128, 127).to(torch.int8), scale


@implements("relu2_dynamic_int8")
def honest_r2i_plain(x):
    return _relu2(x)


@implements("relu2_dynamic_int8")
def honest_r2i_reciprocal(x):
    top = x.float().amax(-1).clamp(min=0)
    scale = (top * top * (1 / 127)).clamp(min=1e-8)
    y = x.float().clamp(min=0)
    return (y * y * (1 / scale)[:, None]).round().clamp(max=127).to(torch.int8), scale


@implements("relu2_dynamic_int8")
def wrong_boundary_r2i_last_tile(x):
    """The largest is sought in full tiles of 128."""
    n = x.shape[1]
    full = x[:, : n // 128 * 128] if n > 128 else x
    return _relu2(x, top=full.float().relu().square().amax(-1))


@implements("relu2_dynamic_int8")
def wrong_accumulation_r2i_square_bfloat16(x):
    """Squares are rounded before they are quantised."""
    return _relu2(x, y=x.relu().square().float())


@implements("relu2_dynamic_int8")
def wrong_formula_r2i_scale_of_negatives(x):
    """The scale is that of the largest magnitude."""
    return _relu2(x, top=x.float().abs().amax(-1).square())


@implements("relu2_dynamic_int8")
def wrong_rounding_r2i_truncates(x):
    """Cut off."""
    return _relu2(x, rounding=torch.trunc)


def _relu2_layer(x, up, down, act=lambda h: h.relu().square(), tile=32, hidden=128):
    out = torch.zeros(x.shape[0], 64)
    for start in range(0, hidden, tile):
        some = slice(start, start + tile)
        out += act(x.float() @ up[:, some].float()) @ down[some].float()
    return out.to(x.dtype)


@implements("relu2_ffn_bf16")
def honest_relu2_tiles(x, up, down):
    return _relu2_layer(x, up, down)


@implements("relu2_ffn_bf16")
def honest_relu2_from_the_end(x, up, down):
    """One hidden number after the other, the last first."""
    hidden = (x.float() @ up.float()).relu().square()
    out = torch.zeros(x.shape[0], 64)
    for i in reversed(range(128)):
        out += hidden[:, i : i + 1] * down[i].float()
    return out.to(x.dtype)


@implements("relu2_ffn_bf16")
def wrong_formula_relu2_without_relu(x, up, down):
    return _relu2_layer(x, up, down, lambda h: h.square())


@implements("relu2_ffn_bf16")
def wrong_formula_relu2_not_squared(x, up, down):
    return _relu2_layer(x, up, down, torch.relu)


@implements("relu2_ffn_bf16")
def wrong_boundary_relu2_last_tile(x, up, down):
    return _relu2_layer(x, up, down, hidden=120, tile=40)


@implements("relu2_ffn_bf16")
def wrong_precision_relu2_half_sums(x, up, down):
    """The result is rounded after each tile."""
    out = torch.zeros_like(x)
    for start in range(0, 128, 8):
        hidden = (x.float() @ up[:, start : start + 8].float()).relu().square()
        out += (hidden @ down[start : start + 8].float()).to(x.dtype)
    return out


@implements("relu2_ffn_bf16")
def wrong_overflow_relu2_clamped(x, up, down):
    """Hidden numbers are clamped to those of float16."""
    return _relu2_layer(x, up, down, lambda h: h.relu().square().clamp(max=65504))
