"""RMSNorm in CuTe DSL, with one block for each row."""

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
def rmsnorm(x: cute.Tensor, weight: cute.Tensor, eps: cutlass.Float32, out: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    of_warps = cutlass.memory.SmemAllocator().allocate_tensor(
        cutlass.Float32, cute.make_layout(WARPS)
    )
    # 16 bytes of each row and of the weight for each thread, read before anyone waits.
    mine = cute.local_tile(x, (1, PER_LOAD), (row, thread))
    values, gains = cute.make_fragment_like(mine), cute.make_fragment_like(mine)
    cute.autovec_copy(mine, values)
    row_of_weight = cute.make_tensor(weight.iterator, cute.make_layout((1, HIDDEN)))
    cute.autovec_copy(cute.local_tile(row_of_weight, (1, PER_LOAD), (0, thread)), gains)

    wide = values.load().to(cutlass.Float32)
    squares = (wide * wide).reduce(cute.ReductionOp.ADD, 0.0, 0)
    scale = cute.math.rsqrt(sum_over_block(squares, of_warps, thread) / HIDDEN + eps)
    values.store((wide * scale * gains.load().to(cutlass.Float32)).to(x.element_type))
    cute.autovec_copy(values, cute.local_tile(out, (1, PER_LOAD), (row, thread)))


@implements(
    "rmsnorm_d4096",
    language="cutedsl",
    calling="destination",
    description="One row per block, 16 bytes per thread; warps reduce, then the block.",
)
@cute.jit
def run(x: cute.Tensor, weight: cute.Tensor, eps: cutlass.Float32, out: cute.Tensor, stream):
    rmsnorm(x, weight, eps, out).launch(
        grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1), stream=stream
    )
