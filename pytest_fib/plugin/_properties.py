"""An item's ``user_properties``, which JUnit's XML, pytest-json-report and others show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from pytest_fib.report import axis_sizes

if TYPE_CHECKING:
    from pytest_fib.data import Trace
    from pytest_fib.plugin._kernel_item import KernelItem

Property: TypeAlias = tuple[str, str | float]


def properties_of(item: KernelItem) -> list[Property]:
    """The item's identity, the place of its implementation and, once it ran, its results."""
    implementation, settings = item.implementation, item.settings
    properties: list[Property] = [
        *item.identity.items(),
        ("file", settings.shown(implementation.path)),
        ("line", implementation.line),
    ]
    if item.outcome.traces:
        properties += _results(item.outcome.traces[-1])
        properties.append(("traces", settings.shown(settings.traces)))
    return properties


def _results(trace: Trace) -> Iterator[Property]:
    evaluation = trace.evaluation
    assert evaluation is not None, "an item's traces are of evaluations"
    yield "workload", axis_sizes(trace.workload.axes)
    yield "status", evaluation.status.value
    extra = (evaluation.correctness and evaluation.correctness.extra) or {}
    if "bound_used" in extra:
        yield "error_share", extra["bound_used"]
    if evaluation.performance is not None:
        for name in ("latency_ms", "speedup_factor"):
            if (figure := getattr(evaluation.performance, name)) is not None:
                yield name, figure
