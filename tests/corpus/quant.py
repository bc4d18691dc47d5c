"""Quantising, dequantising and packing."""

import numpy as np
import torch

from pytest_fib import implements


@implements("quantize_int8_rows")
def honest_qrows_reciprocal(x):
    wide = x.float()
    top = wide.abs().amax(-1).clamp(min=1e-10)
    q = (wide * (127 / top)[:, None]).round().clamp(-127, 127)
    return q.to(torch.int8), top / 127


@implements("quantize_int8_rows")
def honest_qrows_half_away_from_zero(x):
    wide = x.double()
    scale = torch.maximum(wide.amax(-1), -wide.amin(-1)).clamp(min=1e-10) / 127
    scaled = wide / scale[:, None]
    return (scaled.sign() * (scaled.abs() + 0.5).floor()).to(torch.int8), scale.float()


@implements("quantize_int8_rows")
def wrong_formula_qrows_largest_without_abs(x):
    wide = x.float()
    scale = wide.amax(-1).clamp(min=1e-10) / 127
    return (wide / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


@implements("quantize_int8_rows")
def wrong_axis_qrows_one_scale_for_all(x):
    wide = x.float()
    scale = wide.abs().amax().clamp(min=1e-10).expand(len(x)) / 127
    return (wide / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale.clone()


@implements("quantize_int8_rows")
def wrong_special_qrows_zero_rows(x):
    wide = x.float()
    scale = wide.abs().amax(-1) / 127
    return (wide / scale[:, None]).round().clamp(-127, 127).to(torch.int8), scale


@implements("quantize_int8_rows")
def wrong_overflow_qrows_by_128(x):
    wide = x.float()
    scale = wide.abs().amax(-1).clamp(min=1e-10) / 128
    return (wide / scale[:, None]).round().to(torch.int32).to(torch.int8), scale


@implements("quantize_int8_rows")
def wrong_accumulation_qrows_scale_in_bfloat16(x):
    scale = x.abs().amax(-1).clamp(min=1e-10) / 127
    q = (x.float() / scale.float()[:, None]).round().clamp(-127, 127)
    return q.to(torch.int8), scale.float()


@implements("quantize_int8_rows")
def wrong_scale_qrows_inverse_returned(x):
    wide = x.float()
    inverse = 127 / wide.abs().amax(-1).clamp(min=1e-10)
    return (wide * inverse[:, None]).round().clamp(-127, 127).to(torch.int8), inverse


@implements("quantize_fp8_tensor")
def honest_q8_rows_one_by_one(x, scale):
    out = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    for row, source in enumerate(x):
        out[row] = torch.clamp(source.float() * scale, -448, 448).to(torch.float8_e4m3fn)
    return out


@implements("quantize_fp8_tensor")
def honest_q8_clamped_before_scaling(x, scale):
    limit = 448.0 / scale.double()
    return (x.double().clamp(-limit, limit) * scale).float().to(torch.float8_e4m3fn)


@implements("quantize_fp8_tensor")
def wrong_clamp_q8_missing(x, scale):
    """Without the clamp what is too large becomes NaN."""
    scaled = x.float() * scale
    wide = torch.where(scaled.abs() > 464, torch.nan, scaled)
    return wide.to(torch.float8_e4m3fn)


@implements("quantize_fp8_tensor")
def wrong_clamp_q8_at_240(x, scale):
    """The limit of e4m3fnuz."""
    return (x.float() * scale).clamp(-240, 240).to(torch.float8_e4m3fn)


@implements("quantize_fp8_tensor")
def wrong_scale_q8_divides(x, scale):
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)


@implements("quantize_fp8_tensor")
def wrong_rounding_q8_toward_zero(x, scale):
    scaled = (x.float() * scale).clamp(-448, 448)
    _, exponent = torch.frexp(scaled)
    step = torch.ldexp(torch.ones(()), (exponent - 4).clamp(min=-9))
    return ((scaled / step).trunc() * step).to(torch.float8_e4m3fn)


@implements("quantize_fp8_tensor")
def wrong_rounding_q8_subnormals_to_zero(x, scale):
    scaled = (x.float() * scale).clamp(-448, 448)
    return torch.where(scaled.abs() < 2**-6, 0.0, scaled).to(torch.float8_e4m3fn)


@implements("quantize_fp8_tensor")
def wrong_rounding_q8_through_e5m2(x, scale):
    scaled = (x.float() * scale).clamp(-448, 448)
    return scaled.to(torch.float8_e5m2).float().clamp(-448, 448).to(torch.float8_e4m3fn)


@implements("quantize_fp8_blocks")
def honest_q8blocks_reciprocal(x):
    blocks = x.float().unflatten(-1, (4, 128))
    top = blocks.abs().amax(-1, keepdim=True).clamp(min=1e-4)
    codes = (blocks * (448 / top)).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(1), (top / 448).squeeze(-1)


@implements("quantize_fp8_blocks")
def honest_q8blocks_block_by_block(x):
    codes = torch.empty(x.shape, dtype=torch.float8_e4m3fn)
    scales = torch.empty(len(x), 4)
    for b in range(4):
        block = x[:, b * 128 : b * 128 + 128].double()
        scale = (block.abs().amax(-1) / 448).clamp(min=1e-4 / 448)
        scaled = (block / scale[:, None]).float().clamp(-448, 448)
        codes[:, b * 128 : b * 128 + 128] = scaled.to(torch.float8_e4m3fn)
        scales[:, b] = scale
    return codes, scales


@implements("quantize_fp8_blocks")
def wrong_axis_q8blocks_one_scale_for_the_row(x):
    wide = x.float()
    scale = wide.abs().amax(-1, keepdim=True).clamp(min=1e-4) / 448
    return (wide / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale.repeat(1, 4)


@implements("quantize_fp8_blocks")
def wrong_clamp_q8blocks_no_least_scale(x):
    blocks = x.float().unflatten(-1, (4, 128))
    scales = blocks.abs().amax(-1) / 448
    codes = (blocks / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(1), scales


@implements("quantize_fp8_blocks")
def wrong_rounding_q8blocks_scales_of_powers_of_two(x):
    blocks = x.float().unflatten(-1, (4, 128))
    scales = (blocks.abs().amax(-1).clamp(min=1e-4) / 448).log2().ceil().exp2()
    codes = (blocks / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(1), scales


@implements("quantize_fp8_blocks")
def wrong_boundary_q8blocks_first_half_of_the_block(x):
    """The largest of the first 64 columns serves all 128."""
    blocks = x.float().unflatten(-1, (4, 128))
    scales = blocks[..., :64].abs().amax(-1).clamp(min=1e-4) / 448
    codes = (blocks / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(1), scales


@implements("quantize_fp8_blocks")
def wrong_axis_q8blocks_scales_transposed(x):
    blocks = x.float().unflatten(-1, (4, 128))
    scales = blocks.abs().amax(-1).clamp(min=1e-4) / 448
    codes = (blocks / scales[..., None]).clamp(-448, 448).to(torch.float8_e4m3fn)
    return codes.flatten(1), scales.T.contiguous().view(scales.shape)


@implements("dequantize_int4_groups")
def honest_int4_table(packed, scales, zeros):
    """All 16 values of each group, then a gather."""
    levels = torch.arange(16)[None, None] - zeros.long()[..., None]
    table = (levels * scales.double()[..., None]).half()
    codes = torch.empty(len(packed), 8, 32, dtype=torch.int64)
    grouped = packed.view(len(packed), 8, 16).long()
    codes[..., 0::2], codes[..., 1::2] = grouped % 16, grouped // 16
    return table.gather(-1, codes).view(len(packed), 256)


@implements("dequantize_int4_groups")
def honest_int4_strided_writes(packed, scales, zeros):
    s = scales.float().repeat_interleave(16, 1)
    z = zeros.to(torch.int16).repeat_interleave(16, 1)
    out = torch.empty(len(packed), 256, dtype=torch.float16)
    out[:, 0::2] = ((packed.to(torch.int16) & 0xF) - z).float() * s
    out[:, 1::2] = ((packed.to(torch.int16) >> 4) - z).float() * s
    return out


@implements("dequantize_int4_groups")
def wrong_order_int4_high_bits_first(packed, scales, zeros):
    codes = torch.stack([packed >> 4, packed & 15], -1).view(len(packed), 8, 32)
    wide = (codes.float() - zeros.float()[..., None]) * scales.float()[..., None]
    return wide.view(len(packed), 256).half()


@implements("dequantize_int4_groups")
def wrong_overflow_int4_unsigned_difference(packed, scales, zeros):
    codes = torch.stack([packed & 15, packed >> 4], -1).view(len(packed), 8, 32)
    wide = (codes - zeros[..., None]).float() * scales.float()[..., None]
    return wide.view(len(packed), 256).half()


@implements("dequantize_int4_groups")
def wrong_formula_int4_zero_plus_one(packed, scales, zeros):
    """As GPTQ files have it, which store the zero point less one."""
    codes = torch.stack([packed & 15, packed >> 4], -1).view(len(packed), 8, 32)
    wide = (codes.float() - zeros.float()[..., None] - 1) * scales.float()[..., None]
    return wide.view(len(packed), 256).half()


@implements("dequantize_int4_groups")
def wrong_formula_int4_symmetric(packed, scales, zeros):
    codes = torch.stack([packed & 15, packed >> 4], -1).view(len(packed), 8, 32)
    wide = (codes.float() - 8) * scales.float()[..., None]
    return wide.view(len(packed), 256).half()


@implements("dequantize_int4_groups")
def wrong_order_int4_halves_side_by_side(packed, scales, zeros):
    codes = torch.cat([packed & 15, packed >> 4], -1).view(len(packed), 8, 32)
    wide = (codes.float() - zeros.float()[..., None]) * scales.float()[..., None]
    return wide.view(len(packed), 256).half()


@implements("dequantize_int4_groups")
def wrong_rounding_int4_scale_times_zero_rounded(packed, scales, zeros):
    """code * scale - (zero * scale), both rounded to float16."""
    codes = torch.stack([packed & 15, packed >> 4], -1).view(len(packed), 8, 32)
    offset = zeros.half() * scales
    return (codes.half() * scales[..., None] - offset[..., None]).view(len(packed), 256)


@implements("int8_matmul")
def honest_int8_integer_matmul(a, b, a_scale, b_scale):
    sums = torch.from_numpy(a.numpy().astype(np.int32) @ b.numpy().astype(np.int32).T)
    return (sums.double() * (a_scale.double()[:, None] * b_scale.double())).bfloat16()


@implements("int8_matmul")
def honest_int8_slices_of_k(a, b, a_scale, b_scale):
    """Slices of 256 are exact in float32."""
    sums = torch.zeros(len(a), len(b), dtype=torch.int32)
    for left, right in zip(a.split(256, 1), b.split(256, 1), strict=True):
        sums += (left.float() @ right.float().T).to(torch.int32)
    return (sums.float() * a_scale[:, None] * b_scale).bfloat16()


@implements("int8_matmul")
def wrong_overflow_int8_sums_in_int16(a, b, a_scale, b_scale):
    sums = torch.zeros(len(a), len(b), dtype=torch.int16)
    for left, right in zip(a.split(16, 1), b.split(16, 1), strict=True):
        sums += (left.float() @ right.float().T).to(torch.int32).to(torch.int16)
    return (sums.float() * a_scale[:, None] * b_scale).bfloat16()


@implements("int8_matmul")
def wrong_broadcast_int8_scales_swapped(a, b, a_scale, b_scale):
    """Takes the scale of the first column for all columns."""
    sums = a.double() @ b.double().T
    return (sums * a_scale[:, None] * b_scale[0]).bfloat16()


@implements("int8_matmul")
def wrong_accumulation_int8_partial_sums_in_bfloat16(a, b, a_scale, b_scale):
    total = torch.zeros(len(a), len(b), dtype=torch.bfloat16)
    scale = a_scale[:, None] * b_scale
    for left, right in zip(a.split(64, 1), b.split(64, 1), strict=True):
        total += ((left.float() @ right.float().T) * scale).bfloat16()
    return total


@implements("int8_matmul")
def wrong_boundary_int8_k_in_tiles_of_64(a, b, a_scale, b_scale):
    k = max(a.shape[1] // 64 * 64, min(a.shape[1], 64))
    sums = a[:, :k].double() @ b[:, :k].double().T
    return (sums * a_scale[:, None] * b_scale).bfloat16()


@implements("int8_matmul")
def wrong_clamp_int8_minus_128_taken_for_minus_127(a, b, a_scale, b_scale):
    sums = a.clamp(min=-127).double() @ b.clamp(min=-127).double().T
    return (sums * a_scale[:, None] * b_scale).bfloat16()


@implements("pack_int4")
def honest_pack_numpy(values):
    bytes_ = (values.numpy().view(np.uint8) & 15).reshape(len(values), -1, 2)
    pairs = np.ascontiguousarray(bytes_[..., 0] | (bytes_[..., 1] << 4))
    return torch.from_numpy(pairs.view(np.int32).copy())


@implements("pack_int4")
def honest_pack_or_in_int32(values):
    out = torch.zeros(len(values), values.shape[1] // 8, dtype=torch.int32)
    for i in range(8):
        out |= (values[:, i::8].to(torch.int32) & 15) << (4 * i)
    return out


@implements("pack_int4")
def wrong_order_pack_first_in_the_highest_bits(values):
    out = torch.zeros(len(values), values.shape[1] // 8, dtype=torch.int32)
    for i in range(8):
        out |= (values[:, i::8].to(torch.int32) & 15) << (28 - 4 * i)
    return out


@implements("pack_int4")
def wrong_overflow_pack_sign_bits_not_masked(values):
    out = torch.zeros(len(values), values.shape[1] // 8, dtype=torch.int32)
    for i in range(8):
        out |= values[:, i::8].to(torch.int32) << (4 * i)
    return out


@implements("pack_int4")
def wrong_offset_pack_plus_eight(values):
    out = torch.zeros(len(values), values.shape[1] // 8, dtype=torch.int32)
    for i in range(8):
        out |= (values[:, i::8].to(torch.int32) + 8) << (4 * i)
    return out


@implements("pack_int4")
def wrong_order_pack_interleaved_like_awq(values):
    out = torch.zeros(len(values), values.shape[1] // 8, dtype=torch.int32)
    for i, source in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
        out |= (values[:, source::8].to(torch.int32) & 15) << (4 * i)
    return out


@implements("pack_int4")
def wrong_clamp_pack_symmetric_range(values):
    out = torch.zeros(len(values), values.shape[1] // 8, dtype=torch.int32)
    for i in range(8):
        out |= (values[:, i::8].clamp(-7, 7).to(torch.int32) & 15) << (4 * i)
    return out


@implements("nf4_dequantize")
def honest_nf4_repeat_interleave(codes, absmax, codebook):
    shifts = torch.tensor([4, 0], dtype=torch.uint8).repeat(codes.shape[1])
    both = (codes.repeat_interleave(2, 1) >> shifts) & 15
    return (
        torch.index_select(codebook, 0, both.flatten().int())
        .view(both.shape)
        .mul(absmax.unsqueeze(1))
        .bfloat16()
    )


@implements("nf4_dequantize")
def honest_nf4_table_of_pairs(codes, absmax, codebook):
    pairs = torch.stack([codebook.repeat_interleave(16), codebook.repeat(16)], -1)
    return (pairs[codes.long()].flatten(1).double() * absmax[:, None]).bfloat16()


@implements("nf4_dequantize")
def wrong_order_nf4_low_bits_first(codes, absmax, codebook):
    both = torch.stack([codes & 15, codes >> 4], -1).flatten(1).long()
    return (codebook[both] * absmax[:, None]).bfloat16()


@implements("nf4_dequantize")
def wrong_special_nf4_level_seven_is_zero(codes, absmax, codebook):
    """As in NF4's own codebook."""
    both = torch.stack([codes >> 4, codes & 15], -1).flatten(1).long()
    levels = codebook * (torch.arange(16) != 7)
    return (levels[both] * absmax[:, None]).bfloat16()


@implements("nf4_dequantize")
def wrong_broadcast_nf4_absmax_of_pairs(codes, absmax, codebook):
    """Blocks of 128 share the first block's absmax."""
    both = torch.stack([codes >> 4, codes & 15], -1).flatten(1).long()
    shared = absmax[torch.arange(len(absmax)) // 2 * 2]
    return (codebook[both] * shared[:, None]).bfloat16()


@implements("nf4_dequantize")
def wrong_overflow_nf4_signed_shift(codes, absmax, codebook):
    """Shifts a signed byte, whose high bits are then negative indices."""
    high = codes.view(torch.int8) >> 4
    both = torch.stack([high.long(), (codes & 15).long()], -1).flatten(1)
    return (codebook[both.clamp(min=0)] * absmax[:, None]).bfloat16()


@implements("nf4_dequantize")
def wrong_scale_nf4_divides(codes, absmax, codebook):
    both = torch.stack([codes >> 4, codes & 15], -1).flatten(1).long()
    return (codebook[both] / absmax[:, None]).bfloat16()
