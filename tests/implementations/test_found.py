"""From what a scan found to a Solution record."""

import json

import pytest

from pytest_fib import implements
from pytest_fib.implementations import Implementation, find_implementations


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
