"""Which workloads to try: draws them with Hypothesis, and shrinks one that fails."""

from pytest_fib.search._deck import (
    BOUNDARY_SIZES,
    DECK_TILES,
    FEW_SIZES,
    USUAL_SIZE,
    Bounds,
    Deck,
    UnforeseenSizes,
)
from pytest_fib.search._search import Search, search
from pytest_fib.search._strategy import workloads

__all__ = [
    "BOUNDARY_SIZES",
    "DECK_TILES",
    "FEW_SIZES",
    "USUAL_SIZE",
    "Bounds",
    "Deck",
    "Search",
    "UnforeseenSizes",
    "search",
    "workloads",
]
