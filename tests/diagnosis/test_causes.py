"""First lines name what is wrong first, and no cause that only certain values suggest."""

import re

import pytest
import torch

from pytest_fib.data import Definition
from pytest_fib.diagnosis import CallContext, Failure, WrongOutput, explain
from pytest_fib.engine import FunctionChecker, Judge, diagnose_failure
from pytest_fib.workloads import make_inputs, make_workload
from tests.diagnosis.test_unknown_kernels import (
    SCALE,
    define,
    diagnosis,
    found_of,
    outcome,
)
from tests.workloads.signatures import signature


@pytest.fixture(scope="module")
def judge():
    with Judge("cpu", "none") as judge:
        yield judge


def sentences(judge, definition, wrong, *, n, seeds):
    """What is said with each of some seeds, of which some show what is wrong."""
    tried = [outcome(judge, definition, wrong, n=n, seed=seed).diagnosis for seed in range(seeds)]
    found = [each.sentence for each in tried if each is not None]
    assert found
    return found


QUANTISED = define(
    {"x": "float32[n, d]", "s": "float32"},
    {"rest": "float32[n, d]", "codes": "int8[n, d]"},
    "codes = (x / s).round().clamp(-127, 127)\n    return x - codes * s, codes.to(torch.int8)",
    rules={"s": {"kind": "uniform", "min": 0.1, "max": 0.2}},
)


def test_what_others_are_computed_from_is_named_first(judge):
    wrong = "c = (x / s).floor().clamp(-127, 127)\n    return x - c * s, c.to(torch.int8)"
    found = diagnosis(judge, QUANTISED, wrong)
    assert (found.output, found.also) == ("codes", ("rest",))
    assert found.sentence.startswith("codes: ")
    assert found.headline.startswith(f"{found.sentence} (rest is wrong too)")


def test_small_errors_of_what_follows_come_after_what_it_follows_from(judge):
    """A count that is one too small makes a quotient of it a little wrong."""
    counted = define(
        {"x": "float32[n, d]"},
        {"z": "float32[n]", "count": "int64[n]"},
        "count = (x > 0).sum(1) + 300\n    return count / 7.0, count",
    )
    wrong = "count = (x > 0).sum(1) + 300 - (x[:, 0] > 0).long()\n    return count / 7.0, count"
    found = diagnosis(judge, counted, wrong)
    assert (found.output, found.also) == ("count", ("z",))


def test_zeros_are_no_numbers_of_fewer_bits(judge):
    words = define(
        {"x": "int64[n]"},
        {"y": "int64[n]"},
        "return x * 0 + (torch.arange(len(x)) == 9).long() * -(2**63)",
        rules={"x": {"kind": "integers", "min": 0, "max": 9}},
    )
    found = diagnosis(judge, words, "return x * 0", n=12)
    assert "wrapped" not in found.sentence


def test_the_other_one_of_two_values_is_at_no_wrong_place(judge):
    teams = define(
        {"coin": "bool[n]"},
        {"team": "int32[n, 2]"},
        "first = coin.int()\n    return torch.stack([first, 1 - first], 1)",
    )
    wrong = (
        "first = coin[:1].int().expand(len(coin))\n    return torch.stack([first, 1 - first], 1)"
    )
    found = sentences(judge, teams, wrong, n=40, seeds=8)
    assert not any("right values" in each for each in found), found


def test_an_output_that_is_wrong_alone_stands_alone(judge):
    wrong = "c = (x / s).round().clamp(-127, 127)\n    return x - c, c.to(torch.int8)"
    found = diagnosis(judge, QUANTISED, wrong)
    assert (found.output, found.also) == ("rest", ())
    assert "wrong too" not in found.headline


def test_one_number_in_place_of_the_input_is_no_other_output(judge):
    """Where elements aren't masked, labels are the tokens, and so is what should be masked."""
    masking = define(
        {"tokens": "int64[n, d]", "which": "bool[n, d]"},
        {"masked": "int64[n, d]", "labels": "int64[n, d]"},
        "return torch.where(which, 7, tokens), torch.where(which, tokens, -100)",
        rules={"tokens": {"kind": "integers", "min": 10, "max": 1000}},
    )
    wrong = (
        "which = which & (tokens % 5 > 0)\n"
        "    return torch.where(which, 7, tokens), torch.where(which, tokens, -100)"
    )
    found = diagnosis(judge, masking, wrong)
    assert found.sentence.startswith("masked: equal to the input tokens")


AIM = define(
    {"target": "float32[n]", "total": "float32[n]", "count": "float32[n]", "x": "float32[n, d]"},
    {"y": "float32[n, d]"},
    "aim = torch.where(count > 0, 2 * target - total / count, target).clamp(0, 1)\n"
    "    return (x - aim[:, None]).square()",
    rules={
        "target": {"kind": "uniform", "min": 0.0, "max": 1.0, "ends": True},
        "total": {"kind": "uniform", "min": 0.0, "max": 4.0, "ends": True},
        "count": {"kind": "uniform", "min": 0.0, "max": 8.0, "ends": True},
    },
)


def test_what_is_0_in_a_row_does_not_say_that_inputs_were_swapped(judge):
    """Without a count nothing should be subtracted, as nothing is where both are swapped."""
    wrong = (
        "mean = total / torch.where(count > 0, count, 1.0) * (count > 0)\n"
        "    return (x - (2 * target - mean).clamp(0, 1)[:, None]).square()"
    )
    found = sentences(judge, AIM, wrong, n=7, seeds=48)
    assert not any("swapped" in each for each in found), found


def test_inputs_that_are_swapped_everywhere_are_named(judge):
    """Of any range."""
    rules = {name: {"kind": "uniform", "min": 1.0, "max": 4.0} for name in ("total", "count")}
    right = define(
        {name: str(text) for name, text in (("total", "float32[n]"), ("count", "float32[n]"))},
        {"y": "float32[n]"},
        "return total / count",
        rules=rules,
    )
    assert (
        "total and count were swapped" in diagnosis(judge, right, "return count / total").sentence
    )


def test_factors_that_never_are_0_share_what_an_input_says(judge):
    """Zeros of the activations hide whatever is wrong with the weights, not with the bias."""
    linear = define(
        {"x": "float32[n, d]", "w": "int8[d, d]", "bias": "float32[n, d]"},
        {"y": "float32[n, d]"},
        "return x @ w.float() + bias",
        rules={"w": {"kind": "integers", "min": -128, "max": 127}},
    )
    wrong = "return x @ w.clamp(-120, 127).float() + bias"
    assert diagnosis(judge, linear, wrong).sentence.endswith(", in what depends on x and w")


def test_what_is_limited_beside_an_input_shares_what_that_says(judge):
    """Where the target is 0, the aim is too, whatever is subtracted from it."""
    wrong = (
        "aim = torch.where(count > 0, 2 * target - total / (count + 1), target).clamp(0, 1)\n"
        "    return (x - aim[:, None]).square()"
    )
    found = [diagnosis(judge, AIM, wrong, n=40, seed=seed).sentence for seed in range(4)]
    assert not any(re.search(r"depends on target(?!,| and)", each) for each in found), found


def test_a_step_that_vanishes_beside_its_bound_is_no_cause(judge):
    """With an epsilon of 1 hardly anything is left of an optimiser's step."""
    step = define(
        {"p": "bfloat16[n, d]", "m": "float32[n, d]", "v": "float32[n, d]", "eps": "float32"},
        {"new_p": "bfloat16[n, d]"},
        "return (p.float() - 0.001 * m / (v.abs().sqrt() + eps)).to(p.dtype)",
        rules={"eps": {"value": 1e-6}},
    )
    wrong = "return (p.float() - 0.001 * m / (v.abs() + eps)).to(p.dtype)"
    assert "right if eps" not in diagnosis(judge, step, wrong).sentence


def test_what_only_one_scalar_brings_about_is_said(judge):
    decayed = define(
        {"x": "float32[n, d]", "old": "float32[n, d]", "beta": "float32"},
        {"new": "float32[n, d]"},
        "return old * beta + (x if beta == 1 else x * (1 - beta))",
        rules={"beta": {"kind": "uniform", "min": 0.5, "max": 1.0}},
    )
    wrong = "return old * beta + x * (1 - beta)"
    found = [
        diagnosis(judge, decayed, wrong, seed=seed).sentence
        for seed in range(24)
        if make_workload(decayed, {"n": 200}, seed).inputs["beta"].value == 1
    ]
    assert found
    assert all(each.startswith("new: equal to the input old") for each in found)
    assert all(each.endswith(" (only where beta is 1)") for each in found)


def test_a_scalar_at_an_end_is_not_named_where_those_beside_it_are_wrong_too(judge):
    shifted = define(
        {"x": "float32[n, d]", "t": "float32"},
        {"y": "float32[n, d]"},
        "return x + t",
        rules={"t": {"kind": "uniform", "min": 0.0, "max": 1.0, "ends": True}},
    )
    wrong = "return x + t + (t < 0.5)"
    found = [
        diagnosis(judge, shifted, wrong, seed=seed).sentence
        for seed in range(24)
        if make_workload(shifted, {"n": 200}, seed).inputs["t"].value == 0
    ]
    assert found
    assert not any("only where" in each for each in found), found


def test_integers_that_never_are_0_are_not_tried_as_zeros(judge):
    """As lengths, less 1, that index something."""
    picked = define(
        {"x": "float32[n, d]", "l": "int64[n]", "w": "float32[n, d]"},
        {"y": "float32[n, d]"},
        "return x + x.gather(1, (l - 1)[:, None]) + w * x.square()",
        rules={"l": {"kind": "integers", "min": 1, "max": 64}},
    )
    wrong = (
        "assert (l > 0).all()\n"
        "    return x + x.gather(1, (l - 1)[:, None]) + (w + 0.1 * w.square()) * x.square()"
    )
    assert "depends on w" in diagnosis(judge, picked, wrong).sentence


def test_a_size_that_is_right_only_without_empty_sequences_is_not_named():
    data = signature("op", "n=3 parts=4 total", "x[total]:f32 bias[n]:f32 indptr[parts]:i32",
                     "y[n]:f32", "total == indptr[-1]")  # fmt: skip
    sums = (
        "    lens = (indptr[1:] - indptr[:-1]).long()\n"
        "    at = torch.arange(len(lens)).repeat_interleave(lens)\n"
        "    sums = torch.zeros(len(lens)).index_add(0, at, x)\n"
    )
    data["reference"] = (
        f"import torch\n\ndef run(x, bias, indptr):\n{sums}"
        "    return torch.where(lens > 0, sums, bias)\n"
    )

    def without_bias(x, bias, indptr):
        lens = (indptr[1:] - indptr[:-1]).long()
        at = torch.arange(len(lens)).repeat_interleave(lens)
        return torch.zeros(len(lens)).index_add(0, at, x)

    definition = Definition.model_validate(data)
    sentences = [
        found_of(definition, without_bias, {"total": 2}, seed).sentence for seed in range(6)
    ]
    assert not any("right at" in each for each in sentences), sentences


def test_a_place_of_equal_numbers_alone_is_not_said():
    """As of ties, of which the last are taken: where all are equal, these are at an end."""

    def wrong_of_zeros(x):
        y = x * 3
        if not x.any():
            y[5:12] = torch.arange(64.0).sin() + 1
        return y

    found = found_of(SCALE, wrong_of_zeros, {"n": 40}, regime={"values": "zeros"})
    assert found.sentence == "y: wrong (right with normal values of these sizes)"


def test_what_wraps_to_the_last_of_an_axis_is_no_loop_that_ends_early():
    rules = {"group": {"kind": "indices", "below": "groups", "unique": False, "sentinels": [-1]}}
    sums = define(
        {"x": "float32[n]", "group": "int64[n]", "start": "float32[groups, d]"},
        {"y": "float32[groups, d]"},
        "rows = (x.abs() * (group >= 0))[:, None].expand(-1, start.shape[1])\n"
        "    return start.index_add(0, group.clamp(min=0), rows)",
        axes={"groups": "var"},
    )
    workloads = {"axes": {"groups": {"max": 49}}, "inputs": rules}  # three tiles of 16, and one
    sums = Definition.model_validate({**sums.model_dump(mode="json"), "workloads": workloads})

    def wraps(x, group, start):
        rows = x.abs()[:, None].expand(-1, start.shape[1])
        return start.index_add(0, group % len(start), rows)

    found = found_of(sums, wraps, {"n": 50, "groups": 7})
    assert found.sentence.startswith("y: wrong at the last of ")
    assert "off by one" not in found.sentence


def test_a_larger_workload_that_is_right_at_all_values_is_named():
    found = found_of(SCALE, lambda x: x * 3 if len(x) > 7 else x.sin(), {"n": 2})
    assert " (right at n=" in found.sentence


def test_a_size_up_to_which_a_kernel_is_right_is_named():
    def switched(x):
        return x * 3 + x.square() * (x > 1.5) * (len(x) > 40)

    found = found_of(SCALE, switched, {"n": 41})
    assert found.sentence.startswith("y: wrong at ")
    assert found.sentence.endswith(" (right at n=40)")
    always = found_of(SCALE, lambda x: x * 3 + x.square() * (x > 1.5), {"n": 41})
    assert "right at" not in always.sentence


def test_an_output_that_is_right_by_chance_is_named_where_other_inputs_show_it():
    """With a rate of 0 the step is right, though what it steps by isn't."""
    step = define(
        {"p": "float32[n, d]", "g": "float32[n, d]", "rate": "float32"},
        {"m": "float32[n, d]", "new_p": "float32[n, d]"},
        "m = g * 0.1\n    return m, p - rate * m",
        rules={"rate": {"kind": "uniform", "min": 0.0, "max": 0.5, "ends": True}},
    )

    def wrong(p, g, rate):
        m = torch.where(g > 1, g * 0.2, g * 0.1)
        return m, p - rate * m

    seed = next(
        each for each in range(99) if make_workload(step, {"n": 5}, each).inputs["rate"].value == 0
    )
    found = found_of(step, wrong, {"n": 5}, seed)
    assert (found.output, found.also, found.elsewhere) == ("m", (), ("new_p",))
    assert "(new_p is wrong with other inputs)" in found.headline


def test_one_number_that_is_missing_everywhere_is_named(judge):
    scales = define(
        {"x": "float32[n, d]"},
        {"s": "float32[n]"},
        "most = x.abs().amax(1)\n    return torch.where(most > 0, most, 1.0)",
    )
    wrong = "return x.abs().amax(1)"
    found = diagnosis(judge, scales, wrong, regime={"values": "zeros"})
    assert found.sentence.startswith("s: 0 in place of 1")


def test_of_a_place_that_holds_an_input_in_part_it_is_said_that_the_rest_is_right(judge):
    moved = define(
        {"x": "float32[n, d]", "pool": "float32[n, d]", "gate": "float32[n, d]"},
        {"out": "float32[n, d]"},
        "return torch.where(gate > 0.9, x, pool)",
    )
    wrong = "y = torch.where(gate > 0.9, x, pool)\n    y[:, 59:] = pool[:, 59:]\n    return y"
    found = diagnosis(judge, moved, wrong, n=300)
    part = r"equal to the input pool where it is wrong: in \d+ % of elements"
    assert re.match(rf"out: {part} at the last 5 of 64 along d", found.sentence), found.sentence


def test_an_offset_that_is_a_number_of_the_inputs_is_no_constant(judge):
    """Numbers begin at 0, not at what was counted before."""
    rules = {"before": {"kind": "integers", "min": 0, "max": 10**7}}
    counts = define(
        {"before": "int64[n]", "x": "float32[n]"},
        {"y": "int64[n]"},
        "return before[:1] + torch.arange(len(x))",
        rules=rules,
    )
    found = sentences(judge, counts, "return torch.arange(len(x))", n=9, seeds=24)
    assert not any(re.search(r"by (\S+), by \1 with", each) for each in found), found


def test_where_what_is_expected_is_in_one_row_alone_it_is_not_the_value_that_decides(judge):
    sums = define(
        {"x": "float32[n, d]", "lens": "int64[n]"},
        {"y": "float32[n, d]"},
        "places = torch.arange(x.shape[1])\n"
        "    return torch.where(places < lens[:, None], x, -torch.inf)",
        axes={"d": 8},
        rules={"lens": {"kind": "one_of", "values": [0, 0, 0, 8]}},
    )
    wrong = (
        "places = torch.arange(x.shape[1])\n"
        "    return torch.where(places < (lens % 8)[:, None], x, -torch.inf)"
    )
    for seed in range(12):
        checked = outcome(judge, sums, wrong, n=3, seed=seed)
        if checked.diagnosis and "wherever" in checked.diagnosis.sentence:
            inputs = make_inputs(sums, make_workload(sums, {"n": 3}, seed), "cpu")
            assert int((inputs["lens"] > 0).sum()) > 1


def test_zeros_are_not_right_where_some_of_them_are_wrong(judge):
    """As of groups all of whose rows are null, if null rows are counted."""
    counts = define(
        {"ids": "int64[n]", "valid": "bool[n]"},
        {"y": "int64[m]"},
        "return torch.bincount(ids[valid], minlength=32)",
        axes={"m": 32},
        rules={"ids": {"kind": "integers", "min": 0, "max": 31}},
    )
    for seed in range(24):
        found = outcome(judge, counts, "return torch.bincount(ids, minlength=32)", 100, seed)
        if found.diagnosis and "wherever 0 isn't" in found.diagnosis.sentence:
            inputs = make_inputs(counts, make_workload(counts, {"n": 100}, seed), "cpu")
            right = torch.bincount(inputs["ids"][inputs["valid"]], minlength=32)
            assert not bool(torch.bincount(inputs["ids"], minlength=32)[right == 0].any())


def test_the_row_that_a_scalar_names_is_said_to_be_that(judge):
    padded = define(
        {"x": "float32[n, d]", "ids": "int64[n]", "padding_idx": "int64"},
        {"y": "float32[m, d]"},
        "x = torch.where((ids == padding_idx)[:, None], 0.0, x)\n"
        "    return torch.zeros(12, x.shape[1]).index_add_(0, ids, x)",
        axes={"m": 12, "d": 8},
        rules={
            "ids": {"kind": "integers", "min": 0, "max": 11},
            "padding_idx": {"kind": "integers", "min": 0, "max": 11},
        },
    )
    wrong = "return torch.zeros(12, x.shape[1]).index_add_(0, ids, x)"
    found = sentences(judge, padded, wrong, n=100, seeds=6)
    assert all(
        re.fullmatch(r"y: wrong at m \d+, which is padding_idx(, where 0 is expected)?", each)
        for each in found
    ), found


def test_a_copy_of_an_input_is_one_where_it_is_right_too(judge):
    ordered = define(
        {"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x.sort(-1).values", axes={"d": 5}
    )
    found = diagnosis(judge, ordered, "return x.clone()", n=3)
    assert re.fullmatch(
        r"y: equal to the input x everywhere \(wrong at \d+ of 15 elements\)", found.sentence
    )


def test_what_is_nan_rather_than_infinite_is_said_to_be_both(judge):
    halved = define(
        {"x": "float32[n, d]"},
        {"y": "float32[n, d]"},
        "return x * 1.0",
        axes={"d": 8},
        rules={"x": {"kind": "uniform", "min": 1.0, "max": 2.0}},
    )
    wrong = "y = x.clone()\n    y[:, :4] = torch.nan\n    y[:, 4] = torch.inf\n    return y"
    found = diagnosis(judge, halved, wrong, n=30)
    assert found.sentence.startswith("y: NaN and inf at ")
    assert "of 240 elements" in found.sentence or "along d" in found.sentence


def test_counts_are_named_with_what_they_are_multiplied_by(judge):
    penalties = define(
        {"x": "float32[n, d]", "counts": "int64[n, d]", "rate": "float32[n]", "base": "float32[n]"},
        {"y": "float32[n, d]"},
        "return x.sin() - rate[:, None] * counts - base[:, None] * (counts > 0)",
        axes={"d": 8},
        rules={"counts": {"kind": "integers", "min": 0, "max": 900}},
    )
    wrong = "return x.sin() - rate[:, None] * (counts + counts % 2) - base[:, None] * (counts > 0)"
    found = diagnosis(judge, penalties, wrong, n=40)
    assert "in what depends on counts and rate" in found.sentence


def test_errors_of_most_elements_are_not_everywhere(judge):
    """Of some rows nothing is added, and these are exact."""
    sums = define(
        {"x": "float32[n, d]", "on": "bool[n]"},
        {"y": "float32[n, d]"},
        "return x + on[:, None] * x.flip(1) * 1.7",
        axes={"d": 64},
        rules={"on": {"kind": "boolean", "p": 0.75}},
    )
    wrong = "return x + on[:, None] * (x.flip(1) * 1.7).half().float()"
    found = sentences(judge, sums, wrong, n=40, seeds=6)
    assert any("in most elements" in each for each in found), found
    assert not any("scale everywhere" in each for each in found), found


def test_a_window_that_is_too_wide_is_not_one_that_is_ignored():
    """In a sequence of two tokens, one of two is as good as no limit."""
    reference = (
        "def run(x, cu, window):\n"
        "    y = torch.zeros_like(x)\n"
        "    for a, b in zip(cu.tolist()[:-1], cu.tolist()[1:]):\n"
        "        for i in range(a, b):\n"
        "            first = max(a, i + 1 - window) if window else a\n"
        "            y[i] = x[first : i + 1].sum(0)\n"
        "    return y\n"
    )
    data = signature(
        "op", "total cu_len d=4", "x[total,d]:f32 cu[cu_len]:i32 window:i32", "y[total,d]:f32",
        "total == cu[-1].item()",
    )  # fmt: skip
    data["reference"] = f"import torch\n{reference}"
    window = {"kind": "integers", "min": 0, "max": "total", "ends": True}
    bounds = {"total": {"max": 300}, "cu_len": {"max": 33}}
    data["workloads"] = {"axes": bounds, "inputs": {"window": window}}
    definition = Definition.model_validate(data)
    namespace = {"torch": torch}
    exec(reference.replace("i + 1 - window", "i - window"), namespace)
    axes = {"total": 2, "cu_len": 2}
    seeds = [s for s in range(20) if make_workload(definition, axes, s).inputs["window"].value == 1]
    found = [found_of(definition, namespace["run"], axes, s, max_bytes=1 << 12) for s in seeds]
    assert any(found)  # two sequences of a token each are right
    assert not any(each and "as if window" in each.sentence for each in found), found


def test_a_row_of_which_little_is_wrong_is_not_named_by_a_scalar(judge):
    named = define(
        {"x": "float32[n, d]", "row": "int64"},
        {"y": "float32[n, d]"},
        "return x.sin()",
        rules={"row": {"kind": "integers", "min": 0, "max": "n - 1"}},
    )
    wrong = "y = x.sin()\n    y[row, :4] += 1\n    return y"
    found = sentences(judge, named, wrong, n=200, seeds=4)
    assert not any("which is row" in each for each in found), found


def test_what_only_a_certain_scalar_shows_is_shown_by_a_larger_workload_with_that():
    data = signature("op", "n d=8", "x[n,d]:f32 w:i32", "y[n,d]:f32")
    data["reference"] = "import torch\ndef run(x, w):\n    return x.sin() + w\n"
    data["workloads"] = {"inputs": {"w": {"kind": "integers", "min": 0, "max": "8 * n"}}}
    definition = Definition.model_validate(data)
    given = {seed: make_workload(definition, {"n": 1}, seed).inputs["w"].value for seed in range(9)}
    seed, only = next((seed, value) for seed, value in given.items() if 2 < value < 8)

    def run(x, w):
        y = x.sin() + w
        if w == only:
            y[:, -3:] = 0
        return y

    found = found_of(definition, run, {"n": 1}, seed)
    assert found.sentence == "y: zeros at 3 of 8 along d"
    assert found.shown_by is not None
    assert found.shown_by.inputs["w"].value == only


def test_a_flag_that_is_0_names_no_row(judge):
    flagged = define(
        {"x": "float32[n, d]", "flag": "int32"},
        {"y": "float32[n, d]"},
        "y = x.sin()\n    y[0] += 1 - flag\n    return y",
        axes={"d": 8},
        rules={"flag": {"kind": "integers", "min": 0, "max": 1}},
    )
    found = sentences(judge, flagged, "return x.sin()", n=40, seeds=6)
    assert not any("which is" in each for each in found), found


def test_a_row_in_the_middle_of_others_is_no_place(judge):
    """As the one row of which all is 0, wherever it was put."""
    summed = define({"x": "float32[n, d]"}, {"y": "float32[n, d]"}, "return x * 1.0")
    for row, n, is_named in ((200, 601, False), (256, 601, True), (0, 601, True), (0, 3, False)):
        wrong = f"y = x * 1.0\n    y[{row}] *= torch.nan\n    return y"
        found = diagnosis(judge, summed, wrong, n=n).sentence
        assert (f"at n {row}" in found) is is_named, found


def test_an_output_that_is_wrong_in_the_workload_that_fails_is_wrong_too():
    """Of many rows both are; of the smallest workload's one row, which is shown, as well."""
    both = define(
        {"x": "float32[n, d]"},
        {"a": "float32[n, d]", "b": "float16[n, d]"},
        "return x * 3, (x * 3).half()",
    )

    def wrong(x):
        y = x * 3 + (x > 1) * (len(x) < 3)
        return x * 3 + (x > 1), y.half()

    found = found_of(both, wrong, {"n": 1})
    assert {found.output, *found.also} == {"a", "b"}
    assert not found.elsewhere


def test_outputs_that_were_wrong_before_are_named():
    both = define(
        {"x": "float32[n, d]"}, {"a": "float32[n, d]", "b": "float32[n, d]"}, "return x, -x"
    )
    check = FunctionChecker(both, lambda x: (x + (x > 1), -x), "cpu")
    small = make_workload(both, {"n": 1})
    found = diagnose_failure(
        both, small, check(small), lambda w: check(w, explain=True), 1 << 16, wrong={"b"}
    ).diagnosis
    assert (found.output, found.also, found.elsewhere) == ("a", (), ("b",))


def test_a_divisor_is_not_named_beside_what_it_divides(judge):
    """Divided by 0, all is infinite whatever else there is."""
    normalised = define(
        {"x": "float32[n, d]", "mean": "float32[d]", "std": "float32[d]"},
        {"y": "float32[n, d]"},
        "return (x.flip(1) + x.abs().sqrt() - mean) / std",
        axes={"d": 8},
        rules={"std": {"kind": "uniform", "min": 0.25, "max": 0.5}},
    )
    wrong = "return (x + x.abs().sqrt() - mean) / std"
    found = diagnosis(judge, normalised, wrong, n=40)
    assert "std" not in found.sentence


def test_errors_of_rounding_beside_a_row_that_is_wrong_are_not_small_errors(judge):
    means = define(
        {"x": "float32[n, d]", "w": "float32[d]"},
        {"y": "bfloat16[n, d]"},
        "return (x.sin() * w).bfloat16()",
        axes={"d": 40},
    )
    wrong = (
        "y = x.sin() * w\n    y[-1] += (x[-1] > 0.7) * x[-1].cos() * 0.03\n    return y.bfloat16()"
    )
    found = diagnosis(judge, means, wrong, n=29)
    assert "row's scale" not in found.sentence


def test_what_an_input_holds_all_over_is_no_number_of_the_kernel():
    """A place of a cache that isn't written may hold the least number all over."""
    cached = define(
        {"cache": "int8[m, d]"}, {"new": "int8[m, d]"}, "return cache", axes={"m": 64, "d": 8}
    )
    cache = torch.arange(512).view(64, 8).remainder(99).to(torch.int8)
    expected = cache.clone()
    cache[0], expected[0] = -128, torch.arange(8).to(torch.int8)
    output = WrongOutput(
        "new", ("m", "d"), cache.clone(), expected, cache != expected, torch.zeros(64, 8)
    )
    context = CallContext(cached, inputs={"cache": cache})
    assert explain(Failure((output,), context)).sentence == "new: wrong at m 0"
    other = CallContext(cached, inputs={"cache": expected})
    assert "the same value, -128" in explain(Failure((output,), other)).sentence


def test_an_output_of_which_far_less_is_wrong_does_not_say_what_is(judge):
    """Zeros of a gradient follow from how values are rounded, at few elements."""
    ties = define(
        {"x": "float32[n, d]"},
        {"dx": "float32[n, d]", "q": "int8[n, d]"},
        "q = (x * 4).floor()\n    return torch.where(q < 6, x.cos() + 2, 9.0), q.to(torch.int8)",
        axes={"d": 64},
    )
    wrong = "q = (x * 4).floor()\n    dx = torch.where(q < 6, x.cos() + 2, 9.0)\n"
    wrong += "    q = q + (x > 0.5)\n    dx = torch.where(x > 2.5, 0.0, dx)\n"
    found = diagnosis(judge, ties, f"{wrong}    return dx, q.to(torch.int8)", n=60)
    assert (found.output, found.also) == ("q", ("dx",))


def test_sizes_between_wrong_ones_are_not_named():
    """Where both sides of an image are scaled by the same, one scale for both is right."""

    def wrong(x):
        return x * 3 if len(x) == 5 else x.sin()

    found = found_of(SCALE, wrong, {"n": 2})
    assert "right at" not in found.sentence


def test_an_index_that_inputs_pick_is_not_off_by_one():
    sums = define(
        {"x": "float32[n, d]", "at": "int64[n]"},
        {"y": "float32[rows, d]"},
        "return torch.zeros(40, x.shape[1]).index_add(0, at, x)",
        axes={"rows": 40},
        rules={"at": {"kind": "indices", "below": "rows", "unique": False}},
    )

    def wrong(x, at):
        y = torch.zeros(40, x.shape[1]).index_add(0, at, x)
        y[-1] = 0
        return y

    assert found_of(sums, wrong, {"n": 300}).sentence == "y: zeros at the last of 40 along rows"


def test_no_scalar_is_named_that_bounds_what_overflows(judge):
    """Without a cap scores are so far below 0 that nothing is left of their exponentials."""
    capped = define(
        {"x": "float32[n, d]", "cap": "float32"},
        {"y": "float32[n, d]"},
        "s = x * 200 if cap == 0 else cap * torch.tanh(x * 200 / cap)\n    return s.softmax(1)",
        axes={"d": 2},
        rules={"cap": {"kind": "uniform", "min": 0, "max": 30, "ends": True}},
    )
    wrong = "s = x * 200 if cap == 0 else cap * torch.tanh(x * 200 / cap)\n"
    wrong += "    e = (s - s.amax(1, keepdim=True).clamp(min=0)).exp()\n"
    wrong += "    return e / e.sum(1, keepdim=True)"
    found = [
        diagnosis(judge, capped, wrong, seed=seed).sentence
        for seed in range(24)
        if make_workload(capped, {"n": 200}, seed).inputs["cap"].value == 0
    ]
    assert found
    assert all(each.startswith("y: NaN") and "cap" not in each for each in found)


def test_zero_points_of_rows_are_named(judge):
    product = define(
        {"a": "int8[n, d]", "zero": "int32[n]", "b": "float32[d]"},
        {"y": "float32[n]"},
        "return ((a.float() - zero[:, None]) @ b)",
        axes={"d": 24},
        rules={
            "a": {"kind": "integers", "min": -128, "max": 127},
            "zero": {"kind": "integers", "min": -100, "max": 100},
        },
    )
    wrong = "return (a.int() - zero[:, None]).clamp(-128, 127).float() @ b"
    found = diagnosis(judge, product, wrong, n=40)
    assert "zero" in found.sentence


def test_a_size_that_is_right_for_being_odd_is_not_named():
    def wrong(x):
        return x * 3 if len(x) % 2 else x.sin()

    found = found_of(SCALE, wrong, {"n": 2})
    assert "right at" not in found.sentence


def test_eight_bit_inputs_beside_others_are_no_fault(judge):
    """What is divided by its sum is nothing finite where all of it is 0."""
    shares = define(
        {"x": "float32[n, d]", "w": "float32[d]", "q": "float8_e4m3fn[n, d]"},
        {"y": "float32[n, d]"},
        "u = x * w + q.float() * w\n    return u / u.abs().sum(-1, keepdim=True)",
        axes={"d": 16},
    )

    def wrong(x, w, q):
        u = x * w * (1 + 0.3 * torch.sin(5 * x)) + q.float() * w
        return u / u.abs().sum(-1, keepdim=True)

    assert found_of(shares, wrong, {"n": 40}).sentence.startswith("y: ")


def test_a_place_of_one_of_two_dimensions_of_an_axis_stays():
    square = define({"x": "float32[n, d]"}, {"y": "float32[n, n]"}, "return x @ x.T", axes={"d": 8})

    def wrong(x):
        y = x @ x.T
        y[:, -1] = 0
        return y

    assert " at the last of " in found_of(square, wrong, {"n": 40}).sentence


def test_rows_that_sizes_choose_are_counted():
    def wrong(x):
        y = x * 3
        y[len(x) // 2 :] *= 2
        return y

    found = found_of(SCALE, wrong, {"n": 64})
    assert re.search(r"2 x expected at (the last )?\d+ of \d+ along n", found.sentence)
