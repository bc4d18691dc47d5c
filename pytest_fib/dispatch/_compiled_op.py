"""What ``torch.compile`` sees: one opaque operator for each routed function.

Its graph holds the operator, which looks up what to call when it runs. So what is chosen changes
without compiling again.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.data import TensorSpec
    from pytest_fib.dispatch._dispatcher import Dispatcher

_NAMESPACE = "pytest_fib_apply"


@cache
def _library() -> Any:
    import torch

    library: Any = torch.library.Library
    return library(_NAMESPACE, "FRAGMENT")


def define_op(dispatcher: Dispatcher) -> Any:
    """The operator of a routed function; takes its arguments in the definition's order."""
    import torch

    definition = dispatcher.definition
    assert definition is not None
    name = _unused_name(re.sub(r"[^0-9a-zA-Z_]", "_", definition.name))
    outputs = tuple(definition.outputs.values())
    inputs = [f"{_kind(spec)} a{i}" for i, spec in enumerate(definition.inputs.values())]
    if dispatcher.in_place:
        written = [f"Tensor(b{i}!) b{i}" for i in range(len(outputs))]
        schema = f"{name}({', '.join(inputs + written)}) -> ()"
    else:
        returned = ", ".join("Tensor" for _ in outputs)
        schema = f"{name}({', '.join(inputs)}) -> ({returned})"

    def run(*arguments: Any) -> Any:
        result = dispatcher.call_in_order(arguments)
        if dispatcher.in_place:
            return None
        return _unaliased(result, arguments)

    def fake(*arguments: Any) -> Any:
        if dispatcher.in_place:
            return None
        axes = dispatcher.axes_of(arguments)
        like = next(value for value in arguments if isinstance(value, torch.Tensor))
        empty = [_empty(spec, axes, like) for spec in outputs]
        return empty[0] if len(empty) == 1 else tuple(empty)

    library = _library()
    library.define(schema)
    library.impl(name, run, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{_NAMESPACE}::{name}", fake, lib=library)
    return getattr(torch.ops.pytest_fib_apply, name).default


def _unused_name(beginning: str) -> str:
    """A name that no operator has; operators are never undefined, since graphs may hold them."""
    import torch

    names = (f"{beginning}_{number}" for number in itertools.count())
    return next(name for name in names if not hasattr(torch.ops.pytest_fib_apply, name))


def _kind(spec: TensorSpec) -> str:
    if spec.shape is not None:
        return "Tensor"
    if spec.dtype.is_floating:
        return "float"
    return "bool" if spec.dtype.value == "bool" else "int"


def _empty(spec: TensorSpec, axes: dict[str, int], like: Any) -> Any:
    import torch

    dtype = getattr(torch, spec.dtype.value)
    return like.new_empty(spec.shape_at(axes), dtype=dtype)


def _unaliased(result: Any, arguments: Sequence[Any]) -> Any:
    """Outputs that are no inputs, which an operator may not return."""
    if isinstance(result, (tuple, list)):
        return tuple(_unaliased(each, arguments) for each in result)
    return result.clone() if any(result is given for given in arguments) else result
