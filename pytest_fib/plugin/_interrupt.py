"""Ctrl-C ends a run soon, also on a machine that is busy."""

from __future__ import annotations

import gc
import sys

import pytest

#: Hypothesis' plugin for pytest.
_HYPOTHESIS = "hypothesispytest"


class Interruption:
    """Saves a process that is interrupted the work of seconds, of which nothing would be seen."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Before pytest makes a text of every frame, of which it shows one."""
        if excinfo.type is not KeyboardInterrupt:  # errors of collection, --maxfail
            return
        shown = excinfo.traceback.filter(excinfo)[-1:]
        if shown and not self._config.option.fulltrace:
            excinfo.traceback = shown
        self._spare_hypothesis()
        # pytest, then Python look for garbage several times, each time in all that torch has made.
        if "triton" not in sys.modules:  # whose bindings call leaks what Python doesn't collect
            gc.freeze()

    def _spare_hypothesis(self) -> None:
        """At the end of a run its plugin imports it, which fails if that was interrupted before."""
        plugins = self._config.pluginmanager
        if "hypothesis" not in sys.modules and plugins.has_plugin(_HYPOTHESIS):
            plugins.unregister(name=_HYPOTHESIS)
