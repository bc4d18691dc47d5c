"""Which implementations to try at a shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

Shape: TypeAlias = tuple[int, ...]
#: From the sizes of the var axes, and the solutions measured at each shape, best first, to the
#: solutions to try, best first; none is the fallback.
Policy: TypeAlias = Callable[[Shape, Mapping[Shape, Sequence[str]]], Sequence[str]]


def exact(shape: Shape, measured: Mapping[Shape, Sequence[str]]) -> Sequence[str]:
    """What was measured at just this shape."""
    return measured.get(shape, ())


def nearest(within: float) -> Policy:
    """What was measured at this shape or the nearest, where every axis is within this factor."""
    limit = math.log(within)

    def choose(shape: Shape, measured: Mapping[Shape, Sequence[str]]) -> Sequence[str]:
        if shape in measured:
            return measured[shape]
        found = min(((_distance(shape, at), at) for at in measured), default=(math.inf, ()))
        return measured[found[1]] if found[0] <= limit + 1e-9 else ()

    return choose


def policy_of(policy: str | Policy, within: float) -> Policy:
    """The policy of a name, or itself. Raises ValueError."""
    if callable(policy):
        return policy
    if within < 1:
        raise ValueError(f"within should be a factor of at least 1, not {within}")
    policies = {"exact": exact, "nearest": nearest(within)}
    if policy not in policies:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(policies)}, or a function")
    return policies[policy]


def _distance(a: Shape, b: Shape) -> float:
    """The largest logarithm of the ratios of sizes; that of nothing to something is infinite."""
    pairs = zip(a, b, strict=True)
    logs = (math.inf if 0 in (x, y) else abs(math.log(x / y)) for x, y in pairs if x != y)
    return max(logs, default=0.0)
