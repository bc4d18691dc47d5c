"""A pytest plugin that says where the time of a CPU run went; see overhead.py.

Imports torch at the start, so that this can be timed by itself, then wraps what the judge calls.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from functools import partial, wraps
from pathlib import Path
from pkgutil import resolve_name
from time import perf_counter
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_seconds: dict[str, float] = defaultdict(float)


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    start = perf_counter()
    import torch  # noqa: F401

    _seconds["importing torch"] = perf_counter() - start
    from pytest_fib.sandbox import LocalSandbox, ProcessSandbox

    for place, name, account in (
        ("pytest_fib.engine._context", "fill_inputs", "making inputs"),
        ("pytest_fib.engine._output_checker", "compare_outputs", "comparing outputs"),
    ):
        module = resolve_name(place)
        setattr(module, name, _counted(getattr(module, name), partial(_always, account)))
    for sandbox in (LocalSandbox, ProcessSandbox):
        sandbox.open = _counted(sandbox.open, lambda *_, **__: "starting sandboxes")
        sandbox.ask = _counted(sandbox.ask, _what_is_asked)


def pytest_unconfigure() -> None:
    Path(os.environ["FIB_SPLIT"]).write_text(json.dumps(_seconds), encoding="utf-8")


def _counted(function: Callable[..., Any], account: Callable[..., str]) -> Callable[..., Any]:
    @wraps(function)
    def counted(*args: Any, **kwargs: Any) -> Any:
        start = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            _seconds[account(*args, **kwargs)] += perf_counter() - start

    return counted


def _always(account: str, *_: object, **__: object) -> str:
    return account


def _what_is_asked(_: object, request: object, *__: object, **___: object) -> str:
    if type(request).__name__ == "Load":
        return "loading programs"
    return "calling implementations and references"
