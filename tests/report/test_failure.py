"""The text of one failure."""

import math
import shlex

import pytest

from pytest_fib.data import (
    Correctness,
    DefinitionFault,
    Diagnosis,
    Evaluation,
    EvaluationStatus,
    Workload,
)
from pytest_fib.report import (
    describe_definition_fault,
    describe_evaluation,
    replay_command,
    shown_size,
    workload_json,
)

FAULT = DefinitionFault(message="no such function")
WORKLOAD = Workload(axes={"batch": 7, "k": 3}, seed=5, regime={"values": "wide"})


def evaluation(wrong, total, log):
    extra = {"elements_wrong": wrong, "elements": total}
    return Evaluation(
        status=EvaluationStatus.INCORRECT_NUMERICAL,
        correctness=Correctness(max_absolute_error=math.inf, max_relative_error=1.0, extra=extra),
        log=log,
    )


def test_a_wrong_result_is_described_in_full():
    outcome = evaluation(
        {"out": 3, "lse": 0},
        {"out": 2000000, "lse": 7},
        "out[0] got 1, expected 2, allowed ±0.1\nprinted",
    )
    text = describe_evaluation(outcome, WORKLOAD, "fast  k/fast.py:3", "pytest it", "shrunk")
    assert text == (
        "INCORRECT_NUMERICAL: out[0] got 1, expected 2, allowed ±0.1\n"
        "\n"
        "  implementation  fast  k/fast.py:3\n"
        "  workload        batch=7, k=3; wide values, seed 5  (the smallest that fails)\n"
        "  wrong           3 of 2000000 elements of out (under 0.001 %)\n"
        "\n"
        "printed\n"
        "\n"
        "replay:\n"
        "  pytest it"
    )


def test_a_diagnosis_is_shown_and_the_log_is_not_read():
    diagnosis = Diagnosis(
        sentence="out: every element is 1.25 x expected; lse: " + "a long story, " * 4,
        details=("  out[0] got 1, expected 0.8", "", "printed"),
        shown_by={"batch": 64, "k": 3},
    )
    outcome = evaluation({"out": 3}, {"out": 3}, "another text\nand details")
    outcome = outcome.model_copy(update={"diagnosis": diagnosis})
    guessed = {"guessed": "ids (experts of tokens)"}
    text = describe_evaluation(outcome, WORKLOAD, "fast  k/fast.py:3", "pytest it", **guessed)
    first, _, rest = text.partition("\n\n")
    assert "  inferred        ids (experts of tokens); if that is wrong, correct it under" in rest
    assert first == (
        "INCORRECT_NUMERICAL: out: every element is 1.25 x expected; lse: a long story, a\n"
        "  long story, a long story, a long story,"
    )
    assert "\n  pattern         seen at batch=64, k=3\n" in rest
    assert "\n\n  out[0] got 1, expected 0.8\n\nprinted\n\nreplay:" in rest
    assert "another" not in text


def test_a_workload_of_many_axes_is_wrapped_to_the_width_of_a_terminal():
    axes = {"batch_size": 1, "num_kv_indices": 65, "num_pages": 65, "len_indptr": 2}
    text = describe_definition_fault(FAULT, Workload(axes=axes), "a.yaml:1", "pytest", "shrunk")
    assert (
        "  workload        batch_size=1, num_kv_indices=65, num_pages=65, len_indptr=2;\n"
        "                  normal values, seed 0  (the smallest that fails)\n"
    ) in text


@pytest.mark.parametrize(
    ("origin", "note"),
    [
        (None, ""),
        ("shrunk", "  (the smallest that fails)"),
        ("unfinished", "  (smaller ones may fail)"),
        ("failed before", "  (failed before)"),
        ("listed", "  (listed in the definition)"),
    ],
)
def test_a_workload_is_shown_with_where_it_comes_from(origin, note):
    text = describe_definition_fault(FAULT, Workload(axes={}), "a.yaml:1", "pytest", origin)
    assert text == (
        "DEFINITION ERROR: no such function\n"
        "\n"
        "  definition      a.yaml:1\n"
        f"  workload        no var axes; normal values, seed 0{note}\n"
        "\n"
        "replay:\n"
        "  pytest"
    )


def test_a_replay_command_survives_the_shell():
    command = replay_command("a b.yaml::x[y-correctness]", WORKLOAD, ["--fib-defs", "my defs"])
    assert shlex.split(command) == [
        "pytest",
        "a b.yaml::x[y-correctness]",
        "--fib-defs",
        "my defs",
        "--fib-workload",
        '{"axes": {"batch": 7, "k": 3}, "seed": 5, "regime": {"values": "wide"}}',
    ]


def test_a_workload_is_written_without_what_is_usual():
    assert workload_json(Workload(axes={"n": 1})) == '{"axes": {"n": 1}}'


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (3 << 40, "3072 GiB")],
)
def test_a_size_is_shown_in_the_largest_unit_it_fills(size, text):
    assert shown_size(size) == text
