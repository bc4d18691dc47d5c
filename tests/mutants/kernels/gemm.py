"""Matrix products, wrong."""

from itertools import pairwise

import torch
from _wrong import caught, fp16_sum, narrow, put, tf32, toward_zero

from pytest_fib import implements


def gemm(a, b, read=torch.Tensor.float):
    return read(a) @ read(b).T


def grouped(a, b, m_indptr, one=gemm, which=lambda group, groups: group):
    out = torch.zeros((a.shape[0], b.shape[1]), device=a.device)
    for group, (start, end) in enumerate(pairwise(m_indptr.tolist())):
        out[start:end] = one(a[start:end], b[which(group, len(b))])
    return out.to(a.dtype)


@implements("gemm_n128_k72_float16")
@caught("lower precision")
def accumulated_in_half(A, B):
    return fp16_sum(A.float()[:, None] * B.float(), chunk=1).to(A.dtype)


@implements("gemm_n128_k72_float16")
@caught("lower precision")
def operands_in_bfloat16(A, B):
    return gemm(A, B, lambda x: x.bfloat16().float()).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("lower precision")
def operands_in_fp8(A, B):
    return gemm(A, B, lambda x: x.to(torch.float8_e4m3fn).float()).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("lower precision")
def split_k_in_bfloat16(A, B):
    parts = zip(A.split(8, 1), B.split(8, 1), strict=True)
    total = torch.zeros((len(A), len(B)), dtype=A.dtype, device=A.device)
    for a, b in parts:
        total += gemm(a, b).to(A.dtype)
    return total


@implements("gemm_n128_k72_float16")
@caught("lower precision")
def result_in_bfloat16(A, B):
    return narrow(gemm(A, B).to(A.dtype), torch.bfloat16)


@implements("gemm_n128_k72_float16")
@caught("rounded toward zero")
def truncated(A, B):
    return toward_zero(gemm(A, B), A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("zeros", "last tile")
def last_columns_zero(A, B):
    return put(gemm(A, B), (slice(None), slice(112, None)), 0.0).to(A.dtype)


@implements("gemm_n128_k72_bfloat16", calling="destination")
@caught("unwritten")
def last_rows_unwritten(A, B, C):
    rows = (len(A) - 1) // 16 * 16
    C[:rows] = gemm(A[:rows], B).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("misread input")
def last_of_k_dropped(A, B):
    return gemm(A[:, :-1], B[:, :-1]).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("misread input")
def k_tail_dropped(A, B):
    return gemm(A[:, :64], B[:, :64]).to(A.dtype)


@implements("gemm_n128_k72_float16")
@caught("one factor")
def wrong_scale(A, B):
    return (1.005 * gemm(A, B)).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("one offset")
def bias_added(A, B):
    return (gemm(A, B) + 0.1).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("zeros")
def one_tile_missing(A, B):
    return put(gemm(A, B), (slice(0, 16), slice(16, 32)), 0.0).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("shifted", "permuted")
def columns_moved_by_one(A, B):
    return gemm(A, B.roll(1, 0)).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("permuted", "shifted")
def tiles_exchanged(A, B):
    return gemm(A, B.roll(64, 0)).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("negated")
def negated(A, B):
    return -gemm(A, B).to(A.dtype)


@implements("gemm_n128_k72_float16")
@caught("infinity")
def saturates_early(A, B):
    product = gemm(A, B)
    return torch.where(product.abs() > 32, torch.inf * product, product).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("one element", "last tile")
def last_element_wrong(A, B):
    return put(gemm(A, B), (-1, -1), lambda x: 2 * x + 1).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("one factor")
def odd_columns_doubled(A, B):
    return put(gemm(A, B), (slice(None), slice(1, None, 2)), lambda x: 2 * x).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("transposed")
def written_transposed(A, B):
    return gemm(A, B).T.reshape(len(A), len(B)).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught(status="INCORRECT_SHAPE")
def transposed_shape(A, B):
    return gemm(A, B).T.reshape(len(B), len(A)).to(A.dtype)


@implements("gemm_n128_k72_float16")
@caught(status="INCORRECT_DTYPE")
def other_half(A, B):
    return gemm(A, B).bfloat16()


@implements("grouped_gemm_n128_k72_bfloat16")
@caught("misread input")
def first_group_for_all(A, B, m_indptr):
    return grouped(A, B, m_indptr, which=lambda group, groups: 0)


@implements("grouped_gemm_n128_k72_bfloat16")
@caught("misread input")
def next_groups_weight(A, B, m_indptr):
    return grouped(A, B, m_indptr, which=lambda group, groups: (group + 1) % groups)


@implements("grouped_gemm_n128_k72_bfloat16")
@caught("zeros")
def last_row_of_each_group_zero(A, B, m_indptr):
    ends = m_indptr[1:].long() - 1
    return put(grouped(A, B, m_indptr), ends[ends >= 0], 0.0)


@implements("grouped_gemm_n128_k72_float16")
@caught("zeros")
def last_group_skipped(A, B, m_indptr):
    return put(grouped(A, B, m_indptr), slice(int(m_indptr[-2]), None), 0.0)


@implements("grouped_gemm_n128_k72_float16")
@caught("lower precision")
def grouped_in_half(A, B, m_indptr):
    def one(a, b):
        return fp16_sum(a.float()[:, None] * b.float(), chunk=4)

    return grouped(A, B, m_indptr, one)


@implements("grouped_gemm_n128_k72_bfloat16", calling="destination")
@caught("unwritten")
def rows_beyond_the_tile_unwritten(A, B, m_indptr, C):
    right = grouped(A, B, m_indptr)
    for start, end in pairwise(m_indptr.tolist()):
        whole = slice(start, start + (end - start) // 4 * 4)
        C[whole] = right[whole]


@implements("scale_float32")
@caught("lower precision")
def scale_tf32(x, factor):
    return tf32(x) * factor


@implements("scale_float32")
@caught("lower precision")
def scale_in_half(x, factor):
    return (x.half() * factor).float()


@implements("scale_float32")
@caught("one factor")
def scale_off_by_little(x, factor):
    return x * (factor * (1 + 1e-5))


@implements("scale_float16")
@caught("misread input")
def scale_of_reciprocal(x, factor):
    return (x.float() / factor).half()


@implements("scale_bfloat16")
@caught("copied input")
def not_scaled(x, factor):
    return x.clone()


@implements("scale_bfloat16", calling="destination")
@caught("unwritten")
def tail_unwritten(x, factor, out):
    whole = len(x) // 64 * 64
    out[:whole] = x[:whole] * factor


@implements("scale_float32")
@caught("every k-th")
def every_sixteenth_wrong(x, factor):
    return put(x * factor, slice(15, None, 16), lambda y: y.abs() + 1)


@implements("gemm_n128_k72_bfloat16")
@caught("lost special value")
def nan_is_zero(A, B):
    product = gemm(A, B)
    return torch.where(product.isnan(), 0.0, product).to(A.dtype)


@implements("gemm_n128_k72_float16")
@caught("lost special value", "by value")
def infinity_is_the_largest_number(A, B):
    largest = torch.finfo(A.dtype).max
    return gemm(A, B).clamp(-largest, largest).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("layout")
def strides_not_read(A, B):
    return gemm(A.as_strided(A.shape, (A.shape[1], 1)), B).to(A.dtype)


@implements("gemm_n128_k72_bfloat16")
@caught("lower precision")
def operands_in_int8(A, B):
    step = A.float().abs().amax(1, keepdim=True).clamp_min(1e-30) / 127
    return ((A.float() / step).round() @ B.float().T * step).to(A.dtype)


@implements("gemm_n256_k7168_bfloat16")
@caught("misread input")
def last_of_7168_dropped(A, B):
    return gemm(A[:, :-1], B[:, :-1]).to(A.dtype)


@implements("grouped_gemm_n128_k72_bfloat16")
@caught("misread input")
def weights_of_groups_that_are_not_empty(A, B, m_indptr):
    bounds = list(pairwise(m_indptr.tolist()))
    full = [group for group, (start, end) in enumerate(bounds) if end > start]
    return grouped(A, B, m_indptr, which=lambda group, groups: sum(g < group for g in full))
