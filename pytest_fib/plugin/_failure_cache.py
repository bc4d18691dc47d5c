"""The workloads of failures, in pytest's cache: the next run tries them first."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def load(item: pytest.Item) -> str | None:
    """The workload on which the item failed last, as ``--fib-workload`` takes it; else None."""
    cache = getattr(item.config, "cache", None)  # absent with -p no:cacheprovider
    workload = None if cache is None else cache.get(_key(item), None)
    return workload if isinstance(workload, str) else None


def save(item: pytest.Item, workload: str | None) -> None:
    """Store the workload on which the item failed; None where it passed."""
    cache = getattr(item.config, "cache", None)  # absent with -p no:cacheprovider
    if cache is not None and cache.get(_key(item), None) != workload:
        cache.set(_key(item), workload)


def _key(item: pytest.Item) -> str:
    # A file of its own for each item: workers of one run write at the same time.
    return f"fib/failures/{hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]}"
