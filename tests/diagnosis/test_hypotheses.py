"""A kernel that reads an input wrongly is named by what the reference computes from such inputs."""

import pytest
import torch

from pytest_fib.data import Definition, ScalarInput, load_definition_file
from pytest_fib.diagnosis import input_hypotheses
from pytest_fib.engine import FunctionChecker
from pytest_fib.workloads import fill_inputs, layouts, make_workload, plan, scalar_inputs
from tests.definitions.harness import ROOT
from tests.workloads.signatures import signature

DEFINITION = Definition.model_validate(
    {
        "name": "mix",
        "op_type": "mix",
        "axes": {"n": "var", "m": 16, "cache": "var"},
        "inputs": {
            "x": {"shape": ["n", "m"], "dtype": "float32"},
            "table": {"shape": ["cache", "m"], "dtype": "float32"},
            "at": {"shape": ["n"], "dtype": "int64"},
            "eps": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "m"], "dtype": "float32"}},
        "reference": "def run(x, table, at, eps):\n    return (x * x + eps).sqrt() * table[at]\n",
        "workloads": {
            "inputs": {"at": {"kind": "positions", "below": "cache"}, "eps": {"value": 0.5}}
        },
    }
)
WORKLOAD = make_workload(DEFINITION, {"n": 40, "cache": 30}, seed=3)


def right(x, table, at, eps):
    return (x * x + eps).sqrt() * table[at]


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x, table, at, eps: right(x, table, at, 10 * eps), "eps were 10 times as large"),
        (lambda x, table, at, eps: right(x, table, at, 0.0), "eps were 0"),
        (lambda x, table, at, eps: right(0 * x, table, at, eps), "x were 0"),
        (
            lambda x, table, at, eps: right(x.roll(1, 0), table, at, eps),
            "x were shifted by +1 along n",
        ),
        (
            lambda x, table, at, eps: right(x, table.flip(1), at, eps),
            "table were reversed along m",
        ),
        (
            lambda x, table, at, eps: right(x.roll(8, 1), table, at, eps),
            "x had the halves of m swapped",
        ),
        (
            lambda x, table, at, eps: right(x, table, at[:1].expand_as(at), eps),
            "at repeated its first entry along n",
        ),
    ],
)
def test_an_input_that_is_read_wrongly_is_named(function, words):
    evaluation = FunctionChecker(DEFINITION, function, "cpu")(WORKLOAD, explain=True)
    assert evaluation.diagnosis.pattern == "misread input"
    assert evaluation.diagnosis.sentence == f"y: as if {words}"


LIMITED = Definition.model_validate(
    {
        "name": "limited",
        "op_type": "clamp",
        "axes": {"n": "var", "m": 16},
        "inputs": {
            "x": {"shape": ["n", "m"], "dtype": "float32"},
            "limit": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "m"], "dtype": "float32"}},
        "reference": "def run(x, limit):\n    return x.clamp(-limit, limit).exp()\n",
        "workloads": {"inputs": {"limit": {"kind": "uniform", "min": 0.5, "max": 1.5}}},
    }
)


def test_a_limit_that_nothing_reaches_is_no_factor_of_the_right_one():
    workload = make_workload(LIMITED, {"n": 40}, seed=3)
    check = FunctionChecker(LIMITED, lambda x, limit: x.clamp(-30, 30).exp(), "cpu")
    diagnosis = check(workload, explain=True).diagnosis
    assert diagnosis.sentence == "y: as if limit were far larger, or ignored"


GROUPED = Definition.model_validate(
    {
        "name": "grouped",
        "op_type": "mix",
        "axes": {"n": "var", "heads": 8, "groups": 2, "dim": 24},
        "inputs": {
            "q": {"shape": ["n", "heads", "dim"], "dtype": "float32"},
            "k": {"shape": ["n", "groups", "dim"], "dtype": "float32"},
            "weight": {"shape": ["heads"], "dtype": "float32"},
            "bias": {"shape": ["heads"], "dtype": "float32"},
            "scale": {"shape": None, "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "heads"], "dtype": "float32"}},
        "reference": (
            "def run(q, k, weight, bias, scale):\n"
            "    shared = k.repeat_interleave(4, 1)\n"
            "    return (q * shared).sum(-1) * scale * weight + bias\n"
        ),
        "workloads": {"inputs": {"scale": {"value": 0.5}}},
    }
)


def scores(q, k, weight, bias, scale, heads=None):
    shared = k.repeat_interleave(4, 1) if heads is None else k[:, heads]
    return (q * shared).sum(-1) * scale * weight + bias


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (
            lambda *inputs: scores(*inputs, heads=torch.arange(8) % 2),
            "heads came in the order 0, 2, 4, 6, 1, 3, ...",
        ),
        (
            lambda q, k, weight, bias, scale: scores(q, k, bias, weight, scale),
            "weight and bias were swapped",
        ),
        (lambda q, k, weight, bias, scale: scores(q, k, 1.0, bias, scale), "weight were 1"),
        (lambda q, k, weight, bias, scale: scores(q, k, weight, 0.0, scale), "bias were 0"),
        (
            lambda q, k, *rest: scores(q[..., :-1], k[..., :-1], *rest),
            "q were 0 at the last one of 24 along dim",
        ),
        (
            lambda q, k, *rest: scores(q[..., :16], k[..., :16], *rest),
            "q were 0 at the last 8 of 24 along dim",
        ),
        (
            lambda q, k, weight, bias, scale: scores(q, k, weight, bias, 24**-0.5),
            "scale were 1 / sqrt(dim)",
        ),
    ],
)
def test_what_concerns_several_inputs_or_an_axis_is_named(function, words):
    workload = make_workload(GROUPED, {"n": 40}, seed=3)
    evaluation = FunctionChecker(GROUPED, function, "cpu")(workload, explain=True)
    assert evaluation.diagnosis.sentence.startswith(f"y: as if {words}")


@pytest.mark.parametrize(
    "function",
    [
        lambda *inputs: right(*inputs).bfloat16().float(),
        lambda *inputs: right(*inputs) * 1.01,
        lambda *inputs: right(*inputs).exp(),
    ],
)
def test_what_has_another_cause_is_not_blamed_on_an_input(function):
    evaluation = FunctionChecker(DEFINITION, function, "cpu")(WORKLOAD, explain=True)
    assert evaluation.diagnosis.pattern not in ("misread input", "")


def test_what_another_number_refutes_is_not_said_of_a_scalar():
    """Where it is 1, one less it is 0."""
    reference = "def run(x, table, at, eps):\n    return x * table[at] + eps\n"
    data = {**DEFINITION.model_dump(), "reference": reference}
    at, eps = {"kind": "positions", "below": "cache"}, {"kind": "uniform", "min": 0.0, "max": 1.0}
    data["workloads"] = {"inputs": {"at": at, "eps": eps}}
    definition = Definition.model_validate({**data, "name": "sum"})
    given = make_workload(definition, WORKLOAD.axes, seed=3)
    given = given.model_copy(update={"inputs": {**given.inputs, "eps": ScalarInput(value=1.0)}})
    for of_eps in (0.0, 1.0):
        wrong = FunctionChecker(
            definition, lambda x, t, at, eps, f=of_eps: x * t[at] + f * (1 - eps), "cpu"
        )
        said = wrong(given, explain=True).diagnosis.sentence
        assert (said == "y: as if eps were 0") is (of_eps == 0)


@pytest.mark.parametrize(
    ("rule", "constraint", "tried"),
    [
        ({"min": 0, "max": 64}, [], [1, 2, 3, 24]),
        ({"min": 0, "max": 64, "step": 16}, [], []),
        ({"min": 2, "max": 64, "step": 2}, [], [2, 24]),
        ({"min": 0, "max": 64}, ["w <= n * 64"], []),
    ],
)
def test_a_whole_scalar_is_tried_as_others_that_it_may_be(rule, constraint, tried):
    """In a sequence of two, a window of two is as good as none; of one that is less, it isn't."""
    data = signature("op", "n", "x[n]:f32 w:i32", "y[n]:f32", *constraint)
    data["reference"] = "import torch\ndef run(x, w):\n    return x * w\n"
    data["workloads"] = {"inputs": {"w": {"kind": "integers", **rule}}}
    inputs = {"x": torch.ones(3), "w": 48}
    found = list(input_hypotheses(Definition.model_validate(data), inputs))
    [ignored] = [each for each in found if each.words == "w were 0"]
    assert not ignored.partial
    others = list(ignored.elsewhere()) if ignored.elsewhere else []
    assert others == [({"w": n}, {"w": 0}) for n in tried]


def test_a_scalar_is_not_taken_for_another_that_happens_to_have_its_value():
    """Where ``b`` is 1, what takes ``b`` for ``a`` takes 1 for it."""
    rule = {"kind": "uniform", "min": 0.0, "max": 1.0}
    definition = Definition.model_validate(
        {
            "name": "fade",
            "op_type": "mix",
            "axes": {"n": "var"},
            "inputs": {
                "x": {"shape": ["n"], "dtype": "float32"},
                "y": {"shape": ["n"], "dtype": "float32"},
                "a": {"shape": None, "dtype": "float32"},
                "b": {"shape": None, "dtype": "float32"},
            },
            "outputs": {"z": {"shape": ["n"], "dtype": "float32"}},
            "reference": "def run(x, y, a, b):\n    return a * x + (1 - a) * y + 0 * b\n",
            "workloads": {"inputs": {"a": rule, "b": rule}},
        }
    )
    given = make_workload(definition, {"n": 40}, seed=3)
    values = {"a": ScalarInput(value=0.25), "b": ScalarInput(value=1.0)}
    given = given.model_copy(update={"inputs": {**given.inputs, **values}})
    for of_b, words in ((1, "a were b"), (0, "a were 1")):
        wrong = FunctionChecker(
            definition,
            lambda x, y, a, b, f=of_b: (f * b + 1 - f) * (x - y) + y,
            "cpu",
        )
        assert wrong(given, explain=True).diagnosis.sentence == f"z: as if {words}"


def test_one_place_that_is_read_for_another_is_no_other_order():
    """Only the last place is read, and by an index that stops before it."""
    wrong = FunctionChecker(
        DEFINITION, lambda x, table, at, eps: right(x, table, at.clamp(max=28), eps), "cpu"
    )
    for seed in range(200):
        given = make_workload(DEFINITION, {"n": 1, "cache": 30}, seed=seed)
        evaluation = wrong(given, explain=True)
        if evaluation.status != "PASSED":
            assert "shifted" not in evaluation.diagnosis.sentence
            return
    raise AssertionError("the last place is never read")


FLOOR = Definition.model_validate(
    {
        "name": "floor",
        "op_type": "mix",
        "axes": {"n": "var", "m": 16},
        "inputs": {
            "x": {"shape": ["n", "m"], "dtype": "float32"},
            "w": {"shape": ["n", "m"], "dtype": "float32"},
        },
        "outputs": {"y": {"shape": ["n", "m"], "dtype": "float32"}},
        "reference": (
            "def run(x, w):\n"
            "    return x.exp() - (0.5 * x * w).sum(-1, keepdim=True).abs().clamp(min=1.0)\n"
        ),
    }
)


def test_what_other_numbers_refute_is_not_said_of_an_input():
    """In another order the sum is below its limit by chance, as it is without an absolute value."""
    wrong = FunctionChecker(
        FLOOR, lambda x, w: x.exp() - (0.5 * x * w).sum(-1, keepdim=True).clamp(min=1.0), "cpu"
    )
    said = []
    for seed in range(30):
        evaluation = wrong(make_workload(FLOOR, {"n": 8}, seed=seed), explain=True)
        said += [evaluation.diagnosis.sentence] if evaluation.diagnosis else []
    assert len(said) > 20
    assert sum("as if" in each for each in said) <= 2


def test_an_input_that_makes_all_that_is_wrong_zero_is_not_said_to_make_it_right():
    returned = "x - x.relu() + (table[at] * eps).tanh() * (x > 0)"
    reference = f"def run(x, table, at, eps):\n    return {returned}\n"
    definition = Definition.model_validate({**DEFINITION.model_dump(), "reference": reference})

    def wrong(x, table, at, eps):
        return x - x.relu() + (table[at] * eps).sin().tanh() * (x > 0)

    said = FunctionChecker(definition, wrong, "cpu")(WORKLOAD, explain=True).diagnosis.sentence
    assert said.startswith("y: wrong at ")
    assert "right if" not in said
    assert "depends on" not in said


def test_there_are_no_hypotheses_unless_they_are_asked_for():
    wrong = FunctionChecker(DEFINITION, lambda x, t, at, eps: right(x, t, at, 0.0), "cpu")
    assert wrong(WORKLOAD).diagnosis.pattern != "misread input"


@pytest.mark.parametrize("path", ["gqa_paged/gqa_paged_decode_ps64", "mamba_ssu/mamba_ssu_decode"])
def test_integers_of_a_hypothesis_are_within_what_they_may_be(path):
    definition = load_definition_file(ROOT / f"kernel_defs/{path}.yaml")[0].definition
    workload = make_workload(definition, plan(definition).completed({"batch_size": 3}))
    tensors = {
        name: torch.zeros(layout.shape, dtype=getattr(torch, layout.dtype))
        for name, layout in layouts(definition, workload).items()
        if name in definition.inputs
    }
    fill_inputs(tensors, definition, workload)
    found = list(input_hypotheses(definition, {**tensors, **scalar_inputs(definition, workload)}))
    assert len({each.words for each in found}) == len(found) > 5
    for name, value in ((name, x) for each in found for name, x in each.values.items()):
        before = tensors.get(name)
        if before is None:
            continue
        assert (value.shape, value.dtype) == (before.shape, before.dtype)
        if not before.is_floating_point():
            kind = plan(definition).rules[name].kind
            low, high = (1, 64) if kind == "last_page_len" else (0, int(before.max()))
            assert low <= int(value.min()) <= int(value.max()) <= high
