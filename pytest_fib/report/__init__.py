"""What people see of a run: tables, failures, times compared. It needs the records alone."""

from pytest_fib.report._failure import (
    axis_sizes,
    describe_comparison,
    describe_compile_error,
    describe_definition_fault,
    describe_evaluation,
    describe_slower,
    has_recorded_tensors,
    headline,
    message_only,
    replay_command,
    shown_size,
    workload_json,
)
from pytest_fib.report._github_job import append_github_summary, github_annotations
from pytest_fib.report._rows import Row
from pytest_fib.report._selection import write_selections
from pytest_fib.report._terminal import write_comparison, write_tables
from pytest_fib.report._times import Baseline, TimeComparison, TimeRecord, read_times
from pytest_fib.report._units import amount, duration, percent

__all__ = [
    "Baseline",
    "Row",
    "TimeComparison",
    "TimeRecord",
    "amount",
    "append_github_summary",
    "axis_sizes",
    "describe_comparison",
    "describe_compile_error",
    "describe_definition_fault",
    "describe_evaluation",
    "describe_slower",
    "duration",
    "github_annotations",
    "has_recorded_tensors",
    "headline",
    "message_only",
    "percent",
    "read_times",
    "replay_command",
    "shown_size",
    "workload_json",
    "write_comparison",
    "write_selections",
    "write_tables",
]
