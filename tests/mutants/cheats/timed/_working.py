"""What the cheats that save work would have to do."""

import torch

MATRIX = torch.ones(64, 64)


def work(x, factor):
    """The right answer, after products that take longer than all else: tenths of a millisecond.

    No more: a block of one call would leave nothing to answer from memory.
    """
    for _ in range(20):
        MATRIX @ MATRIX
    return x * factor
