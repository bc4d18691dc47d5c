"""From a request to its evaluation: what is decided, by whom, and what is left behind."""

import os
import re
import signal
import threading
from time import sleep

import pytest

from pytest_fib.data import DefinitionFault, EvaluationRequest, load_definition_file
from pytest_fib.engine import Judge, evaluate
from pytest_fib.sandbox import Done
from pytest_fib.workloads import make_workload

GOOD = """\
def run(x, factor):
    return x * factor
"""


def referring(definition, reference):
    """The definition with another reference."""
    return definition.model_copy(update={"reference": reference})


@pytest.mark.parametrize(
    ("text", "calling"),
    [
        (GOOD, "value"),
        (
            "import torch\ndef run(x, factor, out):\n    torch.mul(x, factor, out=out)\n",
            "destination",
        ),
        ("def run(data):\n    x, factor, out = data\n    out.copy_(x * factor)\n", "tuple"),
    ],
    ids=["value", "destination", "tuple"],
)
@pytest.mark.parametrize("n", [1, 1000, 3_000_000])
def test_a_right_implementation_passes(judge, request_for, text, calling, n):
    evaluation = judge.evaluate(request_for(text, calling, n=n))
    assert evaluation.status == "PASSED"
    assert evaluation.correctness.max_relative_error <= 2**-23  # of the factor, and of the product
    assert evaluation.log == ""


def test_a_wrong_implementation_is_incorrect(judge, request_for):
    evaluation = judge.evaluate(request_for("def run(x, factor):\n    return x + factor\n"))
    assert evaluation.status == "INCORRECT_NUMERICAL"


def test_without_a_judge_an_evaluation_brings_its_own(request_for, processes):
    before = processes()
    assert evaluate(request_for(GOOD)).status == "PASSED"
    assert processes() <= before


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("def run(x, factor):\n    raise ValueError('boom')\n", "ValueError: boom"),
        ("def run(x, factor):\n    import os\n    os._exit(3)\n", "the process exited with code 3"),
        (
            "import ctypes\ndef run(x, factor):\n    ctypes.string_at(0)\n",
            "the process was killed by SIGSEGV",
        ),
        ("def run(x, factor):\n    while True: pass\n", "no answer within 0.5 s (--fib-timeout)"),
        ("def run(x, factor):\n    return x[1:]\n", "out: got [6], expected [7]"),
        (
            "def run(x, factor):\n    return None\n",
            "out is None, not a torch.Tensor; is a return missing?",
        ),
        ("def run(x, factor)\n", "SyntaxError: expected ':' (reference.py, line 1)"),
    ],
)
def test_a_reference_that_fails_is_the_definitions_error(
    judge, request_for, definition, reference, said
):
    broken = referring(definition, reference)
    fault = judge.evaluate(request_for(GOOD, n=7, of=broken, timeout=0.5))
    assert isinstance(fault, DefinitionFault)
    assert fault.message == f"the reference of scale_float32 failed: {said}"
    assert judge.evaluate(request_for(GOOD)).status == "PASSED"


def test_a_reference_that_kills_itself_is_the_definitions_error(judge, request_for, definition):
    broken = referring(definition, "import os\ndef run(x, factor):\n    os.kill(os.getpid(), 9)\n")
    fault = judge.evaluate(request_for(GOOD, of=broken))
    assert isinstance(fault, DefinitionFault)
    assert fault.message.endswith("the process was killed by SIGKILL")


@pytest.mark.parametrize("line", ["1 / 0", "return x[1:]", "import os; os._exit(3)"])
def test_an_implementation_that_fails_is_not_at_fault_where_the_reference_fails_too(
    judge, request_for, definition, line
):
    broken = referring(definition, "def run(x, factor):\n    raise ValueError\n")
    fault = judge.evaluate(request_for(f"def run(x, factor):\n    {line}\n", of=broken))
    assert isinstance(fault, DefinitionFault)
    assert fault.message == "the reference of scale_float32 failed: ValueError"
    evaluation = judge.evaluate(request_for(f"def run(x, factor):\n    {line}\n"))
    assert evaluation.status in ("RUNTIME_ERROR", "INCORRECT_SHAPE")


def test_module_state_does_not_leak_into_the_next_implementation(judge, request_for):
    leaks = """\
import builtins, os, sys, torch
sys.modules["leak"] = builtins.leak = torch.leak = os.environ["LEAK"] = "here"
torch.set_default_dtype(torch.float64)
torch.Tensor.__mul__ = torch.Tensor.__add__
def run(x, factor):
    return torch.mul(x, factor)
"""
    looks = """\
import builtins, os, sys, torch
found = ["leak" in sys.modules, hasattr(builtins, "leak"), hasattr(torch, "leak"),
         "LEAK" in os.environ, torch.get_default_dtype() == torch.float64]
def run(x, factor):
    print(found)
    return x * factor
"""
    assert judge.evaluate(request_for(leaks)).status == "PASSED"
    evaluation = judge.evaluate(request_for(looks))
    assert evaluation.status == "PASSED"
    assert evaluation.log == "--- printed ---\n[False, False, False, False, False]"


def test_the_same_text_under_another_name_is_another_program(judge, definition, solution):
    text = """\
calls = []
def run(x, factor):
    calls.append(1)
    print(len(calls))
    return x * factor
"""
    workload = make_workload(definition, {"n": 10})
    for name in ("one", "two"):
        request = EvaluationRequest(
            definition=definition, solution=solution(text, name=name), workload=workload
        )
        assert judge.evaluate(request).log == "--- printed ---\n3"


def test_a_second_workload_does_not_load_the_implementation_again(judge, request_for, tmp_path):
    loads = tmp_path / "loads"
    text = f"open({str(loads)!r}, 'a').write('.')\n{GOOD}"
    for n, seed in ((10, 0), (10, 1), (20, 2), (5_000_000, 3)):
        assert judge.evaluate(request_for(text, n=n, seed=seed)).status == "PASSED"
    assert loads.read_text() == "."


def test_the_outputs_of_another_implementation_are_wiped(own_judge, request_for):
    assert own_judge.evaluate(request_for(GOOD)).status == "PASSED"
    looks = """\
import mmap, os
import torch
[fd] = [fd for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")
        and "arena" in os.readlink(f"/proc/self/fd/{fd}")]
found = bool(torch.frombuffer(mmap.mmap(int(fd), 0), dtype=torch.uint8).any())
def run(x, factor):
    print(found)
    return x * factor
"""
    assert own_judge.evaluate(request_for(looks)).log == "--- printed ---\nFalse"


def test_changed_inputs_are_told(judge, request_for):
    text = "def run(x, factor):\n    y = x * factor\n    x[3] += 1\n    return y\n"
    evaluation = judge.evaluate(request_for(text))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log == "wrote to its input 'x'"


def test_outputs_left_unwritten_are_told(judge, request_for):
    text = "def run(x, factor, out):\n    out[:400] = (x * factor)[:400]\n"
    evaluation = judge.evaluate(request_for(text, "destination"))
    assert evaluation.status == "INCORRECT_NUMERICAL"
    first = evaluation.log.splitlines()[0]
    assert first == "out: never written at n 400..999"
    assert evaluation.diagnosis.pattern == "unwritten"


SHAKY = """\
import torch
calls = []
def run(x, factor):
    calls.append(1)
    y = x * factor
    y[7::100] *= 1 + len(calls) * {step}
    return y
"""


def test_a_call_that_gives_other_bits_for_the_same_inputs_fails(judge, request_for, definition):
    shaky = SHAKY.format(step=2.0**-22)  # well within the bound
    evaluation = judge.evaluate(request_for(shaky))
    assert evaluation.status == "INCORRECT_NUMERICAL"
    first, *more = evaluation.log.splitlines()
    said = r"out: two calls on the same inputs gave other bits in \d+ of 1000 elements; out\[\d*7\]"
    assert re.match(said, first)
    assert not any("expected" in line for line in more)  # neither is wrong
    assert evaluation.diagnosis.pattern == "nondeterministic"
    free = definition.model_copy(update={"nondeterministic": True})
    assert judge.evaluate(request_for(shaky, of=free)).status == "PASSED"


def test_nondeterministic_calls_are_bounded_all_the_same(judge, request_for, definition):
    late = SHAKY.format(step="(len(calls) == 2)")  # the second call is wrong
    free = definition.model_copy(update={"nondeterministic": True})
    evaluation = judge.evaluate(request_for(late, of=free))
    assert evaluation.status == "INCORRECT_NUMERICAL"
    first = evaluation.log.splitlines()[0]
    assert first.startswith("out: 3 x expected at every 100th of n, from 7 on")
    assert first.endswith("(right on a first call, wrong on a second of the same inputs)")
    strict = judge.evaluate(request_for(f"# loaded anew\n{late}"))
    assert strict.diagnosis.pattern == "nondeterministic"
    assert "3 x expected" in strict.log


def test_outputs_left_unwritten_by_a_second_call_are_told_as_that(judge, request_for):
    once = """\
    calls = []
    def run(x, factor, out):
        calls.append(1)
        if len(calls) != 2:
            out.copy_(x * factor)
    """
    evaluation = judge.evaluate(request_for(once, "destination"))
    assert evaluation.log.splitlines()[0] == (
        "out: never written (right on a first call, wrong on a second of the same inputs)"
    )


def test_a_second_call_has_other_places_and_other_bytes_for_its_outputs(judge, request_for):
    looks = """\
    import torch
    seen = []
    def run(x, factor, out):
        seen.append((out.data_ptr(), x.data_ptr(), out.view(torch.uint8)[0].item()))
        out.copy_(x * factor)
        if len(seen) == 3:
            (a, x1, p), (b, x2, q), (c, x3, r) = seen
            print(a == b, a == c, x1 == x2 == x3, p, q, r)
    """
    log = judge.evaluate(request_for(looks, "destination")).log
    assert log == "--- printed ---\nFalse True True 229 85 85"


def test_of_two_different_failures_the_log_has_the_difference(judge, request_for):
    random = "import torch\ndef run(x, factor):\n    return torch.randn_like(x)\n"
    evaluation = judge.evaluate(request_for(random))
    assert evaluation.diagnosis.pattern == "nondeterministic"
    assert "out: wrong everywhere" in evaluation.log
    head = "import torch\ndef run(x, factor):\n    y = x * factor\n"
    tail = f"{head}    y[900:] = torch.randn_like(y[900:])\n    return y\n"
    evaluation = judge.evaluate(request_for(tail))
    assert evaluation.diagnosis.pattern == "last tile"
    assert "two calls on the same inputs gave other bits in 100 of 1000" in evaluation.log


def test_expected_values_are_computed_once_for_all_implementations(
    own_judge, request_for, definition, tmp_path
):
    """And again for another definition, another workload, and after a failure for yardsticks."""
    runs = tmp_path / "runs"
    count = f"    open({str(runs)!r}, 'a').write('.')\n"
    counting = referring(definition, GOOD.replace("    return", f"{count}    return"))

    def computed(text, **facts):
        runs.write_text("")
        own_judge.evaluate(request_for(text, **facts))
        return len(runs.read_text())

    assert computed(GOOD, of=counting) == 2  # for two inputs
    assert computed(f"# another\n{GOOD}", of=counting) == 0
    assert computed(GOOD, of=counting, seed=5) == 2
    # Again, yardsticks, the slow one too, and what the input may have been taken for.
    assert computed("def run(x, factor):\n    return x\n", of=counting) == 9
    assert own_judge.evaluate(request_for(GOOD)).status == "PASSED"
    assert computed(GOOD, of=counting) == 2


def test_expected_values_that_the_reference_gives_no_more_pass_nothing(
    own_judge, request_for, definition
):
    """Yardsticks of other values would make a bound that anything is within."""
    drifts = GOOD.replace("    return ", "    calls.append(1)\n    return len(calls) * ")
    drifting = referring(definition, f"calls = []\n{drifts}")
    assert own_judge.evaluate(request_for(GOOD, of=drifting)).status == "PASSED"
    fault = own_judge.evaluate(request_for("def run(x, factor):\n    return -x\n", of=drifting))
    assert "gave other values of out for the same inputs earlier" in fault.message


def test_what_the_reference_did_not_write_is_no_zero(own_judge, request_for, monkeypatch):
    """Memory that nobody wrote is zero at first, and was a right answer once."""
    context = "pytest_fib.engine._context.EvaluationContext"
    monkeypatch.setattr(f"{context}.ask_reference", lambda context, request: Done())
    zeros = "import torch\ndef run(x, factor):\n    return torch.zeros_like(x)\n"
    evaluation = own_judge.evaluate(request_for(zeros))
    assert evaluation.status == "INCORRECT_NUMERICAL"
    assert "expected nan" in evaluation.log


#: Wrong in its 20th call, as what comes after `sum` says.
TWENTIETH = """
calls = []

def run(x, factor):
    calls.append(1)
    out = x * factor
    if len(calls) == 20:
        {wrong}
    return out
"""


@pytest.mark.parametrize(
    ("wrong", "status", "first"),
    [
        (
            "out[7] = 0",
            "INCORRECT_NUMERICAL",
            r"out: two calls on the same inputs gave other bits in 1 of 1000 elements; "
            r"out\[7\] was \S+, then 0, the largest difference "
            r"\(right on a first call; this is repeat 9 of 19\)",
        ),
        (
            "raise ValueError('now and then')",
            "RUNTIME_ERROR",
            r"ValueError: now and then \(right on a first call; this is repeat 9 of 19\)",
        ),
    ],
)
def test_what_is_wrong_once_in_many_calls_is_found_by_many(
    own_judge, request_for, wrong, status, first
):
    text = TWENTIETH.format(wrong=wrong)
    evaluation = own_judge.evaluate(request_for(text, repeat=20))
    assert evaluation.status == status
    assert re.fullmatch(first, evaluation.diagnosis.sentence)
    assert own_judge.evaluate(request_for(f"{text}#", repeat=9)).status == "PASSED"


@pytest.mark.parametrize("large", [False, True])
def test_what_may_differ_is_wrong_in_a_repeat_only_if_it_is(
    own_judge, request_for, definition, large
):
    loose = definition.model_copy(update={"nondeterministic": True})
    text = TWENTIETH.format(wrong=f"out[7] += {'1' if large else '1e-7'} * abs(out[7])")
    evaluation = own_judge.evaluate(request_for(text, of=loose, repeat=20))
    assert evaluation.status == ("INCORRECT_NUMERICAL" if large else "PASSED")
    if large:
        assert "(right on a first call; this is repeat 9 of 19)" in evaluation.diagnosis.sentence


def test_repeats_cost_calls_and_no_references(own_judge, request_for, definition, tmp_path):
    runs = tmp_path / "runs"
    counting = "\n    open({!r}, 'a').write({!r})\n    return"
    text = GOOD.replace("\n    return", counting.format(str(runs), "c"))
    reference = GOOD.replace("\n    return", counting.format(str(runs), "r"))
    own_judge.evaluate(request_for(text, of=referring(definition, reference), repeat=20))
    assert sorted(runs.read_text()) == [*"c" * (2 * 20 + 1), *"r" * 2]


def test_large_expected_values_are_not_cached(own_judge, request_for):
    assert own_judge.evaluate(request_for(GOOD, n=3_000_000)).status == "PASSED"
    assert own_judge._caches.expected._entries == {}


@pytest.mark.parametrize(("n", "cached"), [(1000, 6), (100_000, 2)])
def test_the_oldest_expected_values_make_room(own_judge, request_for, monkeypatch, n, cached):
    monkeypatch.setattr("pytest_fib.engine._output_checker.CACHE_BYTES", 2 * 800_000)
    for seed in range(3):
        own_judge.evaluate(request_for(GOOD, n=n, seed=seed))
    cached_bytes = sum(expected.bytes for expected in own_judge._caches.expected._entries.values())
    assert cached_bytes == own_judge._caches.expected._bytes <= 2 * 800_000
    assert len(own_judge._caches.expected._entries) == cached


def test_wrong_outputs_that_were_written_are_not_told_to_be_unwritten(judge, request_for):
    text = "def run(x, factor):\n    return x.fill_(float('nan')).clone()\n"
    assert "never written" not in judge.evaluate(request_for(text)).log


@pytest.fixture(scope="module")
def local():
    with Judge("cpu", isolation="none") as judge:
        yield judge


@pytest.mark.parametrize(
    ("text", "calling"),
    [
        (GOOD, "value"),
        ("def run(x, factor, out):\n    out.copy_(x * factor)\n", "destination"),
        ("def run(x, factor, out):\n    pass\n", "destination"),
        ("def run(x, factor):\n    raise ValueError('boom')\n", "value"),
        ("def run(x, factor):\n    raise SystemExit(3)\n", "value"),
        ("def run(x, factor):\n    return x[1:]\n", "value"),
        ("def run(x, factor):\n    return x.double()\n", "value"),
        ("def run(x, factor):\n    x.zero_()\n    return x\n", "value"),
        ("c = {}\ndef run(x, factor):\n    return c.setdefault(x.shape, x * factor)\n", "value"),
        ("import nonesuch\n", "value"),
        ("def run(x, factor)\n", "value"),
    ],
)
def test_without_isolation_the_outcome_is_the_same(judge, local, request_for, text, calling):
    apart, here = (j.evaluate(request_for(text, calling)) for j in (judge, local))
    assert here.status == apart.status
    assert here.log.splitlines()[:1] == apart.log.splitlines()[:1]
    assert repr(here.correctness) == repr(apart.correctness)  # in which NaN equals NaN


def test_without_isolation_no_process_is_started(request_for, processes):
    before = processes()
    with Judge("cpu", isolation="none") as judge:
        judge.evaluate(request_for(GOOD))
        assert processes() <= before


def test_without_isolation_an_interrupt_reaches_the_caller(local, request_for):
    with pytest.raises(KeyboardInterrupt):
        local.evaluate(request_for("def run(x, factor):\n    raise KeyboardInterrupt\n"))
    assert local.evaluate(request_for(GOOD)).status == "PASSED"


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("hanging", ["implementation", "reference"])
def test_an_interrupt_ends_what_ran_and_the_judge_goes_on(
    own_judge, request_for, definition, tmp_path, lives, eventually, hanging
):
    flag = tmp_path / "flag"
    hang = f"def run(x, factor):\n    open({str(flag)!r}, 'w').write('')\n    while True: pass\n"
    request = request_for(hang)
    if hanging == "reference":
        request = request_for(GOOD, of=referring(definition, hang))
    pids = []

    def interrupt():
        eventually(flag.exists)
        side = own_judge._candidate if hanging == "implementation" else own_judge._reference
        pids.append(side.sandbox._child.pid)
        sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        own_judge.evaluate(request)
    thread.join()
    assert not any(map(lives, pids))
    assert own_judge.evaluate(request_for(GOOD)).status == "PASSED"


def test_closing_a_judge_leaves_no_process(request_for, processes):
    before = processes()
    judge = Judge("cpu")
    judge.evaluate(request_for(GOOD))
    assert processes() > before
    judge.close()
    assert processes() <= before


def test_a_judge_that_was_never_asked_can_be_closed(processes):
    before = processes()
    Judge("cpu").close()
    assert processes() <= before


@pytest.mark.thorough
def test_many_evaluations_leave_nothing_open_and_nobody_running(
    own_judge, request_for, processes, open_files
):
    """Of right ones, failing ones and crashing ones, on workloads of many sizes."""
    texts = [GOOD, "def run(x, factor):\n    1 / 0\n", "import os\nos._exit(1)\n"]

    def round_of(count):
        for i in range(count):
            text = texts[i * 3 // count]
            own_judge.evaluate(request_for(text, n=1000 + 500 * (i % 50), seed=i))

    round_of(9)
    files, running = len(open_files()), len(processes())
    round_of(201)
    assert len(open_files()) <= files
    assert len(processes()) <= running


SCRATCH = """\
name: scratch
op_type: toy
axes: {n: var}
inputs:
  x:    {shape: [n], dtype: float32}
  room: {shape: [n], dtype: float32}
outputs:
  out: {shape: [n], dtype: float32}
reference: |
  def run(x, room):
      room.copy_(x * 2)
      return room + 1
"""


@pytest.fixture
def scratch(tmp_path):
    """A definition with room for intermediate results among its inputs."""
    file = tmp_path / "scratch.yaml"
    file.write_text(SCRATCH, encoding="utf-8")
    [loaded] = load_definition_file(file)
    return loaded.definition


@pytest.mark.parametrize("timing", [False, True])
@pytest.mark.parametrize("body", ["room.copy_(x * 2); return room + 1", "return x * 2 + 1"])
def test_what_the_reference_writes_to_may_be_written_to(judge, solution, scratch, body, timing):
    workload = make_workload(scratch, {"n": 1000})
    text = f"def run(x, room):\n    {body}\n"
    request = EvaluationRequest(
        definition=scratch, solution=solution(text), workload=workload, timing=timing
    )
    evaluation = judge.evaluate(request)
    assert evaluation.status == "PASSED", evaluation.log


def test_a_reference_that_is_other_for_what_it_wrote_to_an_input_is_told_of_that(
    judge, solution, scratch
):
    text = "def run(x, room):\n    room.add_(x)\n    return room + 1\n"
    reference = f"import torch\n{text}"
    request = EvaluationRequest(
        definition=scratch.model_copy(update={"reference": reference}),
        solution=solution(text),
        workload=make_workload(scratch, {"n": 1000}),
    )
    evaluation = judge.evaluate(request)
    assert evaluation.diagnosis.pattern == "nondeterministic"
    assert evaluation.diagnosis.sentence.endswith("(the reference writes to its input 'room')")


def test_and_nothing_else(judge, solution, scratch):
    text = "def run(x, room):\n    room.copy_(x * 2); x.zero_()\n    return room + 1\n"
    request = EvaluationRequest(
        definition=scratch, solution=solution(text), workload=make_workload(scratch, {"n": 1000})
    )
    assert judge.evaluate(request).log == "wrote to its input 'x'"
