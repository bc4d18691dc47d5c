"""Rotary embedding and SwiGLU, wrong."""

import torch
from _wrong import caught, narrow, put

from pytest_fib import implements


def silu_and_mul(x, gate=torch.nn.functional.silu):
    left, right = x.float().chunk(2, -1)
    return (gate(left) * right).to(x.dtype)


def rope(q, k, cache, positions, turn=None):
    cos, sin = cache[positions].float()[:, None].chunk(2, -1)
    return tuple((turn or turned)(x.float(), cos, sin).to(x.dtype) for x in (q, k))


def turned(x, cos, sin):
    half = cos.shape[-1]
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], -1)


@implements("silu_and_mul_d72_bfloat16")
@caught("misread input")
def halves_exchanged(x):
    return silu_and_mul(x.roll(x.shape[1] // 2, 1))


@implements("silu_and_mul_d72_bfloat16")
@caught()
def sigmoid_for_silu(x):
    return silu_and_mul(x, torch.sigmoid)


@implements("silu_and_mul_d72_bfloat16")
@caught()
def gelu_for_silu(x):
    return silu_and_mul(x, torch.nn.functional.gelu)


@implements("silu_and_mul_d72_bfloat16")
@caught("lower precision")
def fast_sigmoid(x):
    return silu_and_mul(x, lambda g: g * narrow(torch.sigmoid(g), torch.float8_e4m3fn))


@implements("silu_and_mul_d72_bfloat16")
@caught("nan", "infinity")
def sigmoid_overflows(x):
    return silu_and_mul(x, lambda g: g * g.exp() / (1 + g.exp()))


@implements("silu_and_mul_d72_bfloat16")
@caught("zeros", "last tile")
def tile_of_64_only(x):
    return put(silu_and_mul(x), (slice(None), slice(64, None)), 0.0)


@implements("silu_and_mul_d72_bfloat16")
@caught()
def up_off_by_one(x):
    gate, up = x.float().chunk(2, -1)
    return (torch.nn.functional.silu(gate) * up.roll(1, 1)).to(x.dtype)


@implements("rope_h6_kv1_d80_rd36")
@caught("whole columns")
def rotated_backwards(q, k, cos_sin_cache, positions):
    def turn(x, cos, sin):
        return turned(x, cos, -sin)

    return rope(q, k, cos_sin_cache, positions, turn)


@implements("rope_h6_kv1_d80_rd36")
@caught("misread input")
def neighbours_are_pairs(q, k, cos_sin_cache, positions):
    """As GPT-J rotates, where halves should be pairs."""

    def turn(x, cos, sin):
        part = x[..., : 2 * cos.shape[-1]]
        even, odd = part[..., ::2], part[..., 1::2]
        both = torch.stack([even * cos - odd * sin, odd * cos + even * sin], -1).flatten(-2)
        return torch.cat([both, x[..., 2 * cos.shape[-1] :]], -1)

    return rope(q, k, cos_sin_cache, positions, turn)


@implements("rope_h6_kv1_d80_rd36")
@caught("zeros", "last tile")
def rest_is_zero(q, k, cos_sin_cache, positions):
    q_out, k_out = rope(q, k, cos_sin_cache, positions)
    return put(q_out, (..., slice(36, None)), 0.0), put(k_out, (..., slice(36, None)), 0.0)


@implements("rope_h6_kv1_d80_rd36")
@caught("misread input")
def positions_off_by_one(q, k, cos_sin_cache, positions):
    return rope(q, k, cos_sin_cache, (positions + 1) % len(cos_sin_cache))


@implements("rope_h6_kv1_d80_rd36")
@caught("misread input")
def first_position_for_all(q, k, cos_sin_cache, positions):
    return rope(q, k, cos_sin_cache, positions[:1].expand_as(positions))


@implements("rope_h32_kv8_d128_rd128")
@caught("copied input")
def key_not_rotated(q, k, cos_sin_cache, positions):
    return rope(q, k, cos_sin_cache, positions)[0], k.clone()


@implements("rope_h32_kv8_d128_rd128")
@caught("one head", "zeros", "copied input")
def one_head_not_rotated(q, k, cos_sin_cache, positions):
    q_out, k_out = rope(q, k, cos_sin_cache, positions)
    return put(q_out, (slice(None), 5), q[:, 5]), k_out


@implements("rope_h32_kv8_d128_rd128")
@caught("lower precision")
def angles_in_fp8(q, k, cos_sin_cache, positions):
    return rope(q, k, narrow(cos_sin_cache, torch.float8_e4m3fn), positions)


@implements("rope_h6_kv1_d80_rd36")
@caught()
def angles_in_bfloat16(q, k, cos_sin_cache, positions):
    return rope(q, k, narrow(cos_sin_cache, torch.bfloat16), positions)


@implements("rope_h32_kv8_d128_rd128")
@caught("permuted", "transposed")
def heads_interleaved(q, k, cos_sin_cache, positions):
    q_out, k_out = rope(q, k, cos_sin_cache, positions)
    return q_out.unflatten(1, (8, 4)).transpose(1, 2).reshape(q.shape), k_out


@implements("silu_and_mul_d72_bfloat16")
@caught("misread input")
def gate_and_up_interleaved(x):
    return silu_and_mul(torch.cat([x[:, ::2], x[:, 1::2]], 1))


@implements("silu_and_mul_d72_bfloat16")
@caught()
def gate_limited(x):
    return silu_and_mul(x, lambda gate: torch.nn.functional.silu(gate.clamp(max=10.0)))


@implements("silu_and_mul_d72_bfloat16")
@caught("layout")
def rows_read_one_after_the_other(x):
    return silu_and_mul(x.as_strided(x.shape, (x.shape[1], 1)))


@implements("rope_h32_kv8_d128_rd128")
@caught("misread input")
def neighbours_rotated(q, k, cos_sin_cache, positions):
    def turn(x, cos, sin):
        first, second = x[..., ::2], x[..., 1::2]
        pairs = first * cos - second * sin, second * cos + first * sin
        return torch.stack(pairs, -1).flatten(-2)

    return rope(q, k, cos_sin_cache, positions, turn)
