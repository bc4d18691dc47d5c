"""The operation counts of references, kept across runs: counting takes longer than timing.

There is a file for each definition, named by its content. Sandboxes can't write here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from pytest_fib.data import Definition, EvaluationRequest, write_json
from pytest_fib.timing import OperationCounts

#: Changes if operations are counted in another way.
COUNTS_FORMAT = 1
#: The most workloads of a definition; the oldest are dropped.
MOST_WORKLOADS = 1000


class CountsCache:
    """Operation counts of references by workload; without a folder, for this process only.

    None if they can't be counted.
    """

    def __init__(self, folder: Path | None, device: str) -> None:
        self._folder = folder
        self._device = device
        self._known: dict[str, dict[str, OperationCounts | None]] = {}

    def get(
        self, request: EvaluationRequest, count: Callable[[], OperationCounts | None]
    ) -> OperationCounts | None:
        """The reference's operations on the workload, which are counted if they are not known."""
        name = self._name(request.definition)
        if name not in self._known:
            self._known[name] = self._read(name)
        known, key = self._known[name], workload_key(request)
        if key not in known:
            known[key] = count()
            self._write(name)
        return known[key]

    def _name(self, definition: Definition) -> str:
        facts = [COUNTS_FORMAT, torch.__version__, self._device, definition.model_dump_json()]
        return _digest(json.dumps(facts))

    def _path(self, name: str) -> Path | None:
        return None if self._folder is None else self._folder / f"{name}.json"

    def _read(self, name: str) -> dict[str, OperationCounts | None]:
        """The content of the file; empty if it is not one of these."""
        path = self._path(name)
        with suppress(OSError, LookupError, ValueError, TypeError, AttributeError):
            if path is not None:
                by_workload = json.loads(path.read_text(encoding="utf-8"))
                return {key: _counts(value) for key, value in by_workload.items()}
        return {}

    def _write(self, name: str) -> None:
        """Add to the file. If two processes write at once, one loses its counts."""
        path = self._path(name)
        if path is None:
            return
        merged = self._known[name] = self._read(name) | self._known[name]
        newest = list(merged.items())[-MOST_WORKLOADS:]
        with suppress(OSError):  # full, or read-only
            write_json(path, {key: None if each is None else asdict(each) for key, each in newest})


def _counts(value: dict[str, object] | None) -> OperationCounts | None:
    """Raises TypeError and ValueError."""
    if value is None:
        return None
    read_bytes = [None if each is None else int(each) for each in value["read_bytes"]]  # type: ignore[attr-defined]
    return OperationCounts(int(value["flops"]), int(value["moved_bytes"]), tuple(read_bytes))  # type: ignore[call-overload]


def workload_key(request: EvaluationRequest) -> str:
    """A key of a definition's workload, by its content."""
    # Not the uuid: another seed's workload keeps it.
    return _digest(repr((request.workload, sorted(request.tensors.values()))))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
