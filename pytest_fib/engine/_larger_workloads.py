"""Explains a failure by a larger workload: the smallest that fails shows few patterns."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

from pytest_fib.data import (
    LAYOUTS,
    LENGTHS,
    Circumstance,
    Definition,
    Diagnosis,
    Evaluation,
    EvaluationStatus,
    Workload,
    kinds,
)
from pytest_fib.diagnosis import (
    VAGUE_PATTERNS,
    Conditions,
    agreed,
    as_at_other_sizes,
    claims_more,
    first_part,
    has_part,
    only_wrong,
    parts,
    saying,
    says_the_same,
    with_guessed_tiles,
    without_guess,
    without_rounding,
    wrong_share,
)
from pytest_fib.verdict import PRECISION, detail_lines, qualified
from pytest_fib.workloads import (
    TILE_SIZES,
    doubled,
    enlarge,
    given_scalars,
    in_domain,
    make_workload,
    plan,
    reduced,
    value_patterns,
    with_integer_scalars,
)

#: Bytes of the larger workload: enough rows for a pattern, and calls of milliseconds.
DIAGNOSIS_BYTES = 4 << 20
#: A workload shows too little if no tensor has more elements.
TINY = 16
#: Values of other seeds with which a larger workload must be right to be named.
OTHER_SEEDS = 5
#: How many workloads that fail are asked whether they show the same, and how many if the first few
#: do; and how many seeds are tried.
ENOUGH, FIRST, SEEDS_ASKED = 4, 2, 6
#: With how many other seeds conditions on inputs must hold where there is more.
CONDITION_SEEDS = 3
#: How many seeds of other sizes are tried until two fail.
RESIZED_SEEDS = 4
#: The most likely that a larger workload may be right by chance for its sizes to be named.
BY_CHANCE = 0.01
#: The least size of an axis that may be the first beyond a switch; and with which seeds one less
#: has to be right, and that one wrong.
LEAST_SWITCH, SWITCH_SEEDS = 9, (1, 2, 3, 4)
#: The relative error of an element from which one isn't like those of rounding.
LARGE_ERROR = 0.25
#: Patterns of all elements or rows, which larger workloads would show too.
OF_ALL = (
    "misread input", "one factor", "one offset", "zeros", "constant", "negated", "transposed",
    "shifted", "permuted", "copied input", "swapped outputs", "factor per row",
)  # fmt: skip
#: Patterns that only say how many elements are wrong.
COUNTED = ("one element", "scattered")
#: The share of wrong elements that are many.
MANY = 0.25
#: Patterns that describe inputs, whatever their size.
ABOUT_INPUTS = ("misread input", "follows an input")


def diagnose_failure(
    definition: Definition,
    workload: Workload,
    outcome: Evaluation,
    evaluate: Callable[[Workload], Evaluation | None],
    max_bytes: int,
    *,
    wrong: Collection[str] = (),
) -> Evaluation:
    """The outcome of a workload, with the diagnosis of a larger one if that fails too.

    The workload's own diagnosis is kept if the larger one's is vague, and its own is not and isn't
    about a few elements only, for which nearly anything may hold. A diagnosis about inputs or a
    place is dropped if it does not explain the larger failure; where larger workloads are right,
    one of them is named. ``evaluate`` evaluates a workload with ``explain``, or returns None if it
    can't; ``wrong`` are outputs that are wrong in other workloads. Only wrong numbers have a
    pattern, so other outcomes are returned as they are.
    """
    if not has_pattern(outcome):
        return outcome
    tried = _Tried(definition, workload, outcome, _Remembering(evaluate), frozenset(wrong))
    own = None
    for shown in (*_larger(definition, workload, max_bytes), workload):
        diagnosis = tried.explained(shown)
        if diagnosis is not None and tried.tells(shown, diagnosis):
            own = diagnosis
            break
    # Of one element beyond a threshold, where is what is said of it; of more, more is said.
    if own is None or (shown is workload and _is_place(own)):
        diagnosis = tried.of_twice(max_bytes)
        if diagnosis is not None and tried.is_specific(diagnosis):
            own = diagnosis
        elif diagnosis is not None and own is not None and _is_refuted(own, diagnosis):
            own = _of_larger_alone(diagnosis)
    found = tried.vague() if own is None else tried.as_it_holds(own, max_bytes)
    if found is not None:
        found = tried.as_others_show(found, max_bytes)
    return _with_diagnosis(outcome, found)


@dataclass
class _Remembering:
    """The same, but a workload that is asked about again isn't evaluated again."""

    asked: Callable[[Workload], Evaluation | None]
    known: dict[str, Evaluation] = field(default_factory=dict)

    def __call__(self, workload: Workload) -> Evaluation | None:
        key = repr(workload)  # a recorded one's uuid may be anything
        outcome = self.known.get(key) or self.asked(workload)
        if outcome is not None:
            self.known[key] = outcome
        return outcome


@dataclass
class _Tried:
    """The workloads that were tried: the ``first`` diagnosis, and the last one that is right.

    ``wrong`` are outputs that were wrong in others before.
    """

    definition: Definition
    workload: Workload
    outcome: Evaluation
    evaluate: _Remembering
    wrong: frozenset[str] = frozenset()
    first: Diagnosis | None = None
    right: Workload | None = None

    def explained(self, shown: Workload) -> Diagnosis | None:
        """The diagnosis of a workload; None where that fails for no reason that is known.

        Nor where no element is beyond its bound and all together are, if some of the workload that
        fails are: of these it says nothing.
        """
        explained = self.evaluate(shown)
        if explained is not None and explained.status is EvaluationStatus.PASSED:
            self.right = shown
        if explained and _is_of_elements(self.outcome) and not _is_of_elements(explained):
            return None
        diagnosis = _diagnosis_of(explained)
        if diagnosis is None or (self.right and _says_too_much(self.definition, shown, diagnosis)):
            return None
        for change in (_with_layout, _with_tiles, _with_end):
            diagnosis = change(self.definition, shown, diagnosis, self.evaluate)
        if shown is not self.workload:
            diagnosis = _as_shown_by(self.definition, shown, diagnosis, self.workload, self.outcome)
        return diagnosis

    def tells(self, shown: Workload, diagnosis: Diagnosis) -> bool:
        """Whether a diagnosis says more than others of larger workloads, and isn't refuted."""
        is_first, self.first = self.first is None, self.first or diagnosis
        may_tell = is_first or not _is_tiny(self.definition, shown)
        return may_tell and self.is_specific(diagnosis)

    def is_specific(self, diagnosis: Diagnosis) -> bool:
        """Whether a diagnosis says more than how much is wrong, and isn't refuted."""
        is_refuted = self.first is not None and _is_refuted(diagnosis, self.first)
        return diagnosis.pattern not in VAGUE_PATTERNS and not is_refuted

    def vague(self) -> Diagnosis | None:
        """What little is said: by the first larger workload that fails, or by the smallest one."""
        own, first = self.outcome.diagnosis, self.first
        explained = _diagnosis_of(self.evaluate(self.workload))
        if own and explained and _is_place(own) and explained.pattern in VAGUE_PATTERNS:
            own = explained  # with other inputs it is elsewhere
        is_together = not _is_of_elements(self.outcome)
        if own and is_together and not (first and _is_mostly_wrong(first)):
            first = own  # how far all elements together are off says more than how many are
        if own and first and _is_refuted(own, first):
            return _of_larger_alone(first)
        # How many elements of another workload are wrong doesn't go with an element of this one.
        if own and (first is None or first.pattern in COUNTED or _is_another(own, first)):
            first = own
        return first

    def as_others_show(self, diagnosis: Diagnosis, max_bytes: int) -> Diagnosis:
        """The diagnosis, as far as others show it too, with what these show beside it."""
        found = self.at_other_sizes(self.agreed(diagnosis, max_bytes), max_bytes)
        found = _of_one_workload(found)
        if not has_part(parts.WhereInput, found.parts):  # else others may lack such elements
            found = self.unless_right(found)
        return self.with_all_outputs(self.from_its_size(found))

    def as_it_holds(self, diagnosis: Diagnosis, max_bytes: int) -> Diagnosis:
        """The diagnosis, without what isn't so at twice the sizes."""
        if diagnosis.pattern == "follows an input":
            return self._with_conditions_that_hold(diagnosis, max_bytes)
        return diagnosis

    def agreed(self, diagnosis: Diagnosis, max_bytes: int) -> Diagnosis:
        """The diagnosis, as far as workloads of other values, or of twice the sizes, say the same.

        What is said of a layout is so by comparison with another; what is said of an input was
        tried with other values. Of recorded tensors there are no others.
        """
        is_tried = diagnosis.pattern in ("layout", *ABOUT_INPUTS)
        if is_tried or self.workload.has_recorded_tensors or not _is_of_elements(self.outcome):
            return diagnosis
        others = self._others(diagnosis, max_bytes)
        if others is None:
            return diagnosis
        found = agreed(diagnosis, others)
        if found.shown_by is None or found.shown_by == diagnosis.shown_by:
            return found
        shown = found.shown_by
        found = _as_shown_by(self.definition, shown, found, self.workload, self.outcome)
        return _of_larger_alone(found) if found.pattern in VAGUE_PATTERNS else found

    def _others(self, own: Diagnosis, max_bytes: int) -> list[Diagnosis] | None:
        """Those of some workloads that fail: twice as large as the smallest, or else as large.

        Of a larger one only of the same sizes, and fewer, since these take longer. None where
        nobody knows: there was no time, or all that fail do so as a whole alone, which says nothing
        of elements.
        """
        shown = own.shown_by or self.workload
        twice = doubled(self.definition, shown, max_bytes)
        is_larger = twice != shown and _is_within(shown, twice)
        enough = ENOUGH if own.shown_by is None else FIRST
        for workload in (twice, shown) if is_larger and own.shown_by is None else (shown,):
            failed, found, is_known = 0, list[Diagnosis](), True
            regimes = [workload.regime, {}]
            for by in range(1, SEEDS_ASKED + 1):
                # Those of a regime may show something else, because of its values or lengths.
                other = self._of_seed(workload, by, regimes[(by - 1) % len(regimes)])
                outcome = self.evaluate(other)
                is_known &= outcome is not None
                if outcome is not None and outcome.status is EvaluationStatus.PASSED:
                    regimes = [workload.regime]  # plain ones are right, most likely
                    other = with_integer_scalars(self.definition, other, workload)
                    outcome = self.evaluate(other)  # which is known if it is the same
                if outcome is None or (diagnosis := _diagnosis_of(outcome)) is None:
                    continue
                failed += 1
                if self.right and _says_too_much(self.definition, other, diagnosis):
                    diagnosis = only_wrong(diagnosis)
                found += [_bare(diagnosis, other)] if _is_of_elements(outcome) else []
                if failed == enough or _are_agreed(own, found):
                    break
            if failed:
                return found or None
        return [] if is_known else None

    def at_other_sizes(self, diagnosis: Diagnosis, max_bytes: int) -> Diagnosis:
        """The diagnosis, without what workloads of other sizes don't show.

        What two seeds of these don't show may be so by chance, or depend on a size. They may also
        show that other outputs are wrong.
        """
        is_tried = diagnosis.pattern == "layout" or self.workload.has_recorded_tensors
        may_be_less = claims_more(diagnosis) or self._wrong_outputs() < {*self.definition.outputs}
        if is_tried or not (_is_of_elements(self.outcome) and may_be_less):
            return diagnosis
        shown, change = diagnosis.shown_by, doubled if diagnosis.shown_by is None else reduced
        resized = change(self.definition, shown or self.workload, max_bytes)
        if resized.axes == (shown or self.workload).axes:
            return diagnosis
        others: list[Diagnosis] = []
        for by in range(1, RESIZED_SEEDS + 1):
            outcome = self.evaluate(self._of_seed(resized, by))
            other = _diagnosis_of(outcome)
            is_of_elements = outcome is not None and _is_of_elements(outcome)
            others += [_bare(other, resized)] if other and is_of_elements else []
            if len(others) == FIRST:
                break
        own = self.outcome.diagnosis
        if own and shown and has_part(parts.VeryLast, diagnosis.parts):
            others.append(_bare(own, self.workload))  # as of one place of padding, or of several
        found = as_at_other_sizes(diagnosis, others, self.definition) if others else diagnosis
        is_less = found.pattern in VAGUE_PATTERNS and found.pattern != diagnosis.pattern
        return _of_larger_alone(found) if is_less and found.shown_by is not None else found

    def of_twice(self, max_bytes: int) -> Diagnosis | None:
        """The diagnosis of twice the sizes, of the first of several seeds that anything fails with.

        None where nothing does, or there are no such sizes.
        """
        twice = doubled(self.definition, self.workload, max_bytes)
        for by in range(OTHER_SEEDS + 1 if twice != self.workload else 0):
            if (again := self.explained(self._of_seed(twice, by))) is not None:
                return again
        return None

    def _with_conditions_that_hold(self, diagnosis: Diagnosis, max_bytes: int) -> Diagnosis:
        """The diagnosis, with those inputs that make it right at twice the sizes too.

        Also with values of other seeds there: what an input of zeros does may be so by chance.
        """
        shown = diagnosis.shown_by or self.workload
        larger = self._larger_than(shown, max_bytes)
        seeds = range(1, 1 if shown.has_recorded_tensors else CONDITION_SEEDS + 1)
        seeded = (larger or [shown])[0]
        for other in (*larger, *(self._of_seed(seeded, by) for by in seeds)):
            again = _diagnosis_of(self.evaluate(other))
            if again is None or again.pattern not in (*VAGUE_PATTERNS, diagnosis.pattern):
                continue
            others = first_part(Conditions, again.parts) or Conditions()
            said = [
                each.also_in(others) if isinstance(each, Conditions) else each
                for each in diagnosis.parts
            ]
            diagnosis = saying(diagnosis, *filter(str, said))
        return diagnosis

    def _larger_than(self, workload: Workload, max_bytes: int) -> list[Workload]:
        """Twice the sizes; where that is too much, twice that of each axis alone."""
        twice = doubled(self.definition, workload, max_bytes)
        if _is_within(workload, twice):
            return [twice] if twice != workload else []
        return self._with_each_size(workload, {a: 2 * n + 1 for a, n in workload.axes.items()})

    def unless_right(self, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis of a workload, which names a larger one that is right.

        That has an end and a rest too, so these don't explain what is wrong.
        """
        shown, right = diagnosis.shown_by or self.workload, self.right
        if right is None or (right.axes == shown.axes and right.regime == shown.regime):
            return diagnosis
        diagnosis = without_guess(diagnosis)
        # Where other values of these sizes are right, or some of the larger ones are wrong, it
        # isn't the sizes that decide.
        has_same_values = right.regime == shown.regime
        if not self._always(right, True) or (has_same_values and not self._always(shown, False)):
            return diagnosis
        if _values_of(right) != _values_of(shown):
            # Whether it is the values, and not the sizes; else nobody knows which of these.
            normal = make_workload(self.definition, shown.axes, shown.seed, right.regime)
            if not (self._mostly_fails(shown) and self._always(normal, True)):
                return diagnosis
            is_float = self.definition.outputs[diagnosis.output].dtype.is_floating
            diagnosis = _without_place(diagnosis, keeps_expected=is_float)
            return qualified(diagnosis, "right with normal values of these sizes", is_right=True)
        is_larger = _is_within(self.workload, right)
        # Between sizes that are wrong, others are right by chance, unless they are whole tiles.
        # Small errors may all be within their bounds.
        is_between = is_larger and _is_within(right, shown) and not _has_whole_tiles(right)
        is_by_chance = is_between or (is_larger and _is_small_error(self.outcome))
        is_known = right.axes != shown.axes and not is_by_chance
        if not (is_known and self._is_right_at_its_sizes(right, diagnosis)):
            return diagnosis  # it is the layout, which is said, or what values or lengths there are
        return qualified(diagnosis, f"right at {_sizes_in_words(right)}", is_right=True)

    def from_its_size(self, diagnosis: Diagnosis) -> Diagnosis:
        """What is wrong, or where, with the axis of the smallest one of which one less is right."""
        own = self.workload
        says_more = diagnosis.pattern not in VAGUE_PATTERNS and not _is_place(diagnosis)
        if says_more or any(each.is_right for each in _circumstances(diagnosis)):
            return diagnosis
        for axis, size in own.axes.items():
            axes = {**own.axes, axis: size - 1}
            if size < LEAST_SWITCH or not in_domain(self.definition, axes):
                continue
            less = make_workload(self.definition, axes, own.seed, own.regime)
            if all(self._passes(less, by) for by in SWITCH_SEEDS) and not any(
                self._passes(own, by) is not False for by in SWITCH_SEEDS
            ):
                return qualified(diagnosis, f"right at {_sizes_in_words(less)}", is_right=True)
        return diagnosis

    def with_all_outputs(self, diagnosis: Diagnosis) -> Diagnosis:
        """The diagnosis, with those outputs too that are wrong with other inputs that were tried.

        In one workload some may be right by chance, as where nothing is moved. Those that are wrong
        in the workload that fails, of which elements are shown, are wrong too.
        """
        own = self.outcome.diagnosis
        here = {*diagnosis.also, *((own.output, *own.also) if own else ())} - {diagnosis.output}
        left = self._wrong_outputs() - {diagnosis.output, *here}
        names = [*self.definition.outputs]
        also, elsewhere = (tuple(name for name in names if name in each) for each in (here, left))
        return diagnosis.model_copy(update={"also": also, "elsewhere": elsewhere})

    def _wrong_outputs(self) -> frozenset[str]:
        """The outputs that are wrong in any workload that was tried."""
        outcomes = (self.outcome, *self.evaluate.known.values())
        found = [each for each in map(_diagnosis_of, outcomes) if each is not None]
        return self.wrong.union(*((each.output, *each.also) for each in found))

    def _always(self, workload: Workload, passes: bool) -> bool:
        """Whether a workload passes, or fails, with values of several other seeds."""
        return all(self._passes(workload, by) is passes for by in range(1, OTHER_SEEDS + 1))

    def _mostly_fails(self, workload: Workload) -> bool:
        """Whether a workload fails with values of most other seeds, not with a few by chance."""
        failed = [self._passes(workload, by) is False for by in range(1, OTHER_SEEDS + 1)]
        return 2 * sum(failed) > len(failed)

    def _of_seed(
        self, workload: Workload, by: int, regime: Mapping[str, str] | None = None
    ) -> Workload:
        """The workload with values of another seed, and perhaps of another regime.

        Scalars that don't follow from its own seed stay what they are.
        """
        regime = workload.regime if regime is None else regime
        other = make_workload(self.definition, workload.axes, workload.seed + by, regime)
        given = {name: workload.inputs[name] for name in given_scalars(self.definition, workload)}
        return other.model_copy(update={"inputs": {**other.inputs, **given}}) if given else other

    def _passes(
        self, workload: Workload, by: int = 1, regime: Mapping[str, str] | None = None
    ) -> bool | None:
        """Whether a workload passes with values of another seed; None where that isn't known."""
        outcome = self.evaluate(self._of_seed(workload, by, regime))
        return None if outcome is None else outcome.status is EvaluationStatus.PASSED

    def _is_right_by_chance(self, diagnosis: Diagnosis, right: Workload) -> bool:
        """Whether so few elements are wrong that at other sizes all may be right by chance."""
        spec = self.definition.outputs[diagnosis.output]
        total = prod(spec.shape_at(self.definition.axis_values(right.axes)))
        share = wrong_share(diagnosis)
        return bool(share) and (1 - share) ** (total * (OTHER_SEEDS + 1)) > BY_CHANCE

    def _is_right_at_its_sizes(self, right: Workload, diagnosis: Diagnosis) -> bool:
        """Whether a workload that is right is so with other lengths and values too.

        Sequences that are empty, or rows that are equal, are more likely where there are few. And
        not by chance, because few of its elements would be wrong.
        """
        if self._is_right_by_chance(diagnosis, right):
            return False
        planned = plan(self.definition)
        regimes = [
            {**right.regime, part: name}
            for part, names in (("lengths", LENGTHS), ("values", value_patterns(self.definition)))
            for name in (names if planned.following(part) else ())
            if name != right.regime.get(part, names[0])
        ]
        # Where those beside it aren't right, it may be for being odd, say.
        beside = [] if _has_whole_tiles(right) else self._of_one_less(right)
        is_right = all(self._passes(right, by, regime) for by, regime in enumerate(regimes, 1))
        return is_right and all(self._passes(each) is not False for each in beside)

    def _of_one_less(self, workload: Workload) -> list[Workload]:
        """The same with an axis that is shorter by one, for each that may be."""
        sizes = {axis: n - 1 for axis, n in workload.axes.items() if n > 1}
        return self._with_each_size(workload, sizes)

    def _with_each_size(self, workload: Workload, sizes: Mapping[str, int]) -> list[Workload]:
        """The same with one of these sizes each, for each that may be."""
        changed = [{**workload.axes, axis: n} for axis, n in sizes.items()]
        return [
            make_workload(self.definition, axes, workload.seed, workload.regime)
            for axes in changed
            if in_domain(self.definition, axes)
        ]


def _are_agreed(own: Diagnosis, others: Sequence[Diagnosis]) -> bool:
    """Whether the first few say the same."""
    return len(others) >= FIRST and all(says_the_same(own, each) for each in others)


def _bare(diagnosis: Diagnosis, shown: Workload) -> Diagnosis:
    """A diagnosis of that workload, without a guess at tiles, for which others were not tried."""
    return with_guessed_tiles(diagnosis, {}).model_copy(update={"shown_by": shown})


def _values_of(workload: Workload) -> dict[str, str]:
    """The parts of a regime that are about values."""
    return {part: name for part, name in workload.regime.items() if part != "layout"}


def _is_mostly_wrong(diagnosis: Diagnosis) -> bool:
    """Whether a vague diagnosis says that all elements are wrong, or many."""
    is_everywhere = diagnosis.pattern == "everywhere"
    return diagnosis.vague and (is_everywhere or wrong_share(diagnosis) >= MANY)


def _is_place(diagnosis: Diagnosis) -> bool:
    """Whether a diagnosis says no more than where, and that is not everywhere."""
    return diagnosis.pattern == diagnosis.place and diagnosis.pattern not in VAGUE_PATTERNS


def _of_one_workload(diagnosis: Diagnosis) -> Diagnosis:
    """A diagnosis without an element where it says which are wrong of a larger workload, or counts.

    The element is one of the workload that fails.
    """
    if not (diagnosis.vague and diagnosis.shown_by is not None):
        return diagnosis
    if has_part(parts.At, diagnosis.parts):
        return _of_larger_alone(diagnosis)
    is_vague = diagnosis.pattern in (*VAGUE_PATTERNS, "follows an input")
    return _of_larger_alone(diagnosis) if is_vague and wrong_share(diagnosis) > 0 else diagnosis


def _without_place(diagnosis: Diagnosis, *, keeps_expected: bool) -> Diagnosis:
    """A diagnosis of certain values, such as equal ones, without a place: these may decide it.

    Which of a few integers is expected may be decided by them as well.
    """
    is_kept = keeps_expected and has_part(parts.ByExpected, diagnosis.parts)
    return only_wrong(diagnosis) if _is_place(diagnosis) and not is_kept else diagnosis


def _of_larger_alone(diagnosis: Diagnosis) -> Diagnosis:
    """A vague diagnosis of a larger workload, without an element, with its sizes."""
    assert diagnosis.shown_by is not None
    sizes = _sizes_in_words(diagnosis.shown_by)
    if diagnosis.parts[-1] != Circumstance(sizes):
        diagnosis = qualified(diagnosis, sizes)
    return diagnosis.model_copy(update={"vague": False})


def _is_within(smaller: Workload, larger: Workload) -> bool:
    """Whether no axis of one is longer than that of the other."""
    return all(n <= larger.axes[axis] for axis, n in smaller.axes.items())


def _has_whole_tiles(workload: Workload) -> bool:
    """Whether any size is that of whole tiles."""
    return any(n and n % TILE_SIZES[1] == 0 for n in workload.axes.values())


def _is_small_error(outcome: Evaluation) -> bool:
    """Whether all errors of an evaluation are small, as those of rounding are."""
    errors = outcome.correctness
    return errors is not None and (errors.max_relative_error or 0.0) <= LARGE_ERROR


def _is_another(own: Diagnosis, larger: Diagnosis) -> bool:
    """Whether both say little, and the one would not go with the elements of the other."""
    return own.pattern in VAGUE_PATTERNS and own.pattern != larger.pattern


def _is_refuted(diagnosis: Diagnosis, larger: Diagnosis) -> bool:
    """Whether what is said of inputs, all elements or a place isn't so in the larger workload."""
    if larger.pattern not in ("everywhere", "scattered") or larger.shown_by is None:
        return False
    if (diagnosis.pattern, larger.pattern) == ("everywhere", "scattered"):
        return True
    return _is_place(diagnosis) or diagnosis.pattern in OF_ALL


def _says_too_much(definition: Definition, shown: Workload, diagnosis: Diagnosis) -> bool:
    """Whether a few elements suggest misread inputs, which larger workloads would show too."""
    return diagnosis.pattern in ABOUT_INPUTS and _is_tiny(definition, shown)


def _is_tiny(definition: Definition, workload: Workload) -> bool:
    """Whether no tensor has more than a few elements."""
    sizes = definition.axis_values(workload.axes)
    tensors = {**definition.inputs, **definition.outputs}
    return max(prod(spec.shape_at(sizes)) for spec in tensors.values()) < TINY


def _larger(definition: Definition, workload: Workload, max_bytes: int) -> Iterator[Workload]:
    """Larger workloads: of plain values, which show patterns best, then of the same regime.

    Then with the same integer scalars: another window, say, may hide what is wrong.
    """
    most = min(max_bytes, DIAGNOSIS_BYTES)
    plain: dict[str, str] = {}
    regimes = (plain, workload.regime) if workload.regime else (plain,)
    larger = [enlarge(definition, workload, regime, most) for regime in regimes]
    yield from (each for each in larger if each != workload)
    for each in larger:
        alike = with_integer_scalars(definition, each, workload)
        if alike not in (each, workload):
            yield alike


def _diagnosis_of(outcome: Evaluation | None) -> Diagnosis | None:
    """The diagnosis of wrong numbers; None for other outcomes."""
    return outcome.diagnosis if outcome is not None and has_pattern(outcome) else None


def facts_of(outcome: Evaluation) -> dict[str, Any]:
    """What an evaluation's record has beside the largest errors."""
    return (outcome.correctness.extra if outcome.correctness else None) or {}


def _is_of_elements(outcome: Evaluation) -> bool:
    """Whether single elements are beyond their bounds, not only all of them together."""
    return bool(facts_of(outcome).get("check", "elements") == "elements")


def has_pattern(outcome: Evaluation) -> bool:
    """Whether an evaluation's outputs are wrong numbers."""
    return outcome.status is EvaluationStatus.INCORRECT_NUMERICAL


def _with_layout(
    definition: Definition,
    workload: Workload,
    diagnosis: Diagnosis,
    evaluate: Callable[[Workload], Evaluation | None],
) -> Diagnosis:
    """The diagnosis; it is the layout if the same values are right when contiguous."""
    layout, contiguous = workload.regime.get("layout", LAYOUTS[0]), LAYOUTS[0]
    if layout == contiguous:
        return diagnosis
    regime = {**workload.regime, "layout": contiguous}
    outcome = evaluate(make_workload(definition, workload.axes, workload.seed, regime))
    if outcome is None or outcome.status is not EvaluationStatus.PASSED:
        return diagnosis
    circumstance = f"only where inputs are {layout}, not where they are {contiguous}"
    return qualified(diagnosis, circumstance).model_copy(update={"pattern": "layout"})


def _with_tiles(
    definition: Definition,
    workload: Workload,
    diagnosis: Diagnosis,
    evaluate: Callable[[Workload], Evaluation | None],
) -> Diagnosis:
    """The diagnosis with the smallest tiles of which whole ones are right, and one with a rest not.

    Or with none if what is wrong at their rest is so without a rest too, or begins where the
    definition itself divides an axis.
    """

    passes = partial(_passes_at, definition, workload, evaluate)
    divided = _sizes_of_parts(definition)
    tiles = {
        axis: tile
        for axis, tile in diagnosis.tiles.items()
        if definition.const_axes.get(axis, 0) // tile * tile not in divided
        and _is_only_tile(tile, definition.const_axes.get(axis, 0))
    }
    if tiles != diagnosis.tiles:
        diagnosis = with_guessed_tiles(diagnosis, tiles)
    sizes = workload.axes
    while tiles and min(tiles.values()) >= TILE_SIZES[1]:
        is_right = passes({axis: _whole(sizes.get(axis, 0), tile) for axis, tile in tiles.items()})
        if is_right is False and tiles == diagnosis.tiles:
            return with_guessed_tiles(diagnosis, {})
        if not is_right:
            break
        diagnosis = with_guessed_tiles(diagnosis, tiles)
        tiles = {axis: tile // 2 for axis, tile in tiles.items()}
        # A size below that of the real tiles has no rest after any.
        if passes({axis: tile + sizes.get(axis, 0) % tile for axis, tile in tiles.items()}):
            break
    return diagnosis


def _with_end(
    definition: Definition,
    workload: Workload,
    diagnosis: Diagnosis,
    evaluate: Callable[[Workload], Evaluation | None],
) -> Diagnosis:
    """The diagnosis, which guesses that the end is off by one only if a size of one less has it."""
    guesses = [part for part in diagnosis.parts if isinstance(part, parts.Guess)]
    guess = next((each for each in guesses if each.off_by_one and not each.rest_of), None)
    if guess is None:
        return diagnosis
    if _is_picked_of(definition, guess.axis):
        return without_guess(diagnosis)
    size = workload.axes.get(guess.axis, 0)
    if not size:
        return diagnosis
    is_right = _passes_at(definition, workload, evaluate, {guess.axis: size - 1})
    return without_guess(diagnosis) if is_right else diagnosis


def _is_picked_of(definition: Definition, axis: str) -> bool:
    """Whether inputs say which indices of an axis count: the last is one of them, and -1 may be."""
    rules = plan(definition).rules.values()
    picking = (rule for rule in rules if isinstance(rule, kinds.Indices | kinds.Positions))
    sizes = rf"\b{axis}\b|^{definition.const_axes.get(axis, axis)}$"
    return any(re.search(sizes, str(rule.below)) for rule in picking)


def _passes_at(
    definition: Definition,
    workload: Workload,
    evaluate: Callable[[Workload], Evaluation | None],
    sizes: Mapping[str, int],
) -> bool | None:
    """Whether a workload with other sizes passes; None where there is none, or nobody knows."""
    axes = {**workload.axes, **sizes}
    if not in_domain(definition, axes):
        return None
    outcome = evaluate(make_workload(definition, axes, workload.seed, workload.regime))
    return None if outcome is None else outcome.status is EvaluationStatus.PASSED


def _is_only_tile(tile: int, size: int) -> bool:
    """Whether no other tile leaves the same rest of a size, of which no other can be tried."""
    rest = size % tile
    return not rest or [each for each in TILE_SIZES if size % each == rest] == [tile]


def _sizes_of_parts(definition: Definition) -> set[int]:
    """Sizes that the definition may divide an axis into: its constants, and its reference's."""
    numbers = {
        node.value
        for node in ast.walk(ast.parse(definition.reference))
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value
    }
    return {*definition.const_axes.values(), *numbers}


def _whole(size: int, tile: int) -> int:
    """An odd number of tiles, at most as many as there are: an even one is one of larger tiles."""
    count = size // tile
    return (count - (count % 2 == 0)) * tile


def _differ(one: parts.Factor, other: parts.Factor, definition: Definition, output: str) -> bool:
    """Whether two factors differ by more than an output's rounding does."""
    dtype = f"torch.{definition.outputs[output].dtype.value}"
    step = next((each.roundoff for name, each in PRECISION.items() if str(name) == dtype), 0.0)
    numbers = [float(each.digits) for each in (one, other)]
    return abs(numbers[0] - numbers[1]) > 2 * step * abs(numbers[0])


def _as_shown_by(
    definition: Definition,
    larger: Workload,
    diagnosis: Diagnosis,
    workload: Workload,
    outcome: Evaluation,
) -> Diagnosis:
    """The diagnosis of a larger workload, with the elements of this workload's outcome.

    What only goes with the larger one says where it was seen.
    """
    own = outcome.diagnosis
    details = own.details if own else ()
    if own and own.pattern in VAGUE_PATTERNS and not _is_of_elements(outcome):
        details = (*detail_lines(own.sentence), *details)  # what its elements don't show
    shown: dict[str, Any] = {"shown_by": diagnosis.shown_by or larger, "details": details}
    said, own_said = (
        [part for part in (each.parts if each else ()) if isinstance(part, parts.ByExpected)]
        for each in (diagnosis, own)
    )
    is_of_expected = bool(said) and said != own_said
    if is_of_expected or diagnosis.pattern not in (*VAGUE_PATTERNS, "follows an input"):
        shown["vague"] = False  # an element of this workload would not go with it
    if outcome.correctness and not _is_small_error(outcome):  # no rounding makes these
        diagnosis = without_rounding(diagnosis)
    if own and own.output == diagnosis.output:
        shown["element"] = own.element
        names = [first_part(parts.Name, each.parts) for each in (diagnosis, own)]
        is_one_name = names[0] is not None and names[0] == names[1]
        one, other = (first_part(parts.Factor, each.parts) for each in (diagnosis, own))
        if one and other and _differ(one, other, definition, own.output) and not is_one_name:
            at, own_at = (_sizes_in_words(each) for each in (larger, workload))
            both = parts.Factor(one.digits, f" at {at}, {other.digits} x expected at {own_at}")
            diagnosis = saying(diagnosis, f"{own.output}:", both, *_circumstances(diagnosis))
    elif own and own.output:
        diagnosis = qualified(diagnosis, _sizes_in_words(larger))
    return diagnosis.model_copy(update=shown)


def _circumstances(diagnosis: Diagnosis) -> list[Circumstance]:
    return [part for part in diagnosis.parts if isinstance(part, Circumstance)]


def _sizes_in_words(workload: Workload) -> str:
    return ", ".join(f"{axis}={n}" for axis, n in workload.axes.items())


def _with_diagnosis(outcome: Evaluation, diagnosis: Diagnosis | None) -> Evaluation:
    if diagnosis is None:
        return outcome
    return outcome.model_copy(update={"diagnosis": diagnosis, "log": diagnosis.text})
