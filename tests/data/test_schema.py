"""The JSON schema of definition files: right for every file that is read, and few others."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pytest_fib.data import DataError, definition_schema, load_definition_file
from tests.conftest import SCALE

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "kernel_defs").rglob("*.yaml"))
FILE = ROOT / "pytest_fib/data/definition.schema.json"


class Yaml12(yaml.SafeLoader):
    """As editors read YAML: 1e-5 is a number, no is text."""


Yaml12.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if "bool" not in tag and "float" not in tag
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
for tag, pattern, first in (
    ("float", r"^[-+]?(\.\d+|\d+\.\d*|\d+(?=[eE]))([eE][-+]?\d+)?$", "-+0123456789."),
    ("bool", r"^(true|false)$", "tf"),
):
    Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(pattern), first)


@pytest.fixture(scope="session")
def complaints():
    """What the schema says of the text of a file."""
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(definition_schema())
    return lambda text: [e.message for e in validator.iter_errors(yaml.load(text, Yaml12))]


def test_the_shipped_schema_is_the_records_own():
    assert json.loads(FILE.read_text("utf-8")) == definition_schema()


def test_the_command_prints_it():
    command = [sys.executable, "-m", "pytest_fib", "schema"]
    printed = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    assert json.loads(printed) == definition_schema()


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_files_are_right_and_name_it(complaints, path):
    text = path.read_text("utf-8")
    assert complaints(text) == []
    modeline = text.splitlines()[0].removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / modeline).resolve() == FILE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: scale", "nam: scale"),
        ("op_type: elementwise", "op_type: 3"),
        ("op_type: elementwise\n", ""),
        ("n: var", "n: vra"),
        ("n: var", "n: {type: const}"),
        ("dtype: float32", "dtype: float31"),
        ("shape: [n]", "shape: n"),
        ("shape: [n]", "shap: [n]"),
        ("{min: 1, max: 256}", "{min: one}"),
        ("{min: 1, max: 256}", "{least: 1}"),
        ("{value: 3.0}", "{kind: unifrm}"),
        ("{value: 3.0}", "{kind: uniform, lo: 1}"),
        ("{value: 3.0}", "{}"),
        ("{n: 64}", "{n: 1.5}"),
    ],
)
def test_what_is_refused_when_it_is_read_is_marked_in_an_editor(complaints, tmp_path, old, new):
    assert complaints(SCALE) == []
    broken = SCALE.replace(old, new, 1)
    assert broken != SCALE
    path = tmp_path / "scale.yaml"
    path.write_text(broken, "utf-8")
    with pytest.raises(DataError):
        load_definition_file(path)
    assert complaints(broken)
