"""From what a scan found to a Solution record."""

import json

import pytest

from pytest_fib import implements
from pytest_fib.discovery import Implementation, find_implementations


def test_a_python_implementation_becomes_a_solution(tmp_path):
    path = tmp_path / "row.py"
    path.write_text('@implements("scale_*", language="triton")\ndef run(x): ...\n')
    [found] = find_implementations([tmp_path])
    solution = found.solution("scale_float16")
    assert (solution.name, solution.definition, solution.author) == (
        "row",
        "scale_float16",
        "unknown",
    )
    assert solution.spec.language.value == "triton"
    assert solution.spec.entry_point == "row.py::run"
    assert solution.spec.destination_passing_style is False
    assert solution.sources[0].content == path.read_text()
    assert found.directory == tmp_path


def test_a_json_solution_carries_its_own_sources(tmp_path):
    record = {
        "name": "mine",
        "definition": "op",
        "author": "someone",
        "spec": {"language": "python", "target_hardware": ["cpu"], "entry_point": "m.py::f"},
        "sources": [{"path": "m.py", "content": "def f(x, y): y.copy_(x)"}],
    }
    (tmp_path / "mine.json").write_text(json.dumps(record))
    [found] = find_implementations([tmp_path])
    assert found.directory is None
    assert (found.symbol, found.calling) == ("f", "destination")
    assert found.solution("op").sources[0].content == "def f(x, y): y.copy_(x)"


@pytest.mark.parametrize("calling", ["value", "destination", "tuple"])
def test_the_way_of_calling_survives_in_the_record(tmp_path, calling):
    path = tmp_path / "m.py"
    path.write_text("def run(): ...\n")
    found = Implementation("m", "op", path, 1, calling=calling)
    assert found.solution("op").spec.calling == calling


def test_implements_leaves_a_function_as_it_is():
    def run(x):
        return x

    assert implements("op", language="triton")(run) is run


@pytest.fixture
def sources_of(tmp_path):
    """The paths of the sources of an implementation, ``kernel.py``, that lies beside files."""

    def sources_of(**files):
        for name, text in files.items():
            package, _, module = name.rpartition("_in_")
            path = tmp_path / "impls" / package / f"{module}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        path = tmp_path / "impls" / "kernel.py"
        solution = Implementation("kernel", "op", path, 1).solution("op")
        for source in solution.sources:
            assert source.content == (path.parent / source.path).read_text()
        return [source.path for source in solution.sources]

    return sources_of


@pytest.mark.parametrize(
    "text",
    [
        "import tiles",
        "import torch, tiles as t",
        "from tiles import TILE",
        "def run(x):\n    import tiles",
    ],
)
def test_a_module_beside_the_implementation_is_a_source(sources_of, text):
    assert sources_of(kernel=text, tiles="TILE = 4", other="") == ["kernel.py", "tiles.py"]


def test_what_a_source_imports_is_a_source_too(sources_of):
    found = sources_of(kernel="import one", one="import two", two="import one, three", four="")
    assert found == ["kernel.py", "one.py", "two.py"]


@pytest.mark.parametrize("text", ["import ops.row", "from ops import row", "from ops.row import f"])
def test_a_package_beside_the_implementation_is_among_the_sources(sources_of, text):
    found = sources_of(
        kernel=text, ops_in___init__="", ops_in_row="from . import math", ops_in_math="import no"
    )
    assert sorted(found) == ["kernel.py", "ops/__init__.py", "ops/math.py", "ops/row.py"]


def test_sources_lie_in_the_folder_of_the_implementation(sources_of, tmp_path):
    (tmp_path / "above.py").write_text("")
    text = "import above, torch\nfrom .. import above\nfrom ... import above"
    assert sources_of(kernel=text) == ["kernel.py"]


def test_a_source_that_cannot_be_parsed_or_read_does_not_matter(sources_of, tmp_path):
    (tmp_path / "impls").mkdir()
    (tmp_path / "impls" / "binary.py").write_bytes(b"\xff")
    (tmp_path / "impls" / "folder.py").mkdir()
    found = sources_of(kernel="import wrong, binary, folder", wrong="def (:")
    assert found == ["kernel.py", "wrong.py"]


def test_a_record_for_each_definition_of_a_family(tmp_path):
    path = tmp_path / "row.py"
    path.write_text('@implements("scale_*")\ndef run(x): ...\n')
    [found] = find_implementations([tmp_path])
    names = [found.solution(name).definition for name in ("scale_float16", "scale_float32")]
    assert names == ["scale_float16", "scale_float32"]
