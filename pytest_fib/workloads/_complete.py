"""Whole Workload records from the few facts that decide them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pytest_fib.data import RandomInput, ScalarInput, Workload
from pytest_fib.workloads._generators import scalar_inputs
from pytest_fib.workloads._regimes import VALUES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_fib.data import Definition


def complete(
    definition: Definition,
    axes: Mapping[str, int],
    seed: int = 0,
    regime: Mapping[str, str] | None = None,
) -> Workload:
    """The Workload of these axes: scalars get their values, tensors are made from the seed."""
    bare = Workload(axes=dict(axes), inputs={}, seed=seed, regime=dict(regime or {}))
    scalars = scalar_inputs(definition, bare)
    inputs = {
        name: ScalarInput(value=scalars[name]) if name in scalars else RandomInput()
        for name in definition.inputs
    }
    return Workload(axes=bare.axes, inputs=inputs, seed=seed, regime=bare.regime)


def read_workload(definition: Definition, text: str) -> Workload:
    """A workload as ``--fib-workload`` takes it: JSON with axes, and any of seed, regime, inputs.

    Raises ValueError, with one line that says what is wrong.
    """
    given = _as_mapping(text)
    axes = given.get("axes", {})
    if missing := [axis for axis in definition.var_axes if axis not in axes]:
        raise ValueError(f"--fib-workload: axes lacks {', '.join(missing)}")
    regime = given.get("regime", {})
    if regime.get("values", "normal") not in VALUES:
        known = ", ".join(VALUES)
        raise ValueError(f"--fib-workload: regime.values is none of {known}")
    made = complete(definition, axes, given.get("seed", 0), regime)
    inputs = {**made.inputs, **Workload(axes={}, inputs=given.get("inputs", {})).inputs}
    return Workload(axes=made.axes, inputs=inputs, seed=made.seed, regime=made.regime)


def _as_mapping(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"--fib-workload is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError('--fib-workload is not a mapping such as {"axes": {"batch": 7}}')
    return given
