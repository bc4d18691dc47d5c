"""Which of many tests of one kind the quick run has; all others are marked ``thorough``."""

from collections.abc import Container, Iterable
from zlib import crc32

import pytest


def one_in(number: int, names: Iterable[str], slow: Container[str] = ()) -> list:
    """Parameters: one in so many, always the same, is in the quick run; none of the slow ones."""
    return [
        pytest.param(name, marks=() if is_quick else pytest.mark.thorough)
        for name in names
        for is_quick in [name not in slow and crc32(name.encode()) % number == 0]
    ]
