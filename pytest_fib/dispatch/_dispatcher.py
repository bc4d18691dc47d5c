"""One function for each fallback: it looks up what to call by the sizes of the var axes.

The function has the fallback's parameters and is generated, since forwarding ``*args`` costs more
than all the rest. What it finds is an entry: a guard, which says in one call of C++ whether the
tensors are like those the entry was made for; a countdown to the next call that is verified, which
counts hits as well; and what to call. Everything else is in `resolve`, off that path.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import update_wrapper
from operator import length_hint
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_fib.dispatch._calling_styles import device_of, first_call
from pytest_fib.dispatch._generated import defaults_of, parameters_of, source_of_applied
from pytest_fib.dispatch._kernels import RAISED, Busy, blame, log
from pytest_fib.dispatch._likeness import NUMBERS, axes_of, guard_of, is_like
from pytest_fib.dispatch._stats import DefinitionStats

if TYPE_CHECKING:
    from pytest_fib.data import Definition
    from pytest_fib.dispatch._apply import AppliedTraceSet
    from pytest_fib.dispatch._tracing import Tracer

#: Shapes of a definition that are kept; a service whose shapes never come again starts anew.
MOST_SHAPES = 65_536


#: Reasons for the fallback: nothing was measured near, another thread builds, a policy raised.
MISS, BUILDING, NO_CHOICE = "miss", "building", "no choice"


class _NoneServes(Exception):
    """No implementation serves a call; the text is why, as the statistics have it."""


class Entry(NamedTuple):
    """The callee at one shape: a solution or, with a ``reason``, the fallback."""

    guard: Callable[..., bool]
    tick: Callable[[], int]
    call: Callable[..., Any]
    solution: str
    countdown: Iterator[int]
    length: int
    reason: str = ""

    @property
    def hits(self) -> int:
        return self.length - length_hint(self.countdown)

    def add_to(self, stats: DefinitionStats) -> None:
        if self.reason:
            stats.count_fallbacks(self.reason, self.hits)
        else:
            stats.count_hits(self.solution, self.hits)


class Dispatcher:
    """The generated function of one fallback and one definition, and what that looks up.

    ``function`` is what users call. Without an active trace set it calls the fallback.
    """

    def __init__(self, name: str, fallback: Callable[..., Any]) -> None:
        self.name, self.fallback = name, fallback
        self.active: AppliedTraceSet | None = None
        self.definition: Definition | None = None
        self._table: dict[Any, Entry] = {}
        self._globals: dict[str, Any] = {}
        self._op: Any = None
        self._op_of: tuple[Definition, Sequence[int]] | None = None
        self._parameters = parameters_of(fallback)
        #: The places of the definition's inputs and outputs among the parameters.
        self._order = range_of(self._parameters)
        self.function: Callable[..., Any] = fallback
        if self._parameters:
            self._generate()

    # The function

    def _generate(self, key: str = "None", *, records: bool = False) -> None:
        """Generate the function, or give it another body in place: users hold it already."""
        source = source_of_applied(
            self._parameters, self._order, *self._kinds(), key=key, records=records
        )
        code = compile(source, f"<apply {self.name}>", "exec")
        namespace = self._globals
        namespace.setdefault("_fib_table", None)
        namespace |= defaults_of(self._parameters) | {
            "_fib_fallback": self.fallback,
            "_fib_resolve": self._resolve,
            "_fib_failed": self._failed,
            "_fib_raised": RAISED,
            "_fib_numbers": NUMBERS,
            "_fib_tracing": bool,  # says False
            "_fib_without_gradient": _without_gradient,
            "_fib_op": None,
        }
        old = self.function
        exec(code, namespace)  # names and sizes of a signature, nothing that was read from a file
        generated = namespace["_applied"]
        if old is self.fallback:
            self.function = update_wrapper(generated, self.fallback)
        else:
            old.__code__ = generated.__code__

    def _kinds(self) -> tuple[list[int], list[int]]:
        """The places of tensors and of Python scalars, in the definition's order."""
        if self.definition is None:
            return [], []
        specs = (*self.definition.inputs.values(), *self.definition.outputs.values())
        places = [(i, spec.shape is None) for i, spec in zip(self._order, specs, strict=False)]
        return [i for i, scalar in places if not scalar], [i for i, scalar in places if scalar]

    # Switching

    def activate(self, active: AppliedTraceSet | None, tracer: Tracer | None = None) -> None:
        """Look things up in this trace set from now on, and record; None is neither."""
        self._count_hits()
        self._globals["_fib_table"] = None
        self._table = {}
        routed = active.definitions.get(self.name) if active else None
        self.active = active if routed else None
        recorded = tracer.definition(self.name) if tracer else None
        definition = routed or recorded
        if definition is None or not self._parameters:
            return
        if problem := self._why_not_routed(definition):
            log.warning("%s: calls go to the fallback: %s", self.name, problem)
            return
        from pytest_fib.dispatch._compiled_op import define_op

        self.definition = definition
        self._generate(self._key(definition), records=recorded is not None)
        if tracer and recorded:
            self._globals["_fib_record"] = tracer.recorder(self, definition)
        if self._op_of != (definition, self._order):  # operators stay for good
            self._op_of = (definition, self._order)
            self._op = define_op(self)
        self._globals["_fib_op"] = self._op
        if not self.in_place and not _tells_outputs(definition):
            self._globals["_fib_without_gradient"] = _never
        self._globals["_fib_tracing"] = _is_dynamo_compiling()
        self._globals["_fib_table"] = self._table

    def _why_not_routed(self, definition: Definition) -> str | None:
        """Why calls can't be routed; sets which parameters are the inputs, and the outputs."""
        names = [parameter.name for parameter in self._parameters]
        expected = [*definition.inputs]
        if names[0] == "self" and "self" not in expected:
            return "it takes self; in the call form, fallback=self.method is routed"
        if len(names) == len(definition.inputs) + len(definition.outputs):
            expected += definition.outputs
        if len(names) != len(expected):
            return f"it takes {len(names)} arguments, the definition has {len(expected)} inputs"
        if any("float4" in spec.dtype for spec in definition.inputs.values()):
            return "float4 is packed, and its shapes are not those of the definition"
        same = set(names) == set(expected)
        self._order = tuple(names.index(name) for name in expected) if same else range_of(names)
        return None

    def _key(self, definition: Definition) -> str:
        """The expression of the sizes of all var axes, from the first tensor that has each."""
        size_of: dict[str, str] = {}
        for i, spec in zip(self._order, definition.inputs.values(), strict=False):
            for dimension, axis in enumerate(spec.shape or ()):
                if axis in definition.var_axes and axis not in size_of:
                    size_of[axis] = f"{{{i}}}.shape[{dimension}]"
        sizes = [size_of[axis] for axis in definition.var_axes if axis in size_of]
        return sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"

    # Off the hot path

    @property
    def in_place(self) -> bool:
        """Whether calls give the outputs as their last arguments."""
        assert self.definition is not None
        return len(self._order) > len(self.definition.inputs)

    def _resolve(self, key: Any, *arguments: Any) -> Any:
        """A call at a shape that is not in the table, or with other tensors than were seen there.

        ``arguments`` are in the order of the definition.
        """
        active = self.active
        if active is None or self.definition is None:
            return self.fall_back(arguments)
        reason = self._why_fallback(arguments)
        if reason is not None:
            self.stats.count_fallbacks(reason, 1)
            return self.fall_back(arguments)
        axes = self.axes_of(arguments)
        try:
            names = self._candidates(active, self.definition, axes, arguments)
            return self._first(active, names, key, arguments)
        except _NoneServes as none:
            reason = str(none)
        self.stats.count_fallbacks(reason, 1)
        if reason != BUILDING:  # which ends
            self._put_fallback(key, guard_of(arguments), reason)
        return self.fall_back(arguments)

    def _candidates(
        self,
        active: AppliedTraceSet,
        definition: Definition,
        axes: dict[str, int],
        arguments: Sequence[Any],
    ) -> Sequence[str]:
        """The solutions to try, best first. Raises _NoneServes where choosing fails."""
        try:
            return active.candidates(definition, axes, arguments)
        except RAISED as error:
            active.log_no_choice(self.name, blame(error))
            raise _NoneServes(NO_CHOICE) from None

    def _first(
        self,
        active: AppliedTraceSet,
        names: Sequence[str],
        key: Any,
        arguments: Sequence[Any],
    ) -> Any:
        """The result of a call by the first of these solutions that works. Raises _NoneServes."""
        assert self.definition is not None
        kernels = active.kernels
        for name in names:
            if name in kernels.quarantined:
                continue
            try:
                function, calling = kernels.get(name, self.definition, device_of(arguments))
                call, result = first_call(self.definition, function, calling, arguments)
            except Busy:
                raise _NoneServes(BUILDING) from None
            except RAISED as error:
                self.drop(name, blame(error))
            else:
                # And no other thread has ended that, or seen it fail.
                if self.active is active and name not in kernels.quarantined:
                    self._put(active, key, guard_of(arguments), call, name)
                self.stats.count_hits(name, 1)
                return result
        raise _NoneServes("quarantined" if names else MISS)

    def _put(
        self,
        active: AppliedTraceSet,
        key: Any,
        guard: Callable[..., bool],
        call: Callable[..., Any],
        name: str,
    ) -> None:
        length = active.calls_until_shadow()
        countdown = iter(range(length))
        entry = Entry(guard, countdown.__next__, call, name, countdown, length)
        self._replace(key, entry)

    def _put_fallback(self, key: Any, guard: Callable[..., bool], reason: str) -> None:
        """Have further calls go to the fallback at once: what decides that takes longer."""
        countdown = iter(range(sys.maxsize))

        def fall_back(*arguments: Any) -> Any:
            return self.fall_back(arguments)

        entry = Entry(guard, countdown.__next__, fall_back, "", countdown, sys.maxsize, reason)
        self._replace(key, entry)

    def _replace(self, key: Any, entry: Entry) -> None:
        if len(self._table) >= MOST_SHAPES:
            self._count_hits()
            self._table.clear()
        if (old := self._table.get(key)) is not None:
            old.add_to(self.stats)
        self._table[key] = entry

    def _failed(self, error: BaseException, entry: Entry, key: Any, *arguments: Any) -> Any:
        """A call whose countdown ended, or whose implementation raised, or the fallback."""
        if entry.reason:
            raise error
        if isinstance(error, StopIteration) and entry.hits == entry.length:
            return self._verified(entry, key, arguments)
        self.stats.count_hits(entry.solution, -1)  # the countdown has counted it
        return self._served_instead(entry.solution, error, arguments)

    def _verified(self, entry: Entry, key: Any, arguments: Sequence[Any]) -> Any:
        """A call whose countdown ended: it is compared, and another countdown begins."""
        active, shadow = self.active, None
        if active is not None:
            if self._table.get(key) is entry:  # and not another thread's or trace set's by now
                self._put(active, key, entry.guard, entry.call, entry.solution)
            shadow = active.shadow_call(self, arguments)
        try:
            result = entry.call(*arguments)
        except RAISED as failure:
            return self._served_instead(entry.solution, failure, arguments)
        self.stats.count_hits(entry.solution, 1)
        if shadow is not None:
            shadow.queue(result, entry.solution)
        return result

    def _served_instead(self, name: str, error: BaseException, arguments: Sequence[Any]) -> Any:
        """The fallback's result of a call at which a solution raised."""
        self.drop(name, blame(error))
        self.stats.count_fallbacks("raised", 1)
        return self.fall_back(arguments)

    def drop(self, name: str, why: str) -> None:
        """Call a solution no more, here or for another fallback of the definition."""
        if (active := self.active) is not None:
            active.quarantine(name, why)
        self.stats.errors[name] = why

    def forget(self, name: str) -> None:
        """Have calls that go to a solution find another."""
        for key in [key for key, entry in list(self._table.items()) if entry.solution == name]:
            entry = self._table.pop(key, None)
            if entry is not None:
                entry.add_to(self.stats)

    def fall_back(self, arguments: Sequence[Any]) -> Any:
        return self._called(self.fallback, arguments)

    def call_in_order(self, arguments: Sequence[Any]) -> Any:
        """A routed call, with its arguments in the definition's order."""
        return self._called(self.function, arguments)

    def _called(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        places = dict(zip(self._order, arguments, strict=True))
        values = [(p, places[i]) for i, p in enumerate(self._parameters)]
        positional = [value for p, value in values if p.kind is not p.KEYWORD_ONLY]
        keywords = {p.name: value for p, value in values if p.kind is p.KEYWORD_ONLY}
        return function(*positional, **keywords)

    # What calls have in common

    def _why_fallback(self, arguments: Sequence[Any]) -> str | None:
        import torch

        assert self.definition is not None
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        if not is_like(self.definition, arguments):
            return "unlike"
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return "gradient"
        if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
            return "capturing"
        return None

    def is_like(self, arguments: Sequence[Any]) -> bool:
        return self.definition is not None and is_like(self.definition, arguments)

    def axes_of(self, arguments: Sequence[Any]) -> dict[str, int]:
        """The size of every axis that the inputs tell."""
        assert self.definition is not None
        return axes_of(self.definition, arguments)

    # Counting

    @property
    def stats(self) -> DefinitionStats:
        """The counts of this definition, without the hits of entries.

        Of a call that another thread ended routing under, nothing is kept.
        """
        active = self.active
        if active is None:
            return DefinitionStats()
        return active.stats.setdefault(self.name, DefinitionStats())

    def add_pending_hits(self, stats: DefinitionStats) -> None:
        """Add the hits of entries that are not in `stats` yet."""
        for entry in list(self._table.values()):
            entry.add_to(stats)

    def _count_hits(self) -> None:
        if self.active is not None and self._table:
            self.add_pending_hits(self.stats)


def range_of(names: Sequence[object]) -> tuple[int, ...]:
    return tuple(range(len(names)))


def _without_gradient(*tensors: Any) -> bool:
    import torch

    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))


def _never(*tensors: Any) -> bool:
    return False


def _tells_outputs(definition: Definition) -> bool:
    """Whether inputs have all sizes of the outputs, as an operator in a compiled graph needs."""
    known = {axis for spec in definition.inputs.values() for axis in spec.shape or ()}
    known |= definition.const_axes.keys()
    return all(known.issuperset(spec.shape or ()) for spec in definition.outputs.values())


def _is_dynamo_compiling() -> Callable[[], bool]:
    import torch

    return torch.compiler.is_dynamo_compiling
