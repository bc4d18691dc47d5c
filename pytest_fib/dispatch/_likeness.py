"""Compares the arguments of a call with a definition, and with those of an earlier call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec


NUMBERS = frozenset({bool, int, float})


#: What implementations are for; there are tensors elsewhere without values, too.
DEVICES = frozenset({"cpu", "cuda"})


def is_like(definition: Definition, arguments: Sequence[Any]) -> bool:
    """Whether arguments are what a definition says: plain, contiguous tensors of one device."""
    specs = (*definition.inputs.values(), *definition.outputs.values())
    axes, devices = definition.const_axes, set()
    for value, spec in zip(arguments, specs, strict=False):
        if spec.shape is None:
            if type(value) not in NUMBERS:
                return False
        elif not _is_plain(value, spec) or not _agrees(axes, spec.shape, value.shape):
            return False
        else:
            devices.add(value.device)
    return len(devices) == 1


def _is_plain(value: Any, spec: TensorSpec) -> bool:
    import torch

    return (
        type(value) in (torch.Tensor, torch.nn.Parameter)
        and value.device.type in DEVICES
        and str(value.dtype) == f"torch.{spec.dtype.value}"
        and value.is_contiguous()
    )


def _agrees(axes: dict[str, int], names: Sequence[str], shape: Sequence[int]) -> bool:
    """Whether a shape is that of the axes, of which those not known yet are learnt."""
    if len(names) != len(shape):
        return False
    return all(axes.setdefault(axis, size) == size for axis, size in zip(names, shape, strict=True))


def axes_of(definition: Definition, arguments: Sequence[Any]) -> dict[str, int]:
    """The size of every axis that the arguments tell."""
    axes = definition.const_axes
    for value, spec in zip(arguments, definition.inputs.values(), strict=False):
        axes.update(zip(spec.shape or (), getattr(value, "shape", ()), strict=False))
    return axes


def guard_of(arguments: Sequence[Any]) -> Callable[..., bool]:
    """A function that says whether other tensors, in the same order, are like these."""
    import torch

    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    like = _guard_of(tensors)
    if not any(tensor.requires_grad for tensor in tensors):
        return like
    is_grad_enabled = torch.is_grad_enabled
    return lambda *given: not is_grad_enabled() and like(*given)


def _guard_of(tensors: Sequence[Any]) -> Callable[..., bool]:
    """One call that compares types, dtypes, devices, shapes and strides with those of tensors.

    That of torch's own compiler takes a third of the time of asking each tensor for them. It takes
    no tensor for two inputs.
    """
    if len(set(map(id, tensors))) < len(tensors):
        return _slow_guard(tensors)
    try:
        from torch._C._dynamo.guards import TensorGuards
    except ImportError:
        return _slow_guard(tensors)
    sizes: list[Any] = [list(tensor.shape) for tensor in tensors]
    strides: list[Any] = [list(tensor.stride()) for tensor in tensors]
    guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return guards.check


def _slow_guard(tensors: Sequence[Any]) -> Callable[..., bool]:
    def facts(tensor: Any) -> tuple[Any, ...]:
        return (
            type(tensor),
            tensor.dtype,
            tensor.device,
            tensor.shape,
            tensor.stride(),
            tensor.requires_grad,
        )

    wanted = [facts(tensor) for tensor in tensors]
    return lambda *given: [facts(tensor) for tensor in given] == wanted
