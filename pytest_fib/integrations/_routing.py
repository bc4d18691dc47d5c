"""A call of another library as one of a definition; what can't be routed is counted and said."""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_fib.dispatch import apply, known_definition

if TYPE_CHECKING:
    from pytest_fib.data import Definition

log = logging.getLogger("pytest_fib.integrations")


class Unroutable(Exception):
    """A call is not one of a definition; the text is why."""


class NotServed(Exception):
    """No implementation serves a call, which may have been recorded."""


class Router:
    """Sends calls through `apply`. ``unrouted`` counts the others, by what was called and why."""

    def __init__(self) -> None:
        self.unrouted: Counter[tuple[str, str]] = Counter()
        self._functions: dict[tuple[str, ...], Callable[..., Any]] = {}

    def count(self, target: str, reason: str) -> None:
        """Count a call that is not routed; the first of its kind is logged."""
        if not self.unrouted[target, reason]:
            log.warning("%s: calls are not routed: %s", target, reason)
        self.unrouted[target, reason] += 1

    def call(
        self,
        names: Sequence[str],
        values_of: Callable[[Definition], Mapping[str, Any]],
    ) -> tuple[Any, ...]:
        """The outputs of the first definition of these names that there is, in its order.

        ``values_of`` has the call's values by the names that a definition's inputs may have. Raises
        Unroutable, and NotServed where the caller has to compute it.
        """
        definition = next(filter(None, map(known_definition, names)), None)
        if definition is None:
            raise Unroutable(f"there is no definition {' or '.join(names)}")
        values = values_of(definition)
        if lacking := [name for name in definition.inputs if name not in values]:
            raise Unroutable(f"{definition.name} has the input {lacking[0]}, which the call lacks")
        key = (definition.name, *definition.inputs)
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = apply(definition.name)(_fallback(key[1:]))
        result = function(*[values[name] for name in definition.inputs])
        return result if isinstance(result, tuple) else (result,)


def _fallback(names: Sequence[str]) -> Callable[..., Any]:
    """What stands for the caller's own way, which takes other arguments than a definition has."""

    def fallback(*arguments: Any) -> Any:
        raise NotServed

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in names]
    fallback.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return fallback
