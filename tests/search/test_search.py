"""Drawing, shrinking, and doing both the same in every process."""

import pytest
import torch

from pytest_fib.data import VALUE_PATTERNS, Definition
from pytest_fib.search import search
from pytest_fib.workloads import USUAL_BYTES, make_workload, workload_bytes
from tests.definitions.harness import filled
from tests.workloads.signatures import signature


@pytest.fixture
def look():
    """Search with a predicate on workloads; returns the outcome and all that was tried."""

    def look(definition, fails=lambda workload: False, **options):
        tried = []

        def check(workload):
            tried.append(workload)
            return fails(workload)

        found = search(definition, check, failed=bool, closeness=lambda outcome: 0.0, **options)
        return found, tried

    return look


@pytest.mark.parametrize("threshold", [2, 65, 129, 1000, 4097])
def test_shrinking_ends_at_the_smallest_axis(define, look, threshold):
    found, _ = look(define(), lambda w: w.axes["n"] >= threshold)
    assert (found.workload.axes, found.workload.seed) == ({"n": threshold}, 0)
    assert (found.workload.regime, found.origin) == ({}, "shrunk")


def test_each_axis_is_shrunk(define, look):
    definition = define({"m": "var", "n": "var"})
    found, _ = look(definition, lambda w: w.axes["m"] >= 17 and w.axes["n"] >= 5, examples=60)
    assert found.workload.axes == {"m": 17, "n": 5}


def test_a_failure_of_one_regime_keeps_it(define, look):
    found, _ = look(define(), lambda w: w.regime.get("values") == "zeros", examples=60)
    assert (found.workload.axes, found.workload.regime) == ({"n": 1}, {"values": "zeros"})


def test_a_failure_that_depends_on_the_seed_keeps_a_failing_seed(define, look):
    found, _ = look(define(), lambda w: w.seed % 2 == 1)
    assert found.workload.seed == 1


def test_the_same_workload_is_checked_once(define, look):
    _, tried = look(define(), lambda w: w.axes["n"] >= 65)
    assert len({w.uuid for w in tried}) == len(tried)


def test_boundaries_are_drawn_more_than_other_sizes(define, look):
    _, tried = look(define(), examples=200)
    sizes = [w.axes["n"] for w in tried]
    near = {(1 << k) + d for k in range(17) for d in (-1, 0, 1)}
    assert sum(n in near for n in sizes) > len(sizes) / 4
    assert min(sizes) == 1
    assert max(sizes) >= 65536


def test_every_regime_is_drawn(define, look):
    _, tried = look(define(), examples=100)
    assert {w.regime.get("values", "normal") for w in tried} == set(VALUE_PATTERNS) - {"nan", "inf"}


def test_each_search_has_negative_inputs_and_such_beside_positive_ones(define, look):
    inputs = {name: {"shape": ["n"], "dtype": "float32"} for name in "qk"}
    for seed in range(8):
        _, tried = look(define({"n": "var"}, inputs), seed=seed)
        drawn = [w.regime for w in tried if w.regime.get("values") == "negative"]
        assert {regime.get("inputs", "all") for regime in drawn} == {"all", "some"}


QUOTIENT = "def run(a, b, c):\n    return a * (a.norm() / (b + c).norm().clamp(min=1e-9))\n"


@pytest.mark.parametrize(
    ("reference", "names"),
    [
        (QUOTIENT, {*"abc"}),
        (QUOTIENT.replace("/", "*"), set()),
        (QUOTIENT.replace("/ (b + c).norm().clamp(min=1e-9)", "/ 2"), set()),
        (QUOTIENT.replace("/ (b", "* (b").replace(".clamp(min=1e-9)", ".reciprocal()"), {*"abc"}),
    ],
)
def test_each_search_has_every_input_zero_alone_where_there_are_quotients(
    define, look, reference, names
):
    inputs = {name: {"shape": ["n"], "dtype": "float32"} for name in "abc"}
    definition = define({"n": "var"}, inputs).model_copy(update={"reference": reference})
    for seed in range(8):
        _, tried = look(definition, seed=seed)
        zero = [
            {name for name, x in filled(definition, w).items() if (x == 0).all()}
            for w in tried
            if w.regime.get("inputs") == "one"
        ]
        assert all(len(each) == 1 for each in zero)
        assert set().union(*zero) == names


@pytest.fixture
def split_by_offsets(define):
    """Sequences of n tokens in all, by their offsets."""
    return define(
        {"n": "var", "length": "var"},
        {
            "x": {"shape": ["n"], "dtype": "float32"},
            "offsets": {"shape": ["length"], "dtype": "int64"},
        },
        rules={"offsets": {"kind": "indptr", "total": "n"}},
    )


def test_each_search_has_sequences_of_one_beyond_whole_tiles(split_by_offsets, look):
    for seed in range(8):
        _, tried = look(split_by_offsets, seed=seed)
        plain = [w for w in tried if w.regime.get("values") not in ("zeros", "subnormal")]
        lengths = torch.cat([filled(split_by_offsets, w)["offsets"].diff() for w in plain])
        for tile in (16, 32, 64, 128):
            assert ((lengths > tile) & (lengths % tile == 1)).any(), (seed, tile)


def test_sequences_are_as_many_as_tiles_hold_or_one_more(split_by_offsets, look):
    _, tried = look(split_by_offsets, examples=100)
    sequences = {w.axes["length"] - 1 for w in tried}
    assert {1, 2, 3, 16, 17, 32, 33, 64, 65, 128, 129} <= sequences


def test_offsets_may_be_of_a_constant_number_of_sequences(define, look):
    offsets = {"x": {"shape": ["n"], "dtype": "float32"}}
    offsets |= {"offsets": {"shape": ["six"], "dtype": "int64"}}
    rules = {"offsets": {"kind": "indptr", "total": "n"}}
    five = define({"n": "var", "six": 6}, offsets, rules=rules)
    _, tried = look(five, examples=25, small=25)
    totals = {w.axes["n"]: int(filled(five, w)["offsets"][-1]) for w in tried}
    assert all(n == total for n, total in totals.items())
    assert max(totals) > 1024


def test_each_search_has_long_sequences_in_pages_beside_plain_values(define, look):
    """Of a batch with a table of distinct pages, in a cache of which each page takes 16 KiB."""
    axes = {"batch": "var", "width": "var", "pages": "var", "size": 16, "d": 256}
    inputs = {
        "cache": {"shape": ["pages", "size", "d"], "dtype": "float32"},
        "table": {"shape": ["batch", "width"], "dtype": "int32"},
        "lengths": {"shape": ["batch"], "dtype": "int32"},
    }
    rules = {
        "table": {"kind": "block_table", "pages": "pages", "lengths": "lengths", "page_size": 16},
        "lengths": {"kind": "seq_lens", "max": "width * 16", "pages": "pages", "page_size": 16},
    }
    definition = define(axes, inputs, rules=rules)
    definition = definition.model_copy(update={"outputs": {"y": definition.inputs["lengths"]}})
    long = []
    for seed in range(8):
        _, tried = look(definition, seed=seed)
        plain = [w for w in tried if w.regime.get("values", "normal") in ("normal", "shifted")]
        longest = [int(filled(definition, w)["lengths"].max()) for w in plain]
        long.append(sum(n > 256 for n in longest))
    assert min(long) >= 1
    assert sum(long) >= 24


def test_each_search_has_axes_of_one_tensor_that_are_equal(define, look):
    axes = {"m": "var", "n": "var", "a": 3, "b": 5, "c": 7, "d": 11, "e": 13}
    inputs = {
        "x": {"shape": ["m", "n"], "dtype": "float32"},
        "weight": {"shape": ["a", "b", "c", "d", "e"], "dtype": "float32"},
    }
    definition = define(axes, inputs)
    definition = definition.model_copy(update={"outputs": {"y": definition.inputs["x"]}})
    for seed in range(8):
        _, tried = look(definition, seed=seed)
        equal = [w for w in tried if w.axes["m"] == w.axes["n"] > 1]
        assert any(w.regime.get("values") != "zeros" for w in equal)


@pytest.mark.parametrize(
    "rule",
    [
        {"kind": "integers", "max": 18},
        pytest.param({"kind": "boolean"}, marks=pytest.mark.thorough),
    ],
)
def test_each_search_has_much_that_is_alike_where_something_may_be_counted(define, look, rule):
    inputs = {"x": {"shape": ["m", "n"], "dtype": "int32"}}
    definition = define({"m": "var", "n": "var"}, inputs, rules={"x": rule})
    for seed in range(2):
        _, tried = look(definition, seed=seed)
        alike = [w for w in tried if len(filled(definition, w)["x"].unique()) == 1]
        assert max(w.axes["m"] * w.axes["n"] for w in alike) > 65536


@pytest.mark.parametrize(
    ("divided", "rest", "by"),
    [("n // 12", 0, 12), ("(n + 11) // 12", 0, 12), ("max(n - 4, 0) // 32", 4, 32)],
)
def test_each_search_has_a_size_that_the_reference_divides_without_remainder(
    look, divided, rest, by
):
    """As of chunks after a few tokens that are in none."""
    data = signature("op", "n", "x[n]:f32", "y[n]:f32")
    data["reference"] = f"def run(x):\n    n = x.shape[0]\n    return x * ({divided})\n"
    data["workloads"] = {"axes": {"n": {"min": 1, "max": 700}}}
    definition = Definition.model_validate(data)
    for seed in range(4):
        sizes = {workload.axes["n"] for workload in look(definition, seed=seed)[1]}
        assert any((n - rest) % by == 0 and n >= 2 * by for n in sizes)


def test_each_search_has_nothing_along_each_axis_that_may_be_empty(define, look):
    inputs = {"x": {"shape": ["m", "n"], "dtype": "float32"}}
    domains = {"m": {"min": 0, "max": 100}, "n": {"min": 0, "max": 7}}
    definition = define({"m": "var", "n": "var"}, inputs, domains=domains)
    for seed in range(4):
        sizes = [workload.axes for workload in look(definition, seed=seed)[1]]
        for axis, other in ("mn", "nm"):
            assert any(axes[axis] == 0 < axes[other] for axes in sizes)


def test_each_search_has_an_axis_that_equals_one_which_follows(define, look):
    axes = {"m": "var", "half": "var", "n": "var", "k": "var"}
    inputs = {
        "x": {"shape": ["m", "k"], "dtype": "float32"},
        "weight": {"shape": ["n", "k"], "dtype": "float32"},
    }
    given = define(axes, inputs).model_dump()
    output = {"y": {"shape": ["m", "n"], "dtype": "float32"}}
    more = {"outputs": output, "constraints": ["n == 2 * half"]}
    definition = Definition.model_validate({**given, **more})
    for seed in range(8):
        _, tried = look(definition, seed=seed)
        assert any(w.axes["m"] == w.axes["n"] > 2 for w in tried)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize(
    ("shapes", "domain"),
    [
        ({"x": ["n"]}, {"max": 3000}),
        ({"x": ["n"]}, {"min": 10, "max": 20}),
        ({"x": ["n"]}, {"max": 3000, "multiple_of": 3}),
        ({"x": ["n"]}, {"values": [8, 64, 100, 257, 4096]}),
        ({"x": ["m", "n"], "weight": ["n"]}, {"max": 3000}),
        ({"x": ["m", "n"], "w": ["n", "m"]}, {}),
    ],
)
def test_each_search_ends_a_row_of_an_odd_size_with_nan_and_with_an_infinity(
    define, look, shapes, domain, value
):
    inputs = {name: {"shape": shape, "dtype": "float32"} for name, shape in shapes.items()}
    axes = dict.fromkeys(sorted({axis for shape in shapes.values() for axis in shape}), "var")
    domains = {axis: domain if axis == "n" else {"max": 40} for axis in axes}
    definition = define(axes, inputs, domains, values=["usual", str(value)])
    for seed in range(12):
        _, tried = look(definition, seed=seed, run_seed=seed + 1000, max_bytes=4 << 20)
        drawn = [filled(definition, w) for w in tried if w.regime.get("values") == str(value)]
        for name in inputs:
            special = [~each[name].isfinite() for each in drawn]
            beyond = 1024 if shapes[name] == ["n"] and domain.get("max") == 3000 else 16
            odd = [x for x in special if x.shape[-1] % 2 and x.shape[-1] > beyond]
            assert any((x[..., -1] & ~x.all(-1)).any() for x in odd), (seed, name)


def test_special_values_are_drawn_where_no_size_is_odd_or_none_is_large(define, look):
    for domain in ({"multiple_of": 4}, {"max": 16}, {"values": [2, 3, 64]}):
        definition = define(domains={"n": domain}, values=["nan", "inf"])
        found, tried = look(definition)
        assert found.origin is None
        assert len({w.axes["n"] for w in tried}) > 2


def test_the_smallest_is_tried_even_where_nothing_is_affordable(define, look):
    found, tried = look(define(), affordable=lambda workload: False)
    assert [workload.axes for workload in tried] == [{"n": 1}]
    assert found.tried == 1
    assert len(found.passed_over) > len(tried)


def test_instead_of_what_is_slow_something_smaller_of_the_same_regime_is_tried(define, look):
    definition = define({"m": "var", "n": "var"}, domains={"m": {"min": 3}})
    slow = [w for w in look(definition)[1] if w.axes["n"] > 100]
    found, tried = look(definition, slow=lambda w: w.axes["n"] > 100)
    assert max(w.axes["n"] for w in tried) <= 100
    assert [w.uuid for w in found.lowered] == [w.uuid for w in slow]
    regimes = {(w.seed, *w.regime.items()) for w in tried}
    assert {(w.seed, *w.regime.items()) for w in slow} <= regimes
    assert min(w.axes["m"] for w in tried) == 3


def test_what_is_slow_at_any_size_is_left_out_but_for_the_smallest(define, look):
    found, tried = look(define(), slow=lambda w: True)
    assert [workload.axes for workload in tried] == [{"n": 1}]
    assert len(found.lowered) == 24


def test_few_workloads_take_more_than_is_usual_whatever_the_budget(define, look):
    rows = {"x": {"shape": ["m", "n"], "dtype": "float32"}}
    definition = define({"m": "var", "n": 4096}, rows)
    budget = 16 * USUAL_BYTES
    _, tried = look(definition, seed=0, run_seed=1, max_bytes=budget)
    taken = [workload_bytes(definition, w.axes) for w in tried]
    assert 0 < sum(size > USUAL_BYTES for size in taken) <= 2
    assert budget / 2 < max(taken) <= budget


@pytest.mark.parametrize("budget", [24, 1 << 12, 1 << 20])
def test_every_workload_stays_within_the_budget(define, look, budget):
    definition = define({"m": "var", "n": "var"})
    _, tried = look(definition, examples=100, max_bytes=budget)
    assert max(workload_bytes(definition, w.axes) for w in tried) <= budget


@pytest.mark.parametrize(
    ("domain", "allowed"),
    [
        ({"min": 3, "max": 20}, set(range(3, 21))),
        ({"min": 10, "max": 100, "multiple_of": 16}, {16, 32, 48, 64, 80, 96}),
        ({"values": [7, 64, 3]}, {3, 7, 64}),
    ],
)
def test_axes_stay_in_their_domain(define, look, domain, allowed):
    _, tried = look(define(domains={"n": domain}), examples=60)
    assert {w.axes["n"] for w in tried} <= allowed
    assert {min(allowed), max(allowed)} <= {w.axes["n"] for w in tried}


def test_the_same_seed_tries_the_same_workloads(define, look):
    first, second, other = (look(define(), seed=seed)[1] for seed in (3, 3, 4))
    assert first == second
    assert first != other


@pytest.mark.parametrize(("examples", "of_the_run"), [(25, 5), (11, 3), (4, 1), (1, 1)])
def test_a_fifth_of_the_draws_follow_from_the_seed_of_the_run(define, look, examples, of_the_run):
    def drawn(**seeds):
        return {w.uuid for w in look(define(), examples=examples, **seeds)[1]}

    fixed, one, other = drawn(), drawn(run_seed=1), drawn(run_seed=2)
    assert len(fixed) == len(one) == len(other) == examples
    assert len(one & fixed) == len(one & other) == len(one & other & fixed) == examples - of_the_run
    assert drawn(run_seed=1) == one


def test_sizes_that_the_run_draws_are_many(define, look):
    sizes = [w.axes["n"] for s in range(30) for w in look(define(), examples=1, run_seed=s)[1]]
    assert len({*sizes}) > 25


def test_shrinking_does_not_go_from_one_failure_to_another(define):
    found = search(
        define(),
        lambda w: "dw" if w.axes["n"] >= 65 else "dx" if w.axes["n"] < 3 else "",
        failed=bool,
        alike=lambda first, other: first == other,
        closeness=lambda outcome: 0.0,
        listed=[make_workload(define(), {"n": 300})],
    )
    assert (found.workload.axes, found.outcome) == ({"n": 65}, "dw")


def test_shrinking_begins_with_the_workload_that_shows_the_failure(define):
    """As where the check of one tries other values too."""
    definition = define()
    other = make_workload(definition, {"n": 300}, 7)

    def check(workload):
        own = workload.seed == 7 and workload.axes["n"] >= 65
        return ("own" if own else "other") if own or workload.axes["n"] == 300 else ""

    found = search(
        definition,
        check,
        failed=bool,
        closeness=lambda outcome: 0.0,
        shown_by=lambda outcome: other if outcome == "other" else None,
        listed=[make_workload(definition, {"n": 300})],
    )
    assert (found.workload.axes, found.workload.seed) == ({"n": 65}, 7)
    assert (found.outcome, found.origin) == ("own", "shrunk")


def test_a_kept_failure_ends_the_search(define, look):
    definition = define()
    earlier = make_workload(definition, {"n": 300})
    found, tried = look(definition, lambda w: w.axes["n"] >= 65, failed_before=[earlier])
    assert (found.workload, found.origin, tried) == (earlier, "failed before", [earlier])


def test_a_listed_failure_is_shrunk(define, look):
    definition = define()
    listed = [make_workload(definition, {"n": 2}), make_workload(definition, {"n": 300})]
    found, tried = look(definition, lambda w: w.axes["n"] >= 65, listed=listed)
    assert (found.workload.axes, found.origin) == ({"n": 65}, "shrunk")
    assert tried[:2] == listed


def test_a_listed_failure_is_the_answer_where_no_other_is_found(define, look):
    definition = define()
    listed = [make_workload(definition, {"n": 4099})]
    found, _ = look(definition, lambda w: w.axes["n"] == 4099, listed=listed)
    assert (found.workload.axes, found.origin) == ({"n": 4099}, "listed")


@pytest.fixture
def clock():
    """The seconds that it is, as a search sees them."""
    return [0.0]


def test_a_search_that_was_not_finished_says_so(define, look, clock):
    def fails(workload):
        clock[0] += 1.0
        return workload.axes["n"] >= 300

    found, tried = look(define(), fails, shrink_seconds=10.0, clock=lambda: clock[0])
    assert found.origin == "unfinished"
    assert found.workload.axes["n"] >= 300
    first = next(i for i, w in enumerate(tried) if w.axes["n"] >= 300)
    assert len(tried) - first - 1 <= 10


def test_no_check_is_begun_that_is_expected_to_outlast_the_time_for_shrinking(define, look, clock):
    """A second takes what has 1,000 elements."""

    def fails(workload):
        clock[0] += workload.axes["n"] / 1000
        spent.append(clock[0])
        failed = workload.axes["n"] >= 60_000
        begun.extend([clock[0]] if failed and not begun else [])
        return failed

    spent, begun = [], []
    found, _ = look(
        define(domains={"n": {"max": 65_536}}), fails, shrink_seconds=20.0, clock=lambda: clock[0]
    )
    assert found.workload.axes["n"] >= 60_000
    assert spent[-1] <= begun[0] + 20


@pytest.mark.parametrize(
    ("seconds", "each", "tried_large"),
    [(0.0, 0.0, True), (0.0, 4.0, True), (1e-3, 0.0, False), (1.2e-6, 0.0, True)],
)
@pytest.mark.parametrize("max_size", [None, 1_000_000])
def test_sizes_that_nobody_asked_for_are_smaller_or_left_out_where_they_take_long(
    define, look, clock, seconds, each, tried_large, max_size
):
    """Also where no usual one took long enough to count as slow."""

    def fails(workload):
        clock[0] += workload.axes["n"] * seconds + each
        return False

    definition = define(domains={"n": {"max": max_size}} if max_size else {})
    _, tried = look(definition, fails, clock=lambda: clock[0])
    assert (max(w.axes["n"] for w in tried) > 500_000) is (tried_large or max_size is not None)
    if not max_size:
        assert all(w.axes["n"] * seconds <= 6 for w in tried if w.axes["n"] > 65_536)


def _of_output(definition, *shape):
    """The definition, with an output of this shape."""
    outputs = {"y": definition.outputs["y"].model_copy(update={"shape": shape})}
    return definition.model_copy(update={"outputs": outputs})


@pytest.mark.parametrize(
    ("dtypes", "most"),
    [
        (("int8", "int8"), 131_071),
        (("uint8", "int8"), 65_793),
        (("uint8", "uint8"), 33_025),
        (("float8_e4m3fn", "int8"), None),
    ],
)
@pytest.mark.parametrize("budget", [1 << 28, 4 << 30])
def test_of_products_of_bytes_no_more_are_summed_than_an_int32_holds(
    define, look, dtypes, most, budget
):
    given = zip(("m", "n"), dtypes, strict=True)
    inputs = {name: {"shape": [name, "k"], "dtype": dtype} for name, dtype in given}
    axes = dict.fromkeys(("m", "n", "k"), "var")
    definition = _of_output(define(axes, inputs), "m", "n")
    for seed in range(3):
        _, tried = look(definition, seed=seed, run_seed=seed, max_bytes=budget)
        largest = max(w.axes["k"] for w in tried)
        assert 10_000 < largest <= most if most else largest > 65_536
        assert max(w.axes["m"] for w in tried) > 65_536


def test_other_axes_are_halved_before_the_one_that_is_large(define, look, clock):
    """The time goes with all elements, not with what is along one axis."""

    def fails(workload):
        clock[0] += workload.axes["m"] * workload.axes["n"] * 2e-6
        return False

    rows = {"x": {"shape": ["m", "n"], "dtype": "float32"}}
    definition = define({"m": "var", "n": "var"}, rows)
    large = []
    for seed in range(5):
        _, tried = look(definition, fails, seed=seed, clock=lambda: clock[0])
        large += [w.axes for w in tried if max(w.axes.values()) > 65_536]
    assert len(large) >= 7  # of ten
    assert {max(axes, key=axes.get) for axes in large} == {"m", "n"}
    assert all(axes["m"] * axes["n"] * 2e-6 <= 6 for axes in large)


@pytest.fixture
def ragged():
    """Sequences of a definition that bounds nothing, as users write it first."""
    return Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"nodes": "var", "len_indptr": "var", "edges": "var"},
            "constraints": ["len_indptr == nodes + 1", "edges == indptr[-1].item()"],
            "inputs": {
                "x": {"shape": ["edges"], "dtype": "float32"},
                "indptr": {"shape": ["len_indptr"], "dtype": "int32"},
            },
            "outputs": {"y": {"shape": ["nodes"], "dtype": "float32"}},
            "reference": "def run(x, indptr): ...",
        }
    )


@pytest.mark.parametrize("budget", [16 << 20, 1 << 28])
def test_one_workload_of_a_search_has_more_than_65536_sequences_and_it_is_the_last(
    ragged, look, budget
):
    for seed in range(5):
        _, tried = look(ragged, seed=seed, run_seed=seed, max_bytes=budget)
        numbers = [w.axes["nodes"] for w in tried]
        assert numbers[-1] > 65536
        assert max(numbers[:-1]) <= 4096
        assert max(workload_bytes(ragged, w.axes) for w in tried) <= budget


def test_there_are_no_more_sequences_than_usual_where_no_more_than_65536_fit(ragged, look):
    _, tried = look(ragged, max_bytes=1 << 20)
    assert max(w.axes["nodes"] for w in tried) <= 4096


@pytest.mark.parametrize(("seconds", "most"), [(1e-3, 4096), (3.5e-5, 131_072), (0.0, 262_144)])
def test_there_are_fewer_sequences_or_no_more_than_usual_where_each_takes_its_time(
    ragged, look, clock, seconds, most
):
    def fails(workload):
        clock[0] += workload.axes["nodes"] * seconds
        return False

    for seed in range(5):
        _, tried = look(ragged, fails, seed=seed, clock=lambda: clock[0])
        assert max(w.axes["nodes"] for w in tried) == most


def test_a_slow_check_of_a_workload_without_elements_can_be_shrunk_from(define, look, clock):
    """Its bytes are 0, by which nothing can be divided."""

    def fails(workload):
        clock[0] += 1.0
        return workload.axes["n"] >= 65

    found, tried = look(
        define(domains={"n": {"min": 0}}), fails, shrink_seconds=600.0, clock=lambda: clock[0]
    )
    assert 0 in [w.axes["n"] for w in tried]
    assert (found.workload.axes, found.origin) == ({"n": 65}, "shrunk")


def test_the_smallest_of_what_is_drawn_is_checked_first(define, look):
    _, tried = look(define(), examples=40)
    sizes = [w.axes["n"] for w in tried]
    assert sizes == sorted(sizes)
    found, tried = look(define(), lambda w: w.axes["n"] >= 300)
    first = next(w for w in tried if w.axes["n"] >= 300)
    assert first.axes["n"] < 5000
    assert found.origin == "shrunk"


def test_small_workloads_are_tried_beside_the_others(define, look):
    definition = define()
    _, alone = look(definition, examples=20, run_seed=3)
    _, tried = look(definition, examples=20, run_seed=3, small=60)
    assert {w.uuid for w in alone} <= {w.uuid for w in tried}
    more = [w for w in tried if w not in alone]
    assert 50 < len(more) <= 60
    assert max(workload_bytes(definition, w.axes) for w in more) <= 1 << 19
    _, of_another_run = look(definition, examples=20, run_seed=4, small=60)
    shared = {w.uuid for w in tried} & {w.uuid for w in of_another_run}
    assert 5 < len(tried) - len(shared) < 30


def test_small_workloads_are_tried_for_a_few_seconds(define, look):
    clock = iter(range(100_000))
    _, tried = look(define(), examples=2, small=60, clock=lambda: next(clock) / 4)
    assert 2 < len(tried) < 8


def test_small_workloads_that_go_through_a_long_axis_leave_time_for_others(define, look, clock):
    """Of a hundred, a quarter would take a second each; none of these is tried."""

    def fails(workload):
        clock[0] += workload.axes["m"] * 1e-3
        return False

    definition = define({"m": "var", "n": "var"})
    _, tried = look(definition, fails, examples=1, small=100, clock=lambda: clock[0])
    assert len(tried) > 50
    assert 100 < max(w.axes["m"] for w in tried) < 1000


def test_nothing_smaller_is_looked_for_than_the_smallest(define, look):
    definition = define()
    listed = [make_workload(definition, {"n": 1})]
    found, tried = look(definition, lambda w: True, listed=listed)
    assert (found.origin, tried) == ("shrunk", listed)


def test_a_pass_gives_the_workload_that_came_closest(define):
    found = search(
        define(),
        lambda w: w.axes["n"],
        failed=lambda outcome: False,
        closeness=lambda n: -abs(n - 64),
    )
    assert found.origin is None
    assert abs(found.workload.axes["n"] - 64) <= 2


def test_without_var_axes_seeds_and_regimes_are_drawn(define, look):
    definition = define({"n": 8}, {"x": {"shape": ["n"], "dtype": "float32"}})
    _, tried = look(definition, examples=20)
    assert len(tried) > 5
    assert {len(w.axes) for w in tried} == {0}


PROGRAM = """
import sys
sys.path.insert(0, ".")
{more}
from pytest_fib.data import VALUE_PATTERNS, Definition
from pytest_fib.data import VALUE_PATTERNS
from pytest_fib.search import search

definition = Definition.model_validate(dict(
    name="op", op_type="op", axes={{"n": "var"}}, reference="def run(x): ...",
    inputs={{"x": {{"shape": ["n"], "dtype": "float32"}}}},
    outputs={{"y": {{"shape": ["n"], "dtype": "float32"}}}},
))
tried = []
search(definition, tried.append, failed=bool, closeness=lambda outcome: 0.0, seed=5)
print(*(workload.uuid for workload in tried))
"""


def test_other_modules_with_constants_do_not_change_what_is_drawn(pytester):
    pytester.makepyfile(constants="SIZE, NAME = 48611, 'a peculiar name'\n")
    printed = [
        pytester.runpython(pytester.makepyfile(program=PROGRAM.format(more=more))).outlines
        for more in ("", "import constants")
    ]
    assert len(printed[0][0].split()) > 10
    assert printed[0] == printed[1]
