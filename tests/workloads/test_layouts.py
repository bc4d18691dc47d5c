"""Where the elements of a workload's tensors lie."""

import pytest

from pytest_fib.workloads import TensorLayout, layouts, make_workload

#: Elements between the rows of a tensor that is not contiguous.
GAP = 17
CUBE = {"x": {"shape": ["a", "b", "c"], "dtype": "float16"}}
AXES = {"a": 2, "b": 3, "c": 5}


def laid(define, rule=None, layout="contiguous", inputs=CUBE, axes=AXES):
    names = dict.fromkeys(axes, "var")
    definition = define(names, inputs, rules={"x": rule} if rule else {})
    return layouts(definition, make_workload(definition, axes, regime={"layout": layout}))


@pytest.mark.parametrize(
    ("shape", "strides"), [((), ()), ((4,), (1,)), ((2, 3, 5), (15, 5, 1)), ((2, 0, 5), (5, 5, 1))]
)
def test_a_contiguous_tensor_is_row_major(shape, strides):
    assert TensorLayout.contiguous(shape, "int8").stride == strides


@pytest.mark.parametrize(
    ("layout", "stride", "offset"),
    [
        ("contiguous", (15, 5, 1), 0),
        ("offset", (15, 5, 1), 1),
        ("row_strided", (3 * (5 + GAP), 5 + GAP, 1), 0),
    ],
)
def test_a_regime_decides_where_inputs_lie_and_never_outputs(define, layout, stride, offset):
    found = laid(define, layout=layout)
    assert found["x"] == TensorLayout((2, 3, 5), stride, "float16", offset)
    assert found["y"] == TensorLayout((2, 3, 5), (15, 5, 1), "float32")


def test_a_vector_has_no_rows_to_be_strided(define):
    inputs = {"x": {"shape": ["a"], "dtype": "float16"}}
    found = laid(define, layout="row_strided", inputs=inputs, axes={"a": 7})
    assert found["x"].stride == (1,)


@pytest.mark.parametrize(
    ("rule", "stride"),
    [
        ({"kind": "values", "memory_order": ["c", "a", "b"]}, (3, 1, 6)),
        ({"kind": "values", "broadcast": ["b", "c"]}, (1, 0, 0)),
        ({"kind": "values", "broadcast": ["a"]}, (0, 5, 1)),
    ],
)
def test_a_rule_for_strides_comes_before_the_regime(define, rule, stride):
    for layout in ("contiguous", "row_strided"):
        assert laid(define, rule, layout)["x"].stride == stride


@pytest.mark.parametrize(("packed", "shape"), [(None, (2, 3, 3)), ("b", (2, 2, 5))])
def test_two_float4_values_share_a_byte_along_one_axis(define, packed, shape):
    inputs = {"x": {"shape": ["a", "b", "c"], "dtype": "float4_e2m1"}}
    rule = {"kind": "fp4"} | ({"packed": packed} if packed else {})
    assert laid(define, rule, inputs=inputs)["x"].shape == shape
