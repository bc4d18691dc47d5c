"""The tests and benchmarks import what a room exports, as its other users do."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
#: What may import private modules: cheats, which attack what they can find.
PRIVATE = ROOT / "tests/mutants/cheats"
FILES = [*ROOT.glob("tests/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]


def imported(file):
    """The dotted names of all imports of this package, each name of a from-import its own."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def private_imports(file):
    ours = (name for name in imported(file) if name.startswith("pytest_fib."))
    return [name for name in ours if any(is_private(part) for part in name.split("."))]


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def may_be_private(file):
    return file.is_relative_to(PRIVATE)


@pytest.mark.parametrize("folder", ["tests", "benchmarks"])
def test_only_public_names_are_imported(folder):
    files = [file for file in FILES if file.is_relative_to(ROOT / folder)]
    assert len(files) > 10
    found = {
        str(file.relative_to(ROOT)): names
        for file in files
        if not may_be_private(file) and (names := private_imports(file))
    }
    assert found == {}


def test_what_may_import_private_modules_does():
    assert any(map(private_imports, filter(may_be_private, FILES)))
