"""Generators of structure: offsets, lengths, pages, indices and routing.

Each fills a contiguous tensor in place, from numbers drawn on the host, so that it is the same on
every device. Beside how a kind fills stands which elements of other inputs its values refer to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from pytest_fib.data import Definition, SafetensorsInput, kinds
from pytest_fib.workloads._constraints import parse_all
from pytest_fib.workloads._places import filled_lengths
from pytest_fib.workloads._recorded import read_tensor
from pytest_fib.workloads._sizes import TILE_SIZES
from pytest_fib.workloads._value_generators import VALUE_FILLS, put_sentinels

if TYPE_CHECKING:
    from pytest_fib.workloads._tensors import Fill, FillContext, InputTensors

#: Tiles of attention kernels; lengths at their multiples are boundaries.
ATTENTION_TILES = TILE_SIZES[1:6]
#: What stands for a tile where none fits: two pages of 64 tokens are one.
PAIR = 2
#: Lengths at which such kernels change what they do.
BOUNDARY_LENGTHS = (0, 1, 2, *(tile + near for tile in ATTENTION_TILES for near in (-1, 0, 1)))
#: The turns in which permutations are of an order of their own.
ORDERS = {
    5: "nearly in order", 8: "between its ends", 11: "turned round",
    15: "nearly in order", 18: "between its ends", 21: "moved",
}  # fmt: skip
#: In one of so many turns, all sequences of a batch may be empty.
EMPTY_TURNS = 6
#: The turns in which distinct indices are in order, but for two of each row; and repeated ones.
NEARLY_IN_ORDER_TURNS, NEARLY_IN_ORDER_TURNS_OF_REPEATED = (5, 15), (5, 9, 15, 20)


@dataclass(frozen=True)
class Needed:
    """The elements that a kernel needs along ``axes``: ``needed`` is a bool tensor on the host.

    Where several of these are about one tensor, an element is needed if one of them says so. But a
    ``limit``, such as lengths, excludes elements whatever the others say.
    """

    axes: tuple[str, ...]
    needed: torch.Tensor
    limit: bool = False


def _indptr(tensor: torch.Tensor, rule: kinds.Indptr, context: FillContext) -> None:
    parts, total = tensor.numel() - 1, context.whole(rule.total)
    least = torch.full((parts,), 0 if rule.allow_empty else 1)
    if (others := context.lengths_of(rule.at_least)) is not None:
        least = torch.maximum(least, -(-others // context.whole(rule.page_size)))
    lengths = _split(total, least, context)
    tensor[0] = 0
    tensor[1:] = lengths.cumsum(0)


def _lengths(tensor: torch.Tensor, rule: kinds.Lengths, context: FillContext) -> None:
    lengths, least = _shared(tensor.view(-1), rule, context)
    if rule.max is not None:
        lengths = _capped(lengths, least, context.whole(rule.max), context.host_random)
    tensor.copy_(lengths.view(tensor.shape))


def _capped(
    lengths: torch.Tensor, least: torch.Tensor, most: int, generator: torch.Generator
) -> torch.Tensor:
    """The same sum without a length above ``most``: what is too much fills others, one by one.

    Those come first that have more than their ``least``, so that empty ones stay empty if they can.
    Raises ValueError where all together have too much.
    """
    surplus = int((lengths - most).clamp_min(0).sum())
    lengths = lengths.clamp_max(most)
    if surplus > most * len(lengths) - int(lengths.sum()):
        raise ValueError(f"{len(lengths)} sequences of at most {most} are too few")
    order = torch.randperm(len(lengths), generator=generator)
    order = order[(lengths <= least)[order].long().argsort(stable=True)]
    room = most - lengths[order]
    lengths[order] += (surplus - (room.cumsum(0) - room)).clamp_min(0).minimum(room)
    return lengths


def _starts(tensor: torch.Tensor, rule: kinds.Starts, context: FillContext) -> None:
    lengths, _ = _shared(tensor, rule, context)
    tensor.copy_(lengths.cumsum(0) - lengths)


def _ends(tensor: torch.Tensor, rule: kinds.Ends, context: FillContext) -> None:
    lengths, _ = _shared(tensor, rule, context)
    tensor.copy_(lengths.cumsum(0))


def _shared(
    tensor: torch.Tensor, rule: kinds.Split, context: FillContext
) -> tuple[torch.Tensor, torch.Tensor]:
    """The lengths of sequences that share a total, one for each element; and the least of each."""
    least = torch.full(tensor.shape, 0 if rule.allow_empty else 1)
    return _split(context.whole(rule.total), least, context), least


def _split(total: int, least: torch.Tensor, context: FillContext) -> torch.Tensor:
    """Lengths that sum to a total, split as the workload's regime says."""
    return partition(total, least, context.regime.get("lengths", "random"), context.host_random)


def _indptr_masks(name: str, rule: kinds.Indptr, inputs: InputTensors) -> Iterator[Needed]:
    """What lies between the first offset and the last, and the sequences that are not empty."""
    offsets, total = inputs.on_host(name), inputs.factors(rule.total)
    if len(total) == 1:
        at = torch.arange(inputs.sizes[total[0]])
        yield Needed(total, (at >= offsets[0]) & (at < offsets[-1]), limit=True)
    for axis in _one_less(inputs.axes(name)[0], inputs.definition):
        yield Needed((axis,), offsets.diff() > 0, limit=True)


def _one_less(length: str, definition: Definition) -> Iterator[str]:
    """The axes of which a constraint says that ``length`` is one more."""
    for constraint in (c for text in definition.constraints for c in parse_all(text, definition)):
        for axis in constraint.axes - {length}:
            more = ({**definition.const_axes, axis: n, length: n + 1} for n in (1, 2))
            is_pair = constraint.axes == {axis, length} and constraint.equals(length)
            if is_pair and all(constraint.holds(sizes) for sizes in more):
                yield axis


def _last_page_len(tensor: torch.Tensor, rule: kinds.LastPageLen, context: FillContext) -> None:
    size = context.whole(rule.page_size)
    drawn = _fullness(len(tensor), size, context)
    pages, tokens = context.lengths_of(rule.indptr), context.lengths_of(rule.at_least)
    if pages is not None and tokens is not None:
        needed = (tokens - (pages - 1).clamp_min(0) * size).clamp(1, size)
        drawn[: len(needed)] = torch.maximum(drawn[: len(needed)], needed)
    tensor.copy_(drawn)


def _fullness(n: int, size: int, context: FillContext) -> torch.Tensor:
    """Tokens in last pages, in turn: 1, all but one, all, twice beside a tile, or any number.

    All, where sequences are whole tiles.
    """
    if context.regime.get("lengths") == "tiles":
        return torch.full((n,), size)
    host = context.host_random
    tiles = torch.tensor([tile for tile in BOUNDARY_LENGTHS if 1 <= tile <= size])
    ends = (torch.tensor([n]) for n in (1, max(1, size - 1), size))
    drawn = torch.randint(1, size + 1, (n,), generator=host)
    case = (torch.arange(n) + context.turn) % 6
    for i, some in enumerate((*ends, tiles, tiles)):
        at = torch.randint(0, len(some), (n,), generator=host)
        drawn = torch.where(case == i, some[at], drawn)
    return drawn


def _last_page_masks(name: str, rule: kinds.LastPageLen, inputs: InputTensors) -> Iterator[Needed]:
    """As many tokens of the last page of each sequence as it holds."""
    slot_axes = inputs.factors(rule.page_size)
    pages = None if rule.indptr is None else _pages_of(rule.indptr, inputs)
    if not slot_axes or rule.indptr is None or pages is None:
        return
    numbers, page_axes = pages
    offsets, size = inputs.on_host(rule.indptr), inputs.whole(rule.page_size)
    not_empty = (offsets.diff() > 0).nonzero().flatten()
    held = torch.full_like(numbers, size)
    held[offsets[not_empty + 1] - 1] = inputs.on_host(name)[not_empty]
    filled = torch.full((inputs.sizes[page_axes[0]],), size)
    real = numbers >= 0  # the others are padding
    filled.scatter_reduce_(0, numbers[real], held[real], "amax", include_self=False)
    slots = torch.arange(size) < filled[:, None]
    axes = (*page_axes, *slot_axes)
    yield Needed(axes, slots.view([inputs.sizes[axis] for axis in axes]), limit=True)


def _pages_of(indptr: str, inputs: InputTensors) -> tuple[torch.Tensor, tuple[str, ...]] | None:
    """The numbers of the pages that an indptr splits over sequences, and the axis of all pages."""
    total = (kinds.total_of(indptr, inputs.rules),)
    for name, rule in inputs.rules.items():
        if isinstance(rule, kinds.Indices) and name in inputs.tensors:
            axes = inputs.factors(rule.below)
            if len(axes) == 1 and inputs.axes(name) == total:
                return inputs.on_host(name), axes
    return None


def _upper_bound(
    tensor: torch.Tensor, rule: kinds.Indices | kinds.Positions, context: FillContext
) -> int:
    """What all numbers are below: as the rule says, but no more than the dtype holds.

    As it is where they are distinct: there have to be enough.
    """
    below, most = context.whole(rule.below), torch.iinfo(tensor.dtype).max + 1
    is_once = isinstance(rule, kinds.Indices) and bool(rule.unique)
    return below if is_once else min(below, most)


def _indices(tensor: torch.Tensor, rule: kinds.Indices, context: FillContext) -> None:
    """A vector is one row."""
    below, host = _upper_bound(tensor, rule, context), context.host_random
    rows, n = tensor.shape[:-1].numel(), tensor.shape[-1]
    drawn = torch.zeros((rows, n), dtype=torch.long)
    together = drawn.view(1, -1) if rule.unique == "everywhere" else drawn
    for row in together:
        row[:] = _row(row.numel(), below, host, unique=bool(rule.unique))
    if not rule.unique:
        _repeat_one(drawn, context.turn)
        _put_extremes(drawn, below, context.turn)
    in_order = NEARLY_IN_ORDER_TURNS if rule.unique else NEARLY_IN_ORDER_TURNS_OF_REPEATED
    if context.turn in in_order and below > 0:
        # Of distinct ones there is room for no more; what is beyond is padding.
        part = together[:, :below] if rule.unique else together
        _put_nearly_in_order(part, below, context)
    are_alike = context.all_alike and not rule.unique
    if are_alike:
        drawn[:] = drawn[:1, :1]
    elif rule.pad is not None:
        lengths = filled_lengths(drawn.shape, host)
        if rule.unique:
            lengths.clamp_max_(below)
        drawn = torch.where(torch.arange(n) < lengths, drawn, context.whole(rule.pad))
    tensor.copy_(drawn.reshape(tensor.shape))
    if not are_alike:
        put_sentinels(tensor, rule.sentinels, context)


def _put_nearly_in_order(drawn: torch.Tensor, below: int, context: FillContext) -> None:
    """Make rows 0, 1, 2, ..., each as often as fits, but for two inner ones, which change places.

    A kernel that looks at the first and the last takes the order for that of nothing to be done.
    """
    rows, n = drawn.shape
    drawn[:] = torch.arange(n) if n <= below else torch.arange(n) * below // n
    if n > 3:
        last = n - 2 if n <= below else n // 2
        at = torch.randint(1, last, (rows, 1), generator=context.host_random)
        other = at + 1 if n <= below else n - 1 - at  # another number
        drawn.scatter_(1, torch.cat((at, other), 1), drawn.gather(1, torch.cat((other, at), 1)))


def _repeat_one(drawn: torch.Tensor, turn: int) -> None:
    """Make all of one row of eight the same number: what is counted or added up there is most."""
    drawn[(6 - turn) % 8 :: 8] = drawn[(6 - turn) % 8 :: 8, :1]


def _repeat_few(rows: torch.Tensor, turn: int) -> None:
    """Make one row of eight one to three numbers over and over, as of a text that goes round."""
    some = rows[(2 - turn) % 8 :: 8]
    period = torch.arange(rows.shape[1], device=rows.device) % (1 + turn // 8 % 3)
    rows[(2 - turn) % 8 :: 8] = some[:, period]


def _put_extremes(drawn: torch.Tensor, below: int, turn: int) -> None:
    """In one row of four the last number there is, in another the first: of many, few drew it."""
    n = drawn.shape[1]
    for first, number in ((1, below - 1), (3, 0)) if n else ():
        drawn[(first - turn) % 4 :: 4, turn % n] = number


def _row(n: int, below: int, host: torch.Generator, *, unique: bool) -> torch.Tensor:
    if not unique:  # from half as many, so that hardly a row has no number twice
        some = torch.randint(0, max(below, 1), ((n + 1) // 2,), generator=host)
        return some[torch.randint(0, max(len(some), 1), (n,), generator=host)]
    row = torch.zeros(n, dtype=torch.long)
    row[: min(n, below)] = _distinct(min(n, below), below, host)
    return row  # what is missing of a row longer than that is padded by the caller


def _distinct(n: int, below: int, host: torch.Generator) -> torch.Tensor:
    """Different numbers: one time in four the first or the last there are, in order.

    So an empty cache gives them out, and so do tests of kernels that would take any of them.
    """
    choice = int(torch.randint(0, 8, (), generator=host))
    if choice < 2:
        return torch.arange(n) + choice * (below - n)
    if n * 8 > below:
        return torch.randperm(below, generator=host)[:n]
    drawn: set[int] = set()
    while len(drawn) < n:  # few of many: what came twice is drawn again
        drawn.update(torch.randint(0, below, (n - len(drawn),), generator=host).tolist())
    return torch.tensor(sorted(drawn), dtype=torch.long)[torch.randperm(n, generator=host)]


def _index_masks(
    indices: torch.Tensor, below: float | str, inputs: InputTensors
) -> Iterator[Needed]:
    """The elements that indices refer to; what is below 0 is padding."""
    if axes := inputs.factors(below):
        shape = [inputs.sizes[axis] for axis in axes]
        needed = torch.zeros(prod(shape), dtype=torch.bool)
        needed[indices[(indices >= 0) & (indices < needed.numel())]] = True
        yield Needed(axes, needed.view(shape))


def _permutation(tensor: torch.Tensor, rule: kinds.Permutation, context: FillContext) -> None:
    """Any order, or the numbers' own; now and then nearly that, or turned round, or moved by one.

    Or any order of those between the first and the last, which stay.
    """
    n = tensor.numel()
    order, kind = torch.arange(n), ORDERS.get(context.turn, "")
    if kind == "nearly in order":
        _put_nearly_in_order(order[None], n, context)
    elif kind == "between its ends":
        order[1:-1] = order[1:-1][torch.randperm(max(n - 2, 0), generator=context.host_random)]
    elif kind:
        order = order.flip(0) if kind == "turned round" else order.roll(1)
    else:
        order = _distinct(n, n, context.host_random)
    tensor.copy_(order)


def _seq_lens(tensor: torch.Tensor, rule: kinds.SeqLens, context: FillContext) -> None:
    longest, size, n = context.whole(rule.max), context.whole(rule.page_size), tensor.numel()
    most, least = -(-longest // size), 0 if rule.allow_empty else 1
    pages = n * most if rule.pages is None else min(context.whole(rule.pages), n * most)
    # Where there are few pages, all would be empty in many workloads.
    some = max(n * least, min(pages, 0 if context.turn % EMPTY_TURNS == 0 else 1))
    total = int(torch.randint(some, pages + 1, (), generator=context.host_random)) if n else 0
    counts = _split(total, torch.full((n,), least), context).clamp_max(most)
    is_any = context.regime.get("lengths", "random") in ("random", "one_long")
    if n and rule.pages is not None and is_any and _coin(context):  # one has what is left of them
        one = int(torch.randint(n, (), generator=context.host_random))
        counts[one] = min(most, pages - int(counts.sum()) + int(counts[one]))
    lengths = (counts - 1) * size + _fullness(n, size, context)
    lengths = torch.where(counts > 0, lengths, 0).clamp(least, longest)
    # A batch is padded to its longest sequence: in every other one, that fills its row.
    if n and rule.pages is None and _coin(context):
        lengths[int(torch.randint(n, (), generator=context.host_random))] = longest
    tensor.copy_(lengths.reshape(tensor.shape))


def _coin(context: FillContext) -> bool:
    return bool(torch.randint(2, (), generator=context.host_random))


def _seq_lens_masks(
    name: str, rule: kinds.SeqLens | kinds.Lengths, inputs: InputTensors
) -> Iterator[Needed]:
    """As much of each sequence of a padded batch as there is."""
    if rule.max is None:
        return
    longest, batch = inputs.factors(rule.max), inputs.axes(name)
    if len(longest) == len(batch) == 1:
        at = torch.arange(inputs.sizes[longest[0]])
        yield Needed((*batch, *longest), at < inputs.on_host(name)[:, None], limit=True)


def _block_table(tensor: torch.Tensor, rule: kinds.BlockTable, context: FillContext) -> None:
    lengths = context.on_host(rule.lengths)
    counts = -(-lengths // context.whole(rule.page_size))
    table = torch.zeros(tensor.shape, dtype=torch.long)
    if rule.any_after:
        ends = torch.iinfo(tensor.dtype)
        table += (0, -1, ends.max, ends.min)[context.turn % 4]
    table[torch.arange(tensor.shape[1]) < counts[:, None]] = _distinct(
        int(counts.sum()), context.whole(rule.pages), context.host_random
    )
    tensor.copy_(table)


def _block_table_masks(name: str, rule: kinds.BlockTable, inputs: InputTensors) -> Iterator[Needed]:
    """The tokens of each page, and the entries of the table itself, that lengths reach."""
    lengths, size = inputs.on_host(rule.lengths), inputs.whole(rule.page_size)
    table = inputs.on_host(name)
    held = (lengths[:, None] - torch.arange(table.shape[1]) * size).clamp(0, size)
    yield Needed(inputs.axes(name), held > 0, limit=True)
    page_axes, slot_axes = inputs.factors(rule.pages), inputs.factors(rule.page_size)
    if len(page_axes) == 1:
        filled = torch.zeros(inputs.sizes[page_axes[0]], dtype=torch.long)
        pages = torch.where(held > 0, table, 0)
        filled.scatter_reduce_(0, pages.flatten(), held.flatten(), "amax")
        slots, axes = torch.arange(size) < filled[:, None], (*page_axes, *slot_axes)
        slots = slots if slot_axes else slots.any(dim=-1)
        yield Needed(axes, slots.view([inputs.sizes[axis] for axis in axes]))


def _positions(tensor: torch.Tensor, rule: kinds.Positions, context: FillContext) -> None:
    """Of a single position, any."""
    below = _upper_bound(tensor, rule, context)
    drawn = torch.randint(0, below, (tensor.numel(),), generator=context.host_random)
    ends = torch.tensor([below - 1, 0])
    if len(drawn) > 1:
        drawn[:2] = ends
    elif (choice := int(torch.randint(0, 3, (), generator=context.host_random))) < 2:
        drawn[:] = ends[choice]
    drawn = drawn[torch.randperm(len(drawn), generator=context.host_random)]
    tensor.copy_(drawn.reshape(tensor.shape))
    if tensor.dim() > 1:
        _repeat_few(tensor.view(-1, tensor.shape[-1]), context.turn)
    put_sentinels(tensor, rule.sentinels, context)


def _topk_ids(tensor: torch.Tensor, rule: kinds.TopkIds, context: FillContext) -> None:
    tensor.copy_(_experts(tensor.shape, rule, context))
    put_sentinels(tensor, rule.sentinels, context)


def _routing(tensor: torch.Tensor, rule: kinds.Routing, context: FillContext) -> None:
    weights = torch.rand(tensor.shape, generator=context.host_random).softmax(dim=-1)
    bits = weights.bfloat16().view(torch.int16).long() & 0xFFFF
    tensor.copy_((_experts(tensor.shape, rule, context) << 16) | bits)


def _experts(
    shape: torch.Size, rule: kinds.TopkIds | kinds.Routing, context: FillContext
) -> torch.Tensor:
    experts = context.whole(rule.experts)
    favour = torch.rand(experts, generator=context.host_random).mul_(2)
    scores = torch.rand((*shape[:-1], experts), generator=context.host_random) + favour
    return scores.topk(shape[-1], dim=-1).indices


def _routing_masks(name: str, rule: kinds.Routing, inputs: InputTensors) -> Iterator[Needed]:
    yield from _index_masks(inputs.on_host(name) >> 16, rule.experts, inputs)


def _safetensors(tensor: torch.Tensor, rule: kinds.Safetensors, context: FillContext) -> None:
    stored = SafetensorsInput(path=rule.path, tensor_key=rule.tensor_key)
    tensor.copy_(read_tensor(stored, context.files, tensor))


def partition(
    total: int, least: torch.Tensor, split: str, generator: torch.Generator
) -> torch.Tensor:
    """Lengths that sum to ``total``, each at least its ``least``, as ``split`` says: see SPLITS.

    ``least`` is int64 on the host. Raises ValueError where it sums to more than ``total``.
    """
    spare = total - int(least.sum())
    if spare < 0 or (len(least) == 0 and spare):
        raise ValueError(f"{total} can't be split over {len(least)} sequences of at least {least}")
    if len(least) == 0:
        return least
    return least + SPLITS[split](spare, least, generator)


def _random(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Cut at random places."""
    cuts = torch.randint(0, spare + 1, (len(least) - 1,), generator=generator).sort().values
    return torch.cat((torch.tensor([0]), cuts, torch.tensor([spare]))).diff()


def _equal(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Lengths as equal as may be."""
    n = len(least)
    return torch.full((n,), spare // n) + (torch.arange(n) < spare % n)


def _one_long(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One sequence takes all that is to spare: often the first or the last."""
    lengths = torch.zeros_like(least)
    ends = (0, len(least) - 1, int(torch.randint(0, len(least), (), generator=generator)))
    lengths[ends[int(torch.randint(0, len(ends), (), generator=generator))]] = spare
    return lengths


def _empties(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """About half of the sequences get nothing, the first and the last among them."""
    served = torch.rand(len(least), generator=generator) < 0.5
    served[0] = served[-1] = False
    if not served.any():
        served[len(least) // 2] = True
    lengths = torch.zeros_like(least)
    lengths[served] = _random(spare, least[served], generator)
    return lengths


def _ones(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One for each sequence until none is left, and the rest for the last."""
    lengths = (torch.arange(len(least)) < spare).long()
    lengths[-1] += spare - int(lengths.sum())
    return lengths


def _tiles(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Whole tiles of some size; of what is left one for each that has any, the rest for the last.

    One more than whole tiles is where most kernels begin another one.
    """
    fitting = [tile for tile in ATTENTION_TILES if tile <= spare] or [PAIR]
    tile = fitting[int(torch.randint(0, len(fitting), (), generator=generator))]
    lengths = _random(spare // tile, least, generator) * tile
    served = lengths > 0
    lengths += served & (served.cumsum(0) <= spare % tile)
    lengths[-1] += spare - int(lengths.sum())
    return lengths


def _boundaries(spare: int, least: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """At and beside multiples of tiles, and the rest for the last of them in a random order.

    The first is one beyond the largest tile that fits, so one beyond multiples of the others too;
    then none has what another has before all have been dealt.
    """
    n, fitting = len(least), torch.tensor([n for n in BOUNDARY_LENGTHS if n <= spare])
    beyond = [tile + 1 for tile in ATTENTION_TILES if tile < spare][-1:]
    rounds = range(-(-n // len(fitting)))
    cards = [fitting[torch.randperm(len(fitting), generator=generator)] for _ in rounds]
    drawn = torch.cat([torch.tensor(beyond, dtype=torch.int64), *cards])[:n]
    order = torch.randperm(n, generator=generator)
    # What is there already counts: the whole length is to lie at a boundary.
    drawn = torch.where(drawn >= least[order], drawn - least[order], drawn)
    drawn = torch.where(drawn.cumsum(0) <= spare, drawn, 0)
    drawn[-1] += spare - int(drawn.sum())
    return torch.empty_like(least).scatter_(0, order, drawn)


#: By name, as ``pytest_fib.data.LENGTHS`` has them.
SPLITS: dict[str, Callable[[int, torch.Tensor, torch.Generator], torch.Tensor]] = {
    "random": _random,
    "equal": _equal,
    "one_long": _one_long,
    "empties": _empties,
    "ones": _ones,
    "tiles": _tiles,
    "boundaries": _boundaries,
}


#: How each kind of generator fills.
FILLS: dict[str, Fill] = {
    **VALUE_FILLS,
    "indptr": _indptr,
    "lengths": _lengths,
    "starts": _starts,
    "ends": _ends,
    "last_page_len": _last_page_len,
    "indices": _indices,
    "permutation": _permutation,
    "seq_lens": _seq_lens,
    "block_table": _block_table,
    "positions": _positions,
    "topk_ids": _topk_ids,
    "routing": _routing,
    "safetensors": _safetensors,
}
#: By kind: the elements of all inputs that the values of one refer to.
MASKS: dict[str, Callable[[str, Any, InputTensors], Iterable[Needed]]] = {
    "indptr": _indptr_masks,
    "last_page_len": _last_page_masks,
    "indices": lambda name, rule, inputs: _index_masks(inputs.on_host(name), rule.below, inputs),
    "lengths": _seq_lens_masks,
    "seq_lens": _seq_lens_masks,
    "block_table": _block_table_masks,
    "positions": lambda name, rule, inputs: _index_masks(inputs.on_host(name), rule.below, inputs),
    "topk_ids": lambda name, rule, inputs: _index_masks(inputs.on_host(name), rule.experts, inputs),
    "routing": _routing_masks,
}
