"""Makes Ctrl-C end a run soon, even on a busy machine."""

from __future__ import annotations

import gc
import sys

import pytest

#: Hypothesis' plugin for pytest.
_HYPOTHESIS = "hypothesispytest"


class Interruption:
    """Spares an interrupted process seconds of work that shows nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        """Before pytest formats every frame, of which it shows one."""
        if excinfo.type is not KeyboardInterrupt:  # errors of collection, --maxfail
            return
        shown = excinfo.traceback.filter(excinfo)[-1:]
        if shown and not self._config.option.fulltrace:
            excinfo.traceback = shown
        self._spare_hypothesis()
        # pytest and then Python collect garbage several times, in all that torch has made.
        if "triton" not in sys.modules:  # whose bindings call leaks what Python doesn't collect
            gc.freeze()

    def _spare_hypothesis(self) -> None:
        """Its plugin imports it at the end of a run, which fails if that import was interrupted."""
        plugins = self._config.pluginmanager
        if "hypothesis" not in sys.modules and plugins.has_plugin(_HYPOTHESIS):
            plugins.unregister(name=_HYPOTHESIS)
