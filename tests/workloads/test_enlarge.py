"""A larger workload is valid, of the kind that was asked for, and no larger than asked for."""

from pathlib import Path

import pytest

from pytest_fib.data import load_definition_file
from pytest_fib.workloads import (
    enlarge,
    in_domain,
    make_inputs,
    make_workload,
    smallest_axes,
    with_integer_scalars,
    workload_bytes,
)

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "kernel_defs").glob("*/*.yaml"))
BYTES = 4 << 20


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_workload_grows_within_its_domain_and_the_memory(path):
    definition = load_definition_file(path)[0].definition
    small = make_workload(definition, smallest_axes(definition), seed=7)
    large = enlarge(definition, small, {"values": "ones"}, BYTES)
    assert (large.seed, large.regime) == (7, {"values": "ones"})
    assert in_domain(definition, large.axes)
    room = max(BYTES, 1.125 * workload_bytes(definition, small.axes))
    assert workload_bytes(definition, small.axes) <= workload_bytes(definition, large.axes) <= room


def loaded_from(text, tmp_path):
    """The definition of a file with this text."""
    path = tmp_path / "definition.yaml"
    path.write_text(text)
    [loaded] = load_definition_file(path)
    return loaded.definition


def test_every_axis_grows_and_is_odd():
    [loaded] = load_definition_file(ROOT / "kernel_defs/rope/rope_h6_kv1_d80_rd36.yaml")
    small = make_workload(loaded.definition, smallest_axes(loaded.definition))
    large = enlarge(loaded.definition, small, {}, BYTES)
    assert min(large.axes.values()) > 10
    assert all(n % 2 for n in large.axes.values())


RAGGED = """
name: ragged
op_type: ragged
axes: {offsets_len: var, total: var, dim: 8}
constraints: ["total == offsets[-1].item()"]
inputs:
  x: {shape: [total, dim], dtype: float32}
  offsets: {shape: [offsets_len], dtype: int32}
outputs: {y: {shape: [total, dim], dtype: float32}}
reference: |
  def run(x, offsets):
      return x
"""


def test_sequences_have_several_tokens_each(tmp_path):
    definition = loaded_from(RAGGED, tmp_path)
    small = make_workload(definition, smallest_axes(definition))
    axes = enlarge(definition, small, {}, BYTES).axes
    assert axes["total"] > 10 * axes["offsets_len"] > 10


ATTENTION = """
name: window
op_type: ragged
axes: {offsets_len: var, total: var, dim: 8}
constraints: ["total == offsets[-1].item()"]
inputs:
  x: {shape: [total, dim], dtype: float32}
  offsets: {shape: [offsets_len], dtype: int32}
  window: {shape: null, dtype: int32}
outputs: {y: {shape: [total, dim], dtype: float32}}
reference: |
  def run(x, offsets, window):
      return x
workloads:
  axes: {offsets_len: {max: 33}, total: {max: 511}}
  inputs: {window: {kind: integers, min: 0, max: total, ends: true}}
"""


def test_with_little_memory_there_are_fewer_sequences(tmp_path):
    definition = loaded_from(ATTENTION, tmp_path)
    small = make_workload(definition, {"offsets_len": 2, "total": 2})
    axes = enlarge(definition, small, {}, 1 << 12).axes
    assert axes["total"] >= 8 * (axes["offsets_len"] - 1) > 8


def test_a_workload_may_have_whole_scalars_of_another(tmp_path):
    definition = loaded_from(ATTENTION, tmp_path)
    small = make_workload(definition, {"offsets_len": 2, "total": 2}, seed=5)
    large = enlarge(definition, small, {}, 1 << 16)
    alike = with_integer_scalars(definition, large, small)
    assert make_inputs(definition, alike, "cpu")["window"] == small.inputs["window"].value
    assert alike.axes == large.axes


def test_whole_scalars_of_another_workload_are_those_that_the_axes_allow(tmp_path):
    definition = loaded_from(
        ATTENTION.replace("min: 0, max: total", "min: total, max: 2 * total"), tmp_path
    )
    small = make_workload(definition, {"offsets_len": 2, "total": 2})
    large = make_workload(definition, {"offsets_len": 3, "total": 41})
    assert with_integer_scalars(definition, large, small) == large
