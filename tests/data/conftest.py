"""A small, valid definition to bend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def scale() -> dict[str, Any]:
    return {
        "name": "scale_d128",
        "op_type": "elementwise",
        "axes": {"batch": {"type": "var"}, "hidden": {"type": "const", "value": 128}},
        "inputs": {
            "x": {"shape": ["batch", "hidden"], "dtype": "float16"},
            "factor": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["batch", "hidden"], "dtype": "float16"}},
        "reference": "def run(x, factor):\n    return x * factor\n",
    }


SCALE_YAML = """\
name: scale_d128
op_type: elementwise
axes:
  batch: var
  hidden: 128
inputs:
  x: {shape: [batch, hidden], dtype: float16}
  factor: {shape: null, dtype: float32}
outputs:
  y: {shape: [batch, hidden], dtype: float16}
reference: |
  def run(x, factor):
      return x * factor
"""


@pytest.fixture
def scale_yaml() -> str:
    return SCALE_YAML


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], str]:
    """Write a file in the current directory, so that messages have its bare name."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, text: str) -> str:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
        return name

    return write
