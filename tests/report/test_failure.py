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
    RandomInput,
    ScalarInput,
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


def replay(workload):
    return f"pytest seed={workload.seed}"


def test_a_wrong_result_is_described_in_full():
    outcome = evaluation(
        {"out": 3, "lse": 0},
        {"out": 2000000, "lse": 7},
        "out[0] got 1, expected 2, allowed ±0.1\nprinted",
    )
    text = describe_evaluation(outcome, WORKLOAD, "fast  k/fast.py:3", replay, "shrunk")
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
        "  pytest seed=5"
    )


def test_a_diagnosis_is_shown_and_the_log_is_not_read():
    diagnosis = Diagnosis(
        sentence="out: every element is 1.25 x expected; lse: " + "a long story, " * 4,
        details=("  out[0] got 1, expected 0.8", "", "printed"),
        shown_by=Workload(axes={"batch": 64, "k": 3}, seed=6, regime={"values": "shifted"}),
    )
    outcome = evaluation({"out": 3}, {"out": 3}, "another text\nand details")
    outcome = outcome.model_copy(update={"diagnosis": diagnosis})
    guessed = {"guessed": "ids (experts of tokens)"}
    text = describe_evaluation(outcome, WORKLOAD, "fast  k/fast.py:3", replay, **guessed)
    first, _, rest = text.partition("\n\n")
    assert "  inferred        ids (experts of tokens); if that is wrong, correct it under" in rest
    assert first == (
        "INCORRECT_NUMERICAL: out: every element is 1.25 x expected; lse: a long story, a\n"
        "  long story, a long story, a long story,"
    )
    assert "\n  pattern         seen at batch=64, k=3; shifted values, seed 6\n" in rest
    assert rest.endswith("\nreplay:\n  pytest seed=5\n\nreplay of the pattern:\n  pytest seed=6")
    assert "\n\n  out[0] got 1, expected 0.8\n\nprinted\n\nreplay:" in rest
    assert "another" not in text


def test_other_values_for_recorded_tensors_have_no_command():
    recorded = {"x": {"type": "safetensors", "path": "a.safetensors", "tensor_key": "x"}}
    diagnosis = Diagnosis(sentence="y: wrong", shown_by=Workload(axes={}, inputs=recorded, seed=6))
    outcome = evaluation({}, {}, "").model_copy(update={"diagnosis": diagnosis})
    text = describe_evaluation(outcome, WORKLOAD, "fast", replay)
    assert "\n  pattern         seen at no var axes; normal values, seed 6\n" in text
    assert text.endswith("\n\nreplay:\n  pytest seed=5")


@pytest.mark.parametrize(
    ("scalars", "words"),
    [
        ({"alpha": 0.25, "beta": 0.0}, "alpha 0.25, beta 0"),
        ({"eps": 1e-5, "q": 123456789, "causal": True}, "eps 1e-05, q 123456789, causal True"),
        ({"share": 0.123456789, "cap": math.inf}, "share 0.123457, cap inf"),
        (dict.fromkeys("abcdef", 1), "a 1, b 1, c 1, d 1, e 1, f 1"),
        (dict.fromkeys("abcdefg", 1), "a 1, b 1, c 1, d 1, e 1, f 1, ..."),
    ],
)
def test_scalars_of_a_workload_are_shown_in_few_digits(scalars, words):
    inputs = {name: ScalarInput(value=value) for name, value in scalars.items()}
    workload = Workload(axes={"n": 5}, inputs={"x": RandomInput(), **inputs}, seed=3)
    text = describe_definition_fault(FAULT, workload, "a.yaml:1", "pytest", width=100)
    assert f"\n  workload        n=5; {words}; normal values, seed 3\n" in text


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
    assert workload_json(Workload(axes={"n": 1}), {"q": 2}) == (
        '{"axes": {"n": 1}, "inputs": {"q": {"type": "scalar", "value": 2}}}'
    )


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5 MiB"), (3 << 40, "3072 GiB")],
)
def test_a_size_is_shown_in_the_largest_unit_it_fills(size, text):
    assert shown_size(size) == text
