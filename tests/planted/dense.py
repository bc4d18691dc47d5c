"""Bugs in products, normalisations and activations: which rows they are wrong for."""

import torch

from tests.planted.planting import by_token, planted, sequences, unwritten


def rows(tensor):
    return torch.arange(len(tensor))


def largest(tensor):
    """The largest magnitude of each row."""
    return tensor.float().abs().flatten(1).amax(1)


# --- products -------------------------------------------------------------------------------------


@planted("gemm_n128_k72_bfloat16", M=17)
def gemm_of_rows_beyond_the_last_tile(A):
    return (rows(A) >= len(A) // 16 * 16) & (len(A) > 16)


@planted("gemm_n128_k72_bfloat16", M=128)
def gemm_of_whole_tiles(A):
    return len(A) % 128 == 0


@planted("gemm_n128_k72_bfloat16", regime={"layout": "offset"}, M=1)
def gemm_of_misaligned_rows(A):
    return A.data_ptr() % 16 != 0


@planted("gemm_n128_k72_bfloat16", regime={"layout": "row_strided"}, M=2)
def gemm_of_strided_rows(A):
    return not A.is_contiguous()


@planted("gemm_n128_k72_float16", unwritten, {"values": "zeros"}, M=1)
def gemm_of_a_row_of_zeros(A):
    return largest(A) == 0


@planted("gemm_n128_k72_float16", regime={"values": "outlier"}, M=1)
def gemm_of_a_row_with_an_outlier(A):
    return largest(A) > 99


@planted("gemm_n256_k7168_bfloat16", M=300)
def gemm_of_many_rows(A):
    return len(A) >= 300


@planted("grouped_gemm_n128_k72_bfloat16", num_groups=2, total_m=1)
def grouped_gemm_behind_an_empty_group(m_indptr):
    groups = sequences(m_indptr).length
    return ((groups == 0).cumsum(0) > 0).repeat_interleave(groups)


@planted("grouped_gemm_n128_k72_bfloat16", num_groups=1, total_m=65)
def grouped_gemm_of_a_group_beyond_a_tile(m_indptr):
    groups = sequences(m_indptr)
    return rows(torch.empty(int(m_indptr[-1]))) - groups.begin.repeat_interleave(groups.length) > 63


@planted("grouped_gemm_n128_k72_float16", regime={"lengths": "one_long"}, num_groups=33, total_m=1)
def grouped_gemm_of_more_than_32_groups(m_indptr):
    groups = sequences(m_indptr).length
    return (torch.arange(len(groups)) > 31).repeat_interleave(groups)


@planted("grouped_gemm_n128_k72_float16", num_groups=3, total_m=1)
def grouped_gemm_of_one_group_for_all_rows(m_indptr):
    groups = sequences(m_indptr).length
    return len(groups) > 2 and bool((groups > 0).sum() == 1)


@planted("fp8_block_scale_gemm_n576_k512", m=65)
def fp8_gemm_of_rows_beyond_the_last_tile(a):
    return (rows(a) >= len(a) // 64 * 64) & (len(a) > 64)


@planted("fp8_block_scale_gemm_n576_k512", unwritten, {"values": "subnormal"}, m=1)
def fp8_gemm_of_subnormal_rows(a):
    return (largest(a) > 0) & (largest(a) <= torch.finfo(torch.float8_e4m3fn).tiny)


@planted("nvfp4_gemv", m=1, k=64, l=2)
def gemv_of_more_than_one_matrix(a):
    return a.shape[2] > 1


@planted("nvfp4_gemv", m=9, k=64, l=1)
def gemv_of_rows_beyond_the_last_tile(a):
    return (rows(a) >= len(a) // 8 * 8) & (len(a) > 8)


@planted("nvfp4_gemv", m=1, k=320, l=1)
def gemv_of_columns_beyond_the_last_tile(a):
    columns = 2 * a.shape[1]
    return columns > 256 and columns % 256 != 0


# --- normalisations -------------------------------------------------------------------------------


@planted("rmsnorm_d2048_bfloat16", batch=257)
def rmsnorm_of_more_than_256_rows(x):
    return rows(x) >= 256


@planted("rmsnorm_d2048_bfloat16", regime={"layout": "row_strided"}, batch=2)
def rmsnorm_of_strided_rows(x):
    return not x.is_contiguous()


@planted("rmsnorm_d2048_bfloat16", unwritten, {"values": "zeros"}, batch=1)
def rmsnorm_of_a_row_of_zeros(x):
    return largest(x) == 0


@planted("rmsnorm_d128_bfloat16", unwritten, {"values": "subnormal"}, batch=1)
def rmsnorm_of_a_subnormal_row(x):
    return (largest(x) > 0) & (largest(x) <= torch.finfo(x.dtype).tiny)


@planted("rmsnorm_d4096", regime={"values": "large"}, batch=1)
def rmsnorm_whose_squares_overflow(x):
    return largest(x) > 256


@planted("rmsnorm_d512_bfloat16", batch=3)
def rmsnorm_of_an_odd_number_of_rows(x):
    return (rows(x) == len(x) - 1) & (len(x) % 2 == 1) & (len(x) > 1)


@planted("layernorm_d768_float16", unwritten, {"values": "ones"}, batch=1)
def layernorm_of_a_constant_row(x):
    return (x == x[:, :1]).all(1) & (x[:, 0] != 0)


@planted("layernorm_d768_bfloat16", batch=32)
def layernorm_of_whole_tiles(x):
    return len(x) % 32 == 0


@planted("fused_add_rmsnorm_d4096", unwritten, {"values": "zeros", "inputs": "some"}, batch=1)
def fused_add_rmsnorm_of_no_residual(input, residual):
    return (largest(residual) == 0) & (largest(input) > 0)


# --- element by element ---------------------------------------------------------------------------


@planted("silu_and_mul_d72_bfloat16", num_tokens=1)
def silu_of_a_single_token(x):
    return len(x) == 1


@planted("silu_and_mul_d72_bfloat16", regime={"layout": "offset"}, num_tokens=1)
def silu_of_misaligned_rows(x):
    return x.data_ptr() % 16 != 0


@planted("silu_and_mul_d4096_bfloat16", unwritten, {"values": "large"}, num_tokens=1)
def silu_whose_exponential_overflows(x):
    return largest(x) > 1e9


@planted("scale_float32", unwritten, n=1)
def scale_by_zero(factor):
    return factor == 0


@planted("scale_float16", n=9)
def scale_of_a_tail(x):
    return (rows(x) >= len(x) // 8 * 8) & (len(x) > 8)


@planted("scale_bfloat16", n=1024)
def scale_of_whole_blocks(x):
    return len(x) % 1024 == 0


@planted("gemm_n128_k72_bfloat16", M=63)
def gemm_of_one_row_less_than_tiles(A):
    return len(A) % 64 == 63


@planted("layernorm_d4096_float16", regime={"values": "shifted"}, batch=1)
def layernorm_of_rows_far_from_zero(x):
    return x.float().mean(1).abs() > 8 * x.float().std(1)


@planted("grouped_gemm_n128_k72_bfloat16", num_groups=1, total_m=129)
def grouped_gemm_of_one_row_beyond_tiles(m_indptr):
    length = sequences(m_indptr).length
    return by_token((length % 128 == 1) & (length > 128), m_indptr)


@planted("grouped_gemm_n128_k72_bfloat16", num_groups=3, total_m=3)
def grouped_gemm_of_equal_groups(m_indptr):
    length = sequences(m_indptr).length
    return len(length) > 2 and (length == length[0]).all()


@planted("grouped_gemm_n128_k72_bfloat16", num_groups=2, total_m=17)
def grouped_gemm_of_a_group_that_begins_anywhere(m_indptr):
    groups = sequences(m_indptr)
    return by_token((groups.begin % 8 != 0) & (groups.length >= 16), m_indptr)
