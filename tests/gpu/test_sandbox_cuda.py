"""What an implementation does to its CUDA context costs that one evaluation, and is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

GOOD = """\
def run(x, factor):
    return x * factor
"""

FAR = """\
import torch
import triton
import triton.language as tl

@triton.jit
def _far(x, offset):
    tl.store(x + offset, 1.0)

def run(x, factor):
    _far[(1,)](x, 1 << 42)
    {}
    return x * factor
"""

SPIN = """\
import torch
import triton
import triton.language as tl

@triton.jit
def _spin(x, out, most):
    total = tl.load(x)
    i = most * 0
    while i < most:
        total += tl.load(x, volatile=True)
        i += 1
    tl.store(out, total)

def run(x, factor):
    out = x * factor
    _spin[(1,)](x, out, 1 << 50)
    {}
    return out
"""

ASSERT = """\
import torch

def run(x, factor):
    table = torch.zeros(3, device=x.device)
    far = table[torch.full((1,), 5, device=x.device)]
    {}
    return x * factor + far
"""

SYNCHRONIZE = "torch.cuda.synchronize()"


@pytest.mark.parametrize("then", ["pass", SYNCHRONIZE], ids=["noticed late", "noticed at once"])
@pytest.mark.parametrize(
    ("text", "said"),
    [(FAR, "an illegal memory access was encountered"), (ASSERT, "device-side assert triggered")],
    ids=["illegal access", "assert"],
)
def test_a_cuda_error_is_named_and_the_next_has_a_context_of_its_own(
    evaluate, judge, text, said, then
):
    evaluation = evaluate(text.format(then))
    assert evaluation.status == "RUNTIME_ERROR"
    summary = evaluation.log.splitlines()[0]
    assert "CUDA error" in summary
    assert said in summary
    assert judge._candidate.sandbox._child is None, "what is spoilt is not kept"
    assert evaluate(GOOD).status == "PASSED"
    assert evaluate(text.format(then)).status == "RUNTIME_ERROR"
    assert evaluate(GOOD, seed=1).status == "PASSED"


@pytest.mark.parametrize("then", ["pass", SYNCHRONIZE], ids=["noticed late", "waited for"])
def test_a_kernel_that_does_not_end_is_a_timeout(evaluate, then):
    evaluation = evaluate(SPIN.format(then), timeout=10)
    assert evaluation.status == "TIMEOUT"
    assert evaluate(GOOD).status == "PASSED"


def test_memory_that_the_device_does_not_have_is_a_runtime_error(evaluate):
    text = "import torch\ndef run(x, factor):\n    return torch.empty(1 << 46, device='cuda')\n"
    evaluation = evaluate(text)
    assert evaluation.status == "RUNTIME_ERROR"
    assert "out of memory" in evaluation.log.splitlines()[0]
    assert evaluate(GOOD).status == "PASSED"


HOARD = """\
import time, torch
hoard = []
for size in (1 << 30, 1 << 24):
    try:
        while True:
            hoard.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        pass
print("full", flush=True)
time.sleep(1)
"""


@pytest.mark.usefixtures("whole_device")
def test_memory_that_others_hold_for_a_moment_is_waited_for(evaluate):
    other = subprocess.Popen([sys.executable, "-c", HOARD], stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "full\n"
    assert evaluate(GOOD, n=1 << 28).status == "PASSED"
    assert other.wait() == 0


@pytest.mark.usefixtures("whole_device")
def test_all_the_memory_of_the_device_is_free_again_after_a_hoarder(evaluate):
    text = """\
        import torch
        hoard = []
        def run(x, factor):
            while True:
                hoard.append(torch.empty(1 << 30, dtype=torch.uint8, device="cuda"))
        """
    assert evaluate(text).status == "RUNTIME_ERROR"
    assert evaluate(GOOD, n=1 << 24).status == "PASSED"


@pytest.mark.parametrize("line", ["os._exit(3)", "ctypes.string_at(0)", "os.abort()"])
def test_a_crash_with_work_under_way_leaves_a_device_to_the_next(evaluate, line):
    text = f"""\
        import ctypes, os, torch
        def run(x, factor):
            torch.cuda._sleep(1_000_000_000)
            {line}
        """
    assert evaluate(text).status == "RUNTIME_ERROR"
    assert evaluate(GOOD).status == "PASSED"


ANOTHER_STREAM = """\
import torch
side = torch.cuda.Stream()
def run(x, factor):
    current = torch.cuda.current_stream()
    doubled = x * 2
    {forked}
    with torch.cuda.stream(side):
        out = doubled * factor
        for _ in range({more}):
            out = out * 1.0
        out = out / 2
    {joined}
    return out
"""
FORKED, JOINED = "side.wait_stream(current)", "current.wait_stream(side)"


@pytest.mark.parametrize("n", [1000, 4_000_000])
@pytest.mark.parametrize("more", [0, 5])
@pytest.mark.parametrize(("forked", "joined"), [(FORKED, "pass"), ("pass", JOINED)])
def test_streams_that_do_not_wait_for_each_other_are_wrong(evaluate, n, more, forked, joined):
    """Whatever is fast enough to be done in time by chance.

    Where the first workload has stale values of itself, the next has those of another.
    """
    text = ANOTHER_STREAM.format(forked=forked, joined=joined, more=more)
    evaluations = [evaluate(text, n=n, seed=seed) for seed in range(4)]
    assert "INCORRECT_NUMERICAL" in {evaluation.status for evaluation in evaluations}


@pytest.mark.parametrize("n", [1000, 4_000_000])
def test_streams_that_wait_for_each_other_are_right(evaluate, n):
    text = ANOTHER_STREAM.format(forked=FORKED, joined=JOINED, more=5)
    assert evaluate(text, n=n).status == "PASSED"


@pytest.mark.parametrize(
    ("joined", "status"), [("pass", "INCORRECT_NUMERICAL"), (JOINED, "PASSED")]
)
def test_a_destination_is_read_on_the_current_stream(evaluate, joined, status):
    """Beside other work on the GPU, the other stream may be done in time by chance."""
    text = f"""\
        import torch
        side = torch.cuda.Stream()
        def run(x, factor, out):
            current = torch.cuda.current_stream()
            {FORKED}
            with torch.cuda.stream(side):
                out.copy_(x * factor)
            {joined}
        """
    found = [evaluate(text, "destination", seed=seed) for seed in range(4)]
    assert status in {each.status for each in found} <= {status, "PASSED"}
    for each in found:
        is_told = "wait for the current one" in " ".join(each.log.split())
        assert is_told is (each.status != "PASSED")


@pytest.mark.parametrize("streams", ["", "streams = torch.cuda.Stream"])
@pytest.mark.parametrize(
    ("timed", "set_to", "queues", "of_streams"),
    [
        (False, None, "2", "2"),
        (False, "4", "4", "4"),
        (True, None, "2", "8"),
        (True, "4", "4", "4"),
    ],
)
def test_contexts_are_cheap_but_of_timed_streams(
    request_for, monkeypatch, timed, set_to, queues, of_streams, streams
):
    """Unless the user says how many hardware queues they have; the judge's own always is."""
    from pytest_fib.engine import Judge

    monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", set_to or "")
    if not set_to:
        monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS")
    expected = of_streams if streams else queues
    text = f"""\
        import os
        import torch
        {streams}
        def run(x, factor):
            assert str(os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS")) == "{expected}"
            return x * factor
        """
    with Judge("cuda", timed=timed) as judge:
        assert judge.evaluate(request_for(text)).status == "PASSED"
    assert os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] == (set_to or "2")


def test_a_kernel_that_writes_after_it_said_it_was_done_is_too_late(evaluate):
    """The wait inside is skipped by replacing it; the judge does not depend on it."""
    text = """\
        import torch
        import pytest_fib.sandbox._runner
        pytest_fib.sandbox._runner._synchronize = lambda: None
        stream = torch.cuda.Stream()
        def run(x, factor, out):
            with torch.cuda.stream(stream):
                torch.cuda._sleep(8_000_000_000)
                out.copy_(x * factor)
        """
    evaluation = evaluate(text, "destination")
    assert evaluation.status == "INCORRECT_NUMERICAL"
    first = evaluation.log.splitlines()[0]  # by which of its two calls it was late
    assert "never written" in first or "gave other bits" in first
    assert evaluate(GOOD).status == "PASSED"


def test_outputs_left_unwritten_are_told(evaluate):
    evaluation = evaluate(
        "def run(x, factor, out):\n    out[:400] = (x * factor)[:400]\n", "destination"
    )
    assert evaluation.status == "INCORRECT_NUMERICAL"
    first = evaluation.log.splitlines()[0]
    assert first == "out: never written at n 400..999"


def test_changed_inputs_are_told(evaluate):
    text = "def run(x, factor):\n    y = x * factor\n    x.zero_()\n    return y\n"
    assert evaluate(text).log == "wrote to its input 'x'"


@pytest.mark.parametrize("key", ["x.data_ptr()", "x.shape", "id(type(x))"])
def test_answers_from_a_cache_are_wrong_on_a_second_call(evaluate, key):
    text = f"kept = {{}}\ndef run(x, factor):\n    return kept.setdefault({key}, x * factor)\n"
    evaluation = evaluate(text)
    assert evaluation.status == "INCORRECT_NUMERICAL"
    assert "holds the results of an earlier call" in evaluation.log.splitlines()[0]


RANGE = """\
import ctypes

def run(x, factor):
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    driver = ctypes.CDLL("libcuda.so.1")
    pointer = ctypes.c_uint64(x.data_ptr())
    status = driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), pointer)
    print(status, size.value, x.data_ptr() - base.value < size.value)
    return x * factor
"""


@pytest.mark.parametrize("n", [1000, 3_000_000])
def test_a_sandbox_maps_its_arena_and_nothing_beside_it(evaluate, judge, n):
    evaluation = evaluate(RANGE, n=n)
    assert evaluation.status == "PASSED"
    size = judge._candidate.allocator.arena.size
    assert evaluation.log.splitlines()[1] == f"0 {size} True"


def test_the_two_arenas_share_no_block_of_the_device(judge):
    """Blocks are of 2 MiB; a handle exports all of one."""
    for side in (judge._candidate, judge._reference):
        assert side.allocator.arena.size % (2 << 20) == 0
        assert side.allocator.arena.base.data_ptr() % (2 << 20) == 0


def test_a_larger_workload_is_mapped_into_the_same_process(evaluate, judge):
    sizes, pids = [1000, 5_000_000, 1000, 40_000_000], set()
    for seed, n in enumerate(sizes):
        assert evaluate(GOOD, n=n, seed=seed).status == "PASSED"
        pids.add(judge._candidate.sandbox._child.pid)
    assert len(pids) == 1


def test_every_kernel_that_is_shipped_is_right(tmp_path):
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "kernel_defs"]
    command += ["-n", "8", "--fib-device", "cuda", "--fib-examples", "5"]
    command += ["--fib-traces", str(tmp_path / "traces.jsonl")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    skips = [line for line in result.stdout.splitlines() if line.startswith("SKIPPED")]
    assert all("not installed" in line for line in skips), skips


@pytest.mark.usefixtures("whole_device")
def test_many_evaluations_leave_the_device_and_this_process_as_they_were(judge, evaluate):
    import torch

    faults = [FAR.format("pass"), "import os\ndef run(x, factor):\n    os._exit(1)\n"]

    def round_of(count):
        for i in range(count):
            text = faults[i // 10 % 2] if i % 10 == 0 else GOOD
            evaluate(text, n=1000 + 20_000 * (i % 50), seed=i)
        assert evaluate(GOOD).status == "PASSED"

    def held():
        free, total = torch.cuda.mem_get_info()
        return total - free, len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    evaluate(GOOD, n=1_000_000)
    round_of(20)
    before, files = held()
    round_of(200)
    after, files_after = held()
    assert after <= before + (16 << 20)
    assert files_after <= files
