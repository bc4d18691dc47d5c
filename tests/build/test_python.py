"""Python programs, loaded from their folder or from their sources alone."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fib.build import BuildError, Program, load

TEXT = (
    "import tiles\ndef run(x):\n    return x * tiles.FACTOR\ndef where(x):\n    return __file__\n"
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """A program of two files, which lie in a folder that is not importable."""
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


def test_an_entry_point_that_is_no_function_is_named(program):
    with pytest.raises(BuildError, match=r"kernel.py has no function 'missing'"):
        load(replace(program, entry_symbol="missing"))
