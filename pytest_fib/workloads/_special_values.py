"""Which elements of a row are NaN or infinite: in one row at least, the case whose turn it is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import chain, zip_longest
from math import floor, inf, nan

from pytest_fib.data import NEAR

#: Cases of where special values are in a row, by value pattern. Any four that follow each other
#: have NaN everywhere, or -inf everywhere, an infinity of either sign, and both; and NaN, or an
#: infinity, that is last.
SPECIAL_VALUES: dict[str, Sequence[Mapping[float, str]]] = {
    "nan": ({nan: "last"}, {nan: "first"}, {nan: "one"}, {nan: "all"}),
    "inf": (
        {-inf: "all"}, {inf: "first"}, {inf: "first", -inf: "last"}, {-inf: "last"},
        {-inf: "all"}, {inf: "last"}, {inf: "last", -inf: "some"}, {-inf: "first"},
        {-inf: "all"}, {inf: "all"}, {inf: "one", -inf: "last"}, {-inf: "start"},
        {-inf: "all"}, {inf: "one"}, {inf: "last", -inf: "first"}, {-inf: "one"},
        {-inf: "all"}, {inf: "start"}, {inf: "some", -inf: "last"}, {-inf: "end"},
        {-inf: "all"}, {inf: "end"}, {inf: "last", -inf: "one"}, {-inf: "some"},
    ),
}  # fmt: skip
#: NaN and an infinity in one row: what is done to tell NaN may take an infinity for one of them.
BESIDE_NAN: Sequence[Mapping[float, str]] = (
    {nan: "one", inf: "some"}, {nan: "some", -inf: "one"},
    {nan: "first", inf: "last"}, {nan: "last", -inf: "first"},
)  # fmt: skip


def is_lse(name: str) -> bool:
    """Whether an input has logarithms of sums of exponentials, by its name."""
    return "lse" in name.split("_")


def cases_of(values: Collection[float]) -> list[Mapping[float, str]]:
    """Cases of where some of NaN and the infinities are in a row, for which a reference asks.

    Of NaN alone, of each infinity alone, and of several of these, by turns: what is asked of all
    elements of a vector hangs on the one that is missed.
    """
    wanted = {str(value) for value in values}  # NaN isn't equal to itself
    every = [*chain.from_iterable(SPECIAL_VALUES.values()), *BESIDE_NAN]
    cases = [case for case in every if {str(value) for value in case} <= wanted]
    alone = [[case for case in cases if {*map(str, case)} == {str(v)}] for v in (nan, inf, -inf)]
    sorts = [*alone, [case for case in cases if len(case) > 1]]
    return [case for turn in zip_longest(*sorts) for case in turn if case is not None]


def is_last_special(values: str, turn: int) -> bool:
    """Whether a row's last element is special by itself, in this turn: not as one of a part."""
    cases = SPECIAL_VALUES.get(values)
    return cases is not None and "last" in cases[turn % len(cases)].values()


def near_numbers(regime: Mapping[str, str], *, whole: bool) -> list[int | float]:
    """The number that a regime asks for and those next to it; none where it asks for none.

    Of ``whole`` ones one less and one more; of others three quarters and three halves of it.
    """
    if NEAR not in regime:
        return []
    number = float(regime[NEAR])
    if not whole:
        return [number, 0.75 * number, 1.5 * number]
    exact = int(regime[NEAR]) if regime[NEAR].lstrip("-").isdigit() else floor(number)
    return [exact, exact + 1, exact - 1]
