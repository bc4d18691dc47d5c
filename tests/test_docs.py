"""The examples of the docs are implementations and tests that pass, or at least compile."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from pytest_fib.build import why_not_buildable
from pytest_fib.commands import SUBCOMMANDS
from pytest_fib.discovery import Implementation
from tests.conftest import SCALE, Project

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/languages.md"
_EXAMPLE = re.compile(r"```\w+\n(?:#|//) ([\w./]+)\n(.*?)```", re.DOTALL)
EXAMPLES = dict(_EXAMPLE.findall(PAGE.read_text(encoding="utf-8")))
#: Those that are one implementation.
LAYERS = [path for path in EXAMPLES if path.startswith("layers/")]
DOUBLED = """\
name: doubled
op_type: elementwise
axes: {n: var}
inputs:
  x: {shape: [n], dtype: float32}
outputs:
  y: {shape: [n], dtype: float32}
reference: |
  def run(x):
      return x + x
workloads:
  axes: {n: {min: 1, max: 256}}
"""


@pytest.fixture
def documented(project):
    """A project with the definition and one example."""
    project.define(DOUBLED, "kernel_defs/toy/doubled.yaml")

    def documented(path):
        project.write(f"kernel_impls/toy/{path}", EXAMPLES[path])
        return project

    return documented


def test_there_is_an_example_of_each_language():
    assert {*EXAMPLES} == {
        "torch_add.py", "triton_block.py", "loop.cpp", "extension.cpp", "block.cu", *LAYERS,
        "tilelang_block.py", "cutedsl_block.py",
    }  # fmt: skip


def test_the_python_example_passes(documented):
    documented("torch_add.py").run().assert_outcomes(passed=1)


def test_the_triton_example_passes(documented):
    pytest.importorskip("triton")
    project = documented("triton_block.py")
    project.run("-k", "correctness").assert_outcomes(passed=1)


def test_the_cpp_example_passes(documented):
    pytest.importorskip("tvm_ffi")
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    documented("loop.cpp").run().assert_outcomes(passed=2)


@pytest.mark.thorough
def test_the_example_of_an_extension_passes(documented):
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("no headers of Python")
    documented("extension.cpp").run().assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("language", "path"),
    [
        pytest.param("cuda", "block.cu", marks=pytest.mark.thorough),
        ("tilelang", "tilelang_block.py"),
        ("cutedsl", "cutedsl_block.py"),
    ],
)
def test_the_examples_for_gpus_compile(documented, language, path):
    if reason := why_not_buildable(Implementation("any", "any", Path(path), 1, language=language)):
        pytest.skip(reason)
    documented(path).run("--fib-target=sm_90", "-k", "compile").assert_outcomes(passed=1)


@pytest.fixture
def layers(documented):
    """A project with the example of several files."""
    for path in LAYERS:
        project = documented(path)
    return project


def test_the_example_of_a_folder_is_a_record(layers):
    ids = layers.ids("--fib-target=sm_90")
    assert [line.rpartition("[")[2] for line in ids] == [
        "layers-compile-sm_90]",
        "layers-correctness]",
    ]


@pytest.mark.thorough
def test_the_example_of_a_folder_compiles(layers):
    if reason := why_not_buildable(Implementation("any", "any", Path("x"), 1, language="cuda")):
        pytest.skip(reason)
    layers.run("--fib-target=sm_90", "-k", "compile").assert_outcomes(passed=1)


def knows_cuda(path):
    """Whether a module calls torch's part for CUDA, or has limits for each kind of device."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "torch.cuda":
            return True
        if isinstance(node, ast.Dict) and {"'cpu'", "'cuda'"} <= {
            ast.unparse(key) for key in node.keys if key is not None
        }:
            return True
    return False


def test_what_other_devices_need_is_listed_whole():
    section = PAGE.read_text("utf-8").partition("## Other devices")[2]
    package = ROOT / "pytest_fib"
    named = {package / path for path in re.findall(r"`([\w/]+\.py)`", section)}
    assert {path for path in named if not path.is_file()} == set()
    assert {path for path in package.rglob("*.py") if knows_cuda(path)} <= named


MYKERNELS = """\
import torch

def scale(x, factor):
    return (x.float() * factor).to(x.dtype)

def rmsnorm(x, weight, eps):
    wide = torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    return wide.to(x.dtype)
"""


def test_tests_written_by_hand_pass(project):
    page = (ROOT / "docs/hand-written-tests.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    project.write("mykernels.py", MYKERNELS)
    tests = [block for block in blocks if "\ndef test_" in block]
    for number, block in enumerate(tests):
        project.write(f"test_block_{number}.py", block)
    result = project.run(f"--fib-defs={ROOT / 'kernel_defs'}", "-p", "no:randomly", ".")
    outcomes = result.parseoutcomes()
    assert tests
    assert set(outcomes) <= {"passed", "warnings"}
    assert outcomes["passed"] >= len(tests)


# --- pages that show a terminal -------------------------------------------------------------------

PAGES = sorted((ROOT / "docs").rglob("*.md"))
#: Pages whose blocks are files to write and commands to run, in this order.
SESSIONS = ("tutorial.md", "how-to/debug.md", "how-to/from-a-model.md")
_BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
#: What differs from one run to the next, or one machine to another.
_FIGURE = re.compile(r"~?\d+(\.\d+)?( ([kMGT]?B|µs|ms|s)\b)?")


def alike(line):
    """A line without its figures, and however wide its columns are."""
    return " ".join(_FIGURE.sub("N", line).split())


def run_as_shown(project, block):
    """Run the commands of a block and find the lines that it shows, in their order."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        typed = re.findall(r"^\(Pdb\) (.*)$", shown, re.MULTILINE)
        printed = subprocess.run(
            re.sub(r"^(python -m )?", f"{sys.executable} -m ", command, count=1),
            cwd=project.path,
            shell=True,
            input="".join(f"{line}\n" for line in typed),
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "COLUMNS": "80", "PYTEST_ADDOPTS": "--fib-seed=0 --fib-device=cpu"},
        ).stdout
        rest = iter(map(alike, printed.splitlines()))
        for line in shown.splitlines():
            if line.strip() not in ("", "...") and not line.startswith("(Pdb)"):
                assert any(alike(line) in found for found in rest), f"{line}\nnot in\n{printed}"


@pytest.mark.thorough
@pytest.mark.parametrize("page", SESSIONS)
def test_what_a_page_shows_of_a_terminal_is_what_one_sees(pytester, page):
    project = Project(pytester)
    (project.path / "tox.ini").unlink()
    if page == "how-to/debug.md":
        project.define(SCALE)
        project.write("pytest.ini", "[pytest]\n")
    for kind, block in _BLOCK.findall((ROOT / "docs" / page).read_text("utf-8")):
        if kind == "console":
            run_as_shown(project, block)
        else:
            name, text = block.split("\n", 1)
            project.write(name.removeprefix("# "), text)


def test_every_page_that_shows_a_terminal_is_run():
    shown = {
        str(p.relative_to(ROOT / "docs")) for p in PAGES if "```console" in p.read_text("utf-8")
    }
    assert shown == set(SESSIONS)


@pytest.fixture(scope="module")
def help_text(tmp_path_factory):
    """What pytest says of its options, where no conftest imports torch."""
    command, folder = [sys.executable, "-m", "pytest", "--help"], tmp_path_factory.mktemp("empty")
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_options_and_commands_that_a_page_names_exist(page, help_text):
    text = page.read_text("utf-8")
    for option in set(re.findall(r"--fib-[a-z-]*[a-z]", text)):
        assert f"{option}" in help_text, option
    commands = set(re.findall(r"python -m pytest_fib ([a-z]+)", text))
    assert commands <= {name.rstrip("_") for name in SUBCOMMANDS}


def test_the_page_of_options_has_all_of_them(help_text):
    page = (ROOT / "docs/options.md").read_text("utf-8")
    declared = set(re.findall(r"^  (--fib-[a-z-]*[a-z])", help_text, re.MULTILINE))
    assert len(declared) > 20
    assert {option for option in declared if not re.search(rf"`{option}\b", page)} == set()


def test_every_page_is_in_the_navigation():
    nav = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [p for p in PAGES if f" {p.relative_to(ROOT / 'docs')}\n" not in nav] == []
