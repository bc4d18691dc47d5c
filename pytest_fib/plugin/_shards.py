"""``--fib-shard``: this run's part of the tests."""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from pytest_fib.plugin._options import Settings

#: The file and the name of a definition; the name is empty for other tests.
Group: TypeAlias = tuple[str, str]


class Durations:
    """The seconds that the items of each definition took, from trace records."""

    def __init__(self, seconds: Mapping[Group, float]) -> None:
        self._seconds = seconds

    @classmethod
    def read(cls, settings: Settings) -> Durations:
        """Read ``--fib-shard-by``, a file or a folder; without it, empty. Raises UsageError."""
        if settings.shard_by is None:
            return cls({})
        path = settings.place(settings.shard_by)
        files = sorted(path.rglob("*.jsonl")) if path.is_dir() else [path]
        seconds: defaultdict[Group, float] = defaultdict(float)
        try:
            for file in files:
                _add(seconds, file)
        except (OSError, ValueError, KeyError, TypeError) as error:
            shown = settings.readable(f"--fib-shard-by={settings.shard_by}: can't be read: {error}")
            raise pytest.UsageError(shown) from None
        return cls(seconds)

    @property
    def digest(self) -> str:
        """Must be equal in all shards: else some tests are in none."""
        facts = json.dumps(sorted(self._seconds.items()))
        return hashlib.sha256(facts.encode()).hexdigest()[:8]

    def of(self, groups: Counter[Group]) -> dict[Group, float]:
        """The expected seconds of each group of so many items; the average if not known."""
        known = {group: self._seconds[group] for group in groups if group in self._seconds}
        items = sum(groups[group] for group in known)
        each = sum(known.values()) / items if items else 1.0
        return {group: known.get(group, each * count) for group, count in groups.items()}


def _add(seconds: defaultdict[Group, float], file: Path) -> None:
    with file.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            group = record.get("definition_file", ""), record["definition"]
            seconds[group] += record.get("item_seconds") or 0.0


def shard_of(
    items: Sequence[pytest.Item], shard: tuple[int, int], durations: Durations
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    """The items of one shard, and the others; all items of a definition are in one."""
    groups = [_group(item) for item in items]
    number, count = shard
    homes = _dealt(durations.of(Counter(groups)), count)
    chosen = [item for item, group in zip(items, groups, strict=True) if homes[group] == number]
    others = [item for item, group in zip(items, groups, strict=True) if homes[group] != number]
    return chosen, others


def _group(item: pytest.Item) -> Group:
    definition = getattr(item, "definition", None)
    return item.nodeid.partition("::")[0], "" if definition is None else definition.name


def _dealt(seconds: Mapping[Group, float], count: int) -> dict[Group, int]:
    """The shard of each group, from 1: longest group first, each to the least loaded shard."""
    loads = [0.0] * count
    homes = {}
    for group in sorted(seconds, key=lambda group: (-seconds[group], group)):
        least = loads.index(min(loads))
        loads[least] += seconds[group]
        homes[group] = least + 1
    return homes
