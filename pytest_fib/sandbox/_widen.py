"""Runs a definition's reference in float64, whatever dtypes it was written for.

References convert explicitly (``x.to(torch.float32)``, ``torch.zeros(n, dtype=torch.float16)``), so
wider inputs alone would be narrowed again: here such conversions give float64 too. Conversions that
are part of the meaning, not rounding, stay: to float8 and to integers, packed inputs, and bits that
are viewed as another dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from math import inf
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from pytest_fib.sandbox._foreign_errors import one_line
from pytest_fib.sandbox._rounding import (
    REASON_LIMIT,
    Deciding,
    DecidingOnMoved,
    Decision,
    Keeping,
    Leaning,
    Moving,
    MovingAlike,
    Naive,
    OracleUnavailable,
    Recording,
    Sampling,
    VariationError,
    raise_if_ours,
)

#: The dtypes that are widened, and to what.
WIDENED = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: What matrix units compute, from operands of the inputs' dtype.
_MATRIX_PRODUCTS = frozenset(
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
#: How far ``nudge`` moves an input, relatively: 64 unit roundoffs of float32. Sums of thousands of
#: terms in float32, in any order, are off by about as much.
NUDGE = 2.0**-18
#: Python floats are one number for all elements, whose errors don't add up: as they are rounded to
#: float32, and what is computed with them once.
NUDGE_OF_FLOATS = 2.0**-22

#: Seeds by which the first few results of a single element are all moved one way, and the one way
#: and the other in turn: with others, the errors of a small workload may happen to cancel.
_ONE_WAY, _IN_TURN = 284, 106

#: How decisions may lean, see ``lean``: so that of what ties each element is in each place, with
#: other masks, and in orders of their own.
_LEANING, _LEANING_ORDERS = ((-1, -1), (-1, 1)), ((1, -1), (1, 1))
_LEANING_MASKS = ((-1,), (1,))

#: Variations of ``run_widened`` that show how far honest rounding may carry, besides the reference
#: in its own dtypes. Random ones are several, since one may happen to change little, and of two the
#: second moves all the other way: of two large scores that nearly tie, each wins once.
#: The quickest come first: others are made only where these don't explain what is wrong.
YARDSTICKS: tuple[tuple[Mapping[str, Any], ...], ...] = (
    ({"nudge": 1}, {"nudge": -1}, {"narrow_operands": True}, {"round_operands": True}),
    ({"moved": _ONE_WAY}, {"moved": -_ONE_WAY}, {"moved": _IN_TURN}),
    tuple({"lean": ways} for ways in (*_LEANING, *_LEANING_MASKS, *_LEANING_ORDERS)),
    ({"naive": True},),
)
#: More of them for outputs that are decided, such as whether the number of decisions is odd: of
#: several that may fall either way, leaning moves all together, and then it is as even as before.
DECIDED_AT_RANDOM: tuple[Mapping[str, Any], ...] = tuple({"moved": 1000 + i} for i in range(6))
#: And more where outputs are hardly wrong after all of these: of a few elements that share an error
#: the largest of a few samples may be small by luck.
MOVED_AGAIN: tuple[Mapping[str, Any], ...] = tuple({"moved": 2000 + i} for i in range(8))
#: Seeds of the runs that measure how far the inputs of decisions are off.
_SAMPLES = (101, 102)

# Bound before a reference is loaded, which might replace them.
_Tensor = torch.Tensor
_float64 = torch.float64
_to = torch.Tensor.to
_double = torch.Tensor.double
_cdouble = torch.Tensor.cdouble  # type: ignore[attr-defined]
_clone = torch.Tensor.clone
_contiguous = torch.Tensor.contiguous
_flatten = torch.Tensor.flatten
_view = torch.Tensor.view
_type = torch.Tensor.type
_get_default_dtype = torch.get_default_dtype
_set_default_dtype = torch.set_default_dtype
_generator = torch.Generator
_finfo = torch.finfo
_add, _sub, _mul, _square, _sqrt = torch.add, torch.sub, torch.mul, torch.square, torch.sqrt
_equal, _count_nonzero, _clamp = torch.equal, torch.count_nonzero, torch.clamp
_nan_to_num = torch.nan_to_num
_isinf, _where = torch.isinf, torch.where
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
    moved: int | None = None,
    naive: bool = False,
    lean: tuple[int, ...] | None = None,
    own: bool = False,
) -> Any:
    """What ``function(*inputs)`` returns when every floating dtype it asks for is float64.

    Inputs of 16 and 32-bit floating dtypes are widened; float8, integer and bool tensors, and
    Python scalars, are passed as they are. Variations show how far honest rounding may carry:

    - ``nudge``, a seed: each element of a widened input is first moved by about ``NUDGE`` of it,
      and floats by ``NUDGE_OF_FLOATS``; with the seed negated, by as much the other way. None is
      moved across a number that it is compared with, or to another that it is rounded to.
    - ``narrow_operands``: products of matrices are off by as much as rounding their operands to the
      coarsest 16-bit dtype among the inputs may make them, as matrix units round attention weights.
    - ``round_operands``: operands are rounded so, which shows where one of them decides a row.
    - ``moved``, a seed: the result of each operation is moved by some roundoffs of float32, and
      that of a logarithm of a sum of exponentials by those of the sum; softmax of which several
      operations use the weights is ``exp(x - logsumexp)`` with the logarithm of a run that wasn't
      moved, but for its rounding; with the seed negated, the other way.
    - ``naive``: terms of sums are added one after the other in float32, and what divides is a
      product with a reciprocal; running sums of what is flipped are differences of those from the
      beginning, softmax subtracts the logarithm of its sum, logaddexp is computed from the smaller
      number, and tanh and elu subtract 1. Sums are NaN whose terms overflow in some order.
    - ``lean``, -1 or 1 twice: what is rounded or compared is as low, or as high, as float32
      arithmetic may make it; the first such number, and all others. With -1 or 1 once, all
      go that way, and masks may or may not have each of what ties. See ``_rounding``.

    With ``own``, the last three are made in the dtypes that the function asks for.

    Raises OracleUnavailable where the function raises, as it does when it insists on a dtype, where
    it returns a narrower floating tensor, and where a variation has nothing to vary. Raises
    VariationError where it is not the function that fails. The default dtype is restored.
    """
    if lean is not None or moved is not None or naive:
        return _run_varied(function, inputs, moved=moved, lean=lean, own=own)
    if nudge is not None:
        return _run_nudged(function, inputs, nudge)
    if (narrow_operands or round_operands) and _coarsest(inputs) is None:
        raise OracleUnavailable("no input has a 16-bit dtype")
    if not (narrow_operands or round_operands):  # other inputs, most likely: no variation
        _LAST.forget()
    return _run(
        function,
        inputs,
        narrow=_coarsest(inputs) if narrow_operands else None,
        rounded=_coarsest(inputs) if round_operands else None,
    )


def _run_varied(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    moved: int | None,
    lean: tuple[int, ...] | None,
    own: bool,
) -> Any:
    """A function's result with varied operations; naive without ``lean`` or ``moved``."""
    run = _call if own else _run
    if lean is not None:
        return _run_leaning(function, inputs, lean, own=own)
    if moved is not None:
        first = _LAST.first_run(function, inputs, own=own)
        return run(function, _copies(inputs), mode=Moving(first, moved))
    _LAST.forget()  # those that ask for it come before
    naive = Naive()
    try:
        return run(function, _copies(inputs), mode=naive)
    except OracleUnavailable:
        if not naive.has_marked:
            raise
        # The reference makes an index of a sum, say, which NaN can't be.
        return run(function, _copies(inputs), mode=Naive(marks_overflow=False))


def _run_leaning(
    function: Callable[..., Any], inputs: Sequence[Any], lean: tuple[int, ...], *, own: bool
) -> Any:
    """A function's result with decisions that lean."""
    decisions = _LAST.first_run(function, inputs, own=own).decisions
    if not any(decision.is_open for decision in decisions):
        raise OracleUnavailable("nothing is decided by numbers that have errors")
    run = partial(_call if own else _run, function)
    least = None
    if lean in _LEANING_MASKS:
        certain = Leaning(decisions, lean)
        if _LAST.has_masks is not False:
            run(_copies(inputs), mode=certain)
        if not certain.has_masks:
            raise OracleUnavailable("nothing that ties is in a mask")
        least = certain.operands
    leaning = Leaning(decisions, lean, least)
    without_counts = Leaning(decisions, lean, least, counts=False)
    result = _with_counts(lambda mode: run(_copies(inputs), mode=mode), leaning, without_counts)
    if lean == _LEANING[0]:
        _LAST.has_masks = leaning.has_masks
    return result


def _with_counts(run: Callable[[Leaning], Any], leaning: Leaning, without_counts: Leaning) -> Any:
    """What a run returns; without counts of what ties where the function takes these for sizes."""
    try:
        result = run(leaning)
    except OracleUnavailable:
        if not leaning.has_counted:
            raise
        return run(without_counts)
    if not leaning.has_counted:
        return result
    uncounted = run(without_counts)
    return result if _shapes(result) == _shapes(uncounted) else uncounted


def _shapes(result: Any) -> list[Any]:
    return [getattr(value, "shape", None) for value in tree_leaves(result)]


def _run_nudged(function: Callable[..., Any], inputs: Sequence[Any], nudge: int) -> Any:
    """A function's result for moved inputs, which decide what exact ones do.

    What is computed of them may be decided otherwise. That is measured, as for ``lean``, only where
    the inputs decide anything otherwise: they rarely do.
    """
    moved, exact = DecidingOnMoved(), Deciding()
    result = _run(function, _copies(inputs), mode=moved, nudge=nudge)
    if not moved.decided:
        return result
    _run(function, _copies(inputs), mode=exact)
    if moved.agrees(exact):
        return result
    decisions = _LAST.first_run(function, inputs, own=False).decisions
    return _run(function, _copies(inputs), mode=Keeping(decisions), nudge=nudge)


def _run(
    function: Callable[..., Any],
    inputs: Sequence[Any],
    *,
    mode: Recording | None = None,
    nudge: int | None = None,
    narrow: torch.dtype | None = None,
    rounded: torch.dtype | None = None,
) -> Any:
    """Run in float64, and under ``mode``."""
    values = [_widened(value, nudge, i) for i, value in enumerate(inputs)]
    with _float64_by_default(), _Widening(narrow, rounded):
        result = _call(function, values, mode=mode)
    _refuse_narrow(result)
    return result


def _call(
    function: Callable[..., Any], values: Sequence[Any], *, mode: Recording | None = None
) -> Any:
    """Run as it is, under ``mode``."""
    try:
        with mode or nullcontext():
            return function(*values)
    except (OracleUnavailable, VariationError):
        raise
    # Foreign code may raise anything; what this means is the same.
    except Exception as error:
        raise OracleUnavailable(one_line(error, REASON_LIMIT)) from error


class _Measured:
    """A recording of the last run, with how far decisions' inputs may be off: several runs ask."""

    def __init__(self) -> None:
        self._of: tuple[Callable[..., Any], bool, list[Any]] | None = None
        self._recording = Recording()
        #: Whether they put what ties in masks, once that is known.
        self.has_masks: bool | None = None

    def first_run(
        self, function: Callable[..., Any], inputs: Sequence[Any], *, own: bool
    ) -> Recording:
        """What a function decides on these inputs, and the weights that it computes."""
        known = self._of
        if known is None or known[:2] != (function, own) or not _all_same(known[2], inputs):
            self._recording, self.has_masks = _measured(function, inputs, own=own), None
            self._of = function, own, _copies(inputs)
        return self._recording

    def forget(self) -> None:
        """Free their memory."""
        self._of, self._recording, self.has_masks = None, Recording(), None


_LAST = _Measured()


def _measured(function: Callable[..., Any], inputs: Sequence[Any], *, own: bool) -> Recording:
    """A run whose decisions' inputs are off as they are in several others."""
    recording, run = Recording(), _call if own else _run
    run(function, _copies(inputs), mode=recording)
    decisions = recording.decisions
    if not decisions:
        return recording
    runs = [partial(run, function, mode=Sampling(decisions, seed)) for seed in _SAMPLES]
    if not own:
        unmoved = partial(Sampling, decisions, None)
        runs += [partial(_call, function, mode=unmoved())]
        if (coarsest := _coarsest(inputs)) is not None:
            runs += [partial(_run, function, mode=unmoved(), narrow=coarsest)]
    for sample in runs:
        # One that goes another way, or that doesn't run so, says nothing.
        with suppress(OracleUnavailable):
            sample(_copies(inputs))
    _note_what_is_equal(run, function, inputs, decisions)
    return recording


def _note_what_is_equal(
    run: Callable[..., Any],
    function: Callable[..., Any],
    inputs: Sequence[Any],
    decisions: Sequence[Decision],
) -> None:
    """Note what is equal however it is rounded; nothing, where that can't run."""
    if not any(each.may_have_equals for each in decisions):
        return
    try:
        for seed in (_SAMPLES[0], -_SAMPLES[0]):
            run(function, _copies(inputs), mode=MovingAlike(decisions, seed))
    except OracleUnavailable:
        for each in decisions:
            each.together = each.alike = None
    for each in decisions:
        each.leave_equal()


def _all_same(before: Sequence[Any], now: Sequence[Any]) -> bool:
    return len(before) == len(now) and all(map(_same, before, now))


def _same(before: Any, now: Any) -> bool:
    if type(before) is not _Tensor or type(now) is not _Tensor:
        return before is now or bool(before == now)
    if before.dtype is not now.dtype or before.shape != now.shape:
        return False
    return _equal(*(_view(_flatten(_contiguous(x)), torch.uint8) for x in (before, now)))


def _copies(inputs: Sequence[Any]) -> list[Any]:
    return [_clone(value) if type(value) is _Tensor else value for value in inputs]


def _coarsest(inputs: Sequence[Any]) -> torch.dtype | None:
    dtypes = {value.dtype for value in inputs if type(value) is _Tensor}
    return next((d for d in (torch.bfloat16, torch.float16) if d in dtypes), None)


class _MovedFloat(float):
    """A float that is moved, and compared as it was: Python code decides on exact numbers."""

    exact: float

    @classmethod
    def of(cls, value: float, by: float) -> _MovedFloat:
        """A float moved by a share of it."""
        moved = cls(value * (1.0 + by))
        moved.exact = value
        return moved

    def __eq__(self, other: object) -> bool:
        return self.exact == other

    def __lt__(self, other: float) -> bool:
        return self.exact < other

    def __le__(self, other: float) -> bool:
        return self.exact <= other

    def __gt__(self, other: float) -> bool:
        return self.exact > other

    def __ge__(self, other: float) -> bool:
        return self.exact >= other

    __hash__ = float.__hash__


def _widened(value: Any, nudge: int | None, position: int) -> Any:
    if nudge is not None and type(value) is float:
        return _MovedFloat.of(value, NUDGE_OF_FLOATS if nudge > 0 else -NUDGE_OF_FLOATS)
    if type(value) is not _Tensor or value.dtype not in WIDENED:
        return value
    wide = _to(value, WIDENED[value.dtype])
    return wide if nudge is None else _nudged(wide, nudge, position)


def _nudged(tensor: torch.Tensor, seed: int, position: int) -> torch.Tensor:
    generator = _generator(tensor.device).manual_seed(1000 * abs(seed) + position)
    noise = tensor.new_empty(tensor.shape, dtype=torch.float32).normal_(generator=generator)
    return tensor * noise.double().mul_(NUDGE if seed > 0 else -NUDGE).add_(1.0)


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
        func = _CONVERSIONS.get(func, func)
        try:
            return self._wide(func, args, kwargs)
        except Exception as error:
            wide = {key: _wider(kwargs[key]) for key in kwargs}
            raise_if_ours(error, func.__name__, partial(func, *map(_wider, args), **wide))
            raise

    def _wide(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call's result, with all dtypes widened."""
        if func is _view:
            return _viewed(*args, **kwargs)
        if func is _set_default_dtype:
            return None
        if func is _type:
            args = tuple(_TYPE_NAMES.get(_type_name(arg), arg) for arg in args)
        if func in _MATRIX_PRODUCTS and self._rounded is not None:
            args = _rounded(args, self._rounded)
        result = func(*map(_wider, args), **{key: _wider(kwargs[key]) for key in kwargs})
        if func in _MATRIX_PRODUCTS and self._narrow is not None:
            result = _displaced(func, args, kwargs, result, self._narrow)
        return _widen_result(result)


def _displaced(
    func: Any, args: Any, kwargs: Mapping[str, Any], result: torch.Tensor, narrow: torch.dtype
) -> torch.Tensor:
    """A product, changed by as much as rounding its operands to a dtype may do.

    By one standard deviation, or a little more: u times the root of the sum of the squared terms,
    where u is the dtype's unit roundoff. Operands that the dtype holds exactly are not rounded.
    """
    differences = [*_differences(args, _rounded(args, narrow))]
    if not differences:
        return result
    squares: torch.Tensor = func(*_on_tensors(_square, args), **kwargs)
    # To ask for this number would wait for the device, in each product of a loop.
    differs = _clamp(sum(differences[1:], differences[0]), max=1)
    moved = _nan_to_num(_mul(_sqrt(squares), differs), 0.0, inf, -inf)
    return _add(result, moved, alpha=_finfo(narrow).eps / 2)


def _on_tensors(function: Callable[[torch.Tensor], torch.Tensor], argument: Any) -> Any:
    """Arguments with the function applied to their float64 tensors."""
    if isinstance(argument, (tuple, list)):
        return [_on_tensors(function, item) for item in argument]
    is_wide = type(argument) is _Tensor and argument.dtype is _float64
    return function(argument) if is_wide else argument


def _rounded(argument: Any, dtype: torch.dtype) -> Any:
    """Arguments in a narrower dtype, but for numbers beyond it: nobody rounds those honestly."""

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        narrow = _to(_to(tensor, dtype), _float64)
        return _where(_isinf(narrow), tensor, narrow)

    return _on_tensors(rounded, argument)


def _differences(argument: Any, rounded: Any) -> Iterator[torch.Tensor]:
    """How many elements of each float64 tensor aren't what they are rounded."""
    if isinstance(argument, (tuple, list)):
        for pair in zip(argument, rounded, strict=True):
            yield from _differences(*pair)
    elif argument is not rounded:
        yield _count_nonzero(_sub(argument, rounded))


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
