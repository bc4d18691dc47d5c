"""The text of one failure."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
from itertools import takewhile
from typing import TYPE_CHECKING

from pytest_fib.report.units import duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

    from pytest_fib.data import Correctness, Evaluation, EvaluationStatus, Workload
    from pytest_fib.report.compare import Comparison
    from pytest_fib.workloads.search import Origin


#: Columns of a terminal.
WIDTH = 80
#: What is said of a failing workload, by where it comes from.
_NOTES = {
    "shrunk": "  (the smallest that fails)",
    "unfinished": "  (smaller ones may fail)",
    "kept": "  (failed before)",
    "listed": "  (listed in the definition)",
    "recorded": "  (recorded)",
}

#: How the regimes of a workload are said.
_REGIMES = {
    "values": "{} values",
    "inputs": "in {} inputs",
    "lengths": "lengths {}",
    "layout": "layout {}",
}


def describe_evaluation(
    evaluation: Evaluation,
    workload: Workload,
    place: str,
    replay: str,
    origin: Origin | None = None,
) -> str:
    """Why an implementation failed: what, where, how much, and how to see it again.

    ``place`` is where the implementation is; ``replay`` the command that runs just this again.
    The first paragraph says the most, since pytest's summary shows that alone.
    """
    summary, _, details = evaluation.log.partition("\n")
    facts = _facts("implementation", place, workload, origin)
    lines = [*first_line(evaluation.status, summary), "", *facts]
    if evaluation.correctness is not None:
        lines += _wrong(evaluation.correctness)
    if details.strip():
        lines += ["", *details.strip("\n").splitlines()]
    return "\n".join([*lines, "", "replay:", f"  {replay}"])


def first_line(status: EvaluationStatus, summary: str) -> list[str]:
    """The status and what is wrong, as lines of a terminal.

    What others say, such as an error's message, is left as it is.
    """
    line = f"{status.value}: {summary}"
    if len(line) <= WIDTH or status.value != "INCORRECT_NUMERICAL":
        return [line]
    first, *more = line.replace("; ", ";\n").splitlines()
    wrapped = textwrap.wrap(first, WIDTH, subsequent_indent="  ")
    for part in more:
        wrapped += textwrap.wrap(part, WIDTH, initial_indent="  ", subsequent_indent="  ")
    return wrapped


def describe_definition_error(
    message: str, workload: Workload, place: str, replay: str, origin: Origin | None = None
) -> str:
    """Why a definition can't be used; no implementation is blamed."""
    summary, _, details = message.partition("\n")
    facts = _facts("definition", place, workload, origin)
    lines = [f"DEFINITION ERROR: {summary}", "", *facts]
    if details.strip():
        lines += ["", *details.strip("\n").splitlines()]
    return "\n".join([*lines, "", "replay:", f"  {replay}"])


def describe_slower(
    comparison: Comparison, workload: Workload, place: str, replay: str, limit: float
) -> str:
    """That an implementation is slower than it may be; ``limit`` as 0.05 for 5 %."""
    assert comparison.before_ms is not None
    assert comparison.low is not None
    assert comparison.high is not None
    now, before = duration(comparison.now_ms), duration(comparison.before_ms)
    low, high = (100 * (end - 1) for end in (comparison.low, comparison.high))
    by = f"{100 * (comparison.now_ms / comparison.before_ms - 1):.1f} %"
    facts = _facts("implementation", place, workload, None)
    earlier = [comparison.solution, comparison.timestamp, comparison.method]
    return "\n".join(
        [
            f"SLOWER: {now}, {by} over the {before} before; {100 * limit:g} % is allowed",
            "",
            *facts,
            f"  slower by       {low:.1f} to {high:.1f} %",
            f"  before          {', '.join(filter(None, earlier))}",
            "",
            "replay:",
            f"  {replay}",
        ]
    )


def replay_command(node_id: str, workload: Workload, options: Sequence[str]) -> str:
    """The shell command that tests just this workload.

    ``node_id`` is the correctness item's, or that of a workload with recorded tensors.
    """
    arguments = ["pytest", node_id, *options]
    if not has_recorded_tensors(workload):
        arguments += ["--fib-workload", workload_json(workload)]
    return " ".join(shlex.quote(argument) for argument in arguments)


def has_recorded_tensors(workload: Workload) -> bool:
    """Whether a workload is more than what follows from its axes, regime and seed."""
    return any(given.type == "safetensors" for given in workload.inputs.values())


def workload_json(workload: Workload) -> str:
    """A workload as ``--fib-workload`` takes it: what its inputs follow from, no more."""
    facts: dict[str, object] = {"axes": workload.axes}
    if workload.seed:
        facts["seed"] = workload.seed
    if workload.regime:
        facts["regime"] = workload.regime
    return json.dumps(facts)


def shown_size(size: int) -> str:
    """Bytes as people say them: ``24 B``, ``1.5 GiB``."""
    exponent = min(max(size.bit_length() - 1, 0) // 10, 3)
    return f"{size / (1 << 10 * exponent):.4g} {('B', 'KiB', 'MiB', 'GiB')[exponent]}"


def _facts(blamed: str, place: str, workload: Workload, origin: Origin | None) -> list[str]:
    axes = _sizes(workload.axes)
    regime = {"values": "normal"} | workload.regime
    kinds = ", ".join(_REGIMES[what].format(name) for what, name in regime.items())
    note = _NOTES[origin] if origin else ""
    line = f"  workload        {axes}; {kinds}, seed {workload.seed}{note}"
    wrapped = textwrap.wrap(line, WIDTH, subsequent_indent=" " * 18, break_on_hyphens=False)
    return [f"  {blamed:<16}{place}", *wrapped]


def _wrong(correctness: Correctness) -> list[str]:
    extra = correctness.extra or {}
    wrong, total = extra.get("elements_wrong", {}), extra.get("elements", {})
    return [
        f"  wrong           {wrong[name]} of {total[name]} elements of {name} "
        f"({_share(wrong[name], total[name])})"
        for name in wrong
        if wrong[name]
    ] + [*_how_far(correctness), *_told_by(extra.get("told_by"))]


def _told_by(axes: Mapping[str, int] | None) -> list[str]:
    """Which workload has the pattern of the first line, where it is a larger one."""
    if not axes:
        return []
    line = f"  told by         {_sizes(axes)}, where more can be told apart"
    return textwrap.wrap(line, WIDTH, subsequent_indent=" " * 18)


def _sizes(axes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={n}" for axis, n in axes.items()) or "no var axes"


def _how_far(correctness: Correctness) -> list[str]:
    """The largest errors, beside what is allowed; and where that is not by float64."""
    extra = correctness.extra or {}
    absolute, relative = correctness.max_absolute_error, correctness.max_relative_error
    if absolute is None or relative is None or "bound_used" not in extra:
        return []
    own = []
    if reason := extra.get("no_oracle"):
        own = textwrap.wrap(
            f"  oracle          the reference's own precision, not float64: {reason}",
            WIDTH,
            subsequent_indent=" " * 18,
        )
    if not math.isfinite(absolute):  # NaN or an infinity, which the elements show
        return own
    times = f"{float(extra['bound_used']):.3g} times the bound"
    return [f"  largest error   absolute {absolute:.3g}, relative {relative:.3g}; {times}", *own]


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.3g} %" if share >= 0.001 else "under 0.001 %"


def message_only(excinfo: pytest.ExceptionInfo[BaseException], known: str = "") -> object:
    """An exception as pytest shows it: its text alone, its first paragraph in the summary.

    ``known`` is a beginning that the summary leaves out.
    """
    shown = excinfo.getrepr(style="value")
    if shown.reprcrash is not None:
        first = _first_paragraph(str(excinfo.value))
        shortened = first.removeprefix(known)
        shown.reprcrash.message = f"line {shortened}" if shortened != first else first
    return shown


def _first_paragraph(text: str) -> str:
    """Its first line, and those that continue it: they are indented."""
    first, *more = text.partition("\n\n")[0].split("\n")
    continued = takewhile(lambda line: line.startswith("  "), more)
    return " ".join([first, *(line.strip() for line in continued)])
