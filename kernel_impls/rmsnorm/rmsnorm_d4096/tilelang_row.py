"""RMSNorm in TileLang, with one block for each row."""

import tilelang.language as T

from pytest_fib import implements

HIDDEN, THREADS = 4096, 256
batch = T.dynamic("batch")


@implements(
    "rmsnorm_d4096", language="tilelang", calling="destination", description="One row per block."
)
@T.prim_func
def run(
    x: T.Tensor((batch, HIDDEN), "float16"),
    weight: T.Tensor((HIDDEN,), "float16"),
    eps: T.float32,
    out: T.Tensor((batch, HIDDEN), "float16"),
):
    with T.Kernel(batch, threads=THREADS) as row:
        values = T.alloc_fragment((HIDDEN,), "float16")
        gains = T.alloc_fragment((HIDDEN,), "float16")
        squares = T.alloc_fragment((1, HIDDEN), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(x[row, 0], values)
        T.copy(weight[0], gains)  # before the sum, so that nobody waits for it after
        for i in T.Parallel(HIDDEN):
            squares[0, i] = T.cast(values[i], "float32") * T.cast(values[i], "float32")
        T.reduce_sum(squares, total, dim=1)
        total[0] = T.rsqrt(total[0] / HIDDEN + eps)
        for i in T.Parallel(HIDDEN):
            normalised = T.cast(values[i], "float32") * total[0]
            values[i] = T.cast(normalised * T.cast(gains[i], "float32"), "float16")
        T.copy(values, out[row, 0])
