"""Sentences that consist of parts, so that nobody takes their words apart to see what they say."""

from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True)
class Part:
    """A part of a sentence that may be looked for or changed: ``str`` is its form, filled in."""

    form: ClassVar[str] = ""

    def __str__(self) -> str:
        return self.form.format_map(vars(self))


@dataclass(frozen=True)
class Circumstance(Part):
    """What a sentence holds in, behind it: ``(only in float16)``; or in what all is right."""

    form = "({text})"
    text: str
    is_right: bool = False


#: Parts, and plain words between them.
Sentence: TypeAlias = tuple[str | Part, ...]

#: What begins with one of these follows without a blank.
_CLOSE = (",", ":", ";", ")")


def in_words(sentence: Sentence) -> str:
    """A sentence as text, with blanks between its parts."""
    first, *rest = map(str, sentence)
    return first + "".join(words if words.startswith(_CLOSE) else f" {words}" for words in rest)
