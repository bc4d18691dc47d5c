"""Which of many tests of one kind the quick run has; all others are marked ``thorough``."""

from collections.abc import Iterable
from zlib import crc32

import pytest


def one_in(number: int, names: Iterable[str]) -> list:
    """Parameters: one in so many, always the same, is in the quick run."""
    return [
        pytest.param(name, marks=() if crc32(name.encode()) % number == 0 else pytest.mark.thorough)
        for name in names
    ]
