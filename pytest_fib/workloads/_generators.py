"""From a Workload to the values of its inputs."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING, Any

from pytest_fib.data import FORMS, SafetensorsInput, ScalarInput
from pytest_fib.workloads._constraints import parse_expression
from pytest_fib.workloads._kinds import KINDS, Making
from pytest_fib.workloads._plan import plan
from pytest_fib.workloads._recorded import read_tensor
from pytest_fib.workloads._regimes import FOLLOWING
from pytest_fib.workloads._tensors import filled

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import torch

    from pytest_fib.data import Definition, Workload

    Scalar = int | float | bool


#: How often a scalar is 0, 1 or the least or the most it may be.
SPECIAL = 0.5


class BrokenConstraintError(RuntimeError):
    """A workload was made or recorded that breaks a constraint; the message has its text."""


def fill_inputs(
    tensors: Mapping[str, torch.Tensor],
    definition: Definition,
    workload: Workload,
    root: Path | None = None,
    bulk_seed: int | None = None,
) -> None:
    """Fill the input tensors in place, from the workload's seed or the files that it names.

    With ``bulk_seed`` they get other values where that changes nothing about the work to be done:
    lengths, pages, routing and the like are the workload's own, unless there is nothing else.

    The same workload gives the same bits in every process on the same kind of device. Structure is
    the same on every device; bulk values are not, since CPU and CUDA have different generators.
    ``root`` is what paths in the workload are relative to. Raises RecordedError for their files,
    and BrokenConstraintError where the result breaks a constraint.
    """
    for name in plan(definition).fill:
        if name not in tensors:
            continue
        given = workload.inputs.get(name)
        if isinstance(given, SafetensorsInput):
            tensors[name].copy_(read_tensor(given, root, tensors[name]))
        else:
            with filled(tensors[name]) as compact:
                seed = _seed_of(name, definition, workload, bulk_seed)
                _fill(compact, name, definition, workload, made=tensors, root=root, seed=seed)
    _refuse_broken(definition, workload, tensors)


def _fill(
    tensor: torch.Tensor,
    name: str,
    definition: Definition,
    workload: Workload,
    *,
    made: Mapping[str, torch.Tensor],
    root: Path | None,
    seed: int,
) -> None:
    import torch

    rule = plan(definition).rules[name]
    if "value" in rule:
        tensor.fill_(rule["value"])
        return
    making = Making(
        inputs=made,
        params=rule,
        numbers=_numbers(rule, definition, workload),
        regime=_regime(name, definition, workload),
        host=torch.Generator().manual_seed(seed),
        generator=torch.Generator(tensor.device).manual_seed(seed),
        root=root,
    )
    KINDS[rule["kind"]].fill(tensor, making)


def _regime(name: str, definition: Definition, workload: Workload) -> Mapping[str, str]:
    """The regime of one input: of those that might be normal instead, one never is and one is."""
    if workload.regime.get("inputs") != "some":
        return workload.regime
    rules = plan(definition).rules
    following = [name for name, rule in rules.items() if rule.get("kind") in FOLLOWING]
    place = (following.index(name) - workload.seed) % len(following) if name in following else 0
    spared = place == 1 or (place > 1 and _seed(workload.seed, f"{name}/regime") % 2 == 0)
    return {**workload.regime, "values": "normal"} if spared else workload.regime


def _seed_of(name: str, definition: Definition, workload: Workload, bulk_seed: int | None) -> int:
    rules = plan(definition).rules
    bulk = [n for n, rule in rules.items() if "kind" in rule and KINDS[rule["kind"]].bulk]
    if bulk_seed is None or (bulk and name not in bulk):
        return _seed(workload.seed, name)
    return _seed(bulk_seed, name)


def _refuse_broken(
    definition: Definition, workload: Workload, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Check every constraint on the finished workload, whatever was done to meet it."""
    scalars = {n: v.value for n, v in workload.inputs.items() if isinstance(v, ScalarInput)}
    broken = plan(definition).broken(definition.axis_values(workload.axes), {**scalars, **tensors})
    if broken is not None:
        stored = any(isinstance(given, SafetensorsInput) for given in workload.inputs.values())
        what = "recorded" if stored else "made"
        where = f"axes {workload.axes}, seed {workload.seed}"
        raise BrokenConstraintError(
            f"a workload of {definition.name} was {what} that breaks {broken!r}: {where}"
        )


def scalar_inputs(definition: Definition, workload: Workload) -> dict[str, Scalar]:
    """The values of the inputs that are Python scalars."""
    return {
        name: _scalar(definition, name, workload)
        for name, spec in definition.inputs.items()
        if spec.is_scalar
    }


def _scalar(definition: Definition, name: str, workload: Workload) -> Scalar:
    given = workload.inputs.get(name)
    if isinstance(given, ScalarInput):
        return given.value
    rule = plan(definition).rules[name]
    if "value" in rule:
        value: Scalar = rule["value"]
        return value
    numbers = _numbers(rule, definition, workload)
    source = random.Random(_seed(workload.seed, name))
    if rule["kind"] == "boolean":
        return source.random() < numbers.get("p", 0.5)
    low, high = numbers.get("min", 0.0), numbers.get("max", 1.0)
    floating = definition.inputs[name].dtype.is_floating
    if source.random() < SPECIAL:
        number = source.choice(sorted({n for n in (low, high, 0, 1) if low <= n <= high}))
    else:
        number = source.uniform(low, high) if floating else source.randint(int(low), int(high))
    return float(number) if floating else int(number)


def _numbers(
    rule: Mapping[str, Any], definition: Definition, workload: Workload
) -> dict[str, float]:
    """The parameters that are numbers; expressions of axes are computed."""
    axes = definition.axis_values(workload.axes)
    return {
        name: parse_expression(value, definition)(axes) if isinstance(value, str) else value
        for name in FORMS[rule["kind"]].numbers
        if (value := rule.get(name)) is not None
    }


def _seed(seed: int, name: str) -> int:
    """A seed of its own for each input, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8]) >> 1
