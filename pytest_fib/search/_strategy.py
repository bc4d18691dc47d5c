"""The Hypothesis strategy over a definition's workloads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from math import prod
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from pytest_fib.data import ON_REQUEST, Definition, Workload, kinds
from pytest_fib.search._deck import CHOICES, DECK_TILES, USUAL_SIZE, Bounds
from pytest_fib.search._hypothesis import draw_number
from pytest_fib.workloads import (
    HIDING,
    USUAL_BYTES,
    Choice,
    Plan,
    in_domain,
    is_open,
    make_workload,
    plan,
    regime_choices,
    special_at_end,
    with_all_alike,
    without_plainest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from hypothesis.strategies import DrawFn, SearchStrategy

    from pytest_fib.search._deck import Sort


SEEDS = 1 << 16
#: How many cards of a deck are of some patterns: in one row there is but one case of them, and
#: inputs are negative all together and by turns.
CARDS = {"nan": 4, "inf": 4, "negative": 2, "boundaries": 2}
#: The patterns that what is left of a deck is of, in this order: those that show what few others
#: do, but at some sizes only (long sums), and plain ones.
MORE = (
    "mixed", "shifted", "normal", "mixed", "shifted",
    "normal", "normal", "shifted", "normal",
)  # fmt: skip
#: So many of these, the last, are dealt after all others: for sizes that no list has.
LATE = 5
#: How many inputs are zero alone, at most: what the reference divides by may be 0 then.
ALONE = 4
#: Odd sizes are larger than the first of these that such sizes fit beyond.
ODD_BEYOND = (DECK_TILES[-1], DECK_TILES[0])
#: The decks of workloads in which there is much that is alike: all of it, and all of a row but one.
ALIKE = ("much that is alike", "much that is alike but for one")
#: Bytes of the workload in which there is much that is alike.
MUCH_BYTES = 8 << 20
#: Bytes of workloads in which there are more pairs than an integer of 32 bits counts; how many.
PAIRS_BYTES, INT32_MAX, MANY_PAIRS_TIMES = 64 << 20, 2**31 - 1, 3
#: Above the limits of grids, and of 16-bit indices.
LARGE_SIZE = 4 * USUAL_SIZE


def workloads(definition: Definition, max_bytes: int) -> SearchStrategy[Workload]:
    """Axes within the budget, regimes and a seed; tensor contents follow from them."""
    planned, choices = plan(definition), regime_choices(definition)
    alone = _zero_alone(planned, choices)
    cards = {what: _cards(plain, alone) for what, plain in choices.items()}
    counted, paired = _counted(planned), _many_pairs(planned, max_bytes)

    @st.composite
    def draw_workload(draw: DrawFn) -> Workload:
        drawn: dict[str, str] = {}
        for what, names in cards.items():
            if what == "inputs":
                drawn[what] = _draw_inputs(draw, drawn["values"], alone)
            else:
                late = LATE if what == "values" and set(MORE) <= set(names) else 0
                among = Bounds(0, len(names) - 1, late=late)
                drawn[what] = names[draw_number(draw, what, "choice", among)]
        values = drawn.get("values", "")
        # Which element is NaN or infinite, or which input is zero, goes by turns: by the seed.
        of_seeds = f"seed of {values}" if values in (*ON_REQUEST, "zeros") else "seed"
        draw_seed = partial(draw_number, draw, of_seeds, "any", Bounds(0, SEEDS - 1))
        draw_axes = partial(_draw_axes, draw, planned, max_bytes, values)
        alike = next((name for name in ALIKE if _is_new(draw, name, bool(counted), "once")), None)
        if alike is not None:
            axes = _much_of(planned, counted, max_bytes)
            seed = with_all_alike(draw_seed(), but_one=alike != ALIKE[0])
            return make_workload(definition, axes, seed, {})
        # In one of them, all that counts may be equal.
        if _is_new(draw, "many pairs", MANY_PAIRS_TIMES if paired else 0, "first"):
            return make_workload(definition, paired, draw_seed(), {})
        if values in ON_REQUEST:  # whose place has a say in sizes
            seed = draw_seed()
            axes = draw_axes(_special_ends(planned, values, seed))
        else:
            axes = draw_axes()
            seed = draw_seed()
        if drawn.get("lengths") == "equal":
            axes = _evened(planned, axes)
        axes = _draw_pages(draw, planned, axes, min(max_bytes, USUAL_BYTES))
        return make_workload(definition, axes, seed, without_plainest(drawn))

    return draw_workload()


def _is_new(draw: DrawFn, name: str, times: int, sort: Sort) -> bool:
    """Whether a workload of its own is drawn now, so many ``times``; by a deck of that ``sort``."""
    decks = (f"{name} {time}" if time else name for time in range(times))
    return any(draw_number(draw, deck, sort, Bounds(0, 1)) == 1 for deck in decks)


def _counted(planned: Plan) -> tuple[str, ...]:
    """The var axes, the last first, of the first tensor of data that may be all alike, if any is.

    What counts it then counts beyond what 16 bits hold, if there is so much of it.
    """
    for name, rule in planned.rules.items():
        shape = planned.definition.inputs[name].shape or ()
        axes = [axis for axis in shape if axis in planned.order]
        if axes and isinstance(rule, kinds.Integers | kinds.Boolean | kinds.Labels | kinds.Indices):
            return tuple(reversed(axes))
    return ()


def _much_of(planned: Plan, axes: tuple[str, ...], max_bytes: int) -> dict[str, int]:
    """Sizes of which those of some axes are as large as is usual."""
    order = sorted(planned.order, key=lambda axis: (*axes, axis).index(axis))
    budgets = dict.fromkeys(order, min(max_bytes, MUCH_BYTES))

    def pick(choice: Choice) -> int:
        most = min(choice.largest, USUAL_SIZE) if choice.axis in axes else 0
        return choice.domain.nearest(most)

    return planned.choose(budgets, pick)


def _many_pairs(planned: Plan, max_bytes: int) -> dict[str, int]:
    """Sizes of which two have a product beyond 32 bits; empty where no workload has such.

    As rows and columns of a sparse matrix, whose places kernels number in one integer. All axes
    that may be as large as is usual beside the others are, and the rest as small as may be.
    """
    budget = min(max_bytes, PAIRS_BYTES)
    most = {}
    for axis in planned.independent:
        domain, count = planned.affordable(axis, {}, budget)
        most[axis] = domain[count - 1]
    order = sorted(planned.order, key=lambda axis: -most.get(axis, 0))

    def pick(choice: Choice) -> int:
        largest = choice.domain.nearest(min(USUAL_SIZE, choice.domain[len(choice.domain) - 1]))
        return largest if largest <= choice.largest else choice.domain[0]

    axes = planned.choose(dict.fromkeys(order, budget), pick) if len(most) > 1 else {}
    return axes if has_many_pairs(planned.definition, axes) else {}


def has_many_pairs(definition: Definition, axes: Mapping[str, int]) -> bool:
    """Whether two sizes that follow from no others have a product beyond 32 bits.

    Where sequences are among them, they needn't: a sequence and a token are no pair.
    """
    planned = plan(definition)
    sizes = [n for axis, n in axes.items() if axis in planned.independent]
    return not planned.lengths and prod(sorted(sizes)[-2:]) > INT32_MAX


def _cards(names: list[str], alone: int = 0) -> list[str]:
    """Names as often as they are dealt, the plainest first; of zeros, some ``alone`` as well."""
    cards = [name for name in names for _ in range(CARDS.get(name, 1))]
    more = list(MORE[: _room(cards)]) if set(MORE) <= set(names) else []
    for _ in range(min(alone, len(more))):
        plain = [i for i, name in enumerate(more) if name == "normal"]
        del more[plain[-1] if plain else -1]
        cards.insert(cards.index("zeros"), "zeros")
    return [*cards, *more]


def _room(cards: list[str]) -> int:
    return max(0, CHOICES - len(cards))


def _zero_alone(planned: Plan, choices: Mapping[str, list[str]]) -> int:
    """How many workloads have one input that is zero, while the others are normal.

    What lacks a guard against a quotient by 0, as of norms, hardly shows if all are zero.
    """
    is_apart = "inputs" in choices and "zeros" in choices["values"] and planned.uses.divides
    return min(len(planned.following("values")), ALONE) if is_apart else 0


def _draw_inputs(draw: DrawFn, values: str, alone: int) -> str:
    """Which inputs hold the values of a regime: all of them before only some do, or only one."""
    deck, two = f"inputs of {values}", Bounds(0, 1)
    if values == "zeros" and alone:
        return "all" if draw_number(draw, deck, "first", two) == 1 else "one"
    return ("all", "some")[draw_number(draw, deck, "choice", two)]


def _special_ends(planned: Plan, values: str, seed: int) -> frozenset[str]:
    """The axes at whose ends NaN or infinities are, of those that follow from no other."""
    inputs = planned.definition.inputs
    shapes = [inputs[name].shape for name in special_at_end(planned.definition, values, seed)]
    return frozenset(shape[-1] for shape in shapes if shape).intersection(planned.independent)


def _draw_axes(
    draw: DrawFn,
    planned: Plan,
    max_bytes: int,
    values: str,
    odd: frozenset[str] = frozenset(),
) -> dict[str, int]:
    """Sizes of all var axes that meet the constraints; of some, ``odd`` ones if possible.

    Those of values that hide a wrong size have decks of their own. Those of NaN and infinities are
    at least 2, since one element is the first and the last and all. Where one is last in a row, no
    vector or tile divides the row: a kernel may treat special values wrongly in what is left, and
    nothing else.

    What is drawn first may take the whole budget, and leave the least for the others. So each of
    the axes that follow from no other is the first in its turn. Once it is the largest there is;
    all other workloads are of the usual size. Those that have to be odd come before all others.
    """
    leads = () if odd else planned.independent
    deck = " of what hides" if values in HIDING else ""
    least = 2 if values in ON_REQUEST else 1
    which = Bounds(0, len(leads) - 1)
    lead = leads[draw_number(draw, f"lead{deck}", "size", which)] if leads else None
    order = sorted(planned.order, key=lambda axis: axis != lead and axis not in odd)
    # Drawn for all values alike: Hypothesis shrinks to plainer ones where what follows is the same.
    first = draw_number(draw, f"largest {lead}{deck}", "once", Bounds(0, 1)) == 1
    once = first and not deck and not odd
    budget = max_bytes if once else min(max_bytes, USUAL_BYTES)
    pick = partial(_draw_size, draw, planned, _Sizes(lead, once, deck, least, odd))
    many = _many_sequences(planned, lead, budget) if lead and once else 0
    if draw_number(draw, "many sequences", "first", Bounds(0, min(many, 1))) == 0:
        many = 0
    return planned.choose(dict.fromkeys(order, budget), pick, many)


def _many_sequences(planned: Plan, lead: str, max_bytes: int) -> int:
    """The most sequences of the workload in which ``lead`` is as large as possible; 0 for as usual.

    Where the definition bounds no size, more than is usual of any axis, if so many fit: otherwise
    references would go through more of them than they are likely to do in no time.
    """
    section = planned.definition.workloads
    if not planned.lengths or (section and section.axes):
        return 0
    domain, count = planned.affordable(lead, {}, max_bytes, LARGE_SIZE)
    sequences = planned.sequences(planned.completed({lead: domain[count - 1]}))
    return LARGE_SIZE if sequences > USUAL_SIZE else 0


@dataclass(frozen=True)
class _Sizes:
    """How sizes are drawn: of ``lead``, ``once`` the largest; from which decks; not below what.

    Those of some axes are ``odd`` and larger than the largest tile, or than the least.
    """

    lead: str | None
    once: bool
    deck: str
    least: int
    odd: frozenset[str]


def _draw_size(draw: DrawFn, planned: Plan, how: _Sizes, choice: Choice) -> int:
    """A size of an axis, which may equal one that is known."""
    axis, domain = choice.axis, choice.domain
    others = {**_sizes_that_lead_to_others(planned, choice), **_sizes_beside(planned, choice)}
    others |= _multiples(planned, axis)
    largest = _largest(planned, choice) if axis == how.lead else None
    sort: Sort = "size" if largest is None or not how.once else "largest"
    only = _odd_ones(choice) if axis in how.odd else None
    if domain.step == 1 and domain.values is None:
        if _is_empty_once(draw, how, choice):
            return 0
        low = max(domain[0], min(how.least, choice.largest))
        # Of offsets there is one more than of what they are offsets of.
        more = int(axis in planned.offset_axes and low > 1)
        most = _most_summed(planned, choice)
        high = choice.largest if most is None else max(low, min(choice.largest, most))
        bounds = Bounds(low, high, others, largest, only).less(more)
        return more + draw_number(draw, axis + how.deck, sort, bounds)
    places = {pair: domain.index_below(n) for pair, n in others.items() if n in domain}
    place = None if largest is None else domain.index_below(largest)
    only_at = only and (lambda i: only(domain[i]))
    bounds = Bounds(0, choice.affordable - 1, places, place, only_at)
    return domain[draw_number(draw, axis + how.deck, sort, bounds)]


def _is_empty_once(draw: DrawFn, how: _Sizes, choice: Choice) -> bool:
    """Whether there is nothing along an axis, while something is along all others; once a search.

    Nothing along several of them is the plainest workload, which is tried anyway.
    """
    may_be = choice.domain[0] == 0 and how.least == 1 and not how.deck
    if not may_be or choice.axis in how.odd or 0 in choice.known.values():
        return False
    return draw_number(draw, f"nothing along {choice.axis}", "once", Bounds(0, 1)) == 1


def _multiples(planned: Plan, axis: str) -> dict[str, int]:
    """Sizes that leave no remainder where the reference divides them, if no whole tiles do.

    One more than whole tiles is a size of its own.
    """
    multiples = [
        (number, rest)
        for number, rest in sorted(planned.uses.multiples.get(axis, ()))
        if number & (number - 1) or rest not in (0, 1)
    ]
    return {f"{axis}, {k} * {n} + {m}": k * n + m for n, m in multiples for k in (2, 8)}


def _is_odd(beyond: int, size: int) -> bool:
    return size % 2 == 1 and size > beyond


def _odd_ones(choice: Choice) -> Callable[[int], bool] | None:
    """Whether a size is odd and large enough; None where no such size is affordable."""
    beyond = next((n for n in ODD_BEYOND if _has_odd(choice, n)), None)
    return None if beyond is None else partial(_is_odd, beyond)


def _has_odd(choice: Choice, beyond: int) -> bool:
    """Whether a size that is odd and larger is affordable; of multiples, every second may be."""
    domain, last = choice.domain, choice.affordable
    few = range(last) if domain.values is not None else range(max(last - 2, 0), last)
    return any(_is_odd(beyond, domain[i]) for i in few)


def _sizes_beside(planned: Plan, choice: Choice) -> dict[str, int]:
    """Sizes of axes that are known: of those of the same tensors if these have others at all.

    There one may be taken for the other. By the names of both axes.
    """
    known = {**planned.definition.const_axes, **choice.known}
    beside = _axes_beside(planned.definition, choice.axis) or {*known}
    return {_pair(axis, choice.axis): known[axis] for axis in beside if axis in known}


def _sizes_that_lead_to_others(planned: Plan, choice: Choice) -> dict[str, int]:
    """Sizes by which an axis that follows, such as the double, equals one beside it.

    By the names of both of these.
    """
    known = {**planned.definition.const_axes, **choice.known}
    following = {*planned.order} - {*planned.independent, *known, choice.axis}
    pairs = [
        (axis, other)
        for axis in sorted(following)
        for other in sorted(_axes_beside(planned.definition, axis))
        if other in known
    ]
    axes_at = cache(partial(planned.following_sizes, choice))
    sizes = {_pair(*pair): _leading_to(choice, pair[0], known[pair[1]], axes_at) for pair in pairs}
    return {pair: size for pair, size in sizes.items() if size is not None}


def _leading_to(
    choice: Choice, axis: str, wanted: int, axes_at: Callable[[int], Mapping[str, int]]
) -> int | None:
    """A size by which another axis has the wanted one; None if none is found in proportion."""
    most = axes_at(choice.largest).get(axis)
    about = round(choice.largest * wanted / most) if most else 0
    for size in (about, about - 1, about + 1):
        is_possible = size in choice.domain and size <= choice.largest
        if is_possible and axes_at(size).get(axis) == wanted:
            return size
    return None


def _axes_beside(definition: Definition, axis: str) -> set[str]:
    """The other axes of the tensors that have an axis."""
    specs = (*definition.inputs.values(), *definition.outputs.values())
    shapes = [spec.shape for spec in specs if spec.shape and axis in spec.shape]
    return {each for shape in shapes for each in shape} - {axis}


def _pair(one: str, other: str) -> str:
    return " and ".join(sorted((one, other)))


def _largest(planned: Plan, choice: Choice) -> int | None:
    """The largest size of an axis; None where it takes the whole budget, as that takes its time.

    Unless that is the only axis. Of what is cheap, some more than is usual, but for sums that no
    kernel may hold then.
    """
    if _most_summed(planned, choice) is not None:
        return None
    if choice.affordable == len(choice.domain):
        return choice.largest
    if len(planned.independent) == 1:
        return choice.largest
    beyond = choice.domain.nearest(min(choice.largest, LARGE_SIZE))
    return beyond if beyond > USUAL_SIZE else None


def _most_summed(planned: Plan, choice: Choice) -> int | None:
    """The most terms of a sum of products of bytes, where nobody asks for more; None of others."""
    most = planned.sums_of_bytes.get(choice.axis)
    return most if is_open(planned.definition, choice.axis) else None


def _evened(planned: Plan, axes: dict[str, int]) -> dict[str, int]:
    """Axes whose totals can be split equally, where there are any such below them."""
    sizes, evened = planned.definition.axis_values(axes), dict(axes)
    for name, rule in planned.rules.items():
        shape = planned.definition.inputs[name].shape
        if isinstance(rule, kinds.Split | kinds.Indptr) and rule.total in axes and shape:
            total = str(rule.total)
            parts = prod(sizes[axis] for axis in shape) - isinstance(rule, kinds.Indptr)
            evened[total] -= axes[total] % parts if axes[total] > parts else 0
    return evened if in_domain(planned.definition, evened) else axes


def _draw_pages(
    draw: DrawFn, planned: Plan, axes: dict[str, int], max_bytes: int
) -> dict[str, int]:
    """Axes with pages for a row of each table of distinct ones, by turns for all, if they fit.

    Otherwise sequences are as short as the number of pages lets them be, however wide the table is.
    """
    for name, rule in planned.rules.items():
        if isinstance(rule, kinds.BlockTable) and (pages := str(rule.pages)) in planned.independent:
            sizes = planned.definition.axis_values(axes)
            rows, width = (sizes[axis] for axis in planned.definition.inputs[name].shape or ())
            rows = rows if draw_number(draw, f"rows of {name}", "choice", Bounds(0, 1)) else 1
            known = {axis: axes[axis] for axis in planned.independent if axis != pages}
            domain, count = planned.affordable(pages, known, max_bytes)
            wanted = domain.nearest(min(rows * width, domain[count - 1]))
            if wanted > axes[pages] and (raised := planned.complete({**known, pages: wanted})):
                axes = raised if in_domain(planned.definition, raised) else axes
    return axes
