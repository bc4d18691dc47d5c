"""A kernel from its scaffold to green, its definition checked and its inputs shown."""

import json
import re

import pytest

from pytest_fib.commands import main
from pytest_fib.data import definition_schema
from pytest_fib.discovery import DefinitionLookup, load_catalogue

OPTIONS = ("--input=x:float16[n,8]", "--input=factor:float32", "--output=y:float16[n,8]")


@pytest.fixture(autouse=True)
def at_home(project, monkeypatch):
    monkeypatch.chdir(project.path)


def test_a_scaffold_is_red_and_becomes_green(project):
    project.write("tox.ini", project.path.joinpath("tox.ini").read_text() + "\npythonpath = .\n")
    assert main(["new", "twice", "--op-type=toy", *OPTIONS]) == 0
    definition = project.path / "kernel_defs/toy/twice.yaml"
    kernel = project.path / "kernel_impls/toy/twice/first.py"
    project.run().assert_outcomes(failed=2)
    unwritten = 'raise NotImplementedError("write what twice computes")'
    definition.write_text(definition.read_text().replace(unwritten, "return x * factor"))
    project.run().assert_outcomes(failed=2)
    unwritten = 'raise NotImplementedError("write the kernel")'
    kernel.write_text(kernel.read_text().replace(unwritten, "return factor * x"))
    project.run_apart().assert_outcomes(passed=2)


def test_below_a_project_nothing_is_begun_that_its_pytest_would_not_see(
    project, monkeypatch, capsys
):
    assert main(["new", "one"]) == 0
    (project.path / "below").mkdir()
    monkeypatch.chdir(project.path / "below")
    assert main(["new", "two"]) == 2
    error = f"error: pytest of the project {project.path} would not look in this folder"
    assert error in capsys.readouterr().err
    assert [*project.path.glob("below/*")] == []


def test_editors_find_the_schema_that_a_scaffold_names(project):
    assert [main(["new", "one"]), main(["new", "two", "--op-type=toy"])] == [0, 0]
    for path in ("custom/one.yaml", "toy/two.yaml"):
        definition = project.path / "kernel_defs" / path
        modeline, _ = definition.read_text().split("\n", 1)
        schema = definition.parent / modeline.removeprefix("# yaml-language-server: $schema=")
        assert json.loads(schema.read_text()) == definition_schema()


def test_nothing_is_overwritten(capsys):
    assert [main(["new", "twice"]), main(["new", "twice"])] == [0, 2]
    said = capsys.readouterr().err
    assert "kernel_defs/custom/twice.yaml exists, so nothing was written: go on with it" in said


@pytest.mark.parametrize(
    ("arguments", "near"),
    [(["docter"], "doctor"), (["traces", "mrge"], "merge"), (["nwe", "twice"], "new")],
)
def test_of_a_misspelt_command_the_nearest_is_named(capsys, arguments, near):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"; did you mean {near!r}?" in capsys.readouterr().err


def test_without_a_command_there_is_help_with_all_of_them(capsys):
    assert main([]) == 2
    assert "create a kernel" in capsys.readouterr().out


def test_where_there_are_no_definitions_it_is_said_where_they_were_looked_for(tmp_path):
    lookup = DefinitionLookup(tmp_path, lambda: load_catalogue([[]], ()))
    with pytest.raises(LookupError, match=f"'scale': there are none in .* {tmp_path}$"):
        lookup.find("scale")


def test_what_the_test_needs_is_said_where_the_ini_file_lacks_it(project, capsys):
    assert main(["new", "one"]) == 0
    assert "so tox.ini needs: pythonpath = ." in capsys.readouterr().out
    project.write("pytest.ini", "[pytest]\npythonpath = .\n")
    assert main(["new", "two"]) == 0
    assert "pythonpath" not in capsys.readouterr().out


@pytest.mark.parametrize("name", ["def", "1x"])
def test_arguments_have_names_that_python_takes(name, capsys):
    assert main(["new", "twice", f"--input={name}:float32[n]"]) == 2
    assert f"error: '{name}' is no name of an argument in Python" in capsys.readouterr().err


def test_inputs_are_those_of_a_function(project):
    code = "def scale(x: torch.Tensor, n: int, y=None, *, eps: float = 1e-6, on=True, low=-2): ..."
    project.write("mine.py", code)
    assert main(["new", "scale", "--like=mine.py::scale", "--input=y:int8[b]"]) == 0
    text = (project.path / "kernel_defs/custom/scale.yaml").read_text()
    assert "axes: {rows: var, b: var}\n" in text
    assert "  out: {shape: [rows], dtype: float32}\n" in text
    inputs = [
        "  x: {shape: [rows], dtype: float32}",
        "  n: {shape: null, dtype: int64}",
        "  y: {shape: [b], dtype: int8}",
        "  eps: {shape: null, dtype: float32}",
        "  on: {shape: null, dtype: bool}",
        "  low: {shape: null, dtype: int64}",
    ]
    assert "\n".join(inputs) in text
    assert "  def run(x, n, y, eps, on, low):\n" in text
    assert "  inputs: {eps: {value: 1e-06}, on: {value: true}, low: {value: -2}}\n" in text


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--input=x", "'x' should be like x:float16[n,8] or, a scalar, eps:float32"),
        ("--input=x:flot[n]", "error: inputs.x.dtype: 'flot' is not one of"),
        ("--output=x:int8[n] --output=x:int8", "a name is given twice: x:int8[n], x:int8"),
        ("--like=mine.py", "--like=mine.py names no function: write mine.py::FUNCTION"),
        ("--like=mine.py::f", "no function 'f' in mine.py; there are: g, many, named, told"),
        ("--like=mine.py::many", "mine.py:2: a kernel has no *args: give each --input"),
        ("--like=mine.py::named", "mine.py:3: mode: str can't be an input of a kernel; inputs are"),
        ("--like=tox.ini::f", "tox.ini:2: not Python: "),
        ("--like=mine.py::told", "mine.py:4: mode: str can't be an input of a kernel; inputs are"),
        ("--op-type=a-b", "'a-b' can't be the name of a Python module"),
        ("--op-type=class", "'class' can't be the name of a Python module"),
    ],
)
def test_a_slip_is_told_and_leaves_no_definition(project, capsys, option, message):
    functions = "def g(x): ...", "def many(*xs): ...", "def named(x, mode: str): ..."
    project.write("mine.py", "\n".join([*functions, "def told(x, mode='fast'): ..."]))
    assert main(["new", "broken", *option.split()]) == 2
    shown = capsys.readouterr()
    assert message in shown.err
    assert not shown.out
    assert not (project.path / "kernel_defs").exists()


def test_check_lists_what_is_wrong_and_goes_on(project, capsys, scale_yaml):
    project.define(scale_yaml.replace("n: var", "n: vra"), "bad.yaml")
    project.define(scale_yaml, "good.yaml")
    project.define(scale_yaml + "constraints: [n > 300]\n", "unmet.yaml")
    assert main(["check", "bad.yaml", "good.yaml", "unmet.yaml"]) == 1
    bad, good, unmet = capsys.readouterr().out.splitlines()
    assert bad == "bad.yaml:4: axes.n: should be var, a size, or a mapping with a type, not 'vra'"
    assert good == "good.yaml:1: scale: ok"
    number = scale_yaml.count("\n") + 1
    assert unmet == f"unmet.yaml:{number}: scale: axis 'n' (1 to 256): no value meets 'n > 300'"


def test_check_reads_folders_and_goes_on_after_what_it_cannot_read(project, capsys, scale_yaml):
    project.define(scale_yaml)
    (project.path / "kernel_defs/loop.yaml").symlink_to("loop.yaml")
    (project.path / "kernel_defs/folder.yaml").mkdir()
    assert main(["check", "kernel_defs", "lost.yaml"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "kernel_defs/loop.yaml: can't be read: Too many levels of symbolic links",
        "kernel_defs/toy/scale.yaml:1: scale: ok",
        "lost.yaml: can't be read: No such file or directory",
    ]
    assert main(["check", "kernel_defs/folder.yaml"]) == 2


def test_check_reads_all_definitions_unless_it_is_told_which(project, capsys, scale_yaml):
    project.define(scale_yaml)
    assert main(["check"]) == 0
    assert capsys.readouterr().out == "kernel_defs/toy/scale.yaml:1: scale: ok\n"


def test_check_is_told_when_a_file_is_no_definition(project, capsys):
    project.write("kernel.py", "def run(x): ...\n")
    assert main(["check", "kernel.py"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("kernel.py: is no definition: ")
    assert second.startswith("  pytest --collect-only shows which implementations it finds")


def test_inputs_shows_what_each_is_made_from_and_workloads(project, capsys, scale_yaml):
    path = project.define(scale_yaml)
    assert main(["inputs", str(path), "--examples=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "scale"
    assert lines[1].startswith("  x: ")
    assert '  {"axes": {"n": 1}}' in lines


VALUES = """
name: held
op_type: toy
axes: {n: var}
inputs:
  ids: {shape: [n], dtype: int32}
  few: {shape: [n, 2], dtype: float8_e4m3fn}
  gone: {shape: [n], dtype: float32, description: "NaN where missing."}
  rate: {shape: null, dtype: float32}
outputs: {y: {shape: [n], dtype: float32}}
reference: |
  def run(ids, few, gone, rate):
      return ids + few.float().sum(1) + gone * rate
workloads:
  inputs:
    ids: {kind: integers, min: 7, max: 7}
    rate: {value: 0.25}
"""


def test_inputs_shows_what_is_in_each(project, capsys):
    path = project.define(VALUES)
    assert main(["inputs", str(path), "--values", "--examples=12"]) == 0
    text = capsys.readouterr().out
    assert "    ids   int32[1]  7 to 7: 7\n" in text
    assert re.search(r"    ids   int32\[\d\d+\]  7 to 7, 1 distinct: (7, ){8}\.\.\.\n", text)
    number = r"-?[\d.e+-]+"
    few = rf"    few   float8_e4m3fn\[\d+, 2\]  {number} to {number}, \d+ distinct: "
    assert re.search(rf"{few}{number}, {number}; last row {number}, {number}\n", text)
    assert re.search(r"    gone  float32\[\d+\]  .* and nan, \d+ distinct: ", text)
    assert "    rate  0.25\n" in text


def test_inputs_of_an_unknown_definition_names_those_that_there_are(capsys):
    assert main(["inputs", "nothing"]) == 2
    assert capsys.readouterr().err.startswith("error: no definition 'nothing'")


def test_check_says_that_there_is_no_such_folder(capsys):
    assert main(["check"]) == 2
    assert capsys.readouterr().err == "error: kernel_defs: No such file or directory\n"
