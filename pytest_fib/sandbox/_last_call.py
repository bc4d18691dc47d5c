"""Where the last call of a program ended, for debuggers: of code that runs in this process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class LastCall:
    """Watches the calls of a function. ``runcall`` makes the first one, as pdb's does."""

    def __init__(self, runcall: Callable[..., Any] | None = None) -> None:
        #: Ends in the frame that raised or, of a call that returned, in the function's own.
        self.traceback: TracebackType | None = None
        self._runcall = runcall

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are watched."""
        code = getattr(inspect.unwrap(function), "__code__", None)

        def keep(frame: FrameType, event: str, _: object) -> None:
            if event == "return" and frame.f_code is code:
                self.traceback = TracebackType(None, frame, frame.f_lasti, frame.f_lineno)

        def watched(*arguments: Any) -> Any:
            if self._runcall is not None:
                runcall, self._runcall = self._runcall, None
                return runcall(function, *arguments)
            before = sys.getprofile()
            sys.setprofile(keep)
            try:
                return function(*arguments)
            except BaseException as error:
                self.traceback = error.__traceback__ and error.__traceback__.tb_next
                raise
            finally:
                sys.setprofile(before)

        return watched
