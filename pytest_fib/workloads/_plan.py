"""How a definition's workloads are made: which axes follow from which, and what fills an input."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from pytest_fib.data import FORMS, SafetensorsInput
from pytest_fib.workloads._axes import Domain, listed_domain
from pytest_fib.workloads._budget import workload_bytes
from pytest_fib.workloads._constraints import (
    Constraint,
    ConstraintError,
    parse,
    parse_all,
    parse_expression,
)
from pytest_fib.workloads._inference import Subject, infer
from pytest_fib.workloads._kinds import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

    from pytest_fib.data import Definition, Workload

#: How many plans are kept; making one takes about a millisecond.
KEPT = 256
#: How many sequences are drawn at most where the definition bounds no axis: references go through
#: them one by one.
SEQUENCES = 4096
#: How many workloads are tried before a constraint that can't be solved is held to be unmeetable.
TRIES = 1000


class InfeasibleError(ValueError):
    """No value of an axis meets the constraints; the message names them."""


@dataclass(frozen=True)
class Plan:
    """What workloads are made by.

    ``order`` has the var axes so that those that follow from others come after them;
    ``independent``, those that don't; ``rules``, for each input, ``{"value": x}`` or
    ``{"kind": ..., parameters}``; ``fill``, the inputs so that each comes after those it refers to.
    ``stated`` are the definition's own constraints, ``needs`` what the generator of each input
    needs, ``constraints`` both and what they say of axes drawn earlier. ``notes`` say what was
    inferred; ``unmade``, of which inputs no rule speaks; ``problem``, why none can be made.
    Of what the definition leaves open, ``lengths`` are axes that count sequences, and ``scores``
    give from axes how many numbers a reference may hold besides: see ``_scores``.
    """

    definition: Definition
    constraints: tuple[Constraint, ...] = ()
    stated: tuple[Constraint, ...] = ()
    needs: Mapping[str, tuple[Constraint, ...]] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()
    rules: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    fill: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unmade: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    lengths: tuple[str, ...] = ()
    scores: tuple[Callable[[Mapping[str, Any]], Any], ...] = ()

    def domain(self, axis: str, known: Mapping[str, int]) -> Domain:
        """What ``axis`` may be, given the axes known so far. Raises InfeasibleError."""
        values = {**self.definition.const_axes, **known}
        found, used = listed_domain(self.definition, axis), []
        for constraint in self.constraints:
            if axis in constraint.axes and constraint.axes <= values.keys() | {axis}:
                bounds = constraint.bounds(axis, values)
                if bounds is not None:
                    used.append(repr(constraint.text))
                    found = found.narrowed(bounds.low, bounds.high, bounds.step)
        if len(found) == 0:
            listed, said = listed_domain(self.definition, axis), " and ".join(dict.fromkeys(used))
            raise InfeasibleError(f"axis {axis!r} ({listed}): no value meets {said}")
        return found

    def completed(self, known: Mapping[str, int]) -> dict[str, int]:
        """All var axes: those not known get their least value. Raises InfeasibleError."""
        axes = dict(known)
        for axis in self.order:
            if axis not in axes:
                axes[axis] = self.domain(axis, axes)[0]
        return axes

    def affords(self, known: Mapping[str, int], max_bytes: int) -> bool:
        """Whether the smallest workload of these axes can be made, fits, and takes no minutes."""
        try:
            axes = self.completed(known)
        except InfeasibleError:
            return False
        values = {**self.definition.const_axes, **axes}
        if any(values[length] > SEQUENCES + 1 for length in self.lengths):
            return False
        scores = sum(each(values) for each in self.scores)
        return workload_bytes(self.definition, axes) + 8 * int(scores) <= max_bytes

    def affordable(self, axis: str, known: Mapping[str, int], max_bytes: int) -> tuple[Domain, int]:
        """The domain of an axis, and how many of its values, from the smallest, can be afforded.

        Bytes grow with every axis, so a bisection finds it. At least one: a definition whose
        smallest workload is over the budget is refused elsewhere.
        """
        values = self.domain(axis, known)
        low, high = 1, len(values)
        while low < high:
            middle = (low + high + 1) // 2
            if self.affords({**known, axis: values[middle - 1]}, max_bytes):
                low = middle
            else:
                high = middle - 1
        return values, low

    def broken(
        self, axes: Mapping[str, int], inputs: Mapping[str, Any] | None = None
    ) -> str | None:
        """The first constraint that a workload breaks; those of inputs too, where given.

        Inputs that are there, maybe recorded ones, have to meet what the definition states only.
        """
        values = {**self.definition.const_axes, **axes, **(inputs or {})}
        for constraint in self.constraints if inputs is None else self.stated:
            if constraint.tensors <= values.keys() and not constraint.holds(values):
                return constraint.text
        return None

    def unmet(self, axes: Mapping[str, int], recorded: Collection[str]) -> str | None:
        """The first constraint that axes break, leaving out what only recorded inputs would need.

        ``recorded`` names those: no generator makes them.
        """
        values = {**self.definition.const_axes, **axes}
        needed = [c for name, needs in self.needs.items() if name not in recorded for c in needs]
        for constraint in (*self.stated, *needed):
            if not constraint.tensors and not constraint.holds(values):
                return constraint.text
        return None


_plans: OrderedDict[int, Plan] = OrderedDict()


def plan(definition: Definition) -> Plan:
    """The plan of a definition; kept, since definitions don't change."""
    kept = _plans.get(id(definition))
    if kept is None or kept.definition is not definition:
        kept = _plans[id(definition)] = _made(definition)
        if len(_plans) > KEPT:
            _plans.popitem(last=False)
    return kept


def smallest_axes(definition: Definition) -> dict[str, int]:
    """The least value of every var axis. Raises InfeasibleError."""
    return plan(definition).completed({})


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
    made = plan(definition)
    brought = {n for n, v in workload.inputs.items() if v.type != "random"} if workload else set()
    lacking = (name for name in made.unmade if name not in brought)
    unmade = next((f"input {name!r}: {made.unmade[name]}" for name in lacking), None)
    return made.problem or unmade


def stored_inputs(
    definition: Definition, workload: Workload | None = None
) -> dict[str, SafetensorsInput]:
    """The inputs that come from files: a workload's and, where it has none, the definition's."""
    stored = {
        name: SafetensorsInput(path=rule["path"], tensor_key=rule["tensor_key"])
        for name, rule in plan(definition).rules.items()
        if rule.get("kind") == "safetensors"
    }
    for name, given in workload.inputs.items() if workload else ():
        if isinstance(given, SafetensorsInput):
            stored[name] = given
    return stored


def _made(definition: Definition) -> Plan:
    try:
        made = _planned(definition)
        made.completed({})
        _refuse_impossible(made)
    except (ConstraintError, InfeasibleError) as error:
        return Plan(definition, problem=str(error))
    return made


def _refuse_impossible(made: Plan) -> None:
    """Raise InfeasibleError for constraints or a listed workload that can't be met."""
    for constraint in made.constraints:
        if not (constraint.axes or constraint.tensors) and not constraint.holds(
            made.definition.const_axes
        ):
            raise InfeasibleError(f"constraint {constraint.text!r}: no, by its const axes")
    if (broken := made.broken(made.completed({}))) is not None and not _ever_met(made):
        raise InfeasibleError(f"constraint {broken!r}: no workload of {TRIES} meets it")
    section = made.definition.workloads
    for what in ("examples", "bench") if section else ():
        for axes in getattr(section, what):
            broken = made.broken(made.completed(axes))
            if broken is not None:
                raise InfeasibleError(f"workloads.{what}: {axes} breaks {broken!r}")


def _ever_met(made: Plan) -> bool:
    """Whether some of the workloads that may be drawn break no constraint."""
    random = Random(0)
    return any(made.broken(axes) is None for axes in (_tried(made, random) for _ in range(TRIES)))


def _tried(made: Plan, random: Random) -> dict[str, int]:
    axes: dict[str, int] = {}
    for axis in made.order:
        domain = made.domain(axis, axes)
        axes[axis] = domain[int(len(domain) ** random.random()) - 1]
    return axes


def _planned(definition: Definition) -> Plan:
    stated = [c for text in definition.constraints for c in parse_all(text, definition)]
    totals = dict(total for c in stated if (total := c.total_of()) is not None)
    rules, notes, unmade = _rules(definition, totals)
    needs = {
        name: tuple(parse(text, definition) for text in KINDS[rule["kind"]].implies(spec, rule))
        for name, spec in definition.inputs.items()
        if "kind" in (rule := rules[name])
    }
    constraints = (*stated, *(constraint for needed in needs.values() for constraint in needed))
    order, independent = _axis_order(definition, constraints, rules)
    offsets = _open_offsets(definition, rules)
    return Plan(
        definition=definition,
        constraints=(*constraints, *_foreseen(definition, constraints)),
        stated=tuple(stated),
        needs=needs,
        order=order,
        independent=independent,
        rules=rules,
        fill=_fill_order(rules),
        notes=tuple(notes),
        unmade=unmade,
        lengths=tuple(_shape(definition, name)[0] for name in offsets),
        scores=tuple(_scores(definition, [rules[name] for name in offsets])),
    )


def _open_offsets(definition: Definition, rules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The inputs that are offsets of sequences, where the definition bounds no axis."""
    if definition.workloads and definition.workloads.axes:
        return []
    return [name for name, rule in rules.items() if rule.get("kind") == "indptr"]


def _scores(
    definition: Definition, offsets: Iterable[Mapping[str, Any]]
) -> Iterator[Callable[[Mapping[str, Any]], Any]]:
    """Of offsets of keys with those of queries, the products if one sequence has all of both.

    References hold them in float64. They are no part of a workload, so one that is listed may have
    more; but what is drawn has to leave room for them, or a few thousand tokens would take tens of
    gigabytes, and minutes.
    """
    for rule in offsets:
        if "at_least" in rule:
            queries = str(rule["at_least_total"])
            shapes = (_shape(definition, name) for name in definition.inputs)
            of_queries = (shape[1:-1] for shape in shapes if shape[:1] == (queries,))
            heads = max(of_queries, key=len, default=())
            factors = (queries, *heads, str(rule.get("total")), str(rule.get("page_size", 1)))
            yield parse_expression(" * ".join(f"({each})" for each in factors), definition)


def _shape(definition: Definition, name: str) -> tuple[str, ...]:
    return tuple(definition.inputs[name].shape or ())


def _foreseen(definition: Definition, constraints: tuple[Constraint, ...]) -> list[Constraint]:
    """What constraints say of axes by the ends of others' domains; told as what they are from."""
    found: list[Constraint] = []
    ends: dict[str, tuple[int, int]] = {}
    for _ in definition.var_axes:  # what is found for one axis may say something of the next
        narrowed = _ends(definition, (*constraints, *found))
        if narrowed == ends:
            break
        ends = narrowed
        found = [
            parsed
            for constraint in constraints
            for text in constraint.foreseen(ends)
            for parsed in parse_all(text, definition, said=constraint.text)
        ]
    return found


def _ends(
    definition: Definition, constraints: tuple[Constraint, ...]
) -> dict[str, tuple[int, int]]:
    """The least and the largest value of each axis by what speaks of it alone."""
    domains = {axis: listed_domain(definition, axis) for axis in definition.var_axes}
    ends = {axis: (domain[0], domain[len(domain) - 1]) for axis, domain in domains.items()}
    for constraint in constraints:
        if len(constraint.axes) == 1:
            (axis,) = constraint.axes
            bounds = constraint.bounds(axis, definition.const_axes)
            if bounds is not None:
                ends[axis] = (max(ends[axis][0], bounds.low), min(ends[axis][1], bounds.high))
    return ends


def _rules(
    definition: Definition, totals: Mapping[str, str]
) -> tuple[dict[str, dict[str, Any]], list[str], dict[str, str]]:
    stated = definition.workloads.inputs if definition.workloads else {}
    rules: dict[str, dict[str, Any]] = {}
    notes, unmade = [], {}
    for name, spec in definition.inputs.items():
        if (rule := stated.get(name)) is not None:
            rules[name] = dict(rule.params) | (
                {"value": rule.value} if rule.kind is None else {"kind": rule.kind}
            )
            continue
        inferred = infer(Subject(name, spec, definition, totals))
        if inferred is None:
            what = f"{spec.dtype.value} {'scalar' if spec.is_scalar else 'tensor'}"
            unmade[name] = (
                f"nothing says what this {what} means; give it a rule under workloads.inputs"
            )
            rules[name] = {"value": 0}
            continue
        rules[name] = inferred.params
        notes += [f"{name}: {inferred}"] if inferred.params.get("kind") != "values" else []
    for rule_of in rules.values():
        if rule_of.get("kind") == "indptr" and "at_least" in rule_of:
            rule_of["at_least_total"] = rules[rule_of["at_least"]].get("total", 0)
            rule_of["at_least_axis"] = (definition.inputs[rule_of["at_least"]].shape or ("1",))[0]
    return rules, notes, unmade


def _axis_order(
    definition: Definition,
    constraints: tuple[Constraint, ...],
    rules: Mapping[str, Mapping[str, Any]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Axes as the definition lists them, with two exceptions; and those that follow from no other.

    One that equals something of others comes right after those, so that it is known as soon as it
    can be. Totals come late, since how much there is to split bounds them, not the other way; and
    after them what has room for them, or a small cache would leave hardly any sequences.
    """
    totals = {str(rule.get("total")) for rule in rules.values() if rule.get("kind") == "indptr"}
    rooms = {str(rule.get(what)) for rule in rules.values() for what in ("below", "pages")} - totals
    waiting = sorted(definition.var_axes, key=lambda axis: (axis in rooms, axis in totals))
    needs: dict[str, set[str]] = {axis: set() for axis in waiting}
    for constraint in constraints:
        derived = next((axis for axis in reversed(waiting) if constraint.equals(axis)), None)
        if derived is not None and not constraint.tensors and derived not in totals:
            needs[derived] |= constraint.axes - {derived}
    order: list[str] = []
    while waiting:
        ready = [axis for axis in waiting if needs[axis] <= set(order)] or waiting
        chosen = min(ready, key=lambda axis: not needs[axis])  # of those, derived ones first
        waiting.remove(chosen)
        order.append(chosen)
    return tuple(order), tuple(axis for axis in order if not needs[axis])


def _fill_order(rules: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    order: list[str] = []
    waiting = list(rules)
    while waiting:
        ready = next((name for name in waiting if _references(rules[name]) <= set(order)), None)
        if ready is None:
            raise ConstraintError(f"inputs {', '.join(waiting)} refer to one another in a circle")
        waiting.remove(ready)
        order.append(ready)
    return tuple(order)


def _references(rule: Mapping[str, Any]) -> set[str]:
    inputs = FORMS[rule["kind"]].inputs if "kind" in rule else ()
    return {rule[parameter] for parameter in inputs if parameter in rule}
