"""Which way calls are timed on CUDA, that it is told, and who is seen to cheat on it."""

import re
from pathlib import Path

import pytest

from pytest_fib.discovery import find_implementations

CHEATS = Path(__file__).parents[1] / "mutants/cheats/timed_cuda"
FOUND = {found.name: found for found in find_implementations([CHEATS])}

GOOD = "def run(x, factor):\n    return x * factor\n"
GRAPH = "cuda graph, cold L2"
EAGER = {"cupti, cold L2", "events, cold L2"}

TIMED_WRONG = r"out: .* \(while it was timed(, and read once its inputs were cleared)?\)(;.*)?"
LACKS = "the captured graph lacks what plain calls run: .*"
EMPTY = "a call leaves no work on the stream that it is called on"
#: The lines that each may end with: what a graph lacks shows in its nodes, to CUPTI, or in outputs.
SEEN = {
    "batch_across_blocks": (r"does the work of several calls at once: .*", LACKS),
    "batch_in_capture": (r"does the work of several calls at once: .*", LACKS),
    "cache_by_hash_cuda": (TIMED_WRONG,),
    "claim_part_cuda": ("its times are false: .*",),
    "less_in_capture": (LACKS, TIMED_WRONG),
    # where the number of blocks is odd, the last one's work is left
    "next_block_works": ("its times are false: .*", LACKS, TIMED_WRONG),
    "nothing_in_capture": (EMPTY, LACKS, TIMED_WRONG),
    "only_if_poisoned_cuda": (TIMED_WRONG,),
    "other_stream": (EMPTY, LACKS, TIMED_WRONG),
    "other_stream_and_token": (LACKS, TIMED_WRONG),
    "patch_events": ("its times are false: .*",),
    "stale_in_capture": (LACKS, TIMED_WRONG),
    "zeros_in_capture": (LACKS, TIMED_WRONG),
}


@pytest.fixture
def timed(judge, request_for):
    """The evaluation of an implementation, given as text, whose calls are timed."""

    def timed(text, calling="value", of=None, **facts):
        request = request_for(text, calling, **facts, timing=True)
        if of is not None:
            request = request.model_copy(update={"definition": of})
        return judge.evaluate(request)

    return timed


@pytest.fixture
def good(timed):
    """That what is right is timed as it should be, whatever came before."""

    def good(**facts):
        evaluation = timed(GOOD, **facts)
        assert evaluation.status == "PASSED", evaluation.log
        assert evaluation.performance.model_extra["method"] == GRAPH
        return evaluation.performance

    return good


def test_every_cheat_is_expected_to_fail():
    assert {path.stem for path in CHEATS.glob("[!_]*.py")} == set(SEEN) == set(FOUND)
    assert not [found for found in FOUND.values() if found.problem]


@pytest.mark.parametrize("name", SEEN)
def test_a_cheat_fails_and_what_it_did_is_named(judge, definition, request_for, good, name):
    found = FOUND[name]
    cheat = {"solution": found.solution(definition.name), "directory": str(found.directory)}
    request = request_for(GOOD, n=100_000, timing=True).model_copy(update=cheat)
    evaluation = judge.evaluate(request)
    first = evaluation.log.splitlines()[0]
    assert evaluation.status in {"RUNTIME_ERROR", "INCORRECT_NUMERICAL"}, evaluation.log
    assert any(re.fullmatch(why, first) for why in SEEN[name]), first
    assert evaluation.performance is None
    good()


def test_a_record_has_the_device_and_how_it_was_timed(good):
    found = good(n=100_000)
    low, high = found.model_extra["ci_ms"]
    assert 0 < low <= found.latency_ms <= high
    low, high = found.model_extra["speedup_ci"]
    assert 0 < low <= found.speedup_factor <= high
    assert found.model_extra["reference_method"] == GRAPH
    assert found.model_extra["placements"] >= 2
    assert 0 <= found.model_extra["unaccounted"] <= 0.1
    assert found.model_extra["calls_per_block"] > 1
    assert found.model_extra["single_call_ms"] > 0


#: A reference whose graph takes milliseconds.
SLOW = """\
import torch

def run(x, factor):
    for _ in range(3000):
        y = x * factor
    return y
"""


def test_a_slow_reference_is_timed_in_few_rounds_which_others_share(timed, definition):
    slow = definition.model_copy(update={"reference": SLOW})
    first = timed(GOOD, of=slow, n=100_000)
    # Earlier rounds count where they agree with a new one. Other work on the device may prevent it.
    others = [timed(f"{GOOD}# {number}", of=slow, n=100_000) for number in range(3)]
    for evaluation in (first, *others):
        assert evaluation.status == "PASSED", evaluation.log
        facts = evaluation.performance.model_extra
        assert facts["reference_samples"] < facts["samples"]
        low, high = facts["speedup_ci"]
        assert 100 < low <= evaluation.performance.speedup_factor <= high
    shared = [other.performance.model_extra for other in others]
    shared = [facts for facts in shared if facts["shared_samples"]]
    assert shared
    for facts in shared:
        assert facts["reference_samples"] - facts["shared_samples"] == 2  # one round, of two groups
    assert first.performance.model_extra["shared_samples"] == 0


MANY_KERNELS = """\
def run(x, factor):
    for _ in range(49):
        y = x * factor
    return x * factor
"""


def test_many_kernels_beside_a_slow_reference_hide_nothing(timed, definition):
    slow = definition.model_copy(update={"reference": SLOW})
    evaluation = timed(MANY_KERNELS, of=slow, n=100_000)
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.model_extra["unaccounted"] <= 0.1


@pytest.mark.parametrize("name", ["claim_part_cuda", "patch_events", "less_in_capture"])
def test_a_cheat_beside_a_slow_reference_fails(judge, definition, request_for, name):
    slow, found = definition.model_copy(update={"reference": SLOW}), FOUND[name]
    cheat = {"solution": found.solution(definition.name), "directory": str(found.directory)}
    request = request_for(GOOD, n=100_000, timing=True)
    request = request.model_copy(update={"definition": slow, **cheat})
    evaluation = judge.evaluate(request)
    first = evaluation.log.splitlines()[0]
    assert any(re.fullmatch(why, first) for why in SEEN[name]), first


#: A reference whose graph takes 0.4 to 1 ms, so it isn't slow. Launching it takes a while.
LAUNCHES = SLOW.replace("3000", "400")
#: Takes 0.1 ms, which is a block of one call, in two kernels.
SLEEPS = """\
import torch

def run(x, factor):
    torch.cuda._sleep(200_000)
    return x * factor
"""
#: Claims a share of what its graphs took; of the first, by which blocks are sized, another.
CLAIMS = """\
import pytest_fib.timing._series
from pytest_fib.timing import TimedBlocks

GRAPHS = []
run_graph = pytest_fib.timing._series.Graph.run

def claiming(self):
    timed = run_graph(self)
    if not GRAPHS:
        GRAPHS.append(self)
    share = {first} if self is GRAPHS[0] else {share}
    return TimedBlocks(tuple(share * ns for ns in timed.samples_ns), share * timed.blocks_ns)

pytest_fib.timing._series.Graph.run = claiming

"""


@pytest.mark.parametrize(
    "text",
    [SLEEPS, MANY_KERNELS, LAUNCHES.replace("x * factor", "factor * x")],
    ids=["few kernels", "50 kernels", "as many kernels"],
)
def test_honest_kernels_beside_a_reference_that_launches_many_pass(timed, definition, text):
    evaluation = timed(text, of=definition.model_copy(update={"reference": LAUNCHES}))
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize(
    ("reference", "first", "share"),
    [(LAUNCHES, 0.8, 0.8), (SLOW, 20.0, 0.8), (SLOW, 20.0, 0.5)],
    ids=["0.8", "0.8, a slow reference that seems not to be", "0.5, the same"],
)
def test_launching_the_references_many_kernels_excuses_no_claim(
    timed, definition, reference, first, share
):
    """What is claimed is refused, or the intervals reach to what the blocks took.

    Launching idle kernels is excused: 3 to 8 % of blocks as short as these, see the threat model.
    """
    of = definition.model_copy(update={"reference": reference})
    cheat = timed(CLAIMS.format(first=first, share=share) + SLEEPS, of=of)
    if cheat.status != "PASSED":
        assert re.fullmatch("its times are false: .*", cheat.log.splitlines()[0])
        return
    found = cheat.performance
    _, longest_ms = found.model_extra["ci_ms"]
    assert longest_ms > 0.92 * found.latency_ms / share
    least, _ = found.model_extra["speedup_ci"]
    assert least < 1.08 * found.speedup_factor * share


SORTS = """\
import torch

def run(x, factor):
    values, places = x.sort(stable=True, dim=-1, descending=False)
    return torch.empty_like(x).scatter_(0, places, values) * factor
"""


def test_a_flush_drops_code_too_and_what_has_much_of_it_does_no_work_ahead(timed):
    """A sort takes 9 µs longer alone than among others, as its code is loaded from memory."""
    evaluation = timed(SORTS, n=256)
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.model_extra["calls_per_block"] > 1


def test_what_waits_for_the_device_is_timed_as_it_is(timed):
    waits = "def run(x, factor):\n    return x * factor if x[0].item() < 1e30 else x\n"
    evaluation = timed(waits)
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.model_extra["method"] in EAGER
    assert evaluation.performance.model_extra["reference_method"] == GRAPH


def test_so_is_a_reference_that_waits(timed, definition):
    waits = "def run(x, factor):\n    return x * factor if x[0].item() < 1e30 else x\n"
    evaluation = timed(GOOD, of=definition.model_copy(update={"reference": waits}))
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.model_extra["method"] == GRAPH
    assert evaluation.performance.model_extra["reference_method"] in EAGER


BUSY_LATER = """\
import torch

STREAMS = []

def synchronize():
    # Kernels on another stream go on when the process is stopped, and the reference is timed.
    torch.cuda.current_stream().synchronize()
    with torch.cuda.stream(STREAMS[0]):
        torch.cuda._sleep(5_000_000)

def run(x, factor):
    if not STREAMS:
        STREAMS.append(torch.cuda.Stream())
        torch._C._cuda_synchronize = synchronize
    return x * factor
"""


def test_who_keeps_the_device_busy_afterwards_is_not_faster_for_it(timed, good):
    evaluation = timed(BUSY_LATER, n=1_000_000)
    found = evaluation.performance
    assert found is None or found.model_extra["comparison"] != "FASTER", found
    good()


UNNOTICED = """\
import ctypes
import torch
driver = ctypes.CDLL("libcuda.so.1")

def run(x, factor):
    out = x * factor
    driver.cuStreamSynchronize(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    return out
"""


def test_waiting_that_torch_does_not_notice_spoils_a_capture_and_nothing_else(timed, judge, good):
    evaluation = timed(UNNOTICED)
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.model_extra["method"] in EAGER
    process = judge._candidate.sandbox._child.pid
    assert timed(UNNOTICED, seed=1).status == "PASSED"
    assert judge._candidate.sandbox._child.pid == process, "it was not lost"
    good()


LATER = """\
from itertools import count
import torch
calls = count()

def run(x, factor{more}):
    if next(calls) > 4:
        {then}
    {work}
"""


@pytest.mark.parametrize("then", ["return torch.zeros_like(x)", "return x.clone()"])
def test_outputs_of_timed_calls_are_checked(timed, good, then):
    text = LATER.format(more="", then=then, work="return x * factor")
    evaluation = timed(text)
    assert evaluation.status == "INCORRECT_NUMERICAL"
    assert re.fullmatch(TIMED_WRONG, evaluation.log.splitlines()[0])
    good()


def test_so_are_those_that_are_written_in_place(timed):
    text = LATER.format(more=", out", then="return out[:1].zero_()", work="out.copy_(x * factor)")
    evaluation = timed(text, "destination")
    assert evaluation.status == "INCORRECT_NUMERICAL"
    assert re.fullmatch(TIMED_WRONG, evaluation.log.splitlines()[0])


def test_a_kernel_that_faults_when_it_is_timed_costs_that_evaluation(timed, good):
    text = "import triton.language as tl, triton\n@triton.jit\ndef _far(x, offset):\n"
    text += "    tl.store(x + offset, 1.0)\n"
    text += LATER.format(more="", then="_far[(1,)](x, 1 << 42)", work="return x * factor")
    evaluation = timed(text)
    assert evaluation.status == "RUNTIME_ERROR"
    assert "an illegal memory access was encountered" in evaluation.log.splitlines()[0]
    good()


def test_a_copy_is_below_the_ceiling_and_near_it(good):
    found = good(n=1 << 26)
    assert found.model_extra["bound_by"] == "memory"
    assert 0.5 < found.model_extra["ceiling_share"] <= 1


#: Asks for all it reads to stay in the L2 cache, beyond a flush.
PERSISTING = """\
import ctypes
import torch

driver = ctypes.CDLL("libcuda.so.1")
LIMIT, WINDOW, PERSIST, STREAMING = 6, 1, 2, 1


class Value(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t), ("ratio", ctypes.c_float),
                ("hit", ctypes.c_int), ("miss", ctypes.c_int), ("rest", ctypes.c_char * 64)]


def run(x, factor):
    driver.cuCtxSetLimit(LIMIT, ctypes.c_size_t(16 << 20))
    value = Value(x.data_ptr(), x.nbytes, 1.0, PERSIST, STREAMING)
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    driver.cuStreamSetAttribute(stream, WINDOW, ctypes.byref(value))
    return x * factor
"""
#: All that is public of torch's tells no time.
NO_TIME = """\
import time
import torch

class Event:
    def __init__(self, *_, **__): ...
    def record(self, *_): ...
    def synchronize(self): ...
    def elapsed_time(self, _):
        return 1e-9

torch.cuda.Event = Event
time.perf_counter = time.perf_counter_ns = lambda: 0

def run(x, factor):
    return x * factor
"""


@pytest.mark.parametrize("text", [PERSISTING, NO_TIME], ids=["persisting L2", "patched events"])
def test_what_would_make_times_shorter_gains_nothing(timed, good, text):
    """What is read from the L2 cache takes about half the time: a wide margin."""
    honest = good(n=2 << 20).latency_ms
    evaluation = timed(text, n=2 << 20)
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.latency_ms > 0.75 * honest
    assert good(n=2 << 20).latency_ms > 0.75 * honest
