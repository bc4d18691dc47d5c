"""The tables."""

from dataclasses import replace

import pytest

from pytest_fib.report.rows import row_of
from pytest_fib.report.terminal import _place, duration, oracle_notes, table

FACTS = {"definition": "op", "language": "python", "kind": "correctness", "label": "correctness"}


def row(name, status="PASSED", outcome="passed", absolute=0.0, relative=0.0, **facts):
    correctness = {"max_absolute_error": absolute, "max_relative_error": relative}
    performance = facts.pop("performance", None)
    evaluation = {
        "status": status,
        "log": "",
        "correctness": correctness,
        "performance": performance,
    }
    return row_of({**FACTS, "implementation": name, **facts}, outcome, {"evaluation": evaluation})


def bench(name, size, milliseconds, reference):
    performance = {
        "latency_ms": milliseconds,
        "reference_latency_ms": reference,
        "speedup_factor": reference / milliseconds,
        "gigabytes_per_second": 1234.5,
    }
    return row(name, kind="bench", label=f"bench-batch={size}", performance=performance)


def untested(name, outcome, reason="", **facts):
    return row_of({**FACTS, "implementation": name, "reason": reason, **facts}, outcome, None)


def text(rows):
    return ["".join(piece for piece, _ in line).rstrip() for line in table(rows)]


def test_a_table_says_how_right_and_how_fast():
    rows = [
        row("torch_row", absolute=4.9e-4, relative=9.12e-4),
        bench("torch_row", 8, 0.01234, 0.0245),
        bench("torch_row", 16384, 12.345, 1234.5),
        row("triton_row", "INCORRECT_NUMERICAL", "failed", "Infinity", 1.0, language="triton"),
        untested("cuda_v1", "skipped", "no builder for 'cuda' yet", language="cuda"),
        untested("broken", "failed"),
    ]
    assert text(rows) == [
        "implementation        language status                 max abs   max rel",
        "torch_row             python   PASSED                 4.9e-04   9.1e-04",
        "triton_row            triton   INCORRECT_NUMERICAL   Infinity   1.0e+00",
        "cuda_v1               cuda     SKIPPED  no builder for 'cuda' yet",
        "broken                python   ERROR                        -         -",
        "",
        "implementation        workload              latency  reference  speed-up    GB/s",
        "torch_row             batch=8               12.3 µs    24.5 µs     1.99x    1234",
        "torch_row             batch=16384           12.3 ms     1.23 s   100.00x    1234",
    ]


def test_a_failed_bench_item_decides_the_status_of_its_implementation():
    rows = [row("a"), row("a", "RUNTIME_ERROR", "failed", kind="bench", label="bench-n=8")]
    assert text(rows)[1].split()[:3] == ["a", "python", "RUNTIME_ERROR"]


def test_a_skipped_bench_item_leaves_the_status_to_the_search():
    skipped = untested(
        "a", "skipped", "too large for this machine, alas", kind="bench", label="bench-n=8"
    )
    lines = text([row("a"), skipped])
    assert lines[1].split()[:3] == ["a", "python", "PASSED"]
    assert (
        lines[4] == "a                     n=8               SKIPPED  too large for this machine, …"
    )


@pytest.mark.parametrize(
    ("status", "markup"),
    [
        ("PASSED", {"green": True}),
        ("TIMEOUT", {"red": True, "bold": True}),
        ("INCORRECT_SHAPE", {"red": True, "bold": True}),
    ],
)
def test_a_status_has_its_colour(status, markup):
    line = table([row("a", status)])[1]
    assert [m for piece, m in line if piece.strip() == status] == [markup]


def test_rows_are_in_the_order_of_their_sizes():
    labels = [
        "bench-batch=1024",
        "correctness",
        "bench-batch=8",
        "bench-batch=16,k=2",
        "bench-batch=16,k=16",
    ]
    rows = [row("a", kind="bench", label=label) for label in labels]
    assert [r.label for r in sorted(rows, key=_place)] == [
        "bench-batch=8",
        "bench-batch=16,k=2",
        "bench-batch=16,k=16",
        "bench-batch=1024",
        "correctness",
    ]


def test_no_line_is_longer_than_80_columns():
    name = "an_implementation_with_quite_a_name"
    reason = "a reason that goes on for longer than anybody would read it to the end"
    rows = [
        row(name, "INCORRECT_NUMERICAL", absolute="-Infinity", relative="Infinity"),
        bench(name, 123456789012, 99.9, 999.9),
        untested(name, "skipped", reason, language="tilelang"),
        untested(name, "skipped", reason, kind="bench", label="bench-a_long_axis=123456,k=12345"),
    ]
    for i in range(len(rows)):
        assert max(len(line) for line in text(rows[: i + 1])) <= 80


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0.00186, "1.86 µs"),
        (0.0123, "12.3 µs"),
        (0.5, "500 µs"),
        (1.0, "1.00 ms"),
        (999, "999 ms"),
        (2500, "2.50 s"),
    ],
)
def test_a_duration_has_three_digits_and_a_unit(milliseconds, shown):
    assert duration(milliseconds) == shown


def test_a_reference_that_does_not_run_in_float64_is_told_once():
    reason = "AssertionError: it has to be float16"
    rows = [row(name) for name in ("one", "two")]
    assert oracle_notes(rows) == []
    without = [replace(each, no_oracle=reason) for each in rows]
    assert oracle_notes(without) == [
        "oracle: the reference's own precision, not float64: AssertionError: it has to be",
        "  float16",
    ]
