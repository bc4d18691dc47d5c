"""Matrix product by programs that stay, whose tiles the tensor memory accelerator reads ahead."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from pytest_fib import implements

#: Of the result: rows, columns, elements of K at once, warps, stages. By the largest M it is for.
NARROW = {16: (16, 32, 256, 4, 4), 64: (64, 64, 128, 4, 6)}
#: What is large, and what leaves enough tiles for more of the multiprocessors.
LARGE, MIDDLE = (128, 256, 64, 8, 3), (128, 128, 64, 8, 4)
#: Elements of K that are worth a program of its own, and parts that are worth adding them up.
LEAST_K, LEAST_SPLITS = 512, 3
#: Where nobody says how many multiprocessors there are: in the interpreter.
PROCESSORS = 12


@triton.jit
def _gemm(
    a, b, c, partial, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr, SPLITS: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    rows, columns = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLITS)
    for tile in tl.range(tl.program_id(0), rows * columns * SPLITS, PROGRAMS, flatten=True):
        split, place = tile % SPLITS, tile // SPLITS
        # Tiles that share rows or columns run at the same time, for the cache's sake.
        band = place // (GROUP * columns) * GROUP
        height = min(rows - band, GROUP)
        m = (band + place % (GROUP * columns) % height) * BLOCK_M
        n = place % (GROUP * columns) // height * BLOCK_N
        total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for step in range(steps):
            k = (split * steps + step) * BLOCK_K  # beyond K there are zeros
            total = tl.dot(a.load([m, k]), b.load([n, k]).T, total)
        if SPLITS == 1:
            c.store([m, n], total.to(c.dtype))
        else:
            at_m = (m + tl.arange(0, BLOCK_M))[:, None]
            at_n = (n + tl.arange(0, BLOCK_N))[None, :]
            at = (split * M + at_m).to(tl.int64) * N + at_n
            tl.store(partial + at, total, mask=(at_m < M) & (at_n < N))


@triton.jit
def _sum(partial, c, count, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(partial + split * count + at, mask=at < count, other=0.0)
    tl.store(c + at, total.to(c.dtype.element_ty), mask=at < count)


@implements(
    "gemm_*",
    language="triton",
    target_hardware=["sm_90", "sm_100", "cpu"],
    description="Persistent programs on tiles read by TMA; K is split where there are few tiles.",
)
def run(A, B):
    dtype = A.dtype
    if dtype == torch.bfloat16 and A.device.type == "cpu":
        # Triton's interpreter multiplies bfloat16 as the integers that hold it.
        A, B = A.float(), B.float()
    A, B = _readable(A), _readable(B)
    (M, K), N = A.shape, B.shape[0]
    processors = PROCESSORS
    if A.is_cuda:
        processors = torch.cuda.get_device_properties(A.device).multi_processor_count
    block_m, block_n, block_k, warps, stages = _tile(M, N, processors)
    tiles = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    splits = min(processors // tiles, K // LEAST_K)
    splits = splits if splits >= LEAST_SPLITS else 1
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    partial = C if splits == 1 else torch.empty(splits, M, N, dtype=torch.float32, device=A.device)
    programs = min(tiles * splits, processors)
    _gemm[(programs,)](
        TensorDescriptor.from_tensor(A, [block_m, block_k]),
        TensorDescriptor.from_tensor(B, [block_n, block_k]),
        TensorDescriptor.from_tensor(C, [block_m, block_n]),
        partial, M, N, K,
        BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, GROUP=8, SPLITS=splits,
        PROGRAMS=programs, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    if splits > 1:
        count = M * N
        _sum[(triton.cdiv(count, 1024),)](partial, C, count, SPLITS=splits, BLOCK=1024)
    return C.to(dtype)


def _tile(M, N, processors):
    narrow = next((tile for most, tile in NARROW.items() if most >= M), None)
    if narrow is not None:
        return narrow
    count = triton.cdiv(M, LARGE[0]) * triton.cdiv(N, LARGE[1])
    return MIDDLE if LARGE[1] > N or 2 * count <= processors else LARGE


def _readable(matrix):
    """The matrix, or a copy of one that TMA can't read: its rows begin at whole 16 bytes."""
    row_bytes = matrix.stride(0) * matrix.element_size()
    if matrix.data_ptr() % 16 == row_bytes % 16 == 0:
        return matrix
    # Not `contiguous`: where there is one row, it keeps whatever stride that has.
    return torch.empty(matrix.shape, dtype=matrix.dtype, device=matrix.device).copy_(matrix)
