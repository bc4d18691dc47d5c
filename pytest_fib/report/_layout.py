"""Tables whose columns are as wide as what is in them, in terminals of any width."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile, zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import pytest

#: Text with its terminal markup.
Piece: TypeAlias = tuple[str, dict[str, bool]]

#: Columns are not cut to less.
_LEAST_WIDTH = 8
#: Stands for what is left out of a name.
_LEFT_OUT = "…"


@dataclass(frozen=True)
class Line:
    """Cells in columns, and notes after them that may reach to the terminal's edge."""

    cells: Sequence[Piece]
    notes: Sequence[Piece] = ()


def unmarked(*texts: str) -> list[Piece]:
    return [(text, {}) for text in texts]


@dataclass(frozen=True)
class Table:
    """Titles and lines. The first ``left`` columns are flush left, and the others flush right.

    The first ``cut`` columns are shortened where they would take too much of a terminal; a note of
    the titles goes on below where there is no room.
    """

    lines: Sequence[Line]
    left: int
    cut: int

    def laid_out(self, width: int) -> Iterator[list[Piece]]:
        """The pieces of each line. Between two columns there is always a blank."""
        return self._without_beginnings(width)._laid_out(width)

    def _without_beginnings(self, width: int) -> Table:
        """The table, without what all names of a wide column begin with."""
        begins = {i: begin for i in range(self.cut) if (begin := self._beginning(i, width))}
        if not begins:
            return self
        titles, *lines = self.lines
        shorter = [
            replace(line, cells=[_without(begins.get(i, ""), c) for i, c in enumerate(line.cells)])
            for line in lines
        ]
        return replace(self, lines=[titles, *shorter])

    def _beginning(self, column: int, width: int) -> str:
        """What all names of a column begin with, up to a whole word, if it is too wide."""
        _, *texts = self._texts()[column]
        if len(set(texts)) < 2 or max(map(len, texts)) <= width // 3:
            return ""
        alike = takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
        begin = re.match(r".+[_./:-]", "".join(letters[0] for letters in alike))
        return begin.group() if begin else ""

    def _laid_out(self, width: int) -> Iterator[list[Piece]]:
        least = [self._least(i) for i in range(self.cut)]
        columns = self._columns(width, least)
        gap = 2 if _total(columns, 2) <= width else 1
        while _total(columns, gap) > width and (slack := _slack(columns, least)):
            columns[max(slack, key=lambda i: columns[i])] -= 1
        for number, line in enumerate(self.lines):
            pieces = list(self._cells(line, columns, " " * gap))
            below: list[str] = []
            for text, markup in line.notes:
                taken = sum(len(shown) for shown, _ in pieces) + 2
                if text and (room := width - taken) > 0:
                    is_wrapped = number == 0 and room >= _LEAST_WIDTH
                    first, *below = wrap(text, room) if is_wrapped else [cut_short(text, room)]
                    pieces += [("  ", {}), (first, markup)]
            yield pieces
            yield from (unmarked(" " * taken + text) for text in below)

    def _columns(self, width: int, least: Sequence[int]) -> list[int]:
        columns = [max(map(len, column)) for column in self._texts()]
        most = [max(width // 3, fewest) for fewest in least]
        return [min(n, most[i]) if i < self.cut else n for i, n in enumerate(columns)]

    def _texts(self) -> list[tuple[str, ...]]:
        cells = [[text for text, _ in line.cells] for line in self.lines]
        return list(zip_longest(*cells, fillvalue=""))

    def _least(self, column: int) -> int:
        """How wide a column is at least: what differs in it still does where it is cut."""
        texts = set(self._texts()[column])
        widths = range(_LEAST_WIDTH, max(map(len, texts)))
        keeps = (
            n for n in widths if len({without_middle(text, n) for text in texts}) == len(texts)
        )
        return next(keeps, max(*map(len, texts), _LEAST_WIDTH))

    def _cells(self, line: Line, columns: Sequence[int], gap: str) -> Iterator[Piece]:
        for i, (text, markup) in enumerate(line.cells):
            shown = without_middle(text, columns[i]) if i < self.cut else text
            blanks, before = " " * (columns[i] - len(shown)), gap if i else ""
            if i < self.left:
                yield from ((before, {}), (shown, markup), (blanks, {}))
            else:
                yield from ((before + blanks, {}), (shown, markup))


def _without(begin: str, cell: Piece) -> Piece:
    text, markup = cell
    return (_LEFT_OUT + text[len(begin) :], markup) if begin else cell


def without_middle(name: str, width: int) -> str:
    """A name of at most that width, without its middle: names that are alike differ at the end."""
    if len(name) <= width:
        return name
    left = width - 1
    return f"{name[: left - left // 2]}…{name[len(name) - left // 2 :]}"


def cut_short(text: str, width: int) -> str:
    """Text of at most that width; an ellipsis stands for what is left out."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _slack(columns: Sequence[int], least: Sequence[int]) -> list[int]:
    """The columns that may be narrower."""
    return [i for i, fewest in enumerate(least) if columns[i] > fewest]


def _total(columns: Sequence[int], gap: int) -> int:
    return sum(columns) + gap * (len(columns) - 1)


def write_table(terminal: pytest.TerminalReporter, table: Table, width: int) -> None:
    """Write a table into a terminal of this width."""
    for line in table.laid_out(width):
        for text, markup in line:
            terminal.write(text, **markup)
        terminal.line("")
