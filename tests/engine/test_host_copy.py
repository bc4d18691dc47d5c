"""Small workloads of a device are checked in a copy on the host; here, of this machine's memory."""

from textwrap import dedent

import pytest

from pytest_fib.engine import HOST_COPY_BYTES

SMALL = 1000


@pytest.fixture(autouse=True)
def copied(monkeypatch):
    """As if this were a device of its own."""
    monkeypatch.setitem(HOST_COPY_BYTES, "cpu", 1 << 20)


@pytest.mark.parametrize("n", [1, SMALL, 3_000_000])
@pytest.mark.parametrize("seed", [0, 1])
def test_right_outputs_pass_whatever_was_checked_before(judge, request_for, n, seed):
    right = request_for("def run(x, factor):\n    return x * factor\n", n=n, seed=seed)
    assert judge.evaluate(right).status == "PASSED"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("return x * factor + 1", "INCORRECT_NUMERICAL"),
        ("return x.mul_(factor)", "wrote to its input 'x'"),
        (
            """\
            kept.append(torch.mul(x, factor, out=kept[0]) if kept else x * factor)
            return kept[0]""",
            "overwritten by the next call",
        ),
        (
            """\
            if not kept:
                kept.append(x * factor)
            return kept[0].clone()""",
            "with other values",
        ),
    ],
    ids=["wrong", "writes to its input", "returns one tensor", "caches"],
)
def test_what_is_wrong_fails(own_judge, request_for, text, says):
    body = dedent(text).replace("\n", "\n    ")
    program = f"import torch\nkept = []\ndef run(x, factor):\n    {body}\n"
    evaluation = own_judge.evaluate(request_for(program, n=SMALL))
    assert evaluation.status != "PASSED"
    assert says in f"{evaluation.status}: {evaluation.log}"


def test_a_failure_is_explained_by_calls_with_other_inputs(own_judge, request_for):
    wrong = request_for(
        "def run(x, factor):\n    return x.flip(0) * factor\n", n=SMALL, explain=True
    )
    assert own_judge.evaluate(wrong).diagnosis.pattern == "misread input"


def test_no_implementation_finds_what_another_one_left(own_judge, request_for):
    """The second would pass with the first one's outputs, which lie in the same arena."""
    right = "def run(x, factor, out):\n    out.copy_(x * factor)\n"
    nothing = "def run(x, factor, out):\n    pass\n"
    assert own_judge.evaluate(request_for(right, "destination", n=SMALL)).status == "PASSED"
    evaluation = own_judge.evaluate(request_for(nothing, "destination", n=SMALL))
    assert evaluation.diagnosis.pattern == "unwritten"
