"""The examples of the docs are implementations and tests that pass, or at least compile."""

import ast
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
from tests.conftest import ROOT
from tests.pages import (
    DOUBLED,
    EXAMPLES,
    HOW,
    LANGUAGES,
    LAYERS,
    NAMED,
    PAGES,
    THOROUGH,
    assert_shown,
    blocks_of,
    copy_kernels,
    run_apart,
)


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
    section = LANGUAGES.read_text("utf-8").partition("## Other devices")[2]
    package = ROOT / "pytest_fib"
    named = {package / path for path in re.findall(r"`([\w/]+\.py)`", section)}
    assert {path for path in named if not path.is_file()} == set()
    assert {path for path in package.rglob("*.py") if knows_cuda(path)} <= named


# --- every block of every page --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("page", "kinds"),
    [
        pytest.param(page, kinds, marks=[pytest.mark.thorough] if how in THOROUGH else [])
        for page, ways in HOW.items()
        for kinds, how in ways.items()
    ],
)
def test_the_blocks_of_a_page_do_what_they_show(project, no_clock, page, kinds):
    blocks = [block for block in blocks_of(page) if block.kind in kinds.split()]
    HOW[page][kinds](blocks, project)


@pytest.mark.thorough
def test_the_readme_begins_with_what_its_first_command_prints(project):
    (project.path / "tox.ini").unlink()  # has options that the command lacks
    copy_kernels(project)
    shell, shown, *_ = (block.text for block in blocks_of("README.md"))
    command = shell.strip().rpartition(" && ")[2]
    assert_shown(shown, run_apart(command, project.path))


def test_every_block_of_every_page_is_run():
    assert {page: {block.kind for block in blocks_of(page)} for page in NAMED} == {
        page: set(" ".join(ways).split()) for page, ways in HOW.items()
    }


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
