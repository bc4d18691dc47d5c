"""Has pytest skip the test."""

import pytest

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    pytest.skip("nothing to see here")
