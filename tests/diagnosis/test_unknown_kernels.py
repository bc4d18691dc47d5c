"""First lines on kernels of no known kind say what is so, and where little is known, little."""

import re
from functools import partial
from time import monotonic as now

import pytest
import torch

from pytest_fib.data import (
    BuildSpec,
    Circumstance,
    Correctness,
    Definition,
    Diagnosis,
    Evaluation,
    EvaluationRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
)
from pytest_fib.diagnosis import Conditions, parts
from pytest_fib.engine import FunctionChecker, Judge, diagnose_failure
from pytest_fib.workloads import make_inputs, make_workload


@pytest.fixture(scope="module")
def judge():
    with Judge("cpu", "none") as judge:
        yield judge


def define(inputs, outputs, body, axes=None, rules=None):
    """A definition whose reference ends in ``body``; a spec is ``float32[n, d]``."""

    def spec(text):
        dtype, _, shape = text.rstrip("]").partition("[")
        axes = [int(a) if a.strip().isdigit() else a.strip() for a in shape.split(",") if a.strip()]
        return {"dtype": dtype, "shape": axes if "[" in text else None}

    return Definition.model_validate(
        {
            "name": "kernel",
            "op_type": "other",
            "axes": {"n": "var", "d": 64, **(axes or {})},
            "inputs": {name: spec(text) for name, text in inputs.items()},
            "outputs": {name: spec(text) for name, text in outputs.items()},
            "reference": f"import torch\n\ndef run({', '.join(inputs)}):\n    {body}\n",
            "workloads": {"inputs": rules or {}},
        }
    )


def outcome(judge, definition, body, n=200, seed=0, regime=None, header=""):
    """What becomes of an implementation that ends in ``body``, explained."""
    workload = make_workload(definition, {"n": n}, seed, regime)
    return evaluated(judge, definition, body, workload, header=header)


def evaluated(judge, definition, body, workload, *, header="", explain=True):
    text = f"import torch\n{header}\ndef run({', '.join(definition.inputs)}):\n    {body}\n"
    solution = Solution(
        name="kernel",
        definition=definition.name,
        author="tests",
        spec=BuildSpec(
            language=SupportedLanguages("python"),
            target_hardware=["cpu"],
            entry_point="module.py::run",
            calling="value",
        ),
        sources=[SourceFile(path="module.py", content=text)],
    )
    request = EvaluationRequest(
        definition=definition, solution=solution, workload=workload, explain=explain
    )
    return judge.evaluate(request)


def diagnosis(*arguments, **settings):
    evaluation = outcome(*arguments, **settings)
    assert evaluation.status.value == "INCORRECT_NUMERICAL", evaluation.log
    return evaluation.diagnosis


SCALE = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * 3")


def test_what_depends_on_values_alone_needs_no_call_before(judge):
    wrong = "return x * 3 + (x[0, :1] > 0) * (x > 0)"
    found = [outcome(judge, SCALE, wrong, seed=seed).diagnosis for seed in range(8)]
    wrong = [each for each in found if each is not None]
    assert not any("call" in each.sentence for each in wrong)
    assert any(re.search(r"third call, .* seed \d+\)$", each.details[-1]) for each in wrong)


def test_what_a_larger_workload_shows_with_other_values_is_shown_by_these(judge):
    """The kernel is wrong where the first element is positive: for the third call's values."""
    wrong = "return x * 3 * (1 + (x[0, 0] > 0))"

    def evaluate(workload, *, explain=True):
        return evaluated(judge, SCALE, wrong, workload, explain=explain)

    shown = []
    for seed in range(8):
        small = make_workload(SCALE, {"n": 2}, seed)
        plain = evaluate(small, explain=False)
        if "of the third call" in " ".join(plain.log.split()):
            found = diagnose_failure(SCALE, small, plain, evaluate, 1 << 16).diagnosis
            assert found.sentence == "y: every element is 2 x expected"
            assert "of the third call, whose values" in found.details[-1]
            assert found.shown_by.axes["n"] > 2
            shown += [found.shown_by] if found.shown_by.seed != seed else []
    assert shown
    for workload in shown:
        own = evaluate(make_workload(SCALE, workload.axes, workload.seed, workload.regime))
        assert own.diagnosis.sentence == "y: every element is 2 x expected"
        assert own.diagnosis.shown_by is None  # its first call shows it


def test_what_values_hide_is_shown_by_others_in_the_same_check(judge):
    zeros = make_workload(SCALE, {"n": 4}, 0, {"values": "zeros"})
    found = evaluated(judge, SCALE, "return x * 2", zeros, explain=False).diagnosis
    assert found.sentence == "y: every element is 0.66667 x expected"
    assert found.shown_by.regime == {"values": "mixed"}
    assert found.details[-1].startswith("  (of the third call, whose values are mixed, of seed ")


def test_what_depends_on_the_calls_before_says_so(judge):
    wrong = "calls.append(0)\n    return x * 3 + (len(calls) > 2)"
    found = diagnosis(judge, SCALE, wrong, header="calls = []")
    assert found.sentence.endswith("wrong on a second of the same shapes with other values)")


NORM = define(
    {"x": "float32[n, d]", "w": "float32[d]", "b": "float32[d]"},
    {"y": "float32[n, d]"},
    "return torch.sigmoid(x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w + b)",
)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        # A mean that is subtracted, a power series, a bias behind the function.
        ("x = x - x.mean(-1, keepdim=True)\n    return {}", "wrong"),
        ("return {} - 0.01 * ({} - 0.5).pow(3)", "wrong"),
        ("return {} + 0.01 * torch.sin(b)", ", in what depends on b"),
    ],
)
def test_errors_of_a_formula_are_no_rounding(judge, wrong, words):
    right = "torch.sigmoid(x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w + b)"
    found = diagnosis(judge, NORM, wrong.replace("{}", right))
    assert words in found.sentence
    assert not re.search("float16|round|errors of", found.sentence)


SCALED = define(
    {"x": "float32[n, d]", "w": "float32[d]", "s": "float32[d]", "b": "float32[d]"},
    {"y": "float32[n, d]"},
    "return torch.sigmoid(x * w * s) + b",
    rules={"s": {"kind": "scales"}},
)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        # Where any factor is 0, nothing is left of the others; a scale never is.
        (
            "return torch.sigmoid(x * w * s + 0.03 * (x * w).sin()) + b",
            ", in what depends on x, w and s",
        ),
        ("return torch.sigmoid(x * w * s) + b + 0.03 * b.sin()", ", in what depends on b"),
    ],
)
def test_factors_of_one_product_are_named_together_for_an_error_in_it(judge, wrong, words):
    assert diagnosis(judge, SCALED, wrong).sentence.endswith(words)


SWITCHED = define(
    {"x": "float32[n, d]", "b": "float32[d]", "use": "bool"},
    {"y": "float32[n, d]"},
    "return x.sin() + (b if use else b * 0)",
    rules={"use": {"kind": "boolean", "p": 1.0}},
)


FLAGGED = define(
    {"x": "float32[n, d]", "flags": "bool[n]"},
    {"y": "float32[n, d]"},
    "return torch.where(flags[:, None], x.sin(), x.exp())",
)


def test_flags_that_are_right_either_way_are_all_alike(judge):
    wrong = "return torch.where(flags[:1, None], x.sin(), x.exp())"
    sentence = diagnosis(judge, FLAGGED, wrong).sentence
    assert "flags is False" not in sentence
    assert "flags is True" not in sentence


def test_what_makes_it_right_does_so_at_twice_the_sizes():
    definition = define(
        {"x": "float32[n, d]", "b": "float32[n, d]"},
        {"y": "float32[n, d]"},
        "return x.sin() + b.exp()",
    )

    def run(x, b, most):
        return x.sin() + b.exp() + 0.01 * (b.sin() if len(x) <= most else b.cos())

    for most, is_said in ((1 << 20, True), (2000, False)):
        found = _found(definition, partial(run, most=most), 2, 16 << 20)
        assert (", in what depends on b" in found.sentence) is is_said, found.sentence


def test_what_makes_it_right_does_so_at_twice_each_size_where_all_are_too_much():
    definition = define(
        {"x": "float32[n, m]", "b": "float32[m]"},
        {"y": "float32[n, m]"},
        "return x.sin() + b.exp()",
        axes={"m": "var"},
    )
    for most, is_said in ((1 << 20, True), (8, False)):
        check = FunctionChecker(
            definition,
            lambda x, b, m=most: x.sin() + b.exp() + 0.01 * (b.sin() if len(b) <= m else b.cos()),
            "cpu",
        )
        few = make_workload(definition, {"n": 3, "m": 5})
        found = diagnose_failure(definition, few, check(few), partial(check, explain=True), 1024)
        sentence = found.diagnosis.sentence
        assert (", in what depends on b" in sentence) is is_said, sentence


def test_a_switch_is_no_factor_of_what_it_adds(judge):
    sentence = diagnosis(judge, SWITCHED, "return x.sin() + (1.01 * b if use else b * 0)").sentence
    assert "right if use is False" in sentence or "depends on b" in sentence


MOMENT = define(
    {"p": "float32[n, d]", "v": "float32[n, d]", "share": "float32"},
    {"y": "float32[n, d]"},
    "return 0.7 * p / (1 + v.abs() * (1 - share))",
    rules={"share": {"kind": "uniform", "min": 0.5, "max": 0.99}},
)


def test_no_input_is_tried_as_a_number_that_is_beyond_its_most(judge):
    step = "v.abs() * (1 - share)"
    wrong = f"return 0.7 * p / (1 + {step} + 0.3 * ({step} * 5).sin())"
    assert "share is 1" not in diagnosis(judge, MOMENT, wrong).sentence


SUM = define(
    {"x": "float32[n, d]", "b": "float32[d]"},
    {"y": "float16[n, d]"},
    "return (x * 1e-3 + b).half()",
    rules={"b": {"kind": "normal", "std": 1e-3}},
)


def test_what_hides_an_error_among_larger_numbers_says_nothing(judge):
    """Where ``b`` is 1, what is wrong in a thousandth of ``x`` is within float16's rounding."""
    wrong = "return (x * 1e-3 + (x * 40).sin() * 1e-4 + b).half()"
    found = diagnosis(judge, SUM, wrong)
    assert "b is 1" not in found.sentence


RELAXED = define(
    {"x": "float32[n, d]", "fixed": "bool[n, d]"},
    {"y": "float32[n, d]"},
    "return torch.where(fixed, x, (x.roll(1, 1) + x.roll(-1, 1)) / 2)",
)


def test_an_output_that_is_all_masked_says_nothing(judge):
    wrong = "return torch.where(fixed, x, (x.roll(1, 1) + torch.sin(x.roll(-1, 1))) / 2)"
    assert not re.search("right if|depends on", diagnosis(judge, RELAXED, wrong).sentence)


def test_waits_for_others_take_no_time_from_an_explanation(judge, monkeypatch):
    """Each request to a sandbox waits for ten minutes until others have used the device."""
    waited = [0.0]

    def give_way(lock):
        waited[0] += 600.0
        lock.waited += 600.0

    monkeypatch.setattr("pytest_fib.engine._device_lock.DeviceLock.give_way", give_way)
    monkeypatch.setattr("pytest_fib.engine._sandbox_calls.monotonic", lambda: now() + waited[0])
    right = NORM.reference.partition("return ")[2].strip()
    sentence = diagnosis(judge, NORM, f"return {right} + 0.01 * torch.sin(b)").sentence
    assert waited[0] > 0
    assert ", in what depends on b" in sentence


STEP = define(
    {"p": "float32[n, d]", "g": "float32[n, d]", "rate": "float32[d]"},
    {"y": "float32[n, d]"},
    "return p - rate * g / (g.abs() + 0.1)",
)


def test_that_nothing_is_wrong_where_an_input_stays_what_it_is_says_nothing(judge):
    found = diagnosis(judge, STEP, "return p - rate * g / (g * g + 0.1).sqrt()")
    assert "rate is 0" not in found.sentence


ROUTE = define(
    {"x": "float32[n, d]", "bias": "float32[d]"},
    {"w": "float32[n, k]", "ids": "int64[n, k]"},
    """score = x.sigmoid()
    ids = (score + bias).topk(6, dim=-1).indices
    chosen = score.gather(1, ids)
    return chosen / chosen.sum(-1, keepdim=True), ids""",
    axes={"k": 6},
    rules={"bias": {"kind": "uniform", "min": -0.1, "max": 0.1}},
)


def test_errors_of_what_is_chosen_otherwise_are_no_rounding(judge):
    """Where inputs are moved to tell them apart, others are chosen, whose errors are their own."""
    wrong = """score = x.sigmoid()
    top = (score + bias).topk(6, dim=-1)
    return top.values / top.values.sum(-1, keepdim=True), top.indices"""
    found = diagnosis(judge, ROUTE, wrong)
    assert found.output == "w"
    assert "rounding" not in found.sentence


def test_errors_of_rounding_are_called_that(judge):
    right = "x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w + b"
    found = diagnosis(judge, NORM, f"return torch.sigmoid(({right}).bfloat16().float())")
    assert found.pattern in ("lower precision", "scattered", "everywhere")
    found = diagnosis(judge, SCALE, "return (x * 1.7).bfloat16().float() * (3 / 1.7)")
    assert (found.pattern, "like those of rounding" in found.sentence) == ("lower precision", True)
    found = diagnosis(judge, SCALE, "return x.bfloat16().float() * 3.0")
    assert found.sentence.endswith("x were rounded to bfloat16")


def test_inputs_were_not_rounded_where_numbers_that_need_no_rounding_are_wrong_as_well(judge):
    rules = {"b": {"kind": "uniform", "min": 1e5, "max": 2e5}}  # beyond float16
    tensors = {"x": "float32[n, d]", "b": "float32[d]"}
    kind = define(tensors, {"y": "float32[n, d]"}, "return 3 * x + 1e5 / b", rules=rules)
    assert "rounded" not in diagnosis(judge, kind, "return 3 * x").sentence
    found = diagnosis(judge, kind, "return 3 * x + 1e5 / b.half().float()")
    assert found.sentence.endswith("b were rounded to float16")


def test_an_input_is_not_said_to_be_ignored_where_other_numbers_of_it_are_not(judge):
    """Of zeros in bins between zeros, it is as if the edges were 1."""
    bins = "torch.zeros(65, dtype=w.dtype).index_add(0, torch.searchsorted({}, x, right={}), w)"
    kind = define(
        {"x": "float32[n]", "edges": "float32[d]", "w": "float32[n]"},
        {"y": "float32[bins]"},
        f"return {bins.format('edges.sort().values', True)}",
        axes={"bins": 65},
        rules={"w": {"kind": "uniform", "min": 1.0, "max": 2.0}},
    )
    left = f"return {bins.format('edges.sort().values', False)}"
    assert "as if" not in diagnosis(judge, kind, left, regime={"values": "zeros"}).sentence


def test_what_is_wrong_wherever_something_is_is_not_wrong_everywhere(judge):
    kind = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * (x > 1)")
    found = diagnosis(judge, kind, "return torch.where(x > 1, float('nan'), 0.0)")
    assert found.sentence.startswith("y: NaN wherever 0 isn't expected")


COUNTS = define(
    {"x": "float32[n, d]"},
    {"y": "int64[d]"},
    "return (x > 0).sum(0) * 1_000_000_007",
)


def test_integers_have_all_their_digits_and_are_not_rounded(judge):
    found = diagnosis(judge, COUNTS, "return (x > 0).sum(0) * 1_000_000_007 + (x > 1).sum(0)")
    assert re.search(r"got (\d{11,}), expected (?!\1\b)\d{11,}", found.element)
    assert not re.search("float|round", found.sentence)


MASKED = define(
    {"x": "float32[n, d]"},
    {"y": "float32[n, d]"},
    "return x.masked_fill(x < x.topk(8).values[:, -1:], float('-inf'))",
)


def test_an_infinity_of_a_mask_is_no_overflow(judge):
    found = diagnosis(
        judge, MASKED, "return x.masked_fill(x < x.topk(6).values[:, -1:], -torch.inf)"
    )
    assert found.pattern == "infinity"
    assert re.fullmatch(r"y: -inf at 400 of 12800 elements, where numbers .*", found.sentence)
    found = diagnosis(judge, MASKED, "return x.masked_fill(x < x.topk(8).values[:, -1:], -1e9)")
    assert found.headline == "y: finite numbers where -inf is expected"


def test_nan_of_one_byte_was_written(judge):
    cast = define(
        {"x": "float32[n, d]"}, {"y": "float8_e4m3fn[n, d]"}, "return x.to(torch.float8_e4m3fn)"
    )
    wrong = (
        "y = x.to(torch.float8_e4m3fn).view(torch.uint8)\n"
        "    return torch.where(x < 0, 255, y).to(torch.uint8).view(torch.float8_e4m3fn)"
    )
    assert diagnosis(judge, cast, wrong).headline.startswith("y: NaN only where x is below 0")


ABOVE = define({"x": "float32[n, d]", "t": "float32[d]"}, {"y": "bool[n, d]"}, "return x > t")


@pytest.mark.parametrize(
    ("wrong", "regime", "words"),
    [
        ("x == x", {}, "y: True where False is expected at"),
        ("x >= t", {"values": "zeros"}, "y: True where False is expected everywhere"),
        ("x > t + 9", {}, "y: False where True is expected everywhere"),
        ("x < t", {}, "y: wrong everywhere; y[0, 0] got"),
        ("x > t[:1]", {}, "y: wrong at"),
        ("x.abs() > t", {}, "y: True where False is expected at"),
    ],
)
def test_bools_that_agree_with_something_may_do_so_by_chance(judge, wrong, regime, words):
    assert diagnosis(judge, ABOVE, f"return {wrong}", regime=regime).headline.startswith(words)


LOSS = define(
    {"p": "float32[n, d]", "scale": "float32", "shift": "float32"},
    {"loss": "float32[]"},
    "return (p.sigmoid() * scale).sum(-1).mean() + shift",
    rules={"scale": {"value": 0.7}, "shift": {"value": 5.0}},
)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("(p.sigmoid() * scale).sum(-1).mean() * 1.01 + shift", "loss: wrong; loss got"),
        ("(p.sigmoid() * scale).sum(-1).mean() + shift * shift", "loss: as if shift were squared"),
        ("(p.tanh() * scale).sum(-1).mean() + shift", "loss: wrong; loss got"),
        ("-(p.sigmoid() * scale).sum(-1).mean() - shift", "loss: the sign is wrong"),
    ],
)
def test_one_element_says_what_it_is_and_what_it_can_hardly_be_by_chance(judge, wrong, words):
    assert words in diagnosis(judge, LOSS, f"return {wrong}").headline


def test_a_definition_whose_reference_has_another_dtype_is_wrong_and_nobody_else(judge):
    returns_other = define({"x": "float32[n, d]"}, {"y": "bfloat16[n, d]"}, "return x * 3")
    assert (
        "y: got float32, expected bfloat16" in outcome(judge, returns_other, "return x * 3").message
    )
    assert outcome(judge, returns_other, "return (x * 3).bfloat16()").status.value == "PASSED"


ADAGRAD = define(
    {"table": "float16[n, d]", "grad": "float32[n, d]", "total": "float32[n]"},
    {"y": "float16[n, d]"},
    "return (table - 0.05 * (total + grad.square().mean(-1)).rsqrt()[:, None] * grad).half()",
    rules={"total": {"kind": "uniform", "min": 0.01, "max": 2.0}},
)


@pytest.mark.parametrize("seed", [39, 41])
def test_what_explains_one_row_and_not_many_is_not_said(seed):
    """Of one row, the total before is as if the gradient were times a number."""

    def stale(table, grad, total):
        return (table - 0.05 * total.rsqrt()[:, None] * grad).half()

    check = FunctionChecker(ADAGRAD, stale, "cpu")
    row = make_workload(ADAGRAD, {"n": 1}, seed)
    alone = check(row, explain=True)
    found = diagnose_failure(ADAGRAD, row, alone, lambda w: check(w, explain=True), 1 << 16)
    assert "as if" not in found.diagnosis.sentence
    # Of the one row, which the message is about.
    assert found.diagnosis.element.startswith("y[0, ")
    assert re.search(r"( \(n=\d+\)|; y\[0, \d+\] got .*)$", found.diagnosis.headline)


CAPPED = define(
    {"x": "float32[n]", "step": "float32[n]"},
    {"y": "float32[n]"},
    "return x - step / step.square().mean().sqrt().clamp(min=1.0)",
    rules={"step": {"kind": "uniform", "min": 1e-4, "max": 2e-4}},
)


def test_one_element_says_nothing_of_an_input_where_larger_workloads_are_right():
    """Of one small step that is made 1 and should not be, it is as if it were larger or smaller."""

    def always(x, step):
        size = step.square().mean().sqrt()
        return x - step / (size if len(x) == 1 else size.clamp(min=1.0))

    check = FunctionChecker(CAPPED, always, "cpu")
    one = make_workload(CAPPED, {"n": 1}, 3, {"values": "small"})
    alone = check(one, explain=True)
    assert "as if" in alone.diagnosis.sentence
    plain = check(one)
    found = diagnose_failure(CAPPED, one, plain, lambda w: check(w, explain=True), 1 << 16)
    assert "as if" not in found.diagnosis.sentence


def test_a_value_that_is_mostly_right_is_not_called_the_same_value(judge):
    """Pairs of levels take the larger of the two: where one is wrong it is 7, as most are."""
    rules = {"x": {"kind": "uniform"}}
    level = "(7 - (x < 0.01).int() - (x < 0.005).int())"
    levels = define({"x": "float32[n, d]"}, {"y": "int32[n, d]"}, f"return {level}", rules=rules)
    paired = f"return {level}.view(-1, 32, 2).amax(-1).repeat_interleave(2, 1)"
    assert "the same value" not in diagnosis(judge, levels, paired).sentence


def test_zeros_of_one_row_alone_are_no_zeros_everywhere():
    """A query that does not see itself sees nothing where it is the only one."""
    causal = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return (x @ x.T).tril() @ x")
    check = FunctionChecker(causal, lambda x: (x @ x.T).tril(-1) @ x, "cpu")
    workload = make_workload(causal, {"n": 1})

    def evaluate(larger):
        return check(larger, explain=True)

    found = diagnose_failure(causal, workload, check(workload), evaluate, 1 << 16)
    assert "zeros" not in found.diagnosis.sentence


def found_of(definition, run, axes, seed=0, regime=None, max_bytes=1 << 18):
    """The diagnosis of a failure at these sizes, with larger ones, as an item looks for it."""
    check = FunctionChecker(definition, run, "cpu")
    workload = make_workload(definition, axes, seed, regime)
    explained = partial(check, explain=True)
    return diagnose_failure(definition, workload, check(workload), explained, max_bytes).diagnosis


def _found(definition, run, n, max_bytes=1 << 16):
    """The same of so many rows."""
    return found_of(definition, run, {"n": n}, max_bytes=max_bytes)


VARIANCE = define(
    {"x": "float32[n, d]"},
    {"mean": "float32[d]", "var": "float32[d]"},
    "return x.mean(0), (x - x.mean(0)).square().mean(0)",
)


def test_a_factor_that_depends_on_the_workload_is_shown_at_two():
    found = _found(VARIANCE, lambda x: (x.mean(0), x.var(0)), 4)
    larger = found.shown_by.axes["n"]
    ratios = f"{larger / (larger - 1):.5g} x expected at n={larger}, 1.3333 x expected at n=4"
    assert found.sentence == f"var: every element is {ratios}"


@pytest.mark.parametrize("known", [(), (parts.Name("n / (n - 1)"),), (parts.Name("sqrt(n)"),)])
@pytest.mark.parametrize("marks", [(), ("only in a third call",), ("of others", "only twice")])
def test_a_factor_at_two_workloads_keeps_its_circumstances(known, marks):
    """As where only a third call is wrong: the larger one is then right in a first."""

    def failed(factor, *more):
        diagnosis = Diagnosis(sentence="", output="y", pattern="one factor")
        diagnosis = diagnosis.with_parts("y:", parts.Factor(str(factor)), *more)
        return Evaluation(
            status="INCORRECT_NUMERICAL", correctness=Correctness(), diagnosis=diagnosis
        )

    workload = make_workload(SCALE, {"n": 2})
    larger = failed(1.02, *known, *map(Circumstance, marks))
    found = diagnose_failure(SCALE, workload, failed(1.5), lambda w: larger, 1 << 16).diagnosis
    at = found.shown_by.axes["n"]
    assert found.sentence == (
        f"y: every element is 1.02 x expected at n={at}, 1.5 x expected at n=2"
        + "".join(f" ({mark})" for mark in marks)
    )


def test_where_another_output_is_right_in_the_smallest_workload_it_is_said_where_it_is_not():
    def half(x):
        mean = x.mean(0) if len(x) < 8 else x.mean(0) * float("nan")
        return mean, x.square().mean(0) if len(x) < 8 else x.var(0, correction=0)

    found = _found(VARIANCE, half, 4)
    at = found.shown_by.axes["n"]
    assert found.sentence == f"mean: NaN everywhere, where numbers are expected (n={at})"
    assert found.details[0].strip().startswith("var[")


def test_what_says_little_goes_with_the_elements_below_it():
    """Of the larger workload all are wrong, of the smallest half."""
    lines = define({"x": "float32[n]"}, {"y": "float32[n]"}, "return x * 3")

    def run(x):
        wrong = x.sin() + x.cos() ** 3
        return wrong if len(x) > 64 else torch.where(torch.arange(len(x)) % 3 == 1, wrong, x * 3)

    found = _found(lines, run, 16)
    assert "everywhere" not in found.headline


def test_how_many_elements_of_another_workload_are_wrong_is_not_said():
    lines = define({"x": "float32[n]"}, {"y": "float32[n]"}, "return x * 3")
    check = FunctionChecker(
        lines, lambda x: torch.where(x > 1.5, x.sin() + x.cos() ** 3, x * 3), "cpu"
    )
    few = make_workload(lines, {"n": 40}, 2)
    found = diagnose_failure(lines, few, check(few), lambda w: check(w, explain=True), 1 << 16)
    assert not re.search(r" of (?!40 )\d+ elements", found.diagnosis.headline)


def test_a_dimension_without_a_name_has_its_number(judge):
    pairs = define({"x": "float32[n, 2]"}, {"y": "float32[n]"}, "return x[:, 0] - 2 * x[:, 1]")
    found = diagnosis(judge, pairs, "return x[:, 1] - 2 * x[:, 0]")
    assert found.sentence == "y: as if x were reversed along dim1"


SKIPPED = define(
    {"p": "float32[n, d]", "g": "float32[n, d]", "beta": "float32"},
    {"skipped": "bool[]", "out": "float32[n, d]"},
    "off = ~g.isfinite().all()\n    return off, torch.where(off, p, p - 0.1 * g) * beta",
    rules={"beta": {"value": 1.0}},
)


def test_a_wrong_flag_comes_before_the_numbers_that_follow_from_it(judge):
    wrong = "return g.isnan().any(), (p - 0.1 * g) * beta"
    found = diagnosis(judge, SKIPPED, wrong, regime={"values": "inf"})
    assert found.pattern == "wrong flag"
    assert found.headline == "skipped: False where True is expected (out is wrong too)"


def test_zeros_say_which_scalar_is_zero(judge):
    scaled = define(
        {"x": "float32[n, d]", "y": "float32[n, d]", "alpha": "float32"},
        {"z": "float32[n, d]"},
        "return alpha * x + y",
        rules={"alpha": {"value": 0.0}},
    )
    found = diagnosis(judge, scaled, "return alpha * (x + y)")
    assert found.sentence == "z: zeros everywhere, where alpha is 0"


#: Kernels that are right for most inputs, and that look like a simple mistake on these ones.
BY_CHANCE = {
    "of zeros": ("return x * 3 + x[:1] - x[:1].abs()", {"values": "one_hot"}),
    "of equal numbers": ("return (x * 3).roll(1, 0) + (x - x[:1])", {"values": "ones"}),
    "of what is NaN": ("return torch.where(x[:1].isnan(), x, x * 3)", {"values": "nan"}),
}


@pytest.mark.parametrize("what", BY_CHANCE)
def test_what_other_inputs_do_not_show_is_not_said_of_inputs(judge, what):
    wrong, regime = BY_CHANCE[what]
    evaluation = outcome(judge, SCALE, wrong, regime=regime)
    assert evaluation.diagnosis is None or "as if" not in evaluation.diagnosis.sentence


def test_rows_that_values_choose_are_no_place(judge):
    """With other inputs other rows are wrong, with the same ones always those of a place."""
    at = "at = x.sum(1).argmax()"
    wrong = "return torch.where(torch.arange(len(x))[:, None] == at, x.abs(), x * 3)"
    assert " at n " not in diagnosis(judge, SCALE, f"{at}\n    {wrong}").sentence
    wrong = "return torch.where(torch.arange(len(x))[:, None] < 72, x.abs(), x * 3)"
    assert " at the first 72 of 200 along n" in diagnosis(judge, SCALE, wrong).sentence
    # No kernel stops there.
    wrong = wrong.replace("72", "71")
    assert " at 71 of 200 along n" in diagnosis(judge, SCALE, wrong).sentence


def test_integers_that_wrapped_around_say_how_wide_they_seem_to_be(judge):
    right = "((x[:, 0] * 8).long() * 11255)"
    counted = define({"x": "float32[n, d]"}, {"y": "int64[n]"}, f"return {right}")
    for width in (8, 16):
        found = diagnosis(judge, counted, f"return {right}.to(torch.int{width}).long()")
        assert re.match(rf"y: wrapped around, as if of {width} bits", found.sentence)


def test_integers_that_floats_would_wrap_around_to_have_not_wrapped_around(judge):
    """2**62 - 1 has 32 ones at its end, and is 2**62 in float64."""
    number = "(x[:, 0] * 1000).abs().long()"
    far = define(
        {"x": "float32[n, d]"}, {"y": "int64[n]"}, f"return {number} + (2**62 - 1) * ({number} % 2)"
    )
    assert "wrapped" not in diagnosis(judge, far, f"return {number}").sentence


def test_an_input_of_one_number_is_not_said_to_be_copied(judge):
    runs = define({"x": "int32[n]"}, {"y": "int32[n]"}, "return x * 0", rules={"x": {"value": 7}})
    wrong = "return torch.where(torch.arange(len(x)) == 100, x, 0).int()"
    assert "input" not in diagnosis(judge, runs, wrong).sentence


def test_an_input_that_is_misread_whatever_it_holds_is_said_to_be(judge):
    added = define(
        {"x": "float32[n, d]", "bias": "float32[n, d]"},
        {"y": "float32[n, d]"},
        "return x.sigmoid() + bias * x",
    )
    found = diagnosis(judge, added, "return x.sigmoid() + bias.flip(0) * x")
    assert found.sentence == "y: as if bias were reversed along n"
    chunk = "return x.sigmoid() + torch.where(bias[:1] > 2, bias.flip(0), bias * 1.5) * x"
    assert "reversed" not in diagnosis(judge, added, chunk).sentence


def test_of_two_indices_of_an_axis_that_may_be_longer_none_is_said_to_be_reversed(judge):
    scaled = define(
        {"x": "float32[n, d]", "s": "float32[n]"},
        {"y": "float32[n, d]"},
        "return x.sin() * s[:, None]",
    )
    wrong = "return x.sin() * s.flip(0)[:, None]"
    at_three, at_two = (outcome(judge, scaled, wrong, n=n).diagnosis.sentence for n in (3, 2))
    assert at_three == "y: as if s were reversed along n"
    assert "reversed" not in at_two


def test_errors_larger_than_those_of_rounding_are_not_called_like_them(judge):
    for dtype, like_rounding in (("bfloat16", True), ("float8_e5m2", False)):
        wrong = f"return (x * 1.7).to(torch.{dtype}).float() * (3 / 1.7)"
        found = diagnosis(judge, SCALE, wrong)
        assert found.pattern == "lower precision"
        assert ("like those of rounding" in found.sentence) is like_rounding


LINE = define({"x": "float32[n]"}, {"y": "float32[n]"}, "return x * 3")


@pytest.mark.parametrize("tile", [16, 64, 256])
def test_the_rest_after_tiles_is_that_after_the_smallest_of_which_whole_ones_are_right(tile):
    def run(x):
        done = len(x) // tile * tile
        return torch.cat((x[:done] * 3, torch.zeros(len(x) - done)))

    found = _found(LINE, run, 1)
    n = found.shown_by.axes["n"]
    rest = f"the last {n % tile} of {n} along n (the rest after tiles of {tile}?)"
    assert found.sentence == f"y: zeros at {rest}"
    assert found.tiles == {"n": tile}


@pytest.mark.parametrize(
    ("body", "axes", "why"),
    [
        ("return x * 3", {"width": 224}, " (the rest after tiles of 128?)"),
        ("return torch.cat((x[:, :128], x[:, 128:]), 1) * 3", {"width": 224}, ""),
        ("return x * 3", {"width": 224, "of_queries": 128}, ""),
        ("return x * 3", {"width": 160}, ""),  # after tiles of 64 as well, and no size else tells
    ],
)
def test_no_rest_after_tiles_begins_where_the_definition_divides_an_axis(body, axes, why):
    shape, width = "float32[n, width]", axes["width"]
    parts = define({"x": shape}, {"y": shape}, body, axes)
    found = _found(parts, lambda x: x * 3 * (torch.arange(width) < 128), 1)
    assert found.sentence == f"y: zeros at the last {width - 128} of {width} along width{why}"


def test_the_rest_is_not_that_after_tiles_of_which_one_with_a_rest_is_right():
    """Of an odd number of smaller ones there is no rest, as they are fewer than one real tile."""

    def run(x):
        done = len(x) // 128 * 128 if len(x) >= 128 else len(x)
        return torch.cat((x[:done] * 3, torch.zeros(len(x) - done)))

    found = _found(LINE, run, 129, max_bytes=4000)
    n = found.shown_by.axes["n"]
    assert n < 256
    rest = f"the last {n % 128} of {n} along n (the rest after tiles of 128?)"
    assert found.sentence == f"y: zeros at {rest}"


@pytest.mark.parametrize(("left_out", "why"), [(1, " (off by one?)"), (5, "")])
def test_what_is_left_out_of_whole_tiles_too_is_no_rest_after_them(left_out, why):
    def run(x):
        return x * 3 * (torch.arange(len(x)) < len(x) - left_out)[:, None]

    check = FunctionChecker(SCALE, run, "cpu")

    def evaluate(workload):
        """With a size that looks like some tiles and a rest, where it is a larger one."""
        n = workload.axes["n"]
        largest.append(n)
        if n % 16 and n not in (left_out, max(largest)):
            return None  # as if there were no time for three quarters
        axes = {"n": 256 + left_out} if n % 16 else {"n": n}
        return check(make_workload(SCALE, axes, workload.seed), explain=True)

    largest = []
    small = make_workload(SCALE, {"n": left_out})
    assert "the rest after tiles of" in evaluate(small).diagnosis.sentence
    found = diagnose_failure(SCALE, small, check(small), evaluate, 1 << 20).diagnosis
    last = "the last" if left_out == 1 else f"the last {left_out}"
    assert found.sentence == f"y: zeros at {last} of {256 + left_out} along n{why}"
    assert not found.tiles


@pytest.mark.parametrize(("block", "why"), [(8, ""), (73, " (off by one?)")])
def test_an_end_that_a_size_of_one_less_has_not_is_not_off_by_one(block, why):
    def run(x):
        done = len(x) // block * block if block < 73 else len(x) - 1
        return torch.cat((x[:done] * 3, torch.zeros_like(x[done:])))

    check = FunctionChecker(SCALE, run, "cpu")

    def evaluate(workload):
        """With a size of 73 in place of the larger one, and of 72 for one less."""
        largest.append(workload.axes["n"])
        axes = {"n": 73 - max(largest) + workload.axes["n"]}
        if axes["n"] < 0:
            return None  # as if there were no time for three quarters
        return check(make_workload(SCALE, axes, workload.seed), explain=True)

    largest = []

    small = make_workload(SCALE, {"n": 1})
    found = diagnose_failure(SCALE, small, check(small), evaluate, 1 << 20).diagnosis
    assert found.sentence == f"y: zeros at the last of 73 along n{why}"


def test_a_larger_workload_that_is_right_is_named():
    """Few rows are wrong, and what explains them need not be so."""
    found = _found(SCALE, lambda x: x * 3 if len(x) > 7 else x.sin(), 2)
    sizes, values = re.search(r" \(right at n=(\d+)(.*)\)$", found.sentence).groups()
    assert int(sizes) > 7
    assert not values
    small = make_workload(SCALE, {"n": 2}, 0, {"values": "small"})
    check = FunctionChecker(SCALE, lambda x: x * 3 if x.abs().max() > 1 else x.sin(), "cpu")
    shown = diagnose_failure(SCALE, small, check(small), lambda w: check(w, explain=True), 1 << 16)
    assert (
        shown.diagnosis.sentence == "y: wrong everywhere (right with normal values of these sizes)"
    )


@pytest.mark.parametrize("calls", [1, 2])
def test_a_diagnosis_stays_as_it_is_where_there_is_no_time_to_ask_others(calls):
    def rest_is_zero(x):
        y = x * 3
        y[-1] = 0
        return y

    check, left = FunctionChecker(SCALE, rest_is_zero, "cpu"), [calls]

    def evaluate(workload):
        left[0] -= 1
        return check(workload, explain=True) if left[0] >= 0 else None

    small = make_workload(SCALE, {"n": 20})
    found = diagnose_failure(SCALE, small, check(small), evaluate, 1 << 16)
    assert found.diagnosis.sentence.startswith("y: zeros at the last of ")


def test_no_size_is_named_where_values_decide():
    """Of the smallest workload, or of the larger one that is right."""
    small = make_workload(SCALE, {"n": 2})
    its_own = make_inputs(SCALE, small, "cpu")["x"]

    def wrong_for_these_values(x):
        return x.sin() if torch.equal(x, its_own) else x * 3

    found = _found(SCALE, wrong_for_these_values, 2)
    assert found.sentence == "y: wrong"

    seeds = []
    check = FunctionChecker(
        SCALE, lambda x: x * 3 if len(x) > 7 and seeds[-1] == 0 else x.sin(), "cpu"
    )

    def evaluate(workload):
        seeds.append(workload.seed)
        return check(workload, explain=True)

    found = diagnose_failure(SCALE, small, evaluate(small), evaluate, 1 << 16).diagnosis
    assert seeds[-1] != 0
    assert "right at" not in found.sentence


def test_beyond_a_threshold_more_than_one_element_is_shown():
    """Elements from 512 on are wrong, where the other axis leaves no room for so many."""
    square = define(
        {"x": "float32[n, m]"}, {"y": "float32[n, m]"}, "return x * 3", axes={"m": "var"}
    )

    def run(x):
        return torch.cat((x[:, :512] * 3, x[:, 512:].sin()), 1)

    check = FunctionChecker(square, run, "cpu")
    small = make_workload(square, {"n": 1, "m": 513})
    found = diagnose_failure(
        square, small, check(small), lambda w: check(w, explain=True), 1 << 16
    ).diagnosis
    m = found.shown_by.axes["m"]
    assert found.sentence.startswith(f"y: wrong at the last {m - 512} of {m} along m (right at n=")


def test_a_place_of_the_smallest_workload_is_not_said_where_the_larger_is_wrong_everywhere():
    found = _found(
        SCALE,
        lambda x: (
            x * 3 if len(x) < 2 else torch.cat((x[:1] * 3, x.sin()[1:])) if len(x) == 2 else x.sin()
        ),
        2,
    )
    assert "the last of 2" not in found.headline


def test_a_value_that_one_wrong_element_has_by_chance_is_not_said(judge):
    """The last element is that of another row, which is 0."""
    rules = {"x": {"kind": "uniform", "min": 0, "max": 2}}
    gated = define({"x": "float32[n]"}, {"y": "float32[n]"}, "return (x - 1).relu()", rules=rules)
    wrong = "y = (x - 1).relu()\n    y[-1] = y[0] - (y[0] == y[-1]).float()\n    return y"
    found = [diagnosis(judge, gated, wrong, seed=seed).sentence for seed in range(6)]
    assert not any("zeros" in each for each in found)


def test_one_factor_is_not_said_of_rows_that_have_others(judge):
    halves = define({"x": "bfloat16[n, d]"}, {"y": "bfloat16[n, d]"}, "return x")
    wrong = "return x * (1 - 0.02 * (1 + torch.arange(len(x)) % 8 / 4))[:, None].bfloat16()"
    found = diagnosis(judge, halves, wrong)
    assert found.pattern == "factor per row", found.sentence


def test_a_few_wrong_rows_have_no_place_by_the_number_of_their_elements(judge):
    """Two of 33 x 8 rows are wrong, in neighbouring heads by chance."""
    heads = define({"x": "float32[n, 8, d]"}, {"y": "float32[n, 8, d]"}, "return x * 3")
    wrong = "y = x * 3\n    y[21, 5, ::4] *= -2\n    y[24, 6, ::2] += 1\n    return y"
    found = diagnosis(judge, heads, wrong, n=33)
    assert found.sentence.startswith("y: wrong at 48 of 16896 elements"), found.sentence


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("y[x[:, 0, 0] > 1.3] = 0", r"zeros at \d+ of 33 along n"),
        ("y[-5 - int(x.abs().sum() * 100) % 5:] = 0", r"zeros at the last \d of 33 along n"),
        ("y[:, 5] *= (x[:, :1, 0] == x[:, 0, 0].max())", "zeros at head 5"),
        ("y[-1] = 0", r"zeros at the last of 33 along n \(off by one, or the rest .*\?\)"),
    ],
)
def test_of_a_place_is_said_what_other_inputs_show_too(judge, wrong, words):
    tensor = "float32[n, head, d]"
    heads = define({"x": tensor}, {"y": tensor}, "return x * 3", axes={"head": 8})
    found = diagnosis(judge, heads, f"y = x * 3\n    {wrong}\n    return y", n=33)
    assert found.pattern == "zeros"
    assert re.fullmatch(f"y: {words}", found.sentence), found.sentence


def test_a_few_right_elements_are_no_expected_infinities(judge):
    lines = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * 3")
    wrong = "y = x.sin() - 2\n    y[1777, 3:5] = x[1777, 3:5] * 3\n    return y"
    found = diagnosis(judge, lines, wrong, n=4000)
    assert found.sentence == "y: wrong nearly everywhere"


def test_a_few_integers_that_are_those_of_another_row_by_chance_are_no_mixup(judge):
    """Indices of what is allowed, and -1: without it, rows are as that of many allowed."""
    first = "torch.arange(4).expand(len(limit), 4)"
    rules = {"limit": {"kind": "integers", "min": 0, "max": 30}}
    chosen = define(
        {"limit": "int32[n]"},
        {"index": "int32[n, 4]"},
        f"return torch.where({first} < limit[:, None], {first}, -1).to(torch.int32)",
        rules=rules,
    )
    found = [diagnosis(judge, chosen, f"return {first}.int()", n=n) for n in (20, 200)]
    assert not [each.sentence for each in found if each.pattern == "permuted"]


@pytest.mark.parametrize(("source", "is_said"), [(0, True), (9, True), (40, False)])
def test_one_row_that_others_hold_is_that_at_an_end_or_beside_them(judge, source, is_said):
    lines = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * 3")
    wrong = f"y = x * 3\n    y[10:13] = y[{source}]\n    return y"
    found = diagnosis(judge, lines, wrong, n=64)
    assert (found.pattern == "permuted") is is_said, found.sentence


def test_sums_of_whole_numbers_that_leave_out_the_end_are_named(judge):
    """Of the one that has no zero point."""
    product = define(
        {"a": "uint8[n, k]", "zero": "uint8[n]", "b": "int8[d, k]"},
        {"y": "int32[n, d]"},
        "return ((a.int() - zero.int()[:, None]).long() @ b.long().T).to(torch.int32)",
        axes={"k": 100},
    )
    wrong = "return ((a.int() - zero.int()[:, None])[:, :96].long() @ b[:, :96].long().T).int()"
    assert diagnosis(judge, product, wrong, n=40).sentence == (
        "y: as if b were 0 at the last 4 of 100 along k"
    )


def test_what_changes_from_call_to_call_has_no_factor(judge):
    """It adds to what earlier calls left."""
    lines = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * 3")
    wrong = (
        "left.setdefault(x.shape, torch.zeros_like(x)).add_(x * 3)\n    return left[x.shape] + x"
    )
    found = diagnosis(judge, lines, wrong, header="left = {}")
    assert found.pattern == "nondeterministic"
    assert "two calls on the same inputs gave other bits" in found.sentence


#: Of two axes, so that a larger workload may have less of one of them.
MEANS = define({"x": "float32[n, m]"}, {"y": "float32[m]"}, "return x.mean(0)", axes={"m": "var"})
TRIPLES = define({"x": "float32[n, m]"}, {"y": "float32[n, m]"}, "return x * 3", axes={"m": "var"})


def _found_beside_right_ones(definition, run, n, m=1):
    """Diagnoses of a workload of few columns: by itself, and beside larger ones of fewer rows."""
    check = FunctionChecker(definition, run, "cpu")
    small = make_workload(definition, {"n": n, "m": m})
    explained = partial(check, explain=True)
    own = explained(small).diagnosis.sentence
    return own, diagnose_failure(definition, small, check(small), explained, 1 << 18).diagnosis


def test_a_name_of_a_factor_that_is_another_at_other_sizes_is_not_said():
    """Above 255, counts stay there: 256 / 255 is no n / (n - 1)."""
    own, found = _found_beside_right_ones(MEANS, lambda x: x.sum(0) / min(len(x), 255), 256, 16)
    assert "(which is n / (n - 1))" in own
    assert found.sentence.startswith("y: every element is 1.003922 x expected")
    assert "which is" not in found.sentence

    def above_255(x):
        return x.sum(0) / (len(x) - (len(x) > 255))

    own, found = _found_beside_right_ones(MEANS, above_255, 256, 16)
    assert "(which is n / (n - 1))" in found.sentence


def test_a_place_that_twice_the_sizes_refute_is_not_said():
    """Every 512th row from 512 on is wrong: the last one only of 513."""

    def run(x):
        y = x * 3
        y[512::512] += x[:1]
        return y

    own, found = _found_beside_right_ones(TRIPLES, run, 513)
    assert own == "y: wrong in the very last element"
    assert "last" not in found.sentence


def test_a_bool_for_each_number_is_not_said_before_these_are(judge):
    most = define(
        {"x": "float32[n, d]"},
        {"one": "bool[n]", "y": "float32[n]"},
        "return (x == x.amax(1, keepdim=True)).sum(1) == 1, x.amax(1)",
    )
    wrong = "y = x.amax(1) + 1\n    return (x == y[:, None]).sum(1) == 1, y"
    assert diagnosis(judge, most, wrong).output == "y"


def test_where_little_but_zeros_is_expected_no_row_is_named(judge):
    sums = define(
        {"x": "float32[n, d]", "row": "int64[n]", "like": "float32[m]"},
        {"y": "float32[m, d]"},
        "return torch.zeros(like.shape[0], x.shape[1], dtype=x.dtype).index_add_(0, row, x)",
        axes={"m": 900},
        rules={"row": {"kind": "integers", "min": 7, "max": 7}},
    )
    wrong = "y = torch.zeros(len(like), x.shape[1])\n    y[row] = x.sin()\n    return y"
    assert diagnosis(judge, sums, wrong).sentence == "y: wrong at 64 of 57600 elements"


def test_what_is_wrong_where_0_is_expected_is_not_said_to_be_elsewhere(judge):
    none = define({"x": "float32[n, d]"}, {"y": "int32[n]"}, "return (x > 1e9).sum(1).int()")
    found = diagnosis(judge, none, "return (x > 1.5).sum(1).int()", n=300)
    assert found.pattern == "everywhere"
    assert "isn't expected" not in found.sentence


def test_an_end_is_no_reason_where_a_larger_workload_is_right():
    """Rows from 512 on are left out; a larger workload, of another axis, has fewer."""
    square = define(
        {"x": "float32[n, m]"}, {"y": "float32[n, m]"}, "return x * 3", axes={"m": "var"}
    )

    def run(x):
        return torch.cat((x[:512] * 3, torch.zeros_like(x[512:])))

    check = FunctionChecker(square, run, "cpu")
    small = make_workload(square, {"n": 513, "m": 1})
    found = diagnose_failure(
        square, small, check(small), lambda w: check(w, explain=True), 1 << 15
    ).diagnosis
    assert "(right at n=" in found.sentence
    assert "off by one" not in found.sentence
    assert not found.tiles


def test_a_row_that_is_right_by_chance_has_no_place(judge):
    wrong = "at = x[:, 0].argmax()\n    y = x.sin()\n    y[at] = x[at] * 3\n    return y"
    assert "but at n" not in diagnosis(judge, SCALE, wrong).sentence
    assert (
        "but at n 70" in diagnosis(judge, SCALE, wrong.replace("x[:, 0].argmax()", "70")).sentence
    )


def test_a_factor_that_inputs_decide_is_shown_with_others(judge):
    summed = diagnosis(judge, SCALE, "return x * 3 * (1 + x.mean().abs())").sentence
    factors = re.fullmatch(
        r"y: every element is (\S+) x expected, (\S+) x with other inputs", summed
    )
    assert factors is not None, summed
    assert 1 < float(factors[1]) != float(factors[2]) > 1
    assert (
        diagnosis(judge, SCALE, "return x * 4").sentence == "y: every element is 1.3333 x expected"
    )


def test_zeros_that_are_expected_by_chance_are_no_padding(judge):
    """Of keys below all others the place is 0; the kernel is wrong for any of them."""
    found = define(
        {"keys": "int32[n]", "x": "int32[n]"},
        {"y": "int32[n]"},
        "return torch.searchsorted(keys, x).int()",
        rules={
            "keys": {"kind": "sorted", "max": 9},
            "x": {"kind": "integers", "min": -9, "max": 9},
        },
    )
    wrong = "y = torch.searchsorted(keys, x).int()\n    return torch.where(x == x[0], y + 1, y)"
    found = [diagnosis(judge, found, wrong, n=30, seed=seed).sentence for seed in range(8)]
    assert not any("only where 0" in each for each in found), found


def test_a_scalar_of_which_any_other_number_is_right_is_not_named(judge):
    """Inputs hold the number that they are compared with; 0 is no other than any other one."""
    above = define(
        {"x": "float32[n, d]", "limit": "float32"},
        {"y": "int32[n]"},
        "return (x > limit).sum(1).int()",
        rules={"limit": {"kind": "uniform", "min": -1, "max": 1}},
    )
    outcomes = [outcome(judge, above, "return (x >= limit).sum(1).int()", seed=n) for n in range(8)]
    said = [each.diagnosis.sentence for each in outcomes if each.diagnosis is not None]
    assert said
    assert not any("limit is" in each for each in said), said


def test_an_angle_that_is_rounded_as_the_reference_rounds_it_refutes_nothing(judge):
    """The reference's own angles are off by far more than what one operation may be."""
    body = """angle = at[:, None] * x.abs()
    half = d.shape[0] // 2
    a, b = d[:half], d[half:]
    return torch.cat((a * angle.cos()[:, :half] - b * angle.sin()[:, :half],
                      b * angle.cos()[:, :half] {} a * angle.sin()[:, :half]), 1)"""
    turned = define(
        {"x": "float32[n, d]", "at": "int32[n]", "d": "float32[d]"},
        {"y": "float32[n, d]"},
        body.format("+"),
        rules={"at": {"kind": "positions", "below": 9999}},
    )
    found = diagnosis(judge, turned, body.format("-"))
    assert "at the last 32 of 64 along d" in found.sentence, found.sentence


def test_values_are_not_said_to_decide_where_a_layout_does():
    strided = SCALE.model_copy(
        update={"workloads": SCALE.workloads.model_copy(update={"layouts": ["row_strided"]})}
    )
    small = make_workload(strided, {"n": 2}, 0, {"layout": "row_strided"})

    def run(x):
        return x * 3 if x.is_contiguous() else x.sin()

    check = FunctionChecker(strided, run, "cpu")
    found = diagnose_failure(
        strided, small, check(small), lambda w: check(w, explain=True), 1 << 16
    ).diagnosis
    assert found.sentence.endswith(
        "(only where inputs are row_strided, not where they are contiguous)"
    )


def test_infinities_are_not_rounded_away(judge):
    """float8_e4m3fn has none, so what is infinite would be NaN in it."""
    wrong = "return torch.where(x.isinf(), float('nan'), x * 3)"
    found = diagnosis(judge, SCALE, wrong, regime={"values": "inf"})
    assert "rounded" not in found.sentence, found.sentence


def test_a_few_transposed_elements_are_said_to_be_where_they_are(judge):
    square = define(
        {"x": "float32[n, 8, 8]"}, {"y": "float32[n, 8, 8]"}, "return x * 3", axes={"d": 8}
    )
    wrong = "y = x * 3\n    y[:, 6, 1] = y[:, 1, 6]\n    return y"
    found = diagnosis(judge, square, wrong)
    assert re.search("dim1 and dim2 are transposed at dim1 6 and at dim2 1$", found.sentence)
    found = diagnosis(judge, square, "return x.mT.contiguous() * 3")
    assert found.sentence == "y: dim1 and dim2 are transposed"


def test_of_what_is_left_out_it_is_not_said_how_much_where_any_number_explains_it():
    definition = define(
        {"votes": "int64[n, d]", "p": "float32[d]"},
        {"y": "float32[d]"},
        "return p + torch.where(2 * votes.sum(0) > len(votes), 0.5, -0.25)",
        rules={"votes": {"kind": "integers", "min": 0, "max": 1}},
    )
    found = _found(definition, lambda votes, p: p - 0.25, 100)
    assert "at the last" not in found.sentence, found.sentence


def test_values_that_hide_what_is_wrong_are_no_condition(judge):
    """Averages of ones are 1, whatever the weights are; and sums of ones are exact."""
    mixed = define(
        {"s": "float32[n, 8, 16]", "v": "float32[16, d]", "w": "float32[8, 1]"},
        {"y": "float32[n, 8, d]"},
        "return (s.softmax(-1) @ v) * w",
    )
    found = diagnosis(judge, mixed, "return ((2 * s).softmax(-1) @ v) * w")
    assert "v is 1" not in found.sentence
    summed = define({"g": "float32[n, 40, d]"}, {"y": "float32[n, d]"}, "return g.exp().sum(1) + 9")
    narrow = "y = g.exp()[:, 0]\n    for i in range(1, 40):\n"
    narrow += "        y = (y + g.exp()[:, i]).bfloat16().float()\n    return y + 9"
    assert " is 1" not in diagnosis(judge, summed, narrow).sentence


def test_a_place_that_other_inputs_reach_in_one_element_is_not_said(judge):
    """With other inputs one element is wrong, which is in the first 30 rows by chance."""
    inputs = make_inputs(SCALE, make_workload(SCALE, {"n": 33}, 0))
    first = inputs["x"][0, 0].item()
    wrong = f"y = x * 3\n    y[0, 0] += 1\n    y[:30] *= float(x[0, 0] != {first})\n    return y"
    found = diagnosis(judge, SCALE, wrong, n=33)
    assert "first 30" not in found.sentence


def test_values_of_another_output_that_few_elements_have_by_chance_are_not_said():
    """One row is all that there is, and both outputs begin with the same; large ones are right."""
    both = define(
        {"x": "float32[n, d]"},
        {"one": "float32[n, d]", "other": "float32[n, d]"},
        "rows = torch.arange(len(x))[:, None]\n    return x * 3, x * 2 + rows",
    )

    def run(x):
        rows = torch.arange(len(x))[:, None]
        wrong = torch.where(rows == 0, x * 3, x.sin())
        return x * 3, x * 2 + rows if len(x) > 8 else wrong

    found = _found(both, run, 1)
    assert "holds the expected values" not in found.sentence
    assert found.sentence.startswith("other: wrong everywhere (n=3)")


@pytest.mark.parametrize(
    ("right", "wrong", "words"),
    [
        ("torch.where(x > 0, 448.0, 0.0)", "torch.where(x > 0, torch.nan, 0.0)",
         "NaN wherever 448 is expected"),
        ("torch.where(x > 0, x + 1, 0.0)", "torch.where(x > 0, torch.nan, 0.0)",
         "NaN wherever 0 isn't expected"),
    ],
)  # fmt: skip
def test_the_only_value_that_is_expected_is_named(judge, right, wrong, words):
    lines = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, f"return {right}")
    assert diagnosis(judge, lines, f"return {wrong}").sentence == f"y: {words}"


def test_of_two_values_0_is_no_padding(judge):
    """Whatever decides which are wrong, all of these are of the one."""
    chosen = define(
        {"x": "float32[n, d]"}, {"y": "int32[n, d]"}, "return torch.where(x > 0, 0, -1).int()"
    )
    wrong = "return torch.where((x > 0) & (x.sin() * 77 % 1 > 0.2), 0, -1).int()"
    assert "only where" not in diagnosis(judge, chosen, wrong).sentence


def test_what_else_is_wrong_is_said_beside_infinities(judge):
    lines = define({"x": "float32[n]"}, {"y": "float32[n]"}, "return x * 3")
    at = "torch.arange(len(x))"
    wrong = f"return torch.where({at} < 24, -torch.inf, torch.where({at} < 30, x.sin(), x * 3))"
    found = diagnosis(judge, lines, wrong, n=90)
    assert found.sentence == (
        "y: -inf at the first 24 of 90 along n, where numbers are expected, "
        "and wrong at 30 of 90 elements in all"
    )


def test_indices_that_any_others_would_explain_are_not_said_to_be_in_order(judge):
    """The output depends on none of them: what far ones add is missing."""
    grown = define(
        {"x": "float32[n, d]", "p": "int32[n]"},
        {"y": "float32[n, d]"},
        "far = (p[:, None] / 4000).clamp(min=1)\n    return x.sin() * far.log() + x.cos()",
        rules={"p": {"kind": "positions", "below": 8192}},
    )
    assert "0, 1, 2" not in diagnosis(judge, grown, "return x.cos()").sentence


def test_many_slices_that_hold_one_others_values_are_not_counted(judge):
    lines = define({"x": "float32[d, n]"}, {"y": "float32[d, n]"}, "return x * 3")
    wrong = "y = x * 3\n    y[:, 40:] = y[:, 39:40]\n    return y"
    found = diagnosis(judge, lines, wrong, n=200)
    assert found.sentence == (
        "y: right values at the wrong n: 40 holds that of 39, and so do others"
    )


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_narrow_outputs_are_explained_by_inputs_too(judge, dtype):
    scaled = define(
        {"x": "float32[n, d]", "s": "float32[n]"},
        {"y": f"{dtype}[n, d]"},
        f"return (x * s[:, None]).to(torch.{dtype})",
        rules={"s": {"kind": "scales"}},
    )
    found = diagnosis(judge, scaled, f"return (x * s[:1, None]).to(torch.{dtype})", n=40)
    assert found.sentence == "y: as if s repeated its first entry along n"
    infinite = "torch.inf" if dtype.endswith("e5m2") else "torch.nan"
    found = diagnosis(judge, scaled, f"return (x * s[:1, None] * {infinite}).to(torch.{dtype})")
    assert found.pattern in ("infinity", "nan"), found.sentence


def test_a_place_up_to_the_largest_of_some_tokens_is_one_of_theirs(judge):
    tokens = define(
        {"x": "float32[m, n]", "t": "int64[m, 3]"},
        {"y": "float32[m, n]"},
        "return x.sin().scatter(1, t, -torch.inf)",
        axes={"m": "var"},
        rules={"t": {"kind": "integers", "min": 0, "max": 7}},
    )
    workload = make_workload(tokens, {"m": 30, "n": 200})
    wrong = "return x.sin().scatter(1, 7 - t, -torch.inf)"
    found = evaluated(judge, tokens, wrong, workload).diagnosis
    assert "at 8 of 200 along n" in found.sentence or " of 6000 elements" in found.sentence


def test_a_whole_place_is_said_whatever_the_largest_of_some_whole_numbers(judge):
    masked = define(
        {"x": "float32[n, d]", "lens": "int32[n]"},
        {"y": "float32[n, d]"},
        "return x.sin() * (lens[:, None] > 3)",
        rules={"lens": {"kind": "integers", "min": 0, "max": 15}},
    )
    wrong = "y = x.sin() * (lens[:, None] > 3)\n    y[:, :16] = y[:, :16].exp() * 3\n    return y"
    found = outcome(judge, masked, wrong).diagnosis
    assert found.sentence == "y: wrong at the first 16 of 64 along d"


def test_a_place_that_a_scalar_names_is_the_scalars_at_other_sizes_too(judge):
    written = define(
        {"x": "float32[n, d]", "pos": "int32"},
        {"y": "float32[n, d]"},
        "y = x.sin()\n    y[pos] = x[pos].exp() + 5\n    return y",
        rules={"pos": {"kind": "integers", "min": 0, "max": "n - 1"}},
    )
    found = _found(written, lambda x, pos: x.sin(), 70)
    assert re.fullmatch(r"y: wrong at n \d+, which is pos", found.sentence), found.sentence


def test_an_input_of_one_number_is_not_said_to_end_too_soon(judge):
    codes = define(
        {"x": "float32[n, d]"},
        {"y": "int32[n, d]"},
        "low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)\n"
        "    return ((x - low) / ((high - low) / 15).clamp(min=1e-8)).round().int()",
    )
    wrong = (
        "low, high = x.amin(1, keepdim=True).clamp(max=0), x.amax(1, keepdim=True).clamp(min=0)\n"
        "    return ((x - low) / ((high - low) / 15).clamp(min=1e-8)).round().int()"
    )
    found = outcome(judge, codes, wrong, n=40, regime={"values": "ones"})
    assert "were 0 at the last" not in found.diagnosis.sentence


def test_what_is_wrong_where_elements_equal_a_scalar_is_so_of_others_too(judge):
    clipped = define(
        {"x": "float32[n, d]", "limit": "float32"},
        {"y": "float32[n, d]"},
        "return torch.where(x.abs() <= limit, x.exp(), 0.0)",
        rules={"limit": {"kind": "uniform", "min": 0.5, "max": 4.0}},
    )
    wrong = "return torch.where(x.abs() < limit, x.exp(), 0.0)"
    made = [make_workload(clipped, {"n": 60}, seed) for seed in range(40)]
    at_the_end = [each for each in made if each.inputs["limit"].value == 4]
    found = [evaluated(judge, clipped, wrong, each).diagnosis for each in at_the_end]
    sentences = [each.sentence for each in found if each is not None]
    assert sentences
    assert not any("only where limit" in each for each in sentences), sentences


def test_an_element_is_not_shown_beside_indices_of_a_larger_workload():
    """The element is one of the workload that fails."""

    def failed(*where):
        diagnosis = Diagnosis(
            sentence="", output="y", pattern="everywhere", vague=True, details=["  y[0, 0] got 1"]
        )
        return Evaluation(
            status="INCORRECT_NUMERICAL",
            correctness=Correctness(),
            diagnosis=diagnosis.with_parts("y: wrong", *where),
        )

    workload = make_workload(SCALE, {"n": 2})
    own, larger = failed(parts.Everywhere()), failed(parts.At("n", range(4, 353), 353))
    tried = []

    def once(workload):
        tried.append(workload)
        return larger if len(tried) == 1 else None  # there is no time for more

    found = diagnose_failure(SCALE, workload, own, once, 1 << 16).diagnosis
    assert found.headline == f"y: wrong at n 4..352 (n={tried[0].axes['n']})"


ANY_BITS = {"kind": "integers", "min": -(1 << 31), "max": (1 << 31) - 1}


def test_bits_that_hide_everything_are_no_part_of_what_is_wrong(judge):
    """Where no bit is set, nothing is left of any output."""
    masked = define(
        {"x": "float32[n, d]", "share": "float32[n]", "b": "float32[n]", "bits": "int32[n, 2]"},
        {"y": "float32[n, d]"},
        "at = torch.arange(x.shape[1])\n"
        "    on = (bits[:, at // 32] >> (at % 32)) & 1 == 1\n"
        "    return torch.where(on, x * share[:, None] + b[:, None], -torch.inf)",
        rules={"share": {"kind": "uniform", "min": 0.5, "max": 2}, "bits": ANY_BITS},
    )
    body = masked.reference.partition("):\n    ")[2]
    found = outcome(judge, masked, body.replace("share[:, None]", "share[:, None] ** 2"), n=40)
    assert "in what depends on x and share" in found.diagnosis.sentence


@pytest.mark.parametrize("check", ["elements", "bias"])
def test_what_is_off_on_average_does_not_explain_single_elements(check):
    def failed(check, pattern, words):
        diagnosis = Diagnosis(sentence="", output="y", pattern=pattern)
        return Evaluation(
            status="INCORRECT_NUMERICAL",
            correctness=Correctness(extra={"check": check}),
            diagnosis=diagnosis.with_parts(words),
        )

    workload, asked = make_workload(SCALE, {"n": 2}), []
    own = failed("elements", "zeros", "y: zeros at the last of 2 along n")
    larger = failed(check, "one factor", "y is 47 % too small on average")

    def evaluate(workload):
        asked.append(workload)
        return own if workload.axes["n"] == 2 else larger

    found = diagnose_failure(SCALE, workload, own, evaluate, 1 << 16).diagnosis
    assert len(asked) > 1
    assert ("on average" in found.sentence) is (check == "elements"), found.sentence


@pytest.mark.parametrize("always", [True, False])
def test_what_an_input_of_zeros_makes_right_is_so_with_other_values_of_larger_sizes(always):
    """As zeros of slopes, without which a row's maximum rises in the one or the other workload."""

    def failed(*zeros):
        diagnosis = Diagnosis(sentence="", output="y", pattern="follows an input")
        sentence = ("y: wrong", parts.Everywhere(), Conditions(zeros)) if zeros else ("y: wrong",)
        return Evaluation(
            status="INCORRECT_NUMERICAL",
            correctness=Correctness(),
            diagnosis=diagnosis.with_parts(*sentence),
        )

    workload = make_workload(SCALE, {"n": 2})

    def evaluate(other):
        return failed("x") if always or other.seed == workload.seed else failed()

    found = diagnose_failure(SCALE, workload, failed("x"), evaluate, 1 << 16).diagnosis
    assert ("in what depends on x" in found.sentence) is always, found.sentence
