"""The tables."""

from dataclasses import replace

import pytest

from pytest_fib.report.compare import Baseline
from pytest_fib.report.rows import row_of
from pytest_fib.report.terminal import _place, comparison_table, oracle_notes, table
from pytest_fib.report.units import amount, duration, percent

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


#: Of a large product of matrices.
PRODUCT = {
    "flops": 137_000_000_000,
    "teraflops_per_second": 712.3,
    "bound_by": "compute",
    "ceiling_share": 0.902,
}


def bench(name, size, milliseconds, reference, **figures):
    performance = {
        "latency_ms": milliseconds,
        "reference_latency_ms": reference,
        "speedup_factor": reference / milliseconds,
        "gigabytes_per_second": 1234.5,
        "least_bytes": 790_000,
        "separate_bytes": 1_050_000,
        **figures,
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
        bench("torch_row", 16384, 12.345, 1234.5, **PRODUCT),
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
        "implementation      workload            latency reference speed-up  rate/s  roof",
        "torch_row           batch=8             12.3 µs   24.5 µs    1.99x 1.23 TB     -",
        "torch_row           batch=16384         12.3 ms    1.23 s  100.00x  712 TF  90 %",
        "",
        "traffic of workload                  separate       fused    less   operations",
        "batch=8                               1.05 MB      790 kB    25 %            -",
        "batch=16384                           1.05 MB      790 kB    25 %    137 GFLOP",
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
        lines[4] == "a                   n=8              SKIPPED  too large for this machine, alas"
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
        bench(name, 123456789012, 99.9, 999.9, **PRODUCT),
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


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (24, "24.0 B"),
        (24_600, "24.6 kB"),
        (790_000, "790 kB"),
        (5_280_000, "5.28 MB"),
        (3e12, "3.00 TB"),
    ],
)
def test_an_amount_has_a_decimal_prefix(number, shown):
    assert amount(number, "B") == shown


@pytest.mark.parametrize(("share", "shown"), [(0.034, "3.4 %"), (0.9, "90 %"), (1.1, "110 %")])
def test_a_share_is_in_percent(share, shown):
    assert percent(share) == shown


def compared(name, size, now, before, **facts):
    comparison = {"now_ms": now, "before_ms": before, **facts}
    return row(name, kind="bench", label=f"bench-batch={size}", comparison=comparison)


CLOSE = {"low": 0.99, "high": 1.01}
BASE = Baseline("base.jsonl", [])


def test_a_comparison_says_what_was_what_is_and_what_that_means():
    rows = [
        compared("torch_row", 8, 0.0129, 0.0123, low=1.03, high=1.07),
        compared("torch_row", 32, 0.9, 1.0, low=0.88, high=0.92),
        compared("torch_row", 64, 1.0, 1.0, **CLOSE),
        compared("torch_row", 512, 1.04, 1.0, low=0.9, high=1.2),
        compared("torch_row", 4096, 20.0, 1.0, low=19.8, high=20.2),
        compared("triton_row", 8, 1.0, 1.0, reason="without a confidence interval, …"),
        compared("triton_row", 32, 1.0, None, reason="not in base.jsonl"),
        row("triton_row"),
    ]
    lines = comparison_table(rows, BASE)
    assert ["".join(piece for piece, _ in line).rstrip() for line in lines] == [
        "",
        "implementation      workload             before       now   change     ±",
        "torch_row           batch=8             12.3 µs   12.9 µs   +4.9 %    ±2 slower",
        "torch_row           batch=32            1.00 ms    900 µs  -10.0 %    ±2 faster",
        "torch_row           batch=64            1.00 ms   1.00 ms   +0.0 %    ±1 same",
        "torch_row           batch=512           1.00 ms   1.04 ms   +4.0 %   ±15 unclear",
        "torch_row           batch=4096          1.00 ms   20.0 ms    x20.0   ±20 slower",
        "triton_row          batch=8             1.00 ms   1.00 ms   +0.0 %     ? unclear",
    ]
    markup = [line[1][1] for line in lines[2:5]]
    assert markup == [{"red": True}, {"green": True}, {}]


def test_with_more_to_be_said_a_comparison_says_with_what():
    facts = {
        "solution": "triton_row",
        "timestamp": "2026-11-20T11:54:50.467563+00:00",
        "method": "cuda graph, cold L2",
    }
    lines = comparison_table([compared("a", 8, 1.0, 1.0, **CLOSE, **facts)], BASE, verbose=True)
    text = "  against triton_row, 2026-11-20 11:54, cuda graph, cold L2"
    assert lines[-1] == [(text, {})]


def test_the_best_is_called_so():
    [_, heading, _] = comparison_table(
        [compared("a", 8, 1.0, 1.0, **CLOSE)], Baseline("the best known", [], best=True)
    )
    assert heading[0][0].split()[2:4] == ["best", "now"]


def test_without_anything_to_compare_there_is_no_table():
    rows = [compared("a", 8, 1.0, None, reason="not in base.jsonl"), row("a")]
    assert comparison_table(rows, BASE) == []
    assert comparison_table([row("a")], None) == []


def test_no_line_of_a_comparison_is_longer_than_80_columns():
    facts = {"solution": "a" * 40, "timestamp": "2026-11-20T11:54:50", "method": "by a clock " * 9}
    wide = compared("a" * 40, "1234567890123456789", 999.0, 0.00999, low=1e3, high=1e6, **facts)
    lines = comparison_table([wide], BASE, verbose=True)
    assert max(sum(len(piece) for piece, _ in line) for line in lines) <= 80


def test_what_is_right_but_too_slow_is_no_pass():
    slow = row("a", outcome="failed", kind="bench", label="bench-n=8", comparison={"now_ms": 2.0})
    assert text([row("a"), slow])[1].split()[:3] == ["a", "python", "SLOWER"]


def test_what_is_right_and_was_not_timed_says_why():
    reason = "not timed: its outputs are empty"
    found = replace(row("a", kind="bench", label="bench-n=0"), reason=reason)
    line = text([found])[4]
    assert line == f"a                   n=0              PASSED  {reason}"
    long = replace(found, status="SKIPPED", reason="x" * 80)
    assert len(text([long])[4]) == 80
