"""Rules of offsets: where each sequence begins or ends."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_fib.data import InputRule, kinds
from pytest_fib.workloads._constraints import constraints_on

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject

_STARTS, _ENDS = r"(.*_)?(starts?|begins?)", r"(.*_)?ends?"


def indptr(subject: Subject) -> InputRule | None:
    """Offsets of sequences (an indptr), along the axis whose total they are split over.

    That is the one that the reference cuts at them, if it does; their name says less.
    """
    queries = re.fullmatch(r"(q|cu).*(?<!k)(?<!kv)", subject.name) is not None
    guesses = ("total_q", "total_tokens", "total_seq_len") if queries else (
        "num_kv_indices", "total_kv", "total_k", "total_seq_len"
    )  # fmt: skip
    known = subject.totals.get(subject.name) or subject.uses.cuts.get(subject.name)
    total = known or subject.axis(*guesses) or _likely_axis(subject)
    if total is None:
        return None
    if parts := _starts_or_ends(total, subject):
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


def stated_offsets(subject: Subject) -> InputRule | None:
    """An indptr, whatever its name, where a constraint says what its last offset is."""
    return indptr(subject) if subject.name in subject.totals else None


def cut_offsets(subject: Subject) -> InputRule | None:
    """Offsets: one more than there are sequences."""
    axis = subject.uses.cuts.get(subject.name)
    if axis is None:
        return None
    return _starts_or_ends(axis, subject) or kinds.Indptr(total=axis, parts=_parts(subject))


def differenced(subject: Subject) -> InputRule | None:
    """Offsets, whatever their name, whose differences the reference takes."""
    return indptr(subject) if subject.name in subject.uses.offsets else None


def _starts_or_ends(total: str, subject: Subject) -> InputRule | None:
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


def _likely_axis(subject: Subject) -> str | None:
    """The first axis of the outputs, or of other inputs, that offsets may be along.

    Before these, one of indices, such as the columns of a sparse matrix.
    """
    definition, own = subject.definition, set(subject.spec.shape or ())
    words = [set(re.findall(r"\w+", text)) for text in definition.constraints]
    taken = own.union(*(each for each in words if each & own))
    indices = (definition.inputs[name] for name in definition.inputs if name in subject.uses.picks)
    specs = (*indices, *definition.outputs.values(), *definition.inputs.values())
    firsts = dict.fromkeys(spec.shape[0] for spec in specs if spec.shape)
    free = [axis for axis in firsts if axis in definition.var_axes and axis not in taken]
    if free:
        subject.doubts.append(f"along {free[0]}")
    return next(iter(free), None)


def _parts(subject: Subject) -> str | None:
    """The number of sequences, where no constraint says how many there are."""
    (length,) = subject.spec.shape if subject.spec.shape and len(subject.spec.shape) == 1 else ("",)
    if length not in subject.definition.var_axes or constraints_on(length, subject.definition):
        return None
    parts = subject.axis("batch_size", "num_seqs", "num_sequences")
    return None if parts == length else parts
