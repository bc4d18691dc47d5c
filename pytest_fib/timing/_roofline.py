"""The least time that a kernel can take on a device, and how close it comes to that.

The model is that of Williams, Waterman and Patterson, "Roofline" (CACM 52, 2009): a kernel takes at
least as long as its bytes at the memory's rate, and as its operations at the processors' rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pytest_fib.data import Definition
    from pytest_fib.timing._ceilings import Ceilings

#: Up to this many times the size of the caches, a time with warm caches says nothing about memory.
CACHE_MARGIN = 3


@dataclass(frozen=True)
class Roofline:
    """How a time compares with the ceilings.

    ``fastest_seconds`` is the least time that the binding ceiling allows, ``memory_seconds`` the
    least that memory allows; ``ceiling_share`` is the share of the binding ceiling's rate that was
    reached. Where no ceiling is known to bind, these are 0 and None.
    """

    gigabytes_per_second: float
    teraflops_per_second: float
    fastest_seconds: float
    memory_seconds: float
    bound_by: Literal["memory", "compute"] | None
    ceiling_share: float | None


def roofline(
    least_bytes: int,
    flops: int,
    dtype: str,
    ceilings: Ceilings,
    seconds: float,
    *,
    cold: bool = True,
) -> Roofline:
    """How ``seconds`` compare, of a kernel that moves ``least_bytes`` and computes ``flops``.

    With warm caches (not ``cold``) memory binds only what is too large for them. ``flops`` are the
    reference's, and a kernel may do with fewer (half in causal attention): only ``memory_seconds``
    bound every honest time.
    """
    memory = least_bytes / ceilings.bytes_per_second
    if not cold and least_bytes <= CACHE_MARGIN * ceilings.cache_bytes:
        memory = 0.0
    rate = ceilings.flops_of(dtype)
    compute = flops / rate if rate else 0.0
    fastest = max(memory, compute)
    return Roofline(
        gigabytes_per_second=least_bytes / seconds / 1e9,
        teraflops_per_second=flops / seconds / 1e12,
        fastest_seconds=fastest,
        memory_seconds=memory,
        bound_by=None if fastest == 0 else "memory" if memory >= compute else "compute",
        ceiling_share=fastest / seconds if fastest else None,
    )


def compute_dtype(definition: Definition) -> str:
    """torch's name of the narrowest floating dtype among inputs of two dimensions or more.

    Matrix units may compute in it, whatever the reference widens it to.
    """
    specs = [spec for spec in definition.inputs.values() if spec.dtype.is_floating]
    matrices = [spec for spec in specs if len(spec.shape or ()) > 1] or specs
    narrowest = min(matrices, key=lambda spec: spec.dtype.itemsize_bits, default=None)
    return "float32" if narrowest is None else narrowest.dtype.value
