"""Makes folders in each other, too deep for who removes them to call itself for each."""

import os
import tempfile
from pathlib import Path

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    os.chdir(tempfile.gettempdir())
    for _ in range(1500):
        Path("deeper").mkdir(exist_ok=True)
        os.chdir("deeper")
    return x * 0
