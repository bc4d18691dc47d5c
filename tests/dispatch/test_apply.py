"""apply: which implementation a call goes to, and that the fallback serves all others."""

import gc
import inspect
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from pytest_fib import (
    TraceSet,
    apply,
    disable_apply,
    disable_tracing,
    enable_apply,
    enable_tracing,
)
from pytest_fib.data import Definition, Evaluation, Solution, SourceFile, Trace, Workload
from pytest_fib.dispatch import DefinitionStats, stats
from pytest_fib.timing import processor

ROOT = Path(__file__).parents[2]
HERE = "this machine"
DEFINITION = Definition.model_validate(
    {
        "name": "scale_add",
        "op_type": "elementwise",
        "axes": {"n": "var", "width": 4},
        "inputs": {
            "x": {"shape": ["n", "width"], "dtype": "float32"},
            "weight": {"shape": ["width"], "dtype": "float32"},
            "factor": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "width"], "dtype": "float32"}},
        "reference": "def run(x, weight, factor):\n    return x * factor + weight\n",
    }
)
# Each adds a mark of its own, too small for a verdict and large enough to tell.
SOURCES = {
    "small": "def run(x, weight, factor):\n    return x * factor + weight + 1e-7\n",
    "large": "def run(x, weight, factor):\n    return {'y': x * factor + weight + 2e-7}\n",
    "into": "def run(x, weight, factor, y):\n    y.copy_(x * factor + weight + 3e-7)\n",
    "raising": "def run(x, weight, factor):\n    raise RuntimeError('no luck\\nat all')\n",
    "unbuildable": "import nothing_like_it\n",
    "later": "calls = []\ndef run(x, weight, factor):\n    calls.append(1)\n"
    "    if len(calls) == 3:\n        raise ValueError('third')\n    return x * factor + weight\n",
    "wrong": "def run(x, weight, factor):\n    return x + factor + weight\n",
    "misshapen": "def run(x, weight, factor):\n    return (x * factor)[1:]\n",
    "nothing": "def run(x, weight, factor):\n    x * factor + weight\n",
}
#: Another thread may end routing while a call is on its way: these do that themselves.
ENDING = """\
import pytest_fib
calls = []
def run(x, weight, factor):
    calls.append(1)
    if len(calls) == {at}:
        pytest_fib.disable_apply()
        {then}
    return x * factor + weight
"""
SOURCES |= {
    f"{then} at {at}": ENDING.format(at=at, then=then)
    for at in (1, 2)
    for then in ("pass", "raise ValueError")
}
ENDS = """\
import os, signal
calls = []
def run(x, weight, factor):
    calls.append(1)
    if len(calls) == {at}:
        {end}
    return x * factor + weight
"""
SOURCES |= {
    f"{word} at {at}": ENDS.format(at=at, end=end)
    for at in (1, 2)
    for word, end in {
        "exits": "raise SystemExit(3)",
        "signals": "os.kill(os.getpid(), signal.SIGUSR1)",
    }.items()
}
SOURCES["exits when imported"] = "raise SystemExit(3)\n"
MARKS = {"small": 1e-7, "large": 2e-7, "into": 3e-7, "fallback": 0.0}


def solution(name):
    return Solution.model_validate(
        {
            "name": name,
            "definition": "scale_add",
            "author": "tests",
            "spec": {
                "language": "python",
                "target_hardware": ["cpu"],
                "entry_point": "main.py::run",
                "destination_passing_style": name == "into",
            },
            "sources": [{"path": "main.py", "content": SOURCES[name]}],
        }
    )


def trace(name, n, latency, hardware=HERE):
    evaluation = {
        "status": "PASSED",
        "hardware": hardware,
        "max_relative_error": 0.0,
        "latency_ms": latency,
        "speedup_factor": 1.0,
    }
    return Trace(
        definition="scale_add",
        workload=Workload(axes={"n": n}),
        solution=name,
        evaluation=Evaluation.model_validate(evaluation),
    )


def trace_set(*measured):
    names = dict.fromkeys(name for name, *_ in measured)
    traces = [trace(*each) for each in measured]
    return TraceSet([DEFINITION], [solution(name) for name in names], traces=traces)


def fallback(x, weight, factor=2.0):
    """Scale and add."""
    if factor is None:
        raise TypeError("the fallback's own error")
    return x * factor + weight


@pytest.fixture
def routed():
    yield apply("scale_add")(fallback)
    disable_apply()


def inputs(n):
    return torch.zeros(n, 4), torch.zeros(4), 2.0


def server(function, n):
    """Who served a call, by its mark."""
    mark = function(*inputs(n)).max().item()
    return next(name for name, value in MARKS.items() if abs(mark - value) < 1e-9)


def test_disabled_it_is_the_fallback(routed):
    assert server(routed, 4) == "fallback"
    assert (routed.__name__, routed.__doc__) == ("fallback", "Scale and add.")
    assert inspect.signature(routed) == inspect.signature(fallback)
    assert stats() == {}


def test_calls_go_to_the_best_at_the_shape_or_the_nearest_within_a_factor(routed):
    measured = trace_set(("small", 8, 1.0), ("large", 8, 2.0), ("large", 64, 1.0))
    with enable_apply(measured, hardware=HERE):
        served = {n: server(routed, n) for n in (8, 9, 4, 3, 40, 64, 128, 129)}
        assert stats()["scale_add"].misses == 2
        assert stats()["scale_add"].hits == 6
    assert {n for n in served if served[n] == "small"} == {4, 8, 9}
    assert {n for n in served if served[n] == "large"} == {40, 64, 128}
    assert {n for n in served if served[n] == "fallback"} == {3, 129}
    assert server(routed, 8) == "fallback"


def test_how_near_the_nearest_shape_has_to_be_is_given(routed):
    measured = trace_set(("small", 8, 1.0))
    with enable_apply(measured, within=4, hardware=HERE):
        served = [server(routed, n) for n in (1, 2, 32, 33)]
    assert served == ["fallback", "small", "small", "fallback"]
    with pytest.raises(ValueError, match="within should be a factor of at least 1"):
        enable_apply(measured, within=0.5)


def test_the_policy_may_be_exact_or_a_function(routed):
    measured = trace_set(("small", 8, 1.0), ("large", 8, 2.0))
    with enable_apply(measured, policy="exact", hardware=HERE):
        assert [server(routed, n) for n in (8, 9)] == ["small", "fallback"]
    with enable_apply(measured, policy=lambda shape, known: known[8,][::-1], hardware=HERE):
        assert [server(routed, n) for n in (8, 1000)] == ["large", "large"]
    with pytest.raises(ValueError, match="'best' is not one of exact, nearest"):
        enable_apply(measured, policy="best")


def test_only_what_was_measured_on_this_hardware_counts(routed):
    with enable_apply(trace_set(("small", 8, 1.0, "NVIDIA H200"))):
        assert server(routed, 8) == "fallback"


def test_arguments_by_position_and_by_name_in_any_order(routed):
    @apply("scale_add")
    def swapped(factor, x, *, weight):
        return fallback(x, weight, factor)

    x, weight, factor = inputs(8)
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        for _ in range(2):
            assert routed(x, weight).max() > 0
            assert routed(weight=weight, x=x, factor=factor).max() > 0
            assert swapped(factor, weight=weight, x=x).max() > 0
        assert stats()["scale_add"].hits == 6


@pytest.mark.parametrize("name", ["small", "large", "into"])
def test_every_calling_convention_serves_both_styles(name):
    @apply("scale_add")
    def in_place(x, weight, factor, y):
        y.copy_(x * factor + weight)

    returning = apply("scale_add")(fallback)
    with enable_apply(trace_set((name, 8, 1.0)), hardware=HERE):
        for _ in range(3):
            y = torch.empty(8, 4)
            assert in_place(*inputs(8), y) is None
            assert abs(y.max().item() - MARKS[name]) < 1e-9
            assert server(returning, 8) == name
        assert stats()["scale_add"].hits == 6
    disable_apply()


def test_inputs_may_have_any_name():
    names = {"table": "x", "key": "weight", "entry": "factor"}
    source = SOURCES["small"].replace("(x, weight, factor)", "(table, key, entry)")
    source = source.replace("x * factor + weight", "table * entry + key")
    changes = {"inputs": {new: DEFINITION.inputs[old] for new, old in names.items()}}
    other = DEFINITION.model_copy(update=changes)
    kernel = solution("small").model_copy(
        update={"sources": [SourceFile(path="main.py", content=source)]}
    )
    made = TraceSet([other], [kernel], traces=[trace("small", 8, 1.0)])

    def named(table, key, entry):
        return table * entry + key

    by_shape = apply(lambda key: "scale_add" if key.shape[0] == 4 else "other")(named)
    plain = apply("scale_add")(named)
    with enable_apply(made, hardware=HERE):
        assert [server(function, 8) for function in (plain, plain, by_shape)] == ["small"] * 3
    disable_apply()


def test_the_call_form_and_names_from_arguments():
    by_shape = apply(lambda x, weight: "scale_add" if weight.shape[0] == 4 else "other")(fallback)
    assert server(by_shape, 8) == "fallback"
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        assert apply("scale_add", *inputs(8), fallback=fallback).max() > 0
        x, weight, _ = inputs(8)
        assert apply("scale_add", fallback=fallback, weight=weight, x=x).max() > 0
        assert server(by_shape, 8) == "small"
        assert by_shape(torch.zeros(8, 5), torch.zeros(5)).max() == 0
        assert stats()["scale_add"].hits == 3
        together = apply("scale_add", args=(x, weight), kwargs={"factor": 2.0}, fallback=fallback)
        assert together.max() > 0
    with pytest.raises(TypeError, match="needs fallback="):
        apply("scale_add", *inputs(8))
    disable_apply()


def test_a_decorator_without_a_name_says_what_it_takes():
    with pytest.raises(TypeError, match=r"takes the name of a definition, .*, not 3$"):
        apply(3)

    @apply
    def scaled(x, factor):
        return x * factor

    for call in (
        lambda: scaled(torch.ones(3)),
        lambda: scaled(1, 2),
        lambda: scaled(x=1, factor=2),
    ):
        with pytest.raises(
            TypeError, match=r"with a definition's name: @apply\('rmsnorm_d4096'\)$"
        ):
            call()


def test_what_names_no_definition_goes_to_the_fallback_and_is_logged_once(caplog):
    routed = apply(lambda x, weight: f"scale_add{x.shape[1]}")(fallback)
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        for _ in range(2):
            assert routed(torch.ones(3), torch.zeros(3)).tolist() == [2.0] * 3
    (message,) = caplog.messages
    assert message.endswith("calls go to the fallback: IndexError: tuple index out of range")


def test_what_fails_is_quarantined_and_logged_once(routed, caplog):
    measured = trace_set(
        ("unbuildable", 8, 1.0),
        ("raising", 8, 2.0),
        ("misshapen", 8, 2.5),
        ("nothing", 8, 2.7),
        ("small", 8, 3.0),
    )
    with enable_apply(measured, hardware=HERE), caplog.at_level(logging.WARNING):
        assert [server(routed, n) for n in (8, 8, 9)] == ["small"] * 3
        errors = stats()["scale_add"].errors
    assert errors == {
        "unbuildable": "ModuleNotFoundError: No module named 'nothing_like_it'",
        "raising": "RuntimeError: no luck",
        "misshapen": "ValueError: y: got [7, 4], expected [8, 4]",
        "nothing": "ValueError: y is NoneType, not a torch.Tensor",
    }
    assert len(caplog.records) == 4


def test_all_can_be_built_before_the_first_call(routed):
    measured = trace_set(("unbuildable", 8, 1.0), ("small", 8, 2.0), ("large", 64, 1.0))
    with enable_apply(measured, hardware=HERE) as applied:
        applied.build("cpu")
        assert set(applied.kernels.quarantined) == {"unbuildable"}
        assert server(routed, 64) == "large"
        assert server(routed, 8) == "small"


def test_what_fails_later_costs_no_call(routed):
    with enable_apply(trace_set(("later", 8, 1.0)), hardware=HERE):
        for _ in range(5):
            assert torch.equal(routed(*inputs(8)), fallback(*inputs(8)))
        counted = stats()["scale_add"]
    assert counted.errors == {"later": "ValueError: third"}
    assert counted.fallbacks == {"raised": 1, "quarantined": 2}
    assert (counted.hits, counted.solutions) == (2, {"later": 2})


def operators():
    return [name for name in torch._C._dispatch_get_all_op_names() if "pytest_fib_apply" in name]


def test_functions_that_each_call_makes_anew_are_routed_once():
    x, weight, factor = inputs(8)

    def call():
        def named(x):
            return f"scale_{'add' if x.shape[1] == 4 else 'none'}"

        def own(x, weight, factor):
            return x * factor + weight

        return apply(named, x, weight, factor, fallback=own).max().item()

    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        assert call() == pytest.approx(MARKS["small"])
        before = operators()
        assert [call() for _ in range(9)] == [pytest.approx(MARKS["small"])] * 9
        assert operators() == before
        assert stats()["scale_add"].hits == 10


def test_methods_are_routed_once_for_each_object_and_keep_none(monkeypatch):
    """A model has a layer for each call, and may have more than fallbacks are remembered."""
    monkeypatch.setattr("pytest_fib.dispatch._apply.MOST_FALLBACKS", 2)

    class Layer:
        def native(self, x, weight, factor):
            return fallback(x, weight, factor)

        def forward(self, *arguments):
            return apply(lambda x: "scale_add", *arguments, fallback=self.native)

    asked = []

    def policy(shape, measured):
        asked.append(shape)
        return measured[shape]

    layers = [Layer() for _ in range(5)]
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE, policy=policy):
        for layer in layers * 3:
            assert server(layer.forward, 8) == "small"
        assert len(asked) == 5
        references = list(map(weakref.ref, layers))
        del layer, layers
        gc.collect()
        assert [reference() for reference in references] == [None] * 5


def test_functions_of_one_text_that_hold_other_values_are_told_apart():
    def by_closure(value):
        return lambda x, weight, factor: value

    def by_default(value):
        return lambda x, weight, factor=value: factor

    x, weight, factor = inputs(3)
    with enable_apply(trace_set(("small", 64, 1.0)), hardware=HERE):
        for value in (1.0, 2.0):
            given = (x, weight, factor)
            assert apply("scale_add", *given, fallback=by_closure(value)) == value
            assert apply("scale_add", *given[:2], fallback=by_default(value)) == value


def test_enabling_again_defines_no_more_operators(routed):
    measured = trace_set(("small", 8, 1.0))
    with enable_apply(measured, hardware=HERE):
        server(routed, 8)
    before = operators()
    with enable_apply(measured, hardware=HERE):
        assert server(routed, 8) == "small"
    assert operators() == before


@dataclass
class Unhashable:
    more: float

    def __call__(self, x, weight, factor):
        return x * factor + weight + self.more


def test_a_fallback_may_be_an_object_that_cannot_be_hashed():
    first, second = Unhashable(1.0), Unhashable(2.0)
    for _ in range(2):
        assert apply("scale_add", *inputs(8), fallback=first).max() == 1
        assert apply("scale_add", *inputs(8), fallback=second).max() == 2


@pytest.mark.parametrize("own", [torch.add, lambda *inputs: sum(inputs)])
def test_a_fallback_that_does_not_say_what_it_takes_serves_and_is_logged(own, caplog):
    with caplog.at_level(logging.WARNING):
        function = apply("scale_add")(own)
        with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
            assert function(torch.ones(8), torch.ones(8)).tolist() == [2.0] * 8
    assert "without parameters of its own can't be routed" in caplog.text


def test_tensors_without_values_go_to_the_fallback(routed):
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        x, weight, factor = inputs(8)
        assert routed(x.to("meta"), weight.to("meta"), factor).device.type == "meta"
        assert stats()["scale_add"].fallbacks == {"unlike": 1}
        assert server(routed, 8) == "small"


@pytest.mark.parametrize("policy", [lambda shape, measured: 1 / 0, lambda shape, measured: None])
def test_a_policy_that_fails_costs_no_call_and_is_logged_once(routed, caplog, policy):
    measured = trace_set(("small", 8, 1.0))
    with (
        caplog.at_level(logging.WARNING),
        enable_apply(measured, hardware=HERE, policy=policy),
    ):
        assert [server(routed, n) for n in (8, 8, 9)] == ["fallback"] * 3
        assert stats()["scale_add"].fallbacks == {"no choice": 3}
    assert len(caplog.records) == 1


def test_a_trace_without_sizes_is_near_to_no_call(routed, tmp_path):
    trace_set(("small", 8, 1.0)).to_path(tmp_path)
    (file,) = tmp_path.rglob("traces/**/*.jsonl")
    file.write_text(file.read_text() + file.read_text().replace('"axes":{"n":8}', '"axes":{}'))
    with enable_apply(tmp_path, hardware=HERE):
        assert [server(routed, n) for n in (8, 9, 99)] == ["small", "small", "fallback"]


def test_what_fails_under_one_fallback_is_called_under_no_other(routed):
    elsewhere = apply("scale_add")(fallback)
    with enable_apply(trace_set(("later", 8, 1.0), ("small", 8, 2.0)), hardware=HERE):
        for function in (elsewhere, routed, routed):  # of which the last raises
            function(*inputs(8))
        assert server(elsewhere, 8) == "small"
        assert stats()["scale_add"].solutions["later"] == 2


@pytest.mark.parametrize("copied", [1, 3])
def test_a_call_outlives_that_there_is_no_memory_to_verify_it(routed, monkeypatch, caplog, copied):
    """A server takes all that its device has: then inputs can't be copied, or outputs."""
    clone, copies = torch.Tensor.clone, iter(range(10))

    def scarce(tensor):
        if next(copies) + 1 == copied:
            raise torch.OutOfMemoryError("no memory left")
        return clone(tensor)

    with (
        caplog.at_level(logging.WARNING),
        enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE, shadow=1.0) as applied,
    ):
        assert server(routed, 8) == "small"
        monkeypatch.setattr(torch.Tensor, "clone", scarce)
        assert server(routed, 8) == "small"
        monkeypatch.undo()
        applied.verify_pending()
        assert stats()["scale_add"].shadowed == 0
    assert [record.message for record in caplog.records] == [
        "scale_add: calls can't be copied, and aren't verified: no memory left"
    ]


@pytest.mark.parametrize("shadow", [0, 1])
def test_an_implementation_ends_no_process(routed, shadow):
    """Not when it is imported, not at its first call, and not later."""
    names = ("exits when imported", "exits at 1", "exits at 2")
    measured = trace_set(*[(name, 8, float(i)) for i, name in enumerate(names, 1)])
    with enable_apply(measured, hardware=HERE, shadow=shadow):
        for _ in range(3):
            assert torch.equal(routed(*inputs(8)), fallback(*inputs(8)))
        assert stats()["scale_add"].errors == dict.fromkeys(names, "SystemExit: 3")


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("ending", [KeyboardInterrupt, SystemExit])
def test_the_end_that_a_signal_asks_for_is_no_fault(routed, monkeypatch, at, ending):
    def end(number, frame):
        raise ending

    before = signal.signal(signal.SIGUSR1, end)
    try:
        with enable_apply(trace_set((f"signals at {at}", 8, 1.0)), hardware=HERE):
            for _ in range(at - 1):
                routed(*inputs(8))
            with pytest.raises(ending):
                routed(*inputs(8))
            assert stats().get("scale_add", DefinitionStats()).errors == {}
    finally:
        signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("shadow", [0, 1])
@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith(("pass", "raise V"))])
def test_a_call_outlives_what_it_is_routed_by(routed, name, shadow):
    enable_apply(trace_set((name, 8, 1.0)), hardware=HERE, shadow=shadow)
    for _ in range(3):
        assert torch.equal(routed(*inputs(8)), fallback(*inputs(8)))
    assert stats() == {}


def test_calls_that_the_definition_does_not_have_go_to_the_fallback(routed):
    x, weight, factor = inputs(8)
    unlike = [
        (x.double(), weight.double(), factor),
        (torch.zeros(8, 5), torch.zeros(5), factor),
        (torch.zeros(8, 1, 4), weight, factor),
        (torch.zeros(4, 8).t(), weight, factor),
        (x, weight, torch.tensor(2.0)),
    ]
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        for _ in range(2):
            assert server(routed, 8) == "small"
            for arguments in unlike:
                assert torch.equal(routed(*arguments), fallback(*arguments))
        assert stats()["scale_add"].fallbacks == {"unlike": 10}
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'weight'"):
            routed(x)
        with pytest.raises(RuntimeError, match="must match"):
            routed(x, torch.zeros(3), factor)
        with pytest.raises(TypeError, match="the fallback's own error"):
            routed("text", weight, None)


def test_gradients_go_through_the_fallback_and_parameters_without_do_not(routed):
    x, weight, factor = inputs(8)
    weight = torch.nn.Parameter(weight)
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        with torch.no_grad():
            assert all(routed(x, weight, factor).max() > 0 for _ in range(3))
        routed(x, weight, factor).sum().backward()
        assert weight.grad is not None
        with torch.inference_mode():
            assert routed(torch.zeros(8, 4), weight, factor).max() > 0
        assert stats()["scale_add"].fallbacks == {"gradient": 1}


@pytest.mark.thorough
def test_compiled_graphs_hold_an_opaque_operator(routed):
    def model(x, weight):
        return routed(x, weight, 2.0).relu() + 1e-6

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, weight, _ = inputs(8)
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE), torch.no_grad():
        assert abs(compiled(x, weight).max().item() - 1.1e-6) < 1e-9
        assert abs(compiled(x, weight).max().item() - 1.1e-6) < 1e-9
        assert stats()["scale_add"].hits == 2
    with torch.no_grad():
        assert abs(compiled(x, weight).max().item() - 1e-6) < 1e-9


def name_of(x, weight, factor):
    return f"scale_{'add' if x.shape[1] == 4 else 'other'}"


@pytest.mark.parametrize("definition", ["scale_add", name_of])
def test_a_call_form_that_was_called_before_is_held_by_a_whole_graph(definition):
    def model(x, weight):
        return apply(definition, x, weight, 2.0, fallback=fallback).relu() + 1e-6

    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    x, weight, _ = inputs(8)
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE), torch.no_grad():
        expected = model(x, weight)
        assert compiled(x, weight).equal(expected)
        assert stats()["scale_add"].hits == 2


def test_outputs_of_sizes_that_no_input_has_are_the_fallbacks_in_compiled_graphs():
    """A graph has to know the sizes of an operator's outputs without calling it."""
    definition = Definition.model_validate(
        {
            "name": "repeat",
            "op_type": "elementwise",
            "axes": {"n": "var", "times": "var"},
            "inputs": {
                "x": {"shape": ["n"], "dtype": "float32"},
                "number": {"shape": None, "dtype": "int32"},
            },
            "outputs": {"y": {"shape": ["times", "n"], "dtype": "float32"}},
            "reference": "def run(x, number):\n    return x.repeat(number, 1)\n",
        }
    )

    @apply("repeat")
    def repeat(x, number):
        return x.repeat(number, 1)

    compiled = torch.compile(repeat, backend="eager", fullgraph=True)
    with enable_apply(TraceSet([definition])):
        assert compiled(torch.ones(4), 3).shape == repeat(torch.ones(4), 3).shape == (3, 4)


def test_threads_share_what_was_built(routed):
    served = []
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        server(routed, 8)
        threads = [
            threading.Thread(target=lambda: served.extend(server(routed, 8) for _ in range(50)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert stats()["scale_add"].hits == 201
    assert served == ["small"] * 200


def test_shadow_calls_find_what_is_wrong_and_record_the_workload(routed, tmp_path):
    trace_set(("wrong", 8, 1.0), ("small", 8, 2.0)).to_path(tmp_path)
    x, weight, factor = torch.rand(8, 4), torch.rand(4), 2.0
    with enable_apply(tmp_path, shadow=1.0, hardware=HERE) as applied:
        for _ in range(40):
            routed(x, weight, factor)
            applied.verify_pending()
        counted = stats()["scale_add"]
        assert torch.allclose(routed(x, weight, factor), fallback(x, weight, factor))
    assert "differs from the fallback" in counted.errors["wrong"]
    assert counted.mismatches == 1
    assert counted.shadowed == 38  # but the first call of each, for which it is built
    (recorded,) = TraceSet.from_path(tmp_path).workloads["scale_add"]
    assert recorded.workload.axes == {"n": 8}
    assert recorded.workload.inputs["factor"].value == 2.0
    assert (tmp_path / recorded.workload.inputs["x"].path).is_file()


def test_no_thread_is_left_where_no_call_waits_to_be_verified(routed):
    x, weight, factor = torch.rand(8, 4), torch.rand(4), 2.0
    with enable_apply(trace_set(("small", 8, 1.0)), shadow=1.0, hardware=HERE) as applied:
        for verified in (1, 2):
            while stats().get("scale_add", DefinitionStats()).shadowed < verified:
                routed(x, weight, factor)
                applied.verify_pending()
            for thread in threading.enumerate():
                if thread.name == "pytest-fib-shadow":
                    thread.join(30.0)
                    assert not thread.is_alive()


def test_what_is_wrong_is_quarantined_where_its_workload_cannot_be_recorded(
    routed, tmp_path, caplog
):
    (tmp_path / "file").write_text("in the way")
    dataset = tmp_path / "file" / "dataset"
    measured = trace_set(("wrong", 8, 1.0))
    x, weight, factor = torch.rand(8, 4), torch.rand(4), 2.0
    with (
        caplog.at_level(logging.WARNING),
        enable_apply(measured, shadow=1.0, hardware=HERE, dataset=dataset) as applied,
    ):
        for _ in range(3):
            routed(x, weight, factor)
            applied.verify_pending()
        assert set(stats()["scale_add"].errors) == {"wrong"}
    assert "the workload of a wrong output can't be recorded" in caplog.text


@pytest.mark.parametrize("shadow", [-0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(shadow):
    with pytest.raises(ValueError, match=f"shadow should be a share from 0 to 1, not {shadow}"):
        enable_apply(trace_set(("small", 8, 1.0)), shadow=shadow)


def test_contexts_nest(routed):
    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        with enable_apply(trace_set(("large", 8, 1.0)), hardware=HERE):
            assert server(routed, 8) == "large"
        assert server(routed, 8) == "small"
        disable_apply()
        assert server(routed, 8) == "fallback"


def test_what_was_replaced_is_let_go(routed):
    """As where a service enables the traces of each hour."""
    enabled = []
    for latency in (1.0, 2.0, 3.0):
        enabled.append(weakref.ref(enable_apply(trace_set(("small", 8, latency)), hardware=HERE)))
        assert server(routed, 8) == "small"
    gc.collect()
    assert [reference() is None for reference in enabled] == [True, False, False]


def test_a_definition_that_cannot_be_read_costs_no_call(routed, tmp_path, caplog):
    trace_set(("small", 8, 1.0)).to_path(tmp_path)
    (path,) = tmp_path.glob("definitions/*/scale_add.json")
    broken = json.loads(path.read_text())
    broken["name"], broken["inputs"]["x"]["dtype"] = "scale_sub", "unknown"
    (path.parent / "scale_sub.json").write_text(json.dumps(broken))
    before = apply("scale_sub")(fallback)
    with (
        caplog.at_level(logging.WARNING),
        enable_tracing(tmp_path),
        enable_apply(tmp_path, hardware=HERE) as applied,
    ):
        applied.build()
        after = apply(lambda x, weight, factor: "scale_sub")(fallback)
        assert server(before, 8) == server(after, 8) == "fallback"
        assert apply("scale_sub", *inputs(8), fallback=fallback).max() == 0
        assert server(routed, 8) == "small"
    said = [line for line in caplog.messages if "'unknown' is not one of" in line]
    assert len(said) == 2  # each of the two has read the dataset
    assert "scale_sub.json" in said[0]


def test_one_tensor_may_be_several_inputs():
    tensor = {"shape": ["n"], "dtype": "float32"}
    definition = Definition.model_validate(
        {
            "name": "add",
            "op_type": "elementwise",
            "axes": {"n": "var"},
            "inputs": {"x": tensor, "y": tensor},
            "outputs": {"z": tensor},
            "reference": "def run(x, y):\n    return x + y\n",
        }
    )
    asked = []

    def policy(shape, measured):
        asked.append(shape)
        return ()

    add = apply("add")(lambda x, y: x + y)
    x = torch.ones(4)
    with enable_apply(TraceSet([definition]), policy=policy):
        for other in (x, x, torch.ones(4), x, torch.ones(4)):
            assert add(x, other).tolist() == [2.0] * 4
    assert asked == [(4,)]


def test_a_forked_process_verifies_its_own_calls(routed):
    arguments = torch.rand(8, 4), torch.rand(4), 2.0
    with enable_apply(trace_set(("small", 8, 1.0)), shadow=1.0, hardware=HERE) as applied:
        for _ in range(2):
            routed(*arguments)
        applied.verify_pending()
        child = os.fork()
        if child == 0:
            routed(*arguments)
            applied.verify_pending()
            os._exit(stats()["scale_add"].shadowed)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert stats()["scale_add"].shadowed == 1


def test_a_fallback_with_other_parameters_is_logged_and_serves(caplog):
    @apply("scale_add")
    def lacking(x, weight):
        return x + weight

    @apply("scale_add")
    def any_number(*arguments):
        return fallback(*arguments)

    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        assert lacking(*inputs(8)[:2]).max() == 0
        assert any_number(*inputs(8)).max() == 0
    assert "takes 2 arguments, the definition has 3 inputs" in caplog.text


def test_a_decorated_method_is_logged_and_serves(caplog):
    class Layer:
        @apply("scale_add")
        def forward(self, x, weight, factor):
            return x * factor + weight

    with enable_apply(trace_set(("small", 8, 1.0)), hardware=HERE):
        assert Layer().forward(*inputs(8)).max() == 0
    assert "it takes self; in the call form, fallback=self.method is routed" in caplog.text


def test_importing_it_is_light():
    code = "import sys; from pytest_fib import apply, disable_apply, enable_apply\n"
    code += "apply('f')(print)\n"
    code += "print({'torch', 'pytest', 'hypothesis', 'pydantic', 'yaml'} & set(sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, "-c", code]
    ran = subprocess.run(arguments, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "set()\n"


def test_the_environment_enables_it(tmp_path, monkeypatch, caplog):
    trace_set(("small", 8, 1.0, processor())).to_path(tmp_path / "there")
    served = {}
    for name in ("there", "nowhere"):
        disable_apply()
        monkeypatch.setattr("pytest_fib.dispatch._apply._State.environment_read", False)
        monkeypatch.setenv("FIB_ENABLE_APPLY", "1")
        monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path / name))
        served[name] = server(apply("scale_add")(fallback), 8)
    disable_apply()
    assert served == {"there": "small", "nowhere": "fallback"}
    assert "FIB_ENABLE_APPLY: every call goes to its fallback" in caplog.text


@pytest.mark.parametrize(
    "name",
    [
        f"{prefix}_ENABLE_{what}"
        for prefix in ("FIB", "FLASHINFER_BENCH")
        for what in ("APPLY", "TRACING")
    ],
)
def test_a_switch_that_is_neither_on_nor_off_is_logged_once(name, monkeypatch, caplog):
    for value, messages in {
        "maybe": [f"{name}: 'maybe' is taken for 0: it should be 1 or 0"],
        "off": [],
    }.items():
        monkeypatch.setattr("pytest_fib.dispatch._apply._State.environment_read", False)
        monkeypatch.setenv(name, value)
        caplog.clear()
        assert [server(apply("scale_add")(fallback), 8) for _ in range(2)] == ["fallback"] * 2
        assert caplog.messages == messages


def test_what_a_program_enables_leaves_the_other_switch_alone(tmp_path, monkeypatch):
    """Tracing by the environment, where apply was enabled before the first call."""
    measured = trace_set(("small", 8, 1.0))
    measured.to_path(tmp_path)
    monkeypatch.setattr("pytest_fib.dispatch._apply._State.environment_read", False)
    monkeypatch.setenv("FIB_ENABLE_TRACING", "1")
    monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path))
    with enable_apply(measured, hardware=HERE):
        assert server(apply("scale_add")(fallback), 8) == "small"
    disable_tracing()
    assert [t.workload.axes for t in TraceSet.load(tmp_path).workloads["scale_add"]] == [{"n": 8}]


def test_where_there_is_nothing_to_choose_from_that_is_said(routed, tmp_path, caplog):
    """A folder that nothing was written to, and times of another device."""
    with pytest.raises(ValueError, match="is no dataset: there are no definitions"):
        enable_apply(tmp_path)
    with enable_apply(trace_set(("small", 8, 1.0, "far away"))):
        assert [server(routed, n) for n in (8, 9)] == ["fallback"] * 2
    what = f"nothing has passed and been timed on {processor()}, only on far away"
    assert caplog.messages.count(f"scale_add: every call goes to its fallback: {what}") == 1


def test_tracing_that_the_environment_cannot_enable_is_said(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("pytest_fib.dispatch._apply._State.environment_read", False)
    monkeypatch.setenv("FIB_ENABLE_TRACING", "1")
    monkeypatch.setenv("FIB_DATASET_PATH", str(tmp_path))
    assert server(apply("scale_add")(fallback), 8) == "fallback"
    disable_apply()
    assert f"FIB_ENABLE_TRACING: no call is recorded: {tmp_path} is no dataset" in caplog.text


def test_what_the_fallback_raises_is_its_own_error_each_time():
    calls = []

    @apply("scale_add")
    def failing(x, weight, factor):
        calls.append(factor)
        raise KeyError("the fallback's own")

    with enable_apply(trace_set(("small", 800, 1.0)), hardware=HERE):
        for _ in range(3):
            with pytest.raises(KeyError, match="the fallback's own"):
                failing(*inputs(8))
        counted = stats()["scale_add"]
    assert (len(calls), counted.misses, counted.errors) == (3, 3, {})


def test_sizes_that_are_nothing_are_near_nothing(routed):
    with enable_apply(trace_set(("small", 1, 1.0), ("large", 0, 1.0)), hardware=HERE) as applied:
        assert routed(*inputs(0)).shape == (0, 4)
        assert stats()["scale_add"].solutions == {"large": 1}
        assert applied.candidates(DEFINITION, {"n": 2}, inputs(2)) == ("small",)
