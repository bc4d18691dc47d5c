"""Residual addition and RMSNorm in one pass in CuTe DSL, with one block for each row."""

import cutlass
from cutlass import cute

from pytest_fib import implements

HIDDEN, PER_LOAD, THREADS = 4096, 8, 512
WARPS = THREADS // 32


@cute.jit
def sum_over_block(value: cutlass.Float32, of_warps: cute.Tensor, thread: cutlass.Int32):
    total = cute.arch.warp_reduction_sum(value)
    if thread % 32 == 0:
        of_warps[thread // 32] = total
    cute.arch.sync_threads()
    return of_warps.load().reduce(cute.ReductionOp.ADD, 0.0, 0)


@cute.kernel
def fused_add_rmsnorm(
    input: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    eps: cutlass.Float32,
    out: cute.Tensor,
    residual_out: cute.Tensor,
):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    of_warps = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout(WARPS)
    )
    # 16 bytes of each row and of the weight for each thread, read before anyone waits.
    tile, place = (1, PER_LOAD), (row, thread)
    mine = cute.local_tile(input, tile, place)
    left = cute.make_fragment_like(mine)
    right, gains = cute.make_fragment_like(mine), cute.make_fragment_like(mine)
    cute.autovec_copy(mine, left)
    cute.autovec_copy(cute.local_tile(residual, tile, place), right)
    row_of_weight = cute.make_tensor(weight.iterator, cute.make_layout((1, HIDDEN)))
    cute.autovec_copy(cute.local_tile(row_of_weight, tile, (0, thread)), gains)

    total = left.load().to(cutlass.Float32) + right.load().to(cutlass.Float32)
    left.store(total.to(input.element_type))
    cute.autovec_copy(left, cute.local_tile(residual_out, tile, place))
    squares = (total * total).reduce(cute.ReductionOp.ADD, 0.0, 0)
    scale = cute.math.rsqrt(sum_over_block(squares, of_warps, thread) / HIDDEN + eps)
    right.store((total * scale * gains.load().to(cutlass.Float32)).to(input.element_type))
    cute.autovec_copy(right, cute.local_tile(out, tile, place))


@implements(
    "fused_add_rmsnorm_d4096",
    language="cutedsl",
    calling="destination",
    description="One row per block, 16 bytes per thread; the sum is kept in float32 registers.",
)
@cute.jit
def run(
    input: cute.Tensor,
    residual: cute.Tensor,
    weight: cute.Tensor,
    eps: cutlass.Float32,
    out: cute.Tensor,
    residual_out: cute.Tensor,
    stream,
):
    fused_add_rmsnorm(input, residual, weight, eps, out, residual_out).launch(
        grid=(input.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream
    )
