"""Files that are broken in ways that a program may meet badly: a message with place and remedy."""

import pytest

DELETES = """
import pathlib

def pytest_collection_finish(session):
    pathlib.Path("kernel_impls/toy/good.py").unlink()
"""
RAISES = """\
name: raises
op_type: toy
axes: {n: var}
inputs: {x: {shape: [n], dtype: float32}}
outputs: {y: {shape: [n], dtype: float32}}
reference: |
  import math

  def run(x):
      raise ValueError("not yet")
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "max: 256",
            f"max: {10**29}",
            f"kernel_defs/toy/scale.yaml:15: workloads.axes.n.max: should be at most {2**48}, "
            f"not {10**29}",
        ),
        (
            "op_type: elementwise",
            "op_type: !!python/object:os.system [a]",
            "kernel_defs/toy/scale.yaml:2: op_type: tags like "
            "'tag:yaml.org,2002:python/object:os.system' are not supported",
        ),
    ],
)
def test_a_definition_that_no_program_should_read_is_an_error_of_collection(
    scale, scale_yaml, old, new, message
):
    scale.define(scale_yaml.replace(old, new))
    result = scale.run()
    result.assert_outcomes(errors=1)
    assert message in result.outlines


def test_a_definition_whose_path_pytest_cannot_take_is_an_error_of_collection(project, scale_yaml):
    project.define(scale_yaml, "kernel_defs/a::b.yaml")
    result = project.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["kernel_defs/a::b.yaml: '::' can't be part of a path * rename *"])


def test_a_reference_that_raises_is_placed_in_the_yaml(project):
    project.define(RAISES, "kernel_defs/toy/raises.yaml")
    project.implement("same", "x\nreturn x", "raises")
    result = project.run("-m", "")
    told = "DEFINITION ERROR: the reference of raises failed: ValueError: not yet"
    assert result.outlines.count(told) == 2  # of the definition's own item, too
    shown = '  File "kernel_defs/toy/raises.yaml", line 10, in run'
    assert result.outlines.count(shown) == 2
    assert "reference.py" not in result.stdout.str()


def test_where_the_reference_fails_too_no_implementation_is_at_fault(scale, scale_yaml):
    guard = "if len(x) == 1:\n          raise ValueError('too few')\n      return x * factor"
    scale.define(scale_yaml.replace("return x * factor", guard))
    scale.implement("good", "x, factor\nassert len(x) > 1\nreturn x * factor")
    scale.implement("short", "x, factor\nreturn x[1:] if len(x) == 1 else x * factor")
    scale.implement("raises", "x, factor\nassert len(x) == 1\nreturn x * factor")
    result = scale.run("--fib-workload", '{"axes": {"n": 1}}')
    result.assert_outcomes(failed=3)
    told = "DEFINITION ERROR: the reference of scale failed: ValueError: too few"
    assert result.outlines.count(told) == 3
    assert "AssertionError" not in result.stdout.str()
    assert scale.traces() == []
    result = scale.run("--fib-workload", '{"axes": {"n": 2}}')
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["RUNTIME_ERROR: AssertionError"])


def test_a_file_that_is_deleted_during_the_run_fails_its_item_in_one_line(scale):
    scale.write("conftest.py", DELETES)
    scale.implement("other", "x, factor\nreturn x * factor")
    result = scale.run()
    result.assert_outcomes(passed=1, failed=1)
    message = (
        "can't be tested: kernel_impls/toy/good.py:1: can't be read: No such file or directory"
    )
    assert message in result.outlines
    assert len(result.outlines) < 40


def test_what_cannot_be_read_as_an_implementation_fails_an_item_of_its_own(scale):
    """Of the first definition of the kind that the folder is named after."""
    folder = scale.path / "kernel_impls/elementwise"
    folder.mkdir()
    (folder / "binary.py").write_bytes(bytes(range(256)))
    (folder / "lost.py").symlink_to("gone.py")
    (folder / "nulls.py").write_text("implements\0")
    scale.write("kernel_impls/elementwise/name.py", "@implements(N)\ndef run(x): ...\n")
    scale.write("kernel_impls/elementwise/called.py", 'run = implements("scale")(lambda x: x)\n')
    result = scale.run()
    result.assert_outcomes(passed=1, failed=5)
    of_all = "5 implementations can't be tested: kernel_impls/elementwise/binary.py:2: not UTF-8"
    result.stdout.fnmatch_lines([f"fib: {of_all}*; the items of the others say why"])
    result.stdout.fnmatch_lines_random(
        f"can't be tested: kernel_impls/elementwise/{message}*"
        for message in (
            "binary.py:2: not UTF-8: invalid start byte",
            "lost.py:1: can't be read: it links to gone.py, which does not exist",
            "nulls.py:1: *null*",
            "name.py:1: @implements: argument 'definition' is not a literal (N); ",
            "called.py:1: @implements: goes above a function as a decorator: ",
        )
    )


def test_a_file_that_names_no_definition_fails_beside_the_one_that_it_is_named_after(
    scale, scale_yaml
):
    scale.define(scale_yaml.replace("name: scale", "name: other"), "kernel_defs/toy/other.yaml")
    scale.write("kernel_impls/scale.py", "@implements(N)\ndef run(x): ...\n")
    result = scale.run("--collect-only")
    result.stdout.fnmatch_lines(
        ["fib: 1 implementation can't be tested: kernel_impls/scale.py:1: @implements: *"]
    )
    assert "kernel_defs/toy/scale.yaml::scale[scale-correctness]" in scale.ids()
