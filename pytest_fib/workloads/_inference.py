"""Infers the meaning of inputs from one table of rules, which are tried in order.

A rule looks at an input's name, its dtype and the definition around it. The first that applies
decides; ``workloads.inputs`` in the definition always comes before any of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_fib.data import InputRule, kinds
from pytest_fib.workloads import (
    _count_rules as counts,
    _flag_rules as flags,
    _index_rules as indices,
    _integer_rules as integers,
    _length_rules as lengths,
    _offset_rules as offsets,
    _page_rules as pages,
    _routing_rules as routing,
    _sampling_rules as sampling,
    _scalar_rules as scalars,
    _value_rules as values,
)
from pytest_fib.workloads._described_rules import Described, of_description, within
from pytest_fib.workloads._descriptions import more
from pytest_fib.workloads._rule import Rule, near, normal, of_each_row, of_one, of_rows

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject


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


# Two rules that make an input as another one is, and so infer that one first.


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


def _taken(subject: Subject) -> InputRule | None:
    """No more than the lengths may be that it is taken from."""
    rule = _rule_of(subject.uses.taken.get(subject.name), subject)
    if not isinstance(rule, kinds.SeqLens):
        return None
    subject.doubts.append(f"up to {rule.max}")
    return lengths.up_to(str(rule.max), subject)


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


#: As optimisers have them of each parameter.
_STEP_SIZES = kinds.Scales(min=2**-9, max=2**5)
#: Of rates from 1/16 to 16.
_LOG_OF_A_RATE = kinds.Uniform(min=-2.77, max=2.77)

# Types of ops, and names of inputs.
_MOE = r"(moe|routing).*"
_ATTENTION = r"(gqa|mla|dsa|gdn|attention).*"
_STEPS = r"(?!num_)(.*_)?(steps?|iter(ation)?)"
_INTERVAL = r"(.*_)?(every|interval|period|freq(uency)?)(_.*)?"
_COUNTS = r"(.*_)?(counts?|occurrences)"
_PIXELS, _SAMPLES = r"images?|img|frames?|pixels?", r"pcm|audio|waveforms?"
_ZERO_POINTS = r"(.*_)?(azp|zp|zero_points?|zeros?)"
_LENGTHS, _LENGTHS_OF_ROWS = r"(.*_)?(lens?|lengths?)", r"(?!seq|kv|context)(.*_)?(lens|lengths)"
_OF_TOKENS = r"(?!(num|min|max)_)(.*_)?(input_ids|token_ids|tokens)"
#: How names of what is no gradient begin.
_NO_GRADIENT = r"(?!d_|.*grad)"
#: Settings that are 0 where they are switched off.
_SHARES = r"(.*_)?(drop(out)?|label_smoothing|weight_decay|dampening)(_(p|prob|rate))?|p_drop.*"
#: Shares of all probabilities, by which samplers choose tokens.
_CUTOFFS = r"(min|typical|tail_free|eta)_p"
#: What is put where nothing is.
_FILLED = r"(fill|pad(ding)?)(_value)?"
_BOUND = r"(.*_)?(ub|upper_bound)"
_INVERSE = r"inv_((loss|grad)_)?scale|(loss|grad)_scale_inv"
_COMPARED = r"(.*_)?(lens?|lengths?|tokens|counts?|steps|generated)|(num|min|max)_.*"
_EPSILON = r"(.*_)?eps(ilon)?"
_LOG_SCALE = r"(.*_)?log_(.*_)?scales?"


#: The table. In each group, what is particular comes before what is general.
RULES: tuple[Rule, ...] = (
    # Scalars.
    Rule("1/sqrt(head dim)", r"(sm|softmax|attn)_scale", scalars.sm_scale, "floating", scalar=True),
    Rule("1/sqrt(head dim)", "scale", scalars.sm_scale, "floating", _ATTENTION, scalar=True),
    Rule("how far from 1 a ratio may be", _EPSILON, scalars.clip_range, "floating", scalar=True),
    Rule("the base of angles", r"(.*_)?(theta|base)", scalars.rotary_base, "floating", scalar=True),
    Rule("an epsilon", _EPSILON, near(1e-6), "floating", scalar=True),
    Rule(
        "a soft cap",
        r"(.*_)?soft_?cap(ping)?|logits?_cap",
        scalars.soft_cap,
        "floating",
        scalar=True,
    ),
    Rule("first local expert", "local_expert_offset", routing.first_expert, "integer", scalar=True),
    Rule("DeepSeek's", "routed_scaling_factor", near(2.5), "floating", scalar=True),
    Rule("in (0, 1]", "top_ps?", lambda s: kinds.Uniform(min=0.1), "floating", scalar=True),
    Rule("in [0, 1]", _CUTOFFS, lambda s: kinds.Uniform(ends=True), "floating", scalar=True),
    Rule("up to the vocabulary", "top_ks?", sampling.top_k, "integer", scalar=True),
    Rule("true or false", ".*", lambda s: kinds.Boolean(), "bool", scalar=True),
    Rule(
        "a step, to whose power the reference raises", ".*", counts.exponent, "integer", scalar=True
    ),
    Rule("a window of tokens", r"(.*_)?window(_.*)?", lengths.window, "integer", scalar=True),
    Rule(
        "a length, at which the reference cuts an axis off",
        ".*",
        lengths.cut_length,
        "integer",
        scalar=True,
    ),
    Rule("a number that is taken from lengths", ".*", _taken, "integer", scalar=True),
    Rule("a number along an axis that it picks of", ".*", indices.of_axis, "integer", scalar=True),
    Rule("a step", _STEPS, counts.step, "integer", scalar=True),
    Rule("an interval of steps", _INTERVAL, counts.interval, "integer", scalar=True),
    Rule("counts", _COUNTS, counts.named_counts, "integer", scalar=True),
    Rule("one of those that the reference asks for", ".*", flags.choice, "integer", scalar=True),
    Rule("a seed", r"(.*_)?seed", integers.seed, "integer", scalar=True),
    Rule("a zero point", _ZERO_POINTS, integers.zero_points, "integer", scalar=True),
    Rule("where numbers start that count", ".*", indices.beside_a_start, "integer", scalar=True),
    Rule("a number that others are compared with", ".*", _compared, "integer", scalar=True),
    Rule("where so many begin", ".*", indices.first_of_so_many, "integer", scalar=True),
    Rule("by how many bits others are shifted", ".*", integers.shift, "integer", scalar=True),
    Rule("a switch", ".*", flags.switch, "integer", scalar=True),
    Rule("what a constraint ties to axes", ".*", counts.tied_to_axes, "integer", scalar=True),
    Rule("a divisor, which is not 0", ".*", counts.whole_divisor, "integer", scalar=True),
    Rule(
        "a number that the reference puts into an output",
        ".*",
        integers.put_into_outputs,
        "integer",
        scalar=True,
    ),
    Rule("what something is clamped to", ".*", scalars.clamp_limit, "not packed", scalar=True),
    Rule("a share, which may be 0", _SHARES, lambda s: scalars.SHARE, "floating", scalar=True),
    Rule(
        "of either sign",
        rf"(.*_)?(offset|shift|bias|{_FILLED})",
        scalars.of_either_sign,
        "floating",
        scalar=True,
    ),
    Rule(
        "decibels below the most",
        "top_db",
        lambda s: kinds.Uniform(min=10.0, max=100.0),
        "floating",
        scalar=True,
    ),
    Rule("a momentum", r"(.*_)?momentum", scalars.momentum, "floating", scalar=True),
    Rule("around 1", r"(.*_)?temp(erature)?", sampling.temperature, "floating", scalar=True),
    Rule("a scale of logits", "(logit_)?scale", scalars.logit_scale, "floating", scalar=True),
    Rule("the inverse of a scale", _INVERSE, scalars.inverse_scale, "floating", scalar=True),
    Rule("some factor", ".*", scalars.some_factor, "floating", scalar=True),
    # Page tables and sequences.
    Rule("offsets by a constraint", ".*", offsets.stated_offsets, "integer"),
    Rule("lengths that a constraint sums", ".*", lengths.summed_lengths, "integer"),
    Rule("offsets of sequences", r".*indptr|cu_.*|.*_offsets", offsets.indptr, "integer"),
    Rule(
        "distinct pages", r"(.*_)?kv_indices|page_indices", indices.distinct("num_pages"), "integer"
    ),
    Rule("fill of the last page", r".*last_page_len", pages.last_page_lengths, "integer"),
    Rule("tokens, -1 pads", r"(sparse|topk)_indices", pages.tokens_of_pages, "integer", "dsa.*"),
    Rule(
        "lengths of sequences",
        r"(cache_)?seq_?lens|(kv|context)_lens",
        pages.sequence_lengths,
        "integer",
    ),
    Rule("pages of sequences", r"block_tables?|page_table", pages.page_table, "integer"),
    Rule(
        "distinct states",
        r".*(state|cache).*(indices|idx)",
        indices.distinct("state_cache_size", "pool_size", "num_states", "cache_size"),
        "integer",
    ),
    Rule("positions", r"positions|pos_ids|position_ids", indices.positions, "integer"),
    Rule("tokens", _OF_TOKENS, indices.token_ids, "integer"),
    # Routing and sampling.
    Rule("experts of tokens", r"topk_ids|expert_ids", routing.expert_ids, "integer"),
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
        routing.router_logits,
        "floating",
        _MOE,
    ),
    Rule("keeps them apart", r"rout(er|ing)_bias", routing.routing_bias, "floating", _MOE),
    Rule("up to the vocabulary", "top_ks?", sampling.top_k, "integer"),
    Rule("in (0, 1]", "top_ps?", of_rows(kinds.Uniform(min=0.1, ends=True)), "floating"),
    Rule("in [0, 1]", _CUTOFFS, of_rows(kinds.Uniform(ends=True)), "floating"),
    Rule("in [0, 1)", r"(.*_)?(uniforms?|rand)(_.*)?", sampling.uniform_numbers, "floating"),
    Rule("around 1", "(inv_)?temp(erature)?s?", of_each_row(sampling.temperatures), "floating"),
    Rule(
        "rows that sum to 1",
        rf"{_NO_GRADIENT}(?!.*log)(.*_)?prob(s|abilities)",
        sampling.probabilities,
        "floating",
    ),
    # Tables and scales.
    Rule("cosines and sines", "cos_sin_cache", lambda s: kinds.CosSinCache(), "floating"),
    Rule("cosines", "cos(_cache)?", values.rotary_table(kinds.Cos), "floating"),
    Rule("sines", "sin(_cache)?", values.rotary_table(kinds.Sin), "floating"),
    Rule("fp8 pages and scales", r".*index.*cache.*fp8", lambda s: kinds.Fp8Pages(), "bytes"),
    Rule("a bound", _BOUND, of_one(kinds.Uniform(min=0.5, max=24.0)), "floating"),
    Rule(
        "logarithms of scales", _LOG_SCALE, lambda s: kinds.Uniform(min=-6.0, max=2.0), "floating"
    ),
    Rule("positive scales", scalars.SCALE, values.scales, "floating"),
    Rule("sizes of steps", r"(.*_)?step_sizes?", lambda s: _STEP_SIZES, "floating"),
    Rule("norms", r"(.*_)?norms?", of_each_row(values.norms), "floating"),
    Rule("pairs of e2m1", ".*", lambda s: kinds.Fp4(), "fp4"),
    Rule("pairs of e2m1 by an axis", ".*", values.packed_fp4, "bytes"),
    # Recurrent state.
    Rule("unit length", "k", lambda s: kinds.L2Normalized(), "floating", "gdn.*"),
    Rule("small gates", r"A_log|a|dt_bias|b", normal(0.1), "floating", "gdn.*"),
    Rule("a small state", r".*states?(_buffer)?", normal(0.01), "floating", "gdn.*"),
    Rule("the log of 1/16 to 16", "A_log", lambda s: _LOG_OF_A_RATE, "floating"),
    Rule("rates of decay", "A", values.decay_rates, "floating", "mamba.*"),
    Rule("sizes of steps", "dt|dt_bias", values.step_sizes, "floating", "mamba.*"),
    Rule("one value per head", "D", values.one_per_head, "floating", "mamba.*"),
    # By what the reference does with it.
    Rule("offsets, at which the reference cuts an axis", ".*", offsets.cut_offsets, "integer"),
    Rule("where so many begin", ".*", indices.first_of_so_many, "integer"),
    Rule("lengths, at which the reference cuts an axis off", ".*", lengths.cut_lengths, "integer"),
    Rule(
        "numbers along an axis that the reference indexes with it", ".*", indices.of_axis, "integer"
    ),
    Rule("offsets, whose differences the reference takes", ".*", offsets.differenced, "integer"),
    Rule("by how many bits others are shifted", ".*", integers.shift, "integer"),
    Rule("sorted, as the reference searches in it", ".*", values.searched, "not packed"),
    Rule("flags", ".*", flags.narrow_flags, "integer"),
    Rule("a divisor, which is not 0", ".*", counts.whole_divisors, "integer"),
    Rule("pixels or samples", rf"(.*_)?({_PIXELS}|{_SAMPLES})", integers.pixels, "integer"),
    Rule("numbers that the reference calculates with", ".*", integers.narrow_numbers, "integer"),
    Rule("labels, which the reference only compares", ".*", flags.labels, "integer"),
    Rule("numbers that the reference only moves", ".*", integers.moved, "integer"),
    Rule("compared with shares of a softmax", ".*", values.compared_with_shares, "floating"),
    Rule("a divisor of the reference", ".*", values.divisors, "floating"),
    Rule("under a root or in a logarithm of the reference", ".*", values.positive, "floating"),
    Rule("a mask", flags.MASK, flags.mask, "not packed"),
    Rule("labels, of which the reference asks for some", ".*", flags.asked_labels, "integer"),
    Rule("positions, of which the reference takes sines", ".*", indices.angle_positions, "integer"),
    Rule("numbers that the reference sorts", ".*", integers.ordered, "integer"),
    Rule("lengths, less the places of an axis", _LENGTHS, lengths.lengths_less_places, "integer"),
    Rule("any numbers for the reference to calculate with", ".*", integers.calculated, "integer"),
    Rule("bytes that the reference takes apart", ".*", integers.bytes_taken_apart, "bytes"),
    Rule("numbers below a start", ".*", indices.beside_a_start, "integer"),
    Rule(
        "positions",
        r"(.*_)?(positions?|pos(_ids)?|position_ids)",
        indices.relative_positions,
        "integer",
    ),
    Rule("counts", rf"{_COUNTS}|(.*_)?(num_.*|lens|lengths)", counts.named_counts, "integer"),
    Rule("counts, compared with others", _COMPARED, counts.compared_counts, "integer"),
    Rule("numbers of pages", r"block_tables?|page_table", pages.page_numbers, "integer"),
    Rule("zero points", _ZERO_POINTS, integers.zero_points, "integer"),
    Rule("a bias", r"(.*_)?bias", integers.bias, "integer"),
    Rule("numbers of which the reference makes running sums", ".*", counts.summands, "integer"),
    Rule("tokens of any vocabulary", _OF_TOKENS, indices.tokens_of_any_vocabulary, "integer"),
    # What is left.
    Rule("a step", _STEPS, counts.step, "integer"),
    Rule("lengths of rows", _LENGTHS_OF_ROWS, lengths.row_lengths, "integer"),
    Rule("whether something was infinite", "found_infs?", lambda s: kinds.Boolean(), "floating"),
    Rule("below 1", "betas", lambda s: kinds.Uniform(max=scalars.BELOW_ONE), "floating"),
    Rule("a variance", r"(.*_)?var(iance)?", lambda s: kinds.Uniform(min=0.0), "floating"),
    Rule("in (0, 1)", "(.*_)?(weight_decay|momentum)", of_one(kinds.Uniform()), "floating"),
    Rule(
        "logarithms of decays", r"(.*_)?(log_(.*_)?decay|decay_log)", values.log_decays, "floating"
    ),
    Rule("decays", r"(?!.*(log_|weight_))(.*_)?decay", values.decays, "floating"),
    Rule("true or false", ".*", flags.truths, "bool"),
    Rule("by the value pattern", ".*", lambda s: kinds.Values(), "floating"),
)
