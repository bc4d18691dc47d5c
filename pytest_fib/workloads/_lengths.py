"""How a total is split over sequences: the shapes of batch that break ragged kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

#: Tiles that attention kernels commonly work in; lengths at their multiples are boundaries.
TILES = (16, 32, 64, 128, 256)
#: Lengths at which such kernels change what they do.
BOUNDARIES = (0, 1, 2, *(tile + near for tile in TILES for near in (-1, 0, 1)))


def partition(
    total: int, least: torch.Tensor, regime: str, generator: torch.Generator
) -> torch.Tensor:
    """Lengths that sum to ``total``, each at least its ``least``, shaped by the ``regime``.

    ``least`` is int64 on the host. Raises ValueError where it sums to more than ``total``.
    """
    spare = total - int(least.sum())
    if spare < 0 or (len(least) == 0 and spare):
        raise ValueError(f"{total} can't be split over {len(least)} sequences of at least {least}")
    if len(least) == 0:
        return least
    return least + LENGTHS[regime](spare, least, generator)


def _random(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Cut at random places."""
    import torch

    cuts = torch.randint(0, spare + 1, (len(least) - 1,), generator=generator).sort().values
    return torch.cat((torch.tensor([0]), cuts, torch.tensor([spare]))).diff()


def _equal(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """As equal as may be."""
    import torch

    n = len(least)
    return torch.full((n,), spare // n) + (torch.arange(n) < spare % n)


def _one_long(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One sequence takes all there is to spare: often the first or the last."""
    import torch

    lengths = torch.zeros_like(least)
    ends = (0, len(least) - 1, int(torch.randint(0, len(least), (), generator=generator)))
    lengths[ends[int(torch.randint(0, len(ends), (), generator=generator))]] = spare
    return lengths


def _empties(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """About half of the sequences get nothing, the first and the last among them."""
    import torch

    served = torch.rand(len(least), generator=generator) < 0.5
    served[0] = served[-1] = False
    if not served.any():
        served[len(least) // 2] = True
    lengths = torch.zeros_like(least)
    lengths[served] = _random(spare, least[served], generator)
    return lengths


def _ones(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One for each as far as it goes, and the rest for the last."""
    import torch

    lengths = (torch.arange(len(least)) < spare).long()
    lengths[-1] += spare - int(lengths.sum())
    return lengths


def _tiles(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Whole tiles of some size for each, and the rest for the last."""
    import torch

    tile = TILES[int(torch.randint(0, len(TILES), (), generator=generator))]
    lengths = _random(spare, least, generator) // tile * tile
    lengths[-1] += spare - int(lengths.sum())
    return lengths


def _boundaries(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """At and beside multiples of tiles, each sequence's own, and the rest for a random one."""
    import torch

    fitting = torch.tensor([n for n in BOUNDARIES if n <= spare])
    drawn = fitting[torch.randint(0, len(fitting), (len(least),), generator=generator)]
    # What is there already counts: the whole length is to lie at a boundary.
    drawn = torch.where(drawn >= least, drawn - least, drawn)
    lengths = torch.where(drawn.cumsum(0) <= spare, drawn, 0)
    rest = int(torch.randint(0, len(least), (), generator=generator))
    lengths[rest] += spare - int(lengths.sum())
    return lengths


#: The regimes by name, plainest first.
LENGTHS: dict[str, Callable[[int, torch.Tensor, torch.Generator], torch.Tensor]] = {
    "random": _random,
    "equal": _equal,
    "one_long": _one_long,
    "empties": _empties,
    "ones": _ones,
    "tiles": _tiles,
    "boundaries": _boundaries,
}
