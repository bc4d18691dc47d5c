"""Which workloads to try: draws them with Hypothesis, and shrinks one that fails."""

from pytest_fib.search._search import Search, search
from pytest_fib.search._strategy import workloads

__all__ = [
    "Search",
    "search",
    "workloads",
]
