"""Repairs Triton's interpreter, which gets bfloat16 wrong: right kernels would fail in it.

It rounds float32 to bfloat16 towards zero where hardware rounds to nearest, and multiplies the
integers that it keeps bfloat16 in (seen in triton 3.6 and 3.9). And that of triton 3.6 makes loop
bounds of arrays in a way that numpy 2.5 refuses. Only what runs on the CPU uses it.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


def repair_if_used() -> None:
    """Repair the interpreter where this process has imported Triton as that."""
    if os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules:
        repair()


def repair() -> None:
    """Repair the interpreter of this process, where triton is installed. Does nothing twice."""
    try:
        interpreter: Any = import_module("triton.runtime.interpreter")
    except ImportError:
        return
    if getattr(interpreter, "_convert_float", None) is None or hasattr(interpreter, "_repaired"):
        return
    interpreter._repaired = True
    interpreter._convert_float = _converting(interpreter._convert_float, interpreter.tl)
    builder = interpreter.InterpreterBuilder
    builder.create_dot = _multiplying(builder.create_dot, interpreter.tl)
    interpreter._patch_lang_tensor = _counting(interpreter._patch_lang_tensor)


def _converting(original: Any, tl: Any) -> Any:
    def convert(value: Any, source: Any, target: Any, rounding: Any) -> Any:
        if (source, target) == (tl.float32, tl.bfloat16):
            return narrowed(value)
        if (source, target) == (tl.bfloat16, tl.float32):
            return widened(value)
        return original(value, source, target, rounding)

    return convert


def _multiplying(original: Any, tl: Any) -> Any:
    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        a, b = (
            self.cast_impl(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x for x in (a, b)
        )
        return original(self, a, b, *rest)

    return create_dot


def _counting(original: Any) -> Any:
    def patch(tensor: Any, scope: Any) -> None:
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patch


def narrowed(value: Any) -> np.ndarray[Any, Any]:
    """The bits of float32 values in bfloat16, rounded to the nearest, ties to even."""
    import numpy as np

    bits = np.ascontiguousarray(value).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    is_nan = (bits & 0x7FFF_FFFF) > 0x7F80_0000
    return np.where(is_nan, (bits >> 16) | 0x40, rounded).astype(np.uint16)


def widened(value: Any) -> np.ndarray[Any, Any]:
    """The bits of bfloat16 values in float32; exact."""
    import numpy as np

    return np.ascontiguousarray(value).view(np.uint16).astype(np.uint32) << 16
