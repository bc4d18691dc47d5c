import json
import subprocess
import sys

import pytest
from pydantic import ValidationError

from pytest_fib.data import AxisConst, AxisVar, Definition, DType, TensorSpec, WorkloadsSection


def gemm(**changes):
    fields = {
        "name": "gemm_n4096",
        "op_type": "gemm",
        "axes": {"M": AxisVar(), "N": AxisConst(value=4096), "K": AxisVar(description="inner")},
        "inputs": {
            "A": TensorSpec(shape=["M", "K"], dtype="float16"),
            "B": TensorSpec(shape=["N", "K"], dtype=DType.FLOAT16),
        },
        "outputs": {"C": TensorSpec(shape=["M", "N"], dtype="float16")},
        "reference": "def run(A, B):\n    return A @ B.T\n",
    }
    return Definition(**(fields | changes))


def complaint(**changes):
    with pytest.raises(ValidationError) as caught:
        gemm(**changes)
    (error,) = caught.value.errors()
    return ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")


def test_axes_are_sorted_into_const_and_var():
    definition = gemm()
    assert definition.const_axes == {"N": 4096}
    assert definition.var_axes == ("M", "K")


def test_short_forms_of_axes_mean_the_long_ones():
    short = gemm(axes={"M": "var", "N": 4096, "K": {"type": "var", "description": "inner"}})
    assert short == gemm()


@pytest.mark.parametrize(
    ("axis", "shown"),
    [
        ("vra", "'vra'"),
        (None, "null"),
        (1.5, "1.5"),
        (True, "true"),
        ([], "a list"),
        ("4096", "'4096'"),
    ],
)
def test_an_axis_is_var_a_size_or_a_mapping(axis, shown):
    loc, message = complaint(axes={"M": axis, "N": 1, "K": "var"})
    assert loc == "axes.M"
    assert message == f"should be var, a size, or a mapping with a type, not {shown}"


def test_a_negative_size_is_refused_and_zero_is_not():
    assert complaint(axes={"M": "var", "N": -1, "K": "var"})[0] == "axes.N.const.value"
    assert gemm(axes={"M": "var", "N": 0, "K": "var"}).const_axes == {"N": 0}


def test_axis_values_adds_the_const_axes():
    assert gemm().axis_values({"K": 2, "M": 3}) == {"M": 3, "N": 4096, "K": 2}


def test_axis_values_takes_a_const_axis_that_agrees():
    assert gemm().axis_values({"K": 2, "M": 3, "N": 4096})["N"] == 4096


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"K": 2}, "no value for axis 'M'"),
        ({"K": 2, "M": 3, "N": 5}, "axis 'N' is 4096, not 5"),
    ],
)
def test_axis_values_refuses_what_is_missing_or_contradicts(axes, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        gemm().axis_values(axes)


def test_shape_at_puts_sizes_for_names():
    assert gemm().inputs["A"].shape_at({"M": 3, "N": 1, "K": 2}) == (3, 2)


def test_a_null_shape_is_a_scalar_and_an_empty_one_is_not():
    scalar, zero_d = TensorSpec(shape=None, dtype="int32"), TensorSpec(shape=[], dtype="int32")
    assert (scalar.is_scalar, zero_d.is_scalar) == (True, False)
    assert scalar.shape_at({}) == zero_d.shape_at({}) == ()


@pytest.mark.parametrize(
    ("dtype", "bits", "floating"),
    [
        ("float64", 64, True),
        ("float32", 32, True),
        ("float16", 16, True),
        ("bfloat16", 16, True),
        ("float8_e4m3fn", 8, True),
        ("float8_e5m2", 8, True),
        ("float4_e2m1", 4, True),
        ("int64", 64, False),
        ("int32", 32, False),
        ("int16", 16, False),
        ("int8", 8, False),
        ("uint8", 8, False),
        ("bool", 8, False),
    ],
)
def test_dtypes_know_their_size_and_kind(dtype, bits, floating):
    assert (DType(dtype).itemsize_bits, DType(dtype).is_floating) == (bits, floating)


def test_no_dtype_is_left_out_above():
    assert len(DType) == 13


@pytest.mark.parametrize("name", ["", "-a", ".a", "a b", "a::b", "a/b", "é", "a\n"])
def test_names_that_no_node_id_can_have_are_refused(name):
    assert complaint(name=name)[0] == "name"


def test_names_may_have_dots_outside_yaml():
    assert gemm(name="llama-3.1_gemm").name == "llama-3.1_gemm"


def test_definitions_are_immutable():
    with pytest.raises(ValidationError, match="frozen"):
        gemm().name = "other"


def test_unknown_keys_are_ignored():
    assert gemm(colour="red") == gemm()


def test_export_leaves_out_what_is_ours_and_keeps_null_shapes(scale):
    definition = Definition(
        **scale,
        workloads={"axes": {"batch": {"max": 4}}, "inputs": {"factor": {"value": 2.0}}},
        tolerances={"y": {"atol": 0.5}},
        nondeterministic=True,
    )
    assert definition.nondeterministic
    assert definition.to_flashinfer() == scale
    assert Definition(**json.loads(json.dumps(definition.to_flashinfer()))) == Definition(**scale)


def test_a_size_in_a_shape_is_a_const_axis_with_a_name(scale):
    scale["inputs"]["x"]["shape"] = ["batch", 128, 8]
    scale["outputs"]["y"]["shape"] = ["batch", 128]
    scale["axes"]["const_8"] = {"type": "var"}
    definition = Definition(**scale)
    assert definition.inputs["x"].shape == ("batch", "const_128", "const_8_")
    assert definition.outputs["y"].shape == ("batch", "const_128")
    assert definition.const_axes == {"hidden": 128, "const_128": 128, "const_8_": 8}
    assert Definition(**definition.to_flashinfer()) == definition


def test_a_definition_survives_pydantics_own_json(scale):
    rule = {"kind": "uniform", "max": "2 * batch", "ends": True}
    definition = Definition(
        **scale,
        workloads={"inputs": {"x": rule}, "bench": [{"batch": 3}]},
        tolerances={"y": {"by": "gathered", "from": "x"}},
    )
    assert Definition.model_validate_json(definition.model_dump_json()) == definition


def test_sections_may_be_records_already(scale):
    section = WorkloadsSection(bench=[{"bach": 1}])
    with pytest.raises(ValidationError, match="unknown axis 'bach'; did you mean 'batch'"):
        Definition(**scale, workloads=section)


def test_importing_the_schema_imports_neither_torch_nor_pytest():
    code = (
        "import sys, pytest_fib.data; print({'torch', 'pytest', 'hypothesis'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "set()\n"


def sampling(**changes):
    fields = {
        "name": "top_p",
        "op_type": "sampling",
        "axes": {"rows": "var", "tokens": 50},
        "inputs": {
            "probs": TensorSpec(shape=["rows", "tokens"], dtype="float32"),
            "top_p": TensorSpec(shape=["rows"], dtype="float32"),
        },
        "outputs": {"samples": TensorSpec(shape=["rows"], dtype="int64")},
        "reference": "def run(*inputs): ...",
    }
    return Definition(**(fields | changes))


def test_a_token_for_each_row_of_probabilities_is_sampled():
    assert sampling().is_sampled("samples")
    assert gemm(tolerances={"C": {"by": "samples"}}).is_sampled("C")


@pytest.mark.parametrize(
    "changes",
    [
        {"tolerances": {"samples": {"exact": True}}},
        {"op_type": "argmax"},
        {"outputs": {"samples": TensorSpec(shape=["rows"], dtype="float32")}},
        {"outputs": {"samples": TensorSpec(shape=["rows", "tokens"], dtype="int64")}},
        {"inputs": {**sampling().inputs, "seed": TensorSpec(shape=None, dtype="int64")}},
        {"inputs": {"logits": TensorSpec(shape=["rows", "tokens"], dtype="float32")}},
        {"inputs": {"probs": TensorSpec(shape=["rows"], dtype="float32")}},
        {
            "outputs": {
                name: TensorSpec(shape=["rows"], dtype="int64") for name in ("samples", "valid")
            }
        },
    ],
)
def test_what_may_be_made_otherwise_is_not_sampled(changes):
    definition = sampling(**changes)
    assert not any(definition.is_sampled(name) for name in definition.outputs)
