"""How a definition's workloads are made: which axes follow from which, and what fills an input."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_fib.workloads._axes import Domain, listed_domain
from pytest_fib.workloads._budget import workload_bytes
from pytest_fib.workloads._constraints import Constraint, ConstraintError, parse, parse_expression
from pytest_fib.workloads._inference import Subject, dtype_matches, infer
from pytest_fib.workloads._kinds import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_fib.data import Definition, Workload

#: How many plans are kept; making one takes about a millisecond.
KEPT = 256
#: Parameters of any kind: how the tensor lies in memory.
LAYOUT_PARAMETERS = ("broadcast", "memory_order", "packed")


class InfeasibleError(ValueError):
    """No value of an axis meets the constraints; the message names them."""


@dataclass(frozen=True)
class Plan:
    """What workloads are made by.

    ``order`` has the var axes so that those that follow from others come after them;
    ``independent``, those that don't; ``rules``, for each input, ``{"value": x}`` or
    ``{"kind": ..., parameters}``; ``fill``, the inputs so that each comes after those it refers to.
    ``stated`` are the definition's own constraints, and ``constraints`` those and what the
    generators need. ``notes`` say what was inferred; ``unmade``, which inputs no rule speaks of;
    ``problem``, why no workload can be made at all.
    """

    definition: Definition
    constraints: tuple[Constraint, ...] = ()
    stated: tuple[Constraint, ...] = ()
    order: tuple[str, ...] = ()
    independent: tuple[str, ...] = ()
    rules: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    fill: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    unmade: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None

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
            listed = listed_domain(self.definition, axis)
            raise InfeasibleError(f"axis {axis!r} ({listed}): no value meets {' and '.join(used)}")
        return found

    def completed(self, known: Mapping[str, int]) -> dict[str, int]:
        """All var axes: those not known get their least value. Raises InfeasibleError."""
        axes = dict(known)
        for axis in self.order:
            if axis not in axes:
                axes[axis] = self.domain(axis, axes)[0]
        return axes

    def affords(self, known: Mapping[str, int], max_bytes: int) -> bool:
        """Whether the smallest workload of these axes can be made and fits."""
        try:
            return workload_bytes(self.definition, self.completed(known)) <= max_bytes
        except InfeasibleError:
            return False

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
    lacking = (reason for name, reason in made.unmade.items() if name not in brought)
    return made.problem or next(lacking, None)


def _made(definition: Definition) -> Plan:
    try:
        made = _planned(definition)
        made.completed({})
        _refuse_impossible(made)
    except (ConstraintError, InfeasibleError) as error:
        return Plan(definition, problem=str(error))
    return made


def _refuse_impossible(made: Plan) -> None:
    """Raise InfeasibleError for a listed workload that the definition's constraints rule out."""
    section = made.definition.workloads
    for what in ("examples", "bench") if section else ():
        for axes in getattr(section, what):
            broken = made.broken(made.completed(axes))
            if broken is not None:
                raise InfeasibleError(f"workloads.{what}: {axes} breaks {broken!r}")


def _planned(definition: Definition) -> Plan:
    given = [parse(text, definition) for text in definition.constraints]
    totals = dict(total for c in given if (total := c.total_of()) is not None)
    rules, notes, unmade = _rules(definition, totals)
    implied = [
        parse(text, definition)
        for name, rule in rules.items()
        if "kind" in rule
        for text in KINDS[rule["kind"]].implies(definition.inputs[name], rule)
    ]
    constraints = (*given, *implied)
    order, independent = _axis_order(definition, constraints, rules)
    return Plan(
        definition=definition,
        constraints=constraints,
        stated=tuple(given),
        order=order,
        independent=independent,
        rules=rules,
        fill=_fill_order(rules),
        notes=tuple(notes),
        unmade=unmade,
    )


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
                f"input {name!r}: nothing says what this {what} means; "
                "give it a rule under workloads.inputs"
            )
            rules[name] = {"value": 0}
            continue
        rules[name], words = inferred
        notes += [f"{name}: {words}"] if rules[name].get("kind") != "values" else []
    for name, rule_of in rules.items():
        _refuse_mistakes(name, rule_of, definition)
        if rule_of.get("kind") == "indptr" and "at_least" in rule_of:
            rule_of["at_least_total"] = rules[rule_of["at_least"]].get("total", 0)
    return rules, notes, unmade


def _refuse_mistakes(name: str, rule: Mapping[str, Any], definition: Definition) -> None:
    """Raise ConstraintError for a rule that no generator understands."""
    if "kind" not in rule:
        return
    kind = KINDS.get(rule["kind"])
    if kind is None:
        known = ", ".join(KINDS)
        raise ConstraintError(f"input {name!r}: no generator {rule['kind']!r} (there are: {known})")
    if not dtype_matches(kind.dtypes, definition.inputs[name]):
        dtype = definition.inputs[name].dtype.value
        raise ConstraintError(f"input {name!r}: {rule['kind']} can't make {dtype}")
    for parameter, value in rule.items():
        problem = _mistake(parameter, value, kind, definition)
        if problem is not None:
            raise ConstraintError(f"input {name!r}: {rule['kind']}: {problem}")


def _mistake(parameter: str, value: Any, kind: Kind, definition: Definition) -> str | None:
    if parameter not in ("kind", *kind.parameters, *LAYOUT_PARAMETERS):
        known = ", ".join(kind.parameters) or "none"
        return f"no parameter {parameter!r} (it has: {known})"
    if parameter in kind.inputs and value not in definition.inputs:
        return f"{parameter}: no input {value!r}"
    if parameter in kind.numbers and isinstance(value, str):
        parse_expression(value, definition)
    return None


def _axis_order(
    definition: Definition,
    constraints: tuple[Constraint, ...],
    rules: Mapping[str, Mapping[str, Any]],
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Axes as the definition lists them, with two exceptions; and those that follow from no other.

    One that equals something of others comes right after those, so that it is known as soon as it
    can be. Totals come last, since how much there is to split bounds them, not the other way.
    """
    totals = [str(rule.get("total")) for rule in rules.values() if rule.get("kind") == "indptr"]
    waiting = [axis for axis in definition.var_axes if axis not in totals]
    waiting += [axis for axis in definition.var_axes if axis in totals]
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
    kind = KINDS.get(rule.get("kind", ""))
    return {rule[parameter] for parameter in kind.inputs if parameter in rule} if kind else set()
