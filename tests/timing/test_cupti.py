"""What records of the device's activity say, without a device."""

import pytest

from pytest_fib.timing import cupti


def kernel(start, end, name="kernel"):
    return cupti.Activity(name, start, end)


@pytest.mark.parametrize(
    ("spans", "busy"),
    [
        ([], 0),
        ([(10, 15)], 5),
        ([(10, 15), (20, 30)], 15),  # the gap between two counts for nothing
        ([(10, 15), (15, 30)], 20),
        ([(10, 20), (15, 30)], 20),  # what overlaps, once
        ([(10, 30), (12, 15), (18, 20)], 20),
        ([(10, 30), (12, 15), (18, 40)], 30),
        ([(20, 30), (10, 15)], 15),  # whatever their order
        ([(10, 20), (10, 20), (10, 12)], 10),  # and however many
        ([(10, 10)], 0),
    ],
)
def test_the_device_is_busy_while_anything_runs(spans, busy):
    assert cupti.busy_ns([kernel(*span) for span in spans]) == busy


def test_times_since_the_epoch_lose_no_nanosecond():
    start = 1_700_000_000_000_000_000
    assert cupti.busy_ns([kernel(start, start + 1), kernel(start + 3, start + 4)]) == 2


def names(*names):
    return [kernel(i, i + 1, name) for i, name in enumerate(names)]


@pytest.mark.parametrize(
    ("plain", "captured", "said"),
    [
        ("", "", ""),
        ("ab", "ba", ""),
        ("ab", "abfff", ""),  # as what flushes the cache
        ("ab", "a", "1 of b"),
        ("aab", "ab", "1 of a"),
        ("aaabb", "", "3 of a, 2 of b"),
        ("aaabbc", "", "3 of a, 2 of b"),  # two are enough to know
        ("a", "b", "1 of a"),
    ],
)
def test_what_a_graph_lacks_of_plain_calls_is_named(plain, captured, said):
    assert cupti.missing(names(*plain), names(*captured)) == said


def test_long_names_of_kernels_are_cut():
    assert cupti.missing(names("k" * 500), []) == "1 of " + "k" * 60
