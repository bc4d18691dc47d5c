"""Rules for inputs: what is wrong with them is told with its place, before anything runs."""

import pytest

from pytest_fib.data import FORMS, ODD_LAYOUTS, DataError, Definition, DType, load_definition_file
from pytest_fib.data._rules import VALUES, is_of
from pytest_fib.workloads._kinds import KINDS
from pytest_fib.workloads._regimes import REGIMES

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
    ("rule", "told"),
    [
        ("kind: integer", "15: workloads.inputs.x.kind: unknown generator 'integer'; did you"),
        ("kind: spiral", "15: workloads.inputs.x.kind: unknown generator 'spiral'; there are v"),
        ("kind: normal", "15: workloads.inputs.x.kind: normal can't make int32"),
        (
            "kind: block_table, pages: 2, lengths: table",
            "15: workloads.inputs.x.kind: block_table makes tensors of 2 dim",
        ),
        ("kind: indices", "14: workloads.inputs.x: indices needs 'below'"),
        ("kind: indices, bellow: 4, below: 3", "16: workloads.inputs.x.bellow: indices has no"),
        ("kind: indices, below: page", "16: workloads.inputs.x.below: unknown axis 'page'; did"),
        ("kind: indices, below: '2 *'", "16: workloads.inputs.x.below: should be a number or a"),
        ("kind: indices, below: true", "16: workloads.inputs.x.below: should be a number or an"),
        ("kind: indices, below: 2, unique: 3", "17: workloads.inputs.x.unique: should be true"),
        ("kind: indptr, total: n, at_least: z", "17: workloads.inputs.x.at_least: no input 'z'"),
        ("kind: boolean, broadcast: [m]", "16: workloads.inputs.x.broadcast: 'm' is not one of"),
        ("kind: boolean, packed: 3", "16: workloads.inputs.x.packed: 3 is not one of the input"),
        ("kind: boolean, memory_order: n", "16: workloads.inputs.x.memory_order: should be a l"),
    ],
)
def test_a_wrong_rule_is_told_with_its_line(tmp_path, rule, told):
    assert problem(tmp_path, "x", rule).startswith(told)


def test_a_scalar_has_few_generators(tmp_path):
    told = problem(tmp_path, "s", "kind: probabilities")
    assert told == "15: workloads.inputs.s.kind: probabilities makes tensors, not scalars"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("values: [norml]", "16: workloads.values[0]: unknown regime 'norml'; did you mean 'nor"),
        ("layouts: [contiguous]", "16: workloads.layouts[0]: unknown regime 'contiguous'; ther"),
    ],
)
def test_a_wrong_regime_is_told_with_its_line(tmp_path, more, told):
    assert problem(tmp_path, "x", "value: 3", more=more).startswith(told)


@pytest.mark.parametrize("wrong", ["below: 2 * page", "below: m + n, unique: 1"])
def test_records_that_are_built_are_checked_too(tmp_path, wrong):
    path = tmp_path / "op.yaml"
    path.write_text(YAML.format(name="x", rule="value: 1", dtype="int32", more=""))
    [loaded] = load_definition_file(path)
    parameters = dict(part.split(": ") for part in wrong.split(", "))
    rule = {"kind": "indices", **parameters}
    data = loaded.definition.model_dump(by_alias=True)
    with pytest.raises(ValueError, match=r"unknown axis 'page'|should be true or false"):
        Definition.model_validate({**data, "workloads": {"inputs": {"x": rule}}})


def test_what_is_declared_is_what_there_is():
    assert set(FORMS) == set(KINDS)
    assert ("usual", *REGIMES["values"]) == VALUES
    assert REGIMES["layout"] == ("contiguous", *ODD_LAYOUTS)


@pytest.mark.parametrize(
    ("dtypes", "members"),
    [
        ("integer", {"int64", "int32", "int16", "int8", "uint8"}),
        ("floating", {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"}),
        ("bytes", {"float4_e2m1", "int8", "uint8"}),
        ("fp4", {"float4_e2m1"}),
        ("bool", {"bool"}),
        ("any", {dtype.value for dtype in DType}),
    ],
)
def test_a_class_of_dtypes_has_its_members(dtypes, members):
    assert {dtype.value for dtype in DType if is_of(dtypes, dtype.value)} == members
