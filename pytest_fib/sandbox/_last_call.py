"""Where the last call of a program ended, for debuggers: of code that runs in this process."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class LastCall:
    """Watches the calls of a function. ``runcall`` makes the first one of each test, as pdb's does.

    What is raised where somebody leaves the debugger, ``leaving``, goes on as the cause of a
    KeyboardInterrupt: it is not the function's own.
    """

    def __init__(
        self, leaving: type[BaseException], runcall: Callable[..., Any] | None = None
    ) -> None:
        #: Ends in the frame that raised or, of a call that returned, in the function's own.
        self.traceback: TracebackType | None = None
        self._leaving = leaving
        self._runcall = runcall
        self._is_first = False

    def begin(self) -> None:
        """Another test begins."""
        self._is_first = True

    def watching(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are watched."""
        code = getattr(inspect.unwrap(function), "__code__", None)

        def keep(frame: FrameType, event: str, _: object) -> None:
            if event == "return" and frame.f_code is code:
                self.traceback = TracebackType(None, frame, frame.f_lasti, frame.f_lineno)

        def watched(*arguments: Any) -> Any:
            before = sys.getprofile()
            try:
                if self._runcall is not None and self._is_first:
                    self._is_first = False
                    return self._runcall(function, *arguments)
                sys.setprofile(keep)
                return function(*arguments)
            except self._leaving as left:
                raise KeyboardInterrupt from left
            except BaseException as error:
                self.traceback = error.__traceback__ and error.__traceback__.tb_next
                raise
            finally:
                sys.setprofile(before)

        return watched
