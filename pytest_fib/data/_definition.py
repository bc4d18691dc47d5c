"""What a kernel computes."""

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationInfo, field_validator

from ._base import (
    CheckedRecord,
    FilePart,
    OptionalList,
    OptionalText,
    Raw,
    Record,
    Size,
    Text,
    Violation,
    in_each,
    size_in_any_form,
)
from ._checks import definition_violations, unknown_axis, with_named_sizes
from ._definition_sections import Tolerance, WorkloadsSection
from ._dtypes import DType
from ._errors import shown

#: What a definition has here and not in FlashInfer Trace.
OWN_KEYS = ("workloads", "tolerances", "nondeterministic")
#: What a token is sampled from: probabilities, and limits of them.
SAMPLED_FROM = {"probs", "top_k", "top_p", "min_p"}
#: Inputs with one of these in their names make random choices repeatable.
RANDOMNESS = ("seed", "uniform", "noise")


class AxisVar(Record):
    """An axis whose size each workload gives."""

    type: Literal["var"] = "var"
    description: OptionalText = None


class AxisConst(Record):
    """An axis whose size the definition fixes."""

    type: Literal["const"] = "const"
    value: Size
    description: OptionalText = None


def _long_axis(value: Raw) -> Raw:
    if value == "var":
        return {"type": "var"}
    if isinstance(value, int) and not isinstance(value, bool):
        return {"type": "const", "value": value}
    if isinstance(value, (Mapping, AxisVar, AxisConst)):
        return value
    raise ValueError(f"should be var, a size, or a mapping with a type, not {shown(value)}")


def _typed_axis(value: Raw) -> Raw:
    if not isinstance(value, Mapping):
        return value
    typed = {"type": "const" if "value" in value else "var", **value}
    return {**typed, "value": size_in_any_form(value["value"])} if "value" in value else typed


Axis = Annotated[AxisVar | AxisConst, Field(discriminator="type"), BeforeValidator(_long_axis)]


def _axis_name(value: Raw) -> Raw:
    if isinstance(value, str):
        return value
    raise ValueError(f"should be an axis or a size, not {shown(value)}")


class TensorSpec(Record):
    """Shape (axis names) and dtype of one input or output.

    `shape` None is a Python scalar, an empty one a 0-D tensor.
    """

    shape: tuple[Annotated[Text, BeforeValidator(_axis_name)], ...] | None
    dtype: DType
    description: OptionalText = None

    @property
    def is_scalar(self) -> bool:
        """Whether this is a Python scalar rather than a tensor."""
        return self.shape is None

    def shape_at(self, axes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape in elements for these axis sizes (const ones included); () for a scalar.

        Raises KeyError where `axes` lacks one of the shape's.
        """
        return tuple(axes[axis] for axis in self.shape or ())


class Definition(CheckedRecord):
    """What a kernel computes: axes, inputs, outputs, and a reference that says how.

    `workloads`, `tolerances` and `nondeterministic` (the same inputs may give other bits each time,
    within the tolerances) are pytest-fib's own; exported, they drop out.
    """

    OWN = tuple((key,) for key in OWN_KEYS)

    name: FilePart
    op_type: FilePart
    description: OptionalText = None
    tags: OptionalList = Field(default_factory=list)
    axes: dict[str, Axis]
    constraints: OptionalList = Field(default_factory=list)
    inputs: dict[str, TensorSpec]
    outputs: dict[str, TensorSpec]
    reference: Text
    workloads: WorkloadsSection | None = None
    tolerances: dict[str, Tolerance] = Field(default_factory=dict)
    nondeterministic: Annotated[bool, Field(strict=True)] = False

    @field_validator("name")
    @classmethod
    def _usable_in_a_node_id(cls, name: str, info: ValidationInfo) -> str:
        # pytest's -v misprints a node id with a dot; datasets that exist have dots all the same.
        dots = "" if (info.context or {}).get("node_id") else "."
        if re.fullmatch(rf"\w[\w{dots}\-]*", name, re.ASCII):
            return name
        if "${" in name:
            raise ValueError(f"{name!r} has a variable, whose values `family` would list")
        signs = "'_', '.' and '-'" if dots else "'_' and '-'"
        allowed = f"letters of ASCII, digits, {signs}"
        raise ValueError(f"{name!r} should be {allowed}, not starting with '-'")

    @field_validator("outputs")
    @classmethod
    def _anything_to_check(
        cls, outputs: dict[str, TensorSpec], info: ValidationInfo
    ) -> dict[str, TensorSpec]:
        # Datasets may have such definitions; a file that somebody writes has forgotten something.
        if outputs or not (info.context or {}).get("node_id"):
            return outputs
        raise ValueError("there is no output, so any implementation would pass: name at least one")

    @classmethod
    def _usual_form(cls, data: Raw) -> Raw:
        return in_each(data, "axes", _typed_axis)

    @classmethod
    def _long_form(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        return with_named_sizes(data)

    @classmethod
    def _violations(cls, data: Mapping[str, Any]) -> Iterator[Violation]:
        return definition_violations(data)

    @property
    def const_axes(self) -> dict[str, int]:
        """Size of every const axis, by name."""
        return {name: axis.value for name, axis in self.axes.items() if axis.type == "const"}

    @property
    def var_axes(self) -> tuple[str, ...]:
        """Names of the axes that a workload sizes, in order."""
        return tuple(name for name, axis in self.axes.items() if axis.type == "var")

    def axis_values(self, workload_axes: Mapping[str, int]) -> dict[str, int]:
        """Every axis's size: the const ones, and the workload's for the others.

        Raises ValueError where the workload lacks a var axis, contradicts a const one, or has
        others: with all of these.
        """
        const = self.const_axes
        if problems := [*self._axis_problems(workload_axes, const)]:
            raise ValueError("; ".join(problems))
        return {name: const.get(name, workload_axes.get(name, 0)) for name in self.axes}

    def _axis_problems(self, given: Mapping[str, int], const: Mapping[str, int]) -> Iterator[str]:
        for name, size in given.items():
            if name not in self.axes:
                yield unknown_axis(name, self.axes)
            elif size != const.get(name, size):
                yield f"axis {name!r} is {const[name]}, not {size}"
        if missing := [name for name in self.var_axes if name not in given]:
            yield f"no value for axis {', '.join(map(repr, missing))}"

    def is_sampled(self, output: str) -> bool:
        """Whether an output is chosen at random.

        Where no tolerance says so, it is if it's a token for each row of `probs` [rows, vocabulary]
        and nothing but limits of these is given. That is how datasets define sampling.
        """
        if (tolerance := self.tolerances.get(output)) is not None:
            return tolerance.by == "samples"
        spec, probs = self.outputs[output], self.inputs.get("probs")
        if self.op_type != "sampling" or probs is None or not self.inputs.keys() <= SAMPLED_FROM:
            return False
        is_token = "int" in spec.dtype.value and len(self.outputs) == 1
        return is_token and len(probs.shape or ()) == 2 and spec.shape == (probs.shape or ())[:1]

    @property
    def is_seeded(self) -> bool:
        """Whether the inputs have a seed, so that random choices can be repeated."""
        return any(word in name for name in self.inputs for word in RANDOMNESS)

    def to_flashinfer(self) -> dict[str, Any]:
        """The definition as FlashInfer Trace has it: without what is pytest-fib's own."""
        exported = super().to_flashinfer()
        return {key: exported[key] for key in exported if key not in OWN_KEYS}
