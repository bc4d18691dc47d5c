"""Which implementations to try at a shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from pytest_fib.data import Shape

#: From the sizes of the var axes, and the solutions measured at each shape, best first, to the
#: solutions to try, best first; none is the fallback.
Policy: TypeAlias = "Callable[[Shape, Mapping[Shape, Sequence[str]]], Sequence[str]]"


def exact(shape: Shape, measured: Mapping[Shape, Sequence[str]]) -> Sequence[str]:
    """The solutions measured at exactly this shape."""
    return measured.get(shape, ())


class Nearest:
    """The solutions measured at this shape or the nearest one, with every axis within a factor.

    A service may come with other sizes at each call, so the logarithms are kept.
    """

    def __init__(self, within: float) -> None:
        self._limit = math.log(within) + 1e-9
        self._kept: dict[int, tuple[Mapping[Shape, Sequence[str]], list[Shape], Any]] = {}

    def __call__(self, shape: Shape, measured: Mapping[Shape, Sequence[str]]) -> Sequence[str]:
        """The solutions to try, best first."""
        if shape in measured or not measured:
            return measured.get(shape, ())
        _, shapes, logs = self._kept.get(id(measured)) or self._keep(measured)
        distances = abs(logs - _logs(shape)).max(axis=-1)
        at = int(distances.argmin())  # the first of several, which are in order
        return measured[shapes[at]] if distances[at] <= self._limit else ()

    def _keep(
        self, measured: Mapping[Shape, Sequence[str]]
    ) -> tuple[Mapping[Shape, Sequence[str]], list[Shape], Any]:
        import numpy as np

        shapes = sorted(measured)
        logged = measured, shapes, np.array([_logs(shape) for shape in shapes])
        self._kept[id(measured)] = logged
        return logged


def _logs(shape: Shape) -> list[float]:
    """Logarithms of sizes; that of nothing, or of what nobody knows, is far from all others."""
    return [math.log(size) if size > 0 else -1e9 for size in shape]


def policy_of(policy: str | Policy, within: float) -> Policy:
    """The policy of a name, or itself. Raises ValueError."""
    if callable(policy):
        return policy
    if within < 1:
        raise ValueError(f"within should be a factor of at least 1, not {within}")
    policies: dict[str, Policy] = {"exact": exact, "nearest": Nearest(within)}
    if policy not in policies:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(policies)}, or a function")
    return policies[policy]
