"""How a definition's workloads are made: which axes follow from which, and what fills an input."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from math import inf, prod
from typing import Any

from pytest_fib.data import (
    DTYPE_CLASSES,
    ON_REQUEST,
    VALUE_PATTERNS,
    Definition,
    DType,
    FixedValue,
    InputRule,
    Workload,
    kinds,
)
from pytest_fib.workloads._axes import OPEN_MAXIMUM, Domain, is_open, listed_domain
from pytest_fib.workloads._constraints import (
    Constraint,
    ConstraintError,
    constraints_on,
    parse,
    parse_all,
    parse_expression,
)
from pytest_fib.workloads._descriptions import Said, said
from pytest_fib.workloads._inference import Inferred, infer
from pytest_fib.workloads._reference_reader import uses_of
from pytest_fib.workloads._reference_uses import ReferenceUses
from pytest_fib.workloads._solver import AxisSolver, InfeasibleError, Tries
from pytest_fib.workloads._special_values import is_lse
from pytest_fib.workloads._subject import Subject

#: How many plans are cached; making one takes about a millisecond.
CACHED_PLANS = 256
#: How many sequences are drawn at most where the definition bounds no axis, but for once in a
#: search: references go through them one by one.
MAX_SEQUENCES = 4096
#: Bits of integers that sizes of axes may be too large for, and of bytes.
SMALL_INTEGERS, BITS_OF_BYTES = 16, 8
#: How many numbers of a scalar are listed, of which none is a multiple of their step.
MOST_LISTED = 4096
#: What is said of an input whose description has none of the forms that are read.
UNREAD = "nothing is read of its description"
#: How much is tried for a value of an axis near the one that is wanted.
QUICK_TRIES = 1000
#: The most of the rule that is suggested for an integer of more than 8 bits that nothing speaks of.
UNKNOWN_MAX = 100
#: Names of scalars that say how far windows reach, and the most that is suggested for these.
STEPS_OF_WINDOWS = re.compile(r"(.*_)?(stride|dilation|kernel_size|groups|hop|hop_length)")
UNKNOWN_STEP = 4
#: Rules of inputs whose elements may as well be other numbers.
HOLD_ANY = (kinds.Values, kinds.Normal, kinds.Uniform)


@dataclass(frozen=True)
class Choice:
    """An axis whose size is to be chosen.

    The first ``affordable`` values of its ``domain`` fit the budget. Some of them may not meet the
    constraints. ``known`` has the sizes that were chosen before.
    """

    axis: str
    domain: Domain
    affordable: int
    known: Mapping[str, int] = field(default_factory=dict)

    @property
    def largest(self) -> int:
        return self.domain[self.affordable - 1]


@dataclass(frozen=True)
class Plan:
    """How the workloads of a definition are made."""

    definition: Definition
    #: The definition's own constraints; and by input, those that its generator adds, since it has
    #: no valid values otherwise.
    stated: tuple[Constraint, ...] = ()
    implied: Mapping[str, tuple[Constraint, ...]] = field(default_factory=dict)
    #: Finds sizes of axes that meet the constraints.
    solver: AxisSolver = field(default_factory=AxisSolver)
    #: The axes that do not follow from others.
    independent: tuple[str, ...] = ()
    #: How each input is made.
    rules: Mapping[str, InputRule] = field(default_factory=dict)
    #: The inputs, each after those that it refers to.
    fill: tuple[str, ...] = ()
    #: What was inferred about inputs.
    inferred: Mapping[str, Inferred] = field(default_factory=dict)
    #: Integer scalars that constraints relate to axes, so that both are solved together.
    scalars: tuple[str, ...] = ()
    #: What the reference does with the inputs.
    uses: ReferenceUses = field(default_factory=ReferenceUses)
    #: Inputs that nothing is known to fill, and why.
    unmade: Mapping[str, str] = field(default_factory=dict)
    #: Why no workload can be made, and where in the definition that is.
    problem: str | None = None
    problem_at: tuple[str | int, ...] = ()
    #: Axes of offsets whose number the definition does not bound, and the most sequences drawn.
    lengths: Mapping[str, int] = field(default_factory=dict)
    #: From axes, how many numbers a reference may hold besides inputs and outputs: see ``_scores``.
    scores: tuple[Callable[[Mapping[str, Any]], Any], ...] = ()

    @property
    def notes(self) -> list[str]:
        """What was inferred about inputs, except those that may be any numbers."""
        return [
            f"{name}: {inference}"
            for name, inference in self.inferred.items()
            if inference.rule != kinds.Values()
        ]

    @property
    def guessed(self) -> str:
        """The inputs that may mean something else than was inferred; empty for none."""
        guesses = [
            f"{name} ({inference.says})"
            for name, inference in self.inferred.items()
            if inference.rule.kind not in ("values", "boolean", "fixed value")
        ]
        return ", ".join(guesses)

    def explained(self) -> list[str]:
        """How each input is made, and what that is from: a line for each."""
        lines = []
        for name, rule in self.rules.items():
            inference, what = self.inferred.get(name), self.unmade.get(name)
            limits = [each.text for each in self.stated if name in each.tensors & {*self.scalars}]
            if inference and limits:  # which say more than a guess
                inference = replace(inference, doubts=())
            source = f"inferred: {inference}" if inference else f"{rule}, as the definition says"
            source += f"; within {' and '.join(limits)}" if limits else ""
            if inference and not what and _is_unread(name, self.definition, rule):
                source += f"; {UNREAD}"
            asked = sorted(map(str, special_values(name, self.definition, self.uses, rule)))
            beside = f"; in one workload of three also {', '.join(asked)}" if asked else ""
            left_out = self.uses.left_out.get(name)
            if left_out and may_be_any(name, self.definition, rule):
                beside += f"; NaN where {left_out.scalar} says that it is left out"
            lines.append(f"{name}: unknown, {what}" if what else f"{name}: {source}{beside}")
        return lines

    @property
    def order(self) -> tuple[str, ...]:
        """The var axes, so that those that follow from others come after them."""
        return tuple(axis for axis in self.solver.order if axis not in self.scalars)

    def following(self, part: str) -> list[str]:
        """The inputs that a part of the regime changes: "values" or "lengths"."""
        return [name for name, rule in self.rules.items() if rule.follows == part]

    @cached_property
    def offset_axes(self) -> set[str]:
        """The axes of offsets, one longer than what they are offsets of."""
        return {
            _shape(self.definition, name)[0]
            for name, rule in self.rules.items()
            if isinstance(rule, kinds.Indptr)
        }

    @cached_property
    def sums_of_bytes(self) -> dict[str, int]:
        """How many products of two inputs of bytes are summed at most, by the axis along which.

        That is as many as an int32 surely holds, in which kernels sum; no output has these axes.
        """
        largest: dict[str, list[int]] = defaultdict(list)
        for spec in self.definition.inputs.values():
            if not spec.dtype.is_floating and spec.dtype.itemsize_bits <= BITS_OF_BYTES:
                for axis in set(spec.shape or ()):
                    largest[axis].append(max(abs(int(end)) for end in spec.dtype.ends))
        of_outputs = {a for spec in self.definition.outputs.values() for a in spec.shape or ()}
        return {
            axis: (2**31 - 1) // prod(sorted(each)[-2:])
            for axis, each in largest.items()
            if len(each) > 1 and axis not in of_outputs
        }

    @cached_property
    def outputs_of_bits(self) -> set[str]:
        """Floating outputs that the reference puts together from bits, which nothing has rounded.

        As in ``((x.view(torch.int32) + noise) & -65536).view(torch.float32)``.
        """
        return {name for name, are_bits in self.uses.bits.items() if are_bits}

    @cached_property
    def smallest(self) -> dict[str, int]:
        """The least value of every var axis. Raises InfeasibleError."""
        return self.completed({})

    def domain(self, axis: str, known: Mapping[str, int]) -> Domain:
        """What ``axis`` may be, given the axes known so far. Raises InfeasibleError."""
        return self._domains(known)[axis]

    def _domains(self, known: Mapping[str, int]) -> dict[str, Domain]:
        domains = self.solver.domains(known)
        if domains is None:
            raise self.solver.infeasible(known)
        return domains

    def completed(self, known: Mapping[str, int]) -> dict[str, int]:
        """All var axes: those not known get their least value. Raises InfeasibleError."""
        axes = self.complete(known)
        if axes is None:
            raise self.solver.infeasible(known)
        return axes

    def complete(self, known: Mapping[str, int]) -> dict[str, int] | None:
        """The same; None where there are none."""
        axes = self.solver.complete(known)
        return None if axes is None else self._without_scalars(axes)

    def _without_scalars(self, sizes: Mapping[str, int]) -> dict[str, int]:
        return {axis: n for axis, n in sizes.items() if axis not in self.scalars}

    def fitting(self, scalars: Mapping[str, Any], known: Mapping[str, int]) -> dict[str, Any]:
        """Scalars with those that constraints relate to axes as near as may be to what they are."""
        if not set(self.scalars) - set(known):
            return dict(scalars)
        wanted = {name: scalars[name] for name in self.scalars}
        sizes = self.solver.complete(known, wanted, tries=Tries(QUICK_TRIES)) or wanted
        return {**scalars, **{name: sizes[name] for name in self.scalars}}

    def narrowed(self, axes: Mapping[str, int]) -> dict[str, kinds.Integers]:
        """Rules of scalars with the ends that constraints leave of theirs for these axes.

        Of one drawn up to 4096 that is at most the size of an axis, nearly all were that size.
        """
        domains = (self.solver.domains(axes) if self.scalars else None) or {}
        found = {}
        for name in domains.keys() & {*self.scalars}:
            rule, domain = self.rules[name], domains[name]
            if isinstance(rule, kinds.Integers) and rule.step == 1:
                found[name] = rule.model_copy(update={"min": domain.low, "max": domain.high})
        return found

    def lowered(
        self, axes: Mapping[str, int], known: Mapping[str, int], wanted: Mapping[str, int]
    ) -> dict[str, int] | None:
        """Axes none of which is larger than in ``axes``, where some are known; None for none.

        The others are as near as may be to what is wanted.
        """
        sizes = self.solver.complete(known, wanted, at_most=axes, tries=Tries(QUICK_TRIES))
        return None if sizes is None else self._without_scalars(sizes)

    @cached_property
    def _element_bits(self) -> Counter[tuple[str, ...]]:
        """Bits that a workload takes for each element along some var axes."""
        const = self.solver.const
        bits: Counter[tuple[str, ...]] = Counter()
        inputs, outputs = self.definition.inputs, self.definition.outputs
        for name, spec in (*inputs.items(), *outputs.items()):
            if spec.shape is not None:
                var_axes = (axis for axis in spec.shape if axis not in const)
                elements = prod(const.get(axis, 1) for axis in spec.shape)
                # Bytes of an image, say, that the reference makes numbers of.
                are_numbers = spec.dtype.is_floating or (
                    name in inputs and name in self.uses.numbers
                )
                copy = 64 if are_numbers else 0
                bits[tuple(sorted(var_axes))] += elements * (spec.dtype.itemsize_bits + copy)
        return bits

    def bytes_at(self, axes: Mapping[str, int]) -> int:
        """Bytes of all inputs and outputs, and of float64 copies of floating numbers.

        Those of inputs that the reference makes floating numbers of are among them.
        """
        bits = sum(
            bits * prod(axes[axis] for axis in of) for of, bits in self._element_bits.items()
        )
        return -(-bits // 8)

    def fits(self, axes: Mapping[str, int], max_bytes: int, many: int = 0) -> bool:
        """Whether a workload of these sizes fits the budget, with what its reference may hold.

        It may have as ``many`` sequences, if these are more than usual.
        """
        values = {**self.solver.const, **axes}
        if any(values[axis] > max(most, many) + 1 for axis, most in self.lengths.items()):
            return False
        scores = sum(compute(values) for compute in self.scores)
        return self.bytes_at(values) + 8 * int(scores) <= max_bytes

    def affordable(
        self, axis: str, known: Mapping[str, int], max_bytes: int, many: int = 0
    ) -> tuple[Domain, int]:
        """The domain of an axis, and how many of its values, from the smallest, can be afforded.

        Bytes grow with every axis, so a bisection finds it. At least one: a definition whose
        smallest workload is over the budget is refused elsewhere.
        """
        domains = self._domains(known)
        values = domains[axis]

        def is_too_large(index: int) -> bool:
            # Or more: not every value of the axis may meet the constraints.
            limited = {**domains, axis: values.narrowed(values[index], inf)}
            left = self.solver.narrowed(limited, (axis,))
            if left is None:
                return True
            return not self.fits({a: left[a].low for a in self.order}, max_bytes, many)

        return values, 1 + bisect_left(range(1, len(values)), True, key=is_too_large)

    def choose(
        self, budgets: Mapping[str, int], pick: Callable[[Choice], int], many: int = 0
    ) -> dict[str, int]:
        """Sizes of all var axes that meet the constraints, decided one after the other.

        ``budgets`` has the axes in the order in which they are decided, with the bytes that a
        workload may take then. ``pick`` says what an axis is to be; it gets the nearest value found
        that leaves some for the others. The first axis may make for as ``many`` sequences, which
        the others then may not add to. Raises InfeasibleError.
        """
        axes: dict[str, int] = {}
        whole = self.smallest
        for axis, budget in budgets.items():
            choice = Choice(axis, *self.affordable(axis, axes, budget, many), dict(axes))
            if len(choice.domain) > 1:
                whole = self._whole_near(choice, pick(choice), axes, budget, many) or whole
            axes[axis] = whole[axis]
            many = min(many, self.sequences(whole))
        return axes

    def following_sizes(self, choice: Choice, size: int) -> Mapping[str, int]:
        """The sizes of all axes where that of a choice is known; empty where none are found."""
        known = {**choice.known, choice.axis: size}
        return self.solver.complete(known, tries=Tries(QUICK_TRIES)) or {}

    @property
    def constrained(self) -> frozenset[str]:
        """The inputs that constraints speak of, which may not be changed alone."""
        return frozenset[str]().union(*(constraint.tensors for constraint in self.stated))

    def splits(self) -> Iterator[tuple[str, str]]:
        """The axes of offsets and lengths of sequences, and those of which these are parts."""
        for name, rule in self.rules.items():
            shape = self.definition.inputs[name].shape
            if isinstance(rule, kinds.Indptr | kinds.Split) and shape:
                sides = shape[-1], str(rule.total)
                if all(axis in self.definition.var_axes for axis in sides):
                    yield sides

    def sequences(self, axes: Mapping[str, int]) -> int:
        """How many sequences there are, of those whose number is limited; 0 where none is."""
        return max((axes[axis] - 1 for axis in self.lengths), default=0)

    def has_many_sequences(self, axes: Mapping[str, int]) -> bool:
        """Whether there are more sequences than usual."""
        return any(axes[axis] - 1 > most for axis, most in self.lengths.items())

    def _whole_near(
        self, choice: Choice, wanted: int, known: Mapping[str, int], max_bytes: int, many: int
    ) -> dict[str, int] | None:
        """All axes, where one has the value nearest to the wanted one, of those tried."""
        tries = Tries(QUICK_TRIES)
        for n in choice.domain.narrowed(0, choice.largest).around(wanted):
            axes = self.solver.complete({**known, choice.axis: n}, tries=tries)
            if axes is not None and self.fits(axes, max_bytes, many):
                return axes
            if not tries.take():
                break
        return None

    def broken(
        self,
        axes: Mapping[str, int],
        inputs: Mapping[str, Any] | None = None,
        recorded: Collection[str] = (),
    ) -> str | None:
        """The first constraint that a workload breaks; those of inputs too, where given.

        Inputs that are there, or whose names are among the ``recorded``, have to meet what the
        definition states only: no generator makes them.
        """
        values = {**self.solver.const, **axes, **(inputs or {})}
        implied = self.implied.items() if inputs is None else ()
        needed = (c for name, each in implied if name not in recorded for c in each)
        for constraint in (*self.stated, *needed):
            if constraint.tensors <= values.keys() and not constraint.holds(values):
                return constraint.text
        return None


_plans: OrderedDict[int, Plan] = OrderedDict()


def plan(definition: Definition) -> Plan:
    """The plan of a definition; cached, since definitions don't change."""
    cached = _plans.get(id(definition))
    if cached is None or cached.definition is not definition:
        cached = _plans[id(definition)] = _planned_or_refused(definition)
        if len(_plans) > CACHED_PLANS:
            _plans.popitem(last=False)
    return cached


def special_values(
    name: str, definition: Definition, uses: ReferenceUses, rule: InputRule
) -> Collection[float]:
    """The infinities and NaN that an input has for the reference's sake, of those of its dtype.

    None where the definition says which values there are, or how the input is made. A logarithm of
    a sum of exponentials is -inf, that of none, but no other of these. Beside a range there are
    those that the description names, of which none is below numbers that aren't negative.
    """
    if constraints_on(name, definition):
        return ()  # which NaN doesn't meet
    spec = definition.inputs[name]
    of_numbers = said(spec, definition)
    described, asked = (
        {value for value in values if spec.dtype.holds(value)}
        for values in (of_numbers.special, uses.asked.get(name, ()))
    )
    if may_be_any(name, definition, rule):
        all_of_these = asked & {-inf} if is_lse(name) else asked | described
        is_below_alone = described & {-inf, inf} == {-inf}  # as of what is banned
        return all_of_these - of_numbers.never - ({inf} if is_below_alone else set())
    if is_stated(name, definition) or not isinstance(rule, kinds.Uniform | kinds.Scales):
        return ()
    is_signed = isinstance(rule, kinds.Scales) and rule.signed
    is_negative = isinstance(rule.min, str) or rule.min < 0 or is_signed
    return described if is_negative else described - {-inf}


def may_be_any(name: str, definition: Definition, rule: InputRule) -> bool:
    """Whether neither a definition nor how an input is made says which values it has."""
    return not is_stated(name, definition) and isinstance(rule, kinds.Values)


def is_stated(name: str, definition: Definition) -> bool:
    """Whether a definition's ``workloads`` say which values an input has, or all have."""
    stated = definition.workloads
    return stated is not None and bool(stated.values or name in stated.inputs)


def picking(name: str, definition: Definition, rules: Mapping[str, InputRule]) -> Iterator[str]:
    """The inputs that have an index of each row of a floating one, such as labels of logits."""
    axes = definition.inputs[name].shape or ()
    may = isinstance(rules[name], kinds.Values | kinds.Normal | kinds.Uniform | kinds.Probabilities)
    for other, rule in rules.items() if may and axes else ():
        is_index = isinstance(rule, kinds.Indices | kinds.Positions) and str(rule.below) == axes[-1]
        if is_index and (definition.inputs[other].shape or ()) == axes[:-1]:
            yield other


def _labels_of(name: str, definition: Definition, rules: Mapping[str, InputRule]) -> Iterator[str]:
    """The indices of the same axes as other integers, which may be what these are."""
    axes = definition.inputs[name].shape
    for other, rule in rules.items() if isinstance(rules[name], kinds.Integers) and axes else ():
        is_index = isinstance(rule, kinds.Indices | kinds.Positions) and not rule.inputs
        if is_index and definition.inputs[other].shape == axes:
            yield other


def value_patterns(definition: Definition) -> list[str]:
    """The value patterns that are drawn, in the order in which the definition lists them."""
    section = definition.workloads
    usual = [name for name in VALUE_PATTERNS if name not in ON_REQUEST]
    listed = section.values if section and section.values else ["usual"]
    named = [name for each in listed for name in (usual if each == "usual" else [each])]
    return list(dict.fromkeys(named))


def workload_bytes(definition: Definition, axes: Mapping[str, int]) -> int:
    """Bytes of all inputs and outputs; for those that are or become floating, of float64 copies."""
    return plan(definition).bytes_at(axes)


def smallest_axes(definition: Definition) -> dict[str, int]:
    """The least value of every var axis. Raises InfeasibleError."""
    return dict(plan(definition).smallest)


def lone_sizes(definition: Definition, max_bytes: int) -> dict[str, int]:
    """Axes with several possible sizes of which only one fits in so many bytes, with that size."""
    planned = plan(definition)
    affordable = {axis: planned.affordable(axis, {}, max_bytes) for axis in planned.independent}
    return {
        axis: domain[0]
        for axis, (domain, count) in affordable.items()
        if count == 1 and len(domain) > 1
    }


def in_domain(definition: Definition, axes: Mapping[str, int]) -> bool:
    """Whether these are the var axes of a workload that may be drawn."""
    return (
        set(axes) == set(definition.var_axes)
        and all(n in listed_domain(definition, axis) for axis, n in axes.items())
        and plan(definition).broken(axes) is None
    )


def why_not_generated(definition: Definition, workload: Workload | None = None) -> str | None:
    """Why workloads of a definition can't be made, or None where they can.

    Of one ``workload``, only what it does not bring along has to be made.
    """
    planned = plan(definition)
    brought = {n for n, v in workload.inputs.items() if v.type != "random"} if workload else set()
    lacking = [name for name in planned.unmade if name not in brought]
    if planned.problem or not lacking:
        return planned.problem
    whats = [f"{name} ({planned.unmade[name]})" for name in lacking]
    what = " and ".join(filter(None, (", ".join(whats[:-1]), whats[-1])))
    rules = ", ".join(f"{name}: {_pasted(name, planned)}" for name in lacking)
    means = "means" if len(lacking) == 1 else "mean"
    return (
        f"nothing says what {what} {means}{_index_example(lacking, planned)}; add that to the "
        f"definition, for example workloads: {{inputs: {{{rules}}}}}"
    )


def _index_example(lacking: Iterable[str], planned: Plan) -> str:
    """A rule for the first of these tensors that may hold indices; "" if none may."""
    definition = planned.definition
    for name in lacking:
        spec = definition.inputs[name]
        others = [axis for axis in definition.var_axes if axis not in (spec.shape or ())]
        is_whole = spec.dtype in DTYPE_CLASSES["integer"]
        is_index = is_whole and spec.dtype.itemsize_bits > BITS_OF_BYTES
        if spec.shape and others and is_index and name not in planned.uses.calculated:
            rule = f"{{kind: indices, below: {others[0]}, unique: false}}"
            return f" (if it indexes {others[0]}: {rule})"
    return ""


def _pasted(name: str, planned: Plan) -> str:
    """A rule to begin with: all numbers of the dtype, or those that a reference may index with.

    What is divided by is not 0, nor are steps of convolutions and the like, which are small.
    Negative numbers that the reference asks for are among them. Scalars are no bits.
    """
    spec, uses = planned.definition.inputs[name], planned.uses
    asked = uses.limits.get(name, set())
    least, most = spec.dtype.ends
    any_number = not spec.is_scalar and name in (uses.calculated - uses.numbers) | uses.any_bits
    if spec.dtype.itemsize_bits > BITS_OF_BYTES and not any_number:
        steps = spec.is_scalar and STEPS_OF_WINDOWS.fullmatch(name)
        least, most = min((0, *asked)), UNKNOWN_STEP if steps else UNKNOWN_MAX
        least = 1 if steps else least
    least, most = max(least, -(2**31)), min(most, 2**31 - 1)
    if name in uses.whole_divisors and 0 not in asked:
        least = 1
    return f"{{kind: integers, min: {int(least)}, max: {int(most)}}}"


def _planned_or_refused(definition: Definition) -> Plan:
    try:
        planned = _planned(definition)
        _refuse_impossible(planned)
    except ConstraintError as error:
        stated = enumerate(definition.constraints)
        places = (("constraints", i) for i, text in stated if text in error.constraints)
        place = next(places, error.place)
        uses = uses_of(definition)
        return Plan(definition, uses=uses, problem=str(error), problem_at=place)
    return planned


def _refuse_impossible(planned: Plan) -> None:
    """Raise InfeasibleError for constraints or a listed workload that can't be met."""
    for constraint in planned.solver.constraints:
        if not constraint.axes and not constraint.holds(planned.solver.const):
            message = f"constraint {constraint.shown} is false for the const axes"
            raise InfeasibleError(message, constraint.text, place=constraint.place)
    planned.smallest  # noqa: B018 - raises
    section = planned.definition.workloads
    for what in ("examples", "bench") if section else ():
        for i, axes in enumerate(getattr(section, what)):
            try:
                _refuse_smaller(planned, axes)
                planned.completed(axes)
            except InfeasibleError as error:
                message, place = f"workloads.{what}[{i}]: {error}", ("workloads", what, i)
                raise InfeasibleError(message, *error.constraints, place=place) from None


def _refuse_smaller(planned: Plan, axes: Mapping[str, int]) -> None:
    """Raise InfeasibleError for sizes that kernels need not take.

    Larger ones are listed for their times: what searches draw may be bounded for their sake.
    """
    for axis, n in axes.items():
        domain = planned.solver.listed[axis]
        if n < domain.low or n % domain.step:
            raise InfeasibleError(f"{axis} = {n} is not in its domain, {domain}")


def _planned(definition: Definition) -> Plan:
    stated = [c for text in definition.constraints for c in parse_all(text, definition)]
    totals = dict(total for c in stated if (total := c.total_of()) is not None)
    sums = dict(total for c in stated if (total := c.sum_of()) is not None)
    bounds: dict[str, list[str]] = {}
    for name, bound in filter(None, (c.most_of() for c in stated)):
        bounds.setdefault(name, []).append(bound)
    rules, inferred, unmade = _rules(definition, totals, sums, bounds)
    shapes = {name: spec.shape or ("1",) for name, spec in definition.inputs.items()}
    implied = {
        name: tuple(
            replace(parse(text, definition), place=_place_of_rule(name, inferred))
            for text in chain(
                rule.implies(name, shapes, rules), _limits(definition, name, rule, inferred)
            )
        )
        for name, rule in rules.items()
    }
    constraints = (*stated, *chain.from_iterable(implied.values()))
    uses = uses_of(definition)
    scalars, of_scalars = _scalars(definition, stated, rules, unmade)
    on_axes = tuple(each for each in constraints if each.tensors <= scalars.keys())
    order, independent = _axis_order(definition, on_axes, rules)
    domains = {axis: listed_domain(definition, axis) for axis in order}
    solved = [replace(each, axes=each.axes | each.tensors) for each in (*on_axes, *of_scalars)]
    offsets = {name: rule for name, rule in rules.items() if isinstance(rule, kinds.Indptr)}
    return Plan(
        definition=definition,
        stated=tuple(stated),
        implied=implied,
        solver=AxisSolver(
            (*order, *scalars), domains | scalars, definition.const_axes, tuple(solved)
        ),
        independent=independent,
        rules=rules,
        fill=_fill_order(definition, rules, uses),
        inferred=inferred,
        scalars=tuple(scalars),
        uses=uses,
        unmade=unmade,
        lengths=dict(_most_sequences(definition, offsets)),
        scores=tuple(_scores(definition, rules, offsets)),
    )


def _place_of_rule(name: str, inferred: Collection[str]) -> tuple[str, ...]:
    return ("inputs", name) if name in inferred else ("workloads", "inputs", name)


def _limits(
    definition: Definition, name: str, rule: InputRule, inferred: Collection[str]
) -> Iterator[str]:
    """What expressions of axes in a rule have to meet; numbers were checked with the file.

    Of inferred rules it is not asked that the dtype holds all values: the inference may be wrong.
    """
    if isinstance(rule, FixedValue):
        return
    for parameter, limit in rule.marked(kinds.Limit):
        value = getattr(rule, parameter)
        bound = getattr(rule, limit.bound) if isinstance(limit.bound, str) else limit.bound
        are_known = not isinstance(value, str) and not isinstance(bound, str)
        if value is not None and not are_known and not _is_size_from(definition, value, bound):
            yield f"{value} {limit.sign} {bound}"
    dtype = definition.inputs[name].dtype
    if dtype.is_floating:
        return
    yield from _enough_to_differ(rule, definition.inputs[name].shape or ("1",), dtype)
    if dtype.itemsize_bits > SMALL_INTEGERS or name in inferred:
        return
    for parameter, held in rule.marked(kinds.Held):
        if isinstance(value := getattr(rule, parameter), str):
            yield f"{value} <= {int(dtype.ends[1]) - held.plus}"


def _enough_to_differ(rule: InputRule, shape: Sequence[str], dtype: DType) -> Iterator[str]:
    """That a range has as many whole numbers as a row, if all of it are different."""
    if isinstance(rule, kinds.Sorted) and rule.unique:
        most = int(dtype.ends[1]) if rule.max is None else rule.max
        yield f"{shape[-1]} <= {most} - ({rule.min}) + 1"


def _is_size_from(definition: Definition, value: object, least: float | str) -> bool:
    """Whether a parameter is a var axis that always has so many elements."""
    return (
        value in definition.var_axes
        and not isinstance(least, str)
        and listed_domain(definition, str(value)).low >= least
    )


def _scalars(
    definition: Definition,
    stated: Iterable[Constraint],
    rules: Mapping[str, InputRule],
    unmade: Collection[str],
) -> tuple[dict[str, Domain], list[Constraint]]:
    """Integer scalars that constraints speak of, with what they may be, and what else bounds them.

    As in ``width == ranks * shard - padding``: no width is right for any padding.
    """
    domains: dict[str, Domain] = {}
    bounds: list[Constraint] = []
    for name in sorted(set().union(*(constraint.tensors for constraint in stated))):
        rule = rules[name]
        if not definition.inputs[name].is_scalar or definition.inputs[name].dtype.is_floating:
            continue
        if name in unmade:
            domains[name] = Domain(-OPEN_MAXIMUM, OPEN_MAXIMUM)
        elif isinstance(rule, kinds.Integers):
            ends = {">=": rule.min, "<=": rule.max}
            low, high = (None if isinstance(end, str) else int(end) for end in ends.values())
            domains[name] = _stepped(low or 0, OPEN_MAXIMUM if high is None else high, rule.step)
            texts = [f"{name} {sign} {end}" for sign, end in ends.items() if isinstance(end, str)]
            bounds += [parse(text, definition) for text in texts]
        elif isinstance(rule, kinds.OneOf):
            domains[name] = Domain(values=tuple(sorted(map(int, rule.values))))
        elif isinstance(rule, FixedValue):
            domains[name] = Domain(int(rule.value), int(rule.value))
    return domains, bounds


def _stepped(low: int, high: int, step: float | str) -> Domain:
    """From one number to another in steps, where these are known, and multiples or not many."""
    if not isinstance(step, int):  # an expression of axes
        return Domain(low, high)
    if low % step == 0:
        return Domain(low, high, step)
    numbers = range(low, high + 1, step)
    return Domain(values=tuple(numbers)) if len(numbers) <= MOST_LISTED else Domain(low, high)


def _most_sequences(
    definition: Definition, offsets: Mapping[str, kinds.Indptr]
) -> Iterator[tuple[str, int]]:
    """Open axes of offsets, and how many sequences these have at most.

    Where the definition bounds other axes, only what it bounds the total to: beyond that, all are
    empty. An axis of constant size is none of them.
    """
    is_unbounded = not (definition.workloads and definition.workloads.axes)
    for name, rule in offsets.items():
        (axis,), total = _shape(definition, name), str(rule.total)
        if axis not in definition.var_axes:
            continue
        is_bounded = total in definition.var_axes and not is_open(definition, total)
        if is_unbounded or (is_bounded and is_open(definition, axis)):
            largest = listed_domain(definition, total).high if is_bounded else 0
            yield axis, max(MAX_SEQUENCES, largest)


def _scores(
    definition: Definition, rules: Mapping[str, InputRule], offsets: Mapping[str, kinds.Indptr]
) -> Iterator[Callable[[Mapping[str, Any]], Any]]:
    """Of offsets of keys with those of queries, the products if one sequence has all of both.

    And of a table of pages, all pages that it may name. References or implementations hold them,
    in float64. They are no part of a workload, so one that is listed may have more; but what is
    drawn has to leave room for them, or a few thousand tokens would take tens of gigabytes, and
    minutes.
    """
    shapes = [_shape(definition, name) for name in definition.inputs]
    for name, table in rules.items():
        if isinstance(table, kinds.BlockTable):
            pages = (shape[1:] for shape in shapes if shape[:1] == (str(table.pages),))
            named = (*_shape(definition, name), *max(pages, key=len, default=()))
            yield parse_expression(" * ".join(named), definition)
    for rule in offsets.values():
        if rule.at_least is not None:
            queries = str(kinds.total_of(rule.at_least, rules))
            of_queries = (shape[1:-1] for shape in shapes if shape[:1] == (queries,))
            heads = max(of_queries, key=len, default=())
            factors = (queries, *heads, rule.total, rule.page_size)
            yield parse_expression(" * ".join(f"({each})" for each in factors), definition)


def _shape(definition: Definition, name: str) -> tuple[str, ...]:
    return tuple(definition.inputs[name].shape or ())


def _is_unread(name: str, definition: Definition, rule: InputRule) -> bool:
    """Whether nothing is read of an input's description, which names numbers that it may have."""
    spec = definition.inputs[name]
    numbers = {*re.findall(r"\d+", spec.description or "")}
    is_flag = rule.kind == "boolean" and numbers <= {"0", "1"}
    return bool(numbers) and not is_flag and said(spec, definition) == Said()


def _rules(
    definition: Definition,
    totals: Mapping[str, str],
    sums: Mapping[str, str],
    bounds: Mapping[str, Sequence[str]],
) -> tuple[dict[str, InputRule], dict[str, Inferred], dict[str, str]]:
    stated = definition.workloads.inputs if definition.workloads else {}
    rules: dict[str, InputRule] = {}
    inferred, unmade = {}, {}
    for name, spec in definition.inputs.items():
        if (rule := stated.get(name)) is not None:
            rules[name] = rule
            continue
        inference = infer(Subject(name, spec, definition, totals, sums, bounds))
        if inference is None:
            unmade[name] = f"{spec.dtype.value} {'scalar' if spec.is_scalar else 'tensor'}"
            if spec.description and said(spec, definition) == Said():
                unmade[name] += f"; {UNREAD}"
            rules[name] = FixedValue(value=0)
            continue
        rules[name], inferred[name] = inference.rule, inference
    return rules, inferred, unmade


def _axis_order(
    definition: Definition,
    constraints: tuple[Constraint, ...],
    rules: Mapping[str, InputRule],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Axes as the definition lists them, with two exceptions; and those that follow from no other.

    One that equals something of others comes right after those, so that it is known as soon as it
    can be. Totals come late, since how much there is to split bounds them, not the other way; and
    after them what has room for them, or a small cache would leave hardly any sequences.
    """
    split = (
        rule
        for rule in rules.values()
        if isinstance(rule, kinds.Split | kinds.Indptr | kinds.Boolean)
    )
    totals = {str(rule.total) for rule in split}
    capacities = (getattr(rule, of, None) for rule in rules.values() for of in ("below", "pages"))
    rooms = {str(capacity) for capacity in capacities} - totals
    waiting = sorted(definition.var_axes, key=lambda axis: (axis in rooms, axis in totals))
    needs: dict[str, set[str]] = {axis: set() for axis in waiting}
    for constraint in constraints:
        derived = next((axis for axis in reversed(waiting) if constraint.equals(axis)), None)
        if derived is not None and derived not in totals:
            needs[derived] |= constraint.axes - {derived}
    order: list[str] = []
    while waiting:
        ready = [axis for axis in waiting if needs[axis] <= set(order)] or waiting
        chosen = min(ready, key=lambda axis: not needs[axis])  # of those, derived ones first
        waiting.remove(chosen)
        order.append(chosen)
    return tuple(order), tuple(axis for axis in order if not needs[axis])


def _compared(
    definition: Definition, rules: Mapping[str, InputRule], uses: ReferenceUses
) -> Iterator[tuple[str, str]]:
    """Inputs with others that they are compared with, and may hold elements of.

    What may hold any number holds those of others; of two, the one whose dtype is wider, or that
    has more dimensions, or comes first.
    """
    places = {name: -place for place, name in enumerate(definition.inputs)}

    def rank(name: str) -> tuple[bool, int, int, int]:
        spec = definition.inputs[name]
        may = isinstance(rules[name], HOLD_ANY)
        return may, spec.dtype.itemsize_bits, len(spec.shape or ()), places[name]

    for name, others in uses.compared.items():
        for other in sorted(others):
            if not rules[other].inputs and rank(name) > rank(other):
                yield name, other


def _fill_order(
    definition: Definition, rules: Mapping[str, InputRule], uses: ReferenceUses
) -> tuple[str, ...]:
    needs = {
        name: {
            *rule.inputs,
            *picking(name, definition, rules),
            *_labels_of(name, definition, rules),
        }
        for name, rule in rules.items()
    }
    for name, other in _compared(definition, rules, uses):
        needs[name].add(other)
    for name, steps in uses.steps.items():
        if isinstance(rules[name], HOLD_ANY):
            needs[name] |= {step for step, _ in steps if isinstance(rules[step], kinds.Scales)}
    for name, edges in uses.edges.items():
        if isinstance(rules[name], kinds.Integers | kinds.Positions):
            others = (other for other, *_ in edges)
            needs[name] |= {other for other in others if isinstance(rules[other], kinds.Sorted)}
    order = TopologicalSorter({name: sorted(others) for name, others in needs.items()})
    try:
        return tuple(order.static_order())
    except CycleError as error:
        names = dict.fromkeys(error.args[1])
        place = ("workloads", "inputs", next(iter(names)))
        if len(names) == 1:
            raise ConstraintError(f"input {place[-1]!r} refers to itself", place=place) from None
        circle = ", ".join(names)
        message = f"inputs {circle} refer to one another in a circle"
        raise ConstraintError(message, place=place) from None
