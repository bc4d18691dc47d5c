"""Decides which xdist worker runs which items; items that share processes stay together.

The items of one implementation share its sandbox. The items of one definition share the sandbox of
the reference and the expected values. On a GPU each sandbox is a CUDA context, and a machine makes
about six contexts a second, however many workers ask.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

#: The least number of units of work per worker, if there are many items: the more, the sooner all
#: workers end together.
UNITS_A_WORKER = 4
#: The most tests of other kinds in a unit: how long each takes is not known.
TESTS_A_UNIT = 8
#: File and definition, and the implementation, of an item's node id.
_ITEM = re.compile(r"(?P<whole>.+)\[(?P<part>.+?)-(?:definition|compile|correctness|bench)\b")


class Distribution:
    """Replaces xdist's default, ``--dist load``."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(
        self, config: pytest.Config, log: Producer
    ) -> LoadScopeScheduling:
        """The scheduler that gives items to workers."""
        return DefinitionScheduling(config, log)


class DefinitionScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Gives workers units of one definition's items, or of one file's tests."""

    _units: dict[str, str] | None = None

    def _split_scope(self, nodeid: str) -> str:
        if self._units is None:
            collected = next(iter(self.registered_collections.values()))
            self._units = units(collected, self.numnodes)
        return self._units[nodeid]

    def remove_node(self, node: WorkerController) -> str | None:
        """Give a crashed worker's items to other workers, except the item that it crashed on.

        That item's report is the crash; xdist's own way would run it again.
        """
        left = [
            (name, unit)
            for name, unit in self.assigned_work.pop(node).items()
            if not all(unit.values())
        ]
        if not left:
            return None
        first: dict[str, bool] = left[0][1]
        crashed = next(nodeid for nodeid, is_done in first.items() if not is_done)
        first[crashed] = True
        self.workqueue.update((name, unit) for name, unit in left if not all(unit.values()))
        for other in self.assigned_work:
            self._reschedule(other)
        return crashed

    def _reschedule(self, node: WorkerController) -> None:
        # A new worker can't be sent items yet; it gets its share after it has collected.
        if node in self.registered_collections:
            super()._reschedule(node)


def units(nodeids: Sequence[str], workers: int) -> dict[str, str]:
    """The unit of work that each item belongs to, a name.

    A unit has items of one definition, all that there are of one implementation; or a few tests of
    one file. Where that is more than a worker's share, the definition is several units.
    """
    share = max(1, len(nodeids) // (UNITS_A_WORKER * workers))
    names: dict[str, str] = {}
    for whole, parts in _parts(nodeids).items():
        most = share if _ITEM.match(parts[0][0]) else min(share, TESTS_A_UNIT)
        sizes: list[int] = []
        for part in parts:
            if not sizes or sizes[-1] + len(part) > most:
                sizes.append(0)
            sizes[-1] += len(part)
            names.update((nodeid, f"{whole} {len(sizes)}") for nodeid in part)
    return names


def _parts(nodeids: Iterable[str]) -> dict[str, list[list[str]]]:
    """The items that stay together, by definition or file, in order."""
    grouped: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for nodeid in nodeids:
        item = _ITEM.match(nodeid)
        whole, part = item.groups() if item else (nodeid.partition("::")[0], nodeid)
        grouped[whole][part].append(nodeid)
    return {whole: list(parts.values()) for whole, parts in grouped.items()}
