"""Products of fp8 and NVFP4 numbers with block scales, wrong."""

import torch
from _wrong import caught, fp16_sum, put

from pytest_fib import implements

BLOCK = 128
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def spread(scale, dim, block=BLOCK):
    return scale.repeat_interleave(block, dim)


def gemm(a, b, a_scale, b_scale, product=lambda x, y: x @ y.T):
    left = a.float() * spread(a_scale, 1)
    right = b.float() * spread(spread(b_scale, 0), 1)[: len(b)]
    return product(left, right).bfloat16()


def dequantised(packed, scale, low_first=True, values=E2M1, block=16):
    pairs = packed.view(torch.uint8)
    halves = (pairs & 15, pairs >> 4) if low_first else (pairs >> 4, pairs & 15)
    codes = torch.stack(halves, dim=2).flatten(1, 2).long()
    magnitude = torch.tensor(values, device=packed.device)[codes & 7]
    return torch.where(codes >= 8, -magnitude, magnitude) * spread(scale.float(), 1, block)


def gemv(a, b, sfa, sfb, **how):
    product = dequantised(a, sfa, **how) * dequantised(b, sfb, **how)
    return product.sum(dim=1, keepdim=True).half()


@implements("fp8_block_scale_gemm_n576_k512")
@caught("misread input")
def scale_of_the_next_block(a, b, a_scale, b_scale):
    return gemm(a, b, a_scale.roll(1, 1), b_scale)


@implements("fp8_block_scale_gemm_n576_k512")
@caught("misread input")
def without_a_scale(a, b, a_scale, b_scale):
    return gemm(a, b, torch.ones_like(a_scale), b_scale)


@implements("fp8_block_scale_gemm_n576_k512")
@caught("misread input", "last tile")
def last_block_of_b_unscaled(a, b, a_scale, b_scale):
    return gemm(a, b, a_scale, put(b_scale, -1, 1.0))


@implements("fp8_block_scale_gemm_n576_k512")
@caught("misread input", "last tile")
def last_block_of_b_has_the_scale_before(a, b, a_scale, b_scale):
    return gemm(a, b, a_scale, put(b_scale, -1, b_scale[-2]))


@implements("fp8_block_scale_gemm_n576_k512")
@caught("lower precision")
def fp8_summed_in_bfloat16(a, b, a_scale, b_scale):
    def product(left, right):
        total = torch.zeros((len(left), len(right)), dtype=torch.bfloat16, device=left.device)
        for x, y in zip(left.split(32, 1), right.split(32, 1), strict=True):
            total += (x @ y.T).bfloat16()
        return total

    return gemm(a, b, a_scale, b_scale, product)


@implements("fp8_block_scale_gemm_n576_k512")
@caught()
def scales_as_powers_of_two(a, b, a_scale, b_scale):
    """As UE8M0 would have them, in place of the float32 that they are."""
    return gemm(a, b, a_scale.log2().round().exp2(), b_scale)


@implements("fp8_block_scale_gemm_n576_k512")
@caught("one factor")
def fp8_half_a_percent(a, b, a_scale, b_scale):
    return gemm(a, b, a_scale * 1.005, b_scale)


@implements("nvfp4_gemv")
@caught("misread input")
def one_side_has_nibbles_swapped(a, b, sfa, sfb):
    product = dequantised(a, sfa) * dequantised(b, sfb, low_first=False)
    return product.sum(dim=1, keepdim=True).half()


@implements("nvfp4_gemv")
@caught()
def largest_code_is_five(a, b, sfa, sfb):
    return gemv(a, b, sfa, sfb, values=(*E2M1[:-1], 5.0))


@implements("nvfp4_gemv")
@caught()
def scale_block_of_32(a, b, sfa, sfb):
    wide = [s.float()[:, ::2] for s in (sfa, sfb)]
    product = dequantised(a, wide[0], block=32) * dequantised(b, wide[1], block=32)
    return product.sum(dim=1, keepdim=True).half()


@implements("nvfp4_gemv")
@caught("misread input")
def signs_lost(a, b, sfa, sfb):
    product = dequantised(a, sfa).abs() * dequantised(b, sfb)
    return product.sum(dim=1, keepdim=True).half()


@implements("nvfp4_gemv")
@caught("lower precision")
def summed_in_half(a, b, sfa, sfb):
    product = dequantised(a, sfa) * dequantised(b, sfb)
    return fp16_sum(product.transpose(1, 2), chunk=1)[:, None].half()


@implements("nvfp4_gemv")
@caught("zeros", "last tile")
def last_matrix_zero(a, b, sfa, sfb):
    return put(gemv(a, b, sfa, sfb), (slice(None), slice(None), -1), 0.0)


@implements("nvfp4_gemv")
@caught()
def first_vector_for_all(a, b, sfa, sfb):
    return gemv(a, b[:, :, :1].expand_as(b), sfa, sfb[:, :, :1].expand_as(sfb))


@implements("fp8_block_scale_gemm_n576_k512")
@caught("misread input")
def last_block_of_k_dropped(a, b, a_scale, b_scale):
    return gemm(a[:, :-128], b[:, :-128], a_scale[:, :-1], b_scale[:, :-1])


@implements("fp8_block_scale_gemm_n576_k512")
@caught()
def scales_in_bfloat16(a, b, a_scale, b_scale):
    return gemm(a, b, a_scale.bfloat16(), b_scale.bfloat16())
