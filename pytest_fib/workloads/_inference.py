"""Infers the meaning of inputs from one table of rules, which are tried in order.

A rule looks at an input's name, its dtype and the definition around it. The first that applies
decides; ``workloads.inputs`` in the definition always comes before any of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod, sqrt
from typing import Literal

from pytest_fib.data import (
    DTYPE_CLASSES,
    Definition,
    DType,
    FixedValue,
    InputRule,
    TensorSpec,
    kinds,
)
from pytest_fib.workloads._axes import OPEN_MAXIMUM, listed_domain
from pytest_fib.workloads._constraints import (
    bounds_of_elements,
    constraints_on,
    order_of_rows,
    parse_all,
)
from pytest_fib.workloads._described_rules import Described, of_description, within
from pytest_fib.workloads._descriptions import BITS_OF_SIZES, Bound, Said, more, said
from pytest_fib.workloads._reference_reader import uses_of
from pytest_fib.workloads._reference_uses import SORTING, ReferenceUses
from pytest_fib.workloads._sizes import power_of_two

#: Dimensions of a query-key product before absorption in multi-head latent attention.
MLA_HEAD_DIM = 128 + 64
#: Tokens that have no table which says how many there are: GPT-OSS has 201,088.
VOCABULARY = 201_088
#: Positions that have no table which says how many there are.
POSITIONS = 8192
#: Pages where nothing says how many there may be.
PAGES = 2**20
#: Steps of an optimiser.
STEPS = 100_000
#: Between what is done now and then.
FEW = 16
#: Parts that an average is of, such as microbatches.
FEW_PARTS = 64
#: By how many bits numbers are shifted where nothing says how many these have.
MOST_SHIFT = 15
#: How many labels there are where the reference asks for some by number, besides these.
FEW_LABELS = 4
#: Shares of all probabilities, by which samplers choose tokens.
_CUTOFFS = r"(min|typical|tail_free|eta)_p"
#: Scalars that constraints tie to axes are up to that.
TIED = 4096
#: What temperatures that are compared with less may be 0.
LEAST_TEMPERATURE = 0.1
#: The least and the most that tensors of which nothing is known are compared with.
LEAST_THRESHOLD, MOST_THRESHOLD = 1 / 16, 24.0
#: How many times as long as an axis lengths are that the reference keeps within it.
TIMES_AS_LONG = 4


@dataclass(frozen=True)
class Subject:
    """An input of a definition; ``totals`` has the axes that constraints call an indptr's total.

    ``sums`` has those that constraints call the sum of an input; ``bounds``, the expressions of
    axes that constraints say no element of an input is above.

    ``doubts`` gathers what was chosen although something else would do as well.
    """

    name: str
    spec: TensorSpec
    definition: Definition
    totals: Mapping[str, str]
    sums: Mapping[str, str]
    bounds: Mapping[str, Sequence[str]]
    doubts: list[str] = field(default_factory=list, compare=False)

    @cached_property
    def uses(self) -> ReferenceUses:
        """What the reference does with its inputs."""
        return uses_of(self.definition)

    @cached_property
    def said(self) -> Said:
        """What its description says of its numbers, or else constraints on each of them."""
        described = said(self.spec, self.definition)
        dtype = self.spec.dtype
        is_small = dtype is DType.BOOL or (dtype.is_floating and dtype.itemsize_bits <= 8)
        if self.spec.is_scalar or is_small:
            return described
        if (strictly := order_of_rows(self.name, self.definition)) is not None:
            distinct = described.are_distinct or strictly or None
            described = replace(described, is_sorted=True, are_distinct=distinct)
        least, most = bounds_of_elements(self.name, self.definition)
        whole = not dtype.is_floating
        if least is not None and described.least is None and _is_held(least[0], dtype):
            bound, strict = least
            bound = more(bound, 1) if whole and strict else bound
            described = replace(described, least=bound, is_open=strict and not whole)
        if most is not None and described.most is None and _is_held(most[0], dtype):
            bound, strict = most
            bound = more(bound, -1) if whole and strict else bound
            described = replace(described, most=bound, is_below=strict and not whole)
        return described

    @property
    def source(self) -> str:
        """Where what is ``said`` of it comes from, as an explanation says it."""
        return "as its description says" if self.spec.description else "as constraints say"

    def axis(self, *names: str) -> str | None:
        """The first of these axes that the definition has; another of them is a doubt."""
        present = [name for name in names if name in self.definition.axes]
        if len(present) > 1:
            self.doubts.append(f"{present[0]} rather than {' or '.join(present[1:])}")
        return next(iter(present), None)

    def const(self, *names: str) -> int | None:
        """The value of the first of these axes that is const."""
        values = self.definition.const_axes
        return next((values[name] for name in names if name in values), None)

    def input(self, *names: str) -> str | None:
        """The first of these inputs that the definition has."""
        return next((name for name in names if name in self.definition.inputs), None)

    @property
    def may_be_empty(self) -> bool:
        """Whether lengths may be 0: the description says so, or the reference takes that."""
        is_said = self.said.may_be_0 or self.said.least == 0
        return is_said or self.uses.takes_nothing(self.name)

    def dim(self, name: str | None, dim: int) -> str | None:
        """The axis of one dimension of another input."""
        spec = None if name is None else self.definition.inputs.get(name)
        return spec.shape[dim] if spec and spec.shape else None


@dataclass(frozen=True)
class Rule:
    """``name`` and ``op_type`` are regular expressions for the whole of each.

    ``dtype`` is a class of dtypes; ``scalar``, whether the rule is for Python scalars. ``make``
    gives how the input is made, or None where the definition lacks what the rule needs.
    """

    says: str
    name: str
    make: Callable[[Subject], InputRule | None]
    dtype: str = "any"
    op_type: str = ".*"
    scalar: bool = False

    def applies(self, subject: Subject) -> bool:
        """Whether the rule may speak about this input."""
        return (
            subject.spec.is_scalar == self.scalar
            and subject.spec.dtype in DTYPE_CLASSES[self.dtype]
            and re.fullmatch(self.name, subject.name) is not None
            and re.fullmatch(self.op_type, subject.definition.op_type) is not None
        )


@dataclass(frozen=True)
class Inferred:
    """The rule of an input, why it has that, as the table says it, and what is doubtful."""

    rule: InputRule
    says: str
    doubts: tuple[str, ...] = ()

    def __str__(self) -> str:
        doubts = "".join(f"; a guess: {doubt}" for doubt in self.doubts)
        return f"{self.says} ({self.rule}){doubts}"


def infer(subject: Subject) -> Inferred | None:
    """The meaning of an input by the first rule that applies, within what its description says.

    None where neither says anything.
    """
    inferred = _infer(subject)
    if inferred is None or len(subject.spec.shape or ()) != 1:
        return inferred
    rule, axes = inferred.rule, subject.definition.axes
    if not isinstance(rule, kinds.Integers) or rule.min not in (0, 1) or rule.max not in axes:
        return inferred
    if rule.step != 1 or not re.fullmatch(_LENGTHS, subject.name):
        return inferred
    return replace(inferred, rule=kinds.SeqLens(max=rule.max, allow_empty=rule.min == 0))


def _infer(subject: Subject) -> Inferred | None:
    """The same, where numbers up to a size may be any though they are called lengths."""
    for inference in RULES:
        subject.doubts.clear()
        if inference.applies(subject) and (rule := inference.make(subject)) is not None:
            return _as_said(Inferred(rule, inference.says, tuple(subject.doubts)), subject)
    if (rule := of_description(Described(subject.said, subject.spec))) is None:
        return None
    doubts = []
    is_whole_range = subject.said.bits is not None or subject.said.are_any
    if isinstance(rule, kinds.Integers) and not is_whole_range:
        doubts += [f"from {rule.min}"] if subject.said.least is None else []
        doubts += [f"up to {rule.max}"] if subject.said.most is None else []
    return Inferred(rule, subject.source, tuple(doubts))


def _as_said(inferred: Inferred, subject: Subject) -> Inferred:
    """What was inferred, within the numbers that a description says there are."""
    said, sizes = subject.said, subject.definition.const_axes
    asks_for_0 = 0 in subject.uses.limits.get(subject.name, ())
    is_guess = bool(inferred.doubts)
    is_free = subject.name in subject.uses.capped | subject.uses.guessed_picks
    is_index = subject.name in subject.uses.picks
    described = Described(said, subject.spec, sizes, asks_for_0, is_guess, is_free, is_index)
    rule = within(inferred.rule, described)
    is_certain = said.choices or None not in (said.least, said.most)
    if rule == inferred.rule:
        ends = None
        if isinstance(rule, kinds.Integers | kinds.Uniform):
            ends = rule.min, rule.max
        is_said = is_certain and ends == (said.least, said.most)
        return Inferred(rule, subject.source) if is_said else inferred
    if is_certain and rule.kind in ("integers", "uniform", "one_of"):
        return Inferred(rule, subject.source)  # all of it
    doubts = () if is_certain else inferred.doubts
    is_by_it = inferred.rule.kind == "values" != rule.kind  # not by any pattern
    says = subject.source if is_by_it else f"{inferred.says}, {subject.source}"
    return Inferred(rule, says, doubts)


def _near(usual: float) -> Callable[[Subject], InputRule]:
    """Between half and twice what is usual: a kernel that takes that for granted is wrong."""
    return lambda subject: kinds.Uniform(min=usual / 2, max=usual * 2)


def _normal(std: float) -> Callable[[Subject], InputRule]:
    return lambda subject: kinds.Normal(std=std)


def _of_one(rule: InputRule) -> Callable[[Subject], InputRule | None]:
    """For a tensor of one element alone: what a name says of a setting, others needn't be."""

    def make(subject: Subject) -> InputRule | None:
        sizes = subject.definition.const_axes
        return rule if all(sizes.get(axis) == 1 for axis in subject.spec.shape or ()) else None

    return make


def _of_rows(rule: InputRule) -> Callable[[Subject], InputRule | None]:
    """For a tensor that has one element for each row."""
    return _of_each_row(lambda subject: rule)


def _of_each_row(
    make: Callable[[Subject], InputRule | None],
) -> Callable[[Subject], InputRule | None]:
    return lambda subject: make(subject) if len(subject.spec.shape or ()) < 2 else None


def _factors(subject: Subject) -> InputRule | None:
    """Positive; but any values where they are added, as in ``x * (1 + scale)``.

    Around 1 where nothing is quantised.
    """
    definition, uses = subject.definition, subject.uses
    of_inputs, of_outputs = map(_has_codes, (definition.inputs, definition.outputs))
    if subject.name in uses.added:
        return None
    if of_outputs and not of_inputs and subject.name in uses.factors - uses.divisors:
        return kinds.Scales(min=2**-3, max=2**6)  # of what is quantised next, so that some is large
    is_quantised = of_inputs or of_outputs or _QUANTISES.search(definition.reference)
    return kinds.Scales() if is_quantised else kinds.Scales(min=0.25, max=4.0)


def _has_codes(specs: Mapping[str, TensorSpec]) -> bool:
    """Whether a tensor has numbers of 8 bits or fewer that aren't only true or false."""
    return any(
        spec.dtype.itemsize_bits <= 8 and spec.dtype is not DType.BOOL and not spec.is_scalar
        for name, spec in specs.items()
        if not re.fullmatch(rf"{_MASK}|{_FLAGS}", name)
    )


def _of_parts(total: str, subject: Subject) -> InputRule | None:
    """Where each sequence begins or ends, by its name, if an output or floats have as many rows.

    So have torch's ``EmbeddingBag`` and its offsets.
    """
    shape, definition = subject.spec.shape or (), subject.definition
    floats = [spec for spec in definition.inputs.values() if spec.dtype.is_floating]
    rows = [spec.shape[:1] for spec in (*definition.outputs.values(), *floats) if spec.shape]
    is_end = re.fullmatch(_ENDS, subject.name) is not None
    is_start = "embedding_bag" in subject.uses.calls or _last_goes_on(subject)
    is_start = is_start or re.fullmatch(_STARTS, subject.name) is not None
    if shape not in rows or shape[0] == total or not (is_start or is_end):
        return None
    empty = subject.may_be_empty
    return (kinds.Ends if is_end else kinds.Starts)(total=total, allow_empty=empty)


def _last_goes_on(subject: Subject) -> bool:
    """Whether the last sequence goes on to the end, as in ``starts[1:] + [n]``."""
    reference = subject.definition.reference
    copies = re.findall(rf"(\w+)\s*=\s*{subject.name}\.(?:tolist|long|int|to)\(", reference)
    rest = rf"\b({'|'.join((subject.name, *copies))})\[1:\](\.\w+\([^()]*\))?"
    whole = rf"\b{subject.name}\.tolist\(\)\s*\+\s*\["  # and where the last one ends
    listed = rf"\b{subject.name}\.tolist\(\)\[1:\]\s*\+\s*\["
    pattern = rf"\b(cat|pad)\([\[(]?{rest}|{rest}\s*\+\s*\[|{whole}|{listed}"
    return re.search(pattern, reference) is not None


def _indptr(subject: Subject) -> InputRule | None:
    queries = re.fullmatch(r"(q|cu).*(?<!k)(?<!kv)", subject.name) is not None
    guesses = ("total_q", "total_tokens", "total_seq_len") if queries else (
        "num_kv_indices", "total_kv", "total_k", "total_seq_len"
    )  # fmt: skip
    total = subject.totals.get(subject.name) or subject.axis(*guesses) or _rows(subject)
    if total is None:
        return None
    if parts := _of_parts(total, subject):
        return parts
    of_queries = subject.input("qo_indptr", "q_indptr", "cu_seqlens_q")
    if of_queries in (None, subject.name):
        return kinds.Indptr(total=total, parts=_parts(subject))
    if "cross" in subject.definition.op_type:  # to other tokens, of which there may be fewer
        empty = subject.may_be_empty
        return kinds.Indptr(total=total, parts=_parts(subject), allow_empty=empty)
    # Pages hold page_size tokens each; the last one of a sequence may hold fewer.
    # A reference that says what to do where no key is left has fewer keys than queries as well.
    if subject.uses.mends_nothing and not subject.input("kv_indices"):
        return kinds.Indptr(total=total, parts=_parts(subject))
    pages = subject.axis("page_size") if subject.input("kv_indices", "page_indices") else None
    return kinds.Indptr(
        total=total, parts=_parts(subject), at_least=of_queries, page_size=pages or 1
    )


def _rows(subject: Subject) -> str | None:
    """The first axis of the outputs, or of other inputs, that offsets may be along."""
    definition, own = subject.definition, set(subject.spec.shape or ())
    words = [set(re.findall(r"\w+", text)) for text in definition.constraints]
    taken = own.union(*(each for each in words if each & own))
    specs = (*definition.outputs.values(), *definition.inputs.values())
    firsts = dict.fromkeys(spec.shape[0] for spec in specs if spec.shape)
    free = [axis for axis in firsts if axis in definition.var_axes and axis not in taken]
    if free:
        subject.doubts.append(f"along {free[0]}")
    return next(iter(free), None)


def _offsets(subject: Subject) -> InputRule | None:
    """An indptr, whatever its name, where a constraint says what its last offset is."""
    return _indptr(subject) if subject.name in subject.totals else None


def _summands(subject: Subject) -> InputRule | None:
    """Lengths by their total; bounded where a constraint or the reference bounds each of them."""
    total = subject.sums.get(subject.name)
    if total is None or re.fullmatch(_MASK, subject.name):
        return None
    name, uses = subject.name, subject.uses
    along = uses.lengths.get(name)
    bounds = dict.fromkeys(subject.bounds.get(name, ()))
    if along not in (None, total, uses.beyond.get(name)):
        bounds |= {along: None}
    most = f"min({', '.join(bounds)})" if len(bounds) > 1 else next(iter(bounds), None)
    return kinds.Lengths(total=total, max=most)


def _parts(subject: Subject) -> str | None:
    """The number of sequences, where no constraint says how many there are."""
    (length,) = subject.spec.shape if subject.spec.shape and len(subject.spec.shape) == 1 else ("",)
    if length not in subject.definition.var_axes or constraints_on(length, subject.definition):
        return None
    parts = subject.axis("batch_size", "num_seqs", "num_sequences")
    return None if parts == length else parts


def _below(*axes: str) -> Callable[[Subject], InputRule | None]:
    def make(subject: Subject) -> InputRule | None:
        below = subject.axis(*axes)
        return None if below is None else kinds.Indices(below=below, unique=True)

    return make


def _tokens_of_pages(subject: Subject) -> InputRule | None:
    pages, size = subject.axis("num_pages"), subject.axis("page_size")
    if pages is None:
        return None
    return kinds.Indices(below=pages if size is None else f"{pages} * {size}", pad=-1)


def _last_page_len(subject: Subject) -> InputRule | None:
    size = subject.axis("page_size")
    if size is None:
        return None
    tokens = subject.input("qo_indptr", "q_indptr")
    return kinds.LastPageLen(page_size=size, indptr=subject.input("kv_indptr"), at_least=tokens)


def _pages(subject: Subject, table: str) -> tuple[str | None, str | None]:
    """How many pages a table is of, and of how many tokens: by what it picks, or by names."""
    pages = subject.axis("num_pages", "num_blocks")
    pages = pages or next((a for a in (subject.uses.picks.get(table),) if isinstance(a, str)), None)
    size = subject.axis("page_size", "block_size")
    for spec in subject.definition.inputs.values():
        is_of_pages = len(shape := spec.shape or ()) > 2 and shape[0] == pages
        if size is None and is_of_pages and "head" not in shape[1]:
            size = shape[1]
    return pages, size


def _seq_lens(subject: Subject) -> InputRule | None:
    table = subject.input("block_table", "block_tables", "page_table")
    pages, size = _pages(subject, table) if table else (None, None)
    if table is not None and size is not None:
        longest_in_table = f"{subject.dim(table, 1)} * {size}"
        empty = subject.may_be_empty
        return kinds.SeqLens(max=longest_in_table, pages=pages, page_size=size, allow_empty=empty)
    return _lengths_along(subject, subject.axis("max_seq_len", "max_kv_len", "seq_len"))


def _lengths_along(subject: Subject, axis: str | None) -> InputRule | None:
    """Nothing may be as long as the axis, but no sequence is empty that the reference can't do."""
    if axis is None:
        return None
    return kinds.SeqLens(max=axis, allow_empty=subject.may_be_empty)


def _block_table(subject: Subject) -> InputRule | None:
    pages, size = _pages(subject, subject.name)
    lengths = subject.input("seq_lens", "cache_seqlens", "kv_lens", "context_lens")
    if pages is None or lengths is None:
        return None
    after = subject.said.are_any_after
    return kinds.BlockTable(pages=pages, page_size=size or 1, lengths=lengths, any_after=after)


def _positions(subject: Subject) -> InputRule | None:
    cache = subject.input("cos_sin_cache", "cos_cache", "cos")
    below = subject.dim(cache, 0) or subject.axis("max_seq_len", "max_position")
    return None if below is None else kinds.Positions(below=below, sentinels=_sentinels(subject))


def _token_ids(subject: Subject) -> InputRule | None:
    """Numbers of rows of a table, the first and the last among them."""
    rows = subject.axis("vocab_size", "vocabulary", "vocab", "num_embeddings")
    rows = rows or subject.dim(subject.input("embedding", "embedding_table", "table", "weight"), 0)
    if rows is None:
        return None
    # What a tensor that is longer by one has for them is where padding goes.
    n, picked = subject.const(rows), subject.uses.picks.get(subject.name)
    if picked is None and subject.name in subject.uses.any_bits:  # it may be hashed
        subject.doubts.append(f"below {rows}")
    if picked == rows and _may_be_beyond(rows, subject):
        return kinds.Positions(below=f"2 * {rows}", sentinels=_sentinels(subject))
    is_longer = (picked, subject.uses.spare.get(subject.name)) == (rows, 1)
    if n is not None and (is_longer or str(picked) == str(n + 1)):
        return kinds.Positions(below=rows, sentinels=[n])
    if is_longer:
        return kinds.Positions(below=f"{rows} + 1", sentinels=_sentinels(subject))
    return kinds.Positions(below=rows, sentinels=_sentinels(subject))


def _known_tokens(subject: Subject) -> InputRule | None:
    """Tokens of a vocabulary that nothing says the size of, where no place or size depends on them.

    If the reference compares them with a number, up to that: it may be the first that is no token.
    """
    name, uses = subject.name, subject.uses
    if name not in uses.calculated or subject.spec.dtype.itemsize_bits < 32:
        return None
    below = max((int(n) + 1 for n in uses.limits.get(name, ()) if n > 1), default=VOCABULARY)
    subject.doubts.append(f"below {below}")
    return kinds.Positions(below=below, sentinels=_sentinels(subject))


def _rotary(kind: type[kinds.Cos | kinds.Sin]) -> Callable[[Subject], InputRule | None]:
    """Angles: each twice where the input is as wide as a head, once where it is half as wide."""

    def make(subject: Subject) -> InputRule | None:
        shape = subject.spec.shape or ()
        head = subject.dim(subject.input("q", "query", "x"), -1)
        if len(shape) < 2:
            return None
        twice = shape[-1] == head
        if twice:
            subject.doubts.append("its two halves are alike")
        return kind(twice=twice)

    return make


def _top_k(subject: Subject) -> InputRule | None:
    vocabulary = subject.axis("vocab_size", "vocabulary", "vocab", "num_classes")
    uses, name = subject.uses, subject.name
    least = uses.pads.get(name, 0 if 0 in uses.limits.get(name, ()) else 1)  # switched off
    if vocabulary is None:
        return None
    is_kept_within = uses.beyond.get(name) == vocabulary
    most = f"{vocabulary} + 1" if is_kept_within else vocabulary
    return kinds.Integers(min=least, max=most, ends=True)


def _topk_ids(subject: Subject) -> InputRule | None:
    all_of_them = subject.axis("num_experts", "experts", "num_global_experts")
    experts = all_of_them or subject.axis("num_local_experts")
    if experts is None:
        return None
    sentinels = _sentinels(subject)
    if len(subject.spec.shape or ()) == 1:  # one for each token
        return kinds.Indices(below=experts, unique=False, sentinels=sentinels)
    if subject.name in subject.uses.shifted:  # with their weights
        return kinds.Routing(experts=experts)
    return kinds.TopkIds(experts=experts, sentinels=sentinels)


def _sentinels(subject: Subject) -> list[int] | None:
    """The number below 0 that the reference compares it with, or that its description names."""
    said = subject.said
    pad = subject.uses.pads.get(subject.name, next(iter(said.sentinels), None))
    least = subject.spec.dtype.ends[0]
    is_any = pad == -1 and -1 not in subject.uses.equals.get(subject.name, ())
    if is_any and least <= -100 and said.any_negative:
        return [-100, -1]
    return None if pad is None or pad < subject.spec.dtype.ends[0] else [pad]


def _sentinels_beyond(below: str | int, subject: Subject) -> list[int] | None:
    """The same, and the numbers that it is asked for and that are none of those below."""
    n = subject.const(below) if isinstance(below, str) else below
    least = int(subject.spec.dtype.ends[1]) if n is None else n
    asked = {*subject.uses.equals.get(subject.name, ()), *(_sentinels(subject) or ())}
    first, last = subject.spec.dtype.ends
    beyond = {n for n in asked if (n < 0 or n >= least) and first <= n <= last}
    return sorted(beyond) or None


def _picked(subject: Subject) -> InputRule | None:
    axis = subject.uses.picks.get(subject.name)
    if axis is None:
        return None
    sentinels = _sentinels_beyond(axis, subject)
    spare = subject.uses.spare.get(subject.name)
    below = axis if spare is None else f"{axis} + {spare}"
    of, behind = subject.uses.behind.get(subject.name, (None, 0))
    below = below if of != axis else f"{below} - {behind}"
    if subject.spec.is_scalar:
        return kinds.Integers(min=min([0, *(sentinels or ())]), max=more(below, -1), ends=True)
    if _may_be_beyond(axis, subject):
        return kinds.Positions(below=f"2 * {axis}", sentinels=sentinels)
    return kinds.Indices(below=below, unique=_must_differ(subject, below), sentinels=sentinels)


def _may_be_beyond(axis: str | int, subject: Subject) -> bool:
    """Whether numbers from the size of an axis on are legal, and nothing says that they aren't."""
    is_said = subject.said.padding is not None or subject.said.most is not None
    return not is_said and subject.uses.beyond.get(subject.name) == axis


def _must_differ(subject: Subject, below: str | int) -> bool | Literal["everywhere"]:
    """Whether it says where elements are put, of which two in one place would be in no order.

    In one row, or ``everywhere`` where all rows say so at once.
    """
    shape, sizes = subject.spec.shape or ("",), subject.definition.const_axes
    places = subject.const(str(below)) if isinstance(below, str) else below
    is_at_once = subject.name in subject.uses.placed_at_once
    n = [sizes.get(axis, 1) for axis in (shape if is_at_once else shape[-1:])]
    fits = places is None or prod(n) <= places
    are_unique = bool(subject.uses.calls & {"unique"})  # whichever of them there are
    if subject.name not in subject.uses.placed or not fits or are_unique:
        return False
    return "everywhere" if is_at_once and len(shape) > 1 else True


def _bytes(subject: Subject) -> InputRule | None:
    """Any number: what is calculated with in floating point is no index."""
    uses, name = subject.uses, subject.name
    if subject.spec.dtype is DType.UINT8:  # unless it is a flag, which no table's rows are of
        axes = subject.spec.shape or ()
        is_table = len(axes) > 1 and axes[0] in {*uses.picks.values()}
        is_more = is_table or max(uses.limits.get(name, ()), default=0) > 1
        return kinds.Integers(min=0, max=255) if is_more and name in uses.numbers else None
    is_whole = subject.spec.dtype is DType.INT16 and name in uses.calculated
    is_number = (is_whole or subject.spec.dtype is DType.INT8) and name in uses.numbers
    return _any_number(subject) if is_number else None


def _pixels(subject: Subject) -> InputRule | None:
    """All that bytes hold which become floating numbers, or 16 bits of sound."""
    dtype = subject.spec.dtype
    return _any_number(subject) if dtype in (DType.UINT8, DType.INT16) else None


def _differences(subject: Subject) -> InputRule | None:
    return _indptr(subject) if subject.name in subject.uses.offsets else None


def _equated(subject: Subject) -> InputRule | None:
    """A few, so that some are equal; those among them that the reference asks for by number."""
    uses, name = subject.uses, subject.name
    if name not in uses.equated - uses.beyond_equality - uses.numbers or subject.spec.is_scalar:
        return None
    scalars = {n for n, spec in subject.definition.inputs.items() if spec.is_scalar}
    with_scalars = any(other in scalars for other, *_ in uses.edges.get(name, ()))
    of_others = {*uses.limits.get(name, ())} - {0} or name in uses.pads  # 0 is there in any case
    is_asked = (name in uses.computed and of_others) or with_scalars
    return _asked_labels(subject) if is_asked else kinds.Labels()


def _choice(subject: Subject) -> InputRule | None:
    """One of the numbers that the reference asks for, or the next; not what others are too."""
    uses, numbers = subject.uses, subject.uses.limits.get(subject.name, ())
    if not uses.only_asks(subject.name) or not numbers or subject.name in uses.edges:
        return None
    is_switch = {*numbers} <= {0, 1}  # any other number may be as good as 1, or not
    return kinds.Integers(min=int(min(0, *numbers)), max=1 if is_switch else int(max(numbers)) + 1)


def _flags(subject: Subject) -> InputRule | None:
    """Of 8 bits, which by their name, or since only that is asked, are true or false."""
    uses, name = subject.uses, subject.name
    if subject.spec.dtype not in DTYPE_CLASSES["bytes"]:
        return None
    numbers = {*uses.limits.get(name, ())}
    is_asked = uses.only_asks(name) and bool(numbers) and numbers <= {0, 1}
    are_bits = name in uses.shifted | uses.any_bits
    return kinds.Boolean() if is_asked or (re.fullmatch(_FLAGS, name) and not are_bits) else None


def _asked(subject: Subject) -> InputRule | None:
    """The same of integers that are only asked whether they equal some numbers.

    Those that are only asked whether they are 1, and those of 8 bits, may be flags.
    """
    uses, name = subject.uses, subject.name
    numbers = uses.limits.get(name, ())
    is_flag = subject.spec.dtype.itemsize_bits == 8 or 1 in numbers or not numbers
    return _asked_labels(subject) if uses.only_asks(name) and not is_flag else None


def _asked_labels(subject: Subject) -> InputRule:
    least, most = subject.spec.dtype.ends
    numbers = [int(number) for number in subject.uses.limits.get(subject.name, ())]
    asked_for = [n for n in (*numbers, *(_sentinels(subject) or ())) if least <= n <= most]
    others = sorted({number for number in asked_for if not 0 <= number < FEW_LABELS})
    return kinds.Positions(below=FEW_LABELS, sentinels=others or None)


def _moved(subject: Subject) -> InputRule | None:
    """Integers that are only moved are no indices."""
    uses = subject.uses
    is_moved = subject.name in uses.seen - uses.computed - uses.numbers
    return _any_number(subject) if is_moved and not subject.spec.is_scalar else None


def _calculated(subject: Subject) -> InputRule | None:
    """Integers that are only calculated with are no indices; wider than bytes, maybe counts."""
    uses = subject.uses
    free = uses.calculated if subject.spec.dtype.itemsize_bits == 8 else uses.any_bits
    return _any_number(subject) if subject.name in free & uses.calculated else None


def _ordered(subject: Subject) -> InputRule | None:
    """Any, of which those below 0 stand for none, where the reference only sorts and moves them."""
    uses, bits = subject.uses, subject.spec.dtype.itemsize_bits
    is_sorted = subject.name in uses.any_bits - uses.shifted and uses.calls & SORTING
    if not is_sorted or subject.name not in uses.pads:
        return None
    return kinds.Positions(below=2 ** min(bits - 1, 40), sentinels=_sentinels(subject))


def _parts_of_bytes(subject: Subject) -> InputRule | None:
    """All that bytes hold, where what is shifted out of them is used for something."""
    is_byte = subject.spec.dtype is DType.UINT8 and subject.name in subject.uses.shifted
    if is_byte:
        subject.doubts.append("any byte")
    return _any_number(subject) if is_byte else None


def _beside_start(subject: Subject) -> InputRule | None:
    """Numbers of which those from a start on count, so many; or that start, in a scalar."""
    uses, name = subject.uses, subject.name
    spans = [(other, size) for other, _, size in uses.edges.get(name, ()) if size not in (0, 1)]
    others, sizes = {other for other, _ in spans}, {size for _, size in spans}
    inputs = subject.definition.inputs
    pairs = [other for other in others if inputs[other].is_scalar != subject.spec.is_scalar]
    if len(sizes) != 1 or not pairs:
        return None
    (size,), parts = sizes, TIMES_AS_LONG - subject.spec.is_scalar
    subject.doubts.append(f"below {parts} * {size}")
    if subject.spec.is_scalar:
        return kinds.Integers(min=0, max=f"{parts} * {size}", ends=True)
    return kinds.Positions(below=f"{TIMES_AS_LONG} * {size}", sentinels=_sentinels(subject))


def _summed(subject: Subject) -> InputRule | None:
    """Counts or lengths, as those are of which sums say where things begin: none is negative."""
    uses = subject.uses
    only_summed = (uses.summed & uses.calculated) | uses.running.keys()
    if subject.name not in only_summed - uses.numbers:
        return None
    subject.doubts.append("none is negative")
    axis, own = uses.running.get(subject.name), (subject.spec.shape or ("",))[-1]
    if axis and own:  # so that their total is now below that, now above
        return kinds.Integers(min=0, max=f"2 * {axis} // {own} + 1")
    return kinds.Integers(min=0, max=2 ** min(subject.spec.dtype.itemsize_bits - 1, 48) - 1)


def _angles(subject: Subject) -> InputRule | None:
    """Positions of tokens, or of pixels; nothing says how many there may be."""
    if subject.name not in subject.uses.angles or subject.spec.is_scalar:
        return None
    subject.doubts.append(f"below {POSITIONS}")
    return kinds.Positions(below=POSITIONS)


def _any_number(subject: Subject) -> InputRule:
    least, most = subject.spec.dtype.ends
    return kinds.Integers(min=int(least), max=int(most))


def _whole_divisor(subject: Subject) -> InputRule | None:
    """Not zero, unless the reference looks for that."""
    uses, name = subject.uses, subject.name
    divisors = uses.whole_divisors | uses.clamped_divisors
    if name not in divisors & uses.numbers or 0 in uses.limits.get(name, ()):
        return None
    least = 1 if name in uses.whole_divisors else 0
    most = min(int(subject.spec.dtype.ends[1]), POSITIONS)
    subject.doubts.append(f"from {least} to {most}")
    return kinds.Integers(min=least, max=most)


def _scalar_divisor(subject: Subject) -> InputRule | None:
    """How many of something an average is of; any number would do for the reference."""
    uses, name = subject.uses, subject.name
    if name not in uses.whole_divisors or name in uses.edges or _decides_a_size(subject):
        return None
    subject.doubts.append(f"from 1 to {FEW_PARTS}")
    return kinds.Integers(min=1, max=FEW_PARTS, ends=True)


def _tied(subject: Subject) -> InputRule | None:
    """Whatever a constraint makes equal to a sum or difference of axes, up to a few thousand.

    Or holds against one, unless it is divided by: of such ones fewer will do.
    """
    is_divisor = subject.name in subject.uses.whole_divisors
    compared = "==" if is_divisor else "(==|<=?|>=?)"
    texts = constraints_on(subject.name, subject.definition)
    sums = (text for text in texts if re.fullmatch(rf"[\w\s+*-]+{compared}[\w\s+*-]+", text))
    named = {word for text in sums for word in re.findall(r"\w+", text)}
    if not named & subject.definition.axes.keys():
        return None
    axes = named & {*subject.definition.var_axes}
    stated = [listed_domain(subject.definition, axis) for axis in axes]
    most = max([TIED, *(domain.high for domain in stated if domain.high < OPEN_MAXIMUM)])
    subject.doubts.append(f"up to {most}")
    return kinds.Integers(min=1 if is_divisor else 0, max=most)


def _put(subject: Subject) -> InputRule | None:
    """Any number that the reference puts into outputs of as many bits; of those below 0, -1."""
    uses, bits = subject.uses, min(32, subject.spec.dtype.itemsize_bits)
    is_moved = subject.name in uses.seen - uses.computed - uses.numbers
    dtypes = [spec.dtype for spec in subject.definition.outputs.values()]
    if not is_moved or any(each.is_floating or each.itemsize_bits < bits for each in dtypes):
        return None
    return kinds.Integers(min=-1, max=2 ** (bits - 1) - 1, ends=True)


def _cut(subject: Subject) -> InputRule | None:
    """Offsets: one more than there are sequences."""
    axis = subject.uses.cuts.get(subject.name)
    if axis is None:
        return None
    return _of_parts(axis, subject) or kinds.Indptr(total=axis, parts=_parts(subject))


def _decides_a_size(subject: Subject) -> bool:
    """Whether there may be so many of something, as in ``for i in range(steps)``."""
    counted = rf"(range|empty|zeros|ones|full|expand|repeat)\w*\(.*\b{subject.name}\b"
    is_size = subject.name in subject.uses.sliced or subject.name not in subject.uses.seen
    return is_size or re.search(counted, subject.definition.reference) is not None


def _interval(subject: Subject) -> InputRule | None:
    """Of a few steps, so that it now and then is over."""
    subject.doubts.append(f"up to {FEW}")
    return None if _decides_a_size(subject) else kinds.Integers(min=1, max=FEW, ends=True)


def _step(subject: Subject) -> InputRule | None:
    """From 0 on, unless something is divided by it."""
    if _decides_a_size(subject):
        return None
    least = 1 if subject.name in subject.uses.whole_divisors else 0
    subject.doubts.append(f"up to {STEPS}")
    return kinds.Integers(min=least, max=STEPS, ends=True)


def _exponent(subject: Subject) -> InputRule | None:
    """From 1 on: corrections such as ``1 - beta ** step`` are divided by."""
    is_power = subject.name in subject.uses.exponents
    return kinds.Integers(min=1, max=STEPS, ends=True) if is_power else None


def _counts(subject: Subject) -> InputRule | None:
    """As many as a sequence has tokens, where nothing but numbers depends on them.

    Or as a constraint says.
    """
    bounds, definition = subject.bounds.get(subject.name), subject.definition
    texts = constraints_on(subject.name, definition)
    stated = [text for text in texts if not _are_pairs(text, definition)]
    if bounds and len(stated) == 1 and len(subject.spec.shape or ()) == 1:
        return _lengths_along(subject, bounds[0])
    if subject.spec.is_scalar:
        if _decides_a_size(subject) or subject.name in subject.uses.whole_divisors:
            return None
    elif subject.name not in subject.uses.calculated:
        return None
    subject.doubts.append(f"none is negative, or above {POSITIONS}")
    return kinds.Integers(min=0, max=POSITIONS)


def _is_held(bound: Bound, dtype: DType) -> bool:
    """Whether a dtype holds a bound; a narrow one may not hold a size."""
    first, last = dtype.ends
    if isinstance(bound, str):
        return dtype.itemsize_bits >= BITS_OF_SIZES
    return first <= bound <= last


def _are_pairs(text: str, definition: Definition) -> bool:
    """Whether a constraint compares each element of an input with another's, and says no more."""
    relations = [each.relation for each in parse_all(text, definition)]
    pairs = [relation.pair if relation else None for relation in relations]
    return all(pair and {*pair} <= definition.inputs.keys() for pair in pairs)


def _page_numbers(subject: Subject) -> InputRule | None:
    """Of any page where the reference only calculates with them, as places in a wider dtype."""
    if subject.name not in subject.uses.calculated:
        return None
    own = subject.spec.dtype.itemsize_bits
    is_widened = any(
        spec.dtype in DTYPE_CLASSES["integer"] and spec.dtype.itemsize_bits > own
        for spec in subject.definition.outputs.values()
    )
    pages = 2 ** (own - 1) if is_widened else PAGES
    subject.doubts.append(f"below {pages}")
    return kinds.Integers(min=0, max=pages - 1)


def _zero_points(subject: Subject) -> InputRule | None:
    """Of numbers of 8 bits, of whichever dtype they are: as other tensors, or of either kind."""
    uses = subject.uses
    is_used = subject.name in uses.calculated | uses.numbers
    if not is_used or subject.spec.dtype.itemsize_bits == 8:
        return None
    subject.doubts.append("of 8 bits")
    definition = subject.definition
    others = {spec.dtype for spec in (*definition.inputs.values(), *definition.outputs.values())}
    least, most = -128, 255
    if others & {DType.INT8, DType.UINT8}:
        least = -128 if DType.INT8 in others else 0
        most = 255 if DType.UINT8 in others else 127
    return kinds.Integers(min=least, max=most)


def _seed(subject: Subject) -> InputRule:
    """No more than has room beside a factor of 32 bits, as in hashes of Python's integers.

    Any, where the reference takes no more of it than its halves.
    """
    is_halved = subject.name in subject.uses.seen - subject.uses.more_than_halves
    bits = 63 if is_halved else 31
    most = min(2**bits - 1, int(subject.spec.dtype.ends[1]))
    subject.doubts.append(f"up to {most}")
    return kinds.Integers(min=0, max=most, ends=True)


def _whole_bias(subject: Subject) -> InputRule | None:
    """As large as sums of a few products of bytes."""
    if subject.name not in subject.uses.calculated:
        return None
    most = min(2**15, int(subject.spec.dtype.ends[1]))
    subject.doubts.append(f"from -{most} to {most}")
    return kinds.Integers(min=-most, max=most)


def _lengths(subject: Subject) -> InputRule | None:
    axis = subject.uses.lengths.get(subject.name)
    if axis is None or subject.uses.beyond.get(subject.name) != axis:
        return _lengths_along(subject, axis)
    least = 0 if subject.may_be_empty else 1
    return kinds.Integers(min=least, max=f"{TIMES_AS_LONG} * {axis}")


def _compared(subject: Subject) -> InputRule | None:
    """A number that elements of another input are compared with: one that these may be.

    Or -1, where that is whether they are equal.
    """
    for other, _, _ in sorted(subject.uses.edges.get(subject.name, ()), key=str):
        spec = subject.definition.inputs[other]
        if spec.is_scalar:  # which may be compared with this one
            continue
        rule = _rule_of(other, subject)
        if isinstance(rule, kinds.Indices | kinds.Positions):
            subject.doubts.append(f"as {other}")
            least = -1 if subject.name in subject.uses.equated else 0  # as many are taken, or none
            return kinds.Integers(min=least, max=more(rule.below, -1), ends=True)
    return None


def _side_by_side(subject: Subject) -> InputRule | None:
    """Counts of which each is compared with another one's, so that equal ones are frequent."""
    uses, inputs = subject.uses, subject.definition.inputs
    beside = uses.edges.get(subject.name, ())
    is_more = subject.name in {*uses.lengths, *uses.cuts, *uses.spans, *uses.offsets, *uses.sliced}
    if is_more or any(size != 0 or inputs[other].is_scalar for other, _, size in beside):
        return None
    subject.doubts.append(f"from 0 to {FEW}")
    return kinds.Integers(min=0, max=FEW) if beside else None


def _shift(subject: Subject) -> InputRule | None:
    """Up to 15 bits, which numbers of 16 bits have as well."""
    if subject.name not in subject.uses.shifts:
        return None
    subject.doubts.append(f"from 0 to {MOST_SHIFT}")
    return kinds.Integers(min=0, max=MOST_SHIFT, ends=True)


def _switch(subject: Subject) -> InputRule | None:
    """A number of which only is asked whether it is true."""
    is_switch = subject.name in subject.uses.seen - subject.uses.more_than_true
    return kinds.Integers(min=0, max=1) if is_switch else None


def _begin(subject: Subject) -> InputRule | None:
    """The first of so many places of an axis, as a size says: the last of them is on it as well."""
    found = subject.uses.begins.get(subject.name)
    if found is None:
        return None
    axis, size = found
    return kinds.Integers(min=0, max=f"{axis} - {size}", ends=True)


def _norm(subject: Subject) -> InputRule | None:
    """Norms of rows, or the most that these may be; not weights, which have a last axis."""
    shapes = [spec.shape for spec in subject.definition.inputs.values() if spec.shape]
    lasts = {shape[-1] for shape in shapes if len(shape) > 1}
    are_weights = lasts & {*(subject.spec.shape or ())}
    is_divisor = subject.name in subject.uses.divisors
    return None if are_weights or is_divisor else kinds.Uniform(min=0.0, max=4.0)


def _window(subject: Subject) -> InputRule | None:
    """As many tokens as a sequence has, or fewer; -1 where the reference asks for that."""
    of_tokens = subject.input("k", "key", "q", "query", "qkv", "k_cache", "kv_cache")
    spec = subject.definition.inputs.get(of_tokens or "")
    along = [axis for axis in (spec and spec.shape) or () if re.fullmatch(_TOKENS, axis)]
    if not along:
        return None
    subject.doubts.append(f"up to {along[0]}")
    is_switch = 0 in subject.uses.limits.get(subject.name, ())
    least = subject.uses.pads.get(subject.name, 0 if is_switch else 1)
    return kinds.Integers(min=least, max=along[0], ends=True)


def _scalar_length(subject: Subject) -> InputRule | None:
    """As many as there are along an axis, or fewer; not what a constraint makes an axis' size."""
    axis, name = subject.uses.lengths.get(subject.name), subject.name
    texts = constraints_on(name, subject.definition)
    if any(re.fullmatch(rf"\w+ == {name}|{name} == \w+", text) for text in texts):
        return None
    return None if axis is None else _up_to(axis, subject)


def _up_to(most: str, subject: Subject) -> InputRule:
    """From 1 on; from 0, or -1, where the reference takes that."""
    least = 0 if subject.may_be_empty else 1
    return kinds.Integers(min=subject.uses.pads.get(subject.name, least), max=most, ends=True)


def _less_places(subject: Subject) -> InputRule | None:
    """Lengths, of which the reference takes the places of an axis: how many are left there."""
    axis = subject.uses.less_places.get(subject.name)
    return _lengths_along(subject, axis if axis in subject.definition.axes else None)


def _named_lengths(subject: Subject) -> InputRule | None:
    """Lengths of rows, where all tensors of such rows go on with the same axis."""
    shape, inputs = subject.spec.shape or (), subject.definition.inputs.values()
    shapes = [spec.shape for spec in inputs if spec.shape and len(spec.shape) > 1]
    behind = {each[1] for each in shapes if each[:1] == shape}
    is_one = len(behind) == 1 and behind <= {*subject.definition.var_axes}
    if len(shape) != 1 or not is_one or _decides_a_size(subject):
        return None
    axis = behind.pop()
    subject.doubts.append(f"up to {axis}")
    return kinds.SeqLens(max=axis, allow_empty=subject.may_be_empty)


def _taken(subject: Subject) -> InputRule | None:
    """No more than the lengths may be that it is taken from."""
    rule = _rule_of(subject.uses.taken.get(subject.name), subject)
    if not isinstance(rule, kinds.SeqLens):
        return None
    subject.doubts.append(f"up to {rule.max}")
    return _up_to(str(rule.max), subject)


def _rule_of(name: str | None, subject: Subject) -> InputRule | None:
    """How another input is made: as the definition says, or else as its use does."""
    if name is None:
        return None
    stated = subject.definition.workloads and subject.definition.workloads.inputs.get(name)
    spec = subject.definition.inputs[name]
    if stated:
        return stated
    beside = infer(replace(subject, name=name, spec=spec, doubts=[]))
    return None if beside is None else beside.rule


def _relative_positions(subject: Subject) -> InputRule | None:
    """Positions that are only subtracted and compared: within a few lengths of each other.

    Those of the axis whose places they are held against, or of their own.
    """
    uses = subject.uses
    axis = uses.spans.get(subject.name) or (subject.spec.shape or ("",))[-1]
    if not axis or subject.name not in uses.calculated | uses.edges.keys():
        return None
    subject.doubts.append(f"below {TIMES_AS_LONG} * {axis}")
    return kinds.Positions(below=f"{TIMES_AS_LONG} * {axis}")


def _searched(subject: Subject) -> InputRule | None:
    if subject.name not in subject.uses.searched or not subject.spec.shape:
        return None
    if not subject.spec.dtype.is_floating:
        subject.doubts.append("from 0 to 100")
    return kinds.Sorted()


def _share_of(subject: Subject) -> InputRule | None:
    if subject.name not in subject.uses.shares:
        return None
    return kinds.Uniform(min=LEAST_THRESHOLD, max=1.0, ends=True)


def _positive(subject: Subject) -> InputRule | None:
    return kinds.Uniform(min=0.0) if subject.name in subject.uses.positive else None


def _divisor(subject: Subject) -> InputRule | None:
    """Not near zero; of either sign where each element has one of its own."""
    uses, shape = subject.uses, subject.spec.shape or ()
    if subject.name not in uses.divisors - uses.limited:
        return None
    if subject.name in uses.shares_of_one:  # as what is left of a signal
        return kinds.Uniform(min=LEAST_THRESHOLD, max=BELOW_ONE)
    most = max(len(spec.shape or ()) for spec in subject.definition.inputs.values())
    return kinds.Scales(
        min=0.25, max=4.0, signed=len(shape) == most > 0 and subject.name not in uses.positive
    )


def _mask(subject: Subject) -> InputRule | None:
    """Where it is added, 0 or -inf, but not -inf in a whole row: that may mean NaN; else 0 or 1."""
    if subject.spec.dtype.is_floating and subject.name not in subject.uses.factors:
        is_added = subject.name in subject.uses.added and subject.spec.shape
        return kinds.Mask(allow_empty=False) if is_added else None
    is_integer = subject.spec.dtype in DTYPE_CLASSES["integer"]
    are_bits = is_integer and subject.name in subject.uses.shifted | subject.uses.any_bits
    are_rows = is_integer and subject.name in subject.uses.pads
    return None if are_bits or are_rows else _truths(subject)


def _truths(subject: Subject) -> InputRule:
    """As many as a constraint says, as in ``n == mask.sum().item()``."""
    return kinds.Boolean(total=subject.sums.get(subject.name))


def _rows_of_one(subject: Subject) -> InputRule | None:
    """A vector may hold the probability of something else in each element, by a longer name."""
    is_distribution = subject.name.startswith("prob") or len(subject.spec.shape or ()) > 1
    return kinds.Probabilities() if is_distribution else None


def _softmax_scale(subject: Subject) -> InputRule | None:
    latent = subject.definition.op_type.startswith("mla") or subject.axis("ckv_dim", "head_dim_ckv")
    names = ("head_dim", "head_dim_qk", "head_size", "head_k_dim", "qk_head_dim")
    of_queries = subject.dim(subject.input("q", "query"), -1)
    dim = MLA_HEAD_DIM if latent else subject.const(*names, of_queries or "")
    return None if dim is None else _near(1 / sqrt(dim))(subject)


def _some_factor(subject: Subject) -> InputRule:
    """Up to 1; below that where the reference subtracts it from 1, which something may divide by.

    As with moments, ``m / (1 - beta**step)``: a kernel in Python raises an error for 0. One that
    may be 0, so that something is switched off, may be above 1 too, unless it is subtracted so.
    What the reference compares it with is among the numbers; what tensors are compared with is
    small or large beside them.
    """
    called = r"([\w.]+\()?\(?\s*"  # as in 1 - pow(beta, step)
    from_one = re.search(
        rf"(?<![\d.])1(\.0*)?\s*-\s*{called}{subject.name}\b", subject.definition.reference
    )
    name, uses, limits = subject.name, subject.uses, subject.uses.limits.get(subject.name, ())
    from_one = from_one or re.fullmatch(_BELOW_ONE, name)
    if name in uses.scalars.thresholds and not limits:
        are_shares = bool(uses.calls & {"softmax", "sigmoid"}) or "thresh" not in name
        least = 0.0 if "margin" in name else LEAST_THRESHOLD
        is_divisor = re.search(rf"/ *\( *1(\.0*)? *- *{name}\b", subject.definition.reference)
        most = BELOW_ONE if is_divisor else 1.0 if are_shares else MOST_THRESHOLD
        return kinds.Uniform(min=least, max=most)
    may_be_off = name in uses.scalars.zero or uses.scalars.asks(name, 0)
    is_small = re.fullmatch(_SMALL, name) is not None
    is_small |= "leaky_relu" in uses.calls  # max(x, slope * x) is one up to there
    may_be_above = name in uses.scalars.zero - uses.scalars.shares and not is_small
    may_be_above |= re.fullmatch(_SCALE, name) is not None
    most = (
        BELOW_ONE if from_one and not uses.scalars.asks(name, 1) else 2.0 if may_be_above else 1.0
    )
    return kinds.Uniform(min=0.0 if may_be_off else 0.5, max=most)


def _momentum(subject: Subject) -> InputRule:
    """A share that may be 0, but not Nesterov's, which optimisers refuse then."""
    texts = (subject.definition.name, subject.definition.reference)
    is_nesterov = any("nesterov" in text.lower() for text in texts)
    return kinds.Uniform(min=0.5, max=0.9375, ends=True) if is_nesterov else _SHARE


def _clip_range(subject: Subject) -> InputRule | None:
    """As PPO clips ratios to ``1 - eps`` and ``1 + eps``; not what shares are kept from 0 and 1 by.

    Epsilons by their names, of which those are small that are least themselves.
    """
    is_range = re.search(
        rf"(?<![\d.])1(\.0*)?\s*[-+]\s*\(?{subject.name}\b", subject.definition.reference
    )
    is_least = subject.name in subject.uses.least
    return kinds.Uniform(min=0.05, max=0.5) if is_range and not is_least else None


def _logit_scale(subject: Subject) -> InputRule | None:
    """Of the logits of a loss, up to 64 as ArcFace's; attention's is another."""
    makes_loss = subject.uses.calls & {"cross_entropy", "log_softmax", "logsumexp", "nll_loss"}
    has_classes = bool(subject.uses.picks) and not subject.input("q", "query", "k", "key")
    return kinds.Uniform(min=1.0, max=64.0) if makes_loss and has_classes else None


def _inverse_scale(subject: Subject) -> InputRule:
    """Of gradients that were scaled by up to 65536."""
    return kinds.Uniform(min=2.0**-16, max=1.0, ends=True)


def _base(subject: Subject) -> InputRule | None:
    """Of rotary embeddings, where the reference takes sines of what its powers are."""
    raised = rf"\b{subject.name}\)?\s*\*\*|(pow|log2?)\((float\()?{subject.name}\b"
    is_raised = re.search(raised, subject.definition.reference) is not None
    is_of_angles = bool(subject.uses.calls & {"sin", "cos", "polar"})
    return kinds.Uniform(min=1e4, max=5e5) if is_of_angles and is_raised else None


def _signed(subject: Subject) -> InputRule:
    return kinds.Uniform(min=-1.0, max=1.0)


def _temperature(subject: Subject) -> kinds.Uniform:
    """Around 1; where the reference compares it with 0 or so, that is a greedy choice."""
    limits, checked = subject.uses.limits.get(subject.name, ()), subject.uses.scalars.checked
    is_greedy = any(limit < LEAST_TEMPERATURE for limit in limits) and subject.name not in checked
    return kinds.Uniform(min=0.0 if is_greedy else 0.5, max=2.0)


def _temperatures(subject: Subject) -> InputRule:
    return _temperature(subject).model_copy(update={"ends": True})


def _uniforms(subject: Subject) -> InputRule:
    """Below 1, unless the reference says what to do with 1."""
    return kinds.Uniform(ends=subject.name in subject.uses.clamped)


def _soft_cap(subject: Subject) -> InputRule:
    """Gemma 2 has 30 and 50. Below 1 nearly all scores would be at the cap, and alike.

    Where the reference compares it with 0, that is none.
    """
    may_be_none = 0 in subject.uses.limits.get(subject.name, ())
    return kinds.Uniform(min=0.0 if may_be_none else 1.0, max=50.0)


def _clamp_limit(subject: Subject) -> InputRule | None:
    """What is clamped is now and then between limits, now and then beyond; these don't cross."""
    if not subject.spec.dtype.is_floating:  # of numbers that are rounded to bytes
        if subject.name in subject.uses.most:
            outputs = [spec.dtype for spec in subject.definition.outputs.values()]
            narrow = [each.ends[1] for each in outputs if each in _NARROW]
            return kinds.Integers(min=1, max=int(max(narrow, default=255)), ends=True)
        is_least = subject.name in subject.uses.least
        return kinds.Integers(min=-128, max=0, ends=True) if is_least else None
    if subject.name in subject.uses.most:
        may_be_off = 0 in subject.uses.limits.get(subject.name, ())
        return kinds.Uniform(min=0.0 if may_be_off else 0.5, max=24.0)
    return kinds.Uniform(min=0.01, max=0.5) if subject.name in subject.uses.least else None


def _expert_offset(subject: Subject) -> InputRule | None:
    experts = subject.const("num_experts", "num_global_experts", "experts")
    local = subject.const("num_local_experts", "local_experts")
    if experts is None and local is None:
        return None
    if experts is None or local is None:  # all of them are here
        return FixedValue(value=0)
    return kinds.Integers(min=0, max=experts - local)


def _router_logits(subject: Subject) -> InputRule | None:
    """Any values where the reference chooses nothing by them, or says which of equal ones.

    It does if all its choices are sorts that are said to be stable.
    """
    reference = subject.definition.reference
    choices = [word for word in re.findall(r"\.(\w+)", reference) if word in CHOICES]
    stable = re.findall(r"\bstable\s*=\s*True\b", reference)
    are_stable = {*choices} <= {"sort", "argsort"} and len(stable) >= len(choices)
    is_free = bool(subject.uses.calls) and are_stable  # of which no choice at all is one
    calls = subject.uses.calls
    is_far = "softmax" in calls and not calls & {"sigmoid", "logsigmoid", "exp"}
    tensors = [spec for spec in subject.definition.inputs.values() if spec.dtype.is_floating]
    only_routes = all(spec is subject.spec or len(spec.shape or ()) < 2 for spec in tensors)
    is_low = "sigmoid" in calls and not calls & {"softmax", "exp"}
    return None if is_free else kinds.RouterLogits(far=is_far, low=is_low, ties=only_routes)


def _routing_bias(subject: Subject) -> InputRule | None:
    """Multiples of what lies between the scores of ``router_logits``, which stay apart so."""
    experts = subject.dim(subject.name, -1)
    if experts is None:
        return None
    n = subject.const(experts)
    if n is None:
        return kinds.Integers(min=f"-12 / {experts}", max=f"12 / {experts}", step=f"1 / {experts}")
    step = 1 / power_of_two(n)
    return kinds.Integers(min=-12 * step, max=12 * step, step=step)


def _packed(subject: Subject) -> InputRule | None:
    """Bytes of two numbers each, by the name of an axis."""
    packed = any("packed" in axis for axis in subject.spec.shape or ())
    return kinds.Fp4() if packed and subject.name not in subject.uses.shifted else None


def _within_heads(subject: Subject) -> list[str] | None:
    """The axes after the heads' own: where there are heads, each has one value, with stride 0."""
    shape = subject.spec.shape or ()
    heads = next((i for i, axis in enumerate(shape) if "head" in axis), len(shape) - 1)
    return list(shape[heads + 1 :]) or None


def _rates(subject: Subject) -> InputRule:
    """Negative, as states that grow are soon infinite; of heads, near -1."""
    has_heads = any("head" in axis for axis in subject.spec.shape or ())
    # In (-1.5, -0.5]: both ends may be reached by rounding, so the open one is kept away from.
    low, high = (-1.45, -0.5) if has_heads else (-16.0, -1 / 16)
    return kinds.Uniform(min=low, max=high, broadcast=_within_heads(subject))


def _skip(subject: Subject) -> InputRule | None:
    """Any values; of each head the same one."""
    within = _within_heads(subject)
    return None if within is None else kinds.Values(broadcast=within)


def _of_a_step(subject: Subject) -> InputRule:
    """Sizes of steps are positive; before a softplus, of which most are small, of either sign."""
    has_softplus = "softplus" in subject.definition.reference
    low, high = (-6.0, 2.0) if has_softplus else (0.0, 1.0)
    return kinds.Uniform(min=low, max=high, broadcast=_within_heads(subject))


def _decays(subject: Subject) -> InputRule:
    """What is left of a number; its logarithm; or, where that is negated, the logarithm's own."""
    is_negated = subject.uses.raised.get(subject.name)
    if is_negated is None:
        return kinds.Uniform()
    return kinds.Uniform(min=-6.0, max=2.0) if is_negated else _LOG_OF_A_DECAY


def _log_decays(subject: Subject) -> InputRule | None:
    """Not positive, where the reference takes an exponential of something."""
    return _LOG_OF_A_DECAY if subject.uses.calls & {"exp", "exp2"} else None


#: 1 less of that is a divisor of many references.
_SHARE = kinds.Uniform(min=0.0, max=0.9375, ends=True)
#: How a reference makes numbers of few bits, or takes them apart.
_QUANTISES = re.compile(r"\btorch\.(u?int8|float8\w*|round)\b|\.round\(|>>")
#: As optimisers have them of each parameter.
_STEP_SIZES = kinds.Scales(min=2**-9, max=2**5)
#: The largest factor that is less than 1, in bfloat16 too.
BELOW_ONE = 1 - 2.0**-8
#: Of rates from 1/16 to 16.
_LOG_OF_A_RATE = kinds.Uniform(min=-2.77, max=2.77)
#: On average that of numbers between 0 and 1.
_LOG_OF_A_DECAY = kinds.Uniform(min=-2.0, max=0.0)


#: Functions that choose by values, of which equal ones leave a choice.
CHOICES = {"topk", "argmax", "argsort", "sort", "max", "kthvalue", "multinomial"}

_MOE = r"(moe|routing).*"
_ATTENTION = r"(gqa|mla|dsa|gdn|attention).*"

_STEPS = r"(?!num_)(.*_)?(steps?|iter(ation)?)"
_INTERVAL = r"(.*_)?(every|interval|period|freq(uency)?)(_.*)?"
_COUNTS = r"(.*_)?(counts?|occurrences)"
#: Whole numbers that outputs are rounded to.
_NARROW = (DType.INT8, DType.UINT8, DType.INT16)
_FLAGS = r"(is|has|do|no|use|skip)_.*|(.*_)?(dones?|terminated|truncated|flags?|valid|alive|active)"
_FLAGS += r"|(.*_)?(resets?|h?flip)"
_PIXELS, _SAMPLES = r"images?|img|frames?|pixels?", r"pcm|audio|waveforms?"
_MASK = r"(.*_)?mask(_.*)?"
_ZERO_POINTS = r"(.*_)?(azp|zp|zero_points?|zeros?)"

_LENGTHS, _LENGTHS_OF_ROWS = r"(.*_)?(lens?|lengths?)", r"(?!seq|kv|context)(.*_)?(lens|lengths)"
_OF_TOKENS = r"(?!(num|min|max)_)(.*_)?(input_ids|token_ids|tokens)"
#: Axes of the tokens of sequences.
_TOKENS = r"(.*_)?(len|length|tokens?|seq|seqlen|kv|keys|queries)|[st]|total(_.*)?"
#: How names of what is no gradient begin.
_NO_GRADIENT = r"(?!d_|.*grad)"
#: Settings that are 0 where they are switched off.
_SHARES = r"(.*_)?(drop(out)?|label_smoothing|weight_decay|dampening)(_(p|prob|rate))?|p_drop.*"

_STARTS, _ENDS = r"(.*_)?(starts?|begins?)", r"(.*_)?ends?"
#: Rates of learning, sizes of steps and slopes, which are no more than 1.
_SMALL = r"(.*_)?(lr|rate|dt|h|step_size|slope)"

#: What averages over time are multiplied by: 1 less that may be divided by.
_BELOW_ONE = r"(.*_)?beta_?\d"

#: What is put where nothing is.
_FILLED = r"(fill|pad(ding)?)(_value)?"

_BOUND = r"(.*_)?(ub|upper_bound)"
_INVERSE = r"inv_((loss|grad)_)?scale|(loss|grad)_scale_inv"
_COMPARED = r"(.*_)?(lens?|lengths?|tokens|counts?|steps|generated)|(num|min|max)_.*"
_EPSILON = r"(.*_)?eps(ilon)?"
_SCALE = r"(.*_)?(scales?|sf[a-z]?)(_.*)?|[abkqvwx]_s"

_LOG_SCALE = r"(.*_)?log_(.*_)?scales?"

#: The table. In each group, what is particular comes before what is general.
RULES: tuple[Rule, ...] = (
    # Scalars.
    Rule("1/sqrt(head dim)", r"(sm|softmax|attn)_scale", _softmax_scale, "floating", scalar=True),
    Rule("1/sqrt(head dim)", "scale", _softmax_scale, "floating", _ATTENTION, scalar=True),
    Rule("how far from 1 a ratio may be", _EPSILON, _clip_range, "floating", scalar=True),
    Rule("the base of angles", r"(.*_)?(theta|base)", _base, "floating", scalar=True),
    Rule("an epsilon", _EPSILON, _near(1e-6), "floating", scalar=True),
    Rule("a soft cap", r"(.*_)?soft_?cap(ping)?|logits?_cap", _soft_cap, "floating", scalar=True),
    Rule("first local expert", "local_expert_offset", _expert_offset, "integer", scalar=True),
    Rule("DeepSeek's", "routed_scaling_factor", _near(2.5), "floating", scalar=True),
    Rule("in (0, 1]", "top_ps?", lambda s: kinds.Uniform(min=0.1), "floating", scalar=True),
    Rule("in [0, 1]", _CUTOFFS, lambda s: kinds.Uniform(ends=True), "floating", scalar=True),
    Rule("up to the vocabulary", "top_ks?", _top_k, "integer", scalar=True),
    Rule("true or false", ".*", lambda s: kinds.Boolean(), "bool", scalar=True),
    Rule("a step, to whose power the reference raises", ".*", _exponent, "integer", scalar=True),
    Rule("a window of tokens", r"(.*_)?window(_.*)?", _window, "integer", scalar=True),
    Rule(
        "a length, at which the reference cuts an axis off",
        ".*",
        _scalar_length,
        "integer",
        scalar=True,
    ),
    Rule("a number that is taken from lengths", ".*", _taken, "integer", scalar=True),
    Rule("a number along an axis that it picks of", ".*", _picked, "integer", scalar=True),
    Rule("a step", _STEPS, _step, "integer", scalar=True),
    Rule("an interval of steps", _INTERVAL, _interval, "integer", scalar=True),
    Rule("counts", _COUNTS, _counts, "integer", scalar=True),
    Rule("one of those that the reference asks for", ".*", _choice, "integer", scalar=True),
    Rule("a seed", r"(.*_)?seed", _seed, "integer", scalar=True),
    Rule("a zero point", _ZERO_POINTS, _zero_points, "integer", scalar=True),
    Rule("where numbers start that count", ".*", _beside_start, "integer", scalar=True),
    Rule("a number that others are compared with", ".*", _compared, "integer", scalar=True),
    Rule("where so many begin", ".*", _begin, "integer", scalar=True),
    Rule("by how many bits others are shifted", ".*", _shift, "integer", scalar=True),
    Rule("a switch", ".*", _switch, "integer", scalar=True),
    Rule("what a constraint ties to axes", ".*", _tied, "integer", scalar=True),
    Rule("a divisor, which is not 0", ".*", _scalar_divisor, "integer", scalar=True),
    Rule("a number that the reference puts into an output", ".*", _put, "integer", scalar=True),
    Rule("what something is clamped to", ".*", _clamp_limit, "not packed", scalar=True),
    Rule("a share, which may be 0", _SHARES, lambda s: _SHARE, "floating", scalar=True),
    Rule(
        "of either sign", rf"(.*_)?(offset|shift|bias|{_FILLED})", _signed, "floating", scalar=True
    ),
    Rule(
        "decibels below the most",
        "top_db",
        lambda s: kinds.Uniform(min=10.0, max=100.0),
        "floating",
        scalar=True,
    ),
    Rule("a momentum", r"(.*_)?momentum", _momentum, "floating", scalar=True),
    Rule("around 1", r"(.*_)?temp(erature)?", _temperature, "floating", scalar=True),
    Rule("a scale of logits", "(logit_)?scale", _logit_scale, "floating", scalar=True),
    Rule("the inverse of a scale", _INVERSE, _inverse_scale, "floating", scalar=True),
    Rule("some factor", ".*", _some_factor, "floating", scalar=True),
    # Page tables and sequences.
    Rule("offsets by a constraint", ".*", _offsets, "integer"),
    Rule("lengths that a constraint sums", ".*", _summands, "integer"),
    Rule("offsets of sequences", r".*indptr|cu_.*|.*_offsets", _indptr, "integer"),
    Rule("distinct pages", r"(.*_)?kv_indices|page_indices", _below("num_pages"), "integer"),
    Rule("fill of the last page", r".*last_page_len", _last_page_len, "integer"),
    Rule("tokens, -1 pads", r"(sparse|topk)_indices", _tokens_of_pages, "integer", "dsa.*"),
    Rule("lengths of sequences", r"(cache_)?seq_?lens|(kv|context)_lens", _seq_lens, "integer"),
    Rule("pages of sequences", r"block_tables?|page_table", _block_table, "integer"),
    Rule(
        "distinct states",
        r".*(state|cache).*(indices|idx)",
        _below("state_cache_size", "pool_size", "num_states", "cache_size"),
        "integer",
    ),
    Rule("positions", r"positions|pos_ids|position_ids", _positions, "integer"),
    Rule("tokens", _OF_TOKENS, _token_ids, "integer"),
    # Routing and sampling.
    Rule("experts of tokens", r"topk_ids|expert_ids", _topk_ids, "integer"),
    Rule(
        "weights of experts",
        r"(topk|expert)_(weights|scores)",
        lambda s: kinds.Probabilities(),
        "floating",
        _MOE,
    ),
    Rule(
        "no ties",
        r"(router|routing|gating|gate)_(logits|output)",
        _router_logits,
        "floating",
        _MOE,
    ),
    Rule("keeps them apart", r"rout(er|ing)_bias", _routing_bias, "floating", _MOE),
    Rule("up to the vocabulary", "top_ks?", _top_k, "integer"),
    Rule("in (0, 1]", "top_ps?", _of_rows(kinds.Uniform(min=0.1, ends=True)), "floating"),
    Rule("in [0, 1]", _CUTOFFS, _of_rows(kinds.Uniform(ends=True)), "floating"),
    Rule("in [0, 1)", r"(.*_)?(uniforms?|rand)(_.*)?", _uniforms, "floating"),
    Rule("around 1", "(inv_)?temp(erature)?s?", _of_each_row(_temperatures), "floating"),
    Rule(
        "rows that sum to 1",
        rf"{_NO_GRADIENT}(?!.*log)(.*_)?prob(s|abilities)",
        _rows_of_one,
        "floating",
    ),
    # Tables and scales.
    Rule("cosines and sines", "cos_sin_cache", lambda s: kinds.CosSinCache(), "floating"),
    Rule("cosines", "cos(_cache)?", _rotary(kinds.Cos), "floating"),
    Rule("sines", "sin(_cache)?", _rotary(kinds.Sin), "floating"),
    Rule("fp8 pages and scales", r".*index.*cache.*fp8", lambda s: kinds.Fp8Pages(), "bytes"),
    Rule("a bound", _BOUND, _of_one(kinds.Uniform(min=0.5, max=24.0)), "floating"),
    Rule(
        "logarithms of scales", _LOG_SCALE, lambda s: kinds.Uniform(min=-6.0, max=2.0), "floating"
    ),
    Rule("positive scales", _SCALE, _factors, "floating"),
    Rule("sizes of steps", r"(.*_)?step_sizes?", lambda s: _STEP_SIZES, "floating"),
    Rule("norms", r"(.*_)?norms?", _of_each_row(_norm), "floating"),
    Rule("pairs of e2m1", ".*", lambda s: kinds.Fp4(), "fp4"),
    Rule("pairs of e2m1 by an axis", ".*", _packed, "bytes"),
    # Recurrent state.
    Rule("unit length", "k", lambda s: kinds.L2Normalized(), "floating", "gdn.*"),
    Rule("small gates", r"A_log|a|dt_bias|b", _normal(0.1), "floating", "gdn.*"),
    Rule("a small state", r".*states?(_buffer)?", _normal(0.01), "floating", "gdn.*"),
    Rule("the log of 1/16 to 16", "A_log", lambda s: _LOG_OF_A_RATE, "floating"),
    Rule("rates of decay", "A", _rates, "floating", "mamba.*"),
    Rule("sizes of steps", "dt|dt_bias", _of_a_step, "floating", "mamba.*"),
    Rule("one value per head", "D", _skip, "floating", "mamba.*"),
    # By what the reference does with it.
    Rule("offsets, at which the reference cuts an axis", ".*", _cut, "integer"),
    Rule("where so many begin", ".*", _begin, "integer"),
    Rule("lengths, at which the reference cuts an axis off", ".*", _lengths, "integer"),
    Rule("numbers along an axis that the reference indexes with it", ".*", _picked, "integer"),
    Rule("offsets, whose differences the reference takes", ".*", _differences, "integer"),
    Rule("by how many bits others are shifted", ".*", _shift, "integer"),
    Rule("sorted, as the reference searches in it", ".*", _searched, "not packed"),
    Rule("flags", ".*", _flags, "integer"),
    Rule("a divisor, which is not 0", ".*", _whole_divisor, "integer"),
    Rule("pixels or samples", rf"(.*_)?({_PIXELS}|{_SAMPLES})", _pixels, "integer"),
    Rule("numbers that the reference calculates with", ".*", _bytes, "integer"),
    Rule("labels, which the reference only compares", ".*", _equated, "integer"),
    Rule("numbers that the reference only moves", ".*", _moved, "integer"),
    Rule("compared with shares of a softmax", ".*", _share_of, "floating"),
    Rule("a divisor of the reference", ".*", _divisor, "floating"),
    Rule("under a root or in a logarithm of the reference", ".*", _positive, "floating"),
    Rule("a mask", _MASK, _mask, "not packed"),
    Rule("labels, of which the reference asks for some", ".*", _asked, "integer"),
    Rule("positions, of which the reference takes sines", ".*", _angles, "integer"),
    Rule("numbers that the reference sorts", ".*", _ordered, "integer"),
    Rule("lengths, less the places of an axis", _LENGTHS, _less_places, "integer"),
    Rule("any numbers for the reference to calculate with", ".*", _calculated, "integer"),
    Rule("bytes that the reference takes apart", ".*", _parts_of_bytes, "bytes"),
    Rule("numbers below a start", ".*", _beside_start, "integer"),
    Rule(
        "positions", r"(.*_)?(positions?|pos(_ids)?|position_ids)", _relative_positions, "integer"
    ),
    Rule("counts", rf"{_COUNTS}|(.*_)?(num_.*|lens|lengths)", _counts, "integer"),
    Rule("counts, compared with others", _COMPARED, _side_by_side, "integer"),
    Rule("numbers of pages", r"block_tables?|page_table", _page_numbers, "integer"),
    Rule("zero points", _ZERO_POINTS, _zero_points, "integer"),
    Rule("a bias", r"(.*_)?bias", _whole_bias, "integer"),
    Rule("numbers of which the reference makes running sums", ".*", _summed, "integer"),
    Rule("tokens of any vocabulary", _OF_TOKENS, _known_tokens, "integer"),
    # What is left.
    Rule("a step", _STEPS, _step, "integer"),
    Rule("lengths of rows", _LENGTHS_OF_ROWS, _named_lengths, "integer"),
    Rule("whether something was infinite", "found_infs?", lambda s: kinds.Boolean(), "floating"),
    Rule("below 1", "betas", lambda s: kinds.Uniform(max=BELOW_ONE), "floating"),
    Rule("a variance", r"(.*_)?var(iance)?", lambda s: kinds.Uniform(min=0.0), "floating"),
    Rule("in (0, 1)", "(.*_)?(weight_decay|momentum)", _of_one(kinds.Uniform()), "floating"),
    Rule("logarithms of decays", r"(.*_)?(log_(.*_)?decay|decay_log)", _log_decays, "floating"),
    Rule("decays", r"(?!.*(log_|weight_))(.*_)?decay", _decays, "floating"),
    Rule("true or false", ".*", _truths, "bool"),
    Rule("by the value pattern", ".*", lambda s: kinds.Values(), "floating"),
)
