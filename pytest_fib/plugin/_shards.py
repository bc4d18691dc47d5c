"""``--fib-shard``: which part of the tests this run has, when others have the rest."""

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

#: A definition's file and name; of other tests, their file and nothing.
Group: TypeAlias = tuple[str, str]


class Durations:
    """Seconds that the items of each definition took, as trace records have it."""

    def __init__(self, seconds: Mapping[Group, float]) -> None:
        self._seconds = seconds

    @classmethod
    def read(cls, settings: Settings) -> Durations:
        """Of ``--fib-shard-by``, a file or a folder of files; else none. Raises UsageError."""
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
        """Equal for all shards, or some tests are in none."""
        facts = json.dumps(sorted(self._seconds.items()))
        return hashlib.sha256(facts.encode()).hexdigest()[:8]

    def of(self, groups: Counter[Group]) -> dict[Group, float]:
        """What each group of so many items is expected to take: what is not known, the average."""
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
    """The shard of each group, from 1: the longest first, each to whichever has least so far."""
    loads = [0.0] * count
    homes = {}
    for group in sorted(seconds, key=lambda group: (-seconds[group], group)):
        least = loads.index(min(loads))
        loads[least] += seconds[group]
        homes[group] = least + 1
    return homes
