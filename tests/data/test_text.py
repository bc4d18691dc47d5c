"""What others wrote is read, and does nothing."""

import pytest

from pytest_fib.data import format_distinct, visible, visible_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]8;;http://a\x07link", r"\x1b]8;;http://a\x07link"),
        ("\x9b2J\x85", r"\x9b2J\x85"),
        ("ab\b\b\rcd\x7f\x00", r"ab\x08\x08\x0dcd\x7f\x00"),
        ("\u202ea\u202c \u2066b\u2069\u2028", r"\u202ea\u202c \u2066b\u2069\u2028"),
        ("\udcff", r"\udcff"),
        ("::error::a\n  ::add-mask::b", "\\x3a:error::a\n  \\x3a:add-mask::b"),
        ("\xa0::stop-commands::a", "\xa0\\x3a:stop-commands::a"),
        ("a ##[group]b ##vso[task.complete]", r"a \x23#[group]b \x23#vso[task.complete]"),
    ],
)
def test_what_would_do_something_is_shown_as_an_escape(text, shown):
    assert visible(text) == shown
    assert visible(shown) == shown


@pytest.mark.parametrize(
    "text", ["", "a\tb\nc\n", "±4e-05 µs … 语言 🔺", "at::Tensor x.yaml::y[z]", "## title", r"\n"]
)
def test_all_other_text_stays_as_it_is(text):
    assert visible(text) == text


def test_a_line_stays_one():
    assert visible_line("a\nb\tc\x1b") == "a\\nb\tc\\x1b"


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        (1.5, 2.25, ("1.5", "2.2")),
        (0.2601, 0.26, ("0.2601", "0.26")),
        (1 + 2.0**-12, 1.0, ("1.00024", "1")),
        (2.0**-20, 2.0**-20 * (1 + 2.0**-52), ("9.5367431640625e-07", "9.5367431640625021e-07")),
        (3.0, 3.0, ("3", "3")),
    ],
)
def test_two_numbers_look_the_same_only_if_they_are(one, other, shown):
    assert format_distinct(one, other, 2) == shown
