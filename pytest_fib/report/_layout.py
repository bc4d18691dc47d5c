"""Tables whose columns are as wide as what is in them, in terminals of any width."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

#: Text with its terminal markup.
Piece: TypeAlias = tuple[str, dict[str, bool]]

#: Columns are not cut to less.
_LEAST_WIDTH = 8


@dataclass(frozen=True)
class Line:
    """Cells in columns, and notes after them that may reach to the terminal's edge."""

    cells: Sequence[Piece]
    notes: Sequence[Piece] = ()


def unmarked(*texts: str) -> list[Piece]:
    """Pieces without markup."""
    return [(text, {}) for text in texts]


@dataclass(frozen=True)
class Table:
    """Lines of which the first ``left`` columns are flush left, and the others flush right.

    The first ``cut`` columns are cut short where they would take too much of a terminal.
    """

    lines: Sequence[Line]
    left: int
    cut: int

    def laid_out(self, width: int) -> Iterator[list[Piece]]:
        """The pieces of each line. Between two columns there is always a blank."""
        columns = self._columns(width)
        gap = 2 if _total(columns, 2) <= width else 1
        while _total(columns, gap) > width and max(columns[: self.cut]) > _LEAST_WIDTH:
            columns[columns.index(max(columns[: self.cut]))] -= 1
        for line in self.lines:
            pieces = list(self._cells(line, columns, " " * gap))
            for text, markup in line.notes:
                room = width - sum(len(shown) for shown, _ in pieces) - 2
                if text and room > 0:
                    pieces += [("  ", {}), (cut_short(text, room), markup)]
            yield pieces

    def _columns(self, width: int) -> list[int]:
        cells = [[text for text, _ in line.cells] for line in self.lines]
        columns = [max(map(len, column)) for column in zip_longest(*cells, fillvalue="")]
        return [min(n, width // 3) if i < self.cut else n for i, n in enumerate(columns)]

    def _cells(self, line: Line, columns: Sequence[int], gap: str) -> Iterator[Piece]:
        for i, (text, markup) in enumerate(line.cells):
            shown = cut_short(text, columns[i])
            blanks, before = " " * (columns[i] - len(shown)), gap if i else ""
            if i < self.left:
                yield from ((before, {}), (shown, markup), (blanks, {}))
            else:
                yield from ((before + blanks, {}), (shown, markup))


def cut_short(text: str, width: int) -> str:
    """Text of at most that width; an ellipsis stands for what is left out."""
    return text if len(text) <= width else f"{text[: width - 1]}…"


def _total(columns: Sequence[int], gap: int) -> int:
    return sum(columns) + gap * (len(columns) - 1)


def write_table(terminal: pytest.TerminalReporter, table: Table, width: int) -> None:
    """Write a table into a terminal of this width."""
    for line in table.laid_out(width):
        for text, markup in line:
            terminal.write(text, **markup)
        terminal.line("")
