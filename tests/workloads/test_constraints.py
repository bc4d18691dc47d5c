"""Constraints: what is understood, how they are solved, and what is said where they aren't met."""

import re

import pytest
import torch

from pytest_fib.data import Definition
from pytest_fib.workloads import (
    BrokenConstraintError,
    InfeasibleError,
    fill_inputs,
    in_domain,
    make_workload,
    plan,
    smallest_axes,
    why_broken,
)
from tests.definitions.harness import filled, found
from tests.workloads.signatures import signature

AXES = "n m k width=4 half=2"
INPUTS = "x[n,m]:f32 ptr[k]:i32 s:f32"


def define(*constraints, axes=AXES, inputs=INPUTS, domains=None):
    data = signature("op", axes, inputs, f"y[{axes.split()[0]}]:f32", *constraints)
    rules = {"ptr": {"kind": "indptr", "total": "n"}} if ":i32" in inputs else {}
    return Definition.model_validate(
        {**data, "workloads": {"inputs": rules, "axes": domains or {}}}
    )


def problem(text):
    return plan(define(text)).problem


# What is understood.


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("__import__('os').system('x')", "'__import__' is neither an axis nor an input"),
        ("open('x') == n", "'open' is neither an axis nor an input"),
        ("eval(n)", "'eval' is neither an axis nor an input"),
        ("x.__class__ == n", "'x.__class__' is not supported"),
        ("x.data == n", "'x.data' is not supported"),
        ("x.sum.__globals__", "'x.sum.__globals__' is not supported"),
        ("x.cuda()", "'x.cuda()' is not supported"),
        ("x.item(n)(m)", "'x.item(n)(m)' is not supported"),
        ("(lambda: n)()", "'(lambda: n)()' is not supported"),
        ("[n for n in x]", "'[n for n in x]' is not supported"),
        ("(n := 3) == m", "'(n := 3)' is not supported"),
        ("n if m else k", "'n if m else k' is not supported"),
        ("f'{n}'", "\"f'{n}'\" is not supported"),
        ("n == 'a' * 9", "\"'a'\" is not supported"),
        ("n in (1, 2)", "'In' is not supported"),
        ("max(*x) == n", "'*x' is not supported"),
        ("max(x, key=n) == n", "'max(x, key=n)' is not supported"),
        ("n == 1j", "'1j' is not supported"),
        ("n @ m == 3", "'MatMult' is not supported"),
        ("n << m == 3", "'LShift' is not supported"),
        ("n == unknown", "'unknown' is neither an axis nor an input"),
        ("x.shape[2] == n", "there are 2 dimensions, n, m"),
    ],
)
def test_what_is_not_on_the_list_is_refused(text, what):
    assert what in problem(text)
    assert repr(text) in problem(text)


@pytest.mark.parametrize("text", ["n ==", "-" * 120 + "n == 1", "(" * 500 + "n" + ")" * 500])
def test_what_is_no_expression_is_refused_with_its_definition(text):
    with pytest.raises(ValueError, match="not a Python expression"):
        define(text)


@pytest.mark.parametrize(
    "text", ["9 ** 9 ** 9 > n", "(9 ** 60) ** 63 ** 63 > n", "2 ** (n * 64) > 1"]
)
def test_a_power_without_end_is_not_computed(text):
    assert "none of the values tried meet" in problem(text)


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("n == m + 1", {"n": 4, "m": 3}, True),
        ("n - 1 >= m * 2", {"n": 4, "m": 2}, False),
        ("n % 128 == 0", {"n": 256}, True),
        ("n // 2 < m / 2", {"n": 5, "m": 4}, False),
        ("n // 2 < m / 2", {"n": 5, "m": 5}, True),
        ("1 <= n < m", {"n": 1, "m": 1}, False),
        ("n == 1 or m == 1", {"n": 2, "m": 1}, True),
        ("not n == 1 and m != 2", {"n": 2, "m": 1}, True),
        ("min(n, m) == abs(0 - 2)", {"n": 2, "m": 5}, True),
        ("n ** 2 <= m", {"n": 3, "m": 8}, False),
        ("n % m == 0", {"n": 3, "m": 0}, False),
        ("ptr[-1].item() == n", {"n": 3, "ptr": torch.tensor([0, 3])}, True),
        ("ptr[-1] == n", {"n": 4, "ptr": torch.tensor([0, 3])}, False),
        ("ptr.max() < n", {"n": 4, "ptr": torch.tensor([0, 3])}, True),
        ("ptr >= 0", {"ptr": torch.tensor([0, -3])}, False),
        ("ptr >= 0", {"ptr": torch.tensor([0, 3])}, True),
        ("ptr >= 0 and n > 0", {"n": 1, "ptr": torch.tensor([0, 3])}, True),
        ("s > 0", {"s": 0.5}, True),
    ],
)
def test_a_constraint_holds_or_not(text, values, holds):
    broken = plan(define(text)).broken(values, values)
    assert broken == (None if holds else text)


def test_what_can_not_be_computed_is_told_with_the_text():
    planned = plan(define("ptr[9].item() == n"))
    with pytest.raises(ValueError, match=re.escape("constraint 'ptr[9].item() == n': index 9")):
        planned.broken({"n": 1}, {"ptr": torch.zeros(2)})


# How it is solved.


NO_OFFSETS = "x[n,m]:f32 y0[k]:f32 s:f32"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("n == m + 1", "11 to 11"),
        ("m + 1 == n", "11 to 11"),
        ("n + 1 == m", "9 to 9"),
        ("2 * n == m", "5 to 5"),
        ("n >= m", "10 to 134217728"),
        ("n > m", "11 to 134217728"),
        ("m >= n", "1 to 10"),
        ("m > n", "1 to 9"),
        ("m - n >= 7", "1 to 3"),
        ("n - m >= 7", "17 to 134217728"),
        ("m <= n * 16", "1 to 134217728"),
        ("m * 16 <= n * 3", "54 to 134217728"),
        ("n // 4 == m", "40 to 43"),
        ("n // 4 >= m", "40 to 134217728"),
        ("n // 4 < m", "1 to 39"),
        ("(n + 3) // 4 == m", "37 to 40"),
        ("n / 4 >= m", "40 to 134217728"),
        ("m // n == 3", "1 to 3"),
        ("n % 128 == 0", "128 to 134217728 in multiples of 128"),
        ("n % m == 0", "10 to 134217728 in multiples of 10"),
        ("x.shape[0] == m", "10 to 10"),
        ("x.shape[-2] == m", "10 to 10"),
        ("len(x) == m", "10 to 10"),
        ("x.numel() >= 35", "4 to 134217728"),
        ("x.dim() * n == m", "5 to 5"),
        ("n ** 2 <= m * m", "1 to 11"),  # one more than it is
        ("n * n <= m", "1 to 10"),  # not more than m
        ("min(n, m) >= 4", "4 to 134217728"),
        ("max(n, 3) == m", "10 to 10"),
        ("min(n, 99) == m", "10 to 10"),
        ("abs(n - m) <= 2", "8 to 12"),
        ("-n >= -m", "1 to 10"),
        ("n == 3 or n == m", "3 to 10"),
        ("(n < 5 or n > 199999999) and n % m < 7", "1 to 4"),
        ("n != m", "1 to 134217728"),
        ("n % 4 == 1", "1 to 134217728"),
        ("n % 4 == m - 9", "1 to 134217728"),
        ("s > n", "1 to 134217728"),
    ],
)
def test_a_constraint_leaves_bounds_of_an_axis(text, left):
    domain = plan(define(text, inputs=NO_OFFSETS)).domain("n", {"m": 10})
    assert str(domain) == left


@pytest.mark.parametrize(
    "text",
    ["3 * n == m", "n // 99999999 == m", "n != 10 and n == m", "min(n, m) == 11"],
)
def test_where_no_value_of_an_axis_is_left_there_is_no_domain(text):
    with pytest.raises(InfeasibleError):
        plan(define(text, inputs=NO_OFFSETS)).domain("n", {"m": 10})


# Systems that can't be solved for one axis after the other.


@pytest.mark.parametrize(
    ("constraints", "least"),
    [
        (["2*n == 3*m"], {"n": 3, "m": 2}),
        (["n*n == m + 2"], {"n": 2, "m": 2}),
        (["n * m % 211 == 0"], {"n": 1, "m": 211}),
        (["n * m % 65521 == 0", "m < 50000"], {"n": 65521, "m": 1}),
        (["n + m + k == 100", "n > m", "m > k"], {"n": 35, "m": 33, "k": 32}),
        (["n**2 + m**2 == k**2"], {"n": 3, "m": 4, "k": 5}),
        (["n * m == 1001", "n > m"], {"n": 77, "m": 13}),
        (["n % 5 == 2", "n % 7 == 3", "n % 11 == 4"], {"n": 367}),
        (["max(n, m) == 2 * min(n, m) + 1", "n >= 4"], {"n": 4, "m": 9}),
        (["n // 3 == m % 10", "n >= 20", "m > 20"], {"n": 20, "m": 26}),
        (["abs(n - m) == 7", "n + m == 51"], {"n": 22, "m": 29}),
        (["(n - 10) * (n - 20) == 0", "m == 2 * n or m == 3 * n"], {"n": 10, "m": 20}),
        (["n * m * k == 7 * 11 * 13", "n > 1", "m > 1", "k > 1"], {"n": 7, "m": 11, "k": 13}),
    ],
    ids=" and ".join,
)
def test_a_system_that_can_be_met_is(constraints, least):
    definition = define(*constraints, inputs=NO_OFFSETS)
    smallest = smallest_axes(definition)
    assert {axis: smallest[axis] for axis in least} == least
    workloads = found(definition, 10, 1 << 24)
    assert 10 <= len(workloads) <= 13  # with smaller ones before those that may take long
    assert all(in_domain(definition, workload.axes) for workload in workloads)


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("n == ptr[-1].item()", "n"),
        ("ptr[-1].item() == n", "n"),
        ("n == ptr[-1]", "n"),
        ("n == ptr[0].item()", None),
        ("n >= ptr[-1].item()", None),
        ("n + 1 == ptr[-1].item()", None),
    ],
)
def test_the_last_offset_is_a_total(text, total):
    definition = Definition.model_validate(signature("op", AXES, INPUTS, "y[n]:f32", text))
    assert getattr(plan(definition).rules["ptr"], "total", None) == total


def test_a_total_makes_its_tensor_an_indptr():
    data = signature(
        "op", "len total", "starts[len]:i32 x[total]:f32", "y[total]:f32",
        "total == starts[-1].item()",
    )  # fmt: skip
    definition = Definition.model_validate(data)
    for workload in found(definition, 20, 1 << 16):
        starts = filled(definition, workload)["starts"]
        assert (starts[0], starts[-1]) == (0, workload.axes["total"])
        assert (starts.diff() >= 0).all()


#: Every form that definitions of kernels have, and axes to draw.
FORMS = [
    ("n == m + 1",),
    ("m == n - 1",),
    ("n % 128 == 0",),
    ("n >= m",),
    ("n >= m", "n % m == 0"),
    ("n > 1",),
    ("k <= n * width",),
    ("width == 2 * half",),
    ("x.shape[1] == 2 * half",),
    ("x.shape[-1] == k",),
    ("n == m // 128",),
    ("m // 128 == n", "m % 128 == 0"),
    ("n == (m + 127) // 128",),
    ("n == m * k",),
    ("1 <= m <= n <= 64",),
    ("n * m <= 1024",),
    ("n % 7 == 3",),
    ("n == 3 or m == 4",),
    ("n == m", "m == k", "k >= 9"),
    ("n != m",),
]


@pytest.mark.parametrize("constraints", FORMS, ids=" and ".join)
def test_what_is_drawn_meets_every_constraint(constraints):
    definition = define(*constraints, inputs="x[n,m]:f32 y0[k]:f32 s:f32")
    assert plan(definition).problem is None
    workloads = found(definition, 40, 1 << 22)
    assert len(workloads) > 20
    code = compile(" and ".join(f"({text})" for text in constraints), "constraints", "eval")
    for workload in workloads:
        n, m = workload.axes["n"], workload.axes["m"]
        x = torch.empty(n, m)
        assert eval(code, {**workload.axes, "x": x, "width": 4, "half": 2})


def test_axes_are_solved_in_the_order_in_which_they_depend():
    assert plan(define("n == m + 1", "m == 2 * k")).order == ("k", "m", "n")


def test_nothing_is_thrown_away_where_axes_can_be_solved():
    """Rejected draws would be fewer workloads than were asked for."""
    definition = define("n == m // 128", "k >= n", "k % 8 == 0", inputs="x[n,m]:f32 z[k]:f32")
    assert len({w.uuid for w in found(definition, 100, 1 << 24)}) > 90


# What is said where it isn't met.


@pytest.mark.parametrize(
    ("constraints", "problem"),
    [
        (("half == 2 * width",), "constraint 'half == 2 * width' is false for the const axes"),
        (
            ("n == m + 1", "n == m + 2"),
            "axes 'm' (1 to 134217728) and 'n' (1 to 134217728): none of the values tried meet "
            "'n == m + 1' and 'n == m + 2'; "
            "if some do, narrow the domains under workloads.axes to where they lie",
        ),
        (
            ("n >= 10", "n <= 5"),
            "axis 'n' (1 to 134217728): no value meets 'n >= 10' and 'n <= 5'",
        ),
        (("n * n == 3",), "axis 'n' (1 to 134217728): no value meets 'n * n == 3'"),
        (
            ("n >= m", "2 * m == 1 + 2 * k", "k >= 3"),
            "axes 'm' (1 to 134217728) and 'k' (1 to 134217728): none of the values tried meet "
            "'2 * m == 1 + 2 * k'; "
            "if some do, narrow the domains under workloads.axes to where they lie",
        ),
        (
            ("n == width * 100000000",),
            "axis 'n' (1 to 134217728): no value meets 'n == width * 100000000'",
        ),
        (("n == what",), "constraint 'n == what': 'what' is neither an axis nor an input"),
    ],
)
def test_a_conflict_is_named_at_once(constraints, problem):
    assert plan(define(*constraints)).problem == problem


def test_a_conflict_with_a_domain_is_named():
    definition = define("n == 100 * m", domains={"n": {"max": 64}})
    problem = "axes 'm' (1 to 134217728) and 'n' (1 to 64): no values meet 'n == 100 * m'"
    assert plan(definition).problem == problem


def test_a_workload_that_breaks_a_constraint_is_reported_with_its_text():
    definition = define("x.sum() > 1e9")
    workload = make_workload(definition, {"n": 3, "m": 2, "k": 2})
    tensors = {"x": torch.empty(3, 2), "ptr": torch.empty(2, dtype=torch.int32)}
    told = "a workload of op was made that breaks 'x.sum() > 1e9': axes {'n': 3, 'm': 2, 'k': 2}"
    with pytest.raises(BrokenConstraintError, match=re.escape(told)):
        fill_inputs(tensors, definition, workload)


def test_of_a_broken_constraint_it_is_told_how_its_inputs_are_made():
    broken = define("ptr.max().item() < n", "m <= k")
    workload = make_workload(broken, {"n": 3, "m": 2, "k": 2})
    told = "; ptr: indptr, total n, as the definition says"
    assert why_broken(broken, workload).endswith(told)
    assert why_broken(define("ptr.max().item() <= n"), workload) is None


def test_an_item_says_which_constraint_its_workload_breaks(scale, scale_yaml):
    scale.define(f"{scale_yaml}constraints: [x.sum() > 1e9]\n")
    result = scale.run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*a workload of scale was made that breaks 'x.sum() > 1e9': *"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_constraints_that_nothing_meets_are_an_error_of_their_file(scale, scale_yaml):
    constraints = "constraints:\n  - n > 1\n  - n >= 10\n  - n <= 5\n"
    scale.define(f"{constraints}{scale_yaml}")
    result = scale.run()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["kernel_defs/toy/scale.yaml:3: axis 'n' (1 to 256): no value meets 'n >= 10' and 'n <= 5'"]
    )


# What they say of each element.


def each_of(*constraints, dtype="i32", axes="n k=5", count=24):
    """Inputs of many workloads, of which ``low`` and ``high`` are 0 to 900."""
    data = signature("op", axes, f"low[n,k]:{dtype} high[n,k]:{dtype}", "y[n]:f32", *constraints)
    rule = {"kind": "integers", "min": 0, "max": 900}
    definition = Definition.model_validate(
        {**data, "workloads": {"inputs": {"low": rule, "high": rule}}}
    )
    for seed in range(count):
        yield filled(definition, make_workload(definition, {"n": 40}, seed))


@pytest.mark.parametrize("dtype", ["i32", "f32"])
@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        ("all(low <= high)", lambda low, high: low <= high),
        ("(low <= high).all()", lambda low, high: low <= high),
        ("low < high", lambda low, high: low < high),
        ("(high > low).all().item()", lambda low, high: high > low),
        ("all(low + high <= 1000)", lambda low, high: low + high <= 1000),
        ("all(high - 3 >= low)", lambda low, high: high - 3 >= low),
        ("high.max().item() <= 40 * n", lambda low, high: high <= 1600),
        ("low.min() >= 0 and all(low <= high)", lambda low, high: (low >= 0) & (low <= high)),
    ],
)
def test_elements_of_inputs_are_as_constraints_relate_them(constraint, holds, dtype):
    if constraint == "low < high":  # equal ones of 0 may be less by one
        constraint = "low - 1 < high"
        holds = lambda low, high: low - 1 < high  # noqa: E731
    made = [(each["low"], each["high"]) for each in each_of(constraint, dtype=dtype)]
    assert all(bool(holds(low, high).all()) for low, high in made)
    assert sum(bool((low != high).any()) for low, high in made) > len(made) / 2


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        ("all(boxes[:, 0] <= boxes[:, 2])", lambda boxes: boxes[:, 0] <= boxes[:, 2]),
        ("all(boxes[..., :2] <= boxes[..., 2:])", lambda boxes: boxes[:, :2] <= boxes[:, 2:]),
        ("(boxes[:, 1] + 2 <= boxes[:, 3]).all()", lambda boxes: boxes[:, 1] + 2 <= boxes[:, 3]),
        ("boxes[0] >= 0", lambda boxes: boxes[0] >= 0),
    ],
)
def test_parts_of_inputs_are_as_constraints_relate_them(constraint, holds, dtype):
    data = signature("op", "n k=4", f"boxes[n,k]:{dtype}", "y[n]:f32", constraint)
    rule = {"kind": "integers" if dtype == "i32" else "uniform", "min": -200, "max": 300}
    definition = Definition.model_validate({**data, "workloads": {"inputs": {"boxes": rule}}})
    differ = 0
    for seed in range(16):
        made = filled(definition, make_workload(definition, {"n": 40}, seed))["boxes"]
        assert bool(holds(made.float()).all())
        differ += bool((made[:, 0] != made[:, 2]).any())
    assert differ > 8


@pytest.mark.parametrize(
    "text", ["(n, m) == n", "n == ...", "max((n, m)) == n", "x[(n, m)[0]] == n"]
)
def test_only_indices_have_several_parts(text):
    assert "not supported" in problem(text) or "is not" in problem(text)


@pytest.mark.parametrize("sign", ["<=", "<"])
def test_a_constraint_may_say_that_rows_are_in_order(sign):
    data = signature(
        "op", "n m", "x[n,m]:f32 t[n,m]:i64", "y[n,m]:f32", f"all(t[:, :-1] {sign} t[:, 1:])"
    )
    data["reference"] = "def run(x, t):\n    return x * t\n"
    definition = Definition.model_validate(data)
    rule = plan(definition).rules["t"]
    assert (rule.kind, rule.unique) == ("sorted", sign == "<")
    for seed in range(8):
        times = filled(definition, make_workload(definition, {"n": 4, "m": 30}, seed))["t"]
        assert bool((times.diff() >= (sign == "<")).all())


def test_elements_that_a_constraint_limits_are_not_all_at_the_limit():
    data = signature("op", "n", "done[n]:i32 total[n]:i32", "y[n]:f32", "all(done <= total)")
    rules = {
        "done": {"kind": "integers", "min": 0, "max": 1000},
        "total": {"kind": "integers", "min": 0, "max": 40},
    }
    definition = Definition.model_validate({**data, "workloads": {"inputs": rules}})
    equal, less = 0, 0
    for seed in range(16):
        made = filled(definition, make_workload(definition, {"n": 100}, seed))
        equal += int((made["done"] == made["total"]).sum())
        less += int((made["done"] < made["total"]).sum())
    assert equal > 100
    assert less > 400


@pytest.mark.parametrize(
    ("axes", "inputs", "rules", "constraints"),
    [
        ("n", "x[n]:i32 lo[n]:i32 hi[n]:i32",
         {"x": (0, 1000), "lo": (490, 495), "hi": (505, 510)}, ["all(lo <= x)", "all(x <= hi)"]),
        ("n", "x[n]:i32 y[n]:i32", {"x": (0, 1000), "y": (0, 90)},
         ["all(x >= y)", "all(x <= y + 3)"]),
        ("n k=4", "x[n,k]:i32", {"x": (-400, 400)},
         ["all(x[:, 0] <= x[:, 2])", "all(x[:, 2] <= 1)", "all(x[:, 0] >= 0)"]),
        ("n", "x[n]:i64 y[n]:i64", {"x": (-(2**63), 2**63 - 1), "y": (0, 100)}, ["all(x <= y)"]),
        ("n", "x[n]:i32", {"x": (0, 9)}, ["all(x >= x[0])", "all(x <= 7)"]),
        ("n", "x[n]:i32", {}, ["all(x >= x[0])", "all(x <= 7)"]),
    ],
)  # fmt: skip
def test_limits_on_both_sides_are_met_together(axes, inputs, rules, constraints):
    data = signature("op", axes, inputs, "y_out[n]:f32", *constraints)
    data["reference"] = f"def run({', '.join(data['inputs'])}):\n    return x * 1.0\n"
    data["workloads"] = {
        "inputs": {name: {"kind": "integers", "min": low, "max": high}
                   for name, (low, high) in rules.items()}
    }  # fmt: skip
    definition = Definition.model_validate(data)
    for seed in range(12):
        filled(definition, make_workload(definition, {"n": 40}, seed))  # which checks all of them


def test_limited_scales_stay_finite():
    data = signature("op", "n", "s[n]:f32 x[n]:f32", "y[n]:f32", "all(s >= x)")
    rules = {"s": {"kind": "scales"}, "x": {"kind": "uniform", "min": 1, "max": 9}}
    definition = Definition.model_validate({**data, "workloads": {"inputs": rules}})
    for seed in range(12):
        made = filled(definition, make_workload(definition, {"n": 40}, seed))
        assert bool(made["s"].isfinite().all())


@pytest.mark.parametrize("constraint", ["all(t[:-1] <= t[1:])", "all(t[:, :-1] <= t[:, 1:])"])
def test_an_order_along_other_dimensions_is_none_of_rows(constraint):
    data = signature("op", "n m k=3", "x[n]:f32 t[n,m,k]:i64", "y[n]:f32", constraint)
    data["reference"] = "def run(x, t):\n    return x * t.sum((1, 2))\n"
    assert plan(Definition.model_validate(data)).rules["t"].kind != "sorted"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("all(boxes[:, 0] <= boxes[:, 5])", "'boxes[:, 5]': k has 4 elements"),
        ("boxes[0, -5] <= 1", "'boxes[0, -5]': k has 4 elements"),
        ("boxes[0, 0, 0] <= 1", "'boxes[0, 0, 0]': there are 2 dimensions"),
        ("boxes[..., 0, -4] <= 1", None),
        ("all(boxes[..., 7:] <= 1)", None),
        ("boxes[99] <= boxes[99, 3]", None),
    ],
)
def test_parts_that_cannot_be_there_are_refused_with_their_definition(text, why):
    data = signature("op", "n k=4", "boxes[n,k]:f32", "y[n]:f32", text)
    problem = plan(Definition.model_validate(data)).problem
    assert why in problem if why else problem is None


@pytest.mark.parametrize("text", ["x[::-1] <= 5", "x[(0, 1), 2] <= 5"])
def test_parts_are_written_in_numbers(text):
    assert "not supported" in problem(text)


def test_two_limits_of_elements_hold_together():
    made = each_of("all(low <= high)", "high.max().item() <= 300")
    assert all(bool((each["low"] <= each["high"]).all()) for each in made)


def test_what_no_element_can_meet_is_refused():
    with pytest.raises(BrokenConstraintError, match=r"all\(low >= 1000 \+ high\)"):
        next(each_of("all(low >= 1000 + high)", "all(low <= 900)"))


def test_bounds_of_elements_make_the_rule_of_an_input():
    data = signature(
        "op", "n", "x[n]:f32 ipiv[n]:i32", "y[n]:f32", "all(ipiv >= 1)", "all(ipiv <= n)"
    )
    data["reference"] = "def run(x, ipiv):\n    return x[ipiv.long() - 1]\n"
    planned = plan(Definition.model_validate(data))
    assert str(planned.inferred["ipiv"]) == "as constraints say (integers, min 1, max n)"


@pytest.mark.parametrize("dtype", ["u8", "fp8"])
def test_narrow_dtypes_are_compared_as_numbers(dtype):
    for constraint in ("all(low <= 300)", "all(0 - 500 <= low)", "all(-500 <= low < 600)"):
        data = signature("op", "n", f"low[n]:{dtype}", "y[n]:f32", constraint)
        data["workloads"] = {
            "inputs": {"low": {"kind": "uniform" if dtype == "fp8" else "integers", "max": 7}}
        }
        definition = Definition.model_validate(data)
        for seed in range(4):
            made = filled(definition, make_workload(definition, {"n": 40}, seed))["low"]
            assert float(made.float().max()) <= 7


def test_related_inputs_stay_within_their_own_rules():
    data = signature("op", "n", "low[n]:i32 high[n]:i32", "y[n]:f32", "all(low < high)")
    rules = {
        "low": {"kind": "integers", "min": 4, "max": 40, "step": 4},
        "high": {"kind": "integers", "min": 0, "max": 60, "step": 5},
    }
    definition = Definition.model_validate({**data, "workloads": {"inputs": rules}})
    for seed in range(24):
        try:
            made = filled(definition, make_workload(definition, {"n": 40}, seed))
        except BrokenConstraintError:
            continue
        low, high = made["low"], made["high"]
        assert bool(((low >= 4) & (low <= 40) & (low % 4 == 0)).all())
        assert bool(((high >= 0) & (high <= 60) & (high % 5 == 0)).all())


@pytest.mark.parametrize(
    ("constraints", "rule"),
    [
        (["all(low > 0)"], "uniform, min 0.0"),
        (["all(low >= 0)", "all(low < 1)"], "uniform, min 0, max 0.9"),
        (["all(low > -1)", "all(low < 1)"], "uniform, min -0.99"),
    ],
)
def test_open_ends_of_floats_are_left_out_by_little(constraints, rule):
    data = signature("op", "n", "low[n]:f32", "y[n]:f32", *constraints)
    made = plan(Definition.model_validate(data)).rules["low"]
    assert str(made).startswith(rule) or made.kind == "scales"


def test_related_integers_are_exact_however_large():
    data = signature("op", "n", "low[n]:i64 high[n]:i64", "y[n]:f32", "all(low + 1 <= high)")
    rule = {"kind": "integers", "min": 2**53, "max": 2**53 + 900}
    definition = Definition.model_validate(
        {**data, "workloads": {"inputs": {"low": rule, "high": rule}}}
    )
    for seed in range(24):
        made = filled(definition, make_workload(definition, {"n": 40}, seed))
        assert bool((made["low"] < made["high"]).all())
        assert int(made["low"].min()) >= 2**53
        assert int(made["high"].max()) <= 2**53 + 900


def test_indices_that_may_be_equal_are_as_constraints_relate_them():
    """As of the ends of edges that go forwards."""
    inputs = "x[n]:f32 source[m]:i32 target[m]:i32"
    data = signature("op", "n m", inputs, "y[m]:f32", "n >= 2", "(source < target).all()")
    data["reference"] = "def run(x, source, target):\n    return x[source] - x[target]\n"
    definition = Definition.model_validate(data)
    for seed in range(24):
        made = filled(definition, make_workload(definition, {"n": 2 + seed % 5, "m": 9}, seed))
        assert bool((made["source"] < made["target"]).all())
        assert bool((made["target"] < 2 + seed % 5).all())
