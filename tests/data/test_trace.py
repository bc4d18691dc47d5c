import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from pytest_fib.data import (
    Circumstance,
    Correctness,
    Diagnosis,
    Environment,
    Evaluation,
    EvaluationStatus,
    Performance,
    Trace,
    Workload,
)
from tests.data.flashinfer import flashinfer_complaints

ENVIRONMENT = Environment(hardware="NVIDIA H200", libs={"torch": "2.13.0"})
CORRECT = Correctness(max_relative_error=1e-3, max_absolute_error=1e-4)
FAST = Performance(latency_ms=0.5, reference_latency_ms=1.5, speedup_factor=3.0)
WORKLOAD = Workload(axes={"batch": 3})
FLAT = {
    "status": "PASSED",
    "log_file": "run.log",
    "max_relative_error": 1e-3,
    "max_absolute_error": 1e-4,
    "latency_ms": 0.5,
    "reference_latency_ms": 1.5,
    "speedup_factor": 3.0,
    "hardware": "NVIDIA H200",
    "libs": {"torch": "2.13.0"},
    "timestamp": "2026-01-01T00:00:00Z",
}


def evaluation(status="PASSED", **fields):
    return Evaluation(status=status, environment=ENVIRONMENT, **fields)


def trace(evaluation):
    return Trace(definition="d", workload=WORKLOAD, solution="s", evaluation=evaluation)


def refuse_constant(text):
    raise AssertionError(f"{text} is not strict JSON")


def test_the_statuses_are_the_schemas():
    assert set(EvaluationStatus) == {
        "PASSED",
        "INCORRECT_SHAPE",
        "INCORRECT_NUMERICAL",
        "INCORRECT_DTYPE",
        "RUNTIME_ERROR",
        "COMPILE_ERROR",
        "TIMEOUT",
    }


def test_the_older_flat_form_means_the_nested_one():
    nested = evaluation(correctness=CORRECT, performance=FAST, timestamp=FLAT["timestamp"])
    assert Evaluation(**FLAT) == nested == Evaluation.model_validate_json(json.dumps(FLAT))


def test_older_diagnoses_have_the_axes_alone_of_what_shows_them():
    older = Diagnosis.model_validate_json('{"sentence": "y: wrong", "shown_by": {"axes": 64}}')
    assert older.shown_by == Workload(axes={"axes": 64})
    shown_by = Workload(axes={"n": 64}, seed=5, regime={"values": "shifted"})
    found = Diagnosis(sentence="y: wrong", shown_by=shown_by)
    assert Diagnosis.model_validate_json(found.model_dump_json()) == found
    assert "shown_by" not in Diagnosis(sentence="y: wrong").model_dump()


def test_a_record_has_the_words_of_a_sentence_alone():
    parts = "y: zeros", ", where a is 0", Circumstance("only in float16")
    found = Diagnosis(sentence="y: wrong", output="y").with_parts(*parts)
    assert found.sentence == "y: zeros, where a is 0 (only in float16)"
    assert found.model_copy(update={"vague": True}).parts == parts
    read = Diagnosis.model_validate_json(found.model_dump_json())
    assert (read, read.parts) == (found, (found.sentence,))
    assert found.model_dump_json() == read.model_dump_json()


def test_every_flat_fact_can_be_read_off_either_form():
    nested = evaluation(correctness=CORRECT, performance=FAST)
    for name in FLAT.keys() - {"status", "log_file", "timestamp"}:
        assert getattr(nested, name) == getattr(Evaluation(**FLAT), name) == FLAT[name]


def test_flat_facts_are_none_where_absent():
    bare = Evaluation(status="TIMEOUT")
    for name in FLAT.keys() - {"status", "log_file", "timestamp"}:
        assert getattr(bare, name) is None


def test_flat_nulls_are_absent():
    older = Evaluation(status="TIMEOUT", max_relative_error=None, latency_ms=None, libs=None)
    assert (older.correctness, older.performance, older.environment) == (None, None, None)


def test_nested_facts_win_over_flat_ones():
    both = evaluation(performance=FAST, latency_ms=9.0)
    assert both.latency_ms == 0.5


def test_part_of_the_flat_facts_is_enough():
    older = Evaluation(status="PASSED", speedup_factor=3.0)
    assert (older.speedup_factor, older.latency_ms, older.correctness) == (3.0, None, None)


def test_the_timestamp_is_now_in_utc_by_default():
    moment = datetime.fromisoformat(evaluation().timestamp)
    assert moment.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - moment) < timedelta(minutes=1)


@pytest.mark.parametrize("status", EvaluationStatus)
def test_correctness_goes_with_passed_and_incorrect_numerical_only(status):
    if status in ("PASSED", "INCORRECT_NUMERICAL"):
        assert evaluation(status, correctness=CORRECT).correctness == CORRECT
    else:
        with pytest.raises(ValidationError, match=f"{status} takes no correctness"):
            evaluation(status, correctness=CORRECT)


@pytest.mark.parametrize("status", EvaluationStatus)
def test_performance_goes_with_passed_only(status):
    needed = CORRECT if status == "INCORRECT_NUMERICAL" else None
    if status == "PASSED":
        assert evaluation(status, performance=FAST).performance == FAST
    else:
        with pytest.raises(ValidationError, match=f"{status} takes no performance"):
            evaluation(status, correctness=needed, performance=FAST)


def test_incorrect_numerical_needs_correctness():
    with pytest.raises(ValidationError, match="INCORRECT_NUMERICAL needs correctness"):
        evaluation("INCORRECT_NUMERICAL")


def test_passed_may_be_untimed_and_is_written_with_nulls():
    line = json.loads(trace(evaluation(timestamp="t")).to_json_line())
    assert line["evaluation"] == {
        "status": "PASSED",
        "environment": {"hardware": "NVIDIA H200", "libs": {"torch": "2.13.0"}},
        "timestamp": "t",
        "log": "",
        "correctness": None,
        "performance": None,
    }


def test_a_recorded_workload_has_null_solution_and_evaluation():
    line = Trace(definition="d", workload=WORKLOAD).to_json_line()
    assert list(json.loads(line)) == ["definition", "workload", "solution", "evaluation"]
    assert line.endswith('"solution":null,"evaluation":null}')


def test_further_keys_of_performance_are_kept_and_others_ignored():
    text = json.dumps(
        {
            "definition": "d",
            "workload": {"axes": {}, "colour": 1},
            "evaluation": {"status": "PASSED", "performance": {"latency_ms": 1, "ci": ["NaN", 2]}},
        }
    )
    again = json.loads(Trace.from_json(text).to_json_line())
    assert again["evaluation"]["performance"]["ci"] == ["NaN", 2]
    assert "colour" not in again["workload"]


numbers = st.none() | st.floats()
extras = st.dictionaries(st.sampled_from(["method", "rounds"]), st.floats() | st.booleans())
passed = st.builds(
    evaluation,
    correctness=st.none() | st.builds(Correctness, max_relative_error=numbers, extra=extras),
    performance=st.none()
    | st.builds(lambda time, more: Performance(latency_ms=time, **more), numbers, extras),
    log=st.text(),
)


@given(st.builds(trace, passed | st.none()))
def test_a_trace_survives_its_line(record):
    line = record.to_json_line()
    assert "\n" not in line
    json.loads(line, parse_constant=refuse_constant)
    again = Trace.from_json(line)
    assert again.to_json_line() == line
    assert repr(again) == repr(record)  # NaN equals nothing, but reads the same


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_errors_that_json_lacks_are_strings(value, text):
    correctness = Correctness(
        max_relative_error=value, max_absolute_error=0, extra={"rms": [value]}
    )
    record = trace(evaluation("INCORRECT_NUMERICAL", correctness=correctness))
    written = json.loads(record.to_json_line())["evaluation"]["correctness"]
    assert (written["max_relative_error"], written["extra"]) == (text, {"rms": [text]})
    read = Trace.from_json(record.to_json_line()).evaluation.correctness
    assert (repr(read.max_relative_error), repr(read.extra["rms"])) == (repr(value), f"[{value}]")


def test_strict_readers_take_a_timed_pass_a_failure_and_a_workload():
    timed = evaluation(correctness=CORRECT, performance=FAST)
    wrong = evaluation(
        "INCORRECT_NUMERICAL",
        correctness=Correctness(max_relative_error=math.nan, max_absolute_error=math.inf),
    )
    for record in (timed, wrong, evaluation("TIMEOUT")):
        assert flashinfer_complaints(trace(record)) == []
    assert flashinfer_complaints(Trace(definition="d", workload=WORKLOAD)) == []


@pytest.mark.parametrize(
    ("record", "complaints"),
    [
        (
            Evaluation(status="PASSED"),
            [
                "evaluation.environment is required",
                "evaluation.correctness is required with PASSED",
                "evaluation.performance is required with PASSED",
            ],
        ),
        (
            evaluation(
                correctness=CORRECT, performance={"latency_ms": -1, "speedup_factor": "NaN"}
            ),
            [
                "evaluation.performance.latency_ms should be a number, at least 0, not -1.0",
                "evaluation.performance.reference_latency_ms should be a number, at least 0, "
                "not None",
                "evaluation.performance.speedup_factor should be a number, at least 0, not nan",
            ],
        ),
        (
            evaluation("INCORRECT_NUMERICAL", correctness={"max_relative_error": 1}),
            ["evaluation.correctness.max_absolute_error should be a number, at least 0, not None"],
        ),
        (
            Evaluation(status="TIMEOUT", hardware=""),
            ["evaluation.environment.hardware is empty"],
        ),
        (None, ["solution and evaluation are both given or both null"]),
    ],
)
def test_strict_readers_complaints_are_listed(record, complaints):
    assert flashinfer_complaints(trace(record)) == complaints
