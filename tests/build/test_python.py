"""Python programs, loaded from their folder or from their sources alone."""

import importlib.util
import inspect
import os
import subprocess
import sys
from dataclasses import replace
from importlib._bootstrap_external import _code_to_timestamp_pyc as code_to_timestamp_pyc
from pathlib import Path

import pytest

from pytest_fib.build import BuildError, Program, load

TEXT = (
    "import tiles\ndef run(x):\n    return x * tiles.FACTOR\ndef where(x):\n    return __file__\n"
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program of two files, which lie in a folder that is not importable."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    monkeypatch.delitem(sys.modules, "tiles", raising=False)
    sources = (("kernel.py", TEXT), ("tiles.py", "FACTOR = 3"))
    folder = tmp_path / "impls"
    folder.mkdir()
    for path, text in sources:
        (folder / path).write_text(text)
    yield Program("kernel", "python", "kernel.py", "run", "value", ("y",), sources, str(folder))
    sys.modules.pop("tiles", None)


def folder_of(program):
    return Path(load(replace(program, entry_symbol="where"))(1)).parent


def test_sources_on_disk_are_loaded_in_place(program):
    assert load(program)(2) == 6
    assert folder_of(program) == Path(program.directory)


def test_sources_without_a_folder_are_written_out(program):
    elsewhere = replace(program, directory=None)
    assert load(elsewhere)(2) == 6
    assert folder_of(elsewhere) != Path(program.directory)


@pytest.mark.parametrize("now", ["FACTOR = 5", None])
def test_the_given_sources_count_where_the_folder_holds_others(program, now):
    tiles = Path(program.directory, "tiles.py")
    tiles.unlink() if now is None else tiles.write_text(now)
    assert load(program)(2) == 6
    assert folder_of(program) != Path(program.directory)


def test_a_folder_on_another_machine_is_not_needed(program):
    assert load(replace(program, directory="/nowhere/at/all"))(2) == 6


@pytest.mark.parametrize("name", ["kernel", "tiles", "later"])
def test_planted_byte_code_is_not_run(program, name, monkeypatch):
    """Even with the time and size of its source, which is all that Python itself looks at."""
    folder = Path(program.directory)
    (folder / "later.py").write_text("VALUE = 6\n")  # found when it is imported, not collected
    text = (
        "import importlib, tiles\ndef run(x):\n    return importlib.import_module('later').VALUE\n"
    )
    (folder / "kernel.py").write_text(text)
    program = replace(program, sources=(("kernel.py", text), program.sources[1]))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "later", raising=False)
    source = folder / f"{name}.py"
    planted = compile("raise AssertionError('planted')", str(source), "exec")
    stat = source.stat()
    target = Path(importlib.util.cache_from_source(str(source)))
    target.parent.mkdir()
    target.write_bytes(code_to_timestamp_pyc(planted, int(stat.st_mtime), stat.st_size))
    assert load(program)(2) == 6


def test_no_byte_code_is_left_behind(program):
    load(program)
    assert sorted(path.name for path in Path(program.directory).iterdir()) == [
        "kernel.py",
        "tiles.py",
    ]


def test_a_source_that_changes_after_it_was_compared_is_not_read_again(program):
    function = load(replace(program, entry_symbol="where"))
    Path(program.directory, "kernel.py").write_text("def where(x): ...")
    assert "return __file__" in inspect.getsource(function)


def test_an_entry_point_that_is_no_function_is_named(program):
    with pytest.raises(BuildError, match=r"kernel.py has no function 'missing', but 'run', 'w"):
        load(replace(program, entry_symbol="missing"))


def test_what_is_written_out_in_a_shared_folder_is_gone_with_the_process(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    code = """\
from pathlib import Path
from pytest_fib.build import Program, load
for name in ("a", "b"):
    sources = ((f"{name}.py", "def run(x):\\n    return x\\n"),)
    load(Program(name, "python", f"{name}.py", "run", "value", ("y",), sources))
print(sum(1 for path in Path("SHARED").rglob("*.py")))
"""
    printed = subprocess.run(
        [sys.executable, "-c", code.replace("SHARED", str(shared))],
        env={**os.environ, "TMPDIR": str(shared)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert printed.stdout == "2\n"
    assert list(shared.iterdir()) == []
