"""Traces by the hundred thousand: each as its line of JSON, beside what choosing asks of it.

A record of pydantic's costs 2.5 KiB and 25 µs, which only those pay that somebody looks at.
"""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from sys import intern
from typing import Any, NamedTuple

from pydantic_core import from_json

from ._base import MAX_SIZE, Raw, unknown
from ._definition import Definition
from ._selection import Shape
from ._trace import EvaluationStatus, Trace

_STATUSES = frozenset(status.value for status in EvaluationStatus)
_PASSED = EvaluationStatus.PASSED.value


class TraceRow(NamedTuple):
    """One trace with a solution.

    ``latency`` is the upper end of its interval in milliseconds, infinite where the trace has no
    time that means anything; ``speedup`` the lower end of its interval. Without intervals they are
    the figures themselves.
    """

    text: bytes
    definition: str
    solution: str
    status: str
    hardware: str
    workload: str
    axes: tuple[tuple[str, Any], ...]
    latency: float
    speedup: float

    @property
    def passed(self) -> bool:
        return self.status == _PASSED

    @property
    def timed(self) -> bool:
        return self.latency < math.inf


def row_of(text: bytes, data: Raw) -> TraceRow:
    """The row of a line of JSON and what that parses to.

    What looks odd is validated in full. Raises pydantic's ValidationError.
    """
    try:
        return _quick_row(text, data)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        trace = Trace.from_json(text)
    if trace.solution is None:
        raise ValueError("an evaluation of no solution")
    text = trace.to_json_line().encode()
    if trace.evaluation is not None:
        return _quick_row(text, trace.to_flashinfer())
    names, axes = (trace.definition, trace.solution), tuple(trace.workload.axes.items())
    return TraceRow(text, *names, "", "", trace.workload.uuid, axes, math.inf, 0.0)


def _quick_row(text: bytes, data: Raw) -> TraceRow:
    workload, evaluation = data["workload"], data["evaluation"]
    status = evaluation["status"]
    if status not in _STATUSES:
        raise ValueError(status)
    # Older records are flat.
    environment = evaluation.get("environment") or evaluation
    latency, speedup = math.inf, 0.0
    if status == _PASSED:
        latency, speedup = _times(evaluation.get("performance") or evaluation)
    return TraceRow(
        text,
        intern(data["definition"]),
        intern(data["solution"]),
        intern(status),
        intern(environment.get("hardware", "")),
        intern(workload.get("uuid") or ""),
        _one_of_its_kind(tuple(workload["axes"].items())),
        latency,
        speedup,
    )


@cache
def _one_of_its_kind(axes: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    """These axes, always the same object. Raises ValueError for what is no size."""
    if any(type(size) is not int or not 0 <= size <= MAX_SIZE for _, size in axes):
        raise ValueError(axes)
    return axes


def _times(performance: Mapping[str, Any]) -> tuple[float, float]:
    upper = _end(performance.get("ci_ms"), 1, performance.get("latency_ms"))
    lower = _end(performance.get("speedup_ci"), 0, performance.get("speedup_factor"))
    return (
        upper if 0 < upper < math.inf else math.inf,
        lower if 0 < lower < math.inf else 0.0,
    )


def _end(interval: Any, end: int, figure: Any) -> float:
    """An end of an interval; the figure itself where there is none, or one that isn't ours."""
    if type(interval) is list and len(interval) == 2 and type(interval[end]) in (float, int):
        return float(interval[end])
    return float(figure or math.nan)


@cache
def same_hardware(name: str) -> str:
    """``nvidia h200`` of ``NVIDIA_H200`` and ``NVIDIA H200``: how devices are compared."""
    return " ".join(re.split(r"[\W_]+", name.lower())).strip()


class Index:
    """The measured implementations of one definition, by hardware and shape.

    ``ranked`` has, for each hardware and shape (the sizes of the var axes, in order), the rows of
    the implementations that passed there and nowhere failed at that shape: one of each, best first.
    """

    def __init__(self, definition: Definition, rows: Sequence[TraceRow]) -> None:
        self.definition = definition
        self._rows = rows
        self._var_axes = definition.var_axes
        self._names = frozenset(self._var_axes)
        grouped = self._grouped()
        self.ranked: dict[str, dict[Shape, list[TraceRow]]] = {}
        for hardware, by_shape in grouped.items():
            ranked = {shape: _ranked(at_shape) for shape, at_shape in by_shape.items()}
            if best := {shape: rows for shape, rows in ranked.items() if rows}:
                self.ranked[hardware] = best
        self._at_shape = self._best_anywhere_at()
        self._most_gained = _most_gained(self.ranked)

    def _grouped(self) -> dict[str, dict[Shape, list[TraceRow]]]:
        grouped: dict[str, dict[Shape, list[TraceRow]]] = defaultdict(lambda: defaultdict(list))
        shapes = cache(self.shape)
        for row in self._rows:
            grouped[same_hardware(row.hardware)][shapes(row.axes)].append(row)
        return grouped

    def measured(self, hardware: str) -> dict[Shape, dict[str, list[TraceRow]]]:
        """The rows of each shape and solution; `ranked` has the first of them."""
        by_shape = self._grouped().get(hardware, {})
        return {shape: _always_right(rows) for shape, rows in by_shape.items()}

    def best(self, axes: Mapping[str, int] | None, hardware: str | None) -> TraceRow | None:
        """The best row: the fastest where all var axes are given, else that which gains most.

        Raises ValueError for an axis that the definition doesn't have.
        """
        if hardware is not None:
            hardware = same_hardware(hardware)
        if axes is None:
            return self._most_gained.get(hardware)
        try:
            shape = tuple([axes[name] for name in self._var_axes])
        except KeyError:
            return self._among(axes, hardware)
        if len(axes) > len(shape):
            self._refuse_unknown(axes)
        return self._at_shape.get((hardware, shape))

    def _best_anywhere_at(self) -> dict[tuple[str | None, Shape], TraceRow]:
        best: dict[tuple[str | None, Shape], TraceRow] = {}
        for hardware, by_shape in self.ranked.items():
            for shape, (row, *_) in by_shape.items():
                best[hardware, shape] = row
                other = best.get((None, shape), row)
                best[None, shape] = min(row, other, key=_latency_then_name)
        return best

    def _among(self, axes: Mapping[str, int], hardware: str | None) -> TraceRow | None:
        self._refuse_unknown(axes)
        wanted = [(self._var_axes.index(name), axes[name]) for name in axes if name in self._names]
        rows = (
            row
            for device, by_shape in self.ranked.items()
            if hardware in (None, device)
            for shape, (row, *_) in by_shape.items()
            if all(shape[i] == size for i, size in wanted)
        )
        return min(rows, key=_gain_then_name, default=None)

    def _refuse_unknown(self, axes: Mapping[str, int]) -> None:
        for name in axes:
            if name not in self.definition.axes:
                raise ValueError(unknown("axis", name, self.definition.axes))

    def shape(self, axes: Iterable[tuple[str, Any]]) -> Shape:
        """The sizes of the var axes, in order; -1 for one that isn't given."""
        sizes = dict(axes)
        return tuple(int(sizes.get(name, -1)) for name in self._var_axes)


def _latency_then_name(row: TraceRow) -> tuple[float, str]:
    return row.latency, row.solution


def _gain_then_name(row: TraceRow) -> tuple[float, str]:
    return -row.speedup, row.solution


def _ranked(rows: Sequence[TraceRow]) -> list[TraceRow]:
    """The fastest row of each solution that was always right, in the order of their mean times."""
    timed = _always_right(rows)
    means = {name: mean_latency(of) for name, of in timed.items()}
    order = sorted(timed, key=lambda name: (means[name], name))
    return [min(timed[name], key=lambda row: row.latency) for name in order]


def _always_right(rows: Iterable[TraceRow]) -> dict[str, list[TraceRow]]:
    """The rows with a time of each solution that failed in none of these.

    Of a solution that both failed and passed on one workload the last time counts: kernels are
    repaired, and machines are busy.
    """
    rows = list(rows)
    of_failed: dict[tuple[str, str], list[TraceRow]] = {
        (row.solution, row.workload): [] for row in rows if not row.passed
    }
    for row in rows if of_failed else ():
        if (at := (row.solution, row.workload)) in of_failed:
            of_failed[at].append(row)
    wrong = {solution for (solution, _), of in of_failed.items() if _failed_last(of)}
    timed: dict[str, list[TraceRow]] = defaultdict(list)
    for row in rows:
        if row.timed and row.solution not in wrong:
            timed[row.solution].append(row)
    return timed


def _failed_last(rows: Sequence[TraceRow]) -> bool:
    """Whether the last of these evaluations was a failure, or may have been."""
    if not any(row.passed for row in rows):
        return True
    _, failed = max((_timestamp(row), not row.passed) for row in rows)
    return failed


def without_repeats(rows: Iterable[TraceRow]) -> list[TraceRow]:
    """Each trace once; files differ in how they write one, and in what they have no place for."""
    return list({_what_was_found(row): row for row in rows}.values())


def _what_was_found(row: TraceRow) -> tuple[object, ...]:
    """What no two evaluations share. Without a time of day, only the same text is the same."""
    when = _timestamp(row)
    if not when:
        return (row.text.strip(),)
    return when, row.solution, row.workload, row.axes, row.hardware, row.status, row.latency


def _timestamp(row: TraceRow) -> str:
    """When it was, which only few need to know."""
    return str((from_json(row.text).get("evaluation") or {}).get("timestamp") or "")


def mean_latency(rows: Sequence[TraceRow]) -> float:
    """The mean of the upper ends of intervals, by which solutions are ranked."""
    return sum(row.latency for row in rows) / len(rows)


def _most_gained(
    ranked: Mapping[str, Mapping[Shape, Sequence[TraceRow]]],
) -> dict[str | None, TraceRow]:
    best: dict[str | None, TraceRow] = {
        hardware: min((rows[0] for rows in by_shape.values()), key=_gain_then_name)
        for hardware, by_shape in ranked.items()
        if by_shape
    }
    if best:
        best[None] = min(best.values(), key=_gain_then_name)
    return best
