"""The workloads of failures. The next run tries them first; recorded ones are always tried."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pytest_fib.discovery import FibWarning

if TYPE_CHECKING:
    import pytest

    from pytest_fib.data import LoadedDefinition, Workload
    from pytest_fib.plugin._options import Settings


def load(item: pytest.Item) -> str | None:
    """The workload on which the item failed last, as ``--fib-workload`` takes it; else None."""
    cache = getattr(item.config, "cache", None)  # absent with -p no:cacheprovider
    workload = None if cache is None else cache.get(_key(item), None)
    return workload if isinstance(workload, str) else None


def save(item: pytest.Item, workload: str | None) -> None:
    """Store the workload on which the item failed; None if it passed."""
    cache = getattr(item.config, "cache", None)  # absent with -p no:cacheprovider
    if cache is not None and cache.get(_key(item), None) != workload:
        cache.set(_key(item), workload)


def record(
    item: pytest.Item, workload: Workload, loaded: LoadedDefinition, settings: Settings
) -> None:
    """Write the workload beside its definition; from then on it is an item of its own."""
    from pytest_fib.workloads import record_workload

    try:
        record_workload(workload, loaded, settings.datasets)
    except OSError as error:
        item.warn(FibWarning(f"the failing workload could not be recorded: {error}"))


def _key(item: pytest.Item) -> str:
    # A file of its own for each item: workers of one run write at the same time.
    return f"fib/failures/{hashlib.sha256(item.nodeid.encode()).hexdigest()[:16]}"
