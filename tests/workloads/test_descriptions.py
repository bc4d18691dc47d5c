"""What descriptions of inputs say of their numbers."""

from math import inf, nan

import pytest
import torch

from pytest_fib.data import Definition
from pytest_fib.workloads import TURNS, fill_inputs, make_inputs, make_workload, plan
from tests.definitions.harness import filled
from tests.workloads.signatures import signature

NOTHING = None
POSITIVE = "scales, min 0.0625, max 4.0"
NOT_NEGATIVE = "uniform, min 0, max 4.0, ends True"
ADDS = "def run(x, which):\n    return x + which"


def rule_of(spec, description, reference=ADDS, *constraints):
    """How the input ``which`` of a kernel is made, whose tensors have n elements."""
    data = signature("op", "n classes=9 rows", f"x[n]:f32 {spec}", "y[n]:f32", *constraints)
    data["inputs"]["which"]["description"] = description
    data["reference"] = f"import torch\n{reference}\n"
    return plan(Definition.model_validate(data)).rules["which"]


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("0 to 1.", "uniform, min 0, max 1, ends True"),
        ("Writing strength, 0 to 1.", "uniform, min 0, max 1, ends True"),
        ("Between -1.5 and 1.5", "uniform, min -1.5, max 1.5, ends True"),
        ("Values in [0, 8]", "uniform, min 0, max 8, ends True"),
        ("A probability, in (0, 1).", "uniform, min 0.00390625, max 0.9921875, ends True"),
        ("Gate, 0 to 1; softmax over dim -1 is taken", "uniform, min 0, max 1, ends True"),
        ("Share, 0 to 1, or -1 for none", "uniform, min 0, max 1, ends True, sentinels [-1]"),
        ("1e-4 to 1e-2", "uniform, min 0.0001, max 0.01, ends True"),
        ("Logarithm of the decay, at most 0.", "uniform, min -4.0, max 0, ends True"),
        ("Positive.", POSITIVE),
        ("Above 0", POSITIVE),
        ("Weight of each class, not negative.", NOT_NEGATIVE),
        ("At least 0.", NOT_NEGATIVE),
        (">= 0", NOT_NEGATIVE),
        ("Non negative.", NOT_NEGATIVE),
        ("Edges, ascending.", "sorted"),
        ("Edges, ascending for each user", "sorted"),
        ("1 where white won, 0.5 for a draw, 0 where black won", "one_of, values [1, 0.5, 0]"),
        ("1 for a draw, 2 points where it won", "values"),
        ("Alpha: 0 where clear, 0.5 where half, 1 where opaque, between them at edges", "values"),
        ("Sine of the angle: 0 for none, 1 for a right one, -1 for the opposite", "values"),
        ("typical values: 0.1 or 0.2", "values"),
        ("Default: 0.5 or 1", "values"),
        ("0 or 0.5 or 1", "one_of, values [0, 0.5, 1]"),
        ("Weights, growing in every step", "values"),
        ("Sorted in a hash", "values"),
        ("Negative where nothing counts.", "values"),
        ("In [>= 0.5]", "values"),
        ("Kept where x >= 0, else times the slope.", "values"),
        ("Log probabilities, not negative infinity.", "values"),
        ("May be negative or >= 0", "values"),
        ("The output of relu is never negative", "values"),
        ("Weights, 0 to 1 of which count for each.", "values"),
        ("As many as from 0 to 1 take.", "values"),
        ("Not sorted.", "values"),
        ("Scores from low to high", "values"),
        ("Positive-definite factors.", "values"),
        ("Positive and negative samples.", "values"),
        ("Positive class logits", "values"),
        ("Camera matrices, [3, 4].", "values"),
        ("At least 1000000.", "uniform, min 1000000, max 2000000, ends True"),
        ("Those further off have no weight, 2 to 9", "uniform, min 2, max 9, ends True"),
        ("No padding, between 0 and 1", "uniform, min 0, max 1, ends True"),
        ("Not between 2 and 9", "values"),
        ("Weights, 4 to 8 bits", "values"),
        ("Edges, 2 and 3 dimensional", "values"),
        ("At most n", "values"),
        ("Strictly between 0 and 1", "uniform, min 0.00390625, max 0.9921875, ends True"),
        ("Between -1 and 1, exclusive", "uniform, min -0.9921875, max 0.9921875, ends True"),
        ("At least 0.5 and below 1", "uniform, min 0.5, max 0.9921875, ends True"),
        ("Exponent, annealed from 0.4 to 1.", "uniform, min 0.4, max 1, ends True"),
        ("The exponent is annealed from 0.4 to 1.", "uniform, min 0.4, max 1, ends True"),
        ("From zero up to and including one.", "uniform, min 0, max 1, ends True"),
        ("-pi to pi", "uniform, min -3.141592, max 3.141592, ends True"),
        ("Phase, 0 to 2 * pi", "uniform, min 0, max 6.283184, ends True"),
        ("0 <= u < 1", "uniform, min 0, max 0.9921875, ends True"),
        ("u >= 0 and u < 1", "uniform, min 0, max 0.9921875, ends True"),
        ("Clipped to [-5, 5]", "uniform, min -5, max 5, ends True"),
        ("Negative.", "uniform, min -4.0, max -0.015625, ends True"),
        ("Log probabilities, never positive.", "uniform, min -4.0, max 0, ends True"),
        ("Estimate of the divergence, floored at zero", NOT_NEGATIVE),
        ("It cannot be negative.", NOT_NEGATIVE),
        ("Must exceed 1.", "uniform, min 1.015625, max 5.0, ends True"),
        ("Every row adds up to one", "probabilities"),
        ("Positive, sums to 1 per token", "probabilities"),
        ("Need not sum to 1", "values"),
        ("1.0 where a sequence ends, 0.0 elsewhere", "boolean"),
        ("0 or 1", "boolean"),
        ("-1, 0 or 1", "one_of, values [-1, 0, 1]"),
        ("Strictly increasing", "sorted, unique True"),
        ("From 1 to 3 rows each", "values"),
        ("One for each row", "values"),
        ("No one is above 1 of them", "values"),
        ("Slope, 0 or 0.5", "one_of, values [0, 0.5]"),
        ("One of 1, 2 or 2.5", "one_of, values [1, 2, 2.5]"),
        ("From 0 to 2.5 kHz", "values"),
        ("From 0 to 0.5 pi", "uniform, min 0, max 1.570796, ends True"),
        ("From 0 to pi/2", "values"),
        ("Not between 0 and 1.", "values"),
        ("Anything not in the range [0, 1].", "values"),
        ("The output is normalized to [0, 1].", "values"),
        ("Logits, which are clamped to [-5, 5].", "values"),
        ("Scores; softmax maps these to numbers between 0 and 1", "values"),
        ("Exponent of x; x >= 0.", "values"),
        ("Kept if it is finite and above 0.", "values"),
        ("Mixing weight, 0 for the old and 1 for the new", "values"),
        ("Alpha: 0 where transparent, 1 where opaque, in between at edges", "values"),
        ("Weights, normalized to 1 by the kernel", "values"),
        ("Columns sum to 1", "values"),
        ("Between -1 and 1, adding to 1", "uniform, min -1, max 1, ends True"),
        ("Logits whose softmax can never be negative", "values"),
        ("Slope of each, negative, or positive", "values"),
        ("Sorted, in (0, 1)", "sorted, min 0.00390625, max 0.9921875"),
    ],
)
def test_a_description_may_say_what_floating_numbers_there_are(description, rule):
    assert str(rule_of("which[n]:f32", description)) == rule


@pytest.mark.parametrize(
    ("spec", "description", "rule"),
    [
        ("which[n]:i32", "0 to 20", "integers, min 0, max 20"),
        ("which[n]:i32", "Bytes of each field, 1 to 20.", "integers, min 1, max 20"),
        ("which[n]:i32", "0 to 19, or -1 for none.", "positions, sentinels [-1], below 20"),
        (
            "which[n]:i32",
            "Without a gradient, 0 to 19, or -1 for none",
            "positions, sentinels [-1], below 20",
        ),
        ("which[n]:i32", "In [0, classes).", "integers, min 0, max classes - 1"),
        ("which[n]:i32", "Ids below n.", "integers, min 0, max n - 1"),
        ("which[n]:i32", "Never more than 512", "integers, min 0, max 512"),
        ("which[n]:i32", "Below 0", NOTHING),
        ("which[n]:i32", "At least 0, at most 7", "integers, min 0, max 7"),
        ("which[n]:i64", "0 to 2**40 - 1", f"integers, min 0, max {2**40 - 1}"),
        ("which[n]:i64", "Raw ids of up to 62 bits.", f"integers, min 0, max {2**62 - 1}"),
        ("which[n]:i32", "0 to 2**40", NOTHING),  # which the dtype doesn't hold
        ("which[n]:i32", "In [0, classes + n - 2)", "integers, min 0, max classes + n - 3"),
        ("which[n]:i32", "0 to classes - width", NOTHING),
        ("which[n]:i32", "0 to 8 * n", "integers, min 0, max 8 * n"),
        ("which[n]:i32", "Any, -2**31 to 2**31 - 1.", f"integers, min {-(2**31)}, max {2**31 - 1}"),
        ("which[n]:i32", "0 to 8-1", NOTHING),
        ("which[n]:i32", "0.5 to 2", NOTHING),
        ("which[n]:i64", "0 to 10**999999999", NOTHING),
        ("which[n]:i32", "0 to 255 -1", NOTHING),
        ("which[n]:i32", "0..15", "integers, min 0, max 15"),
        ("which[n]:i32", "0 to 4, exclusive.", "integers, min 0, max 3"),
        ("which[n]:i32", "0 to n * n", "integers, min 0, max n * n"),
        ("which[n]:i8", "0 to n", "integers, min 0, max min(n, 127)"),
        ("which[n]:i32", "Page table, [n, rows].", NOTHING),
        ("which[n]:i32", "One of 0, 1 and 2.", "one_of, values [0, 1, 2]"),
        ("which[n]:i32", "0, 1 and 2 are rows", NOTHING),
        ("which[n]:i32", "Either 8, 16 or 32.", "one_of, values [8, 16, 32]"),
        ("which[n]:i32", "Ranks are 8, 16 or 32.", "one_of, values [8, 16, 32]"),
        ("which[n]:i32", "0 or 1, or -1 where unknown", "one_of, values [-1, 0, 1]"),
        ("which[n]:i32", "1 for a cat, 0 for a dog, -1 for neither", "one_of, values [-1, 0, 1]"),
        ("which[n]:u8", "0 or 1, or 255 where void", "one_of, values [0, 1, 255]"),
        ("which[n]:u8", "1 or 2; or 2 where both", "one_of, values [1, 2]"),
        ("which[n]:i32", "0 or 1, and 2 is reserved", "boolean"),
        ("which[n]:i32", "1, 2 or 4, and 3 is not allowed", "one_of, values [1, 2, 4]"),
        ("which[n]:i64", "Seconds since the epoch of training", NOTHING),
        ("which[n]:i64", "Number of milliseconds since 1970 that each waits", NOTHING),
        ("which:i32", "0 zero, 1 wrap around, 2 clamp", "one_of, values [0, 1, 2]"),
        ("which:i32", "0 half-pixel centres, 1 aligned corners", "one_of, values [0, 1]"),
        ("which:i32", "Tokens, 0 allowed, 1 usual", NOTHING),
        ("which[n]:i32", "0 to rows * 32", "integers, min 0, max rows * 32"),
        (
            "which[n]:i64",
            "Milliseconds since 1970",
            f"integers, min {17 * 10**11}, max {17 * 10**11 + 8192}",
        ),
        (
            "which[n]:i64",
            "Seconds since the Unix epoch; ascending",
            f"sorted, min {17 * 10**8}, max {17 * 10**8 + 8192}",
        ),
        ("which[n]:i32", "Seconds since 1970, 0 to 60", "integers, min 0, max 60"),
        ("which[n]:i32", "Microseconds since 1970", NOTHING),
        (
            "which[n]:i64",
            "microseconds since 1970",
            f"integers, min {1_700_000_000 * 10**6}, max {1_700_008_192 * 10**6}",
        ),
        (
            "which[n]:i32",
            "0 to 60, or -32768 where void",
            "positions, sentinels [-32768], below 61",
        ),
        (
            "which[n]:i32",
            "metres, 0 to 60; -32768 for none",
            "positions, sentinels [-32768], below 61",
        ),
        (
            "which[n]:i32",
            "-1024 to 3071, or -2000",
            "integers, min -1024, max 3071, sentinels [-2000]",
        ),
        ("which[n]:i32", "-50 to 60; not -40 where cold", "integers, min -50, max 60"),
        ("which[n]:i8", "1 PQ, 2 PV, 3 slack, 4 isolated", "one_of, values [1, 2, 3, 4]"),
        (
            "which[n]:u8",
            "0 none, 1 to the number before, 2 to the one at the first",
            "one_of, values [0, 1, 2]",
        ),
        ("which[n]:i32", "At least 1 and at most 512.", "integers, min 1, max 512"),
        ("which[n]:i32", "Larger than 3 but smaller than 9", "integers, min 4, max 8"),
        ("which[n]:i32", "One or more", "integers, min 1, max 8193"),
        ("which[n]:i32", "From −20 (most urgent) to 19.", "integers, min -20, max 19"),
        ("which[n]:i32", "0-15", "integers, min 0, max 15"),
        ("which[n]:i32", "1-based, up to 9", "integers, min 1, max 9"),
        ("which[n]:i32", "Multiples of 16, 1 to 512", "integers, min 16, max 512, step 16"),
        ("which[n]:i8", "Any bits", "integers, min -128, max 127"),
        ("which[n]:i32", "Ascending, all distinct, 0 to 9", "sorted, max 9, unique True"),
        ("which[n]:i32", "Sorted, no repeats", "sorted, unique True"),
        ("which[n]:i32", "Arrival, oldest first", "sorted"),
        ("which[n]:f32", "Timestamps in seconds, the earliest first", "sorted"),
        ("which[n]:i32", "Unix seconds, oldest first", "sorted"),
        ("which[n]:i32", "The last tokens, oldest first", NOTHING),
        ("which[n]:f32", "States of earlier time steps, the earliest first", "values"),
        ("which[n]:f32", "Time steps, the earliest first", "values"),
        ("which[n]:f32", "Prices by date, oldest first", "values"),
        ("which[n]:f32", "the three inputs before the chunk, oldest first", "values"),
        ("which[n]:i32", "Ascending, but not strictly ascending.", "sorted"),
        ("which[n]:u8", "Strictly ascending", "sorted, max 255, unique True"),
        ("which[n]:i32", "1 to 10, a multiple of 16", "integers, min 1, max 10"),
        ("which[n]:i32", "0 to 96, need not be a multiple of 16.", "integers, min 0, max 96"),
        ("which[n]:i32", "0 is a pad, 1 is a start; 2 is an end.", "one_of, values [0, 1, 2]"),
        ("which[n]:i32", "0 for none, 1 for one, and so on.", NOTHING),
        ("which[n]:i32", "Excludes ids between 2 and 5", NOTHING),
        ("which[n]:i32", "Masked unless 0 <= id < 4", NOTHING),
        ("which[n]:i32", "Count. n >= 4.", NOTHING),
        ("which[n]:fp8", "0 or 1", "one_of, values [0, 1]"),
        ("which[n]:i32", "Query, 2 to 4 heads", NOTHING),
        ("which:i8", "Not negative.", "integers, min 0, max 127, ends True"),
        ("which[n]:u8", "Keys of 8 bits.", "integers, min 0, max 255"),
        ("which[n]:i32", "Signed integers of 8 bits.", "integers, min -128, max 127"),
        ("which[n]:i32", "Ascending, from 1000 on.", "sorted, min 1000, max 9192"),
        ("which[n]:i32", "Ascending, at most -1.", "sorted, min -8193, max -1"),
        ("which[n]:i8", "Ascending, 0 to 1000.", "sorted"),
        ("which[n]:u8", "Bytes from 0 to 255.", "integers, min 0, max 255"),
        ("which[n]:i64", "Signed keys of 33 bits", f"integers, min {-(2**32)}, max {2**32 - 1}"),
        ("which[n]:i32", "Sorted, -50 to 50", "sorted, min -50, max 50"),
        ("which[n]:i32", "A permutation of the rows.", "permutation"),
        ("which:i32", "Window, 1 to 64; 0 for no limit.", "integers, min 0, max 64, ends True"),
        (
            "which:i32",
            "Block, 16 to 64; 0 for none.",
            "integers, min 16, max 64, ends True, sentinels [0]",
        ),
        ("which[n]:i32", "Counts. Each row has all tokens", NOTHING),
        ("which[n]:i32", "Numbers, from 1 on.", "integers, min 1, max 8193"),
        ("which[n]:i32", "1, 2, 4 or 8", "one_of, values [1, 2, 4, 8]"),
        ("which:i32", "0 to 3", "integers, min 0, max 3, ends True"),
        ("which:i32", "1, 2, 4 or 8", "one_of, values [1, 2, 4, 8]"),
        ("which:i32", "Row 0 to n of each", NOTHING),
    ],
)
def test_a_description_may_say_what_whole_numbers_there_are(spec, description, rule):
    made = rule_of(spec, description)
    assert str(made) == (rule or "0")


def test_what_is_inferred_is_within_what_the_description_says():
    step = "def run(x, which):\n    return x * 0.5 ** which"
    assert str(rule_of("which:i32", "From 3 to 5.", step)) == "integers, min 3, max 5, ends True"
    factor = "def run(x, which):\n    return x.clamp(max=which)"
    made = rule_of("which:f32", "Largest value; 0 for no clipping.", factor)
    assert str(made) == "uniform, min 0.0, max 24.0, ends True"
    power = "def run(x, which):\n    return x ** which"
    assert str(rule_of("which:f32", "At least 0.1", power)) == "uniform, min 0.1, max 2.0"
    divisor = "def run(x, which):\n    return x / which"
    made = rule_of("which:f16", "0 to 100000", factor)  # which float16 doesn't hold
    assert str(made) == "uniform, min 0.5, max 24.0"
    assert rule_of("which[n]:f32", "", divisor).signed
    assert not rule_of("which[n]:f32", "Positive.", divisor).signed
    picks = "def run(x, which):\n    return x[which]"
    assert not rule_of("which[n]:i32", "Rows may repeat.", picks).unique
    assert rule_of("which[n]:i32", "All distinct.", picks).unique
    assert rule_of("which[n]:i32", "Distinct host pages, -1 for an unused pair", picks).unique
    assert rule_of("which[n]:i32", "Unique indices", picks).unique
    for said in ("Unique number of its row", "Unique across ranks", "Counts of: distinct tokens"):
        assert not rule_of("which[n]:i32", said, picks).unique
    assert rule_of("which[n]:i32", "Rows, distinct in a row, -1 for none", picks).unique
    made = rule_of("which[n]:i32", "-1 to 4; -1 where there is none; rows may repeat", picks)
    assert (made.below, made.sentinels) == ("min(n, 5)", [-1])


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("x[spent_tokens]", "positions, below vocab"),
        ("x.sum() * (spent_tokens + 1)", "integers, min 0, max 64"),
    ],
)
def test_what_is_named_as_tokens_is_of_an_axis_if_it_indexes_that(body, rule):
    data = signature("op", "n vocab", "x[vocab]:f32 spent_tokens[n]:i32", "y[n]:f32")
    data["inputs"]["spent_tokens"]["description"] = "0 to 64, tokens so far"
    data["reference"] = f"def run(x, spent_tokens):\n    return {body}\n"
    assert str(plan(Definition.model_validate(data)).rules["spent_tokens"]) == rule


def test_what_is_inferred_of_indices_and_flags_is_within_what_the_description_says():
    picks = "def run(x, which):\n    return x[which]"
    made = rule_of("which[n]:i32", "Local expert, 0 to 7, or -1 for none.", picks)
    assert str(made) == "indices, sentinels [-1], below min(n, 8), unique False"
    made = rule_of("which[n]:i32", "Class, 0 to classes - 1.", "def run(x, which):\n    return x")
    assert str(made) == "integers, min 0, max classes - 1"
    flags = "def run(x, which):\n    return x * (which == 1)"
    assert str(rule_of("which[n]:u8", "1 to 24", flags)) == "integers, min 1, max 24"
    bits = "def run(x, which):\n    return ((which >> 3) & 7) * x"
    assert str(rule_of("which[n]:i32", "", bits)).startswith("integers, min -2147483648")
    made = rule_of("which[n]:i32", "0 to 2097151; -1 where it is outside", bits)
    assert str(made) == "positions, sentinels [-1], below 2097152"
    clamped = "def run(x, which):\n    return x[which.clamp(max=x.shape[0] - 1)] + which"
    made = rule_of("which[rows]:i32", "0 to rows - 1", clamped)
    assert str(made) == "indices, below rows, unique False"
    labels = "def run(x, which):\n    return x * (which == 0) + (which == -1)"
    assert str(rule_of("which[n]:i32", "", labels)) == "positions, sentinels [-1], below 4"
    made = rule_of("which[n]:i32", "0 to 4, -1 for unvisited nodes", labels)
    assert str(made) == "positions, sentinels [-1], below 5"
    sines = "def run(x, which):\n    return (which[:, None] * x).sin()"
    assert rule_of("which[n]:i32", "", sines).kind == "positions"
    assert str(rule_of("which[n]:i32", "Sizes, each 1 to 24.", sines)) == "integers, min 1, max 24"


PICKS = "def run(x, which):\n    return x[which]"
PUTS = "def run(x, which):\n    y = x.clone()\n    y[which] = x[: len(which)] * 2\n    return y"


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("Classes; -1 is not allowed.", "indices, below n, unique False"),
        ("Never 0 or -1.", "indices, below n, unique False"),
        ("Rows, not unique.", "indices, below n, unique False"),
        ("At most -1", "indices, below n, unique False"),
        ("Different rows may have the same.", "indices, below n, unique False"),
    ],
)
def test_what_is_denied_is_not_said(description, rule):
    assert str(rule_of("which[n]:i32", description, PICKS)) == rule
    assert rule_of("which[rows]:i32", "No index may repeat.", PUTS).unique


def test_flags_that_are_said_to_be_unknown_at_times_are_that_too():
    flags = "def run(x, which):\n    return x * (which == 1)"
    assert str(rule_of("which[n]:i8", "", flags)) == "boolean"
    for description in ("-1 where unknown", "0 or 1; -1 where unknown"):
        assert str(rule_of("which[n]:i8", description, flags)) == "one_of, values [-1, 0, 1]"
    made = rule_of("which[n]:i8", "from -1 to 1", flags)
    assert str(made) == "integers, min -1, max 1"


def test_sentinels_are_behind_the_others_if_that_is_said():
    for description in (
        "Rows are padded with -1 at the end",
        "Trailing entries are -1",
        "Row of each; missing ones are -1 and come last",
        "Filled up with -1",
    ):
        made = rule_of("which[n]:i32", description, PICKS)
        assert str(made) == "indices, below n, unique False, pad -1"
    for description in (
        "Rows; missing ones are -1",
        "Row of each, -1 where it is beyond the window.",
        "Parents; -1 for trailing whitespace.",
    ):
        made = rule_of("which[n]:i32", description, PICKS)
        assert str(made) == "indices, sentinels [-1], below n, unique False"
    for description in ("Rows; the default is -1.", "Rows, shifted by -1", "Rows. None is -1."):
        made = rule_of("which[n]:i32", description, PICKS)
        assert str(made) == "indices, below n, unique False"


def test_indices_that_are_put_somewhere_all_differ_also_in_order():
    data = signature("op", "n k s d=4", "x[n,k,d]:f32 which[n,k]:i64", "y[s,d]:f32")
    data["inputs"]["which"]["description"] = "Slots, ascending."
    data["reference"] = (
        "import torch\ndef run(x, which):\n    out = torch.zeros(9, 4)\n"
        "    out[which] = x\n    return out\n"
    )
    assert plan(Definition.model_validate(data)).rules["which"].unique == "everywhere"


def test_lengths_of_which_any_is_right_are_lengths():
    cuts = "def run(x, which):\n    return torch.stack([x[:n].sum() for n in which.tolist()])"
    assert rule_of("which[rows]:i32", "Any number.", cuts).kind == "seq_lens"


def test_what_a_definition_states_comes_before_its_descriptions():
    data = signature("op", "n", "x[n]:f32", "y[n]:f32")
    data["inputs"]["x"]["description"] = "0 to 1."
    data["workloads"] = {"inputs": {"x": {"kind": "normal", "std": 2}}}
    rule = plan(Definition.model_validate(data)).rules["x"]
    assert str(rule) == "normal, mean 0, std 2"


def test_lengths_up_to_a_size_are_lengths():
    moved = "def run(x, lens):\n    return x + lens"
    data = signature("op", "n t", "x[n,t]:f32 lens[n]:i32", "y[n]:f32")
    data["inputs"]["lens"]["description"] = "0 to t"
    data["reference"] = moved
    assert str(plan(Definition.model_validate(data)).rules["lens"]) == (
        "seq_lens, max t, allow_empty True"
    )


def test_what_is_cut_at_may_be_beyond_an_axis_if_that_is_said():
    cuts = "def run(x, which):\n    return torch.stack([x[:n].sum() for n in which.tolist()])"
    made = rule_of("which[rows]:i32", "-8 to 72, clipped", cuts)
    assert str(made) == "integers, min -8, max 72"
    made = rule_of("which[rows]:i32", "1 to 15, or 0 for what isn't used", cuts)
    assert str(made) == "seq_lens, max min(n, 15), allow_empty True"


def test_tokens_that_are_hashed_are_as_many_as_is_said():
    data = signature("op", "n buckets d=4", "tokens[n]:i64 table[buckets,d]:f32", "y[n,d]:f32")
    data["inputs"]["tokens"]["description"] = "token ids, 0 to 128255"
    data["reference"] = (
        "def run(tokens, table):\n"
        "    two = (tokens * 1000003) ^ (tokens.roll(1) * 8191)\n"
        "    return table[two % table.shape[0]]\n"
    )
    rule = plan(Definition.model_validate(data)).rules["tokens"]
    assert str(rule) == "integers, min 0, max 128255"


def test_a_scalar_may_be_one_of_those_listed():
    adds = "def run(x, which):\n    return x + which"
    assert str(rule_of("which:f32", "Added to it, 0 or 1", adds)) == "one_of, values [0, 1]"


def test_lengths_of_one_or_more_are_never_0():
    cuts = "def run(x, which):\n    return torch.stack([x[:n].sum() for n in which.tolist()])"
    assert rule_of("which[rows]:i32", "", cuts).allow_empty
    assert not rule_of("which[rows]:i32", "Of each, at least 1.", cuts).allow_empty


@pytest.mark.parametrize(
    ("description", "special"),
    [
        ("Logits; -inf for banned tokens.", {-inf}),
        ("NaN where missing; infinities are values.", {-inf, inf, nan}),
        ("Last value; NaN if there is none yet.", {nan}),
        ("At least 0; inf where not reached.", {inf}),
        ("Distance, 0 to 8, infinite where no path is", {inf}),
        ("Not negative; inf or NaN where a step overflowed.", {inf, nan}),
        ("Not negative; infinities are values.", {inf}),
        ("At least 0, or inf", {inf}),
        ("-4 to 4; -inf or NaN for none", {-inf, nan}),
        ("Never inf or so", set()),
        ("Inf is not among them.", set()),
        ("Finite, not nan", set()),
        ("No inf or NaN.", set()),
        ("NaN is not allowed, nor -inf for any.", set()),
    ],
)
def test_a_description_may_name_infinities_and_nan(description, special):
    data = signature("op", "n", "x[n]:f32", "y[n]:f32")
    data["inputs"]["x"]["description"] = description
    definition, seen = Definition.model_validate(data), set()
    for seed in range(2 * TURNS):
        x = torch.empty(64)
        fill_inputs({"x": x}, definition, make_workload(definition, {"n": 64}, seed, {}))
        seen |= {str(value) for value in x.tolist()} & {"inf", "-inf", "nan"}
    assert seen == set(map(str, special))


@pytest.mark.parametrize(
    ("description", "special"),
    [
        ("NaN where missing", [-inf, inf, nan]),
        ("NaN where missing, never infinite", [nan]),
        ("NaN where missing, otherwise finite", [nan]),
        ("-inf where it is banned, otherwise finite", [-inf]),
        ("NaN where missing, no infs or NaNs", [nan]),
        ("-inf for no limit, never inf", [-inf, nan]),
        ("Not always finite", [-inf, inf, nan]),
        ("If all finite, they are summed", [-inf, inf, nan]),
        ("Kept where not NaN", [-inf, inf, nan]),
        ("Counted where not infinite", [-inf, inf, nan]),
        ("A row is skipped unless all finite", [-inf, inf, nan]),
        ("No infinities", [nan]),
        ("-inf where it is banned", [-inf, nan]),
        ("inf where it overflowed", [-inf, inf, nan]),
        ("Never positive infinity", [-inf, nan]),
        ("No -inf", [inf, nan]),
        ("Never NaN", [-inf, inf]),
        ("Finite", []),
        ("Always finite", []),
        ("No more than that, infinitely often", [-inf, inf, nan]),
    ],
)
def test_a_description_may_deny_what_the_reference_asks_for(description, special):
    data = signature("op", "n", "x[n]:f32", "y[n]:f32")
    data["inputs"]["x"]["description"] = description
    data["reference"] = (
        "import torch\ndef run(x):\n    y = torch.where(x.isnan(), 0, x)\n"
        "    return torch.where(x.isinf(), 1, y)\n"
    )
    definition = Definition.model_validate(data)
    found = set()
    for seed in range(TURNS):
        x = filled(definition, make_workload(definition, {"n": 64}, seed))["x"]
        found |= {str(value) for value in x[~x.isfinite()].tolist()}
    assert found == {str(value) for value in special}


def test_a_sentinel_may_be_named_by_the_description_alone():
    for described, sentinels in (
        ("Each token's adapter, -1 for none.", [-1]),
        ("Class, or -100 where it is ignored", [-100]),
        ("slot of each sequence, or -1", [-1]),
        ("Along dim -1", None),
        ("In [-1.5, 2]", None),
        ("Column indices, indptr[-1] of them.", None),
        ("From argsort(dim=-1)", None),
        ("In 0..v -1, never -1.", None),
    ):
        data = signature("op", "n v=64", "ids[n]:i32 x[n,v]:f32", "y[n]:f32")
        data["inputs"]["ids"]["description"] = described
        data["reference"] = (
            "def run(ids, x):\n    return sum(x[:, i] * (ids == i) for i in range(x.shape[1]))\n"
        )
        assert plan(Definition.model_validate(data)).rules["ids"].sentinels == sentinels


def test_a_description_may_say_that_any_number_below_0_is_none():
    for described, sentinels in (
        ("Negative ids are padding.", [-100, -1]),
        ("Which rows.", [-1]),
        ("Row of the hard negative, -1 for none.", [-1]),
        ("Index of the negative sample, or -1", [-1]),
    ):
        data = signature("op", "n v=64", "ids[n]:i32 x[v]:f32", "y[n]:f32")
        data["inputs"]["ids"]["description"] = described
        data["reference"] = (
            "import torch\ndef run(ids, x):\n"
            "    return torch.where(ids >= 0, x[ids.clamp(min=0)], 0.0)\n"
        )
        assert plan(Definition.model_validate(data)).rules["ids"].sentinels == sentinels


def test_a_description_may_say_that_lengths_may_be_0():
    for described, may_be_empty in (
        ("Tokens of each; may be 0.", True),
        ("Lengths can be zero.", True),
        ("0 to 20", True),
        ("Tokens of each.", False),
        ("No sequence may be empty.", False),
        ("Tokens of each; none can be 0.", False),
        ("Tokens of each; the rest of a row may be zero.", False),
    ):
        data = signature("op", "n t d=8", "lens[n]:i32 x[n,t]:f32", "y[n]:f32")
        data["inputs"]["lens"]["description"] = described
        data["reference"] = (
            "import torch\ndef run(lens, x):\n"
            "    return torch.stack([x[i, :n].amax() for i, n in enumerate(lens.tolist())])\n"
        )
        assert plan(Definition.model_validate(data)).rules["lens"].allow_empty == may_be_empty


@pytest.mark.parametrize(
    ("description", "any_after"),
    [
        ("Pages of each sequence, unspecified after the last.", True),
        ("Beyond a sequence's pages anything.", True),
        ("In arbitrary order; 0 after them.", False),
        ("Not stale after a step.", False),
        ("", False),
    ],
)
def test_a_description_may_say_that_numbers_of_no_page_are_after_the_pages(description, any_after):
    data = signature(
        "paged",
        "b m=4 pages size=8 d=4",
        "table[b,m]:i32 seq_lens[b]:i32 cache[pages,size,d]:f32",
        "y[b]:f32",
    )
    data["inputs"]["block_table"] = data["inputs"].pop("table") | {"description": description}
    data["reference"] = "def run(seq_lens, cache, block_table):\n    return cache[block_table]"
    definition = Definition.model_validate(data)
    assert plan(definition).rules["block_table"].any_after == any_after
    tensors, found = {}, set()
    for seed in range(8):
        workload = make_workload(definition, {"b": 5, "pages": 20}, seed, {})
        sizes = definition.axis_values(workload.axes)
        for name, spec in definition.inputs.items():
            tensors[name] = torch.empty(
                spec.shape_at(sizes), dtype=getattr(torch, spec.dtype.value)
            )
        fill_inputs(tensors, definition, workload)
        used = torch.arange(4) < -(-tensors["seq_lens"] // 8)[:, None]
        pages = tensors["block_table"]
        assert ((pages[used] >= 0) & (pages[used] < 20)).all()
        found |= {*pages[~used].tolist()}
    assert found == ({0, -1, 2**31 - 1, -(2**31)} if any_after else {0})


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("0 is act/360, 1 act/365, 2 act/365.25", "one_of, values [0, 1, 2]"),
        ("Way of rounding: 1 for down, 2 for up, 3 for even.", "one_of, values [1, 2, 3]"),
        ("0: none, 1: linear, 2: cubic", "one_of, values [0, 1, 2]"),
        ("2 rows, 3 columns, 4 planes", "0"),
        ("Of 0 rows, 1 column and 5 planes", "0"),
    ],
)
def test_each_of_a_few_numbers_may_stand_for_something(description, rule):
    moved = "def run(x, which):\n    return x + which.roll(1)"
    assert str(rule_of("which[n]:i32", description, moved)) == rule


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("Class, 0 to 8; 255 where it is ignored", "positions, sentinels [255], below 9"),
        ("Class, 0 to 8; 99 for none", "positions, sentinels [99], below 9"),
        ("Class, 0 to 8; padded with 77", "positions, sentinels [77], below 9"),
        ("Class, 0 to 8; 64 rows for all", "integers, min 0, max 8"),
    ],
)
def test_any_number_may_stand_for_nothing(description, rule):
    assert str(rule_of("which[n]:i32", description)) == rule


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("A permutation of the rows.", "permutation"),
        ("Rows, ascending.", "sorted, max n - 1"),
        ("Rows; n where there is none", "indices, below n + 1, unique False"),
        ("Rows, padded with n", "indices, below n + 1, unique False"),
        ("Rows, n is padded to 8", "indices, below n, unique False"),
        ("No two share a row.", "indices, below n"),
        ("Rows from the root on, each at most once", "indices, below n"),
        ("Rows but the first, 1 to n - 1", "integers, min 1, max n - 1"),
    ],
)
def test_indices_are_what_the_description_says(description, rule):
    assert str(rule_of("which[n]:i64", description, PICKS)) == rule


def test_a_size_that_a_narrow_dtype_does_not_hold_is_no_bound():
    made = rule_of("which[n]:u8", "0 to rows - 1")
    assert str(made) == "integers, min 0, max min(rows - 1, 255)"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("(which[:, None] == other[None]).any(1) * x", "sorted, unique True, pad -1"),
        ("x[which.clamp(min=0)]", "sorted, max n - 1, unique True, pad -1"),
        ("x + which", "sorted, unique True, pad -1"),
    ],
)
def test_rows_in_order_may_be_padded(body, rule):
    data = signature("op", "n", "which[n]:i32 other[n]:i32 x[n]:f32", "y[n]:f32")
    data["inputs"]["which"]["description"] = "Strictly ascending, padded with -1 at the end"
    data["reference"] = f"def run(which, other, x):\n    return {body}\n"
    definition = Definition.model_validate(data)
    made = plan(definition).rules["which"]
    assert str(made) == rule
    seen = set()
    for seed in range(16):
        which = filled(definition, make_workload(definition, {"n": 30}, seed))["which"]
        count = int((which >= 0).sum())
        assert bool((which[count:] == -1).all())
        assert bool((which[:count].diff() > 0).all())
        seen.add((count > 0) + (count == 30))
    assert len(seen) > 1


@pytest.mark.parametrize("said", ["Not unit vectors of a sphere", "unit directions, scaled by x"])
def test_scaled_vectors_and_others_are_no_unit_vectors(said):
    assert rule_of("which[n,classes]:f32", said).kind == "values"


def test_offsets_that_rise_have_no_empty_parts():
    data = signature("op", "n total", "which[n]:i32 x[total]:f32", "y[n]:f32", "total == which[-1]")
    for description, may_be_empty in (("From 0", True), ("Strictly ascending from 0", False),
                                      ("Strictly ascending", False)):  # fmt: skip
        data["inputs"]["which"]["description"] = description
        data["reference"] = "def run(which, x):\n    return x[which[:-1]]\n"
        rule = plan(Definition.model_validate(data)).rules["which"]
        assert (rule.kind, rule.allow_empty) == ("indptr", may_be_empty)


def test_rows_may_be_unit_vectors():
    for description in ("Unit quaternions", "Directions, of length 1", "unit vectors from the eye"):
        assert rule_of("which[n,classes]:f32", description).kind == "l2_normalized"


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("Each row has all rows in their order.", "indices, below n"),
        ("Every row is a permutation of the rows", "indices, below n"),
        ("Each row lists all neighbours of one", "indices, below n, unique False"),
        ("Each row has every neighbour, may repeat.", "indices, below n, unique False"),
        ("Each row has all of its rows at most twice", "indices, below n, unique False"),
        ("Rows in any order", "indices, below n, unique False"),
    ],
)
def test_rows_of_a_matrix_may_be_permutations(description, rule):
    lookup = "def run(x, which):\n    return x[which].sum(1)"
    assert str(rule_of("which[n,n]:i32", description, lookup)) == rule


@pytest.mark.parametrize(
    ("spec", "description", "rule"),
    [
        ("[n,classes]:i32", "Each row has all classes, in random order.", "indices, below classes"),
        ("[n,classes]:i32", "Each row has all tags, in random order.", "labels"),
        ("[n,classes]:i32", "A permutation of 0 to classes - 1", "indices, below classes"),
        ("[n,classes]:i32", "A permutation of the classes", "indices, below classes"),
        ("[n,classes]:i32", "A permutation of the rows", "labels"),
        ("[n,classes]:i32", "All distinct, 0 to classes - 1", "indices, below classes"),
        ("[n,classes]:i32", "All distinct, 0 to 40", "indices, below 41"),
        ("[n,rows]:i32", "All distinct, 0 to 40", "integers, min 0, max 40"),
        ("[n]:i32", "1 to n * rows", "integers, min 1, max n * rows"),
        ("[n]:i32", "0 to n * rows - 1, all distinct", "indices, below n * rows"),
        (
            "[n]:i32",
            "Row times 9: 0 to n * 9 - 1, all distinct; -1 for none",
            "indices, sentinels [-1], below n * 9",
        ),
    ],
)
def test_distinct_numbers_of_which_the_reference_says_nothing(spec, description, rule):
    compares = "def run(x, which):\n    return (which == which[:1]).float().sum()"
    assert str(rule_of(f"which{spec}", description, compares)) == rule


def test_what_is_asked_for_some_numbers_may_be_no_more_than_a_description_lists():
    asks = "def run(x, which):\n    return torch.where(which[0] != 0, x, x * 2)"
    assert str(rule_of("which[n]:i32", "", asks)) == "positions, below 4"
    assert str(rule_of("which[n]:i32", "0 or 1", asks)) == "boolean"
    assert str(rule_of("which[n]:i32", "0, 1 or 5", asks)) == "one_of, values [0, 1, 5]"


def test_a_description_of_what_was_inferred_leaves_no_guess():
    data = signature("op", "n d", "x[n,d]:f32 zero_points[n]:i32", "y[n,d]:f32")
    data["inputs"]["zero_points"]["description"] = "-128 to 127"
    data["reference"] = "def run(x, zero_points):\n    return x - zero_points[:, None]\n"
    (line,) = (
        each
        for each in plan(Definition.model_validate(data)).explained()
        if each.startswith("zero_points")
    )
    assert line.endswith("as its description says (integers, min -128, max 127)")


def test_what_is_not_negative_may_be_compared_with_0():
    asks = "def run(x, which):\n    return x * (which > 0)"
    for description in ("Not negative.", "At least 0"):
        assert str(rule_of("which[n]:f32", description, asks)).startswith("uniform, min 0, max 4")
    assert str(rule_of("which[n]:f32", "Positive.", asks)) == "values"


def test_a_floating_number_of_a_range_may_stand_for_nothing():
    data = signature("op", "n", "x[n]:f32 age[n]:f32 limit:f32", "y[n]:f32")
    data["inputs"]["age"]["description"] = "Hours, 0 to 2000, or -1 where unknown"
    data["inputs"]["limit"]["description"] = "Hours, 1 to 5, or -1 for none"
    data["reference"] = "import torch\ndef run(x, age, limit):\n    return x + age + limit\n"
    definition = Definition.model_validate(data)
    ages, limits = set(), set()
    for seed in range(24):
        made = make_inputs(definition, make_workload(definition, {"n": 40}, seed), "cpu")
        ages |= set(made["age"].tolist())
        limits.add(made["limit"])
    assert -1.0 in ages
    assert all(age == -1.0 or 0.0 <= age <= 2000.0 for age in ages)
    assert -1.0 in limits
    assert all(limit == -1.0 or 1.0 <= limit <= 5.0 for limit in limits)
