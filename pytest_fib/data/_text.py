"""Text of others that is shown to people: on terminals, in logs of CI, as XML and Markdown."""

import re
from collections.abc import Sequence

#: What is not shown as it is: control characters of C0 (but newline and tab) and C1, separators of
#: lines, overrides of the direction of writing, lone surrogates; and how a line begins that is a
#: command to a CI system which reads the log: "::error ...::", "##[group]", "##vso[...]".
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    r"|(?<!\S):(?=:)|#(?=#\w*\[)"
)


def visible(text: str) -> str:
    r"""The text, in which each character that has an effect is an escape such as ``\x1b``.

    So it can't move a cursor, reorder what is read, or give orders to a CI system. Text that has
    gone through this stays as it is.
    """
    return _HIDDEN.sub(_escape, text)


def visible_line(text: str) -> str:
    """The same in one line: newlines are ``\\n``."""
    return visible(text).replace("\n", r"\n")


def shortened(items: Sequence[object], most: int = 12) -> str:
    """Items in a sentence: the first of them, and how many more there are."""
    shown = ", ".join(map(str, items[:most])) or "none"
    return shown if len(items) <= most else f"{shown} and {len(items) - most} more"


def format_distinct(one: float, other: float, digits: int) -> tuple[str, str]:
    """Two numbers as texts of so many digits, or of as many more as it takes to differ.

    The texts are the same only if the numbers are equal.
    """
    choices = (digits, *(n for n in (6, 9, 17) if n > digits))
    shown = [(f"{one:.{n}g}", f"{other:.{n}g}") for n in choices]
    return next((texts for texts in shown if texts[0] != texts[1]), shown[0])


def _escape(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
