import json
import math
from uuid import UUID

import pytest
from hypothesis import given, strategies as st
from pydantic import ValidationError

from pytest_fib.data import RandomInput, SafetensorsInput, ScalarInput, Workload

names = st.text("abcxyz_", min_size=1, max_size=8)
specs = st.one_of(
    st.builds(RandomInput),
    st.builds(ScalarInput, value=st.booleans() | st.integers() | st.floats()),
    st.builds(SafetensorsInput, path=names, tensor_key=names),
)
workloads = st.builds(
    Workload,
    axes=st.dictionaries(names, st.integers(0, 1 << 40)),
    inputs=st.dictionaries(names, specs),
    seed=st.integers(0, 1 << 64),
    regime=st.dictionaries(names, names),
)


def refuse_constant(text):
    raise AssertionError(f"{text} is not strict JSON")


@given(workloads)
def test_a_workload_survives_its_json(workload):
    line = workload.to_json()
    assert "\n" not in line
    json.loads(line, parse_constant=refuse_constant)
    again = Workload.model_validate_json(line)
    assert again.to_json() == line
    assert again.uuid == workload.uuid


@given(workloads)
def test_the_id_follows_from_the_content(workload):
    fields = json.loads(workload.to_json())
    del fields["uuid"]
    reordered = {key: fields[key] for key in reversed(fields)}
    assert Workload(**reordered).uuid == workload.uuid == str(UUID(workload.uuid))


def test_the_id_is_the_same_in_every_version():
    # Recorded workloads, and so node ids, are known by it.
    workload = Workload(axes={"batch": 3}, inputs={"x": RandomInput(), "s": ScalarInput(value=0.5)})
    assert workload.uuid == "bc61395b-7191-2b4d-049c-270eff61fd22"


@pytest.mark.parametrize(
    "change",
    [
        {"axes": {"batch": 4}},
        {"inputs": {"x": ScalarInput(value=1)}},
        {"seed": 1},
        {"regime": {"values": "small"}},
    ],
)
def test_any_change_of_content_changes_the_id(change):
    fields = {"axes": {"batch": 3}, "inputs": {"x": RandomInput()}}
    assert Workload(**fields | change).uuid != Workload(**fields).uuid


@pytest.mark.parametrize("absent", ["", None])
def test_an_id_that_is_given_is_kept_and_an_empty_one_derived(absent):
    assert Workload(axes={}, uuid="mine").uuid == "mine"
    assert Workload(axes={}, uuid=absent).uuid == Workload(axes={}).uuid


def test_our_own_fields_are_left_out_where_default():
    assert list(Workload(axes={"a": 1}).to_flashinfer()) == ["axes", "inputs", "uuid"]
    own = Workload(axes={"a": 1}, seed=3, regime={"values": "small"}).to_flashinfer()
    assert (own["seed"], own["regime"]) == (3, {"values": "small"})


def test_a_random_input_tolerates_a_dtype_that_says_nothing_new():
    older = Workload(axes={}, inputs={"x": {"type": "random", "dtype": "float16"}})
    assert older.uuid == Workload(axes={}, inputs={"x": RandomInput()}).uuid
    assert older.to_flashinfer()["inputs"] == {"x": {"type": "random"}}


@pytest.mark.parametrize("value", [True, 1, 1.0, -3, 0.5])
def test_a_scalar_keeps_its_type(value):
    workload = Workload(axes={}, inputs={"s": ScalarInput(value=value)})
    assert type(Workload.model_validate_json(workload.to_json()).inputs["s"].value) is type(value)


@pytest.mark.parametrize(
    ("value", "text"), [(math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")]
)
def test_values_that_json_lacks_are_strings(value, text):
    workload = Workload(axes={}, inputs={"s": ScalarInput(value=value)})
    assert json.loads(workload.to_json())["inputs"]["s"]["value"] == text
    assert repr(ScalarInput(value=text).value) == repr(value)


@pytest.mark.parametrize("size", [-1, 1.5, True, "3", None])
def test_axes_are_sizes(size):
    with pytest.raises(ValidationError):
        Workload(axes={"batch": size})


@pytest.mark.parametrize(
    "spec", [{}, {"type": "zeros"}, {"type": "scalar"}, {"type": "scalar", "value": "x"}, 3]
)
def test_input_specs_outside_the_schema_are_refused(spec):
    with pytest.raises(ValidationError):
        Workload(axes={}, inputs={"x": spec})
