"""What goes wrong when a program is built or loaded."""

from __future__ import annotations


class BuildError(Exception):
    """The program could not be made callable; the message says why.

    ``log`` is what a compiler printed, with the source line of its first error before it.
    """

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def source_line(number: int, text: str) -> str:
    """A line of a source as logs begin with it: ``   12 | y = x + x``."""
    return f"{number:>5} | {text.strip()}"
