"""Whole Workload records from the few facts that decide them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pytest_fib.data import RandomInput, ScalarInput, Workload
from pytest_fib.workloads._generators import scalar_inputs
from pytest_fib.workloads._plan import plan
from pytest_fib.workloads._regimes import REGIMES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_fib.data import Definition, InputSpec, TensorSpec


def complete(
    definition: Definition,
    axes: Mapping[str, int],
    seed: int = 0,
    regime: Mapping[str, str] | None = None,
) -> Workload:
    """The Workload of these axes: scalars get their values, tensors are made from the seed."""
    bare = Workload(axes=dict(axes), inputs={}, seed=seed, regime=dict(regime or {}))
    scalars = scalar_inputs(definition, bare)
    inputs: dict[str, InputSpec] = {
        name: ScalarInput(value=scalars[name]) if name in scalars else RandomInput()
        for name in definition.inputs
    }
    return Workload(axes=bare.axes, inputs=inputs, seed=seed, regime=bare.regime)


def read_workload(definition: Definition, text: str) -> Workload:
    """A workload of this definition, as ``--fib-workload`` takes it.

    Raises ValueError, with one line that says what is wrong.
    """
    given = parse_workload(text)
    _refuse_unknown("axes", given.axes, definition.axes)
    _refuse_unknown("inputs", given.inputs, definition.inputs)
    axes = {axis: n for axis, n in given.axes.items() if axis in definition.var_axes}
    for axis in plan(definition).order:  # what follows from the others need not be given
        if axis not in axes and len(domain := plan(definition).domain(axis, axes)) == 1:
            axes[axis] = domain[0]
    if reason := why_unfit(definition, given.model_copy(update={"axes": {**axes, **given.axes}})):
        raise ValueError(reason)
    made = complete(definition, axes, given.seed, given.regime)
    inputs = {**made.inputs, **given.inputs}
    return Workload(axes=made.axes, inputs=inputs, seed=made.seed, regime=made.regime)


def why_unfit(definition: Definition, workload: Workload) -> str | None:
    """Why a workload from somewhere is none of this definition, or None where it may be.

    Its axes have to meet the definition's constraints, and what its generators need of them; where
    it brings tensors along that others would refer to, only what the definition states.
    """
    try:
        definition.axis_values(workload.axes)
    except ValueError as error:
        return str(error)
    for name, given in workload.inputs.items():
        spec = definition.inputs.get(name)
        if spec is None:
            return f"inputs: {name!r} is not one of {', '.join(definition.inputs)}"
        if given.type != "random" and (given.type == "scalar") != spec.is_scalar:
            return f"input {name!r}: {given.type} was given for a {_described(spec)}"
    axes = {axis: n for axis, n in workload.axes.items() if axis in definition.var_axes}
    recorded = {name for name, given in workload.inputs.items() if given.type == "safetensors"}
    broken = plan(definition).unmet(axes, recorded)
    return None if broken is None else f"axes: {axes} break the constraint {broken!r}"


def _described(spec: TensorSpec) -> str:
    return f"{spec.dtype.value} {'scalar' if spec.is_scalar else 'tensor'}"


def parse_workload(text: str) -> Workload:
    """What a JSON text gives of a workload: axes, and any of seed, regime and inputs.

    Raises ValueError, with one line that says what is wrong.
    """
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError('not a mapping such as {"axes": {"batch": 7}}')
    _refuse_unknown("a workload", given, ("axes", "seed", "regime", "inputs"))
    try:
        workload = Workload.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    _refuse_unknown("regime", workload.regime, REGIMES)
    for what, name in workload.regime.items():
        _refuse_unknown(f"regime.{what}", [name], REGIMES[what])
    return workload


def _refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{what}: {name!r} is not one of {', '.join(known)}")
