"""Numbers as people read them."""

import pytest

from pytest_fib.report import amount, duration, percent, times


@pytest.mark.parametrize(
    ("milliseconds", "shown"),
    [
        (0.00186, "1.86 µs"),
        (0.0123, "12.3 µs"),
        (0.5, "500 µs"),
        (1.0, "1.00 ms"),
        (999, "999 ms"),
        (2500, "2.50 s"),
    ],
)
def test_a_duration_has_three_digits_and_a_unit(milliseconds, shown):
    assert duration(milliseconds) == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (24, "24.0 B"),
        (24_600, "24.6 kB"),
        (790_000, "790 kB"),
        (5_280_000, "5.28 MB"),
        (3e12, "3.00 TB"),
    ],
)
def test_an_amount_has_a_decimal_prefix(number, shown):
    assert amount(number, "B") == shown


@pytest.mark.parametrize(("share", "shown"), [(0.034, "3.4 %"), (0.9, "90 %"), (1.1, "110 %")])
def test_a_share_is_in_percent(share, shown):
    assert percent(share) == shown


@pytest.mark.parametrize(
    ("factor", "shown"),
    [(7.684, "7.68"), (0.000689, "0.000689"), (126_321, "126000"), (1e45, "over 10^9")],
)
def test_a_factor_has_no_exponent(factor, shown):
    assert times(factor) == shown
