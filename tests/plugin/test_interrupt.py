"""Ctrl-C: what an interrupted run shows, and what it leaves undone."""

import pytest

INTERRUPTED = """\
import sys


def pytest_runtest_call(item):
    raise KeyboardInterrupt


def pytest_unconfigure():
    print(f"Hypothesis was imported: {'hypothesis' in sys.modules}", file=sys.stderr)
"""


def test_an_interrupted_run_says_where_and_nothing_is_imported_for_its_end(scale):
    scale.write("conftest.py", INTERRUPTED)
    result = scale.run_apart("--fib-isolation=process")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["*: KeyboardInterrupt", "*use --full-trace)"])
    result.stderr.fnmatch_lines(["Hypothesis was imported: False"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.thorough
def test_the_whole_way_is_shown_where_that_is_asked_for(scale):
    scale.write("conftest.py", INTERRUPTED)
    result = scale.run_apart("--full-trace")
    result.stdout.fnmatch_lines(["*runner.py:*", "*conftest.py:5: KeyboardInterrupt"])
