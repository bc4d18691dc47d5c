"""Rules of pages: the tables of them, and the lengths of sequences that lie in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.data import DTYPE_CLASSES, InputRule, kinds
from pytest_fib.workloads._length_rules import lengths_along

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject

#: Pages where nothing says how many there may be.
PAGES = 2**20


def page_table(subject: Subject) -> InputRule | None:
    """The pages of each sequence, as many as its length needs."""
    pages, size = _pages(subject, subject.name)
    lengths = subject.input("seq_lens", "cache_seqlens", "kv_lens", "context_lens")
    if pages is None or lengths is None:
        return None
    after = subject.said.are_any_after
    return kinds.BlockTable(pages=pages, page_size=size or 1, lengths=lengths, any_after=after)


def sequence_lengths(subject: Subject) -> InputRule | None:
    """Lengths of sequences, as many tokens as the pages of a table hold, or an axis."""
    table = subject.input("block_table", "block_tables", "page_table")
    pages, size = _pages(subject, table) if table else (None, None)
    if table is not None and size is not None:
        longest_in_table = f"{subject.dim(table, 1)} * {size}"
        empty = subject.may_be_empty
        return kinds.SeqLens(max=longest_in_table, pages=pages, page_size=size, allow_empty=empty)
    return lengths_along(subject, subject.axis("max_seq_len", "max_kv_len", "seq_len"))


def last_page_lengths(subject: Subject) -> InputRule | None:
    """How many tokens the last page of each sequence holds."""
    size = subject.axis("page_size")
    if size is None:
        return None
    tokens = subject.input("qo_indptr", "q_indptr")
    return kinds.LastPageLen(page_size=size, indptr=subject.input("kv_indptr"), at_least=tokens)


def tokens_of_pages(subject: Subject) -> InputRule | None:
    """Tokens among all that the pages hold; -1 where there are fewer."""
    pages, size = subject.axis("num_pages"), subject.axis("page_size")
    if pages is None:
        return None
    return kinds.Indices(below=pages if size is None else f"{pages} * {size}", pad=-1)


def page_numbers(subject: Subject) -> InputRule | None:
    """Numbers of pages that the reference only calculates with, as places in a wider dtype."""
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
