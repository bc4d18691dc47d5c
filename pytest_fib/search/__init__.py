"""Which workloads to try: draws them with Hypothesis, and shrinks one that fails."""

from pytest_fib.search._deck import (
    BOUNDARY_SIZES as BOUNDARY_SIZES,
    DECK_TILES as DECK_TILES,
    FEW_SIZES as FEW_SIZES,
    USUAL_SIZE as USUAL_SIZE,
    Bounds as Bounds,
    Deck as Deck,
    UnforeseenSizes as UnforeseenSizes,
)
from pytest_fib.search._search import Search as Search, halved as halved, search as search
from pytest_fib.search._source_numbers import source_numbers as source_numbers
from pytest_fib.search._strategy import workloads as workloads
