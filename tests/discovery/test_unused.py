"""Sources among implementations that say nowhere what they implement."""

import pytest

from pytest_fib.discovery import find_implementations, unused_sources


@pytest.fixture
def unused(tmp_path):
    """What is said of files with these texts, with their paths in a folder of implementations."""

    def unused(files, definitions=()):
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        sentences = unused_sources([tmp_path], find_implementations([tmp_path]), definitions)
        return [sentence.removeprefix(f"{tmp_path}/") for sentence in sentences]

    return unused


@pytest.mark.parametrize("suffix", ["cu", "cpp", "cc", "cxx"])
def test_a_source_without_a_header_is_told_which_line_is_missing(unused, suffix):
    assert unused({f"toy/scale/fast.{suffix}": "void run() {}\n"}, {"scale"}) == [
        f"toy/scale/fast.{suffix}:1: is not tested: no line begins with // implements:, and no "
        "solution.yaml lists it; begin it with // implements: scale"
    ]


def test_a_function_named_run_is_told_which_mark_is_missing(unused):
    said = 'toy/fast.py:2: is not tested: mark its run with @implements("NAME")'
    assert unused({"toy/fast.py": "\ndef run(x): ...\n"}) == [said]


@pytest.mark.parametrize(
    "user",
    [
        ("toy/solution.yaml", "sources: [src/part.cu]\n"),
        ("toy/main.cu", '// implements: scale\n#include "src/part.cu"\n'),
        ("toy/src/deep/part.cuh", '#include "../part.cu"\n'),
        ("other/loaded.py", "SOURCE = '../toy/src/part.cu'\n"),
        ("toy/CMakeLists.txt", "add_library(part src/part.cu)\n"),
    ],
)
def test_a_source_that_another_file_uses_is_no_implementation(unused, user):
    said = unused({"toy/src/part.cu": "", **dict([user])})
    assert not any("part.cu:1" in sentence for sentence in said)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("other/solution.yaml", "sources: [part.cu]\n"),  # its own file of this name
        ("toy/solution.yaml", "sources: [apart.cu, part.cu.old]\n"),
        ("toy/Solution.yaml", "sources: [part.cu]\n"),  # no file that is read
        ("toy/notes.md", "part.cu is faster\n"),
    ],
)
def test_a_source_that_only_seems_to_be_used_is_told(unused, name, text):
    assert len(unused({"toy/part.cu": "", name: text})) == 1


def test_modules_that_others_import_need_no_mark(unused):
    helper = "def run(x): ...\n"
    user = '@implements("scale")\ndef run(x): ...\n'
    for line in (
        "import helper\n",
        "from toy import (\n    a,\n    helper,\n)\n",
        "from .helper import run\n",
        "importlib.import_module('toy.helper')\n",
    ):
        assert unused({"helper.py": helper, "user.py": line + user}) == []


def test_other_files_are_not_asked_for_a_mark(unused):
    files = {"tune.py": "def tune(): ...\n", "a.cuh": "", "a.h": "", "table.json": "{}"}
    assert unused(files | {"b.cu": "// implements: scale\n"}) == []


@pytest.mark.parametrize(
    ("count", "last"),
    [
        (6, "is not tested either, as it names no definition"),
        (8, "is not tested either, nor are 2 more: they name no definition"),
    ],
)
def test_many_sources_end_in_one_sentence(unused, count, last):
    said = unused({f"part{i}.cu": "" for i in range(count)})
    assert len(said) == 6
    assert said[-1].endswith(f"part5.cu:1: {last}")
