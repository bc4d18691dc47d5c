"""What a job of GitHub is told: failures at the lines of implementations, and a summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_fib.report._rows import Row
    from pytest_fib.report._times import Baseline

#: Statuses that are no failure.
_FINE = frozenset({"PASSED", "SKIPPED", "XFAIL", "XPASS", "RERUN"})
#: What ends a property or a command, and how it is written in one.
_ESCAPED = {"%": "%25", "\r": "%0D", "\n": "%0A", ":": "%3A", ",": "%2C"}


def github_annotations(rows: Iterable[Row], rootdir: Path) -> Iterator[str]:
    """A workflow command for each failure: ``::error file=...,line=...,title=...::what``.

    Paths are relative to the repository, as GitHub wants them.
    """
    top = os.environ.get("GITHUB_WORKSPACE") or rootdir
    for row in rows:
        if row.status not in _FINE and row.source:
            file = _escaped(os.path.relpath(rootdir / row.source, top))
            place = f"file={file},line={row.line},title={_escaped(row.item)}"
            yield f"::error {place}::{_escaped(f'{row.status}: {row.reason}')}"


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(character, character) for character in text)


def append_github_summary(records: Iterable[str], baseline: Baseline | None) -> None:
    """Append tables of trace records, as JSON, to the job's summary."""
    from pytest_fib.data import Trace
    from pytest_fib.report.github import summary

    traces = [Trace.model_validate_json(line) for line in records]
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
        file.write(summary(traces, baseline))
