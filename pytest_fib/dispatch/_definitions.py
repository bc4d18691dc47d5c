"""The definitions of a trace set, as calls need them: no call fails for a bad record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.dispatch._kernels import log

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TraceSet


class Definitions:
    """Those that there are and that can be read. One that can't is logged once."""

    def __init__(self, trace_set: TraceSet) -> None:
        self._trace_set = trace_set
        self._unreadable: set[str] = set()

    def get(self, name: str) -> Definition | None:
        """The definition of this name; None where there is none, or its record can't be read."""
        if name in self._unreadable or name not in self._trace_set.definitions:
            return None
        try:
            return self._trace_set.definitions[name]
        except (OSError, ValueError) as error:
            self._unreadable.add(name)
            log.warning("%s: its calls go to the fallback and aren't recorded: %s", name, error)
            return None
