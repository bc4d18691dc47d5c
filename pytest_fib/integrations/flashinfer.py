"""FlashInfer's calls routed through `apply`, and recorded by tracing: `install`.

A call is routed only where a definition means just what it computes. All others go to FlashInfer as
before; `unrouted` has how many did, and why. Shadow verification does not cover these calls: what
would compute them again is FlashInfer, whose wrappers keep a plan for one call at a time.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from pytest_fib.dispatch import is_enabled
from pytest_fib.integrations._routing import NotServed, Router, Unroutable, log

if TYPE_CHECKING:
    from pytest_fib.data import Definition

_router = Router()
#: What was patched: owner, name, what was there.
_patched: list[tuple[Any, str, Any]] = []
_wrapper_plans: WeakKeyDictionary[Any, _Plan] = WeakKeyDictionary()

#: Arguments that change how fast a call is, or where it puts what, and not what it computes.
_HARMLESS = frozenset(
    {
        "enable_pdl", "non_blocking", "disable_split_kv", "fixed_split_size", "seq_lens",
        "seq_lens_q", "block_tables", "max_token_per_sequence", "max_sequence_kv", "rope_scale",
        "rope_theta", "q_data_type", "kv_data_type", "data_type", "use_fp16_qk_reduction",
        "use_profiler", "profiler_buffer", "out", "lse", "return_lse", "sm_scale", "causal",
        "is_causal", "uniform_q_len", "max_q_len", "o_data_type",
    }
)  # fmt: skip
#: What other arguments may be: as if they were not given.
_NEUTRAL = (None, False, "NONE", "none", "default", "log2", "NH")
_NEUTRAL_NUMBERS = {
    "window_left": -1,
    "window_right": 0,
    "logits_soft_cap": 0.0,
    "q_len_per_req": 1,
    "token_pos_in_items_len": 0,
}


@dataclass(frozen=True)
class Installed:
    """What `install` did: the calls that are routed, and those that are not there, and why."""

    routed: tuple[str, ...]
    missing: Mapping[str, str]


def install() -> Installed:
    """Route FlashInfer's attention wrappers, MLA, rmsnorm and fused_add_rmsnorm through `apply`.

    Do this before other modules import these functions by name. What this version of FlashInfer
    does not have is in the answer, and logged. Raises ImportError without FlashInfer.
    """
    import_module("flashinfer")
    if not _patched:
        for place in _FUNCTIONS | _WRAPPERS:
            _install(place)
    missing = {
        place: "this version of FlashInfer does not have it"
        for place in _FUNCTIONS | _WRAPPERS
        if not any(_place_of(owner, name) == place for owner, name, _ in _patched)
    }
    for place, reason in missing.items():
        log.warning("%s: %s", place, reason)
    return Installed(tuple(p for p in _FUNCTIONS | _WRAPPERS if p not in missing), missing)


def uninstall() -> None:
    """Put back what was there before `install`, and forget what was counted."""
    _router.unrouted.clear()
    while _patched:
        setattr(*_patched.pop())


def unrouted() -> dict[str, dict[str, int]]:
    """How many calls were not routed, by what was called and why."""
    counted: dict[str, dict[str, int]] = {}
    for (target, reason), number in _router.unrouted.items():
        counted.setdefault(target, {})[reason] = number
    return counted


# Patching


def _install(place: str) -> None:
    module, _, name = place.rpartition(".")
    try:
        owner: Any = import_module(module)
    except ImportError:
        return
    original = getattr(owner, name, None)
    if original is None:
        return
    if place in _WRAPPERS:
        _install_wrapper(place, original)
        return
    routed = _as_function(original, _FUNCTIONS[place])
    for each in (owner, import_module("flashinfer")):
        if getattr(each, name, None) is original:
            _patch(each, name, routed)


def _as_function(original: Any, route: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def function(*arguments: Any, **keywords: Any) -> Any:
        return route(original, *arguments, **keywords)

    return function


def _install_wrapper(place: str, wrapper: Any) -> None:
    """Patch ``plan`` and ``run``, and the names under which the class has the same functions."""
    plan, run = wrapper.plan, wrapper.run
    values = _WRAPPERS[place]
    new_plan, new_run = _planning(plan), _running(place, run, values)
    for name, member in list(vars(wrapper).items()):
        if member is plan:
            _patch(wrapper, name, new_plan)
        elif member is run:
            _patch(wrapper, name, new_run)
        elif isinstance(member, functools.partialmethod) and member.func is run:
            bound = functools.partialmethod(new_run, *member.args, **member.keywords)
            _patch(wrapper, name, bound)


def _patch(owner: Any, name: str, new: Any) -> None:
    _patched.append((owner, name, vars(owner)[name]))
    setattr(owner, name, new)


def _place_of(owner: Any, name: str) -> str:
    if inspect.isclass(owner):
        return next((p for p in _WRAPPERS if p.endswith(f".{owner.__name__}")), "")
    return f"{owner.__name__}.{name}"


# Norms


def _rmsnorm(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    given = _bound(original, arguments, keywords)

    def values(definition: Definition) -> dict[str, Any]:
        x = given["input"]
        return _with_eps(definition, given, {"hidden_states": x, "x": x, "input": x})

    def route() -> Any:
        (result,) = _router.call(_norm_names("rmsnorm", given), values)
        return result if given["out"] is None else given["out"].copy_(result)

    return _or_else("flashinfer.norm.rmsnorm", route, lambda: original(*arguments, **keywords))


def _fused_add_rmsnorm(original: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
    """FlashInfer writes both results over its inputs; implementations may not."""
    given = _bound(original, arguments, keywords)
    x, residual = given["input"], given["residual"]

    def values(definition: Definition) -> dict[str, Any]:
        named = {"hidden_states": x, "x": x, "input": x, "residual": residual}
        return _with_eps(definition, given, named)

    def route() -> None:
        output, *total = _router.call(_norm_names("fused_add_rmsnorm", given), values)
        residual.copy_(total[0]) if total else residual.add_(x)
        x.copy_(output)

    place = "flashinfer.norm.fused_add_rmsnorm"
    _or_else(place, route, lambda: original(*arguments, **keywords))


def _norm_names(kind: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    weight = given["weight"]
    width, dtype = weight.shape[0], str(weight.dtype).removeprefix("torch.")
    return f"{kind}_h{width}", f"{kind}_d{width}_{dtype}", f"{kind}_d{width}"


def _with_eps(
    definition: Definition, given: Mapping[str, Any], values: dict[str, Any]
) -> dict[str, Any]:
    """With eps, which a definition may have in its reference only. Raises Unroutable."""
    eps = float(given["eps"])
    if "eps" not in definition.inputs and eps not in _numbers(definition.reference):
        raise Unroutable(f"eps is {eps:g}, unlike in the reference of {definition.name}")
    return {**values, "weight": given["weight"], "eps": eps}


@functools.cache
def _numbers(source: str) -> frozenset[float]:
    constants = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant))
    return frozenset(node.value for node in constants if isinstance(node.value, float))


# Attention


@dataclass(frozen=True)
class _Plan:
    """What ``plan`` was given, and why calls after it can't be routed.

    What follows from that is found by the first call, and kept: it may wait for the device.
    """

    given: dict[str, Any]
    problem: str | None
    _derived: dict[Any, Any] = field(default_factory=dict)

    def once(self, key: Any, find: Callable[[], Any]) -> Any:
        """What the function returned when this was first asked for."""
        if key not in self._derived:
            self._derived[key] = find()
        return self._derived[key]

    def on(self, device: Any, *names: str) -> Any:
        """The first of these tensors that was given, on a device."""
        name = next(name for name in names if self.given.get(name) is not None)
        return self.once((name, device), lambda: self.given[name].to(device))


def _planning(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def plan(self: Any, *arguments: Any, **keywords: Any) -> Any:
        _wrapper_plans.pop(self, None)
        result = original(self, *arguments, **keywords)
        given = _bound(original, (self, *arguments), keywords)
        _wrapper_plans[self] = _Plan(given, _problem("plan", given, _PLANNED) or _mode(self))
        return result

    return plan


def _running(
    place: str, original: Callable[..., Any], call: Callable[..., tuple[Sequence[str], Any]]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def run(self: Any, *arguments: Any, **keywords: Any) -> Any:
        def route() -> Any:
            given = _bound(original, (self, *arguments), keywords)
            planned = _wrapper_plans.get(self)
            if planned is None:
                raise Unroutable("there was no plan after install()")
            problem = planned.problem or _problem("run", given, _RUN) or _later(self)
            if problem or (problem := _other_output(planned, given)):
                raise Unroutable(problem)
            results = _router.call(*call(self, planned, given))
            return _returned(results, given)

        return _or_else(place, route, lambda: original(self, *arguments, **keywords))

    return run


def _or_else(place: str, route: Callable[[], Any], original: Callable[[], Any]) -> Any:
    """What is routed or, where it can't be, FlashInfer's own."""
    if not is_enabled():
        return original()
    try:
        return route()
    except NotServed:
        return original()
    except Unroutable as reason:
        _router.count(place, str(reason))
        return original()


def _bound(
    function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> dict[str, Any]:
    """Arguments by name, with defaults; those of ``**kwargs`` like the others."""
    try:
        bound = _signature(function).bind(*arguments, **keywords)
    except TypeError as error:
        raise Unroutable(str(error)) from None
    bound.apply_defaults()
    given = dict(bound.arguments)
    for name, parameter in _signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(name)
    return given


_signature = functools.cache(inspect.signature)
#: What is used of ``plan`` and ``run``, or checked elsewhere.
_PLANNED = frozenset(
    {
        "self", "indptr", "indices", "last_page_len", "qo_indptr", "kv_indptr", "kv_indices",
        "kv_len_arr", "paged_kv_indptr", "paged_kv_indices", "paged_kv_last_page_len", "num_heads",
        "num_qo_heads", "num_kv_heads", "head_dim", "head_dim_qk", "head_dim_vo", "head_dim_ckv",
        "head_dim_kpe", "page_size",
    }
)  # fmt: skip
_RUN = frozenset({"self", "q", "k", "v", "q_nope", "q_pe", "ckv_cache", "kpe_cache"}) | {
    "paged_kv_cache"
}


def _problem(function: str, given: Mapping[str, Any], used: frozenset[str]) -> str | None:
    """The first argument that a definition knows nothing of."""
    for name, value in given.items():
        if name not in used and name not in _HARMLESS and not _is_neutral(name, value):
            shown = value if isinstance(value, (str, int, float)) else type(value).__name__
            return f"{function}({name}={shown})"
    return None


def _is_neutral(name: str, value: Any) -> bool:
    if isinstance(value, (tuple, dict)):
        return not value
    if name in _NEUTRAL_NUMBERS and value == _NEUTRAL_NUMBERS[name]:
        return True
    return value is None or value is False or (isinstance(value, str) and value in _NEUTRAL)


def _mode(wrapper: Any) -> str | None:
    if getattr(wrapper, "is_cuda_graph_enabled", False) or getattr(
        wrapper, "_use_cuda_graph", False
    ):
        return "in CUDA graph mode, the wrapper's buffers are larger than what is used of them"
    return None


def _later(wrapper: Any) -> str | None:
    """What the deprecated ``forward`` sets after the plan."""
    for name in ("window_left", "logits_soft_cap", "pos_encoding_mode"):
        value = getattr(wrapper, f"_{name}", None)
        if not _is_neutral(name, value):
            return f"{name} is {value}"
    return None


def _other_output(planned: _Plan, given: Mapping[str, Any]) -> str | None:
    """That the output is of another dtype than queries are."""
    wanted = str(planned.given.get("o_data_type") or "").removeprefix("torch.")
    query = given.get("q") if given.get("q") is not None else given.get("q_nope")
    same = query is None or not wanted or str(query.dtype) == f"torch.{wanted}"
    return None if same else f"plan(o_data_type={wanted})"


def _returned(results: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """Results as FlashInfer returns them: in the caller's tensors, where there are any."""
    if given.get("return_lse") and len(results) < 2:
        raise Unroutable("the definition has no lse")
    out, lse = (
        result if given.get(name) is None else given[name].copy_(result)
        for name, result in zip(("out", "lse"), (*results, None), strict=False)
    )
    return (out, lse) if given.get("return_lse") else out


def _sm_scale(wrapper: Any, planned: _Plan, head_dim: int) -> float:
    given = getattr(wrapper, "_sm_scale", None)
    scale = planned.given.get("sm_scale") if given is None else given
    return float(head_dim**-0.5 if scale is None else scale)


def _must_be_causal(wrapper: Any, planned: _Plan) -> None:
    if not getattr(wrapper, "_causal", planned.given.get("causal")):
        raise Unroutable("it is not causal")


def _pages(wrapper: Any, cache: Any) -> tuple[Any, Any]:
    """Keys and values, each as pages of tokens of heads. Raises Unroutable."""
    layout = getattr(wrapper, "_kv_layout", "NHD")
    k, v = cache if isinstance(cache, (tuple, list)) else (cache[:, 0], cache[:, 1])
    if layout == "HND":
        k, v = k.transpose(1, 2), v.transpose(1, 2)
    if not (k.is_contiguous() and v.is_contiguous()):
        raise Unroutable(f"k and v are not contiguous as pages of tokens ({layout})")
    return k, v


def _paged_values(
    wrapper: Any, planned: _Plan, given: Mapping[str, Any]
) -> Callable[[Definition], dict[str, Any]]:
    """Of both wrappers over pages; prefill has other names for the same."""
    q = given["q"]
    k, v = _pages(wrapper, given["paged_kv_cache"])

    def values(definition: Definition) -> dict[str, Any]:
        arguments = {
            "q": q,
            "k_cache": k,
            "v_cache": v,
            "kv_indptr": planned.on(q.device, "indptr", "paged_kv_indptr"),
            "kv_indices": planned.on(q.device, "indices", "paged_kv_indices"),
            "sm_scale": _sm_scale(wrapper, planned, q.shape[-1]),
        }
        if planned.given.get("qo_indptr") is not None:
            arguments["qo_indptr"] = planned.on(q.device, "qo_indptr")
        last = planned.on(q.device, "last_page_len", "paged_kv_last_page_len")
        return arguments | _last_page_len(definition, planned, last, arguments["kv_indptr"])

    return values


def _last_page_len(
    definition: Definition, planned: _Plan, last: Any, kv_indptr: Any
) -> dict[str, Any]:
    """As long as the definition has it: some have one more entry, which is nobody's."""
    import torch

    spec = definition.inputs.get("kv_last_page_len")
    if spec is not None and spec.shape == ("len_indptr",) and len(last) < len(kv_indptr):
        last = planned.once("padded", lambda: torch.nn.functional.pad(last, (0, 1), value=1))
    return {"kv_last_page_len": last}


def _heads(q: Any, planned: _Plan) -> str:
    return f"h{q.shape[1]}_kv{planned.given['num_kv_heads']}_d{q.shape[2]}"


def _paged(
    kind: str, wrapper: Any, planned: _Plan, given: Mapping[str, Any]
) -> tuple[Sequence[str], Any]:
    if kind != "decode":
        _must_be_causal(wrapper, planned)
    size = planned.given["page_size"]
    name = f"gqa_paged_{kind}_{_heads(given['q'], planned)}_ps{size}"
    return [name], _paged_values(wrapper, planned, given)


def _ragged_prefill(
    wrapper: Any, planned: _Plan, given: Mapping[str, Any]
) -> tuple[Sequence[str], Any]:
    _must_be_causal(wrapper, planned)
    q, k, v = given["q"], given["k"], given["v"]
    if getattr(wrapper, "_kv_layout", "NHD") != "NHD":
        raise Unroutable("k and v are not laid out as tokens of heads (HND)")

    def values(definition: Definition) -> dict[str, Any]:
        return {
            "q": q,
            "k": k,
            "v": v,
            "qo_indptr": planned.on(q.device, "qo_indptr"),
            "kv_indptr": planned.on(q.device, "kv_indptr"),
            "sm_scale": _sm_scale(wrapper, planned, q.shape[-1]),
        }

    if q.shape[-1] == v.shape[-1]:
        return [f"gqa_ragged_prefill_causal_{_heads(q, planned)}"], values
    # Latent attention before absorption has other sizes of keys than of values.
    sizes = f"h{q.shape[1]}_qk{q.shape[2]}_vo{v.shape[2]}"
    return [f"mla_ragged_prefill_causal_{sizes}"], values


def _mla(wrapper: Any, planned: _Plan, given: Mapping[str, Any]) -> tuple[Sequence[str], Any]:
    q, pe = given["q_nope"], given["q_pe"]
    _check_mla(planned, given)
    is_decode = planned.once("decode", lambda: _is_decode(planned)) and len(q) > 0
    if not is_decode:
        _must_be_causal(wrapper, planned)
    kind = "mla_paged_decode" if is_decode else "mla_paged_prefill_causal"
    size = planned.given["page_size"]
    name = f"{kind}_h{q.shape[1]}_ckv{q.shape[2]}_kpe{pe.shape[2]}_ps{size}"

    def values(definition: Definition) -> dict[str, Any]:
        kv_indptr = planned.on(q.device, "kv_indptr")
        last = planned.once("last", lambda: _tokens_in_last_pages(planned).to(q.device))
        return {
            **{key: given[key] for key in ("q_nope", "q_pe", "ckv_cache", "kpe_cache")},
            "qo_indptr": planned.on(q.device, "qo_indptr"),
            "kv_indptr": kv_indptr,
            "kv_indices": planned.on(q.device, "kv_indices"),
            "sm_scale": float(planned.given["sm_scale"]),
        } | _last_page_len(definition, planned, last, kv_indptr)

    return [name], values


def _check_mla(planned: _Plan, given: Mapping[str, Any]) -> None:
    """Raise Unroutable where something is given in another form, or not at all."""
    if any(given[key] is None for key in ("q_nope", "q_pe", "ckv_cache", "kpe_cache")):
        raise Unroutable("queries or the cache are packed")
    for name in ("qo_indptr", "kv_indptr", "kv_indices", "kv_len_arr", "page_size", "sm_scale"):
        if planned.given.get(name) is None:
            raise Unroutable(f"plan() was given no {name}")
    if planned.given["page_size"] == 1 and not planned.once("full", lambda: _is_full(planned)):
        raise Unroutable("kv_len_arr leaves out pages")


def _is_decode(planned: _Plan) -> bool:
    return bool((planned.given["qo_indptr"].diff() == 1).all())


def _is_full(planned: _Plan) -> bool:
    return bool(
        (_tokens_in_last_pages(planned) == planned.given["kv_indptr"].diff().clamp(max=1)).all()
    )


def _tokens_in_last_pages(planned: _Plan) -> Any:
    given = planned.given
    pages = given["kv_indptr"].diff()
    return given["kv_len_arr"].to(pages.device) - (pages - 1).clamp(min=0) * given["page_size"]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "flashinfer.norm.rmsnorm": _rmsnorm,
    "flashinfer.norm.fused_add_rmsnorm": _fused_add_rmsnorm,
}
_WRAPPERS: dict[str, Callable[..., tuple[Sequence[str], Any]]] = {
    "flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper": functools.partial(_paged, "decode"),
    "flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper": functools.partial(
        _paged, "prefill_causal"
    ),
    "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper": _ragged_prefill,
    "flashinfer.mla.BatchMLAPagedAttentionWrapper": _mla,
}
