"""Runs a definition's reference in float64, whatever dtypes it was written for.

References convert explicitly (``x.to(torch.float32)``, ``torch.zeros(n, dtype=torch.float16)``), so
wider inputs alone would be narrowed again: here such conversions give float64 too. Conversions that
are part of the meaning, not rounding, stay: to float8 and to integers, packed inputs, and bits that
are viewed as another dtype.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_fib.sandbox._foreign_errors import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: The dtypes that are widened, and to what.
WIDENED = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: What matrix units compute, from operands of the inputs' dtype.
_PRODUCTS = frozenset(
    {
        torch.matmul,
        torch.mm,
        torch.bmm,
        torch.einsum,
        torch.nn.functional.linear,
        torch.Tensor.matmul,
        torch.Tensor.__matmul__,
        torch.Tensor.mm,
        torch.Tensor.bmm,
    }
)
#: How much of the reason why there is no float64 reference, in characters.
REASON_LIMIT = 200
#: How far ``nudge`` moves an input, relatively: 64 unit roundoffs of float32. Sums of thousands of
#: terms in float32, in any order, are off by about as much.
NUDGE = 2.0**-18

#: Variations of ``run_widened`` that show how far honest rounding may carry, besides the reference
#: in its own dtypes. Two nudges, since one may happen to change little.
YARDSTICKS: tuple[Mapping[str, Any], ...] = (
    {"nudge": 1},
    {"nudge": 1001},
    {"narrow_operands": True},
    {"round_operands": True},
)

# Bound before a reference is loaded, which might replace them.
_Tensor = torch.Tensor
_float64 = torch.float64
_to = torch.Tensor.to
_double = torch.Tensor.double
_cdouble = torch.Tensor.cdouble  # type: ignore[attr-defined]
_view = torch.Tensor.view
_type = torch.Tensor.type
_get_default_dtype = torch.get_default_dtype
_set_default_dtype = torch.set_default_dtype
_generator = torch.Generator
_finfo = torch.finfo
_add, _equal, _square, _sqrt = torch.add, torch.equal, torch.square, torch.sqrt
_CONVERSIONS: Mapping[Any, Any] = {
    torch.Tensor.float: _double,
    torch.Tensor.half: _double,
    torch.Tensor.bfloat16: _double,
    torch.Tensor.cfloat: _cdouble,  # type: ignore[attr-defined]
    torch.Tensor.chalf: _cdouble,
}
#: What ``Tensor.type`` takes besides dtypes.
_TYPE_NAMES = {
    f"torch.{device}{kind}Tensor": _float64
    for device in ("", "cuda.")
    for kind in ("Float", "Half", "BFloat16")
}


class OracleUnavailable(Exception):
    """The reference can't be computed in float64; the message says why, in one line."""


def widened_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which ``run_widened`` returns an output that is declared as ``dtype``."""
    return WIDENED.get(dtype, dtype)


def run_widened(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    nudge: int | None = None,
    narrow_operands: bool = False,
    round_operands: bool = False,
) -> Any:
    """What ``function(*inputs)`` returns when every floating dtype it asks for is float64.

    Inputs of 16 and 32-bit floating dtypes are widened; float8, integer and bool tensors, and
    Python scalars, are passed as they are. Three variations show how far honest rounding may carry:

    - ``nudge``, a seed: each element of a widened input is first moved by about ``NUDGE`` of it.
    - ``narrow_operands``: products of matrices are off by as much as rounding their operands to the
      coarsest 16-bit dtype among the inputs may make them, as matrix units round attention weights.
    - ``round_operands``: operands are rounded so, which shows where one of them decides a row.

    Raises OracleUnavailable where the function raises, as it does when it insists on a dtype, and
    where it returns a narrower floating tensor. The default dtype is restored.
    """
    values = [_widened(value, nudge, i) for i, value in enumerate(inputs)]
    operands = _coarsest(inputs)
    mode = _Widening(operands if narrow_operands else None, operands if round_operands else None)
    try:
        with _float64_by_default(), mode:
            result = function(*values)
    except OracleUnavailable:
        raise
    # Foreign code may raise anything; what this means is the same.
    except Exception as error:
        raise OracleUnavailable(one_line(error, REASON_LIMIT)) from error
    _refuse_narrow(result)
    return result


def _coarsest(inputs: Sequence[Any]) -> torch.dtype | None:
    dtypes = {value.dtype for value in inputs if type(value) is _Tensor}
    return next((d for d in (torch.bfloat16, torch.float16) if d in dtypes), None)


def _widened(value: Any, nudge: int | None, position: int) -> Any:
    if type(value) is not _Tensor or value.dtype not in WIDENED:
        return value
    wide = _to(value, WIDENED[value.dtype])
    return wide if nudge is None else _nudged(wide, nudge + position)


def _nudged(tensor: torch.Tensor, seed: int) -> torch.Tensor:
    generator = _generator(tensor.device).manual_seed(seed)
    noise = tensor.new_empty(tensor.shape, dtype=torch.float32).normal_(generator=generator)
    return tensor * noise.double().mul_(NUDGE).add_(1.0)


@contextmanager
def _float64_by_default() -> Iterator[None]:
    before = _get_default_dtype()
    _set_default_dtype(_float64)
    try:
        yield
    finally:
        _set_default_dtype(before)


def _refuse_narrow(result: Any) -> None:
    values = list(result.values()) if isinstance(result, dict) else result
    for value in values if isinstance(values, (list, tuple)) else (values,):
        if isinstance(value, _Tensor) and value.dtype in WIDENED:
            raise OracleUnavailable(f"an output is still {value.dtype}")


class _Widening(TorchFunctionMode):
    """Gives every call of torch's that names a dtype the wider one.

    With ``narrow``, products of matrices are off as if their operands had that dtype; with
    ``rounded``, their operands are rounded to that dtype.
    """

    def __init__(self, narrow: torch.dtype | None, rounded: torch.dtype | None) -> None:
        super().__init__()
        self._narrow = narrow
        self._rounded = rounded

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is _view:
            return _viewed(*args, **kwargs)
        if func is _set_default_dtype:
            return None
        func = _CONVERSIONS.get(func, func)
        if func is _type:
            args = tuple(_TYPE_NAMES.get(_type_name(arg), arg) for arg in args)
        if func in _PRODUCTS and self._rounded is not None:
            args = _rounded(args, self._rounded)
        result = func(*map(_wider, args), **{key: _wider(kwargs[key]) for key in kwargs})
        if func in _PRODUCTS and self._narrow is not None:
            result = _displaced(func, args, kwargs, result, self._narrow)
        return _widen_result(result)


def _displaced(
    func: Any, args: Any, kwargs: Mapping[str, Any], result: torch.Tensor, narrow: torch.dtype
) -> torch.Tensor:
    """A product that is off by as much as rounding its operands to a dtype may change it.

    By one standard deviation, or a little more: u times the root of the sum of the squared terms,
    where u is the dtype's unit roundoff. Operands that the dtype holds exactly are not rounded.
    """
    if _all_equal(args, _rounded(args, narrow)):
        return result
    squares: torch.Tensor = func(*_on_tensors(_square, args), **kwargs)
    return _add(result, _sqrt(squares), alpha=_finfo(narrow).eps / 2)


def _on_tensors(function: Callable[[torch.Tensor], torch.Tensor], argument: Any) -> Any:
    """Arguments with the function applied to their float64 tensors."""
    if isinstance(argument, (tuple, list)):
        return [_on_tensors(function, item) for item in argument]
    is_wide = type(argument) is _Tensor and argument.dtype is _float64
    return function(argument) if is_wide else argument


def _rounded(argument: Any, dtype: torch.dtype) -> Any:
    return _on_tensors(lambda tensor: _to(_to(tensor, dtype), _float64), argument)


def _all_equal(argument: Any, rounded: Any) -> bool:
    if isinstance(argument, (tuple, list)):
        return all(map(_all_equal, argument, rounded))
    return argument is rounded or _equal(argument, rounded)


def _wider(argument: Any) -> Any:
    """A dtype's wider one; anything else as it is."""
    return WIDENED.get(argument, argument) if type(argument) is torch.dtype else argument


def _type_name(argument: Any) -> str:
    """``torch.FloatTensor``, of the name itself or of the class."""
    if isinstance(argument, str):
        return argument
    is_class = isinstance(argument, type)
    return f"{argument.__module__}.{argument.__name__}" if is_class else ""


def _widen_result(result: Any) -> Any:
    """Widen what is still narrow, as the result of a float8 product."""
    if type(result) is _Tensor:
        return _to(result, WIDENED[result.dtype]) if result.dtype in WIDENED else result
    if type(result) in (tuple, list):
        return type(result)(map(_widen_result, result))
    return result


def _viewed(tensor: torch.Tensor, *shape: Any, **kwargs: Any) -> Any:
    """``Tensor.view``. Bits that are viewed as a narrow dtype are numbers, which are widened then.

    Raises OracleUnavailable where it is the bits of a widened tensor that are viewed.
    """
    dtype = kwargs.get("dtype", shape[0] if shape else None)
    if isinstance(dtype, torch.dtype) and tensor.dtype in WIDENED.values():
        if widened_dtype(dtype) is tensor.dtype:
            return tensor
        raise OracleUnavailable(f"it looks at the bits of a floating tensor, as {dtype}")
    return _widen_result(_view(tensor, *shape, **kwargs))
