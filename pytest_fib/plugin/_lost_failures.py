"""Keeps failures that are raised where Python ignores exceptions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def no_failure_lost() -> Iterator[Callable[[], None]]:
    """Raise what ``pytest.fail`` raised in between, at the end or when the function is called.

    A signal handler such as pytest-timeout's raises it wherever the process is, for example in a
    callback of the garbage collector. There, Python reports exceptions and goes on.
    """
    lost: list[BaseException] = []
    report = sys.unraisablehook

    def keep(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, pytest.fail.Exception | KeyboardInterrupt):
            lost.append(unraisable.exc_value)
        else:
            report(unraisable)

    def raise_lost() -> None:
        if lost:
            raise lost[0]

    sys.unraisablehook = keep
    try:
        yield raise_lost
    finally:
        sys.unraisablehook = report
    raise_lost()
