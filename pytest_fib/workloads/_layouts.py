"""Where the elements of a tensor lie: its torch shape, strides, and distance from alignment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_fib.workloads._plan import plan
from pytest_fib.workloads._tensors import torch_dtype

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_fib.data import Definition, TensorSpec, Workload

#: Elements between the rows of a row-strided tensor: odd, so that hardly a row is aligned.
ROW_GAP = 17


@dataclass(frozen=True)
class TensorLayout:
    """A tensor's torch shape, strides in elements, torch dtype name, and offset in elements."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    offset: int = 0

    @classmethod
    def contiguous(cls, shape: Sequence[int], dtype: str) -> TensorLayout:
        """That of a row-major tensor."""
        return cls(tuple(shape), contiguous(shape), dtype)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a row-major tensor, in elements."""
    strides = [1]
    for n in reversed(shape[1:]):
        strides.append(strides[-1] * max(n, 1))
    return tuple(reversed(strides)) if shape else ()


def layouts(definition: Definition, workload: Workload) -> dict[str, TensorLayout]:
    """The layout of every tensor of a workload. Outputs are contiguous."""
    axes = definition.axis_values(workload.axes)
    rules = plan(definition).rules
    regime = workload.regime.get("layout", "contiguous")
    found = {
        name: _input(spec, axes, rules.get(name, {}), regime)
        for name, spec in definition.inputs.items()
        if not spec.is_scalar
    }
    for name, spec in definition.outputs.items():
        shape = _torch_shape(spec, axes, None)
        found[name] = TensorLayout.contiguous(shape, torch_dtype(spec.dtype))
    return found


def _input(
    spec: TensorSpec, axes: Mapping[str, int], rule: Mapping[str, Any], regime: str
) -> TensorLayout:
    names, shape = spec.shape or (), _torch_shape(spec, axes, rule.get("packed"))
    stride = contiguous(shape)
    if "memory_order" in rule:
        stride = _ordered(shape, [names.index(axis) for axis in rule["memory_order"]])
    elif "broadcast" in rule:
        kept = [dim for dim, axis in enumerate(names) if axis not in rule["broadcast"]]
        stride = _ordered(shape, kept)
    elif regime == "row_strided" and len(shape) > 1:
        rows = max(shape[-1], 1)
        stride = (*(step // rows * (rows + ROW_GAP) for step in stride[:-1]), 1)
    offset = 1 if regime == "offset" else 0
    return TensorLayout(shape, stride, torch_dtype(spec.dtype), offset)


def _ordered(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor that holds these dimensions one within the other; of others, 0."""
    steps = dict(zip(dims, contiguous([shape[dim] for dim in dims]), strict=True))
    return tuple(steps.get(dim, 0) for dim in range(len(shape)))


def _torch_shape(spec: TensorSpec, axes: Mapping[str, int], packed: str | None) -> tuple[int, ...]:
    """The shape in torch's elements: two fp4 values share one, along ``packed`` or the last."""
    shape = list(spec.shape_at(axes))
    if spec.dtype.value.startswith("float4") and shape:
        dim = (spec.shape or ()).index(packed) if packed else len(shape) - 1
        shape[dim] = -(-shape[dim] // 2)
    return tuple(shape)
