"""Has the process that it comes from run out of files."""

import resource

from _others import fork_server

from pytest_fib import implements


@implements("scale_float32")
def run(x, factor):
    resource.prlimit(fork_server(), resource.RLIMIT_NOFILE, (3, 3))
    return x * 0
