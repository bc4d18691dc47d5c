"""Sizes: tiles that kernels work in, and how much memory workloads may take."""

#: Tile sizes that kernels commonly work in. The only table: others take a slice of it.
TILE_SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
#: Integers that may be lengths are made up to this one.
MOST_OF_LENGTHS = 65536
#: Workloads whose seeds differ by a multiple of this have special values in the same places.
TURNS = 24
#: Bytes of most drawn workloads, whatever the budget: more shows little more, and takes its time.
USUAL_BYTES = 256 << 20
#: Bytes of one workload unless ``--fib-max-bytes`` says otherwise. The interpreter of Triton runs
#: about a million times slower than a GPU, so what it runs is kept small.
DEFAULT_BUDGETS = {"cuda": 4 << 30, "cpu": USUAL_BYTES, "interpreter": 4 << 20}


def power_of_two(n: int) -> int:
    """The least power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()
