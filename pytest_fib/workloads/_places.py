"""Which elements of a row are special: its first, its last, all of them, a few, ..."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch

#: In a row: nothing, one end of it, all, one element, those up to one (``start``) or from one on
#: (``end``), or a few that are one at least.
PLACES = ("none", "first", "last", "all", "one", "start", "end", "some")
#: The share of a row that ``some`` is, besides the one that is certain.
SOME = 0.05
#: Spreads whole numbers (Knuth, *The Art of Computer Programming*, volume 3, section 6.4).
MULTIPLIER = 0x9E3779B1


def row_count(tensor: torch.Tensor) -> int:
    """How many rows a tensor has; a scalar is a row of one element."""
    return tensor.shape[:-1].numel()


def in_turn(tensor: torch.Tensor, names: Sequence[str], turn: int) -> torch.Tensor:
    """For each row, a number of ``PLACES``: that of the name whose turn it is."""
    return numbered(names, tensor.device)[whose_turn(tensor, len(names), turn)]


def whose_turn(tensor: torch.Tensor, of: int, turn: int) -> torch.Tensor:
    """For each row, which of so many it is the turn of: of the first, the one that is given.

    Of each ``of`` rows, it is the turn of each. From the second on these begin with another one, as
    if at random: rows at equal distances would look like a kernel's.
    """
    rows = torch.arange(row_count(tensor), device=tensor.device)
    return (rows + turn + (rows // of * MULTIPLIER >> 16)) % of


@lru_cache(64)
def one_of_each(count: int, number: int, of: int, device: torch.device) -> torch.Tensor:
    """The numbers of those of ``count`` rows that are the ``number``-th of each ``of`` rows.

    Which one that is changes from the second ``of`` rows on, as if at random: rows at equal
    distances would look like a kernel's. No row has two numbers.
    """
    first = torch.arange(0, count, of)
    shift = (first // of * MULTIPLIER >> 16) % of
    rows = first + (number + shift) % of
    return rows[rows < count].to(device)


def numbered(names: Sequence[str], device: torch.device) -> torch.Tensor:
    return torch.tensor([PLACES.index(name) for name in names], device=device)


def places(tensor: torch.Tensor, rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """A bool tensor of the same shape, true where ``rows`` say: a number of ``PLACES`` for each."""
    n = tensor.shape[-1] if tensor.dim() else 1
    one = torch.empty(len(rows), dtype=torch.long, device=tensor.device)
    one.random_(0, max(n, 1), generator=generator)
    zero = torch.zeros_like(one)
    begin = torch.stack([zero, zero, zero + n - 1, zero, one, zero, one, one])
    end = torch.stack([zero, zero + 1, zero + n, zero + n, one + 1, one + 1, zero + n, one + 1])
    chosen = rows[None]
    at = torch.arange(n, device=tensor.device)
    is_special = (at >= begin.gather(0, chosen).T) & (at < end.gather(0, chosen).T)
    if (some := rows == PLACES.index("some")).any():
        random = torch.empty(is_special.shape, device=tensor.device).uniform_(generator=generator)
        is_special |= (random < SOME) & some[:, None]
    return is_special.view(tensor.shape)


def filled_lengths(shape: Sequence[int], host: torch.Generator) -> torch.Tensor:
    """How much of each row is filled, of shape (*rows, 1): half of these are full."""
    *rows, n = shape
    lengths = torch.randint(0, n + 1, (*rows, 1), generator=host)
    lengths[torch.rand((*rows, 1), generator=host) < 0.5] = n
    return lengths
