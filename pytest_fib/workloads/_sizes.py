"""Sizes: tiles that kernels work in, and how much memory a workload takes."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Definition

#: Tile sizes that kernels commonly work in. The only table: others take a slice of it.
TILE_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
#: Workloads whose seeds differ by a multiple of this have special values in the same places.
TURNS = 24
#: Bytes of most drawn workloads, whatever the budget: more shows little more, and takes its time.
USUAL_BYTES = 256 << 20
#: Bytes of one workload unless ``--fib-max-bytes`` says otherwise. The interpreter of Triton runs
#: about a million times slower than a GPU, so what it runs is kept small.
DEFAULT_BUDGETS = {"cuda": 4 << 30, "cpu": USUAL_BYTES, "interpreter": 4 << 20}


def element_bits(definition: Definition) -> list[tuple[tuple[str, ...], int]]:
    """Bits that a workload takes for each element along some var axes, in any order.

    That is, of all inputs and outputs, and of a float64 copy of those that are floating.
    """
    const = definition.const_axes
    bits: Counter[tuple[str, ...]] = Counter()
    for spec in (*definition.inputs.values(), *definition.outputs.values()):
        if spec.shape is not None:
            var_axes = sorted(axis for axis in spec.shape if axis not in const)
            elements = prod(const.get(axis, 1) for axis in spec.shape)
            copy = 64 if spec.dtype.is_floating else 0
            bits[tuple(var_axes)] += elements * (spec.dtype.itemsize_bits + copy)
    return list(bits.items())


def power_of_two(n: int) -> int:
    """The least that is no less than ``n``."""
    return 1 << max(n - 1, 0).bit_length()
