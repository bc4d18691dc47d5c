"""What a time means: rates, traffic, and the share of the device's ceilings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_fib.timing import compute_dtype, roofline, traffic

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_fib.data import Definition
    from pytest_fib.engine._messages import Counted
    from pytest_fib.timing import Ceilings, Roofline, Traffic


def least_traffic(
    definition: Definition,
    axes: Mapping[str, int],
    tensors: Mapping[str, torch.Tensor],
    counted: Counted | None,
) -> Traffic:
    """What has to be moved; ``tensors`` are the filled inputs, ``counted`` is the reference's."""
    names = zip(definition.inputs, counted.seen, strict=True) if counted else ()
    return traffic(definition, axes, tensors, {n: seen for n, seen in names if seen is not None})


def under_the_roof(
    definition: Definition,
    moved: Traffic,
    counted: Counted | None,
    ceilings: Ceilings,
    seconds: float,
    *,
    cold: bool,
) -> Roofline:
    """Where a time lies below the ceilings."""
    flops = counted.flops if counted else 0
    dtype = compute_dtype(definition)
    return roofline(moved.least_bytes, flops, dtype, ceilings, seconds, cold=cold)


def figures(moved: Traffic, counted: Counted | None, found: Roofline) -> dict[str, Any]:
    """The keys of a record's ``performance`` that say so; what is not known is left out."""
    known = {
        "least_bytes": moved.least_bytes,
        "separate_bytes": counted.moved_bytes if counted else None,
        "flops": counted.flops if counted else None,
        "gigabytes_per_second": found.gigabytes_per_second,
        "teraflops_per_second": found.teraflops_per_second if counted else None,
        "ceiling_share": found.ceiling_share,
        "bound_by": found.bound_by,
    }
    return {key: value for key, value in known.items() if value is not None}
