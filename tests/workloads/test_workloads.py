"""Axes, budgets, bench workloads, generators and reading workloads."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

from pytest_fib.data import ON_REQUEST, VALUE_PATTERNS, ScalarInput, Workload, load_definition_file
from pytest_fib.workloads import (
    BrokenConstraintError,
    bench_workloads,
    fill_inputs,
    in_domain,
    layouts,
    make_inputs,
    make_workload,
    parse_workload,
    plan,
    read_workload,
    scalar_inputs,
    smallest_axes,
    why_not_generated,
    with_other_values,
    workload_bytes,
)

MATRIX = {"m": "var", "n": 4}


def test_the_smallest_axes_are_the_least_of_each_domain(define):
    domains = {"m": {"min": 3, "max": 9, "multiple_of": 4}, "k": {"values": [8, 5]}}
    assert smallest_axes(define({"m": "var", "k": "var"}, domains=domains)) == {"m": 4, "k": 5}


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"m": 4}, True),
        ({"m": 6}, False),
        ({"m": 12}, False),
        ({}, False),
        ({"m": 4, "k": 1}, False),
    ],
)
def test_a_domain_has_its_multiples_between_its_bounds(define, axes, expected):
    definition = define(MATRIX, domains={"m": {"min": 3, "max": 9, "multiple_of": 4}})
    assert in_domain(definition, axes) is expected


def test_bytes_count_tensors_and_a_float64_copy_of_the_floating_ones(define):
    inputs = {
        "x": {"shape": ["m", "n"], "dtype": "float16"},
        "i": {"shape": ["m"], "dtype": "int32"},
        "s": {"shape": None, "dtype": "float32"},
    }
    rows = 10
    x, i, y = rows * 4 * (2 + 8), rows * 4, rows * 4 * (4 + 8)
    assert workload_bytes(define(MATRIX, inputs), {"m": rows}) == x + i + y


def test_listed_bench_workloads_are_taken_as_they_are(define):
    assert list(bench_workloads(define(MATRIX, bench=[{"m": 5}, {"m": 3}]))) == ["m=5", "m=3"]


def test_without_a_list_a_ladder_within_the_domain_is_timed(define):
    rungs = ["n=1", "n=8", "n=64", "n=512", "n=4096", "n=32768"]
    assert list(bench_workloads(define())) == rungs
    assert list(bench_workloads(define(domains={"n": {"max": 100}}))) == [
        "n=1",
        "n=8",
        "n=64",
        "n=100",
    ]


def test_an_axis_that_would_take_too_much_memory_stays_behind(define):
    inputs = {
        "x": {"shape": ["m", "n"], "dtype": "float32"},
        "y_": {"shape": ["n"], "dtype": "int8"},
    }
    definition = define({"m": "var", "n": "var"}, inputs)
    ladder = list(bench_workloads(definition))
    # A float32 matrix, an output of its size, and float64 copies: 24 bytes an element.
    assert ladder[3:] == ["m=512,n=512", "m=4096,n=4096", "m=32768,n=4096"]
    assert all(
        workload_bytes(definition, w.axes) <= 4 << 30 for w in bench_workloads(definition).values()
    )


def test_a_ladder_is_the_same_whatever_this_machine_affords(define, monkeypatch):
    monkeypatch.setattr("pytest_fib.workloads._sizes.DEFAULT_BUDGETS", {"cpu": 1})
    assert list(bench_workloads(define()))[-1] == "n=32768"


@pytest.mark.parametrize(
    "path",
    sorted((Path(__file__).parents[2] / "kernel_defs").rglob("*.yaml")),
    ids=lambda p: p.stem,
)
def test_every_kind_of_kernel_has_a_ladder(path):
    definition = load_definition_file(path)[0].definition
    section = definition.workloads.model_copy(update={"bench": []})
    definition = definition.model_copy(update={"workloads": section})
    ladder = bench_workloads(definition)
    assert len(ladder) >= 4
    assert all(in_domain(definition, workload.axes) for workload in ladder.values())
    sizes = [workload_bytes(definition, workload.axes) for workload in ladder.values()]
    assert sizes[0] == min(sizes)
    assert max(sizes) <= 4 << 30


def test_without_var_axes_there_is_one_bench_workload(define):
    assert list(bench_workloads(define({"n": 8}))) == ["fixed"]


@pytest.mark.parametrize("values", [name for name in VALUE_PATTERNS if name not in ON_REQUEST])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_same_workload_gives_the_same_finite_bits(define, values, dtype):
    definition = define(inputs={"x": {"shape": ["n"], "dtype": dtype}})
    workload = make_workload(definition, {"n": 1000}, seed=3, regime={"values": values})
    first, second = (torch.empty(1000, dtype=getattr(torch, dtype)) for _ in range(2))
    fill_inputs({"x": first}, definition, workload)
    fill_inputs({"x": second}, definition, workload)
    assert first.isfinite().all()
    assert torch.equal(first, second)


def test_two_inputs_of_one_workload_differ(define):
    inputs = {name: {"shape": ["n"], "dtype": "float32"} for name in "ab"}
    definition = define(inputs=inputs)
    workload = make_workload(definition, {"n": 100})
    a, b = torch.empty(100), torch.empty(100)
    fill_inputs({"a": a, "b": b}, definition, workload)
    assert not torch.equal(a, b)


def test_an_outlier_is_far_from_the_rest(define):
    definition = define({"m": "var", "n": "var"})
    x = torch.empty(8, 64)
    regime = {"values": "outlier"}
    fill_inputs({"x": x}, definition, make_workload(definition, {"m": 8, "n": 64}, regime=regime))
    largest, typical = x.abs().amax(-1), x.abs().median(-1).values
    assert (largest > 10 * typical).all()


@pytest.mark.parametrize(
    ("rule", "low", "high"),
    [
        ({"value": 3}, 3, 3),
        ({"kind": "integers", "min": -2, "max": 2}, -2, 2),
        ({"kind": "uniform", "min": 1.0, "max": 2.0}, 1, 2),
    ],
)
def test_a_rule_decides_what_an_input_holds(define, rule, low, high):
    dtype = "float32" if rule.get("kind") == "uniform" else "int32"
    definition = define(inputs={"x": {"shape": ["n"], "dtype": dtype}}, rules={"x": rule})
    x = torch.empty(500, dtype=getattr(torch, dtype))
    fill_inputs({"x": x}, definition, make_workload(definition, {"n": 500}))
    assert low <= x.min() <= low + 0.1
    assert high - 0.1 <= x.max() <= high


@pytest.mark.parametrize(
    ("rule", "dtype", "kind"),
    [
        ({"kind": "uniform", "min": 2.0, "max": 3.0}, "float32", float),
        ({"kind": "integers", "min": 2, "max": 3}, "int32", int),
    ],
)
def test_a_scalar_follows_from_its_rule_and_the_seed(define, rule, dtype, kind):
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, "s": {"shape": None, "dtype": dtype}}
    definition = define(inputs=inputs, rules={"s": rule})
    values = [
        make_workload(definition, {"n": 1}, seed).inputs["s"].value for seed in (*range(20), 0)
    ]
    assert {type(value) for value in values} == {kind}
    assert 2 <= min(values) < max(values) <= 3
    assert values[0] == values[-1]


def test_a_floating_scalar_is_a_float_where_its_value_is_written_as_a_whole_number(define):
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, "s": {"shape": None, "dtype": "float32"}}
    made = make_workload(define(inputs=inputs, rules={"s": {"value": 30}}), {"n": 1})
    assert type(made.inputs["s"].value) is float


@pytest.mark.parametrize(
    ("rule", "dtype", "least", "most"),
    [
        ({"kind": "integers", "min": 0, "max": "n - 3"}, "int32", 3, 64),
        ({"kind": "positions", "below": "n - 7"}, "int64", 8, 64),
        ({"kind": "positions", "below": "8 * n"}, "int8", 1, 16),
        ({"kind": "labels", "count": "n // 4"}, "uint8", 4, 64),
        ({"kind": "uniform", "min": "n", "max": 9}, "float16", 1, 9),
    ],
)
def test_axes_are_such_that_the_numbers_of_rules_make_values(define, rule, dtype, least, most):
    inputs = {"i": {"shape": ["n"], "dtype": dtype}}
    definition = define(inputs=inputs, rules={"i": rule}, domains={"n": {"max": 64}})
    domain = plan(definition).domain("n", {})
    assert (domain.low, domain.high) == (least, most)
    for n in (least, most):
        make_inputs(definition, make_workload(definition, {"n": n}, seed=n))


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        (
            {"kind": "integers", "max": "5 // (m - 8)"},
            "constraint '5 // (m - 8) >= 0' (for input 'i') is false for the const axes",
        ),
        (
            {"kind": "positions", "below": "n - 64"},
            "axis 'n' (1 to 64): no value meets 'n - 64 >= 1' (for input 'i')",
        ),
        ({"kind": "indptr", "total": 9, "at_least": "i"}, "input 'i' refers to itself"),
    ],
)
def test_what_a_rule_needs_of_axes_and_never_gets_is_said_at_the_rule(define, rule, problem):
    definition = define(
        axes={"n": "var", "m": 8},
        inputs={"i": {"shape": ["n"], "dtype": "int32"}},
        rules={"i": rule},
        domains={"n": {"max": 64}},
    )
    planned = plan(definition)
    assert (planned.problem, planned.problem_at) == (problem, ("workloads", "inputs", "i"))


@pytest.mark.parametrize(
    ("rule", "dtype", "special"),
    [
        ({"kind": "uniform", "min": -4.0, "max": 4.0}, "float32", {-4.0, 0.0, 1.0, 4.0}),
        ({"kind": "uniform", "min": 0.5, "max": 0.75}, "float32", {0.5, 0.75}),
        ({"kind": "integers", "min": 0, "max": 24}, "int32", {0, 1, 24}),
    ],
)
def test_a_scalar_often_is_the_least_the_most_zero_or_one(define, rule, dtype, special):
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, "s": {"shape": None, "dtype": dtype}}
    definition = define(inputs=inputs, rules={"s": rule})
    values = [make_workload(definition, {"n": 1}, seed).inputs["s"].value for seed in range(200)]
    assert min(values.count(value) for value in special) > 10
    assert len({*values} - special) > 15


def _with_scalars(define, dtype, rule, *names):
    """Definition of a vector and of scalars that are made by one rule."""
    scalars = {name: {"shape": None, "dtype": dtype} for name in names}
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, **scalars}
    return define(inputs=inputs, rules=dict.fromkeys(names, rule))


@pytest.mark.parametrize("most", [50, 4096])
def test_an_integer_is_often_minus_one_where_that_is_the_least(define, most):
    """As of a window, which is none then: tokens far apart matter there alone."""
    definition = _with_scalars(define, "int32", {"kind": "integers", "min": -1, "max": most}, "s")
    values = [make_workload(definition, {"n": 1}, seed).inputs["s"].value for seed in range(96)]
    assert 96 / 10 < values.count(-1) < 96 / 3
    assert {0, 1, most} <= {*values}


@pytest.mark.parametrize(
    ("rule", "dtype", "near"),
    [
        ({"kind": "integers", "min": 1, "max": 10**6}, "int32", [(2, 40)]),
        ({"kind": "integers", "min": -(10**6), "max": 10**6}, "int32", [(-40, -1), (2, 40)]),
        ({"kind": "uniform", "min": 0.0, "max": 8.0}, "float32", [(0.001, 0.1), (7.9, 7.999)]),
    ],
)
def test_a_scalar_often_is_near_to_these(define, rule, dtype, near):
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, "s": {"shape": None, "dtype": dtype}}
    definition = define(inputs=inputs, rules={"s": rule})
    values = [make_workload(definition, {"n": 1}, seed).inputs["s"].value for seed in range(600)]
    assert all(rule["min"] <= value <= rule["max"] for value in values)
    for low, high in near:
        assert sum(low <= value <= high for value in values) > 10


def test_scalars_of_a_small_range_are_each_of_it_within_a_search(define):
    """So a search has the one step at which a kernel goes wrong; and pairs are not all alike."""
    names, rule = ("step", "other"), {"kind": "integers", "min": 1, "max": 64}
    definition = _with_scalars(define, "int32", rule, *names)
    made = [make_workload(definition, {"n": 1}, seed).inputs for seed in range(86)]
    for name in names:
        drawn = [each[name].value for each in made]
        assert {*drawn} == {*range(1, 65)}
        assert sum(each in (1, 2, 64) for each in drawn) >= 20
    assert len({each["step"].value - each["other"].value for each in made}) > 20


def test_a_scalar_that_may_be_a_length_often_is_that_of_whole_tiles_or_one_more_or_less(define):
    inputs = {"x": {"shape": ["n"], "dtype": "float32"}, "s": {"shape": None, "dtype": "int32"}}
    definition = define(inputs=inputs, rules={"s": {"kind": "integers", "min": 9, "max": 4000}})
    values = [make_workload(definition, {"n": 1}, seed).inputs["s"].value for seed in range(300)]
    assert all(9 <= value <= 4000 for value in values)
    for near in (-1, 0, 1):
        assert sum((value - near) % 128 == 0 for value in values) > 3


def _padded(define, padding):
    """Definition of ``n - padding`` columns, of what ``padding`` is made by."""
    inputs = {
        "x": {"shape": ["n"], "dtype": "float32"},
        "padding": {"shape": None, "dtype": "int32"},
    }
    axes = {"width": "var", "n": "var"}
    definition = define(axes, inputs, {"n": {"min": 8, "max": 20}}, {"padding": padding})
    return definition.model_copy(update={"constraints": ["width == n - padding"]})


@pytest.mark.parametrize(
    ("padding", "possible"),
    [
        ({"kind": "integers", "min": 0, "max": 7}, {*range(8)}),
        ({"kind": "integers", "min": 1, "max": "n // 4"}, {1, 2, 3, 4, 5}),
        ({"value": 3}, {3}),
    ],
)
def test_scalars_and_axes_of_one_constraint_are_chosen_together(define, padding, possible):
    definition = _padded(define, padding)
    planned, found = plan(definition), set()
    for seed in range(24):
        budgets = dict.fromkeys(planned.order, 1 << 20)
        axes = planned.choose(budgets, lambda choice, n=seed: choice.domain[n % len(choice.domain)])
        workload = make_workload(definition, axes, seed)
        padding = scalar_inputs(definition, workload)["padding"]
        assert axes["width"] == axes["n"] - padding
        found.add(padding)
    assert found <= possible
    assert len(found) >= min(len(possible), 3)


def test_floating_scalars_meet_constraints_on_scalars(define):
    names, rule = ("low", "high"), {"kind": "uniform", "min": 0.0, "max": 1.0}
    definition = _with_scalars(define, "float32", rule, *names)
    definition = definition.model_copy(update={"constraints": ["low < high", "high < 1"]})
    made = [make_workload(definition, {"n": 1}, seed) for seed in range(100)]
    values = [[each.inputs[name].value for name in names] for each in made]
    assert all(low < high < 1 for low, high in values)
    assert sum(low == 0 for low, _ in values) > 5
    for workload in made[:3]:  # what is given stays
        assert scalar_inputs(definition, workload) == {
            name: workload.inputs[name].value for name in names
        }


def test_scalars_that_are_compared_and_drawn_again_are_those_that_kernels_get(define):
    names, rule = ("low", "high"), {"kind": "uniform", "min": 0.0, "max": 1.0}
    definition = _with_scalars(define, "float32", rule, *names)
    reference = "def run(x, low, high):\n    return (x > low) & (x < high)"
    more = {"constraints": ["low < high"], "reference": reference}
    definition = type(definition).model_validate({**definition.model_dump(), **more})
    of_few_bits = 0
    for seed in range(200):
        workload = make_workload(definition, {"n": 1}, seed)
        made = scalar_inputs(definition, workload)
        assert made == {name: workload.inputs[name].value for name in names}
        assert made["low"] < made["high"]
        of_few_bits += all(value * 2**20 % 1 == 0 for value in made.values())
    assert of_few_bits > 60


def test_scalars_that_can_meet_no_constraint_are_left_to_the_check_of_the_workload(define):
    rule = {"kind": "uniform", "min": 0.5, "max": 1.0}
    definition = _with_scalars(define, "float32", rule, "p")
    definition = definition.model_copy(update={"constraints": ["p < 0.25"]})
    with pytest.raises(BrokenConstraintError, match=r"breaks 'p < 0\.25'.*uniform"):
        make_inputs(definition, make_workload(definition, {"n": 1}), "cpu")


def test_a_recorded_scalar_is_taken_as_it_is(define):
    definition = define(
        inputs={"s": {"shape": None, "dtype": "float32"}}, rules={"s": {"value": 1.0}}
    )
    workload = Workload(axes={"n": 1}, inputs={"s": ScalarInput(value=0.5)})
    assert scalar_inputs(definition, workload) == {"s": 0.5}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, None),
        (
            {"inputs": {"x": {"shape": ["n"], "dtype": "int32"}}},
            "nothing says what x (int32 tensor) means*; *{inputs: {x: {kind: *",
        ),
    ],
)
def test_inputs_that_can_not_be_made_are_told_beforehand(define, arguments, reason):
    told = why_not_generated(define(**arguments))
    assert told == reason or fnmatchcase(told, reason)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("bfloat16", "bfloat16"), ("float4_e2m1", "float4_e2m1fn_x2")]
)
def test_a_schema_dtype_has_a_name_in_torch(define, dtype, expected):
    definition = define(inputs={"x": {"shape": ["n"], "dtype": dtype}})
    assert layouts(definition, make_workload(definition, {"n": 2}))["x"].dtype == expected


def test_a_workload_is_read_from_json(define):
    definition = define(MATRIX)
    text = '{"axes": {"m": 7, "n": 4}, "seed": 3, "regime": {"values": "ones"}}'
    read = read_workload(definition, text)
    assert read == make_workload(definition, {"m": 7}, 3, {"values": "ones"})
    assert read.uuid == make_workload(definition, {"m": 7}, 3, {"values": "ones"}).uuid


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"axes": {}}', "no value for axis 'm'"),
        ('{"axes": {"m": 1, "n": 5}}', "axis 'n' is 4, not 5"),
        ('{"axes": {"m": 1, "k": 5}}', "axes: 'k' is not one of m, n"),
        (
            '{"axes": {"m": 1}, "inputs": {"z": {"type": "random"}}}',
            "inputs: 'z' is not one of x",
        ),
    ],
)
def test_a_workload_that_does_not_fit_is_refused(define, text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read_workload(define(MATRIX), text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", 'not a mapping such as {"axes": {"batch": 7}}'),
        ('{"axes": {"m": -1}}', "axes.m: should be at least 0, not -1"),
        ('{"axes": {}, "seed": "x"}', "seed: should be a whole number, not 'x'"),
        ('{"axes": {}, "sead": 1}', "a workload: 'sead' is not one of axes, seed, regime, inputs"),
        (
            '{"axes": {}, "regime": {"shape": "x"}}',
            "regime: 'shape' is not one of values, inputs, lengths, layout, near",
        ),
        ("{}", "missing key 'axes'"),
    ],
)
def test_what_is_no_workload_is_refused(text, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        parse_workload(text)


ROWS = {"x": {"shape": ["n"], "dtype": "float32"}, "order": {"shape": ["n"], "dtype": "int64"}}


def test_other_values_for_the_same_work_leave_structure_alone(define):
    definition = define(inputs=ROWS, rules={"order": {"kind": "permutation"}})
    workload, made = make_workload(definition, {"n": 100}, seed=3), []
    for bulk_seed in (None, 4, 5):
        tensors = {"x": torch.empty(100), "order": torch.empty(100, dtype=torch.int64)}
        fill_inputs(tensors, definition, workload, bulk_seed=bulk_seed)
        made.append(tensors)
    plain, other, another = made
    assert plain["order"].equal(other["order"])
    assert plain["order"].equal(another["order"])
    assert not plain["x"].equal(other["x"])
    assert not other["x"].equal(another["x"])


def test_where_there_is_nothing_but_structure_other_values_are_another_structure(define):
    definition = define(inputs={"order": ROWS["order"]}, rules={"order": {"kind": "permutation"}})
    orders = [torch.empty(100, dtype=torch.int64) for _ in range(2)]
    for order, bulk_seed in zip(orders, (4, 5), strict=True):
        workload = make_workload(definition, {"n": 100})
        fill_inputs({"order": order}, definition, workload, bulk_seed=bulk_seed)
    assert not orders[0].equal(orders[1])


TWO = {"x": {"shape": ["m", "n"], "dtype": "float32"}, "w": {"shape": ["n"], "dtype": "float32"}}


@pytest.mark.parametrize("hiding", ["zeros", "ones", "small", "subnormal", "large"])
def test_where_values_hide_what_is_wrong_others_show_it(define, hiding):
    definition, shown = define(MATRIX, TWO), set()
    for seed in range(6):
        regime = {"values": hiding, "inputs": "one"}
        workload = make_workload(definition, {"m": 7}, seed, regime)
        other = with_other_values(definition, workload)
        assert (other.axes, "inputs" in other.regime) == (workload.axes, False)
        assert other.seed != seed
        shown.add(other.regime.get("values", "normal"))
    assert shown == {"mixed", "shifted", "normal"}


@pytest.mark.parametrize("values", ["normal", "nan", "mixed", "wide"])
def test_other_values_are_of_the_same_pattern_where_that_hides_nothing(define, values):
    definition, regime = define(MATRIX, TWO), {"values": values, "inputs": "some"}
    workload = make_workload(definition, {"m": 7}, 3, regime)
    other = with_other_values(definition, workload)
    assert (other.axes, other.regime) == (workload.axes, workload.regime)
    assert other.seed != workload.seed


def test_other_values_are_of_patterns_that_the_definition_allows_and_of_scalars_that_were_given(
    define,
):
    zeros = {"values": "zeros"}
    only = define(MATRIX, TWO, values=["zeros", "normal"])
    other = with_other_values(only, make_workload(only, {"m": 7}, 1, zeros))
    assert other.regime == {}
    scaled = define(MATRIX, {**TWO, "a": {"shape": None, "dtype": "float32"}})
    workload = make_workload(scaled, {"m": 7}, 1, zeros)
    inputs = {**workload.inputs, "a": ScalarInput(value=0.25)}
    given = Workload(axes=workload.axes, inputs=inputs, seed=1, regime=zeros)
    other = with_other_values(scaled, given)
    assert (other.regime, other.inputs["a"].value) == (zeros, 0.25)
