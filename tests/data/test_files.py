import json
from pathlib import Path

import pytest

from pytest_fib.data import (
    DataError,
    Definition,
    LoadedDefinition,
    Trace,
    Workload,
    load_definition_file,
    load_solution_file,
    read_traces,
)

FAMILY = """\
# Both dtypes, both sizes.
family: {dtype: [float16, bfloat16], hidden: [128, 4096]}
name: scale_${dtype}_d${hidden}
op_type: elementwise
axes: {batch: var, hidden: ${hidden}}
inputs:
  x: {shape: [batch, hidden], dtype: ${dtype}}
outputs:
  y: {shape: [batch, hidden], dtype: "${dtype}"}
reference: |
  def run(x):
      assert x.shape[1] == ${hidden}
      return x
"""

SOLUTION = """\
name: scale_fast
definition: scale_d128
author: someone
spec:
  language: cuda
  target_hardware: [cuda]
  entry_point: main.cu::run
sources:
  - main.cu
  - path: inc/util.h
  - {path: note.txt, content: hi}
"""


def complaints(load, path):
    with pytest.raises(DataError) as caught:
        load(path)
    return str(caught.value).splitlines()


def test_a_yaml_definition_is_loaded_with_its_place(write, scale, scale_yaml):
    path = write("kernel_defs/x.yaml", "# Why.\n" + scale_yaml)
    expected = LoadedDefinition(Definition(**scale), Path(path), 2, 12)
    assert load_definition_file(path) == (expected,) == load_definition_file(Path(path))


def test_the_other_suffix_is_yaml_too(write, scale_yaml):
    assert load_definition_file(write("x.yml", scale_yaml))[0].definition.name == "scale_d128"


def test_messages_have_the_path_as_the_caller_gave_it(write, scale_yaml, tmp_path):
    write("d/x.yaml", scale_yaml.replace("name", "nam"))
    for path in ("d/x.yaml", str(tmp_path / "d" / "x.yaml")):
        assert complaints(load_definition_file, path)[0].startswith(f"{path}:1: ")


def test_a_file_that_is_not_there_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load_definition_file(tmp_path / "x.yaml")


def test_a_file_of_other_bytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_bytes(b"name: a\nop_type: \xff\n")
    assert complaints(load_definition_file, "x.yaml") == ["x.yaml:2: not UTF-8 text"]


def test_a_definition_that_is_no_mapping_is_refused(write):
    path = write("x.yaml", "- a\n")
    assert complaints(load_definition_file, path) == ["x.yaml:1: should be a mapping, not a list"]


@pytest.mark.parametrize(
    ("axes", "complaint"),
    [("axes: [n]\n", "x.yaml:3: axes: should be a mapping, not a list"),
     ("", "x.yaml:1: missing key 'axes'")],
)  # fmt: skip
def test_without_axes_sizes_in_shapes_are_no_complaint_besides(write, axes, complaint):
    tensor = "{shape: [n, 64], dtype: float32}"
    text = f"name: a\nop_type: b\n{axes}inputs: {{x: {tensor}}}\noutputs: {{y: {tensor}}}\n"
    path = write("x.yaml", f"{text}reference: |\n  def run(x):\n      return x\n")
    assert complaints(load_definition_file, path) == [complaint]


def test_a_family_is_many_definitions(write):
    loaded = load_definition_file(write("x.yaml", FAMILY))
    assert [item.definition.name for item in loaded] == [
        "scale_float16_d128",
        "scale_float16_d4096",
        "scale_bfloat16_d128",
        "scale_bfloat16_d4096",
    ]
    last = loaded[-1].definition
    assert last.const_axes == {"hidden": 4096}
    assert (last.inputs["x"].dtype, last.outputs["y"].dtype) == ("bfloat16", "bfloat16")
    assert "x.shape[1] == 4096" in last.reference
    assert {item.line for item in loaded} == {3}


def test_a_familys_names_differ(write):
    path = write("x.yaml", FAMILY.replace("_d${hidden}", ""))
    assert complaints(load_definition_file, path) == [
        "x.yaml:3: several family members have the name 'scale_bfloat16'; "
        "write ${dtype} and ${hidden} in it",
        "x.yaml:3: several family members have the name 'scale_float16'; "
        "write ${dtype} and ${hidden} in it",
    ]


def test_a_mistake_all_members_share_is_reported_once(write):
    path = write("x.yaml", FAMILY.replace("[batch, hidden], dtype: $", "[bach, hidden], dtype: $"))
    message = "x.yaml:7: inputs.x.shape[0]: unknown axis 'bach'; did you mean 'batch'?"
    assert complaints(load_definition_file, path) == [message]


def test_a_mistake_of_one_member_is_reported(write):
    path = write("x.yaml", FAMILY.replace("4096]", "-1]").replace("_d${hidden}", "_${hidden}"))
    assert complaints(load_definition_file, path) == [
        "x.yaml:5: axes.hidden: should be at least 0, not -1"
    ]


def test_json_definitions_may_have_dots_and_unknown_keys(write, scale):
    scale["inputs"]["x"]["optional"] = False
    path = write("x.json", json.dumps(scale | {"name": "llama-3.1", "colour": "red"}))
    (loaded,) = load_definition_file(path)
    assert (loaded.definition.name, loaded.line) == ("llama-3.1", 1)


def test_mistakes_in_json_have_lines_too(write, scale):
    scale["inputs"]["x"]["dtype"] = "unknown"
    scale["axes"]["batch"]["type"] = "vra"
    lines = complaints(load_definition_file, write("x.json", json.dumps(scale, indent=1)))
    assert lines[0] == "x.json:6: axes.batch.type: 'vra' is not one of var, const"
    assert lines[1].startswith("x.json:19: inputs.x.dtype: 'unknown' is not one of float32, ")


def test_bad_json_has_its_line(write):
    assert complaints(load_definition_file, write("x.json", '{\n"name": }')) == [
        "x.json:2: bad JSON: Expecting value"
    ]


def test_json_that_yaml_cannot_read_is_placed_on_line_one(write, scale):
    text = json.dumps(scale | {"description": "\U0001f600", "tags": 3}, indent=1)
    assert complaints(load_definition_file, write("x.json", text)) == [
        "x.json:1: tags: should be a list, not 3"
    ]


def test_a_solution_folder_is_read_with_its_sources(write):
    write("impl/main.cu", "void run();")
    write("impl/inc/util.h", "// é")
    solution = load_solution_file(write("impl/solution.yaml", SOLUTION))
    assert {file.path: file.content for file in solution.sources} == {
        "main.cu": "void run();",
        "inc/util.h": "// é",
        "note.txt": "hi",
    }
    assert solution.entry_file == "main.cu"


def test_missing_sources_are_named_with_their_lines(write):
    path = write("impl/solution.yaml", SOLUTION.replace("author", "athor"))
    write("impl/main.cu", "")
    assert complaints(load_solution_file, path) == [
        "impl/solution.yaml:1: missing key 'author'",
        "impl/solution.yaml:3: unknown key 'athor'; did you mean 'author'?",
        "impl/solution.yaml:10: sources[1]: file 'inc/util.h' does not exist",
    ]


def test_sources_outside_the_folder_are_not_read(write):
    write("secret.txt", "")
    text = SOLUTION.replace("path: inc/util.h", "../secret.txt")
    write("impl/main.cu", "")
    assert complaints(load_solution_file, write("impl/solution.yaml", text)) == [
        "impl/solution.yaml:10: sources[1]: '../secret.txt' should have no '..'"
    ]


def test_a_source_that_is_no_text_is_named(write, tmp_path):
    path = write("impl/solution.yaml", SOLUTION)
    (tmp_path / "impl" / "main.cu").write_bytes(b"\xff")
    (tmp_path / "impl" / "inc" / "util.h").mkdir(parents=True)
    assert complaints(load_solution_file, path) == [
        "impl/solution.yaml:9: sources[0]: file 'main.cu' is not UTF-8 text",
        "impl/solution.yaml:10: sources[1]: file 'inc/util.h' can't be read",
    ]


def test_a_json_solution_works_as_it_is(write):
    write("main.cu", "")
    write("inc/util.h", "")
    solution = load_solution_file(write("solution.yaml", SOLUTION))
    exported = json.dumps(solution.to_flashinfer() | {"colour": "red"})
    assert load_solution_file(write("x.json", exported)) == solution


@pytest.fixture
def lines():
    workloads = [Workload(axes={"batch": size}) for size in (1, 2, 3)]
    return [Trace(definition="d", workload=item).to_json_line() for item in workloads]


def test_traces_are_read_in_order_and_blank_lines_skipped(write, lines):
    path = write("x.jsonl", "\n\n".join(lines) + "\n")
    assert [trace.to_json_line() for trace in read_traces(path)] == lines


def test_a_last_line_without_its_newline_counts_where_it_is_whole(write, lines):
    assert len(list(read_traces(write("x.jsonl", "\n".join(lines))))) == 3


@pytest.mark.parametrize("kept", [1, 10, -1])
def test_a_last_line_that_was_cut_off_is_skipped(write, lines, kept):
    path = write("x.jsonl", "\n".join(lines)[: len("\n".join(lines[:2])) + 1] + lines[2][:kept])
    assert len(list(read_traces(path))) == 2


def test_a_last_line_cut_inside_a_character_is_skipped(tmp_path, lines):
    (tmp_path / "x.jsonl").write_bytes(lines[0].encode() + b'\n{"definition": "\xc3')
    assert len(list(read_traces(tmp_path / "x.jsonl"))) == 1


def test_a_broken_line_elsewhere_is_an_error_after_the_lines_before_it(write, lines):
    traces = read_traces(write("x.jsonl", f"{lines[0]}\n{lines[1][:10]}\n{lines[2]}"))
    assert next(traces).to_json_line() == lines[0]
    with pytest.raises(DataError, match=r"^x\.jsonl:2: bad JSON: "):
        next(traces)


def test_a_line_outside_the_schema_is_an_error_even_if_last(write, lines):
    path = write("x.jsonl", lines[0] + '\n{"definition": 3, "workload": {"axes": {"a": -1}}}')
    assert complaints(lambda path: list(read_traces(path)), path) == [
        "x.jsonl:2: definition: should be text, not 3",
        "x.jsonl:2: workload.axes.a: should be at least 0, not -1",
    ]
