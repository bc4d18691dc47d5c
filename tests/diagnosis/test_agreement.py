"""What a diagnosis says that other workloads show as well."""

import pytest

from pytest_fib.data import Diagnosis
from pytest_fib.diagnosis import agreed, as_at_other_sizes, claims_more
from pytest_fib.workloads import make_workload
from tests.diagnosis.test_unknown_kernels import define


def said(words, pattern, output="y", place="", **more):
    return Diagnosis(
        sentence=f"{output}: {words}",
        output=output,
        element=f"{output}[0] got 1, expected 2",
        pattern=pattern,
        place=place,
        **more,
    )


EVERYWHERE = said("wrong everywhere", "everywhere", vague=True)
FEW, MOST = said("wrong at 3 of 900 elements", "scattered"), "wrong at 700 of 900 elements"
MANY = said(MOST, "scattered")
ZEROS = said("zeros at 300 of 600 elements", "zeros")
OFF = said("off by +1 at 20 of 90 elements", "one offset")


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (ZEROS, [ZEROS, said("0 in place of 7 at 5 of 600 elements", "zeros"), MANY]),
        (OFF, [OFF, MANY]),
        (said("every element is off by -0.4, by -1.5 with other inputs", "one offset"),
         [said("every element is off by 2", "one offset")] * 3),
        (said("every element is off by +0.1", "one offset"),
         [said("every element is off by +0.1002", "one offset")]),
        (said("every element is 0.5 x expected", "one factor"),
         [said("every element is 0.51 x expected", "one factor")]),
        (ZEROS, [said("zeros everywhere", "zeros", "z"), said("zeros at n 1", "zeros", "z")]),
        (EVERYWHERE, [EVERYWHERE, EVERYWHERE, said("wrong at 850 of 900 elements", "scattered")]),
        (MANY, [MANY, said("wrong at 300 of 900 elements", "scattered")]),
        (said("wrong at the last of 9 along n", "last tile", place="last tile"),
         [said("wrong at the last of 19 along n", "last tile", place="last tile"), MANY]),
    ],
)  # fmt: skip
def test_what_half_of_the_others_say_is_said(own, others):
    assert agreed(own, others).sentence == own.sentence


@pytest.mark.parametrize(
    ("own", "others", "sentence"),
    [
        (said("every element is 0.5 x expected", "one factor"),
         [said("every element is 0.25 x expected", "one factor")],
         "y: every element is 0.5 x expected, 0.25 x with other inputs"),
        (said("wrong only where 0 is expected", "padding", place="padding"),
         [said("wrong at the first 4 of 5 along d, where 0 is expected", "rows", place="rows"),
          said("wrong at the first 4 of 5 along d, where 0 is expected", "rows", place="rows"),
          FEW, FEW, FEW],
         "y: wrong only where 0 is expected"),
        (FEW, [said("wrong at the first 4 of 5 along d, where 0 is expected", "rows", place="rows"),
               said("wrong only where 0 is expected", "padding", place="padding"), FEW],
         "y: wrong at 3 of 900 elements"),
        # Of a single row.
        (EVERYWHERE, [MANY, EVERYWHERE, EVERYWHERE], f"y: {MOST}"),
        (FEW, [MANY, MANY], f"y: {MOST}"),  # of values that hardly show it
        (ZEROS, [MANY, MANY, MANY], f"y: {MOST}"),
        (ZEROS, [said("wrong at 8 of 9 elements", "scattered", "z")], "y: wrong"),
        (OFF, [said("off by +3 at 20 of 90 elements", "one offset"),
               said("off by -9 at 20 of 90 elements", "one offset")] * 2,
         "y: off by one number at 20 of 90 elements"),
        (said("the same value, -inf, everywhere", "constant"),
         [said("the same value, 0.5, everywhere", "constant")] * 3, "y: the same value everywhere"),
        (said("NaN everywhere but at heads 3, where numbers are expected", "nan"), [],
         "y: NaN everywhere but at heads 3, where numbers are expected"),
        (OFF, [ZEROS] * 4, ZEROS.sentence),
        (OFF, [said("equal to the input x at 9 of 90 elements", "copied input")] * 4, "y: wrong"),
        (said("wrong in the very last element", "last tile", place="last tile"), [], "y: wrong"),
        (EVERYWHERE, [], "y: wrong"),
        (said("NaN everywhere, where numbers are expected", "nan"), [],
         "y: NaN, where numbers are expected"),
        (said("NaN everywhere, where numbers are expected", "nan"),
         [said("NaN at 64 of 192 elements, where 0 is expected", "nan")] * 2,
         "y: NaN at 64 of 192 elements, where 0 is expected"),
    ],
)  # fmt: skip
def test_what_hardly_any_other_says_is_not(own, others, sentence):
    assert agreed(own, others).sentence == sentence


def test_what_each_workload_says_of_its_own_scalar_keeps_the_name():
    each = [f"the same value, {n} (which is ub), at 20 of 90 elements" for n in (3, 7, 9)]
    own, *others = (said(words, "constant") for words in each)
    words = "y: the same value (which is ub), at 20 of 90 elements"
    assert agreed(own, others).sentence == words
    bare = said("the same value, 3, at 20 of 90 elements", "constant")
    assert "3" not in agreed(bare, others).sentence


@pytest.mark.parametrize(
    ("own", "others", "sentence"),
    [
        ("zeros at the first 30 of 64 along d", ["zeros at the first 32 of 64 along d"] * 2,
         "zeros at the first 32 of 64 along d"),
        ("zeros at the first 30 of 64 along d",
         ["zeros at the first 32 of 64 along d", "zeros at the first 30 of 64 along d"],
         "zeros at the first 30 of 64 along d"),
        ("zeros at the last 5 of 133 along n (the rest after tiles of 64?)",
         ["zeros at the last 7 of 133 along n"] * 2,
         "zeros at the last 5 of 133 along n (the rest after tiles of 64?)"),
        ("zeros in 51 % of elements at the first 4 of 64 along d",
         ["zeros in 51 % of elements at the first 31 of 64 along d"] * 2,
         "zeros in 51 % of elements at the first 4 of 64 along d"),
    ],
)  # fmt: skip
def test_an_end_is_as_long_as_two_others_say_unless_more_is_said_of_it(own, others, sentence):
    places = [said(words, "zeros", place="columns") for words in (own, *others)]
    assert agreed(places[0], places[1:]).sentence == f"y: {sentence}"


def test_a_factor_in_fewer_digits_is_no_other_one():
    own, other = (said(f"every element is {n} x expected", "one factor") for n in (1.01, 1.0083))
    assert agreed(own, [other]).sentence == own.sentence


def test_what_only_certain_values_show_keeps_its_pattern():
    counted = said("wrong at 9 of 90 elements", "scattered")
    for own in (
        said("wrapped around, as if of 8 bits at 2 of 8 elements", "wrapped"),
        said("wrong only where 0 is expected", "padding region", place="padding region"),
        said("zeros everywhere, where a is 0", "zeros"),
        counted,
    ):
        assert agreed(own, []).pattern == own.pattern


def test_a_factor_has_a_name_only_if_others_give_it_that():
    named = said("every element is 0.2 x expected (which is 1 / n)", "one factor")
    bare = said("every element is 0.4 x expected", "one factor")
    words = "y: every element is 0.2 x expected, 0.4 x with other inputs"
    assert agreed(named, [bare, bare, bare]).sentence == words
    assert agreed(named, [named, bare]).sentence == named.sentence


ROWS = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * 2", axes={"d": 8})


def elsewhere(words, pattern, *at):
    """What a workload of 30 rows shows, with the indices of some wrong elements."""
    lines = [f"  y[{n}, {d}] got 1, expected 2" for n, d in at]
    shown_by = make_workload(ROWS, {"n": 30})
    found = said(words, pattern, details=tuple(lines), shown_by=shown_by)
    return found.model_copy(update={"element": lines[0].strip()})


def said_of_rows(words, pattern="rows", **more):
    return said(words, pattern, place="rows" if pattern == "rows" else "", **more)


LAST = said_of_rows("zeros at the last of 40 along n (off by one?)", "zeros")
REST = said_of_rows(
    "zeros at the last 8 of 40 along n (the rest after tiles of 16?)", "zeros", tiles={"n": 16}
)


@pytest.mark.parametrize(
    ("own", "others", "sentence"),
    [
        (LAST, [elsewhere("zeros at n 29", "zeros", (29, 0))], LAST.sentence),
        (LAST, [elsewhere("zeros at n 7", "zeros", (7, 0))], "y: zeros at 1 of 40 along n"),
        (REST, [elsewhere("zeros at n 16..29", "zeros", (16, 0), (29, 7))], REST.sentence),
        (REST, [elsewhere("zeros at n 3..29", "zeros", (3, 0))], "y: zeros at 8 of 40 along n"),
        (said_of_rows("wrong at the first 10 of 40 along n"),
         [elsewhere("wrong at n 8", "rows", (8, 0))], "y: wrong at the first 10 of 40 along n"),
        (said_of_rows("wrong at n 3, 5"), [elsewhere("wrong at n 3", "rows", (3, 0), (5, 1))],
         "y: wrong at n 3, 5"),
        (said_of_rows("wrong at n 3, 5"), [elsewhere("wrong at n 3", "rows", (3, 0), (6, 1))],
         "y: wrong at 2 of 40 along n"),
        (said_of_rows("wrong everywhere but at d 6", "everywhere"),
         [elsewhere("wrong", "scattered", (3, 6))], "y: wrong nearly everywhere"),
        (said_of_rows("wrong in the very last element"),
         [elsewhere("wrong", "scattered", (29, 6))], "y: wrong in one element"),
        (said_of_rows("wrong at the last 2 of 2050 along n, all past 2048"),
         [elsewhere("wrong at the last 2 of 30 along n", "rows", (29, 6))],
         "y: wrong at the last 2 of 2050 along n"),
        (said_of_rows("NaN everywhere but at d 6, where numbers are expected", "nan"),
         [elsewhere("NaN", "nan", (3, 6))], "y: NaN nearly everywhere, where numbers are expected"),
        (said_of_rows("zeros at n 3 and at d 1", "zeros"),
         [elsewhere("zeros", "zeros", (4, 1))], "y: zeros at 1 of 40 along n and at d 1"),
        (said_of_rows("zeros at n 3 and at the last 4 of 8 along d", "zeros"),
         [elsewhere("zeros", "zeros", (4, 0))],
         "y: zeros at 1 of 40 along n and at 4 of 8 along d"),
        (said_of_rows("2 x expected at n 20..39", "one factor"),
         [elsewhere("2 x expected at n 15..29", "one factor", (15, 0))],
         "y: 2 x expected at 20 of 40 along n"),
        (said_of_rows("zeros in the very last element", "zeros"),
         [elsewhere("zeros", "zeros", (29, 6))], "y: zeros in one element"),
        (said_of_rows("zeros in the very last element", "zeros"),
         [elsewhere("zeros", "zeros", (29, 7))], "y: zeros in the very last element"),
        (said("every element is 0.5 x expected (which is 1 / n)", "one factor"),
         [said("every element is 0.5 x expected", "one factor")],
         "y: every element is 0.5 x expected"),
        (said("every element is 0.5 x expected", "one factor"),
         [said("every element is 0.25 x expected", "one factor")],
         "y: every element is 0.5 x expected, 0.25 x with other inputs"),
        (said("as if x repeated its first entry along n", "misread input"),
         [elsewhere("zeros", "zeros", (29, 7))], "y: wrong"),
        (said("as if x repeated its first entry along n", "misread input"),
         [elsewhere("wrong", "scattered", (29, 7))], "y: as if x repeated its first entry along n"),
    ],
)  # fmt: skip
def test_what_is_not_so_at_other_sizes_is_not_said(own, others, sentence):
    assert claims_more(own)
    assert as_at_other_sizes(own, others, ROWS, {"n": 40}).sentence == sentence


def test_another_output_says_nothing_of_a_place():
    other = elsewhere("zeros at n 7", "zeros", (7, 0)).model_copy(update={"output": "z"})
    assert as_at_other_sizes(LAST, [other], ROWS, {"n": 40}).sentence == LAST.sentence
    assert not claims_more(MANY)
