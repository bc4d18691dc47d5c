"""Grouped product as a batched product of tiles, each of rows of one group."""

import torch

from pytest_fib import implements

ROWS = 32
#: Weights that are gathered at a time, in elements.
GATHERED = 1 << 26


@implements(
    "grouped_gemm_*", description="Rows are gathered into tiles, which meet their group's weight."
)
def run(A, B, m_indptr):
    starts, lengths = m_indptr[:-1].long(), m_indptr.diff().long()
    tiles = (lengths + ROWS - 1) // ROWS
    groups = torch.arange(len(lengths), device=A.device).repeat_interleave(tiles)
    # Of its group, each tile is the how manieth?
    within = torch.arange(len(groups), device=A.device) - (tiles.cumsum(0) - tiles)[groups]
    rows = (starts[groups] + within * ROWS)[:, None] + torch.arange(ROWS, device=A.device)
    valid = rows < (starts + lengths)[groups][:, None]
    rows = rows.clamp_max(A.shape[0] - 1)
    C = torch.empty((A.shape[0], B.shape[1]), dtype=A.dtype, device=A.device)
    count = max(1, GATHERED // B[0].numel())
    for group, at, real in zip(
        groups.split(count), rows.split(count), valid.split(count), strict=True
    ):
        product = torch.bmm(A[at].float(), B[group].float().transpose(1, 2))
        C[at[real]] = product[real].to(A.dtype)
    return C
