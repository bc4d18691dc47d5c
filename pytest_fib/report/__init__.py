"""What people see of a run: tables, failures, times compared. It needs the records alone."""

from pytest_fib.report._failure import (
    axis_sizes as axis_sizes,
    describe_comparison as describe_comparison,
    describe_compile_error as describe_compile_error,
    describe_definition_fault as describe_definition_fault,
    describe_evaluation as describe_evaluation,
    describe_slower as describe_slower,
    message_only as message_only,
    replay_command as replay_command,
    shown_size as shown_size,
    workload_json as workload_json,
)
from pytest_fib.report._github_job import (
    append_github_summary as append_github_summary,
    github_annotations as github_annotations,
)
from pytest_fib.report._rows import Row as Row
from pytest_fib.report._selection import write_selections as write_selections
from pytest_fib.report._terminal import (
    write_comparison as write_comparison,
    write_tables as write_tables,
)
from pytest_fib.report._times import (
    Baseline as Baseline,
    TimeComparison as TimeComparison,
    TimeRecord as TimeRecord,
    read_times as read_times,
)
from pytest_fib.report._units import (
    amount as amount,
    duration as duration,
    percent as percent,
    times as times,
)
