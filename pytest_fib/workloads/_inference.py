"""What an input means where the definition does not say: one table of rules, tried in order.

A rule looks at an input's name, its dtype and the definition around it. The first that applies
decides; ``workloads.inputs`` in the definition always comes before any of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_fib.data import Definition, TensorSpec

#: Dimensions of a query-key product before absorption in multi-head latent attention.
MLA_HEAD_DIM = 128 + 64


@dataclass(frozen=True)
class Subject:
    """An input of a definition; ``totals`` has the axes that constraints call an indptr's total."""

    name: str
    spec: TensorSpec
    definition: Definition
    totals: Mapping[str, str]

    def axis(self, *names: str) -> str | None:
        """The first of these axes that the definition has."""
        return next((name for name in names if name in self.definition.axes), None)

    def const(self, *names: str) -> int | None:
        """The value of the first of these axes that is const."""
        values = self.definition.const_axes
        return next((values[name] for name in names if name in values), None)

    def input(self, *names: str) -> str | None:
        """The first of these inputs that the definition has."""
        return next((name for name in names if name in self.definition.inputs), None)

    def dim(self, name: str | None, dim: int) -> str | None:
        """The axis of one dimension of another input."""
        spec = None if name is None else self.definition.inputs.get(name)
        return spec.shape[dim] if spec and spec.shape else None


Params = dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """``name`` and ``op_type`` are regular expressions for the whole of each.

    ``dtype`` is a class of dtypes; ``scalar``, whether the rule is for Python scalars. ``make``
    gives the generator's parameters, or None where the definition lacks what the rule needs.
    """

    says: str
    name: str
    make: Callable[[Subject], Params | None]
    dtype: str = "any"
    op_type: str = ".*"
    scalar: bool = False

    def applies(self, subject: Subject) -> bool:
        """Whether the rule may speak about this input."""
        return (
            subject.spec.is_scalar == self.scalar
            and dtype_matches(self.dtype, subject.spec)
            and re.fullmatch(self.name, subject.name) is not None
            and re.fullmatch(self.op_type, subject.definition.op_type) is not None
        )


def dtype_matches(kind: str, spec: TensorSpec) -> bool:
    """Whether a spec's dtype is ``integer``, ``floating``, ``fp4``, ``bool`` or ``any``."""
    name = spec.dtype.value
    return {
        "any": True,
        "integer": name.startswith(("int", "uint")),
        "floating": spec.dtype.is_floating,
        "fp4": name.startswith("float4"),
        "bool": name == "bool",
    }[kind]


def infer(subject: Subject) -> tuple[Params, str] | None:
    """The parameters of an input's generator and its rule's words, or None where none applies."""
    for rule in RULES:
        if rule.applies(subject) and (params := rule.make(subject)) is not None:
            return params, rule.says
    return None


def _kind(kind: str, **params: Any) -> Params:
    return {"kind": kind, **{k: v for k, v in params.items() if v is not None}}


def _fixed(kind: str, **params: Any) -> Callable[[Subject], Params]:
    return lambda subject: _kind(kind, **params)


def _indptr(subject: Subject) -> Params | None:
    queries = subject.name.startswith(("q", "cu"))
    guesses = ("total_q", "total_tokens", "total_seq_len") if queries else (
        "num_kv_indices", "total_kv", "total_seq_len"
    )  # fmt: skip
    total = subject.totals.get(subject.name) or subject.axis(*guesses)
    if total is None:
        return None
    of_queries = subject.input("qo_indptr", "q_indptr", "cu_seqlens_q")
    if of_queries in (None, subject.name):
        return _kind("indptr", total=total)
    # Pages hold page_size tokens each; the last one of a sequence may hold fewer.
    pages = subject.axis("page_size") if subject.input("kv_indices", "page_indices") else None
    return _kind("indptr", total=total, at_least=of_queries, page_size=pages)


def _below(*axes: str) -> Callable[[Subject], Params | None]:
    def make(subject: Subject) -> Params | None:
        below = subject.axis(*axes)
        return None if below is None else _kind("indices", below=below, unique=True)

    return make


def _tokens_of_pages(subject: Subject) -> Params | None:
    pages, size = subject.axis("num_pages"), subject.axis("page_size")
    if pages is None:
        return None
    return _kind("indices", below=pages if size is None else f"{pages} * {size}", pad=-1)


def _last_page_len(subject: Subject) -> Params | None:
    size = subject.axis("page_size")
    if size is None:
        return None
    tokens = subject.input("qo_indptr", "q_indptr")
    return _kind(
        "last_page_len", page_size=size, indptr=subject.input("kv_indptr"), at_least=tokens
    )


def _seq_lens(subject: Subject) -> Params | None:
    table = subject.input("block_table", "block_tables", "page_table")
    size, pages = subject.axis("page_size", "block_size"), subject.axis("num_pages", "num_blocks")
    if table is not None and size is not None:
        longest: str | None = f"{subject.dim(table, 1)} * {size}"
        return _kind("seq_lens", max=longest, pages=pages, page_size=size)
    longest = subject.axis("max_seq_len", "max_kv_len", "seq_len")
    return None if longest is None else _kind("seq_lens", max=longest)


def _block_table(subject: Subject) -> Params | None:
    pages, size = subject.axis("num_pages", "num_blocks"), subject.axis("page_size", "block_size")
    lengths = subject.input("seq_lens", "cache_seqlens", "kv_lens")
    if pages is None or lengths is None:
        return None
    return _kind("block_table", pages=pages, page_size=size, lengths=lengths)


def _positions(subject: Subject) -> Params | None:
    cache = subject.input("cos_sin_cache")
    below = subject.dim(cache, 0) or subject.axis("max_seq_len", "max_position")
    return None if below is None else _kind("positions", below=below)


def _top_k(subject: Subject) -> Params | None:
    vocabulary = subject.axis("vocab_size", "vocabulary", "num_classes")
    return None if vocabulary is None else _kind("integers", min=1, max=vocabulary)


def _topk_ids(subject: Subject) -> Params | None:
    experts = subject.axis("num_experts", "experts", "num_global_experts")
    if experts is None:
        return None
    # Without weights beside them, they are packed into the ids.
    apart = subject.input("topk_weights", "expert_weights", "topk_scores")
    return _kind("topk_ids" if apart else "routing", experts=experts)


def _softmax_scale(subject: Subject) -> Params | None:
    latent = subject.definition.op_type.startswith("mla") or subject.axis("ckv_dim", "head_dim_ckv")
    dim = subject.const("head_dim", "head_dim_qk", "head_size", "head_k_dim", "qk_head_dim")
    dim = MLA_HEAD_DIM if latent else dim
    return None if dim is None else {"value": 1 / sqrt(dim)}


def _expert_offset(subject: Subject) -> Params | None:
    experts = subject.const("num_experts", "num_global_experts", "experts")
    local = subject.const("num_local_experts", "local_experts")
    if experts is None or local is None:
        return None
    return _kind("integers", min=0, max=experts - local)


def _per_head(low: float, high: float) -> Callable[[Subject], Params]:
    """One value for each head; the dimensions after the head's own are broadcast, with stride 0."""

    def make(subject: Subject) -> Params:
        shape = subject.spec.shape or ()
        heads = next((i for i, axis in enumerate(shape) if "head" in axis), len(shape) - 1)
        return _kind("uniform", min=low, max=high, broadcast=list(shape[heads + 1 :]) or None)

    return make


_ATTENTION = r"(gqa|mla|dsa|gdn|attention).*"

#: The table.
RULES: tuple[Rule, ...] = (
    # Scalars.
    Rule("1/sqrt(head dim)", r"(sm|softmax|attn)_scale", _softmax_scale, "floating", scalar=True),
    Rule("1/sqrt(head dim)", "scale", _softmax_scale, "floating", _ATTENTION, scalar=True),
    Rule("an epsilon", r"(.*_)?eps(ilon)?", lambda s: {"value": 1e-6}, "floating", scalar=True),
    Rule("first local expert", "local_expert_offset", _expert_offset, "integer", scalar=True),
    Rule("DeepSeek's", "routed_scaling_factor", lambda s: {"value": 2.5}, "floating", scalar=True),
    Rule("in (0, 1]", r"(top|min)_p", _fixed("uniform", min=0.1), "floating", scalar=True),
    Rule("in [1, vocabulary]", "top_k", _top_k, "integer", scalar=True),
    Rule("true or false", ".*", _fixed("boolean"), "bool", scalar=True),
    # Page tables and sequences.
    Rule("offsets of sequences", r".*indptr|cu_.*|.*_offsets", _indptr, "integer"),
    Rule("distinct pages", r"(.*_)?kv_indices|page_indices", _below("num_pages"), "integer"),
    Rule("fill of the last page", r".*last_page_len", _last_page_len, "integer"),
    Rule("tokens, -1 pads", r"(sparse|topk)_indices", _tokens_of_pages, "integer", "dsa.*"),
    Rule("lengths of sequences", r"(cache_)?seq_?lens|kv_lens", _seq_lens, "integer"),
    Rule("pages of sequences", r"block_tables?|page_table", _block_table, "integer"),
    Rule(
        "distinct states",
        r".*(state|cache).*(indices|idx)",
        _below("state_cache_size", "pool_size", "num_states", "cache_size"),
        "integer",
    ),
    Rule("positions", r"positions|pos_ids|position_ids", _positions, "integer"),
    # Routing and sampling.
    Rule("experts of tokens", r"topk_ids|expert_ids", _topk_ids, "integer", "moe.*"),
    Rule("in [1, vocabulary]", "top_k", _top_k, "integer"),
    Rule("in (0, 1]", r"(top|min)_p", _fixed("uniform", min=0.1), "floating"),
    Rule("rows that sum to 1", r"probs|probabilities", _fixed("probabilities"), "floating"),
    # Tables and scales.
    Rule("cosines and sines", "cos_sin_cache", _fixed("cos_sin_cache"), "floating"),
    Rule("fp8 pages and scales", r".*index.*cache.*fp8", _fixed("fp8_pages"), "integer"),
    Rule("positive scales", r".*_scales?|scales?|sf[a-z]?", _fixed("scales"), "floating"),
    Rule("pairs of e2m1", ".*", _fixed("fp4"), "fp4"),
    # Recurrent state.
    Rule("unit length", "k", _fixed("l2_normalized"), "floating", "gdn.*"),
    Rule("small gates", r"A_log|a|dt_bias|b", _fixed("normal", std=0.1), "floating", "gdn.*"),
    Rule("a small state", r".*state", _fixed("normal", std=0.01), "floating", "gdn.*"),
    Rule("in [-1.5, -0.5)", "A", _per_head(-1.5, -0.5), "floating", "mamba.*"),
    Rule("one value per head", r"dt|D|dt_bias", _per_head(0.0, 1.0), "floating", "mamba.*"),
    # What is left.
    Rule("true or false", ".*", _fixed("boolean"), "bool"),
    Rule("the regime's values", ".*", _fixed("values"), "floating"),
)
