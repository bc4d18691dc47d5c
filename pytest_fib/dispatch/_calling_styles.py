"""Calls a solution's function the way its fallback is called, whatever the calling style."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from pytest_fib.dispatch._likeness import axes_of

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec


def first_call(
    definition: Definition, function: Callable[..., Any], calling: str, arguments: Sequence[Any]
) -> tuple[Callable[..., Any], Any]:
    """What to call at a shape from now on, and what a first call of a solution's function returns.

    ``arguments`` are in the order of the definition, with outputs if the fallback writes to these.
    Raises ValueError where results haven't the shapes and dtypes of the outputs.
    """
    in_place = len(arguments) > len(definition.inputs)
    outputs = tuple(definition.outputs)
    if calling == "value" and not in_place:
        returned = function(*arguments)
        result = in_order(returned, outputs)
        # Most return what callers want, and are called as they are.
        call = function if result is returned else _in_order(function, outputs)
    else:
        adapt = _in_place if in_place else _allocating
        call = adapt(definition, function, calling, arguments)
        result = call(*arguments)
    if not in_place:
        _check(definition, result, axes_of(definition, arguments))
    return call, result


def _in_place(
    definition: Definition, function: Callable[..., Any], calling: str, arguments: Sequence[Any]
) -> Callable[..., Any]:
    """A function that is given inputs and outputs, and writes to these."""
    if calling == "destination":
        return function
    if calling == "value":
        return _copying(function, tuple(definition.outputs), len(definition.inputs))
    return lambda *both: function(both)


def _allocating(
    definition: Definition, function: Callable[..., Any], calling: str, arguments: Sequence[Any]
) -> Callable[..., Any]:
    """A function that is given inputs, and returns the outputs that it made room for."""
    import torch

    axes, device = axes_of(definition, arguments), device_of(arguments)
    makers = [
        (spec.shape_at(axes), getattr(torch, spec.dtype.value))
        for spec in definition.outputs.values()
    ]

    def allocating(*inputs: Any) -> Any:
        outputs = [torch.empty(shape, dtype=dtype, device=device) for shape, dtype in makers]
        if calling == "tuple":
            function((*inputs, *outputs))
        else:
            function(*inputs, *outputs)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return allocating


def _check(definition: Definition, result: Any, axes: dict[str, int]) -> None:
    """Raise ValueError where a first result isn't of the outputs' shapes and dtypes."""
    import torch

    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(definition.outputs):
        raise ValueError(f"returned {len(results)} outputs, expected {len(definition.outputs)}")
    for value, (name, spec) in zip(results, definition.outputs.items(), strict=True):
        if not isinstance(value, torch.Tensor):
            raise ValueError(f"{name} is {type(value).__name__}, not a torch.Tensor")
        shape = _known_shape(spec, axes)
        if shape is not None and tuple(value.shape) != shape:
            raise ValueError(f"{name}: got {list(value.shape)}, expected {list(shape)}")
        if str(value.dtype) != f"torch.{spec.dtype.value}":
            raise ValueError(f"{name}: got {value.dtype}, expected {spec.dtype.value}")


def device_of(arguments: Sequence[Any]) -> Any:
    import torch

    return next(value.device for value in arguments if isinstance(value, torch.Tensor))


def _known_shape(spec: TensorSpec, axes: dict[str, int]) -> tuple[int, ...] | None:
    return spec.shape_at(axes) if all(axis in axes for axis in spec.shape or ()) else None


def _in_order(function: Callable[..., Any], outputs: tuple[str, ...]) -> Callable[..., Any]:
    """A function that returns a tensor, or a tuple of outputs in order."""

    def ordered(*inputs: Any) -> Any:
        return in_order(function(*inputs), outputs)

    return ordered


def in_order(result: Any, outputs: Sequence[str]) -> Any:
    """Outputs as a tensor or a tuple in order, from whatever form they were returned in."""
    if isinstance(result, dict):
        result = tuple(result[name] for name in outputs)
    elif isinstance(result, list):
        result = tuple(result)
    return result[0] if isinstance(result, tuple) and len(outputs) == 1 else result


def _copying(
    function: Callable[..., Any], outputs: tuple[str, ...], number: int
) -> Callable[..., Any]:
    ordered = _in_order(function, outputs)

    def into(*both: Any) -> None:
        result = ordered(*both[:number])
        results = result if isinstance(result, tuple) else (result,)
        for output, value in zip(both[number:], results, strict=True):
            output.copy_(value)

    return into
