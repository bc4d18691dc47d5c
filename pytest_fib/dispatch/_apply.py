"""``apply``, and switching it on and off."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import update_wrapper
from inspect import signature
from math import log1p
from pathlib import Path
from random import Random
from threading import Lock
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakMethod, WeakSet, finalize

from pytest_fib.dispatch._choice import Policy, policy_of
from pytest_fib.dispatch._definitions import Definitions
from pytest_fib.dispatch._dispatcher import Dispatcher
from pytest_fib.dispatch._generated import generated_router
from pytest_fib.dispatch._kernels import Kernels, hardware_name, log
from pytest_fib.dispatch._stats import DefinitionStats

if TYPE_CHECKING:
    from pytest_fib.data import Definition, Shape, TraceSet
    from pytest_fib.dispatch._shadow import ShadowCall, ShadowChecker
    from pytest_fib.dispatch._tracing import Tracer, TracingConfig

#: Fallbacks of the call form that are remembered; functions made for each call would pile up.
MOST_FALLBACKS = 1024
_ON = ("1", "true", "yes", "on")
_OFF = ("0", "false", "no", "off", "")
_TOGETHER = frozenset({"args", "kwargs"})
_Active = TypeVar("_Active", "AppliedTraceSet", "Tracer")
_dispatchers: WeakSet[Dispatcher] = WeakSet()
_called: dict[tuple[Any, Any], Callable[..., Any]] = {}
#: Those of methods, by the identity of what has them.
_called_of: dict[tuple[Any, int, Any], Callable[..., Any]] = {}
_called_by_code: dict[tuple[Any, Any], Callable[..., Any]] = {}


class AppliedTraceSet:
    """A trace set that calls are routed by; as a context, until its end.

    ``dataset`` is where shadow verification records workloads whose outputs were wrong.
    """

    def __init__(
        self,
        trace_set: TraceSet,
        policy: Policy,
        *,
        shadow: float,
        hardware: str | None,
        dataset: Path | None,
    ) -> None:
        self.trace_set = trace_set
        self.definitions = Definitions(trace_set)
        self.kernels = Kernels(trace_set)
        self.stats: dict[str, DefinitionStats] = {}
        self.before: AppliedTraceSet | None = None
        self.is_context = False
        self.dataset = dataset
        self._policy, self._shadow, self._hardware = policy, shadow, hardware
        self._random = Random(os.getpid())
        self._measured: dict[tuple[Any, ...], dict[Shape, tuple[str, ...]]] = {}
        self._checker: ShadowChecker | None = None
        self._no_choice_was_said = False

    def __enter__(self) -> AppliedTraceSet:
        self.is_context = True
        return self

    def __exit__(self, *error: object) -> None:
        if _State.active is self:
            _activate(self.before)

    def build(self, device: Any = None) -> None:
        """Build, or load, what is best at each shape measured on a device, before any call comes.

        ``device`` is a torch device; not given, the current CUDA device or else the CPU. What fails
        is quarantined. Without this, the first call of an implementation builds it.
        """
        import torch

        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        device = torch.empty(0, device=device).device
        hardware = self._hardware or hardware_name(device)
        for name in self.trace_set.definitions:
            definition = self.definitions.get(name)
            if definition is None:
                continue
            ranked = self.trace_set.ranked(name, hardware)
            for solution in dict.fromkeys(names[0] for names in ranked.values()):
                self.kernels.try_to_get(solution, definition, device)

    def candidates(
        self, definition: Definition, axes: dict[str, int], arguments: Sequence[Any]
    ) -> Sequence[str]:
        """The solutions to try at these sizes, best first."""
        visible = tuple(i for i, name in enumerate(definition.var_axes) if name in axes)
        device = next(value.device for value in arguments if hasattr(value, "device"))
        key = (definition.name, str(device), visible)
        if key not in self._measured:
            hardware = self._hardware or hardware_name(device)
            ranked = self.trace_set.ranked(definition.name, hardware)
            if not ranked:
                self._log_nothing_to_choose(definition.name, hardware)
            # The first of several shapes that differ in what the inputs don't tell.
            by_visible = {tuple(at[i] for i in visible): names for at, names in ranked.items()}
            self._measured[key] = by_visible
        shape = tuple(axes[definition.var_axes[i]] for i in visible)
        return tuple(self._policy(shape, self._measured[key]))

    def log_no_choice(self, name: str, why: str) -> None:
        """Log once that an implementation could not be chosen, and why."""
        if not self._no_choice_was_said:
            self._no_choice_was_said = True
            log.warning(
                "%s: choosing an implementation fails, such calls go to the fallback: %s", name, why
            )

    def _log_nothing_to_choose(self, name: str, hardware: str) -> None:
        others = ", ".join(self.trace_set.hardware(name))
        elsewhere = f", only on {others}" if others else ""
        what = f"nothing has passed and been timed on {hardware}{elsewhere}"
        log.warning("%s: every call goes to its fallback: %s", name, what)

    def quarantine(self, name: str, why: str) -> None:
        """Call a solution no more, whichever fallback its calls have."""
        self.kernels.quarantine(name, why)
        with _State.lock:
            for dispatcher in list(_dispatchers):
                if dispatcher.active is self:
                    dispatcher.forget(name)

    def calls_until_shadow(self) -> int:
        """How many calls an implementation serves before one that is verified."""
        if self._shadow in (0, 1):
            return 0 if self._shadow else sys.maxsize
        return min(sys.maxsize, int(self._random.expovariate(-log1p(-self._shadow))))

    def shadow_call(self, dispatcher: Dispatcher, arguments: Sequence[Any]) -> ShadowCall | None:
        """A call that is verified; None where too many wait for that, or memory is short."""
        from pytest_fib.dispatch._shadow import ShadowChecker

        with _State.lock:
            if self._checker is None:
                self._checker = ShadowChecker(self.dataset)
        return self._checker.begin(dispatcher, arguments)

    def restart(self) -> None:
        """In a forked process, whose parent's other threads neither build nor compare here."""
        self._checker = None
        self.kernels.restart()

    def verify_pending(self) -> None:
        """Wait until every shadow call so far has been compared."""
        if self._checker is not None:
            self._checker.flush()


class _State:
    """The active trace set and tracer of this process."""

    active: AppliedTraceSet | None = None
    tracer: Tracer | None = None
    environment_read = False
    lock = Lock()


def _restart() -> None:
    _State.lock = Lock()  # another thread of the parent may have had it
    applied = _State.active
    while applied is not None:
        applied.restart()
        applied = applied.before


os.register_at_fork(after_in_child=_restart)


def enable_apply(
    trace_set: TraceSet | str | os.PathLike[str] | None = None,
    *,
    policy: str | Policy = "nearest",
    within: float = 2.0,
    shadow: float = 0.0,
    hardware: str | None = None,
    dataset: str | os.PathLike[str] | None = None,
) -> AppliedTraceSet:
    """Route calls of `apply` by a trace set from now on, in all threads.

    trace_set: what to choose from, or the path of a dataset or file; not given, it is that of
        ``FIB_DATASET_PATH``, else ``./flashinfer-trace``.
    policy: ``nearest`` calls what is best at the shape or, where that wasn't measured, at the
        nearest; ``exact`` calls nothing else than what was measured at the shape. A function gets
        the sizes of the var axes and, for each measured shape, the solutions that passed there,
        best first; it returns those to try.
    within: the largest factor by which an axis of the nearest shape may differ.
    shadow: the share of calls that are also computed by the fallback, in the background, and
        compared; what is wrong is quarantined and recorded in the dataset as a workload.
    hardware: the device in traces to choose by, where it isn't this one.
    dataset: where such workloads are recorded; not given, where the trace set was read from, and
        nowhere if that is one file.

    Also a context manager, at whose end what was active before is so again. Raises ValueError, and
    what reading the trace set raises.
    """
    from pytest_fib.data import TraceSet

    _read_environment()
    chosen = policy_of(policy, within)
    if not 0 <= shadow <= 1:
        raise ValueError(f"shadow should be a share from 0 to 1, not {shadow}")
    if not isinstance(trace_set, TraceSet):
        trace_set = TraceSet.load(_dataset_path() if trace_set is None else trace_set)
    root = Path(dataset) if dataset is not None else next(iter(trace_set.roots), None)
    applied = AppliedTraceSet(trace_set, chosen, shadow=shadow, hardware=hardware, dataset=root)
    _remember(_State.active, applied)
    _activate(applied)
    return applied


def _remember(before: _Active | None, now: _Active) -> _Active | None:
    """Have a context end with what was active before. Returns what nothing remembers any more.

    What no context will end needs no memory of its own: a service that enables a new trace set each
    hour would keep them all.
    """
    now.before = before
    if before is None or before.is_context:
        return None
    forgotten, before.before = before.before, None
    return forgotten


def disable_apply() -> None:
    """Call the fallbacks from now on."""
    _read_environment()
    _activate(None)


def enable_tracing(
    dataset_dir: str | os.PathLike[str] | None = None,
    tracing_configs: Mapping[str, TracingConfig] | None = None,
    *,
    trace_set: TraceSet | None = None,
    waiting: int = 256,
) -> Tracer:
    """Record calls of `apply` as workloads of a dataset from now on, in all threads.

    dataset_dir: where; not given, it is that of ``FIB_DATASET_PATH``, else ``./flashinfer-trace``.
    tracing_configs: what is recorded of each definition; not given, every definition's calls are,
        by the defaults of `TracingConfig`.
    trace_set: where definitions come from, if not from the dataset, which they are added to.
    waiting: how many calls may wait to be written; further ones are counted as dropped.

    Also a context manager, at whose end all is written and what was recorded before is again.
    Raises ValueError, and what reading the dataset raises; a dataset that can't be written is one
    warning, and a count.
    """
    from pytest_fib.data import TraceSet
    from pytest_fib.dispatch._tracing import Tracer, flush_on_signal

    _read_environment()
    root = Path(_dataset_path() if dataset_dir is None else dataset_dir)
    if trace_set is None and not root.is_dir():
        raise NotADirectoryError(
            f"{root} is not a directory; give one with definitions, or trace_set="
        )
    if trace_set is None:
        trace_set = on_disk = TraceSet.load(root)
    else:
        on_disk = TraceSet.from_path(root) if root.is_dir() else TraceSet()
    names = trace_set.definitions if tracing_configs is None else tracing_configs
    _add_definitions(root, trace_set, [n for n in names if n not in on_disk.definitions])
    _check_configs(tracing_configs or {}, trace_set)
    tracer = Tracer(root, trace_set, tracing_configs, waiting)
    tracer.on_exit = _end_tracing
    forgotten = _remember(_State.tracer, tracer)
    flush_on_signal()
    _trace_by(tracer)
    if forgotten is not None and not forgotten.is_context:  # a context ends its own
        forgotten.close()
    return tracer


def _check_configs(configs: Mapping[str, TracingConfig], trace_set: TraceSet) -> None:
    """Raises ValueError for inputs that a definition doesn't have."""
    for name, config in configs.items():
        if name in trace_set.definitions:
            config.dumped(trace_set.definitions[name])
        else:
            log.warning("%s: no calls are recorded: there is no such definition", name)


def _add_definitions(root: Path, trace_set: TraceSet, names: Sequence[str]) -> None:
    """Add to a dataset what its workloads will be of, where that can be written."""
    from pytest_fib.data import TraceSet

    lacking = [trace_set.definitions[name] for name in names if name in trace_set.definitions]
    if not lacking:
        return
    try:
        TraceSet(lacking).to_path(root)
    except OSError as error:
        log.warning("%s: definitions can't be added: %s", root, error)


def disable_tracing() -> None:
    """Record no more calls; returns when all that were recorded are written."""
    _read_environment()
    tracer = _State.tracer
    _trace_by(None)
    while tracer is not None:
        tracer.close()
        tracer = tracer.before


def _end_tracing(tracer: Tracer) -> None:
    if _State.tracer is tracer:
        _trace_by(tracer.before)
    tracer.close()


def _trace_by(tracer: Tracer | None) -> None:
    _State.tracer = tracer
    with _State.lock:
        for dispatcher in list(_dispatchers):
            dispatcher.activate(_State.active, tracer)


def stats() -> dict[str, DefinitionStats]:
    """What became of the calls of each definition since `enable_apply`; empty where disabled."""
    active = _State.active
    if active is None:
        return {}
    counted = {name: deepcopy(each) for name, each in active.stats.items()}
    for dispatcher in list(_dispatchers):
        if dispatcher.active is active:
            of = counted.get(dispatcher.name, DefinitionStats())
            dispatcher.add_pending_hits(of)
            if of != DefinitionStats():
                counted[dispatcher.name] = of
    return counted


def is_enabled() -> bool:
    """Whether calls are routed or recorded now, also as the environment says."""
    if not _State.environment_read:  # no call that isn't needed
        _read_environment()
    return _State.active is not None or _State.tracer is not None


def known_definition(name: str) -> Definition | None:
    """The definition of this name whose calls are routed or recorded now."""
    active, tracer = _State.active, _State.tracer
    routed = None if active is None else active.definitions.get(name)
    return tracer.definition(name) if routed is None and tracer is not None else routed


def apply(
    definition: str | Callable[..., str],
    *arguments: Any,
    fallback: Callable[..., Any] | None = None,
    **keywords: Any,
) -> Any:
    """Call the best implementation of a definition that was verified here, or a fallback.

    Without arguments, a decorator for the fallback:

        @apply("rmsnorm_d4096")
        def rmsnorm(x, weight): ...

    With them, the call itself: ``apply("rmsnorm_d4096", x, weight, fallback=rmsnorm)``. The
    fallback takes the inputs, or the inputs and then the outputs, in the definition's order or
    under its names, and it serves every call that no implementation is verified for.
    ``definition`` may be a function of the fallback's arguments that returns the name. Arguments
    may also be given together, as ``args=(x, weight)`` and ``kwargs={"eps": 1e-6}``.
    """
    if not _State.environment_read:
        _read_environment()
    if keywords and not arguments and keywords.keys() <= _TOGETHER:
        arguments, keywords = keywords.get("args", ()), keywords.get("kwargs", {})
    if fallback is None:
        if arguments or keywords:
            raise TypeError("apply() needs fallback= where it is given arguments")
        return _decorator(definition)
    if isinstance(fallback, MethodType):
        return _called_method(definition, fallback)(*arguments, **keywords)
    key = definition, fallback
    try:
        function = _called.get(key)
    except TypeError:  # an object that can't be hashed
        key = _made_by(definition), _made_by(fallback)
        function = _called.get(key)
    if function is None:
        function = _put(_called, key, _called_like(definition, fallback))
    return function(*arguments, **keywords)


def _decorator(definition: str | Callable[..., str]) -> Callable[..., Any]:
    """Raises TypeError; the decorator does where ``@apply`` was written without a name."""
    if not (isinstance(definition, str) or callable(definition)):
        what = "the name of a definition, or a function that returns it"
        raise TypeError(f"apply() takes {what}, not {definition!r}")

    def decorate(*functions: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
        if len(functions) != 1 or keywords or not callable(functions[0]):
            raise TypeError(
                "apply is a decorator with a definition's name: @apply('rmsnorm_d4096')"
            )
        return _routed(definition, functions[0])

    return decorate


def _called_method(definition: str | Callable[..., str], method: MethodType) -> Callable[..., Any]:
    """The routed function of a method, for as long as there is the object that has it.

    A model has more layers than fallbacks are remembered, and takes more memory than may be kept.
    """
    name = definition if definition.__class__ is str else _made_by(definition)
    key = name, id(method.__self__), method.__func__
    if (function := _called_of.get(key)) is not None:
        return function
    try:
        forget = finalize(method.__self__, _called_of.pop, key, None)
    except TypeError:  # what has no weak references
        return _called_like(definition, method)
    forget.atexit = False
    _called_of[key] = function = _routed(definition, _weakly(method))
    return function


def _weakly(method: MethodType) -> Callable[..., Any]:
    """A function that calls a method of what its callers alone keep alive."""
    reference = WeakMethod(method)

    def call(*arguments: Any, **keywords: Any) -> Any:
        bound = reference()
        assert bound is not None
        return bound(*arguments, **keywords)

    call.__signature__ = signature(method)  # type: ignore[attr-defined]
    return call


def _called_like(
    definition: str | Callable[..., str], fallback: Callable[..., Any]
) -> Callable[..., Any]:
    """The routed function of this fallback, or of one that differs in nothing but its identity."""
    key = _made_by(definition), _made_by(fallback)
    function = _called_by_code.get(key)
    return (
        _put(_called_by_code, key, _routed(definition, fallback)) if function is None else function
    )


def _made_by(function: Any) -> Any:
    """What is the same for a lambda that each call makes anew, which would be routed anew."""
    try:
        hash(function)
    except TypeError:
        return id(function)
    if not isinstance(function, FunctionType):
        return function
    if function.__closure__ or function.__defaults__ or function.__kwdefaults__:
        return function
    return function.__code__, id(function.__globals__)


def _put(
    functions: dict[tuple[Any, Any], Callable[..., Any]],
    key: tuple[Any, Any],
    function: Callable[..., Any],
) -> Callable[..., Any]:
    if len(functions) >= MOST_FALLBACKS:
        functions.clear()
    functions[key] = function
    return function


def _routed(
    definition: str | Callable[..., str], fallback: Callable[..., Any]
) -> Callable[..., Any]:
    if isinstance(definition, str):
        return _dispatched(definition, fallback)
    by_name: dict[str, Callable[..., Any]] = {}

    def named(name: str) -> Callable[..., Any]:
        function = by_name.get(name)
        if function is None:
            function = by_name[name] = _dispatched(name, fallback)
        return function

    router = generated_router(definition, fallback, named, is_enabled)
    return update_wrapper(router, fallback)


def _dispatched(name: str, fallback: Callable[..., Any]) -> Callable[..., Any]:
    dispatcher = Dispatcher(name, fallback)
    with _State.lock:
        _dispatchers.add(dispatcher)
        dispatcher.activate(_State.active, _State.tracer)
    if dispatcher.function is fallback:
        what = "a fallback without parameters of its own can't be routed"
        log.warning("%s: %s", name, what)
    return dispatcher.function


def _activate(applied: AppliedTraceSet | None) -> None:
    with _State.lock:
        _State.active = applied
        for dispatcher in list(_dispatchers):
            dispatcher.activate(applied, _State.tracer)


def _read_environment() -> None:
    """Enable what the environment says, once; a dataset that can't be read is logged."""
    if _State.environment_read:
        return
    _State.environment_read = True
    for enable, (names, without) in _SWITCHES.items():
        if not any(_is_on(name) for name in names):
            continue
        try:
            enable()
        except (OSError, ValueError) as error:
            log.warning("%s: %s: %s", names[0], without, error)


def _is_on(name: str) -> bool:
    """Whether a variable of the environment says yes; what says neither is logged."""
    value = os.environ.get(name, "").strip().lower()
    if value not in (*_ON, *_OFF):
        log.warning("%s: %r is taken for 0: it should be 1 or 0", name, value)
    return value in _ON


#: What each of these in the environment enables, and what happens where that can't be.
_SWITCHES: dict[Callable[[], object], tuple[tuple[str, str], str]] = {
    enable_apply: (
        ("FIB_ENABLE_APPLY", "FLASHINFER_BENCH_ENABLE_APPLY"),
        "every call goes to its fallback",
    ),
    enable_tracing: (
        ("FIB_ENABLE_TRACING", "FLASHINFER_BENCH_ENABLE_TRACING"),
        "no call is recorded",
    ),
}


def _dataset_path() -> str:
    names = ("FIB_DATASET_PATH", "FLASHINFER_BENCH_DATASET_PATH")
    given = (os.environ.get(name) for name in names)
    return next(filter(None, given), "flashinfer-trace")
