"""Which differences between times are credible, and which times can be compared at all."""

import json
from dataclasses import asdict
from math import exp, log

import pytest

from pytest_fib.data import Correctness, DataError, Environment, Evaluation, Trace, Workload
from pytest_fib.report import Baseline, TimeComparison, TimeRecord, read_times

GRAPH = "cuda graph, cold L2"
#: What two processes add to the uncertainty of a ratio.
PROCESSES = 0.01


def trace(ms=1.0, *, width=0.002, solution="mine", batch=8, hardware="H200", day=1, **facts):
    """A timed trace; ``width`` is half that of its interval, relatively."""
    workload = facts.pop("workload", None) or Workload(axes={"batch": batch})
    interval = {} if width is None else {"ci_ms": [ms * exp(-width), ms * exp(width)]}
    return Trace(
        definition="rmsnorm",
        solution=solution,
        workload=workload,
        evaluation=Evaluation(
            status="PASSED",
            environment=Environment(hardware=hardware),
            timestamp=f"2026-01-{day:02d}T00:00:00+00:00",
            correctness=Correctness(max_relative_error=0.0, max_absolute_error=0.0),
            performance={"latency_ms": ms, "method": GRAPH, **interval, **facts},
        ),
    )


def versus(now, *before, best=False):
    """How a trace compares with earlier ones."""
    baseline = Baseline("base", map(TimeRecord.from_trace, before), best=best)
    return baseline.compare(TimeRecord.from_trace(now))


def test_a_ratio_is_off_by_both_times_and_by_what_processes_differ():
    found = versus(trace(1.2, width=0.03), trace(1.0, width=0.04))
    width = (0.03**2 + 0.04**2 + PROCESSES**2) ** 0.5
    assert found.relative_change == pytest.approx(0.2)
    assert (log(found.low / 1.2), log(found.high / 1.2)) == pytest.approx((-width, width))


@pytest.mark.parametrize(
    ("ms", "width", "change"),
    [
        (1.0, 0.001, "same"),
        (1.009, 0.0, "same"),  # processes differ by as much
        (0.991, 0.0, "same"),
        (1.02, 0.001, "slower"),
        (0.98, 0.001, "faster"),
        (1.02, 0.1, "unclear"),
        (0.9, 0.2, "unclear"),
        (1.3, 0.1, "slower"),
    ],
)
def test_a_change_is_what_the_interval_supports(ms, width, change):
    assert versus(trace(ms, width=width), trace(1.0, width=0.0)).change == change


@pytest.mark.parametrize(
    ("ms", "width", "expected"),
    [(1.1, 0.001, True), (1.055, 0.001, False), (1.1, 0.1, False), (0.9, 0.001, False)],
)
def test_slower_by_more_than_a_limit_is_the_whole_interval(ms, width, expected):
    assert versus(trace(ms, width=width), trace(1.0)).slower_than(0.05) is expected


@pytest.mark.parametrize("interval", [None, [], [1.0], "wide", [None, 1.0], [1.1, 0.9], [0, 1]])
def test_without_an_interval_nothing_is_decided(interval):
    found = versus(trace(2.0), trace(1.0, ci_ms=interval, width=None))
    assert (found.relative_change, found.change, found.slower_than(0.05)) == (1.0, "unclear", False)
    assert found.reason == "a time has no confidence interval"


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (trace(solution="other"), "not in base"),
        (trace(batch=16), "not in base"),
        (trace(hardware="A100"), "measured on A100, now on H200"),
        (trace(method="events, cold L2"), f"timed by events, cold L2, now by {GRAPH}"),
        (trace(method=""), "the record does not say how it was timed"),
    ],
)
def test_what_cannot_be_compared_says_why(before, reason):
    assert versus(trace(), before) == TimeComparison(now_ms=1.0, reason=reason)


def test_of_several_records_the_latest_that_can_be_compared_counts():
    before = [trace(1.0, day=1), trace(2.0, day=3), trace(3.0, day=2)]
    assert versus(trace(), *before).before_ms == 2.0
    assert versus(trace(), *before, trace(4.0, day=9, hardware="A100")).before_ms == 2.0


def test_the_best_is_the_least_time_of_any_implementation_on_the_same_workload():
    before = [
        trace(2.0, solution="mine"),
        trace(0.5, solution="other"),
        trace(0.1, solution="other", batch=16),
        trace(0.1, solution="other", hardware="B200"),
    ]
    found = versus(trace(), *before, best=True)
    assert (found.before_ms, found.solution) == (0.5, "other")


def test_generated_workloads_are_the_same_whatever_their_uuids():
    before = trace(workload=Workload(axes={"batch": 8}, uuid="made-up"))
    assert versus(trace(), before).before_ms == 1.0
    seeded = trace(workload=Workload(axes={"batch": 8}, seed=1))
    assert versus(trace(), seeded).reason == "not in base"


def test_recorded_tensors_are_the_same_only_with_the_same_uuid():
    def recorded(uuid):
        given = {"x": {"type": "safetensors", "path": "x.safetensors", "tensor_key": "x"}}
        return trace(workload=Workload(axes={"batch": 8}, inputs=given, uuid=uuid))

    assert versus(recorded("a"), recorded("a")).before_ms == 1.0
    assert versus(recorded("a"), recorded("b")).reason == "not in base"


def test_what_has_no_time_is_not_compared():
    failed = Evaluation(status="RUNTIME_ERROR", environment=Environment(hardware="H200"))
    without = trace().model_copy(update={"evaluation": failed})
    assert TimeRecord.from_trace(without) is None
    assert TimeRecord.from_trace(Trace(definition="rmsnorm", workload=Workload(axes={}))) is None


def test_a_baseline_is_the_same_after_a_journey():
    before = Baseline(
        "base",
        [TimeRecord.from_trace(trace(2.0)), TimeRecord.from_trace(trace(width=None, batch=9))],
        best=True,
    )
    after = Baseline.from_json(before.to_json())
    assert (after.name, after.best, after.records) == (before.name, before.best, before.records)


def test_a_comparison_is_the_same_after_a_journey():
    found = versus(trace(1.2), trace())
    assert TimeComparison(**json.loads(json.dumps(asdict(found)))) == found


@pytest.fixture
def write(tmp_path):
    """Writes traces to a file of the test's directory."""

    def write(path, *traces):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{t.to_json_line()}\n" for t in traces))
        return file

    return write


def test_times_come_from_a_file_a_folder_or_a_dataset(write, tmp_path):
    file = write("run/a.jsonl", trace(1.0), Trace(definition="d", workload=Workload(axes={})))
    write("run/more/b.jsonl", trace(2.0))
    assert [t.latency_ms for t in read_times(file)] == [1.0]
    assert [t.latency_ms for t in read_times(tmp_path / "run")] == [1.0, 2.0]
    write("set/traces/me/rmsnorm/rmsnorm.jsonl", trace(3.0))
    write("set/other.jsonl", trace(4.0))
    assert [t.latency_ms for t in read_times(tmp_path / "set")] == [3.0]


def test_a_file_of_something_else_is_an_error(tmp_path):
    file = tmp_path / "x.jsonl"
    file.write_text('{"a": 1}\n')
    with pytest.raises(DataError, match=r"x\.jsonl:1: "):
        read_times(file)


@pytest.mark.parametrize("ms", ["NaN", "Infinity", "-Infinity", 0.0, -1.0])
def test_what_is_no_time_is_not_compared(ms):
    assert TimeRecord.from_trace(trace(width=None, latency_ms=ms)) is None


@pytest.mark.parametrize(
    "ci_ms",
    [
        *(["NaN", 1.1], [0.9, "Infinity"], [float("nan")] * 2, [0.9, float("inf")], [0.0, 1.1]),
        *([1.1, 0.9], [2.0, 3.0], [0.9], [True, 2], "0.9", None, {}),
    ],
)
def test_what_is_no_interval_decides_nothing(ci_ms):
    found = versus(trace(3.0), trace(width=None, ci_ms=ci_ms))
    assert (found.before_ms, found.low, found.high) == (1.0, None, None)
    assert (found.change, found.slower_than(0.05)) == ("unclear", False)


def test_an_interval_may_be_of_any_numbers():
    found = versus(trace(8.0), trace(2.0, width=None, ci_ms=[2, 2.5]))
    assert found.change == "slower"


@pytest.mark.parametrize("method", [None, 7, ["cuda graph"]])
def test_a_method_that_is_no_text_is_none(method):
    found = versus(trace(), trace(method=method))
    assert found.reason == "the record does not say how it was timed"


@pytest.mark.parametrize("reference", [1.5, 1 / 1.5])
def test_what_the_reference_differs_by_may_be_the_whole_difference(reference):
    """Whichever way: what moves one side may spare the other."""
    before = trace(1.0, reference_latency_ms=2.0)
    found = versus(trace(1.4, reference_latency_ms=2.0 * reference), before)
    assert found.relative_change == pytest.approx(0.4)
    assert found.low < 1 < found.high
    assert not found.slower_than(0.05)
    assert (found.change, found.reason) == ("unclear", "the reference's time has changed, too")


def test_a_difference_beyond_that_of_the_reference_is_one():
    before = trace(1.0, reference_latency_ms=2.0)
    found = versus(trace(1.4, reference_latency_ms=2.2), before)
    assert found.change == "slower"
    assert found.low == pytest.approx(1.4 / 1.1, rel=0.02)


@pytest.mark.parametrize("reference", [None, "NaN", 0.0])
def test_a_reference_without_a_time_tells_nothing(reference):
    before = trace(1.0, reference_latency_ms=reference)
    assert versus(trace(1.4, reference_latency_ms=3.0), before).change == "slower"
