import pickle

import pytest

from pytest_fib.data import DataError, Problem, load_definition_file


def complaints(path):
    with pytest.raises(DataError) as caught:
        load_definition_file(path)
    return str(caught.value).splitlines()


def test_problems_are_listed_once_in_order_of_their_lines():
    late, early = Problem("x.yaml", 10, "b"), Problem("x.yaml", 9, "c")
    error = DataError([late, early, late])
    assert error.problems == (early, late)
    assert str(error) == "x.yaml:9: c\nx.yaml:10: b"
    assert isinstance(error, ValueError)


def test_errors_survive_pickling():
    error = DataError([Problem("x.yaml", 1, "a")])
    assert str(pickle.loads(pickle.dumps(error))) == "x.yaml:1: a"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch: var", "batch: {type: vra}", "5: axes.batch.type: 'vra' is not one of var, const"),
        (
            "batch: var",
            "batch: vra",
            "5: axes.batch: should be var, a size, or a mapping with a type, not 'vra'",
        ),
        ("batch: var", "batch: {description: b}", "5: axes.batch: missing key 'type'"),
        ("hidden: 128", "hidden: {type: const}", "6: axes.hidden: missing key 'value'"),
        (
            "hidden: 128",
            "hidden:\n    type: const\n    value: 1\n    valu: 2",
            "9: axes.hidden: unknown key 'valu'; did you mean 'value'?",
        ),
        (
            "reference: |",
            "tolerances: {y: {form: x}}\nreference: |",
            "12: tolerances.y: unknown key 'form'; did you mean 'from'?",
        ),
        ("hidden: 128", "hidden: -1", "6: axes.hidden: should be at least 0, not -1"),
        (
            "hidden: 128",
            "hidden: {type: const, value: '128'}",
            "6: axes.hidden.value: should be a whole number, not '128'",
        ),
        (
            "null, dtype",
            "null, dtyp: 3, dtype",
            "9: inputs.factor: unknown key 'dtyp'; did you mean 'dtype'?",
        ),
        (", dtype: float32", "", "9: inputs.factor: missing key 'dtype'"),
        (
            "[batch, hidden], dtype: float16}\n  f",
            "x, dtype: float16}\n  f",
            "8: inputs.x.shape: should be a list, not 'x'",
        ),
        (
            "[batch, hidden], dtype: float16}\n  f",
            "[batch, -3], dtype: float16}\n  f",
            "8: inputs.x.shape[1]: should be an axis or a size, not -3",
        ),
        (
            "name: scale",
            "name: a.scale",
            "2: name: 'a.scale_d128' should be letters of ASCII, digits, '_' and '-', not starting "
            "with '-'",
        ),
        ("name: scale_d128", "name: 128", "2: name: should be text, not 128"),
        (
            "op_type: elementwise",
            f"op_type: {201 * 'e'}",
            "3: op_type: should have at most 200 characters",
        ),
        ("op_type: elementwise", "op_type: ''", "3: op_type: should not be empty"),
        (
            "outputs:\n  y: {shape: [batch, hidden], dtype: float16}\n",
            "outputs: {}\n",
            "10: outputs: there is no output, so any implementation would pass: name at least one",
        ),
        ("op_type: elementwise\n", "", "1: missing key 'op_type'"),
        ("op_type:", "tags: [true]\nop_type:", "3: tags[0]: should be text, not true"),
        ("op_type:", "op_typ: x\nop_type:", "3: unknown key 'op_typ'; did you mean 'op_type'?"),
        (
            "op_type:",
            "zzz: x\nop_type:",
            "3: unknown key 'zzz'; there are name, op_type, description, tags, axes, constraints,"
            " inputs, outputs, reference, workloads, tolerances, nondeterministic",
        ),
        ("op_type:", "name: y\nop_type:", "3: key 'name' is given twice, first on line 2"),
        ("return x", "return (x", "14: reference: not Python: '(' was never closed"),
        (
            "run(x, factor)",
            "run(x)",
            "13: reference: run takes (x), but the inputs are (x, factor)",
        ),
        (
            "op_type:",
            "tolerances: {y: {rtol: abc}}\nop_type:",
            "3: tolerances.y.rtol: should be a number, not 'abc'",
        ),
        (
            "op_type:",
            "tolerances: {y: {rto: 1}}\nop_type:",
            "3: tolerances.y: unknown key 'rto'; did you mean 'rtol'?",
        ),
        (
            "op_type:",
            "tolerances: {y: {rtol: -1.0}}\nop_type:",
            "3: tolerances.y.rtol: should be at least 0, not -1.0",
        ),
        ("op_type:", "tolerances: null\nop_type:", "3: tolerances: should be a mapping, not null"),
        (
            "op_type:",
            "workloads: {benhc: []}\nop_type:",
            "3: workloads: unknown key 'benhc'; did you mean 'bench'?",
        ),
        (
            "op_type:",
            "workloads: {bench: {}}\nop_type:",
            "3: workloads.bench: should be a list, not a mapping",
        ),
        (
            "op_type:",
            "workloads:\n  axes:\n    batch: {min: 1,\n      maxi: 2}\nop_type:",
            "6: workloads.axes.batch: unknown key 'maxi'; did you mean 'max'?",
        ),
        (
            "op_type:",
            "workloads: {inputs: {factor: {value: x}}}\nop_type:",
            "3: workloads.inputs.factor.value: should be a number, true or false, not 'x'",
        ),
        (
            "op_type:",
            "workloads: {inputs: {factor: 2.5}}\nop_type:",
            "3: workloads.inputs.factor: should be a rule: {value: 2.5}",
        ),
    ],
)
def test_each_mistake_is_a_sentence_with_its_place(write, scale_yaml, old, new, message):
    assert old in scale_yaml
    path = write("x.yaml", "# A comment.\n" + scale_yaml.replace(old, new, 1))
    expected = message if message[0] != "1" or message[1] != ":" else message.replace("1:", "2:", 1)
    assert complaints(path) == [f"x.yaml:{expected}"]


@pytest.mark.parametrize(
    ("old", "new", "meant"),
    [
        ("dtype: float32", "dtype: fp32", "float32"),
        ("dtype: float32", "dtype: BF16", "bfloat16"),
        ("reference: |", "workloads: {inputs: {x: {kind: gaussian}}}\nreference: |", "normal"),
        ("reference: |", "workloads: {inputs: {x: {kind: nomal}}}\nreference: |", "normal"),
    ],
)
def test_names_of_other_libraries_are_known(write, scale_yaml, old, new, meant):
    (line,) = complaints(write("x.yaml", scale_yaml.replace(old, new, 1)))
    assert line.endswith(f"; did you mean {meant!r}?")
    assert "fixed value" not in line  # which is no kind that a file may have


def test_long_values_are_cut(write, scale_yaml):
    path = write("x.yaml", scale_yaml.replace("dtype: float32", "dtype: " + "f" * 100))
    (line,) = complaints(path)
    assert f"'{'f' * 56}... is not one of float32, " in line


def test_all_mistakes_are_listed_across_sections(write):
    path = write(
        "x.yaml",
        """\
name: a
descripton: hi
axes:
  batch: {type: vra}
  hidden: 128
inputs:
  x: {shap: [batch], dtype: float16}
  w:
    shape: [hiden]
    dtype: int3
outputs: 3
constraints:
  - a ==
reference: |
  def run(x, w):
      return x +
workloads:
  inputs: {v: {kind: normal}}
  bench:
    - {batch: 1}
    - {batch: 1}
""",
    )
    dtypes = "float32, float64, float16, bfloat16, float8_e4m3fn, float8_e5m2, float4_e2m1, int64, "
    assert complaints(path) == [
        "x.yaml:1: missing key 'op_type'",
        "x.yaml:2: unknown key 'descripton'; did you mean 'description'?",
        "x.yaml:4: axes.batch.type: 'vra' is not one of var, const",
        "x.yaml:7: inputs.x: missing key 'shape'",
        "x.yaml:7: inputs.x: unknown key 'shap'; did you mean 'shape'?",
        "x.yaml:9: inputs.w.shape[0]: unknown axis 'hiden'; did you mean 'hidden'?",
        f"x.yaml:10: inputs.w.dtype: 'int3' is not one of {dtypes}int32, int16, int8, uint8, bool; "
        "did you mean 'int32'?",
        "x.yaml:11: outputs: should be a mapping, not 3",
        "x.yaml:13: constraints[0]: not a Python expression: 'a ==': invalid syntax",
        "x.yaml:16: reference: not Python: invalid syntax",
        "x.yaml:18: workloads.inputs.v: unknown input 'v'; there are x, w",
        "x.yaml:21: workloads.bench[1]: the same as bench[0]",
    ]
