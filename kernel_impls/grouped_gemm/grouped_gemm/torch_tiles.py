"""Grouped product as one batched product of tiles, each of rows of one group."""

import torch

from pytest_fib import implements


@implements(
    "grouped_gemm_*", description="Rows are padded to tiles, each of which meets its weight."
)
def run(A, B, m_indptr):
    # With tiles of the mean length of a group, at most half of all rows are padding, and there are
    # at most twice as many tiles as groups, however the rows are distributed.
    size = -(-A.shape[0] // B.shape[0])
    starts, lengths = m_indptr[:-1].long(), m_indptr.diff().long()
    tiles = (lengths + size - 1) // size
    group = torch.arange(len(lengths), device=A.device).repeat_interleave(tiles)
    number = torch.arange(len(group), device=A.device) - (tiles.cumsum(0) - tiles)[group]
    at = number[:, None] * size + torch.arange(size, device=A.device)  # of a row in its group
    row = starts[group, None] + at
    product = torch.bmm(A[row.clamp_max(A.shape[0] - 1)].float(), B[group].float().transpose(1, 2))
    C = A.new_empty((A.shape[0] + 1, B.shape[1]))
    C[torch.where(at < lengths[group, None], row, A.shape[0])] = product.to(A.dtype)
    return C[:-1]  # the last was for the padding
