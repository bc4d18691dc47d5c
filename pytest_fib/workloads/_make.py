"""Makes Workload records: from axes, seed and regime, or from the JSON that users give.

It also says which workloads of a definition are timed, and which are always tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite

from pydantic import ValidationError

from pytest_fib.data import (
    INPUTS,
    LAYOUTS,
    LENGTHS,
    NEAR,
    REGIMES,
    Definition,
    InputSpec,
    RandomInput,
    Scalar,
    ScalarInput,
    Workload,
    first_problem,
    is_unnamed,
)
from pytest_fib.workloads._plan import Choice, Plan, plan, value_patterns
from pytest_fib.workloads._tensors import is_allowed, scalar_inputs

#: Values that hide a size that is wrong: 0, or next to what else is added they count for nothing.
HIDING = ("zeros", "small", "subnormal", "large")
#: Values that show most of what is wrong.
SHOWING = ("mixed", "shifted", "normal")
#: Sizes of every var axis where a definition names no bench workloads.
LADDER = (1, 8, 64, 512, 4096, 32768)
#: No workload of the ladder takes more.
MAX_LADDER_BYTES = 4 << 30
#: How much larger than the smallest workload an enlarged one is, at least.
LEAST_ENLARGEMENT = 1.125
#: The bits in which the seed of other values differs.
OTHER_SEED = 0x5EED0
#: How many sequences an enlarged workload has, where the definition doesn't bound their number.
ENLARGED_SEQUENCES = 16
#: The least average length of the sequences of one, unless there were as many before.
ENLARGED_LENGTH = 8


def make_workload(
    definition: Definition,
    axes: Mapping[str, int],
    seed: int = 0,
    regime: Mapping[str, str] | None = None,
) -> Workload:
    """The Workload of these axes: scalars get their values, tensors are planned from the seed."""
    bare = Workload(axes=dict(axes), inputs={}, seed=seed, regime=dict(regime or {}))
    scalars = scalar_inputs(definition, bare)
    inputs: dict[str, InputSpec] = {
        name: ScalarInput(value=scalars[name]) if name in scalars else RandomInput()
        for name in definition.inputs
    }
    return Workload(axes=bare.axes, inputs=inputs, seed=seed, regime=bare.regime)


def read_workload(definition: Definition, text: str) -> Workload:
    """A workload of this definition, as ``--fib-workload`` takes it.

    Raises ValueError, with one line that says what is wrong.
    """
    given = parse_workload(text)
    _refuse_unknown("axes", given.axes, [axis for axis in definition.axes if not is_unnamed(axis)])
    _refuse_unknown("inputs", given.inputs, definition.inputs)
    axes = {axis: n for axis, n in given.axes.items() if axis in definition.var_axes}
    for axis in plan(definition).order:  # what follows from the others need not be given
        if axis not in axes and len(domain := plan(definition).domain(axis, axes)) == 1:
            axes[axis] = domain[0]
    if reason := why_unfit(definition, given.model_copy(update={"axes": {**axes, **given.axes}})):
        raise ValueError(reason)
    workload = make_workload(definition, axes, given.seed, given.regime)
    inputs = {**workload.inputs, **given.inputs}
    return Workload(axes=axes, inputs=inputs, seed=given.seed, regime=workload.regime)


def given_scalars(definition: Definition, workload: Workload) -> dict[str, Scalar]:
    """The scalars of a workload that don't follow from its axes and seed.

    They are recorded, or those of a workload with other tensors.
    """
    made = make_workload(definition, workload.axes, workload.seed, workload.regime).inputs
    return {
        name: given.value
        for name, given in workload.inputs.items()
        if isinstance(given, ScalarInput) and given != made[name]
    }


def with_integer_scalars(definition: Definition, workload: Workload, other: Workload) -> Workload:
    """The workload with integer scalars of another one, as far as its axes allow these.

    But not those that constraints speak of, which depend on axes.
    """
    fixed = plan(definition).constrained
    scalars = {
        name: given
        for name, given in other.inputs.items()
        if isinstance(given, ScalarInput)
        and name not in fixed
        and is_allowed(definition, workload.axes, name, given.value)
    }
    return workload.model_copy(update={"inputs": {**workload.inputs, **scalars}})


def why_unfit(definition: Definition, workload: Workload) -> str | None:
    """Why a workload does not fit this definition, or None where it does.

    Its axes have to meet the definition's constraints, and those of the generators of inputs that
    it has no recorded tensors for.
    """
    try:
        definition.axis_values(workload.axes)
    except ValueError as error:
        return str(error)
    for name, given in workload.inputs.items():
        spec = definition.inputs.get(name)
        if spec is None:
            return f"inputs: {name!r} is not one of {', '.join(definition.inputs)}"
        if given.type != "random" and (given.type == "scalar") != spec.is_scalar:
            needed = f"{spec.dtype.value} {'scalar' if spec.is_scalar else 'tensor'}"
            return f"input {name!r}: {given.type} was given for a {needed}"
    axes = {axis: n for axis, n in workload.axes.items() if axis in definition.var_axes}
    recorded = {name for name, given in workload.inputs.items() if given.type == "safetensors"}
    broken = plan(definition).broken(axes, recorded=recorded)
    return None if broken is None else f"axes: {axes} break the constraint {broken!r}"


def parse_workload(text: str) -> Workload:
    """A workload from JSON with axes, and perhaps a seed, a regime and inputs.

    Raises ValueError, with one line that says what is wrong.
    """
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError('not a mapping such as {"axes": {"batch": 7}}')
    _refuse_unknown("a workload", given, ("axes", "seed", "regime", "inputs"))
    try:
        workload = Workload.model_validate(given)
    except ValidationError as error:
        raise ValueError(first_problem(error, Workload, given)) from None
    _refuse_unknown("regime", workload.regime, (*REGIMES, NEAR))
    for what, name in workload.regime.items():
        if what != NEAR:
            _refuse_unknown(f"regime.{what}", [name], REGIMES[what])
        elif not _is_number(name):
            raise ValueError(f"regime.{NEAR}: {name!r} is not a number")
    return workload


def _is_number(text: str) -> bool:
    try:
        return isfinite(float(text))
    except ValueError:
        return False


def _refuse_unknown(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{what}: {name!r} is not one of {', '.join(known)}")


def regime_choices(definition: Definition) -> dict[str, list[str]]:
    """The choices of each part of a regime, plainest first; parts without effect are left out."""
    section = definition.workloads
    following = plan(definition).following("values")
    drawn: dict[str, list[str]] = {}
    if following:
        drawn["values"] = value_patterns(definition)
    if len(following) > 1:
        drawn["inputs"] = list(INPUTS)
    if plan(definition).following("lengths"):
        drawn["lengths"] = list(LENGTHS)
    if section and section.layouts:
        drawn["layout"] = [LAYOUTS[0], *section.layouts]
    return drawn


def with_other_values(definition: Definition, workload: Workload) -> Workload:
    """A workload of the same shapes with values of another seed.

    Where its own are of a pattern that hides what is wrong, or are all alike, of another pattern.
    """
    seed, regime = workload.seed ^ OTHER_SEED, dict(workload.regime)
    showing = _showing(definition, workload) if regime.get("values") in (*HIDING, "ones") else []
    if not showing:
        return Workload(axes=workload.axes, inputs=workload.inputs, seed=seed, regime=regime)
    regime["values"] = showing[workload.seed % len(showing)]
    regime.pop("inputs", None)
    return make_workload(definition, workload.axes, seed, without_plainest(regime))


def _showing(definition: Definition, workload: Workload) -> list[str]:
    """The patterns of ``SHOWING`` that a workload's inputs may have; none if some are given."""
    if workload.has_recorded_tensors or given_scalars(definition, workload):
        return []
    drawn = regime_choices(definition).get("values", [])
    return [name for name in SHOWING if name in drawn]


def without_plainest(regime: Mapping[str, str]) -> dict[str, str]:
    """A regime without the parts that have their plainest name."""
    plainest = {part: names[0] for part, names in REGIMES.items()}
    short = {part: name for part, name in regime.items() if name != plainest.get(part)}
    if "values" not in short:
        short.pop("inputs", None)
    return short


def bench_workloads(definition: Definition) -> dict[str, Workload]:
    """The timed workloads by label (``batch=32``): the definition's own, else a ladder.

    Independent of device and budget, since the labels are part of node ids.
    """
    planned = plan(definition)
    if planned.problem is not None:
        return {}
    listed = definition.workloads.bench if definition.workloads else []
    return {
        ",".join(f"{axis}={n}" for axis, n in axes.items()) or "fixed": make_workload(
            definition, planned.completed(axes)
        )
        for axes in listed or _ladder(planned)
    }


def example_workloads(definition: Definition) -> list[Workload]:
    """The workloads that the definition wants tested always."""
    listed = definition.workloads.examples if definition.workloads else []
    return [make_workload(definition, plan(definition).completed(axes)) for axes in listed]


def _ladder(planned: Plan) -> list[dict[str, int]]:
    """All axes as large as a rung, or as near as their domains and memory allow."""
    rungs: list[dict[str, int]] = []
    for i in range(len(LADDER)):
        pick = partial(_largest_affordable, LADDER[: i + 1])
        axes = planned.choose(dict.fromkeys(planned.order, MAX_LADDER_BYTES), pick)
        if planned.fits(axes, MAX_LADDER_BYTES) and axes not in rungs:
            rungs.append(axes)
    return rungs


def _largest_affordable(sizes: Sequence[int], choice: Choice) -> int:
    """The largest of these sizes, as near as the axis may come to it, that is affordable."""
    near = map(choice.domain.nearest, sizes)
    return max((n for n in near if n <= choice.largest), default=choice.largest)


def enlarge(
    definition: Definition, workload: Workload, regime: Mapping[str, str], max_bytes: int
) -> Workload:
    """The same seed with axes that fill ``max_bytes``, each by an equal factor.

    Or an eighth more than the definition's smallest workload takes. There are no more sequences
    than before, or than ``ENLARGED_SEQUENCES`` where the definition bounds none: an offset takes so
    few bytes that most sequences would be empty. Nor are there more than leave each some elements.
    """
    planned = plan(definition)
    budget = float(planned.bytes_at(planned.smallest))
    free = _free(planned)
    share = max(LEAST_ENLARGEMENT, max_bytes / max(budget, 1)) ** (1 / max(len(free), 1))
    budgets = {}
    for axis in planned.order:
        budget *= share if axis in free else 1.0
        budgets[axis] = int(budget)

    most = dict.fromkeys(planned.lengths, ENLARGED_SEQUENCES + 1)

    def pick(choice: Choice) -> int:
        size, axis = _largest_odd(choice), choice.axis
        return min(size, max(workload.axes[axis], most[axis])) if axis in most else size

    axes = planned.choose(budgets, pick)
    fair = {axis: axes[total] // ENLARGED_LENGTH + 1 for axis, total in planned.splits()}
    if any(axes[axis] > max(workload.axes[axis], size) for axis, size in fair.items()):
        most |= {axis: min(size, most.get(axis, size)) for axis, size in fair.items()}
        axes = planned.choose(budgets, pick)
    return make_workload(definition, axes, workload.seed, regime)


def doubled(definition: Definition, workload: Workload, max_bytes: int) -> Workload:
    """The same seed and regime with axes of twice the size and one more, as far as they may.

    Beyond a size from which a kernel is wrong, there is more than one element then.
    """
    return _resized(definition, workload, max_bytes, lambda size: 2 * size + 1)


def reduced(definition: Definition, workload: Workload, max_bytes: int) -> Workload:
    """The same seed and regime with axes of three quarters of the size, as far as they may.

    So what ends elsewhere, or begins at another index, does so by these sizes.
    """
    return _resized(definition, workload, max_bytes, _three_quarters)


def _three_quarters(size: int) -> int:
    """Odd where it may be, as what even sizes are right for may be wrong otherwise."""
    smaller = size - size // 4
    return smaller - 1 if smaller % 2 == 0 and smaller > 2 else smaller


def _resized(
    definition: Definition, workload: Workload, max_bytes: int, size_of: Callable[[int], int]
) -> Workload:
    """The same seed and regime with axes of other sizes, as far as they may."""
    planned = plan(definition)

    def pick(choice: Choice) -> int:
        size = size_of(workload.axes[choice.axis])
        return choice.domain.nearest(min(size, choice.largest))

    axes = planned.choose(dict.fromkeys(planned.order, max_bytes), pick)
    return make_workload(definition, axes, workload.seed, workload.regime)


def _largest_odd(choice: Choice) -> int:
    """Odd where it can be, since what even sizes are right for may be wrong otherwise."""
    largest, count = choice.largest, choice.affordable
    return choice.domain[count - 2] if largest % 2 == 0 and min(largest, count) > 2 else largest


def _free(planned: Plan) -> list[str]:
    """The axes that do not follow from those before them."""
    known: dict[str, int] = {}
    free = []
    for axis in planned.order:
        if len(planned.domain(axis, known)) > 1:
            free.append(axis)
        known[axis] = planned.smallest[axis]
    return free
