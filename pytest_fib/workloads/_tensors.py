"""Names of dtypes: the schema's and torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import DType

_RENAMED = {"float4_e2m1": "float4_e2m1fn_x2"}


def torch_dtype(dtype: DType) -> str:
    """torch's name of a schema dtype."""
    return _RENAMED.get(dtype.value, dtype.value)
