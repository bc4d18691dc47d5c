"""What an input's description says of its numbers, where it says so in one of a few plain forms.

A form counts where a clause begins, and most have to be all of it: ``Gate of each row, 0 to 1.``
says what the numbers are, ``As many as from 0 to 1 take`` doesn't.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cache
from math import inf, nan
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from pytest_fib.data import Definition, TensorSpec

#: A number, or an expression of axes such as ``vocab - 1``.
Bound: TypeAlias = "int | float | str"

#: Bits from which on a dtype holds the sizes of axes.
BITS_OF_SIZES = 32
_NUMBER = r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_POWER = r"-?\d+(?:\*\*|\^)\d+(?: ?- ?1)?"
_AXES = r"(?:\d{1,3} ?\* ?)?[A-Za-z_]\w*(?: ?(?:[-+]|//) ?\w+)*"
_BOUND = rf"(?:{_AXES}|(?:{_POWER}|{_NUMBER})(?!\w|\.\d))"
_BEGIN = r"(?:^|[.;,:]\s+|\()"
_STOP = r"(?=\s*(?:$|[.;,:)]))"
#: What may come before a range, and after it: ``Values in [0, 1]``, ``from 0 to 100 percent``.
_WORDS = r"values?|numbers?|(?:\w+ )?ids|integers?|all|each|is|are|lies?|in|within|both|a|any"
_LEAD = rf"(?:(?:{_WORDS})\s+){{0,3}}"
_UNITS = "percent|tokens|elements|rows|bytes|pages|steps|positions|frames|samples|seconds"
_END = rf"(?: (?:{_UNITS}))?(?=\s*(?:$|[.;,:)]|or\b|inclusive|included))"
#: Ranges: with ends that belong to them, and with ends of which brackets say that. Brackets alone
#: are shapes.
_RANGE = re.compile(
    rf"{_BEGIN}{_LEAD}(?:(?:\w+ )?(?:from |(?P<between>between )))?(?P<low>{_BOUND})"
    rf"(?: to | through | ?\.\.\.? ?| (?P<conjunction>and) )(?P<high>{_BOUND})"
    rf"(?P<exclusive>,? \(?exclusive\)?)?{_END}",
    re.I,
)
_BRACKETS = re.compile(
    rf"\b(?:in|within) (?P<open>[\[(]) ?(?P<low>{_BOUND}), ?(?P<high>{_BOUND}) ?(?P<close>[\])])"
    r"(?=\s*(?:$|[.;,:)]|or\b))",
    re.I,
)
_LEAST = re.compile(
    rf"{_BEGIN}{_LEAD}(?:(?:at least|no less than|not below|>=) ?(?P<least>{_BOUND})"
    rf"|(?:from )?(?P<on>{_BOUND}) (?:on|or more|and more|upwards)"
    rf"|(?:above|greater than|more than|larger than|>) ?(?P<above>{_BOUND})){_END}",
    re.I,
)
_MOST = re.compile(
    rf"{_BEGIN}{_LEAD}(?:(?:at most|up to|no more than|not above|<=) ?(?P<most>{_BOUND})"
    rf"|(?:below|less than|smaller than|under|<) ?(?P<below>{_BOUND})){_END}",
    re.I,
)
_CHOICES = re.compile(rf"{_BEGIN}{_LEAD}(?P<choices>-?\d+(?:, -?\d+)*,? or -?\d+){_END}", re.I)
_SIGNED = r"(?: (?:numbers?|values?|factors?|scales?|weights?))?" + _STOP
_POSITIVE = re.compile(rf"{_BEGIN}{_LEAD}(?:strictly )?positive{_SIGNED}", re.I)
_NOT_NEGATIVE = re.compile(rf"{_BEGIN}{_LEAD}(?:(?:not|never) |non[- ]?)negative{_SIGNED}", re.I)
_BITS = re.compile(
    r"(?P<signed>\bsigned )?\b(?:ids?|numbers?|integers?|keys?) of (?:up to )?(?P<bits>\d+) bits\b",
    re.I,
)
_MAY_BE_0 = re.compile(
    rf"{_BEGIN}((?!no|none|nothing|neither)\w+ )?(may|can|could) be (0|zero|empty)(?![.]?\d)\b",
    re.I,
)
#: What stands for nothing; not the last dimension.
_FOR = "for|where|if|when|means|marks|is|are|pads|else|none|in place"
_SENTINEL = re.compile(rf"((?<!1 )or (?P<or>-1(00)?)\b)|(?<![\w.\[(=])(?P<of>-1(00)?)\s+({_FOR})\b")
_ANY_NEGATIVE = re.compile(r"\bnegative( \w+)? (are|is|means?|stands?|marks?)\b", re.I)
_ZERO = re.compile(
    rf"{_BEGIN}(?:or )?0 (?:or less )?(?:for|means|is|where) (?:no|none|off)\b", re.I
)
_INF = r"inf(?:inity|inite)?"
_OR_NAN = r"(?: (?:or|and) nan)?"
_SPECIAL = {
    -inf: re.compile(rf"(?<![\w+])-{_INF}{_OR_NAN} (?:{_FOR})\b|\bor -{_INF}\b", re.I),
    inf: re.compile(rf"(?<![\w-])\+?{_INF}{_OR_NAN} (?:{_FOR})\b|\bor \+?{_INF}\b", re.I),
    nan: re.compile(rf"\bnan(?: (?:or|and) [-+]?{_INF})? (?:{_FOR})\b|\b(?:or|and) nan\b", re.I),
}
_INFINITIES = re.compile(rf"{_BEGIN}infinit(?:y|ies) (?:is|are|counts?|may)\b", re.I)
_PERMUTATION = re.compile(rf"{_BEGIN}(?:an? |the )?permutation (?:of|that)\b", re.I)
_SORTED = re.compile(
    rf"{_BEGIN}(?:are |is )?(?:sorted|ascending|non-?decreasing|rising|never falling"
    rf"|in (?:ascending|rising|increasing) order){_STOP}",
    re.I,
)
_DISTINCT = re.compile(
    rf"{_BEGIN}(?:(?:all|are|is|pairwise) )*(?:distinct|unique|differ|different)"
    rf"(?: in (?:a|each) row)?{_STOP}"
    rf"|{_BEGIN}(?:each|every) \w+ (?:at most )?once\b"
    rf"|{_BEGIN}no two (?:\w+ )?(?:share|are the same|are equal)\b",
    re.I,
)
#: What each of a few numbers stands for: ``0 is labelled, 1 hidden, 2 visible``.
_MEANING = re.compile(
    r"(?:^|[.;,:(]\s*|\b(?:or|and) )(\d{1,2})(?P<verb> ?[=:]| is| are| for| means)? "
    r"(?!to\b|or\b|and\b|through\b|is\b|x\b)[A-Za-z]"
)
#: What numbers of other things are, or not all that there are.
_NO_MEANING = re.compile(
    r"\b(?:bits?|bytes?|nibbles?|pixels?|channels?|rows?|columns?|planes?|layers?|items?|inputs?"
    r"|packed|more|others?|reserved|unused|so on)\b|\.\.\.",
    re.I,
)
#: A number of its own, or a size, that stands for nothing: ``255 where it is ignored``.
_NOTHING = r"(?:ignored?|missing|invalid|unused|padding)"
_OTHER_SENTINEL = re.compile(
    rf"{_BEGIN}(?:or )?(?P<sentinel>\d{{2,}}|[A-Za-z_]\w*) "
    rf"(?:is {_NOTHING}|(?:where|for|if|marks|means) (?:it is |they are |there (?:is|are) )?"
    rf"(?:{_NOTHING}|none|no|nothing|padded))\b"
    rf"|\bpadded with (?P<pad>\d{{2,}}|[A-Za-z_]\w*)\b",
    re.I,
)
_UNIT = re.compile(
    rf"{_BEGIN}(?:an? |each |rows are )?(?:\w+ )?unit (?:quaternions?|vectors?){_STOP}"
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
#: After which that is said of a condition: ``inf where not reached``.
_CONDITION = re.compile(r"\b(?:for|where|if|when)$", re.I)
_NEGATED = re.compile(r"\s*(?:(?:is|are|may|values?) )*(?:not|never|no|excluded|forbidden)\b", re.I)


@dataclass(frozen=True)
class Said:
    """What a description says: the ends of a range, and what else the numbers are.

    ``least`` and ``most`` belong to the range, unless ``is_open`` says that the least doesn't, or
    ``is_below`` that the most doesn't.
    ``choices`` are all that there are. ``sentinels`` stand for nothing, as may any number below 0
    where ``any_negative``; ``special`` are infinities and NaN. ``are_distinct`` is None where
    nothing is said of that. They have so many ``bits``, the sign among them if ``are_signed``.
    ``are_any_after``: those that aren't used may be any. ``padding`` is a size that stands for
    nothing, the first that is no index of its axis. Rows ``are_unit`` vectors.
    """

    least: Bound | None = None
    most: Bound | None = None
    is_open: bool = False
    is_below: bool = False
    choices: tuple[int, ...] = ()
    sentinels: tuple[int, ...] = ()
    any_negative: bool = False
    has_zero: bool = False
    may_be_0: bool = False
    special: frozenset[float] = frozenset()
    is_permutation: bool = False
    is_sorted: bool = False
    are_distinct: bool | None = None
    bits: int | None = None
    are_signed: bool = False
    are_any_after: bool = False
    padding: str | None = None
    are_unit: bool = False


def said(spec: TensorSpec, definition: Definition) -> Said:
    """What the description of one of a definition's inputs says of its numbers."""
    axes = frozenset(definition.axes)
    of_all = _said(spec.description or "", axes, whole=not spec.dtype.is_floating)
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
def _said(description: str, axes: frozenset[str], *, whole: bool) -> Said:
    """The same of numbers that are ``whole`` or not, of which ``axes`` may be ends."""
    ends = _both_ends(description, axes) or _one_end(description, axes)
    if whole:
        ends = ends.whole()
    bits = _BITS.search(description)
    sentinel = _match(_SENTINEL, description)
    special = {value for value, form in _SPECIAL.items() if _match(form, description)}
    if _match(_INFINITIES, description):
        special |= {inf, -inf}
    other = _match(_OTHER_SENTINEL, description)
    nothing = (other["sentinel"] or other["pad"]) if other else ""
    sentinels = [int(sentinel["or"] or sentinel["of"])] if sentinel else []
    sentinels += [int(nothing)] if nothing.isdecimal() else []
    any_after = _match(_ANY_AFTER, description) and _AFTER.search(description)
    is_distinct = True if _match(_DISTINCT, description) else None
    return Said(
        least=ends.least,
        most=ends.most,
        is_open=ends.is_open,
        is_below=ends.is_below,
        choices=_choices(description, is_alone=ends == _Ends(None, None) and not sentinels),
        sentinels=tuple(sentinels),
        any_negative=_ANY_NEGATIVE.search(description) is not None,
        has_zero=_ZERO.search(description) is not None,
        may_be_0=_MAY_BE_0.search(description) is not None,
        special=frozenset(special),
        is_permutation=_match(_PERMUTATION, description) is not None,
        is_sorted=_match(_SORTED, description) is not None,
        are_distinct=False if _match(_REPEATED, description) else is_distinct,
        bits=int(bits["bits"]) if bits else None,
        are_signed=bits is not None and bits["signed"] is not None,
        are_any_after=any_after is not None,
        padding=nothing if nothing in axes else None,
        are_unit=_match(_UNIT, description) is not None,
    )


def _choices(description: str, *, is_alone: bool) -> tuple[int, ...]:
    """All the numbers that there are, if they are listed.

    Or if it is said what each stands for, and this ``is_alone``: there is no range or sentinel.
    """
    if listed := _CHOICES.search(description):
        return tuple(map(int, re.findall(r"-?\d+", listed["choices"])))
    found = [] if _NO_MEANING.search(description) else [*_MEANING.finditer(description)]
    meant = [int(each[1]) for each in found]
    first = meant[0] if meant else 0
    is_said = first == 0 or (first == 1 and all(each["verb"] for each in found))
    is_whole = len(meant) > 2 and is_said and meant == [*range(first, first + len(meant))]
    return tuple(meant) if is_whole and is_alone else ()


def _match(form: re.Pattern[str], text: str) -> re.Match[str] | None:
    """The first place where a form is said, and not the opposite."""
    for match in form.finditer(text):
        begin = match.start() + len(match[0]) - len(match[0].lstrip(" .;,:("))
        before = _NOT_NEGATIVE.sub("", re.split(r"[.;:(]", text[:begin])[-1])
        is_denied = not _CONDITION.search(match[0]) and _NEGATED.match(text, match.end())
        if not _NEGATION.search(before) and not is_denied:
            return match
    return None


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


def _both_ends(text: str, axes: Collection[str]) -> _Ends | None:
    for match in (*_BRACKETS.finditer(text), *_RANGE.finditer(text)):
        low, high = (_bound(match[end], axes) for end in ("low", "high"))
        how = match.groupdict()
        is_list = how.get("conjunction") and not how.get("between")  # as in 0, 1 and 2
        if low is not None and high is not None and not is_list:
            is_below = how.get("close") == ")" or how.get("exclusive") is not None
            return _Ends(low, high, how.get("open") == "(", is_below)
    return None


def _one_end(text: str, axes: Collection[str]) -> _Ends:
    """A least number, a most, or one of each that are said apart; None for what isn't said."""
    least, most = _LEAST.search(text), _MOST.search(text)
    low, is_open = None, False
    if least:
        low = _bound(least["least"] or least["on"] or least["above"], axes)
        is_open = least["above"] is not None
    elif _POSITIVE.search(text) or _NOT_NEGATIVE.search(text):
        low, is_open = 0, _NOT_NEGATIVE.search(text) is None
    high = _bound(most["most"] or most["below"], axes) if most else None
    return _Ends(low, high, is_open, most is not None and most["below"] is not None)


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
    if known := re.fullmatch(r"(.*?) ?([-+]) ?(\d+)", bound):
        bound, by = known[1], by + int(known[2] + known[3])
    return f"{bound} {'+' if by > 0 else '-'} {abs(by)}" if by else bound
