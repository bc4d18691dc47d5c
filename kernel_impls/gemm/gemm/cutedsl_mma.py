"""Matrix product on tensor cores, in CuTe DSL: a block for each tile, which reads steps ahead."""

from dataclasses import dataclass

import cutlass
from cutlass import Boolean, Float32, Int32, cute
from cutlass.cute.nvgpu import CopyUniversalOp, cpasync, warp

from pytest_fib import implements

PER_LOAD = 8  # half-precision numbers in 16 bytes
GROUP = 8  # tiles in a column that run at the same time, for the cache's sake
MMA = (16, 8, 16)


@dataclass(frozen=True)
class Tile:
    """What a block computes, of how much of K at once, by how many warps along M and N."""

    m: int
    n: int
    k: int
    stages: int
    warps: tuple[int, int]

    @property
    def threads(self):
        return 32 * self.warps[0] * self.warps[1]


LARGE = Tile(128, 128, 32, 3, (2, 4))
NARROW, NARROW_ROWS = Tile(16, 64, 64, 4, (1, 4)), 64


@implements(
    "gemm_n*_k*",
    language="cutedsl",
    calling="destination",
    description="Warps multiply 16 x 8 x 16 from shared memory, which is filled some steps ahead.",
)
@cute.jit
def run(A: cute.Tensor, B: cute.Tensor, C: cute.Tensor, stream):
    assert A.shape[1] % PER_LOAD == C.shape[1] % PER_LOAD == 0, "rows should fill whole loads"
    if starts_at_whole_loads(A) and starts_at_whole_loads(B):
        launch(whole(A), whole(B), C, True, stream)
    else:
        launch(A, B, C, False, stream)


@cute.jit
def launch(A: cute.Tensor, B: cute.Tensor, C: cute.Tensor, wide: cutlass.Constexpr, stream):
    if C.shape[0] <= NARROW_ROWS:
        launch_tiles(A, B, C, wide, NARROW, stream)
    else:
        launch_tiles(A, B, C, wide, LARGE, stream)


def launch_tiles(A, B, C, wide, tile, stream):
    rows, columns = cute.ceil_div(C.shape[0], tile.m), cute.ceil_div(C.shape[1], tile.n)
    gemm(A, B, C, wide, tile).launch(
        grid=(rows * columns, 1, 1), block=(tile.threads, 1, 1), stream=stream
    )


def starts_at_whole_loads(matrix):
    """Whether each row begins at a multiple of 16 bytes."""
    return (matrix.iterator.toint() % 16 == 0) & (matrix.stride[0] % PER_LOAD == 0)


def whole(matrix):
    """The same, known to be readable 16 bytes at a time."""
    stride = (cute.assume(matrix.stride[0], divby=PER_LOAD), 1)
    layout = cute.make_layout(matrix.shape, stride=stride)
    return cute.make_tensor(matrix.iterator.align(16), layout)


@cute.kernel
def gemm(
    A: cute.Tensor,
    B: cute.Tensor,
    C: cute.Tensor,
    wide: cutlass.Constexpr,
    tile: cutlass.Constexpr,
):
    thread, _, _ = cute.arch.thread_idx()
    m, n = place_of(C, tile)
    memory = cutlass.memory.SmemAllocator()
    left = memory.allocate_tensor(A.element_type, stages_of(tile.m, tile), 16)
    right = memory.allocate_tensor(B.element_type, stages_of(tile.n, tile), 16)
    both = (
        Loads(A, left, (tile.m, tile.k), m, wide, tile, thread),
        Loads(B, right, (tile.n, tile.k), n, wide, tile, thread),
    )
    # What is beyond K stays zero: the first step has what is left of K, all others are whole.
    for loads in both:
        loads.to.fill(0.0)
    cute.arch.sync_threads()
    steps, ahead = cute.ceil_div(A.shape[1], tile.k), tile.stages - 1
    for step in cutlass.range_constexpr(ahead):
        if cutlass.const_expr(step < steps):
            start(both, step, step, step == 0)
        cute.arch.cp_async_commit_group()

    mma = tiled_mma(A.element_type, tile)
    mine = mma.get_slice(thread)
    to = mine.partition_C(cute.local_tile(C, (tile.m, tile.n), (m, n)))
    total = mma.make_fragment_C(to)
    total.fill(0.0)
    a_copy, a_from, a_to, a = reads(cute.make_tiled_copy_A, mma, left, thread)
    b_copy, b_from, b_to, b = reads(cute.make_tiled_copy_B, mma, right, thread)
    for step in cutlass.range(steps):
        cute.arch.cp_async_wait_group(ahead - 1)
        cute.arch.sync_threads()  # all have this step, and nobody reads the one before
        if step + ahead < steps:
            start(both, step + ahead, (step + ahead) % tile.stages, False)
        cute.arch.cp_async_commit_group()
        cute.copy(a_copy, a_from[None, None, None, step % tile.stages], a_to)
        cute.copy(b_copy, b_from[None, None, None, step % tile.stages], b_to)
        cute.gemm(mma, total, a, b, total)
    store(total, to, C, mine, m, n, tile)


@cute.jit
def store(
    total: cute.Tensor,
    to: cute.Tensor,
    C: cute.Tensor,
    mine: cute.ThrMma,
    m: Int32,
    n: Int32,
    tile: cutlass.Constexpr,
):
    """Write two neighbours at a time, where they are in C."""
    rounded = cute.make_fragment_like(total, C.element_type)
    rounded.store(total.load().to(C.element_type))
    places = cute.local_tile(cute.make_identity_tensor(C.shape), (tile.m, tile.n), (m, n))
    at = mine.partition_C(places)
    for column in cutlass.range_constexpr(cute.size(total, mode=[2])):
        for row in cutlass.range_constexpr(cute.size(total, mode=[1])):
            for half in cutlass.range_constexpr(2):
                if cute.elem_less(at[(0, half), row, column], C.shape):
                    pair = ((None, half), row, column)
                    cute.autovec_copy(rounded[pair], to[pair])


def place_of(C, tile):
    """Which tile this block computes: bands of a few rows of tiles, and in each by columns."""
    block, _, _ = cute.arch.block_idx()
    columns = cute.ceil_div(C.shape[1], tile.n)
    band = block // (GROUP * columns) * GROUP
    height = cutlass.min(cute.ceil_div(C.shape[0], tile.m) - band, GROUP)
    place = block % (GROUP * columns)
    return band + place % height, place // height


def stages_of(rows, tile):
    """Rows by K by stages of shared memory, so that threads that read or write meet in no bank."""
    swizzle = cute.make_swizzle(3 if tile.k >= 64 else 2, 3, 3)
    eight = cute.make_layout((8, tile.k), stride=(tile.k, 1))
    atom = cute.make_composed_layout(swizzle, 0, eight)
    return cute.tile_to_shape(atom, (rows, tile.k, tile.stages), (0, 1, 2))


def tiled_mma(dtype, tile):
    return cute.make_tiled_mma(
        warp.MmaF16BF16Op(dtype, Float32, MMA),
        cute.make_layout((*tile.warps, 1)),
        permutation_mnk=(tile.warps[0] * MMA[0], tile.warps[1] * 2 * MMA[1], MMA[2]),
    )


class Loads:
    """How a thread fills its part of shared memory: from where, to where, and what there is."""

    def __init__(self, matrix, shared, shape, place, wide, tile, thread):
        beside = tile.k // PER_LOAD
        self.copy = cute.make_tiled_copy_tv(
            cute.make_copy_atom(
                cpasync.CopyG2SOp() if wide else CopyUniversalOp(),
                matrix.element_type,
                num_bits_per_copy=128 if wide else 16,
            ),
            cute.make_layout((tile.threads // beside, beside), stride=(beside, 1)),
            cute.make_layout((1, PER_LOAD)),
        )
        mine = self.copy.get_slice(thread)
        before = -matrix.shape[1] % tile.k  # so much of the first step is before K begins
        source, at = (
            cute.domain_offset((0, -before, 0), cute.local_tile(each, shape, (place, None)))
            for each in (matrix, cute.make_identity_tensor(matrix.shape))
        )
        self.source, self.to = mine.partition_S(source), mine.partition_D(shared)
        at = mine.partition_S(at)
        self.in_rows, self.in_matrix = (
            cute.make_rmem_tensor(at.shape[0][1:] + at.shape[1:3], Boolean) for _ in range(2)
        )
        for i in range(cute.size(self.in_rows)):
            load = cute.idx2crd(i, self.in_rows.shape)
            row, column = at[((0, load[0]), *load[1:], 0)]
            self.in_rows[load] = cute.elem_less(row, matrix.shape[0])
            self.in_matrix[load] = self.in_rows[load] & cute.elem_less(-1, column)


def start(both, step, stage, is_first):
    for loads in both:
        cute.copy(
            loads.copy,
            loads.source[None, None, None, step],
            loads.to[None, None, None, stage],
            pred=loads.in_matrix if is_first else loads.in_rows,
        )


def reads(tiled_copy, mma, shared, thread):
    """A copy to what a thread multiplies: from the stages, to its registers, and these as such."""
    copy = tiled_copy(
        cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), shared.element_type), mma
    )
    mine, own = copy.get_slice(thread), mma.get_slice(thread)
    if tiled_copy is cute.make_tiled_copy_A:
        held = mma.make_fragment_A(own.partition_A(shared)[None, None, None, 0])
    else:
        held = mma.make_fragment_B(own.partition_B(shared)[None, None, None, 0])
    return copy, mine.partition_S(shared), mine.retile(held), held
