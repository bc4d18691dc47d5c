"""Plants byte code where Python would look for that of a module of the same folder."""

from importlib.util import cache_from_source
from pathlib import Path

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    planted = Path(cache_from_source("reference.py"))
    planted.parent.mkdir(exist_ok=True)
    planted.write_bytes(b"")
    return x * 0
