"""How a run used its devices, in a line or two at its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import mean
from time import monotonic
from typing import Any


class DeviceUses:
    """What items of this machine did with devices, by their node ids."""

    def __init__(self) -> None:
        self._start = monotonic()
        #: The fields of a DeviceUse, and how many seconds the item took.
        self._uses: dict[str, tuple[dict[str, Any], float]] = {}

    def add(self, nodeid: str, use: dict[str, Any] | None, seconds: float) -> None:
        if use is not None:
            self._uses[nodeid] = use, seconds

    def shown(self) -> list[str]:
        """Who waited, if for more than a second; and how devices were used that times come from."""
        return [line for line in (self._shown_shares(), self._shown_waits()) if line]

    def _shown_waits(self) -> str:
        """``3 items waited 41 s for other processes on the device``."""
        waits = [use["waited"] for use, _ in self._uses.values() if use["waited"] >= 0.5]
        if sum(waits) < 1:
            return ""
        items = "1 item" if len(waits) == 1 else f"{len(waits)} items"
        return f"{items} waited {sum(waits):.0f} s for other processes on the device"

    def _shown_shares(self) -> str:
        """``device busy 84 %, timed 61 %, waited 3 %``: of the run's time; waits, of the items'."""
        uses = [use for use, _ in self._uses.values()]
        alone = sum(use["alone"] for use in uses)
        if not alone:
            return ""
        by_device: dict[str, list[list[float]]] = {}
        for use in uses:
            by_device.setdefault(use["device"], []).extend(use["used"])
        run = monotonic() - self._start
        busy = mean(sum(_lengths(used)) for used in by_device.values()) / run
        timed = alone / len(by_device) / run
        of_items = sum(seconds for _, seconds in self._uses.values())
        waited = sum(use["waited"] for use in uses) / of_items
        devices = "device" if len(by_device) == 1 else f"{len(by_device)} devices"
        shares = (
            f"{word} {100 * share:.0f} %"
            for word, share in (("busy", busy), ("timed", timed), ("waited", waited))
        )
        return f"{devices} {', '.join(shares)}"


def _lengths(intervals: Iterable[list[float]]) -> Iterator[float]:
    """How long each part of the union of intervals is."""
    end = 0.0
    for start, stop in sorted(intervals):
        yield max(0.0, stop - max(start, end))
        end = max(end, stop)
