"""What `workloads.inputs` of a definition may ask for: the generators' parameters and inputs."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ._base import Finding, Loc, Raw, hint, part

#: The most dimensions a tensor may have.
MOST_DIMS = 64


@dataclass(frozen=True)
class Form:
    """What a generator takes, and what it can fill.

    `numbers` are parameters that are numbers or expressions of axes, `inputs` those that name other
    inputs, `flags` those that are true or false, `texts` any text; `needs` can't be left out. It
    fills tensors of `dims` dimensions, at least and at most, of a class of dtypes, and Python
    scalars only with `scalar`.
    """

    numbers: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    dtypes: str = "any"
    dims: tuple[int, int] = field(default=(0, MOST_DIMS))
    scalar: bool = False

    @property
    def parameters(self) -> tuple[str, ...]:
        """Every parameter of its own."""
        return (*self.numbers, *self.inputs, *self.flags, *self.texts)


#: By name; what each makes is told by its function in `pytest_fib.workloads`.
FORMS: dict[str, Form] = {
    "values": Form(dtypes="floating"),
    "normal": Form(("mean", "std"), dtypes="floating"),
    "uniform": Form(("min", "max"), flags=("ends",), dtypes="floating", scalar=True),
    "integers": Form(("min", "max", "step"), flags=("ends",), dtypes="plain", scalar=True),
    "boolean": Form(("p",), dtypes="plain", scalar=True),
    "l2_normalized": Form(dtypes="floating", dims=(1, MOST_DIMS)),
    "probabilities": Form(("sharpness",), dtypes="floating", dims=(1, MOST_DIMS)),
    "router_logits": Form(dtypes="floating", dims=(1, MOST_DIMS)),
    "scales": Form(("min", "max"), dtypes="floating"),
    "quantized": Form(("block",), dtypes="fp8", dims=(1, MOST_DIMS)),
    "fp4": Form(dtypes="bytes"),
    "fp8_pages": Form(dtypes="bytes", dims=(3, MOST_DIMS)),
    "cos_sin_cache": Form(("base",), dtypes="floating", dims=(2, 2)),
    "cos": Form(("base",), flags=("twice",), dtypes="floating", dims=(2, MOST_DIMS)),
    "sin": Form(("base",), flags=("twice",), dtypes="floating", dims=(2, MOST_DIMS)),
    "indptr": Form(
        ("total", "page_size", "parts"),
        inputs=("at_least",),
        flags=("allow_empty",),
        needs=("total",),
        dtypes="integer",
        dims=(1, 1),
    ),
    "last_page_len": Form(
        ("page_size",),
        inputs=("indptr", "at_least"),
        needs=("page_size",),
        dtypes="integer",
        dims=(1, 1),
    ),
    "indices": Form(
        ("below", "pad"),
        flags=("unique",),
        needs=("below",),
        dtypes="integer",
        dims=(1, MOST_DIMS),
    ),
    "permutation": Form(dtypes="integer", dims=(1, 1)),
    "seq_lens": Form(("max", "pages", "page_size"), needs=("max",), dtypes="integer", dims=(1, 1)),
    "block_table": Form(
        ("pages", "page_size"),
        inputs=("lengths",),
        needs=("pages", "lengths"),
        dtypes="integer",
        dims=(2, 2),
    ),
    "positions": Form(("below",), needs=("below",), dtypes="integer", dims=(1, MOST_DIMS)),
    "topk_ids": Form(("experts",), needs=("experts",), dtypes="integer", dims=(1, MOST_DIMS)),
    "safetensors": Form(texts=("path", "tensor_key"), needs=("path", "tensor_key")),
    "routing": Form(("experts",), needs=("experts",), dtypes="packed ids", dims=(1, MOST_DIMS)),
}
#: Parameters of any generator that list axes: how the tensor lies in memory.
LAYOUTS = ("broadcast", "memory_order")
#: Names of regimes; `workloads` may list them under `values` and `layouts`. `usual` stands for all
#: that are drawn where nothing is listed.
VALUES = (
    "usual", "normal", "ones", "zeros", "zeros_and_ones", "small", "negative", "one_hot", "wide",
    "outlier", "cancelling", "shifted", "large", "subnormal", "mixed", "nan", "inf",
)  # fmt: skip
ODD_LAYOUTS = ("row_strided", "offset")
#: Classes of dtypes by name, each as what its members' names fully match.
DTYPES = {
    "any": ".*",
    "integer": "u?int.*",
    "floating": "(b?float(16|32)|float8.*)",
    "plain": "(u?int.*|b?float(16|32)|bool)",
    "bytes": "(float4.*|u?int8)",
    "packed ids": "int(32|64)",
    "fp8": "float8.*",
    "fp4": "float4.*",
    "bool": "bool",
}


def is_of(dtypes: str, dtype: str) -> bool:
    """Whether a dtype is of a class of them."""
    return re.fullmatch(DTYPES[dtypes], dtype) is not None


def rule_findings(data: Mapping[str, Any]) -> Iterator[Finding]:
    """What is wrong with the rules for inputs and the regimes of a definition's raw data."""
    section = part(data, "workloads")
    for key, known in (("values", VALUES), ("layouts", ODD_LAYOUTS)):
        for i, name in enumerate(_listed(part(section, key))):
            if isinstance(name, str) and name not in known:
                yield _unknown(("workloads", key, i), "regime", name, known)
    rules, inputs = part(section, "inputs"), part(data, "inputs")
    if isinstance(rules, Mapping) and isinstance(inputs, Mapping):
        for name, rule in rules.items():
            kind, spec = part(rule, "kind"), inputs.get(name)
            if isinstance(kind, str) and spec is not None:
                yield from _Rule(("workloads", "inputs", name), kind, rule, spec, data).findings()


def _unknown(loc: Loc, what: str, name: object, known: Any) -> Finding:
    there_is = hint(name, known) or f"; there are {', '.join(known)}"
    return Finding(loc, f"unknown {what} {name!r}{there_is}")


def _listed(value: Raw) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []


@dataclass(frozen=True)
class _Rule:
    """A rule with a kind, as it is written, and the input that it is for."""

    loc: Loc
    kind: str
    rule: Raw
    spec: Raw
    data: Mapping[str, Any]

    def findings(self) -> Iterator[Finding]:
        form = FORMS.get(self.kind)
        if form is None:
            yield _unknown((*self.loc, "kind"), "generator", self.kind, FORMS)
            return
        yield from self._unfit(form)
        given = self._parameters()
        for name in form.needs:
            if name not in given:
                yield Finding(self.loc, f"{self.kind} needs {name!r}")
        for name, value in given.items():
            message = self._mistake(form, name, value)
            if message is not None:
                yield Finding((*self.loc, name), message)

    def _parameters(self) -> Mapping[str, Any]:
        if not isinstance(self.rule, Mapping):
            return self.rule.params  # type: ignore[no-any-return]  # a record, already built
        beside = {k: v for k, v in self.rule.items() if k not in ("kind", "value", "params")}
        nested = self.rule.get("params")
        return {**(nested if isinstance(nested, Mapping) else {}), **beside}

    def _unfit(self, form: Form) -> Iterator[Finding]:
        """What of the input the generator can't fill."""
        dtype, shape = str(part(self.spec, "dtype")), part(self.spec, "shape")
        if not is_of(form.dtypes, dtype):
            yield Finding((*self.loc, "kind"), f"{self.kind} can't make {dtype}")
        least, most = form.dims
        if shape is None:
            if not form.scalar:
                yield Finding((*self.loc, "kind"), f"{self.kind} makes tensors, not scalars")
        elif not least <= len(_listed(shape)) <= most:
            wanted = f"{least}" if least == most else f"{least} or more"
            message = f"{self.kind} makes tensors of {wanted} dimensions, not {len(shape)}"
            yield Finding((*self.loc, "kind"), message)

    def _mistake(self, form: Form, name: str, value: Raw) -> str | None:
        axes, inputs = part(self.data, "axes"), part(self.data, "inputs")
        if name in form.numbers:
            return _bad_number(value, axes)
        if name in form.inputs:
            known = isinstance(value, str) and value in inputs
            return None if known else f"no input {value!r}{hint(value, inputs)}"
        if name in form.flags:
            return None if isinstance(value, bool) else f"should be true or false, not {value!r}"
        if name in form.texts:
            return None if isinstance(value, str) else f"should be text, not {value!r}"
        if name in (*LAYOUTS, "packed"):
            return self._bad_axes(name, value)
        all_there_are = ", ".join((*form.parameters, *LAYOUTS, "packed"))
        return f"{self.kind} has no parameter {name!r} (it has: {all_there_are})"

    def _bad_axes(self, name: str, value: Raw) -> str | None:
        shape = _listed(part(self.spec, "shape"))
        given = [value] if name == "packed" else value
        if not isinstance(given, (list, tuple)):
            return f"should be a list of axes, not {value!r}"
        unknown = next((axis for axis in given if axis not in shape), None)
        if unknown is not None:
            return f"{unknown!r} is not one of the input's axes, {', '.join(map(str, shape))}"
        return None


def _bad_number(value: Raw, axes: Raw) -> str | None:
    """Why a parameter is neither a number nor an expression of axes."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return None
    if not isinstance(value, str):
        return f"should be a number or an expression of axes, not {value!r}"
    try:
        tree = ast.parse(value.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return f"should be a number or an expression of axes, not {value!r}"
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
    known = axes if isinstance(axes, Mapping) else {}
    unknown = next((name for name in names if name not in (*known, "min", "max")), None)
    return None if unknown is None else f"unknown axis {unknown!r}{hint(unknown, known)}"
