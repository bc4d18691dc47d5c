"""Names of dtypes, and filling tensors however they lie in memory."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from pytest_fib.data import DType

_RENAMED = {"float4_e2m1": "float4_e2m1fn_x2"}


def torch_dtype(dtype: DType) -> str:
    """torch's name of a schema dtype."""
    return _RENAMED.get(dtype.value, dtype.value)


@contextmanager
def filled(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """A contiguous tensor to fill; ``tensor`` then holds the same values, wherever they lie in it.

    Along dimensions of stride 0 there is one value, so it is filled as one.
    """
    if tensor.is_contiguous():
        yield tensor
        return
    there = once(tensor)
    compact = there.new_empty(there.shape)
    yield compact
    bits(there).copy_(bits(compact))


def once(tensor: torch.Tensor) -> torch.Tensor:
    """The elements that are there: along dimensions of stride 0, one."""
    for dim, step in enumerate(tensor.stride()):
        if step == 0 and tensor.shape[dim] > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same tensor as integers: NaN equals itself, and small dtypes can be copied at all."""
    import torch

    whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(whole[tensor.element_size()])


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements a strided tensor spans, from its first to its last."""
    if 0 in shape:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
