"""The parts of a diagnosis's sentence, beside plain words: what later steps ask for, or change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil
from types import UnionType
from typing import ClassVar, TypeVar

from pytest_fib.data import Diagnosis, Part, Sentence

#: Between two places; and what is said of elements where little else is.
AND, WRONG = "and", "wrong"
#: Names of axes that sound as if an index were their size.
_SIZES = re.compile(r"(.*_)?(size|len|length|count|dim)")

_Kind = TypeVar("_Kind", bound=Part)


def _at_index(axis: str, index: int) -> str:
    """A single index: ``at head 5``, ``at index 0 along page_size``."""
    return f"at index {index} along {axis}" if _SIZES.fullmatch(axis) else f"at {axis} {index}"


def ordinal(number: int) -> str:
    """2nd, 3rd, 11th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10)
    return f"{number}{ending or 'th'}"


class OneElement(Part):
    form, share = "in one element", 0.0  # of how many elements isn't said


@dataclass(frozen=True)
class Count(Part):
    form = "at {wrong} of {total} elements"
    wrong: int
    total: int

    @property
    def share(self) -> float:
        return self.wrong / self.total


#: In place of where.
HowMany = OneElement | Count


class Everywhere(Part):
    form = "everywhere"


class NearlyEverywhere(Everywhere):
    form = "nearly everywhere"


@dataclass(frozen=True)
class Partly(Part):
    form = "in {percent} % of elements"
    percent: str


@dataclass(frozen=True)
class Along(Part):
    """At how many indices of an axis, in place of at which."""

    form = "at {count} of {size} along {axis}"
    count: int
    size: int
    axis: str


@dataclass(frozen=True)
class ListedAlong(Along):
    """The same, with the first of them."""

    form = "at {count} of {size} along {axis}: {first}, ..."
    first: str


@dataclass(frozen=True)
class End(Part):
    """The first or last indices of an axis."""

    is_last: ClassVar[bool]
    axis: str
    count: int
    size: int

    def __str__(self) -> str:
        count = f"{self.count} " if self.count > 1 else ""
        end = "last" if self.is_last else "first"
        return f"at the {end} {count}of {self.size} along {self.axis}"

    def has(self, i: int, size: int, tile: int) -> bool:
        """Whether an index of an axis of another ``size`` is at as large an end, or a tile's rest.

        ``tile`` is the size of tiles of which the end may be a rest, or 0.
        """
        count = max(1, tile - 1)
        if self.count > 1:
            share = ceil(self.count * size / self.size)
            count = max(self.count, share, tile - 1, (1 << self.count.bit_length()) - 1)
        return i >= size - count if self.is_last else i < count

    def how_much(self) -> Sentence:
        """What is said in place of where."""
        return (Along(self.count, self.size, self.axis),)


class First(End):
    is_last = False


class Last(End):
    is_last = True


@dataclass(frozen=True)
class At(Part):
    """Indices of an axis of a size: one, a few, or a range."""

    axis: str
    indices: range | tuple[int, ...]
    size: int

    def __str__(self) -> str:
        if isinstance(self.indices, range):
            return f"at {self.axis} {self.indices[0]}..{self.indices[-1]}"
        if len(self.indices) == 1:
            return _at_index(self.axis, *self.indices)
        return f"at {self.axis} {', '.join(map(str, self.indices))}"

    def has(self, i: int, size: int, tile: int) -> bool:
        return i in self.indices

    def how_much(self) -> Sentence:
        return (Along(len(self.indices), self.size, self.axis),)


@dataclass(frozen=True)
class Runs(Part):
    """Indices of an axis at a regular distance, or runs of them, to a last one or to its end."""

    axis: str
    first: int
    last: int | None
    length: int
    step: int
    count: int
    size: int

    def __str__(self) -> str:
        which = f"{self.length} of every {self.step}"
        which = f"every {ordinal(self.step)}" if self.length == 1 else which
        end = "on" if self.last is None else f"to {self.last}"
        return f"at {which} of {self.axis}, from {self.first} {end}"

    def has(self, i: int, size: int, tile: int) -> bool:
        return i >= self.first and (i - self.first) % self.step < self.length

    def how_much(self) -> Sentence:
        return (Along(self.count, self.size, self.axis),)


@dataclass(frozen=True)
class AllBut(Part):
    """All indices of an axis but one."""

    axis: str
    index: int

    def __str__(self) -> str:
        return f"everywhere but {_at_index(self.axis, self.index)}"

    def has(self, i: int, size: int, tile: int) -> bool:
        return i != self.index

    def how_much(self) -> Sentence:
        return (NearlyEverywhere(),)


@dataclass(frozen=True)
class Except(Part):
    """Indices that are left out of the place before."""

    left_out: tuple[AllBut, ...]

    def __str__(self) -> str:
        left_out = (_at_index(each.axis, each.index) for each in self.left_out)
        return f", except {f' {AND} '.join(left_out)}"

    def how_much(self) -> Sentence:
        return ()


class VeryLast(Part):
    form = "in the very last element"

    def how_much(self) -> Sentence:
        return (OneElement(),)


#: Places that sizes, or values, may decide; and those of one axis.
Place = End | At | Runs | AllBut | Except | VeryLast
PlaceAlong = End | At | Runs | AllBut


@dataclass(frozen=True)
class Guess(Part):
    """Why an end of an axis is wrong, perhaps: it is off by one, a ``rest_of`` tiles, or a tile."""

    axis: str
    rest_of: int = 0
    off_by_one: bool = False
    tile: int = 0

    @property
    def causes(self) -> list[str]:
        # Of one element, tiles of any of its divisors leave a rest.
        rest = f"the rest after tiles of {'up to ' if self.off_by_one else ''}{self.rest_of}"
        causes = {
            "off by one": self.off_by_one, rest: self.rest_of, f"a tile of {self.tile}": self.tile
        }  # fmt: skip
        return [cause for cause, is_so in causes.items() if is_so]

    def __str__(self) -> str:
        return f"({', or '.join(self.causes)}?)"


@dataclass(frozen=True)
class PastLimit(Part):
    form = ", all past {limit}"
    limit: int


@dataclass(frozen=True)
class Expected(Part):
    """What is expected where elements are wrong."""

    form = ", where {value} is expected"
    value: str


@dataclass(frozen=True)
class WrongBool(Expected):
    """The same of bools, which are all wrong in one way."""

    form = "{got} where {value} is expected"
    got: str


class OnlyExpected(Expected):
    form = "only where {value} is expected"


@dataclass(frozen=True)
class Wherever(Part):
    form = "wherever {value} {verb} expected"
    value: str
    verb: str = "is"


#: For which expected values elements are wrong, in place of where.
ByExpected = OnlyExpected | Wherever


@dataclass(frozen=True)
class WhereInput(Part):
    """The elements of an input that say where; or all others, if these are ``left_out``."""

    form = "only where {condition}"
    condition: str
    left_out: bool = False


@dataclass(frozen=True)
class WhereZero(Part):
    form = ", where {scalars} 0"
    scalars: str


@dataclass(frozen=True)
class Number(Part):
    """The value of elements, or their offset; and what is said if that is another elsewhere."""

    form = "{before}{digits}"
    digits: str
    otherwise: Sentence = ()
    before: str = ""


@dataclass(frozen=True)
class Factor(Part):
    """The factor of all elements; and what others there are."""

    form = "every element is {digits} x expected{others}"
    digits: str
    others: str = ""

    def beside(self, other: str) -> Factor:
        """The same, with another one that elements have with other inputs."""
        return Factor(self.digits, f", {other} x with other inputs")


@dataclass(frozen=True)
class Name(Part):
    form = "(which is {name})"
    name: str


class LikeRounding(Part):
    """That errors are as those of rounding.

    What is rounded again and again, averaged or taken a logarithm of has other errors than its
    dtype's: none is named.
    """

    form = ", like those of rounding or of cancellation"


def first_part(kind: type[_Kind], sentence: Sentence) -> _Kind | None:
    """The first part of this kind, if there is one."""
    return next((part for part in sentence if isinstance(part, kind)), None)


def has_part(kind: type[Part] | UnionType, sentence: Sentence) -> bool:
    return any(isinstance(part, kind) for part in sentence)


def without(kind: type[Part], sentence: Sentence) -> Sentence:
    return tuple(part for part in sentence if not isinstance(part, kind))


def joined(places: Iterable[Sentence]) -> Sentence:
    """Places of several axes as one."""
    return tuple(part for place in places for part in (AND, *place))[1:]


def is_in(part: Sentence, sentence: Sentence) -> bool:
    """Whether a sentence has these parts, one after the other."""
    return replaced(part, (), sentence) != sentence


def replaced(part: Sentence, by: Sentence, sentence: Sentence) -> Sentence:
    """A sentence with other parts in place of these, if it has them."""
    for at in range(len(sentence) - len(part) + 1):
        if sentence[at : at + len(part)] == part:
            return (*sentence[:at], *by, *sentence[at + len(part) :])
    return sentence


def saying(diagnosis: Diagnosis, *parts: str | Part) -> Diagnosis:
    """The diagnosis with another sentence, and the tiles of which this guesses a rest."""
    guesses = [part for part in parts if isinstance(part, Guess)]
    tiles = {each.axis: each.rest_of for each in guesses if each.rest_of}
    return diagnosis.with_parts(*parts).model_copy(update={"tiles": tiles})


def with_guessed_tiles(diagnosis: Diagnosis, tiles: Mapping[str, int]) -> Diagnosis:
    """The diagnosis with other tiles where it guesses a rest after some.

    Along axes that have none, it guesses no more.
    """

    def other(guess: Guess) -> Guess:
        return replace(guess, rest_of=tiles.get(guess.axis, 0)) if guess.rest_of else guess

    return _guessing(diagnosis, other)


def without_guess(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis without a guess at why the last elements along an axis are wrong."""
    return _guessing(diagnosis, lambda guess: replace(guess, rest_of=0, off_by_one=False))


def without_rounding(diagnosis: Diagnosis) -> Diagnosis:
    """The diagnosis, which doesn't say that errors are like those of rounding."""
    return saying(diagnosis, *without(LikeRounding, diagnosis.parts))


def _guessing(diagnosis: Diagnosis, change: Callable[[Guess], Guess]) -> Diagnosis:
    parts = [change(part) if isinstance(part, Guess) else part for part in diagnosis.parts]
    kept = [part for part in parts if not isinstance(part, Guess) or part.causes]
    return saying(diagnosis, *kept)
