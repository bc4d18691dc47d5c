"""Failures that are kept between runs, in pytest's cache: they are tried first next time."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

    from pytest_fib.data import Workload


def load(item: pytest.Item) -> list[Workload]:
    """The workload on which the item failed last, if it did."""
    from pydantic import ValidationError

    from pytest_fib.data import Workload

    cache = getattr(item.config, "cache", None)  # absent with -p no:cacheprovider
    kept = None if cache is None else cache.get(_key(item), None)
    if kept is None:
        return []
    try:
        return [Workload.model_validate(kept)]
    except ValidationError:  # written by another version
        return []


def save(item: pytest.Item, workload: Workload | None) -> None:
    """Keep the workload on which the item failed; None where it passed."""
    cache = getattr(item.config, "cache", None)  # absent with -p no:cacheprovider
    if cache is None:
        return
    if workload is not None:
        cache.set(_key(item), workload.to_flashinfer())
    elif cache.get(_key(item), None) is not None:
        cache.set(_key(item), None)


def _key(item: pytest.Item) -> str:
    # A file of its own for each item: workers of one run write at the same time.
    return f"fib/failures/{hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]}"
