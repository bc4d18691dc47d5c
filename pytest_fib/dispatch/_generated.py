"""Functions generated with the parameters of a fallback.

Forwarding ``*args`` would cost more than all that these functions do.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pytest_fib.dispatch._kernels import RAISED, blame, log

_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


#: ``given`` is in the order of the fallback, all else in that of the definition. The body's own
#: names must not be those of parameters, of which ``key`` and ``table`` are likely ones.
_SOURCE = """\
def _applied({parameters}):
    _fib_table_now = _fib_table
    if _fib_table_now is None:
        return _fib_fallback({given})
    if _fib_tracing():
        if _fib_without_gradient({guarded}):
            return _fib_op({inputs})
        return _fib_fallback({given})
    try:
        _fib_key = {key}
        _fib_entry = _fib_table_now.get(_fib_key)
        _fib_matches = _fib_entry is not None and _fib_entry[0]({guarded}){are_numbers}
    except (AttributeError, IndexError, TypeError):
        return _fib_fallback({given})  # no such tensors
    {record}
    if _fib_matches:
        try:
            _fib_entry[1]()
            return _fib_entry[2]({inputs})
        except _fib_raised as _fib_error:
            return _fib_failed(_fib_error, _fib_entry, _fib_key, {inputs})
    return _fib_resolve(_fib_key, {inputs})
"""


def parameters_of(fallback: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """A function's parameters; none where it takes any number of arguments, or doesn't say."""
    try:
        parameters = tuple(inspect.signature(fallback).parameters.values())
    except ValueError:  # as of torch's own functions in C++
        return ()
    return () if any(p.kind in _VARIADIC for p in parameters) else parameters


def _given(parameters: Sequence[inspect.Parameter]) -> str:
    return ", ".join(
        f"{p.name}={p.name}" if p.kind is p.KEYWORD_ONLY else p.name for p in parameters
    )


def defaults_of(parameters: Sequence[inspect.Parameter]) -> dict[str, Any]:
    """What `_declared` has as defaults, by the names that it has for them."""
    return {f"_fib_default_{p.name}": p.default for p in parameters if p.default is not p.empty}


def _declared(parameters: Sequence[inspect.Parameter]) -> str:
    texts: list[str] = []
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and "*" not in texts:
            texts.append("*")
        has_default = p.default is not inspect.Parameter.empty
        texts.append(f"{p.name}=_fib_default_{p.name}" if has_default else p.name)
        is_last = i + 1 == len(parameters) or parameters[i + 1].kind is not p.kind
        if p.kind is p.POSITIONAL_ONLY and is_last:
            texts.append("/")
    return ", ".join(texts)


def source_of_applied(
    parameters: Sequence[inspect.Parameter],
    order: Sequence[int],
    tensors: Sequence[int],
    scalars: Sequence[int],
    *,
    key: str,
    records: bool,
) -> str:
    """The source of what ``apply`` returns.

    ``order`` has the places of the definition's inputs and outputs among the parameters, of which
    ``tensors`` and ``scalars`` are some. ``key`` is the expression of what an entry is found by,
    with places in braces.
    """
    names = [parameter.name for parameter in parameters]
    inputs = ", ".join(names[i] for i in order)
    return _SOURCE.format(
        parameters=_declared(parameters),
        given=_given(parameters),
        inputs=inputs,
        guarded=", ".join(names[i] for i in tensors),
        are_numbers="".join(f" and {names[i]}.__class__ in _fib_numbers" for i in scalars),
        key=key.format(*names),
        record=f"_fib_record(_fib_key, {inputs})" if records else "",
    )


_ROUTER = """\
def _router({parameters}):
    if not _fib_is_active():
        return _fib_fallback({given})
    try:
        _fib_function = _fib_named(_fib_definition({chosen}))
    except _fib_raised as _fib_error:
        _fib_unnamed(_fib_error)
        _fib_function = _fib_fallback
    return _fib_function({given})
"""


def generated_router(
    definition: Callable[..., str],
    fallback: Callable[..., Any],
    named: Callable[[str], Callable[..., Any]],
    is_active: Callable[[], bool],
) -> Callable[..., Any]:
    """A function with the fallback's parameters that is routed by what ``definition`` returns.

    That gets the parameters that it names or, where the fallback has others, the first ones. What
    it raises is logged once, and the fallback serves such calls.
    """
    parameters = parameters_of(fallback)
    if not parameters:
        return fallback
    names = [parameter.name for parameter in parameters]
    wanted = [parameter.name for parameter in parameters_of(definition)]
    chosen = wanted if set(wanted) <= set(names) else names[: len(wanted)]
    source = _ROUTER.format(
        parameters=_declared(parameters),
        given=_given(parameters),
        chosen=", ".join(chosen or names),
    )
    namespace = defaults_of(parameters) | {
        "_fib_fallback": fallback,
        "_fib_named": named,
        "_fib_definition": definition,
        "_fib_is_active": is_active,
        "_fib_raised": RAISED,
        "_fib_unnamed": _logged_once(),
    }
    exec(compile(source, "<apply>", "exec"), namespace)
    router: Callable[..., Any] = namespace["_router"]
    return router


def _logged_once() -> Callable[[BaseException], None]:
    """A function that logs the first error of the function that names definitions."""
    was_said = threading.Event()

    def unnamed(error: BaseException) -> None:
        why = blame(error)
        if not was_said.is_set():
            was_said.set()
            log.warning(
                "the function that names a definition fails, such calls go to the fallback: %s", why
            )

    return unnamed
