"""NVFP4 matrix-vector product in whole numbers, in CuTe DSL: sums of 16 products are exact."""

import cutlass
from cutlass import Float32, Int32, Uint16, cute

from pytest_fib import implements

WARPS, ROWS = 8, 4
UNIT = 16  # bytes: 32 numbers in two blocks, of a scale each
SIGNS = -0x77777778  # the highest bit of each of 8 codes
#: Twice the sizes that an e2m1 code without sign stands for, as bytes.
SMALL, LARGE = 0x03020100, 0x0C080604


@cute.jit
def positive(codes: Int32):
    """4 bytes for the lower 4 codes: prmt gives 0 for those with a sign."""
    return Int32(cute.arch.prmt(Int32(SMALL), Int32(LARGE), codes))


@cute.jit
def dot(left: Int32, right: Int32, total: Int32):
    return cute.arch.inline_ptx(
        "dp4a.s32.s32 {$w0}, {$r0}, {$r1}, {$r2};",
        write_only_types=[Int32],
        read_only_args=[left, right, total],
    )


@cute.jit
def scales_of(pair: Uint16):
    """Two float32 of two e4m3."""
    return cute.arch.inline_ptx(
        "{ .reg .b32 halves; .reg .b16 low, high; cvt.rn.f16x2.e4m3x2 halves, {$r0};"
        " mov.b32 {low, high}, halves; cvt.f32.f16 {$w0}, low; cvt.f32.f16 {$w1}, high; }",
        write_only_types=[Float32, Float32],
        read_only_args=[pair],
    )


@cute.jit
def block_sum(left: cute.Tensor, plus: cute.Tensor, minus: cute.Tensor, start: cutlass.Constexpr):
    """4 times the sum of 16 products: codes in two words, and the vector's in four of bytes.

    A product is positive where both signs are alike, so the signs of the left choose between the
    vector's positive numbers less its negative ones, and the opposite.
    """
    total = Int32(0)
    for word in cutlass.range_constexpr(2):
        codes = left[start // 2 + word]
        flipped = codes ^ Int32(SIGNS)
        for half in cutlass.range_constexpr(2):
            at = start + 2 * word + half
            total = dot(positive(codes >> (16 * half)), plus[at], total)
            total = dot(positive(flipped >> (16 * half)), minus[at], total)
    return total


@cute.kernel
def gemv(
    a: cute.Tensor,
    b: cute.Tensor,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    c: cute.Tensor,
):
    """``a`` [words, rows, matrices], ``sfa`` [pairs of scales, rows, matrices]; b has one row."""
    thread, _, _ = cute.arch.thread_idx()
    block, matrix, _ = cute.arch.block_idx()
    lane, rows = thread % 32, a.shape[1]
    first = (block * WARPS + thread // 32) * ROWS
    sums = cute.make_rmem_tensor(ROWS, Float32)
    sums.fill(0.0)
    codes = cute.make_rmem_tensor((4, ROWS), Int32)
    vector = cute.make_rmem_tensor(4, Int32)
    plus, minus = cute.make_rmem_tensor(8, Int32), cute.make_rmem_tensor(8, Int32)
    for unit in cutlass.range(lane, sfa.shape[0], 32):
        for r in cutlass.range_constexpr(ROWS):
            row = cutlass.min(first + r, rows - 1)  # rows past the last are read, not written
            words = cute.local_tile(a[None, row, matrix], (4,), (unit,))
            cute.autovec_copy(words, codes[None, r])
        cute.autovec_copy(cute.local_tile(b[None, 0, matrix], (4,), (unit,)), vector)
        low, high = scales_of(sfb[unit, 0, matrix])
        for at in cutlass.range_constexpr(8):
            own = vector[at // 2] >> (16 * (at % 2))
            # Bytes of one are 0 where the other's are not, so nothing is carried.
            up, down = positive(own), positive(own ^ Int32(SIGNS))
            plus[at] = signed_difference(up, down)
            minus[at] = signed_difference(down, up)
        for r in cutlass.range_constexpr(ROWS):
            row = cutlass.min(first + r, rows - 1)
            own_low, own_high = scales_of(sfa[unit, row, matrix])
            even = block_sum(codes[None, r], plus, minus, 0).to(Float32)
            odd = block_sum(codes[None, r], plus, minus, 4).to(Float32)
            sums[r] = sums[r] + even * (own_low * low) + odd * (own_high * high)
    for r in cutlass.range_constexpr(ROWS):
        total = cute.arch.warp_reduction_sum(sums[r]) * 0.25
        if lane == 0 and first + r < rows:
            c[first + r, 0, matrix] = total.to(cutlass.Float16)


@cute.jit
def signed_difference(left: Int32, right: Int32):
    """Bytes of one less those of the other, of which one is 0."""
    ones = Int32(0x01010101)
    # Minus a byte of at most 12 is its complement and 1; a carry would need 255.
    nonzero = ((right + Int32(0x7F7F7F7F)) >> 7) & ones
    return left | ((right ^ (nonzero * Int32(255))) + nonzero)


@implements(
    "nvfp4_gemv",
    language="cutedsl",
    target_hardware=["sm_90", "sm_100"],
    calling="destination",
    description="A warp for 4 rows; e2m1 is looked up in registers, 4 products an instruction.",
)
@cute.jit
def run(
    a: cute.Tensor,
    b: cute.Tensor,
    sfa: cute.Tensor,
    sfb: cute.Tensor,
    c: cute.Tensor,
    stream,
):
    rows, pairs, matrices = a.shape
    gemv(
        words_of(a, Int32, pairs // 4, rows, matrices),
        words_of(b, Int32, pairs // 4, 1, matrices),
        words_of(sfa, Uint16, pairs // UNIT, rows, matrices),
        words_of(sfb, Uint16, pairs // UNIT, 1, matrices),
        c,
    ).launch(
        grid=(cute.ceil_div(rows, WARPS * ROWS), matrices, 1),
        block=(32 * WARPS, 1, 1),
        stream=stream,
    )


@cute.jit
def words_of(
    tensor: cute.Tensor,
    dtype: cutlass.Constexpr,
    words: Int32,
    rows: Int32,
    matrices: Int32,
):
    """The same memory, by words: [words, rows, matrices], the first the fastest."""
    pointer = cute.recast_ptr(tensor.iterator, dtype=dtype)
    # k is made of whole 64 numbers: 8 words of codes, or 2 of scales.
    words = cute.assume(words, divby=8 if dtype is Int32 else 2)
    stride = (1, words, words * rows)
    return cute.make_tensor(pointer, cute.make_layout((words, rows, matrices), stride=stride))
