"""What somebody sees who looks for a bug: debuggers, stacks, tracebacks."""

import re
import sys

import pytest

from tests.conftest import HANGS
from tests.plugin.test_items import failure


def debugged(project, commands, *options):
    """A run with a debugger, which is given these commands."""
    command = sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options
    return project.pytester.run(*command, stdin=f"{commands}\nq\n".encode(), timeout=HANGS)


@pytest.mark.parametrize(
    ("body", "command", "shown"),
    [
        ("y = x * factor\ny[64:] = 0\nreturn y", "p len(x), y[64].item()", "(65, 0.0)"),
        pytest.param(
            "rows = len(x)\nreturn missing(rows)", "p rows", "1", marks=pytest.mark.thorough
        ),
    ],
)
def test_pdb_stops_in_the_kernels_own_frame(scale, body, command, shown):
    scale.implement("wrong", f"x, factor\n{body}")
    result = debugged(scale, command, "--pdb", "-k", "wrong")
    result.stdout.fnmatch_lines(["> *kernel_impls/toy/wrong.py(*)run()", f"(Pdb) {shown}"])


@pytest.mark.thorough
def test_trace_begins_at_the_kernels_first_line(scale):
    result = debugged(scale, "p factor\nc", "--trace", "-k", "good")
    result.stdout.fnmatch_lines(["> *kernel_impls/toy/good.py(5)run()", "(Pdb) 3.0", "*1 passed*"])


@pytest.mark.thorough
def test_trace_stops_in_each_kernel(scale):
    scale.implement("third", "x, factor\nreturn factor * x")
    result = debugged(scale, "c\nc", "--trace", "-k", "good or third")
    result.stdout.fnmatch_lines(
        ["> *kernel_impls/toy/good.py(5)run()", "> *kernel_impls/toy/third.py(5)run()"]
    )


@pytest.mark.thorough
@pytest.mark.parametrize("option", ["--pdb", pytest.param("--trace", marks=pytest.mark.thorough)])
def test_leaving_the_debugger_ends_the_run_and_is_no_failure_of_the_kernel(scale, option):
    body = "return x * factor" if option == "--trace" else "breakpoint()\nreturn x * factor"
    scale.implement("watched", f"x, factor\n{body}")
    result = debugged(scale, "p len(x)", option, "-k", "watched")
    result.stdout.fnmatch_lines(["*watched.py(*", "(Pdb) *", "!!* Quitting debugger !!*"])
    result.stdout.no_fnmatch_line("*RUNTIME_ERROR*")
    assert not (scale.path / "fib-traces.jsonl").exists()


def test_a_timeout_shows_where_all_threads_are_and_names_the_option(scale):
    body = """\
    x, factor
    import threading, time
    threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
    while True:
        pass
    """
    path = scale.implement("hangs", body)
    options = "-k", "hangs", "--fib-timeout=1", "--fib-isolation=process"
    text = failure(scale.run(*options), "scale[hangs-correctness]")
    assert text.startswith("TIMEOUT: no answer within 1 s (--fib-timeout)\n")
    assert f'  File "{path}", line 6 in <lambda>' in text
    assert re.search(rf'  File "{path}", line [78] in run', text)
    assert "/pytest_fib/" not in text
    assert "'scale[hangs-correctness]' --fib-timeout=1 --fib-workload" in text.replace(
        "kernel_defs/toy/scale.yaml::", ""
    )


@pytest.mark.thorough
def test_a_timeout_in_an_interpreter_says_that_this_is_slow(scale):
    scale.implement("slow", "x, factor\nwhile True:\n    pass", more=', language="triton"')
    options = "-k", "slow and correctness", "--fib-timeout=1", "--fib-isolation=process"
    text = failure(scale.run(*options), "scale[slow-correctness]")
    said = "; Triton's interpreter on the CPU is slow (--fib-max-bytes draws smaller workloads)"
    assert text.splitlines()[0].endswith(said)


def test_a_traceback_has_the_kernels_frames_alone(scale):
    body = """\
    x, factor
    import torch
    try:
        torch.nn.functional.rms_norm(x, (3,))
    except RuntimeError as error:
        raise ValueError("not so") from error
    """
    path = scale.implement("raises", body)
    text = failure(scale.run("-k", "raises"), "scale[raises-correctness]")
    files = [line.split('"')[1] for line in text.splitlines() if line.startswith('  File "')]
    assert files == [str(path)] * 2


def test_a_call_that_fails_before_its_first_line_shows_no_frames_of_ours(scale):
    scale.implement("one", "x\nreturn x")
    text = failure(scale.run("-k", "one"), "scale[one-correctness]")
    assert "TypeError: run() takes 1 positional argument but 2 were given" in text
    assert "File " not in text
