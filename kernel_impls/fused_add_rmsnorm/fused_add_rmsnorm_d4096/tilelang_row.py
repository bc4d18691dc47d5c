"""Residual addition and RMSNorm in one pass in TileLang, with one block for each row."""

import tilelang.language as T

from pytest_fib import implements

HIDDEN, THREADS = 4096, 256
batch = T.dynamic("batch")


@implements(
    "fused_add_rmsnorm_d4096",
    language="tilelang",
    calling="destination",
    description="One row per block; the sum is kept in float32 registers.",
)
@T.prim_func
def run(
    input: T.Tensor((batch, HIDDEN), "float16"),
    residual: T.Tensor((batch, HIDDEN), "float16"),
    weight: T.Tensor((HIDDEN,), "float16"),
    eps: T.float32,
    out: T.Tensor((batch, HIDDEN), "float16"),
    residual_out: T.Tensor((batch, HIDDEN), "float16"),
):
    with T.Kernel(batch, threads=THREADS) as row:
        left = T.alloc_fragment((HIDDEN,), "float16")
        right = T.alloc_fragment((HIDDEN,), "float16")
        gains = T.alloc_fragment((HIDDEN,), "float16")
        totals = T.alloc_fragment((HIDDEN,), "float32")
        squares = T.alloc_fragment((1, HIDDEN), "float32")
        scale = T.alloc_fragment((1,), "float32")
        T.copy(input[row, 0], left)
        T.copy(residual[row, 0], right)
        T.copy(weight[0], gains)  # before the sum, so that nobody waits for it after
        for i in T.Parallel(HIDDEN):
            totals[i] = T.cast(left[i], "float32") + T.cast(right[i], "float32")
            squares[0, i] = totals[i] * totals[i]
            left[i] = T.cast(totals[i], "float16")
        T.copy(left, residual_out[row, 0])
        T.reduce_sum(squares, scale, dim=1)
        scale[0] = T.rsqrt(scale[0] / HIDDEN + eps)
        for i in T.Parallel(HIDDEN):
            right[i] = T.cast(totals[i] * scale[0] * T.cast(gains[i], "float32"), "float16")
        T.copy(right, out[row, 0])
