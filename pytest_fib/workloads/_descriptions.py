"""What an input's description says of its numbers, where it says so in one of a few plain forms.

A form counts where a clause begins, and most have to be all of it: ``Gate of each row, 0 to 1.``
says what the numbers are, ``As many as from 0 to 1 take`` doesn't.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec

#: A number, or an expression of axes such as ``vocab - 1``.
Bound: TypeAlias = "int | float | str"

#: What is written otherwise: signs, numbers up to ten, and pi, of which no float32 is more.
_ASCII = str.maketrans({"\N{MINUS SIGN}": "-", "\N{EN DASH}": "-"})
_ASCII |= str.maketrans({"\N{LESS-THAN OR EQUAL TO}": "<=", "\N{GREATER-THAN OR EQUAL TO}": ">="})
_IN_WORDS = {"zero": 0, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
_IN_WORDS |= {"six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10}
_NUMBER_WORDS = re.compile(rf"\b(?<!no )(?<!\d )(?:{'|'.join(_IN_WORDS)})\b(?!-| of\b)", re.I)
PI = 3.141592
_PI = re.compile(r"(?:(?<![\w.])(\d+(?:\.\d+)?) ?\*? ?)?\bpi\b(?! ?/)", re.I)
#: Bits from which on a dtype holds the sizes of axes.
BITS_OF_SIZES = 32
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_POWER = r"-?\d+(?:\*\*|\^)\d+(?: ?- ?1)?"
_AXES = r"(?:\d{1,3} ?\* ?)?[A-Za-z_]\w*(?: ?(?:[-+*]|//) ?\w+)*"
_BOUND = rf"(?:{_AXES}|(?:{_POWER}|{_NUMBER})(?!\w|\.\d))"
_BEGIN = r"(?:^|[.;,:]\s+|\()"
_STOP = r"(?=\s*(?:$|[.;,:)]))"
#: What may come before a range, and after it: ``Values in [0, 1]``, ``from 0 to 100 percent``.
_WORDS = r"values?|numbers?|(?:\w+ )?ids|integers?|all|each|is|are|lies?|in|within|both|a|any"
_WORDS += r"|anything|(?:must|can|should|will) be|always|strictly"
_LEAD = rf"(?:(?:{_WORDS})\s+){{0,3}}"
_UNITS = "percent|tokens|elements|rows|bytes|pages|steps|positions|frames|samples|seconds"
_END = rf"(?!\.\d)(?: (?:{_UNITS}))?(?=\s*(?:$|[.;,:)]|or\b|inclusive|included))"
_AND_END = rf"(?!\.\d)(?: (?:{_UNITS}))?(?=\s*(?:$|[.;,:)]|(?:or|and|but)\b|inclusive|included))"
#: What is between both ends.
_TO = r" to | through | ?\.\.\.? ?| up to (?:and including )?"
#: Ranges: with ends that belong to them, and with ends of which brackets say that. Brackets alone
#: are shapes.
_RANGE = re.compile(
    rf"{_BEGIN}{_LEAD}(?:(?:(?!not |never )\w+ )?(?:from |(?P<between>between )))?(?P<low>{_BOUND})"
    rf"(?:{_TO}| (?P<conjunction>and) )(?P<high>{_BOUND})"
    rf"(?P<exclusive>,? \(?exclusive\)?)?{_END}",
    re.I,
)
#: The same of numbers alone, behind other words; of one number between two; and with a dash.
_NUMBERS = re.compile(
    rf"{_BEGIN}(?:[a-z][\w'/-]* ){{0,8}}(?:from |(?P<between>between ))(?P<low>{_NUMBER})"
    rf"(?:{_TO}| (?P<conjunction>and) )(?P<high>{_NUMBER}){_END}",
    re.I,
)
_CHAIN = re.compile(
    rf"{_BEGIN}(?:\w+ )?(?P<low>{_BOUND}) ?(?P<above><=?) ?(?P<of>\w+) ?(?P<below><=?) ?"
    rf"(?P<high>{_BOUND}){_END}",
    re.I,
)
_DASH = re.compile(rf"{_BEGIN}{_LEAD}(?P<low>\d+)-(?P<high>\d+){_END}", re.I)
_BRACKETS = re.compile(
    r"\b(?:in|within|inside|(?:clipped|clamped|limited|scaled|normali[sz]ed) to|interval|range) "
    rf"(?P<open>[\[(]) ?(?P<low>{_BOUND}), ?(?P<high>{_BOUND}) ?(?P<close>[\])])"
    r"(?=\s*(?:$|[.;,:)]|or\b))",
    re.I,
)
_STRICT = re.compile(r"\bstrictly between\b", re.I)
_RANGES = (_BRACKETS, _RANGE, _NUMBERS, _CHAIN, _DASH)
#: One end. Before a sign may be what is compared; a second end may follow the first.
_OF = r"(?:(?P<of>[a-z]\w*) )?"
_AT_LEAST = (
    r"at least|(?:no|not) (?:less|fewer) than|(?:not|never) below|floored at|min(?:imum)?(?: of)?"
)
_ABOVE = r"(?:strictly )?(?:above|(?:greater|more|larger) than)|must exceed|exceeds"
_AT_MOST = (
    r"at most|up to(?: and including)?|(?:no|not|never) more than|(?:not|never) (?:above|over)"
    r"|no (?:greater|larger|higher) than|(?:less|smaller) than or equal to|max(?:imum)?(?: of)?"
)
_BELOW = r"(?:strictly )?(?:below|(?:less|smaller|fewer|lower) than)|under"
_LEAST_END = (
    rf"{_LEAD}(?:(?:{_AT_LEAST}) ?(?P<least>{_BOUND})"
    rf"|(?:from )?(?P<on>{_BOUND}) (?:on|or more|and more|or above|upwards)"
    rf"|(?:{_ABOVE}) ?(?P<above>{_BOUND})"
    rf"|{_OF}(?P<low_sign>>=?) ?(?P<low>{_BOUND})){_AND_END}"
)
_MOST_END = (
    rf"{_LEAD}(?:(?:{_AT_MOST}) ?(?P<most>{_BOUND})|(?:{_BELOW}) ?(?P<below>{_BOUND})"
    rf"|{_OF}(?P<high_sign><=?) ?(?P<high>{_BOUND})){_AND_END}"
)
_LEAST, _MOST = (re.compile(_BEGIN + end, re.I) for end in (_LEAST_END, _MOST_END))
_AND = r"\s*,?\s*(?:and|but)\s+"
_AND_LEAST, _AND_MOST = (re.compile(_AND + end, re.I) for end in (_LEAST_END, _MOST_END))
#: Lists of all that there are; not the end of one.
_ONE = r"-?\d+(?:\.\d+)?"
_LIST = rf"{_ONE}(?:, {_ONE})*,?"
_CHOICES = re.compile(
    rf"(?:^|(?<!\d)[.;,:]\s+|\()(?:\w+ (?:is|are) )?{_LEAD}(?:either )?"
    rf"(?P<choices>{_LIST} or {_ONE}(?: or {_ONE})*){_END}",
    re.I,
)
_ONE_OF = re.compile(
    rf"\b(?:one of|chosen from|among) (?P<choices>{_LIST}(?: (?:or|and))? {_ONE})"
    rf"(?! or [-\d]){_END}",
    re.I,
)
#: And one more behind it that is said apart: ``0 or 1, or 255 where void``.
_AND_CHOICE = re.compile(rf"\s*[,;]\s*or ({_ONE}) (?:for|where|if|when)\b", re.I)
_SIGNED = r"(?: (?:numbers?|values?|factors?|scales?|weights?))?" + _STOP
_IT = r"(?:so )?(?:(?:it|they|these|values?) )?"
_NEGATIVE = re.compile(rf"{_BEGIN}{_LEAD}(?:strictly )?negative{_SIGNED}", re.I)
_NOT_POSITIVE = re.compile(
    rf"{_BEGIN}{_LEAD}(?:(?:not|never) |non[- ]?)positive{_SIGNED}"
    rf"|{_BEGIN}{_IT}(?:cannot|can't|must not|can never|must never) be positive{_STOP}",
    re.I,
)
_POSITIVE = re.compile(rf"{_BEGIN}{_LEAD}(?:strictly )?positive{_SIGNED}", re.I)
_NOT_NEGATIVE = re.compile(
    rf"{_BEGIN}{_LEAD}(?:(?:not|never) |non[- ]?)negative{_SIGNED}"
    rf"|{_BEGIN}{_IT}(?:cannot|can't|must not|can never|must never) be negative{_STOP}",
    re.I,
)
_BITS = re.compile(
    r"(?P<signed>\bsigned )?\b(?:ids?|numbers?|integers?|keys?) of (?:up to )?(?P<bits>\d+) bits\b",
    re.I,
)
_MAY_BE_0 = re.compile(
    rf"{_BEGIN}((?!no|none|nothing|neither)\w+ )?(may|can|could) be (0|zero|empty)(?![.]?\d)\b",
    re.I,
)
#: What stands for nothing; not the last dimension.
_FOR = "for|where|if|when|means|marks|is|are|pads|else|none|in place|before|until"
_SENTINEL = re.compile(
    rf"((?<!1 )or (?P<or>-1(00)?)\b)|(?<![\w.\[(=])(?P<of>-1(00)?)\s+({_FOR})\b"
    r"|\b(?:are|is|holds?|has|have|(?:padded|filled|marked) (?:with|by|up with)) "
    r"(?P<is>-1(00)?)(?=\s*(?:$|[.;,:)]|and\b|at\b|on\b))",
    re.I,
)
#: The same of floating numbers, which may be -1 for other reasons.
_MARKS = re.compile(
    r"\bor (-1(?:00)?) (?:for|where|if|when)\b"
    rf"|{_BEGIN}(-1(?:00)?) (?:for|where|if|when|means|marks)\b",
    re.I,
)
#: The same of other numbers below 0: ``-32768 where void``, ``0 to 60, or -2000``.
_FAR_BELOW = re.compile(
    rf"{_BEGIN}(?:or )?(-\d{{2,}}) (?:for|where|if|when|means|marks)\b"
    rf"|[,;] or (-\d{{2,}}){_STOP}",
    re.I,
)
#: Of what -1 is no sentinel, before it.
_NO_SENTINEL = re.compile(r"\b(?:defaults?|dim(?:ension)?|axis|shift\w*|none|nothing)\b", re.I)
_ENTRIES = r"(?:entries|ones|elements|slots|places|ids|indices|pages)"
#: Where those are that stand for nothing, if all are behind the others of a row.
_TRAILING = re.compile(
    rf"\b(?:trailing {_ENTRIES}|at the (?:end|back)|on the right|(?:come|comes) last|filled up"
    rf"|right[- ]padded|{_ENTRIES} (?:past|after|beyond)"
    r"|(?:past|after|beyond) (?:the (?:end|last|length)|those|them|it))\b",
    re.I,
)
_ANY_NEGATIVE = re.compile(r"\bnegative( \w+)? (are|is|means?|stands?|marks?)\b", re.I)
_ZERO = re.compile(
    rf"(?:{_BEGIN}(?:or )?0 (?:or less )?(?:for|means|is|where) (?:no|none|off)"
    r"|\bor 0 (?:for|where|if|when))\b",
    re.I,
)
_INF = r"inf(?:inity|inite)?"
_OR_NAN = r"(?: (?:or|and) nan)?"
_SPECIAL = {
    -inf: re.compile(rf"(?<![\w+])-{_INF}{_OR_NAN} (?:{_FOR})\b|\bor -{_INF}\b", re.I),
    inf: re.compile(rf"(?<![\w-])\+?{_INF}{_OR_NAN} (?:{_FOR})\b|\bor \+?{_INF}\b", re.I),
    nan: re.compile(rf"\bnan(?: (?:or|and) [-+]?{_INF})? (?:{_FOR})\b|\b(?:or|and) nan\b", re.I),
}
_INFINITIES = re.compile(rf"{_BEGIN}infinit(?:y|ies) (?:is|are|counts?|may)\b", re.I)
#: What no number is: a clause of its own, as the rest may be conditions. "Otherwise finite" denies
#: all that isn't named.
_NO = rf"{_BEGIN}(?:never|no|without|not) (?:an? )?"
_OF_SIGN = r"(?P<sign>[-+]|positive |negative )?"
_INFINITE = r"(?:infs?|infinite|infinit(?:y|ies))"
_NEVER_INFINITE = re.compile(
    rf"{_NO}{_OF_SIGN}{_INFINITE}(?: (?:or|and|nor) nans?)?{_STOP}"
    rf"|{_BEGIN}infinities (?:are )?(?:not allowed|excluded){_STOP}",
    re.I,
)
_NEVER_NAN = re.compile(rf"{_NO}(?:{_INFINITE} (?:or|and|nor) )?nans?{_STOP}", re.I)
_FINITE = re.compile(
    rf"{_BEGIN}(?:(?:are|is|always|all|otherwise|else|elsewhere) ){{0,2}}finite"
    rf"(?: numbers?| values?)?{_STOP}",
    re.I,
)
_PERMUTATION = re.compile(
    rf"{_BEGIN}(?:an? |the )?permutation (?:that\b|of\b(?: 0 to| the| all)* ?(?P<of>\w*))", re.I
)
#: The same of each row.
_ROWS = rf"{_BEGIN}(?:each|every) row "
_PERMUTED_ROWS = re.compile(
    rf"{_ROWS}(?:is|has|holds) (?:an? |the )?permutation (?:of|that)\b"
    rf"|{_ROWS}(?:has|holds|contains|lists|visits) (?:all|every) (?P<of>\w+)"
    rf"(?: in [a-z ]+)?{_STOP}",
    re.I,
)
_SORTED = re.compile(
    rf"{_BEGIN}(?:are |is )?(?:(?:strictly |monotonically )?(?:sorted|ascending|increasing"
    rf"|non-?decreasing|rising|growing)|never falling|smallest first"
    rf"|in (?:ascending|rising|increasing) order)"
    rf"(?: (?:for|within|in|per) (?:each|every) (?!column|axis|dimension|layer|step)\w+)?{_STOP}",
    re.I,
)
#: In which order things are, such as tokens: of times, they never fall.
_IN_TIME = re.compile(rf"{_BEGIN}(?:the )?(?:oldest|earliest) first{_STOP}", re.I)
_TIMES = re.compile(
    r"^(?:(?!many\b)\w+ )?(?:arrivals?|times?(?! steps?\b)|timestamps?|deadlines?|seconds)\b", re.I
)
_STRICTLY = re.compile(
    rf"\bstrictly (?:ascending|increasing|rising|growing)(?: from 0)?{_STOP}", re.I
)
_NOT_OF = r"(?!(?:of|to|from|across|number|count|position)s?\b)"
_DISTINCT = re.compile(
    rf"{_BEGIN}(?:(?:all|are|is|pairwise) )*(?:distinct|unique|differ|different)"
    rf"(?: in (?:a|each) row)?{_STOP}"
    rf"|{_BEGIN}(?:distinct|unique) (?:{_NOT_OF}\w+ ){{0,2}}{_NOT_OF}(?:\w+[^s\W]s|indices){_STOP}"
    rf"|{_BEGIN}(?:each|every) (?:\w+ )?(?:at most )?once\b"
    rf"|{_BEGIN}no two (?:\w+ )?(?:share|are the same|are equal)\b"
    rf"|{_BEGIN}(?:always|all|pairwise) different{_STOP}",
    re.I,
)
#: What says that numbers are of how many others there are, or that they come again.
_COUNTED = re.compile(r"\b(?:numbers?|counts?) of\b|\brepeated\b", re.I)
#: The same, in words that deny.
_NO_REPEATS = re.compile(
    r"\b(?:(?:no|without) (?:duplicates|repeats|repetitions?)|never (?:repeats?|twice))"
    r"\b(?! (?:are |is )?(?:removed|dropped))",
    re.I,
)
#: Rows of which all elements together are 1.
_SHARES = re.compile(
    r"\b(?:sum(?:s|ming)?|add(?:s|ing)?(?: up)?|normali[sz]ed) to 1"
    r"(?=\s*(?:$|[.;,:)]|(?:per|in|over|along the last)\b))(?!.\d)",
    re.I,
)
_NOT_OF_ROWS = re.compile(r"\b(?:columns?|first|signed|exp\w*|negative)\b", re.I)
_MULTIPLES = re.compile(rf"{_BEGIN}{_LEAD}(?:in )?multiples? of (\d+)\b", re.I)
#: Times of day and date: in 2023, and how many of them there are in a second. They go on for
#: so many seconds or milliseconds; finer ones for as many seconds, so that 32 bits hold too few.
_SINCE_1970 = re.compile(
    rf"{_BEGIN}(?:(?:times?|timestamps?) )?(?:in )?(?P<unit>nano|micro|milli)?seconds since "
    rf"(?:1970|(?:the )?unix epoch){_STOP}",
    re.I,
)
_IN_2023 = 1_700_000_000
_PER_SECOND = {None: 1, "milli": 10**3, "micro": 10**6, "nano": 10**9}
TIMES = 8192
_FROM_ONE = re.compile(r"\b1-based\b|\b(?:numbered|counted|counting) from 1\b", re.I)
_ANY = re.compile(
    rf"{_BEGIN}(?:any|arbitrary) (?:bytes?|integers?|bits|bit patterns?|values?|numbers?){_STOP}",
    re.I,
)
#: What 1 stands for and what 0: ``1 where a sequence ends, 0 elsewhere``.
_WHERE = "at|for|where|if|when|on|in|inside|outside|means|is|marks"
_FLAGS = re.compile(
    rf"{_BEGIN}(?:[01] (?:{_WHERE})\b[^.;]*?\b(?:and|or|else|otherwise|[,;]) ?)"
    rf"(?:[01] (?:elsewhere|otherwise|{_WHERE}|else)\b|otherwise [01]\b|[01]{_STOP})",
    re.I,
)
#: What says that no number is between these.
_EITHER = re.compile(r"\b(?:elsewhere|otherwise|where|else)\b", re.I)
_BETWEEN = re.compile(r"\b(?:between|blended|interpolated)\b", re.I)
#: What says that numbers are some of those there are.
_SUCH_AS = re.compile(
    r"\b(?:typical(?:ly)?|usual(?:ly)?|defaults?|e\.g|about|roughly|or so|between|interpolated)\b",
    re.I,
)
#: What each of a few numbers stands for: ``0 is labelled, 1 hidden, 2 visible``.
_MEANING = re.compile(
    r"(?:^|[.;,:(]\s*|\b(?:or|and) )(\d{1,2})(?P<verb> ?[=:]| is| are| for| means)? "
    r"(?!to\b(?! the\b)|or\b|and\b|through\b|is\b|x\b)[A-Za-z]"
)
#: The same of any numbers: ``1 where white won, 0.5 for a draw, 0 where black won``.
_STANDS_FOR = re.compile(rf"(?:^|[.;,:(]\s*|\b(?:or|and) )({_ONE}) (?:where|for|if|when)\b", re.I)
#: What numbers of other things are, or not all that there are.
_NO_MEANING = re.compile(
    r"(?<![-\w])(?:bits?|bytes?|nibbles?|pixels?|channels?|rows?|columns?|planes?|layers?|items?|inputs?"
    r"|packed|more|others?|reserved|unused|so on)\b|\.\.\.",
    re.I,
)
#: A number of its own, or a size, that stands for nothing: ``255 where it is ignored``.
_NOTHING = r"(?:ignored?|missing|invalid|unused|padding)"
_OTHER_SENTINEL = re.compile(
    rf"{_BEGIN}(?:or )?(?P<sentinel>\d{{2,}}|[A-Za-z_]\w*) "
    rf"(?:is {_NOTHING}|(?:where|for|if|marks|means) "
    r"(?:(?:it|they|there|(?:the|a) \w+) (?:is|are) )?"
    rf"(?:{_NOTHING}|none|no|nothing|padded))\b"
    rf"|\bpadded with (?P<pad>\d{{2,}}|[A-Za-z_]\w*)\b",
    re.I,
)
_SCALED = re.compile(r"\b(?:times|scaled|multiplied)\b", re.I)
_UNIT = re.compile(
    rf"{_BEGIN}(?:an? |each |rows are )?(?:(?!not |non |number )\w+ )?"
    rf"unit (?:quaternions?|vectors?|directions?|normals?)"
    rf"(?:{_STOP}| (?:from|to|of|along|towards?|pointing)\b)"
    rf"|{_BEGIN}(?:\w+ )?of (?:unit (?:length|norm)|(?:length|norm) 1){_STOP}",
    re.I,
)
#: What is beyond what counts, where it may be any; not what is in any order.
_ANY_AFTER = re.compile(
    r"\b(?:unspecified|undefined|arbitrary(?! order)|garbage|stale|anything|whatever"
    r"|uninitiali[sz]ed)\b",
    re.I,
)
_AFTER = re.compile(r"\b(?:after|beyond|past|rest|unused|remaining|others)\b", re.I)
_REPEATED = re.compile(r"\bmay (?:repeat|be repeated)\b|\bin any number\b", re.I)
#: What says the opposite, before a form in its clause, or right after it.
_NEGATION = re.compile(r"\b(?:no|not|never|neither|nor|without)\b|n't\b", re.I)
#: What says that it is about something else: what becomes of numbers, or which of them count.
_ELSEWHERE = re.compile(
    r"\b(?:if|where|unless|when|outside|except|excludes?|skips?|but|maps?|mapped|turns?|makes?|will"
    r"|which|outputs?|results?|logs?|logarithms?|gradients?|softmax|kernels?|before|after)\b",
    re.I,
)
#: After which that is said of a condition: ``inf where not reached``.
_CONDITION = re.compile(r"\b(?:for|where|if|when)$", re.I)
_NEGATED = re.compile(r"\s*(?:(?:is|are|may|values?) )*(?:not|never|no|excluded|forbidden)\b", re.I)


@dataclass(frozen=True)
class Said:
    """What a description says: the ends of a range, and what else the numbers are.

    ``least`` and ``most`` belong to the range, unless ``is_open`` says that the least doesn't, or
    ``is_below`` that the most doesn't.
    ``choices`` are all that there are. ``sentinels`` stand for nothing, as may any number below 0
    where ``any_negative``; of ``marks``, a clause says where they do. ``special`` are infinities
    and NaN, and ``never`` those that none is. ``rows_have_all`` is of what each row has all, in
    some order; it is empty where that isn't named.
    ``are_distinct`` is None where nothing is said of it. They have so many ``bits``, the sign
    among them if ``are_signed``.
    ``are_any_after``: those that aren't used may be any. ``padding`` is a size that stands for
    nothing, the first that is no index of its axis. Rows ``are_unit`` vectors, or ``are_shares``
    that sum to 1. All sentinels ``are_trailing``: behind the others of a row. Numbers are multiples
    of ``step``; or ``are_any`` that the dtype holds, if nothing else is said.
    """

    least: Bound | None = None
    most: Bound | None = None
    is_open: bool = False
    is_below: bool = False
    choices: tuple[int | float, ...] = ()
    sentinels: tuple[int, ...] = ()
    any_negative: bool = False
    has_zero: bool = False
    may_be_0: bool = False
    special: frozenset[float] = frozenset()
    never: frozenset[float] = frozenset()
    is_permutation: bool = False
    rows_have_all: str | None = None
    marks: tuple[int, ...] = ()
    is_sorted: bool = False
    are_distinct: bool | None = None
    bits: int | None = None
    are_signed: bool = False
    are_any_after: bool = False
    padding: str | None = None
    are_unit: bool = False
    are_shares: bool = False
    are_trailing: bool = False
    step: int = 1
    are_any: bool = False


def said(spec: TensorSpec, definition: Definition) -> Said:
    """What the description of one of a definition's inputs says of its numbers."""
    axes = frozenset(definition.axes)
    others = frozenset(name for name, other in definition.inputs.items() if other is not spec)
    of_all = _said(spec.description or "", axes, others, whole=not spec.dtype.is_floating)
    if spec.dtype.is_floating or spec.dtype.itemsize_bits >= BITS_OF_SIZES:
        return of_all
    last = int(spec.dtype.ends[1])
    return replace(
        of_all,
        least=_at_most(of_all.least, last),
        most=_at_most(of_all.most, last),
        sentinels=tuple(n for n in of_all.sentinels if spec.dtype.ends[0] <= n <= last),
    )


def _at_most(bound: Bound | None, last: int) -> Bound | None:
    """A bound that a size makes, but none beyond what a dtype holds."""
    return f"min({bound}, {last})" if isinstance(bound, str) else bound


@cache
def _said(description: str, axes: frozenset[str], others: frozenset[str], *, whole: bool) -> Said:
    """The same of numbers that are ``whole`` or not, of which ``axes`` may be ends.

    What is said of axes and of ``others``, which are inputs, isn't said of these numbers.
    """
    description = _with_digits(description, axes)
    others |= axes
    ends = _both_ends(description, axes, others) or _one_end(description, axes, others)
    if whole:
        ends = ends.whole()
        since = _match(_SINCE_1970, description)
        if since and ends == _Ends(None, None) and not re.search(r"\bor -?\d", description):
            time = _IN_2023 * _PER_SECOND[since["unit"] and since["unit"].lower()]
            is_fine = since["unit"] is not None and since["unit"].lower() != "milli"
            ends = _Ends(time, time + TIMES * (time // _IN_2023 if is_fine else 1))
    bits = _BITS.search(description)
    sentinel = next(_matches(_SENTINEL, description, alone=False, ends=".,;:("), None)
    special = {value for value, form in _SPECIAL.items() if _match(form, description)}
    if _match(_INFINITIES, description):
        special |= {inf, -inf}
    other = _match(_OTHER_SENTINEL, description)
    nothing = (other["sentinel"] or other["pad"]) if other else ""
    if sentinel and sentinel["is"] and _NO_SENTINEL.search(description[: sentinel.start()]):
        sentinel = None
    sentinels = [int(sentinel["or"] or sentinel["of"] or sentinel["is"])] if sentinel else []
    sentinels += [int(nothing)] if nothing.isdecimal() else []
    if whole and (below := _match(_FAR_BELOW, description)):
        far = int(below[1] or below[2])
        is_beyond = isinstance(ends.least, int) and far < ends.least
        sentinels += [far] if is_beyond and far not in sentinels else []
    any_after = _match(_ANY_AFTER, description) and _AFTER.search(description)
    strictly = _match(_STRICTLY, description) or _NO_REPEATS.search(description)
    step = _match(_MULTIPLES, description)
    are_shares = _match(_SHARES, description, alone=True) is not None
    permutation = _match(_PERMUTATION, description)
    rows = _match(_PERMUTED_ROWS, description) or permutation
    is_distinct = True if strictly or _match(_DISTINCT, description) else None
    are_in_time = bool(_match(_IN_TIME, description) and _TIMES.search(description))
    if is_distinct and not strictly and _COUNTED.search(description):
        is_distinct = None  # of other things
    return Said(
        least=ends.least,
        most=ends.most,
        is_open=ends.is_open,
        is_below=ends.is_below,
        choices=_choices(description, sentinels, ends, whole=whole),
        sentinels=tuple(sentinels),
        any_negative=_ANY_NEGATIVE.search(description) is not None,
        has_zero=_ZERO.search(description) is not None,
        may_be_0=_MAY_BE_0.search(description) is not None,
        special=frozenset(special),
        never=frozenset(each for each in _never(description) if each not in special),
        is_permutation=permutation is not None,
        rows_have_all=(rows.groupdict()["of"] or "") if rows else None,
        marks=tuple(
            int(match[1] or match[2]) for match in _matches(_MARKS, description, alone=False)
        ),
        is_sorted=_match(_SORTED, description) is not None or are_in_time,
        are_distinct=False if _match(_REPEATED, description) else is_distinct,
        bits=int(bits["bits"]) if bits else None,
        are_signed=bits is not None and bits["signed"] is not None,
        are_any_after=any_after is not None,
        padding=nothing if nothing in axes else None,
        step=max(int(step[1]), 1) if step else 1,
        are_any=_ANY.search(description) is not None,
        are_unit=_match(_UNIT, description) is not None and not _SCALED.search(description),
        are_shares=are_shares and not _NOT_OF_ROWS.search(description),
        are_trailing=bool(sentinels) and _TRAILING.search(description) is not None,
    )


def _never(description: str) -> Iterator[float]:
    """The infinities and NaN that no number is."""
    if _FINITE.search(description):
        yield from (-inf, inf, nan)
    if found := _NEVER_INFINITE.search(description):
        sign = (found["sign"] or " ")[0].lower()
        yield from {"-": (-inf,), "n": (-inf,), " ": (-inf, inf)}.get(sign, (inf,))
    if _NEVER_NAN.search(description):
        yield nan


def _with_digits(description: str, axes: Collection[str]) -> str:
    """A description with numbers in digits, also where they are in words; and signs in ASCII."""
    text = description.translate(_ASCII)
    text = _NUMBER_WORDS.sub(lambda match: str(_IN_WORDS[match[0].lower()]), text)
    text = re.sub(r"\bminus (?=\d)", "-", text, flags=re.I)
    text = re.sub(r"(?<![\w.])(\d+)\.0+(?![\w.]*\d)", r"\1", text)
    text = re.sub(r"(\d) \([^()\d]*\)(?= (?:to|through)\b)", r"\1", text)
    if "pi" in axes:
        return text
    return _PI.sub(lambda match: f"{float(match[1] or 1) * PI:.7g}", text)


def _choices(
    description: str, sentinels: Collection[int], ends: _Ends, *, whole: bool
) -> tuple[int | float, ...]:
    """All the numbers that there are, if they are listed, with those that stand for nothing.

    Or if it is said what each stands for, and there is no range; of more than two, no sentinel.
    """
    listed = _CHOICES.search(description) or _match(_ONE_OF, description, alone=True)
    numbers = [*map(_plain, re.findall(_ONE, listed["choices"]))] if listed else []
    is_fraction = any(isinstance(each, float) for each in numbers)
    if listed and not (is_fraction and _SUCH_AS.search(description)):
        if behind := _AND_CHOICE.match(description, listed.end()):
            one = _plain(behind[1])
            numbers += [one] if one not in (*numbers, *sentinels) else []
        return (*(n for n in sentinels if n not in numbers), *numbers)
    if ends != _Ends(None, None) or _NO_MEANING.search(description):
        return ()
    found = [*_MEANING.finditer(description)]
    meant = [int(each[1]) for each in found]
    first = meant[0] if meant else 0
    named = {float(each) for each in re.findall(r"(?<![-\w.])\d+(?:\.\d+)?", description)}
    are_all = all(each["verb"] for each in found) or named == {*map(float, meant)}
    is_said = first == 0 or (first == 1 and are_all)
    if len(meant) > 2 and is_said and meant == [*range(first, first + len(meant))]:
        return () if sentinels else tuple(meant)
    stand_for = [_plain(each[1]) for each in _STANDS_FOR.finditer(description)]
    is_between = _BETWEEN.search(description) is not None
    if not whole and len(stand_for) > 2 and not is_between and _STANDS_FOR.match(description):
        return tuple(stand_for) if named == {*map(abs, stand_for)} else ()
    if whole and sorted(meant) == [0, 1] and named == {0.0, 1.0} and _MEANING.match(description):
        return (*sentinels, 0, 1)
    is_either = whole or (_EITHER.search(description) and not _BETWEEN.search(description))
    return (
        (*sentinels, 0, 1)
        if is_either and named == {0.0, 1.0} and _FLAGS.search(description)
        else ()
    )


def _plain(text: str) -> int | float:
    """A number as it is written, whole if it can be."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _match(form: re.Pattern[str], text: str, *, alone: bool = False) -> re.Match[str] | None:
    """The first place where a form is said, and not the opposite.

    ``alone``: nothing before it in the sentence says that it is about something else.
    """
    return next(_matches(form, text, alone=alone), None)


def _matches(
    form: re.Pattern[str], text: str, *, alone: bool, ends: str = ".;:("
) -> Iterator[re.Match[str]]:
    """All places; what denies them is in the clause, which is behind one of these ``ends``."""
    for match in form.finditer(text):
        begin = match.start() + len(match[0]) - len(match[0].lstrip(" .;,:("))
        sentence = re.split(r"[.;:(]", text[:begin])[-1]
        sentence = _NO_REPEATS.sub("", _NOT_NEGATIVE.sub("", sentence))
        before = re.split(f"[{re.escape(ends)}]", sentence)[-1]
        is_denied = not _CONDITION.search(match[0]) and _NEGATED.match(text, match.end())
        own = match[0] if alone else ""
        is_elsewhere = alone and _ELSEWHERE.search(f"{sentence}{own}")
        if not _NEGATION.search(f"{before}{own}") and not is_denied and not is_elsewhere:
            yield match


class _Ends(NamedTuple):
    """The least and the most, and whether either is none of the numbers itself."""

    least: Bound | None
    most: Bound | None
    is_open: bool = False
    is_below: bool = False

    def whole(self) -> _Ends:
        """Those of whole numbers, of which both are some."""
        least, most = self.least, self.most
        least = more(least, 1) if self.is_open and least is not None else least
        most = more(most, -1) if self.is_below and most is not None else most
        return _Ends(least, most)


def _both_ends(text: str, axes: Collection[str], others: Collection[str]) -> _Ends | None:
    for match in chain.from_iterable(
        _matches(form, text, alone=form is not _RANGE, ends=".,;:(") for form in _RANGES
    ):
        low, high = (_bound(match[end], axes) for end in ("low", "high"))
        how = match.groupdict()
        if how.get("of") in others or _ELSEWHERE.search(match[0]):
            continue
        is_between = how.get("between") is not None
        is_list = how.get("conjunction") and not is_between  # as in 0, 1 and 2
        if low is None or high is None or is_list:
            continue
        neither = bool(is_between and (how.get("exclusive") or _STRICT.search(text)))
        is_open = how.get("open") == "(" or how.get("above") == "<" or neither
        is_below = how.get("close") == ")" or how.get("below") == "<" or neither
        return _Ends(low, high, is_open, is_below or how.get("exclusive") is not None)
    return None


def _one_end(text: str, axes: Collection[str], others: Collection[str]) -> _Ends:
    """A least number, a most, or one of each that are said apart; None for what isn't said."""
    least, most = _end_of(_LEAST, text, others), _end_of(_MOST, text, others)
    least = least or (most and _AND_LEAST.match(text, most.end()))
    most = most or (least and _AND_MOST.match(text, least.end()))
    low, is_open = None, False
    if least:
        low = _bound(least["least"] or least["on"] or least["above"] or least["low"], axes)
        is_open = least["above"] is not None or least["low_sign"] == ">"
    elif _POSITIVE.search(text) or _NOT_NEGATIVE.search(text):
        low, is_open = 0, _NOT_NEGATIVE.search(text) is None
    elif _match(_FROM_ONE, text):
        low = 1
    high, is_below = None, False
    if most:
        high = _bound(most["most"] or most["below"] or most["high"], axes)
        is_below = most["below"] is not None or most["high_sign"] == "<"
    elif _NOT_POSITIVE.search(text) or (_NEGATIVE.search(text) and "positive" not in text.lower()):
        high, is_below = 0, _NOT_POSITIVE.search(text) is None
    return _Ends(low, high, is_open, is_below)


def _end_of(form: re.Pattern[str], text: str, others: Collection[str]) -> re.Match[str] | None:
    """The first end of one form that is none of something else."""
    return next((each for each in form.finditer(text) if each["of"] not in others), None)


def _bound(text: str, axes: Collection[str]) -> Bound | None:
    """A number, or an expression of axes; None for another word."""
    if power := re.fullmatch(r"(-?)(\d+)(?:\*\*|\^)(\d\d?)( ?- ?1)?", text):
        value = int(int(power[2]) ** int(power[3])) * (-1 if power[1] else 1)
        return value - (power[4] is not None)
    if re.fullmatch(_NUMBER, text, re.I):
        number = float(text)
        return int(number) if number.is_integer() and "e" not in text.lower() else number
    names = re.findall(r"[A-Za-z_]\w*", text)
    return text if names and all(name in axes for name in names) else None


def more(bound: Bound, by: int) -> Bound:
    """A bound and so much more, or less: ``vocab`` of ``vocab - 1`` and 1."""
    if not isinstance(bound, str):
        return bound + by
    if least := re.fullmatch(r"min\(([^(),]+), (\d+)\)", bound):
        return f"min({more(least[1], by)}, {int(least[2]) + by})"
    if known := re.fullmatch(r"(.*?) ?([-+]) ?(\d+)", bound):
        bound, by = known[1], by + int(known[2] + known[3])
    return f"{bound} {'+' if by > 0 else '-'} {abs(by)}" if by else bound
