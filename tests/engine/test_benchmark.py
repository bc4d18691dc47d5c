"""What a record of timed calls holds, for all that can be called; no test looks at how long."""

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent

import pytest
import torch
from safetensors.torch import save_file

from pytest_fib.data import (
    Definition,
    DefinitionFault,
    EvaluationRequest,
    Performance,
    SafetensorsInput,
    TensorFiles,
    load_definition_file,
)
from pytest_fib.engine import Judge
from pytest_fib.sandbox import Blocks, Collect, Done, Prepare, Step
from pytest_fib.timing import Accounting, Timings
from pytest_fib.workloads import make_workload
from tests.sampling import one_in

GOOD = "def run(x, factor):\n    return x * factor\n"

#: Sums and differences: two outputs, tensors that may lie anyhow.
PAIR = """\
name: pair
op_type: toy
axes: {n: var, width: 4}
inputs:
  x: {shape: [n, width], dtype: float32}
  y: {shape: [n, width], dtype: float32}
outputs:
  sum:        {shape: [n, width], dtype: float32}
  difference: {shape: [n, width], dtype: float32}
reference: |
  def run(x, y):
      return x + y, x - y
workloads:
  axes: {n: {min: 0, max: 4096}}
  layouts: [row_strided, offset]
"""
#: No tensor among the inputs.
SCALARS = """\
name: scalars
op_type: toy
axes: {n: var}
inputs:
  start: {shape: null, dtype: float32}
  step:  {shape: null, dtype: int32}
outputs:
  out: {shape: [], dtype: float32}
reference: |
  import torch
  def run(start, step):
      return torch.tensor(start * step)
workloads:
  inputs: {start: {value: 2.5}, step: {value: 3}}
"""


@pytest.fixture
def define(tmp_path) -> Callable[[str], Definition]:
    """A definition from its text."""

    def define(text: str) -> Definition:
        file = tmp_path / "toy.yaml"
        file.write_text(text, encoding="utf-8")
        [loaded] = load_definition_file(file)
        return loaded.definition

    return define


@pytest.fixture
def timed(judge, solution) -> Callable[..., Performance]:
    """The performance of an implementation of a definition; it passes."""

    def timed(definition, axes, text, calling="value", judge=judge, regime=None, **facts):
        request = EvaluationRequest(
            definition=definition,
            solution=solution(dedent(text), calling),
            workload=make_workload(definition, axes, regime=regime),
            timing=True,
            precision="quick",
            **facts,
        )
        evaluation = judge.evaluate(request)
        assert evaluation.status == "PASSED", evaluation.log
        return evaluation.performance

    return timed


def holds(performance: Performance) -> None:
    """Whatever is timed, this is so."""
    more = performance.model_extra
    low, high = more["ci_ms"]
    assert 0 < low <= performance.latency_ms <= high
    low, high = more["reference_ci_ms"]
    assert 0 < low <= performance.reference_latency_ms <= high
    low, high = more["speedup_ci"]
    assert 0 < low <= performance.speedup_factor <= high
    assert 0 < more["p10_ms"] <= more["p90_ms"]
    assert more["noise_floor"] > 0
    assert more["noisy"] in {True, False}
    assert more["comparison"] in {"FASTER", "SLOWER", "SAME", "UNCLEAR"}
    assert more["samples"] >= 3 * more["placements"]
    assert more["samples"] % more["placements"] == 0
    assert more["placements"] >= 2
    calls = more["calls_per_block"]
    assert calls >= 1
    assert calls & (calls - 1) == 0
    assert 0 < more["device_time_ms"] < 3 * more["held_ms"]
    threads = torch.get_num_threads()
    method = f"cpu, {threads} thread{'s' * (threads != 1)}"
    assert more["method"] == more["reference_method"] == method
    assert more["unaccounted"] >= 0  # more than a little only on a busy machine


def test_a_record_has_all_there_is_to_say(timed, definition):
    found = timed(definition, {"n": 1000}, GOOD)
    holds(found)
    assert set(found.model_extra) >= {
        *("ci_ms", "reference_ci_ms", "speedup_ci", "comparison", "noise_floor", "noisy"),
        *("method", "reference_method", "p10_ms", "p90_ms", "samples", "placements"),
        *("calls_per_block", "device_time_ms", "held_ms", "unaccounted", "least_bytes"),
    }


@pytest.mark.parametrize(
    ("calling", "text"),
    [
        ("value", GOOD),
        ("destination", "def run(x, factor, out):\n    out.copy_(x * factor)\n"),
        *(
            pytest.param(calling, text, marks=pytest.mark.thorough)
            for calling, text in [
                ("value", "def run(x, factor):\n    return {'out': x * factor}\n"),
                ("tuple", "def run(data):\n    x, factor, out = data\n    out.copy_(x * factor)\n"),
                ("tuple", "def run(data):\n    x, factor, out = data\n    return x * factor\n"),
            ]
        ),
    ],
)
def test_every_way_of_calling_is_timed(timed, definition, calling, text):
    holds(timed(definition, {"n": 1000}, text, calling))


TWO = {
    "value": "def run(x, y):\n    return x + y, x - y\n",
    "destination": """
        import torch
        def run(x, y, sum, difference):
            torch.add(x, y, out=sum)
            torch.sub(x, y, out=difference)
        """,
}


@pytest.mark.parametrize(
    "layout",
    one_in(1, ["contiguous", "row_strided", "offset"], slow=["contiguous", "offset"]),
)
@pytest.mark.parametrize("calling", TWO)
@pytest.mark.thorough
def test_several_outputs_in_every_layout(timed, define, calling, layout):
    holds(timed(define(PAIR), {"n": 9}, TWO[calling], calling, regime={"layout": layout}))


@pytest.mark.parametrize("calling", TWO)
@pytest.mark.thorough
def test_where_there_is_nothing_to_make_nothing_is_timed(judge, solution, define, calling):
    definition = define(PAIR)
    made = solution(dedent(TWO[calling]), calling)
    request = EvaluationRequest(
        definition=definition,
        solution=made,
        workload=make_workload(definition, {"n": 0}),
        timing=True,
    )
    evaluation = judge.evaluate(request)
    assert (evaluation.status, evaluation.performance) == ("PASSED", None)
    assert evaluation.log == "not timed: its outputs are empty"


@pytest.mark.thorough
def test_scalars_only(timed, define):
    text = "import torch\ndef run(start, step):\n    return torch.tensor(start * step)\n"
    holds(timed(define(SCALARS), {"n": 1}, text))


@pytest.mark.thorough
def test_tensors_of_many_pages(timed, definition):
    holds(timed(definition, {"n": 3_000_001}, GOOD))


@pytest.mark.thorough
def test_threads_are_what_both_sides_were_given_whatever_a_candidate_says(timed, definition):
    """A time would not be compared with earlier ones that were measured another way."""
    text = "import torch\ntorch.set_num_threads(7)\n" + GOOD
    holds(timed(definition, {"n": 1000}, text))


@pytest.mark.thorough
def test_without_isolation(timed, definition, define):
    with Judge("cpu", "none") as judge:
        holds(timed(definition, {"n": 1000}, GOOD, judge=judge))
        holds(timed(define(PAIR), {"n": 9}, TWO["destination"], "destination", judge=judge))


@pytest.mark.thorough
def test_recorded_tensors(request_for, tmp_path):
    save_file({"values": torch.linspace(-1, 1, 1000)}, tmp_path / "recorded.safetensors")
    recorded = SafetensorsInput(path="recorded.safetensors", tensor_key="values")
    files = TensorFiles()
    tensors = {recorded.path: files.add(tmp_path / recorded.path)}
    request = request_for(GOOD, timing=True, precision="quick", tensors=tensors)
    inputs = {**request.workload.inputs, "x": recorded}
    workload = request.workload.model_copy(update={"inputs": inputs})
    with Judge("cpu", "none", files=files) as judge:
        evaluation = judge.evaluate(request.model_copy(update={"workload": workload}))
    assert evaluation.status == "PASSED", evaluation.log
    holds(evaluation.performance)


def test_what_is_not_to_be_benchmark_has_no_performance(judge, request_for):
    assert judge.evaluate(request_for(GOOD)).performance is None


def test_what_is_wrong_is_not_timed(judge, request_for):
    wrong = request_for("def run(x, factor):\n    return x + factor\n").model_copy(
        update={"timing": True}
    )
    evaluation = judge.evaluate(wrong)
    assert evaluation.status == "INCORRECT_NUMERICAL"
    assert "while it was timed" not in evaluation.log
    assert evaluation.performance is None


@pytest.mark.thorough
def test_benchmark_calls_change_nothing_for_the_next_evaluation(judge, request_for):
    for n in (1000, 3, 100_000):
        assert judge.evaluate(request_for(GOOD, n=n, timing=True)).status == "PASSED"
        assert judge.evaluate(request_for(GOOD, n=n, seed=1)).status == "PASSED"


LATER = """\
from itertools import count
calls = count()

def run(x, factor):
    if next(calls) > 10:
        {}
    return x * factor
"""


@pytest.mark.parametrize(
    ("then", "status", "said"),
    [
        ("raise ValueError('boom')", "RUNTIME_ERROR", "ValueError: boom"),
        ("import os; os._exit(3)", "RUNTIME_ERROR", "the process exited with code 3"),
        pytest.param(
            "import ctypes; ctypes.string_at(0)",
            "RUNTIME_ERROR",
            "the process was killed by SIGSEGV",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "while True: pass",
            "TIMEOUT",
            "no answer within 2 s (--fib-timeout)",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "return None",
            "RUNTIME_ERROR",
            "out is None, not a torch.Tensor; is a return missing?",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "return x[1:]",
            "INCORRECT_SHAPE",
            "out: got [999], expected [1000]",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            "return x.double()",
            "INCORRECT_DTYPE",
            "out: got float64, expected float32",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_what_fails_when_it_is_timed_is_named_and_the_next_is_right(
    judge, request_for, then, status, said
):
    failing = request_for(LATER.format(then), timeout=2 if status == "TIMEOUT" else 30)
    evaluation = judge.evaluate(failing.model_copy(update={"timing": True}))
    assert (evaluation.status, evaluation.log.splitlines()[0]) == (status, said)
    assert evaluation.performance is None
    after = judge.evaluate(request_for(GOOD, timing=True))
    assert after.status == "PASSED"
    holds(after.performance)


@pytest.mark.parametrize(
    ("then", "said"),
    [
        pytest.param("raise ValueError('boom')", "ValueError: boom", marks=pytest.mark.thorough),
        ("import os; os._exit(3)", "the process exited with code 3"),
    ],
)
def test_a_reference_that_fails_when_it_is_timed_is_the_definitions_error(
    judge, request_for, definition, then, said
):
    broken = definition.model_copy(update={"reference": LATER.format(then)})
    fault = judge.evaluate(request_for(GOOD, of=broken, timing=True))
    assert isinstance(fault, DefinitionFault)
    where = "the reference of scale_float32 failed while it was timed"
    assert fault.message == f"{where}: {said}"
    assert judge.evaluate(request_for(GOOD, timing=True)).status == "PASSED"


VIEW = """\
name: view
op_type: toy
axes: {{n: var, width: 8}}
inputs:
  x: {{shape: [n, width], dtype: float32}}
outputs:
  out: {{shape: [width, n], dtype: float32}}
reference: |
  def run(x):
      return x.t(){}
"""


def test_a_view_of_an_input_is_returned_where_the_reference_returns_one(define, judge, request_for):
    text = "def run(x):\n    return x.t()\n"
    view, copied = (define(VIEW.format(more)) for more in ("", ".contiguous()"))
    asked = {"n": 8, "timing": True}
    assert judge.evaluate(request_for(text, of=view, **asked)).status == "PASSED"
    lazy = judge.evaluate(request_for(text, of=copied, **asked))
    where = "(while it was timed, and read once its inputs were cleared)"
    first = lazy.log.splitlines()[0]  # some of its inputs may be 0
    assert first.startswith(("out: zeros everywhere", "out: zeros wherever 0 isn't expected")), (
        first
    )
    assert first.endswith(where)


class Listening:
    """A sandbox that notes what it is asked."""

    def __init__(self, sandbox, log):
        self._sandbox = sandbox
        self._log = log

    def __getattr__(self, name):
        return getattr(self._sandbox, name)

    def ask(self, request, timeout, file=None):
        reply = self._sandbox.ask(request, timeout, file)
        if isinstance(request, (Prepare, Blocks, Collect, Step)):
            self._log.append((request, reply))
        return reply


@pytest.fixture
def exchanged(fork_server):
    """What the sides are asked for a timed evaluation, maybe after another, and what they say."""

    def exchanged(request, before=None):
        said = {"candidate": [], "reference": []}
        with Judge("cpu", fork_server=fork_server) as judge:
            if before is not None:
                first = judge.evaluate(before)
                assert first.status == "PASSED", first.log
            for side, log in said.items():
                mine = getattr(judge, f"_{side}")
                setattr(judge, f"_{side}", replace(mine, sandbox=Listening(mine.sandbox, log)))
            assert judge.evaluate(request).status == "PASSED"
        return said

    return exchanged


@pytest.fixture
def exchange(exchanged, request_for):
    """The same of a kernel that is as fast as the reference."""
    return exchanged(request_for(GOOD, timing=True))


def test_both_sides_are_asked_alike(exchange):
    kinds = {side: [type(request) for request, _ in log] for side, log in exchange.items()}
    assert all(isinstance(reply, Done) for log in exchange.values() for _, reply in log)
    for kind in (Prepare, Blocks):
        assert kinds["candidate"].count(kind) == kinds["reference"].count(kind) >= 1
    # Twice more of the reference, to see whether its outputs lie in its inputs.
    assert kinds["candidate"].count(Collect) == kinds["reference"].count(Collect) - 2 >= 1


@pytest.mark.thorough
def test_calls_that_seem_slow_by_themselves_are_made_again_more_often(
    exchanged, request_for, monkeypatch
):
    """In turn with the reference's, and less what turns without a call take at these moments."""
    monkeypatch.setattr("pytest_fib.engine._benchmark.STEPPED_BELOW_NS", 1e12)
    said = iter(["slow"])
    check = "pytest_fib.engine._benchmark.check_stepped_calls"
    monkeypatch.setattr(check, lambda *_: next(said, ""))
    exchange = exchanged(request_for(GOOD, timing=True))
    steps = {side: [r for r, _ in log if isinstance(r, Step)] for side, log in exchange.items()}
    assert len(steps["candidate"]) >= 10
    assert [step.idle for step in steps["reference"]] == [True, False] * len(steps["candidate"])


@pytest.mark.thorough
def test_what_is_known_of_a_reference_is_not_measured_again(request_for, exchanged):
    """Another implementation, and then another workload of the same definition."""
    other = GOOD.replace("x * factor", "factor * x")
    for n, fewer in ((1000, 1), (2000, 0)):
        again = exchanged(request_for(other, n=n, timing=True), request_for(GOOD, timing=True))
        count = {side: [type(request) for request, _ in log] for side, log in again.items()}
        prepared = [count[side].count(Prepare) for side in ("candidate", "reference")]
        assert prepared[0] - prepared[1] == fewer
        collected = [count[side].count(Collect) for side in ("reference", "candidate")]
        assert collected[0] - collected[1] == 2 * (1 - fewer)


def test_the_reference_makes_any_of_the_candidates_calls(request_for, definition, exchanged):
    """Nobody is to know which calls of a candidate's block are compared with its."""
    slow = (
        "def run(x, factor):\n    for _ in range(100):\n        x = x * 1\n    return x * factor\n"
    )
    slower = definition.model_copy(update={"reference": slow})
    said = exchanged(request_for(GOOD, of=slower, timing=True))
    asked, fewer = ([r for r, _ in said[side] if isinstance(r, Prepare)][1] for side in said)
    assert fewer.size < asked.size
    starts = [b - a for a, b in zip(asked.groups, fewer.groups, strict=True)]
    assert any(starts)
    assert all(0 <= start <= asked.size - fewer.size for start in starts)


def test_every_call_of_a_round_has_tensors_of_its_own(exchange):
    for log in exchange.values():
        request = [request for request, _ in log if isinstance(request, Prepare)][1]
        calls = [group + i for group in request.groups for i in range(request.size)]
        assert len(set(calls)) == len(calls)
        assert request.stride > 2 * 4 * 1000


@pytest.fixture
def accounts(monkeypatch):
    """What the judge's clock says of the candidate, measurement after measurement.

    Gives the pauses between these.
    """

    def accounts(*said):
        left, known, pauses = iter(said), {}, []
        usual = Timings.accounting.func

        def accounting(timings):
            if timings not in known:
                known[timings] = next(left, None) or usual(timings)
            return known[timings]

        monkeypatch.setattr(Timings, "accounting", property(accounting))
        monkeypatch.setattr("pytest_fib.engine._benchmark.sleep", pauses.append)
        # What calls made one by one show is another check. Without pauses, a moment in which the
        # machine is busy would last through all attempts.
        monkeypatch.setattr("pytest_fib.engine._benchmark.STEPPED_BELOW_NS", 0.0)
        return pauses

    return accounts


HIDDEN = Accounting(
    calls_ns=1e6, blocks_ns=1e6, hidden_ns=5e5, error_ns=1e3, other_error_ns=1e3, allowed_ns=5e4
)
FAR_OFF = Accounting(
    calls_ns=1e6, blocks_ns=1e6, hidden_ns=4e6, error_ns=1e3, other_error_ns=1e3, allowed_ns=5e4
)
#: As far, by what a few of its rounds say that differ by nearly as much.
OFF_BY_FEW_ROUNDS = replace(FAR_OFF, error_ns=1.1e6)
#: As far, where the reference's rounds differ by nearly as much.
OFF_ON_A_BUSY_MACHINE = replace(FAR_OFF, other_error_ns=3.5e6)
#: A candidate gains nothing by rounds that take longer now and then.
NOISY = Accounting(
    calls_ns=1e6, blocks_ns=1e6, hidden_ns=5e5, error_ns=4e6, other_error_ns=1e3, allowed_ns=5e4
)


@pytest.mark.thorough
def test_what_disagrees_once_is_timed_again_later(accounts, timed, definition):
    pauses = accounts(HIDDEN, HIDDEN)
    assert timed(definition, {"n": 64}, GOOD).latency_ms > 0
    assert pauses[:2] == [0.1, 0.5]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            HIDDEN,
            "its times are false: rounds of calls take 1 ms by their own clock, "
            "1.5 ms by the judge's clock",
        ),
        (
            FAR_OFF,
            "its times are false: rounds of calls take 1 ms by their own clock, "
            "5 ms by the judge's clock",
        ),
        (
            OFF_BY_FEW_ROUNDS,
            "its times are false: rounds of calls take 1 ms by their own clock, "
            "5 ms by the judge's clock",
        ),
        pytest.param(
            OFF_ON_A_BUSY_MACHINE,
            "its times are false: rounds of calls take 1 ms by their own clock, "
            "5 ms by the judge's clock",
            marks=pytest.mark.thorough,
        ),
        pytest.param(
            NOISY,
            "its times are false: rounds of calls take 1 ms by their own clock, "
            "1.5 ms by the judge's clock",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_where_that_goes_on_it_is_refused(accounts, judge, request_for, said, why):
    pauses = accounts(*[said] * 100)
    evaluation = judge.evaluate(request_for(GOOD, timing=True))
    assert (evaluation.status, evaluation.log.splitlines()[0]) == ("RUNTIME_ERROR", why)
    assert pauses == [0.1, 0.5, 2.0][: 1 if said is FAR_OFF else None]
    assert evaluation.performance is None


@pytest.fixture
def read_in_time(monkeypatch):
    """Have reading outputs take as long as it should, on however busy a machine."""
    monkeypatch.setattr("pytest_fib.engine._cheat_checks.late_ns", lambda *_: 0.0)


@pytest.mark.thorough
def test_what_may_be_waits_for_a_core_is_timed_more_often(
    accounts, read_in_time, timed, definition
):
    pauses = accounts(*[replace(HIDDEN, other_waited_ns=6e5)] * 5)
    assert timed(definition, {"n": 64}, GOOD).latency_ms > 0
    assert pauses[:5] == [0.1, 0.5, 2.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("said", "tries"),
    [
        (replace(HIDDEN, other_waited_ns=6e5), 8),
        pytest.param(replace(HIDDEN, other_waited_ns=4e5), 4, marks=pytest.mark.thorough),
        pytest.param(replace(FAR_OFF, other_waited_ns=5e6), 2, marks=pytest.mark.thorough),
    ],
)
def test_it_is_refused_where_that_goes_on_or_waits_are_shorter(
    accounts, read_in_time, judge, request_for, said, tries
):
    pauses = accounts(*[said] * 100)
    assert judge.evaluate(request_for(GOOD, timing=True)).status == "RUNTIME_ERROR"
    assert pauses == [0.1, 0.5, 2.0, 1.0, 2.0, 2.0, 4.0][: tries - 1]


@pytest.mark.parametrize("times", [2, pytest.param(5, marks=pytest.mark.thorough)])
def test_reading_that_takes_long_while_the_machine_is_busy_is_measured_again(
    accounts, timed, definition, monkeypatch, times
):
    busy = Accounting(1e6, 1e6, hidden_ns=0.0, error_ns=1e3, other_error_ns=1e12, allowed_ns=5e4)
    pauses = accounts(*[busy] * times)
    measured = []

    def late_ns(readings, timings, calls):
        if timings not in measured:
            measured.append(timings)
        return 1e6 if timings in measured[:times] else 0.0

    monkeypatch.setattr("pytest_fib.engine._cheat_checks.late_ns", late_ns)
    assert timed(definition, {"n": 64}, GOOD).latency_ms > 0
    assert pauses[:times] == [0.1, 0.5, 2.0, 1.0, 2.0][:times]


@pytest.mark.thorough
def test_on_a_busy_machine_what_is_uncertain_is_in_the_intervals(accounts, timed, definition):
    busy = Accounting(1e6, 1e6, hidden_ns=2e6, error_ns=2e6, other_error_ns=2e6, allowed_ns=5e4)
    # As often as blocks are prepared: again where the first rough times were slow.
    pauses = accounts(*[busy] * 100)
    found = timed(definition, {"n": 64}, GOOD)
    assert pauses[:3] == [0.1, 0.5, 2.0]  # it may not be as busy a little later
    assert found.model_extra["unaccounted"] == pytest.approx(4, rel=0.01)
    assert found.model_extra["speedup_ci"][0] < found.speedup_factor / 4
    assert found.model_extra["comparison"] != "FASTER"
