"""Elements of an input that say where an output is wrong."""

import pytest
import torch

from pytest_fib.engine import Judge
from tests.diagnosis.test_causes import sentences
from tests.diagnosis.test_unknown_kernels import define, diagnosis


@pytest.fixture(scope="module")
def judge():
    with Judge("cpu", "none") as judge:
        yield judge


ROWS = {
    "limit": {"kind": "integers", "min": 0, "max": 4},
    "place": {"kind": "positions", "below": 9000, "sentinels": [-1]},
    "shift": {"kind": "uniform", "min": -2, "max": 2, "sentinels": [0]},
    "on": {"kind": "boolean"},
}
RIGHT = (
    "x.sin() + 0.1 * limit[:, None] + place[:, None] * 1e-3 + shift[:, None] + 0.0 * on[:, None]"
)
KERNEL = define(
    {
        "x": "float32[n, d]",
        "limit": "int32[n]",
        "place": "int64[n]",
        "shift": "float32[n]",
        "on": "bool[n]",
    },
    {"y": "float32[n, d]"},
    f"return {RIGHT}",
    axes={"d": 8},
    rules=ROWS,
)


@pytest.mark.parametrize(
    ("which", "words"),
    [
        ("limit == 0", "only where limit is 0"),
        ("limit == 3", "only where limit is 3"),
        ("place == -1", "only where place is -1"),
        ("place >= 4096", "only where place is 4096 or more"),
        ("~on", "only where on is False"),
        ("shift < 0", "only where shift is below 0"),
        ("shift != 0", "only where shift isn't 0"),
    ],
)
def test_elements_of_an_input_that_say_where_are_named(judge, which, words):
    found = sentences(
        judge, KERNEL, f"return {RIGHT} + ({which})[:, None] * x.cos()", n=40, seeds=6
    )
    said = [each for each in found if "wrong only where" in each]
    assert said, found
    assert {*said} == {f"y: wrong {words}"}


def test_elements_that_all_other_inputs_have_do_not_say_where(judge):
    """What is wrong at the end is so whatever inputs hold."""
    wrong = f"y = {RIGHT}\n    y[-4:] += x[-4:].cos()\n    return y"
    found = diagnosis(judge, KERNEL, wrong, n=40)
    assert found.sentence.startswith("y: wrong at the last 4 of ")


def test_elements_of_which_hardly_any_are_wrong_do_not_say_where(judge):
    wrong = f"return {RIGHT} + ((limit < 2) & (x[:, 0] > 1.2))[:, None] * x.cos()"
    found = sentences(judge, KERNEL, wrong, n=40, seeds=6)
    assert not any("only where limit" in each for each in found)


def test_what_has_values_of_its_own_has_them_where_an_input_says(judge):
    wrong = f"return torch.where((limit == 2)[:, None], torch.nan, {RIGHT})"
    found = diagnosis(judge, KERNEL, wrong, n=40)
    assert found.sentence == "y: NaN only where limit is 2, where numbers are expected"


def test_single_elements_say_where_too(judge):
    signed = define({"x": "float32[n, d]"}, {"y": "int32[n, d]"}, "return x.floor().int()")
    found = diagnosis(judge, signed, "return x.int()", n=40)
    assert found.sentence == "y: off by +1 only where x is below 0"


def test_a_size_is_not_named_beside_elements_that_others_lack(judge):
    """Where no limit is 0, all is right."""
    wrong = f"return {RIGHT} + ((limit == 0) & (len(x) < 30))[:, None] * x.cos()"
    found = diagnosis(judge, KERNEL, wrong, n=20)
    assert "only where limit is 0" in found.sentence
    assert "right at" not in found.sentence


def test_not_all_that_is_wrong_is_at_such_elements(judge):
    wrong = f"return {RIGHT} + ((limit == 0) | (torch.arange(len(x)) % 5 == 1))[:, None] * x.cos()"
    assert "limit" not in diagnosis(judge, KERNEL, wrong, n=40).sentence


def test_of_two_numbers_neither_says_where(judge):
    """Of a single adapter, its tokens have 0 and others -1: it may be the adapter that matters."""
    of_one = define(
        {"x": "float32[n, d]", "adapter": "int32[n]"},
        {"y": "float32[n, d]"},
        "return x.sin() + 2.0 * (adapter >= 0)[:, None]",
        axes={"d": 8},
        rules={"adapter": {"kind": "one_of", "values": [0, -1]}},
    )
    wrong = "return x.sin() + (2.0 + x) * (adapter >= 0)[:, None]"
    assert "adapter is" not in diagnosis(judge, of_one, wrong, n=40).sentence


def test_numbers_of_few_rows_are_no_evidence():
    from pytest_fib.diagnosis import CallContext, Failure, WrongOutput, explain

    wrong = torch.tensor([[True], [False]])
    got, expected = torch.tensor([[1.0], [2.0]]), torch.tensor([[5.0], [2.0]])
    bound = torch.full((2, 1), 1e-3)
    output = WrongOutput("y", ("n", "d"), got, expected, wrong, bound)
    inputs = {"limit": torch.tensor([0, 4], dtype=torch.int32)}
    failure = Failure((output,), CallContext(KERNEL, inputs=inputs))
    assert "limit" not in explain(failure).sentence


@pytest.mark.parametrize("seed", range(3))
def test_numbers_that_rise_do_not_say_where_the_rest_after_tiles_is(judge, seed):
    rising = define(
        {"x": "float32[n, d]", "pos": "int32[n]"},
        {"y": "float32[n, d]"},
        "return x * (pos[:, None] + 1)",
        axes={"d": 8},
        rules={"pos": {"kind": "sorted", "max": 300}},
    )
    wrong = "y = x * (pos[:, None] + 1)\n    i = len(y) // 64 * 64\n"
    wrong += "    y[i:] = torch.sin(y[i:] * 7)\n    return y"
    assert "pos is" not in diagnosis(judge, rising, wrong, n=200, seed=seed).sentence


def test_an_input_along_a_single_index_says_where(judge):
    """Its other elements are no more than a view of one."""
    steps = define(
        {"x": "float32[n, d]", "on": "float32[n, one]"},
        {"y": "float32[n, one]"},
        "return (x.sum(1, keepdim=True) + on)",
        axes={"d": 8, "one": 1},
    )
    wrong = "return (x.sum(1, keepdim=True) + on) * torch.where(on < 0, 2, 1)"
    assert diagnosis(judge, steps, wrong, n=60).sentence.endswith("only where on is below 0")


def test_what_is_wrong_where_an_input_says_is_said_once(judge):
    scaled = define(
        {"x": "float32[n, d]", "limit": "int32[n]"},
        {"y": "float32[n, d]"},
        "return x * limit[:, None]",
        axes={"d": 8},
        rules={"limit": {"kind": "integers", "min": 0, "max": 4}},
    )
    wrong = "return torch.where((limit == 0)[:, None], x, x * limit[:, None])"
    found = sentences(judge, scaled, wrong, n=60, seeds=4)
    assert all(each.count("wrong") == 1 for each in found), found
    assert any("only where limit is 0" in each for each in found)


def test_inputs_that_say_where_together_are_named_together(judge):
    """As tokens of which both the type and the place are 0."""
    few = {"kind": "integers", "min": 0, "max": 2}
    sums = define(
        {"a": "int32[n]", "b": "int32[n]", "x": "float32[n, d]"},
        {"y": "float32[n, d]"},
        "return x.sin() + (a + 3 * b)[:, None]",
        rules={"a": few, "b": few},
    )
    wrong = "return x.sin() + (a + 3 * b)[:, None] + ((a + b) == 0)[:, None] * x.cos()"
    found = sentences(judge, sums, wrong, n=200, seeds=6)
    assert found.count("y: wrong only where a is 0 and b is 0") >= 3, found


@pytest.mark.parametrize(("hidden", "says"), [(0.0, False), (None, True)])
def test_a_mask_does_not_say_where_anything_may_be_wrong(judge, hidden, says):
    """Shares that are cut off after 32; what else is masked is 0, or the input."""
    masked = define(
        {"x": "float32[n, d]", "on": "bool[n, d]"},
        {"y": "float32[n, d]"},
        f"shares = (x.exp() * on) / (x.exp() * on).sum(1, keepdim=True).clamp(min=1e-30)\n"
        f"    return torch.where(on, shares, {'x' if hidden is None else hidden})",
        axes={"d": 40},
        rules={"on": {"kind": "boolean"}},
    )
    body = masked.reference.partition("):\n    ")[2]
    wrong = body.replace(".sum(1", "[:, :32].sum(1")
    found = sentences(judge, masked, wrong, n=60, seeds=4)
    assert any("only where on is True" in each for each in found) is says, found
