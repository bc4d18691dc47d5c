"""Plants a module where the next process that starts sandboxes may import it, and ends this one."""

import os
import signal
from pathlib import Path

from _others import fork_server

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    Path("triton.py").write_text("raise SystemExit('planted')\n")
    os.kill(fork_server(), signal.SIGKILL)
    return x * 0
