"""Counts the floating-point operations of a function, and the bytes that its operations move.

Runs in the sandbox. Views and allocations are free; every other operation reads its tensors and
writes its results, as a kernel of its own does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pytest_fib.timing._roofline import OperationCounts
from pytest_fib.workloads import extent, once

_aten = torch.ops.aten
#: Operations besides views that launch no kernel: they allocate and don't write.
_LAUNCHES_NOTHING = frozenset(
    {_aten.empty, _aten.empty_like, _aten.empty_strided, _aten.new_empty, _aten.new_empty_strided}
    | {_aten._unsafe_view, _aten.lift_fresh}
)
#: Operations that read of their first tensor no more than they return.
_GATHERS = frozenset(
    {_aten.index, _aten.index_select, _aten.embedding, _aten.gather, _aten.take}
    | {_aten._local_scalar_dense}
)
#: Operations that write of their first tensor no more than the values that they get.
_SCATTERS = frozenset(
    {_aten.index_put, _aten.index_put_, _aten._index_put_impl_, _aten.index_copy_}
    | {_aten.index_add_, _aten.scatter_, _aten.scatter_add_}
)
#: Operations that write their first tensor without reading it.
_OVERWRITES = frozenset({_aten.copy_, _aten.fill_, _aten.zero_})


def count_operations(function: Callable[..., Any], arguments: Sequence[Any]) -> OperationCounts:
    """Call a function once and count what its operations do."""
    tally = _Tally()
    with tally:
        function(*arguments)
    read = [tally.bytes_read(value) if _is_tensor(value) else None for value in arguments]
    return OperationCounts(tally.flops, tally.moved, tuple(read))


class _Tally(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations, the bytes that they move, and the ranges of memory that they read."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Takes 0.6 s to import, which most runs don't need.
        from torch.utils.flop_counter import flop_registry

        self._flops_of = flop_registry
        self.flops = self.moved = 0
        self._ranges: list[torch.Tensor] = []  # rows of beginnings, rows of ends

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs, packet = kwargs or {}, func.overloadpacket
        if packet not in self._flops_of:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if packet in self._flops_of:
            self.flops += int(self._flops_of[packet](*args, **kwargs, out_val=result))
        if not (func.is_view or packet in _LAUNCHES_NOTHING):
            given = {key: value for key, value in kwargs.items() if key != "out"}
            self._note(packet, args, _tensors((args, given)), _tensors(result))
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """The base class imports all of dynamo for this, which takes seconds."""
        return False

    def _note(
        self, packet: Any, args: Any, given: list[torch.Tensor], results: list[torch.Tensor]
    ) -> None:
        read, written = given, sum(map(_bytes, results))
        if packet in _GATHERS:
            table, *read = given
            self.moved += written or table.element_size()  # .item() makes no tensor
            self._note_read(table, _rows(packet, args))
        elif packet in _SCATTERS:
            read, written = given[1:], _bytes(given[-1])
        elif packet in _OVERWRITES:
            read = given[1:]
        self.moved += written + sum(map(_bytes, read))
        for tensor in read:
            self._note_read(tensor, None)

    def _note_read(self, tensor: torch.Tensor, rows: torch.Tensor | None) -> None:
        """Count a read of these rows of the first dimension, or of all."""
        if tensor.numel() == 0:
            return
        size, start = tensor.element_size(), tensor.data_ptr()
        if rows is None:
            begin = torch.tensor([start], device="cpu")
            shape, stride = tensor.shape, tensor.stride()
        else:
            begin = start + (rows % tensor.shape[0]) * tensor.stride(0) * size
            shape, stride = tensor.shape[1:], tensor.stride()[1:]
        self._ranges.append(torch.stack((begin, begin + extent(shape, stride) * size)))

    def bytes_read(self, tensor: torch.Tensor) -> int | None:
        """How many bytes of a tensor lie in the ranges that were read; None for none."""
        start = tensor.data_ptr()
        end = start + extent(tensor.shape, tensor.stride()) * tensor.element_size()
        begins, ends = torch.cat([torch.zeros(2, 1, dtype=torch.long), *self._ranges], dim=1)
        begins, order = begins.clamp(start, end).sort()
        ends = ends.clamp(start, end)[order].cummax(0).values
        # Of each range, what no earlier one has reached.
        reached = torch.cat((begins[:1], ends[:-1]))
        read = int((ends - torch.maximum(begins, reached)).clamp_min(0).sum())
        return min(read, _bytes(tensor)) or None


def _rows(packet: Any, args: Any) -> torch.Tensor | None:
    """The rows of its first tensor that a gather reads; None where it doesn't read by rows."""
    if packet is _aten.index_select and args[1] == 0:
        index = args[2]
    elif packet is _aten.embedding:
        index = args[1]
    elif packet is _aten.index:
        index = args[1][0]
    else:
        index = None
    if index is None:
        return None
    index = index.nonzero()[:, 0] if index.dtype is torch.bool else index.flatten()
    rows: torch.Tensor = index.to("cpu", torch.long).unique()
    return rows


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if _is_tensor(leaf)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _bytes(tensor: torch.Tensor) -> int:
    """The size of a tensor in memory; dimensions of stride 0 have one element."""
    return once(tensor).numel() * tensor.element_size()
