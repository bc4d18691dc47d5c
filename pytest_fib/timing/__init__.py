"""How long a call takes, in GPU or CPU time of the call alone."""

from pytest_fib.timing._clock import time_calls
from pytest_fib.timing._measure import Timing, measure
from pytest_fib.timing._traffic import least_bytes

__all__ = ["Timing", "least_bytes", "measure", "time_calls"]
