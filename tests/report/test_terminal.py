"""The tables."""

import io
import re
from dataclasses import replace

import pytest

from pytest_fib.report import Baseline, Row, TimeComparison, write_comparison, write_tables

FACTS = {"definition": "op", "language": "python", "kind": "correctness", "label": "correctness"}
BASE = Baseline("base.jsonl", [])


def row(name, status="PASSED", category="passed", absolute=0.0, relative=0.0, share=0.0, **facts):
    evaluation = {
        "status": status,
        "log": "",
        "correctness": {
            "max_absolute_error": absolute,
            "max_relative_error": relative,
            "extra": {"bound_used": share},
        },
        "performance": facts.pop("performance", None),
    }
    trace = {"evaluation": evaluation, "workload": {"axes": {"batch": 7}}}
    return Row.of({**FACTS, "implementation": name, **facts}, category, trace)


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


def untested(name, category, reason="", **facts):
    return Row.of({**FACTS, "implementation": name, "reason": reason, **facts}, category, None)


def compared(name, size, now, before, **facts):
    comparison = {"now_ms": now, "before_ms": before, **facts}
    return row(name, kind="bench", label=f"bench-batch={size}", time_comparison=comparison)


@pytest.fixture
def written(pytestconfig):
    """Runs one of report's writers on a terminal of a width, and gives its lines."""

    def written(writer, *arguments, verbose=False, markup=False):
        file = io.StringIO()
        terminal = pytest.TerminalReporter(pytestconfig, file)
        terminal._tw.hasmarkup = markup
        terminal._tw.fullwidth = 80
        verbosity = pytestconfig.option.verbose
        pytestconfig.option.verbose = int(verbose)
        writer(terminal, *arguments)
        pytestconfig.option.verbose = verbosity
        return [line.rstrip() for line in file.getvalue().splitlines()]

    return written


@pytest.fixture
def table(written):
    """The lines of the tables of one definition, without its title."""

    def table(rows, width=80, baseline=None, **options):
        lines = written(write_tables, rows, width, baseline, **options)
        return lines[next(i for i, line in enumerate(lines) if " op " in line) + 1 :]

    return table


def test_a_table_says_how_right_and_how_fast(table):
    rows = [
        row("torch_row", absolute=4.9e-4, relative=9.12e-4, share=0.483),
        bench("torch_row", 8, 0.01234, 0.0245),
        bench("torch_row", 16384, 12.345, 1234.5, **PRODUCT),
        row("triton_row", "INCORRECT_NUMERICAL", "failed", 1.0, 1.0, 467.1, language="triton"),
        untested("cuda_v1", "skipped", "needs nvcc", language="cuda"),
        untested("broken", "failed"),
    ]
    assert table(rows) == [
        "implementation  language  status               error  of what is allowed, at",
        "broken          python    ERROR",
        "cuda_v1         cuda      SKIPPED  needs nvcc",
        "torch_row       python    PASSED                48 %  batch=7",
        "triton_row      triton    INCORRECT_NUMERICAL   467x  batch=7",
        "",
        "implementation  workload     latency  reference  speed-up   rate/s  roof",
        "torch_row       batch=8      12.3 µs    24.5 µs     1.99x  1.23 TB     -",
        "torch_row       batch=16384  12.3 ms     1.23 s   100.00x   712 TF  90 %",
        "",
        "memory traffic  separate   fused  less  operations",
        "batch=8          1.05 MB  790 kB  25 %           -",
        "batch=16384      1.05 MB  790 kB  25 %   137 GFLOP",
    ]


def test_a_title_that_has_no_room_goes_on_below(table):
    name = "an_implementation_with_quite_a_name"
    rows = [row(name, "INCORRECT_NUMERICAL", "failed", share=467.1), untested("other", "failed")]
    assert table(rows)[:3] == [
        "implementation              language  status               error  of what is",
        "                                                                  allowed, at",
        "an_implementa…quite_a_name  python    INCORRECT_NUMERICAL   467x  batch=7",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 140])
def test_columns_never_run_together_and_fit_the_terminal(table, width):
    name = "an_implementation_with_quite_a_name"
    wide = {"ceiling_share": 0.00053, "gigabytes_per_second": 2.28, "noisy": True}
    rows = [
        row(name, "INCORRECT_NUMERICAL", "failed", "-Infinity", "Infinity", "Infinity"),
        bench(name, 123456789012, 99.9, 999.9, **PRODUCT),
        bench(name, 3, 1.0, 99999.0, **wide, least_bytes=10**15, separate_bytes=10**16),
        untested("short", "skipped", "a reason " * 20, language="tilelang"),
        untested("short", "skipped", "a reason " * 20, kind="bench", label="bench-an_axis=123456"),
    ]
    lines = [line for line in table(rows, width) if line]
    # What stands in the columns of times takes 61 columns without its blanks.
    assert max(map(len, lines)) <= max(width, 62)
    [times] = [line for line in lines if "99999.00x" in line]
    assert re.search(r" 99999\.00x +2\.28 GB +0\.053 %$", times)
    [wrong] = [line for line in lines if "INCORRECT_NUMERICAL" in line]
    assert re.search(r"INCORRECT_NUMERICAL +∞( |$)", wrong)


def test_columns_are_as_wide_as_what_is_in_them_where_there_is_room(table):
    name = "an_implementation_with_quite_a_name"
    assert not any(line.startswith(name) for line in table([bench(name, 8, 1.0, 2.0)], 80))
    lines = table([bench(name, 8, 1.0, 2.0)], 140)
    assert [line.startswith(name) for line in lines if line.startswith("an_")] == [True, True]


@pytest.mark.parametrize("width", [40, 80])
def test_names_that_differ_are_told_apart_however_narrow_it_is(table, width):
    names = [f"{begin}_implementation_with_quite_a_name_of_a_kind" for begin in ("an", "one")]
    lines = table([bench(name, 8, 1.0, 2.0) for name in names], width)
    shown = [line.split()[0] for line in lines if line.startswith(("an", "one"))]
    assert len(set(shown[:2])) == 2
    assert all("…" in name for name in shown)


def test_what_all_names_begin_with_is_left_out_where_there_is_no_room_for_it(table):
    ways = ["of_one_kind", "of_other_kinds", "on_line"]
    lines = table([row(f"an_implementation_with_quite_a_name_{way}") for way in ways], 80)
    assert [line.split()[0] for line in lines[1:4]] == [f"…{way}" for way in ways]


def test_a_failed_bench_item_decides_the_status_of_its_implementation(table):
    rows = [row("a"), row("a", "RUNTIME_ERROR", "failed", kind="bench", label="bench-n=8")]
    assert table(rows)[1].split()[:3] == ["a", "python", "RUNTIME_ERROR"]


def test_what_is_skipped_for_one_reason_is_one_row(table):
    skipped = [
        untested("a", "skipped", reason, kind="bench", label=f"bench-n={n}")
        for n, reason in enumerate(["no device"] * 3 + ["too large"])
    ]
    lines = [line.split(maxsplit=3) for line in table(skipped)[4:]]
    assert lines == [
        ["a", "3", "workloads", "SKIPPED  no device"], ["a", "n=3", "SKIPPED", "too large"]
    ]  # fmt: skip


def test_a_skipped_bench_item_leaves_the_status_to_the_search(table):
    skipped = untested("a", "skipped", "too large, alas", kind="bench", label="bench-n=8")
    lines = table([row("a"), skipped])
    assert lines[1].split()[:3] == ["a", "python", "PASSED"]
    assert lines[4].split(maxsplit=3) == ["a", "n=8", "SKIPPED", "too large, alas"]


@pytest.mark.parametrize(
    ("status", "code"), [("PASSED", "32m"), ("TIMEOUT", "31m\x1b[1m"), ("SLOWER", "31m\x1b[1m")]
)
def test_a_status_has_its_colour_and_blanks_have_none(table, status, code):
    line = table([row("a", status)], markup=True)[1]
    assert f"\x1b[{code}{status}\x1b[0m" in line


@pytest.mark.parametrize(
    ("category", "status"),
    [
        ("skipped", "SKIPPED"),
        ("xfailed", "XFAIL"),
        ("xpassed", "XPASS"),
        ("error", "ERROR"),
        ("rerun", "RERUN"),
        ("quarantined", "QUARANTINED"),
    ],
)
def test_any_outcome_is_shown(table, category, status):
    assert table([untested("a", category)])[1].split() == ["a", "python", status]
    shown = ["a", "python", status, "0", "%", "batch=7"]
    assert table([row("a", category=category)])[1].split() == shown


def test_what_is_right_and_fails_all_the_same_is_no_pass(table):
    assert "FAILED" in table([row("a", category="failed")])[1]


def test_reruns_are_counted(table):
    assert table([row("a", reruns=1)])[1].endswith("0 %  batch=7  after 1 rerun")
    assert table([row("a", reruns=2)])[1].endswith("  after 2 reruns")


def test_definitions_of_one_name_have_a_table_each(written):
    rows = [row("a", file="kernel_defs/op.yaml"), row("b", file="data/op.json"), row("c", file="x")]
    rows[2] = replace(rows[2], definition="other")
    lines = written(write_tables, rows, 80)
    assert [line.strip("- ") for line in lines if line.startswith("---")] == [
        "op (data/op.json)",
        "op (kernel_defs/op.yaml)",
        "other",
    ]
    assert [line.split()[0] for line in lines if " PASSED" in line] == ["b", "a", "c"]


def test_rows_are_in_the_order_of_their_sizes(table):
    sizes = ["1024", "8", "16,k=2", "16,k=16"]
    lines = table([bench("a", size, 1.0, 2.0) for size in sizes])
    shown = [line.split()[1] for line in lines[4:8]]
    assert shown == ["batch=8", "batch=16,k=2", "batch=16,k=16", "batch=1024"]


def test_times_that_are_uncertain_say_how_much(table):
    lines = table([bench("a", 8, 1.0, 2.0, noisy=True, ci_ms=[0.98, 1.06])])
    assert " ~1.00 ms " in lines[4]
    assert lines[5] == "~ noisy: uncertain by up to ±4 %"


def test_a_reference_that_does_not_run_in_float64_is_told_once(table):
    rows = [row(name) for name in ("one", "two")]
    assert len(table(rows, verbose=True)) == 3
    without = [replace(each, no_oracle="AssertionError: it has to be float16") for each in rows]
    assert len(table(without)) == 3
    assert table(without, verbose=True)[3:] == [
        "expected values are in the reference's own precision, not float64:",
        "  AssertionError: it has to be float16",
    ]


CLOSE = {"low": 0.99, "high": 1.01}


def test_sizes_that_were_left_out_as_too_large_are_said(table):
    left_out = "batch=65536: RuntimeError: can't allocate memory"
    rows = [replace(row("torch_row"), left_out=left_out), row("triton_row")]
    said = f"torch_row: left out as too large: {left_out}"
    assert " ".join(map(str.strip, table(rows)[3:])) == said


def test_a_comparison_says_what_was_what_is_and_what_that_means(table):
    rows = [
        compared("torch_row", 8, 0.0129, 0.0123, low=1.03, high=1.07),
        compared("torch_row", 32, 0.9, 1.0, low=0.88, high=0.92),
        compared("torch_row", 64, 1.0, 1.0, **CLOSE),
        compared("torch_row", 512, 1.04, 1.0, low=0.9, high=1.2),
        compared("torch_row", 4096, 20.0, 1.0, low=19.8, high=20.2),
        compared("triton_row", 8, 9.0, 1.0, reason="a time has no confidence interval"),
        compared("triton_row", 32, 1.0, None, reason="not in base.jsonl"),
        row("triton_row"),
    ]
    lines = table(rows, 80, BASE)
    assert lines[-7:] == [
        "implementation  workload     before      now    change    ±",
        "torch_row       batch=8     12.3 µs  12.9 µs    +4.9 %   ±2  slower",
        "torch_row       batch=32    1.00 ms   900 µs   -10.0 %   ±2  faster",
        "torch_row       batch=64    1.00 ms  1.00 ms    +0.0 %   ±1  same",
        "torch_row       batch=512   1.00 ms  1.04 ms    +4.0 %  ±15  unclear",
        "torch_row       batch=4096  1.00 ms  20.0 ms     x20.0  ±20  slower",
        "triton_row      batch=8     1.00 ms  9.00 ms  +800.0 %    ?  unclear",
    ]
    coloured = table(rows, 80, BASE, markup=True)
    assert coloured[-6].endswith("\x1b[31mslower\x1b[0m")
    assert coloured[-5].endswith("\x1b[32mfaster\x1b[0m")
    assert coloured[-4].endswith("  same")


def test_with_more_to_be_said_a_comparison_says_with_what(table):
    facts = {
        "solution": "triton_row",
        "timestamp": "2026-11-20T11:54:50.467563+00:00",
        "method": "cuda graph, cold L2",
    }
    lines = table([compared("a", 8, 1.0, 1.0, **CLOSE, **facts)], 80, BASE, verbose=True)
    assert lines[-1] == "  against triton_row, 2026-11-20 11:54, cuda graph, cold L2"
    long = replace(TimeComparison(1.0, 1.0, **CLOSE, **facts), method="by a clock " * 9)
    [row] = [replace(compared("a", 8, 1.0, 1.0), time_comparison=long)]
    assert len(table([row], 80, BASE, verbose=True)[-1]) == 80


def test_the_best_is_called_so(table):
    best = Baseline("the best known", [], best=True)
    lines = table([compared("a", 8, 1.0, 1.0, **CLOSE)], 80, best)
    assert lines[-2].split()[2:4] == ["best", "now"]


def test_without_anything_to_compare_there_is_no_table(table):
    rows = [compared("a", 8, 1.0, None, reason="not in base.jsonl"), row("a")]
    assert not any("change" in line for line in table(rows, 80, BASE) + table([row("a")]))


def test_comparisons_are_counted_and_those_that_cannot_be_made_are_grouped(written):
    rows = [
        compared("a", 1, 1.2, 1.0, low=1.1, high=1.3, reason="the reference, too"),
        *[compared("a", 2, 1.0, 1.0, **CLOSE)] * 2,
        compared("a", 3, 1.0, 1.0, reason="a time has no confidence interval"),
        *[compared("a", n, 1.0, None, reason="measured on A100, now on H200") for n in range(3)],
        compared("a", 8, 1.0, None, reason="not in base.jsonl"),
        row("a"),
    ]
    assert written(write_comparison, rows, 80, BASE) == [
        "4 times compared with base.jsonl: 2 same, 1 slower, 1 unclear",
        "1 unclear: a time has no confidence interval",
        "3 not compared: measured on A100, now on H200",
        "1 not compared: not in base.jsonl",
    ]
    assert written(write_comparison, rows[7:], 80, BASE)[0] == "no times compared with base.jsonl"
    one = written(write_comparison, rows[:1], 80, BASE)
    assert one == ["1 time compared with base.jsonl: 1 slower"]


def test_what_is_right_but_too_slow_is_no_pass(table):
    comparison = {"now_ms": 2.0}
    slow = row("a", category="failed", kind="bench", label="bench-n=8", time_comparison=comparison)
    assert table([row("a"), slow])[1].split()[:3] == ["a", "python", "SLOWER"]


def test_what_is_right_and_was_not_timed_says_why(table):
    reason = "not timed: its outputs are empty"
    untimed = replace(row("a", kind="bench", label="bench-n=0"), reason=reason)
    assert table([untimed])[4] == f"a               n=0       PASSED  {reason}"
    long = replace(untimed, status="SKIPPED", reason="x" * 80)
    assert len(table([long])[4]) == 80


def test_a_reason_to_skip_that_a_table_cuts_is_below_it_once(table):
    reason = "needs apache-tvm-ffi, which is not installed there: pip install 'pytest-fib[cuda]'"
    skipped = [untested(name, "skipped", reason) for name in "ab"]
    short = untested("c", "skipped", "no device")
    lines = table([*skipped, short])
    assert [line[-1] for line in lines[1:4]] == ["…", "…", "e"]
    assert " ".join(line.strip() for line in lines[4:]) == f"skipped: {reason}"
    assert lines[5] == "  'pytest-fib[cuda]'"
    assert max(map(len, lines)) <= 80
