"""The text of one failure."""

from __future__ import annotations

import json
import math
import shlex
import textwrap
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.report._units import duration, times

if TYPE_CHECKING:
    import pytest

    from pytest_fib.data import (
        BuildResult,
        Correctness,
        DefinitionFault,
        Diagnosis,
        Evaluation,
        EvaluationStatus,
        Origin,
        Scalar,
        Workload,
    )
    from pytest_fib.report._times import TimeComparison

#: Columns of a text where nobody knows how wide the terminal is.
COLUMNS = 80
#: Lines that are shown of what a compiler or a kernel says.
DETAILS = 100
#: Scalar inputs that are shown of a workload.
SCALARS = 6
#: The name of a field and what it says.
Field: TypeAlias = tuple[str, str]
#: Columns before the value of a field.
_INDENT = 18
#: Where a failing workload comes from.
_ORIGINS = {
    "shrunk": "  (the smallest that fails)",
    "unfinished": "  (smaller ones may fail)",
    "failed before": "  (failed before)",
    "listed": "  (listed in the definition)",
    "recorded": "  (recorded)",
}
#: How the value patterns of a workload are written.
_PATTERNS = {
    "values": "{} values",
    "inputs": "in {} of the inputs",
    "lengths": "lengths {}",
    "layout": "layout {}",
    "near": "some near {}",
}


def describe_evaluation(
    evaluation: Evaluation,
    workload: Workload,
    place: str,
    replay: Callable[[Workload], str],
    origin: Origin | None = None,
    *,
    guessed: str = "",
    parameters: Sequence[str] = (),
    arguments: Sequence[str] = (),
    hint: str = "",
    width: int = COLUMNS,
    blamed: str | None = None,
) -> str:
    """Why an implementation failed: what, where, how much, and how to see it again.

    ``place`` is where the implementation is; ``replay`` makes the command that tests one workload;
    ``guessed`` are the inputs whose meaning was inferred; ``parameters`` are the names that the
    implementation has for its ``arguments``; ``hint`` is what to do where that is known;
    ``blamed`` stands for the status.
    The first paragraph says the most, since pytest's summary shows that alone.
    """
    diagnosis = _diagnosis(evaluation)
    fields = [("implementation", place), _workload(workload, origin)]
    if evaluation.correctness is not None:
        fields += _errors(evaluation.correctness)
    if diagnosis.shown_by:
        fields.append(("pattern", f"seen at {_shown(diagnosis.shown_by)}"))
    fields += _misordered(parameters, arguments)
    fields += [("hint", hint)] if hint else []
    fields += _guesses(guessed)
    first = _headline(evaluation.status, diagnosis.headline, width, blamed)
    text = _paragraphs(first, fields, diagnosis.details, replay(workload), width)
    if diagnosis.shown_by is None or diagnosis.shown_by.has_recorded_tensors:
        return text  # no command takes recorded tensors with other values
    return f"{text}\n\nreplay of the pattern:\n  {replay(diagnosis.shown_by)}"


def describe_comparison(
    status: EvaluationStatus, diagnosis: Diagnosis, correctness: Correctness
) -> str:
    """What is wrong with a tensor that nobody knows the origin of."""
    first = _headline(status, diagnosis.headline, COLUMNS)
    return _paragraphs(first, _errors(correctness), diagnosis.details, "", COLUMNS)


def describe_compile_error(
    result: BuildResult, place: str, replay: str, *, width: int = COLUMNS
) -> str:
    """What keeps an implementation from being compiled, the compiler's first error first."""
    first = [f"{result.status}: {result.message}"]
    fields = [("implementation", place)]
    return _paragraphs(first, fields, result.log.splitlines(), replay, width)


def _diagnosis(evaluation: Evaluation) -> Diagnosis:
    """Why an evaluation failed. Records of other tools have a log only: its first line serves."""
    if evaluation.diagnosis is not None:
        return evaluation.diagnosis
    from pytest_fib.data import Diagnosis

    sentence, _, rest = evaluation.log.partition("\n")
    return Diagnosis(sentence=sentence, details=tuple(rest.strip("\n").splitlines()))


def _headline(
    status: EvaluationStatus, sentence: str, width: int, blamed: str | None = None
) -> list[str]:
    """The status and what is wrong, in lines. What others wrote, as an error's message, is kept."""
    line = f"{blamed or status.value}: {sentence}"
    if status.value != "INCORRECT_NUMERICAL":
        return [line]
    return textwrap.wrap(line, width, subsequent_indent="  ", break_long_words=False)


def describe_definition_fault(
    fault: DefinitionFault,
    workload: Workload,
    place: str,
    replay: str,
    origin: Origin | None = None,
    *,
    guessed: str = "",
    width: int = COLUMNS,
) -> str:
    """Why a definition can't be used; no implementation is blamed."""
    fields = [("definition", place), _workload(workload, origin), *_guesses(guessed)]
    first, details = f"DEFINITION ERROR: {fault.message}", fault.log.splitlines()
    return _paragraphs([first], fields, details, replay, width)


def describe_slower(
    comparison: TimeComparison,
    workload: Workload,
    place: str,
    replay: str,
    limit: float,
    *,
    width: int = COLUMNS,
) -> str:
    """That an implementation is slower than it may be; ``limit`` as 0.05 for 5 %."""
    assert comparison.before_ms is not None
    assert comparison.low is not None
    assert comparison.high is not None
    now, before = duration(comparison.now_ms), duration(comparison.before_ms)
    percent = f"{100 * (comparison.now_ms / comparison.before_ms - 1):.1f} %"
    low, high = (100 * (end - 1) for end in (comparison.low, comparison.high))
    earlier = [comparison.solution, comparison.timestamp, comparison.method]
    fields = [
        ("implementation", place),
        _workload(workload, None),
        ("slower by", f"{low:.1f} to {high:.1f} %"),
        ("before", ", ".join(filter(None, earlier))),
    ]
    first = f"SLOWER: {now} is {percent} slower than {before} before; {100 * limit:g} % is allowed"
    return _paragraphs([first], fields, (), replay, width)


def replay_command(
    node_id: str,
    workload: Workload,
    options: Sequence[str],
    scalars: Mapping[str, Scalar] | None = None,
) -> str:
    """The shell command that tests just this workload.

    ``node_id`` is the correctness item's, or that of a workload with recorded tensors; ``scalars``
    are those that don't follow from the rest.
    """
    arguments = ["pytest", node_id, *options]
    if not workload.has_recorded_tensors:
        arguments += ["--fib-workload", workload_json(workload, scalars)]
    return shlex.join(arguments)


def axis_sizes(axes: Mapping[str, int]) -> str:
    """``batch=7, d=4096``; in words where there are no var axes."""
    return ", ".join(f"{axis}={n}" for axis, n in axes.items()) or "no var axes"


def workload_json(workload: Workload, scalars: Mapping[str, Scalar] | None = None) -> str:
    """A workload as ``--fib-workload`` takes it: what its inputs follow from, no more.

    ``scalars`` are those that don't follow from its axes and seed.
    """
    values: dict[str, object] = {"axes": workload.axes}
    if workload.seed:
        values["seed"] = workload.seed
    if workload.regime:
        values["regime"] = workload.regime
    if scalars:
        values["inputs"] = {n: {"type": "scalar", "value": x} for n, x in scalars.items()}
    return json.dumps(values)


def shown_size(size: int) -> str:
    """A memory size with a binary prefix: ``24 B``, ``1.5 GiB``."""
    exponent = min(max(size.bit_length() - 1, 0) // 10, 3)
    return f"{size / (1 << 10 * exponent):.4g} {('B', 'KiB', 'MiB', 'GiB')[exponent]}"


def _paragraphs(
    first: Sequence[str],
    fields: Sequence[Field],
    details: Sequence[str],
    replay: str,
    width: int,
) -> str:
    shown = ["", *details[:DETAILS]] if any(details) else []
    if len(details) > DETAILS:
        shown.append(f"... {len(details) - DETAILS} more lines are in the trace record")
    while shown and not shown[-1]:
        shown.pop()
    lines = [line for name, value in fields for line in _in_columns(name, value, width)]
    replayed = ["", "replay:", f"  {replay}"] if replay else []
    return "\n".join([*first, "", *lines, *shown, *replayed])


def _misordered(parameters: Sequence[str], arguments: Sequence[str]) -> list[Field]:
    """Arguments are passed by position: names in another order are a likely mistake."""
    if list(parameters) == list(arguments) or sorted(parameters) != sorted(arguments):
        return []
    order = f"{', '.join(parameters)}, but are passed {', '.join(arguments)} in this order"
    return [("parameters", order)]


def _guesses(guessed: str) -> list[Field]:
    if not guessed:
        return []
    return [("inferred", f"{guessed}; if that is wrong, correct it under workloads.inputs")]


def _in_columns(name: str, value: str, width: int) -> list[str]:
    """``name`` and ``value`` in two columns. Paths stay whole."""
    return textwrap.wrap(
        f"  {name:<{_INDENT - 2}}{value}",
        width,
        subsequent_indent=" " * _INDENT,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _workload(workload: Workload, origin: Origin | None) -> Field:
    return "workload", f"{_shown(workload)}{_ORIGINS[origin] if origin else ''}"


def _shown(workload: Workload) -> str:
    """``n=5; alpha 0.25, beta 0; normal values, seed 3``."""
    patterns = {"values": "normal"} | workload.regime
    words = [_PATTERNS[what].format(name) for what, name in patterns.items()]
    given = workload.inputs.items()
    scalars = [f"{name} {_number(spec.value)}" for name, spec in given if spec.type == "scalar"]
    if len(scalars) > SCALARS:
        scalars[SCALARS:] = ["..."]
    drawn = ", ".join([*words, f"seed {workload.seed}"])
    return "; ".join(filter(None, [axis_sizes(workload.axes), ", ".join(scalars), drawn]))


def _number(value: Scalar) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _errors(correctness: Correctness) -> list[Field]:
    """How many elements are wrong, by how much, and against what if not float64."""
    extra = correctness.extra or {}
    wrong, total = extra.get("elements_wrong", {}), extra.get("elements", {})
    lines: list[Field] = []
    for name, count in wrong.items():
        if count:
            share = _share(count, total[name])
            lines.append(("wrong", f"{count} of {total[name]} elements of {name} ({share})"))
    absolute, relative = correctness.max_absolute_error, correctness.max_relative_error
    if absolute is None or relative is None or "bound_used" not in extra:
        return lines
    if math.isfinite(absolute):  # NaN and infinities are seen in the elements
        from pytest_fib.data import format_distinct

        used = float(extra["bound_used"])
        precise = format_distinct(used, 1.0, 6)[0] if used < 1.01 else times(used)
        output = extra["worst"].get("output") if len(total) > 1 else None
        is_exact = not extra["worst"].get("allowed")
        words, joint = (
            (f"{precise} times the bound", "of")
            if math.isfinite(used)
            else ("nothing may differ" if is_exact else "more than the bound", "in")
        )
        bound = f"{words} {joint} {output}" if output else words
        errors = f"absolute {absolute:.3g}, relative {times(relative)}; {bound}"
        lines.append(("largest error", errors))
    if reason := extra.get("no_oracle"):
        lines.append(("expected", f"in the reference's own precision: {reason}"))
    return lines


def _share(part: int, whole: int) -> str:
    share = 100 * part / whole
    return f"{share:.3g} %" if share >= 0.001 else "under 0.001 %"


def message_only(
    excinfo: pytest.ExceptionInfo[BaseException],
    place: tuple[str, int] | None = None,
    shown_before: str = "",
) -> object:
    """An exception as pytest shows it: its text alone, its first paragraph in the summary.

    ``place`` is the file and line that other plugins take for where it was raised;
    ``shown_before`` a beginning that the summary leaves out, as ``path:``.
    """
    shown = excinfo.getrepr(style="value")
    if shown.reprcrash is not None:
        first = _first_paragraph(str(excinfo.value))
        shortened = first.removeprefix(shown_before)
        shown.reprcrash.message = f"line {shortened}" if shortened != first else first
        if place is not None:
            shown.reprcrash.path, shown.reprcrash.lineno = place
    return shown


def _first_paragraph(text: str) -> str:
    """Its first line, and those that continue it: they are indented."""
    first, *more = text.partition("\n\n")[0].split("\n")
    continued = takewhile(lambda line: line.startswith("  "), more)
    return " ".join([first, *(line.strip() for line in continued)])
