"""The job summary: what of a run a pull request shows."""

import subprocess
import sys

import pytest

from pytest_fib.data import Correctness, Environment, Evaluation, Performance, Trace, Workload
from pytest_fib.report import Baseline, TimeRecord
from pytest_fib.report.github import ROW_LIMIT, TEXT_LIMIT, main, summary

H200 = Environment(hardware="NVIDIA H200", libs={"torch": "2.13.0", "cuda": "13.0"})
CLOSE = Correctness(max_relative_error=2.5e-3, max_absolute_error=1e-4, extra={"bound_used": 0.25})
FAST = Performance(
    latency_ms=0.0123,
    reference_latency_ms=0.0369,
    speedup_factor=3.0,
    gigabytes_per_second=1350.0,
    teraflops_per_second=0.0,
    ceiling_share=0.338,
    bound_by="memory",
    least_bytes=790_000,
    separate_bytes=1_050_000,
    method="events, cold L2",
    ci_ms=[0.0122, 0.0124],
)
SLOW = FAST.model_copy(update={"latency_ms": 0.0246, "ci_ms": [0.0244, 0.0248]})


def trace(status="PASSED", batch=8, solution="triton_row", **fields):
    correctness = CLOSE if status in ("PASSED", "INCORRECT_NUMERICAL") else None
    return Trace(
        definition="rmsnorm_d4096",
        solution=solution,
        workload=Workload(axes={"batch": batch}),
        evaluation=Evaluation(status=status, environment=H200, correctness=correctness, **fields),
    )


def rows(text, title):
    """The cells of one table's rows."""
    _, found, rest = text.partition(f"### {title}\n\n")
    assert found, f"no table {title!r} in:\n{text}"
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_it_says_how_many_passed_and_on_what():
    text = summary([trace(performance=FAST), trace("TIMEOUT")])
    assert "**1 of 2 evaluations passed** on NVIDIA H200 (cuda 13.0, torch 2.13.0)." in text


def test_a_timed_trace_is_a_row_of_times():
    [cells] = rows(summary([trace(performance=FAST)]), "Times")
    assert cells[:6] == [
        r"rmsnorm\_d4096", r"triton\_row", "batch=8", "12.3 µs", "36.9 µs", "3.00x"
    ]  # fmt: skip
    assert cells[6:] == ["1.35e+03", "-", "34 % (memory)", "790 kB", "1.05 MB"]


def test_a_time_without_a_reference_or_traffic_is_shown_all_the_same():
    bare = trace(performance=Performance(latency_ms=2.0))
    assert rows(summary([bare]), "Times")[0][3:] == ["2.00 ms", *"-------"]


def earlier(*traces):
    return Baseline("base.jsonl", [TimeRecord.from_trace(t) for t in traces])


def test_against_earlier_times_it_says_what_became_slower():
    text = summary([trace(performance=SLOW)], earlier(trace(performance=FAST)))
    [cells] = rows(text, "Compared")
    assert cells[2:6] == ["batch=8", "12.3 µs", "24.6 µs", "+100.0 % ±3.05"]
    assert cells[6] == "🔺 slower"
    assert "\n- 1 time compared with base.jsonl: 1 slower\n" in text


def test_what_cannot_be_compared_is_said_in_one_line():
    text = summary([trace(performance=FAST)], earlier(trace(performance=FAST, batch=9)))
    assert text.count("Compared") == 1
    assert "\n- no times compared with base.jsonl\n- 1 not compared: not in base.jsonl\n" in text


def test_an_untimed_trace_is_a_row_of_correctness():
    assert rows(summary([trace()]), "Correctness")[0][2:] == ["batch=8", "25 %"]


def test_a_failure_is_shown_with_the_first_line_of_its_log():
    text = summary([trace("RUNTIME_ERROR", log="ValueError: no\nTraceback ..."), trace()])
    assert rows(text, ":x: Failures")[0][2:] == ["batch=8", r"RUNTIME\_ERROR", "ValueError: no"]


def test_workloads_are_sorted_as_numbers():
    text = summary([trace(batch=n, performance=FAST) for n in (32, 4096, 8)])
    assert [row[2] for row in rows(text, "Times")] == ["batch=8", "batch=32", "batch=4096"]


def test_what_a_program_prints_cannot_leave_its_cell():
    text = summary([trace("RUNTIME_ERROR", log="a | b <img src=x> `c`" + "d" * 2 * TEXT_LIMIT)])
    (row,) = rows(text, ":x: Failures")
    assert row[4].startswith(r"a \| b \<img src=x\> \`c\`d")
    assert len(row[4]) < TEXT_LIMIT + 20


@pytest.mark.parametrize(
    ("log", "cell"),
    [
        ("\x1b[2J\x1b]0;t\x07 a\rb", r"\\x1b\[2J\\x1b\]0;t\\x07 a\\x0db"),
        ("::error file=a::b ##[group]c", r"\\x3a:error file=a::b \\x23#\[group\]c"),
        ("a &#124; $\\frac{1}{2}$", r"a \&#124; \$\\frac{1}{2}\$"),
        ("\u202ecba\u2028d", r"\\u202ecba\\u2028d"),
    ],
    ids=["control", "commands", "entities and formulas", "direction"],
)
def test_what_a_program_prints_is_text_and_nothing_else(log, cell):
    (row,) = rows(summary([trace("RUNTIME_ERROR", log=log)]), ":x: Failures")
    assert row[4] == cell


def test_names_of_devices_are_text_and_nothing_else():
    where = Environment(hardware="a\x1b<b>", libs={"c": "|\n"})
    text = summary(
        [trace().model_copy(update={"evaluation": Evaluation(status="TIMEOUT", environment=where)})]
    )
    assert r" on a\\x1b\<b\> (c \|)." in text


def test_a_long_table_is_cut_and_says_so():
    text = summary([trace(batch=n) for n in range(ROW_LIMIT + 3)])
    assert len(rows(text, "Correctness")) == ROW_LIMIT
    assert text.endswith("… and 3 more.\n")


def test_recorded_workloads_are_no_evaluations():
    recorded = Trace(definition="rmsnorm_d4096", workload=Workload(axes={"batch": 1}))
    assert summary([recorded]) == "## Kernels\n\nNo evaluations.\n"


def test_the_command_prints_the_summary_of_all_files(tmp_path, capsys):
    for name, batch in (("a.jsonl", 1), ("b.jsonl", 2)):
        line = trace(batch=batch).to_json_line()
        (tmp_path / name).write_text(f"{line}\n", encoding="utf-8")
    main([str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")])
    assert "2 of 2 evaluations passed" in capsys.readouterr().out


def test_the_command_compares_with_a_file(tmp_path, capsys):
    for name, performance in (("now", SLOW), ("base", FAST)):
        line = trace(performance=performance).to_json_line()
        (tmp_path / f"{name}.jsonl").write_text(f"{line}\n", encoding="utf-8")
    main([str(tmp_path / "now.jsonl"), "--compare", str(tmp_path / "base.jsonl")])
    assert "1 slower" in capsys.readouterr().out


@pytest.mark.parametrize("content", [None, "{}\n"], ids=["missing", "no trace"])
def test_a_file_that_cannot_be_read_is_one_line_and_a_failure(tmp_path, content):
    path = tmp_path / "traces.jsonl"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    command = [sys.executable, "-m", "pytest_fib.report.github", str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert "traces.jsonl" in run.stderr
    assert "Traceback" not in run.stderr
