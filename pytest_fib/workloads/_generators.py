"""Input generators: what a definition's ``workloads.inputs`` may ask for, by ``kind``."""

from __future__ import annotations

import hashlib
import random
from typing import TYPE_CHECKING

from pytest_fib.data import ScalarInput
from pytest_fib.workloads._regimes import VALUES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from pytest_fib.data import Definition, InputRule, Workload

    Parameters = Mapping[str, float]
    Scalar = int | float | bool


def fill_input(tensor: torch.Tensor, name: str, definition: Definition, workload: Workload) -> None:
    """Fill one input in place, from the workload's seed.

    The same workload gives the same bits in every process on the same kind of device; CPU and
    CUDA have different random generators.
    """
    import torch

    generator = torch.Generator(tensor.device).manual_seed(_seed(workload.seed, name))
    rule = _rule(definition, name)
    if rule is None:
        VALUES[workload.regime.get("values", "normal")](tensor, generator)
    elif rule.value is not None:
        tensor.fill_(rule.value)
    else:
        KINDS[str(rule.kind)](tensor, generator, rule.params)


def scalar_inputs(definition: Definition, workload: Workload) -> dict[str, Scalar]:
    """The values of the inputs that are Python scalars."""
    return {
        name: _scalar(definition, name, workload)
        for name, spec in definition.inputs.items()
        if spec.is_scalar
    }


def why_not_generated(definition: Definition) -> str | None:
    """Why inputs of a definition can't be made yet, or None where they can."""
    if definition.constraints:
        return f"constraint {definition.constraints[0]!r} is not supported yet"
    for name, spec in definition.inputs.items():
        rule = _rule(definition, name)
        if rule is not None and rule.kind is not None and rule.kind not in KINDS:
            return f"input {name!r}: no generator {rule.kind!r} (there are: {', '.join(KINDS)})"
        if rule is None and not spec.dtype.is_floating:
            return f"input {name!r}: {spec.dtype.value} needs a rule under workloads.inputs"
    return None


def _scalar(definition: Definition, name: str, workload: Workload) -> Scalar:
    given = workload.inputs.get(name)
    if isinstance(given, ScalarInput):
        return given.value
    rule = _rule(definition, name)
    if rule is not None and rule.value is not None:
        return rule.value
    source = random.Random(_seed(workload.seed, name))
    params = rule.params if rule else {}
    low, high = params.get("min", 0.0), params.get("max", 1.0)
    if definition.inputs[name].dtype.is_floating:
        return source.uniform(low, high)
    return source.randint(int(low), int(high))


def _rule(definition: Definition, name: str) -> InputRule | None:
    return definition.workloads.inputs.get(name) if definition.workloads else None


def _seed(seed: int, name: str) -> int:
    """A seed of its own for each input, the same in every process."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8]) >> 1


def _normal(tensor: torch.Tensor, generator: torch.Generator, parameters: Parameters) -> None:
    """``mean`` (0) and ``std`` (1); floating dtypes."""
    tensor.normal_(parameters.get("mean", 0.0), parameters.get("std", 1.0), generator=generator)


def _uniform(tensor: torch.Tensor, generator: torch.Generator, parameters: Parameters) -> None:
    """From ``min`` (0) to ``max`` (1); floating dtypes."""
    tensor.uniform_(parameters.get("min", 0.0), parameters.get("max", 1.0), generator=generator)


def _integers(tensor: torch.Tensor, generator: torch.Generator, parameters: Parameters) -> None:
    """From ``min`` (0) to ``max`` (1), both included; integer dtypes."""
    low, high = int(parameters.get("min", 0)), int(parameters.get("max", 1))
    tensor.random_(low, high + 1, generator=generator)


#: The generators by kind.
KINDS: dict[str, Callable[[torch.Tensor, torch.Generator, Parameters], None]] = {
    "normal": _normal,
    "uniform": _uniform,
    "integers": _integers,
}
