import pytest
from pydantic import ValidationError

from pytest_fib.data import Definition


def complaints(definition):
    with pytest.raises(ValidationError) as caught:
        Definition(**definition)
    return {".".join(map(str, error["loc"])): error["msg"] for error in caught.value.errors()}


def test_shapes_name_known_axes(scale):
    scale["inputs"]["x"]["shape"] = ["batch", "hiden"]
    scale["outputs"]["y"]["shape"] = ["q", 8]
    assert complaints(scale) == {
        "inputs.x.shape.1": "unknown axis 'hiden'; did you mean 'hidden'?",
        "outputs.y.shape.0": "unknown axis 'q'; there are batch, hidden",
    }


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (
            "batch + 1",
            "'batch + 1' is an expression, not an axis: add `len_batch: var` to axes and "
            "`len_batch == batch + 1` to constraints, and write len_batch here",
        ),
        ("8", "'8' is text; a size has no quotes: 8"),
    ],
)
def test_what_is_no_axis_has_its_remedy(scale, axis, message):
    scale["inputs"]["x"]["shape"] = ["batch", axis]
    assert complaints(scale) == {"inputs.x.shape.1": message}


def test_a_name_is_not_both_input_and_output(scale):
    scale["outputs"] = {"x": scale["outputs"]["y"]}
    assert complaints(scale) == {"outputs.x": "'x' is an input already"}


@pytest.mark.parametrize("name", ["a\x1b", "a\nb", "\u202ea", "::error::a"])
def test_names_are_such_as_can_be_shown(scale, name):
    scale["outputs"] = {name: scale["outputs"]["y"]}
    assert complaints(scale) == {f"outputs.{name}": f"{name!r} can't be shown as it is"}


@pytest.mark.parametrize("text", ["hidden % 128 == 0", " a == b[-1].item()", "x.shape[-1] > 1"])
def test_constraints_may_be_any_expression(scale, text):
    assert Definition(**scale, constraints=[text]).constraints == [text]


@pytest.mark.parametrize("text", ["a ==", "a = 1", "import os", "\0"])
def test_constraints_are_expressions(scale, text):
    (message,) = complaints(scale | {"constraints": ["batch > 0", text]}).values()
    assert message.startswith("not a Python expression: ")


@pytest.mark.parametrize(
    "reference",
    [
        "def run(a, b): ...",
        "def run(x, /, factor): ...",
        "def run(*inputs): ...",
        "def run(x, *rest): ...",
        "def run(x, factor, eps=1e-5): ...",
        "def run(x, factor, *, eps=1e-5): ...",
        "def run(x): ...\ndef run(x, factor): ...",
    ],
)
def test_a_reference_that_takes_the_inputs_by_position_is_fine(scale, reference):
    assert Definition(**scale | {"reference": reference}).reference == reference


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("def run(x): ...", "run takes (x), but the inputs are (x, factor)"),
        ("def run(x, w, b): ...", "run takes (x, w, b), but the inputs are (x, factor)"),
        ("def run(x, w, b, *r): ...", "run takes (x, w, b), but the inputs are (x, factor)"),
        (
            "def run(factor, x): ...",
            "run takes (factor, x), but inputs are passed in their order, (x, factor)",
        ),
        (
            "def run(x, f, *, eps): ...",
            "run needs 'eps' by keyword, but inputs are passed by position",
        ),
        ("def runs(x, factor): ...", "no function 'run' at its top level"),
        ("class A:\n  def run(x, factor): ...", "no function 'run' at its top level"),
        ("async def run(x, factor): ...", "'run' is no plain function: write def run(...)"),
        ("run = lambda x, factor: x", "'run' is no plain function: write def run(...)"),
        ("class run: ...", "'run' is no plain function: write def run(...)"),
        ("def run(x, factor)", "not Python: expected ':'"),
    ],
)
def test_a_reference_that_cannot_be_called_is_refused(scale, reference, message):
    assert complaints(scale | {"reference": reference}) == {"reference": message}


def test_a_bad_field_does_not_hide_what_is_wrong_between_others(scale):
    scale["axes"]["batch"] = {"type": "vra"}
    scale["inputs"]["x"]["shape"] = ["bach"]
    scale["constraints"] = ["=="]
    assert set(complaints(scale)) == {"axes.batch", "inputs.x.shape.0", "constraints.0"}


def test_sections_name_what_exists(scale):
    scale["workloads"] = {
        "axes": {"bacth": {}},
        "inputs": {"facter": {"value": 1}},
        "examples": [{"bath": 1}],
        "bench": [{"batch": 1}, {"batches": 1}],
    }
    scale["tolerances"] = {"x": {}}
    assert complaints(scale) == {
        "workloads.axes.bacth": "unknown axis 'bacth'; did you mean 'batch'?",
        "workloads.inputs.facter": "unknown input 'facter'; did you mean 'factor'?",
        "workloads.examples.0.bath": "unknown axis 'bath'; did you mean 'batch'?",
        "workloads.bench.1.batches": "unknown axis 'batches'; did you mean 'batch'?",
        "tolerances.x": "unknown output 'x'; there are y",
    }


@pytest.mark.parametrize(
    ("workloads", "loc"),
    [
        ({"axes": {"hidden": {"max": 4}}}, "workloads.axes.hidden"),
        ({"examples": [{"hidden": 4}]}, "workloads.examples.0.hidden"),
        ({"bench": [{"hidden": 4}]}, "workloads.bench.0.hidden"),
    ],
)
@pytest.mark.parametrize("const", [128, {"type": "const", "value": 128}])
def test_const_axes_are_not_set_by_workloads(scale, workloads, loc, const):
    scale["axes"]["hidden"] = const
    message = "'hidden' is a const axis; only var axes can be set"
    assert complaints(scale | {"workloads": workloads}) == {loc: message}


def test_two_bench_entries_alike_are_refused(scale):
    bench = [{"batch": 1}, {"batch": 2}, {"batch": 1}]
    message = {"workloads.bench.2": "the same as bench[0]"}
    assert complaints(scale | {"workloads": {"bench": bench}}) == message


@pytest.mark.parametrize("wrong", [None, 3, "1 +", [1], {"a": 3}, {1: 2}])
@pytest.mark.parametrize(
    "key", ["axes", "inputs", "outputs", "constraints", "reference", "tolerances"]
)
def test_no_shape_of_data_breaks_the_checks(scale, key, wrong):
    with pytest.raises(ValidationError):
        Definition(**scale | {key: wrong})


@pytest.mark.parametrize("wrong", [3, "text", [1], {"axes": 3}, {"inputs": [1]}, {"bench": [3]}])
def test_no_shape_of_workloads_breaks_the_checks(scale, wrong):
    with pytest.raises(ValidationError):
        Definition(**scale, workloads=wrong)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("xs", "unknown input or output 'xs'; did you mean 'x'?"),
        ("y", "'y' are the indices themselves"),
    ],
)
def test_indices_point_into_another_tensor(scale, source, message):
    wrong = scale | {"tolerances": {"y": {"by": "gathered", "from": source}}}
    assert complaints(wrong) == {"tolerances.y.from": message}
    Definition(**scale | {"tolerances": {"y": {"by": "gathered", "from": "x"}}})
