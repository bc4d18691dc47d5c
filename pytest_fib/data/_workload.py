"""One test case of a definition."""

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import Field, ValidationInfo, field_validator

from ._base import Raw, Record, Scalar, Size, Text, in_each, size_in_any_form, to_plain

# Names that a workload's `regime` may have; what each does is in `pytest_fib.workloads`.

#: Value patterns of floating inputs, plainest first: in that order a failure is shrunk.
VALUE_PATTERNS = (
    "normal", "ones", "zeros", "zeros_and_ones", "small", "negative", "one_hot", "wide", "outlier",
    "cancelling", "shifted", "large", "subnormal", "mixed", "nan", "inf",
)  # fmt: skip
#: Those that a definition must ask for, under ``workloads.values``.
ON_REQUEST = ("nan", "inf")
#: How inputs lie in memory; all but the first must be asked for, under ``workloads.layouts``.
LAYOUTS = ("contiguous", "row_strided", "offset")
ODD_LAYOUTS = LAYOUTS[1:]
#: Which of the inputs that follow the value pattern do so; the others are normal.
INPUTS = ("all", "some", "one")
#: How a total is split over sequences, plainest first.
LENGTHS = ("random", "equal", "one_long", "empties", "ones", "tiles", "boundaries")
#: The part of a regime that is a number, which some elements and scalars equal or are next to.
NEAR = "near"
#: The parts of a regime that are one of several names.
REGIMES = {"values": VALUE_PATTERNS, "inputs": INPUTS, "lengths": LENGTHS, "layout": LAYOUTS}


class RandomInput(Record):
    """An input the generators fill."""

    type: Literal["random"] = "random"
    # Older records repeat the definition's dtype here; it says nothing new.
    dtype: Annotated[str | None, Field(exclude=True)] = None


class ScalarInput(Record):
    """A Python scalar input."""

    type: Literal["scalar"] = "scalar"
    value: Scalar


class SafetensorsInput(Record):
    """An input recorded in a safetensors file; `path` is relative to the dataset's root."""

    type: Literal["safetensors"] = "safetensors"
    path: Text
    tensor_key: Text


InputSpec = Annotated[RandomInput | ScalarInput | SafetensorsInput, Field(discriminator="type")]


def _typed_input(given: Raw) -> Raw:
    if not isinstance(given, Mapping):
        return given
    kind = "scalar" if "value" in given else "safetensors" if "path" in given else "random"
    typed = {"type": kind, **given}
    value = given.get("value")
    return {**typed, "value": _number(value)} if isinstance(value, str) else typed


def _number(text: str) -> Raw:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


class Workload(Record):
    """Values for a definition's var axes and a spec for its inputs.

    `seed` and `regime` are pytest-fib's own: which random values, and by which value pattern,
    split of lengths and memory layout. What the regime leaves out is the plainest.
    `uuid`, not given, follows from all the rest: the same case has the same id everywhere.
    """

    OWN = (("seed",), ("regime",))

    axes: dict[str, Size]
    inputs: dict[str, InputSpec] = Field(default_factory=dict)
    seed: Annotated[int, Field(strict=True, exclude_if=lambda seed: seed == 0)] = 0
    regime: Annotated[dict[str, str], Field(exclude_if=lambda regime: not regime)] = Field(
        default_factory=dict
    )
    uuid: Annotated[str, Field(validate_default=True)] = ""

    @classmethod
    def _usual_form(cls, data: Raw) -> Raw:
        sized = in_each(data, "axes", size_in_any_form)
        return in_each(sized, "inputs", _typed_input)

    @field_validator("uuid", mode="before")
    @classmethod
    def _from_content(cls, uuid: Raw, info: ValidationInfo) -> Raw:
        return uuid or _content_id(info.data)

    @property
    def has_recorded_tensors(self) -> bool:
        """Whether it is more than what follows from its axes, value patterns and seed."""
        return any(spec.type == "safetensors" for spec in self.inputs.values())

    def to_json(self) -> str:
        """This workload as one line of strict JSON."""
        return json.dumps(self.to_flashinfer(), separators=(",", ":"), allow_nan=False)


def _content_id(fields: dict[str, Any]) -> str:
    content = {name: fields.get(name) for name in ("axes", "seed", "regime")}
    content["inputs"] = {k: v.model_dump() for k, v in fields.get("inputs", {}).items()}
    text = json.dumps(to_plain(content), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return str(UUID(bytes=hashlib.sha256(text.encode()).digest()[:16]))
