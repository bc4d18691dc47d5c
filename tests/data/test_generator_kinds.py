"""Rules for inputs: what is wrong with them is reported with its place, before anything runs."""

import math
import re
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from pytest_fib.data import (
    DTYPE_CLASSES,
    GENERATOR_KINDS,
    DataError,
    Definition,
    DType,
    GeneratorKind,
    InputRule,
    kinds,
    load_definition_file,
)

YAML = """\
name: op
op_type: op
axes: {{n: var, m: var, pages: 8}}
inputs:
  x: {{shape: [n], dtype: {dtype}}}
  table: {{shape: [n, m], dtype: int32}}
  s: {{shape: null, dtype: float32}}
outputs:
  y: {{shape: [n], dtype: float32}}
reference: |
  def run(x, table, s): ...
workloads:
  inputs:
    {name}:
      {rule}
  {more}
"""


def problem(tmp_path, name, rule, dtype="int32", more=""):
    """What is said of a file with one rule, after its name; the rule's first line is line 15."""
    path = tmp_path / "op.yaml"
    text = YAML.format(name=name, rule=rule.replace(", ", "\n      "), dtype=dtype, more=more)
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_definition_file(path)
    return str(caught.value).replace(f"{path}:", "")


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("kind: integer", "15: workloads.inputs.x.kind: 'integer' is not one of values, normal, "),
        ("kind: 3", "15: workloads.inputs.x.kind: '3' is not one of values, normal, "),
        ("kind: normal", "15: workloads.inputs.x.kind: normal can't make int32"),
        (
            "kind: block_table, pages: 2, lengths: table",
            "15: workloads.inputs.x.kind: block_table makes tensors of 2 dim",
        ),
        ("kind: indices", "14: workloads.inputs.x: missing key 'below'"),
        (
            "kind: indices, bellow: 4, below: 3",
            "16: workloads.inputs.x: unknown key 'bellow'; did you mean 'below'?",
        ),
        (
            "kind: indices, zzz: 4, below: 3",
            "16: workloads.inputs.x: unknown key 'zzz'; there are broadcast, memory_order, packed,"
            " sentinels, kind, below, unique, pad",
        ),
        (
            "kind: indices, below: 3, may repeat:",
            "17: workloads.inputs.x: unknown key 'may repeat'; there are broadcast, memory_order,"
            " packed, sentinels, kind, below, unique, pad; a text with a comma between { and } has"
            " to be in quotes",
        ),
        ("kind: indices, below: page", "16: workloads.inputs.x.below: unknown axis 'page'; did"),
        ("kind: indices, below: '2 *'", "16: workloads.inputs.x.below: should be a number or an"),
        ("kind: indices, below: true", "16: workloads.inputs.x.below: should be a number or an"),
        (
            "kind: indices, below: 2, unique: 3",
            "17: workloads.inputs.x.unique: should be true, false or everywhere, not 3",
        ),
        (
            "kind: indptr, total: n, at_least: z",
            "17: workloads.inputs.x.at_least: unknown input 'z'; there are x, table, s",
        ),
        (
            "kind: boolean, broadcast: [m]",
            "16: workloads.inputs.x.broadcast: unknown axis of this input 'm'; there are n",
        ),
        ("kind: boolean, packed: 3", "16: workloads.inputs.x.packed: should be text, not 3"),
        ("kind: boolean, packed: m", "16: workloads.inputs.x.packed: unknown axis of this input"),
        ("kind: boolean, memory_order: n", "16: workloads.inputs.x.memory_order: should be a l"),
        ("kind: boolean, value: 3", "14: workloads.inputs.x: needs either a kind or a value"),
        (
            "value: 3, below: 4",
            "16: workloads.inputs.x: unknown key 'below'; there are",
        ),
    ],
)
def test_a_wrong_rule_is_reported_with_its_line(tmp_path, rule, message):
    assert problem(tmp_path, "x", rule).startswith(message)


@pytest.mark.parametrize(
    ("rule", "dtype", "message"),
    [
        ("kind: integers, min: 6, max: 5", "int32", "17: max: 5 is below min, 6"),
        ("kind: integers, max: -1", "int32", "16: max: -1 is below min, 0"),
        ("kind: integers, max: 1.5", "int32", "16: max: should be a whole number, not 1.5"),
        ("kind: integers, max: .nan", "int32", "16: max: should be a finite number, not nan"),
        ("kind: integers, step: 0", "int32", "16: step: should be above 0, not 0"),
        (
            "kind: integers, max: 5000000000",
            "int32",
            "16: max: int32 holds -2147483648 to 2147483647, not 5000000000",
        ),
        ("kind: integers, max: 891, step: 99", "int8", "16: max: int8 holds -128 to 127, not 891"),
        ("kind: integers, max: 1.5, step: 2", "float32", "16: max: should be a whole number, not"),
        (
            "kind: integers, max: 3, step: 0.5",
            "int32",
            "17: step: int32 is a whole number, not",
        ),
        ("kind: integers, min: -1", "uint8", "16: min: uint8 holds 0 to 255, not -1"),
        ("kind: indices, below: 0", "int32", "16: below: should be at least 1, not 0"),
        ("kind: positions, below: 999", "int8", "16: below: int8 holds -128 to 127, not 998"),
        (
            "kind: positions, below: 9, sentinels: [-1]",
            "uint8",
            "17: sentinels: uint8 holds 0 to 255, not -1",
        ),
        (
            "kind: one_of, values: [300]",
            "uint8",
            "16: values: uint8 holds 0 to 255, not 300",
        ),
        (
            "kind: one_of, values: [2.5]",
            "int32",
            "16: values: int32 is a whole number, not 2.5",
        ),
        (
            "kind: one_of, values: [few]",
            "int32",
            "16: values[0]: should be a number, not 'few'",
        ),
        ("kind: sorted, min: 5", "int32", "14: workloads.inputs.x: min needs a max beside it"),
        ("kind: sorted, min: 5, max: 4", "int32", "17: max: 4 is below min, 5"),
        ("kind: lengths, total: -1", "int32", "16: total: should be at least 0, not -1"),
        ("kind: lengths, total: 9, max: 0", "int32", "17: max: should be at least 1, not 0"),
        ("kind: lengths, total: 9, max: 2.5", "int32", "17: max: should be a whole number, not"),
        ("kind: indptr, total: 9, page_size: 0", "int32", "17: page_size: should be at least 1"),
        ("kind: indptr, total: 9, at_least: s", "int32", "17: at_least: 's' is no 1-D tensor of"),
        ("kind: indptr, total: 9, at_least: table", "int32", "17: at_least: 'table' is no 1-D"),
        ("kind: boolean, p: 3", "bool", "16: p: should be at most 1, not 3"),
        ("kind: normal, std: -1", "float32", "16: std: should be at least 0, not -1"),
        ("kind: scales, min: 0", "float32", "16: min: should be above 0, not 0"),
        ("kind: uniform, max: 1.0e9", "float16", "16: max: float16 holds -65504 to 65504, not"),
        ("kind: normal, packed: n", "float16", "16: packed: two values of float4 share a byte"),
        ("value: 300", "int8", "15: value: int8 holds -128 to 127, not 300"),
        ("value: 1.5", "int32", "15: value: int32 is a whole number, not 1.5"),
        ("value: true", "float32", "15: value: float32 is a number, not true"),
        ("value: 3", "bool", "15: value: bool is true or false, not 3"),
        ("value: 1.0e30", "float16", "15: value: float16 holds -65504 to 65504, not 1e+30"),
        ("value: three", "float16", "15: value: should be a number, true or false, not 'three'"),
    ],
)
def test_a_number_that_makes_no_values_is_reported_with_its_line(tmp_path, rule, dtype, message):
    said = problem(tmp_path, "x", rule, dtype).replace("workloads.inputs.x.", "")
    assert said.startswith(message)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("rule", "dtype"),
    [
        ({"kind": "integers", "min": 5, "max": 5}, "int32"),
        ({"kind": "integers", "min": -128, "max": 127}, "int8"),
        ({"kind": "positions", "below": 256}, "uint8"),
        ({"kind": "uniform", "min": -65504, "max": 65504}, "float16"),
        ({"value": math.inf}, "float16"),
        ({"value": 2.0}, "int32"),
        ({"value": 1}, "bool"),
    ],
)
def test_numbers_that_an_input_can_just_hold_are_fine(tmp_path, rule, dtype):
    path = tmp_path / "op.yaml"
    path.write_text(YAML.format(name="x", rule="value: 1", dtype=dtype, more=""))
    [loaded] = load_definition_file(path)
    data = loaded.definition.model_dump(by_alias=True)
    again = Definition.model_validate({**data, "workloads": {"inputs": {"x": rule}}})
    assert again.workloads.inputs["x"] == rule_of(rule)


def test_memory_has_an_order_of_all_axes(tmp_path):
    message = problem(tmp_path, "table", "kind: positions, below: 9, memory_order: [m]")
    assert message.endswith("table.memory_order: should be all axes, each once: n, m")


def test_a_dtype_that_is_misspelt_is_one_mistake(tmp_path):
    assert "\n" not in problem(tmp_path, "x", "kind: integers", "Int32")


def test_a_near_name_is_suggested_for_an_unknown_kind(tmp_path):
    assert problem(tmp_path, "x", "kind: integer").endswith("did you mean 'integers'?")


def test_all_that_is_wrong_with_a_rule_is_reported_at_once(tmp_path):
    message = problem(
        tmp_path, "x", "kind: indptr, total: m + p, at_least: z, allow_empty: 1, a: 2"
    )
    assert [line.partition("x.")[2].partition(":")[0] for line in message.splitlines()] == [
        "total", "at_least", "allow_empty", "",
    ]  # fmt: skip


def test_a_scalar_has_few_generators(tmp_path):
    message = problem(tmp_path, "s", "kind: probabilities")
    assert message == "15: workloads.inputs.s.kind: probabilities makes tensors, not scalars"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("values: [norml]", "16: workloads.values[0]: unknown value pattern 'norml'; did yo"),
        (
            "layouts: [contiguous]",
            "16: workloads.layouts[0]: unknown layout 'contiguous'; there",
        ),
    ],
)
def test_an_unknown_value_pattern_or_layout_is_reported_with_its_line(tmp_path, more, message):
    assert problem(tmp_path, "x", "value: 3", more=more).startswith(message)


@pytest.mark.parametrize("wrong", ["below: 2 * page", "below: m + n, unique: 1"])
def test_records_that_are_built_are_checked_too(tmp_path, wrong):
    path = tmp_path / "op.yaml"
    path.write_text(YAML.format(name="x", rule="value: 1", dtype="int32", more=""))
    [loaded] = load_definition_file(path)
    parameters = dict(part.split(": ") for part in wrong.split(", "))
    rule = {"kind": "indices", **parameters}
    data = loaded.definition.model_dump(by_alias=True)
    with pytest.raises(ValueError, match=r"unknown axis 'page'|should be true, false"):
        Definition.model_validate({**data, "workloads": {"inputs": {"x": rule}}})


@pytest.mark.parametrize(
    ("dtypes", "members"),
    [
        ("integer", {"int64", "int32", "int16", "int8", "uint8"}),
        ("floating", {"float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}),
        ("bytes", {"float4_e2m1", "int8", "uint8"}),
        ("fp4", {"float4_e2m1"}),
        ("bool", {"bool"}),
        ("any", set(DType)),
    ],
)
def test_a_class_of_dtypes_has_its_members(dtypes, members):
    assert DTYPE_CLASSES[dtypes] == members


rule_of = TypeAdapter(InputRule).validate_python


def test_a_rule_is_of_the_model_of_its_kind():
    rule = rule_of({"kind": "indices", "below": "num_pages", "unique": True})
    assert rule == kinds.Indices(below="num_pages")
    assert str(rule) == "indices, below num_pages"


def test_parameters_may_be_nested_as_older_files_have_them():
    nested = {"kind": "indptr", "params": {"total": "n", "allow_empty": False}}
    assert rule_of(nested) == kinds.Indptr(total="n", allow_empty=False)
    dumped = {"kind": None, "value": 3, "params": {}}
    assert rule_of(dumped).value == 3


@pytest.mark.parametrize("value", [True, False, 0, 3, 0.5])
def test_a_rule_keeps_the_type_of_a_fixed_value(value):
    assert rule_of({"value": value}).value is value


def test_a_rule_can_fix_a_value_that_json_has_no_number_for():
    assert math.isinf(rule_of({"value": "-Infinity"}).value)


@pytest.mark.parametrize("rule", [{"value": 3}, {"kind": "seq_lens", "max": "n", "pages": 2}])
def test_a_rule_survives_a_file(rule):
    adapter = TypeAdapter(InputRule)
    assert adapter.validate_json(adapter.dump_json(rule_of(rule))) == rule_of(rule)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({}, "needs either a kind or a value"),
        ({"below": 3}, "needs either a kind or a value"),
        ({"kind": "indptr", "value": 3}, "needs either a kind or a value"),
        ({"value": "three"}, "should be a number, true or false"),
        ({"kind": "normal", "params": 3}, "Extra inputs are not permitted"),
    ],
)
def test_a_rule_has_a_kind_or_a_value(rule, message):
    with pytest.raises(ValidationError, match=message):
        rule_of(rule)


DOCS = Path(__file__).parents[2] / "docs/writing-definitions.md"
FILLS = {
    "any": "any",
    "floating": "floating",
    "not packed": "all but fp8 and fp4",
    "numbers": "all but fp8, fp4 and bool",
    "fp8": "fp8",
    "bytes": "fp4, `int8`, `uint8`",
    "integer": "integers",
    "32 or 64 bits": "`int32`, `int64`",
}


def documented():
    """The cells of each row of the table of kinds, by the kind."""
    table = DOCS.read_text("utf-8").partition("### Generators")[2].partition("\n###")[0]
    rows = re.findall(r"^\| `(\w+)` \| (.*)$", table, re.MULTILINE)
    return {kind: cells.split(" | ") for kind, cells in rows}


def test_the_documentation_has_every_kind():
    assert list(documented()) == list(GENERATOR_KINDS)


@pytest.mark.parametrize("kind", GENERATOR_KINDS)
def test_the_documentation_has_every_parameter_with_its_default(kind):
    model = GENERATOR_KINDS[kind]
    parameters = re.findall(r"`(\w+)`(?: \(([^)]*)\))?", documented()[kind][1])
    own = {n: f for n, f in model.model_fields.items() if n not in GeneratorKind.model_fields}
    expected = {
        name: field.default
        for name, field in own.items()
        if not (name == "kind" or field.is_required() or field.default is None)
        and field.default is not False
    }
    assert {name for name, _ in parameters} == own.keys() - {"kind"}
    shown = {name: default for name, default in parameters if default}
    assert {name: number(default) for name, default in shown.items()} == expected


def number(text):
    base, power, exponent = text.partition("**")
    return text == "true" or (float(base) ** float(exponent) if power else float(base))


@pytest.mark.parametrize("kind", GENERATOR_KINDS)
def test_the_documentation_says_what_a_kind_fills(kind):
    model = GENERATOR_KINDS[kind]
    least = model.dims.rstrip("+")
    dims = f", {least}-D" if least == model.dims else f", from {least}-D" if least != "0" else ""
    scalars = ", scalars" if model.scalars else ""
    assert documented()[kind][0] == f"{FILLS[model.dtypes]}{scalars}{dims}"
