"""What a job of GitHub is told: failures at the lines of implementations, and a summary."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.report._rows import Row
    from pytest_fib.report._times import Baseline

#: Statuses that are no failure.
_FINE = frozenset({"PASSED", "SKIPPED", "XFAIL", "XPASS", "RERUN"})
#: What ends a command, and how it is written in one; a property also ends at others.
_ESCAPED = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_ESCAPED_IN_PROPERTIES = _ESCAPED | str.maketrans({":": "%3A", ",": "%2C"})


def github_annotations(rows: Iterable[Row], rootdir: Path) -> Iterator[str]:
    """A workflow command for each failure: ``::error file=...,line=...,title=...::what``.

    Paths are relative to the repository, as GitHub wants them.
    """
    top = os.environ.get("GITHUB_WORKSPACE") or rootdir
    for row in rows:
        if row.status not in _FINE and row.source:
            file = _property(os.path.relpath(rootdir / row.source, top))
            place = f"file={file},line={row.line},title={_property(row.item)}"
            what = f"{row.status}: {row.reason}".translate(_ESCAPED)
            yield f"::error {place}::{what}"


def _property(text: str) -> str:
    return text.translate(_ESCAPED_IN_PROPERTIES)


def append_github_summary(
    records: Iterable[str], baseline: Baseline | None, rows: Sequence[Row]
) -> None:
    """Append tables of trace records, as JSON, to the job's summary, and of failures without.

    ``rows`` are those of all items.
    """
    from pytest_fib.data import Trace
    from pytest_fib.report.github import summary

    traces = [Trace.model_validate_json(line) for line in records]
    untested, xfailed = ([row for row in rows if row.status == each] for each in ("ERROR", "XFAIL"))
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as file:
        file.write(summary(traces, baseline, untested, xfailed))
