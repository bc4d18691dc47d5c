"""What float32 arithmetic may change in a run in float64."""

import math
import subprocess
import sys
from contextlib import suppress
from functools import partial
from itertools import chain, combinations, product

import pytest
import torch
from torch.nn import functional

from pytest_fib.sandbox import YARDSTICKS, OracleUnavailable, run_widened

FP8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def leaning(run, *inputs, own=False):
    """What a function returns with its decisions as low, and as high, as they may be."""
    return [run_widened(run, inputs, lean=(way, way), own=own) for way in (-1, 1)]


def decides_nothing(run, *inputs):
    try:
        leaning(run, *inputs)
    except OracleUnavailable as error:
        return "nothing is decided" in str(error)
    return False


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x > 0.5,
        lambda x: x >= x.max(),
        lambda x: (x * 16).round().to(torch.int8),
        lambda x: (x / 0.0625).to(FP8).float(),
        lambda x: x.float().relu().argmax(-1),
        lambda x: x.sort(stable=True).indices,
        lambda x: (x * 4).round().sum(-1) > 3,
        lambda x: ((x > 0).float() @ (x > 1).float().T) > 5,
        lambda x: x * 0.1,
        lambda x: torch.zeros(9, 64).index_add(0, torch.arange(8) % 3, (x > 0).float()) > 1,
        lambda x: torch.zeros(9, 64).index_add_(0, torch.arange(8) % 3, (x > 0).float()) > 1,
        lambda x: torch.zeros(64).scatter_add_(0, (x[0] > 0).long(), (x[1] > 0).float()) > 1,
        lambda x: torch.conv1d((x[:, None] > 0).float(), torch.ones(1, 1, 5), torch.ones(1)) > 3,
        lambda x: torch.nansum((x > 0).float(), -1) > 30,
    ],
)
def test_what_float32_computes_exactly_has_one_result(run):
    assert decides_nothing(run, torch.randn(8, 64).bfloat16())


DECISIONS = {
    "to": lambda v: v.to(FP8),
    "copy": lambda v: torch.zeros(v.shape, dtype=torch.int32).copy_(v.float()),
    "round": torch.round,
    "in place": lambda v: v.clone().round_(),
    "floor": torch.floor,
    "compare": lambda v: v > 2.5,
    "other side": lambda v: v.new_tensor(2.5) <= v,
    "bucketize": lambda v: torch.bucketize(v, torch.tensor([0.5, 1.5, 2.5]).to(v)),
    "floor_divide": lambda v: v // 0.5,
    "rounding mode": lambda v: torch.div(v, 0.5, rounding_mode="trunc"),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_a_decision_at_a_boundary_falls_either_way_and_elsewhere_one(name):
    """``v`` is computed, and lies at the boundaries of all these or well between them."""
    decide = DECISIONS[name]
    x = torch.tensor([7.5, 3.1875, 7.25, 3.6, 66.0]).repeat(20)
    boundary = {"to": 3.1875, "floor": 66.0, "copy": 66.0}.get(name, 7.5)
    low, high = (side.double() for side in leaning(lambda x: decide(x / 3), x))
    differ, exact = low != high, decide(x.double() / 3).double()
    assert differ[x == boundary].all()
    assert not differ[(x == 7.25) | (x == 3.6)].any()
    assert ((low == exact) | (high == exact)).all()


def test_of_two_places_of_an_extreme_either_may_be_named():
    x = torch.tensor([[3.0, 1.0, 3.0, 2.0], [1.0, 6.0, 0.0, 5.0]])
    for run in (
        lambda x: (x / 3 * 1.1).argmax(-1),
        lambda x: (x / 3 * 1.1).max(-1).indices,
        lambda x: (x / -3 * 1.1).argmin(-1, keepdim=True)[:, 0],
        lambda x: (x / -3 * 1.1).min(-1, keepdim=True).indices[:, 0],
    ):
        low, high = leaning(run, x)
        assert (low.tolist(), high.tolist()) == ([0, 1], [2, 1])


def test_the_order_of_what_is_nearly_equal_is_reversed():
    x = torch.tensor([[9.0, 3.0, 3.0 + 2**-22, 1.0, 1.0 + 2**-23]])
    for run in (
        lambda x: (x / 3).topk(4).indices,
        lambda x: (x / 3).sort(descending=True).indices[:, :4],
        lambda x: (-x / 3).topk(4, largest=False).indices,
    ):
        low, high = (run_widened(run, [x], lean=(way, 1)) for way in (-1, 1))
        assert (low.tolist(), high.tolist()) == ([[0, 1, 2, 3]], [[0, 2, 1, 4]])


def test_each_of_what_is_nearly_equal_may_be_in_each_place():
    x = torch.tensor([[9.0, 3.0, 3.0 + 2**-22, 1.0, 3.0 + 2**-23]])
    for way, ends in ((-1, [0, 1, 1, 1, 3]), (1, [0, 4, 4, 4, 3])):
        run = partial(run_widened, inputs=[x], lean=(way, -1))
        assert run(lambda x: (x / 3).sort(descending=True).indices).tolist() == [ends]
        assert run(lambda x: (x / 3).topk(2).indices).tolist() == [ends[:2]]


@pytest.mark.parametrize(
    ("pick", "least", "most"),
    [
        (lambda x, ids: ids.gather(-1, x.topk(3).indices), 10, 90),
        (lambda x, ids: ids.gather(-1, x.argsort()[:3].int().long()), 10, 90),
        (lambda x, ids: ids[x.topk(3).indices] + 1, 11, 91),
        (lambda x, ids: ids.gather(-1, ids.argsort().gather(-1, x.topk(3).indices)), 10, 90),
        (lambda x, ids: x.topk(3).indices % 4, 0, 3),
        (lambda x, ids: ids.gather(-1, x.topk(3).indices // 2), 10, 90),
    ],
)
def test_integers_that_an_order_of_equal_numbers_picks_may_be_any_of_them(pick, least, most):
    x, ids = torch.ones(6), torch.tensor([50, 90, 10, 70, 30, 20])
    for way, end in ((-1, least), (1, most)):
        assert run_widened(pick, [x, ids], lean=(way, -1)).tolist() == [end] * 3


@pytest.mark.parametrize(
    ("put", "least", "most"),
    [
        (lambda to, top: to.scatter(0, top.indices, top.values), [2, 2, 0, 2, 6], [7, 7, 2, 7, 6]),
        (lambda to, top: to.scatter_(0, top.indices, 9.0), [7, 7, 0, 7, 9], [9, 9, 9, 9, 9]),
        (
            lambda to, top: to.scatter_add_(0, top.indices, top.values),
            [7, 7, 0, 7, 12],
            [9, 9, 2, 9, 12],
        ),
    ],
)
def test_numbers_put_where_an_order_of_equal_numbers_says_may_be_in_each_of_their_places(
    put, least, most
):
    x, to = torch.tensor([2.0, 2.0, 2.0, 2.0, 6.0, 1.0]), torch.tensor([7.0, 7, 0, 7, 6, 5])
    for way, ends in ((-1, least), (1, most)):
        made = run_widened(lambda x, to: put(to, x.topk(3)), [x, to], lean=(way, -1))
        assert made.tolist() == [*ends, 5]


def test_numbers_put_at_all_places_of_equal_numbers_are_there():
    x = torch.tensor([2.0, 3.0, 2.0, 1.0])
    for ways in product((-1, 1), repeat=2):
        run = partial(run_widened, inputs=[x], lean=ways)
        made = run(lambda x: torch.zeros_like(x).scatter_(0, x.topk(3).indices, x.topk(3).values))
        assert made.tolist() == [2, 3, 2, 0]


def of_the_best_groups(x):
    """Indices of two elements in order, of those two groups of two whose sums are the largest."""
    best = x.view(-1, 2).sum(-1).topk(2).indices
    keep = torch.zeros(4, dtype=torch.bool).scatter_(0, best, True)
    return x.masked_fill(~keep.repeat_interleave(2), -math.inf).topk(2).indices


COUNTS = {
    "bincount": lambda ids, n: ids.flatten().bincount(minlength=n),
    "bincount of a transpose": lambda ids, n: ids.T.reshape(-1).long().bincount(minlength=n),
    "index_add": lambda ids, n: torch.zeros(n, dtype=torch.int32).index_add_(
        0, ids.reshape(-1).int(), torch.ones(ids.numel(), dtype=torch.int32)
    ),
    "index_add of tens": lambda ids, n: (
        torch.zeros(n, dtype=torch.int64).index_add(
            0, ids.view(-1), torch.ones(ids.numel(), dtype=torch.int64), alpha=10
        )
        // 10
    ),
    "scatter_add": lambda ids, n: torch.zeros(n, dtype=torch.int64).scatter_add(
        0, ids.view(-1), torch.ones_like(ids).view(-1)
    ),
}


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS)
def test_what_ties_is_counted_as_often_as_any_order_may_choose_it(count):
    """Of the first row the greatest and two of three; of the second all that are 1."""
    x = torch.tensor([[3.0, 1.0, 1.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0, 0.0]])
    counts = [
        run_widened(lambda x: count(x.topk(3).indices, 5), [x], lean=(way, -1)).tolist()
        for way in (-1, 1)
    ]
    assert counts == [[1, 1, 1, 1, 0], [1, 2, 2, 2, 0]]


def _changed(ids, how):
    if how == "masked_fill_":
        return ids.masked_fill_(ids > 1, 0)
    if how == "sub_":
        return ids.sub_(1).clamp_(min=0)
    ids[ids > 1] = 0
    return ids


@pytest.mark.parametrize("how", ["masked_fill_", "sub_", "index_put_"])
def test_what_was_changed_in_place_is_counted_as_it_is(how):
    def run(x):
        return _changed(x.topk(2).indices.view(-1), how).bincount(minlength=4)

    x = torch.tensor([[3.0, 1.0, 1.0, 0.0], [0.0, 2.0, 0.0, 5.0]])
    for way in (-1, 1):
        assert int(run_widened(run, [x], lean=(way, -1)).sum()) == 4


SIZED_BY_COUNTS = {
    "split": lambda ids, counts: torch.cat(
        [part * i for i, part in enumerate(torch.ones_like(ids).split(counts.tolist()))]
    ),
    "repeat_interleave": lambda ids, counts: torch.arange(4).repeat_interleave(counts),
}


@pytest.mark.parametrize("use", SIZED_BY_COUNTS.values(), ids=SIZED_BY_COUNTS)
def test_counts_that_are_sizes_are_those_of_one_order(use):
    def run(x):
        ids = x.topk(2).indices.view(-1)
        return use(ids, ids.bincount(minlength=4))

    x = torch.tensor([[3.0, 1.0, 1.0, 1.0], [0.0, 2.0, 0.0, 5.0]])
    for ways in product((-1, 1), repeat=2):
        assert run_widened(run, [x], lean=ways).shape == (4,)


def test_what_is_counted_by_unusual_arguments_is_counted_so():
    def run(x):
        ids = x.topk(2).indices.view(-1)
        seen = torch.zeros(3, dtype=torch.bool).index_add(0, ids, torch.ones(2, dtype=torch.bool))
        none = torch.zeros(3, dtype=torch.int64).index_add(0, ids, torch.ones_like(ids), alpha=0)
        return seen, none, ids.view(torch.int32).bincount()

    x = torch.tensor([1.0, 1.0, 0.0])
    for way in (-1, 1):
        seen, none, halves = run_widened(run, [x], lean=(way, 1))
        assert seen.dtype is torch.bool
        assert none.tolist() == [0, 0, 0]
        assert int(halves.sum()) == 4


def test_numbers_that_differ_are_not_added_where_what_ties_says():
    x, weights = torch.tensor([1.0, 1.0, 0.0]), torch.tensor([1, 2])
    added = run_widened(
        lambda x: torch.zeros(3, dtype=torch.int64).index_add(
            0, x.topk(2).indices.view(-1), weights
        ),
        [x],
        lean=(-1, -1),
    )
    assert int(added.sum()) == 3


def test_where_groups_tie_each_element_of_any_may_be_in_an_order():
    x = torch.tensor([2.0, 1.0, 1.0, 2.0, 2.0, 1.0, 0.0, 3.0])
    run = partial(run_widened, of_the_best_groups, [x])
    low, high = run(lean=(-1,)), run(lean=(1,))
    for best in combinations(range(4), 2):
        chosen = torch.full_like(x, -math.inf).view(-1, 2)
        chosen[list(best)] = x.view(-1, 2)[list(best)]
        for order in (chosen.view(-1).topk(2).indices, 7 - chosen.view(-1).flip(0).topk(2).indices):
            assert bool((low <= order).all() and (order <= high).all())
    assert high[1] < 7  # which is the first, if it is there


def test_groups_that_are_certain_are_those():
    x = torch.tensor([2.0, 1.0, 0.0, 1.0, 2.0, 2.0, 1.0, 0.0])
    for way, ends in ((-1, [0, 0]), (1, [5, 5])):
        assert run_widened(of_the_best_groups, [x + 0], lean=(way,)).tolist() == ends


def test_without_a_mask_of_what_ties_there_is_no_run_with_others():
    x = torch.tensor([2.0, 2.0, 1.0])
    with pytest.raises(OracleUnavailable, match="nothing that ties is in a mask"):
        run_widened(lambda x: x.topk(2).indices, [x], lean=(-1,))


def test_integers_that_numbers_apart_pick_are_those():
    x, ids = torch.tensor([1.0, 3.0, 3.0, 2.0]), torch.tensor([5, 8, 6, 7])
    for way, ends in ((-1, [6, 6, 7]), (1, [8, 8, 7])):
        run = partial(run_widened, inputs=[x, ids], lean=(way, -1))
        assert run(lambda x, ids: ids.gather(0, x.topk(3).indices)).tolist() == ends


@pytest.mark.parametrize("x", [[[2, 5, 2, 7]], [[2.0, 5.0, 2.0, math.inf]]])
def test_what_is_equal_has_no_order_unless_that_is_stable(x):
    x = torch.tensor(x)
    for run in (
        lambda x: x.sort(dim=-1).indices,
        lambda x: x.topk(4, largest=False).indices,
        lambda x: x.argsort(dim=-1),
    ):
        low, high = (run_widened(run, [x], lean=(way, 1)) for way in (-1, 1))
        assert sorted([low.tolist(), high.tolist()]) == [[[0, 2, 1, 3]], [[2, 0, 1, 3]]]
    assert decides_nothing(lambda x: x.sort(dim=-1, stable=True).indices, x)


@pytest.mark.parametrize("way", [-1, 1])
def test_a_stable_order_keeps_that_of_what_each_implementation_computes_alike(way):
    x = torch.tensor([9.0, 3.0, 3.0, 1.0, 5.0, 5.0 - 2**-21])

    def order(values):
        return values.sort(stable=True, descending=True).indices

    alike = run_widened(lambda x: order((x / 3 + 0.1).sigmoid()), [x], lean=(way, -1))
    assert alike.tolist() == [0, *[4, 4] * (way < 0), *[5, 5] * (way > 0), 1, 2, 3]


@pytest.mark.parametrize("other", [[1.0, 0.5, 0.25], [1.0, 0.25, 0.5]])
def test_softmax_of_a_row_in_another_order_may_be_greater_and_of_an_equal_row_may_not(other):
    x = torch.tensor([[1.0, 0.25, 0.5], other])

    def run(x):
        return x.softmax(1)[:, 0].argsort(stable=True)

    def along_the_other(x):
        return x.mT.softmax(0)[0].argsort(stable=True)

    may_be_greater = other != x[0].tolist()
    for each in (run, along_the_other):
        orders = [run_widened(each, [x], lean=(way, 1)).tolist() for way in (-1, 1)]
        assert ([1, 0] in orders) == may_be_greater
        assert [0, 1] in orders


def test_a_comparison_of_shares_that_only_rounding_makes_equal_may_have_either_result():
    """In logarithms they aren't equal: 1e-38 is more than 0."""

    def run(x):
        return x.softmax(-1) >= x.softmax(-1).amax(-1, keepdim=True)

    for x, may_be_less in ((torch.tensor([[1e-38, -1e-38]]), True), (torch.zeros(1, 2), False)):
        assert run_widened(run, [x]).all()
        ways = []
        for way in product((-1, 1), repeat=2):
            with suppress(OracleUnavailable):  # where all that is compared is equal
                ways.append(run_widened(run, [x], lean=way))
        assert any(not way.all() for way in ways) == may_be_less
        assert all(way[0, 0] for way in ways)


@pytest.mark.parametrize("divisor", [448.0, 6.0, 127.0, 240.0])
def test_a_power_of_two_is_a_quotient_in_any_way_to_divide(divisor):
    """Where products with reciprocals have it too, as they have on devices."""
    x = divisor * 2.0 ** torch.arange(-20, 20)
    run = partial(run_widened, lambda x: (x / divisor).log2().ceil(), [x])
    assert run().tolist() == [*range(-20, 20)]
    assert torch.equal(run(moved=1), run())
    assert torch.equal(run(naive=True), run())
    assert decides_nothing(lambda x: (x / divisor).log2().ceil(), x)
    off = 41.0 * 2.0 ** torch.arange(-20, 20)
    low, high = leaning(lambda x: (x / 41.0).log2().ceil(), off)
    assert (high > low).all()


def test_what_is_equal_is_in_its_order_in_each_row_and_however_results_are_moved():
    x = torch.tensor([[9.0, 3.0, 3.0, 1.0], [2.0, 7.0, 5.0, 7.0], [4.0, 4.0 - 2**-21, 4.0, 4.0]])

    def order(x):
        return (x / 3 + 0.1).sigmoid().sort(stable=True, descending=True, dim=-1).indices

    exact = run_widened(order, [x])
    ways = [{"moved": 1}, {"moved": -1}, *({"lean": ways} for ways in product((-1, 1), repeat=2))]
    for how in ways:
        assert torch.equal(run_widened(order, [x], **how)[:2], exact[:2]), how
    assert any(not torch.equal(run_widened(order, [x], **how)[2], exact[2]) for how in ways)


@pytest.mark.parametrize(("way", "either"), [(-1, 1), (1, 2)])
def test_a_stable_order_of_equal_sums_may_be_any(way, either):
    x = torch.tensor([9.0, 3.0, 3.0, 1.0])

    def order(x):
        sums = (x[:, None] * x.new_tensor([0.1, 0.3, 0.7])).sum(-1)
        return sums.sort(stable=True, descending=True).indices

    assert run_widened(order, [x], lean=(way, -1)).tolist() == [0, either, either, 3]


EQUALS = {
    "kth of softmax": lambda x: x.softmax(-1) >= x.softmax(-1).topk(3).values[..., -1:],
    "kth of its logarithm": lambda x: x.log_softmax(-1) < x.log_softmax(-1).sort().values[..., 4:5],
    "own largest": lambda x: (x / 3).sigmoid() == (x / 3).sigmoid().amax(-1, keepdim=True),
    "of pairs": lambda x: (x / 3).tanh()[:, None] > (x / 3).tanh()[None],
}


@pytest.mark.parametrize("name", EQUALS)
def test_a_comparison_of_what_each_implementation_computes_alike_has_one_result(name):
    x, compare = torch.tensor([0.3, 5.0, 1.7, 1.7, 0.1, 5.0, 1.7, -2.0]), EQUALS[name]
    exact = run_widened(compare, [x])
    ways = [{"lean": ways} for ways in product((-1, 1), repeat=2)]
    for how in ({"moved": 1}, {"moved": -1}, {"nudge": 1}, {"nudge": -1}, {"naive": True}, *ways):
        with suppress(OracleUnavailable):  # where all that is compared is equal or far apart
            assert torch.equal(run_widened(compare, [x], **how), exact), how


@pytest.mark.parametrize(
    "compare",
    [
        lambda x: x / 3 * 1.1 - 1.1 * (x / 3) > 0,  # as a fused multiply-add has it, it isn't 0
        lambda x: (x[:, None] / 3).expand(8, 7).sum(-1) > x / 3 * 7,
    ],
)
def test_a_comparison_of_what_may_be_computed_in_other_ways_may_have_either(compare):
    x = torch.linspace(0.1, 5, 8)
    assert not run_widened(compare, [x]).any()
    one, other = (run_widened(compare, [x], moved=seed) for seed in (1, -1))
    assert (one | other).all()


def test_what_underflows_in_float32_is_nearly_equal():
    logits = torch.tensor([[0.0, -150.0, -160.0, -200.0, -20.0]])

    def run(x):
        return x.softmax(-1).topk(4).indices

    low, high = (run_widened(run, [logits], lean=(way, 1)) for way in (-1, 1))
    assert (low.tolist(), high.tolist()) == ([[0, 4, 3, 2]], [[0, 4, 1, 2]])


SUMS = {
    "softmax": lambda x: x.softmax(-1),
    "log_softmax": lambda x: x.log_softmax(-1),
    "logsumexp": lambda x: x.logsumexp(0),
    "var": lambda x: x.var((0, 1)),
    "var_mean": lambda x: torch.cat(torch.var_mean(x, -1)),
    "norm": lambda x: x.norm(dim=-1, keepdim=True),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=(0, 1)),
    "layer_norm": lambda x: functional.layer_norm(x, (3000,)),
    "group_norm": lambda x: functional.group_norm(x.view(5, 6, 500), 2),
    "batch_norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "rms_norm": lambda x: functional.rms_norm(x, (3000,)),
    "cross_entropy": lambda x: functional.cross_entropy(x, torch.arange(5)),
    "mse_loss": lambda x: functional.mse_loss(x, x / 2),
    "smooth_l1_loss": lambda x: functional.smooth_l1_loss(x, x / 2, reduction="sum"),
    "binary_cross_entropy": lambda x: functional.binary_cross_entropy(x, x / 2),
    "mean in place": lambda x: x.clone().div_(3.0).mean((0, 1), keepdim=True),
    "nansum": lambda x: x.nansum(-1),
    "mv": lambda x: x @ x[0],
    "dot": lambda x: x[0] @ x[1],
    "cumsum": lambda x: x.cumsum(0),
    "of none": lambda x: x[:, :0].sum(-1) + x.sum(()),
}


@pytest.mark.parametrize("what", SUMS)
def test_naive_arithmetic_is_off_by_roundoffs(what):
    x = torch.rand(5, 3000) * 0.8 + 0.1
    naive, right = (run_widened(SUMS[what], [x], naive=each) for each in (True, False))
    assert naive.shape == right.shape
    torch.testing.assert_close(naive, right, rtol=1e-3, atol=1e-3)


def test_naive_arithmetic_adds_in_turn_and_multiplies_by_reciprocals():
    def run(x, by):
        return (x / by).sum(-1), x.cumsum(-1), x.mean(0, keepdim=True), x.softmax(-1)

    x, tiny = torch.rand(5, 3000), torch.tensor(1e-39)
    total, partial_sums, mean, weights = run_widened(run, [x, tiny], naive=True)
    assert total.isinf().all()  # 1 / 1e-39 is
    in_turn = torch.zeros(5)
    for column in x.T:
        in_turn += column
    assert torch.equal(partial_sums[:, -1], in_turn.double())
    assert mean.shape == (1, 3000)
    assert torch.allclose(weights, x.double().softmax(-1), rtol=1e-5, atol=0)
    assert not torch.allclose(weights, x.double().softmax(-1), rtol=1e-9, atol=0)


def test_naive_sums_from_the_end_are_off_as_differences_of_sums_from_the_beginning_are():
    x = torch.tensor([2.0**24, 1.0, 1.0, 0.5])
    for run in (
        lambda x: x.flip(-1).cumsum(-1).flip(-1),
        lambda x: x[:, None].flip(0).cumsum(0).flip(0)[:, 0],
    ):
        off = run_widened(run, [x], naive=True) - run_widened(run, [x])
        torch.testing.assert_close(off.tolist(), [2.0] * 4, rtol=1e-6, atol=0)
    exact = run_widened(lambda x: x[None].flip(0).cumsum(-1), [x[1:]], naive=True)
    assert exact.tolist() == [[1.0, 2.0, 2.5]]


def test_naive_softmax_subtracts_the_logarithm_of_its_sum():
    """In float32 that is 1e7 + 1."""
    x = torch.tensor([[1e7, 1e7, 0.0]])
    weights, logarithms = (
        run_widened(run, [x], naive=True)
        for run in (lambda x: x.softmax(-1), lambda x: x.log_softmax(-1))
    )
    assert weights[0, :2].tolist() == [math.exp(-1.0)] * 2
    assert logarithms[0, :2].tolist() == [-1.0, -1.0]


def test_naive_logarithms_of_two_exponentials_are_off_by_roundoffs_of_the_smaller_one():
    """In float32, ``-100.1 - logsigmoid(-100.2)``; what is masked stays."""
    one, other = torch.tensor([[-100.1, -1e30, -torch.inf]]), torch.tensor([[0.1], [-torch.inf]])
    naive = run_widened(torch.logaddexp, [one, other], naive=True)
    right = run_widened(torch.logaddexp, [one, other])
    assert 2.0**-24 < float((naive - right)[0, 0].abs()) < 2.0**-16
    assert torch.equal(naive[0, 1:], right[0, 1:])
    assert torch.equal(naive[1], right[1])
    infinite = torch.tensor([torch.inf])
    assert torch.equal(run_widened(torch.logaddexp, [infinite] * 2, naive=True), infinite.double())

    def into_another(x):
        return torch.logaddexp(x, x, out=torch.empty_like(x))

    assert run_widened(into_another, [one], naive=True).shape == one.shape


MOVES = [how["moved"] for how in chain.from_iterable(YARDSTICKS) if "moved" in how]


def test_where_scores_are_too_large_for_float32_a_softmax_that_is_computed_again_overflows():
    def backward(q, k):
        weights = (q @ k.T).softmax(-1).nan_to_num()
        return weights, weights * (weights.T @ q).sum(), weights.sum(0)

    def forward(q, k):
        weights = torch.where(q[:, :1] < 1e30, (q @ k.T).softmax(-1).float(), 0.0)
        return weights, weights @ k, weights[:, 0] + weights[:, 1]

    def by_exponentials(q, k):
        scores = q @ k.T
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        return weights, weights * (weights.T @ q).sum(), weights * weights.sum(0)

    def logarithms(q, k):
        logarithms = (q @ k.T).log_softmax(-1)
        return logarithms, logarithms.exp() - logarithms.sum()

    q, k = torch.randn(5, 64), torch.randn(7, 64)
    for run, scale, overflows in (
        (backward, 1e10, True),
        (backward, 1.0, False),
        (forward, 1e10, False),
        (by_exponentials, 1e10, True),
        (by_exponentials, 1.0, False),
    ):
        weights = [run_widened(run, [q * scale, k], moved=seed)[0] for seed in MOVES]
        most = torch.stack(weights).amax((0, 2))
        assert ((most > torch.finfo(torch.float32).max) == overflows).all()
        assert most.isfinite().all()  # for all that is computed of it
    of_large = [run_widened(logarithms, [q * 1e10, k], moved=seed)[0] for seed in MOVES]
    assert (torch.stack(of_large).amax((0, 2)) > 100).all()


def test_weights_that_are_computed_again_are_1_together_up_to_the_rounding_of_a_logarithm():
    def backward(x):
        weights = x.softmax(-1)
        return weights, weights * (x - (weights * x).sum(-1, keepdim=True))

    def forward(x):
        weights = x.softmax(-1)
        return weights, weights @ x.T

    x = 100 + torch.randn(4, 3)  # of which float32 has a logarithm up to 100 * 2**-24
    for run, least, most in ((backward, 3e-6, 3e-5), (forward, 0.0, 1e-6)):
        off = [(run_widened(run, [x], moved=seed)[0].sum(-1) - 1).abs().amax() for seed in MOVES]
        assert least <= max(off) <= most


def test_a_softmax_of_numbers_that_nobody_computes_does_not_overflow():
    def run(x):
        weights = x.softmax(-1)
        return weights * (weights - weights.sum(0)) + weights, weights

    x = torch.randn(5, 64) * 1e10
    for seed in MOVES:
        used, weights = run_widened(run, [x], moved=seed)
        assert used.amax() <= 1.00001
        assert (
            weights.sum(-1) - 1
        ).abs().amax() <= 0.00001  # no logarithm is more than the largest


@pytest.mark.parametrize("mask", [-1e9, -1e30])
def test_a_softmax_of_a_row_that_an_added_mask_swallows_does_not_overflow(mask):
    def backward(q, k, mask, g):
        weights = (q @ k.T + mask).softmax(-1)
        return weights.T @ g, weights * (g @ k.T)

    q, k, g = torch.randn(5, 64), torch.randn(7, 64), torch.randn(5, 64)
    added = torch.zeros(5, 7)
    added[2] = mask
    right, _ = run_widened(backward, [q, k, added, g])
    for seed in MOVES:
        moved, _ = run_widened(backward, [q, k, added, g], moved=seed)
        assert (moved - right).abs().amax() < 4 * right.abs().amax()


def test_a_softmax_of_masked_rows_is_moved_as_it_is():
    x = torch.tensor([[-torch.inf] * 3, [1.0, -torch.inf, 2.5], [torch.inf, 0.5, 0.25]])
    for seed in MOVES:
        moved, right = run_widened(lambda x: x.softmax(-1), [x], moved=seed), x.softmax(-1)
        torch.testing.assert_close(moved.float(), right, rtol=1e-5, atol=0, equal_nan=True)


def test_a_run_that_takes_softmax_of_another_shape_is_moved_as_it_is():
    calls = []

    def run(x):
        calls.append(x)
        return x[:, : 2 + len(calls)].softmax(-1)

    x = torch.randn(5, 40)
    moved = run_widened(run, [x], moved=1)
    torch.testing.assert_close(moved.sum(-1), torch.ones(5).double(), rtol=1e-5, atol=0)


def test_the_first_decision_and_the_others_lean_apart():
    """A scale that is rounded, and what it divides."""

    def run(x):
        scale = (x.amax(-1, keepdim=True) / 6).round()
        return scale[:, 0], (x / scale / 3 * 3).round()

    x = torch.tensor([[15.0, 5.0], [15.0, 5.0]])  # scales of 2.5, so 2 or 3
    found = {}
    for ways in product((-1, 1), repeat=2):
        scale, rounded = run_widened(run, [x], lean=ways)
        found[ways] = scale[0].item(), rounded[0].tolist()
    assert found[-1, -1] == (2, [7, 2])
    assert found[-1, 1] == (2, [8, 3])
    assert found[1, -1] == found[1, 1] == (3, [5, 2])


def test_a_later_decision_on_whole_numbers_is_not_open():
    """``round`` decides; the conversion gets whole numbers, whatever they are."""
    x = torch.tensor([7.5, 6.6]).repeat(32)
    low, high = leaning(lambda x: (x / 3).round().to(torch.int8), x)
    assert (low[:2].tolist(), high[:2].tolist()) == ([2, 2], [3, 2])


def test_sums_are_off_by_what_their_order_may_change():
    x = torch.randn(4, 1000)
    x[:, -1] -= x.double().sum(-1).float()  # nearly nothing is left
    low, high = leaning(lambda x: x.sum(-1) > 0, x)
    assert (low.tolist(), high.tolist()) == ([False] * 4, [True] * 4)


def test_sums_of_equal_terms_are_off_to_one_side_also_where_the_terms_were_moved():
    """A float32 sum of n equal terms in turn is off by up to n / 4 roundoffs."""

    def run(x, at):
        return torch.zeros(1, 64).index_add(0, at, x[at] * (x[at] / 3))

    x, at = torch.rand(1, 64) + 0.5, torch.zeros(999, dtype=torch.int64)
    right = run_widened(run, [x, at])
    off = [(run_widened(run, [x, at], moved=seed) / right - 1).abs() for seed in (1, 2)]
    for each in off:
        assert each.max() > 999 / 5 * 2**-24
        assert each.max() < 999 / 2 * 2**-24


def test_scaled_products_of_ones_are_off_by_less_than_one_of_them():
    ones, scale = torch.ones(1, 60_000), torch.tensor(3.0).rsqrt()
    run = lambda x, s: x @ x.T * s  # noqa: E731
    right, moved = (run_widened(run, [ones, scale], **seed) for seed in ({}, {"moved": 1}))
    assert 0 < float((moved / right - 1).abs()) < 0.5 / 60_000


def test_a_convolution_is_off_by_the_terms_of_one_output():
    x, weight = torch.ones(1, 4, 64, 64), torch.full((2, 4, 3, 3), 0.3)
    run = torch.nn.functional.conv2d
    right, moved = (run_widened(run, [x, weight], **seed) for seed in ({}, {"moved": 1}))
    assert 2**-24 < float((moved / right - 1).abs().max()) < 2 * 36 * 2**-24


@pytest.mark.parametrize("other", [-torch.inf, torch.inf])
def test_infinities_are_one_of_a_few_numbers(other):
    x = torch.tensor([[1.25] * 999 + [other]])
    x = x if other < 0 else -x
    right, moved = (
        run_widened(lambda x: x.logsumexp(1), [x], **seed) for seed in ({}, {"moved": 1})
    )
    assert float((moved.exp() / right.exp() - 1).abs()) > 999 / 9 * 2**-24


@pytest.mark.parametrize(
    ("run", "terms"),
    [
        (lambda x, s: s * (torch.ones(999) @ x), 999),
        (lambda x, s: (x.T @ torch.ones(999))[None] * s.expand(64), 999),
        (lambda x, s: (torch.ones(1, 999) @ x * 4)[0] * s, 999),
        (lambda x, s: s / (torch.ones(999) @ x), 0),  # nothing that is added is scaled
        (lambda x, s: s * (torch.ones(999) @ x).sub_(997.0), 0),
        (lambda x, s: s * torch.full_like(torch.ones(999) @ x, 3.0), 0),
        (lambda x, s: s * ((torch.arange(999) % 2).float() @ x), 0),
        (lambda x, s: s * x.sum(0), 0),  # a count
        (lambda x, s: s * x[0], 0),
    ],
)
def test_products_of_ones_that_are_scaled_may_have_been_sums_of_scaled_terms(run, terms):
    """Which are off by up to a quarter of their number of roundoffs, and all to one side."""
    x, scale = torch.ones(999, 64), torch.tensor(3.0).rsqrt()
    right, moved = (run_widened(run, [x, scale], **seed) for seed in ({}, {"moved": 1}))
    off = float((moved / right - 1).abs().max()) * 2**24
    assert off < 16 if not terms else terms / 5 < off < terms / 2


def test_what_was_moved_one_way_is_moved_the_other_with_the_seed_negated():
    x = torch.rand(1000) + 0.5
    for key in ("moved", "nudge"):
        apart = [
            run_widened(lambda x: x / 3, [x], **{key: seed}) - x.double() / 3 for seed in (1, -1)
        ]
        assert torch.allclose(
            *(a * sign for a, sign in zip(apart, (1, -1), strict=True)), rtol=1e-3
        )
        assert (apart[0] != 0).all()


def test_of_two_large_scores_that_nearly_tie_each_wins_once():
    q, k = torch.randn(200, 64) * 1e7, torch.randn(200, 64)
    other = k.clone()
    q[:, 0], other[:, 0] = 1.0, k[:, 0] + 0.25

    def run(q, k, other):
        return torch.sigmoid((q * k).sum(-1) - (q * other).sum(-1))

    weights = [run_widened(run, [q, k, other], moved=seed) for seed in (1, -1)]
    assert torch.minimum(*weights).max() < 0.5 < torch.maximum(*weights).min()


@pytest.mark.parametrize("share", [0.2691, 0.3123, 0.377])
def test_numbers_of_python_are_rounded_one_by_one(share):
    """The gradient of a loss with a smoothed label, of one class: exactly 0, but for rounding."""

    def run(x):
        return x.exp() - ((1 - share) * torch.ones_like(x) + share)

    x = torch.zeros(1, 1)
    rounded = abs(float(1 - torch.tensor(share) - torch.tensor(1 - share)))
    off = [abs(float(run_widened(run, [x], moved=seed))) for seed in MOVES]
    assert float(run_widened(run, [x])) == 0
    assert rounded <= max(off)
    assert 0 < max(off) < 8 * 2.0**-24


@pytest.mark.parametrize("share", [0.25, 0.375])
def test_numbers_of_python_that_float32_holds_are_exact(share):
    x = torch.zeros(1, 1)
    for seed in MOVES:
        assert not run_widened(lambda x: x.exp() - ((1 - share) + share * x.exp()), [x], moved=seed)


def test_what_cancels_in_one_element_has_an_error_whatever_integers_are_summed_beside_it():
    def run(x):
        return (x[:, 0] - torch.logsumexp(x, 1)) * (x > 1).sum(1).clamp(min=1)

    for value in (-0.1357, 3.1, 100.0):
        x = torch.tensor([[value]], dtype=torch.bfloat16)
        apart = [float(run_widened(run, [x], moved=seed).abs()) for seed in MOVES]
        assert max(apart) > 2.0**-24 * abs(value)


LOGARITHMS = {
    "logaddexp": lambda x: torch.logaddexp(torch.zeros_like(x), x),
    "logaddexp2": lambda x: torch.logaddexp2(x, torch.zeros_like(x)),
    "logsumexp": lambda x: torch.stack([x, torch.zeros_like(x)], 1).logsumexp(1),
    "logsumexp of two axes": lambda x: functional.pad(x[:, None, None], (0, 1)).logsumexp((1, -1)),
    "logcumsumexp": lambda x: functional.pad(x[:, None], (1, 0)).logcumsumexp(1)[:, 1],
    "log_softmax": lambda x: -functional.pad(x[:, None], (0, 1)).log_softmax(1)[:, 1],
    "softplus": functional.softplus,
    "logsigmoid": lambda x: -functional.logsigmoid(-x),
    "log1p of exp": lambda x: x.exp().log1p(),
    "log1p in place of exp2": lambda x: x.exp2().log1p_(),
}


@pytest.mark.parametrize("what", LOGARITHMS)
@pytest.mark.parametrize("value", [-9.0, -20.0])
def test_a_logarithm_of_a_sum_of_exponentials_is_moved_as_that_of_its_sum_is(what, value):
    """By roundoffs of the sum, which is 1; but no more than by all that is added to 1."""
    x = torch.full((8,), value)
    right = run_widened(LOGARITHMS[what], [x])
    of_the_sum = right.clamp(max=4 * 2.0**-24)
    off = (run_widened(LOGARITHMS[what], [x], moved=1) - right).abs()
    assert (off > 0.49 * of_the_sum).all()
    assert (off < 1.01 * of_the_sum).all()


def test_a_logarithm_that_cancels_the_largest_exponent_is_moved_by_the_roundoffs_of_both():
    x = torch.full((8,), -math.log(2))
    off = run_widened(torch.logaddexp, [x, x], moved=1) - run_widened(torch.logaddexp, [x, x])
    both = (1 + 1 / math.log(2)) * math.log(2) * 2.0**-24
    assert (off.abs() >= 2 * both * 0.99).all()
    assert (off.abs() <= 4 * both * 1.01).all()


@pytest.mark.parametrize("run", [torch.log1p, torch.expm1, lambda x: x.exp().mul_(1e-4).log1p()])
def test_what_is_written_for_small_numbers_is_moved_in_proportion(run):
    """Else what subtracts from 1, and has none of their digits, would be honest."""
    x = torch.full((8,), 1e-7)
    right, off = run_widened(run, [x]), run_widened(run, [x], moved=1)
    assert ((off - right).abs() < 9 * 2.0**-24 * right).all()


#: With what kernels compute in its place, in float32.
LESS_ONE = {
    "tanh": (torch.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1),
    "tanh by exp": (torch.tanh, lambda x: 1 - 2 / ((2 * x).exp() + 1)),
    "tanh in place": (lambda x: x.clone().tanh_(), lambda x: 2 * torch.sigmoid(2 * x) - 1),
    "elu": (functional.elu, lambda x: torch.where(x > 0, x, x.exp() - 1)),
    "selu": (
        torch.selu,
        lambda x: 1.0507009873554805 * torch.where(x > 0, x, 1.6732632423543772 * (x.exp() - 1)),
    ),
}


@pytest.mark.parametrize("what", LESS_ONE)
@pytest.mark.parametrize("size", [1e-2, 1e-4, 1e-6, 1e-8, 1e-20, 1e-39])
def test_what_a_formula_less_1_loses_is_an_error_of_rounding(what, size):
    run, formula = LESS_ONE[what]
    x = -size * (1 + torch.rand(256, generator=torch.Generator().manual_seed(0)))
    moves = [how["moved"] for how in chain.from_iterable(YARDSTICKS) if "moved" in how]
    right = run_widened(run, [x])
    off = torch.stack([run_widened(run, [x], moved=seed) - right for seed in moves]).abs()
    assert ((formula(x) - right).abs() <= 2 * off.amax()).all()
    assert (off <= 8.1 * 2.0**-24 * max(1, 2 * float(right.abs().max()))).all()


@pytest.mark.parametrize(
    "same",
    [lambda p: p * 1.0, lambda p: torch.ones(3, 1).to(p) * p, lambda p: p / 1, lambda p: 0.0 + p],
)
def test_what_leaves_a_number_as_it_is_does_not_round_it(same):
    """The largest is at least 1 times the largest, whatever its digits are."""

    def run(x):
        p = x.softmax(-1)
        return p >= same(p.amax(-1, keepdim=True))

    low, high = leaning(run, torch.randn(3, 8))
    assert low.sum() == 3
    assert low.equal(high)


@pytest.mark.parametrize(("run", "counts"), [(lambda p: p >= 0, (4, 4)), (lambda p: p > 0, (2, 4))])
def test_what_underflows_is_0_and_not_less(run, counts):
    """So all probabilities are at least 0, though fewer may be more."""
    x = torch.tensor([0.0, -50.0, -120.0, -700.0])
    assert tuple(map(int, leaning(lambda x: run(x.softmax(-1)).sum(), x))) == counts


@pytest.mark.parametrize(
    "run", [lambda x: x + 2.0, lambda x: 2.0 - x, lambda x: x - x.new_tensor(2)]
)
def test_a_sum_that_swallows_a_tiny_number_may_be_on_either_side(run):
    """Of -1e-40 and 2, float64 computes 2 too; but the floor of what it is exactly is 1."""
    x = torch.tensor([-1e-40, 1e-40, 0.0, 0.25])
    low, high = leaning(lambda x: (run(x) * 8).floor(), x)
    assert (high - low).tolist() == [1.0, 1.0, 0.0, 0.0]


def test_a_tanh_of_0_or_of_an_infinity_is_not_moved():
    x = torch.tensor([0.0, math.inf, -math.inf])
    assert torch.equal(run_widened(torch.tanh, [x], moved=1), run_widened(torch.tanh, [x]))


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, torch.erf])
def test_what_is_1_because_float64_rounds_it_too_is_moved_away_from_there(function):
    """So ``1 + x * (1 - sigmoid(x))`` may be ``1 + x - x * sigmoid(x)``, of 20 million too."""
    x = torch.tensor([40.0, 2.5e7])
    off = run_widened(function, [x], moved=1) - run_widened(function, [x])
    assert (off < -1.9 * 2.0**-24).all()
    assert (off > -8.1 * 2.0**-24).all()


def test_the_positive_part_of_elu_is_moved_in_proportion():
    x = torch.full((8,), 1e-7)
    off = run_widened(torch.selu, [x], moved=1) - run_widened(torch.selu, [x])
    assert (off.abs() < 9 * 2.0**-24 * x).all()


def test_logarithms_of_sums_that_float32_holds_are_not_moved():
    """Of one exponential, and of those of no others."""
    x, none = torch.tensor([0.0, 1.5, -3.25]), torch.full((3,), -math.inf)
    for run in (torch.logaddexp, lambda x, y: torch.stack([x, y]).logsumexp(0)[:1]):
        assert torch.equal(run_widened(run, [x, none], moved=1), run_widened(run, [x, none]))
    assert run_widened(lambda x: x[:, :0].logsumexp(1), [x[None]], moved=1).tolist() == [-math.inf]


@pytest.mark.parametrize("dims", [(1, 2), (-1, 1), (0, 1, 2)])
def test_a_sum_over_several_axes_is_moved_by_the_terms_of_all(dims):
    x = torch.rand(1, 4096, 1)

    def spread(run, x):
        exact = run(x.double())
        return sum(float((run_widened(run, [x], moved=seed) - exact).abs()) for seed in range(1, 9))

    several = spread(lambda x: (x / 3).sum(dims), x)
    assert several > spread(lambda x: (x / 3).sum(0), x[0, :, 0]) / 3


def test_where_two_terms_cancel_the_error_shows_in_one_element():
    """The gradient of a norm over a single element, which is nearly nothing."""

    def run(x):
        normal = x * torch.rsqrt(x * x + 1e-6)
        return normal - normal * normal * normal

    for value in torch.linspace(0.5, 2, 40):
        x = value.view(1)
        exact = run_widened(run, [x])
        apart = max(abs(run_widened(run, [x], moved=seed) - exact) for seed in (1, -1, 2))
        assert apart > 2**-23


def test_a_reference_may_be_varied_in_its_own_dtypes():
    x = torch.tensor([7.5, 7.25]).repeat(40)
    low, high = leaning(lambda x: (x / 3).round(), x, own=True)
    assert (low.dtype, low[:2].tolist(), high[:2].tolist()) == (torch.float32, [2, 2], [3, 2])
    with pytest.raises(OracleUnavailable, match="nothing is decided"):
        leaning(lambda x: (x / 2).round(), x, own=True)


def test_the_inputs_are_not_changed():
    x = torch.rand(64) / 3
    before = x.clone()
    leaning(lambda x: x.div_(3).mul_(7).round_(), x, own=True)
    assert x.equal(before)


@pytest.mark.parametrize(
    "add",
    [
        lambda x, at: x.new_zeros(4).index_add(0, at, x),
        lambda x, at: x.new_zeros(4).index_add(0, at, x, alpha=0.1),
        lambda x, at: x.new_zeros(4).scatter_add_(0, at, x * 1.1),
        lambda x, at: x.new_zeros(4).scatter_reduce(0, at, x * 1.1, "sum"),
        lambda x, at: x.new_zeros(4).scatter_reduce(0, at, x.round(), "mean"),
    ],
)
def test_a_sum_at_places_is_exact_only_if_all_of_its_terms_are_on_a_grid(add):
    x, at = torch.ones(300), torch.arange(300) % 3
    x[7] = 4 / 3
    assert not torch.equal(run_widened(add, [x, at], moved=1), run_widened(add, [x, at]))


@pytest.mark.parametrize("how", ["amin", "amax"])
@pytest.mark.parametrize("function", ["scatter_reduce", "scatter_reduce_", "index_reduce"])
def test_what_selects_at_places_has_no_errors_of_its_own(function, how):
    """So each extreme equals the element that it is, as of edges that lead to a node."""

    def run(x, at):
        offers = x / 3
        best = getattr(x.new_zeros(4), function)(0, at, offers, how, include_self=False)
        return offers == best[at]

    x, at = torch.rand(300), torch.arange(300) % 3
    for seed in (1, -1, 2, 3):
        assert int(run_widened(run, [x, at], moved=seed).sum()) == 3


def test_a_transposed_convolution_has_as_many_terms_as_channels():
    """Of 4,096 terms of 127 * 127, float32 holds no sum that is odd."""
    x, weight = torch.full((1, 4096, 8), 127.0), torch.full((4096, 1, 1), 127.0)
    weight[7], x[0, 9] = 126.0, 125.0
    run = torch.nn.functional.conv_transpose1d
    exact = run_widened(run, [x, weight])
    assert not torch.equal(exact.float().double(), exact)
    assert not torch.equal(run_widened(run, [x, weight], moved=1), exact)


def test_what_is_added_at_a_single_place_is_a_sum():
    def run(x):
        return x.new_zeros(4).index_add_(0, torch.tensor(2), x[:1] / 3)

    assert run_widened(run, [torch.ones(3)], moved=1).shape == (4,)


@pytest.mark.parametrize("less_one", [torch.nn.functional.elu, torch.expm1])
def test_what_is_left_of_1_beside_an_exponential_is_lost(less_one):
    x = torch.tensor([-50.0, -120.0, -torch.inf, 3.0])
    moved = [run_widened(lambda x: less_one(x) + 1, [x], moved=seed) for seed in range(1, 20)]
    assert all((each[:2] > 0).any() and (each[:2] >= 0).all() for each in moved)
    assert all(float(each[:2].max()) < 1e-6 for each in moved)
    assert all(each[2] == 0 for each in moved)


def test_gelu_loses_what_a_sum_of_one_and_its_error_function_does():
    """That is all of it far below 0; float32 holds 3e-8 of the sum at -4, which is 6e-5."""
    x = torch.tensor([-6.0, -4.0, -1.0, 1.0])
    moved = [run_widened(torch.nn.functional.gelu, [x], moved=seed) for seed in range(1, 20)]
    exact = run_widened(torch.nn.functional.gelu, [x])
    apart = torch.stack([(each - exact).abs() / exact.abs() for each in moved]).amax(0)
    assert apart[0] > 0.5
    assert 1e-3 < apart[1] < 1e-2
    assert (apart[2:] < 4e-6).all()


def test_a_sum_is_exact_only_if_all_of_its_terms_are_on_a_grid():
    """The first ones are whole numbers, of which most sums look no further."""
    x = torch.cat((torch.ones(4096), torch.full((4096,), 1 / 3)))
    assert run_widened(torch.sum, [torch.ones(8192)], moved=1) == 8192
    assert run_widened(torch.sum, [x], moved=1) != run_widened(torch.sum, [x])


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.var(-1),
        lambda x: x.std((0, 2), keepdim=True),
        lambda x: torch.var_mean(x, 1, correction=0)[0],
        lambda x: torch.std_mean(x)[1],
        lambda x: torch.nn.functional.layer_norm(x, (7, 300)),
        lambda x: torch.logsumexp(x, (0, 2)),
    ],
)
def test_sums_within_an_operation_are_added_in_turn(run):
    x = torch.randn(5, 7, 300, generator=torch.Generator().manual_seed(1)) + 3
    right, naive = run_widened(run, [x]), run_widened(run, [x], naive=True)
    assert naive.shape == right.shape
    assert 2**-26 < float((naive - right).abs().max() / right.abs().max()) < 2**-14


def test_adding_in_turn_does_not_import_a_compiler():
    code = "import sys, torch; from pytest_fib.sandbox import run_widened; x = torch.ones(3, 4); "
    code += "run_widened(lambda x: x.logsumexp(1) + x.std(1) + x.softmax(1)[:, 0], [x], naive=True)"
    code += "; print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def _spread(run, *inputs):
    """How far results of moved operations are off, at most."""
    runs = [run_widened(run, inputs, moved=seed) for seed in (1, -1, 2)]
    return max(float((each - run_widened(run, inputs)).abs().max()) for each in runs)


def test_a_sum_that_is_used_twice_may_be_two_sums():
    """As in attention's gradient, where the sum of p * dp is also that of dout * out."""
    x, y = torch.randn(1, 64), torch.randn(64, 1)
    y[0] -= (x @ y).item() / x[0, 0]  # terms that cancel

    def difference(x, y):
        dp = (x @ y)[None].clone()
        return dp * 1 - (1 * dp).sum(-1, keepdim=True)

    assert _spread(difference, x, y) > 1e-6
    assert _spread(lambda x, y: (x @ y) * 0, x, y) == 0


def test_no_luck_makes_two_ways_to_add_the_same_nearly_agree():
    """Of ten thousand sums by themselves, some would in all of few runs."""
    x, y = torch.rand(10_000, 1, 24) + 0.5, torch.rand(10_000, 24, 1) + 0.5

    def difference(x, y):
        total = x @ y
        return total - total * 1

    runs = [run_widened(difference, [x, y], moved=seed).abs() for seed in (1, -1, 2)]
    assert float((torch.stack(runs).amax(0) / (x @ y)).min()) > 2**-24


def test_a_sum_that_is_scaled_is_one():
    """As a temperature's logits, of which one is subtracted from a logarithm of a sum of all."""
    x, y = torch.randn(1, 64), torch.randn(64, 1)

    def loss(x, y, shown=lambda logits: logits.diagonal()):
        logits = x @ y / 0.07
        return logits.logsumexp(1) - shown(logits)

    assert _spread(loss, x, y) > 1e-7 * abs((x @ y).item())
    assert _spread(partial(loss, shown=lambda logits: logits[:, 0]), x, y) > 0
    assert _spread(lambda x: (x / 3)[:, 0].unsqueeze(1).expand(1, 2).diff(), x) == 0  # no sum


def test_a_sum_that_was_written_to_is_no_longer_that_sum():
    def replaced(x, y):
        total = x @ y
        total * 1
        total[0] = 5.0
        return total - total * 1

    assert _spread(replaced, torch.randn(1, 64), torch.randn(64, 1)) < 1e-5


@pytest.mark.parametrize(
    "run",
    [
        lambda a, b: a @ b,
        lambda a, b: torch.einsum("bij,bjk->bik", a, b),
        lambda a, b: a[0] @ b[0],
        lambda a, b: torch.addmm(torch.ones(3, 4).double(), a[0], b[0], beta=0, alpha=2),
        lambda a, b: torch.baddbmm(torch.ones(()).double(), a, b, beta=0),
    ],
)
def test_naive_products_add_their_terms_in_turn(run):
    """Of 999 equal terms, float32's partial sums are all off in the same direction."""
    ones, thirds = torch.ones(2, 3, 999), torch.full((2, 999, 4), 1 / 3)
    right, naive = run_widened(run, [ones, thirds]), run_widened(run, [ones, thirds], naive=True)
    assert naive.shape == right.shape
    off = naive / right - 1
    assert torch.equal(off, torch.full_like(off, float(off.view(-1)[0])))
    assert 2**-21 < float(off.abs().max()) < 2**-15


def test_naive_products_of_which_float32_holds_all_sums_are_exact():
    ones, halves = torch.ones(3, 999), torch.full((999, 4), 1.5)
    run = torch.matmul
    assert torch.equal(
        run_widened(run, [ones, halves], naive=True), torch.full((3, 4), 1498.5).double()
    )


@pytest.mark.parametrize(
    "run",
    [
        lambda a, b: a @ b,
        lambda a, b: torch.addmm(torch.zeros(3, 4).double(), a, b),
        lambda a, b: (a[:, :, None] * b).sum(1),
        lambda a, b: (a[:, :, None] * b).mean(1) * len(b),
        lambda a, b: (a[:, :, None] * b).cumsum(1)[:, -1],
    ],
)
def test_naive_sums_are_no_numbers_where_float32_holds_no_partial_sum_in_some_order(run):
    """The terms of a first row cancel; all their partial sums in this order are numbers."""
    a = torch.full((3, 4), 1e19)
    b = torch.tensor([2e19, -2e19]).repeat(2)[:, None].repeat(1, 4)
    a[1] /= 8
    a[2] *= torch.inf
    right, naive = run_widened(run, [a, b]), run_widened(run, [a, b], naive=True)
    assert right[:2].isfinite().all()
    assert naive[0].isnan().all()
    torch.testing.assert_close(naive[1:], right[1:], equal_nan=True)


def test_naive_sums_that_overflow_with_what_is_added_to_a_product_are_no_numbers():
    a, b, bias = torch.full((2, 2), 6e18), torch.full((2, 3), 6e18), torch.full((3,), 3e38)
    assert run_widened(torch.addmm, [bias, a, b], naive=True).isnan().all()
    assert run_widened(torch.addmm, [bias / 2, a, b], naive=True).isfinite().all()


@pytest.mark.parametrize(("factor", "overflows"), [(0.125, True), (0.9, False), (1e-3, False)])
@pytest.mark.parametrize("scaled", [lambda x, by: x * by, lambda x, by: x / (1 / by)])
def test_naive_sums_overflow_as_those_of_kernels_that_scale_them_afterwards(
    factor, overflows, scaled
):
    a, b = torch.full((2, 4), 3e18 / factor), torch.full((4, 2), 1e19)
    run = lambda a, b: scaled(a, factor) @ b  # noqa: E731
    assert (run_widened(run, [a, b]) < 2e38).all()
    assert run_widened(run, [a, b], naive=True).isnan().all() == overflows


def test_naive_sums_that_overflow_are_numbers_where_the_reference_makes_indices_of_them():
    x = torch.tensor([3e38, 3e38, -3e38, 1.0])
    run = lambda x: torch.arange(10.0)[x.sum().clamp(0, 9).long()]  # noqa: E731
    assert run_widened(run, [x], naive=True) == 9


def _moves(run, *inputs):
    """How far the largest of several moved runs is off, relatively."""
    right = run_widened(run, inputs)
    moved = [run_widened(run, inputs, moved=seed) for seed in (1, -1, 2, -2)]
    return max(float(((each - right) / right).abs().max()) for each in moved)


def _added_at(at, n):
    index = torch.tensor(at)
    return (
        lambda x: torch.zeros(n, x.shape[1]).index_add(0, index, x),
        lambda x: torch.zeros(n, x.shape[1]).scatter_add(0, index[:, None].expand_as(x), x),
    )


def test_what_is_added_at_places_is_moved_by_as_many_terms_as_meet_at_one():
    """Equal ones by more: each addition rounds to the same side."""
    x = torch.rand(500, 4) + 1
    equal = x[:1].expand(500, 4)
    for apart, together in zip(_added_at([*range(500)], 500), _added_at([0] * 500, 1), strict=True):
        assert _moves(apart, x) < 2**-20 < _moves(together, x)
        assert _moves(together, equal) > 2 * _moves(together, x)


@pytest.mark.parametrize(
    ("value", "by", "is_moved"),
    [
        ((2**21 + 1) * 2.0**-26, 20, True),  # of 22 bits: the product just fits
        ((2**21 + 1) * 2.0**-26, 4, False),
        (4095.0, 2047, False),
        (8195.0, 2047, True),
        (65535.0, 255, False),
    ],
)
def test_a_product_is_exact_where_all_of_such_factors_are(value, by, is_moved):
    assert value * by == torch.tensor(value * by).item()
    off = _moves(lambda x: x * by, torch.tensor([value]))
    assert (2**-24 < off < 2**-20) if is_moved else off == 0


def test_the_error_of_a_sum_of_one_term_is_never_less_than_that_of_the_term():
    x = torch.tensor([[-6e9], [7e9], [-5e9]])
    right = run_widened(lambda x: x.logsumexp(1), [x])
    for seed in range(1, 20):
        moved = run_widened(lambda x: x.logsumexp(1), [x], moved=seed)
        assert float(((moved - right) / right).abs().min()) > 3.9 * 2**-24


def test_what_is_decided_on_another_decision_follows_that():
    """The quotient is just below 1, its floor an integer without an error."""
    x = torch.tensor([2.9999998])
    run = lambda x: torch.where((x / 3).floor() >= 1, 5.0, 2.0)  # noqa: E731
    assert run_widened(run, [x]) == 2.0
    assert {float(run_widened(run, [x], moved=seed)) for seed in range(1, 9)} == {2.0, 5.0}


def _recurrence(decays, terms):
    state = torch.zeros_like(terms[0])
    for log_decay, term in zip(decays, terms, strict=True):
        state = torch.exp(log_decay)[:, None] * state + term
    return state


def test_a_recurrence_may_be_computed_by_differences_of_running_sums():
    generator = torch.Generator().manual_seed(0)
    decays = -2 * torch.rand(64, 32, generator=generator)
    terms = torch.randn(64, 32, 8, generator=generator)
    sums = decays.cumsum(0)
    chunk = ((sums[-1] - sums).exp()[:, :, None] * terms).sum(0)
    right = run_widened(_recurrence, [decays, terms])
    moved = [run_widened(_recurrence, [decays, terms], moved=seed) - right for seed in MOVES]
    off = torch.stack(moved).abs().amax((0, 2))
    assert (chunk - right).abs().max() > 8 * 2.0**-24 * right.abs().max()
    assert ((chunk - right).abs().amax(1) <= 2 * off).double().mean() > 0.9
    assert (off <= 2.0**-14 * right.abs().amax(1)).all()


def _put(decays, terms):
    states = torch.zeros_like(terms)
    states[0] = terms[0]
    for t in range(1, len(terms)):
        states[t] = torch.exp(decays[t])[:, None] * states[t - 1] + terms[t]
    return states


def _added_to_products(decays, terms):
    state = torch.exp(decays[0])[:, None] * terms[0]
    for log_decay, term in zip(decays[1:], terms[1:], strict=True):
        state = torch.addcmul(term, torch.exp2(log_decay)[:, None], state)
    return state


def _added_to_others(decays, terms):
    states = torch.zeros_like(terms)
    for t in range(1, len(terms)):
        states[t] = torch.exp(decays[t])[:, None] * terms[t - 1]
    return states


@pytest.mark.parametrize(
    ("run", "is_recurrence"),
    [(_recurrence, True), (_put, True), (_added_to_products, True), (_added_to_others, False)],
)
def test_what_gates_a_large_sum_of_logarithms_may_be_anything(run, is_recurrence):
    """Differences of running sums of 10^9 don't hold a gate of 1/2, and so neither does a chunk."""
    decays = torch.full((8, 4), -0.7)
    decays[1] = -1e9
    terms = torch.randn(8, 4, 8, generator=torch.Generator().manual_seed(0))
    right = run_widened(run, [decays, terms])
    moved = run_widened(run, [decays, terms], moved=1)
    off = ((moved - right).abs().amax() / right.abs().amax()).item()
    assert (off > 1) == is_recurrence
    assert off > 1 or off < 2.0**-19


def _transposed(x, y):
    state = y[:4] * torch.exp(-x[:4])
    state.t_()
    return state * torch.sigmoid(y[:4].t())


def _squeezed(x, y):
    state = (y * torch.exp(-x))[:, :1].clone() * torch.sigmoid(y[:, :1])
    state.squeeze_(1)
    return state * torch.sigmoid(y[:, 0])


def _inferred(x, y):
    with torch.inference_mode():
        return torch.sigmoid(x) + y


@pytest.mark.parametrize("run", [_transposed, _squeezed, _inferred])
def test_what_was_gated_may_change_its_shape(run):
    x, y = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0))
    assert _moves(run, x, y) < 2**-19


def test_one_gate_alone_is_no_recurrence():
    off = _moves(lambda g, x: torch.exp(g) * x, torch.tensor([-80.0]), torch.tensor([1.3]))
    assert 0 < off < 2**-20


@pytest.mark.parametrize(
    ("blend", "is_moved"),
    [
        (lambda a, b, w: a * (1 - w) + b * w, True),
        (torch.lerp, True),
        (lambda a, b, w: a * (1 - w) + b * (0.5 * w), False),  # no shares
    ],
)
def test_a_blend_is_not_exact_since_it_has_several_formulas(blend, is_moved):
    """``a + (b - a) * w`` is 7.5 exactly of equal numbers; ``a * (1 - w) + b * w`` is not."""
    off = _moves(blend, torch.tensor([7.5, 7.5]), torch.tensor([7.5, 8.0]), torch.tensor([0.5, 0]))
    assert (2**-24 < off < 2**-20) if is_moved else off == 0


#: What references do with rows that may be empty.
OF_EMPTY = {
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "masked softmax": lambda x: x.masked_fill(x > 0, -math.inf).softmax(-1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "sum and mean": lambda x: x.sum(-1) + x.mean(-1),
    "norm": lambda x: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6),
    "scans": lambda x: x.cumsum(-1) + x.cumprod(-1) + x.cummax(-1).values,
    "product": lambda x: x @ x.T,
    "order": lambda x: x.gather(-1, torch.argsort(x, dim=-1, stable=True)),
    "decisions": lambda x: torch.where(x > 0, (x / 0.1).round(), x // 0.5),
    "places": lambda x: torch.bucketize(x, x.new_tensor([0.0, 1.0])),
    "gates": lambda x: torch.sigmoid(x) * (torch.sigmoid(x) * x + x),
}


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
@pytest.mark.parametrize("what", OF_EMPTY)
def test_tensors_without_elements_vary_in_no_run(what, shape):
    x = torch.zeros(shape, dtype=torch.bfloat16)
    expected = run_widened(OF_EMPTY[what], [x])
    for how in (how for yardstick in YARDSTICKS for how in yardstick if "lean" not in how):
        varied = run_widened(OF_EMPTY[what], [x], **how)
        assert varied.shape == expected.shape
        torch.testing.assert_close(varied, expected, equal_nan=True)
