"""What a diagnosis says that other workloads show as well."""

import pytest

from pytest_fib.data import Diagnosis
from pytest_fib.diagnosis import agreed, as_at_other_sizes, claims_more, parts, saying
from pytest_fib.workloads import make_workload
from tests.diagnosis.test_unknown_kernels import define


def said(words, pattern, output="y", place="", **more):
    """A diagnosis of an output, of one part or several."""
    found = words if isinstance(words, tuple) else (words,)
    diagnosis = Diagnosis(
        sentence="",
        output=output,
        element=f"{output}[0] got 1, expected 2",
        pattern=pattern,
        place=place,
        **more,
    )
    return saying(diagnosis, f"{output}:", *found)


def wrong(count, total):
    return said(("wrong", parts.Count(count, total)), "scattered")


def off(digits):
    return said(
        ("off by", parts.Number(digits, otherwise=("one number",)), parts.Count(20, 90)),
        "one offset",
    )


def constant(digits, name, *place):
    """Elements with the same value, which may have a name."""
    number = parts.Number(digits, before=", ")
    names = (parts.Name(name),) if name else ()
    return said(("the same value", number, *names, ",", *place), "constant")


EVERYWHERE = said(("wrong", parts.Everywhere()), "everywhere", vague=True)
FEW, MANY, MOST = wrong(3, 900), wrong(700, 900), "wrong at 700 of 900 elements"
ZEROS = said(("zeros", parts.Count(300, 600)), "zeros")
OFF = off("+1")
PADDING = said(("wrong", parts.OnlyExpected("0")), "padding", place="padding")
ROWS_OF_0 = said(("wrong", parts.First("d", 4, 5), parts.Expected("0")), "rows", place="rows")
FALSE = parts.WrongBool("False", got="True")
NAN = said(("NaN", parts.Everywhere(), ", where numbers are expected"), "nan")
NAN_BUT = ("NaN", parts.AllBut("heads", 3), ", where numbers are expected")


def last(size):
    return said(("wrong", parts.Last("n", 1, size)), "last tile", place="last tile")


def factor(digits, *more):
    return said((parts.Factor(digits), *more), "one factor")


def every_offset(digits):
    number = parts.Number(digits, otherwise=("one number",))
    return said(("every element is off by", number), "one offset")


@pytest.mark.parametrize(
    ("own", "others"),
    [
        (ZEROS, [ZEROS, said(("0 in place of 7", parts.Count(5, 600)), "zeros"), MANY]),
        (OFF, [OFF, MANY]),
        (said("every element is off by -0.4, by -1.5 with other inputs", "one offset"),
         [every_offset("2")] * 3),
        (every_offset("+0.1"), [every_offset("+0.1002")]),
        (factor("0.5"), [factor("0.51")]),
        (ZEROS, [said(("zeros", parts.Everywhere()), "zeros", "z"),
                 said(("zeros", parts.At("n", (1,), 9)), "zeros", "z")]),
        (EVERYWHERE, [EVERYWHERE, EVERYWHERE, wrong(850, 900)]),
        (MANY, [MANY, wrong(300, 900)]),
        (last(9), [last(19), MANY]),
    ],
)  # fmt: skip
def test_what_half_of_the_others_say_is_said(own, others):
    assert agreed(own, others).sentence == own.sentence


@pytest.mark.parametrize(
    ("own", "others", "sentence"),
    [
        (factor("0.5"), [factor("0.25")],
         "y: every element is 0.5 x expected, 0.25 x with other inputs"),
        (PADDING, [ROWS_OF_0, ROWS_OF_0, FEW, FEW, FEW], "y: wrong only where 0 is expected"),
        (FEW, [ROWS_OF_0, PADDING, FEW], "y: wrong at 3 of 900 elements"),
        # Of a single row.
        (EVERYWHERE, [MANY, EVERYWHERE, EVERYWHERE], f"y: {MOST}"),
        (FEW, [MANY, MANY], f"y: {MOST}"),  # of values that hardly show it
        (ZEROS, [MANY, MANY, MANY], f"y: {MOST}"),
        (ZEROS, [said(("wrong", parts.Count(8, 9)), "scattered", "z")], "y: wrong"),
        (OFF, [off("+3"), off("-9")] * 2, "y: off by one number at 20 of 90 elements"),
        (constant("-inf", "", parts.Everywhere()), [constant("0.5", "", parts.Everywhere())] * 3,
         "y: the same value everywhere"),
        (said(NAN_BUT, "nan"), [], "y: NaN everywhere but at heads 3, where numbers are expected"),
        (OFF, [ZEROS] * 4, ZEROS.sentence),
        (OFF, [said(("equal to the input x", parts.Count(9, 90)), "copied input")] * 4, "y: wrong"),
        (said(("wrong", parts.VeryLast()), "last tile", place="last tile"), [], "y: wrong"),
        (EVERYWHERE, [], "y: wrong"),
        (said((FALSE, parts.Everywhere()), "everywhere"), [],
         "y: True where False is expected"),
        (said(FALSE, "everywhere"), [said((FALSE, parts.Count(5, 20)), "scattered")] * 2,
         "y: wrong only where False is expected"),
        (NAN, [], "y: NaN, where numbers are expected"),
        (NAN, [said(("NaN", parts.Count(64, 192), parts.Expected("0")), "nan")] * 2,
         "y: NaN at 64 of 192 elements, where 0 is expected"),
    ],
)  # fmt: skip
def test_what_hardly_any_other_says_is_not(own, others, sentence):
    assert agreed(own, others).sentence == sentence


def test_what_each_workload_says_of_its_own_scalar_keeps_the_name():
    own, *others = (constant(digits, "ub", parts.Count(20, 90)) for digits in ("3", "7", "9"))
    assert own.sentence == "y: the same value, 3 (which is ub), at 20 of 90 elements"
    words = "y: the same value (which is ub), at 20 of 90 elements"
    assert agreed(own, others).sentence == words
    bare = constant("3", "", parts.Count(20, 90))
    others = [constant(digits, "", parts.Count(20, 90)) for digits in ("7", "9")]
    assert agreed(own, others).sentence == "y: the same value at 20 of 90 elements"
    assert "3" not in agreed(bare, others).sentence


def first_of_64(count):
    return "zeros", parts.First("d", count, 64)


SHORT_REST = ("zeros", parts.Last("n", 5, 133), parts.Guess("n", rest_of=64))
SPARSE = [("zeros", parts.Partly("51"), parts.First("d", count, 64)) for count in (4, 31)]


@pytest.mark.parametrize(
    ("own", "others", "sentence"),
    [
        (first_of_64(30), [first_of_64(32)] * 2, "zeros at the first 32 of 64 along d"),
        (first_of_64(30), [first_of_64(32), first_of_64(30)],
         "zeros at the first 30 of 64 along d"),
        (SHORT_REST, [("zeros", parts.Last("n", 7, 133))] * 2,
         "zeros at the last 5 of 133 along n (the rest after tiles of 64?)"),
        (SPARSE[0], [SPARSE[1]] * 2, "zeros in 51 % of elements at the first 4 of 64 along d"),
    ],
)  # fmt: skip
def test_an_end_is_as_long_as_two_others_say_unless_more_is_said_of_it(own, others, sentence):
    places = [said(words, "zeros", place="columns") for words in (own, *others)]
    assert agreed(places[0], places[1:]).sentence == f"y: {sentence}"


def test_a_factor_in_fewer_digits_is_no_other_one():
    assert agreed(factor("1.01"), [factor("1.0083")]).sentence == factor("1.01").sentence


def test_what_only_certain_values_show_keeps_its_pattern():
    for own in (
        said(("wrapped around, as if of 8 bits", parts.Count(2, 8)), "wrapped"),
        said(("wrong", parts.OnlyExpected("0")), "padding region", place="padding region"),
        said(("zeros", parts.Everywhere(), parts.WhereZero("a is")), "zeros"),
        wrong(9, 90),
    ):
        assert agreed(own, []).pattern == own.pattern


def test_a_factor_has_a_name_only_if_others_give_it_that():
    named, bare = factor("0.2", parts.Name("1 / n")), factor("0.4")
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


def at(*indices):
    return parts.At("n", indices, 40)


LAST = said_of_rows(("zeros", parts.Last("n", 1, 40), parts.Guess("n", off_by_one=True)), "zeros")
REST = said_of_rows(("zeros", parts.Last("n", 8, 40), parts.Guess("n", rest_of=16)), "zeros")
COLUMN, COLUMNS = parts.At("d", (1,), 8), parts.Last("d", 4, 8)
REPEATED = said("as if x repeated its first entry along n", "misread input")
FIRST = said_of_rows(("wrong", parts.First("n", 10, 40)))
BEYOND = said_of_rows(("wrong", parts.Last("n", 2, 2050), parts.PastLimit(2048)))
ALL_BUT_6 = parts.AllBut("d", 6)
RUNS = said_of_rows(("wrong", parts.Runs("n", 3, None, 2, 8, 10, 40)))


@pytest.mark.parametrize(
    ("own", "others", "sentence"),
    [
        (LAST, [elsewhere("zeros at n 29", "zeros", (29, 0))], LAST.sentence),
        (LAST, [elsewhere("zeros at n 7", "zeros", (7, 0))], "y: zeros at 1 of 40 along n"),
        (REST, [elsewhere("zeros at n 16..29", "zeros", (16, 0), (29, 7))], REST.sentence),
        (REST, [elsewhere("zeros at n 3..29", "zeros", (3, 0))], "y: zeros at 8 of 40 along n"),
        (FIRST, [elsewhere("wrong at n 8", "rows", (8, 0))],
         "y: wrong at the first 10 of 40 along n"),
        (said_of_rows(("wrong", at(3, 5))), [elsewhere("wrong at n 3", "rows", (3, 0), (5, 1))],
         "y: wrong at n 3, 5"),
        (said_of_rows(("wrong", at(3, 5))), [elsewhere("wrong at n 3", "rows", (3, 0), (6, 1))],
         "y: wrong at 2 of 40 along n"),
        (RUNS, [elsewhere("wrong at n 11", "rows", (11, 0), (20, 7))], RUNS.sentence),
        (RUNS, [elsewhere("wrong at n 13", "rows", (13, 0))], "y: wrong at 10 of 40 along n"),
        (said_of_rows(("wrong", ALL_BUT_6), "everywhere"),
         [elsewhere("wrong", "scattered", (3, 6))], "y: wrong nearly everywhere"),
        (said_of_rows(("wrong", parts.VeryLast())),
         [elsewhere("wrong", "scattered", (29, 6))], "y: wrong in one element"),
        (BEYOND, [elsewhere("wrong at the last 2 of 30 along n", "rows", (29, 6))],
         "y: wrong at the last 2 of 2050 along n"),
        (said_of_rows(("NaN", ALL_BUT_6, ", where numbers are expected"), "nan"),
         [elsewhere("NaN", "nan", (3, 6))], "y: NaN nearly everywhere, where numbers are expected"),
        (said_of_rows(("zeros", at(3), "and", COLUMN), "zeros"),
         [elsewhere("zeros", "zeros", (4, 1))], "y: zeros at 1 of 40 along n and at d 1"),
        (said_of_rows(("zeros", at(3), parts.Except((ALL_BUT_6,))), "zeros"),
         [elsewhere("zeros", "zeros", (3, 6))], "y: zeros at n 3"),
        (said_of_rows(("zeros", at(3), "and", COLUMNS), "zeros"),
         [elsewhere("zeros", "zeros", (4, 0))],
         "y: zeros at 1 of 40 along n and at 4 of 8 along d"),
        (said_of_rows(("2 x expected", parts.At("n", range(20, 40), 40)), "one factor"),
         [elsewhere("2 x expected at n 15..29", "one factor", (15, 0))],
         "y: 2 x expected at 20 of 40 along n"),
        (said_of_rows(("zeros", parts.VeryLast()), "zeros"),
         [elsewhere("zeros", "zeros", (29, 6))], "y: zeros in one element"),
        (said_of_rows(("zeros", parts.VeryLast()), "zeros"),
         [elsewhere("zeros", "zeros", (29, 7))], "y: zeros in the very last element"),
        (factor("0.5", parts.Name("1 / n")), [factor("0.5")], "y: every element is 0.5 x expected"),
        (factor("0.5"), [factor("0.25")],
         "y: every element is 0.5 x expected, 0.25 x with other inputs"),
        (REPEATED, [elsewhere("zeros", "zeros", (29, 7))], "y: wrong"),
        (REPEATED, [elsewhere("wrong", "scattered", (29, 7))], REPEATED.sentence),
    ],
)  # fmt: skip
def test_what_is_not_so_at_other_sizes_is_not_said(own, others, sentence):
    assert claims_more(own)
    assert as_at_other_sizes(own, others, ROWS).sentence == sentence


def test_another_output_says_nothing_of_a_place():
    other = elsewhere("zeros at n 7", "zeros", (7, 0)).model_copy(update={"output": "z"})
    assert as_at_other_sizes(LAST, [other], ROWS).sentence == LAST.sentence
    assert not claims_more(MANY)
