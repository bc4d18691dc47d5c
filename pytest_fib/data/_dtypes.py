"""Element types, and classes of them that rules speak of."""

import re
import sys
from enum import StrEnum
from functools import cache
from math import isnan


class DType(StrEnum):
    """Element types a tensor or scalar may have; values are torch's names."""

    FLOAT32 = "float32"
    FLOAT64 = "float64"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    FLOAT4_E2M1 = "float4_e2m1"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def is_floating(self) -> bool:
        """Whether values have a fraction."""
        return "float" in self.value

    @property
    def itemsize_bits(self) -> int:
        """Bits one element takes in memory."""
        return _bits(self.value)

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the most that an element can be, infinities aside."""
        if self.is_floating:
            return -_MOST[self], _MOST[self]
        bits = 1 if self is DType.BOOL else self.itemsize_bits
        if self is DType.BOOL or self.value.startswith("u"):
            return 0, 2**bits - 1
        return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def holds(self, special: float) -> bool:
        """Whether an element can be that infinity, or NaN: ``float8_e4m3fn`` has no infinities."""
        return self in _WIDE_FLOATS | _FP8 and (isnan(special) or self is not DType.FLOAT8_E4M3FN)


@cache
def _bits(dtype: str) -> int:
    """A budget asks for this thousands of times."""
    size = re.search(r"\d+", dtype)
    return int(size.group()) if size else 8


#: The largest finite number of each floating dtype: as torch.finfo has it, without torch.
_MOST = {
    DType.FLOAT64: sys.float_info.max,
    DType.FLOAT32: (2 - 2**-23) * 2.0**127,
    DType.FLOAT16: 65504.0,
    DType.BFLOAT16: (2 - 2**-7) * 2.0**127,
    DType.FLOAT8_E4M3FN: 448.0,
    DType.FLOAT8_E5M2: 57344.0,
    DType.FLOAT4_E2M1: 6.0,
}
_INTEGERS = frozenset({DType.INT64, DType.INT32, DType.INT16, DType.INT8, DType.UINT8})
_FP8 = frozenset({DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2})
_WIDE_FLOATS = frozenset({DType.FLOAT64, DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})

#: Classes of dtypes by name.
DTYPE_CLASSES: dict[str, frozenset[DType]] = {
    "any": frozenset(DType),
    "integer": _INTEGERS,
    "floating": _WIDE_FLOATS | _FP8,
    "not packed": _WIDE_FLOATS | _INTEGERS | {DType.BOOL},
    "numbers": _WIDE_FLOATS | _INTEGERS,
    "bytes": frozenset({DType.FLOAT4_E2M1, DType.INT8, DType.UINT8}),
    "32 or 64 bits": frozenset({DType.INT32, DType.INT64}),
    "fp8": _FP8,
    "fp4": frozenset({DType.FLOAT4_E2M1}),
    "bool": frozenset({DType.BOOL}),
}
