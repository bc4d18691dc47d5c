"""Definitions that are tested by themselves, and what is said where there is nothing to test."""

import json

import pytest

from pytest_fib.commands.schema import schema_text

ALONE = ("-m", "fib(kind='definition')")


def test_each_definition_has_an_item_of_its_own_before_those_of_its_implementations(scale):
    assert scale.ids("-m", "") == [
        "kernel_defs/toy/scale.yaml::scale[reference-definition]",
        "kernel_defs/toy/scale.yaml::scale[good-correctness]",
    ]


@pytest.mark.parametrize(
    ("implementation", "expected"), [("good", "good-correctness"), ("ref*", "reference-definition")]
)
def test_a_selection_of_implementations_leaves_the_others_out(scale, implementation, expected):
    ids = scale.ids("-m", "", "--fib-implementation", implementation)
    assert ids == [f"kernel_defs/toy/scale.yaml::scale[{expected}]"]


def test_a_sound_definition_passes_in_silence_and_leaves_no_trace(scale):
    result = scale.run(*ALONE)
    result.assert_outcomes(passed=1, deselected=1)
    assert "reference " not in result.stdout.str()
    assert scale.traces() == []


def test_definitions_without_implementations_are_tested_and_named(project, scale_yaml):
    project.define(scale_yaml)
    project.implement("good", "x, factor\nreturn x", "other")
    project.define(scale_yaml.replace("name: scale", "name: other"), "kernel_defs/toy/other.yaml")
    result = project.run("-m", "")
    result.stdout.fnmatch_lines(
        [
            "fib: 1 definition has no implementation: scale",
            "reference * PASSED  the definition has no implementation",
            "1 definition has no implementation: scale",
        ]
    )


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("(x * factor).half()", "y: got float16, expected float32"),
        ("(x * factor)[1:]", r"y: got \[0\], expected \[1\]"),
        ("x + torch.rand_like(x)", "two calls on the same inputs gave other bits"),
    ],
)
def test_a_reference_that_is_not_what_it_is_declared_to_be_fails(
    scale, scale_yaml, reference, message
):
    text = scale_yaml.replace("  def run(", "  import torch\n\n  def run(")
    scale.define(text.replace("x * factor", reference, 1))
    result = scale.run(*ALONE)
    result.assert_outcomes(failed=1, deselected=1)
    result.stdout.re_match_lines([rf"DEFINITION ERROR: .*{message}"])
    replay = "  pytest 'kernel_defs/toy/scale.yaml::scale[reference-definition]' *"
    result.stdout.fnmatch_lines([replay.replace("[", "[[]")])


def test_missing_implementations_are_said_with_what_to_do(project, scale_yaml):
    project.define(scale_yaml)
    assert (
        "fib: no implementations: kernel_impls does not exist; make it, set fib_impls in the ini "
        "file, or give --fib-impls=DIR" in project.run("--collect-only").outlines
    )


def test_a_definition_in_json_is_said_not_to_be_read(scale):
    text = json.dumps({"name": "other", "op_type": "toy", "reference": "def run(x): ..."})
    scale.write("kernel_defs/toy/other.json", text)
    scale.write("kernel_defs/tuned.json", json.dumps({"block": 64}))
    scale.write("kernel_defs/fib.schema.json", schema_text())
    lines = [line for line in scale.run("--collect-only").outlines if "is not read" in line]
    remedy = "definitions there are YAML, which JSON is; rename it"
    assert lines == [f"fib: kernel_defs/toy/other.json is not read: {remedy}"]


def test_definitions_in_a_linked_folder_are_tested(scale, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (scale.path / "kernel_defs/toy").rename(elsewhere / "toy")
    (scale.path / "kernel_defs/linked").symlink_to(elsewhere)
    result = scale.run("--collect-only", "-q")
    ids = [line for line in result.outlines if line.endswith("[good-correctness]")]
    assert ids == ["kernel_defs/linked/toy/scale.yaml::scale[good-correctness]"]


def test_a_folder_without_definitions_is_said(project):
    (project.path / "kernel_defs").mkdir()
    line = "fib: no definitions in kernel_defs: a definition is a YAML file there"
    assert line in project.run().outlines


def test_implementations_without_a_folder_of_definitions_are_said(project):
    (project.path / "kernel_impls").mkdir()
    line = "fib: no kernel is collected: there is no kernel_defs beside kernel_impls"
    assert line in project.run().outlines


def test_a_run_from_a_folder_below_says_where_the_kernels_are(scale, monkeypatch):
    (scale.path / "tox.ini").unlink()
    below = scale.path / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    line = f"fib: no kernel is collected: kernel_defs is in {scale.path}, which has no ini file. "
    assert any(each.startswith(line) for each in scale.run().outlines)


def test_a_run_from_above_that_names_the_kernels_says_where_to_run_it(scale, monkeypatch):
    (scale.path / "tox.ini").unlink()
    monkeypatch.chdir(scale.path.parent)
    line = f"fib: no kernel is collected: kernel_defs is in {scale.path}, which has no ini file. "
    result = scale.run(str(scale.path / "kernel_defs"), "--rootdir", str(scale.path.parent))
    assert any(each.startswith(line) for each in result.outlines)


@pytest.mark.parametrize(
    ("folder", "what", "command"),
    [
        (".", "among testpaths", "pytest kernel_defs"),
        ("tests", "below this folder", "pytest ../kernel_defs"),
    ],
)
def test_what_pytest_does_not_collect_is_said_with_the_command_that_does(
    scale, monkeypatch, folder, what, command
):
    scale.write("tests/test_it.py", "def test_it(): pass\n")
    scale.write("tox.ini", "[pytest]\ntestpaths = tests\n")
    monkeypatch.chdir(scale.path / folder)
    line = f"fib: no kernel is collected: kernel_defs is not {what}; {command} does"
    assert line in scale.run("--collect-only").outlines
    assert line not in scale.run("--collect-only", str(scale.path / "tests")).outlines


def test_a_folder_of_implementations_given_by_path_says_what_to_run_instead(scale):
    line = "fib: no kernel is collected: kernel_defs is not among the arguments; pytest kernel_defs"
    for folder in ("kernel_impls", "kernel_impls/scale"):
        assert f"{line} does" in scale.run("--collect-only", folder).outlines
    both = scale.run("--collect-only", "kernel_impls", "kernel_defs").outlines
    assert not any(line in each for each in both)


def test_a_run_that_would_time_and_has_nothing_to_time_says_so(project):
    assert "fib: nothing is timed: there is no kernel_defs" in project.run("--fib-bench").outlines
