"""The three ways to call an implementation, and what is said of one that answers wrongly."""

import pytest
import torch

from pytest_fib.sandbox import InvalidOutput, bind, store

X = torch.tensor([1.0, 2.0, 3.0])


def outputs(*shapes, dtype=torch.float32):
    return [torch.full(shape, 99.0, dtype=dtype) for shape in shapes]


def called(function, calling, names, places, inputs=(X,)):
    result = bind(function, calling, inputs, places)()
    store(result, calling, names, places)
    return [place.tolist() for place in places]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: (x * 2,),
        lambda x: [x * 2],
        lambda x: {"y": x * 2},
        lambda x: (x * 2).unsqueeze(1).expand(3, 2)[:, 0],
    ],
    ids=["tensor", "tuple", "list", "dict", "strided"],
)
def test_one_returned_output_ends_in_the_judges_memory(function):
    assert called(function, "value", ["y"], outputs((3,))) == [[2.0, 4.0, 6.0]]


@pytest.mark.parametrize(
    "function",
    [lambda x: (x + 1, x.sum()), lambda x: {"total": x.sum(), "y": x + 1}],
    ids=["tuple", "dict in another order"],
)
def test_several_returned_outputs_end_in_their_places(function):
    assert called(function, "value", ["y", "total"], outputs((3,), ())) == [[2.0, 3.0, 4.0], 6.0]


@pytest.mark.parametrize("value", [6.0, 6, True])
def test_a_python_number_is_an_output_without_dimensions(value):
    assert called(lambda x: value, "value", ["total"], outputs(())) == [float(value)]


def test_destination_passing_writes_in_place():
    assert called(lambda x, y: y.copy_(x), "destination", ["y"], outputs((3,))) == [[1.0, 2.0, 3.0]]


def test_what_destination_passing_returns_is_ignored():
    def run(x, y):
        y.copy_(x)
        return "nonsense"

    assert called(run, "destination", ["y"], outputs((3,))) == [[1.0, 2.0, 3.0]]


@pytest.mark.parametrize("result", [X * 2, (X * 2,), {"y": X * 2}], ids=["tensor", "tuple", "dict"])
def test_destination_passing_that_returns_a_new_tensor_is_told_where_to_write(result):
    with pytest.raises(InvalidOutput, match=r"write there, as in y\.copy_\(\.\.\.\)"):
        called(lambda x, y: result, "destination", ["y"], outputs((3,)))


def test_destination_passing_that_returns_an_input_is_told_too():
    """Inputs and outputs lie in one storage, as sandboxes have them."""
    x, y = torch.zeros(6).split(3)
    with pytest.raises(InvalidOutput, match="returned a tensor, but"):
        store(x, "destination", ["y"], [y])
    store(y[1:], "destination", ["y"], [y])


def test_destination_passing_may_return_its_outputs():
    assert called(lambda x, y: y.copy_(x)[:2], "destination", ["y"], outputs((3,))) == [
        [1.0, 2.0, 3.0]
    ]


def test_a_tuple_holds_inputs_then_outputs():
    def run(data):
        x, y = data
        y.copy_(x)
        return y

    assert called(run, "tuple", ["y"], outputs((3,))) == [[1.0, 2.0, 3.0]]


def test_a_tuple_call_may_return_its_outputs_instead():
    assert called(lambda data: data[0] * 2, "tuple", ["y"], outputs((3,))) == [[2.0, 4.0, 6.0]]


def test_a_tuple_call_may_return_nothing():
    assert called(lambda data: data[1].zero_() and None, "tuple", ["y"], outputs(())) == [0.0]


class Lazy(torch.Tensor):
    """Would compute when it is read."""


@pytest.mark.parametrize(
    ("result", "status", "message"),
    [
        (None, "RUNTIME_ERROR", "y is None, not a torch.Tensor; is a return missing?"),
        ([1.0, 2.0, 3.0], "RUNTIME_ERROR", "returned 3 values for 1 output (y)"),
        ((), "RUNTIME_ERROR", "returned 0 values for 1 output (y)"),
        ("text", "RUNTIME_ERROR", "y is a str, not a torch.Tensor"),
        (2.0, "RUNTIME_ERROR", "y is a float, not a torch.Tensor"),
        (X.numpy(), "RUNTIME_ERROR", "y is a ndarray, not a torch.Tensor"),
        (X.as_subclass(Lazy), "RUNTIME_ERROR", "y is a Lazy, not a torch.Tensor"),
        ({"z": X}, "RUNTIME_ERROR", "returned ['z'], not ['y']"),
        ({"y": X, "z": X}, "RUNTIME_ERROR", "returned ['y', 'z'], not ['y']"),
        (X[:2], "INCORRECT_SHAPE", "y: got [2], expected [3]"),
        (X[0], "INCORRECT_SHAPE", "y: got [], expected [3]"),
        (X.reshape(3, 1), "INCORRECT_SHAPE", "y: got [3, 1], expected [3]"),
        (X.double(), "INCORRECT_DTYPE", "y: got float64, expected float32"),
        (X.half(), "INCORRECT_DTYPE", "y: got float16, expected float32"),
        (X.to("meta"), "RUNTIME_ERROR", "y is on the wrong device: got meta, expected cpu"),
    ],
)
def test_a_wrong_output_is_named(result, status, message):
    with pytest.raises(InvalidOutput) as caught:
        store(result, "value", ["y"], outputs((3,)))
    assert (caught.value.status, str(caught.value)) == (status, message)


def test_too_few_of_several_outputs_are_counted():
    with pytest.raises(InvalidOutput) as caught:
        store(X, "value", ["y", "lse"], outputs((3,), (3,)))
    assert str(caught.value) == "returned 1 values for 2 outputs (y, lse)"


def test_keys_that_are_not_names_are_told():
    with pytest.raises(InvalidOutput) as caught:
        store({1: X, "y": X}, "value", ["y"], outputs((3,)))
    assert str(caught.value) == "returned [1, 'y'], not ['y']"
