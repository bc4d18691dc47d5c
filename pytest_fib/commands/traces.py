"""``python -m pytest_fib traces``: look into datasets, merge and export them."""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.data import TraceSet
    from pytest_fib.discovery import Catalogue

_PATH = "a dataset's directory, a JSON file of TraceSet.save, or a JSONL file of traces"


def add_parser(subparsers: Any) -> None:
    """Add the subcommand and its actions."""
    parser = subparsers.add_parser("traces", help="look into datasets, merge and export them")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add(actions, "summary", _summary, "how many records there are of each definition")
    best = _add(actions, "best", _best, "the best implementation of each definition and shape")
    best.add_argument("--definition", help="only this one")
    best.add_argument("--hardware", help="only on this device, such as 'NVIDIA H200'")
    merge = _add(actions, "merge", _write, "merge datasets into one")
    merge.add_argument("others", nargs="*", type=Path, help="the same")
    merge.add_argument("-o", "--output", required=True, type=Path, help="directory or .json file")
    add_export(actions)
    _add(actions, "validate", _validate, "check every record; exit status 1 if one is invalid")


def add_export(actions: Any) -> None:
    """Add ``export``, beside these actions or beside ``import``."""
    summary = "write what runs found as a dataset that FlashInfer's tools read"
    export = _add(actions, "export", _write, summary)
    export.add_argument("output", type=Path, help="directory, or .json file for pytest-fib alone")


def _add(actions: Any, name: str, run: Any, summary: str) -> Any:
    parser = actions.add_parser(name, help=summary)
    parser.add_argument("path", type=Path, help=_PATH)
    for which, what in (("defs", "definitions"), ("impls", "implementations")):
        parser.add_argument(
            f"--{which}",
            action="append",
            type=Path,
            help=f"where {what} are that JSONL files name (default: kernel_{which})",
        )
    parser.set_defaults(run=run)
    return parser


def _open(given: Namespace) -> TraceSet:
    """All that is at the paths given. Raises ValueError and OSError."""
    from pytest_fib.data import TraceSet

    project = _Project(given.defs or [Path("kernel_defs")], given.impls or [Path("kernel_impls")])
    opened: TraceSet | None = None
    for path in (given.path, *vars(given).get("others", ())):
        if _has_records_only(path):
            raise ValueError(f"{path} is no dataset but has files of records: name {path}/*.jsonl")
        if path.suffix == ".jsonl":
            opened = TraceSet() if opened is None else opened
            project.add_traces(opened, path)
        else:
            other = TraceSet.load(path)
            opened = other if opened is None else opened.merge(other)
    assert opened is not None
    opened.drop_repeats()
    return opened


def _has_records_only(path: Path) -> bool:
    return not (path / "definitions").exists() and any(path.glob("*.jsonl"))


def _summary(given: Namespace) -> int:
    summary = _open(given).summary()
    head = ("definition", "solutions", "workloads", "calls", "traces", "passed", "speedup", "best")
    rows = [
        (d.name, d.solutions, d.workloads, d.calls, d.traces, d.passed, _times(d.speedup), d.best)
        for d in summary.definitions
    ]
    _print_table([head, *rows])
    traces = "1 trace" if summary.total == 1 else f"{summary.total} traces"
    print(f"{traces}: {summary.passed} passed, {summary.failed} failed")
    return 0


def _best(given: Namespace) -> int:
    trace_set = _open(given)
    names = [given.definition] if given.definition else list(trace_set.definitions)
    rows: list[tuple[object, ...]] = [("definition", "shape", "hardware", "solution", "ms")]
    for name in names:
        for row in trace_set.fastest(name, given.hardware):
            evaluation = row.evaluation
            assert evaluation is not None
            shape = " ".join(f"{axis}={size}" for axis, size in row.workload.axes.items())
            latency = f"{evaluation.latency_ms:.4g}"
            rows.append((name, shape, evaluation.hardware, row.solution, latency))
    if len(rows) > 1:
        _print_table(rows)
    else:
        known = sorted({device for name in names for device in trace_set.hardware(name)})
        where = f" there, only on {', '.join(known)}" if known else ""
        print(f"nothing has passed and been timed{where}")
    return 0


class _Project:
    """Definitions and implementations on disk, which traces of a run may name."""

    def __init__(self, defs: list[Path], impls: list[Path]) -> None:
        self._defs, self._impls = defs, impls

    @cached_property
    def _catalogue(self) -> Catalogue:
        from pytest_fib.discovery import definition_files, find_implementations, load_catalogue

        files = (path for folder in self._defs for path in definition_files(folder))
        return load_catalogue([files], find_implementations(self._impls))

    def add_traces(self, trace_set: TraceSet, path: Path) -> None:
        """Add the traces of a run, and what they name. Raises ValueError and OSError.

        Those of functions that tests gave to `kernel_check` name nothing that can be added: they
        are left out, and that is said.
        """
        from pytest_fib.data import read_traces

        added: dict[tuple[str, str], str | None] = {}
        left_out: Counter[str] = Counter()
        for trace in read_traces(path):
            names = (trace.definition, trace.solution or "")
            if names not in added:
                added[names] = self._added(trace_set, *names) if trace.solution else None
            solution = added[names]
            if solution is None and trace.solution:
                left_out[f"{trace.definition} by {trace.solution}"] += 1
            else:
                trace_set.add_trace(trace.model_copy(update={"solution": solution}))
        folders = ", ".join(map(str, self._impls))
        for whose, number in left_out.items():
            what = "1 trace" if number == 1 else f"{number} traces"
            print(f"left out: {what} of {whose}, which {folders} doesn't have")

    def _added(self, trace_set: TraceSet, definition: str, name: str) -> str | None:
        """The name under which a trace set has a project's implementation; adds what it lacks.

        A project has one name for an implementation of several definitions, a trace set does not.
        None where neither has one.
        """
        known = {solution.name for solution in trace_set.solutions.get(definition, ())}
        if name in known:
            return name
        implementation = next(
            (
                each
                for each in self._catalogue.implementations
                if each.name == name and fnmatchcase(definition, each.definition)
            ),
            None,
        )
        if implementation is None:
            return None
        self._add_definition(trace_set, definition)
        full_name = f"{definition}_{name}"
        solution = implementation.solution(definition).model_copy(update={"name": full_name})
        if full_name not in known:
            trace_set.add_solution(solution)
        elif trace_set.solution(full_name) != solution:
            raise ValueError(
                f"{implementation.path} has changed since {full_name!r} was added with its "
                "traces: give it another name, or remove that solution and its traces"
            )
        return full_name

    def _add_definition(self, trace_set: TraceSet, name: str) -> None:
        if name in trace_set.definitions:
            return
        for each in self._catalogue.loaded:
            if each.definition.name == name:
                trace_set.add_definition(each.definition)


def _write(given: Namespace) -> int:
    """What is at the paths given, all in one."""
    trace_set, output = _open(given), given.output
    if output.suffix == ".json":
        trace_set.save(output)
        print(f"{output}: {trace_set!r}")
        return 0
    export = trace_set.to_path(output)
    nothing = "" if export.written else f"; {given.path} has none that can be written"
    print(f"{output}: {export.written} records{nothing}")
    for line, number in Counter(export.refused).items():
        times = f" ({number} of these)" if number > 1 else ""
        print(f"FlashInfer can't read it, so it is under pytest_fib/: {line}{times}")
    for what in export.without:
        print(f"left out, since FlashInfer Trace has no place for it: {what}")
    for name in export.missing:
        print(f"not copied, since it does not exist: {name}")
    return 0


def _validate(given: Namespace) -> int:
    problems = _open(given).validate()
    for line in problems:
        print(line)
    print("all records are valid" if not problems else f"problems: {len(problems)}")
    return 1 if problems else 0


def _times(speedup: float | None) -> str:
    return "-" if speedup is None else f"{speedup:.2f}x"


def _print_table(rows: list[tuple[object, ...]]) -> None:
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        print("  ".join(map(str.ljust, row, widths)).rstrip())
